/* test_onnx_backend.c - the backend tests of the ONNX project: each model gives the recorded
 * results or fails to load or run with a reason. A wrong result fails the test.
 *
 *     GRADUS_ONNX_TESTS=FOLDER build/tests/test_onnx_backend
 *
 * FOLDER is the directory onnx/backend/test/data of the onnx package. It contains folders with a
 * model.onnx and test_data_set_N/{input,output}_K.pb. The data is not part of this project; without
 * the variable the tests are skipped. GRADUS_ONNX_PART=TEXT runs the models whose path contains
 * TEXT, GRADUS_ONNX_LIST=1 prints a line for each model.
 */
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

#include "format/protobuf_tree.h"
#include "onnx_files.h"

enum { MAX_VALUES = 64, MAX_PATH = 1024 };

/* --- one model -------------------------------------------------------------------------------- */

typedef enum verdict { RIGHT, UNSUPPORTED, WRONG, VERDICTS } verdict;

static const char *const verdict_names[] = {"right", "unsupported", "WRONG"};

typedef struct model {
    const char *path; /* the folder of the model */
    gd_pb_doc *doc;
    gd_graph *graph;
    char why[800];
} model;

static verdict verdict_with_reason(model *m, verdict v, const char *why) {
    snprintf(m->why, sizeof m->why, "%s", why);
    return v;
}

/* Operators with random results: only dtype and shape are compared. */
static bool is_random(const model *m) {
    const gd_pb *graph = gd_pb_message(gd_pb_root(m->doc), "graph");
    for (size_t i = 0; i < gd_pb_count(graph, "node"); i++) {
        const char *type = gd_pb_string(gd_pb_message_at(graph, "node", i), "op_type");
        if (strncmp(type, "Random", 6) == 0 || strcmp(type, "Bernoulli") == 0) return true;
    }
    return false;
}

/* Recorded results that contradict the specification: it defines align_corners by the length of the
 * resized tensor, which is an integer. PyTorch and ONNX Runtime agree. The recorded results use the
 * length before rounding. */
static bool is_disputed(const model *m) {
    return strstr(m->path, "test_resize_downsample_scales_linear_align_corners") ||
           strstr(m->path, "test_resize_downsample_scales_cubic_align_corners");
}

/* Reads PATH/KIND_I.pb. Leaves *t NULL if there is no such file, or if it holds no supported
 * tensor. */
static bool read_value(const char *path, const char *kind, size_t i, gd_tensor **t) {
    char file[MAX_PATH + 64];
    gd_pb_doc *doc;
    *t = NULL;
    snprintf(file, sizeof file, "%s/%s_%zu.pb", path, kind, i);
    if (gd_pb_load(&doc, &gd_onnx_tensor_schema, file) != GD_OK) return false;
    const bool read = gd_onnx_read_tensor(gd_pb_root(doc), NULL, t) == GD_OK;
    gd_pb_free(doc);
    return read;
}

static bool within_tolerance(gd_tensor *have, gd_tensor *expected) {
    const size_t n = (size_t)gd_tensor_numel(expected);
    double *a = gd_malloc((n + 1) * sizeof *a), *b = gd_malloc((n + 1) * sizeof *b);
    bool close = a && b && gd_copy_to(gd_cast(have, GD_F64), a, n * sizeof *a) == GD_OK &&
                 gd_copy_to(gd_cast(expected, GD_F64), b, n * sizeof *b) == GD_OK;
    const bool small = gd_dtype_size(gd_tensor_dtype(expected)) == 2;
    for (size_t i = 0; i < n && close; i++) {
        if (isnan(b[i]) || isinf(b[i])) close = isnan(b[i]) ? isnan(a[i]) : a[i] == b[i];
        else close = fabs(a[i] - b[i]) <= (small ? 1e-3 : 1e-7) + 1e-3 * fabs(b[i]);
    }
    gd_free(a);
    gd_free(b);
    return close;
}

static verdict compare_output(model *m, gd_tensor *have, gd_tensor *expected, size_t k) {
    char text[700], one[160], other[160];
    const gd_shape s = gd_tensor_shape(have), t = gd_tensor_shape(expected);
    const bool alike = gd_tensor_dtype(have) == gd_tensor_dtype(expected) && s.rank == t.rank &&
                       memcmp(s.at, t.at, (size_t)s.rank * sizeof *s.at) == 0;
    if (alike && (is_random(m) || within_tolerance(have, expected))) return RIGHT;
    if (alike && is_disputed(m))
        return verdict_with_reason(m, UNSUPPORTED, "the recorded result is disputed");
    snprintf(text, sizeof text, "output %zu is %s, expected %s%s", k,
             gd_describe(have, one, sizeof one), gd_describe(expected, other, sizeof other),
             alike ? " with other values" : "");
    return verdict_with_reason(m, WRONG, text);
}

static verdict run_set(model *m, const char *set, int level) {
    const gd_pb *graph = gd_pb_message(gd_pb_root(m->doc), "graph");
    gd_tensor *feeds[2 * MAX_VALUES], *fetches[MAX_VALUES], *expected[MAX_VALUES];
    const size_t n_in = gd_pb_count(graph, "input"), n_out = gd_pb_count(graph, "output");
    int64_t fed = 0;
    if (n_in > MAX_VALUES || n_out > MAX_VALUES)
        return verdict_with_reason(m, UNSUPPORTED, "too many values");
    for (size_t i = 0; i < n_in; i++) {
        feeds[fed] =
            gd_graph_find(m->graph, gd_pb_string(gd_pb_message_at(graph, "input", i), "name"));
        if (!read_value(set, "input", i, &feeds[fed + 1]))
            return verdict_with_reason(m, UNSUPPORTED, gd_error_message());
        if (feeds[fed]) fed += 2;
    }
    for (size_t k = 0; k < n_out; k++) {
        fetches[k] =
            gd_graph_find(m->graph, gd_pb_string(gd_pb_message_at(graph, "output", k), "name"));
        if (!fetches[k]) return verdict_with_reason(m, WRONG, "an output is not found");
        if (!read_value(set, "output", k, &expected[k]))
            return verdict_with_reason(m, UNSUPPORTED, gd_error_message());
    }
    gd_session *session = gd_session_new(m->graph, .level = level);
    gd_tensors r = gd_session_run(session, ((gd_tensors){feeds, fed}),
                                  ((gd_tensors){fetches, (int64_t)n_out}));
    if (gd_failed()) return verdict_with_reason(m, UNSUPPORTED, gd_error_message());
    verdict v = RIGHT;
    for (size_t k = 0; k < n_out && v == RIGHT; k++) v = compare_output(m, r.at[k], expected[k], k);
    return v;
}

static verdict run_sets(model *m, int level) {
    verdict v = RIGHT;
    for (int set = 0; v == RIGHT; set++) {
        char path[MAX_PATH + 32];
        struct stat info;
        snprintf(path, sizeof path, "%s/test_data_set_%d", m->path, set);
        if (stat(path, &info) != 0)
            return set ? v : verdict_with_reason(m, UNSUPPORTED, "no data sets");
        v = run_set(m, path, level);
    }
    return v;
}

/* Removes the sizes of the inputs, so that they are known only at run time. */
static void forget_sizes(gd_pb_doc *doc) {
    const gd_pb *graph = gd_pb_message(gd_pb_root(doc), "graph");
    for (size_t i = 0; i < gd_pb_count(graph, "input"); i++) {
        const gd_pb *type = gd_pb_message(gd_pb_message_at(graph, "input", i), "type");
        const gd_pb *shape = gd_pb_message(gd_pb_message(type, "tensor_type"), "shape");
        for (size_t d = 0; d < gd_pb_count(shape, "dim"); d++) {
            gd_pb *dim = (gd_pb *)gd_pb_message_at(shape, "dim", d);
            for (int f = 0; f < dim->count; f++) dim->lists[f].count = 0;
        }
    }
}

/* Which inputs become constants of the file: the tests feed axes and shapes, but exporters write
 * them as constants. */
typedef enum const_inputs {
    NO_INPUT,
    SHORT_INTEGERS,
    ALL_BUT_THE_FIRST,
    EVERY_INPUT,
    CONST_INPUTS
} const_inputs;

static bool is_const_input(const_inputs b, size_t i, const gd_tensor *t) {
    switch (b) {
    case SHORT_INTEGERS: return t->rank <= 1 && !gd_dtype_is_float((gd_dtype)t->dtype);
    case ALL_BUT_THE_FIRST: return i > 0;
    default: return b == EVERY_INPUT;
    }
}

/* Stores the values of the first data set as initializers. Returns false if no input is
 * converted. */
static bool make_inputs_const(const model *m, const_inputs b) {
    gd_pb *graph = (gd_pb *)gd_pb_message(gd_pb_root(m->doc), "graph");
    char set[MAX_PATH + 32];
    bool any = false;
    snprintf(set, sizeof set, "%s/test_data_set_0", m->path);
    for (size_t i = 0; i < gd_pb_count(graph, "input") && b != NO_INPUT; i++) {
        gd_tensor *t;
        if (!read_value(set, "input", i, &t) || !is_const_input(b, i, t)) continue;
        t = gd_contiguous(t); /* lives as long as the scope of this model */
        gd_pb *baked = gd_pb_put_message(graph, "initializer");
        gd_pb_put_string(baked, "name", gd_pb_string(gd_pb_message_at(graph, "input", i), "name"));
        gd_pb_put_int(baked, "data_type", gd_onnx_type_of((gd_dtype)t->dtype));
        for (int d = 0; d < t->rank; d++) gd_pb_put_int(baked, "dims", t->dims[d]);
        gd_pb_put_bytes(baked, "raw_data", gd_data(t),
                        (size_t)gd_tensor_numel(t) * gd_dtype_size((gd_dtype)t->dtype));
        any = true;
    }
    return any || b == NO_INPUT;
}

static verdict judge_model(model *m, const_inputs b, int level, bool sized) {
    char file[MAX_PATH + 32], folder_path[MAX_PATH];
    m->graph = NULL;
    snprintf(folder_path, sizeof folder_path, "%s", m->path);
    snprintf(file, sizeof file, "%s/model.onnx", m->path);
    if (gd_pb_load(&m->doc, &gd_onnx_model_schema, file) != GD_OK)
        return verdict_with_reason(m, UNSUPPORTED, gd_error_message());
    if (!sized) forget_sizes(m->doc);
    verdict v = UNSUPPORTED;
    if (make_inputs_const(m, b)) {
        gd_clear_error();
        const gd_status status =
            gd_onnx_load_model(gd_pb_root(m->doc), folder_path, false, &m->graph);
        v = status == GD_OK ? run_sets(m, level)
                            : verdict_with_reason(m, UNSUPPORTED, gd_error_message());
    }
    if (m->graph) gd_release(m->graph);
    gd_pb_free(m->doc);
    gd_clear_error();
    return v;
}

/* --- all models ------------------------------------------------------------------------------- */

typedef struct tally {
    int level;
    bool sized;
    int count[VERDICTS];
    int variants; /* number of correct variants; a model has several */
} tally;

static void run_folder(const char *path, tally *t) {
    GD_SCOPE;
    model m = {.path = path};
    verdict v = UNSUPPORTED;
    for (const_inputs b = NO_INPUT; b < CONST_INPUTS && v != WRONG; b++) {
        const verdict now = judge_model(&m, b, t->level, t->sized);
        if (now != UNSUPPORTED) v = now; /* right if one variant is right and none is wrong */
        t->variants += now == RIGHT;
    }
    t->count[v]++;
    if (v == WRONG) CHECK_SAYING(v != WRONG, "%s: %s", path, m.why);
    if (getenv("GRADUS_ONNX_LIST"))
        printf("%s\t%s\t%s\n", verdict_names[v], path, v == RIGHT ? "" : m.why);
}

static int is_not_hidden(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void walk_folder(const char *path, int depth, tally *t) {
    char below[MAX_PATH];
    struct stat info;
    struct dirent **entries;
    const char *part = getenv("GRADUS_ONNX_PART");
    snprintf(below, sizeof below, "%s/model.onnx", path);
    if (stat(below, &info) == 0) {
        if (!part || strstr(path, part)) run_folder(path, t);
        return;
    }
    const int n = depth ? scandir(path, &entries, is_not_hidden, alphasort) : -1;
    for (int i = 0; i < n; i++) {
        const int length = snprintf(below, sizeof below, "%s/%s", path, entries[i]->d_name);
        if (length < (int)sizeof below && stat(below, &info) == 0 && S_ISDIR(info.st_mode))
            walk_folder(below, depth - 1, t);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

static void run_all(int level, bool sized) {
    const char *path = getenv("GRADUS_ONNX_TESTS");
    tally t = {.level = level, .sized = sized};
    if (!path || !*path) SKIP("GRADUS_ONNX_TESTS does not name the folder of ONNX's backend tests");
    walk_folder(path, 4, &t);
    printf("level %d, sizes %s: %d right (in %d variants), %d unsupported, %d wrong\n", level,
           sized ? "as in the file" : "unknown", t.count[RIGHT], t.variants, t.count[UNSUPPORTED],
           t.count[WRONG]);
    CHECK_SAYING(t.count[RIGHT] + t.count[UNSUPPORTED] + t.count[WRONG] > 0, "no models in %s",
                 path);
}

TEST(no_backend_test_gives_a_wrong_result_without_passes) { run_all(0, true); }
TEST(no_backend_test_gives_a_wrong_result_with_all_passes) { run_all(2, true); }
TEST(no_backend_test_gives_a_wrong_result_with_unknown_sizes) { run_all(2, false); }

TEST_MAIN
