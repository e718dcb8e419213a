/* test_layout.c - plans that choose the memory order of values give the same results. */
#include "test.h"
#include "core/tensor.h"
#include "fuse_ways.h"

static results one_result(gd_tensor *y) { return (results){{y}, 1}; }

static char *plan_text(body_fn body, gd_tensor *const *x, int n) {
    planned p = plan(body, NULL, x, n, 2);
    return text_of(&p);
}

/* --- sinking ---------------------------------------------------------------------------------- */

/* An elementwise chain over a transposed operand and operands of every other kind. */
static results chain_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *t = gd_permute(x[0], gd_dims(2, 0, 1)); /* (4,2,3) */
    /* separate statements, because the evaluation order of function arguments is unspecified */
    gd_tensor *away = gd_sub(t, x[2]), *bent = gd_tanh(gd_add(gd_mul(t, gd_scalar(0.5)), x[1]));
    gd_tensor *y = gd_mul(bent, away), *scaled = gd_mul(y, gd_narrow(x[3], 1, 1, 1));
    y = gd_where(gd_gt(y, gd_scalar(0)), y, scaled);
    gd_tensor *back = gd_permute(y, gd_dims(1, 2, 0));
    results r = {.count = 4};
    r.at[0] = gd_sum(back, .axis = 2);
    r.at[1] = gd_matmul(y, x[4]);
    r.at[2] = gd_sum(gd_narrow(y, 0, 1, 2));
    r.at[3] = gd_sum(gd_select(back, 0, 1), .axis = 1);
    return r;
}

TEST(an_elementwise_chain_takes_the_memory_order_of_its_operand) {
    GD_SCOPE;
    for (int wide = 0; wide < 2; wide++) {
        const gd_dtype dtype = wide ? GD_F64 : GD_F32;
        gd_tensor *x[5] = {noise(gd_dims(2, 3, 4), dtype), noise(gd_dims(3), dtype),
                           noise(gd_dims(4, 1, 1), dtype), noise(gd_dims(1, 3, 3), dtype),
                           noise(gd_dims(3, 5), dtype)};
        check_all_ways("chain", chain_body, NULL, x, 5, 1e-5);
        char *text = plan_text(chain_body, x, 5);
        CHECK_SAYING(
            strstr(text,
                   "[2,3] = fused{sub, mul, add, tanh, mul, mul, gt, where, sum}(%0 (feed 0)"),
            "%s", text);
        free(text);
        x[3] = noise(gd_dims(4, 2, 3), dtype);
        check_all_ways("chain", chain_body, NULL, x, 5, 1e-5);
    }
}

static results permute_and_back_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *t = gd_permute(x[0], gd_dims(0, 2, 3, 1));
    /* channels-last, as in a network imported from another framework */
    t = gd_add(gd_mul(t, x[1]), x[2]);
    return one_result(gd_conv2d(gd_permute(gd_relu(t), gd_dims(0, 3, 1, 2)), x[3], NULL));
}

TEST(permutes_around_elementwise_ops_cancel) {
    GD_SCOPE;
    gd_tensor *x[4] = {gd_randn(gd_dims(2, 3, 8, 8)), gd_randn(gd_dims(3)), gd_randn(gd_dims(3)),
                       gd_randn(gd_dims(4, 3, 3, 3))};
    check_all_ways("there and back", permute_and_back_body, NULL, x, 4, 1e-5);
    char *text = plan_text(permute_and_back_body, x, 4);
    CHECK_SAYING(strstr(text, "f32[2,3,8,8] = fused{mul, add, relu}(%0 (feed 0) f32[2,3,8,8]"),
                 "%s", text);
    free(text);
}

/* Elementwise steps of different shapes are no chain, although they have the same elements. */
static results reshaped_chain_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *a = gd_exp(gd_permute(x[0], gd_dims(1, 2, 0))), /* (1,5,7) */
        *y = gd_tanh(gd_reshape(a, gd_dims(5, 7)));
    results r = {.count = 2};
    r.at[0] = gd_sum(gd_mul(y, x[1]), .axis = 0);
    r.at[1] = gd_sum(gd_sin(y), .axis = 1);
    return r;
}

TEST(a_reshape_ends_a_chain) {
    GD_SCOPE;
    gd_tensor *x[2] = {gd_randn(gd_dims(7, 1, 5)), gd_randn(gd_dims(7))};
    check_all_ways("reshaped", reshaped_chain_body, NULL, x, 2, 1e-5);
}

/* --- attention from matmul and permute -------------------------------------------------------- */

enum { B = 2, T = 7, H = 3, D = 4 };

static gd_tensor *split_heads(gd_tensor *x) {
    return gd_permute(gd_reshape(x, gd_dims(B, T, H, D)), gd_dims(0, 2, 1, 3));
}

static gd_tensor *attention(gd_tensor *const *x) {
    gd_tensor *q = split_heads(gd_matmul(x[0], x[1])), *k = split_heads(gd_matmul(x[0], x[2])),
              *v = split_heads(x[0]);
    gd_tensor *scores = gd_mul(gd_matmul(q, gd_contiguous(gd_transpose(k, 2, 3))), gd_scalar(0.5));
    gd_tensor *y = gd_matmul(gd_softmax(scores, .axis = -1), v);
    return gd_linear(gd_reshape(gd_permute(y, gd_dims(0, 2, 1, 3)), gd_dims(B, T, H * D)), x[3],
                     NULL);
}

static results attention_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    return one_result(attention(x));
}

static results attention_gradient_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *w = x[1]->requires_grad ? x[1] : gd_requires_grad(gd_clone(x[1]));
    gd_tensor *in[4] = {x[0], w, x[2], x[3]};
    return one_result(gd_grad(gd_list(gd_sum(gd_square(attention(in)))), gd_list(w)).at[0]);
}

TEST(attention_heads_are_merged_without_a_copy) {
    GD_SCOPE;
    gd_tensor *x[4] = {gd_randn(gd_dims(B, T, H * D)), gd_randn(gd_dims(H * D, H * D)),
                       gd_randn(gd_dims(H * D, H * D)), gd_randn(gd_dims(5, H * D))};
    check_all_ways("attention", attention_body, NULL, x, 4, 1e-5);
    check_all_ways("its gradient", attention_gradient_body, NULL, x, 4, 1e-4);
    char *text = plan_text(attention_body, x, 4);
    CHECK_SAYING(!strstr(text, "contiguous("), "%s", text);
    free(text);
}

/* --- necessary copies ------------------------------------------------------------------------- */

static results copies_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *t = gd_transpose(x[0], 0, 1), *c = gd_contiguous(t),
              *e = gd_contiguous(gd_expand(x[1], gd_dims(6, 5)));
    return (results){{c, gd_cumsum(c, 0), gd_add(c, e), gd_reshape(gd_sin(t), gd_dims(3, 10)),
                      gd_sum(gd_mul(e, t), .axis = 0), gd_softmax(gd_exp(t), .axis = -1)},
                     6};
}

TEST(copies_whose_memory_order_is_read_are_kept) {
    GD_SCOPE;
    gd_tensor *x[2] = {gd_randn(gd_dims(5, 6)), gd_randn(gd_dims(1, 5))};
    check_all_ways("copies", copies_body, NULL, x, 2, 1e-6);
}

/* A slice with a negative step has the same number of elements, but in another order. */
static results reversed_slice_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *y = gd_matmul(x[0], x[1]), *back = gd_slice(y, .step = -1);
    return (results){{gd_relu(gd_slice(back, .stop = 1)),
                      gd_tanh(gd_slice(y, .axis = 1, .step = -1)),
                      gd_add(gd_slice(gd_transpose(y, 0, 1), .step = -1), x[2])},
                     3};
}

TEST(a_slice_with_a_negative_step_is_not_removed_as_a_copy) {
    GD_SCOPE;
    gd_tensor *x[3] = {gd_randn(gd_dims(5, 4)), gd_randn(gd_dims(4, 6)), gd_randn(gd_dims(6, 5))};
    check_all_ways("backward", reversed_slice_body, NULL, x, 3, 1e-5);
}

int main(int argc, char **argv) { return run_with_cache(argc, argv); }
