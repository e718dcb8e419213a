/* test_traced_steps.c - training steps with gd_backward and an optimizer in a gd_jit. */
#include <math.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"

enum { METHODS = 4, PARAMETERS = 6, STEPS = 7 };
static const char *const method_names[METHODS] = {"sgd", "momentum", "nesterov", "adam"};

/* Two dense layers with batch norm and dropout between them. */
typedef struct net {
    gd_tensor *w[PARAMETERS], *mean, *var;
    gd_optimizer *optimizer;
    bool clips, adds, noisy; /* optional parts of its steps */
} net;

static gd_optimizer *optimizer_of(int method, gd_tensors parameters) {
    if (method == 0) return gd_optim_sgd(parameters, .lr = 0.1, .weight_decay = 0.01);
    if (method == 1) return gd_optim_sgd(parameters, .lr = 0.1, .momentum = 0.9);
    if (method == 2) return gd_optim_sgd(parameters, .lr = 0.1, .momentum = 0.9, .nesterov = true);
    return gd_optim_adam(parameters, .lr = 0.01);
}

static net make_net(int method) {
    gd_seed(7);
    net n = {.mean = gd_zeros(gd_dims(16)), .var = gd_ones(gd_dims(16)), .noisy = true};
    const gd_shape shapes[] = {gd_dims(16, 5), gd_dims(16),    gd_dims(16),
                               gd_dims(16),    gd_dims(3, 16), gd_dims(3)};
    for (int i = 0; i < PARAMETERS; i++) {
        gd_tensor *w = gd_mul(gd_randn(shapes[i]), gd_scalar(0.4));
        n.w[i] = gd_requires_grad(w);
    }
    n.optimizer = optimizer_of(method, (gd_tensors){n.w, PARAMETERS});
    return n;
}

static gd_tensor *loss_of(const net *n, gd_tensor *x, gd_tensor *y) {
    x = gd_batch_norm(gd_linear(x, n->w[0], n->w[1]), n->w[2], n->w[3], n->mean, n->var,
                      .training = true);
    x = gd_relu(x);
    if (n->noisy) x = gd_dropout(x, .p = 0.3);
    return gd_cross_entropy(gd_linear(x, n->w[4], n->w[5]), y);
}

/* Scales gradients in place if their common norm is too large. */
static gd_tensor *clip_gradients(net *n) {
    GD_NO_GRAD;
    gd_tensor *sum = gd_scalar(0);
    for (int i = 0; i < PARAMETERS; i++)
        sum = gd_add(sum, gd_sum(gd_square(gd_tensor_grad(n->w[i]))));
    gd_tensor *norm = gd_sqrt(sum), *scale = gd_minimum(gd_scalar(1), gd_div(gd_scalar(0.5), norm));
    for (int i = 0; i < PARAMETERS; i++) gd_mul_(gd_tensor_grad(n->w[i]), scale);
    return norm;
}

static gd_tensors train_step(gd_tensors in, void *user) {
    net *n = user;
    if (!n->adds) gd_optimizer_zero_grad(n->optimizer);
    gd_tensor *loss = loss_of(n, in.at[0], in.at[1]);
    gd_backward(loss);
    gd_tensor *norm = n->clips ? clip_gradients(n) : loss;
    gd_optimizer_step(n->optimizer);
    return gd_listed(loss, norm);
}

/* Returns the largest difference in anything that the steps have changed, or -1 if only one net has
 * a gradient. */
static double largest_difference(const net *a, const net *b) {
    GD_NO_GRAD;
    double most = fmax(tensors_distance(a->mean, b->mean), tensors_distance(a->var, b->var));
    for (int i = 0; i < PARAMETERS; i++) {
        gd_tensor *g = gd_tensor_grad(a->w[i]), *h = gd_tensor_grad(b->w[i]);
        most = fmax(most, tensors_distance(a->w[i], b->w[i]));
        if (!g != !h) return -1;
        if (g) most = fmax(most, tensors_distance(g, h));
    }
    return most;
}

/* Both nets take the same steps, one of them in a jit; the learning rate changes in between. */
static void compare_nets(net *a, net *b, int level, int traces, const char *what) {
    const double tolerance = level == 0 ? 0 : 1e-4;
    gd_jit *jit = gd_jit_new(train_step, a, .level = level);
    for (int i = 0; i < STEPS; i++) {
        GD_SCOPE;
        gd_tensor *x = gd_randn(gd_dims(12, 5)), *y = gd_randint(gd_dims(12), 0, 3);
        if (i == 3)
            gd_optimizer_set_lr(a->optimizer, 0.02), gd_optimizer_set_lr(b->optimizer, 0.02);
        gd_seed((uint64_t)(100 + i));
        gd_tensors fast = gd_jit_call(jit, gd_list(x, y));
        gd_seed((uint64_t)(100 + i));
        gd_tensors slow = train_step(gd_list(x, y), b);
        CHECK_SAYING(!gd_failed(), "%s, level %d, step %d: %s", what, level, i, gd_error_message());
        if (gd_failed()) return;
        const double apart = largest_difference(a, b),
                     loss = tensors_distance(fast.at[0], slow.at[0]) +
                            tensors_distance(fast.at[1], slow.at[1]);
        CHECK_SAYING(apart >= 0 && apart <= tolerance && loss <= tolerance,
                     "%s, level %d, step %d: %g apart, losses %g", what, level, i, apart, loss);
    }
    CHECK_SAYING(gd_jit_traces(jit) == traces, "%s, level %d: traced %d times, not %d", what, level,
                 gd_jit_traces(jit), traces);
}

CLEAN_TEST(a_step_in_a_jit_has_the_same_effects_as_an_eager_step) {
    for (int method = 0; method < METHODS; method++)
        for (int level = 0; level <= 2; level++) {
            GD_SCOPE;
            net a = make_net(method), b = make_net(method);
            compare_nets(&a, &b, level, 1, method_names[method]);
        }
}

/* The first call finds no gradients, the later ones do. */
CLEAN_TEST(gradients_accumulate_until_they_are_cleared) {
    for (int level = 0; level <= 2; level += 2) {
        GD_SCOPE;
        net a = make_net(3), b = make_net(3);
        a.adds = b.adds = true;
        compare_nets(&a, &b, level, 2, "adding");
    }
}

CLEAN_TEST(gradients_may_be_read_and_written_between_backward_and_step) {
    for (int level = 0; level <= 2; level += 2) {
        GD_SCOPE;
        net a = make_net(1), b = make_net(1);
        a.clips = b.clips = true;
        compare_nets(&a, &b, level, 1, "clipping");
    }
}

CLEAN_TEST(steps_in_a_jit_and_eager_steps_may_alternate) {
    GD_SCOPE;
    net a = make_net(3), b = make_net(3);
    gd_jit *jit = gd_jit_new(train_step, &a, .level = 0);
    a.noisy = b.noisy = false;
    for (int i = 0; i < 6; i++) {
        gd_tensor *x = gd_randn(gd_dims(4 + i % 2, 5)), *y = gd_randint(gd_dims(4 + i % 2), 0, 3);
        if (i % 3 == 1) train_step(gd_list(x, y), &a);
        else gd_jit_call(jit, gd_list(x, y));
        train_step(gd_list(x, y), &b);
    }
    CHECK_SAYING(!gd_failed() && largest_difference(&a, &b) == 0, "%g %s",
                 largest_difference(&a, &b), gd_error_message());
    CHECK(gd_jit_traces(jit) == 2);
}

/* --- gradients without an optimizer ----------------------------------------------------------- */

static gd_tensors backward_body(gd_tensors in, void *user) {
    net *n = user;
    gd_tensor *loss = loss_of(n, in.at[0], in.at[1]);
    gd_backward(loss);
    return gd_listed(loss);
}

/* Some calls, then a step outside: each of the two kinds of calls is traced once. */
CLEAN_TEST(gradients_of_several_calls_accumulate) {
    GD_SCOPE;
    net a = make_net(0), b = make_net(0);
    a.noisy = b.noisy = false;
    gd_jit *jit = gd_jit_new(backward_body, &a, .level = 0);
    for (int i = 0; i < 9; i++) {
        GD_SCOPE;
        gd_tensor *x = gd_randn(gd_dims(6, 5)), *y = gd_randint(gd_dims(6), 0, 3),
                  *held = gd_tensor_grad(a.w[0]);
        gd_jit_call(jit, gd_list(x, y));
        backward_body(gd_list(x, y), &b);
        CHECK(!held || gd_tensor_grad(a.w[0]) == held); /* accumulated in place */
        CHECK_SAYING(!gd_failed() && largest_difference(&a, &b) == 0, "call %d: %g %s", i,
                     largest_difference(&a, &b), gd_error_message());
        if (i % 3 < 2) continue;
        gd_optimizer_step(a.optimizer), gd_optimizer_step(b.optimizer);
        gd_optimizer_zero_grad(a.optimizer), gd_optimizer_zero_grad(b.optimizer);
    }
    CHECK_SAYING(gd_jit_traces(jit) == 2, "%d", gd_jit_traces(jit));
}

typedef struct pair {
    gd_tensor *a, *b;
} pair;

/* Both gradients are the same symbol. */
static gd_tensors add_both(gd_tensors in, void *user) {
    const pair *p = user;
    gd_tensor *loss = gd_sum(gd_mul(gd_add(p->a, p->b), in.at[0]));
    gd_backward(loss);
    return gd_listed(loss);
}

CLEAN_TEST(each_leaf_has_a_gradient_of_its_own) {
    for (int level = 0; level <= 2; level++) {
        GD_SCOPE;
        pair p = {gd_requires_grad(gd_ones(gd_dims(3))), gd_requires_grad(gd_ones(gd_dims(3)))};
        gd_tensor *x = gd_full(gd_dims(3), 5);
        gd_jit *jit = gd_jit_new(add_both, &p, .level = level);
        gd_jit_call(jit, gd_list(x));
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        if (gd_failed()) return;
        gd_add_(gd_tensor_grad(p.a), gd_scalar(100));
        CHECK(gd_item(gd_max(gd_tensor_grad(p.b))) == 5 && gd_item(gd_max(x)) == 5 &&
              gd_item(gd_max(gd_tensor_grad(p.a))) == 105);
        gd_tensor *held = gd_retain(gd_tensor_grad(p.b)); /* a retained gradient stays unchanged */
        gd_zero_grad(p.a), gd_zero_grad(p.b);
        gd_jit_call(jit, gd_list(gd_full(gd_dims(3), 7)));
        CHECK(gd_item(gd_max(held)) == 5 && gd_item(gd_max(gd_tensor_grad(p.b))) == 7);
        gd_release(held);
    }
}

/* Reads the earlier gradient, clears it, runs backward, and sets the other gradient to the sum. */
static gd_tensors exchange_gradients(gd_tensors in, void *user) {
    const pair *p = user;
    gd_tensor *before = gd_tensor_grad(p->a);
    gd_zero_grad(p->a);
    gd_backward(gd_sum(gd_mul(p->a, in.at[0])));
    gd_set_grad(p->b, before ? gd_add(before, gd_tensor_grad(p->a)) : gd_tensor_grad(p->a));
    return gd_nothing;
}

CLEAN_TEST(gradients_may_be_set_and_cleared) {
    for (int level = 0; level <= 2; level += 2) {
        GD_SCOPE;
        pair p = {gd_requires_grad(gd_ones(gd_dims(3))), gd_requires_grad(gd_ones(gd_dims(3)))};
        gd_jit *jit = gd_jit_new(exchange_gradients, &p, .level = level);
        const double expected[] = {1, 1 + 2, 2 + 3, 3 + 4};
        for (int i = 0; i < 4; i++) {
            gd_jit_call(jit, gd_list(gd_full(gd_dims(3), i + 1)));
            CHECK_SAYING(!gd_failed() && gd_item(gd_max(gd_tensor_grad(p.a))) == i + 1 &&
                             gd_item(gd_max(gd_tensor_grad(p.b))) == expected[i],
                         "level %d, call %d: %s", level, i, gd_error_message());
        }
        CHECK(gd_jit_traces(jit) == 2);
    }
}

/* Accumulates into the gradient, returns it, and clears it. */
static gd_tensors accumulate_and_clear(gd_tensors in, void *user) {
    const pair *p = user;
    gd_backward(gd_sum(gd_mul(p->a, in.at[0])));
    gd_tensor *sum = gd_sum(gd_tensor_grad(p->a));
    gd_zero_grad(p->a);
    return gd_listed(sum);
}

CLEAN_TEST(gradients_cleared_at_the_end_are_gone) {
    GD_SCOPE;
    pair p = {gd_requires_grad(gd_ones(gd_dims(3))), NULL};
    gd_jit *jit = gd_jit_new(accumulate_and_clear, &p);
    for (int i = 0; i < 4; i++) {
        if (i % 2) gd_set_grad(p.a, gd_full(gd_dims(3), 10));
        const double sum = gd_item(gd_jit_call(jit, gd_list(gd_ones(gd_dims(3)))).at[0]);
        CHECK_SAYING(sum == (i % 2 ? 33 : 3) && !gd_tensor_grad(p.a), "call %d: %g %s", i, sum,
                     gd_error_message());
    }
    CHECK(gd_jit_traces(jit) == 2);
}

CLEAN_TEST(steps_in_a_graph_outside_a_jit_fail) {
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(gd_ones(gd_dims(2)));
    gd_optimizer *sgd = gd_optim_sgd(gd_list(w), .lr = 1);
    gd_backward(gd_sum(w));
    gd_optimizer_lr(sgd);
    {
        gd_graph *graph = gd_graph_new();
        GD_GRAPH(graph);
        CHECK(gd_optimizer_step(sgd) == GD_E_STATE && says("gd_minimize") && says("gd_jit"));
        gd_clear_error();
        CHECK(gd_optimizer_set_lr(sgd, 0.5) == GD_OK);
    }
    CHECK(gd_optimizer_step(sgd) == GD_OK && gd_item(gd_max(w)) == 0.5);
}

/* Gradients used in the loss are constants, as they are without .create_graph. */
static gd_tensors penalty_step(gd_tensors in, void *user) {
    gd_tensor *w = user;
    gd_zero_grad(w);
    gd_backward(gd_sum(gd_mul(gd_square(w), in.at[0])), .retain_graph = true);
    gd_tensor *g = gd_tensor_grad(w);
    gd_tensor *loss = gd_sum(gd_mul(gd_mul(g, gd_scalar(1)), w));
    gd_backward(loss);
    return gd_listed(loss);
}

CLEAN_TEST(a_gradient_has_no_gradient) {
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(gd_full(gd_dims(2), 3)),
              *v = gd_requires_grad(gd_full(gd_dims(2), 3)), *x = gd_full(gd_dims(2), 5);
    gd_jit_call(gd_jit_new(penalty_step, w, .level = 0), gd_list(x));
    penalty_step(gd_list(x), v);
    CHECK_SAYING(!gd_failed() && tensors_distance(gd_tensor_grad(w), gd_tensor_grad(v)) == 0,
                 "%g, not %g: %s", gd_item(gd_max(gd_tensor_grad(w))),
                 gd_item(gd_max(gd_tensor_grad(v))), gd_error_message());
}

static gd_tensors penalty_by_grad_step(gd_tensors in, void *user) {
    gd_tensor *w = user, *loss = gd_sum(gd_mul(gd_square(w), in.at[0]));
    gd_tensor *number = gd_grad(gd_list(loss), gd_list(w), .retain_graph = true).at[0];
    gd_tensor *function = gd_grad(gd_list(loss), gd_list(w), .create_graph = true).at[0];
    gd_backward(gd_sum(gd_add(gd_mul(number, w), gd_square(function))));
    return gd_nothing;
}

CLEAN_TEST(a_gradient_has_a_gradient_with_create_graph) {
    for (int level = 0; level <= 2; level++) {
        GD_SCOPE;
        gd_tensor *w = gd_requires_grad(gd_full(gd_dims(2), 3)),
                  *v = gd_requires_grad(gd_full(gd_dims(2), 3)), *x = gd_full(gd_dims(2), 5);
        gd_jit_call(gd_jit_new(penalty_by_grad_step, w, .level = level), gd_list(x));
        penalty_by_grad_step(gd_list(x), v);
        CHECK_SAYING(!gd_failed() && tensors_distance(gd_tensor_grad(w), gd_tensor_grad(v)) == 0,
                     "%g, not %g: %s", gd_item(gd_max(gd_tensor_grad(w))),
                     gd_item(gd_max(gd_tensor_grad(v))), gd_error_message());
    }
}

/* --- two optimizers, and the learning rate ---------------------------------------------------- */

typedef struct players {
    gd_tensor *a, *b;
    gd_optimizer *of_a, *of_b;
} players;

static players make_players(void) {
    players p = {gd_requires_grad(gd_full(gd_dims(3), 2)),
                 gd_requires_grad(gd_full(gd_dims(3), 0.5)), NULL, NULL};
    p.of_a = gd_optim_adam(gd_list(p.a), .lr = 0.1);
    p.of_b = gd_optim_sgd(gd_list(p.b), .lr = 0.1, .momentum = 0.5);
    return p;
}

/* Two players update in turn, the second after seeing the first's update; the function sets a
 * learning rate and clamps a parameter. */
static gd_tensors play_round(gd_tensors in, void *user) {
    players *p = user;
    gd_optimizer_zero_grad(p->of_a);
    gd_backward(gd_sum(gd_square(gd_sub(gd_mul(p->a, p->b), in.at[0]))));
    gd_optimizer_set_lr(p->of_a, 0.3);
    gd_optimizer_step(p->of_a);
    gd_optimizer_zero_grad(p->of_b);
    gd_tensor *loss = gd_sum(gd_square(gd_add(gd_mul(p->a, p->b), in.at[0])));
    gd_backward(loss); /* also accumulates into the gradient of a */
    gd_optimizer_step(p->of_b);
    return gd_listed(loss);
}

CLEAN_TEST(a_leaf_that_was_written_is_still_a_leaf) {
    for (int level = 0; level <= 2; level += 2) {
        GD_SCOPE;
        players p = make_players(), q = make_players();
        gd_jit *jit = gd_jit_new(play_round, &p, .level = level);
        const double tolerance = level == 0 ? 0 : 1e-5;
        for (int i = 0; i < 6; i++) {
            gd_tensor *x = gd_randn(gd_dims(3));
            gd_jit_call(jit, gd_list(x));
            play_round(gd_list(x), &q);
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            if (gd_failed()) return;
            GD_NO_GRAD;
            CHECK(tensors_distance(p.a, q.a) <= tolerance &&
                  tensors_distance(p.b, q.b) <= tolerance);
            CHECK(tensors_distance(gd_tensor_grad(p.a), gd_tensor_grad(q.a)) <= tolerance &&
                  tensors_distance(gd_tensor_grad(p.b), gd_tensor_grad(q.b)) <= tolerance);
        }
        CHECK(gd_item(gd_optimizer_lr(p.of_a)) == gd_item(gd_optimizer_lr(q.of_a)));
    }
}

/* --- unsupported steps ------------------------------------------------------------------------ */

typedef enum { CREATE, OUTSIDE, HISTORY, BRANCH, OF_RESULT, NO_LEAF } unsupported_kind;
typedef struct unsupported_step {
    unsupported_kind kind;
    gd_tensor *w, *h;
    gd_optimizer *optimizer;
} unsupported_step;

static gd_tensors backward_in_branch(gd_tensors in, void *user) {
    gd_tensor *loss = gd_sum(gd_mul(((unsupported_step *)user)->w, in.at[0]));
    gd_backward(loss);
    return gd_listed(loss);
}

static gd_tensors run_unsupported_step(gd_tensors in, void *user) {
    unsupported_step *x = user;
    gd_tensor *loss = gd_sum(gd_mul(x->w, in.at[0]));
    switch (x->kind) {
    case CREATE: gd_backward(loss, .create_graph = true); break;
    case OUTSIDE: gd_backward(x->h); break;
    case HISTORY: gd_backward(gd_sum(gd_mul(x->h, in.at[0]))); break;
    case BRANCH:
        return gd_cond(gd_gt(loss, gd_scalar(0)), backward_in_branch, backward_in_branch, in, x);
    case OF_RESULT: return gd_listed(gd_tensor_grad(loss));
    case NO_LEAF: gd_backward(gd_sum(in.at[0])); break;
    }
    return gd_listed(loss);
}

CLEAN_TEST(steps_that_cannot_be_traced_fail_and_change_nothing) {
    static const struct {
        unsupported_kind kind;
        gd_status status;
        const char *says;
    } cases[] = {
        {CREATE, GD_E_UNSUPPORTED, "gd_grad with .create_graph"},
        {OUTSIDE, GD_E_UNSUPPORTED, "not computed by the function"},
        {HISTORY, GD_E_UNSUPPORTED, "computed outside"},
        {BRANCH, GD_E_UNSUPPORTED, "in a branch"},
        {OF_RESULT, GD_E_UNSUPPORTED, "gd_grad"},
        {NO_LEAF, GD_E_STATE, "does not depend"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GD_SCOPE;
        gd_tensor *w = gd_requires_grad(gd_ones(gd_dims(2)));
        unsupported_step x = {cases[i].kind, w, gd_sum(gd_square(w)),
                              gd_optim_sgd(gd_list(w), .momentum = 0.9)};
        gd_jit_call(gd_jit_new(run_unsupported_step, &x), gd_list(gd_ones(gd_dims(2))));
        CHECK_SAYING(gd_error_status() == cases[i].status && says(cases[i].says), "case %d: %s",
                     (int)i, gd_error_message());
        gd_clear_error();
        CHECK(!gd_tensor_grad(w) && gd_item(gd_max(w)) == 1);
        CHECK(gd_backward(x.h) == GD_OK &&
              gd_item(gd_max(gd_tensor_grad(w))) == 2); /* none of these failures had an effect */
    }
}

CLEAN_TEST(inputs_that_require_grad_fail_in_a_traced_step) {
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(gd_ones(gd_dims(3))), *x = gd_ones(gd_dims(3));
    pair p = {w, gd_requires_grad(gd_ones(gd_dims(3)))};
    gd_jit *jit = gd_jit_new(add_both, &p);
    gd_tensor *loss = gd_jit_call(jit, gd_list(x)).at[0];
    /* the backward pass has consumed its tape */
    CHECK(!gd_failed() && !gd_tensor_requires_grad(loss));
    gd_jit_call(jit, gd_list(gd_requires_grad(x)));
    CHECK_SAYING(gd_error_status() == GD_E_UNSUPPORTED && says("input 0") && says("gd_detach"),
                 "%s", gd_error_message());
    gd_clear_error();
    gd_jit_call(jit, gd_list(gd_tensor_grad(w)));
    CHECK_SAYING(gd_error_status() == GD_E_UNSUPPORTED && says("is an input as well"), "%s",
                 gd_error_message());
    gd_clear_error();
    CHECK(gd_item(gd_max(gd_tensor_grad(w))) == 1);
    gd_zero_grad(w);
    gd_backward(gd_sum(gd_mul(gd_square(w), w)), .create_graph = true);
    gd_jit_call(jit, gd_list(gd_detach(x)));
    CHECK_SAYING(gd_error_status() == GD_E_UNSUPPORTED && says("create_graph"), "%s",
                 gd_error_message());
    gd_clear_error();
    gd_zero_grad(w);
}

static gd_tensors add_to_input(gd_tensors in, void *user) {
    gd_add_(user, gd_scalar(1));
    return gd_listed(gd_mul(in.at[0], user));
}

CLEAN_TEST(writing_an_input_through_an_alias_fails) {
    GD_SCOPE;
    gd_tensor *total = gd_full(gd_dims(4), 1);
    gd_jit *jit = gd_jit_new(add_to_input, total);
    CHECK(gd_item(gd_max(gd_jit_call(jit, gd_list(gd_full(gd_dims(4), 3))).at[0])) == 6);
    gd_jit_call(jit, gd_list(total));
    CHECK_SAYING(gd_error_status() == GD_E_UNSUPPORTED && says("shares its memory"), "%s",
                 gd_error_message());
    gd_clear_error();
    CHECK(gd_item(gd_max(total)) == 2);
}

/* Ops recorded after the assign see the new value, also through another view of the tensor; the fed
 * tensor is unchanged. */
CLEAN_TEST(an_assigned_tensor_is_read_with_its_new_value) {
    GD_SCOPE;
    gd_tensor *total = gd_full(gd_dims(2, 50), 1), *transposed = gd_transpose(total, 0, 1), *x,
              *done, *y, *z;
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(2, 50));
        done = gd_assign(total, gd_add(gd_add(total, x), gd_scalar(1)));
        GD_AFTER(gd_list(done));
        y = gd_exp(gd_sub(x, gd_scalar(1)));
        z = gd_exp(gd_sub(transposed, gd_scalar(3)));
    }
    for (int level = 0; level <= 2; level++) {
        gd_session *session = gd_session_new(graph, .level = level);
        gd_mul_(total, gd_scalar(0));
        gd_add_(total, gd_scalar(1));
        gd_tensors r =
            gd_session_run(session, gd_feed(x, total), gd_list(gd_group(gd_list(done)), y, z));
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        if (gd_failed()) return;
        CHECK(gd_item(gd_max(r.at[1])) == 1 && gd_item(gd_max(r.at[2])) == 1 &&
              gd_item(gd_max(total)) == 3);
    }
}

TEST_MAIN
