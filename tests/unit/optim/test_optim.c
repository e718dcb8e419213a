/* test_optim.c - which tensors an optimizer accepts as parameters. */
#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"

enum { METHODS = 3 };

static gd_optimizer *make_optimizer(int method, gd_tensors parameters) {
    if (method == 0) return gd_optim_sgd(parameters, .lr = 0.5);
    if (method == 1) return gd_optim_sgd(parameters, .lr = 0.5, .momentum = 0.9);
    return gd_optim_adam(parameters, .lr = 0.5);
}

static void check_fails(gd_tensors parameters, gd_status status, const char *part) {
    for (int method = 0; method < METHODS; method++) {
        const gd_optimizer *o = make_optimizer(method, parameters);
        CHECK_SAYING(!o && gd_error_status() == status && says(part), "method %d: %s", method,
                     gd_error_message());
        gd_clear_error();
    }
}

CLEAN_TEST(results_of_ops_are_not_accepted_as_parameters) {
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(gd_ones(gd_dims(3))), *half = gd_scalar(0.5);
    check_fails(gd_list(w, gd_mul(w, half)), GD_E_STATE,
                "write gd_requires_grad(gd_mul(...)) instead of gd_mul(gd_requires_grad(...))");
    check_fails(gd_list(gd_mul(w, half)), GD_E_STATE, "test_optim.c:");
    CHECK(make_optimizer(0, gd_list(gd_requires_grad(gd_mul(gd_detach(w), half)))) && !gd_failed());
}

CLEAN_TEST(symbols_are_accepted_as_parameters_only_if_they_are_variables) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_tensor *x = gd_placeholder(gd_dims(3), .name = "images"),
              *v = gd_variable(gd_ones(gd_dims(3)));
    check_fails(gd_list(gd_mul(v, gd_scalar(0.5))), GD_E_STATE,
                "write gd_variable(gd_mul(...)) instead of gd_mul(gd_variable(...))");
    check_fails(gd_list(x), GD_E_STATE, "'images'");
    check_fails(gd_list(v, gd_requires_grad(gd_from_array(gd_dims(1), GD_F32, (float[]){1}))),
                GD_E_ARGUMENT, "not both");
}

CLEAN_TEST(a_duplicate_parameter_fails) {
    GD_SCOPE;
    gd_tensor *a = gd_requires_grad(gd_ones(gd_dims(2))),
              *b = gd_requires_grad(gd_ones(gd_dims(2)));
    check_fails(gd_list(a, b, a), GD_E_ARGUMENT, "parameter 2 is the same tensor as parameter 0");
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_tensor *v = gd_variable(gd_ones(gd_dims(3)), .name = "v");
    check_fails(gd_list(v, gd_graph_find(graph, "v")), GD_E_ARGUMENT,
                "parameter 1 is the same tensor as parameter 0");
}

CLEAN_TEST(integer_tensors_are_not_accepted_as_parameters) {
    GD_SCOPE;
    check_fails(gd_list(gd_ones(gd_dims(2), .dtype = GD_I64)), GD_E_DTYPE, "i64");
}

/* A frozen leaf is not updated, whatever its gradient, and starts without state when it is
 * unfrozen. */
CLEAN_TEST(frozen_leaves_are_skipped) {
    for (int method = 0; method < METHODS; method++) {
        GD_SCOPE;
        gd_tensor *a = gd_requires_grad(gd_ones(gd_dims(2))), *b = gd_ones(gd_dims(2)),
                  *c = gd_ones(gd_dims(2));
        gd_optimizer *both = make_optimizer(method, gd_list(a, b));
        CHECK_SAYING(both, "%s", gd_error_message());
        if (!both) return;
        gd_set_grad(a, gd_ones(gd_dims(2)));
        gd_set_grad(b, gd_ones(gd_dims(2)));
        CHECK(gd_optimizer_step(both) == GD_OK);
        CHECK(gd_item(gd_max(a)) < 1 && gd_item(gd_max(b)) == 1 && gd_item(gd_min(b)) == 1);
        gd_requires_grad(b);
        gd_requires_grad(c);
        gd_optimizer *alone = make_optimizer(method, gd_list(c));
        gd_set_grad(c, gd_ones(gd_dims(2)));
        gd_optimizer_step(alone);
        gd_optimizer_step(both);
        GD_NO_GRAD;
        CHECK(tensors_distance(b, c) == 0);
        CHECK(gd_item(gd_max(b)) < 1);
    }
}

typedef struct frozen {
    gd_tensor *a, *b;
    gd_optimizer *optimizer;
} frozen;

static gd_tensors train_step(gd_tensors in, void *user) {
    frozen *f = user;
    gd_optimizer_zero_grad(f->optimizer);
    gd_tensor *loss = gd_sum(gd_mul(gd_add(f->a, f->b), in.at[0]));
    gd_backward(loss);
    gd_optimizer_step(f->optimizer);
    return gd_listed(loss);
}

static frozen make_frozen(void) {
    frozen f = {gd_requires_grad(gd_ones(gd_dims(2))), gd_ones(gd_dims(2)), NULL};
    f.optimizer = gd_optim_adam(gd_list(f.a, f.b), .lr = 0.1);
    return f;
}

/* In a jit, unfreezing traces a second plan, and freezing again reuses the first. */
CLEAN_TEST(leaves_may_be_frozen_and_unfrozen_between_calls_of_a_jit) {
    GD_SCOPE;
    frozen f = make_frozen(), g = make_frozen();
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    if (gd_failed()) return;
    gd_jit *jit = gd_jit_new(train_step, &f, .level = 0);
    gd_tensor *x = gd_full(gd_dims(2), 2);
    for (int i = 0; i < 6; i++) {
        gd_set_requires_grad(f.b, i >= 2 && i < 4);
        gd_set_requires_grad(g.b, i >= 2 && i < 4);
        gd_jit_call(jit, gd_list(x));
        train_step(gd_list(x), &g);
        GD_NO_GRAD;
        CHECK_SAYING(!gd_failed() && tensors_distance(f.a, g.a) == 0 &&
                         tensors_distance(f.b, g.b) == 0,
                     "call %d: %s", i, gd_error_message());
    }
    CHECK_SAYING(gd_jit_traces(jit) == 2, "%d", gd_jit_traces(jit));
}

/* --- gd_minimize ------------------------------------------------------------------------------ */

static gd_tensors minimize_body(gd_tensors in, void *user) {
    frozen *f = user;
    gd_tensor *loss = gd_sum(gd_square(gd_mul(gd_add(f->a, f->b), in.at[0])));
    gd_minimize(f->optimizer, loss);
    return gd_listed(loss);
}

static gd_tensors unfrozen_step(gd_tensors in, void *user) {
    frozen *f = user;
    gd_optimizer_zero_grad(f->optimizer);
    gd_tensor *loss = gd_sum(gd_square(gd_mul(gd_add(f->a, f->b), in.at[0])));
    gd_backward(loss);
    gd_optimizer_step(f->optimizer);
    return gd_listed(loss);
}

CLEAN_TEST(gd_minimize_updates_leaves_in_a_jit) {
    GD_SCOPE;
    frozen f = make_frozen(), g = make_frozen();
    gd_jit *jit = gd_jit_new(minimize_body, &f, .level = 0);
    gd_tensor *x = gd_full(gd_dims(2), 2);
    for (int i = 0; i < 4; i++) gd_jit_call(jit, gd_list(x)), unfrozen_step(gd_list(x), &g);
    GD_NO_GRAD;
    CHECK_SAYING(!gd_failed() && tensors_distance(f.a, g.a) == 0 && gd_item(gd_max(f.a)) < 1, "%s",
                 gd_error_message());
    CHECK(gd_item(gd_min(f.b)) == 1 && gd_item(gd_max(f.b)) == 1 && !gd_tensor_grad(f.a));
}

CLEAN_TEST(gd_minimize_reports_misuse) {
    GD_SCOPE;
    frozen f = make_frozen();
    CHECK(gd_tensor_is_error(gd_minimize(f.optimizer, gd_sum(f.a))) && says("gd_optimizer_step"));
    gd_clear_error();
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    CHECK(gd_optimizer_step(f.optimizer) == GD_E_STATE && says("use gd_minimize"));
    gd_clear_error();
    gd_tensor *loss = gd_sum(gd_square(f.b));
    CHECK(gd_tensor_is_error(gd_minimize(f.optimizer, loss, .clip_norm = -1)) && says("clip_norm"));
    gd_clear_error();
    gd_set_requires_grad(f.a, false);
    CHECK(gd_tensor_is_error(gd_minimize(f.optimizer, loss)) && says("all parameters are frozen"));
    gd_clear_error();
}

TEST_MAIN
