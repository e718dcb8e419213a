/* test_random_sizes.c - graphs made by chance whose batch is known only when they run give what
 * eager code gives, with their gradients and after training, for batches of several sizes in turn,
 * none and one among them.
 *
 * Values are f64 (N, COLUMNS) where N is GD_ANY.
 */
#include "random_graphs.h"

enum { COLUMNS = 6, PARAMETERS = 3, ALL = PARAMETERS + 2, MOST_VALUES = 60 };

static gd_tensor *number(double x) { return gd_full(gd_dims(), x, .dtype = GD_F64); }
static gd_tensor *turned(gd_tensor *x) { return gd_permute(x, gd_dims(1, 0)); }
static gd_tensor *flat(gd_tensor *x) { return gd_reshape(x, gd_dims(-1, COLUMNS)); }
static gd_tensor *tame(gd_tensor *x) { return gd_tanh(gd_mul(x, number(0.5))); }

static gd_tensors fold_step(gd_tensors in, void *user) {
    gd_tensor *next = gd_tanh(gd_add(gd_mul(in.at[0], user), in.at[1]));
    return gd_listed(next, gd_sin(next));
}
static gd_tensor *fold(gd_tensors in, void *user) { return fold_step(in, user).at[1]; }
static gd_tensors with_sine(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_sin(in.at[0]));
}
static gd_tensors times(gd_tensors in, void *user) { return gd_listed(gd_mul(in.at[0], user)); }

/* `p` are the parameters: (COLUMNS), (COLUMNS, COLUMNS), (2, 2, 3); behind them the running mean
 * and variance of one batch_norm, which are not trained. */
static gd_tensor *normed(gd_tensor *x, gd_tensor *const *p, bool runs) {
    gd_tensor *all = gd_cat(gd_list(x, p[1])); /* more than one row, however few x has */
    all = gd_batch_norm(all, p[0], NULL, runs ? p[3] : NULL, runs ? p[4] : NULL, .training = true);
    return gd_slice(all, .axis = 0, .stop = -COLUMNS);
}

static gd_tensor *made_of(chance *c, bool by_data, bool *runs, gd_tensor *a, gd_tensor *b,
                          gd_tensor *const *p) {
    const int axis = below(c, 2);
    switch (below(c, by_data ? 43 : 42)) {
    case 0: return gd_add(a, b);
    case 1: return gd_sub(a, b);
    case 2: return gd_mul(a, gd_tanh(b));
    case 3: return gd_div(a, gd_add(gd_abs(b), number(1)));
    case 4: return gd_where(gd_gt(a, b), b, gd_mul(a, number(0.5)));
    case 5: return gd_gelu(b);
    case 6: return gd_add(gd_mul(b, number(1)), number(0)); /* which is b */
    case 7: return gd_sub(b, gd_mean(b, .axis = gd_dims(1), .keepdim = true));
    case 8: return gd_mul(b, gd_sigmoid(gd_sum(a, .axis = gd_dims(axis), .keepdim = true)));
    case 9: return gd_sub(b, gd_max(b, .axis = gd_dims(1), .keepdim = true));
    case 10: return gd_softmax(b, .axis = axis);
    case 11: return tame(gd_log_softmax(b, .axis = 1));
    case 12: return gd_layer_norm(b, p[0], NULL);
    case 13: return tame(gd_matmul(b, p[1]));
    case 14: return gd_relu(gd_linear(tame(b), p[1], p[0]));
    case 15: return tame(turned(gd_matmul(turned(p[1]), turned(b))));
    case 16: return tame(gd_matmul(gd_matmul(a, turned(b)), a)); /* (N, N) between them */
    case 17: return turned(gd_add(turned(a), turned(b)));
    case 18: return flat(gd_sin(gd_reshape(b, gd_dims(-1))));
    case 19: return flat(turned(gd_reshape(b, gd_dims(COLUMNS, -1))));
    case 20:
        return gd_cat(
            gd_list(gd_slice(a, .axis = 1, .stop = 2), gd_slice(b, .axis = 1, .start = 2)),
            .axis = 1);
    case 21: return gd_slice(gd_cat(gd_list(b, a)), .axis = 0, .step = 2); /* (2 N) between them */
    case 22: return gd_slice(b, .axis = axis, .step = -1);
    case 23: return gd_flip(b, gd_dims(0, 1));
    case 24: return tame(gd_cumsum(b, axis));
    case 25: return gd_clamp(b, .min = -0.5, .max = 0.7);
    case 26:
        return flat(tame(gd_conv1d(gd_reshape(b, gd_dims(-1, 2, 3)), p[2], NULL, .padding = {1})));
    case 27:
        return flat(gd_max_pool1d(gd_reshape(b, gd_dims(-1, 2, 3)), .kernel = {3}, .stride = {1},
                                  .padding = {1}));
    case 28:
        return gd_slice(gd_slice(gd_pad(b, gd_dims(1, 2, 2, 1)), .axis = 0, .start = 2, .stop = -1),
                        .axis = 1, .start = 1, .stop = -2);
    case 29: return gd_cast(gd_cast(b, GD_F32), GD_F64);
    case 30: return gd_index_select(b, 0, gd_argsort(gd_sum(a, .axis = gd_dims(1))));
    case 31: return gd_gather(b, 1, gd_argsort(a, .axis = 1));
    case 32: return gd_scan(fold_step, gd_list(p[0]), gd_list(b), p[0]).ys.at[0];
    case 33: return gd_mul(b, gd_foldl(fold, p[0], gd_list(a), p[0]));
    case 34: return gd_cond(gd_gt(gd_sum(a), number(0)), with_sine, times, gd_list(b), p[0]).at[0];
    case 35: {
        const bool first = !*runs; /* a run writes a variable once */
        *runs = true;
        return normed(b, p, first);
    }
    case 36: return gd_mul(b, gd_var(a, .axis = gd_dims(1), .keepdim = true));
    case 37: return gd_sub(b, tame(gd_logsumexp(a, .axis = gd_dims(1), .keepdim = true)));
    case 38:
        return gd_cat(gd_split(gd_flip(b, gd_dims(1)), gd_dims(2, 1, 3), .axis = 1), .axis = 1);
    case 39: return gd_add(gd_zeros_like(b), gd_sigmoid(gd_norm(a)));
    case 40: return gd_einsum("ni,ij->nj", gd_list(tame(b), p[1]));
    case 41: return gd_roll(b, gd_dims(1), .axis = gd_dims(axis));
    default:
        return gd_mul(b, gd_tanh(gd_sum(gd_masked_select(a, gd_gt(a, b))))); /* sizes by data */
    }
}

/* Values that are wanted, then a loss. */
static results body(uint64_t seed, gd_tensor *x, gd_tensor *const *p) {
    chance c = {seed * 7919 + 2};
    gd_tensor *pool[MOST_VALUES] = {x, gd_mul(x, p[0])};
    results r = {.count = 0};
    int n = 2;
    const int length = 3 + below(&c, below(&c, 4) ? 12 : MOST_VALUES - 10);
    const bool by_data = below(&c, 6) == 0;
    bool runs = false;
    for (int i = 0; i < length; i++) {
        gd_tensor *a = pool[below(&c, n)], *b = pool[n - 1 - below(&c, n < 5 ? n : 5)];
        const bool ran = runs;
        pool[n++] = made_of(&c, by_data, &runs, a, b, p);
        if ((runs != ran || below(&c, 6) == 0) && r.count < MOST_RESULTS - 20)
            r.at[r.count++] = pool[n - 1];
    }
    gd_tensor *loss = gd_mul(gd_sum(tame(pool[n - 1])), number(0.1));
    for (int i = 0; i < PARAMETERS; i++)
        loss = gd_add(loss, gd_mul(gd_mean(gd_mul(p[i], p[i])), number(0.01)));
    r.at[r.count++] = loss;
    return r;
}

static gd_shape parameter_shape(int i) {
    switch (i) {
    case 0: return gd_dims(COLUMNS);
    case 1: return gd_dims(COLUMNS, COLUMNS);
    case 2: return gd_dims(2, 2, 3);
    default: return gd_dims(COLUMNS);
    }
}

/* Batches in the order in which they come; one that was there before finds its plan. */
static const int batches[] = {4, 1, 7, 0, 4, 2};
enum { BATCHES = sizeof batches / sizeof *batches };

static gd_optimizer *optimizer_for(uint64_t seed, gd_tensor **p) {
    const gd_tensors list = {p, PARAMETERS};
    return seed % 2 ? gd_optim_sgd(list, .lr = 0.05, .momentum = seed % 4 == 1 ? 0.9 : 0)
                    : gd_optim_adam(list, .lr = 0.01);
}

/* What there is after each batch: values, loss, gradients, and what the parameters are then. */
static void eager(uint64_t seed, gd_tensor *const *x, gd_tensor *const *first, results *r) {
    gd_tensor *p[ALL];
    for (int i = 0; i < ALL; i++)
        p[i] = i < PARAMETERS ? gd_requires_grad(gd_clone(first[i])) : gd_clone(first[i]);
    gd_optimizer *optimizer = optimizer_for(seed, p);
    for (int k = 0; k < BATCHES && !gd_failed(); k++) {
        r[k] = body(seed, x[k], p);
        const gd_tensors g =
            gd_grad(gd_list(r[k].at[r[k].count - 1]), ((gd_tensors){p, PARAMETERS}));
        for (int i = 0; i < r[k].count; i++) r[k].at[i] = gd_detach(r[k].at[i]);
        for (int i = 0; i < PARAMETERS && !gd_failed(); i++) {
            r[k].at[r[k].count++] = g.at[i];
            gd_set_grad(p[i], g.at[i]);
        }
        gd_optimizer_step(optimizer);
        for (int i = 0; i < ALL; i++) r[k].at[r[k].count++] = gd_clone(gd_detach(p[i]));
    }
}

static void planned(uint64_t seed, gd_tensor *const *x, gd_tensor *const *first, int level,
                    results *r) {
    gd_graph *graph = gd_graph_new();
    gd_tensor *p[ALL], *fed;
    results symbols;
    {
        GD_GRAPH(graph);
        fed = gd_placeholder(gd_dims(GD_ANY, COLUMNS), .dtype = GD_F64);
        for (int i = 0; i < ALL; i++) p[i] = gd_variable(first[i], .trainable = i < PARAMETERS);
        symbols = body(seed, fed, p);
        gd_tensor *loss = symbols.at[symbols.count - 1];
        const gd_tensors g = gd_gradients(gd_list(loss), ((gd_tensors){p, PARAMETERS}));
        for (int i = 0; i < PARAMETERS && !gd_failed(); i++) symbols.at[symbols.count++] = g.at[i];
        symbols.at[symbols.count++] = gd_minimize(optimizer_for(seed, p), loss);
    }
    gd_session *session = gd_session_new(graph, .level = level, .plans = 1 + (int)(seed % 4));
    for (int k = 0; k < BATCHES && !gd_failed(); k++) {
        const gd_tensors got =
            gd_session_run(session, gd_feed(fed, x[k]), ((gd_tensors){symbols.at, symbols.count}));
        r[k].count = got.count - 1;
        for (int i = 0; i < r[k].count; i++) r[k].at[i] = gd_clone(got.at[i]);
        for (int i = 0; i < ALL; i++) r[k].at[r[k].count++] = gd_session_get(session, p[i]);
    }
}

static void check_graph(uint64_t seed) {
    gd_tensor *x[BATCHES], *first[ALL];
    results want[BATCHES], got[BATCHES];
    gd_seed(seed);
    for (int k = 0; k < BATCHES; k++)
        x[k] = gd_randn(gd_dims(batches[k], COLUMNS), .dtype = GD_F64);
    for (int i = 0; i < ALL; i++)
        first[i] = gd_mul(gd_randn(parameter_shape(i), .dtype = GD_F64), number(0.4));
    eager(seed, x, first, want);
    for (int level = 0; level <= 2 && !gd_failed(); level++) {
        planned(seed, x, first, level, got);
        for (int k = 0; k < BATCHES && !gd_failed(); k++) {
            char way[60];
            snprintf(way, sizeof way, "level %d, batch %d of %d", level, k, batches[k]);
            check_same(seed, way, &want[k], &got[k], 1e-6);
        }
    }
}

TEST(plans_for_any_batch_give_what_eager_code_gives) { for_each_seed(40, check_graph); }

TEST_MAIN
