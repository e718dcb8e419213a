/* test_onnx_shapes.c - ONNX files that compute with sizes: shapes computed from the sizes of
 * inputs, as exporters write them, and asymmetric padding. */
#include "compare.h"
#include "onnx_text.h"
#include "values.h"

/* --- shapes ----------------------------------------------------------------------------------- */

/* x.view(x.size(0), -1, 3): Shape, Gather, Unsqueeze, Concat, Reshape. */
#define VIEW(dims)                                                                       \
    HEAD "graph { " INPUT("x", dims) NUMBER("zero", 0) LIST("first", 1, "0")             \
        LIST("rest", 2, "-1, 3") NODE("Shape", "input: 'x'", "sizes")                    \
            NODE("Gather", "input: 'sizes' input: 'zero'", "n")                          \
                NODE("Unsqueeze", "input: 'n' input: 'first'", "ns")                     \
                    NODE("Concat", "input: 'ns' input: 'rest' " INT("axis", 0), "shape") \
                        NODE("Reshape", "input: 'x' input: 'shape'", "y") OUTPUT("y") "}"

CLEAN_TEST(a_shape_computed_from_sizes_is_known_at_run_time) {
    GD_SCOPE;
    gd_tensor *x = ramp(gd_dims(2, 6, 2), 0, 1);
    CHECK_DIMS(run_text(VIEW(SIZE(2) SIZE(6) SIZE(2)), x), 2, 4, 3);
    CHECK_DIMS(run_text(VIEW(ANY SIZE(6) SIZE(2)), x), 2, 4, 3);
    CHECK_DIMS(run_text(VIEW(ANY ANY ANY), x), 2, 4, 3);
    /* a graph loaded with static sizes contains no shape computation */
    gd_graph *g = gd_onnx_load(write_model(VIEW(SIZE(2) SIZE(6) SIZE(2))));
    char *text = g ? gd_graph_text(g) : NULL;
    CHECK_SAYING(text && !strstr(text, "late") && !strstr(text, "sizes_of"), "%s",
                 text ? text : "");
    free(text);
}

CLEAN_TEST(known_sizes_stay_known_after_an_unknown_shape) {
    GD_SCOPE;
    gd_graph *g = gd_onnx_load(write_model(VIEW(ANY SIZE(6) SIZE(2))));
    CHECK_SAYING(g != NULL, "%s", gd_error_message());
    gd_tensor *y = g ? gd_graph_find(g, "y") : NULL;
    const gd_shape s = y ? gd_tensor_shape(y) : gd_dims();
    CHECK(s.rank == 3 && s.at[0] == GD_ANY && s.at[1] == 4 && s.at[2] == 3);
}

/* Attention heads: reshapes (n, t, 6) to (n, t, 2, 3), by 0 0 2 3 and by sizes; n and t are
 * unknown. */
CLEAN_TEST(reshape_may_copy_two_unknown_sizes) {
    GD_SCOPE;
    gd_tensor *x = ramp(gd_dims(2, 5, 6), 0, 1);
    CHECK_DIMS(run_text(HEAD "graph { " INPUT("x", ANY ANY SIZE(6)) LIST("s", 4, "0, 0, 2, 3")
                            NODE("Reshape", "input: 'x' input: 's'", "y") OUTPUT("y") "}",
                        x),
               2, 5, 2, 3);
    CHECK_DIMS(run_text(HEAD "graph { " INPUT("x", ANY ANY SIZE(6)) LIST("s", 3, "0, -1, 3")
                            NODE("Reshape", "input: 'x' input: 's'", "y") OUTPUT("y") "}",
                        x),
               2, 10, 3);
    CHECK_DIMS(run_text(HEAD "graph { " INPUT("x", ANY ANY SIZE(6)) LIST("c", 2, "2, 3")
                            NODE("Shape", "input: 'x' " INT("end", 2), "nt")
                                NODE("Concat", "input: 'nt' input: 'c' " INT("axis", 0), "s")
                                    NODE("Reshape", "input: 'x' input: 's'", "y") OUTPUT("y") "}",
                        x),
               2, 5, 2, 3);
}

/* Half of a sequence, positions, a mask of its length, tiles, and the last step. */
CLEAN_TEST(slices_ranges_tiles_and_indices_may_be_computed_from_sizes) {
    GD_SCOPE;
    gd_tensor *x = ramp(gd_dims(6, 2), 0, 1);
#define WITH_N                                                                                  \
    HEAD "graph { " INPUT("x", ANY SIZE(2)) NUMBER("zero", 0) NUMBER("one", 1) NUMBER("two", 2) \
        LIST("zeros", 1, "0") LIST("ones", 1, "1") LIST("twos", 1, "2")                         \
            NODE("Shape", "input: 'x'", "sizes")                                                \
                NODE("Gather", "input: 'sizes' input: 'zero'", "n")                             \
                    NODE("Div", "input: 'n' input: 'two'", "h")                                 \
                        NODE("Unsqueeze", "input: 'h' input: 'zeros'", "hs")
    gd_tensor *y =
        run_text(WITH_N NODE("Slice", "input: 'x' input: 'zeros' input: 'hs' input: 'zeros'", "y")
                     OUTPUT("y") "}",
                 x);
    CHECK(tensors_same_bits(y, gd_narrow(x, 0, 0, 3)));
    y = run_text(
        WITH_N NODE(
            "Range", "input: 'zero' input: 'n' input: 'one'",
            "r") "node { op_type: 'Cast' input: 'r' output: 'y' " INT("to", 1) "} " OUTPUT("y") "}",
        x);
    CHECK(tensors_same_bits(y, gd_arange(0, 6)));
    y = run_text(WITH_N NODE("ConstantOfShape",
                             "input: 'sizes' attribute { name: 'value' type: TENSOR t { "
                             "data_type: 1 dims: 1 float_data: 2 } }",
                             "y") OUTPUT("y") "}",
                 x);
    CHECK(tensors_same_bits(y, gd_full(gd_dims(6, 2), 2)));
    y = run_text(WITH_N NODE("Concat", "input: 'ones' input: 'hs' " INT("axis", 0), "times")
                     NODE("Tile", "input: 'x' input: 'times'", "y") OUTPUT("y") "}",
                 x);
    CHECK_DIMS(y, 6, 6);
    y = run_text(WITH_N NODE("Sub", "input: 'n' input: 'one'", "last")
                     NODE("Gather", "input: 'x' input: 'last'", "y") OUTPUT("y") "}",
                 x);
    CHECK(tensors_same_bits(y, gd_select(x, 0, 5)));
    y = run_text(WITH_N NODE("ReduceSum", "input: 'x' input: 'ones' " INT("keepdims", 0), "s")
                     NODE("Concat", "input: 'hs' input: 'ones' " INT("axis", 0), "to")
                         NODE("Mul", "input: 'to' input: 'twos'", "twice") /* (6, 2) */
                 NODE("Expand", "input: 's' input: 'to'", "e")
                     NODE("Reshape", "input: 'e' input: 'm'", "y") LIST("m", 1, "-1")
                         OUTPUT("y") "}",
                 x);
    CHECK_DIMS(y, 18);
}

CLEAN_TEST(sizes_inside_a_loop_are_known_at_run_time) {
    GD_SCOPE;
    /* each step: s = s + sum of x over its size */
    gd_tensor *x = ramp(gd_dims(4, 3), 0, 1);
    gd_tensor *y = run_text(
        HEAD "graph { " INPUT("x", ANY SIZE(3)) NUMBER("zero", 0)
            LIST("zeros", 1,
                 "0") "initializer { name: 'start' data_type: 1 dims: 3 float_data: [0, 0, 0] } "
                      "node { name: 'scan' op_type: 'Scan' input: 'start' input: 'x' output: "
                      "'y' " INT("num_scan_inputs",
                                 1) "attribute { name: 'body' type: GRAPH g { "
                                    "input { name: 's' } input { name: 'r' } " NODE(
                                        "Shape", "input: 'x'", "sizes")
                                        NODE("Gather", "input: 'sizes' input: 'zeros'",
                                             "n") "node { op_type: 'Cast' input: 'n' output: "
                                                  "'f' " INT("to", 1) "} " NODE(
                                                      "Mul", "input: 'r' input: 'f'", "m")
                                                      NODE("Add", "input: 's' input: 'm'",
                                                           "o") "output { name: 'o' } } } "
                                                                "} " OUTPUT("y") "}",
        x);
    CHECK(tensors_same_bits(y, gd_mul(gd_sum(x, .axis = 0), gd_scalar(4))));
}

CLEAN_TEST(a_shape_computed_from_data_fails) {
    check_load_fails(
        HEAD
        "graph { " INPUT("x", ANY SIZE(2)) "input { name: 's' type { tensor_type { elem_type: 7 "
                                           "shape { dim { dim_value: 2 } } } } } " NODE(
                                               "Reshape", "input: 'x' input: 's'", "y") "}",
        GD_E_UNSUPPORTED, "'y' (Reshape): its input 's' is known only when the graph runs");
}

/* --- padding ---------------------------------------------------------------------------------- */

static gd_tensor *padded(gd_tensor *x, int64_t left, int64_t right, double value) {
    return gd_pad(x, gd_dims(left, right), .value = value);
}

#define CONV1(attributes)                                                                 \
    HEAD "graph { " INPUT(                                                                \
        "x", ANY SIZE(1) SIZE(6)) "initializer { name: 'w' data_type: 1 dims: 1 dims: 1 " \
                                  "dims: 4 float_data: [1, -2, 3, 0.5] } " NODE(          \
                                      "Conv", "input: 'x' input: 'w' " attributes, "y")   \
                                      OUTPUT("y") "}"
#define POOL1(type, attributes)                     \
    HEAD "graph { " INPUT("x", ANY SIZE(1) SIZE(6)) \
        NODE(type, "input: 'x' " INTS("kernel_shape", "4") attributes, "y") OUTPUT("y") "}"

CLEAN_TEST(padding_may_be_asymmetric_or_same) {
    GD_SCOPE;
    gd_tensor *x = ramp(gd_dims(2, 1, 6), -3, 0.7);
    const float weights[] = {1, -2, 3, 0.5f};
    gd_tensor *w = gd_from_array(gd_dims(1, 1, 4), GD_F32, weights);
    CHECK(tensors_same_bits(run_text(CONV1(INTS("pads", "2, 1")), x),
                            gd_conv1d(padded(x, 2, 1, 0), w, NULL)));
    CHECK(tensors_same_bits(run_text(CONV1(WORD("auto_pad", "SAME_UPPER")), x),
                            gd_conv1d(padded(x, 1, 2, 0), w, NULL)));
    CHECK(tensors_same_bits(run_text(CONV1(WORD("auto_pad", "SAME_LOWER")), x),
                            gd_conv1d(padded(x, 2, 1, 0), w, NULL)));
    CHECK(tensors_same_bits(run_text(CONV1(WORD("auto_pad", "SAME_UPPER") INTS("strides", "4")), x),
                            gd_conv1d(padded(x, 1, 1, 0), w, NULL, .stride = 4)));
    CHECK(tensors_same_bits(run_text(CONV1(WORD("auto_pad", "SAME_LOWER") INTS("strides", "3")), x),
                            gd_conv1d(padded(x, 1, 0, 0), w, NULL, .stride = 3)));
    CHECK(
        tensors_same_bits(run_text(CONV1(WORD("auto_pad", "SAME_UPPER") INTS("dilations", "2")), x),
                          gd_conv1d(padded(x, 3, 3, 0), w, NULL, .dilation = 2)));
    CHECK(tensors_same_bits(run_text(CONV1(WORD("auto_pad", "VALID")), x), gd_conv1d(x, w, NULL)));
    CHECK(tensors_same_bits(run_text(POOL1("MaxPool", INTS("pads", "0, 2")), x),
                            gd_max_pool1d(padded(x, 0, 2, -INFINITY), .kernel = 4, .stride = 1)));
    CHECK(tensors_same_bits(
        run_text(POOL1("MaxPool", WORD("auto_pad", "SAME_LOWER") INTS("strides", "2")), x),
        gd_max_pool1d(padded(x, 1, 1, -INFINITY), .kernel = 4, .stride = 2)));
    CHECK(tensors_same_bits(
        run_text(POOL1("AveragePool", INTS("pads", "2, 0") INT("count_include_pad", 1)), x),
        gd_avg_pool1d(padded(x, 2, 0, 0), .kernel = 4, .stride = 1)));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(invalid_padding_fails) {
    check_load_fails(CONV1(INTS("pads", "1, 2, 3")), GD_E_FORMAT,
                     "'y' (Conv): its attribute 'pads' has 3 numbers");
    check_load_fails(CONV1(INTS("pads", "-1, 2")), GD_E_FORMAT, "out of range");
    check_load_fails(POOL1("AveragePool", INTS("dilations", "2")), GD_E_UNSUPPORTED,
                     "its dilations must be 1");
}

TEST_MAIN
