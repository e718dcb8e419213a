/* test_onnx_others.c - ONNX files of other programs give the same results here, also after they are
 * saved by this library and loaded again.
 *
 * tests/golden/torch has models exported by PyTorch. tests/golden/onnx has nodes that PyTorch does
 * not export, with results of ONNX Runtime. They are written by torch_make.py and onnx_make.py.
 * NAME.pb has the inputs i0, i1, ... and the outputs o0, o1, ... of NAME.onnx and of
 * NAME.script.onnx, as initializers of a model without nodes.
 *
 * `test_onnx_others PART` runs the files whose name contains PART. GRADUS_OTHERS=FOLDER uses the
 * files of another folder. GRADUS_ONNX_DIR=FOLDER keeps the saved models there, for
 * tests/golden/onnx_check.py.
 */
#include <dirent.h>

#include "fuzz/damage.h"
#include "fuzz/fuzz_onnx.c"
#include "compare.h"
#include "fault_walk.h"
#include "onnx_files.h"
#include "temp.h"

enum { MAX_FILES = 1024, MAX_VALUES = 32 };

/* The inputs of a file and its expected outputs. */
typedef struct sample {
    char name[300]; /* of the file, without its extension */
    gd_tensor *in[MAX_VALUES], *out[MAX_VALUES];
    int n_in, n_out;
} sample;

static const char *name_of(char letter, int i) {
    static char names[2 * MAX_VALUES + 8][16];
    static int next;
    char *name = names[next++ % (2 * MAX_VALUES + 8)];
    snprintf(name, sizeof names[0], "%c%d", letter, i);
    return name;
}

/* Reads the tensors of NAME.pb. */
static void read_sample(const char *path, sample *s) {
    gd_pb_doc *doc;
    CHECK_SAYING(gd_pb_load(&doc, &gd_onnx_model_schema, path) == GD_OK, "%s", gd_error_message());
    const gd_pb *graph = doc ? gd_pb_message(gd_pb_root(doc), "graph") : NULL;
    for (size_t i = 0; i < gd_pb_count(graph, "initializer"); i++) {
        const gd_pb *tensor = gd_pb_message_at(graph, "initializer", i);
        const bool in = gd_pb_string(tensor, "name")[0] == 'i';
        gd_tensor **to = in ? &s->in[s->n_in++] : &s->out[s->n_out++];
        CHECK(s->n_in < MAX_VALUES && s->n_out < MAX_VALUES);
        CHECK_SAYING(gd_onnx_read_tensor(tensor, NULL, to) == GD_OK, "%s", gd_error_message());
    }
    gd_pb_free(doc);
}

/* --- running and comparing -------------------------------------------------------------------- */

/* Returns the largest difference, relative to the largest value if that is above 1; -1: shapes or
 * dtypes differ. */
static double distance_of(gd_tensor *a, gd_tensor *b) {
    const gd_shape s = gd_tensor_shape(a), t = gd_tensor_shape(b);
    if (gd_tensor_dtype(a) != gd_tensor_dtype(b) || s.rank != t.rank ||
        memcmp(s.at, t.at, (size_t)s.rank * sizeof *s.at) != 0)
        return -1;
    if (gd_tensor_numel(a) == 0 || tensors_same_bits(a, b)) return 0;
    return fmin(tensors_distance(a, b), tensors_relative_distance(a, b));
}

static double tolerance_of(gd_dtype dtype) {
    return dtype == GD_F32 ? 2e-5 : dtype == GD_F64 ? 1e-10 : dtype == GD_F16 ? 2e-3 : 0;
}

/* Checks that the graph gives the outputs of the sample. */
static void check_graph(gd_graph *graph, const sample *s, int level, const char *what) {
    gd_tensor *feeds[2 * MAX_VALUES], *fetches[MAX_VALUES];
    char have[160], expected[160];
    for (int i = 0; i < s->n_in; i++) {
        feeds[2 * i] = gd_graph_find(graph, name_of('i', i));
        feeds[2 * i + 1] = s->in[i];
    }
    for (int k = 0; k < s->n_out; k++) fetches[k] = gd_graph_find(graph, name_of('o', k));
    gd_session *session = gd_session_new(graph, .level = level);
    gd_tensors r = gd_session_run(session, ((gd_tensors){feeds, 2 * s->n_in}),
                                  ((gd_tensors){fetches, s->n_out}));
    CHECK_SAYING(r.count == s->n_out && !gd_failed(), "%s, %s, level %d: %s", s->name, what, level,
                 gd_error_message());
    for (int k = 0; k < r.count && !gd_failed(); k++) {
        const double off = distance_of(r.at[k], s->out[k]);
        CHECK_SAYING(off >= 0 && off <= tolerance_of(gd_tensor_dtype(s->out[k])),
                     "%s, %s, level %d: output %d is %s and should be %s, off by %g", s->name, what,
                     level, k, gd_describe(r.at[k], have, sizeof have),
                     gd_describe(s->out[k], expected, sizeof expected), off);
    }
    gd_clear_error();
}

static void save_graph(gd_graph *graph, const sample *s, const char *path) {
    gd_tensor *in[MAX_VALUES], *out[MAX_VALUES];
    for (int i = 0; i < s->n_in; i++) in[i] = gd_graph_find(graph, name_of('i', i));
    for (int k = 0; k < s->n_out; k++) out[k] = gd_graph_find(graph, name_of('o', k));
    gd_session *session = gd_session_new(graph);
    CHECK_SAYING(gd_onnx_save(path, session, ((gd_tensors){in, s->n_in}),
                              ((gd_tensors){out, s->n_out})) == GD_OK,
                 "%s: %s", s->name, gd_error_message());
    gd_clear_error();
}

/* Keeps the files for onnx_check.py. */
static void keep_sample(const sample *s, const char *path) {
    const char *names[2 * MAX_VALUES];
    gd_tensor *values[2 * MAX_VALUES];
    char npz[1100];
    int n = 0;
    for (int i = 0; i < s->n_in; i++) names[n] = name_of('i', i), values[n++] = s->in[i];
    for (int k = 0; k < s->n_out; k++) names[n] = name_of('o', k), values[n++] = s->out[k];
    snprintf(npz, sizeof npz, "%.*s.npz", (int)strlen(path) - 5, path);
    CHECK(gd_save_npz(npz, names, ((gd_tensors){values, n})) == GD_OK);
}

static void check_file(const char *from, const char *file) {
    GD_SCOPE;
    char path[1000], again[1000];
    sample s = {.n_in = 0};
    const char *into = getenv("GRADUS_ONNX_DIR");
    gd_clear_error();
    snprintf(s.name, sizeof s.name, "%.*s", (int)strlen(file) - 5, file);
    snprintf(path, sizeof path, "%s/%.*s.pb", from, (int)strcspn(file, "."), file);
    read_sample(path, &s);
    CHECK_SAYING(s.n_out > 0, "%s has no outputs", path);
    snprintf(path, sizeof path, "%s/%s", from, file);
    gd_graph *graph = gd_onnx_load(path);
    CHECK_SAYING(graph != NULL, "%s: %s", s.name, gd_error_message());
    if (!graph || s.n_out == 0) return;
    check_graph(graph, &s, 0, "loaded");
    check_graph(graph, &s, 2, "loaded");
    snprintf(again, sizeof again, "%s/%s_%s.onnx", into ? into : temp_folder(),
             strrchr(from, '/') ? strrchr(from, '/') + 1 : from, s.name);
    save_graph(graph, &s, again);
    if (into) keep_sample(&s, again);
    gd_graph *saved = gd_onnx_load(again);
    CHECK_SAYING(saved != NULL, "%s, saved: %s", s.name, gd_error_message());
    if (saved) check_graph(saved, &s, 0, "saved and loaded");
}

/* --- the files -------------------------------------------------------------------------------- */

static const char *part = "";

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Calls `check` for each .onnx file of a folder, in alphabetical order. */
static void each_file(const char *from, void (*check)(const char *from, const char *file)) {
    char *names[MAX_FILES];
    int n = 0;
    DIR *dir = opendir(from);
    CHECK_SAYING(dir != NULL, "%s cannot be read", from);
    for (struct dirent *e; dir && (e = readdir(dir)) && n < MAX_FILES;) {
        const size_t length = strlen(e->d_name);
        if (length > 5 && strcmp(e->d_name + length - 5, ".onnx") == 0 && strstr(e->d_name, part))
            names[n++] = strdup(e->d_name);
    }
    if (dir) closedir(dir);
    CHECK_SAYING(n > 0 || *part, "%s has no files", from);
    qsort(names, (size_t)n, sizeof *names, by_name);
    for (int i = 0; i < n; i++) {
        check(from, names[i]);
        free(names[i]);
    }
}

CLEAN_TEST(models_exported_by_pytorch_give_the_results_of_pytorch) {
    const char *other = getenv("GRADUS_OTHERS");
    each_file(other ? other : GRADUS_GOLDEN "/torch", check_file);
}

CLEAN_TEST(files_of_other_programs_give_the_results_of_onnx_runtime) {
    if (!getenv("GRADUS_OTHERS")) each_file(GRADUS_GOLDEN "/onnx", check_file);
}

/* A short form of fuzz_onnx. */
static void check_damaged(const char *from, const char *file) {
    char path[1000], *data;
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", from, file);
    CHECK(gd_file_read_all(path, &data, &bytes) == GD_OK);
    run_damaged(LLVMFuzzerTestOneInput, data, bytes, 20);
    gd_free(data);
}

CLEAN_TEST(damaged_files_of_other_programs_fail_or_load_completely) {
    each_file(GRADUS_GOLDEN "/torch", check_damaged);
    each_file(GRADUS_GOLDEN "/onnx", check_damaged);
}

/* Other allocations fail for each file, so that the files together reach every allocation. */
static void check_faults(const char *from, const char *file) {
    static int first;
    const int stride = getenv("GRADUS_ALL_FAULTS") ? 1 : 37;
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", from, file);
    walk_load(
        path,
        (fault_walk){.what = file, .lasting = true, .first = first++ % stride, .stride = stride});
}

CLEAN_TEST(any_allocation_may_fail_while_files_of_other_programs_are_read) {
    each_file(GRADUS_GOLDEN "/torch", check_faults);
    each_file(GRADUS_GOLDEN "/onnx", check_faults);
}

int main(int argc, char **argv) {
    if (argc > 1) part = argv[1];
    return test_run_all(1, argv);
}
