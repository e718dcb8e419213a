/* test_eager_in_trace.c - parameters that are created during a trace or while a graph is built. */
#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"
#include "graph/build/graph.h"

/* A layer that creates its weight in the first forward. */
typedef struct lazy {
    gd_tensor *w;
    int created;
} lazy;

static gd_tensor *weight(lazy *l, int64_t n) {
    if (l->w) return l->w;
    GD_EAGER;
    GD_SCOPE;
    GD_NO_GRAD;
    l->created++;
    gd_tensor *w = gd_mul_(gd_randn(gd_dims(n, 2)), gd_scalar(0.5));
    return l->w = gd_retain(gd_requires_grad(w));
}

static gd_tensors forward(gd_tensors in, void *user) {
    gd_tensor *w = weight(user, gd_tensor_dim(in.at[0], 1));
    gd_tensor *y = gd_dropout(gd_tanh(gd_matmul(in.at[0], w)), .p = 0.5);
    return gd_listed(gd_sum(y));
}

CLEAN_TEST(a_parameter_created_in_a_trace_is_a_leaf_with_a_gradient) {
    GD_SCOPE;
    lazy eager = {NULL, 0}, traced = {NULL, 0};
    gd_jit *jit = gd_jit_new(forward, &traced, .level = 0);
    gd_tensor *x = gd_full(gd_dims(4, 3), 0.3);
    double expected[2];
    gd_seed(5);
    for (int i = 0; i < 2; i++) {
        gd_tensor *y = forward(gd_list(x), &eager).at[0];
        gd_backward(y);
        expected[i] = gd_item(y);
    }
    gd_seed(5);
    for (int i = 0; i < 2; i++) {
        gd_tensor *y = gd_jit_call(jit, gd_list(x)).at[0];
        CHECK(gd_backward(y) == GD_OK && gd_item(y) == expected[i]);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(eager.created == 1 && traced.created == 1 && gd_jit_traces(jit) == 1);
    CHECK(!gd_tensor_is_symbol(traced.w) && tensors_same_bits(eager.w, traced.w));
    CHECK(gd_tensor_grad(traced.w) &&
          tensors_same_bits(gd_tensor_grad(eager.w), gd_tensor_grad(traced.w)));
    gd_release(eager.w);
    gd_release(traced.w);
}

/* A training step: gd_backward finds the parameter that the step created. */
static gd_tensors train_step(gd_tensors in, void *user) {
    gd_tensor *loss = forward(in, user).at[0];
    gd_backward(loss);
    lazy *l = user;
    GD_NO_GRAD;
    gd_sub_(l->w, gd_mul(gd_tensor_grad(l->w), gd_scalar(0.1)));
    gd_zero_grad(l->w);
    return gd_listed(loss);
}

CLEAN_TEST(a_traced_step_trains_a_parameter_that_it_creates) {
    GD_SCOPE;
    lazy eager = {NULL, 0}, traced = {NULL, 0};
    gd_jit *jit = gd_jit_new(train_step, &traced, .level = 0);
    gd_tensor *x = gd_full(gd_dims(4, 3), 0.3);
    gd_seed(7);
    for (int i = 0; i < 3; i++) train_step(gd_list(x), &eager);
    gd_seed(7);
    for (int i = 0; i < 3; i++) gd_jit_call(jit, gd_list(x));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(traced.created == 1 && tensors_same_bits(eager.w, traced.w));
    gd_release(eager.w);
    gd_release(traced.w);
}

static gd_tensors forward_in_branches(gd_tensors in, void *user) {
    return gd_cond(gd_gt(gd_sum(in.at[0]), gd_scalar(0)), forward, forward, in, user);
}

CLEAN_TEST(a_parameter_may_be_created_in_a_branch) {
    GD_SCOPE;
    lazy l = {NULL, 0};
    gd_jit *jit = gd_jit_new(forward_in_branches, &l);
    gd_tensor *x = gd_ones(gd_dims(2, 3));
    CHECK(gd_backward(gd_jit_call(jit, gd_list(x)).at[0]) == GD_OK);
    CHECK_SAYING(!gd_failed() && l.created == 1 && gd_tensor_grad(l.w), "%s", gd_error_message());
    gd_release(l.w);
}

CLEAN_TEST(a_graph_captures_a_parameter_created_while_it_is_built) {
    GD_SCOPE;
    lazy l = {NULL, 0};
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *g;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(2, 3));
        y = gd_sum(gd_matmul(x, weight(&l, 3)));
        g = gd_grad(gd_list(y), gd_list(l.w)).at[0];
        CHECK(gd_tensor_is_symbol(gd_randn(gd_dims(2)))); /* tracing is on again */
    }
    gd_session *s = gd_session_new(graph, .level = 0);
    gd_tensor *ones = gd_ones(gd_dims(2, 3));
    gd_tensors r = gd_session_run(s, gd_feed(x, ones), gd_list(y, g));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(gd_item(r.at[0]) == gd_item(gd_sum(gd_matmul(ones, l.w))) &&
          ((float *)gd_data(r.at[1]))[3] == 2);
    gd_release(l.w);
}

TEST_MAIN
