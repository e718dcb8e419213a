/* run_graph.c - loads the net that save_graph.c saved, and runs it.
 *
 *     run_graph net.onnx
 *
 * The program does not define a net: layers, weights and names come from the file.
 */
#include <gradus/gradus.h>

#include <stdio.h>

#include "show.h"

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    const char *path = argc > 1 ? argv[1] : "net.onnx";
    GD_SCOPE;
    gd_graph *graph = gd_onnx_load(path);
    gd_tensor *xs = gd_load_npy("net_x.npy"), *ys = gd_load_npy("net_y.npy");
    if (gd_failed()) return show_failure();

    gd_session *session = gd_session_new(graph);
    gd_tensor *x = gd_graph_find(graph, "x"), *prediction = gd_graph_find(graph, "prediction");
    gd_tensors result = gd_session_run(session, gd_feed(x, xs), gd_list(prediction));
    double loss = gd_item(gd_sum(gd_square(gd_sub(result.at[0], ys))));
    printf("%s has a loss of %.2e on its training data.\n", path, loss);
    return show_failure();
}
