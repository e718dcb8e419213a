/* test_optim_faults.c - optimizers, schedules and clipping in which any one allocation fails.
 *
 * Promised: the status is GD_E_MEMORY, or the memory was not needed; nothing has changed; nothing
 * leaks; and the same work, done again, gives what it would have given.
 */
#include "clean_test.h"
#include "gradus/gradus.h"
#include "gradus/testing.h"

enum { TENSORS = 4, MOST_ALLOCATIONS = 20000, MOST_BYTES = 4096 };

typedef struct trial {
    const char *name, *options;
    gd_tensor *w[TENSORS], *x;
    gd_optimizer *optimizer;
    gd_schedule *schedule;
} trial;

typedef struct work {
    const char *name;
    void (*begin)(trial *t); /* after the tensors were made; NULL: nothing */
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

static void begin(trial *t) { CHECK_SAYING(make_optimizer(t) == GD_OK, "%s", gd_error_message()); }

static gd_status make_and_drop(trial *t) {
    GD_SCOPE;
    trial own = *t;
    return make_optimizer(&own);
}

static gd_status step(trial *t) { return gd_optimizer_step(t->optimizer); }
static gd_status schedule_step(trial *t) { return gd_schedule_step(t->schedule); }

static gd_status clip(trial *t) {
    GD_SCOPE;
    gd_clip_grad_norm(((gd_tensors){t->w, TENSORS}), 1);
    return gd_error_status();
}

static gd_status clip_value(trial *t) {
    return gd_clip_grad_value(((gd_tensors){t->w, TENSORS}), 0.7);
}

/* A graph of its own, and one run. */
static gd_status minimize(trial *t) {
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

/* --- walking ---------------------------------------------------------------------------------- */

typedef struct snapshot {
    size_t bytes;
    char at[MOST_BYTES];
} snapshot;

static void add(snapshot *s, gd_tensor *t) {
    const size_t more = (size_t)gd_tensor_numel(t) * gd_dtype_size(gd_tensor_dtype(t));
    CHECK(s->bytes + more <= MOST_BYTES && gd_copy_to(t, s->at + s->bytes, more) == GD_OK);
    s->bytes += more;
}

static void look(const trial *t, snapshot *s) {
    GD_SCOPE;
    s->bytes = 0;
    for (int i = 0; i < TENSORS; i++) add(s, t->w[i]), add(s, gd_tensor_grad(t->w[i]));
    for (int g = 0; g < 2 && t->optimizer; g++) add(s, gd_optimizer_lr(t->optimizer, .group = g));
}

static bool same(const snapshot *a, const snapshot *b) {
    return a->bytes == b->bytes && memcmp(a->at, b->at, a->bytes) == 0;
}

static void prepare(const work *w, trial *t) {
    make_tensors(t);
    if (w->begin) w->begin(t);
}

static void act_twice(const work *w, trial *t, snapshot *s) {
    for (int i = 0; i < 2; i++)
        CHECK_SAYING(w->act(t) == GD_OK, "%s of %s: %s", w->name, t->name, gd_error_message());
    look(t, s);
}

static snapshot after, before, now;

static bool walk_one(const work *w, trial t, int64_t n) {
    const int64_t objects = gd_live_objects(), bytes = gd_memory_stats(NULL).live_bytes,
                  asked = gd_fault_allocations();
    bool fired;
    {
        GD_SCOPE;
        prepare(w, &t);
        look(&t, &before);
        gd_fault_after(n, false);
        gd_status status = w->act(&t);
        gd_fault_after(-1, false);
        fired = gd_fault_allocations() - asked > n;
        CHECK_SAYING(status == GD_OK || (fired && status == GD_E_MEMORY),
                     "%s of %s, allocation %lld: %s", w->name, t.name, (long long)n,
                     gd_error_message());
        gd_clear_error();
        look(&t, &now);
        if (status != GD_OK) {
            CHECK_SAYING(same(&now, &before), "%s of %s, allocation %lld: it has changed something",
                         w->name, t.name, (long long)n);
            act_twice(w, &t, &now);
            CHECK_SAYING(same(&now, &after),
                         "%s of %s, allocation %lld: what comes after it differs", w->name, t.name,
                         (long long)n);
        }
        gd_clear_error();
    }
    CHECK_SAYING(gd_live_objects() == objects && gd_memory_stats(NULL).live_bytes == bytes,
                 "%s of %s, allocation %lld leaks", w->name, t.name, (long long)n);
    return fired;
}

static void walk(const work *w, const char *name, const char *options) {
    const trial t = {.name = name, .options = options};
    gd_set_num_threads(1); /* so that the n-th allocation is the same one each time */
    {
        GD_SCOPE;
        trial first = t;
        prepare(w, &first);
        act_twice(w, &first, &after);
    }
    int64_t n = 0;
    const int failures = test_failures;
    while (n < MOST_ALLOCATIONS && test_failures < failures + 3 && walk_one(w, t, n)) n++;
    CHECK_SAYING(n > 3 && n < MOST_ALLOCATIONS, "%s has %lld allocations", w->name, (long long)n);
    gd_set_num_threads(0);
}

static const char *const optimizers[][2] = {{"sgd", "momentum=0.9 dampening=0.5"},
                                            {"adamw", "amsgrad=true"},
                                            {"rmsprop", "momentum=0.5"},
                                            {"adagrad", "lr_decay=0.1"}};

TEST(steps_survive_any_failed_allocation) {
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        walk(&(work){"a step", begin, step}, optimizers[i][0], optimizers[i][1]);
}

TEST(making_optimizers_survives_any_failed_allocation) {
    walk(&(work){"making", NULL, make_and_drop}, "adam", NULL);
}
TEST(steps_of_schedules_survive_any_failed_allocation) {
    walk(&(work){"a step of the schedule", begin, schedule_step}, "sgd", NULL);
}

TEST(clipping_survives_any_failed_allocation) {
    walk(&(work){"clipping", NULL, clip}, "sgd", NULL);
    walk(&(work){"clipping by value", NULL, clip_value}, "sgd", NULL);
}

TEST(a_graph_with_leaves_survives_any_failed_allocation) {
    walk(&(work){"gd_minimize", begin, minimize}, "adam", NULL);
}

TEST_MAIN
