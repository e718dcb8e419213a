/* fuse_ways.c - runs functions of tensors in all ways and compares the results. */
#include "fuse_ways.h"

#include <math.h>
#include <string.h>

#include "test.h"

planned plan(body_fn body, const void *arg, gd_tensor *const *x, int n, int level) {
    planned p = {.n_feeds = 2 * n};
    gd_tensor *symbols[MAX_VALUES];
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    for (int i = 0; i < n; i++) {
        symbols[i] = gd_placeholder(gd_tensor_shape(x[i]), .dtype = gd_tensor_dtype(x[i]));
        p.feeds[2 * i] = symbols[i];
        p.feeds[2 * i + 1] = x[i];
    }
    p.fetches = body(symbols, arg);
    p.session = gd_session_new(graph, .level = level);
    return p;
}

gd_tensors run(planned *p) {
    return gd_session_run(p->session, ((gd_tensors){p->feeds, p->n_feeds}),
                          ((gd_tensors){p->fetches.at, p->fetches.count}));
}

char *text_of(planned *p) {
    return gd_session_plan_text(p->session, ((gd_tensors){p->feeds, p->n_feeds}),
                                ((gd_tensors){p->fetches.at, p->fetches.count}));
}

int count(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text++) n++;
    return n;
}

bool same_numbers(gd_tensor *a, gd_tensor *b, double tolerance) {
    a = gd_contiguous(a);
    b = gd_contiguous(b);
    if (gd_failed() || gd_tensor_numel(a) != gd_tensor_numel(b) ||
        gd_tensor_dtype(a) != gd_tensor_dtype(b))
        return false;
    const size_t size = gd_dtype_size(gd_tensor_dtype(a));
    gd_tensor *p = gd_cast(a, GD_F64), *q = gd_cast(b, GD_F64);
    for (int64_t i = 0; i < gd_tensor_numel(a); i++) {
        if (memcmp((const char *)gd_data(a) + (size_t)i * size,
                   (const char *)gd_data(b) + (size_t)i * size, size) == 0)
            continue;
        const double u = ((const double *)gd_data(p))[i], v = ((const double *)gd_data(q))[i];
        if (isnan(u) && isnan(v)) continue;
        if (!(fabs(u - v) <= tolerance * (1 + fabs(v)))) return false;
    }
    return true;
}

void check_all_ways(const char *what, body_fn body, const void *arg, gd_tensor *const *x, int n,
                    double tolerance) {
    GD_SCOPE;
    results eager = body(x, arg);
    for (int compiled = 0; compiled < 2; compiled++) {
        if (compiled) use_compiler();
        else use_evaluator();
        planned p = plan(body, arg, x, n, 2);
        gd_tensors got = run(&p);
        CHECK_SAYING(!gd_failed(), "%s: %s", what, gd_error_message());
        for (int i = 0; i < eager.count && !gd_failed(); i++)
            CHECK_SAYING(same_numbers(got.at[i], eager.at[i], tolerance), "%s, result %d, %s", what,
                         i, compiled ? "compiled" : "evaluator");
        gd_clear_error();
    }
    use_evaluator();
}

gd_tensor *noise(gd_shape dims, gd_dtype dtype) { return gd_cast(gd_randn(dims), dtype); }
