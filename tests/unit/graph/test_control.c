/* test_control.c - cond, while_loop, scan and foldl: with values, in graphs, and their gradients.
 */
#include <math.h>

#include "clean_test.h"
#include "compare.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "graph/control/run.h"
#include "control_models.h"

static gd_tensor *noise(gd_shape dims, gd_dtype dtype) { return gd_cast(gd_randn(dims), dtype); }

/* The value of a model, its gradients, and their gradients. */
enum { RESULTS = 1 + 2 * INPUTS };
static void with_gradients(const model *m, gd_fn fn, gd_tensors in, gd_tensor **results) {
    results[0] = fn(in, m->user);
    gd_tensors g = gd_grad(gd_list(gd_sum(gd_square(results[0]))), in, .create_graph = true);
    gd_tensor *sum = gd_sum(gd_square(g.at[0]));
    for (int i = 1; i < INPUTS; i++) sum = gd_add(sum, gd_sum(gd_square(g.at[i])));
    gd_tensors gg = gd_grad(gd_list(sum), in);
    for (int i = 0; i < INPUTS; i++) results[1 + i] = g.at[i], results[1 + INPUTS + i] = gg.at[i];
}

static void eager_results(const model *m, gd_fn fn, gd_tensor *const *values, gd_tensor **results) {
    gd_tensor *in[INPUTS];
    for (int i = 0; i < INPUTS; i++) in[i] = gd_requires_grad(gd_detach(values[i]));
    with_gradients(m, fn, (gd_tensors){in, INPUTS}, results);
}

static void graph_results(const model *m, gd_tensor *const *values, bool any, int level,
                          gd_tensor **results) {
    gd_graph *graph = gd_graph_new();
    gd_tensor *in[INPUTS], *symbols[RESULTS], *feeds[2 * INPUTS];
    {
        GD_GRAPH(graph);
        for (int i = 0; i < INPUTS; i++) {
            gd_shape dims = gd_tensor_shape(values[i]);
            if (any && i == 1) dims.at[0] = GD_ANY;
            feeds[2 * i] = in[i] = gd_placeholder(dims, .dtype = gd_tensor_dtype(values[i]));
            feeds[2 * i + 1] = values[i];
        }
        with_gradients(m, m->fn, (gd_tensors){in, INPUTS}, symbols);
    }
    gd_session *s = gd_session_new(graph, .level = level);
    gd_tensors r =
        gd_session_run(s, ((gd_tensors){feeds, 2 * INPUTS}), ((gd_tensors){symbols, RESULTS}));
    for (int i = 0; i < RESULTS && i < r.count; i++) results[i] = gd_clone(r.at[i]);
    gd_tensors again =
        gd_session_run(s, ((gd_tensors){feeds, 2 * INPUTS}), ((gd_tensors){symbols, RESULTS}));
    for (int i = 0; i < RESULTS; i++) CHECK(tensors_same_bits(again.at[i], results[i]));
}

/* --- agreement with eager code ---------------------------------------------------------------- */

CLEAN_TEST(graphs_give_the_bits_of_eager_values_and_gradients_of_two_orders) {
    for (int k = 0; k < control_model_count; k++)
        for (int any = 0; any < 2; any++) {
            GD_SCOPE;
            gd_tensor *in[INPUTS], *eager[RESULTS], *graph[RESULTS];
            control_inputs(GD_F32, in);
            eager_results(&control_models[k], control_models[k].fn, in, eager);
            graph_results(&control_models[k], in, any, 0, graph);
            for (int i = 0; i < RESULTS; i++)
                CHECK_SAYING(!gd_failed() && tensors_same_bits(eager[i], graph[i]),
                             "%s, %s sizes, result %d: %s", control_models[k].name,
                             any ? "unknown" : "known", i, gd_error_message());
            gd_clear_error();
        }
}

CLEAN_TEST(gradients_agree_with_finite_differences_and_unrolled_code) {
    for (int k = 0; k < control_model_count; k++) {
        GD_SCOPE;
        gd_tensor *in[INPUTS], *leaves[INPUTS], *got[RESULTS], *by_hand[RESULTS];
        control_inputs(GD_F64, in);
        for (int i = 0; i < INPUTS; i++) leaves[i] = gd_requires_grad(gd_detach(in[i]));
        gd_status status =
            gd_gradcheck(control_models[k].fn, ((gd_tensors){leaves, INPUTS}),
                         control_models[k].user, .second_order = true, .tolerance_relative = 1e-3);
        CHECK_SAYING(status == GD_OK, "%s: %s", control_models[k].name, gd_error_message());
        if (!control_models[k].by_hand) continue;
        graph_results(&control_models[k], in, false, 2, got);
        eager_results(&control_models[k], control_models[k].by_hand, in, by_hand);
        for (int i = 0; i < RESULTS; i++)
            CHECK_SAYING(tensors_distance(got[i], by_hand[i]) <=
                             1e-9 * (1 + gd_item(gd_max(gd_abs(by_hand[i])))),
                         "%s: result %d", control_models[k].name, i);
    }
}

/* Branches and scans are steps of a plan. The gradient of a loop of unknown length cannot be
 * one. */
CLEAN_TEST(loops_as_steps_of_a_plan_agree_with_eager_code) {
    const int64_t before = gd_short_scan;
    gd_short_scan = 0;
    for (int k = 0; k < control_model_count; k++)
        for (int any = 0; any < 2; any++)
            for (int level = 1; level < 3; level++) {
                GD_SCOPE;
                gd_tensor *in[INPUTS], *eager[RESULTS], *graph[RESULTS];
                control_inputs(GD_F64, in);
                eager_results(&control_models[k], control_models[k].fn, in, eager);
                graph_results(&control_models[k], in, any, level, graph);
                for (int i = 0; i < RESULTS; i++)
                    CHECK_SAYING(!gd_failed() &&
                                     tensors_distance(eager[i], graph[i]) <=
                                         1e-10 * (1 + gd_item(gd_max(gd_abs(eager[i])))),
                                 "%s, %s sizes, level %d, result %d: %s", control_models[k].name,
                                 any ? "unknown" : "known", level, i, gd_error_message());
                gd_clear_error();
            }
    gd_short_scan = before;
}

CLEAN_TEST(everything_but_gradients_of_while_loops_is_planned) {
    const int64_t before = gd_short_scan;
    for (int k = 0; k < control_model_count; k++)
        for (int steps = 0; steps < 2; steps++)
            for (int gradient = 0; gradient < 2; gradient++) {
                GD_SCOPE;
                gd_short_scan = steps ? 0 : before;
                gd_tensor *in[INPUTS], *x, *y, *g;
                control_inputs(GD_F32, in);
                gd_graph *graph = gd_graph_new();
                {
                    GD_GRAPH(graph);
                    x = gd_placeholder(gd_dims(GD_ANY, 4));
                    y = control_models[k].fn(gd_list(in[0], x, in[2]), control_models[k].user);
                    g = gd_gradients(gd_list(gd_sum(y)), gd_list(x)).at[0];
                }
                gd_session *s = gd_session_new(graph);
                gd_plan_memory memory = {.at_least = true};
                const bool loops = strstr(control_models[k].name, "while") ||
                                   strstr(control_models[k].name, "nested");
                CHECK(gd_session_plan(s, gd_feed(x, in[1]), gd_list(gradient ? g : y), &memory) ==
                      GD_OK);
                CHECK_SAYING(memory.at_least == (loops && gradient), "%s, gradient %d",
                             control_models[k].name, gradient);
            }
    gd_short_scan = before;
}

/* --- lstm ------------------------------------------------------------------------------------- */

typedef struct lstm_weights {
    gd_tensor *w_ih, *w_hh, *b_ih, *b_hh;
} lstm_weights;

/* From h, c and x (N, I) computes the next h and c, and returns h also as the step's result. */
static gd_tensors lstm_step(gd_tensors in, void *user) {
    lstm_weights *w = user;
    gd_tensor *h = in.at[0], *c = in.at[1], *x = in.at[2];
    gd_tensor *all = gd_add(gd_add(gd_matmul(x, gd_permute(w->w_ih, gd_dims(1, 0))), w->b_ih),
                            gd_add(gd_matmul(h, gd_permute(w->w_hh, gd_dims(1, 0))), w->b_hh));
    gd_tensors gate = gd_chunk(all, 4, .axis = 1);
    gd_tensor *next_c = gd_add(gd_mul(gd_sigmoid(gate.at[1]), c),
                               gd_mul(gd_sigmoid(gate.at[0]), gd_tanh(gate.at[2])));
    gd_tensor *next_h = gd_mul(gd_sigmoid(gate.at[3]), gd_tanh(next_c));
    return gd_listed(next_h, next_c, next_h);
}

enum { LSTM_RESULTS = 3 + 5 };
static void lstm_results(bool scan, gd_tensor *x, gd_tensor *h0, gd_tensor *c0, lstm_weights *w,
                         gd_tensor **results) {
    if (scan) {
        gd_scanned s = gd_scan(lstm_step, gd_list(h0, c0), gd_list(x), w);
        results[0] = s.ys.at[0], results[1] = s.state.at[0], results[2] = s.state.at[1];
    } else {
        gd_tensor *h = gd_unsqueeze(h0, 0), *c = gd_unsqueeze(c0, 0);
        gd_lstm_outputs o = gd_lstm(x, h, c, NULL, gd_list(w->w_ih, w->w_hh, w->b_ih, w->b_hh));
        results[0] = o.y, results[1] = gd_squeeze(o.h, .axis = 0),
        results[2] = gd_squeeze(o.c, .axis = 0);
    }
    gd_tensor *loss = gd_add(gd_sum(gd_square(results[0])), gd_sum(gd_mul(results[1], results[2])));
    gd_tensors g = gd_grad(gd_list(loss), gd_list(x, w->w_ih, w->w_hh, w->b_ih, w->b_hh));
    for (int i = 0; i < 5; i++) results[3 + i] = g.at[i];
}

CLEAN_TEST(an_lstm_by_scan_equals_the_lstm_op) {
    enum { T = 7, N = 3, I = 5, H = 4 };
    GD_SCOPE;
    gd_seed(3);
    gd_tensor *x = gd_requires_grad(noise(gd_dims(T, N, I), GD_F64)),
              *h0 = noise(gd_dims(N, H), GD_F64), *c0 = noise(gd_dims(N, H), GD_F64);
    lstm_weights w = {gd_requires_grad(noise(gd_dims(4 * H, I), GD_F64)),
                      gd_requires_grad(noise(gd_dims(4 * H, H), GD_F64)),
                      gd_requires_grad(noise(gd_dims(4 * H), GD_F64)),
                      gd_requires_grad(noise(gd_dims(4 * H), GD_F64))};
    gd_tensor *op[LSTM_RESULTS], *scan[LSTM_RESULTS], *symbols[LSTM_RESULTS];
    lstm_results(false, x, h0, c0, &w, op);
    lstm_results(true, x, h0, c0, &w, scan);
    gd_graph *graph = gd_graph_new();
    gd_tensor *px;
    {
        GD_GRAPH(graph);
        px = gd_placeholder(gd_dims(GD_ANY, N, I), .dtype = GD_F64);
        lstm_weights v = {gd_variable(gd_detach(w.w_ih)), gd_variable(gd_detach(w.w_hh)),
                          gd_variable(gd_detach(w.b_ih)), gd_variable(gd_detach(w.b_hh))};
        lstm_results(true, px, h0, c0, &v, symbols);
    }
    gd_tensors r = gd_session_run(gd_session_new(graph), gd_feed(px, gd_detach(x)),
                                  ((gd_tensors){symbols, LSTM_RESULTS}));
    const int64_t before = gd_short_scan;
    gd_short_scan = 0; /* run it as a step of the plan */
    gd_tensors q = gd_session_run(gd_session_new(graph), gd_feed(px, gd_detach(x)),
                                  ((gd_tensors){symbols, LSTM_RESULTS}));
    gd_short_scan = before;
    for (int i = 0; i < LSTM_RESULTS; i++)
        CHECK_SAYING(!gd_failed() && tensors_distance(op[i], q.at[i]) < 1e-12,
                     "a step, result %d: %s", i, gd_error_message());
    for (int i = 0; i < LSTM_RESULTS; i++) {
        CHECK_SAYING(!gd_failed() && tensors_distance(op[i], scan[i]) < 1e-12,
                     "eager result %d: %s", i, gd_error_message());
        CHECK_SAYING(!gd_failed() && tensors_distance(op[i], r.at[i]) < 1e-12,
                     "graph result %d: %s", i, gd_error_message());
    }
}

/* --- zero steps, many steps ------------------------------------------------------------------- */

CLEAN_TEST(loops_of_zero_steps_return_their_initial_state) {
    GD_SCOPE;
    for (int graphs = 0; graphs < 2; graphs++) {
        gd_graph *graph = gd_graph_new();
        gd_tensor *x = gd_zeros(gd_dims(0, 4)), *w = gd_full(gd_dims(4), 2),
                  *y0 = gd_full(gd_dims(4), 3);
        gd_tensor *large = gd_full(gd_dims(4), 1000), *r[5], *px = NULL;
        {
            gd_block block = graphs ? gd_graph_begin(graph) : (gd_block){NULL};
            if (graphs) px = gd_placeholder(gd_dims(GD_ANY, 4));
            gd_scanned s =
                gd_scan(two_step, gd_list(y0, y0), gd_list(graphs ? px : x, graphs ? px : x), w);
            r[0] = gd_foldl(fold_step, y0, gd_list(graphs ? px : x), w);
            r[1] = s.state.at[0], r[2] = s.ys.at[0], r[3] = s.ys.at[1];
            r[4] = gd_while_loop(is_small, grow, gd_list(large), w).at[0];
            if (graphs) gd_graph_end(&block);
        }
        if (graphs) {
            gd_tensors got = gd_session_run(gd_session_new(graph), gd_feed(px, x),
                                            gd_list(r[0], r[1], r[2], r[3], r[4]));
            for (int i = 0; i < 5 && i < got.count; i++) r[i] = got.at[i];
        }
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        CHECK(tensors_same_bits(r[0], y0) && tensors_same_bits(r[1], y0) &&
              tensors_same_bits(r[4], large));
        CHECK(gd_tensor_rank(r[2]) == 2 && gd_tensor_dim(r[2], 0) == 0 &&
              gd_tensor_dim(r[2], 1) == 4 && gd_tensor_dim(r[3], 1) == 4);
    }
}

CLEAN_TEST(a_long_scan_is_run_step_by_step_and_has_the_same_bits) {
    GD_SCOPE;
    const int64_t steps = 6000;
    gd_seed(2);
    gd_tensor *x = gd_randn(gd_dims(steps, 2)), *w = gd_full(gd_dims(2), 0.99),
              *y0 = gd_zeros(gd_dims(2));
    gd_graph *graph = gd_graph_new();
    gd_tensor *px, *pw, *y, *g;
    {
        GD_GRAPH(graph);
        px = gd_placeholder(gd_dims(GD_ANY, 2));
        pw = gd_placeholder(gd_dims(2));
        y = gd_foldl(fold_step, y0, gd_list(px), pw);
        g = gd_gradients(gd_list(gd_sum(y)), gd_list(pw)).at[0];
    }
    gd_session *s = gd_session_new(graph, .level = 0);
    gd_plan_memory memory;
    CHECK(gd_session_plan(s, gd_feed(px, x, pw, w), gd_list(y, g), &memory) == GD_OK &&
          memory.at_least);
    gd_tensor *few = gd_randn(gd_dims(20, 2));
    CHECK(gd_session_plan(s, gd_feed(px, few, pw, w), gd_list(y, g), &memory) == GD_OK &&
          !memory.at_least);
    gd_tensors r = gd_session_run(s, gd_feed(px, x, pw, w), gd_list(y, g));
    gd_tensor *leaf = gd_requires_grad(gd_detach(w)),
              *eager = gd_foldl(fold_step, y0, gd_list(x), leaf);
    CHECK_SAYING(
        tensors_same_bits(r.at[0], eager) &&
            tensors_same_bits(r.at[1], gd_grad(gd_list(gd_sum(eager)), gd_list(leaf)).at[0]),
        "%s", gd_error_message());
}

CLEAN_TEST(a_loop_ends_after_max_steps) {
    GD_SCOPE;
    gd_tensor *one = gd_ones(gd_dims(1)), *w = gd_full(gd_dims(1), sqrt(0.5)); /* doubles */
    CHECK(gd_item(gd_while_loop(is_small, grow, gd_list(one), w, .max_steps = 3).at[0]) == 8);
    gd_graph *graph = gd_graph_new();
    gd_tensor *y;
    {
        GD_GRAPH(graph);
        y = gd_while_loop(is_small, grow, gd_list(one), w, .max_steps = 3).at[0];
    }
    CHECK(gd_item(gd_session_run(gd_session_new(graph), gd_nothing, gd_list(y)).at[0]) == 8);
}

/* --- runs ------------------------------------------------------------------------------------- */

static gd_tensors divide(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_gather(in.at[0], 0, gd_full(gd_dims(1), 7, .dtype = GD_I64)));
}
static gd_tensors leave_body(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_narrow(in.at[0], 0, 0, 1));
}

CLEAN_TEST(only_the_taken_branch_runs) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *p, *y;
    {
        GD_GRAPH(graph);
        p = gd_placeholder(gd_dims(), .dtype = GD_BOOL);
        y = gd_cond(p, divide, leave_body, gd_list(gd_ones(gd_dims(2))), NULL).at[0];
    }
    gd_session *s = gd_session_new(graph);
    CHECK(gd_item(gd_session_run(s, gd_feed(p, gd_scalar_of(0, GD_BOOL)), gd_list(y)).at[0]) == 1 &&
          !gd_failed());
    gd_session_run(s, gd_feed(p, gd_scalar_of(1, GD_BOOL)), gd_list(y)); /* an index out of range */
    CHECK_SAYING(gd_error_status() == GD_E_INDEX && says("gather") && says("test_control.c:") &&
                     says("cond_graph"),
                 "%s", gd_error_message());
}

static gd_tensors add_weight(gd_tensors in, void *w) { return gd_listed(gd_add(in.at[0], w)); }

/* Reads see earlier assignments, also inside bodies. */
CLEAN_TEST(variables_train_through_a_loop_and_reads_see_earlier_writes) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *w, *update, *y, *loss, *train, *swap_a, *swap_b;
    {
        GD_GRAPH(graph);
        w = gd_variable(gd_full(gd_dims(2), 1));
        gd_tensor *a = gd_variable(gd_full(gd_dims(1), 5), .name = "a", .trainable = false),
                  *b = gd_variable(gd_full(gd_dims(1), 6), .name = "b", .trainable = false);
        update = gd_assign(w, gd_full(gd_dims(2), 40));
        y = gd_while_loop(is_small, add_weight, gd_list(gd_zeros(gd_dims(2))), w, .max_steps = 3)
                .at[0];
        loss = gd_sum(gd_square(gd_sub(y, gd_full(gd_dims(2), 6))));
        train = gd_minimize(gd_optim_sgd(gd_graph_variables(graph), .lr = 0.01), loss);
        gd_tensor *old = gd_clone(a);
        swap_a = gd_assign(a, b);
        swap_b = gd_assign(b, old);
    }
    gd_session *s = gd_session_new(graph);
    gd_tensors r = gd_session_run(s, gd_nothing, gd_list(update, y));
    CHECK_SAYING(!gd_failed() && gd_item(gd_select(r.at[0], 0, 0)) == 40 &&
                     gd_item(gd_select(r.at[1], 0, 0)) == 40,
                 "%g %s", gd_item(gd_select(r.at[1], 0, 0)), gd_error_message());
    CHECK(gd_item(gd_select(gd_session_get(s, w), 0, 1)) == 40);
    gd_session_set(s, w, gd_ones(gd_dims(2)));
    double first = gd_item(gd_session_run(s, gd_nothing, gd_list(loss)).at[0]), last = first;
    CHECK(first == 18 && gd_item(gd_select(gd_session_get(s, w), 0, 1)) == 1);
    for (int i = 0; i < 40; i++)
        last = gd_item(gd_session_run(s, gd_nothing, gd_list(loss, train)).at[0]);
    CHECK_SAYING(last < 1e-4 * first && !gd_failed(), "%g to %g: %s", first, last,
                 gd_error_message());
    gd_session_run(s, gd_nothing, gd_list(swap_a, swap_b, y));
    CHECK(gd_item(gd_session_get(s, gd_graph_find(graph, "a"))) == 6 &&
          gd_item(gd_session_get(s, gd_graph_find(graph, "b"))) == 5);
}

/* Swaps by a copy, as in eager code, with and without a loop in the run. */
CLEAN_TEST(variables_may_be_swapped) {
    GD_SCOPE;
    for (int loop = 0; loop < 2; loop++)
        for (int level = 0; level < 3; level++) {
            gd_graph *graph = gd_graph_new();
            gd_tensor *a, *b, *m, *all;
            {
                GD_GRAPH(graph);
                const float numbers[4] = {1, 2, 3, 4};
                a = gd_variable(gd_full(gd_dims(2), 5));
                b = gd_variable(gd_full(gd_dims(2), 6));
                m = gd_variable(gd_from_array(gd_dims(2, 2), GD_F32, numbers));
                gd_tensor *y = loop
                                   ? gd_while_loop(is_small, add_weight,
                                                   gd_list(gd_zeros(gd_dims(2))), a, .max_steps = 3)
                                         .at[0]
                                   : gd_sum(a);
                gd_tensor *old = gd_clone(a), *first = gd_assign(a, b), *second = gd_assign(b, old);
                all =
                    gd_group(gd_list(first, second, gd_assign(m, gd_permute(m, gd_dims(1, 0))), y));
            }
            gd_session *s = gd_session_new(graph, .level = level);
            gd_session_run(s, gd_nothing, gd_list(all));
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            CHECK(gd_item(gd_select(gd_session_get(s, a), 0, 1)) == 6 &&
                  gd_item(gd_select(gd_session_get(s, b), 0, 1)) == 5);
            const float *transposed = gd_data(gd_session_get(s, m));
            CHECK(transposed[0] == 1 && transposed[1] == 3 && transposed[2] == 2 &&
                  transposed[3] == 4);
        }
}

static gd_tensors add_noise(gd_tensors in, void *user) {
    gd_tensor *n = gd_randn(gd_dims(8));
    (void)user;
    return gd_listed(gd_add(in.at[0], n), gd_mul(n, gd_ones(gd_dims(8))));
}
static gd_tensors count_down(gd_tensors in, void *user) {
    gd_tensor *y = add_noise(in, user).at[0];
    return gd_listed(y, gd_sub(in.at[1], gd_ones_like(in.at[1])));
}
static gd_tensors is_left(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_gt(in.at[1], gd_zeros_like(in.at[1])));
}

CLEAN_TEST(random_numbers_differ_in_each_step_and_run_and_depend_on_the_seed) {
    GD_SCOPE;
    gd_tensor *ys[2][2], *ends[2][2];
    for (int k = 0; k < 2; k++) {
        gd_seed(11);
        gd_graph *graph = gd_graph_new();
        gd_tensor *y, *end;
        {
            GD_GRAPH(graph);
            y = gd_scan(add_noise, gd_list(gd_zeros(gd_dims(8))), gd_list(gd_zeros(gd_dims(5, 1))),
                        NULL)
                    .ys.at[0];
            end = gd_while_loop(is_left, count_down,
                                gd_list(gd_zeros(gd_dims(8)), gd_full(gd_dims(), 3)), NULL)
                      .at[0];
        }
        gd_session *s = gd_session_new(graph);
        for (int run = 0; run < 2; run++) {
            ys[k][run] = gd_session_run(s, gd_nothing, gd_list(y)).at[0];
            ends[k][run] = gd_session_run(s, gd_nothing, gd_list(end)).at[0];
        }
        for (int t = 1; t < 5; t++)
            CHECK(!tensors_same_bits(gd_select(ys[k][0], 0, 0), gd_select(ys[k][0], 0, t)));
        CHECK(!tensors_same_bits(ys[k][0], ys[k][1]) && !tensors_same_bits(ends[k][0], ends[k][1]));
    }
    for (int run = 0; run < 2; run++)
        CHECK(tensors_same_bits(ys[0][run], ys[1][run]) &&
              tensors_same_bits(ends[0][run], ends[1][run]));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* Unrolled, as a step of a plan, or node by node: the random numbers are the same. */
CLEAN_TEST(random_numbers_are_the_same_however_a_loop_is_run) {
    GD_SCOPE;
    gd_tensor *ys[3], *ends[3];
    const int64_t before = gd_short_scan;
    for (int way = 0; way < 3; way++) {
        gd_seed(11);
        gd_graph *graph = gd_graph_new();
        gd_tensor *y, *end, *sizes;
        {
            GD_GRAPH(graph);
            y = gd_scan(add_noise, gd_list(gd_zeros(gd_dims(8))), gd_list(gd_zeros(gd_dims(5, 1))),
                        NULL)
                    .ys.at[0];
            end = gd_while_loop(is_left, count_down,
                                gd_list(gd_zeros(gd_dims(8)), gd_full(gd_dims(), 3)), NULL)
                      .at[0];
            sizes = gd_nonzero(gd_zeros(gd_dims(3)));
        }
        gd_short_scan = way == 1 ? 0 : before;
        gd_session *s = gd_session_new(graph);
        gd_tensors r = way == 2 ? gd_session_run(s, gd_nothing, gd_list(y, end, sizes))
                                : gd_session_run(s, gd_nothing, gd_list(y, end));
        ys[way] = r.at[0], ends[way] = r.at[1];
    }
    gd_short_scan = before;
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    for (int way = 1; way < 3; way++)
        CHECK(tensors_same_bits(ys[0], ys[way]) && tensors_same_bits(ends[0], ends[way]));
}

CLEAN_TEST(gradients_reach_values_that_a_body_captures) {
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(gd_full(gd_dims(2), 3)), *x = gd_ones(gd_dims(4, 2));
    gd_graph *graph = gd_graph_new();
    gd_tensor *g;
    {
        GD_GRAPH(graph);
        gd_tensor *y = gd_foldl(fold_step, gd_zeros(gd_dims(2)), gd_list(x), w);
        g = gd_gradients(gd_list(gd_sum(y)), gd_list(w)).at[0];
    }
    gd_session *s = gd_session_new(graph);
    CHECK(gd_item(gd_select(gd_session_run(s, gd_nothing, gd_list(g)).at[0], 0, 0)) ==
          1 + 6 + 27 + 108);
    {
        GD_NO_GRAD;
        gd_sub_(w, gd_ones(gd_dims(2))); /* the session reads the current value at each run */
    }
    CHECK_SAYING(gd_item(gd_select(gd_session_run(s, gd_nothing, gd_list(g)).at[0], 0, 0)) ==
                     1 + 4 + 12 + 32,
                 "%s", gd_error_message());
}

/* Writes a captured tensor, then uses it in a loop and in a branch. */
typedef struct jitted {
    gd_tensor *w, *count;
} jitted;
static gd_tensors loops_in_a_jit(gd_tensors in, void *user) {
    jitted *j = user;
    gd_add_(j->count, gd_ones(gd_dims(2)));
    gd_tensor *y = gd_foldl(fold_step, j->count, gd_list(in.at[0]), j->w);
    gd_tensor *large = gd_gt(gd_sum(y), gd_scalar(1e6));
    gd_tensors r = gd_cond(large, with_sine, with_square, gd_list(y), j->count);
    return gd_listed(gd_while_loop(is_small, grow, gd_list(gd_add(r.at[0], r.at[1])), j->w).at[0]);
}

CLEAN_TEST(a_jit_may_have_loops) {
    GD_SCOPE;
    jitted eager = {gd_full(gd_dims(2), 1.25), gd_zeros(gd_dims(2))},
           planned = {eager.w, gd_zeros(gd_dims(2))};
    gd_jit *fast = gd_jit_new(loops_in_a_jit, &planned, .level = 1);
    for (int i = 0; i < 3; i++) {
        gd_tensor *x = gd_randn(gd_dims(3 + i, 2));
        gd_tensor *want = loops_in_a_jit(gd_list(x), &eager).at[0],
                  *got = gd_jit_call(fast, gd_list(x)).at[0];
        CHECK_SAYING(!gd_failed() && tensors_same_bits(want, got) &&
                         tensors_same_bits(eager.count, planned.count),
                     "call %d: %s", i, gd_error_message());
    }
}

static gd_tensors inner_gradient(gd_tensors in, void *w) {
    gd_tensor *loss = gd_sum(gd_mul(gd_square(gd_square(in.at[0])), w));
    return gd_listed(gd_sub(
        in.at[0], gd_mul(gd_grad(gd_list(loss), gd_list(in.at[0]), .create_graph = true).at[0],
                         gd_scalar_of(0.01, GD_F64))));
}
static gd_tensor *inner_gradient_scan(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *x = gd_mul(in.at[0], gd_ones_like(in.at[0]));
    gd_tensor *y = gd_scan(inner_gradient, gd_list(x),
                           gd_list(gd_zeros(gd_dims(4, 1), .dtype = GD_F64)), in.at[1])
                       .state.at[0];
    return gd_sum(gd_square(y));
}

CLEAN_TEST(a_body_may_compute_gradients) {
    GD_SCOPE;
    gd_seed(4);
    gd_tensor *x = gd_requires_grad(noise(gd_dims(3), GD_F64)),
              *w = gd_requires_grad(noise(gd_dims(3), GD_F64));
    gd_tensor *eager = gd_grad(gd_list(inner_gradient_scan(gd_list(x, w), NULL)), gd_list(w)).at[0];
    gd_graph *graph = gd_graph_new();
    gd_tensor *px, *pw, *y, *g;
    {
        GD_GRAPH(graph);
        px = gd_placeholder(gd_dims(GD_ANY), .dtype = GD_F64);
        pw = gd_placeholder(gd_dims(3), .dtype = GD_F64);
        y = inner_gradient_scan(gd_list(px, pw), NULL);
        g = gd_gradients(gd_list(y), gd_list(pw)).at[0];
    }
    gd_session *s = gd_session_new(graph, .level = 0);
    gd_tensor *at = gd_detach(x), *here = gd_detach(w),
              *step = gd_full(gd_dims(3), 1e-6, .dtype = GD_F64);
    gd_tensor *got = gd_session_run(s, gd_feed(px, at, pw, here), gd_list(g)).at[0];
    double up =
        gd_item(gd_session_run(s, gd_feed(px, at, pw, gd_add(here, step)), gd_list(y)).at[0]);
    double down =
        gd_item(gd_session_run(s, gd_feed(px, at, pw, gd_sub(here, step)), gd_list(y)).at[0]);
    CHECK_SAYING(!gd_failed() && tensors_distance(got, eager) < 1e-12, "%s", gd_error_message());
    CHECK(fabs((up - down) / 2e-6 - gd_item(gd_sum(got))) < 1e-6);
}

CLEAN_TEST(the_text_of_a_graph_shows_branches_and_bodies) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        gd_tensor *x = gd_placeholder(gd_dims(GD_ANY, 2), .name = "x"),
                  *w = gd_variable(gd_ones(gd_dims(2)), .name = "w");
        gd_named(gd_foldl(fold_step, gd_zeros(gd_dims(2)), gd_list(x), w), "y");
    }
    char *text = gd_graph_text(graph), *dot = gd_graph_dot(graph);
    const char *expected = "y = scan_graph(full_3, x, w) state=1 xs=1 -> f32[2]\n"
                           "  body(in_0, in_1, in_2):\n"
                           "    in_0 = placeholder -> f32[2]\n"
                           "    in_1 = placeholder -> f32[2]\n"
                           "    add_2 = add(in_0, in_1) -> f32[2]\n"
                           "    mul_3 = mul(add_2, in_2) -> f32[2]\n"
                           "    in_2 = placeholder -> f32[2]\n"
                           "    gives mul_3\n";
    CHECK_SAYING(text && strstr(text, expected), "%s", text);
    CHECK(dot && strstr(dot, "scan_graph"));
    free(text);
    free(dot);
}

/* --- errors ----------------------------------------------------------------------------------- */

static gd_tensors make_longer(gd_tensors in, void *u) {
    (void)u;
    return gd_listed(gd_cat(gd_list(in.at[0], in.at[0])));
}
static gd_tensors make_wider(gd_tensors in, void *u) {
    (void)u;
    return gd_listed(gd_cast(in.at[0], GD_F64));
}
static gd_tensors same_body(gd_tensors in, void *u) {
    (void)u;
    return gd_listed(in.at[0]);
}
static gd_tensors return_two(gd_tensors in, void *u) {
    (void)u;
    return gd_listed(in.at[0], in.at[0]);
}
static gd_tensors bad_product(gd_tensors in, void *u) {
    (void)u;
    return gd_listed(gd_matmul(in.at[0], gd_ones(gd_dims(3, 3))));
}
static gd_tensors true_once(gd_tensors in, void *u) {
    (void)u;
    return gd_listed(gd_gt(gd_sum(in.at[0]), gd_scalar(-1)));
}
static gd_tensors state_as_condition(gd_tensors in, void *u) {
    (void)u;
    return gd_listed(gd_gt(in.at[0], gd_scalar(0)));
}
static gd_tensors assign_variable(gd_tensors in, void *v) {
    gd_assign(v, in.at[0]);
    return gd_listed(in.at[0]);
}
static gd_tensors create_variable(gd_tensors in, void *u) {
    (void)u;
    return gd_listed(gd_add(gd_variable(gd_ones(gd_dims(2))), in.at[0]));
}
static gd_tensors leak_symbol(gd_tensors in, void *u) {
    *(gd_tensor **)u = gd_retain(gd_sin(in.at[0])); /* outlives the body's scope */
    return gd_listed(in.at[0]);
}
static gd_tensors write_state(gd_tensors in, void *u) {
    gd_add_(u, in.at[0]);
    return gd_listed(in.at[0]);
}

#define CHECK_FAILS(call, code, ...)                                                        \
    do {                                                                                    \
        call;                                                                               \
        const char *parts[] = {"test_control.c:", __VA_ARGS__};                             \
        for (size_t i_ = 0; i_ < sizeof parts / sizeof *parts; i_++)                        \
            CHECK_SAYING(gd_error_status() == code && says(parts[i_]), "expected '%s': %s", \
                         parts[i_], gd_error_message());                                    \
        gd_clear_error();                                                                   \
    } while (0)

CLEAN_TEST(mismatched_bodies_fail_with_their_source_line) {
    GD_SCOPE;
    for (int graphs = 0; graphs < 2; graphs++) {
        gd_graph *graph = gd_graph_new();
        gd_block block = graphs ? gd_graph_begin(graph) : (gd_block){NULL};
        gd_tensor *x = gd_ones(gd_dims(2)), *xs = gd_ones(gd_dims(3, 2));
        CHECK_FAILS(gd_while_loop(true_once, make_longer, gd_list(x), NULL), GD_E_SHAPE,
                    "gd_while_loop", "state 0 is f32[2]", "f32[4]");
        CHECK_FAILS(gd_while_loop(true_once, make_wider, gd_list(x), NULL), GD_E_DTYPE,
                    "state 0 is f32[2]", "f64[2]");
        CHECK_FAILS(gd_while_loop(true_once, return_two, gd_list(x), NULL), GD_E_ARGUMENT,
                    "2 tensors for a state of 1");
        CHECK_FAILS(gd_while_loop(state_as_condition, same_body, gd_list(x), NULL), GD_E_SHAPE,
                    "condition must be one element");
        CHECK_FAILS(gd_scan(make_longer, gd_list(x), gd_list(xs), NULL), GD_E_SHAPE, "gd_scan",
                    "state 0");
        CHECK_FAILS(gd_scan(same_body, gd_list(x), gd_list(xs, gd_ones(gd_dims(4))), NULL),
                    GD_E_SHAPE, "4 positions");
        CHECK_FAILS(gd_scan(same_body, gd_list(x), gd_list(gd_ones(gd_dims())), NULL), GD_E_SHAPE,
                    "single number");
        CHECK_FAILS(gd_cond(xs, same_body, same_body, gd_list(x), NULL), GD_E_SHAPE,
                    "predicate must be one element");
        CHECK_FAILS(gd_cond(gd_ones(gd_dims()), bad_product, bad_product, gd_list(x), NULL),
                    GD_E_SHAPE, "matmul");
        CHECK_FAILS(gd_scan(bad_product, gd_list(x), gd_list(xs), NULL), GD_E_SHAPE, "matmul");
        CHECK_FAILS(gd_cond(gd_ones(gd_dims()), NULL, same_body, gd_list(x), NULL), GD_E_ARGUMENT,
                    "NULL");
        CHECK_FAILS(
            gd_cond(gd_ones(gd_dims()), same_body, same_body, gd_list((gd_tensor *)NULL), NULL),
            GD_E_ARGUMENT, "NULL");
        if (graphs) {
            gd_tensor *v = gd_variable(gd_zeros(gd_dims(2))), *leaked = NULL,
                      *p = gd_ones(gd_dims());
            CHECK_FAILS(gd_cond(p, same_body, make_longer, gd_list(x), NULL), GD_E_SHAPE, "gd_cond",
                        "result 0 is f32[2] from `yes` and f32[4] from `no`");
            CHECK_FAILS(gd_cond(p, same_body, make_wider, gd_list(x), NULL), GD_E_DTYPE,
                        "f64[2] from `no`");
            CHECK_FAILS(gd_cond(p, same_body, return_two, gd_list(x), NULL), GD_E_ARGUMENT,
                        "`yes` returns 1 tensors, `no` 2");
            CHECK_FAILS(gd_cond(p, same_body, assign_variable, gd_list(x), v), GD_E_STATE, "assign",
                        "outside");
            CHECK_FAILS(gd_cond(p, same_body, create_variable, gd_list(x), NULL), GD_E_STATE,
                        "gd_variable", "before");
            CHECK_FAILS(gd_cond(p, same_body, write_state, gd_list(x), v), GD_E_STATE, "add_",
                        "outside");
            gd_cond(p, leak_symbol, same_body, gd_list(x), &leaked);
            CHECK_FAILS(gd_sin(leaked), GD_E_STATE, "sin", "used outside");
            gd_release(leaked);
            gd_graph_end(&block);
        }
    }
}

/* An error tensor passes through as through any op. */
CLEAN_TEST(error_tensors_pass_through) {
    GD_SCOPE;
    gd_tensor *wrong = gd_matmul(gd_ones(gd_dims(2, 3)), gd_ones(gd_dims(2, 3)));
    gd_tensor *y = gd_foldl(fold_step, wrong, gd_list(gd_ones(gd_dims(3, 2))), gd_ones(gd_dims(2)));
    gd_tensor *z = gd_cond(wrong, same_body, same_body, gd_list(y), NULL).at[0];
    CHECK(gd_tensor_is_error(y) && gd_tensor_is_error(z) && says("matmul"));
}

/* --- failing allocations ---------------------------------------------------------------------- */

static gd_tensor *tensor_at(gd_tensors list, int i) {
    return i < list.count ? list.at[i] : gd_sum(NULL);
}

/* Builds and runs a model; returns a number that depends on all results. */
static double run_model_once(const model *m) {
    GD_SCOPE;
    gd_tensor *in[INPUTS], *leaf;
    control_inputs(GD_F32, in);
    leaf = gd_requires_grad(gd_detach(in[2]));
    gd_tensor *eager = m->fn(gd_list(in[0], in[1], leaf), m->user);
    gd_tensor *gradient = tensor_at(gd_grad(gd_list(gd_sum(eager)), gd_list(leaf)), 0);
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *g, *w;
    if (!graph) return 0;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(GD_ANY, 4));
        w = gd_variable(in[2]);
        y = m->fn(gd_list(in[0], x, w), m->user);
        g = tensor_at(gd_gradients(gd_list(gd_sum(y)), gd_list(w)), 0);
    }
    gd_session *s = gd_session_new(graph);
    gd_tensors r = s ? gd_session_run(s, gd_feed(x, in[1]), gd_list(y, g)) : gd_nothing;
    return gd_item(gd_add(gd_add(gd_sum(eager), gd_sum(gradient)),
                          gd_add(gd_sum(tensor_at(r, 0)), gd_sum(tensor_at(r, 1)))));
}

static void fail_everywhere(void) {
    for (int k = 0; k < control_model_count; k++) {
        fault_walk none = {.what = control_models[k].name,
                           .at = INT64_MAX / 2}; /* counts the allocations */
        fault_begin(&none);
        const double right = run_model_once(&control_models[k]);
        const int64_t all = gd_fault_allocations() - none.counted;
        fault_end(&none);
        CHECK_SAYING(!gd_failed() && all > 100, "%s: %lld allocations: %s", control_models[k].name,
                     (long long)all, gd_error_message());
        const int64_t stride = getenv("GRADUS_TEST_FULL") ? 1 : all / 97 + 1;
        fault_walk w = {.what = control_models[k].name, .first = k % stride, .stride = stride};
        while (fault_next(&w)) {
            fault_begin(&w);
            const double got = run_model_once(&control_models[k]);
            fault_end(&w);
            CHECK_ROUND(&w, gd_failed() || got == right);
            gd_clear_error();
        }
    }
}

CLEAN_TEST(a_failed_allocation_anywhere_is_a_status) { fail_everywhere(); }

CLEAN_TEST(a_failed_allocation_anywhere_is_a_status_with_planned_loops) {
    const int64_t before = gd_short_scan;
    gd_short_scan = 0;
    fail_everywhere();
    gd_short_scan = before;
}

TEST_MAIN
