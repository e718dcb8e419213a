/* test_fuse_rows.c - reductions of rows and the elementwise ops that use their results become one
 * kernel, which reads each row several times. */
#include "test.h"
#include "backend/cpu/isa.h"
#include "core/tensor.h"
#include "fuse_ways.h"

static results one_result(gd_tensor *y) { return (results){{y}, 1}; }
static results two_results(gd_tensor *y, gd_tensor *z) { return (results){{y, z}, 2}; }

/* --- softmax, norms --------------------------------------------------------------------------- */

static results center_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    return one_result(gd_sub(x[0], gd_mean(x[0], .axis = -1, .keepdim = true)));
}

static results softmax_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *e = gd_exp(gd_sub(x[0], gd_max(x[0], .axis = -1, .keepdim = true)));
    return one_result(gd_div(e, gd_sum(e, .axis = -1, .keepdim = true)));
}

static results layer_norm_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *d = gd_sub(x[0], gd_mean(x[0], .axis = -1, .keepdim = true));
    gd_tensor *v = gd_mean(gd_square(d), .axis = -1, .keepdim = true);
    gd_tensor *y = gd_div(d, gd_sqrt(gd_add(v, gd_scalar(1e-5))));
    return one_result(gd_add(gd_mul(y, x[1]), x[2]));
}

/* Without keepdim: the row values return as a view of another rank. */
static results norm_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *s = gd_sqrt(gd_sum(gd_mul(x[0], x[0]), .axis = -1));
    return two_results(gd_div(x[0], gd_unsqueeze(s, -1)), s);
}

static results rms_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *h = gd_add(x[0], gd_mul(x[1], gd_scalar(0.5)));
    gd_tensor *r =
        gd_rsqrt(gd_add(gd_mean(gd_square(h), .axis = -1, .keepdim = true), gd_scalar(1e-6)));
    return two_results(gd_mul(gd_mul(h, r), x[2]), h);
}

static char *fused_text(body_fn body, gd_tensor *const *x, int n) {
    planned p = plan(body, NULL, x, n, 2);
    return text_of(&p);
}

#define CHECK_TEXT(body, x, n, expected)                                             \
    do {                                                                             \
        char *text = fused_text(body, x, n);                                         \
        CHECK_SAYING(strstr(text, expected) && count(text, " = ") == 1, "%s", text); \
        free(text);                                                                  \
    } while (0)

TEST(row_reductions_and_their_consumers_become_one_step) {
    GD_SCOPE;
    gd_tensor *x[3] = {gd_randn(gd_dims(5, 7)), gd_randn(gd_dims(7)), gd_randn(gd_dims(7))};
    planned plain = plan(softmax_body, NULL, x, 1, 0);
    char *before = text_of(&plain);
    CHECK_SAYING(count(before, " = ") == 5 &&
                     strstr(before, "%1 f32[5,1] = max(%0 (feed 0) f32[5,7])") &&
                     !strstr(before, "fused"),
                 "%s", before);
    free(before);
    CHECK_TEXT(center_body, x, 1, "fused{mean, sub}(%0 (feed 0) f32[5,7])");
    CHECK_TEXT(softmax_body, x, 1,
               "f32[5,7] = fused{max, sub, exp, sum, div}(%0 (feed 0) f32[5,7])");
    CHECK_TEXT(layer_norm_body, x, 3,
               "fused{mean, sub, square, mean, add, sqrt, div, mul, add}(%0 (feed 0) f32[5,7], ");
    gd_tensor *y[3] = {x[0], gd_randn(gd_dims(5, 7)), x[2]};
    CHECK_TEXT(rms_body, y, 3, "fused{mul, add, square, mean, add, rsqrt, mul, mul}");
    char *text = fused_text(norm_body, x, 1);
    CHECK_SAYING(strstr(text, "fused{mul, sum, sqrt, div}") && count(text, "sqrt") == 1, "%s",
                 text);
    free(text);
}

/* Compares evaluator and compiled kernel with eager, and with each other bit by bit. */
static void check_body(const char *what, body_fn body, gd_tensor *const *x, int n,
                       double tolerance) {
    GD_SCOPE;
    check_all_ways(what, body, NULL, x, n, tolerance);
    use_evaluator();
    planned slow = plan(body, NULL, x, n, 2);
    gd_tensors a = run(&slow);
    use_compiler();
    planned fast = plan(body, NULL, x, n, 2);
    gd_tensors b = run(&fast);
    use_evaluator();
    for (int i = 0; i < a.count; i++)
        CHECK_SAYING(same_numbers(a.at[i], b.at[i], 0), "%s, result %d: other bits when compiled",
                     what, i);
}

TEST(rows_of_any_length_agree_with_eager) {
    static const int64_t lengths[] = {1,   2,   3,   4,    5,    7,    8,    9,    15,  16,
                                      17,  31,  33,  63,   64,   65,   127,  129,  255, 257,
                                      511, 512, 513, 1000, 1023, 1025, 4099, 70000};
    static const body_fn bodies[] = {center_body, softmax_body, layer_norm_body, norm_body};
    GD_SCOPE;
    gd_seed(5);
    for (int l = 0; l < (int)(sizeof lengths / sizeof *lengths); l++)
        for (int wide = 0; wide < 2; wide++) {
            GD_SCOPE;
            const gd_dtype dtype = wide ? GD_F64 : GD_F32;
            const int64_t n = lengths[l];
            gd_tensor *x[3] = {noise(gd_dims(n > 1000 ? 2 : 9, n), dtype), noise(gd_dims(n), dtype),
                               noise(gd_dims(n), dtype)};
            for (int b = 0; b < 4; b++) {
                if (wide && b != l % 4) continue;
                char what[80];
                snprintf(what, sizeof what, "body %d, rows of %d, %s", b, (int)n,
                         gd_dtype_name(dtype));
                check_body(what, bodies[b], x, b == 2 ? 3 : 1, wide ? 1e-12 : 2e-5);
            }
        }
}

TEST(f16_and_bf16_rows_agree_with_eager) {
    GD_SCOPE;
    static const gd_dtype dtypes[] = {GD_F16, GD_BF16};
    for (int d = 0; d < 2; d++)
        for (int64_t n = 3; n < 700; n += 173) {
            gd_tensor *x[3] = {noise(gd_dims(6, n), dtypes[d]), noise(gd_dims(n), dtypes[d]),
                               noise(gd_dims(n), dtypes[d])};
            check_body(gd_dtype_name(dtypes[d]), layer_norm_body, x, 3, d ? 0.1 : 0.02);
            check_body(gd_dtype_name(dtypes[d]), softmax_body, x, 1, d ? 0.05 : 0.01);
            CHECK_TEXT(layer_norm_body, x, 3, "fused{mean, sub, square, mean");
        }
}

TEST(empty_tensors_and_rows_agree_with_eager) {
    GD_SCOPE;
    gd_tensor *no_rows = gd_zeros(gd_dims(0, 7)), *no_elements = gd_zeros(gd_dims(7, 0));
    check_body("no rows", softmax_body, &no_rows, 1, 0);
    check_body("no elements", center_body, &no_elements, 1, 0);
}

TEST(nan_and_infinity_agree_with_eager) {
    GD_SCOPE;
    gd_tensor *x = gd_from_array(gd_dims(5, 3), GD_F32,
                                 ((float[]){1, NAN, 2, INFINITY, 0, 1, -INFINITY, -INFINITY,
                                            -INFINITY, -INFINITY, 0, 0, NAN, INFINITY, 1}));
    check_body("special", softmax_body, &x, 1, 1e-6);
    check_body("special", center_body, &x, 1, 1e-6);
    check_body("special", norm_body, &x, 1, 1e-6);
    gd_tensor *wide = gd_add(
        gd_zeros(gd_dims(3, 600)),
        gd_cast(gd_from_array(gd_dims(3, 1), GD_F32, ((float[]){1, NAN, -INFINITY})), GD_F32));
    check_body("special, several chunks", softmax_body, &wide, 1, 1e-6);
}

/* --- shapes ----------------------------------------------------------------------------------- */

/* An attention mask of shape (B,1,1,T), a scale per row as an operand, and scalars. */
static results attention_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *s = gd_mul(gd_add(gd_mul(x[0], x[3]), x[1]), x[2]);
    gd_tensor *e = gd_exp(gd_sub(s, gd_max(s, .axis = -1, .keepdim = true)));
    gd_tensor *total = gd_sum(e, .axis = -1, .keepdim = true);
    return two_results(gd_div(e, gd_add(total, gd_square(x[2]))), total);
}

TEST(operands_broadcast_along_rows_and_across_them) {
    GD_SCOPE;
    for (int wide = 0; wide < 2; wide++) {
        const gd_dtype dtype = wide ? GD_F64 : GD_F32;
        gd_tensor *x[4] = {noise(gd_dims(3, 4, 5, 37), dtype), noise(gd_dims(3, 1, 1, 37), dtype),
                           noise(gd_dims(3, 4, 5, 1), dtype), noise(gd_dims(), dtype)};
        check_body("attention", attention_body, x, 4, 1e-5);
        char *text = fused_text(attention_body, x, 4);
        CHECK_SAYING(count(text, " = ") == 1 &&
                         strstr(text, "fused{mul, add, mul, max, sub, exp, sum, square, add, div}"),
                     "%s", text);
        free(text);
    }
}

/* Rows over several axes, with a transposed operand and one that is broadcast inside the row. */
static results planes_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *t = gd_add(gd_permute(x[0], gd_dims(0, 1, 3, 2)), x[1]);
    gd_tensor *m = gd_mean(t, .axis = gd_dims(2, 3), .keepdim = true);
    gd_tensor *low = gd_min(t, .axis = gd_dims(-2, -1), .keepdim = true);
    return one_result(gd_mul(gd_sub(t, m), gd_sub(m, low)));
}

TEST(rows_may_span_several_axes) {
    GD_SCOPE;
    gd_tensor *x[2] = {gd_randn(gd_dims(3, 4, 9, 5)), gd_randn(gd_dims(9))};
    check_body("planes", planes_body, x, 2, 1e-5);
    char *text = fused_text(planes_body, x, 2);
    CHECK_SAYING(strstr(text, "fused{add, mean, min, sub, sub, mul}"), "%s", text);
    free(text);
}

/* Reduces all axes: the entire tensor is one row. */
static results entire_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *s = gd_sqrt(gd_sum(gd_square(x[0])));
    return two_results(gd_div(x[0], gd_maximum(s, gd_scalar(1))), s);
}

TEST(an_entire_tensor_may_be_one_row) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(7, 31));
    check_body("entire", entire_body, &x, 1, 1e-5);
    char *text = fused_text(entire_body, &x, 1);
    CHECK_SAYING(strstr(text, "fused{square, sum, sqrt, maximum, div}"), "%s", text);
    free(text);
}

/* --- chains that are not one kernel ----------------------------------------------------------- */

/* A square matrix: [4] broadcasts along rows and is not one value per row. */
static results askew_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    return two_results(gd_sub(x[0], gd_mean(x[0], .axis = -1)),
                       gd_sub(x[0], gd_mean(x[0], .axis = 0)));
}

/* A reduction of columns, a step between that cannot be fused, and a sum of another shape. */
static results between_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *m = gd_cumsum(gd_max(x[0], .axis = -1, .keepdim = true), 0);
    return two_results(gd_exp(gd_sub(x[0], m)),
                       gd_mul(x[0], gd_sum(gd_tanh(x[1]), .axis = -1, .keepdim = true)));
}

TEST(mismatched_reductions_are_not_fused) {
    GD_SCOPE;
    gd_tensor *square = gd_randn(gd_dims(4, 4));
    check_body("askew", askew_body, &square, 1, 1e-6);
    gd_tensor *x[2] = {gd_randn(gd_dims(4, 6)), gd_randn(gd_dims(4, 9))};
    check_body("between", between_body, x, 2, 1e-5);
    char *text = fused_text(askew_body, &square, 1);
    CHECK_SAYING(!strstr(text, "mean, sub"), "%s", text);
    free(text);
    text = fused_text(between_body, x, 2);
    CHECK_SAYING(strstr(text, "max(") && strstr(text, "cumsum(") &&
                     strstr(text, "fused{tanh, sum}"),
                 "%s", text);
    free(text);
}

/* --- threads, instruction sets, memory -------------------------------------------------------- */

TEST(rows_have_the_same_bits_on_any_number_of_threads) {
    GD_SCOPE;
    gd_tensor *x[3] = {gd_randn(gd_dims(700, 130)), gd_randn(gd_dims(130)), gd_randn(gd_dims(130))},
              *first = NULL;
    for (int compiled = 0; compiled < 2; compiled++)
        for (int threads = 1; threads < 5; threads++) {
            if (compiled) use_compiler();
            gd_set_num_threads(threads);
            planned p = plan(layer_norm_body, NULL, x, 3, 2);
            gd_tensor *y = gd_clone(run(&p).at[0]);
            if (!first) first = y;
            CHECK(same_numbers(first, y, 0));
        }
    use_evaluator();
    gd_set_num_threads(2);
}

TEST(all_instruction_sets_agree_with_eager) {
    GD_SCOPE;
    const gd_isa before = gd_cpu_isa();
    gd_tensor *x[3] = {gd_randn(gd_dims(5, 77)), gd_randn(gd_dims(77)), gd_randn(gd_dims(77))};
    for (int isa = 0; isa < GD_ISA_COUNT; isa++)
        if (gd_cpu_set_isa((gd_isa)isa) == (gd_isa)isa) {
            check_body(gd_isa_name((gd_isa)isa), layer_norm_body, x, 3, 1e-5);
            check_body(gd_isa_name((gd_isa)isa), softmax_body, x, 1, 1e-5);
        }
    gd_cpu_set_isa(before);
}

/* The result overwrites an operand that no later step reads. */
static results after_matmul_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    return softmax_body((gd_tensor *[]){gd_matmul(x[0], x[1])}, NULL);
}
static results twice_body(gd_tensor *const *x, const void *arg) {
    gd_tensor *y = after_matmul_body(x, arg).at[0];
    return one_result(gd_matmul(y, x[1]));
}

TEST(a_row_is_written_in_place) {
    GD_SCOPE;
    gd_tensor *x[2] = {gd_randn(gd_dims(64, 64)), gd_randn(gd_dims(64, 64))};
    check_body("after a product", after_matmul_body, x, 2, 1e-5);
    check_body("between products", twice_body, x, 2, 1e-5);
    planned p = plan(twice_body, NULL, x, 2, 2);
    gd_plan_memory memory;
    CHECK(gd_session_plan(p.session, ((gd_tensors){p.feeds, p.n_feeds}),
                          ((gd_tensors){p.fetches.at, 1}), &memory) == GD_OK);
    CHECK_SAYING(memory.live_bytes < 2 * 64 * 64 * 4, "%d bytes", (int)memory.live_bytes);
}

/* --- gradients -------------------------------------------------------------------------------- */

static results gradient_body(gd_tensor *const *x, const void *arg) {
    gd_tensor *w = x[0]->requires_grad ? x[0] : gd_requires_grad(gd_clone(x[0]));
    gd_tensor *in[3] = {w, x[1], x[2]};
    gd_tensor *y = arg ? layer_norm_body(in, NULL).at[0] : softmax_body(in, NULL).at[0];
    gd_tensor *g = gd_grad(gd_list(gd_sum(gd_mul(y, x[3]))), gd_list(w)).at[0];
    return two_results(y, g);
}

TEST(gradients_through_rows_agree_with_eager) {
    GD_SCOPE;
    gd_tensor *x[4] = {gd_randn(gd_dims(6, 50)), gd_randn(gd_dims(50)), gd_randn(gd_dims(50)),
                       gd_randn(gd_dims(6, 50))};
    check_all_ways("softmax", gradient_body, NULL, x, 4, 1e-4);
    check_all_ways("layer norm", gradient_body, "norm", x, 4, 1e-4);
}

int main(int argc, char **argv) { return run_with_cache(argc, argv); }
