/* test_autograd.c - the tape: accumulation, backward passes, hooks, user-defined functions,
 * in-place checks, transforms. */
#include <math.h>

#include "clean_test.h"
#include "fault_walk.h"
#include "gradus/gradus.h"

static double value_at(const gd_tensor *t, int i) {
    if (!t || !gd_data(t)) return NAN;
    return gd_tensor_dtype(t) == GD_F64 ? ((double *)gd_data(t))[i] : ((float *)gd_data(t))[i];
}
static bool is_near(double a, double b) { return fabs(a - b) <= 1e-9 * (1 + fabs(b)); }

static gd_tensor *make_leaf(int n, double first, double step) {
    double data[64];
    for (int i = 0; i < n; i++) data[i] = first + step * i;
    return gd_requires_grad(gd_from_array(gd_dims(n), GD_F64, data));
}

/* --- backward passes -------------------------------------------------------------------------- */

CLEAN_TEST(gradients_accumulate_until_they_are_zeroed) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(3, 1, 1);
    CHECK(gd_tensor_grad(x) == NULL);
    CHECK(gd_backward(gd_sum(gd_square(x))) == GD_OK && is_near(value_at(gd_tensor_grad(x), 2), 6));
    CHECK(gd_backward(gd_sum(gd_square(x))) == GD_OK &&
          is_near(value_at(gd_tensor_grad(x), 2), 12));
    gd_zero_grad(x);
    CHECK(gd_tensor_grad(x) == NULL);
    CHECK(gd_backward(gd_sum(gd_square(x))) == GD_OK && is_near(value_at(gd_tensor_grad(x), 2), 6));
}

CLEAN_TEST(a_leaf_used_many_times_gets_the_sum_of_all_uses) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(2, 3, 1), *y = x;
    for (int i = 0; i < 4; i++) y = gd_mul(y, x); /* x^5 */
    CHECK(gd_backward(gd_sum(y)) == GD_OK && is_near(value_at(gd_tensor_grad(x), 0), 5 * 81) &&
          is_near(value_at(gd_tensor_grad(x), 1), 5 * 256));
    gd_zero_grad(x);
    CHECK(gd_backward(x, .gradient = gd_full(gd_dims(2), 7, .dtype = GD_F64)) == GD_OK &&
          is_near(value_at(gd_tensor_grad(x), 1), 7)); /* x itself */
}

CLEAN_TEST(gradients_of_broadcast_inputs_are_summed_over_repeated_axes) {
    GD_SCOPE;
    gd_tensor *row = make_leaf(3, 1, 1), *number = gd_requires_grad(gd_scalar_of(2, GD_F64)),
              *x = gd_full(gd_dims(4, 3), 5, .dtype = GD_F64);
    CHECK(gd_backward(gd_sum(gd_mul(gd_add(x, row), number))) == GD_OK);
    CHECK(is_near(value_at(gd_tensor_grad(row), 0), 8) && gd_tensor_rank(gd_tensor_grad(row)) == 1);
    CHECK(is_near(gd_item(gd_tensor_grad(number)), 4 * (6 + 7 + 8)) &&
          gd_tensor_rank(gd_tensor_grad(number)) == 0);
}

CLEAN_TEST(a_second_backward_needs_retain_graph) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(2, 1, 1), *loss = gd_sum(gd_exp(x));
    CHECK(gd_backward(loss, .retain_graph = true) == GD_OK);
    CHECK(gd_backward(loss) == GD_OK && is_near(value_at(gd_tensor_grad(x), 0), 2 * exp(1)));
    CHECK(gd_backward(loss) == GD_E_STATE && says("second time") && says("retain_graph"));
    gd_clear_error();
    CHECK(is_near(value_at(gd_tensor_grad(x), 0), 2 * exp(1)) &&
          !gd_failed()); /* nothing was added */
}

CLEAN_TEST(backward_from_several_elements_needs_a_gradient) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(3, 1, 1), *y = gd_square(x);
    CHECK(gd_backward(y) == GD_E_SHAPE && says("[3]"));
    gd_clear_error();
    CHECK(gd_backward(y, .gradient = gd_full(gd_dims(2), 1)) == GD_E_SHAPE);
    gd_clear_error();
    CHECK(gd_backward(y, .gradient = gd_full(gd_dims(3), 10)) == GD_OK &&
          is_near(value_at(gd_tensor_grad(x), 1), 40));
    CHECK(gd_backward(gd_detach(y)) == GD_E_STATE);
    gd_clear_error();
    CHECK(gd_backward(NULL) == GD_E_ARGUMENT);
    gd_clear_error();
}

CLEAN_TEST(gd_grad_returns_gradients_and_changes_no_leaf) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(2, 1, 1), *w = make_leaf(2, 3, 1), *h = gd_mul(x, w), *y = gd_exp(h);
    gd_tensors g = gd_grad(gd_list(y), gd_list(h, w), .retain_graph = true); /* h is no leaf */
    CHECK(g.count == 2 && is_near(value_at(g.at[0], 0), exp(3)) &&
          is_near(value_at(g.at[1], 0), exp(3)));
    CHECK(gd_tensor_grad(w) == NULL && gd_tensor_grad(x) == NULL);
    g = gd_grad(gd_list(y), gd_list(h)); /* backward stops at h ... */
    CHECK(gd_backward(gd_sum(h)) == GD_OK &&
          is_near(value_at(gd_tensor_grad(x), 1), 4)); /* ... so the history of h is kept */
    gd_tensor *other = make_leaf(2, 0, 0);
    g = gd_grad(gd_list(gd_exp(w)), gd_list(w, other), .allow_unused = true);
    CHECK(g.count == 2 && g.at[0] && g.at[1] == NULL);
    g = gd_grad(gd_list(gd_exp(w)), gd_list(other));
    CHECK(gd_failed() && says("allow_unused") && gd_tensor_is_error(g.at[0]));
    gd_clear_error();
    g = gd_grad(gd_list(gd_exp(w)), gd_list(gd_full(gd_dims(2), 1)));
    CHECK(gd_failed() && says("does not require grad"));
    gd_clear_error();
}

CLEAN_TEST(several_outputs_are_summed) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(2, 1, 1);
    gd_tensors g = gd_grad(gd_list(gd_square(x), gd_mul(x, gd_scalar(3))), gd_list(x),
                           .gradients = gd_list(NULL, gd_full(gd_dims(2), 10, .dtype = GD_F64)));
    CHECK(is_near(value_at(g.at[0], 1), 4 + 30));
}

CLEAN_TEST(gradients_can_be_differentiated) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(1, 0.3, 0), *y = gd_sin(x);
    double expected[] = {cos(0.3), -sin(0.3), -cos(0.3), sin(0.3), cos(0.3)};
    for (int order = 0; order < 5; order++) {
        gd_tensors g = gd_grad(gd_list(y), gd_list(x), .create_graph = true);
        y = g.at[0];
        CHECK(is_near(value_at(y, 0), expected[order]));
    }
    gd_tensor *loss = gd_sum(gd_square(x));
    CHECK(gd_backward(loss, .create_graph = true) == GD_OK &&
          gd_tensor_requires_grad(gd_tensor_grad(x)));
    gd_tensor *g = gd_tensor_grad(x);
    gd_tensors gg = gd_grad(gd_list(g), gd_list(x));
    CHECK(is_near(value_at(gg.at[0], 0), 2));
    gd_zero_grad(x); /* breaks the cycle: the gradient's history owns x, and x owns the gradient */
}

CLEAN_TEST(a_chain_of_a_hundred_thousand_ops_has_a_gradient) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(1, 0.5, 0), *y = x, *one = gd_scalar_of(1e-5, GD_F64);
    for (int i = 0; i < 100000; i++) y = gd_add(y, one);
    CHECK(gd_backward(gd_sum(y)) == GD_OK && is_near(value_at(gd_tensor_grad(x), 0), 1));
}

CLEAN_TEST(a_chain_of_a_hundred_thousand_ops_is_freed_without_recursion) {
    gd_tensor *x = make_leaf(1, 0.5, 0), *y = gd_retain(x);
    for (int i = 0; i < 100000; i++) {
        gd_tensor *next = gd_neg(y);
        gd_release(y);
        y = next;
    }
    gd_release(y); /* frees the chain without recursion */
    gd_release(x);
}

/* --- no_grad and leaves ----------------------------------------------------------------------- */

CLEAN_TEST(no_grad_switches_the_tape_off_for_its_block) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(2, 1, 1), *y;
    {
        GD_NO_GRAD;
        CHECK(!gd_grad_enabled());
        y = gd_exp(x);
        CHECK(!gd_tensor_requires_grad(y) && gd_tensor_is_leaf(y));
        int before = gd_enable_grad_begin();
        CHECK(gd_tensor_requires_grad(gd_exp(x)));
        gd_grad_mode_end(&before);
        CHECK(!gd_grad_enabled());
    }
    CHECK(gd_grad_enabled() && gd_tensor_requires_grad(gd_exp(x)) && !gd_tensor_is_leaf(gd_exp(x)));
}

CLEAN_TEST(detach_cuts_the_history_and_shares_memory) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(2, 1, 1), *y = gd_exp(x), *d = gd_detach(y);
    CHECK(gd_data(d) == gd_data(y) && !gd_tensor_requires_grad(d));
    CHECK(gd_backward(gd_sum(gd_mul(y, d))) == GD_OK &&
          is_near(value_at(gd_tensor_grad(x), 0), exp(1) * exp(1)));
}

CLEAN_TEST(only_float_leaves_can_require_grad) {
    GD_SCOPE;
    gd_tensor *integer = gd_full(gd_dims(2), 1, .dtype = GD_I64), *x = make_leaf(2, 1, 1);
    CHECK(gd_set_requires_grad(integer, true) == GD_E_DTYPE);
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_requires_grad(integer)));
    gd_clear_error();
    CHECK(gd_set_requires_grad(gd_exp(x), false) == GD_E_STATE &&
          gd_set_requires_grad(NULL, true) == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(gd_set_requires_grad(x, false) == GD_OK && !gd_tensor_requires_grad(gd_exp(x)));
    CHECK(gd_set_grad(x, gd_full(gd_dims(3), 1)) == GD_E_SHAPE &&
          gd_set_grad(x, gd_full(gd_dims(2), 1)) == GD_OK);
    gd_clear_error();
    CHECK(value_at(gd_tensor_grad(x), 0) == 1);
}

/* --- in place --------------------------------------------------------------------------------- */

CLEAN_TEST(an_overwritten_value_that_the_gradient_needs_is_an_error) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(2, 1, 1), *h = gd_mul(x, gd_scalar(2)), *y = gd_square(h);
    gd_add_(h, gd_scalar(1));
    CHECK(!gd_failed());
    CHECK(gd_backward(gd_sum(y)) == GD_E_STATE && says("square") && says("overwritten"));
    gd_clear_error();
    CHECK(gd_tensor_grad(x) == NULL);
}

CLEAN_TEST(in_place_ops_have_gradients) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(2, 1, 1), *h = gd_mul(x, gd_scalar(2));
    gd_tensor *same = gd_add_(h, gd_scalar(1));
    CHECK(same == h);
    gd_exp_(h);
    CHECK(is_near(value_at(h, 0), exp(3)));
    CHECK_SAYING(gd_backward(gd_sum(h)) == GD_OK, "%s", gd_error_message());
    CHECK(is_near(value_at(gd_tensor_grad(x), 1), 2 * exp(5)));
}

CLEAN_TEST(in_place_writes_to_leaves_and_shared_memory_fail_while_the_tape_is_on) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(2, 1, 1);
    CHECK(gd_tensor_is_error(gd_add_(x, gd_scalar(1))) && says("leaf"));
    gd_clear_error();
    gd_tensor *h = gd_mul(x, gd_scalar(2)), *view = gd_narrow(h, 0, 0, 1);
    CHECK(gd_tensor_is_error(gd_add_(view, gd_scalar(1))) && says("shares"));
    gd_clear_error();
    GD_NO_GRAD;
    gd_add_(x, gd_scalar(1));
    CHECK(!gd_failed() && value_at(x, 0) == 2);
}

/* --- hooks and functions ---------------------------------------------------------------------- */

static gd_tensor *double_gradient(gd_tensor *g, void *user) {
    ++*(int *)user;
    return gd_mul(g, gd_scalar(2));
}
static gd_tensor *count_hook_calls(gd_tensor *g, void *user) {
    *(double *)user = value_at(g, 0);
    return NULL;
}

CLEAN_TEST(hooks_get_the_complete_gradient_and_may_change_it) {
    GD_SCOPE;
    int calls = 0;
    double seen = 0;
    gd_tensor *x = make_leaf(1, 3, 0), *h = gd_square(x);
    CHECK(gd_tensor_hook(h, count_hook_calls, &seen) == GD_OK &&
          gd_tensor_hook(x, double_gradient, &calls) == GD_OK);
    gd_tensor *y = gd_add(gd_mul(h, gd_scalar(5)), h); /* h is used twice: 6 in total */
    CHECK(gd_backward(gd_sum(y)) == GD_OK);
    CHECK(seen == 6 && calls == 1 && is_near(value_at(gd_tensor_grad(x), 0), 2 * 6 * 6));
    CHECK(gd_tensor_hook(gd_detach(x), count_hook_calls, &seen) == GD_E_ARGUMENT &&
          gd_tensor_hook(x, NULL, NULL) == GD_E_ARGUMENT);
    gd_clear_error();
}

static int released;
static void count_release(void *user) { released += user == &released; }
static gd_tensor *remove_itself(gd_tensor *g, void *user) {
    (void)g;
    gd_tensor_unhook(*(gd_tensor **)user, remove_itself, user);
    return NULL;
}
static gd_tensor *double_quietly(gd_tensor *g, void *user) {
    (void)user;
    return gd_mul(g, 2);
}

CLEAN_TEST(hooks_can_be_removed) {
    gd_tensor *x = NULL;
    released = 0;
    {
        GD_SCOPE;
        x = make_leaf(1, 3, 0);
        CHECK(gd_tensor_hook(x, double_quietly, &released, .release = count_release) == GD_OK);
        CHECK(gd_tensor_hook(x, remove_itself, &x) == GD_OK);
        CHECK(gd_tensor_hook(x, double_quietly, NULL) == GD_OK);
        CHECK(gd_backward(gd_sum(x)) == GD_OK && value_at(gd_tensor_grad(x), 0) == 4);
        gd_tensor_unhook(x, double_quietly, &released);
        gd_tensor_unhook(x, double_quietly, &released); /* there is no such hook any more */
        CHECK(released == 1);
        gd_zero_grad(x);
        CHECK(gd_backward(gd_sum(x)) == GD_OK && value_at(gd_tensor_grad(x), 0) == 2);
        CHECK(gd_tensor_hook(x, double_quietly, &released, .release = count_release) == GD_OK);
        gd_zero_grad(x);
        CHECK(gd_backward(gd_sum(x)) == GD_OK && value_at(gd_tensor_grad(x), 0) == 4);
        gd_tensor *h = gd_square(x);
        CHECK(gd_tensor_hook(h, double_quietly, &released, .release = count_release) == GD_OK);
    }
    CHECK(released == 3); /* those of x and of h */
}

static gd_tensor *times_weight(gd_tensors in, void *user) {
    return gd_mul(gd_mul(in.at[0], in.at[0]), *(gd_tensor **)user);
}

CLEAN_TEST(recompute_calls_the_hooks_of_what_it_depends_on_once) {
    GD_SCOPE;
    int inputs = 0, weights = 0, results = 0;
    gd_tensor *x = make_leaf(1, 3, 0), *w = make_leaf(1, 3, 0), *h = gd_mul(x, 1);
    gd_tensor_hook(w, double_gradient, &weights);
    gd_tensor_hook(x, double_gradient, &inputs);
    gd_tensor_hook(h, double_gradient, &results);
    CHECK(gd_backward(gd_sum(gd_recompute(times_weight, gd_list(h), &w))) == GD_OK);
    CHECK(weights == 1 && inputs == 1 && results == 1);
    const double at = value_at(x, 0), to = value_at(w, 0);
    CHECK(is_near(value_at(gd_tensor_grad(w), 0), 2 * at * at));
    CHECK(is_near(value_at(gd_tensor_grad(x), 0), 4 * 2 * at * to));
}

static void square_forward(gd_context *c) {
    c->y[0] = gd_square(c->x[0]);
    gd_save(c, c->x[0]);
}
static void square_backward(gd_context *c) {
    c->gx[0] = gd_mul(gd_mul(gd_saved(c, 0), 2), c->gy[0]);
}
static const gd_function released_function = {.name = "released",
                                              .forward = square_forward,
                                              .backward = square_backward,
                                              .release = count_release};
static gd_tensor *released_square(gd_tensors in, void *user) {
    (void)user;
    return gd_square(gd_exp(in.at[0]));
}

CLEAN_TEST(what_a_function_uses_is_released_with_its_node) {
    released = 0;
    {
        GD_SCOPE;
        gd_tensor *x = make_leaf(1, 3, 0);
        gd_apply(&released_function, gd_list(gd_detach(x)), &released); /* no gradient */
        CHECK(released == 1);
        gd_apply(&released_function, gd_list(gd_reshape(x, gd_dims(5))), &released);
        CHECK(released == 2 && gd_failed());
        gd_clear_error();
        gd_tensor *y = gd_apply(&released_function, gd_list(x), &released).at[0];
        CHECK(released == 2 && gd_backward(gd_sum(y)) == GD_OK);
        gd_recompute(released_square, gd_list(gd_detach(x)), &released, .release = count_release);
        CHECK(released == 3);
        gd_recompute(NULL, gd_list(x), &released, .release = count_release);
        CHECK(released == 4 && gd_failed());
        gd_clear_error();
        gd_recompute(released_square, gd_list(x), &released, .release = count_release);
        CHECK(released == 4);
    }
    CHECK_SAYING(released == 6, "%d", released);
}

static gd_tensor *fail_in_hook(gd_tensor *g, void *user) {
    (void)user;
    return gd_reshape(g, gd_dims(99));
}

CLEAN_TEST(a_failing_hook_stops_the_backward_pass) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(1, 3, 0), *h = gd_square(x);
    CHECK(gd_tensor_hook(h, fail_in_hook, NULL) == GD_OK);
    CHECK(gd_backward(gd_sum(h)) == GD_E_SHAPE && says("reshape") && gd_tensor_grad(x) == NULL);
    gd_clear_error();
}

/* x^3 with its own gradient, which is differentiable again. */
static void cube_forward(gd_context *c) {
    gd_save(c, c->x[0]);
    c->y[0] = gd_mul(c->x[0], gd_square(c->x[0]));
}
static void cube_backward(gd_context *c) {
    gd_tensor *x = gd_saved(c, 0);
    if (c->needs[0]) c->gx[0] = gd_mul(c->gy[0], gd_mul(gd_square(x), gd_scalar_of(3, GD_F64)));
}
static const gd_function cube = {
    .name = "cube", .forward = cube_forward, .backward = cube_backward};

CLEAN_TEST(a_user_defined_function_has_gradients_of_any_order) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(2, 2, 1);
    gd_tensors y = gd_apply(&cube, gd_list(x), NULL);
    CHECK(y.count == 1 && is_near(value_at(y.at[0], 1), 27));
    gd_tensors g = gd_grad(y, gd_list(x), .create_graph = true);
    CHECK(is_near(value_at(g.at[0], 0), 12));
    g = gd_grad(g, gd_list(x));
    CHECK(is_near(value_at(g.at[0], 0), 12));
}

static void pair_forward(gd_context *c) {
    c->y[0] = c->x[0]; /* returns the input */
    c->y[1] = gd_add(c->x[0], c->x[1]);
    gd_save(c, c->y[1]);
}
static void pair_backward(gd_context *c) {
    gd_tensor *sum = gd_saved(c, 0);
    if (c->needs[0]) c->gx[0] = gd_add(c->gy[0], c->gy[1]);
    if (c->needs[1])
        c->gx[1] = gd_mul(c->gy[1], sum); /* wrong on purpose, to show that it is used */
}
static const gd_function pair = {
    .name = "pair", .n_out = 2, .forward = pair_forward, .backward = pair_backward};

CLEAN_TEST(a_function_may_have_several_outputs_and_save_them) {
    GD_SCOPE;
    gd_tensor *a = make_leaf(1, 2, 0), *b = make_leaf(1, 5, 0);
    gd_tensors y = gd_apply(&pair, gd_list(a, b), NULL);
    CHECK(y.count == 2 && y.at[0] != a);
    CHECK(gd_backward(gd_sum(gd_add(y.at[0], gd_mul(y.at[1], gd_scalar(3))))) == GD_OK);
    CHECK(is_near(value_at(gd_tensor_grad(a), 0), 4) &&
          is_near(value_at(gd_tensor_grad(b), 0), 21));
    y = gd_apply(NULL, gd_list(a), NULL);
    CHECK(gd_failed() && says("gd_apply"));
}

/* --- transforms ------------------------------------------------------------------------------- */

/* f(a, b) = exp(a) * sin(b), elementwise. */
static gd_tensor *wave_fn(gd_tensors in, void *user) {
    (void)user;
    return gd_mul(gd_exp(in.at[0]), gd_sin(in.at[1]));
}
static gd_tensor *wave_sum(gd_tensors in, void *user) { return gd_sum(wave_fn(in, user)); }
static gd_tensor *first_alone(gd_tensors in, void *user) {
    (void)user;
    return in.at[0];
}
static gd_tensor *constant_fn(gd_tensors in, void *user) {
    (void)in, (void)user;
    return gd_full(gd_dims(2), 3, .dtype = GD_F64);
}
static gd_tensor *broken_fn(gd_tensors in, void *user) {
    (void)user;
    return gd_reshape(in.at[0], gd_dims(77));
}

CLEAN_TEST(jvp_is_the_derivative_in_a_direction) {
    GD_SCOPE;
    gd_tensor *a = gd_detach(make_leaf(3, 0.1, 0.2)), *b = make_leaf(3, 0.5, 0.3),
              *u = make_leaf(3, 1, 1), *v = make_leaf(3, -1, 0.5);
    gd_tensor *jv = gd_jvp(wave_fn, gd_list(a, b), gd_list(u, v), NULL);
    for (int i = 0; i < 3; i++)
        CHECK(
            is_near(value_at(jv, i), exp(value_at(a, i)) * (sin(value_at(b, i)) * value_at(u, i) +
                                                            cos(value_at(b, i)) * value_at(v, i))));
    jv = gd_jvp(wave_fn, gd_list(a, b), gd_list(u, NULL), NULL); /* NULL: no change in b */
    CHECK(is_near(value_at(jv, 2), exp(value_at(a, 2)) * sin(value_at(b, 2)) * value_at(u, 2)));
    CHECK(is_near(value_at(gd_jvp(first_alone, gd_list(a), gd_list(u), NULL), 1), value_at(u, 1)));
    CHECK(value_at(gd_jvp(constant_fn, gd_list(a), gd_list(u), NULL), 1) == 0);
    CHECK(gd_tensor_grad(b) == NULL && !gd_failed());
    CHECK(gd_tensor_is_error(gd_jvp(wave_fn, gd_list(a, b), gd_list(u), NULL)) && says("tangent"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_jvp(broken_fn, gd_list(a), gd_list(u), NULL)) && says("reshape"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(
              gd_jvp(wave_fn, gd_list(a, b), gd_list(u, gd_full(gd_dims(2), 1)), NULL)) &&
          says("tangent 1"));
}

CLEAN_TEST(jvp_can_be_differentiated) {
    GD_SCOPE;
    gd_tensor *a = make_leaf(2, 0.1, 0.2), *b = gd_detach(make_leaf(2, 0.5, 0.3)),
              *u = gd_full(gd_dims(2), 1, .dtype = GD_F64);
    gd_tensor *jv = gd_jvp(wave_fn, gd_list(a, b), gd_list(u, NULL), NULL); /* exp(a) sin(b) */
    CHECK(gd_tensor_requires_grad(jv));
    gd_tensors g = gd_grad(gd_list(jv), gd_list(a));
    CHECK(is_near(value_at(g.at[0], 1), exp(value_at(a, 1)) * sin(value_at(b, 1))));
}

CLEAN_TEST(the_jacobian_has_the_outputs_shape_then_the_inputs) {
    GD_SCOPE;
    gd_tensor *a = make_leaf(3, 0.1, 0.2), *b = make_leaf(3, 0.5, 0.3);
    gd_tensor *j = gd_jacobian(wave_fn, gd_list(a, b), 1, NULL);
    CHECK(gd_tensor_rank(j) == 2 && gd_tensor_dim(j, 0) == 3 && gd_tensor_dim(j, 1) == 3);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            CHECK(is_near(value_at(j, 3 * i + k),
                          i == k ? exp(value_at(a, i)) * cos(value_at(b, i)) : 0));
    CHECK(gd_tensor_rank(gd_jacobian(wave_sum, gd_list(a, b), 0, NULL)) == 1);
    CHECK(value_at(gd_jacobian(constant_fn, gd_list(a), 0, NULL), 5) == 0);
    gd_tensor *many = gd_jacobian(first_alone, gd_list(make_leaf(50, 0, 1)), 0, NULL);
    CHECK(value_at(many, 49 * 50 + 49) == 1 && value_at(many, 49 * 50 + 48) == 0);
    many = gd_jacobian(first_alone, gd_list(gd_full(gd_dims(200), 1)), 0,
                       NULL); /* more rows than one pass joins */
    CHECK(gd_tensor_numel(many) == 40000 && value_at(many, 199 * 200 + 199) == 1 &&
          value_at(many, 199 * 200) == 0);
    CHECK(!gd_failed());
    CHECK(gd_tensor_is_error(gd_jacobian(wave_fn, gd_list(a, b), 2, NULL)) && says("input 2"));
}

CLEAN_TEST(hvp_is_the_hessian_times_a_vector) {
    GD_SCOPE;
    gd_tensor *a = make_leaf(2, 0.1, 0.2), *b = make_leaf(2, 0.5, 0.3), *u = make_leaf(2, 1, 1),
              *v = make_leaf(2, -1, 3);
    gd_tensors h = gd_hvp(wave_sum, gd_list(a, b), gd_list(u, v), NULL);
    CHECK(h.count == 2);
    for (int i = 0; i < 2; i++) {
        double e = exp(value_at(a, i)), s = sin(value_at(b, i)), c = cos(value_at(b, i));
        CHECK(is_near(value_at(h.at[0], i), e * s * value_at(u, i) + e * c * value_at(v, i)));
        CHECK(is_near(value_at(h.at[1], i), e * c * value_at(u, i) - e * s * value_at(v, i)));
    }
    h = gd_hvp(wave_fn, gd_list(a, b), gd_list(u, v), NULL);
    CHECK(gd_failed() && says("one element") && gd_tensor_is_error(h.at[0]));
}

CLEAN_TEST(transforms_work_without_a_scope) {
    gd_tensor *a = make_leaf(2, 0.1, 0.2), *b = make_leaf(2, 0.5, 0.3), *u = make_leaf(2, 1, 1);
    gd_tensor *jv = gd_jvp(wave_fn, gd_list(a, b), gd_list(u, u), NULL),
              *j = gd_jacobian(wave_fn, gd_list(a, b), 0, NULL);
    gd_tensors h = gd_hvp(wave_sum, gd_list(a, b), gd_list(u, u), NULL);
    CHECK(is_near(value_at(j, 0), exp(0.1) * sin(0.5)) && !gd_failed());
    gd_tensor *kept = gd_recompute(wave_sum, gd_list(a, b), NULL);
    CHECK(gd_backward(kept) == GD_OK &&
          is_near(value_at(gd_tensor_grad(b), 0), exp(0.1) * cos(0.5)));
    gd_release(kept);
    gd_release_list(h);
    gd_release(j);
    gd_release(jv);
    gd_release(a);
    gd_release(b);
    gd_release(u);
}

/* --- gradcheck -------------------------------------------------------------------------------- */

static gd_tensor *wrong_gradient(gd_tensors in, void *user) {
    (void)user;
    return gd_mul(in.at[0], gd_detach(in.at[0]));
}
static gd_tensor *wrong_second_gradient(gd_tensors in, void *user) {
    (void)user; /* x^3 with a right gradient that has no history of its own */
    gd_tensor *x = in.at[0], *d = gd_detach(x);
    gd_tensor *slope = gd_mul(gd_square(d), gd_scalar_of(3, GD_F64));
    return gd_add(gd_mul(slope, gd_sub(x, d)), gd_mul(d, gd_square(d)));
}

CLEAN_TEST(gradcheck_accepts_right_gradients_and_locates_wrong_ones) {
    GD_SCOPE;
    gd_tensor *a = make_leaf(3, 0.4, 0.3), *b = make_leaf(3, 0.5, 0.3);
    CHECK(gd_gradcheck(wave_fn, gd_list(a, b), NULL, .second_order = true) == GD_OK);
    CHECK(gd_gradcheck(first_alone, gd_list(a), NULL, .second_order = true) == GD_OK);
    CHECK(gd_gradcheck(wrong_gradient, gd_list(a), NULL) == GD_E_ARGUMENT);
    CHECK_SAYING(says("input 0") && says("element 0") && says("test_autograd.c:"), "%s",
                 gd_error_message());
    gd_clear_error();
    CHECK(gd_gradcheck(wave_fn, gd_list(a, b), NULL, .second_order = true, .elements = 2) == GD_OK);
    CHECK(gd_gradcheck(wrong_gradient, gd_list(a), NULL, .elements = 1) == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(gd_gradcheck(wrong_second_gradient, gd_list(a), NULL) == GD_OK);
    CHECK(gd_gradcheck(wrong_second_gradient, gd_list(a), NULL, .second_order = true) ==
              GD_E_ARGUMENT &&
          says("second order"));
    gd_clear_error();
    CHECK(!gd_failed() && is_near(value_at(a, 0), 0.4) && gd_tensor_grad(a) == NULL);
    gd_tensor *narrow = gd_requires_grad(gd_full(gd_dims(2), 1));
    CHECK(gd_gradcheck(first_alone, gd_list(narrow), NULL) == GD_E_DTYPE && says("f64"));
    gd_clear_error();
    CHECK(gd_gradcheck(first_alone, gd_list(gd_detach(a)), NULL) == GD_E_STATE);
    gd_clear_error();
    CHECK(gd_gradcheck(broken_fn, gd_list(a), NULL) == GD_E_SHAPE && says("reshape"));
    gd_clear_error();
    CHECK(gd_gradcheck(NULL, gd_list(a), NULL) == GD_E_ARGUMENT);
    gd_clear_error();
}

static gd_tensor *noisy_fn(gd_tensors in, void *user) {
    (void)user;
    return gd_mul(in.at[0], gd_rand(gd_dims(3), .dtype = GD_F64));
}

CLEAN_TEST(gradcheck_repeats_random_numbers_and_restores_the_generator) {
    GD_SCOPE;
    gd_seed(3);
    CHECK_SAYING(gd_gradcheck(noisy_fn, gd_list(make_leaf(3, 1, 1)), NULL, .second_order = true) ==
                     GD_OK,
                 "%s", gd_error_message());
    CHECK(gd_rng_state().call == 0);
}

/* --- recompute -------------------------------------------------------------------------------- */

typedef struct layer {
    gd_tensor *w;
    int runs;
} layer;

static gd_tensor *run_layer(gd_tensors in, void *user) {
    layer *l = user;
    l->runs++;
    return gd_dropout(gd_tanh(gd_mul(in.at[0], l->w)), .p = 0.4, .training = true);
}

/* Gradients of the stack of layers, with and without gd_recompute, have the same bits. */
static void run_stack(bool recomputed, gd_tensor *x, layer *l, int depth) {
    GD_SCOPE;
    gd_seed(11);
    gd_tensor *h = gd_mul(x, gd_scalar_of(1.5, GD_F64));
    for (int i = 0; i < depth; i++)
        h = recomputed ? gd_recompute(run_layer, gd_list(h), l) : run_layer(gd_list(h), l);
    gd_rng before = gd_rng_state();
    CHECK_SAYING(gd_backward(gd_sum(h)) == GD_OK, "%s", gd_error_message());
    CHECK(gd_rng_state().call == before.call);
}

CLEAN_TEST(recompute_gives_the_same_gradients_with_random_numbers_inside) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(40, 0.1, 0.02), *w = make_leaf(40, 0.5, 0.01);
    layer l = {w, 0};
    run_stack(false, x, &l, 4);
    CHECK(l.runs == 4);
    gd_tensor *gx = gd_retain(gd_tensor_grad(x)), *gw = gd_retain(gd_tensor_grad(w));
    gd_zero_grad(x);
    gd_zero_grad(w);
    l.runs = 0;
    run_stack(true, x, &l, 4);
    CHECK(l.runs == 8);
    for (int i = 0; i < 40; i++)
        CHECK(is_near(value_at(gd_tensor_grad(x), i), value_at(gx, i)) &&
              is_near(value_at(gd_tensor_grad(w), i), value_at(gw, i)));
    gd_release(gx);
    gd_release(gw);
}

CLEAN_TEST(recompute_reaches_captured_leaves_when_no_input_requires_grad) {
    GD_SCOPE;
    gd_tensor *x = gd_detach(make_leaf(4, 0.1, 0.2)), *w = make_leaf(4, 0.5, 0.1);
    layer l = {w, 0};
    gd_tensor *y = gd_recompute(run_layer, gd_list(x), &l);
    CHECK(gd_tensor_requires_grad(y) && gd_backward(gd_sum(y)) == GD_OK &&
          gd_tensor_grad(w) != NULL);
}

/* x times a captured w. */
static gd_tensor *times_captured(gd_tensors in, void *user) {
    return gd_mul(in.at[0], *(gd_tensor **)user);
}

CLEAN_TEST(recompute_counts_each_path_to_a_captured_tensor_once) {
    GD_SCOPE;
    gd_tensor *w = make_leaf(1, 3, 0), *x = gd_mul(w, gd_scalar_of(2, GD_F64));
    CHECK(gd_backward(gd_recompute(times_captured, gd_list(x), &w)) == GD_OK); /* 2 w^2 */
    CHECK(is_near(value_at(gd_tensor_grad(w), 0), 12));
    x = gd_mul(w, gd_scalar_of(2, GD_F64));
    gd_tensors g = gd_grad(gd_list(gd_recompute(times_captured, gd_list(x), &w)), gd_list(w),
                           .create_graph = true);
    CHECK(is_near(value_at(g.at[0], 0), 12) && is_near(value_at(gd_tensor_grad(w), 0), 12));
    CHECK(is_near(value_at(gd_grad(gd_list(g.at[0]), gd_list(w)).at[0], 0), 4));
    /* the captured tensor may be a result, even the input itself */
    gd_tensor *v = make_leaf(1, 3, 0), *h = gd_mul(v, gd_scalar_of(2, GD_F64));
    gd_tensors d =
        gd_grad(gd_list(gd_recompute(times_captured, gd_list(h), &h)), gd_list(v)); /* 4 v^2 */
    CHECK(is_near(value_at(d.at[0], 0), 24) && gd_tensor_grad(v) == NULL);
    CHECK(gd_tensor_requires_grad(gd_recompute(times_captured, gd_list(gd_detach(x)), &w)));
    gd_tensor *number = gd_detach(w);
    CHECK(!gd_tensor_requires_grad(gd_recompute(times_captured, gd_list(gd_detach(x)), &number)));
}

CLEAN_TEST(recompute_keeps_less_memory) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(64, 0, 0.1), *w = make_leaf(64, 0.5, 0);
    layer l = {w, 0};
    int64_t before = gd_memory_stats(NULL).live_bytes, plain, less;
    {
        GD_SCOPE;
        gd_tensor *h = x;
        {
            GD_SCOPE;
            for (int i = 0; i < 6; i++) h = run_layer(gd_list(h), &l);
            h = gd_keep(h);
        }
        plain = gd_memory_stats(NULL).live_bytes - before;
    }
    {
        GD_SCOPE;
        gd_tensor *h = x;
        {
            GD_SCOPE;
            for (int i = 0; i < 6; i++) h = gd_recompute(run_layer, gd_list(h), &l);
            h = gd_keep(h);
        }
        less = gd_memory_stats(NULL).live_bytes - before;
    }
    CHECK_SAYING(2 * less <= plain, "%lld bytes, without %lld", (long long)less, (long long)plain);
}

static gd_tensor *smooth(gd_tensors in, void *user) {
    return gd_tanh(gd_mul(in.at[0], gd_exp(user)));
}
static gd_tensor *smooth_kept(gd_tensors in, void *user) { return gd_recompute(smooth, in, user); }

CLEAN_TEST(recompute_can_be_differentiated_twice) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(3, 0.1, 0.2), *w = make_leaf(3, 0.2, 0.1);
    CHECK_SAYING(gd_gradcheck(smooth_kept, gd_list(x), w, .second_order = true) == GD_OK, "%s",
                 gd_error_message());
    /* through the captured leaf as well: d2/dw2 by create_graph */
    gd_tensor *y = gd_sum(gd_recompute(smooth, gd_list(x), w));
    CHECK(gd_backward(y, .create_graph = true) == GD_OK);
    gd_tensor *g = gd_tensor_grad(w);
    gd_tensors twice = gd_grad(gd_list(g), gd_list(w), .retain_graph = true), direct;
    gd_tensors plain =
        gd_grad(gd_list(gd_sum(smooth(gd_list(x), w))), gd_list(w), .create_graph = true);
    direct = gd_grad(plain, gd_list(w));
    CHECK(is_near(value_at(twice.at[0], 1), value_at(direct.at[0], 1)) &&
          is_near(value_at(g, 1), value_at(plain.at[0], 1)));
    gd_zero_grad(w);
    gd_zero_grad(x);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(gd_grad_through_recompute_changes_no_leaf) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(3, 0.1, 0.2), *w = make_leaf(3, 0.2, 0.1), *h = gd_square(x);
    gd_tensors g = gd_grad(gd_list(gd_recompute(smooth, gd_list(h), w)), gd_list(x));
    gd_tensors plain = gd_grad(gd_list(smooth(gd_list(gd_square(x)), w)), gd_list(x));
    CHECK(is_near(value_at(g.at[0], 2), value_at(plain.at[0], 2)) && gd_tensor_grad(w) == NULL &&
          gd_tensor_grad(x) == NULL);
}

CLEAN_TEST(recompute_reports_failures) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(3, 0.1, 0.2), *w = make_leaf(3, 0.2, 0.1);
    CHECK(gd_tensor_is_error(gd_recompute(broken_fn, gd_list(x), NULL)) && says("reshape"));
    gd_clear_error();
    gd_tensor *h = gd_square(x), *y = gd_recompute(smooth, gd_list(h), w);
    gd_add_(h, gd_scalar(1)); /* recompute keeps only its input, which is now overwritten */
    CHECK(gd_backward(gd_sum(y)) == GD_E_STATE && says("overwritten"));
    gd_clear_error();
    y = gd_recompute(smooth, gd_list(x), w);
    CHECK(gd_backward(gd_sum(y)) == GD_OK && gd_backward(gd_sum(y)) == GD_E_STATE &&
          says("second time"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_recompute(NULL, gd_list(x), NULL)));
    gd_clear_error();
    GD_NO_GRAD;
    CHECK(!gd_tensor_requires_grad(gd_recompute(smooth, gd_list(x), w)));
}

/* --- failing allocations ---------------------------------------------------------------------- */

static gd_status every_transform(gd_tensor *a, gd_tensor *b, gd_tensor *w) {
    GD_SCOPE;
    gd_jvp(wave_fn, gd_list(a, b), gd_list(a, b), NULL);
    gd_jacobian(wave_fn, gd_list(a, b), 1, NULL);
    gd_hvp(wave_sum, gd_list(a, b), gd_list(a, b), NULL);
    gd_tensor *y = gd_recompute(smooth, gd_list(gd_square(a)), w);
    if (gd_failed()) return gd_error_status();
    gd_status status = gd_backward(gd_sum(y));
    if (status == GD_OK) status = gd_gradcheck(wave_fn, gd_list(a, b), NULL, .second_order = true);
    return status;
}

CLEAN_TEST(any_allocation_of_a_transform_may_fail) {
    GD_SCOPE;
    gd_tensor *a = make_leaf(2, 0.1, 0.2), *b = make_leaf(2, 0.3, 0.2), *w = make_leaf(2, 0.2, 0.1);
    CHECK(every_transform(a, b, w) == GD_OK);
    gd_zero_grad(a);
    gd_zero_grad(w);
    for (fault_walk faults = {.what = "transforms", .dense = 300}; fault_next(&faults);) {
        fault_begin(&faults);
        gd_status status = every_transform(a, b, w);
        fault_end(&faults);
        CHECK_ROUND(&faults, status == (faults.fired ? GD_E_MEMORY : GD_OK));
        CHECK_FAULT(&faults, status);
        gd_zero_grad(a);
        gd_zero_grad(w);
    }
    CHECK(is_near(value_at(a, 0), 0.1));
}

CLEAN_TEST(gradients_of_tensors_and_of_lists_are_dropped) {
    GD_SCOPE;
    gd_tensor *w[3];
    for (int i = 0; i < 3; i++) w[i] = gd_requires_grad(gd_full(gd_dims(2), i + 1));
    const gd_tensors all = gd_list_of(w, 3);
    for (int k = 0; k < 3; k++) {
        CHECK(gd_backward(gd_sum(gd_cat(all))) == GD_OK);
        CHECK(gd_tensor_grad(w[0]) && gd_tensor_grad(w[1]) && gd_tensor_grad(w[2]));
        if (k == 0) gd_zero_grad(all);
        else if (k == 1) gd_zero_grad(gd_list(w[0], w[1], NULL, w[2]));
        else gd_zero_grad(gd_list_of(w + 1, 2)), gd_zero_grad(w[0]);
        CHECK(!gd_tensor_grad(w[0]) && !gd_tensor_grad(w[1]) && !gd_tensor_grad(w[2]));
    }
    gd_zero_grad(NULL);
    gd_zero_grad((gd_tensors){NULL, 0});
    CHECK(gd_list_of(w, 0).count == 0 && !gd_failed());
}

TEST_MAIN
