/* test_numbers.c - integers in arguments and options keep all their digits in every notation and
 * mode; integers and bools as inputs of ops for floats.
 */
#include <math.h>

#include "gradus/gradus.h"
#include "gradus/testing.h"
#include "temp.h"
#include "test.h"

#include "fuse_ways.h"

#define BIG   9007199254740993LL /* 2^53 + 1: not representable as a double */
#define LARGE (INT64_MAX - 1)

static bool all_are(gd_tensor *t, int64_t value) {
    if (gd_tensor_is_error(t) || gd_tensor_dtype(t) != GD_I64) return false;
    t = gd_contiguous(t);
    for (int64_t i = 0; i < gd_tensor_numel(t); i++)
        if (((const int64_t *)gd_data(t))[i] != value) return false;
    return true;
}

#define CHECK_NO_FAILURE(condition)                        \
    do {                                                   \
        CHECK_SAYING(condition, "%s", gd_error_message()); \
        gd_clear_error();                                  \
    } while (0)

TEST(arguments_keep_all_digits_of_integers) {
    GD_SCOPE;
    gd_tensor *x = gd_zeros(gd_dims(5), .dtype = GD_I64),
              *on = gd_ones(gd_dims(5), .dtype = GD_BOOL);
    CHECK_NO_FAILURE(all_are(gd_full(gd_dims(5), BIG, .dtype = GD_I64), BIG));
    CHECK_NO_FAILURE(all_are(gd_full(gd_dims(5), (uint64_t)BIG, .dtype = GD_I64), BIG));
    CHECK_NO_FAILURE(all_are(gd_full(gd_dims(5), INT64_MIN, .dtype = GD_I64), INT64_MIN));
    CHECK_NO_FAILURE(all_are(gd_full(gd_dims(5), (char)7, .dtype = GD_I64), 7));
    CHECK_NO_FAILURE(all_are(gd_full(gd_dims(5), 7.9f, .dtype = GD_I64), 7));
    CHECK_NO_FAILURE(all_are(gd_full(gd_dims(5), 0x1p60, .dtype = GD_I64), (int64_t)1 << 60));
    CHECK_NO_FAILURE(all_are(gd_full_like(x, LARGE), LARGE));
    CHECK_NO_FAILURE(all_are(gd_masked_fill(x, on, BIG), BIG));
    CHECK_NO_FAILURE(all_are(gd_threshold(x, BIG, -BIG), -BIG));
    CHECK_NO_FAILURE(all_are(gd_clamp(x, .min = gd_number_of(BIG)), BIG));
    CHECK_NO_FAILURE(all_are(gd_scalar_of(BIG, GD_I64), BIG));
    CHECK_NO_FAILURE(all_are(gd_scalar_of(-0.5, GD_I64), 0));
    gd_tensor *range = gd_arange(BIG, BIG + 4, .dtype = GD_I64);
    CHECK_NO_FAILURE(gd_tensor_numel(range) == 4 &&
                     ((const int64_t *)gd_data(range))[3] == BIG + 3);
    range = gd_arange(INT64_MIN, INT64_MAX, .step = gd_number_of(INT64_MAX), .dtype = GD_I64);
    CHECK_NO_FAILURE(gd_tensor_numel(range) == 3 &&
                     ((const int64_t *)gd_data(range))[2] == INT64_MAX - 1);
    gd_set_reference_kernels(true);
    CHECK_NO_FAILURE(all_are(gd_masked_fill(x, on, BIG), BIG));
    CHECK_NO_FAILURE(all_are(gd_clamp(x, .min = gd_number_of(BIG)), BIG));
    gd_set_reference_kernels(false);
}

TEST(text_keeps_all_digits_of_integers) {
    GD_SCOPE;
    gd_tensor *x = gd_zeros(gd_dims(5), .dtype = GD_I64),
              *on = gd_ones(gd_dims(5), .dtype = GD_BOOL);
    CHECK_NO_FAILURE(
        all_are(gd_call("full", gd_list(), "dims=5 value=9007199254740993 dtype=i64"), BIG));
    CHECK_NO_FAILURE(
        all_are(gd_call("masked_fill", gd_list(x, on), "value=-9223372036854775808"), INT64_MIN));
    CHECK_NO_FAILURE(all_are(gd_call("clamp", gd_list(x), "min=9007199254740993"), BIG));
    CHECK_NO_FAILURE(all_are(gd_call("full_like", gd_list(x), "value=1e3"), 1000));
    gd_attrs *attrs = gd_attrs_new(gd_op_find("full_like"));
    CHECK(gd_attrs_set_int(attrs, "value", BIG) == GD_OK);
    CHECK_NO_FAILURE(all_are(gd_op_call(gd_op_find("full_like"), gd_list(x), attrs).at[0], BIG));
    CHECK(gd_attrs_set_float(attrs, "value", 5) == GD_OK);
    CHECK_NO_FAILURE(all_are(gd_op_call(gd_op_find("full_like"), gd_list(x), attrs).at[0], 5));
    CHECK(gd_attrs_set_text(attrs, "value", "12x") != GD_OK);
    gd_clear_error();
}

/* A chain of ops that plans fuse: fill, mask, clamp, compare. */
static results fused_chain(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *a = gd_masked_fill(gd_add(x[0], gd_scalar_of(LARGE - 5, GD_I64)), x[1], BIG);
    gd_tensor *b = gd_clamp(gd_mul(a, gd_full_like(a, 1)), .min = gd_number_of(BIG + 2));
    gd_tensor *c = gd_sub(gd_full_like(b, BIG), gd_full(gd_dims(1), BIG - 1, .dtype = GD_I64));
    return (results){.at = {a, b, c, gd_gt(b, gd_full_like(b, BIG + 2))}, .count = 4};
}

TEST(plans_keep_all_digits_of_integers_interpreted_and_compiled) {
    GD_SCOPE;
    gd_tensor *x[2] = {gd_arange(0, 5000, .dtype = GD_I64),
                       gd_gt(gd_randn(gd_dims(5000)), gd_scalar(0))};
    x[0] = gd_remainder(x[0], gd_scalar_of(5, GD_I64));
    check_all_ways("integers", fused_chain, NULL, x, 2, 0);
    results eager = fused_chain(x, NULL);
    const int64_t *a = gd_data(eager.at[0]), *r = gd_data(x[0]);
    const bool *on = gd_data(x[1]);
    for (int i = 0; i < 5000; i++)
        if (a[i] != (on[i] ? BIG : r[i] + LARGE - 5)) {
            CHECK_SAYING(false, "element %d is %lld", i, (long long)a[i]);
            break;
        }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_clear_error();
}

TEST(user_defined_ops_keep_all_digits_of_integers) {
    GD_SCOPE;
    CHECK(gd_op_define("plus_number(x) -> y  elementwise\nx plus a number.\n  by number = "
                       "9007199254740993\n  y = x + by\n",
                       NULL) == GD_OK);
    gd_tensor *x = gd_zeros(gd_dims(3), .dtype = GD_I64);
    CHECK_NO_FAILURE(all_are(gd_call("plus_number", gd_list(x), NULL), BIG));
    CHECK_NO_FAILURE(
        all_are(gd_call("plus_number", gd_list(x), "by=-9007199254740995"), -9007199254740995));
}

/* y = threshold(min(x + BIG, BIG - 2)) + range, saved to a file and loaded. */
TEST(files_keep_all_digits_of_integers) {
    GD_SCOPE;
    const char *path = temp_path("numbers.onnx");
    gd_tensor *feed = gd_zeros(gd_dims(4), .dtype = GD_I64);
    gd_graph *graph = gd_graph_new(), *again;
    gd_tensor *x, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(4), .dtype = GD_I64, .name = "x");
        y = gd_clamp(gd_add(x, gd_full_like(x, BIG)), .max = gd_number_of(BIG - 2));
        y = gd_threshold(y, BIG, BIG + 2);
        y = gd_named(gd_sub(y, gd_arange(BIG, BIG + 4, .dtype = GD_I64)), "y");
    }
    CHECK_NO_FAILURE(gd_onnx_save(path, gd_session_new(graph), gd_list(x), gd_list(y)) == GD_OK);
    again = gd_onnx_load(path);
    CHECK_NO_FAILURE(again != NULL && !gd_failed());
    gd_graph *graphs[2] = {graph, again};
    for (int g = 0; g < 2 && again; g++) {
        gd_tensor *in = gd_graph_find(graphs[g], "x"), *out = gd_graph_find(graphs[g], "y");
        gd_tensors got = gd_session_run(gd_session_new(graphs[g]), gd_list(in, feed), gd_list(out));
        CHECK_NO_FAILURE(all_are(gd_add(got.at[0], gd_arange(0, 4, .dtype = GD_I64)), 2));
    }
}

#define CHECK_FAILS(status, words, expression)                                           \
    do {                                                                                 \
        gd_tensor *failed_ = expression;                                                 \
        CHECK(gd_tensor_is_error(failed_));                                              \
        CHECK_SAYING(gd_error_status() == status && strstr(gd_error_message(), words) && \
                         strstr(gd_error_message(), "test_numbers.c"),                   \
                     "%s: %s", gd_status_name(gd_error_status()), gd_error_message());   \
        gd_clear_error();                                                                \
    } while (0)

TEST(numbers_out_of_range_of_a_dtype_fail) {
    GD_SCOPE;
    gd_tensor *bytes = gd_zeros(gd_dims(3), .dtype = GD_U8),
              *on = gd_ones(gd_dims(3), .dtype = GD_BOOL);
    CHECK_FAILS(GD_E_ARGUMENT, "3e+09 does not fit i32", gd_full(gd_dims(3), 3e9, .dtype = GD_I32));
    CHECK_FAILS(GD_E_ARGUMENT, "300 does not fit u8", gd_full(gd_dims(3), 300, .dtype = GD_U8));
    CHECK_FAILS(GD_E_ARGUMENT, "does not fit i64", gd_full(gd_dims(3), 0x1p63, .dtype = GD_I64));
    CHECK_FAILS(GD_E_ARGUMENT, "does not fit i64", gd_full(gd_dims(3), NAN, .dtype = GD_I64));
    CHECK_FAILS(GD_E_ARGUMENT, "300 does not fit u8", gd_full_like(bytes, 300));
    CHECK_FAILS(GD_E_ARGUMENT, "300 does not fit u8", gd_masked_fill(bytes, on, 300));
    CHECK_FAILS(GD_E_ARGUMENT, "neither true nor false", gd_masked_fill(on, on, 0.5));
    CHECK_FAILS(GD_E_ARGUMENT, "no u8 lies between", gd_clamp(bytes, .max = -1));
    CHECK_FAILS(GD_E_ARGUMENT, "no i8 lies between", gd_clamp(gd_cast(bytes, GD_I8), .min = 128));
    CHECK_FAILS(GD_E_OVERFLOW, "too many", gd_arange(INT64_MIN, INT64_MAX, .dtype = GD_I64));
}

TEST(unsupported_ops_on_bools_and_integers_fail_with_a_message) {
    GD_SCOPE;
    gd_tensor *on = gd_ones(gd_dims(3), .dtype = GD_BOOL),
              *n = gd_ones(gd_dims(3), .dtype = GD_I32);
    CHECK_FAILS(GD_E_DTYPE, "gd_logical_not", gd_neg(on));
    CHECK_FAILS(GD_E_DTYPE, "gd_logical_xor", gd_sub(on, on));
    CHECK_FAILS(GD_E_DTYPE, "i64 and cannot be written", gd_square_(on));
    CHECK(gd_op_define("half_of(x) -> y  elementwise\nHalf.\n  y = 0.5 * x\n", NULL) == GD_OK);
    CHECK_FAILS(GD_E_DTYPE, "computes with fractions", gd_call("half_of", gd_list(n), NULL));
    CHECK_FAILS(GD_E_DTYPE, "f32 and cannot be written", gd_clamp_(n, .max = 0.5));
    CHECK_FAILS(GD_E_ARGUMENT, "both absent", gd_clamp_tensor(n, NULL, NULL));
    CHECK_FAILS(GD_E_UNSUPPORTED, "singular values",
                gd_matrix_norm(gd_ones(gd_dims(2, 2)), .ord = 2));
    CHECK_FAILS(GD_E_ARGUMENT, "ord is 3", gd_matrix_norm(gd_ones(gd_dims(2, 2)), .ord = 3));
    CHECK_FAILS(GD_E_SHAPE, "at least 2 dimensions", gd_matrix_norm(gd_ones(gd_dims(2))));
}

TEST(hardtanh_with_min_above_max_fails) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(3));
    gd_hardtanh(x, .min = 0.5, .max = -0.5);
    CHECK_SAYING(gd_failed() && strstr(gd_error_message(), "min is 0.5 and max is -0.5"), "%s",
                 gd_error_message());
    gd_clear_error();
    gd_hardtanh(x, .min = 0.5, .max = 0.5);
    CHECK(!gd_failed());
    CHECK(gd_item(gd_sum(gd_clamp(x, .min = 0.5, .max = -0.5))) == -1.5); /* as in PyTorch */
}

TEST(activations_of_integers_give_correct_floats) {
    GD_SCOPE;
    const int32_t values[] = {-300, -1, 0, 7};
    gd_tensor *x = gd_from_array(gd_dims(4), GD_I32, values), *wide = gd_cast(x, GD_F32);
#define SAME_AS_FLOATS(call)                                                                   \
    do {                                                                                       \
        gd_tensor *t = x, *got = call;                                                         \
        t = wide;                                                                              \
        gd_tensor *expected = call;                                                            \
        CHECK_SAYING(gd_tensor_dtype(got) == GD_F32 && same_numbers(got, expected, 0), #call); \
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());                                  \
    } while (0)
    SAME_AS_FLOATS(gd_leaky_relu(t, .slope = 0.3));
    SAME_AS_FLOATS(gd_prelu(t, t));
    SAME_AS_FLOATS(gd_elu(t));
    SAME_AS_FLOATS(gd_gelu(t));
    SAME_AS_FLOATS(gd_silu(t));
    SAME_AS_FLOATS(gd_hardswish(t));
    SAME_AS_FLOATS(gd_softplus(t));
    SAME_AS_FLOATS(gd_threshold(t, 0.5, 2.5));
    SAME_AS_FLOATS(gd_hardtanh(t, .min = -0.5, .max = 0.5));
    SAME_AS_FLOATS(gd_clamp(t, .max = 0.5));
    SAME_AS_FLOATS(gd_lerp(t, t, gd_scalar(0.25)));
    CHECK(gd_tensor_dtype(gd_relu(x)) == GD_I32 && gd_tensor_dtype(gd_relu6(x)) == GD_I32);
    CHECK(gd_tensor_dtype(gd_hardtanh(x)) == GD_I32 &&
          gd_tensor_dtype(gd_threshold(x, 1, 2)) == GD_I32);
    gd_clear_error();
}

static results linear_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    return (results){.at = {gd_relu(gd_linear(x[0], x[1], x[2]))}, .count = 1};
}

TEST(linear_accepts_integers_in_a_plan) {
    GD_SCOPE;
    gd_tensor *x[3] = {gd_randint(gd_dims(6, 5), -9, 9), gd_randint(gd_dims(4, 5), -9, 9),
                       gd_randint(gd_dims(4), -9, 9)};
    check_all_ways("linear", linear_body, NULL, x, 3, 0);
    gd_tensor *expected = gd_relu(gd_add(gd_matmul(x[0], gd_permute(x[1], gd_dims(1, 0))), x[2]));
    CHECK(same_numbers(linear_body(x, NULL).at[0], expected, 0));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_clear_error();
}

/* C makes the `true` of gd_sum(x, .axis = 1, true) the second number of the list. */
TEST(a_number_without_a_name_behind_a_list_fails) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2, 3));
    CHECK_FAILS(GD_E_ARGUMENT, "axis = 1 is followed by 1 without a name",
                gd_sum(x, .axis = 1, true));
    CHECK_FAILS(GD_E_ARGUMENT, "write its name, or .axis = gd_dims(0, 1)",
                gd_mean(x, .axis = 0, 1));
    CHECK_FAILS(GD_E_ARGUMENT, "axis = -1 is followed by -2", gd_var(x, .axis = -1, -2));
    CHECK_FAILS(GD_E_INDEX, "axis 1 is given twice", gd_sum(x, .axis = gd_dims(1, 1)));
    CHECK_NO_FAILURE(gd_tensor_rank(gd_sum(x, .axis = 1, .keepdim = true)) == 2);
    CHECK_NO_FAILURE(gd_tensor_rank(gd_sum(x, .axis = gd_dims(0, 1))) == 0);
}

int main(int argc, char **argv) { return run_with_cache(argc, argv); }
