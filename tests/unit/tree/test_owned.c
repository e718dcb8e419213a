/* test_owned.c - calls without a scope: what they return belongs to the caller, and nothing else is
 * left behind. */
#include <string.h>

#include "gradus/gradus.h"
#include "clean_test.h"

static gd_tensors relu_body(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_relu(in.at[0]));
}
static gd_tensors is_small(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_lt(gd_sum(in.at[0]), 1000));
}
static gd_tensors twice(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_add(in.at[0], in.at[0]));
}
static gd_tensors running_sum(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *y = gd_add(in.at[0], in.at[1]);
    return gd_listed(y, y);
}
static gd_tensor *sum_of_squares(gd_tensors in, void *user) {
    (void)user;
    return gd_sum(gd_mul(in.at[0], in.at[0]));
}

/* Functions of modules whose results are not all new. */
static gd_tensors pass_on(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(in.at[0]);
}
static gd_tensors same_list(gd_tensors in, void *self) {
    (void)self;
    return in;
}
static gd_tensors one_twice(gd_tensors in, void *self) {
    (void)self;
    gd_tensor *y = gd_neg(in.at[0]);
    return gd_listed(y, y);
}
static gd_tensors new_and_input(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(gd_neg(in.at[0]), in.at[0]);
}
static gd_tensors call_child(gd_tensors in, void *self) {
    return gd_module_call(*(gd_module **)self, in);
}
static gd_tensors return_parameter(gd_tensors in, void *self) {
    (void)in;
    return gd_listed(*(gd_tensor **)self);
}
static gd_tensors return_inputs(gd_module *m, gd_tensors in, gd_tensors out, void *user) {
    (void)m, (void)out, (void)user;
    return in;
}
static gd_tensors return_input(gd_module *m, gd_tensors in, gd_tensors out, void *user) {
    (void)m, (void)out, (void)user;
    return gd_listed(in.at[0]);
}
static gd_tensor *first_input(gd_tensors in, void *user) {
    (void)user;
    return in.at[0];
}
static gd_module *module_around(gd_tensors (*fn)(gd_tensors in, void *self), gd_module *child) {
    gd_module *m = gd_module_new(fn, sizeof(gd_module *));
    gd_module **inside = gd_module_self(m);
    GD_CHILD(m, *inside, child);
    return m;
}

/* A call leaves no objects, after its caches have settled. */
#define LEAVES_NOTHING(...)                                                                        \
    do {                                                                                           \
        for (int i_ = 0; i_ < 3; i_++) {                                                           \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
        const int64_t before_ = gd_live_objects();                                                 \
        for (int i_ = 0; i_ < 50; i_++) {                                                          \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
        const double left_ = (double)(gd_live_objects() - before_) / 50;                           \
        CHECK_SAYING(left_ == 0 && !gd_failed(), "%s: leaves %g objects: %s", #__VA_ARGS__, left_, \
                     gd_error_message());                                                          \
        gd_clear_error();                                                                          \
    } while (0)

TEST(ops_and_gradients_without_a_scope_leave_only_their_results) {
    gd_tensor *a = gd_ones(gd_dims(8)), *x = gd_requires_grad(gd_ones(gd_dims(8)));
    LEAVES_NOTHING(gd_release(gd_add(a, a)));
    LEAVES_NOTHING(gd_release(gd_add(a, 1)));
    LEAVES_NOTHING(gd_release_list(gd_split(a, gd_dims(4, 4))));
    LEAVES_NOTHING(gd_release_list(gd_op_call(gd_op_find("relu"), gd_list(a), NULL)));
    LEAVES_NOTHING(gd_release(gd_index(a, gd_range(1, 3))));
    LEAVES_NOTHING(gd_topk_outputs r = gd_topk(a, 2); gd_release(r.values); gd_release(r.indices));
    LEAVES_NOTHING(gd_tensor *s = gd_sum(x); gd_backward(s); gd_release(s));
    LEAVES_NOTHING(gd_tensor *s = gd_sum(x); gd_release_list(gd_grad(gd_list(s), gd_list(x)));
                   gd_release(s));
    LEAVES_NOTHING(gd_release(gd_jvp(sum_of_squares, gd_list(a), gd_list(a), NULL)));
    LEAVES_NOTHING(gd_release_list(gd_hvp(sum_of_squares, gd_list(a), gd_list(a), NULL)));
    LEAVES_NOTHING(gd_release(gd_recompute(sum_of_squares, gd_list(x), NULL)));
    gd_release(a);
    gd_release(x);
}

CLEAN_TEST(indexing_without_a_scope_leaves_only_its_result) {
    gd_tensor *m = gd_ones(gd_dims(4, 8)), *one = gd_scalar(1),
              *rows = gd_arange(0, 2, .dtype = GD_I64),
              *x = gd_requires_grad(gd_ones(gd_dims(4, 8))), *mask = gd_gt(m, 0);
    LEAVES_NOTHING(gd_release(gd_index(m, 1)));
    LEAVES_NOTHING(gd_release(gd_index(m, 1, 1)));
    LEAVES_NOTHING(gd_release(gd_index(m, GD_ALL)));
    LEAVES_NOTHING(gd_release(gd_index(m, GD_ALL, GD_ALL)));
    LEAVES_NOTHING(gd_release(gd_index(m, gd_range(0, 2), gd_range(1, 3))));
    LEAVES_NOTHING(gd_release(gd_index(m, rows)));
    LEAVES_NOTHING(gd_release(gd_index(m, mask)));
    LEAVES_NOTHING(gd_release(gd_index(x, 1, rows)));
    LEAVES_NOTHING(gd_release(gd_index_put(m, gd_places(0), one)));
    LEAVES_NOTHING(gd_release(gd_index_put(m, gd_places(GD_ALL, gd_range(0, 2)), one)));
    LEAVES_NOTHING(gd_release(gd_index_put(m, gd_places(rows), one, .accumulate = true)));
    LEAVES_NOTHING(gd_release(gd_index_put(m, gd_places(mask), one)));
    LEAVES_NOTHING(gd_release(gd_index_put(x, gd_places(1, rows), one)));
    LEAVES_NOTHING(gd_index_put_(m, gd_places(0), one));
    LEAVES_NOTHING(gd_index_put_(m, gd_places(rows, gd_range_by(0, 8, 2)), one));
    LEAVES_NOTHING(gd_index_put_(m, gd_places(gd_range_by(3, 0, -1)), one));
    gd_tensor *all[] = {m, one, rows, x, mask};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) gd_release(all[i]);
}

TEST(modules_without_a_scope_leave_only_their_results) {
    gd_tensor *a = gd_ones(gd_dims(8));
    gd_module *net = gd_nn_linear(8, 4);
    gd_tensors p = gd_module_parameters(net);
    gd_optimizer *optimizer = gd_optim_adam(p);
    LEAVES_NOTHING(gd_release(gd_module_forward(net, a)));
    LEAVES_NOTHING(gd_release_list(gd_module_call(net, gd_list(a))));
    LEAVES_NOTHING(gd_release_list(gd_module_parameters(net)));
    LEAVES_NOTHING(gd_release_list(gd_module_buffers(net)));
    LEAVES_NOTHING(gd_tensor *y = gd_module_forward(net, a); gd_tensor *s = gd_sum(y);
                   gd_optimizer_zero_grad(optimizer); gd_backward(s); gd_optimizer_step(optimizer);
                   gd_release(y); gd_release(s));
    gd_dataset *d = gd_dataset_tensors(a);
    LEAVES_NOTHING(gd_release_list(gd_dataset_get(d, 3)));
    gd_release(d);
    gd_release(optimizer);
    gd_release_list(p);
    gd_release(net);
    gd_release(a);
}

/* All calls of a module, whose results the caller releases. `a` is used again by each. */
static void check_calls(gd_module *m, gd_tensor *a) {
    gd_tensor *here[] = {a};
    LEAVES_NOTHING(gd_release(gd_module_forward(m, a)));
    LEAVES_NOTHING(gd_release_list(gd_module_call(m, gd_list(a))));
    LEAVES_NOTHING(gd_release_list(gd_module_call(m, (gd_tensors){here, 1})));
    LEAVES_NOTHING(GD_SCOPE; gd_module_forward(m, a); gd_module_call(m, gd_list(a)));
}

enum { PASSING = 14 };

/* Modules that return what is not new: inputs, parameters, lists of others. The caller releases them. */
static void make_passing(gd_module *all[PASSING]) {
    GD_SCOPE;
    gd_module *dropout = gd_nn_dropout(), *hooked = gd_nn_relu(), *hooked_once = gd_nn_relu(),
              *with = gd_module_new(return_parameter, sizeof(gd_tensor *));
    gd_module_eval(dropout);
    gd_module_on_forward(hooked, return_inputs, NULL);
    gd_module_on_forward(hooked_once, return_input, NULL);
    gd_tensor **parameter = gd_module_self(with);
    GD_PARAMETER(with, *parameter, gd_ones(gd_dims(3)));
    gd_module *const made[PASSING] = {
        gd_nn_identity(),
        dropout,
        gd_nn_sequential(gd_nn_identity()),
        gd_nn_sequential(gd_nn_identity(), gd_nn_sequential(gd_nn_identity())),
        gd_nn_net("a", "a"),
        gd_module_new(pass_on, 0),
        gd_module_new(same_list, 0),
        gd_module_new(one_twice, 0),
        gd_module_new(new_and_input, 0),
        module_around(call_child, gd_module_new(new_and_input, 0)),
        module_around(call_child, gd_nn_identity()),
        gd_nn_sequential(with),
        hooked,
        hooked_once,
    };
    for (int i = 0; i < PASSING; i++) all[i] = gd_retain(made[i]);
}

TEST(a_result_that_is_not_new_is_owned_without_a_scope) {
    gd_tensor *a = gd_ones(gd_dims(8));
    gd_module *all[PASSING];
    make_passing(all);
    for (int i = 0; i < PASSING; i++) check_calls(all[i], a);
    CHECK(((float *)gd_data(a))[7] == 1);
    for (int i = 0; i < PASSING; i++) gd_release(all[i]);
    gd_release(a);
}

CLEAN_TEST(a_function_may_return_its_input_without_a_scope) {
    gd_tensor *a = gd_ones(gd_dims(8)), *x = gd_requires_grad(gd_ones(gd_dims(8)));
    LEAVES_NOTHING(gd_release(gd_recompute(first_input, gd_list(x), NULL)));
    LEAVES_NOTHING(GD_NO_GRAD; gd_release(gd_recompute(first_input, gd_list(x), NULL)));
    LEAVES_NOTHING(GD_NO_GRAD; gd_release(gd_recompute(sum_of_squares, gd_list(x), NULL)));
    LEAVES_NOTHING(gd_release(gd_jvp(first_input, gd_list(a), gd_list(a), NULL)));
    gd_module *same = gd_nn_identity();
    LEAVES_NOTHING(gd_release(gd_predict(same, gd_list(a))));
    gd_release(same);
    gd_release(a);
    gd_release(x);
}

TEST(graphs_without_a_scope_leave_only_their_results) {
    gd_tensor *a = gd_ones(gd_dims(8)), *zero = gd_scalar(0);
    gd_jit *jit = gd_jit_new(relu_body, NULL);
    LEAVES_NOTHING(gd_release_list(gd_jit_call(jit, gd_list(a))));
    LEAVES_NOTHING(gd_tensors r = gd_jit_call(jit, gd_list(a)); gd_retain(r.at[0]);
                   gd_release(r.at[0]); gd_release_list(r));
    LEAVES_NOTHING(gd_release_list(gd_while_loop(is_small, twice, gd_list(a), NULL)));
    LEAVES_NOTHING(gd_scanned r = gd_scan(running_sum, gd_list(zero), gd_list(a), NULL);
                   gd_release_list(r.state); gd_release_list(r.ys));
    gd_graph *graph = gd_graph_new();
    gd_tensor *px, *py;
    {
        GD_GRAPH(graph);
        px = gd_placeholder(gd_dims(8), .name = "x");
        py = gd_named(gd_relu(px), "y");
    }
    gd_session *session = gd_session_new(graph);
    LEAVES_NOTHING(gd_release_list(gd_session_run(session, gd_feed(px, a), gd_list(py))));
    LEAVES_NOTHING(gd_release(gd_graph_find(graph, "x")));
    LEAVES_NOTHING(gd_release(gd_graph_find(graph, "y")));
    LEAVES_NOTHING(gd_release_list(gd_graph_variables(graph)));
    gd_release(session);
    gd_release(py);
    gd_release(px);
    gd_release(graph);
    gd_release(jit);
    gd_release(zero);
    gd_release(a);
}

CLEAN_TEST(parameters_of_a_released_list_stay_alive) {
    gd_tensor *x = gd_ones(gd_dims(2, 8));
    gd_module *net = gd_nn_linear(8, 4);
    for (int i = 0; i < 3; i++) {
        gd_tensors list = gd_module_parameters(net);
        CHECK(list.count == 2 && gd_tensor_numel(list.at[0]) == 32);
        gd_release_list(list);
    }
    gd_tensor *y = gd_module_forward(net, x);
    CHECK(!gd_failed() && gd_tensor_dim(y, 1) == 4);
    gd_release(y);
    gd_release(net);
    gd_release(x);
}

CLEAN_TEST(a_list_of_parameters_outlives_its_module) {
    gd_module *net = gd_nn_linear(8, 4);
    gd_tensors list = gd_module_parameters(net);
    gd_release(net);
    CHECK(gd_tensor_numel(list.at[0]) == 32 && gd_data(list.at[1]));
    gd_release_list(list);
}

CLEAN_TEST(a_kept_list_of_parameters_belongs_to_the_caller) {
    gd_module *net = gd_nn_linear(8, 4);
    gd_tensors list;
    {
        GD_SCOPE;
        list = gd_keep_list(gd_module_parameters(net));
    }
    gd_release(net);
    CHECK(gd_tensor_numel(list.at[0]) == 32);
    gd_release_list(list);
}

TEST_MAIN
