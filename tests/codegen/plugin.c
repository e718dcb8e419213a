/* plugin.c - a plugin that uses the shared library: a host that opens it has a copy of the library in
 * its process, and another one each time it closes the plugin and opens it again. */
#include <math.h>
#include <string.h>

#include "gradus/gradus.h"

static int failures; /* expressions without a compiled kernel */

static void count_failures(gd_log_level level, const char *message, void *user) {
    (void)level;
    (void)user;
    failures += strstr(message, "no compiled kernel") != NULL;
}

/* Runs a plan with a kernel that no other number has. Returns the expressions that were not
 * compiled; -1: the result is wrong. */
GD_API int run_plan(int number) {
    GD_SCOPE;
    gd_set_log(count_failures, NULL);
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y;
    failures = 0;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(100, 100));
        y = gd_mul(x, x);
        for (int i = 0; i < number; i++) y = gd_mul(gd_add(y, x), x);
    }
    gd_session *s = gd_session_new(graph);
    const double got = gd_item(
        gd_sum(gd_session_run(s, gd_feed(x, gd_full(gd_dims(100, 100), 0.5)), gd_list(y)).at[0]));
    double want = 0.25;
    for (int i = 0; i < number; i++) want = (want + 0.5) * 0.5;
    const bool right = !gd_failed() && fabs(got - 1e4 * want) < 1;
    gd_set_log(NULL, NULL);
    return right ? failures : -1;
}
