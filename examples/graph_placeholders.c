/* graph_placeholders.c - a two-layer net as a graph; each run is fed the weights.
 *
 * The graph is built once: placeholders, which have no memory, the loss, and its gradients as
 * further nodes. Each run is fed the data and the weights, and returns the loss and both gradients;
 * the program updates the weights. graph_variables.c keeps the weights in the graph.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { N = 64, D = 1000, H = 100, STEPS = 50 };

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE; /* tensors created in this block are freed at its end */
    gd_seed(0);
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *w1, *w2, *loss;
    gd_tensors gradients;
    {
        GD_GRAPH(graph); /* ops in this block are recorded, not run */
        x = gd_placeholder(gd_dims(N, D), .name = "x");
        y = gd_placeholder(gd_dims(N, D), .name = "y");
        w1 = gd_placeholder(gd_dims(D, H), .name = "w1");
        w2 = gd_placeholder(gd_dims(H, D), .name = "w2");
        gd_tensor *h = gd_clamp(gd_matmul(x, w1), .min = 0);
        gd_tensor *error = gd_sub(gd_matmul(h, w2), y);
        loss = gd_mean(gd_sum(gd_square(error), .axis = 1)); /* the mean over samples */
        gradients = gd_gradients(gd_list(loss), gd_list(w1, w2));
    }
    gd_session *session = gd_session_new(graph);
    gd_tensor *xs = gd_randn(gd_dims(N, D)), *ys = gd_randn(gd_dims(N, D));
    gd_tensor *w1s = gd_randn(gd_dims(D, H)), *w2s = gd_randn(gd_dims(H, D)), *lr = gd_scalar(1e-5);

    for (int step = 1; step <= STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_tensors r = gd_session_run(session, gd_feed(x, xs, y, ys, w1, w1s, w2, w2s),
                                      gd_list(loss, gradients.at[0], gradients.at[1]));
        gd_sub_(w1s, gd_mul(lr, r.at[1]));
        gd_sub_(w2s, gd_mul(lr, r.at[2]));
        if (step == 1 || step % 5 == 0) show_loss(step, gd_item(r.at[0]));
    }
    return show_failure();
}
