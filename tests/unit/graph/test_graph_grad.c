/* test_graph_grad.c - gradients in a graph flow and stop as on the tape. */
#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"

/* --- ops that stop a gradient ----------------------------------------------------------------- */

typedef gd_tensor *(*formula)(gd_tensor *x, gd_tensor *w);

static gd_tensor *detached(gd_tensor *x, gd_tensor *w) {
    return gd_sum(gd_mul(gd_detach(gd_mul(x, w)), gd_square(w)));
}

static gd_tensor *under_no_grad(gd_tensor *x, gd_tensor *w) {
    gd_tensor *fixed;
    {
        GD_NO_GRAD;
        fixed = gd_mul(gd_exp(x), w);
    }
    return gd_sum(gd_mul(fixed, gd_square(w)));
}

static gd_tensor *step_detached(gd_tensors in, void *user) {
    return gd_add(gd_mul(gd_detach(in.at[0]), user), in.at[1]);
}
static gd_tensor *in_a_loop(gd_tensor *x, gd_tensor *w) {
    return gd_sum(gd_foldl(step_detached, gd_zeros(gd_dims()), gd_list(x), gd_sum(gd_square(w))));
}

static gd_tensor *step_no_grad(gd_tensors in, void *user) {
    gd_tensor *fixed;
    {
        GD_NO_GRAD;
        fixed = gd_mul(in.at[0], gd_scalar(2));
    }
    return gd_add(gd_mul(fixed, user), in.at[1]);
}
static gd_tensor *no_grad_in_a_loop(gd_tensor *x, gd_tensor *w) {
    return gd_sum(gd_foldl(step_no_grad, gd_zeros(gd_dims()), gd_list(x), gd_sum(gd_square(w))));
}

/* Gradients on the tape: of y by w, and of the sum of squares of these. */
static void tape_gradients(formula f, gd_tensor *xs, gd_tensor *ws, gd_tensor **first,
                           gd_tensor **second) {
    gd_tensor *x = gd_requires_grad(gd_clone(xs)), *w = gd_requires_grad(gd_clone(ws));
    gd_tensors g = gd_grad(gd_list(f(x, w)), gd_list(w), .create_graph = true);
    *first = g.at[0];
    *second = gd_grad(gd_list(gd_sum(gd_square(g.at[0]))), gd_list(w)).at[0];
}

CLEAN_TEST(detached_values_have_no_gradient_in_a_graph) {
    GD_SCOPE;
    gd_tensor *xs = gd_from_array(gd_dims(3), GD_F32, (float[]){0.5f, -1, 2}),
              *ws = gd_from_array(gd_dims(3), GD_F32, (float[]){1, 2, -0.5f});
    const formula formulas[] = {detached, under_no_grad, in_a_loop, no_grad_in_a_loop};
    for (int f = 0; f < 4; f++)
        for (int unknown = 0; unknown < 2; unknown++)
            for (int level = 0; level < 3; level += 2) {
                gd_tensor *first, *second;
                tape_gradients(formulas[f], xs, ws, &first, &second);
                gd_graph *graph = gd_graph_new();
                gd_tensor *x, *w, *g, *gg;
                {
                    GD_GRAPH(graph);
                    x = gd_placeholder(gd_dims(unknown ? GD_ANY : 3));
                    w = gd_variable(ws);
                    g = gd_gradients(gd_list(formulas[f](x, w)), gd_list(w)).at[0];
                    gg = gd_gradients(gd_list(gd_sum(gd_square(g))), gd_list(w)).at[0];
                }
                gd_tensors r = gd_session_run(gd_session_new(graph, .level = level), gd_feed(x, xs),
                                              gd_list(g, gg));
                CHECK_SAYING(!gd_failed() && tensors_distance(r.at[0], first) < 1e-5 &&
                                 tensors_distance(r.at[1], second) < 1e-4,
                             "formula %d, %s sizes, level %d: off by %g and %g %s", f,
                             unknown ? "unknown" : "known", level, tensors_distance(r.at[0], first),
                             tensors_distance(r.at[1], second), gd_error_message());
                gd_clear_error();
            }
}

/* --- unused inputs ---------------------------------------------------------------------------- */

CLEAN_TEST(an_unused_input_is_an_error_for_known_and_unknown_sizes) {
    for (int unknown = 0; unknown < 2; unknown++) {
        GD_SCOPE;
        gd_graph *graph = gd_graph_new();
        GD_GRAPH(graph);
        gd_tensor *x = gd_placeholder(gd_dims(unknown ? GD_ANY : 3, 2), .name = "x");
        gd_tensor *w = gd_variable(gd_ones(gd_dims(2)), .name = "w"),
                  *other = gd_variable(gd_ones(gd_dims(2)), .name = "other");
        gd_tensor *loss = gd_sum(gd_mul(gd_mul(x, w), gd_detach(other)));
        gd_gradients(gd_list(loss), gd_list(w, other));
        CHECK_SAYING(gd_error_status() == GD_E_STATE && says("input 1, 'other' of") &&
                         says("test_graph_grad.c"),
                     "%s", gd_error_message());
        gd_clear_error();
        gd_tensors g = gd_grad(gd_list(loss), gd_list(w, other), .allow_unused = true);
        CHECK(!gd_failed() && g.count == 2 && g.at[0] && !g.at[1]);
        gd_gradients(gd_list(loss), gd_list(gd_placeholder(gd_dims(2), .dtype = GD_I64)));
        CHECK_SAYING(gd_error_status() == GD_E_DTYPE && says("input 0 is i64"), "%s",
                     gd_error_message());
        gd_clear_error();
    }
}

CLEAN_TEST(an_optimizer_does_not_update_variables_that_the_loss_does_not_use) {
    for (int unknown = 0; unknown < 2; unknown++) {
        GD_SCOPE;
        gd_graph *graph = gd_graph_new();
        gd_tensor *x, *w, *other, *train;
        {
            GD_GRAPH(graph);
            x = gd_placeholder(gd_dims(unknown ? GD_ANY : 3, 2));
            w = gd_variable(gd_ones(gd_dims(2)));
            other = gd_variable(gd_ones(gd_dims(2)));
            train = gd_minimize(gd_optim_sgd(gd_list(w, other), .lr = 0.1, .weight_decay = 0.5),
                                gd_sum(gd_mul(x, w)));
        }
        gd_session *s = gd_session_new(graph);
        gd_session_run(s, gd_feed(x, gd_ones(gd_dims(3, 2))), gd_list(train));
        CHECK(!gd_failed() && tensors_distance(gd_session_get(s, other), gd_ones(gd_dims(2))) == 0);
        CHECK(tensors_distance(gd_session_get(s, w), gd_ones(gd_dims(2))) > 0.1);
    }
}

CLEAN_TEST(gd_backward_of_a_symbol_fails) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_tensor *w = gd_requires_grad(gd_ones(gd_dims(2))); /* traced: w is a symbol */
    CHECK(gd_backward(gd_sum(w)) == GD_E_STATE && says("gd_grad") && gd_failed());
    gd_clear_error();
    CHECK(!gd_tensor_grad(w));
}

/* --- captured tensors ------------------------------------------------------------------------- */

CLEAN_TEST(gradients_use_captured_values_as_they_are_at_the_run) {
    GD_SCOPE;
    gd_tensor *scale = gd_full(gd_dims(2), 3), *x, *y, *g;
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(2));
        y = gd_sum(gd_mul(x, scale));
    }
    gd_copy_from(scale, (float[]){5, 6}, 8); /* after the graph was built, before it runs */
    g = gd_gradients(gd_list(y), gd_list(x)).at[0];
    gd_tensors r =
        gd_session_run(gd_session_new(graph), gd_feed(x, gd_ones(gd_dims(2))), gd_list(g));
    CHECK_SAYING(!gd_failed() && tensors_distance(r.at[0], scale) == 0, "%s", gd_error_message());
}

/* --- mutating ops ----------------------------------------------------------------------------- */

/* The mask makes sizes depend on data, so the graph is evaluated node by node with a tape. */
static gd_tensor *normed_and_masked(gd_tensor *x, gd_tensor *w, gd_tensor *mean, gd_tensor *var) {
    gd_tensor *y = gd_batch_norm(x, w, NULL, mean, var, .training = true);
    return gd_mul(gd_sum(gd_sin(y)), gd_sum(gd_masked_select(x, gd_gt(x, gd_scalar(0)))));
}

CLEAN_TEST(gradients_go_through_mutating_ops_in_unplanned_runs) {
    GD_SCOPE;
    gd_seed(3);
    gd_tensor *xs = gd_randn(gd_dims(4, 3)), *w = gd_requires_grad(gd_randn(gd_dims(3))),
              *mean = gd_zeros(gd_dims(3)), *var = gd_ones(gd_dims(3));
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *gw, *v, *m;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(GD_ANY, 3));
        v = gd_variable(gd_detach(w));
        m = gd_variable(mean, .trainable = false);
        gw = gd_gradients(gd_list(normed_and_masked(x, v, m, gd_variable(var, .trainable = false))),
                          gd_list(v))
                 .at[0];
    }
    gd_session *session = gd_session_new(graph);
    gd_tensor *got = gd_session_run(session, gd_feed(x, xs), gd_list(gw)).at[0];
    gd_tensor *want = gd_grad(gd_list(normed_and_masked(xs, w, mean, var)), gd_list(w)).at[0];
    CHECK_SAYING(!gd_failed() && tensors_distance(got, want) == 0 &&
                     gd_item(gd_max(gd_abs(want))) > 0,
                 "%s", gd_error_message());
    CHECK(tensors_distance(gd_session_get(session, m), mean) == 0 &&
          gd_item(gd_max(gd_abs(mean))) > 0);
}

/* --- names ------------------------------------------------------------------------------------ */

CLEAN_TEST(a_name_belongs_to_one_node_of_its_scope) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_tensor *w = gd_variable(gd_ones(gd_dims(1)), .name = "w");
    {
        GD_NAME_SCOPE("hidden");
        gd_tensor *inner = gd_variable(gd_ones(gd_dims(2)), .name = "w");
        CHECK_SAYING(!gd_failed() && gd_tensor_dim(inner, 0) == 2, "%s", gd_error_message());
        gd_variable(gd_ones(gd_dims(3)), .name = "w");
        CHECK_SAYING(gd_error_status() == GD_E_ARGUMENT && says("\"hidden/w\", of ") &&
                         says("test_graph_grad.c"),
                     "%s", gd_error_message());
        gd_clear_error();
    }
    CHECK(gd_tensor_dim(gd_graph_find(graph, "w"), 0) == 1 &&
          gd_tensor_dim(gd_graph_find(graph, "hidden/w"), 0) == 2);
    gd_named(gd_relu(w), "w");
    CHECK(gd_error_status() == GD_E_ARGUMENT && says("another node named \"w\""));
    gd_clear_error();
    gd_named(gd_relu(w), "");
    CHECK(gd_error_status() == GD_E_ARGUMENT && says("empty"));
    gd_clear_error();
    gd_tensor *y = gd_named(gd_reshape(w, gd_dims(1, 1)), "y");
    CHECK(gd_named(y, "y") == y && gd_tensor_rank(gd_graph_find(graph, "y")) == 2 && !gd_failed());
}

TEST_MAIN
