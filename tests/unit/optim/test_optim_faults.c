/* test_optim_faults.c - optimizers, schedules and clipping with any one allocation failing.
 *
 * The status is GD_E_MEMORY, or the memory was not needed; nothing has changed; nothing leaks; and
 * repeating the work gives the expected result.
 */
#include "clean_test.h"
#include "compare.h"
#include "fault_walk.h"
#include "gradus/gradus.h"

enum { TENSORS = 4, MAX_BYTES = 4096 };

typedef struct trial {
    const char *name, *options;
    gd_tensor *w[TENSORS], *x;
    gd_optimizer *optimizer;
    gd_schedule *schedule;
} trial;

typedef struct work {
    const char *name;
    void (*begin)(trial *t); /* called after the tensors are created; NULL: no call */
    gd_status (*act)(trial *t);
} work;

static void make_tensors(trial *t) {
    const gd_shape shapes[] = {gd_dims(5, 3), gd_dims(5), gd_dims(2, 5), gd_dims(2)};
    t->x = gd_full(gd_dims(4, 3), 0.4);
    for (int i = 0; i < TENSORS; i++) {
        t->w[i] = gd_requires_grad(gd_full(shapes[i], 0.2));
        gd_set_grad(t->w[i], gd_full(shapes[i], 0.5 + i));
    }
}

static gd_status make_optimizer(trial *t) {
    t->optimizer = gd_optimizer_new(t->name, gd_list(t->w[0], t->w[1]), t->options);
    if (!t->optimizer) return gd_error_status();
    gd_status status = gd_optimizer_add(t->optimizer, gd_list(t->w[2], t->w[3]), .lr = 0.05);
    if (status == GD_OK) status = gd_optimizer_set_factors(t->optimizer, t->w[1], .lr = 2);
    if (status != GD_OK) return status;
    t->schedule = gd_lr_cosine(t->optimizer, 20, .warmup = 3, .warmup_start = 0.5);
    return gd_error_status();
}

static void begin_trial(trial *t) {
    CHECK_SAYING(make_optimizer(t) == GD_OK, "%s", gd_error_message());
}

static gd_status make_and_release(trial *t) {
    GD_SCOPE;
    trial own = *t;
    return make_optimizer(&own);
}

static gd_status step_optimizer(trial *t) { return gd_optimizer_step(t->optimizer); }

/* Without state factors can be set again. */
static void begin_without_state(trial *t) {
    t->optimizer = gd_optim_sgd(gd_list(t->w[0], t->w[1], t->w[2]), .lr = 0.25);
    gd_optimizer_add(t->optimizer, gd_list(t->w[3]));
    CHECK(!gd_failed());
}

static gd_status step_with_factors(trial *t) {
    for (int i = 0; i < TENSORS; i++) {
        gd_status status = gd_optimizer_set_factors(t->optimizer, t->w[i], .lr = i % 3);
        if (status != GD_OK) return status;
    }
    return gd_optimizer_step(t->optimizer);
}

static gd_status step_schedule(trial *t) { return gd_schedule_step(t->schedule); }

static gd_status clip_by_norm(trial *t) {
    GD_SCOPE;
    gd_clip_grad_norm(((gd_tensors){t->w, TENSORS}), 1);
    return gd_error_status();
}

static gd_status clip_by_value(trial *t) {
    return gd_clip_grad_value(((gd_tensors){t->w, TENSORS}), 0.7);
}

/* Builds a new graph and runs it once. */
static gd_status minimize_once(trial *t) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    if (!graph) return gd_error_status();
    gd_tensor *x, *train;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(4, 3));
        gd_tensor *y = gd_linear(gd_tanh(gd_linear(x, t->w[0], t->w[1])), t->w[2], t->w[3]);
        train = gd_minimize(t->optimizer, gd_mean(gd_square(y)), .clip_norm = 1,
                            .schedule = t->schedule);
    }
    gd_session *session = gd_failed() ? NULL : gd_session_new(graph, .level = 0);
    if (session) gd_session_run(session, gd_feed(x, t->x), gd_list(train));
    return gd_error_status();
}

/* --- fault walks ------------------------------------------------------------------------------ */

typedef struct snapshot {
    size_t bytes;
    char at[MAX_BYTES];
} snapshot;

static void add_tensor(snapshot *s, gd_tensor *t) {
    const size_t more = tensor_bytes(t);
    CHECK(s->bytes + more <= MAX_BYTES && gd_copy_to(t, s->at + s->bytes, more) == GD_OK);
    s->bytes += more;
}

static void take_snapshot(const trial *t, snapshot *s) {
    GD_SCOPE;
    s->bytes = 0;
    for (int i = 0; i < TENSORS; i++)
        add_tensor(s, t->w[i]), add_tensor(s, gd_tensor_grad(t->w[i]));
    for (int g = 0; g < 2 && t->optimizer; g++)
        add_tensor(s, gd_optimizer_lr(t->optimizer, .group = g));
}

static bool same_snapshots(const snapshot *a, const snapshot *b) {
    return a->bytes == b->bytes && memcmp(a->at, b->at, a->bytes) == 0;
}

static void prepare_trial(const work *w, trial *t) {
    make_tensors(t);
    if (w->begin) w->begin(t);
}

static void do_work_twice(const work *w, trial *t, snapshot *s) {
    for (int i = 0; i < 2; i++)
        CHECK_SAYING(w->act(t) == GD_OK, "%s of %s: %s", w->name, t->name, gd_error_message());
    take_snapshot(t, s);
}

static snapshot after, before, now;

static void run_round(fault_walk *faults, const work *w, trial t) {
    GD_SCOPE;
    prepare_trial(w, &t);
    take_snapshot(&t, &before);
    fault_begin(faults);
    gd_status status = w->act(&t);
    fault_end(faults);
    CHECK_FAULT(faults, status);
    if (status == GD_OK) return;
    take_snapshot(&t, &now);
    CHECK_ROUND(faults, same_snapshots(&now, &before));
    do_work_twice(w, &t, &now);
    CHECK_ROUND(faults, same_snapshots(&now, &after));
    gd_clear_error();
}

static void walk_work(const work *w, const char *name, const char *options) {
    const trial t = {.name = name, .options = options};
    gd_set_num_threads(1); /* makes the order of allocations deterministic */
    {
        GD_SCOPE;
        trial first = t;
        prepare_trial(w, &first);
        do_work_twice(w, &first, &after);
    }
    char what[100];
    snprintf(what, sizeof what, "%s of %s", w->name, name);
    fault_walk faults = {.what = what};
    while (fault_next(&faults)) run_round(&faults, w, t);
    CHECK_SAYING(faults.rounds > 4, "%s: %lld rounds", what, (long long)faults.rounds);
    gd_set_num_threads(0);
}

static const char *const optimizers[][2] = {{"sgd", "momentum=0.9 dampening=0.5"},
                                            {"adamw", "amsgrad=true"},
                                            {"rmsprop", "momentum=0.5"},
                                            {"adagrad", "lr_decay=0.1"}};

TEST(steps_survive_any_failed_allocation) {
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        walk_work(&(work){"a step", begin_trial, step_optimizer}, optimizers[i][0],
                  optimizers[i][1]);
}

TEST(setting_factors_survives_any_failed_allocation) {
    walk_work(&(work){"a step with factors", begin_without_state, step_with_factors}, "sgd", NULL);
}

TEST(creating_optimizers_survives_any_failed_allocation) {
    walk_work(&(work){"making", NULL, make_and_release}, "adam", NULL);
}
TEST(schedule_steps_survive_any_failed_allocation) {
    walk_work(&(work){"a step of the schedule", begin_trial, step_schedule}, "sgd", NULL);
}

TEST(clipping_survives_any_failed_allocation) {
    walk_work(&(work){"clipping", NULL, clip_by_norm}, "sgd", NULL);
    walk_work(&(work){"clipping by value", NULL, clip_by_value}, "sgd", NULL);
}

TEST(a_graph_with_leaves_survives_any_failed_allocation) {
    walk_work(&(work){"gd_minimize", begin_trial, minimize_once}, "adam", NULL);
}

TEST_MAIN
