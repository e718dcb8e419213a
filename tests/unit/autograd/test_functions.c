/* test_functions.c - user-defined functions (gd_apply) in graphs and jits. */
#include <math.h>
#include <stdatomic.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"
#include "temp.h"

/* --- functions -------------------------------------------------------------------------------- */

typedef struct scale {
    float by;
    _Atomic int forwards, backwards;
} scale;

/* Computes in C: y = tanh(by x), and the sum of y. Saves a result and another tensor. */
static void c_forward(gd_context *c) {
    scale *s = c->user;
    const int64_t n = gd_tensor_numel(c->x[0]);
    const float *x = gd_data(c->x[0]);
    gd_tensor *y = gd_empty(gd_tensor_shape(c->x[0]), GD_F32),
              *doubled = gd_empty(gd_dims(n), GD_F32);
    float sum = 0, *to = gd_data(y), *two = gd_data(doubled);
    for (int64_t i = 0; i < n; i++) sum += to[i] = tanhf(s->by * x[i]), two[i] = 2 * x[i];
    c->y[0] = y;
    c->y[1] = gd_scalar(sum);
    gd_save(c, c->y[0]);
    gd_save(c, doubled);
    gd_save(c, c->x[0]);
    s->forwards++;
}

static void c_backward(gd_context *c) {
    scale *s = c->user;
    gd_tensor *saved = gd_saved(c, 0), *doubled = gd_saved(c, 1), *x = gd_saved(c, 2);
    const int64_t n = gd_tensor_numel(saved);
    gd_tensor *g = gd_contiguous(c->gy[0]), *gx = gd_empty(gd_tensor_shape(c->x[0]), GD_F32);
    const float *y = gd_data(saved), *gy = gd_data(g), sum = (float)gd_item(c->gy[1]);
    float *to = gd_data(gx);
    for (int64_t i = 0; i < n; i++) to[i] = (gy[i] + sum) * s->by * (1 - y[i] * y[i]);
    const float *two = gd_data(doubled), *one = gd_data(x);
    for (int64_t i = 0; i < n; i++)
        if (two[i] != 2 * one[i]) to[i] = NAN; /* saved tensors must be unchanged */
    c->gx[0] = gx;
    s->backwards++;
}

static void c_infer(gd_context *c) {
    c->y[0] = gd_shaped(gd_tensor_shape(c->x[0]), GD_F32);
    c->y[1] = gd_shaped(gd_dims(), GD_F32);
    gd_save(c, c->y[0]);
    gd_save(c, gd_shaped(gd_dims(gd_tensor_numel(c->x[0])), GD_F32));
    gd_save(c, c->x[0]);
}

static const gd_function in_c = {
    .name = "in_c", .n_out = 2, .forward = c_forward, .backward = c_backward};
static const gd_function with_infer = {.name = "with_infer",
                                       .n_out = 2,
                                       .forward = c_forward,
                                       .backward = c_backward,
                                       .infer = c_infer};

/* Computes with ops: y = a exp(b), with b broadcast. */
static void ops_forward(gd_context *c) {
    gd_tensor *e = gd_exp(c->x[1]);
    gd_save(c, c->x[0]);
    gd_save(c, c->x[1]);
    c->y[0] = gd_mul(c->x[0], e);
}

static void ops_backward(gd_context *c) {
    gd_tensor *a = gd_saved(c, 0), *e = gd_exp(gd_saved(c, 1));
    if (c->needs[0]) c->gx[0] = gd_mul(c->gy[0], e);
    if (c->needs[1]) c->gx[1] = gd_mul(gd_mul(c->gy[0], a), e); /* in the broadcast shape */
}

static const gd_function in_ops = {
    .name = "in_ops", .forward = ops_forward, .backward = ops_backward, .backward_of_ops = true};
static const gd_function in_ops_undeclared = {
    .name = "in_ops_undeclared", .forward = ops_forward, .backward = ops_backward};

/* --- jits ------------------------------------------------------------------------------------- */

typedef struct net {
    gd_tensor *w, *b;
    gd_optimizer *optimizer;
    scale s;
    const gd_function *first, *second;
} net;

static net make_net(int way) {
    gd_seed(5);
    net n = {.w = gd_requires_grad(gd_mul(gd_randn(gd_dims(4, 3)), gd_scalar(0.5))),
             .b = gd_requires_grad(gd_mul(gd_randn(gd_dims(4)), gd_scalar(0.5))),
             .s = {.by = 0.7f},
             .first = way % 2 ? &with_infer : &in_c,
             .second = way / 2 ? &in_ops : &in_ops_undeclared};
    n.optimizer = gd_optim_adam(gd_list(n.w, n.b), .lr = 0.05);
    return n;
}

static gd_tensor *loss_of(net *n, gd_tensor *x) {
    gd_tensors h =
        gd_apply(n->first, gd_list(gd_matmul(x, gd_permute(n->w, gd_dims(1, 0)))), &n->s);
    gd_tensor *y = gd_apply(n->second, gd_list(h.at[0], n->b), NULL).at[0];
    return gd_add(gd_sum(gd_square(y)), gd_mul(h.at[1], gd_scalar(0.1)));
}

static gd_tensors train_step(gd_tensors in, void *user) {
    net *n = user;
    gd_optimizer_zero_grad(n->optimizer);
    gd_tensor *loss = loss_of(n, in.at[0]);
    gd_backward(loss);
    gd_optimizer_step(n->optimizer);
    return gd_listed(loss);
}

static gd_tensors layer(gd_tensors in, void *user) { return gd_listed(loss_of(user, in.at[0])); }

CLEAN_TEST(a_training_step_with_functions_is_one_plan) {
    for (int way = 0; way < 4; way++)
        for (int level = 0; level <= 2; level++) {
            GD_SCOPE;
            net a = make_net(way), b = make_net(way);
            gd_jit *jit = gd_jit_new(train_step, &a, .level = level);
            for (int i = 0; i < 5; i++) {
                gd_tensor *x = gd_randn(gd_dims(6, 3));
                const int forwards = a.s.forwards, backwards = a.s.backwards;
                gd_tensor *fast = gd_jit_call(jit, gd_list(x)).at[0],
                          *slow = train_step(gd_list(x), &b).at[0];
                CHECK_SAYING(!gd_failed(), "way %d: %s", way, gd_error_message());
                if (gd_failed()) return;
                const double most =
                    fmax(tensors_distance(fast, slow),
                         fmax(tensors_distance(a.w, b.w), tensors_distance(a.b, b.b)));
                CHECK_SAYING(most <= (level == 0 ? 0 : 1e-5),
                             "way %d, level %d, call %d: differs by %g", way, level, i, most);
                if (i > 0 || way % 2)
                    CHECK_SAYING(a.s.forwards == forwards + 1 && a.s.backwards == backwards + 1,
                                 "%d calls", a.s.forwards);
            }
            CHECK(gd_jit_traces(jit) == 1);
        }
}

CLEAN_TEST(calls_of_a_jit_with_functions_have_gradients) {
    for (int way = 0; way < 4; way++)
        for (int level = 0; level <= 2; level += 2) {
            GD_SCOPE;
            net a = make_net(way), b = make_net(way);
            gd_jit *jit = gd_jit_new(layer, &a, .level = level);
            for (int i = 0; i < 3; i++) {
                gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(2 + i % 2, 3)));
                const gd_tensors g = gd_grad(gd_jit_call(jit, gd_list(x)), gd_list(x, a.w, a.b)),
                                 h = gd_grad(layer(gd_list(x), &b), gd_list(x, b.w, b.b));
                CHECK_SAYING(!gd_failed(), "way %d: %s", way, gd_error_message());
                if (gd_failed()) return;
                for (int k = 0; k < 3; k++)
                    CHECK(tensors_distance(g.at[k], h.at[k]) <= (level == 0 ? 0 : 1e-5));
            }
        }
}

static gd_tensors penalty(gd_tensors in, void *user) {
    net *n = user;
    gd_tensor *y = gd_sum(gd_apply(n->second, gd_list(in.at[0], n->b), NULL).at[0]);
    gd_tensor *g = gd_grad(gd_list(y), gd_list(n->b), .create_graph = true).at[0];
    return gd_listed(gd_grad(gd_list(gd_sum(gd_square(g))), gd_list(n->b)).at[0]);
}

CLEAN_TEST(second_order_gradients_go_through_backwards_built_from_ops) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(3, 4));
    net a = make_net(2), b = make_net(2);
    for (int level = 0; level <= 2; level += 2) {
        gd_tensor *fast = gd_jit_call(gd_jit_new(penalty, &a, .level = level), gd_list(x)).at[0];
        CHECK_SAYING(!gd_failed() && tensors_distance(fast, penalty(gd_list(x), &b).at[0]) <= 1e-4,
                     "%s", gd_error_message());
    }
    net c = make_net(0);
    gd_jit_call(gd_jit_new(penalty, &c), gd_list(x));
    CHECK_SAYING(gd_error_status() == GD_E_UNSUPPORTED && says("in_ops_undeclared") &&
                     says(".backward_of_ops"),
                 "%s", gd_error_message());
}

/* --- graphs ----------------------------------------------------------------------------------- */

/* With known sizes, unknown sizes, and sizes that depend on data. */
CLEAN_TEST(functions_are_nodes_of_graphs) {
    for (int way = 0; way < 4; way++)
        for (int sizes = 0; sizes < 3; sizes++)
            for (int level = 0; level <= 2; level += 2) {
                GD_SCOPE;
                net n = make_net(way), m = make_net(way);
                gd_graph *graph = gd_graph_new();
                gd_tensor *x, *w, *loss, *g;
                {
                    GD_GRAPH(graph);
                    x = gd_placeholder(gd_dims(sizes ? GD_ANY : 5, 3));
                    w = n.w = gd_variable(gd_detach(n.w));
                    n.b = gd_variable(gd_detach(n.b));
                    gd_tensor *some = x;
                    if (sizes == 2)
                        some = gd_reshape(gd_masked_select(x, gd_ge(x, gd_scalar(-100))),
                                          gd_dims(-1, 3));
                    loss = loss_of(&n, some);
                    g = gd_gradients(gd_list(loss), gd_list(w)).at[0];
                }
                CHECK_SAYING(!gd_failed(), "way %d, sizes %d: %s", way, sizes, gd_error_message());
                if (gd_failed()) return;
                gd_session *s = gd_session_new(graph, .level = level);
                for (int i = 0; i < 2; i++) {
                    gd_tensor *given = gd_randn(gd_dims(sizes ? 4 + i : 5, 3));
                    gd_tensors r = gd_session_run(s, gd_feed(x, given), gd_list(loss, g));
                    gd_tensor *want = loss_of(&m, given),
                              *grad = gd_grad(gd_list(want), gd_list(m.w)).at[0];
                    CHECK_SAYING(!gd_failed(), "way %d, sizes %d: %s", way, sizes,
                                 gd_error_message());
                    if (gd_failed()) return;
                    CHECK_SAYING(tensors_distance(r.at[0], want) <= (level == 0 ? 0 : 1e-5) &&
                                     tensors_distance(r.at[1], grad) <= (level == 0 ? 0 : 1e-5),
                                 "way %d, sizes %d, level %d", way, sizes, level);
                }
            }
}

/* A function without inputs: each needed node calls it once per run, even if nodes are equal. */
static void count_forward(gd_context *c) {
    _Atomic int *count = c->user;
    c->y[0] = gd_scalar((double)++*count);
}
static void count_infer(gd_context *c) { c->y[0] = gd_shaped(gd_dims(), GD_F32); }
static void no_backward(gd_context *c) { (void)c; }
static const gd_function counting = {
    .name = "counting", .forward = count_forward, .backward = no_backward, .infer = count_infer};

CLEAN_TEST(a_node_calls_once_in_each_run_that_needs_it) {
    for (int level = 0; level <= 2; level++) {
        GD_SCOPE;
        _Atomic int count = 0;
        gd_graph *graph = gd_graph_new();
        gd_tensor *a, *b, *c;
        {
            GD_GRAPH(graph);
            a = gd_apply(&counting, gd_nothing, (void *)&count).at[0];
            b = gd_apply(&counting, gd_nothing, (void *)&count).at[0];
            c = gd_add(a, b);
        }
        gd_session *s = gd_session_new(graph, .level = level);
        CHECK(gd_item(gd_session_run(s, gd_nothing, gd_list(c)).at[0]) == 3 && count == 2);
        CHECK(gd_item(gd_session_run(s, gd_nothing, gd_list(c)).at[0]) == 7 && count == 4);
        CHECK_SAYING(gd_item(gd_session_run(s, gd_nothing, gd_list(b)).at[0]) == 5 && count == 5 &&
                         !gd_failed(),
                     "%d %s", count, gd_error_message());
    }
}

/* An input that the function retains is not overwritten, and may be returned as a result. */
static gd_tensor *kept;
static void keep_forward(gd_context *c) {
    if (kept) gd_release(kept);
    kept = gd_retain(c->x[0]);
    c->y[0] = c->x[0];
}
static void pass_backward(gd_context *c) { c->gx[0] = c->gy[0]; }
static const gd_function keeping = {
    .name = "keeping", .forward = keep_forward, .backward = pass_backward};

CLEAN_TEST(inputs_may_be_retained_and_returned) {
    {
        GD_SCOPE;
        gd_graph *graph = gd_graph_new();
        gd_tensor *x, *y;
        {
            GD_GRAPH(graph);
            x = gd_placeholder(gd_dims(200));
            y = gd_exp(gd_apply(&keeping, gd_list(gd_mul(x, gd_scalar(2))), NULL).at[0]);
        }
        gd_session *s = gd_session_new(graph);
        gd_session_run(s, gd_feed(x, gd_full(gd_dims(200), 3)), gd_list(y));
        gd_tensor *first = gd_retain(kept);
        gd_session_run(s, gd_feed(x, gd_full(gd_dims(200), 4)), gd_list(y));
        CHECK_SAYING(gd_item(gd_max(first)) == 6 && gd_item(gd_min(first)) == 6 &&
                         gd_item(gd_max(kept)) == 8 && !gd_failed(),
                     "%s", gd_error_message());
        gd_release(first);
    }
    gd_release(kept);
    kept = NULL;
}

/* --- errors ----------------------------------------------------------------------------------- */

static void fail_forward(gd_context *c) { c->y[0] = gd_add(c->x[0], gd_ones(gd_dims(77))); }
static void rank_forward(gd_context *c) { /* the shape depends on the values */
    c->y[0] = gd_item(gd_max(c->x[0])) > 1 ? gd_ones(gd_dims(2)) : gd_ones(gd_dims(3));
}
static const gd_function failing = {
    .name = "failing", .forward = fail_forward, .backward = pass_backward};
static const gd_function changing = {
    .name = "changing", .forward = rank_forward, .backward = pass_backward};

CLEAN_TEST(invalid_functions_are_named_in_the_error) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(4));
        gd_apply(&failing, gd_list(x), NULL);
        CHECK_SAYING(gd_failed() && says("failing") && says("infer"), "%s", gd_error_message());
        gd_clear_error();
        gd_apply(&keeping, gd_list(x, NULL), NULL);
        CHECK_SAYING(gd_failed() && says("input 1 is NULL"), "%s", gd_error_message());
        gd_clear_error();
        y = gd_apply(&changing, gd_list(x), NULL).at[0];
    }
    gd_session *s = gd_session_new(graph);
    gd_session_run(s, gd_feed(x, gd_ones(gd_dims(4))), gd_list(y));
    CHECK(!gd_failed());
    gd_session_run(s, gd_feed(x, gd_full(gd_dims(4), 2)), gd_list(y));
    CHECK_SAYING(gd_error_status() == GD_E_STATE && says("changing") && says("result 0 is f32[2]"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_onnx_save(temp_path("unsupported.onnx"), s, gd_list(x), gd_list(y), .own_ops = true) ==
          GD_E_UNSUPPORTED);
    CHECK_SAYING(says("calls a function of the program (gd_apply)"), "%s", gd_error_message());
    gd_clear_error();
    if (kept) gd_release(kept);
    kept = NULL;
}

TEST_MAIN
