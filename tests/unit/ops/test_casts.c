/* test_casts.c - casts follow the rule of gradus/dtype.h: all pairs of dtypes, on every instruction
 * set, in eager calls, assignments, plans and folded constants.
 */
#include <math.h>
#include <stdlib.h>

#include "backend/cpu/isa.h"
#include "core/copy.h"
#include "gradus/gradus.h"
#include "gradus/testing.h"
#include "test.h"

#include "fuse_ways.h"

static const double specials[] = {0.0,
                                  -0.0,
                                  0.5,
                                  -0.5,
                                  0.999,
                                  -0.999,
                                  1,
                                  -1,
                                  1.5,
                                  -1.5,
                                  2.7,
                                  -2.7,
                                  100,
                                  -100,
                                  126.9,
                                  127,
                                  127.5,
                                  128,
                                  -127.5,
                                  -128,
                                  -128.5,
                                  -129,
                                  254.9,
                                  255,
                                  255.5,
                                  256,
                                  300,
                                  -300,
                                  32767,
                                  65504,
                                  -65504,
                                  1e5,
                                  -1e5,
                                  2147483520.0,
                                  2147483647.0,
                                  2147483648.0,
                                  -2147483648.0,
                                  -2147483649.0,
                                  -2147483904.0,
                                  3e9,
                                  -3e9,
                                  4294967296.0,
                                  4294967297.0,
                                  1e10,
                                  -1e10,
                                  9007199254740993.0,
                                  9.2233720368547748e18,
                                  9223372036854775808.0,
                                  -9223372036854775808.0,
                                  -9.3e18,
                                  1e19,
                                  1.8446744073709552e19,
                                  1e30,
                                  -1e30,
                                  3.4e38,
                                  -3.4e38,
                                  1e300,
                                  -1e300,
                                  INFINITY,
                                  -INFINITY,
                                  NAN,
                                  1e-40,
                                  -1e-40,
                                  5e-324};
enum { COUNT = sizeof specials / sizeof *specials };

/* The rule for casting a float to an integer dtype: truncate, saturate, NaN becomes 0. */
static int64_t saturate_to_integer(gd_dtype to, double x) {
    const double low = to == GD_U8    ? 0
                       : to == GD_I8  ? -128
                       : to == GD_I32 ? -2147483648.0
                                      : -0x1p63;
    const double high = to == GD_U8    ? 255
                        : to == GD_I8  ? 127
                        : to == GD_I32 ? 2147483647.0
                                       : 0x1p63;
    if (isnan(x)) return 0;
    if (x <= low) return to == GD_I64 ? INT64_MIN : (int64_t)low;
    if (x >= high) return to == GD_I64 ? INT64_MAX : (int64_t)high;
    return (int64_t)x;
}

static int64_t wrap_integer(gd_dtype to, int64_t x) {
    return to == GD_U8 ? (uint8_t)x : to == GD_I8 ? (int8_t)x : to == GD_I32 ? (int32_t)x : x;
}

static bool is_expected(gd_dtype to, const void *y, gd_dtype from, const void *x) {
    if (to == GD_BOOL)
        return gd_load_i64(to, y) ==
               (gd_dtype_is_float(from) ? gd_load_f64(from, x) != 0 : gd_load_i64(from, x) != 0);
    if (!gd_dtype_is_float(to))
        return gd_load_i64(to, y) == (gd_dtype_is_float(from)
                                          ? saturate_to_integer(to, gd_load_f64(from, x))
                                          : wrap_integer(to, gd_load_i64(from, x)));
    const double got = gd_load_f64(to, y);
    const double given =
        gd_dtype_is_float(from) ? gd_load_f64(from, x) : (double)gd_load_i64(from, x);
    if (isnan(given)) return isnan(got);
    if (to == GD_F64) return got == given;
    if (to == GD_F32)
        return (float)got == (gd_dtype_is_float(from) ? (float)given : (float)gd_load_i64(from, x));
    return got == given || fabs(got - given) <= 0.004 * fabs(given) + 1e-7 ||
           (isinf(got) && fabs(given) > 65000);
}

/* Enough elements for full vectors and a remainder, with every special number in every lane. */
enum { N = 67 * COUNT };

static gd_tensor *numbers(gd_dtype dtype) {
    double *values = malloc(N * sizeof *values);
    for (int i = 0; i < N; i++) values[i] = specials[(i + i / COUNT) % COUNT];
    gd_tensor *x = gd_from_array(gd_dims(N), GD_F64, values);
    if (dtype == GD_I64) /* integers that f64 cannot represent */
        for (int i = 0; i < N; i++) {
            int64_t integer = saturate_to_integer(GD_I64, values[i]);
            memcpy(&values[i], &integer, sizeof integer);
        }
    if (dtype == GD_I64) x = gd_from_array(gd_dims(N), GD_I64, values);
    free(values);
    return dtype == GD_I64 || dtype == GD_F64 ? x : gd_cast(x, dtype);
}

static void check_cast(const char *way, gd_tensor *y, gd_tensor *x) {
    const gd_dtype to = gd_tensor_dtype(y), from = gd_tensor_dtype(x);
    if (gd_failed()) {
        CHECK_SAYING(!gd_failed(), "%s: %s", way, gd_error_message());
        gd_clear_error();
        return;
    }
    gd_tensor *a = gd_contiguous(x), *b = gd_contiguous(y);
    for (int i = 0; i < N; i++) {
        const char *p = (const char *)gd_data(a) + (size_t)i * gd_dtype_size(from);
        const char *q = (const char *)gd_data(b) + (size_t)i * gd_dtype_size(to);
        if (is_expected(to, q, from, p)) continue;
        CHECK_SAYING(false, "%s: %s %.17g to %s is %.17g", way, gd_dtype_name(from),
                     gd_load_f64(from, p), gd_dtype_name(to), gd_load_f64(to, q));
        return;
    }
}

#define EACH_PAIR(from, to)                                      \
    for (gd_dtype from = GD_BOOL; from < GD_DTYPE_COUNT; from++) \
        for (gd_dtype to = GD_BOOL; to < GD_DTYPE_COUNT; to++)

TEST(eager_casts_follow_the_rule_on_every_instruction_set) {
    const gd_isa before = gd_cpu_isa();
    for (gd_isa isa = GD_ISA_BASE; isa < GD_ISA_COUNT; isa++) {
        if (gd_cpu_set_isa(isa) != isa) continue;
        EACH_PAIR(from, to) {
            GD_SCOPE;
            gd_tensor *x = numbers(from);
            check_cast(gd_isa_name(isa), gd_cast(x, to), x);
        }
    }
    gd_cpu_set_isa(before);
}

TEST(strided_casts_follow_the_rule) {
    EACH_PAIR(from, to) {
        GD_SCOPE;
        gd_tensor *x = gd_permute(gd_reshape(numbers(from), gd_dims(67, COUNT)), gd_dims(1, 0));
        check_cast("strided", gd_cast(x, to), x);
    }
}

TEST(reference_kernels_follow_the_rule) {
    EACH_PAIR(from, to) {
        GD_SCOPE;
        gd_tensor *x = numbers(from);
        gd_set_reference_kernels(true);
        gd_tensor *y = gd_cast(x, to);
        gd_set_reference_kernels(false);
        check_cast("reference", y, x);
    }
}

TEST(assignments_follow_the_rule) {
    EACH_PAIR(from, to) {
        GD_SCOPE;
        gd_tensor *x = numbers(from), *y = gd_zeros(gd_dims(N), .dtype = to);
        gd_assign(y, x);
        check_cast("assign", y, x);
    }
}

static gd_dtype target_dtype;

/* A cast between elementwise steps, so that the plan fuses it. */
static results cast_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *y = gd_cast(gd_clone(x[0]), target_dtype);
    return (results){.at = {y, gd_mul(gd_add(y, y), y)}, .count = 2};
}

TEST(plans_follow_the_rule_in_evaluator_and_compiled_kernels) {
    for (int level = 0; level <= 2; level++)
        for (int compiled = 0; compiled < (level == 2 ? 2 : 1); compiled++) {
            if (compiled) use_compiler();
            else use_evaluator();
            EACH_PAIR(from, to) {
                GD_SCOPE;
                target_dtype = to;
                gd_tensor *x = numbers(from);
                planned p = plan(cast_body, NULL, &x, 1, level);
                gd_tensors got = run(&p);
                check_cast(compiled ? "compiled" : "plan", got.at[0], x);
            }
        }
    use_evaluator();
}

TEST(constants_are_folded_by_the_rule) {
    for (gd_dtype to = GD_U8; to <= GD_I64; to++)
        for (int i = 0; i < COUNT; i++) {
            GD_SCOPE;
            gd_graph *graph = gd_graph_new();
            GD_GRAPH(graph);
            gd_tensor *y = gd_cast(gd_full(gd_dims(3), specials[i], .dtype = GD_F64), to);
            gd_tensors got =
                gd_session_run(gd_session_new(graph, .level = 2), gd_list(), gd_list(y));
            CHECK(!gd_failed());
            int64_t value = gd_load_i64(to, gd_data(got.at[0])),
                    expected = saturate_to_integer(to, specials[i]);
            CHECK_SAYING(value == expected, "%.17g to %s is %lld", specials[i], gd_dtype_name(to),
                         (long long)value);
        }
}

TEST(sums_cast_to_an_integer_dtype_before_adding) {
    static const gd_dtype from[] = {GD_F16, GD_F32, GD_F64};
    for (gd_dtype to = GD_U8; to <= GD_I64; to++)
        for (int f = 0; f < 3; f++)
            for (int product = 0; product < 2; product++) {
                GD_SCOPE;
                gd_tensor *x = gd_reshape(numbers(from[f]), gd_dims(N, 1));
                gd_tensor *y = product ? gd_prod(x, .axis = 1, .dtype = to)
                                       : gd_sum(x, .axis = 1, .dtype = to);
                check_cast(product ? "prod" : "sum", y, x);
            }
}

int main(int argc, char **argv) { return run_with_cache(argc, argv); }
