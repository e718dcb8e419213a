/* test_random_sizes.c - random graphs with an unknown batch size give the results of eager code,
 * with gradients and after training, for batches of changing sizes, including 0 and 1.
 *
 * Values are f64 (N, COLUMNS) where N is GD_ANY.
 */
#include "test.h"
#include "draw.h"
#include "random_batch.h"
#include "values.h"

enum { MAX_VALUES = 60 };

/* Returns the fetched values, then a loss. */
static results graph_body(uint64_t seed, gd_tensor *x, gd_tensor *const *p) {
    draws d = {seed * 7919 + 2};
    gd_tensor *pool[MAX_VALUES] = {x, gd_mul(x, p[0])};
    results r = {.count = 0};
    int n = 2;
    const int length = 3 + draw_below(&d, draw_below(&d, 4) ? 12 : MAX_VALUES - 10);
    const bool by_data = draw_below(&d, 6) == 0;
    for (int i = 0; i < length; i++) {
        gd_tensor *a = pool[draw_below(&d, n)], *b = pool[n - 1 - draw_below(&d, n < 5 ? n : 5)];
        const bool room = r.count < MAX_RESULTS - 20;
        int kept = 0; /* a graph updates statistics only where the result is fetched */
        pool[n++] = random_op(&d, by_data, room ? &kept : NULL, a, b, p);
        if (room && (kept || draw_below(&d, 6) == 0)) r.at[r.count++] = pool[n - 1];
    }
    gd_tensor *loss = gd_mul(gd_sum(bounded(pool[n - 1])), scalar_f64(0.1));
    for (int i = 0; i < PARAMETERS; i++)
        loss = gd_add(loss, gd_mul(gd_mean(gd_mul(p[i], p[i])), scalar_f64(0.01)));
    r.at[r.count++] = loss;
    return r;
}

/* Batch sizes in order; a repeated size reuses its plan. */
static const int batches[] = {4, 1, 7, 0, 4, 2};
enum { BATCHES = sizeof batches / sizeof *batches };

static gd_optimizer *optimizer_for(uint64_t seed, gd_tensor **p) {
    const gd_tensors list = {p, PARAMETERS};
    return seed % 2 ? gd_optim_sgd(list, .lr = 0.05, .momentum = seed % 4 == 1 ? 0.9 : 0)
                    : gd_optim_adam(list, .lr = 0.01);
}

/* Collects values, loss, gradients and parameters after each batch. */
static void run_eager(uint64_t seed, gd_tensor *const *x, gd_tensor *const *first, results *r) {
    gd_tensor *p[ALL];
    for (int i = 0; i < ALL; i++)
        p[i] = i < PARAMETERS ? gd_requires_grad(gd_clone(first[i])) : gd_clone(first[i]);
    gd_optimizer *optimizer = optimizer_for(seed, p);
    for (int k = 0; k < BATCHES && !gd_failed(); k++) {
        r[k] = graph_body(seed, x[k], p);
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

static void run_plan(uint64_t seed, gd_tensor *const *x, gd_tensor *const *first, int level,
                     results *r) {
    gd_graph *graph = gd_graph_new();
    gd_tensor *p[ALL], *fed;
    results symbols;
    {
        GD_GRAPH(graph);
        fed = gd_placeholder(gd_dims(GD_ANY, COLUMNS), .dtype = GD_F64);
        for (int i = 0; i < ALL; i++) p[i] = gd_variable(first[i], .trainable = i < PARAMETERS);
        symbols = graph_body(seed, fed, p);
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
    results expected[BATCHES], got[BATCHES];
    gd_seed(seed);
    for (int k = 0; k < BATCHES; k++)
        x[k] = gd_randn(gd_dims(batches[k], COLUMNS), .dtype = GD_F64);
    for (int i = 0; i < ALL; i++)
        first[i] = gd_mul(gd_randn(parameter_shape(i), .dtype = GD_F64), scalar_f64(0.4));
    run_eager(seed, x, first, expected);
    for (int level = 0; level <= 2 && !gd_failed(); level++) {
        run_plan(seed, x, first, level, got);
        for (int k = 0; k < BATCHES && !gd_failed(); k++) {
            char mode[60];
            snprintf(mode, sizeof mode, "level %d, batch %d of %d", level, k, batches[k]);
            check_same(seed, mode, &expected[k], &got[k], 1e-6);
        }
    }
}

TEST(random_plans_with_unknown_batch_sizes_agree_with_eager_code) {
    for_each_seed(40, check_graph);
}

TEST_MAIN
