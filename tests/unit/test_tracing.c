/* test_tracing.c - gd_jit: eager functions as plans. */
#include <math.h>

#include "gradus/gradus.h"
#include "clean_test.h"

static double at(gd_tensor *t, int i) { return ((const float *)gd_data(gd_contiguous(t)))[i]; }

typedef struct net {
    gd_tensor *w, *b;
} net;

static gd_tensors layer(gd_tensors in, void *user) {
    net *n = user;
    return gd_listed(gd_tanh(gd_linear(in.at[0], n->w, n->b)));
}

static net make_net(void) {
    gd_seed(3);
    return (net){gd_requires_grad(gd_randn(gd_dims(4, 3))), gd_requires_grad(gd_randn(gd_dims(4)))};
}

CLEAN_TEST(a_traced_function_gives_what_the_function_gives) {
    GD_SCOPE;
    net n = make_net();
    gd_jit *jit = gd_jit_new(layer, &n, .level = 0);
    GD_NO_GRAD;
    for (int64_t batch = 1; batch < 4; batch++)
        for (int again = 0; again < 3; again++) {
            gd_tensor *x = gd_randn(gd_dims(batch, 3)), *y = layer(gd_list(x), &n).at[0], *z = gd_jit_call(jit, gd_list(x)).at[0];
            CHECK_SAYING(!gd_failed() && memcmp(gd_data(y), gd_data(z), (size_t)batch * 4 * sizeof(float)) == 0, "%s", gd_error_message());
        }
    CHECK(gd_jit_traces(jit) == 3);
}

CLEAN_TEST(parameters_are_read_as_they_are_when_it_runs) {
    GD_SCOPE;
    net n = make_net();
    gd_jit *jit = gd_jit_new(layer, &n);
    GD_NO_GRAD;
    gd_tensor *x = gd_full(gd_dims(1, 3), 1);
    gd_jit_call(jit, gd_list(x));
    gd_mul_(n.w, gd_scalar(0));
    gd_mul_(n.b, gd_scalar(0));
    CHECK(at(gd_jit_call(jit, gd_list(x)).at[0], 2) == 0 && !gd_failed() && gd_jit_traces(jit) == 1);
}

CLEAN_TEST(it_is_one_node_of_the_tape_with_the_right_gradients) {
    GD_SCOPE;
    net n = make_net();
    gd_jit *jit = gd_jit_new(layer, &n, .level = 0);
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(5, 3)));
    gd_tensors eager = gd_grad(gd_list(gd_sum(gd_square(layer(gd_list(x), &n).at[0]))), gd_list(x, n.w, n.b));
    for (int again = 0; again < 3; again++) {
        gd_tensors traced = gd_grad(gd_list(gd_sum(gd_square(gd_jit_call(jit, gd_list(x)).at[0]))), gd_list(x, n.w, n.b));
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        for (int i = 0; i < 3 && !gd_failed(); i++)
            for (int k = 0; k < gd_tensor_numel(eager.at[i]); k++)
                CHECK(fabs(at(eager.at[i], k) - at(traced.at[i], k)) <= 1e-5 * (1 + fabs(at(eager.at[i], k))));
    }
    gd_backward(gd_sum(gd_jit_call(jit, gd_list(x)).at[0]));
    CHECK(gd_tensor_grad(n.w) && gd_tensor_grad(x) && !gd_failed());
}

CLEAN_TEST(a_result_outlives_the_jit) {
    GD_SCOPE;
    net n = make_net();
    gd_tensor *y;
    {
        GD_SCOPE;
        gd_jit *jit = gd_jit_new(layer, &n);
        y = gd_keep(gd_jit_call(jit, gd_list(gd_randn(gd_dims(2, 3)))).at[0]);
    }
    CHECK(gd_backward(gd_sum(y)) == GD_OK && gd_tensor_grad(n.b));
}

CLEAN_TEST(a_parameter_overwritten_before_backward_is_an_error) {
    GD_SCOPE;
    net n = make_net();
    gd_jit *jit = gd_jit_new(layer, &n);
    gd_tensor *y = gd_jit_call(jit, gd_list(gd_randn(gd_dims(2, 3)))).at[0];
    {
        GD_NO_GRAD;
        gd_mul_(n.w, gd_scalar(2));
    }
    gd_tensors g = gd_grad(gd_list(gd_sum(y)), gd_list(n.w));
    (void)g;
    CHECK(gd_error_status() == GD_E_STATE && says("overwritten"));
}

/* A whole training step, in which the parameters are written. */
static gd_tensors training_step(gd_tensors in, void *user) {
    net *n = user;
    gd_tensor *loss = gd_mse_loss(layer(gd_list(in.at[0]), n).at[0], in.at[1]);
    gd_tensors g = gd_grad(gd_list(loss), gd_list(n->w, n->b));
    GD_NO_GRAD;
    gd_sub_(n->w, gd_mul(g.at[0], gd_scalar(0.1)));
    gd_sgd_step(n->b, g.at[1], gd_scalar(0.1));
    return gd_listed(loss);
}

CLEAN_TEST(what_the_function_writes_is_written_in_each_run) {
    GD_SCOPE;
    net a = make_net(), b = make_net();
    gd_jit *jit = gd_jit_new(training_step, &a, .level = 0);
    gd_tensor *x = gd_randn(gd_dims(6, 3)), *y = gd_full(gd_dims(6, 4), 0.5);
    double first = 0, last = 0;
    for (int i = 0; i < 20; i++) {
        gd_tensors r;
        {
            GD_NO_GRAD; /* the loss itself is not wanted on the tape */
            r = gd_jit_call(jit, gd_list(x, y));
        }
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        if (gd_failed()) return;
        last = gd_item(r.at[0]);
        if (i == 0) first = last;
        CHECK(gd_item(training_step(gd_list(x, y), &b).at[0]) == last);
    }
    CHECK(last < first && gd_jit_traces(jit) == 1);
    CHECK(memcmp(gd_data(a.w), gd_data(b.w), 12 * sizeof(float)) == 0 && memcmp(gd_data(a.b), gd_data(b.b), 4 * sizeof(float)) == 0);
}

typedef struct statistics {
    gd_tensor *mean, *var;
} statistics;

static gd_tensors normalized(gd_tensors in, void *user) {
    statistics *s = user;
    return gd_listed(gd_batch_norm(in.at[0], NULL, NULL, s->mean, s->var, .training = true));
}

CLEAN_TEST(statistics_are_kept_up) {
    GD_SCOPE;
    statistics a = {gd_zeros(gd_dims(3)), gd_ones(gd_dims(3))}, b = {gd_zeros(gd_dims(3)), gd_ones(gd_dims(3))};
    gd_jit *jit = gd_jit_new(normalized, &a);
    for (int i = 0; i < 4; i++) {
        gd_tensor *x = gd_randn(gd_dims(8, 3));
        gd_jit_call(jit, gd_list(x));
        normalized(gd_list(x), &b);
    }
    CHECK_SAYING(!gd_failed() && fabs(at(a.mean, 1) - at(b.mean, 1)) < 1e-6 && fabs(at(a.var, 2) - at(b.var, 2)) < 1e-6, "%g %g %s",
                 at(a.mean, 1), at(b.mean, 1), gd_error_message());
}

static gd_tensors noisy(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_dropout(in.at[0], .p = 0.5));
}

CLEAN_TEST(noise_is_new_in_each_call_and_the_same_on_the_way_back) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(noisy, NULL);
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(64)));
    gd_tensor *y = gd_jit_call(jit, gd_list(x)).at[0], *z = gd_jit_call(jit, gd_list(x)).at[0];
    CHECK(memcmp(gd_data(y), gd_data(z), 64 * sizeof(float)) != 0);
    gd_tensor *gy = gd_grad(gd_list(gd_sum(y)), gd_list(x)).at[0]; /* the first of the two calls */
    CHECK_SAYING(!gd_failed() && memcmp(gd_data(y), gd_data(gy), 64 * sizeof(float)) == 0, "%s", gd_error_message());
}

static gd_tensors peeking(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_item(gd_sum(in.at[0])) > 0 ? gd_relu(in.at[0]) : in.at[0]);
}

CLEAN_TEST(looking_at_the_data_of_a_symbol_is_an_error) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(peeking, NULL);
    gd_jit_call(jit, gd_list(gd_ones(gd_dims(2))));
    CHECK_SAYING(gd_failed(), "it was allowed");
}

TEST_MAIN
