/* graph_cond.c - a branch in a graph: y = x w1 if z is positive, else x w2.
 *
 * Eager code would use `if`. A graph is built before z is known, so both branches become subgraphs,
 * and each run takes one of them, depending on z. So do the gradients: weights that were not used
 * get zeros.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { N = 3, D = 4, H = 5 };

/* Both branches take x as input; the weights are captured. */
typedef struct weights {
    gd_tensor *w1, *w2;
} weights;
static gd_tensors multiply_w1(gd_tensors in, void *user) {
    return gd_listed(gd_matmul(in.at[0], ((weights *)user)->w1));
}
static gd_tensors multiply_w2(gd_tensors in, void *user) {
    return gd_listed(gd_matmul(in.at[0], ((weights *)user)->w2));
}

static double distance(gd_tensor *a, gd_tensor *b) { return gd_item(gd_max(gd_abs(gd_sub(a, b)))); }

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(0);
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *z, *y;
    gd_tensors gradients;
    weights w;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(N, D), .name = "x");
        z = gd_placeholder(gd_dims(), .name = "z");
        w = (weights){gd_variable(gd_randn(gd_dims(D, H)), .name = "w1"),
                      gd_variable(gd_randn(gd_dims(D, H)), .name = "w2")};
        y = gd_cond(gd_gt(z, 0), multiply_w1, multiply_w2, gd_list(x), &w).at[0];
        gradients = gd_gradients(gd_list(gd_sum(y)), gd_list(w.w1, w.w2));
    }
    gd_session *session = gd_session_new(graph);
    gd_tensor *xs = gd_randn(gd_dims(N, D)), *w1 = gd_session_get(session, w.w1),
              *w2 = gd_session_get(session, w.w2);
    for (int sign = -1; sign <= 1; sign += 2) {
        gd_tensors r = gd_session_run(session, gd_feed(x, xs, z, gd_scalar(10 * sign)),
                                      gd_list(y, gradients.at[0], gradients.at[1]));
        gd_tensor *by_if =
            sign > 0 ? gd_matmul(xs, w1) : gd_matmul(xs, w2); /* the same in eager code */
        const double g1 = gd_item(gd_max(gd_abs(r.at[1]))), g2 = gd_item(gd_max(gd_abs(r.at[2])));
        printf("z = %3d: y is x w%d to within %g; gradients of w1 up to %.2f, of w2 up to %.2f\n",
               10 * sign, sign > 0 ? 1 : 2, distance(r.at[0], by_if), g1, g2);
    }
    return show_failure();
}
