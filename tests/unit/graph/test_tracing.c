/* test_tracing.c - gd_jit: eager functions as plans. */
#include <math.h>
#include <pthread.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"

static double element(gd_tensor *t, int i) { return ((const float *)gd_data(gd_contiguous(t)))[i]; }

typedef struct net {
    gd_tensor *w, *b;
} net;

static gd_tensors dense_layer(gd_tensors in, void *user) {
    net *n = user;
    return gd_listed(gd_tanh(gd_linear(in.at[0], n->w, n->b)));
}

static net make_net(void) {
    gd_seed(3);
    return (net){gd_requires_grad(gd_randn(gd_dims(4, 3))), gd_requires_grad(gd_randn(gd_dims(4)))};
}

CLEAN_TEST(a_traced_function_gives_the_results_of_the_function) {
    GD_SCOPE;
    net n = make_net();
    gd_jit *jit = gd_jit_new(dense_layer, &n, .level = 0);
    GD_NO_GRAD;
    for (int64_t batch = 1; batch < 4; batch++)
        for (int again = 0; again < 3; again++) {
            gd_tensor *x = gd_randn(gd_dims(batch, 3)), *y = dense_layer(gd_list(x), &n).at[0],
                      *z = gd_jit_call(jit, gd_list(x)).at[0];
            CHECK_SAYING(!gd_failed() &&
                             memcmp(gd_data(y), gd_data(z), (size_t)batch * 4 * sizeof(float)) == 0,
                         "%s", gd_error_message());
        }
    CHECK(gd_jit_traces(jit) == 3);
}

CLEAN_TEST(parameters_are_read_at_run_time) {
    GD_SCOPE;
    net n = make_net();
    gd_jit *jit = gd_jit_new(dense_layer, &n);
    GD_NO_GRAD;
    gd_tensor *x = gd_full(gd_dims(1, 3), 1);
    gd_jit_call(jit, gd_list(x));
    gd_mul_(n.w, gd_scalar(0));
    gd_mul_(n.b, gd_scalar(0));
    CHECK(element(gd_jit_call(jit, gd_list(x)).at[0], 2) == 0 && !gd_failed() &&
          gd_jit_traces(jit) == 1);
}

CLEAN_TEST(a_jit_call_is_one_tape_node_with_correct_gradients) {
    GD_SCOPE;
    net n = make_net();
    gd_jit *jit = gd_jit_new(dense_layer, &n, .level = 0);
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(5, 3)));
    gd_tensors eager = gd_grad(gd_list(gd_sum(gd_square(dense_layer(gd_list(x), &n).at[0]))),
                               gd_list(x, n.w, n.b));
    for (int again = 0; again < 3; again++) {
        gd_tensors traced = gd_grad(gd_list(gd_sum(gd_square(gd_jit_call(jit, gd_list(x)).at[0]))),
                                    gd_list(x, n.w, n.b));
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        for (int i = 0; i < 3 && !gd_failed(); i++)
            for (int k = 0; k < gd_tensor_numel(eager.at[i]); k++)
                CHECK(fabs(element(eager.at[i], k) - element(traced.at[i], k)) <=
                      1e-5 * (1 + fabs(element(eager.at[i], k))));
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
        gd_jit *jit = gd_jit_new(dense_layer, &n);
        y = gd_keep(gd_jit_call(jit, gd_list(gd_randn(gd_dims(2, 3)))).at[0]);
    }
    CHECK(gd_backward(gd_sum(y)) == GD_OK && gd_tensor_grad(n.b));
}

CLEAN_TEST(a_parameter_overwritten_before_backward_is_an_error) {
    GD_SCOPE;
    net n = make_net();
    gd_jit *jit = gd_jit_new(dense_layer, &n);
    gd_tensor *y = gd_jit_call(jit, gd_list(gd_randn(gd_dims(2, 3)))).at[0];
    {
        GD_NO_GRAD;
        gd_mul_(n.w, gd_scalar(2));
    }
    gd_tensors g = gd_grad(gd_list(gd_sum(y)), gd_list(n.w));
    (void)g;
    CHECK(gd_error_status() == GD_E_STATE && says("overwritten"));
    gd_clear_error();
}

/* A complete training step that writes the parameters. */
static gd_tensors training_step(gd_tensors in, void *user) {
    net *n = user;
    gd_tensor *loss = gd_mse_loss(dense_layer(gd_list(in.at[0]), n).at[0], in.at[1]);
    gd_tensors g = gd_grad(gd_list(loss), gd_list(n->w, n->b));
    GD_NO_GRAD;
    gd_sub_(n->w, gd_mul(g.at[0], gd_scalar(0.1)));
    gd_sgd_step(n->b, g.at[1], gd_scalar(0.1));
    return gd_listed(loss);
}

CLEAN_TEST(writes_of_the_function_happen_in_each_run) {
    GD_SCOPE;
    net a = make_net(), b = make_net();
    gd_jit *jit = gd_jit_new(training_step, &a, .level = 0);
    gd_tensor *x = gd_randn(gd_dims(6, 3)), *y = gd_full(gd_dims(6, 4), 0.5);
    double first = 0, last = 0;
    for (int i = 0; i < 20; i++) {
        gd_tensors r;
        {
            GD_NO_GRAD; /* the loss itself is not recorded on the tape */
            r = gd_jit_call(jit, gd_list(x, y));
        }
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        if (gd_failed()) return;
        last = gd_item(r.at[0]);
        if (i == 0) first = last;
        CHECK(gd_item(training_step(gd_list(x, y), &b).at[0]) == last);
    }
    CHECK(last < first && gd_jit_traces(jit) == 1);
    CHECK(memcmp(gd_data(a.w), gd_data(b.w), 12 * sizeof(float)) == 0 &&
          memcmp(gd_data(a.b), gd_data(b.b), 4 * sizeof(float)) == 0);
}

typedef struct statistics {
    gd_tensor *mean, *var;
} statistics;

static gd_tensors normalize_input(gd_tensors in, void *user) {
    statistics *s = user;
    return gd_listed(gd_batch_norm(in.at[0], NULL, NULL, s->mean, s->var, .training = true));
}

CLEAN_TEST(running_statistics_are_updated) {
    GD_SCOPE;
    statistics a = {gd_zeros(gd_dims(3)), gd_ones(gd_dims(3))},
               b = {gd_zeros(gd_dims(3)), gd_ones(gd_dims(3))};
    gd_jit *jit = gd_jit_new(normalize_input, &a);
    for (int i = 0; i < 4; i++) {
        gd_tensor *x = gd_randn(gd_dims(8, 3));
        gd_jit_call(jit, gd_list(x));
        normalize_input(gd_list(x), &b);
    }
    CHECK_SAYING(!gd_failed() && fabs(element(a.mean, 1) - element(b.mean, 1)) < 1e-6 &&
                     fabs(element(a.var, 2) - element(b.var, 2)) < 1e-6,
                 "%g %g %s", element(a.mean, 1), element(b.mean, 1), gd_error_message());
}

static gd_tensors noisy_dropout(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_dropout(in.at[0], .p = 0.5));
}

CLEAN_TEST(random_numbers_differ_between_calls_and_repeat_in_backward) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(noisy_dropout, NULL);
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(64)));
    gd_tensor *y = gd_jit_call(jit, gd_list(x)).at[0], *z = gd_jit_call(jit, gd_list(x)).at[0];
    CHECK(memcmp(gd_data(y), gd_data(z), 64 * sizeof(float)) != 0);
    /* of the first of the two calls */
    gd_tensor *gy = gd_grad(gd_list(gd_sum(y)), gd_list(x)).at[0];
    CHECK_SAYING(!gd_failed() && memcmp(gd_data(y), gd_data(gy), 64 * sizeof(float)) == 0, "%s",
                 gd_error_message());
}

static gd_tensors read_symbol(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_item(gd_sum(in.at[0])) > 0 ? gd_relu(in.at[0]) : in.at[0]);
}

CLEAN_TEST(reading_the_data_of_a_symbol_is_an_error) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(read_symbol, NULL);
    gd_jit_call(jit, gd_list(gd_ones(gd_dims(2))));
    CHECK_SAYING(gd_failed(), "reading a symbol did not fail");
}

/* --- gradients of gradients ------------------------------------------------------------------- */

static bool tensors_near(gd_tensor *a, gd_tensor *b) {
    char why[256];
    return tensors_agree(b, a, 1e-4, why);
}

typedef struct deep_net {
    gd_tensor *w, *kernel, *mean, *var;
} deep_net;

static gd_tensor *square_layer(gd_tensor *x, const deep_net *d) {
    return gd_tanh(gd_matmul(x, d->w));
}
static gd_tensors square_layers(gd_tensors in, void *user) {
    return gd_listed(square_layer(in.at[0], user));
}

/* Convolution, batch norm with running statistics, attention, recurrence: ops with gradient ops. */
static gd_tensors many_ops(gd_tensors in, void *user) {
    const deep_net *d = user;
    gd_tensor *x = gd_reshape(square_layer(in.at[0], d), gd_dims(1, 1, 6, 6));
    x = gd_conv2d(x, d->kernel, NULL, .padding = 1);
    x = gd_reshape(gd_softplus(gd_batch_norm(x, NULL, NULL, d->mean, d->var, .training = true)),
                   gd_dims(1, 2, 6, 6));
    gd_tensor *sums = gd_sum(x, .axis = 3);
    return gd_listed(gd_scaled_dot_product_attention(x, x, x), sums);
}

/* The gradient of a function of the gradient, for x and for the parameters. */
static gd_tensors second_order(gd_tensors y, gd_tensor *x, const deep_net *d) {
    gd_tensor *loss = gd_sum(gd_square(y.at[0]));
    for (int64_t k = 1; k < y.count; k++)
        loss = gd_add(loss, gd_sum(gd_mul(y.at[k], gd_square(y.at[k]))));
    gd_tensors g = gd_grad(gd_list(loss), gd_list(x, d->w), .create_graph = true);
    return gd_grad(gd_list(gd_add(gd_sum(gd_square(g.at[0])), gd_sum(gd_exp(g.at[1])))),
                   gd_list(x, d->w));
}

static deep_net make_deep_net(void) {
    gd_seed(5);
    return (deep_net){gd_requires_grad(gd_mul(gd_randn(gd_dims(6, 6)), gd_scalar(0.3))),
                      gd_mul(gd_randn(gd_dims(2, 1, 3, 3)), gd_scalar(0.3)), gd_zeros(gd_dims(2)),
                      gd_ones(gd_dims(2))};
}

CLEAN_TEST(gradients_of_gradients_flow_through_a_jit) {
    for (int level = 0; level <= 2; level += 2) {
        GD_SCOPE;
        deep_net d = make_deep_net();
        d.w = gd_requires_grad(gd_detach(d.w));
        gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(6, 6)));
        gd_jit *layer_jit = gd_jit_new(square_layers, &d, .level = level),
               *many_jit = gd_jit_new(many_ops, &d, .level = level);
        /* uses the same weights twice, with an input that depends on them */
        gd_tensors eager = second_order(gd_list(square_layer(square_layer(x, &d), &d)), x, &d);
        gd_tensors traced =
            second_order(gd_jit_call(layer_jit, gd_jit_call(layer_jit, gd_list(x))), x, &d);
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        if (gd_failed()) return;
        CHECK(tensors_near(eager.at[0], traced.at[0]) && tensors_near(eager.at[1], traced.at[1]));
        eager = second_order(many_ops(gd_list(x), &d), x, &d);
        traced = second_order(gd_jit_call(many_jit, gd_list(x)), x, &d);
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        if (gd_failed()) return;
        CHECK(tensors_near(eager.at[0], traced.at[0]) && tensors_near(eager.at[1], traced.at[1]));
        CHECK(gd_jit_traces(many_jit) == 1);
    }
}

static gd_tensors noisy_layer(gd_tensors in, void *user) {
    return gd_listed(gd_dropout(square_layer(in.at[0], user), .p = 0.5));
}

CLEAN_TEST(second_order_gradients_repeat_the_random_numbers) {
    GD_SCOPE;
    deep_net d = make_deep_net();
    d.w = gd_requires_grad(gd_detach(d.w));
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(6, 6)));
    gd_jit *jit = gd_jit_new(noisy_layer, &d);
    for (int i = 0; i < 3; i++) {
        gd_tensor *loss = gd_sum(gd_square(gd_jit_call(jit, gd_list(x)).at[0]));
        gd_tensors first = gd_grad(gd_list(loss), gd_list(x, d.w), .retain_graph = true);
        gd_tensors again = gd_grad(gd_list(loss), gd_list(x, d.w), .create_graph = true);
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        CHECK(tensors_near(first.at[0], again.at[0]) && tensors_near(first.at[1], again.at[1]));
    }
}

static gd_tensors is_small(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_lt(gd_sum(gd_abs(in.at[0])), gd_scalar(100)));
}
static gd_tensors double_input(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_mul(in.at[0], gd_scalar(2)));
}
static gd_tensors double_while_small(gd_tensors in, void *user) {
    return gd_while_loop(is_small, double_input, in, user);
}

CLEAN_TEST(gradients_of_gradients_of_loops_fail) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_full(gd_dims(3), 0.5));
    gd_jit *jit = gd_jit_new(double_while_small, NULL);
    gd_tensor *loss = gd_sum(gd_square(gd_jit_call(jit, gd_list(x)).at[0]));
    gd_tensors g = gd_grad(gd_list(loss), gd_list(x), .retain_graph = true);
    CHECK_SAYING(!gd_failed() && element(g.at[0], 0) > 1, "%s", gd_error_message());
    gd_grad(gd_list(loss), gd_list(x), .create_graph = true);
    CHECK_SAYING(gd_error_status() == GD_E_UNSUPPORTED &&
                     strstr(gd_error_message(), "call the function itself"),
                 "%s", gd_error_message());
    gd_clear_error();
}

/* --- common ways of writing functions --------------------------------------------------------- */

static gd_tensors add_one_in_place(gd_tensors in, void *user) {
    (void)user;
    gd_add_(in.at[0], gd_scalar(1));
    return gd_listed(gd_mul(in.at[0], in.at[1]));
}

CLEAN_TEST(inputs_that_the_function_writes_are_written) {
    GD_SCOPE;
    gd_tensor *x = gd_full(gd_dims(2), 1), *w = gd_requires_grad(gd_full(gd_dims(2), 5));
    gd_jit *jit = gd_jit_new(add_one_in_place, NULL);
    gd_tensor *y = gd_jit_call(jit, gd_list(x, w)).at[0];
    CHECK_SAYING(gd_item(gd_max(y)) == 10 && gd_item(gd_max(x)) == 2, "%g %g %s",
                 gd_item(gd_max(y)), gd_item(gd_max(x)), gd_error_message());
    CHECK(gd_backward(gd_sum(y)) == GD_OK &&
          gd_item(gd_max(gd_tensor_grad(w))) == 2); /* the gradient uses the value at that call */
    CHECK(gd_item(gd_max(gd_jit_call(jit, gd_list(x, w)).at[0])) == 15 && gd_item(gd_max(x)) == 3);
    gd_jit_call(jit, gd_list(w, x));
    CHECK(gd_error_status() == GD_E_STATE &&
          says("writes input 0 in place, which requires a gradient") && gd_item(gd_max(w)) == 5);
    gd_clear_error();
}

static gd_tensors count_call(gd_tensors in, void *user) {
    gd_add_(user, gd_sum(in.at[0]));
    return gd_nothing;
}

CLEAN_TEST(a_function_may_have_no_results) {
    GD_SCOPE;
    gd_tensor *total = gd_full(gd_dims(), 0);
    gd_jit *jit = gd_jit_new(count_call, total);
    for (int i = 0; i < 3; i++) CHECK(gd_jit_call(jit, gd_list(gd_ones(gd_dims(2)))).count == 0);
    CHECK(!gd_failed() && gd_item(total) == 6 && gd_jit_traces(jit) == 1);
}

static gd_tensors times_captured(gd_tensors in, void *user) {
    return gd_listed(gd_mul(in.at[0], *(gd_tensor **)user), gd_argmax(in.at[0], .axis = 0));
}

CLEAN_TEST(gradients_reach_captured_tensors_of_any_origin) {
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(gd_full(gd_dims(2), 3)), *h = gd_square(w),
              *x = gd_full(gd_dims(2), 2);
    gd_jit *jit = gd_jit_new(times_captured,
                             &h); /* a result on the tape; and one of the outputs has integers */
    CHECK(gd_backward(gd_sum(gd_jit_call(jit, gd_list(x)).at[0])) == GD_OK);
    CHECK_SAYING(gd_tensor_grad(w) && gd_item(gd_max(gd_tensor_grad(w))) == 12, "%s",
                 gd_error_message());
}

CLEAN_TEST(parameters_may_be_evaluated_frozen_and_updated_before_training) {
    GD_SCOPE;
    gd_tensor *w = gd_full(gd_dims(2), 3), *x = gd_full(gd_dims(2), 2);
    gd_jit *jit = gd_jit_new(times_captured, &w);
    CHECK(!gd_tensor_requires_grad(gd_jit_call(jit, gd_list(x)).at[0]));
    gd_requires_grad(w);
    {
        GD_NO_GRAD;
        gd_jit_call(jit, gd_list(x));
        gd_add_(w, gd_scalar(1));
    }
    gd_tensor *y = gd_jit_call(jit, gd_list(x)).at[0];
    CHECK(gd_backward(gd_sum(y)) == GD_OK && gd_tensor_grad(w) &&
          gd_item(gd_max(gd_tensor_grad(w))) == 2 && gd_item(gd_max(y)) == 8);
    gd_set_requires_grad(w, false);
    CHECK(!gd_tensor_requires_grad(gd_jit_call(jit, gd_list(x)).at[0]) && gd_jit_traces(jit) == 2);
}

static gd_tensors call_another(gd_tensors in, void *user) {
    return gd_listed(gd_neg(gd_jit_call(user, in).at[0]));
}
static gd_tensors call_itself(gd_tensors in, void *user) {
    return gd_jit_call(*(gd_jit **)user, in);
}

CLEAN_TEST(jits_may_be_nested_and_called_in_graphs) {
    GD_SCOPE;
    gd_tensor *w = gd_full(gd_dims(2), 3), *x = gd_full(gd_dims(2), 2), *p, *y;
    gd_jit *inner = gd_jit_new(times_captured, &w), *outer = gd_jit_new(call_another, inner);
    CHECK(gd_item(gd_max(gd_jit_call(outer, gd_list(x)).at[0])) == -6 && gd_jit_traces(inner) == 0);
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        p = gd_placeholder(gd_dims(GD_ANY));
        y = gd_jit_call(outer, gd_list(p)).at[0];
    }
    CHECK(gd_item(gd_max(gd_session_run(gd_session_new(graph), gd_feed(p, x), gd_list(y)).at[0])) ==
          -6);
    gd_jit *endless = NULL;
    endless = gd_jit_new(call_itself, &endless);
    /* the list has the element, which is an error tensor */
    gd_relu(gd_jit_call(endless, gd_list(x)).at[0]);
    CHECK(gd_error_status() == GD_E_STATE && says("without end"));
    gd_clear_error();
}

CLEAN_TEST(a_jit_keeps_the_most_recently_used_plans) {
    GD_SCOPE;
    gd_tensor *w = gd_full(gd_dims(1), 3);
    gd_jit *jit = gd_jit_new(times_captured, &w, .plans = 2);
    const int sizes[] = {1, 2, 1, 3, 1, 2}, traces[] = {1, 2, 2, 3, 3, 4};
    for (int i = 0; i < 6; i++) {
        GD_SCOPE;
        CHECK(gd_item(gd_max(gd_jit_call(jit, gd_list(gd_ones(gd_dims(sizes[i])))).at[0])) == 3);
        CHECK_SAYING(gd_jit_traces(jit) == traces[i], "after call %d: %d", i, gd_jit_traces(jit));
    }
    CHECK(!gd_jit_new(times_captured, &w, .plans = 0) && says("at least 1"));
    gd_clear_error();
    CHECK(!gd_jit_new(times_captured, &w, .level = 7) && says(".level is 7"));
    gd_clear_error();
}

static gd_tensors write_a_view(gd_tensors in, void *user) {
    gd_add_(gd_slice(user, .start = 0, .stop = 1), in.at[0]);
    return gd_listed(gd_neg(user));
}
static gd_tensors write_under_a_view(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *y = gd_relu(in.at[0]), *view = gd_reshape(y, gd_dims(1, 2));
    gd_add_(y, gd_scalar(1));
    return gd_listed(view);
}

CLEAN_TEST(writing_through_views_fails_in_graphs) {
    GD_SCOPE;
    gd_tensor *w = gd_full(gd_dims(2), 3);
    CHECK(gd_jit_call(gd_jit_new(write_a_view, w), gd_list(gd_ones(gd_dims(1)))).count > 0);
    CHECK_SAYING(gd_error_status() == GD_E_UNSUPPORTED && says("is a view (slice)"), "%s",
                 gd_error_message());
    gd_clear_error();
    gd_jit_call(gd_jit_new(write_under_a_view, w), gd_list(gd_ones(gd_dims(2))));
    CHECK_SAYING(gd_error_status() == GD_E_UNSUPPORTED && says("has a view (reshape of ") &&
                     says("test_tracing.c"),
                 "%s", gd_error_message());
    gd_clear_error();
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_tensor *v = gd_variable(w, .name = "v");
    gd_add_(v, w);
    CHECK_SAYING(gd_error_status() == GD_E_STATE && says("the variable 'v'") && says("gd_assign"),
                 "%s", gd_error_message());
    gd_clear_error();
}

typedef struct norm {
    gd_tensor *mean, *var;
} norm;
static gd_tensors normalize_batch(gd_tensors in, void *user) {
    norm *n = user;
    return gd_listed(gd_batch_norm(in.at[0], NULL, NULL, n->mean, n->var, .training = true));
}

/* The backward pass recomputes the call, and must not update the statistics twice. */
CLEAN_TEST(running_statistics_are_not_updated_in_backward) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_from_array(gd_dims(2, 1), GD_F32, (float[]){2, 6}));
    norm n = {gd_full(gd_dims(1), 0), gd_full(gd_dims(1), 1)};
    gd_jit *jit = gd_jit_new(normalize_batch, &n);
    for (int call = 0; call < 2; call++)
        CHECK(gd_backward(gd_sum(gd_square(gd_jit_call(jit, gd_list(x)).at[0]))) == GD_OK);
    CHECK_SAYING(fabs(gd_item(n.mean) - 0.76) < 1e-5, "%g, not 0.76 %s", gd_item(n.mean),
                 gd_error_message());
}

static gd_tensors count_and_scale(gd_tensors in, void *user) {
    gd_add_(user, gd_scalar(1));
    return gd_listed(gd_mul(in.at[0], user));
}

CLEAN_TEST(a_gradient_that_needs_an_overwritten_value_fails) {
    GD_SCOPE;
    gd_tensor *count = gd_full(gd_dims(), 1), *x = gd_requires_grad(gd_ones(gd_dims(2)));
    gd_tensor *y = gd_jit_call(gd_jit_new(count_and_scale, count), gd_list(x)).at[0];
    CHECK(gd_item(gd_max(y)) == 2 && gd_item(count) == 2);
    CHECK_SAYING(gd_backward(gd_sum(y)) == GD_E_STATE && says("by the function itself"), "%s",
                 gd_error_message());
    gd_clear_error();
    CHECK(gd_item(count) == 2);
}

/* The tape treats a write by a jit as any other write. */
CLEAN_TEST(a_saved_value_that_a_jit_has_overwritten_is_an_error) {
    GD_SCOPE;
    gd_tensor *count = gd_full(gd_dims(), 1), *x = gd_requires_grad(gd_ones(gd_dims(2)));
    gd_tensor *y = gd_sum(gd_mul(x, count));
    gd_jit_call(gd_jit_new(count_and_scale, count), gd_list(gd_ones(gd_dims(2))));
    CHECK_SAYING(gd_item(count) == 2 && gd_backward(y) == GD_E_STATE && says("overwritten since"),
                 "%s", gd_error_message());
    gd_clear_error();
}

static gd_tensors drop_twice(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_dropout(gd_dropout(in.at[0], .p = 0.3), .p = 0.5));
}
static gd_tensor *drop_by_jit(gd_tensors in, void *user) { return gd_jit_call(user, in).at[0]; }

/* A call uses the generator's numbers, whether it traces the function or uses an existing plan. */
CLEAN_TEST(random_numbers_follow_the_seed_as_in_eager_code) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(100))), *calls[3][3];
    gd_jit *jit = gd_jit_new(drop_twice, NULL, .level = 0);
    for (int variant = 0; variant < 3; variant++) { /* traced now, traced before, without a jit */
        gd_seed(9);
        for (int i = 0; i < 3; i++)
            calls[variant][i] =
                (variant < 2 ? gd_jit_call(jit, gd_list(x)) : drop_twice(gd_list(x), NULL)).at[0];
    }
    for (int i = 0; i < 3; i++) {
        CHECK_SAYING(gd_item(gd_sum(gd_abs(gd_sub(calls[0][i], calls[1][i])))) == 0,
                     "call %d, after the seed was set again", i);
        CHECK_SAYING(gd_item(gd_sum(gd_abs(gd_sub(calls[0][i], calls[2][i])))) == 0,
                     "call %d, as an eager function", i);
    }
    CHECK(gd_item(gd_sum(gd_abs(gd_sub(calls[0][0], calls[0][1])))) > 0);
    /* gd_recompute repeats the call with the numbers of the first one */
    gd_tensor *y = gd_recompute(drop_by_jit, gd_list(x), jit);
    CHECK(gd_backward(gd_sum(y)) == GD_OK &&
          gd_item(gd_sum(gd_abs(gd_sub(y, gd_tensor_grad(x))))) == 0);
}

static gd_tensors less_than_three(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_lt(in.at[0], gd_scalar(3)));
}
static gd_tensors drop_once_more(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_add(in.at[0], gd_scalar(1)), gd_dropout(in.at[1], .p = 0.5));
}
static gd_tensors drop_in_a_loop(gd_tensors in, void *user) {
    return gd_listed(
        gd_while_loop(less_than_three, drop_once_more, gd_list(gd_scalar(0), in.at[0]), user)
            .at[1]);
}

CLEAN_TEST(random_numbers_in_a_loop_repeat_in_backward) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(100)));
    gd_jit *jit = gd_jit_new(drop_in_a_loop, NULL);
    for (int call = 0; call < 3; call++) {
        gd_zero_grad(x);
        gd_tensor *y = gd_jit_call(jit, gd_list(x)).at[0];
        CHECK(gd_backward(gd_sum(y)) == GD_OK && gd_item(gd_max(y)) == 8);
        CHECK_SAYING(tensors_distance(y, gd_tensor_grad(x)) == 0, "call %d %s", call,
                     gd_error_message());
    }
}

static gd_tensors train_and_return(gd_tensors in, void *user) {
    return gd_listed(gd_sum(gd_tanh(gd_matmul(in.at[0], user))));
}

typedef struct caller {
    gd_jit *jit;
    gd_tensor *w;
    double expected, seen;
} caller;
static void *call_often(void *arg) {
    caller *c = arg;
    for (int i = 0; i < 20; i++) {
        GD_SCOPE;
        gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(1 + i % 3, 4)));
        gd_tensor *y = gd_jit_call(c->jit, gd_list(x)).at[0];
        gd_tensor *g = gd_grad(gd_list(y), gd_list(x)).at[0];
        if (i % 3 == 0) c->seen = gd_item(gd_sum(g));
        if (gd_failed() || c->seen != c->expected) return "failed";
    }
    return NULL;
}

CLEAN_TEST(several_threads_may_call_one_jit) {
    GD_SCOPE;
    gd_tensor *w = gd_full(gd_dims(4, 4), 0.1), *x = gd_requires_grad(gd_ones(gd_dims(1, 4)));
    const double expected =
        gd_item(gd_sum(gd_grad(gd_list(train_and_return(gd_list(x), w).at[0]), gd_list(x)).at[0]));
    pthread_t threads[4];
    caller callers[4];
    gd_jit *jit = gd_jit_new(train_and_return, w, .level = 0);
    for (int i = 0; i < 4; i++) {
        callers[i] = (caller){jit, w, expected, 0};
        pthread_create(&threads[i], NULL, call_often, &callers[i]);
    }
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        CHECK_SAYING(!wrong, "%g, not %g", callers[i].seen, expected);
    }
    CHECK(gd_jit_traces(jit) == 3);
}

TEST_MAIN
