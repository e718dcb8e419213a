/* graph_variables.c - a two-layer net as a graph; the weights are variables, and the graph updates
 * them.
 *
 * The session keeps the values of variables between runs. gd_assign is a node like any other: it
 * runs only if it is fetched, here through gd_group. A run that fetches only the loss does not
 * change the weights.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { N = 64, D = 1000, H = 100, STEPS = 50 };

static bool are_equal(gd_tensor *a, gd_tensor *b) {
    return gd_item(gd_max(gd_abs(gd_sub(a, b)))) == 0;
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(0);
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *w1, *w2, *loss, *updates;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(N, D), .name = "x");
        y = gd_placeholder(gd_dims(N, D), .name = "y");
        /* the initial values are drawn once, when the session starts */
        w1 = gd_variable(gd_randn(gd_dims(D, H)), .name = "w1");
        w2 = gd_variable(gd_randn(gd_dims(H, D)), .name = "w2");
        gd_tensor *h = gd_clamp(gd_matmul(x, w1), .min = 0);
        gd_tensor *error = gd_sub(gd_matmul(h, w2), y);
        loss = gd_mean(gd_sum(gd_square(error), .axis = 1));
        gd_tensors g = gd_gradients(gd_list(loss), gd_list(w1, w2));
        gd_tensor *lr = gd_scalar(1e-5);
        updates = gd_group(gd_list(gd_assign(w1, gd_sub(w1, gd_mul(lr, g.at[0]))),
                                   gd_assign(w2, gd_sub(w2, gd_mul(lr, g.at[1])))));
    }
    gd_session *session = gd_session_new(graph);
    gd_tensor *xs = gd_randn(gd_dims(N, D)), *ys = gd_randn(gd_dims(N, D));

    gd_tensor *before = gd_session_get(session, w1);
    for (int i = 0; i < 3; i++) gd_session_run(session, gd_feed(x, xs, y, ys), gd_list(loss));
    const bool unchanged = are_equal(before, gd_session_get(session, w1));
    printf("Fetching only the loss %s the weights.\n", unchanged ? "does not change" : "changes");

    for (int step = 1; step <= STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_tensors r = gd_session_run(session, gd_feed(x, xs, y, ys), gd_list(loss, updates));
        if (step == 1 || step % 5 == 0) show_loss(step, gd_item(r.at[0]));
    }
    return show_failure();
}
