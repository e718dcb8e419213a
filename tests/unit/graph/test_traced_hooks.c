/* test_traced_hooks.c - gradient hooks in traced functions, and on tensors that jits use. */
#include "clean_test.h"
#include "gradus/gradus.h"

static double element(gd_tensor *t, int i) { return ((const float *)gd_data(gd_contiguous(t)))[i]; }

static int calls;
static gd_tensor *triple_hook(gd_tensor *g, void *user) {
    (void)user;
    calls++;
    return gd_mul(g, gd_scalar(3));
}
static gd_tensor *count_hook(gd_tensor *g, void *user) {
    (void)g, (void)user;
    calls++;
    return NULL;
}
static gd_tensor *read_hook(gd_tensor *g, void *user) {
    (void)user;
    return gd_item(gd_sum(g)) > 0 ? gd_neg(g) : g;
}
static gd_tensor *read_captured_hook(gd_tensor *g, void *user) {
    float seen[2] = {0};
    gd_copy_to(user, seen, sizeof seen);
    return gd_mul(g, gd_scalar(seen[0]));
}
static gd_tensor *copy_hook(gd_tensor *g, void *user) {
    gd_copy_from(user, (float[]){1, 2}, 2 * sizeof(float));
    return gd_neg(g);
}
static gd_tensor *assign_hook(gd_tensor *g, void *user) {
    gd_assign(user, g);
    return NULL;
}

typedef struct net {
    gd_tensor *w, *seen;
    gd_hook_fn hook;
} net;

/* sum (x w)^2, with a hook on x w. */
static gd_tensors forward_net(gd_tensors in, void *user) {
    net *n = user;
    gd_tensor *y = gd_mul(in.at[0], n->w);
    if (n->hook) gd_tensor_hook(y, n->hook, n->seen);
    return gd_listed(gd_sum(gd_square(y)));
}

static net make_net(gd_hook_fn hook) {
    return (net){gd_requires_grad(gd_full(gd_dims(2), 2)), gd_zeros(gd_dims(2)), hook};
}

CLEAN_TEST(a_hook_in_a_function_that_calls_ops_is_part_of_the_gradient) {
    GD_SCOPE;
    net n = make_net(triple_hook);
    gd_jit *jit = gd_jit_new(forward_net, &n);
    for (int i = 1; i < 4; i++) {
        gd_tensor *x = gd_full(gd_dims(2), i), *y = gd_jit_call(jit, gd_list(x)).at[0];
        gd_tensor *g = gd_grad(gd_list(y), gd_list(n.w)).at[0];
        CHECK_SAYING(!gd_failed() && element(g, 0) == 3 * 2 * 2 * i * i, "%s", gd_error_message());
    }
}

CLEAN_TEST(leaf_hooks_are_called_once_in_each_backward_through_a_jit) {
    GD_SCOPE;
    net n = make_net(NULL);
    gd_jit *jit = gd_jit_new(forward_net, &n);
    gd_tensor_hook(n.w, triple_hook, NULL);
    for (int i = 1; i < 4; i++) {
        gd_tensor *x = gd_full(gd_dims(2), i), *y = gd_jit_call(jit, gd_list(x)).at[0];
        calls = 0;
        gd_tensor *g = gd_grad(gd_list(y), gd_list(n.w)).at[0];
        CHECK_SAYING(!gd_failed() && calls == 1 && element(g, 0) == 3 * 2 * 2 * i * i,
                     "%d calls, %g: %s", calls, element(g, 0), gd_error_message());
    }
    net eager = make_net(NULL);
    gd_tensor_hook(eager.w, count_hook, NULL); /* it runs on values, so it may contain any C code */
    gd_jit *other = gd_jit_new(forward_net, &eager);
    calls = 0;
    for (int i = 0; i < 3; i++) gd_backward(gd_jit_call(other, gd_list(gd_ones(gd_dims(2)))).at[0]);
    CHECK(!gd_failed() && calls == 3 && element(gd_tensor_grad(eager.w), 0) == 12);
}

CLEAN_TEST(hooks_of_captured_results_are_called_once) {
    GD_SCOPE;
    gd_tensor *v = gd_requires_grad(gd_full(gd_dims(2), 2));
    net n = {.w = gd_mul(v, gd_scalar(1))};
    gd_tensor_hook(n.w, triple_hook, NULL);
    gd_jit *jit = gd_jit_new(forward_net, &n);
    gd_tensor *y = gd_jit_call(jit, gd_list(gd_ones(gd_dims(2)))).at[0];
    calls = 0;
    gd_backward(y);
    CHECK_SAYING(!gd_failed() && calls == 1 && element(gd_tensor_grad(v), 0) == 12,
                 "%d calls, %g: %s", calls, element(gd_tensor_grad(v), 0), gd_error_message());
}

/* A step that writes its leaf before its backward pass. */
static gd_tensors write_and_step(gd_tensors in, void *user) {
    net *n = user;
    gd_tensor *first = gd_sum(gd_add(in.at[0], n->w));
    {
        GD_NO_GRAD;
        gd_add_(n->w, gd_scalar(1));
    }
    gd_backward(gd_add(first, gd_sum(gd_square(gd_mul(in.at[0], n->w)))));
    return gd_nothing;
}

CLEAN_TEST(a_traced_step_calls_leaf_hooks_as_eager_code_does) {
    GD_SCOPE;
    net traced = make_net(NULL), eager = make_net(NULL);
    gd_tensor_hook(traced.w, triple_hook, NULL);
    gd_tensor_hook(eager.w, triple_hook, NULL);
    gd_jit *jit = gd_jit_new(write_and_step, &traced);
    for (int i = 1; i < 4; i++) {
        gd_tensor *x = gd_full(gd_dims(2), i);
        write_and_step(gd_list(x), &eager);
        gd_jit_call(jit, gd_list(x));
        CHECK_SAYING(!gd_failed() && element(gd_tensor_grad(traced.w), 1) ==
                                         element(gd_tensor_grad(eager.w), 1),
                     "%g, not %g: %s", element(gd_tensor_grad(traced.w), 1),
                     element(gd_tensor_grad(eager.w), 1), gd_error_message());
    }
}

/* The backward pass is part of the function: the hook writes in each call. */
static gd_tensors backward_in_function(gd_tensors in, void *user) {
    gd_backward(forward_net(in, user).at[0]);
    return gd_nothing;
}

CLEAN_TEST(a_hook_may_write_with_ops_in_a_traced_backward) {
    GD_SCOPE;
    net n = make_net(assign_hook);
    gd_jit *jit = gd_jit_new(backward_in_function, &n);
    for (int i = 1; i < 4; i++) {
        gd_jit_call(jit, gd_list(gd_full(gd_dims(2), i)));
        CHECK_SAYING(!gd_failed() && element(n.seen, 1) == 2 * 2 * i, "%g: %s", element(n.seen, 1),
                     gd_error_message());
    }
}

CLEAN_TEST(hooks_that_would_run_only_while_tracing_fail) {
    GD_SCOPE;
    static const struct {
        gd_hook_fn hook;
        bool in_function;
        const char *says[2];
    } tries[] = {
        {count_hook, false, {"calls no ops", "test_traced_hooks.c"}},
        {count_hook, true, {"calls no ops", "test_traced_hooks.c"}},
        {read_hook, false, {"gd_item", "test_traced_hooks.c"}},
        {read_hook, true, {"gd_item", "test_traced_hooks.c"}},
        {read_captured_hook, false, {"gd_copy_to in the hook of", "test_traced_hooks.c"}},
        {read_captured_hook, true, {"gd_copy_to in the hook of", "test_traced_hooks.c"}},
        {copy_hook, false, {"gd_copy_from in the hook of", "test_traced_hooks.c"}},
        {copy_hook, true, {"gd_copy_from in the hook of", "test_traced_hooks.c"}},
        {assign_hook, false, {"is written in the hook of", "test_traced_hooks.c"}},
    };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        GD_SCOPE;
        net n = make_net(tries[i].hook);
        gd_jit *jit = gd_jit_new(tries[i].in_function ? backward_in_function : forward_net, &n);
        gd_tensors y = gd_jit_call(jit, gd_list(gd_ones(gd_dims(2))));
        if (!tries[i].in_function) gd_backward(y.at[0]);
        CHECK_SAYING(gd_failed() && says(tries[i].says[0]) && says(tries[i].says[1]), "%zu: %s", i,
                     gd_error_message());
        gd_clear_error();
        CHECK(element(n.seen, 0) == 0);
    }
}

static gd_tensors hook_in_branch(gd_tensors in, void *user) {
    return gd_cond(gd_gt(gd_sum(in.at[0]), gd_scalar(0)), forward_net, forward_net, in, user);
}
static gd_tensors hook_before_branch(gd_tensors in, void *user) {
    net *n = user;
    gd_tensor *y = gd_mul(in.at[0], n->w);
    gd_tensor_hook(y, triple_hook, NULL);
    net inner = {.w = n->w};
    return gd_cond(gd_gt(gd_sum(y), gd_scalar(0)), forward_net, forward_net, gd_list(y), &inner);
}
static gd_tensors hook_captured_tensor(gd_tensors in, void *user) {
    net *n = user;
    gd_tensor_hook(n->w, triple_hook, NULL);
    return gd_listed(gd_sum(gd_mul(in.at[0], n->w)));
}

CLEAN_TEST(hooks_that_would_not_be_called_fail) {
    GD_SCOPE;
    const gd_body functions[] = {hook_in_branch, hook_before_branch, hook_captured_tensor};
    const char *words[] = {"in a branch or in the body of a loop",
                           "goes through a branch or a loop", "in the function of a gd_jit"};
    for (int i = 0; i < 3; i++) {
        GD_SCOPE;
        net n = make_net(triple_hook);
        gd_tensors y = gd_jit_call(gd_jit_new(functions[i], &n), gd_list(gd_ones(gd_dims(2))));
        if (!gd_failed()) gd_backward(y.at[0]);
        CHECK_SAYING(gd_failed() && says(words[i]) && says("test_traced_hooks.c"), "%d: %s", i,
                     gd_error_message());
        gd_clear_error();
    }
}

/* --- captured tensors computed from other captured tensors ------------------------------------ */

typedef struct both {
    gd_tensor *v, *w; /* w is computed from v */
} both;
static gd_tensors use_both(gd_tensors in, void *user) {
    both *b = user;
    return gd_listed(gd_sum(gd_mul(in.at[0], gd_mul(b->v, b->w))));
}

CLEAN_TEST(a_leaf_reached_through_two_captured_tensors_gets_its_gradient_once) {
    GD_SCOPE;
    gd_tensor *v = gd_requires_grad(gd_full(gd_dims(2), 2));
    both b = {v, gd_mul(v, gd_scalar(5))};
    gd_jit *jit = gd_jit_new(use_both, &b);
    gd_tensor *x = gd_ones(gd_dims(2));
    gd_tensor *eager =
        gd_grad(gd_list(use_both(gd_list(x), &b).at[0]), gd_list(v), .retain_graph = true).at[0];
    gd_tensor *traced = gd_grad(gd_list(gd_jit_call(jit, gd_list(x)).at[0]), gd_list(v)).at[0];
    CHECK_SAYING(!gd_failed() && element(eager, 0) == 20 && element(traced, 0) == 20, "%s",
                 gd_error_message());
}

TEST_MAIN
