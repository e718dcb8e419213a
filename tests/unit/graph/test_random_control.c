/* test_random_control.c - random nested branches and loops give the same results in plans as in
 * eager code, where they are ordinary C: values, gradients and second-order gradients.
 *
 * Every function has its own seed, because a graph calls it once, and eager code as often as the
 * data requires. All values are f64 (ROWS, COLUMNS), except for loop counters.
 */
#include "test.h"
#include "draw.h"
#include "random_graphs.h"
#include "values.h"

enum { ROWS = 3, COLUMNS = 4, INPUTS = 3, MAX_VALUES = 32, DEEPEST = 3 };

/* The values that a function captures. */
typedef struct captured_values {
    uint64_t seed;
    int depth, count, steps;
    gd_tensor *values[MAX_VALUES];
} captured_values;

static gd_tensor *random_simple_op(draws *d, gd_tensor *a, gd_tensor *b) {
    switch (draw_below(d, 14)) {
    case 0: return gd_add(a, b);
    case 1: return gd_sub(a, b);
    case 2: return gd_mul(a, gd_tanh(b));
    case 3: return gd_tanh(gd_mul(b, scalar_f64(1.5)));
    case 4: return gd_sin(b);
    case 5: return gd_softmax(b, .axis = 1);
    case 6: return gd_tanh(gd_matmul(gd_matmul(a, gd_permute(b, gd_dims(1, 0))), a));
    case 7: return gd_slice(b, .axis = draw_below(d, 2), .step = -1);
    case 8: return gd_sub(b, gd_mean(a, .axis = gd_dims(draw_below(d, 2)), .keepdim = true));
    case 9:
        return gd_reshape(gd_permute(gd_reshape(b, gd_dims(COLUMNS, ROWS)), gd_dims(1, 0)),
                          gd_dims(ROWS, COLUMNS));
    case 10: return gd_where(gd_gt(a, b), b, gd_mul(a, scalar_f64(0.5)));
    case 11: return gd_clamp(b, .min = -0.8, .max = 0.9);
    case 12: return b;
    default: return gd_cat(gd_list(gd_narrow(b, 1, 2, 2), gd_narrow(a, 1, 0, 2)), .axis = 1);
    }
}

static gd_tensor *random_value(draws *d, captured_values *o);

/* Adds new values to the captured ones, then chooses `n` of all, mostly recent ones. */
static void make_values(draws *d, captured_values *o, int n, gd_tensor **out) {
    const int length = 1 + draw_below(d, 4);
    for (int i = 0; i < length && o->count < MAX_VALUES; i++) {
        gd_tensor *value = random_value(d, o);
        o->values[o->count++] = value;
    }
    for (int i = 0; i < n; i++)
        out[i] =
            o->values[draw_below(d, 3) ? o->count - 1 - draw_below(d, o->count < 3 ? o->count : 3)
                                       : draw_below(d, o->count)];
}

/* The values that a nested function can use: captured values and its inputs; in one of three cases
 * only its inputs. */
static captured_values nested_values(const captured_values *o, uint64_t which,
                                     const gd_tensor *const *in, int n) {
    captured_values mine = {.seed = o->seed * 31 + which, .depth = o->depth + 1, .steps = o->steps};
    draws d = {mine.seed * 977 + 5};
    const int seen = draw_below(&d, 3) ? o->count : 0;
    for (int i = 0; i < seen && mine.count < MAX_VALUES / 2; i++)
        mine.values[mine.count++] = o->values[i];
    for (int i = 0; i < n; i++) mine.values[mine.count++] = (gd_tensor *)in[i];
    return mine;
}

static gd_tensors random_body(gd_tensors in, const captured_values *o, uint64_t which, int first,
                              int count) {
    captured_values mine =
        nested_values(o, which, (const gd_tensor *const *)in.at + first, in.count - first);
    draws d = {mine.seed};
    gd_tensor *out[4];
    make_values(&d, &mine, count, out);
    switch (count) {
    case 1: return gd_listed(out[0]);
    case 2: return gd_listed(out[0], out[1]);
    default: return gd_listed(out[0], out[1], out[2]);
    }
}

static gd_tensors yes_body(gd_tensors in, void *user) { return random_body(in, user, 1, 0, 2); }
static gd_tensors no_body(gd_tensors in, void *user) { return random_body(in, user, 2, 0, 2); }
static gd_tensor *fold_body(gd_tensors in, void *user) {
    return random_body(in, user, 3, 0, 1).at[0];
}
static gd_tensors scan_body(gd_tensors in, void *user) { return random_body(in, user, 4, 0, 3); }

/* The state of a loop is a step counter and two values. */
static gd_tensors count_condition(gd_tensors in, void *user) {
    const captured_values *o = user;
    return gd_listed(gd_lt(in.at[0], scalar_f64(o->steps)));
}
static gd_tensors data_condition(gd_tensors in, void *user) {
    const captured_values *o = user;
    gd_tensor *few = gd_lt(in.at[0], scalar_f64(o->steps));
    return gd_listed(
        gd_logical_and(few, gd_lt(gd_mean(in.at[1]), gd_mean(o->values[o->count - 1]))));
}
static gd_tensors loop_body(gd_tensors in, void *user) {
    gd_tensors r = random_body(in, user, 5, 1, 2);
    return gd_listed(gd_add(in.at[0], scalar_f64(1)), r.at[0], r.at[1]);
}

static gd_tensor *make_sequence(draws *d, const captured_values *o) {
    gd_tensor *a = o->values[draw_below(d, o->count)], *b = o->values[o->count - 1];
    gd_tensor *all = gd_stack(gd_list(a, b, gd_sin(b)));
    return gd_narrow(all, 0, 0, draw_below(d, 4));
}

static gd_tensor *random_value(draws *d, captured_values *o) {
    gd_tensor *a = o->values[draw_below(d, o->count)],
              *b = o->values[o->count - 1 - draw_below(d, o->count < 3 ? o->count : 3)];
    const int kind = draw_below(d, o->depth < DEEPEST ? 8 : 4);
    o->seed = draw_at(o->seed, 99);
    switch (kind) {
    case 4: {
        gd_tensor *which = draw_below(d, 4)
                               ? gd_gt(gd_mean(a), scalar_f64(0))
                               : gd_gt(gd_sum(gd_abs(b)), scalar_f64(draw_below(d, 2) ? -1 : 1e9));
        gd_tensors r = gd_cond(which, yes_body, no_body, gd_list(a, b), o);
        return draw_below(d, 2) ? r.at[0] : gd_add(r.at[0], gd_mul(r.at[1], scalar_f64(0.5)));
    }
    case 5: {
        o->steps = draw_below(d, 4);
        const gd_tensors state = gd_list(scalar_f64(0), a, b);
        gd_tensors r = draw_below(d, 2) ? gd_while_loop(count_condition, loop_body, state, o)
                                        : gd_while_loop(data_condition, loop_body, state, o,
                                                        .max_steps = draw_below(d, 4));
        return draw_below(d, 2) ? r.at[1] : gd_sub(r.at[1], r.at[2]);
    }
    case 6: return gd_foldl(fold_body, a, gd_list(make_sequence(d, o)), o);
    case 7: {
        gd_tensor *x = make_sequence(d, o);
        gd_scanned s =
            gd_scan(scan_body, gd_list(a, b), gd_list(x), o, .reverse = draw_below(d, 2));
        gd_tensor *ys = gd_sum(s.ys.at[0], .axis = gd_dims(0));
        return draw_below(d, 2) ? gd_add(s.state.at[0], gd_tanh(ys))
                                : gd_mul(s.state.at[1], gd_sin(ys));
    }
    default: return random_simple_op(d, a, b);
    }
}

/* Returns two values and a loss. */
static results graph_body(uint64_t seed, gd_tensor *const *in) {
    captured_values o = {.seed = seed * 7919 + 3, .count = INPUTS};
    draws d = {seed * 104729 + 1};
    results r = {.count = 3};
    for (int i = 0; i < INPUTS; i++) o.values[i] = in[i];
    for (int i = 0; i < 4; i++) make_values(&d, &o, 2, r.at);
    gd_tensor *loss = gd_mean(gd_square(gd_add(r.at[0], gd_sin(r.at[1]))));
    for (int i = 0; i < INPUTS; i++)
        loss = gd_add(loss, gd_mul(gd_mean(gd_square(in[i])), scalar_f64(0.1)));
    r.at[2] = loss;
    return r;
}

/* Adds the gradients of the loss and, if `twice`, of the sum of their squares. */
static void add_gradients(results *r, gd_tensor **by, int n, bool twice) {
    const gd_tensors inputs = {by, n};
    gd_tensors g = gd_grad(gd_list(r->at[2]), inputs, .create_graph = twice);
    if (gd_failed()) return;
    for (int i = 0; i < n; i++) r->at[r->count++] = g.at[i];
    if (!twice) return;
    gd_tensor *squares = gd_square(gd_sum(g.at[0]));
    for (int i = 1; i < n; i++) squares = gd_add(squares, gd_sum(gd_square(g.at[i])));
    g = gd_grad(gd_list(squares), inputs);
    for (int i = 0; i < n && !gd_failed(); i++) r->at[r->count++] = g.at[i];
}

static results run_eager(uint64_t seed, gd_tensor *const *values) {
    gd_tensor *in[INPUTS];
    for (int i = 0; i < INPUTS; i++) in[i] = gd_requires_grad(gd_clone(values[i]));
    results r = graph_body(seed, in);
    add_gradients(&r, in, INPUTS, seed % 3 == 0);
    return r;
}

static results run_plan(uint64_t seed, gd_tensor *const *values, int level) {
    gd_graph *graph = gd_graph_new();
    gd_tensor *in[INPUTS];
    results r;
    {
        GD_GRAPH(graph);
        in[0] = gd_placeholder(gd_dims(ROWS, COLUMNS), .dtype = GD_F64);
        for (int i = 1; i < INPUTS; i++) in[i] = gd_variable(values[i]);
        r = graph_body(seed, in);
        add_gradients(&r, in, INPUTS, seed % 3 == 0);
    }
    gd_session *session = gd_session_new(graph, .level = level);
    gd_tensors got = {NULL, 0};
    for (int i = 0; i < 2 && !gd_failed(); i++)
        got = gd_session_run(session, gd_feed(in[0], values[0]), ((gd_tensors){r.at, r.count}));
    for (int i = 0; i < r.count && i < got.count; i++) r.at[i] = gd_clone(got.at[i]);
    return r;
}

static void check_graph(uint64_t seed) {
    gd_tensor *values[INPUTS];
    gd_seed(seed);
    for (int i = 0; i < INPUTS; i++) values[i] = gd_randn(gd_dims(ROWS, COLUMNS), .dtype = GD_F64);
    const results expected = run_eager(seed, values);
    for (int level = 0; level <= 2 && !gd_failed(); level++) {
        const results got = run_plan(seed, values, level);
        if (gd_failed()) return;
        check_same(seed, level_name(level), &expected, &got, level == 0 ? 0 : 1e-9);
    }
}

TEST(random_branches_and_loops_agree_between_plans_and_eager_code) {
    for_each_seed(60, check_graph);
}

TEST_MAIN
