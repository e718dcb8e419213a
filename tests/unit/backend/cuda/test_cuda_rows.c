/* test_cuda_rows.c - reductions of rows and the elementwise ops that use their results become one
 * kernel on CUDA, with the results of the CPU and of level 0. If the build found a real NVRTC, the
 * emulated one also compiles every source with it, for all architectures (tests/cuda/nvrtc.cpp). */
#include <math.h>

#include "compare.h"
#include "cuda_child.h"

/* --- programs --------------------------------------------------------------------------------- */

/* Inputs of the functions: two tensors (rows, n), two rows (n), a column (rows, 1) and a number. */
enum { X, Y, WEIGHT, BIAS, COLUMN, NUMBER, INPUTS };

static gd_tensor *last_mean(gd_tensor *x) { return gd_mean(x, .axis = -1, .keepdim = true); }
static gd_tensor *last_sum(gd_tensor *x) { return gd_sum(x, .axis = -1, .keepdim = true); }
static gd_tensor *last_max(gd_tensor *x) { return gd_max(x, .axis = -1, .keepdim = true); }
static gd_tensor *last_min(gd_tensor *x) { return gd_min(x, .axis = -1, .keepdim = true); }

static gd_tensors softmax_by_hand(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *e = gd_exp(gd_sub(in.at[X], last_max(in.at[X])));
    return gd_listed(gd_div(e, last_sum(e)));
}
static gd_tensors layer_norm_by_hand(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *d = gd_sub(in.at[X], last_mean(in.at[X]));
    gd_tensor *y = gd_div(d, gd_sqrt(gd_add(last_mean(gd_square(d)), gd_scalar(1e-5))));
    return gd_listed(gd_add(gd_mul(y, in.at[WEIGHT]), in.at[BIAS]));
}
/* Two results of the size of x. */
static gd_tensors rms_by_hand(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *h = gd_add(in.at[X], gd_mul(in.at[Y], gd_scalar(0.5)));
    gd_tensor *r = gd_rsqrt(gd_add(last_mean(gd_square(h)), gd_scalar(1e-6)));
    return gd_listed(gd_mul(gd_mul(h, r), in.at[WEIGHT]), h);
}
/* A result with one number for each row, of another rank. */
static gd_tensors divide_by_norm(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *s = gd_sqrt(gd_sum(gd_mul(in.at[X], in.at[X]), .axis = -1));
    return gd_listed(gd_div(in.at[X], gd_unsqueeze(s, -1)), s);
}
/* An operand with one number for each row, a number, and bools as operand and as result. */
static gd_tensors masked_softmax(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *s = gd_mul(gd_mul(in.at[X], in.at[NUMBER]), in.at[COLUMN]);
    s = gd_where(gd_gt(in.at[Y], gd_scalar(0)), s, gd_scalar(-4));
    gd_tensor *e = gd_exp(gd_sub(s, last_max(s))), *total = last_sum(e);
    gd_tensor *p = gd_div(e, gd_add(total, gd_square(in.at[COLUMN])));
    return gd_listed(p, gd_gt(s, last_mean(s)), total);
}
/* Four reductions of one pass. No two ops are arguments of one call: compilers evaluate arguments in
 * different orders, and the name of the step has the ops in theirs. */
static gd_tensors scale_to_range(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *x = in.at[X], *low = last_min(x), *high = last_max(x);
    gd_tensor *range = gd_add(gd_sub(high, low), gd_scalar(1)), *y = gd_div(gd_sub(x, low), range);
    gd_tensor *size = last_sum(gd_abs(x)), *middle = last_mean(x);
    return gd_listed(gd_mul(gd_add(y, middle), size));
}
/* Nothing but the extremes: NaN must come from them. */
static gd_tensors subtract_extremes(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *low = last_min(in.at[X]), *high = last_max(in.at[X]);
    return gd_listed(gd_sub(in.at[X], low), gd_sub(in.at[X], high), low, high);
}
/* Passes that read what earlier ones have kept, which may depend on kept values itself. */
static gd_tensors softmax_of_softmax(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *a = gd_exp(gd_sub(in.at[X], last_max(in.at[X])));
    gd_tensor *b =
        gd_exp(gd_div(a, last_sum(gd_mul(a, gd_add(gd_square(in.at[Y]), gd_scalar(1))))));
    gd_tensor *c = gd_tanh(gd_add(b, a));
    return gd_listed(gd_div(gd_mul(c, b), last_sum(gd_abs(c))), last_max(gd_mul(b, c)));
}

typedef gd_tensors (*row_function)(gd_tensors in, void *user);

static const struct {
    const char *name;
    row_function function;
    const char *step;
} programs[] = {
    {"softmax", softmax_by_hand, "fused{max, sub, exp, sum, div}"},
    {"layer norm", layer_norm_by_hand, "fused{mean, sub, square, mean, add, sqrt, div, mul, add}"},
    {"RMS norm", rms_by_hand, "fused{mul, add, square, mean, add, rsqrt, mul, mul}"},
    {"norm", divide_by_norm, "fused{mul, sum, sqrt, div}"},
    {"masked softmax", masked_softmax, "fused{mul, mul, gt, where, max, "},
    {"range", scale_to_range, "fused{min, max, sub, add, sub, div, abs, sum, mean, add, mul}"},
    {"softmax of softmax", softmax_of_softmax,
     "fused{max, sub, exp, square, add, mul, sum, div, exp, add, tanh, "},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

/* --- checks ----------------------------------------------------------------------------------- */

static int count_text(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; at && (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

/* The plan is one step with this name, and views. */
static void check_step(const char *what, gd_jit *jit, gd_tensors in, const char *step) {
    static const char *const views[] = {" = permute(", " = slice(", " = narrow("};
    char *text = gd_jit_plan_text(jit, in);
    int steps = count_text(text, " = ");
    for (int i = 0; i < 3; i++) steps -= count_text(text, views[i]);
    CHECK_SAYING(text && steps == 1 && strstr(text, step), "%s: %s", what,
                 text ? text : gd_error_message());
    free(text);
}

static double tolerance_of(gd_dtype dtype) {
    return dtype == GD_F64 ? 1e-12 : dtype == GD_F32 ? 2e-5 : dtype == GD_F16 ? 0.02 : 0.1;
}

static gd_tensor *to_cpu(gd_tensor *x) { return gd_to_device(x, gd_device_get("cpu")); }

/* Compares a function on the device with the CPU: as one step, three runs with the same bits, the
 * last ones captured; and, if `level_0`, step by step. `step` NULL: any steps. */
static void check_rows(const char *what, row_function function, gd_tensors in, const char *step,
                       double tolerance, bool level_0) {
    GD_SCOPE;
    gd_device *device = gd_device_get("cuda");
    gd_tensor *on[INPUTS];
    for (int64_t i = 0; i < in.count; i++) on[i] = gd_to_device(in.at[i], device);
    const gd_tensors there = {on, in.count}, expected = function(in, NULL);
    for (int level = level_0 ? 0 : 2; level <= 2; level += 2) {
        gd_jit *jit = gd_jit_new(function, NULL, .level = level);
        if (level == 2 && step) check_step(what, jit, there, step);
        gd_tensors first = {NULL, 0};
        for (int run = 0; run < 3; run++) {
            gd_tensors got = gd_jit_call(jit, there);
            if (run == 0) first = got;
            for (int64_t i = 0; i < expected.count && !gd_failed(); i++) {
                char why[256] = "";
                CHECK_SAYING(tensors_agree(to_cpu(got.at[i]), expected.at[i], tolerance, why),
                             "%s, level %d, result %d, run %d: %s", what, level, (int)i, run, why);
                CHECK_SAYING(tensors_same_bits(to_cpu(got.at[i]), to_cpu(first.at[i])),
                             "%s, level %d, result %d: run %d has other bits", what, level, (int)i,
                             run);
            }
        }
    }
    CHECK_SAYING(!gd_failed(), "%s: %s", what, gd_error_message());
    gd_clear_error();
}

static void make_inputs(int64_t rows, int64_t n, gd_dtype dtype, gd_tensor **x) {
    x[X] = gd_cast(gd_randn(gd_dims(rows, n)), dtype);
    x[Y] = gd_cast(gd_randn(gd_dims(rows, n)), dtype);
    x[WEIGHT] = gd_cast(gd_randn(gd_dims(n)), dtype);
    x[BIAS] = gd_cast(gd_randn(gd_dims(n)), dtype);
    x[COLUMN] = gd_cast(gd_rand(gd_dims(rows, 1)), dtype);
    x[NUMBER] = gd_cast(gd_scalar(0.75), dtype);
}

static void check_program(int k, int64_t rows, int64_t n, gd_dtype dtype, bool level_0) {
    GD_SCOPE;
    gd_tensor *x[INPUTS];
    char what[100];
    gd_seed(3);
    make_inputs(rows, n, dtype, x);
    snprintf(what, sizeof what, "%s of %d rows of %d %s", programs[k].name, (int)rows, (int)n,
             gd_dtype_name(dtype));
    const bool tiny = rows * n == 1 || rows == 1 || n == 1; /* numbers, not rows */
    check_rows(what, programs[k].function, (gd_tensors){x, INPUTS}, tiny ? NULL : programs[k].step,
               tolerance_of(dtype), level_0);
}

TEST(programs_of_rows_become_one_step_in_each_dtype) {
    static const gd_dtype dtypes[] = {GD_F32, GD_F64, GD_BF16, GD_F16};
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    for (int k = 0; k < PROGRAMS; k++)
        for (int d = 0; d < 4; d++) {
            /* a real NVRTC compiles all sources of f32, and of the others a sample */
            setenv("GRADUS_NVRTC_SAMPLE", dtypes[d] == GD_F32 ? "1" : "4", 1);
            check_program(k, 9, 72, dtypes[d], d == 0);
        }
}

/* Rows that lanes share with others, that a warp or a block has, and that are read again. */
TEST(rows_have_any_length) {
    static const int64_t lengths[] = {1,  2,   3,    4,    5,    8,    16,   17,   31,  33,
                                      64, 127, 1000, 1023, 1026, 5000, 8189, 8190, 8192};
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    setenv("GRADUS_NVRTC_SAMPLE", "8", 1);
    for (int l = 0; l < (int)(sizeof lengths / sizeof *lengths); l++) {
        check_program(l % PROGRAMS, lengths[l] > 1000 ? 2 : 37, lengths[l], GD_F32, false);
        check_program((l + 3) % PROGRAMS, lengths[l] > 1000 ? 2 : 37, lengths[l],
                      l % 2 ? GD_BF16 : GD_F64, false);
    }
}

/* Enough rows for a warp each, or for a part of a warp, with a last block that is not full. */
TEST(many_rows_have_a_warp_each) {
    static const int64_t lengths[] = {3, 17, 64, 256, 500};
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    setenv("GRADUS_NVRTC_SAMPLE", "4", 1);
    for (int l = 0; l < (int)(sizeof lengths / sizeof *lengths); l++) {
        const int64_t rows = 70001 / (lengths[l] / 8 + 4);
        check_program(l % PROGRAMS, rows, lengths[l], GD_F32, false);
        check_program((l + 1) % PROGRAMS, rows, lengths[l], GD_F16, false);
    }
}

/* 128 rows of any length; fewer rows only up to 8192 elements, because a block has a row. */
TEST(long_rows_are_fused_if_there_are_many) {
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    check_program(0, 128, 100000, GD_BF16, false);
    check_program(6, 128, 33001, GD_F32, false);
    check_program(2, 129, 33000, GD_F32, false);
    check_program(1, 128, 16380, GD_F32, false);
    check_program(0, 128, 32764, GD_F32, false);
    GD_SCOPE;
    gd_tensor *x[INPUTS];
    gd_seed(4);
    make_inputs(3, 8193, GD_F32, x);
    check_rows("few long rows", softmax_by_hand, (gd_tensors){x, INPUTS}, NULL, 2e-5, false);
    for (int i = 0; i < INPUTS; i++) x[i] = gd_to_device(x[i], gd_device_get("cuda"));
    char *text = gd_jit_plan_text(gd_jit_new(softmax_by_hand, NULL), ((gd_tensors){x, INPUTS}));
    CHECK_SAYING(text && count_text(text, " = ") > 2, "%s", text);
    free(text);
}

TEST(nan_and_infinity_are_those_of_the_cpu) {
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    GD_SCOPE;
    gd_tensor *x[INPUTS];
    make_inputs(6, 3, GD_F32, x);
    x[X] = gd_from_array(gd_dims(6, 3), GD_F32,
                         ((float[]){1, NAN, 2, INFINITY, 0, 1, -INFINITY, -INFINITY, -INFINITY,
                                    -INFINITY, 0, 0, NAN, INFINITY, 1, -0.0f, 0, -0.0f}));
    for (int k = 0; k < 4; k++)
        check_rows(programs[k].name, programs[k].function, (gd_tensors){x, INPUTS},
                   programs[k].step, 1e-6, true);
    check_rows("range", scale_to_range, (gd_tensors){x, INPUTS}, NULL, 1e-6, true);
    check_rows("extremes", subtract_extremes, (gd_tensors){x, INPUTS}, NULL, 1e-6, true);
    for (int i = 0; i < 3; i++) { /* in a lane of a block */
        const float number = i == 0 ? NAN : i == 1 ? INFINITY : -INFINITY;
        make_inputs(5, 700, GD_F32, x);
        x[X] = gd_where(gd_eq(gd_arange(0, 3500, .dtype = GD_F32), gd_scalar(1234)),
                        gd_scalar(number), gd_reshape(x[X], gd_dims(3500)));
        x[X] = gd_reshape(x[X], gd_dims(5, 700));
        for (int k = 0; k < 4; k++)
            check_rows(programs[k].name, programs[k].function, (gd_tensors){x, INPUTS},
                       programs[k].step, 2e-5, false);
        check_rows("extremes", subtract_extremes, (gd_tensors){x, INPUTS}, NULL, 1e-6, false);
    }
}

/* --- layouts ---------------------------------------------------------------------------------- */

/* An attention mask (B, 1, 1, T), a scale (B, 1, 1, 1), and one for each row. */
static gd_tensors attend_with_mask(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *s = gd_mul(gd_mul(gd_add(in.at[0], in.at[1]), in.at[2]), in.at[3]);
    gd_tensor *e = gd_exp(gd_sub(s, last_max(s)));
    return gd_listed(gd_div(e, last_sum(e)));
}
/* Rows of two axes, a transposed operand, and one that is broadcast inside a row. */
static gd_tensors normalize_planes(gd_tensors in, void *user) {
    (void)user;
    const gd_shape axes = gd_dims(2, 3);
    gd_tensor *t = gd_add(gd_permute(in.at[0], gd_dims(0, 1, 3, 2)), in.at[1]);
    t = gd_mul(t, in.at[2]);
    gd_tensor *m = gd_mean(t, .axis = axes, .keepdim = true);
    gd_tensor *low = gd_min(t, .axis = axes, .keepdim = true);
    return gd_listed(gd_mul(gd_sub(t, m), gd_sub(m, low)));
}
/* Every third column of x, and rows that begin at odd addresses. */
static gd_tensors softmax_of_slices(gd_tensors in, void *user) {
    gd_tensor *x = gd_slice(in.at[0], .axis = 1, .step = 3), *y = gd_narrow(in.at[1], 1, 1, 100);
    gd_tensor *next = gd_add(x, gd_square(y));
    return softmax_by_hand(gd_list(next), user);
}
/* The entire tensor is one row. */
static gd_tensors divide_by_entire_norm(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *s = gd_sqrt(gd_sum(gd_square(in.at[0])));
    return gd_listed(gd_div(in.at[0], gd_maximum(s, gd_scalar(1))), s);
}
/* The result may lie where its operand was. */
static gd_tensors softmax_between_products(gd_tensors in, void *user) {
    gd_tensor *h = gd_matmul(in.at[0], in.at[1]);
    return gd_listed(gd_matmul(softmax_by_hand(gd_list(h), user).at[0], in.at[1]));
}

TEST(operands_have_any_layout) {
    static const gd_dtype dtypes[] = {GD_F32, GD_BF16};
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    for (int d = 0; d < 2; d++) {
        GD_SCOPE;
        const gd_dtype dtype = dtypes[d];
        const double tolerance = tolerance_of(dtype);
#define NOISE(...) gd_cast(gd_randn(gd_dims(__VA_ARGS__)), dtype)
        gd_seed(6);
        check_rows(
            "mask", attend_with_mask,
            gd_list(NOISE(3, 4, 5, 37), NOISE(3, 1, 1, 37), NOISE(3, 1, 1, 1), NOISE(3, 4, 5, 1)),
            "fused{add, mul, mul, max, sub, exp, sum, div}", tolerance, true);
        check_rows(
            "mask, vectors", attend_with_mask,
            gd_list(NOISE(2, 2, 4, 64), NOISE(2, 1, 1, 64), NOISE(2, 1, 1, 1), NOISE(2, 2, 4, 1)),
            "fused{add, mul, mul, max, sub, exp, sum, div}", tolerance, true);
        check_rows("planes", normalize_planes, gd_list(NOISE(3, 4, 9, 5), NOISE(9), NOISE(5, 1)),
                   "fused{add, mul, mean, min", tolerance, true);
        check_rows("slices", softmax_of_slices, gd_list(NOISE(5, 300), NOISE(5, 103)), "fused{",
                   tolerance, true);
        check_rows("entire", divide_by_entire_norm, gd_list(NOISE(7, 31)),
                   "fused{square, sum, sqrt, maximum, div}", tolerance, true);
        check_rows("in place", softmax_between_products, gd_list(NOISE(64, 64), NOISE(64, 64)),
                   NULL, tolerance, true);
        /* the last block has few rows; its other warps must not read the last one again */
        check_rows("in place, short rows", softmax_between_products,
                   gd_list(NOISE(16900, 3), NOISE(3, 3)), NULL, tolerance, false);
#undef NOISE
    }
}

static gd_tensors softmax_of_captured(gd_tensors in, void *user) {
    return softmax_by_hand(gd_list(gd_add(in.at[0], user)), NULL);
}

/* A tensor that a plan captures may begin at any address. */
TEST(bits_do_not_depend_on_addresses) {
    IN_CHILD(EMULATED, "");
    enum { ROWS = 6, LENGTH = 1024 };
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    if (!device) return;
    gd_seed(8);
    gd_tensor *memory = gd_to_device(gd_randn(gd_dims(ROWS * LENGTH + 1)), device);
    gd_tensor *odd = gd_reshape(gd_narrow(memory, 0, 1, ROWS * LENGTH), gd_dims(ROWS, LENGTH)),
              *even = gd_clone(odd), *zeros = gd_to_device(gd_zeros(gd_dims(ROWS, LENGTH)), device);
    gd_jit *on_even = gd_jit_new(softmax_of_captured, even),
           *on_odd = gd_jit_new(softmax_of_captured, odd);
    gd_tensor *expected = softmax_by_hand(gd_list(to_cpu(even)), NULL).at[0];
    for (int run = 0; run < 3; run++) {
        gd_tensor *a = to_cpu(gd_jit_call(on_even, gd_list(zeros)).at[0]),
                  *b = to_cpu(gd_jit_call(on_odd, gd_list(zeros)).at[0]);
        char why[256] = "";
        CHECK_SAYING(tensors_same_bits(a, b), "run %d: %s", run, gd_error_message());
        CHECK_SAYING(tensors_agree(a, expected, 2e-5, why), "run %d: %s", run, why);
    }
}

/* --- runs ------------------------------------------------------------------------------------- */

static gd_tensors with_gradients(gd_tensors in, void *user) {
    gd_tensors y = ((row_function)user)(in, NULL);
    gd_tensors g = gd_grad(gd_list(gd_sum(gd_mul(y.at[0], in.at[Y]))), gd_list(in.at[X]));
    return gd_listed(y.at[0], g.at[0]);
}
static gd_tensors softmax_gradients(gd_tensors in, void *user) {
    (void)user;
    return with_gradients(in, (void *)softmax_by_hand);
}
static gd_tensors norm_gradients(gd_tensors in, void *user) {
    (void)user;
    return with_gradients(in, (void *)layer_norm_by_hand);
}

static void check_gradients(const char *what, row_function function, int64_t n) {
    GD_SCOPE;
    gd_tensor *x[INPUTS];
    gd_seed(9);
    make_inputs(6, n, GD_F32, x);
    gd_device *device = gd_device_get("cuda");
    gd_requires_grad(x[X]);
    gd_tensors expected = function((gd_tensors){x, INPUTS}, NULL);
    gd_tensor *on[INPUTS];
    for (int i = 0; i < INPUTS; i++) on[i] = gd_to_device(gd_detach(x[i]), device);
    gd_requires_grad(on[X]);
    gd_jit *jit = gd_jit_new(function, NULL);
    for (int run = 0; run < 3; run++) {
        gd_tensors got = gd_jit_call(jit, ((gd_tensors){on, INPUTS}));
        for (int i = 0; i < 2; i++) {
            char why[256] = "";
            CHECK_SAYING(tensors_agree(to_cpu(got.at[i]), expected.at[i], 1e-4, why),
                         "%s, result %d: %s %s", what, i, why, gd_error_message());
        }
    }
}

TEST(gradients_through_rows_are_those_of_the_cpu) {
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    check_gradients("softmax", softmax_gradients, 50);
    check_gradients("softmax", softmax_gradients, 2000);
    check_gradients("layer norm", norm_gradients, 50);
    check_gradients("layer norm", norm_gradients, 2000);
}

/* A plan of rows is captured as one kernel between its boundaries. */
TEST(rows_are_one_node_of_a_captured_plan) {
    IN_CHILD(EMULATED, "");
    NEEDS_EMULATOR;
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    emulated_controls *cuda = emulated_cuda();
    if (!device || !cuda) return;
    gd_tensor *x[INPUTS];
    make_inputs(9, 72, GD_F32, x);
    for (int i = 0; i < INPUTS; i++) x[i] = gd_to_device(x[i], device);
    for (int k = 0; k < PROGRAMS; k++) {
        gd_jit *jit = gd_jit_new(programs[k].function, NULL);
        const int64_t before = cuda->counts.captured;
        for (int run = 0; run < 4; run++) gd_jit_call(jit, ((gd_tensors){x, INPUTS}));
        gd_synchronize(device);
        CHECK_SAYING(cuda->counts.captured - before == 3, "%s: %d nodes", programs[k].name,
                     (int)(cuda->counts.captured - before));
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* A run that fails changes no variable, although rows are written to it directly. */
TEST(runs_that_fail_write_no_rows) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    if (!device) return;
    gd_set_default_device(device);
    gd_seed(2);
    gd_tensor *table = gd_randn(gd_dims(4, 40)), *index, *update, *w;
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        index = gd_placeholder(gd_dims(6), .dtype = GD_I64);
        w = gd_variable(gd_full(gd_dims(6, 40), 3));
        gd_tensor *y = softmax_by_hand(gd_list(gd_index_select(table, 0, index)), NULL).at[0];
        update = gd_group(gd_list(gd_assign(w, y)));
    }
    gd_session *session = gd_session_new(graph);
    const int64_t good[] = {0, 1, 2, 3, 0, 1}, bad[] = {0, 1, 9, 3, 0, 1};
    gd_tensor *goods = gd_to_device(gd_from_array(gd_dims(6), GD_I64, good), device),
              *bads = gd_to_device(gd_from_array(gd_dims(6), GD_I64, bad), device);
    char *text = gd_session_plan_text(session, gd_feed(index, goods), gd_list(update));
    CHECK_SAYING(text && strstr(text, "fused{max, sub, exp, sum, div}"), "%s", text);
    free(text);
    for (int run = 0; run < 3; run++) { /* captured, too */
        gd_session_run(session, gd_feed(index, bads), gd_list(update));
        gd_synchronize(device);
        CHECK(gd_failed());
        gd_clear_error();
        CHECK(gd_item(gd_sum(gd_session_get(session, w))) == 3 * 6 * 40);
    }
    gd_session_run(session, gd_feed(index, goods), gd_list(update));
    CHECK(fabs(gd_item(gd_sum(gd_session_get(session, w))) - 6) < 1e-4);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_set_default_device(NULL);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
