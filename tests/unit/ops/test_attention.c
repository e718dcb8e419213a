/* test_attention.c - attention: memory use, fully masked rows, failed allocations, half precision
 * and dropout. tests/cases/attention.txt has the numbers.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "test.h"

/* Must run first: other tests may raise the peak, which never decreases. */
TEST(memory_is_linear_in_the_sequence_length) {
    enum { T = 4096, E = 16 };
    for (int causal = 0; causal < 2; causal++) {
        GD_SCOPE;
        gd_tensor *in[3];
        for (int i = 0; i < 3; i++) in[i] = gd_requires_grad(gd_randn(gd_dims(1, 1, T, E)));
        int64_t before = gd_memory_stats(NULL).live_bytes, square = (int64_t)T * T * 4;
        gd_tensor *y = gd_scaled_dot_product_attention(in[0], in[1], in[2], .causal = causal);
        CHECK(gd_backward(gd_sum(gd_square(y))) == GD_OK);
        int64_t most = gd_memory_stats(NULL).peak_bytes - before;
        CHECK_SAYING(most < square / 16, "%lld bytes at most; T*T*4 is %lld", (long long)most,
                     (long long)square);
    }
}

TEST(fully_masked_rows_give_zeros_and_have_no_gradient) {
    static const gd_dtype dtypes[] = {GD_F32, GD_F64};
    enum { L = 40, S = 140, E = 3, NONE = 33 };
    for (int d = 0; d < 2; d++) {
        GD_SCOPE;
        gd_tensor *q = gd_requires_grad(gd_randn(gd_dims(L, E), .dtype = dtypes[d]));
        gd_tensor *k = gd_requires_grad(gd_randn(gd_dims(S, E), .dtype = dtypes[d]));
        gd_tensor *v = gd_requires_grad(gd_randn(gd_dims(S, E), .dtype = dtypes[d]));
        float *bias = malloc(sizeof *bias * L * S);
        for (int i = 0; i < L * S; i++)
            bias[i] = i / S == NONE || i % 7 == 3 ? -INFINITY : 0.01f * (float)(i % 5);
        gd_tensor *mask = gd_requires_grad(
            gd_detach(gd_cast(gd_from_array(gd_dims(L, S), GD_F32, bias), dtypes[d])));
        free(bias);
        gd_tensor *y = gd_scaled_dot_product_attention(q, k, v, .mask = mask);
        gd_tensors g = gd_grad(gd_list(gd_sum(gd_square(y))), gd_list(q, k, v, mask));
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        CHECK(gd_item(gd_sum(gd_abs(gd_narrow(y, 0, NONE, 1)))) == 0);
        CHECK(gd_item(gd_sum(gd_abs(gd_narrow(g.at[0], 0, NONE, 1)))) == 0);
        CHECK(gd_item(gd_sum(gd_abs(gd_narrow(g.at[3], 0, NONE, 1)))) == 0);
        for (int i = 0; i < 4; i++)
            CHECK(isfinite(gd_item(gd_sum(g.at[i]))) && gd_item(gd_sum(gd_abs(g.at[i]))) > 0);
    }
}

static bool message_has(const char *part) {
    const bool found = gd_failed() && strstr(gd_error_message(), part);
    if (!found) fprintf(stderr, "'%s' is not in: %s\n", part, gd_error_message());
    gd_clear_error();
    return found;
}

TEST(messages_say_what_shared_heads_and_masks_need) {
    GD_SCOPE;
    gd_tensor *q = gd_randn(gd_dims(2, 8, 5, 4)), *k = gd_randn(gd_dims(2, 2, 5, 4)),
              *odd = gd_randn(gd_dims(2, 3, 5, 4));
    gd_scaled_dot_product_attention(q, k, k);
    CHECK(message_has("'q' has 8 heads and 'k' 2; with .grouped = true, 4 heads of 'q' share one"));
    gd_scaled_dot_product_attention(q, odd, odd);
    CHECK(message_has("leading dimensions 8 and 3 do not broadcast"));
    gd_scaled_dot_product_attention(q, k, k, .grouped = true);
    CHECK(!gd_failed());
    gd_scaled_dot_product_attention(q, q, q, .mask = gd_ones(gd_dims(5, 5), .dtype = GD_I64));
    CHECK(message_has("'mask' is i64; it must be bool, where true is \"attend\" "
                      "(gd_ne(mask, 0) makes it so)"));
}

TEST(a_failed_allocation_is_a_status_in_every_order) {
    static const char *const forms[] = {"plain", "causal and grouped", "masked"};
    gd_set_num_threads(1);
    for (int form = 0; form < 3; form++) {
        for (fault_walk w = {.what = forms[form], .dense = 60}; fault_next(&w);) {
            GD_SCOPE;
            gd_tensor *q = gd_requires_grad(gd_randn(gd_dims(1, 4, 3, 2))),
                      *k = gd_requires_grad(gd_randn(gd_dims(1, form == 1 ? 2 : 4, 3, 2)));
            gd_tensor *v = gd_requires_grad(gd_randn(gd_dims(1, form == 1 ? 2 : 4, 3, 2)));
            gd_tensor *mask = form == 2 ? gd_requires_grad(gd_randn(gd_dims(3, 3))) : NULL;
            fault_begin(&w);
            gd_tensor *y = gd_scaled_dot_product_attention(
                q, k, v, .mask = mask, .causal = form == 1, .grouped = form == 1);
            gd_status status = gd_error_status();
            if (status == GD_OK) {
                gd_tensor *to[] = {q, k, v, mask};
                gd_tensors by = {to, 3 + (form == 2)};
                gd_tensors g = gd_grad(gd_list(gd_sum(gd_square(y))), by, .create_graph = true);
                if (!gd_failed()) gd_grad(gd_list(gd_sum(gd_square(g.at[0]))), by);
                status = gd_error_status();
            }
            fault_end(&w);
            CHECK_FAULT(&w, status);
        }
    }
    gd_set_num_threads(0);
}

/* If one weight is nearly 1, the gradient of the scores is a small difference of large numbers. It
 * must not contain the error of rounding y to half precision. */
TEST(half_precision_gradients_are_accurate_for_peaked_softmax) {
    static const gd_dtype dtypes[] = {GD_BF16, GD_F16};
    static const int64_t columns[] = {24, 600};
    for (int d = 0; d < 2; d++)
        for (int n = 0; n < 2; n++)
            for (int masked = 0; masked < 2; masked++) {
                GD_SCOPE;
                gd_seed(5);
                int64_t S = columns[n];
                gd_tensor *half[4], *exact[4];
                for (int i = 0; i < 4; i++) {
                    gd_tensor *t =
                        gd_randn(i == 3 ? gd_dims(10, S) : gd_dims(1, 2, i == 0 ? 10 : S, 8));
                    if (i < 2) t = gd_mul(t, gd_scalar(4)); /* scores of about 100 at most */
                    if (i == 2) t = gd_add(t, gd_scalar(4));
                    half[i] = gd_cast(t, dtypes[d]);
                    exact[i] = gd_requires_grad(gd_detach(gd_cast(half[i], GD_F64)));
                    half[i] = gd_requires_grad(gd_detach(half[i]));
                }
                gd_tensors by[2];
                for (int k = 0; k < 2; k++) {
                    gd_tensor **in = k ? exact : half;
                    gd_tensor *y = gd_scaled_dot_product_attention(in[0], in[1], in[2],
                                                                   .mask = masked ? in[3] : NULL);
                    gd_tensor *g =
                        gd_cast(gd_add(gd_scalar(3), gd_sin(gd_mul(gd_arange(0, 8), gd_scalar(2)))),
                                (gd_dtype)gd_tensor_dtype(y));
                    by[k] = gd_grad(gd_list(gd_sum(gd_cast(gd_mul(y, g), GD_F32))),
                                    ((gd_tensors){in, 3 + masked}));
                }
                CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
                for (int i = 0; i < 3 + masked; i++) {
                    double error = tensors_relative_distance(by[0].at[i], by[1].at[i]),
                           most = dtypes[d] == GD_BF16 ? 0.02 : 0.003;
                    CHECK_SAYING(error < most, "input %d, %s, %lld columns: %g", i,
                                 gd_dtype_name(dtypes[d]), (long long)S, error);
                }
            }
}

/* --- dropout ---------------------------------------------------------------------------------- */

/* Attention in ops, with gd_dropout of the weights. */
static gd_tensor *attention_by_ops(gd_tensor *q, gd_tensor *k, gd_tensor *v, double p,
                                   bool causal) {
    gd_tensor *scores =
        gd_div(gd_matmul(q, gd_transpose(k, -2, -1)),
               gd_scalar_of(sqrt((double)gd_tensor_dim(q, -1)), gd_tensor_dtype(q)));
    if (causal) {
        gd_tensor *seen = gd_tril(
            gd_full(gd_dims(gd_tensor_dim(q, -2), gd_tensor_dim(k, -2)), 1, .dtype = GD_BOOL));
        scores = gd_where(seen, scores, gd_scalar_of(-INFINITY, gd_tensor_dtype(q)));
    }
    return gd_matmul(gd_dropout(gd_softmax(scores, .axis = -1), .p = p), v);
}

TEST(dropout_in_attention_equals_dropout_of_the_weights) {
    static const gd_dtype dtypes[] = {GD_F32, GD_F64};
    for (int d = 0; d < 2; d++)
        for (int causal = 0; causal < 2; causal++) {
            GD_SCOPE;
            enum { L = 70, S = 301, E = 5 };
            gd_seed(11);
            gd_tensor *in[3];
            for (int i = 0; i < 3; i++)
                in[i] = gd_requires_grad(
                    gd_randn(gd_dims(2, 3, i == 0 ? L : S, E), .dtype = dtypes[d]));
            gd_tensor *y[2];
            gd_tensors g[2];
            for (int k = 0; k < 2; k++) {
                gd_seed(12);
                y[k] = k == 0 ? gd_scaled_dot_product_attention(in[0], in[1], in[2], .dropout = 0.3,
                                                                .causal = causal)
                              : attention_by_ops(in[0], in[1], in[2], 0.3, causal);
                CHECK(gd_rng_state().call == 1); /* one draw */
                g[k] = gd_grad(gd_list(gd_sum(gd_square(y[k]))), ((gd_tensors){in, 3}),
                               .create_graph = true);
                CHECK(gd_rng_state().call == 1); /* the gradient draws none */
            }
            double most = d ? 1e-12 : 1e-5;
            CHECK(tensors_relative_distance(y[0], y[1]) < most);
            for (int i = 0; i < 3; i++)
                CHECK_SAYING(tensors_relative_distance(g[0].at[i], g[1].at[i]) < most,
                             "input %d: %g", i, tensors_relative_distance(g[0].at[i], g[1].at[i]));
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        }
}

TEST(dropout_is_off_in_eval_mode_and_unbiased_in_training) {
    GD_SCOPE;
    gd_seed(4);
    gd_tensor *q = gd_randn(gd_dims(6, 4)), *k = gd_randn(gd_dims(9, 4)),
              *v = gd_randn(gd_dims(9, 3));
    gd_rng before = gd_rng_state();
    gd_tensor *plain = gd_scaled_dot_product_attention(q, k, v);
    gd_tensor *off = gd_scaled_dot_product_attention(q, k, v, .dropout = 0.5, .training = false);
    CHECK(gd_rng_state().call == before.call);
    CHECK(tensors_relative_distance(off, plain) == 0);
    gd_tensor *sum = gd_zeros(gd_dims(6, 3));
    enum { TIMES = 4000 };
    for (int i = 0; i < TIMES; i++)
        gd_add_(sum, gd_scaled_dot_product_attention(q, k, v, .dropout = 0.5));
    CHECK_SAYING(tensors_relative_distance(gd_div(sum, gd_scalar(TIMES)), plain) < 0.05, "%g",
                 tensors_relative_distance(gd_div(sum, gd_scalar(TIMES)), plain));
    CHECK(gd_tensor_is_error(gd_scaled_dot_product_attention(q, k, v, .dropout = 1.5)));
    CHECK(strstr(gd_error_message(), "dropout is 1.5; it must lie between 0 and 1"));
    gd_clear_error();
}

static gd_tensor *attention_with_dropout(gd_tensors in, void *user) {
    (void)user;
    return gd_scaled_dot_product_attention(in.at[0], in.at[1], in.at[2], .mask = in.at[3],
                                           .dropout = 0.4);
}

TEST(first_and_second_order_gradients_flow_through_dropout) {
    GD_SCOPE;
    gd_seed(8);
    gd_tensor *in[4];
    for (int i = 0; i < 4; i++)
        in[i] = gd_requires_grad(
            gd_randn(i == 3 ? gd_dims(4, 6) : gd_dims(2, i == 0 ? 4 : 6, 3), .dtype = GD_F64));
    gd_status status =
        gd_gradcheck(attention_with_dropout, ((gd_tensors){in, 4}), NULL, .second_order = true);
    CHECK_SAYING(status == GD_OK, "%s", gd_error_message());
    gd_clear_error();
}

TEST(each_run_of_a_graph_draws_a_new_dropout_mask) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *gx;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(-1, 8, 4));
        y = gd_scaled_dot_product_attention(x, x, x, .dropout = 0.5);
        gx = gd_grad(gd_list(gd_sum(y)), gd_list(x)).at[0];
    }
    gd_tensor *value = gd_randn(gd_dims(2, 8, 4)), *out[4], *g[4];
    gd_session *session = NULL;
    for (int i = 0; i < 4; i++) { /* two runs of each of two sessions */
        if (i % 2 == 0) session = gd_session_new(graph);
        gd_tensors r = gd_session_run(session, gd_feed(x, value), gd_list(y, gx));
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        if (gd_failed()) return;
        out[i] = gd_clone(r.at[0]), g[i] = gd_clone(r.at[1]);
    }
    CHECK(tensors_relative_distance(out[1], out[0]) > 0.01 &&
          tensors_relative_distance(g[1], g[0]) > 0.01);
    CHECK(tensors_relative_distance(out[2], out[0]) == 0 &&
          tensors_relative_distance(g[2], g[0]) == 0);
    CHECK(tensors_relative_distance(out[3], out[1]) == 0 &&
          tensors_relative_distance(g[3], g[1]) == 0);
}

TEST_MAIN
