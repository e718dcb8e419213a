/* graph_layers.c - a two-layer net of dense layers, which create their variables.
 *
 * The weights have the initialization of Glorot and Bengio ("Xavier"), which keeps the variance of
 * activations and gradients; the biases are zeros. The optimizer gets all variables of the graph.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { N = 64, D = 1000, H = 100, STEPS = 50 };

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(0);
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *loss, *train;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(N, D), .name = "x");
        y = gd_placeholder(gd_dims(N, D), .name = "y");
        gd_tensor *h = gd_dense(x, H, .activation = "relu", .name = "hidden");
        loss = gd_mse_loss(gd_dense(h, D, .name = "output"), y);
        train = gd_minimize(gd_optim_sgd(gd_graph_variables(graph), .lr = 1.0), loss);
    }
    gd_session *session = gd_session_new(graph);
    gd_tensor *xs = gd_randn(gd_dims(N, D)), *ys = gd_randn(gd_dims(N, D));
    for (int step = 1; step <= STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_tensors r = gd_session_run(session, gd_feed(x, xs, y, ys), gd_list(loss, train));
        if (step == 1 || step % 5 == 0) show_loss(step, gd_item(r.at[0]));
    }
    return show_failure();
}
