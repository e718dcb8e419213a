/* warnings.c - calls with arguments about which -Wconversion and others warn: one for each value of
 * WARNING. The headers must not hide that. With WARNING=0 nothing is wrong. */
#include <gradus/gradus.h>

void calls(gd_tensor *x, double real, const void *fixed);
void calls(gd_tensor *x, double real, const void *fixed) {
    GD_SCOPE;
    (void)x, (void)real, (void)fixed;
#if WARNING == 0
    gd_topk(x, 2, .axis = 1);
#elif WARNING == 1
    gd_topk(x, real);
#elif WARNING == 2
    gd_topk(x, 2, .axis = real);
#elif WARNING == 3
    gd_jit_new(NULL, fixed);
#elif WARNING == 4
    gd_jit_new(NULL, NULL, .level = 1L << 40);
#elif WARNING == 5
    gd_fit(NULL, gd_list(x), .step_user = fixed);
#elif WARNING == 6
    int axis = 0;
    gd_topk(x, ({
                int axis = 1;
                axis;
            }));
    gd_topk(x, axis);
#endif
}
