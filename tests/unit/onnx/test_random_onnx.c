/* test_random_onnx.c - random graphs give the same results after they were saved as ONNX and
 * loaded, for batches of several sizes. Gradients are among the results.
 *
 * Every second file may contain the library's own ops; the other files cannot store graphs that
 * need such an op.
 */

#include "test.h"
#include "draw.h"
#include "random_batch.h"
#include "temp.h"
#include "values.h"

enum { MAX_VALUES = 40 };

static const char *path;

static results graph_body(uint64_t seed, gd_tensor *x, gd_tensor *const *p) {
    draws d = {seed * 7919 + 8};
    gd_tensor *pool[MAX_VALUES] = {x, gd_mul(x, p[0])};
    results r = {.count = 0};
    int n = 2;
    const int length = 2 + draw_below(&d, draw_below(&d, 4) ? 8 : MAX_VALUES - 6);
    const bool by_data = draw_below(&d, 6) == 0;
    for (int i = 0; i < length; i++) {
        gd_tensor *a = pool[draw_below(&d, n)], *b = pool[n - 1 - draw_below(&d, n < 5 ? n : 5)];
        pool[n++] = random_op(&d, by_data, NULL, a, b, p);
        if (draw_below(&d, 4) == 0 && r.count < MAX_RESULTS / 2) r.at[r.count++] = pool[n - 1];
    }
    r.at[r.count++] = pool[n - 1];
    if (seed % 4 < 2) {
        gd_tensor *loss = gd_sum(gd_sin(pool[n - 1]));
        for (int i = 0; i < PARAMETERS; i++) loss = gd_add(loss, gd_sum(gd_square(p[i])));
        const gd_tensors g = gd_grad(gd_list(loss), ((gd_tensors){(gd_tensor **)p, PARAMETERS}));
        for (int i = 0; i < PARAMETERS && !gd_failed(); i++) r.at[r.count++] = g.at[i];
    }
    return r;
}

static bool needs_own_ops(void) { return strstr(gd_error_message(), "own_ops") != NULL; }

static void run_session(gd_session *session, gd_tensor *fed, gd_tensor *x, const results *symbols,
                        results *r) {
    const gd_tensors got = gd_session_run(
        session, gd_feed(fed, x), ((gd_tensors){(gd_tensor **)symbols->at, symbols->count}));
    r->count = got.count;
    for (int i = 0; i < got.count; i++) r->at[i] = gd_clone(got.at[i]);
}

static const int batches[] = {3, 1, 0, 5};
enum { BATCHES = sizeof batches / sizeof *batches };

static void name_of(int i, char *name) { snprintf(name, 20, "result%d", i); }

/* Saves a graph and returns its session and results; each result has another name. */
static gd_session *save_random_graph(uint64_t seed, gd_tensor *const *first, gd_tensor **fed,
                                     results *symbols, gd_status *status) {
    gd_graph *graph = gd_graph_new();
    gd_tensor *p[ALL];
    GD_GRAPH(graph);
    *fed = gd_placeholder(gd_dims(seed % 3 ? GD_ANY : 3, COLUMNS), .dtype = GD_F64, .name = "x");
    for (int i = 0; i < ALL; i++) p[i] = gd_variable(first[i]);
    *symbols = graph_body(seed, *fed, p);
    for (int i = 0; i < symbols->count && !gd_failed(); i++) {
        char name[20];
        name_of(i, name);
        symbols->at[i] = gd_named(gd_mul(symbols->at[i], scalar_f64(2)), name);
    }
    gd_session *session = gd_session_new(graph, .level = (int)(seed % 2));
    *status = gd_onnx_save(path, session, gd_list(*fed),
                           ((gd_tensors){symbols->at, symbols->count}), .own_ops = seed % 2);
    return session;
}

static void check_graph(uint64_t seed) {
    gd_tensor *x[BATCHES], *first[ALL], *fed;
    const int n = seed % 3 ? BATCHES : 1;
    results symbols, loaded, expected, got;
    gd_seed(seed);
    for (int k = 0; k < n; k++) x[k] = gd_randn(gd_dims(batches[k], COLUMNS), .dtype = GD_F64);
    for (int i = 0; i < ALL; i++)
        first[i] = gd_mul(gd_randn(parameter_shape(i), .dtype = GD_F64), scalar_f64(0.4));
    gd_status status;
    gd_session *before = save_random_graph(seed, first, &fed, &symbols, &status);
    if (status != GD_OK && seed % 2 == 0 && needs_own_ops()) {
        gd_clear_error();
        return;
    }
    if (gd_failed()) return; /* the caller reports it */
    gd_graph *graph = gd_onnx_load(path);
    CHECK_SAYING(graph, "seed %llu: %s", (unsigned long long)seed, gd_error_message());
    if (!graph) return;
    gd_session *after = gd_session_new(graph, .level = (int)(seed / 2 % 3));
    gd_tensor *x_again = gd_graph_find(graph, "x");
    loaded.count = symbols.count;
    for (int i = 0; i < symbols.count; i++) {
        char name[20];
        name_of(i, name);
        loaded.at[i] = gd_graph_find(graph, name);
        CHECK_SAYING(loaded.at[i], "seed %llu: no %s", (unsigned long long)seed, name);
        if (!loaded.at[i]) return;
    }
    for (int k = 0; k < n && !gd_failed(); k++) {
        char mode[60];
        snprintf(mode, sizeof mode, "loaded, %d rows", batches[k]);
        run_session(before, fed, x[k], &symbols, &expected);
        if (!gd_failed()) run_session(after, x_again, x[k], &loaded, &got);
        if (!gd_failed()) check_same(seed, mode, &expected, &got, 1e-6);
    }
}

TEST(random_graphs_give_the_same_results_after_saving_and_loading) {
    path = temp_path("random.onnx");
    for_each_seed(60, check_graph);
}

TEST_MAIN
