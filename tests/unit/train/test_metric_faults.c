/* test_metric_faults.c - metrics with any one allocation failing.
 *
 * The status is GD_E_MEMORY, or the memory was not needed; the value is unchanged; nothing leaks;
 * and repeating the work gives the expected result.
 */
#include <math.h>

#include "clean_test.h"
#include "fault_walk.h"
#include "gradus/gradus.h"

enum { MAX_VALUES = 16 };

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
    double at[MAX_VALUES];
    int64_t count;
} snapshot;

static void prepare_trial(trial *t) {
    t->output = gd_reshape(gd_arange(0, 12), gd_dims(6, 2));
    t->target = t->numbers ? gd_ones(gd_dims(6, 2)) : gd_ones(gd_dims(6), .dtype = GD_I64);
    t->weight = gd_full(gd_dims(6), 0.5);
    t->metric = gd_metric_new(t->name, t->options);
    gd_metric_update(t->metric, gd_neg(t->output), t->target);
}

static void take_snapshot(trial *t, snapshot *s) {
    GD_SCOPE;
    gd_tensor *value = gd_metric_value(t->metric);
    s->count = gd_tensor_numel(value);
    CHECK_SAYING(gd_copy_to(value, s->at, (size_t)s->count * 8) == GD_OK, "%s", gd_error_message());
}

static bool same_snapshots(const snapshot *a, const snapshot *b) {
    return a->count == b->count && memcmp(a->at, b->at, (size_t)a->count * 8) == 0;
}

static gd_status update_metric(trial *t) {
    return gd_metric_update(t->metric, t->output, t->target, .weight = t->weight);
}
static gd_status reset_metric(trial *t) { return gd_metric_reset(t->metric); }
static gd_status compute_value(trial *t) {
    GD_SCOPE;
    gd_metric_value(t->metric);
    return gd_error_status();
}
static gd_status first_update(trial *t) {
    GD_SCOPE;
    gd_metric *m = gd_metric_new(t->name, t->options);
    return m ? gd_metric_update(m, t->output, t->target) : gd_error_status();
}
static gd_status load_metric(trial *t) {
    GD_SCOPE;
    gd_metric *m = gd_metric_new(t->name, t->options);
    gd_state *state = m ? gd_state_of(t->metric) : NULL;
    return state ? gd_set_state(m, state) : gd_error_status();
}

static gd_tensors update_body(gd_tensors in, void *user) {
    trial *t = user;
    gd_metric_update(t->metric, in.at[0], in.at[1], .weight = in.at[2]);
    return (gd_tensors){NULL, 0};
}
static gd_status call_jit(trial *t) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(update_body, t);
    if (jit) gd_jit_call(jit, gd_list(t->output, t->target, t->weight));
    return gd_error_status();
}

static snapshot after, before, now;

static void run_round(fault_walk *faults, const work *w, trial t) {
    GD_SCOPE;
    prepare_trial(&t);
    take_snapshot(&t, &before);
    fault_begin(faults);
    const gd_status status = w->act(&t);
    fault_end(faults);
    CHECK_FAULT(faults, status);
    if (status != GD_OK) {
        take_snapshot(&t, &now);
        CHECK_ROUND(faults, same_snapshots(&now, &before));
        CHECK_ROUND(faults, w->act(&t) == GD_OK);
    }
    take_snapshot(&t, &now);
    CHECK_ROUND(faults, same_snapshots(&now, &after));
    gd_clear_error();
}

static void walk_work(const work *w, trial t) {
    gd_set_num_threads(1); /* makes the order of allocations deterministic */
    {
        GD_SCOPE;
        trial first = t;
        prepare_trial(&first);
        CHECK_SAYING(w->act(&first) == GD_OK, "%s of %s: %s", w->name, t.name, gd_error_message());
        take_snapshot(&first, &after);
    }
    char name[100];
    snprintf(name, sizeof name, "%s of %s", w->name, t.name);
    fault_walk faults = {.what = name};
    while (fault_next(&faults)) run_round(&faults, w, t);
    CHECK_SAYING(faults.rounds > 2, "%s: %lld rounds", name, (long long)faults.rounds);
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
    for (int i = 0; i < METRICS; i++) walk_work(&(work){"an update", update_metric}, metrics[i]);
}
TEST(first_updates_survive_any_failed_allocation) {
    for (int i = 0; i < METRICS; i += 3)
        walk_work(&(work){"a first update", first_update}, metrics[i]);
}
TEST(resets_survive_any_failed_allocation) {
    walk_work(&(work){"a reset", reset_metric}, metrics[3]);
}
TEST(values_survive_any_failed_allocation) {
    for (int i = 0; i < METRICS; i++) walk_work(&(work){"a value", compute_value}, metrics[i]);
}
TEST(loads_survive_any_failed_allocation) { walk_work(&(work){"a load", load_metric}, metrics[3]); }
TEST(jit_calls_survive_any_failed_allocation) {
    walk_work(&(work){"a jit's call", call_jit}, metrics[0]);
}

TEST_MAIN
