/* consumer.c - a program that knows only the installed library. */
#include <gradus/gradus.h>

#include <math.h>
#include <stdio.h>

int main(void) {
    GD_SCOPE;
    const float values[] = {-2, -1, 0, 1, 2, 3};
    gd_tensor *x = gd_requires_grad(gd_from_array(gd_dims(2, 3), GD_F32, values));
    gd_tensor *y = gd_sum(gd_leaky_relu(x, .slope = 0.5), .axis = 1);
    {
        GD_SCOPE; /* scopes nest without a warning */
        gd_backward(gd_sum(y));
    }
    if (gd_failed()) {
        fprintf(stderr, "%s\n", gd_error_message());
        return 1;
    }
    float sums[2], slopes[6];
    if (gd_copy_to(y, sums, sizeof sums) != GD_OK) return 1;
    if (gd_copy_to(gd_tensor_grad(x), slopes, sizeof slopes) != GD_OK) return 1;
    printf("%g %g, %g %g\n", sums[0], sums[1], slopes[0], slopes[5]);
    return sums[0] == -1.5f && sums[1] == 6 && slopes[0] == 0.5f && slopes[5] == 1 ? 0 : 1;
}
