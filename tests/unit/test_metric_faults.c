/* test_metric_faults.c - metrics in which any one allocation fails.
 *
 * Promised: the status is GD_E_MEMORY, or the memory was not needed; the value is what it was before;
 * nothing leaks; and the same work, done again, gives what it would have given.
 */
#include <math.h>

#include "clean_test.h"
#include "gradus/gradus.h"
#include "gradus/testing.h"

enum { MOST_ALLOCATIONS = 20000, MOST_VALUES = 16 };

typedef struct trial {
    const char *name, *options;
    bool numbers;
    gd_metric *metric;
    gd_tensor *output, *target, *weight;
} trial;

typedef struct work {
    const char *name;
    gd_status (*act)(trial *t);
} work;

typedef struct snapshot {
    double at[MOST_VALUES];
    int64_t count;
} snapshot;

static void prepare(trial *t) {
    t->output = gd_reshape(gd_arange(0, 12), gd_dims(6, 2));
    t->target = t->numbers ? gd_ones(gd_dims(6, 2)) : gd_ones(gd_dims(6), .dtype = GD_I64);
    t->weight = gd_full(gd_dims(6), 0.5);
    t->metric = gd_metric_new(t->name, t->options);
    gd_metric_update(t->metric, gd_neg(t->output), t->target);
}

static void look(trial *t, snapshot *s) {
    GD_SCOPE;
    gd_tensor *value = gd_metric_value(t->metric);
    s->count = gd_tensor_numel(value);
    CHECK_SAYING(gd_copy_to(value, s->at, (size_t)s->count * 8) == GD_OK, "%s", gd_error_message());
}

static bool same(const snapshot *a, const snapshot *b) {
    return a->count == b->count && memcmp(a->at, b->at, (size_t)a->count * 8) == 0;
}

static gd_status update(trial *t) {
    return gd_metric_update(t->metric, t->output, t->target, .weight = t->weight);
}
static gd_status reset(trial *t) { return gd_metric_reset(t->metric); }
static gd_status value(trial *t) {
    GD_SCOPE;
    gd_metric_value(t->metric);
    return gd_error_status();
}
static gd_status first_update(trial *t) {
    GD_SCOPE;
    gd_metric *m = gd_metric_new(t->name, t->options);
    return m ? gd_metric_update(m, t->output, t->target) : gd_error_status();
}
static gd_status load(trial *t) {
    GD_SCOPE;
    gd_metric *m = gd_metric_new(t->name, t->options);
    gd_state *state = m ? gd_state_of(t->metric) : NULL;
    return state ? gd_set_state(m, state) : gd_error_status();
}

static gd_tensors body(gd_tensors in, void *user) {
    trial *t = user;
    gd_metric_update(t->metric, in.at[0], in.at[1], .weight = in.at[2]);
    return (gd_tensors){NULL, 0};
}
static gd_status call_jit(trial *t) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(body, t);
    if (jit) gd_jit_call(jit, gd_list(t->output, t->target, t->weight));
    return gd_error_status();
}

static snapshot after, before, now;

static bool walk_one(const work *w, trial t, int64_t n) {
    const int64_t objects = gd_live_objects(), bytes = gd_memory_stats(NULL).live_bytes,
                  asked = gd_fault_allocations();
    bool fired;
    {
        GD_SCOPE;
        prepare(&t);
        look(&t, &before);
        gd_fault_after(n, false);
        const gd_status status = w->act(&t);
        gd_fault_after(-1, false);
        fired = gd_fault_allocations() - asked > n;
        CHECK_SAYING(status == GD_OK || (fired && status == GD_E_MEMORY),
                     "%s of %s, allocation %lld: %s", w->name, t.name, (long long)n,
                     gd_error_message());
        gd_clear_error();
        if (status != GD_OK) {
            look(&t, &now);
            CHECK_SAYING(same(&now, &before), "%s of %s, allocation %lld: it has changed something",
                         w->name, t.name, (long long)n);
            CHECK_SAYING(w->act(&t) == GD_OK, "%s of %s: %s", w->name, t.name, gd_error_message());
        }
        look(&t, &now);
        CHECK_SAYING(same(&now, &after), "%s of %s, allocation %lld: what comes after it differs",
                     w->name, t.name, (long long)n);
        gd_clear_error();
    }
    CHECK_SAYING(gd_live_objects() == objects && gd_memory_stats(NULL).live_bytes == bytes,
                 "%s of %s, allocation %lld leaks", w->name, t.name, (long long)n);
    return fired;
}

static void walk(const work *w, trial t) {
    gd_set_num_threads(1); /* so that the n-th allocation is the same one each time */
    {
        GD_SCOPE;
        trial first = t;
        prepare(&first);
        CHECK_SAYING(w->act(&first) == GD_OK, "%s of %s: %s", w->name, t.name, gd_error_message());
        look(&first, &after);
    }
    int64_t n = 0;
    const int failures = test_failures;
    while (n < MOST_ALLOCATIONS && test_failures < failures + 3 && walk_one(w, t, n)) n++;
    CHECK_SAYING(n > 1 && n < MOST_ALLOCATIONS, "%s of %s has %lld allocations", w->name, t.name,
                 (long long)n);
    gd_set_num_threads(0);
}

static const trial metrics[] = {
    {.name = "accuracy"},
    {.name = "top_k", .options = "k=1"},
    {.name = "perplexity"},
    {.name = "f1"},
    {.name = "confusion"},
    {.name = "auc", .options = "bins=16"},
    {.name = "mae", .numbers = true},
    {.name = "r2", .numbers = true},
};
enum { METRICS = sizeof metrics / sizeof *metrics };

TEST(updates_survive_any_failed_allocation) {
    for (int i = 0; i < METRICS; i++) walk(&(work){"an update", update}, metrics[i]);
}
TEST(first_updates_survive_any_failed_allocation) {
    for (int i = 0; i < METRICS; i += 3) walk(&(work){"a first update", first_update}, metrics[i]);
}
TEST(resets_survive_any_failed_allocation) { walk(&(work){"a reset", reset}, metrics[3]); }
TEST(values_survive_any_failed_allocation) {
    for (int i = 0; i < METRICS; i++) walk(&(work){"a value", value}, metrics[i]);
}
TEST(loads_survive_any_failed_allocation) { walk(&(work){"a load", load}, metrics[3]); }
TEST(jits_survive_any_failed_allocation) { walk(&(work){"a jit's call", call_jit}, metrics[0]); }

TEST_MAIN
