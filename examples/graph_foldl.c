/* graph_foldl.c - a loop in a graph: y_t = (y_{t-1} + x_t) * w, as in a recurrent net.
 *
 * Eager code would use `for`. In a graph the step is traced once, and one node loops over x, whose
 * length may differ in each run. The gradient of w is the sum over all steps.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { D = 4 };

/* Computes y_t from y_{t-1} and x_t; w is captured. */
static gd_tensor *next_state(gd_tensors in, void *w) {
    return gd_mul(gd_add(in.at[0], in.at[1]), w);
}

static double distance(gd_tensor *a, gd_tensor *b) { return gd_item(gd_max(gd_abs(gd_sub(a, b)))); }

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(0);
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y0, *w, *y, *gradient;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(GD_ANY, D), .name = "x"); /* any number of steps */
        y0 = gd_placeholder(gd_dims(D), .name = "y0");
        w = gd_placeholder(gd_dims(D), .name = "w");
        y = gd_foldl(next_state, y0, gd_list(x), w);
        gradient = gd_gradients(gd_list(gd_sum(y)), gd_list(w)).at[0];
    }
    gd_session *session = gd_session_new(graph);
    gd_tensor *y0s = gd_randn(gd_dims(D)), *ws = gd_requires_grad(gd_randn(gd_dims(D)));
    for (int steps = 0; steps <= 12; steps += 3) {
        gd_tensor *xs = gd_randn(gd_dims(steps, D));
        gd_tensors r = gd_session_run(session, gd_feed(x, xs, y0, y0s, w, gd_detach(ws)),
                                      gd_list(y, gradient));

        gd_tensor *by_for = y0s; /* the same in eager code */
        for (int t = 0; t < steps; t++) by_for = gd_mul(gd_add(by_for, gd_select(xs, 0, t)), ws);
        gd_tensor *g =
            steps ? gd_grad(gd_list(gd_sum(by_for)), gd_list(ws)).at[0] : gd_zeros(gd_dims(D));
        printf("%2d steps: y differs by %g from the loop in C, the gradient by %g\n", steps,
               distance(r.at[0], by_for), distance(r.at[1], g));
    }
    return show_failure();
}
