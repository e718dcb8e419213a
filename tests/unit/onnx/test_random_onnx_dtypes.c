/* test_random_onnx_dtypes.c - random graphs of all dtypes give the same values after they were
 * saved as ONNX and loaded. */

#include "test.h"
#include "random_dtypes.h"
#include "temp.h"

static const char *path;

typedef struct model {
    gd_session *session;
    gd_tensor *feeds[2 * INPUTS];
    results fetches;
} model;

static void name_of(const char *what, int i, char *name) { snprintf(name, 20, "%s%d", what, i); }

static model build_model(uint64_t seed, enum kind kind, gd_tensor *const *x) {
    model m;
    gd_graph *graph = gd_graph_new();
    gd_tensor *in[INPUTS];
    GD_GRAPH(graph);
    for (int i = 0; i < INPUTS; i++) {
        char name[20];
        name_of("x", i, name);
        in[i] = gd_placeholder(gd_tensor_shape(x[i]), .dtype = gd_tensor_dtype(x[i]), .name = name);
        m.feeds[2 * i] = in[i];
        m.feeds[2 * i + 1] = x[i];
    }
    m.fetches = dtype_graph(seed, kind, in);
    for (int i = 0; i < m.fetches.count && !gd_failed(); i++) {
        char name[20];
        name_of("y", i, name);
        m.fetches.at[i] = gd_named(gd_slice(m.fetches.at[i], .axis = 0, .step = -1), name);
    }
    m.session = gd_session_new(graph, .level = 0);
    return m;
}

static gd_status save_model(const model *m, bool own_ops) {
    gd_tensor *in[INPUTS];
    for (int i = 0; i < INPUTS; i++) in[i] = m->feeds[2 * i];
    return gd_onnx_save(path, m->session, ((gd_tensors){in, INPUTS}),
                        ((gd_tensors){(gd_tensor **)m->fetches.at, m->fetches.count}),
                        .own_ops = own_ops);
}

static bool load_model(model *m, gd_tensor *const *x, int n) {
    gd_graph *graph = gd_onnx_load(path);
    if (!graph) return false;
    char name[20];
    for (int i = 0; i < INPUTS; i++) {
        name_of("x", i, name);
        m->feeds[2 * i] = gd_graph_find(graph, name);
        m->feeds[2 * i + 1] = x[i];
        if (!m->feeds[2 * i]) return false;
    }
    m->fetches.count = n;
    for (int i = 0; i < n; i++) {
        name_of("y", i, name);
        m->fetches.at[i] = gd_graph_find(graph, name);
        if (!m->fetches.at[i]) return false;
    }
    m->session = gd_session_new(graph, .level = 0);
    return true;
}

static results run_model(model *m) {
    results r = {.count = 0};
    const gd_tensors got = gd_session_run(m->session, ((gd_tensors){m->feeds, 2 * INPUTS}),
                                          ((gd_tensors){m->fetches.at, m->fetches.count}));
    for (int i = 0; i < got.count; i++) r.at[r.count++] = gd_clone(got.at[i]);
    return r;
}

static void check_graph(uint64_t seed) {
    gd_tensor *x[INPUTS];
    const enum kind kind = dtype_inputs(seed, x);
    model before = build_model(seed, kind, x), after;
    if (gd_failed()) return;
    const bool own_ops = seed % 2;
    if (save_model(&before, own_ops) != GD_OK) {
        CHECK_SAYING(!own_ops && strstr(gd_error_message(), "own_ops"), "seed %llu: %s",
                     (unsigned long long)seed, gd_error_message());
        gd_clear_error();
        return;
    }
    const bool loaded = load_model(&after, x, before.fetches.count);
    CHECK_SAYING(loaded, "seed %llu: %s", (unsigned long long)seed, gd_error_message());
    if (!loaded) return;
    const results expected = run_model(&before), got = run_model(&after);
    if (!gd_failed()) check_same(seed, "loaded", &expected, &got, kind == FLOATS ? 1e-3 : 0);
}

TEST(random_graphs_of_all_dtypes_give_the_same_results_after_saving_and_loading) {
    path = temp_path("random.onnx");
    without_half_precision =
        true; /* a file casts integers to half precision before a sum, a kernel only the sum */
    for_each_seed(90, check_graph);
}

TEST_MAIN
