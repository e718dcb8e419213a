/* graph_loss.c - the net of graph_variables.c, with a loss and an optimizer of the library. */
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
        gd_tensor *w1 = gd_variable(gd_randn(gd_dims(D, H)), .name = "w1");
        gd_tensor *w2 = gd_variable(gd_randn(gd_dims(H, D)), .name = "w2");
        gd_tensor *h = gd_clamp(gd_matmul(x, w1), .min = 0);
        loss = gd_mse_loss(gd_matmul(h, w2), y); /* the mean over all elements */
        train = gd_minimize(gd_optim_sgd(gd_graph_variables(graph), .lr = 1e-3), loss);
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
