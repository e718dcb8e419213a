/* test_onnx_spec.c - nodes follow the ONNX specification where it differs from our op of the same
 * name. test_onnx_backend.c runs ONNX's own tests. */
#include <math.h>

#include "compare.h"
#include "onnx_text.h"
#include "temp.h"
#include "values.h"

#define EMPTY(name) "initializer { name: '" name "' data_type: 7 dims: 0 } "
#define FLOATS(name, count, numbers) \
    "initializer { name: '" name "' data_type: 1 dims: " #count " float_data: [" numbers "] } "
#define TYPED(list, name, type)                                       \
    list " { name: '" name "' type { tensor_type { elem_type: " #type \
         " shape { " SIZE(4) " } } } } "

/* --- reductions ------------------------------------------------------------------------------- */

static gd_tensor *run_reduction(const char *op, const char *axes, const char *attributes) {
    char text[900];
    snprintf(text, sizeof text,
             HEAD "graph { " INPUT("x", SIZE(2) SIZE(3)) EMPTY(
                 "none") "node { op_type: '%s' input: 'x' %s output: 'y' %s } " OUTPUT("y") "}",
             op, axes, attributes);
    return run_text(text, ramp(gd_dims(2, 3), 1, 1)); /* 1 to 6 */
}

CLEAN_TEST(a_reduction_with_empty_axes_reduces_all_axes) {
    static const char *const ops[] = {
        "ReduceSum", "ReduceMean", "ReduceProd",   "ReduceMax",       "ReduceMin",
        "ReduceL1",  "ReduceL2",   "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"};
    static const double expected[] = {21, 3.5, 720, 6, 1, 21, 9.539392, 3.0445224, 6.4561934, 91};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        GD_SCOPE;
        gd_tensor *given = run_reduction(ops[i], "input: 'none'", ""),
                  *absent = run_reduction(ops[i], "", "");
        CHECK_DIMS(given, 1, 1);
        CHECK_SAYING(fabs(gd_item(given) - expected[i]) < 1e-5 * expected[i], "%s: %g", ops[i],
                     gd_item(given));
        CHECK(tensors_same_bits(given, absent));
        CHECK_DIMS(run_reduction(ops[i], "input: 'none'", INT("keepdims", 0)));
    }
}

CLEAN_TEST(a_reduction_with_empty_axes_and_noop_attribute_does_nothing) {
    static const char *const ops[] = {"ReduceSum", "ReduceMean", "ReduceMax"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        GD_SCOPE;
        gd_tensor *x = ramp(gd_dims(2, 3), 1, 1);
        CHECK(tensors_same_bits(
            run_reduction(ops[i], "input: 'none'", INT("noop_with_empty_axes", 1)), x));
        CHECK(tensors_same_bits(run_reduction(ops[i], "", INT("noop_with_empty_axes", 1)), x));
        CHECK(tensors_same_bits(
            run_reduction("ReduceSumSquare", "", INT("noop_with_empty_axes", 1)), gd_square(x)));
    }
}

/* Our op with an empty list reduces nothing: the saved file expresses that for other programs. */
CLEAN_TEST(a_reduction_over_no_axes_is_saved_as_such) {
    GD_SCOPE;
    gd_graph *g = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(g);
        x = gd_placeholder(gd_dims(2, 3), .name = "x");
        y = gd_named(gd_sum(x, .axis = gd_dims()), "y");
    }
    gd_session *session = gd_session_new(g);
    const char *path = temp_path("none.onnx");
    CHECK(gd_onnx_save(path, session, gd_list(x), gd_list(y)) == GD_OK);
    gd_graph *loaded = gd_onnx_load(path);
    gd_tensor *value = ramp(gd_dims(2, 3), 1, 1);
    CHECK_SAYING(loaded && tensors_same_bits(run_one(loaded, "x", value, "y"), value), "%s",
                 gd_error_message());
    gd_pb_doc *doc;
    CHECK(gd_pb_load(&doc, &gd_onnx_model_schema, path) == GD_OK);
    const gd_pb *node = gd_pb_message(gd_pb_message(gd_pb_root(doc), "graph"), "node");
    CHECK(gd_pb_int(gd_onnx_find_attribute(node, "noop_with_empty_axes"), "i", 0) == 1);
    gd_pb_free(doc);
}

/* --- elementwise ------------------------------------------------------------------------------ */

#define POW(first, second)                                                 \
    HEAD "graph { " TYPED("input", "x", first) TYPED("input", "b", second) \
        NODE("Pow", "input: 'x' input: 'b'", "y") TYPED("output", "y", first) "}"

static gd_tensor *run_power(const char *text, gd_tensor *a, gd_tensor *b) {
    gd_graph *g = gd_onnx_load(write_model(text));
    CHECK_SAYING(g != NULL, "%s", gd_error_message());
    if (!g) return gd_full(gd_dims(), 0);
    gd_session *session = gd_session_new(g);
    return gd_session_run(session, gd_list(gd_graph_find(g, "x"), a, gd_graph_find(g, "b"), b),
                          gd_list(gd_graph_find(g, "y")))
        .at[0];
}

CLEAN_TEST(a_power_has_the_dtype_of_its_base) {
    GD_SCOPE;
    const int64_t base[] = {2, 3, 10, 7}, expected[] = {32, 81, 1000000000000000, 2};
    const double exponents[] = {5, 4, 15, 0.5};
    gd_tensor *a = gd_from_array(gd_dims(4), GD_I64, base),
              *b = gd_from_array(gd_dims(4), GD_F64, exponents),
              *y = gd_from_array(gd_dims(4), GD_I64, expected);
    CHECK_SAYING(tensors_same_bits(run_power(POW(7, 11), a, b), y), "%s", gd_error_message());
    CHECK_SAYING(tensors_same_bits(run_power(POW(7, 1), a, gd_cast(b, GD_F32)), y), "%s",
                 gd_error_message());
    gd_tensor *f = run_power(POW(1, 11), gd_cast(a, GD_F32), b);
    CHECK(gd_tensor_dtype(f) == GD_F32 && fabs(gd_item(gd_select(f, 0, 3)) - sqrt(7)) < 1e-6);
    CHECK(gd_tensor_dtype(run_power(POW(6, 7), gd_cast(a, GD_I32), gd_cast(b, GD_I64))) == GD_I32);
}

CLEAN_TEST(clip_gives_the_maximum_where_the_minimum_is_larger) {
    GD_SCOPE;
    gd_tensor *y = run_text(
        HEAD "graph { " INPUT(
            "x", SIZE(3)) "initializer { name: 'lo' data_type: 1 float_data: "
                          "2 } initializer { name: 'hi' data_type: 1 float_data: 1 } " NODE(
                              "Clip", "input: 'x' input: 'lo' input: 'hi'", "y") OUTPUT("y") "}",
        ramp(gd_dims(3), 0, 3));
    CHECK_SAYING(tensors_same_bits(y, gd_ones(gd_dims(3))), "%s", gd_error_message());
}

/* --- layers ----------------------------------------------------------------------------------- */

CLEAN_TEST(the_third_input_of_gemm_broadcasts) {
    static const char *const dims[] = {"dims: 2 dims: 3", "dims: 3", "dims: 1", "dims: 2 dims: 1",
                                       ""};
    static const char *const data[] = {"0, 1, 2, 3, 4, 5", "0, 1, 2", "7", "3, 4", "7"};
    for (int i = 0; i < 5; i++) {
        GD_SCOPE;
        char text[900];
        snprintf(text, sizeof text,
                 HEAD "graph { " INPUT(
                     "x", SIZE(2) SIZE(2)) "initializer { name: 'w' data_type: 1 dims: 3 "
                                           "dims: 2 float_data: [1, 0, 0, 1, 1, 1] } initializer { "
                                           "name: 'c' data_type: 1 %s "
                                           "float_data: [%s] } " NODE(
                                               "Gemm",
                                               "input: 'x' input: 'w' input: 'c' " INT("transB", 1),
                                               "y") OUTPUT("y") "}",
                 dims[i], data[i]);
        gd_tensor *y = run_text(text, ramp(gd_dims(2, 2), 1, 1)); /* 1 2 3 and 3 4 7, plus c */
        const float last[] = {12, 9, 14, 11, 14};
        CHECK_DIMS(y, 2, 3);
        CHECK_SAYING(gd_item(gd_select(gd_select(y, 0, 1), 0, 2)) == (double)last[i], "%d: %g", i,
                     gd_item(gd_select(gd_select(y, 0, 1), 0, 2)));
    }
}

CLEAN_TEST(argmax_can_select_the_last_of_equal_elements) {
    GD_SCOPE;
    const float x[] = {3, 5, 5, 1, 2, 2, 2, 0};
    const int64_t first[] = {1, 0}, last[] = {2, 2};
    gd_tensor *value = gd_from_array(gd_dims(2, 4), GD_F32, x);
#define ARGMAX(dims, which)                                                                        \
    HEAD "graph { " INPUT("x", dims) NODE(                                                         \
        "ArgMax", "input: 'x' " INT("axis", 1) INT("keepdims", 0) INT("select_last_index", which), \
        "y") "output { name: 'y' type { tensor_type { elem_type: 7 } } } }"
    CHECK(tensors_same_bits(run_text(ARGMAX(SIZE(2) SIZE(4), 0), value),
                            gd_from_array(gd_dims(2), GD_I64, first)));
    CHECK(tensors_same_bits(run_text(ARGMAX(SIZE(2) SIZE(4), 1), value),
                            gd_from_array(gd_dims(2), GD_I64, last)));
    CHECK(tensors_same_bits(run_text(ARGMAX(ANY ANY, 1), value),
                            gd_from_array(gd_dims(2), GD_I64, last)));
}

/* y is the second output of the node. */
#define SECOND(type, in, more)                                       \
    HEAD "graph { " INPUT("x", ANY SIZE(2)) FLOATS("one", 2, "1, 1") \
        LIST("class", 2, "0, 1") "node { op_type: '" type "' " in    \
                                 " output: 'a' output: 'y' } " more "}"

CLEAN_TEST(optional_outputs_of_layers_are_computed) {
    GD_SCOPE;
    const float values[] = {1, 3, 2, 6};
    gd_tensor *x = gd_from_array(gd_dims(2, 2), GD_F32, values);
    CHECK(tensors_same_bits(
        run_text(SECOND("LayerNormalization", "input: 'x' input: 'one'", OUTPUT("y")), x),
        gd_mean(x, .axis = 1, .keepdim = true)));
    CHECK(tensors_same_bits(
        run_text(SECOND("SoftmaxCrossEntropyLoss", "input: 'x' input: 'class'", OUTPUT("y")), x),
        gd_log_softmax(x, .axis = 1)));
    CHECK(tensors_same_bits(
        run_text(SECOND("Dropout", "input: 'x'",
                        "output { name: 'y' type { tensor_type { elem_type: 9 } } } "),
                 x),
        gd_ones(gd_dims(2, 2), .dtype = GD_BOOL)));
}

/* --- sequences -------------------------------------------------------------------------------- */

/* Inserts 0 at a position of the sequence x, 2x, 3x, and concatenates the sequence. */
static gd_tensor *run_insert(const char *position) {
    char text[1600];
    snprintf(
        text, sizeof text,
        HEAD "graph { " INPUT(
            "x",
            SIZE(1)) "initializer { name: 'at' data_type: 7 int64_data: "
                     "%s } " FLOATS("zero", 1, "0") NODE("Add", "input: 'x' input: 'x'", "x2")
                         NODE("Add", "input: 'x' input: 'x2'", "x3")
                             NODE("SequenceConstruct", "input: 'x' input: 'x2' input: 'x3'", "s")
                                 NODE("SequenceInsert", "input: 's' input: 'zero' input: 'at'", "t")
                                     NODE("ConcatFromSequence", "input: 't' " INT("axis", 0), "y")
                                         OUTPUT("y") "}",
        position);
    return run_text(text, gd_ones(gd_dims(1)));
}

CLEAN_TEST(a_negative_insert_position_counts_from_the_end_of_the_sequence) {
    static const char *const positions[] = {"-1", "-3", "-2", "0", "3", "2"};
    static const float expected[][4] = {{1, 2, 0, 3}, {0, 1, 2, 3}, {1, 0, 2, 3},
                                        {0, 1, 2, 3}, {1, 2, 3, 0}, {1, 2, 0, 3}};
    for (int i = 0; i < 6; i++) {
        GD_SCOPE;
        CHECK_SAYING(tensors_same_bits(run_insert(positions[i]),
                                       gd_from_array(gd_dims(4), GD_F32, expected[i])),
                     "at %s: %s", positions[i], gd_error_message());
    }
}

/* --- Resize ----------------------------------------------------------------------------------- */

#define RESIZE(dims, sizes, mode)                                                \
    HEAD "graph { " INPUT("x", dims) LIST("s", 4, sizes)                         \
        NODE("Resize",                                                           \
             "input: 'x' input: '' input: '' input: 's' " WORD("mode", "linear") \
                 WORD("coordinate_transformation_mode", mode),                   \
             "y") OUTPUT("y") "}"

CLEAN_TEST(pytorch_half_pixel_resize_to_one_element_gives_the_first) {
    GD_SCOPE;
    gd_tensor *x = ramp(gd_dims(1, 1, 2, 4), 0, 1); /* 0 1 2 3; 4 5 6 7 */
    const float first[] = {0, 4}, middle[] = {1.5f, 5.5f};
    gd_tensor *expected = gd_from_array(gd_dims(1, 1, 2, 1), GD_F32, first),
              *other = gd_from_array(gd_dims(1, 1, 2, 1), GD_F32, middle);
    CHECK(tensors_same_bits(
        run_text(RESIZE(SIZE(1) SIZE(1) SIZE(2) SIZE(4), "1, 1, 2, 1", "pytorch_half_pixel"), x),
        expected));
    CHECK(tensors_same_bits(
        run_text(RESIZE(ANY SIZE(1) ANY ANY, "1, 1, 2, 1", "pytorch_half_pixel"), x), expected));
    CHECK(tensors_same_bits(
        run_text(RESIZE(SIZE(1) SIZE(1) SIZE(2) SIZE(4), "1, 1, 2, 1", "half_pixel"), x), other));
}

/* --- unknown sizes ---------------------------------------------------------------------------- */

CLEAN_TEST(an_axis_of_unknown_size_is_split_into_given_sizes) {
    GD_SCOPE;
    CHECK_DIMS(run_text(HEAD "graph { " INPUT("x", ANY SIZE(49) SIZE(4))
                            LIST("s", 5, "-1, 8, 8, 49, 4")
                                NODE("Reshape", "input: 'x' input: 's'", "y") OUTPUT("y") "}",
                        ramp(gd_dims(128, 49, 4), 0, 1)),
               2, 8, 8, 49, 4);
    CHECK_DIMS(run_text(HEAD "graph { " INPUT("x", ANY SIZE(3)) LIST("s", 2, "6, 8")
                            NODE("Reshape", "input: 'x' input: 's'", "y") OUTPUT("y") "}",
                        ramp(gd_dims(16, 3), 0, 1)),
               6, 8);
}

#define SPLIT(list, attributes)                                                                    \
    HEAD "graph { " INPUT("x", ANY SIZE(2)) list                                                   \
        "node { op_type: 'Split' input: 'x' " attributes                                           \
        " output: 'a' output: 'b' } " NODE("Concat", "input: 'b' input: 'a' " INT("axis", 0), "y") \
            OUTPUT("y") "}"

CLEAN_TEST(an_axis_of_unknown_size_is_split_into_equal_parts) {
    GD_SCOPE;
    gd_tensor *x = ramp(gd_dims(5, 2), 0, 1);
    gd_tensor *expected = gd_cat(gd_list(gd_narrow(x, 0, 2, 3), gd_narrow(x, 0, 0, 2)), .axis = 0);
    CHECK(tensors_same_bits(run_text(SPLIT(LIST("s", 2, "2, 3"), "input: 's'"), x), expected));
    expected = gd_cat(gd_list(gd_narrow(x, 0, 3, 2), gd_narrow(x, 0, 0, 3)), .axis = 0);
    CHECK(tensors_same_bits(run_text(SPLIT("", INT("num_outputs", 2)), x), expected));
}

TEST_MAIN
