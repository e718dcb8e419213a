/* test_print.c - gd_print prints as NumPy 2.4's print() does; the expected texts are NumPy's. */
#include <gradus/gradus.h>

#include <math.h>

#include "test.h"

static bool prints_as(const gd_tensor *t, const char *text) {
    char got[8192];
    size_t length = gd_to_text(t, got, sizeof got);
    if (length == strlen(got) && strcmp(got, text) == 0) return true;
    fprintf(stderr, "expected:\n%s\ngot:\n%s\n", text, got);
    return false;
}

static gd_tensor *f64(int n, const double *values) {
    return gd_from_array(gd_dims(n), GD_F64, values);
}
#define F64(...) f64((int)(sizeof((double[]){__VA_ARGS__}) / 8), (double[]){__VA_ARGS__})
#define F32(...) gd_cast(F64(__VA_ARGS__), GD_F32)
#define F16(...) gd_cast(F64(__VA_ARGS__), GD_F16)

static gd_tensor *range_i64(int64_t n) {
    gd_tensor *t = gd_empty(gd_dims(n), GD_I64);
    for (int64_t i = 0; i < n; i++) ((int64_t *)gd_data(t))[i] = i;
    return t;
}

TEST(floats_have_the_fewest_digits_that_distinguish_them) {
    GD_SCOPE;
    CHECK(prints_as(F32(0.1, 0.2, 1.0 / 3), "[0.1        0.2        0.33333334]"));
    CHECK(prints_as(F64(1.0 / 3, 2.0 / 3, 100.25), "[  0.33333333   0.66666667 100.25      ]"));
    CHECK(prints_as(F64(1, 2, 3), "[1. 2. 3.]"));
    CHECK(prints_as(F64(-1, 0.5), "[-1.   0.5]"));
    CHECK(prints_as(F64(-0.0, 0), "[-0.  0.]"));
    CHECK(prints_as(F64(0.99999999999, 1.5), "[1.  1.5]"));
}

TEST(numbers_of_very_different_size_get_an_exponent) {
    GD_SCOPE;
    CHECK(prints_as(F32(1e-5, 1, -123.456), "[ 1.00000e-05  1.00000e+00 -1.23456e+02]"));
    CHECK(prints_as(F64(1.0 / 3, 1e-5), "[3.33333333e-01 1.00000000e-05]"));
    CHECK(prints_as(F16(0.1, 65504), "[1.00e-01 6.55e+04]"));
    CHECK(prints_as(F64(1e8), "[1.e+08]"));
    CHECK(prints_as(F64(99999999), "[99999999.]"));
    CHECK(prints_as(F32(1e6), "[1.e+06]"));
    CHECK(prints_as(F32(999999), "[999999.]"));
    CHECK(prints_as(F64(1, 1000), "[   1. 1000.]"));
    CHECK(prints_as(F64(1, 1001), "[1.000e+00 1.001e+03]"));
    CHECK(prints_as(F64(1e-4, 0.1), "[0.0001 0.1   ]"));
    CHECK(prints_as(F32(1e-4, 0.05), "[0.0001 0.05  ]")); /* the f32 nearest to 1e-4 is below it */
    CHECK(prints_as(F64(5e-324, 1.7976931348623157e308), "[4.94065646e-324 1.79769313e+308]"));
}

TEST(nan_and_infinity_are_aligned) {
    GD_SCOPE;
    double nan = (double)NAN, inf = (double)INFINITY;
    CHECK(prints_as(F64(nan, -inf, 1), "[ nan -inf   1.]"));
    CHECK(prints_as(F64(nan, inf), "[nan inf]"));
    CHECK(prints_as(F64(nan, 1e-9, 1), "[   nan 1.e-09 1.e+00]"));
}

TEST(tensors_of_rank_2_and_higher_are_nested_lists) {
    GD_SCOPE;
    CHECK(prints_as(gd_reshape(F64(1, 0.5, -2, (double)NAN), gd_dims(2, 2)),
                    "[[ 1.   0.5]\n [-2.   nan]]"));
    CHECK(prints_as(gd_reshape(F64(0, 1, 2, 3, 4, 5, 6, 7), gd_dims(2, 2, 2)),
                    "[[[0. 1.]\n  [2. 3.]]\n\n [[4. 5.]\n  [6. 7.]]]"));
    CHECK(prints_as(gd_permute(gd_reshape(range_i64(6), gd_dims(2, 3)), gd_dims(1, 0)),
                    "[[0 3]\n [1 4]\n [2 5]]"));
    CHECK(prints_as(gd_empty(gd_dims(2, 0), GD_F32), "[]"));
}

TEST(integers_and_bools_are_aligned) {
    GD_SCOPE;
    const int64_t wide[] = {INT64_MIN, 1};
    const uint8_t bytes[] = {0, 255, 7};
    const bool truths[] = {true, false, false, true};
    CHECK(prints_as(gd_from_array(gd_dims(2), GD_I64, wide),
                    "[-9223372036854775808                    1]"));
    CHECK(prints_as(gd_from_array(gd_dims(3), GD_U8, bytes), "[  0 255   7]"));
    CHECK(prints_as(gd_from_array(gd_dims(2, 2), GD_BOOL, truths),
                    "[[ True False]\n [False  True]]"));
}

TEST(long_lines_are_wrapped) {
    GD_SCOPE;
    CHECK(prints_as(gd_mul(range_i64(30), gd_scalar_int(1000)),
                    "[    0  1000  2000  3000  4000  5000  6000  7000  8000  9000 10000 11000\n"
                    " 12000 13000 14000 15000 16000 17000 18000 19000 20000 21000 22000 23000\n"
                    " 24000 25000 26000 27000 28000 29000]"));
}

TEST(large_tensors_show_their_corners) {
    GD_SCOPE;
    CHECK(prints_as(gd_reshape(range_i64(2000), gd_dims(2, 1000)),
                    "[[   0    1    2 ...  997  998  999]\n [1000 1001 1002 ... 1997 1998 1999]]"));
    CHECK(prints_as(
        gd_reshape(range_i64(1200), gd_dims(400, 3)),
        "[[   0    1    2]\n [   3    4    5]\n [   6    7    8]\n ...\n [1191 1192 1193]\n"
        " [1194 1195 1196]\n [1197 1198 1199]]"));
    CHECK(prints_as(gd_div(gd_cast(range_i64(1001), GD_F64), gd_scalar(1000)),
                    "[0.    0.001 0.002 ... 0.998 0.999 1.   ]"));
    char text[64];
    gd_to_text(range_i64(9), text, sizeof text, .threshold = 5, .edge_items = 1);
    CHECK(strcmp(text, "[0 ... 8]") == 0);
}

TEST(rank_0_tensors_print_as_a_number) {
    GD_SCOPE;
    CHECK(prints_as(gd_scalar(1), "1.0"));
    CHECK(prints_as(gd_scalar(0.1), "0.1"));
    CHECK(prints_as(gd_scalar(123456789), "1.2345679e+08"));
    CHECK(prints_as(gd_scalar_of(123456789, GD_F64), "123456789.0"));
    CHECK(prints_as(gd_scalar_of(1e16, GD_F64), "1e+16"));
    CHECK(prints_as(gd_scalar_of(1e-5, GD_F64), "1e-05"));
    CHECK(prints_as(gd_scalar_of(-0.0, GD_F64), "-0.0"));
    CHECK(prints_as(gd_scalar_of((double)-INFINITY, GD_F64), "-inf"));
    CHECK(prints_as(gd_scalar_of(1, GD_BOOL), "True"));
    CHECK(prints_as(gd_scalar_int(-7), "-7"));
    CHECK(prints_as(gd_scalar_of(0.1, GD_BF16), "0.1")); /* the digits of bf16, not those of f32 */
}

TEST(precision_and_width_are_options) {
    GD_SCOPE;
    char text[64];
    gd_to_text(F64(1.0 / 3, 2), text, sizeof text, .precision = 2);
    CHECK(strcmp(text, "[0.33 2.  ]") == 0);
    gd_to_text(F32(1, 2), text, sizeof text, .describe = true);
    CHECK(strcmp(text, "[1. 2.]\nf32[2]") == 0);
    CHECK(gd_to_text(F32(1, 2), text, 4) == 7 && strcmp(text, "[1.") == 0);
    CHECK(gd_to_text(F32(1, 2), NULL, 0) == 7);
}

TEST(gd_print_writes_a_line_to_a_stream) {
    GD_SCOPE;
    char text[64] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    CHECK(gd_fprint(f, F32(1, 2)) == GD_OK);
    fclose(f);
    CHECK(strcmp(text, "[1. 2.]\n") == 0);
    CHECK(gd_fprint(NULL, F32(1)) == GD_E_ARGUMENT);
    gd_clear_error();
}

TEST(error_tensors_show_their_message) {
    GD_SCOPE;
    char text[512];
    gd_tensor *wrong = gd_add(gd_full(gd_dims(2), 0), gd_full(gd_dims(3), 0));
    gd_to_text(wrong, text, sizeof text);
    CHECK(strncmp(text, "<add(a f32[2], b f32[3])", 24) == 0);
    gd_clear_error();
    gd_to_text(NULL, text, sizeof text);
    CHECK(strcmp(text, "<NULL>") == 0);
}

TEST_MAIN
