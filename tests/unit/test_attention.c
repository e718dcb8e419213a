/* test_attention.c - attention beyond what tables of cases can say: how much memory it takes, rows
 * that see nothing, and memory that runs out.
 */
#include <math.h>

#include "gradus/gradus.h"
#include "gradus/testing.h"
#include "test.h"

/* The first test, since a peak never comes down: other tests may need more. */
TEST(memory_grows_with_the_length_and_not_with_its_square) {
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

TEST(rows_that_see_nothing_give_zeros_and_have_no_gradient) {
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

TEST(no_memory_is_a_status_in_every_order) {
    static const char *const forms[] = {"plain", "causal and grouped", "masked"};
    gd_set_num_threads(1);
    for (int form = 0; form < 3; form++) {
        int64_t n = 0;
        for (bool fired = true; fired && n < 20000; n += 1 + n / 60) {
            int64_t objects = gd_live_objects(), bytes = gd_memory_stats(NULL).live_bytes,
                    before = gd_fault_allocations();
            {
                GD_SCOPE;
                gd_tensor *q = gd_requires_grad(gd_randn(gd_dims(1, 4, 3, 2))),
                          *k = gd_requires_grad(gd_randn(gd_dims(1, form == 1 ? 2 : 4, 3, 2)));
                gd_tensor *v = gd_requires_grad(gd_randn(gd_dims(1, form == 1 ? 2 : 4, 3, 2)));
                gd_tensor *mask = form == 2 ? gd_requires_grad(gd_randn(gd_dims(3, 3))) : NULL;
                gd_fault_after(n, false);
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
                gd_fault_after(-1, false);
                fired = gd_fault_allocations() - before > n;
                CHECK_SAYING(status == GD_OK || status == GD_E_MEMORY, "%s: allocation %lld: %s",
                             forms[form], (long long)n, gd_error_message());
                gd_clear_error();
            }
            CHECK(gd_live_objects() == objects && gd_memory_stats(NULL).live_bytes == bytes);
        }
        CHECK_SAYING(n < 20000, "%s", forms[form]);
    }
    gd_set_num_threads(0);
}

TEST_MAIN
