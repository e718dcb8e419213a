/* through_onnx.c - runs an example and saves its graph as an ONNX file in the first runs: the
 * loaded graph must give the same results as the example's own graph.
 *
 * Compiled once for each example, with EXAMPLE and NAME set. The first fetch, a loss or a
 * prediction, must be saved in ONNX's own operators; saving further fetches (gradients, updates)
 * may fail. GRADUS_ONNX_DIR=FOLDER keeps the files there, for tests/golden/onnx_check.py.
 */
#include <gradus/gradus.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int compared, failures;
enum { MAX_SAVED_RUNS = 4, MAX_TENSORS = 16 };

static double distance_of(gd_tensor *a, gd_tensor *b) {
    const double off = gd_item(gd_max(gd_abs(gd_sub(a, b)))), size = gd_item(gd_max(gd_abs(b)));
    return off / (size > 1 ? size : 1);
}

static void keep_sample(const char *path, const char **names, gd_tensor **values, int n,
                        gd_tensor *y) {
    char npz[600];
    snprintf(npz, sizeof npz, "%.*s.npz", (int)strlen(path) - 5, path);
    names[n] = "o0";
    values[n] = y;
    gd_save_npz(npz, names, ((gd_tensors){values, n + 1}));
}

/* Saves the graph, loads it, runs it with the same feeds and compares the result with `expected`.
 * Saving may fail unless `must`. */
static void run_from_file(gd_session *session, gd_tensors feeds, gd_tensor *fetch,
                          gd_tensor *expected, bool must) {
    static char text[MAX_TENSORS][8];
    static int number;
    GD_SCOPE;
    const char *folder = getenv("GRADUS_ONNX_DIR"), *names[MAX_TENSORS];
    gd_tensor *inputs[MAX_TENSORS], *values[MAX_TENSORS], *again[2 * MAX_TENSORS];
    const int n = (int)feeds.count / 2;
    char path[500], output[24];
    snprintf(output, sizeof output, "fetch%d", number); /* each symbol needs its own name */
    snprintf(path, sizeof path, "%s/example_%s_%d.onnx", folder ? folder : ".", NAME, number++);
    for (int i = 0; i < n; i++) {
        snprintf(text[i], sizeof text[i], "i%d", i);
        names[i] = text[i];
        inputs[i] = gd_named(feeds.at[2 * i], text[i]); /* its name in the file */
        values[i] = feeds.at[2 * i + 1];
    }
    if (gd_onnx_save(path, session, ((gd_tensors){inputs, n}), gd_list(gd_named(fetch, output))) !=
        GD_OK) {
        if (must) fprintf(stderr, "%s\n", gd_error_message());
        failures += must;
        gd_clear_error();
        return;
    }
    gd_graph *graph = gd_onnx_load(path);
    for (int i = 0; graph && i < n; i++) {
        again[2 * i] = gd_graph_find(graph, text[i]);
        again[2 * i + 1] = values[i];
    }
    gd_session *other = gd_session_new(graph);
    gd_tensors r =
        gd_session_run(other, ((gd_tensors){again, 2 * n}), gd_list(gd_graph_find(graph, output)));
    const double off = distance_of(r.at[0], expected);
    if (!(off <= 1e-5) || gd_failed()) {
        fprintf(stderr, "%s: off by %g: %s\n", path, off, gd_error_message());
        failures++;
    }
    if (folder) keep_sample(path, names, values, n, expected);
    else unlink(path);
    compared++;
}

static gd_tensors run_both(gd_session *session, gd_tensors feeds, gd_tensors fetches) {
    static int runs;
    gd_tensor *outputs[MAX_TENSORS];
    for (int64_t k = 0; k < fetches.count; k++) outputs[k] = fetches.at[k];
    if (runs++ >= MAX_SAVED_RUNS) return gd_session_run(session, feeds, fetches);
    /* one fetch at a time: an update must not run before the file is written */
    for (int64_t k = 0; k < fetches.count; k++) {
        if (strncmp(gd_dtype_name(gd_tensor_dtype(outputs[k])), "bool", 4) == 0) continue;
        gd_tensors r = gd_session_run(session, feeds, gd_list(outputs[k]));
        run_from_file(session, feeds, outputs[k], r.at[0], k == 0);
    }
    return gd_session_run(session, feeds, fetches);
}

#undef gd_session_run
#define gd_session_run(session, feeds, fetches) run_both(session, feeds, fetches)
#define main                                    example_main
#include EXAMPLE
#undef main

int main(int argc, char **argv) {
    const int status = example_main(argc, argv);
    printf("%d runs of loaded graphs, %d of them wrong.\n", compared, failures);
    return status || failures || !compared;
}
