/* test_random_graphs.c - random graphs give the results of eager code at every level: values,
 * gradients and the parameters after a few training steps.
 *
 * A graph is a pool of (ROWS, COLUMNS) values; each new value is computed from one or two values of
 * the pool. At level 0 a plan has the bits of eager code. Higher levels sum in other orders: all
 * values are f64, so that rounding differs far less than a wrong op would.
 */
#include "test.h"
#include "draw.h"
#include "random_graphs.h"
#include "values.h"

enum { ROWS = 6, COLUMNS = 16, PARAMETERS = 4, MAX_VALUES = 160 };

/* --- random values ---------------------------------------------------------------------------- */

static gd_tensor *transposed(gd_tensor *x) { return gd_permute(x, gd_dims(1, 0)); }
static gd_tensor *as_image(gd_tensor *x) { return gd_reshape(x, gd_dims(1, ROWS, 4, 4)); }
static gd_tensor *flattened(gd_tensor *x) { return gd_reshape(x, gd_dims(ROWS, COLUMNS)); }
static gd_tensor *bounded(gd_tensor *x) { return gd_tanh(gd_mul(x, scalar_f64(0.5))); }

/* `p` are the parameters: (ROWS, COLUMNS), (COLUMNS), (COLUMNS, COLUMNS), (ROWS, ROWS, 3, 3). */
static gd_tensor *random_value(draws *d, gd_tensor *a, gd_tensor *b, gd_tensor *const *p) {
    const int axis = draw_below(d, 2);
    switch (draw_below(d, 40)) {
    case 0: return gd_add(a, b);
    case 1: return gd_sub(a, b);
    case 2: return gd_mul(a, b);
    case 3: return gd_div(a, gd_add(gd_abs(b), scalar_f64(1)));
    case 4: return gd_maximum(a, b);
    case 5: return gd_where(gd_gt(a, b), b, gd_mul(a, scalar_f64(0.5)));
    case 6: return gd_tanh(b);
    case 7: return gd_sigmoid(b);
    case 8: return gd_relu(b);
    case 9: return gd_gelu(a);
    case 10: return gd_exp(gd_neg(gd_abs(b)));
    case 11: return gd_sqrt(gd_add(gd_mul(b, b), scalar_f64(1)));
    case 12: return gd_add(gd_mul(b, scalar_f64(1)), scalar_f64(0)); /* equals b */
    case 13: return gd_neg(gd_neg(b));
    case 14: return gd_sub(b, gd_mean(b, .axis = gd_dims(axis), .keepdim = true));
    case 15: return gd_mul(b, gd_sigmoid(gd_sum(a, .axis = gd_dims(axis), .keepdim = true)));
    case 16: return gd_sub(b, gd_max(b, .axis = gd_dims(axis), .keepdim = true));
    case 17: return gd_softmax(b, .axis = axis);
    case 18: return bounded(gd_log_softmax(b, .axis = axis));
    case 19: return gd_layer_norm(b, NULL, NULL);
    case 20: return gd_layer_norm(b, p[1], NULL);
    case 21: return bounded(gd_matmul(b, p[2]));
    case 22: return gd_relu(gd_linear(bounded(b), p[2], p[1]));
    case 23: return bounded(transposed(gd_matmul(gd_permute(p[2], gd_dims(1, 0)), transposed(b))));
    case 24: return bounded(gd_matmul(gd_matmul(a, transposed(b)), a));
    case 25: return transposed(transposed(b));
    case 26: return transposed(gd_add(transposed(a), transposed(b)));
    case 27: return flattened(gd_sin(gd_reshape(transposed(b), gd_dims(COLUMNS * ROWS))));
    case 28:
        return gd_cat(
            gd_list(gd_slice(a, .axis = 1, .stop = 5), gd_slice(b, .axis = 1, .start = 5)),
            .axis = 1);
    case 29: return gd_cat(gd_list(gd_narrow(b, 0, 4, 2), gd_narrow(a, 0, 0, 4)));
    case 30: return gd_slice(b, .axis = axis, .step = -1);
    case 31: return gd_flip(b, gd_dims(0, 1));
    case 32: return bounded(gd_cumsum(b, axis));
    case 33: return gd_clamp(b, .min = -0.5, .max = 0.7);
    case 34:
        return flattened(bounded(gd_conv2d(as_image(bounded(b)), p[3], NULL, .padding = {1, 1})));
    case 35:
        return flattened(
            gd_max_pool2d(as_image(b), .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}));
    case 36: return gd_index_select(b, 0, gd_topk(gd_sum(a, .axis = gd_dims(1)), ROWS).indices);
    case 37: return gd_pad(gd_slice(b, .axis = 1, .start = 2, .stop = -3), gd_dims(2, 3));
    case 38: return gd_cast(gd_cast(b, GD_F32), GD_F64);
    default:
        return gd_mul(gd_expand(gd_reshape(p[1], gd_dims(1, COLUMNS)), gd_dims(ROWS, COLUMNS)), b);
    }
}

/* Returns some values of the pool, then a loss. */
static results graph_body(uint64_t seed, gd_tensor *x, gd_tensor *const *p) {
    draws d = {seed * 7919 + 1};
    gd_tensor *pool[MAX_VALUES] = {x, p[0]};
    results r = {.count = 0};
    int n = 2;
    const int length = 4 + draw_below(&d, draw_below(&d, 4) ? 20 : MAX_VALUES - 10);
    for (int i = 0; i < length; i++) {
        gd_tensor *a = pool[draw_below(&d, n)], *b = pool[n - 1 - draw_below(&d, n < 5 ? n : 5)];
        pool[n++] = random_value(&d, a, b, p);
        if (draw_below(&d, 10) == 0 && r.count < MAX_RESULTS / 2) r.at[r.count++] = pool[n - 1];
    }
    gd_tensor *loss = gd_mean(bounded(pool[n - 1]));
    for (int i = 0; i < PARAMETERS; i++)
        loss = gd_add(loss, gd_mul(gd_mean(gd_mul(p[i], p[i])), scalar_f64(0.01)));
    r.at[r.count++] = loss;
    return r;
}

/* --- eager code and plans --------------------------------------------------------------------- */

static gd_shape parameter_shape(int i) {
    switch (i) {
    case 0: return gd_dims(ROWS, COLUMNS);
    case 1: return gd_dims(COLUMNS);
    case 2: return gd_dims(COLUMNS, COLUMNS);
    default: return gd_dims(ROWS, ROWS, 3, 3);
    }
}

static gd_optimizer *optimizer_for(uint64_t seed, gd_tensor **p) {
    const gd_tensors list = {p, PARAMETERS};
    return seed % 2 ? gd_optim_sgd(list, .lr = 0.1, .momentum = seed % 4 == 1 ? 0.9 : 0)
                    : gd_optim_adam(list, .lr = 0.01);
}

enum { STEPS = 3 };

/* Runs STEPS training steps. Returns fetched values, loss and gradients of the last step, and the
 * parameters after it. */
static results run_eager(uint64_t seed, gd_tensor *x, gd_tensor *const *first) {
    gd_tensor *p[PARAMETERS];
    results r = {.count = 0};
    for (int i = 0; i < PARAMETERS; i++) p[i] = gd_requires_grad(gd_clone(first[i]));
    gd_optimizer *optimizer = optimizer_for(seed, p);
    for (int step = 0; step < STEPS; step++) {
        r = graph_body(seed, x, p);
        const gd_tensors g = gd_grad(gd_list(r.at[r.count - 1]), ((gd_tensors){p, PARAMETERS}));
        for (int i = 0; i < r.count; i++) r.at[i] = gd_clone(gd_detach(r.at[i]));
        for (int i = 0; i < PARAMETERS && !gd_failed(); i++) {
            gd_set_grad(p[i], g.at[i]);
            r.at[r.count++] = gd_clone(g.at[i]);
        }
        gd_optimizer_step(optimizer);
    }
    for (int i = 0; i < PARAMETERS; i++) r.at[r.count++] = gd_clone(gd_detach(p[i]));
    return r;
}

static results run_plan(uint64_t seed, gd_tensor *x, gd_tensor *const *first, int level) {
    results r;
    gd_graph *graph = gd_graph_new();
    gd_tensor *p[PARAMETERS], *fed, *train;
    {
        GD_GRAPH(graph);
        fed = gd_placeholder(gd_dims(ROWS, COLUMNS), .dtype = GD_F64);
        for (int i = 0; i < PARAMETERS; i++) p[i] = gd_variable(first[i]);
        r = graph_body(seed, fed, p);
        gd_tensor *loss = r.at[r.count - 1];
        const gd_tensors g = gd_gradients(gd_list(loss), ((gd_tensors){p, PARAMETERS}));
        for (int i = 0; i < PARAMETERS && !gd_failed(); i++) r.at[r.count++] = g.at[i];
        train = gd_minimize(optimizer_for(seed, p), loss);
    }
    gd_session *session = gd_session_new(graph, .level = level);
    r.at[r.count] = train;
    gd_tensors got = {NULL, 0};
    for (int step = 0; step < STEPS && !gd_failed(); step++)
        got = gd_session_run(session, gd_feed(fed, x), ((gd_tensors){r.at, r.count + 1}));
    for (int i = 0; i < r.count && i < got.count; i++) r.at[i] = gd_clone(got.at[i]);
    for (int i = 0; i < PARAMETERS; i++) r.at[r.count++] = gd_session_get(session, p[i]);
    return r;
}

static void check_graph(uint64_t seed) {
    gd_seed(seed);
    gd_tensor *x = gd_randn(gd_dims(ROWS, COLUMNS), .dtype = GD_F64), *first[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++)
        first[i] = gd_mul(gd_randn(parameter_shape(i), .dtype = GD_F64), scalar_f64(0.3));
    const results expected = run_eager(seed, x, first);
    for (int level = 0; level <= 2 && !gd_failed(); level++) {
        const results got = run_plan(seed, x, first, level);
        if (!gd_failed())
            check_same(seed, level_name(level), &expected, &got, level == 0 ? 0 : 1e-6);
    }
}

TEST(random_plans_agree_with_eager_code) { for_each_seed(60, check_graph); }

TEST_MAIN
