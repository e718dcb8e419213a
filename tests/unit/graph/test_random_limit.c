/* test_random_limit.c - random training steps give the same bits with a memory limit as without
 * one, and a run uses the memory that its plan predicts. */
#include "test.h"
#include "draw.h"
#include "random_batch.h"
#include "values.h"

enum { MAX_VALUES = 60, ROWS = 24, STEPS = 2 };

typedef struct net {
    gd_graph *graph;
    gd_tensor *fed, *p[ALL];
    results fetches;
} net;

/* A loss after a chain of values, some of which are fetched, and a training step. */
static net build_net(uint64_t seed, gd_tensor *const *first) {
    draws d = {seed * 7919 + 9};
    net m = {.graph = gd_graph_new()};
    GD_GRAPH(m.graph);
    m.fed = gd_placeholder(gd_dims(seed % 4 == 0 ? GD_ANY : ROWS, COLUMNS), .dtype = GD_F64);
    for (int i = 0; i < ALL; i++) m.p[i] = gd_variable(first[i], .trainable = i < PARAMETERS);
    gd_tensor *pool[MAX_VALUES] = {m.fed, gd_mul(m.fed, m.p[0])};
    int n = 2, kept = 0;
    const int length = 6 + draw_below(&d, MAX_VALUES - 10);
    for (int i = 0; i < length; i++) {
        gd_tensor *a = pool[draw_below(&d, n)], *b = pool[n - 1 - draw_below(&d, n < 4 ? n : 4)];
        pool[n++] =
            draw_below(&d, 12) ? random_op(&d, false, &kept, a, b, m.p) : gd_dropout(b, .p = 0.2);
        if (draw_below(&d, 12) == 0) m.fetches.at[m.fetches.count++] = pool[n - 1];
    }
    gd_tensor *loss = gd_mean(bounded(pool[n - 1]));
    for (int i = 0; i < PARAMETERS; i++)
        loss = gd_add(loss, gd_mul(gd_mean(gd_square(m.p[i])), scalar_f64(0.01)));
    m.fetches.at[m.fetches.count++] = loss;
    const gd_tensors list = {m.p, PARAMETERS};
    m.fetches.at[m.fetches.count++] = gd_minimize(
        seed % 2 ? gd_optim_sgd(list, .lr = 0.1, .momentum = 0.9) : gd_optim_adam(list, .lr = 0.01),
        loss);
    return m;
}

/* Trains and collects the fetches and the final variables. Returns false if the limit cannot be
 * met. */
static bool train_net(net *m, gd_tensor *x, int level, int64_t limit, gd_plan_memory *memory,
                      results *r) {
    gd_session *session = gd_session_new(m->graph, .level = level, .memory_limit = limit);
    const gd_tensors feeds = gd_list(m->fed, x), fetches = {m->fetches.at, m->fetches.count};
    if (gd_session_plan(session, feeds, fetches, memory) != GD_OK) return false;
    r->count = 0;
    for (int step = 0; step < STEPS && !gd_failed(); step++) {
        const gd_tensors got = gd_session_run(session, feeds, fetches);
        for (int i = 0; i < got.count - 1 && step == STEPS - 1; i++)
            r->at[r->count++] = gd_clone(got.at[i]);
    }
    for (int i = 0; i < ALL; i++) r->at[r->count++] = gd_session_get(session, m->p[i]);
    return true;
}

/* Returns by how many bytes the device's count grows when a session runs. */
static int64_t measure_bytes(net *m, gd_tensor *x, int level, int64_t limit,
                             gd_plan_memory *memory) {
    GD_SCOPE;
    const int64_t before = gd_memory_stats(NULL).live_bytes;
    gd_session *session = gd_session_new(m->graph, .level = level, .memory_limit = limit);
    const gd_tensors feeds = gd_list(m->fed, x), fetches = {m->fetches.at, m->fetches.count};
    gd_session_plan(session, feeds, fetches, memory);
    gd_session_run(session, feeds, fetches);
    return gd_memory_stats(NULL).live_bytes - before;
}

static void check_memory(uint64_t seed, net *m, gd_tensor *x, int level, int64_t limit) {
    gd_plan_memory memory;
    const int64_t bytes = measure_bytes(m, x, level, limit, &memory);
    const int64_t predicted =
        memory.peak_bytes + memory.variable_bytes + memory.fetch_bytes + memory.constant_bytes;
    if (gd_failed() || memory.at_least) return;
    /* above level 0 a branch that was never taken has no memory yet */
    CHECK_SAYING(level == 0 ? bytes == predicted : bytes <= predicted,
                 "seed %llu, level %d, limit %lld: %lld bytes, its plan says %lld",
                 (unsigned long long)seed, level, (long long)limit, (long long)bytes,
                 (long long)predicted);
}

static void check_net(uint64_t seed) {
    gd_tensor *first[ALL];
    gd_seed(seed);
    gd_tensor *x = gd_randn(gd_dims(ROWS, COLUMNS), .dtype = GD_F64);
    for (int i = 0; i < ALL; i++)
        first[i] = gd_mul(gd_randn(parameter_shape(i), .dtype = GD_F64), scalar_f64(0.4));
    net m = build_net(seed, first);
    for (int level = 0; level <= 2 && !gd_failed(); level++) {
        gd_plan_memory free_memory, memory;
        results expected, got;
        if (!train_net(&m, x, level, 0, &free_memory, &expected) || gd_failed()) return;
        check_memory(seed, &m, x, level, 0);
        for (int part = 9; part >= 3 && !gd_failed(); part -= 2) {
            const int64_t limit = free_memory.peak_bytes * part / 10;
            if (limit <= 0) break;
            if (!train_net(&m, x, level, limit, &memory, &got)) {
                CHECK_SAYING(strstr(gd_error_message(), "memory_limit"), "seed %llu: %s",
                             (unsigned long long)seed, gd_error_message());
                gd_clear_error();
                break;
            }
            char mode[60];
            snprintf(mode, sizeof mode, "level %d, %d tenths of the memory", level, part);
            CHECK_SAYING(memory.at_least || memory.peak_bytes <= limit, "seed %llu, %s",
                         (unsigned long long)seed, mode);
            if (!gd_failed()) check_same(seed, mode, &expected, &got, 0);
            if (!gd_failed()) check_memory(seed, &m, x, level, limit);
        }
    }
}

TEST(a_memory_limit_is_respected_and_changes_no_bit) { for_each_seed(8, check_net); }

TEST_MAIN
