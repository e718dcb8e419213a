/* test_shapes_only.c - inferring only the shapes of functions, and counting multiply-adds. */
#include <math.h>

#include "clean_test.h"
#include "gradus/gradus.h"
#include "graph/build/graph.h"
#include "graph/build/shapes_only.h"
#include "dispatch/macs.h"

typedef struct net {
    gd_tensor *conv, *mean, *var, *steps, *w, *created;
} net;

static net make_net(void) {
    return (net){gd_requires_grad(gd_randn(gd_dims(8, 3, 3, 3))),
                 gd_zeros(gd_dims(8)),
                 gd_ones(gd_dims(8)),
                 gd_zeros(gd_dims()),
                 gd_requires_grad(gd_randn(gd_dims(10, 8))),
                 NULL};
}

/* conv, batch norm with statistics, dropout, linear; and a weight created in the first call. */
static gd_tensor *forward_net(net *n, gd_tensor *x) {
    gd_tensor *y = gd_conv2d(x, n->conv, NULL, .padding = 1, .stride = 2);
    y = gd_batch_norm(y, NULL, NULL, n->mean, n->var, .training = true);
    gd_add_(n->steps, gd_scalar(1));
    y = gd_dropout(gd_relu(y), .p = 0.5);
    y = gd_linear(gd_mean(y, .axis = gd_dims(-1, -2)), n->w, NULL);
    if (!n->created) {
        GD_EAGER;
        n->created = gd_retain(gd_requires_grad(gd_randn(gd_dims(gd_tensor_dim(y, 1), 4))));
    }
    return gd_matmul(y, n->created);
}

static int64_t live_bytes(void) { return gd_memory_stats(NULL).live_bytes; }

CLEAN_TEST(ops_infer_shapes_and_leave_no_side_effects) {
    GD_SCOPE;
    net n = make_net();
    gd_seed(9);
    gd_tensor *first = gd_rand(gd_dims(3));
    gd_seed(9);
    {
        gd_shapes_only only;
        const int64_t objects = gd_live_objects(), bytes = live_bytes();
        gd_shapes_only_begin(&only);
        n.created = gd_ones(gd_dims()); /* not NULL: this call creates no weight */
        gd_tensor *x = gd_symbol(gd_dims(64, 3, 224, 224), GD_F32, NULL);
        gd_tensor *y = gd_linear(
            gd_mean(gd_relu(gd_conv2d(x, n.conv, NULL)), .axis = gd_dims(-1, -2)), n.w, NULL);
        CHECK(gd_tensor_is_symbol(n.created) && gd_tensor_is_symbol(y) &&
              gd_tensor_dim(y, 0) == 64 && gd_tensor_dim(y, 1) == 10);
        CHECK(live_bytes() == bytes);
        n.created = NULL;
        gd_shapes_only_end(&only);
        CHECK_SAYING(gd_live_objects() == objects && live_bytes() == bytes,
                     "%lld objects, %lld bytes", (long long)(gd_live_objects() - objects),
                     (long long)(live_bytes() - bytes));
    }
    gd_shapes_only only;
    gd_shapes_only_begin(&only);
    gd_tensor *y = forward_net(&n, gd_symbol(gd_dims(64, 3, 224, 224), GD_F32, NULL));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(gd_tensor_is_symbol(y) && gd_tensor_rank(y) == 2 && gd_tensor_dim(y, 0) == 64 &&
          gd_tensor_dim(y, 1) == 4);
    gd_shapes_only_end(&only);
    CHECK(!gd_tensor_is_symbol(gd_zeros(gd_dims(2)))); /* ops run again */
    CHECK(gd_item(n.steps) == 0 && ((float *)gd_data(n.mean))[3] == 0 &&
          ((float *)gd_data(n.var))[3] == 1);
    CHECK(n.created && gd_data(n.created) && gd_tensor_dim(n.created, 0) == 10);
    gd_seed(9);
    gd_shapes_only_begin(&only);
    forward_net(&n, gd_symbol(gd_dims(1, 3, 8, 8), GD_F32, NULL));
    gd_shapes_only_end(&only);
    gd_tensor *again = gd_rand(gd_dims(3)); /* dropout has not advanced the generator */
    CHECK(memcmp(gd_data(first), gd_data(again), 3 * sizeof(float)) == 0);
    gd_tensor *z = forward_net(&n, gd_ones(gd_dims(1, 3, 8, 8))); /* now with values */
    CHECK(!gd_failed() && gd_tensor_dim(z, 1) == 4 && gd_item(n.steps) == 1);
    gd_release(n.created);
}

CLEAN_TEST(multiply_adds_are_counted_for_each_call) {
    GD_SCOPE;
    net n = make_net();
    gd_shapes_only only;
    CHECK(gd_shapes_only_macs() == 0);
    gd_shapes_only_begin(&only);
    gd_tensor *x = gd_symbol(gd_dims(2, 3, 16, 16), GD_F32, NULL);
    gd_tensor *y = gd_conv2d(x, n.conv, NULL, .padding = 1, .stride = 2);
    CHECK(gd_shapes_only_macs() == 2 * 8 * 8 * 8 * 3 * 9);
    y = gd_softmax(gd_batch_norm(y, NULL, NULL, n.mean, n.var), .axis = 1);
    CHECK(gd_shapes_only_macs() == 2 * 8 * 8 * 8 * 3 * 9);
    gd_linear(gd_mean(y, .axis = gd_dims(-1, -2)), n.w, NULL);
    CHECK(gd_shapes_only_macs() == 2 * 8 * 8 * 8 * 3 * 9 + 2 * 10 * 8);
    gd_shapes_only inner;
    gd_shapes_only_begin(&inner);
    gd_einsum("bij,bjk->bik", gd_list(gd_symbol(gd_dims(5, 2, 3), GD_F32, NULL),
                                      gd_symbol(gd_dims(5, 3, 7), GD_F32, NULL)));
    CHECK(gd_shapes_only_macs() == 5 * 2 * 3 * 7);
    gd_shapes_only_end(&inner);
    CHECK(gd_shapes_only_macs() == 2 * 8 * 8 * 8 * 3 * 9 + 2 * 10 * 8);
    gd_tensor *any = gd_symbol(gd_dims(GD_ANY, 3), GD_F32, NULL);
    gd_mean(gd_cat(gd_list(any, any)), .axis = 0); /* no products, whatever the size */
    gd_masked_select(any, gd_gt(any, gd_scalar(0)));
    CHECK(gd_shapes_only_macs() == 2 * 8 * 8 * 8 * 3 * 9 + 2 * 10 * 8);
    gd_matmul(any, gd_symbol(gd_dims(3, 2), GD_F32, NULL));
    CHECK(isnan(gd_shapes_only_macs()));
    gd_shapes_only_end(&only);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* Counts the multiply-adds of one call. */
#define MACS(call)                                  \
    ({                                              \
        gd_shapes_only only_;                       \
        gd_shapes_only_begin(&only_);               \
        (void)(call);                               \
        const double macs_ = gd_shapes_only_macs(); \
        gd_shapes_only_end(&only_);                 \
        macs_;                                      \
    })
#define S(...) gd_symbol(gd_dims(__VA_ARGS__), GD_F32, NULL)

CLEAN_TEST(multiply_adds_agree_with_counts_by_hand) {
    GD_SCOPE;
    CHECK(MACS(gd_matmul(S(4, 2, 3), S(3, 5))) == 4 * 2 * 3 * 5 &&
          MACS(gd_matmul(S(3), S(3))) == 3);
    CHECK(MACS(gd_dot(S(6), S(6))) == 6 && MACS(gd_linear(S(7, 3), S(5, 3), S(5))) == 7 * 3 * 5);
    CHECK(MACS(gd_add(S(7, 3), S(7, 3))) == 0 && MACS(gd_sum(S(7, 3))) == 0);
    CHECK(MACS(gd_conv1d(S(2, 4, 10), S(6, 2, 3), NULL, .groups = 2)) == 2 * 6 * 8 * 2 * 3);
    CHECK(MACS(gd_conv3d(S(1, 2, 4, 4, 4), S(3, 2, 2, 2, 2), NULL)) == 3 * 27 * 2 * 8);
    CHECK(MACS(gd_conv2d(S(32, 7, 7), S(64, 32, 1, 1), S(64))) == 64 * 49 * 32);
    CHECK(MACS(gd_conv_transpose2d(S(2, 4, 5, 5), S(4, 3, 3, 3), NULL, .stride = 2)) ==
          2 * 4 * 25 * 3 * 9);
    CHECK(MACS(gd_scaled_dot_product_attention(S(2, 8, 10, 16), S(2, 8, 12, 16),
                                               S(2, 8, 12, 32))) == 2 * 8 * 10 * 12 * (16 + 32));
    gd_tensor *w[8];
    for (int i = 0; i < 8; i++)
        w[i] = i % 4 == 0   ? gd_zeros(i ? gd_dims(20, 5) : gd_dims(20, 3))
               : i % 4 == 1 ? gd_zeros(gd_dims(20, 5))
                            : gd_zeros(gd_dims(20));
    const double first = 7 * 2 * 20 * (3 + 5), second = 7 * 2 * 20 * (5 + 5);
    CHECK(MACS(gd_lstm(S(7, 2, 3), NULL, NULL, NULL, ((gd_tensors){w, 8}), .layers = 2)) ==
          first + second);
    CHECK(MACS(gd_lstm_cell(S(2, 3), S(2, 5), S(2, 5), w[0], w[1], w[2], w[3])) ==
          2 * 20 * (3 + 5));
    CHECK(MACS(gd_einsum("ij,jk,kl->il", gd_list(S(2, 3), S(3, 4), S(4, 5)))) ==
          2 * 3 * 4 + 2 * 4 * 5);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

static gd_tensors matmul_once(gd_tensors in, void *user) {
    return gd_listed(gd_matmul(in.at[0], user));
}
static gd_tensors matmul_twice(gd_tensors in, void *user) {
    return matmul_once(matmul_once(in, user), user);
}
static gd_tensors is_small(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_lt(gd_sum(in.at[0]), gd_scalar(9)));
}
static gd_tensors accumulate_row(gd_tensors in, void *user) {
    gd_tensor *state = gd_add(gd_matmul(in.at[0], user), in.at[1]);
    return gd_listed(state, state);
}

CLEAN_TEST(shapes_of_branches_and_loops_are_inferred) {
    GD_SCOPE;
    gd_tensor *w = gd_zeros(gd_dims(4, 4));
    gd_shapes_only only;
    gd_shapes_only_begin(&only);
    gd_tensor *y = gd_cond(gd_gt(gd_sum(S(2, 4)), gd_scalar(0)), matmul_twice, matmul_once,
                           gd_list(S(2, 4)), w)
                       .at[0];
    CHECK(gd_shapes_only_macs() == 2 * 2 * 4 * 4); /* those of the more expensive branch */
    CHECK(gd_tensor_dim(y, 0) == 2 && gd_tensor_dim(y, 1) == 4);
    gd_scanned s = gd_scan(accumulate_row, gd_list(S(2, 4)), gd_list(S(9, 2, 4)), w);
    CHECK(gd_tensor_dim(s.state.at[0], 1) == 4 && gd_tensor_dim(s.ys.at[0], 0) == 9);
    CHECK(gd_shapes_only_macs() == (2 + 9) * 2 * 4 * 4);
    gd_jit *jit = gd_jit_new(matmul_once, w);
    CHECK(gd_tensor_dim(gd_jit_call(jit, gd_list(S(3, 4))).at[0], 0) == 3 &&
          gd_jit_traces(jit) == 0);
    CHECK(gd_shapes_only_macs() == (2 + 9) * 2 * 4 * 4 + 3 * 4 * 4);
    gd_while_loop(is_small, matmul_once, gd_list(S(2, 4)), w);
    CHECK(isnan(gd_shapes_only_macs()));
    gd_shapes_only_end(&only);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(invalid_shapes_fail_and_values_cannot_be_read) {
    GD_SCOPE;
    gd_shapes_only only;
    gd_shapes_only_begin(&only);
    gd_linear(S(2, 3), S(5, 4), NULL);
    CHECK(gd_failed() && says("'w' takes 4 inputs") && says("test_shapes_only.c"));
    gd_clear_error();
    CHECK(isnan(gd_item(gd_sum(S(2, 3)))) && gd_failed());
    gd_clear_error();
    gd_shapes_only_end(&only);
}

/* Shapes can also be inferred while a function is traced: a layer of unknown size reads the shape
 * of its input. */
static gd_tensors infer_shape(gd_tensors in, void *user) {
    gd_shapes_only only;
    gd_shapes_only_begin(&only);
    gd_tensor *y = gd_matmul(in.at[0], gd_ones(gd_dims(3, 7)));
    const int64_t width = gd_tensor_dim(y, 1);
    gd_shapes_only_end(&only);
    *(int64_t *)user = width;
    return gd_listed(gd_mul(in.at[0], gd_scalar((double)width)));
}

CLEAN_TEST(a_traced_function_may_infer_shapes) {
    GD_SCOPE;
    int64_t width = 0;
    gd_jit *jit = gd_jit_new(infer_shape, &width);
    gd_tensor *y = gd_jit_call(jit, gd_list(gd_ones(gd_dims(2, 3)))).at[0];
    CHECK_SAYING(!gd_failed() && width == 7 && ((float *)gd_data(y))[0] == 7, "%s",
                 gd_error_message());
}

TEST_MAIN
