/* onnx_text.h - ONNX models as text, for tests of single nodes. */
#ifndef GRADUS_TESTS_UNIT_ONNX_ONNX_TEXT_H
#define GRADUS_TESTS_UNIT_ONNX_ONNX_TEXT_H

#include "compare.h"
#include "onnx_files.h"
#include "temp.h"

#define ANY                 "dim { dim_param: 'n' } "
#define SIZE(n)             "dim { dim_value: " #n " } "
#define NODE(type, in, out) "node { name: '" out "' op_type: '" type "' " in " output: '" out "' } "
#define LIST(name, count, numbers) \
    "initializer { name: '" name "' data_type: 7 dims: " #count " int64_data: [" numbers "] } "
#define NUMBER(name, number) \
    "initializer { name: '" name "' data_type: 7 int64_data: " #number " } "
#define INT(name, number)   "attribute { name: '" name "' type: INT i: " #number " } "
#define INTS(name, numbers) "attribute { name: '" name "' type: INTS ints: [" numbers "] } "
#define WORD(name, text)    "attribute { name: '" name "' type: STRING s: '" text "' } "

/* Loads and runs a model, then saves, loads and runs it again; both results must be equal. */
static inline gd_tensor *run_text(const char *text, gd_tensor *x) {
    gd_graph *g = gd_onnx_load(write_model(text));
    CHECK_SAYING(g != NULL, "%s", gd_error_message());
    if (!g) return gd_full(gd_dims(), 0);
    gd_tensor *y = run_one(g, "x", x, "y");
    gd_session *session = gd_session_new(g);
    const char *path = temp_path("again.onnx");
    CHECK_SAYING(gd_onnx_save(path, session, gd_list(gd_graph_find(g, "x")),
                              gd_list(gd_graph_find(g, "y"))) == GD_OK,
                 "%s", gd_error_message());
    gd_graph *again = gd_onnx_load(path);
    CHECK_SAYING(again && tensors_same_bits(run_one(again, "x", x, "y"), y), "%s",
                 gd_error_message());
    return y;
}

static inline bool has_dims(gd_tensor *t, int rank, const int64_t *dims) {
    const gd_shape s = gd_tensor_shape(t);
    return !gd_failed() && s.rank == rank && memcmp(s.at, dims, (size_t)rank * sizeof *dims) == 0;
}
#define CHECK_DIMS(t, ...)                                                                         \
    CHECK_SAYING(                                                                                  \
        has_dims(t, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}), \
        "%s", gd_error_message())

#endif
