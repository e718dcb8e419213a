/* save_graph.c - trains a two-layer net as a graph and saves it as an ONNX file.
 *
 *     save_graph net.onnx
 *
 * run_graph.c, or any other program that reads ONNX, can run the file.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { N = 64, D_IN = 1000, H = 100, D_OUT = 10, STEPS = 500 };

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    const char *path = argc > 1 ? argv[1] : "net.onnx";
    GD_SCOPE;
    gd_seed(0);
    gd_tensor *xs = gd_randn(gd_dims(N, D_IN)), *ys = gd_randn(gd_dims(N, D_OUT));

    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *prediction, *loss, *train;
    {
        GD_GRAPH(graph); /* ops in this block are recorded, not run */
        x = gd_placeholder(gd_dims(GD_ANY, D_IN), .name = "x");
        y = gd_placeholder(gd_dims(GD_ANY, D_OUT), .name = "y");
        gd_tensor *w1 = gd_variable(gd_randn(gd_dims(D_IN, H)), .name = "w1");
        gd_tensor *w2 = gd_variable(gd_randn(gd_dims(H, D_OUT)), .name = "w2");
        prediction = gd_named(gd_matmul(gd_relu(gd_matmul(x, w1)), w2), "prediction");
        loss = gd_sum(gd_square(gd_sub(prediction, y)));
        gd_tensors g = gd_gradients(gd_list(loss), gd_list(w1, w2));
        gd_tensor *lr = gd_scalar(1e-6);
        train = gd_group(gd_list(gd_assign(w1, gd_sub(w1, gd_mul(lr, g.at[0]))),
                                 gd_assign(w2, gd_sub(w2, gd_mul(lr, g.at[1])))));
    }

    gd_session *session = gd_session_new(graph);
    for (int step = 1; step <= STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_tensors r = gd_session_run(session, gd_feed(x, xs, y, ys), gd_list(loss, train));
        if (step == 1 || step % 100 == 0) show_loss(step, gd_item(r.at[0]));
    }

    /* saves the nodes between x and the prediction, without the training */
    gd_onnx_save(path, session, gd_list(x), gd_list(prediction));
    gd_save_npy("net_x.npy", xs); /* run_graph computes the loss with them */
    gd_save_npy("net_y.npy", ys);
    if (!gd_failed()) printf("Saved as %s.\n", path);
    return show_failure();
}
