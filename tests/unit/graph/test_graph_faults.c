/* test_graph_faults.c - plans, optimizers, traced functions and loops in which one allocation
 * fails.
 *
 * A trial prepares some work, makes allocation n of the work fail, and repeats the work without a
 * fault. The walk has n = 0, 1, 2, ... until the work completes. Each time the status is
 * GD_E_MEMORY (or the work did without that memory), the state is unchanged, nothing leaks, and the
 * repeated work gives the usual result.
 */
#include "compare.h"
#include "fault_walk.h"
#include "gradus/gradus.h"

#include "test.h"

enum { MAX_BYTES = 1 << 16 };

/* The objects of one trial. */
typedef struct trial {
    gd_session *session;
    gd_optimizer *optimizer;
    gd_jit *jit;
    gd_tensor *x, *w[3];
    int level;
} trial;

typedef struct work {
    const char *name;
    void (*begin)(trial *t);                               /* prepares, without faults */
    gd_status (*act)(trial *t, double *result);            /* the work in which allocations fail */
    void (*copy_state)(trial *t, char *to, size_t *bytes); /* copies the state that `act` changes */
    bool all_or_nothing;                                   /* a failed act has changed nothing */
} work;

typedef struct snapshot {
    size_t bytes;
    char at[MAX_BYTES];
    double result;
} snapshot;

static void add_tensor(gd_tensor *t, char *to, size_t *bytes) {
    const size_t more = tensor_bytes(t);
    CHECK(*bytes + more <= MAX_BYTES && gd_copy_to(t, to + *bytes, more) == GD_OK);
    *bytes += more;
}

static void take_snapshot(const work *w, trial *t, snapshot *s) {
    GD_SCOPE;
    s->bytes = 0;
    w->copy_state(t, s->at, &s->bytes);
    CHECK_SAYING(!gd_failed(), "%s: %s", w->name, gd_error_message());
}

static bool same_snapshots(const snapshot *a, const snapshot *b) {
    return a->bytes == b->bytes && memcmp(a->at, b->at, a->bytes) == 0;
}

static gd_status do_work(const work *w, trial *t, double *result) {
    GD_SCOPE;
    gd_status status = w->act(t, result);
    return status != GD_OK ? status : gd_error_status();
}

/* Does the work twice, so that hidden state (of an optimizer) affects the second result. */
static void do_work_twice(const work *w, trial *t, snapshot *s) {
    double first = 0, second = 0;
    gd_status status = do_work(w, t, &first);
    CHECK_SAYING(status == GD_OK, "%s: %s", w->name, gd_error_message());
    status = do_work(w, t, &second);
    CHECK_SAYING(status == GD_OK, "%s: %s", w->name, gd_error_message());
    s->result = first + 3 * second;
    take_snapshot(w, t, s);
}

/* Sums in C, without allocations. */
static double sum_elements(const gd_tensor *t) {
    double s = 0;
    for (int64_t i = 0; i < gd_tensor_numel(t); i++)
        s += (double)((const float *)gd_data((gd_tensor *)t))[i] * (double)(i + 1);
    return s;
}

static snapshot before, now;

static void run_round(fault_walk *faults, const work *w, int level, const snapshot *after) {
    GD_SCOPE;
    trial t = {.level = level};
    double result;
    gd_seed(3);
    w->begin(&t);
    CHECK_SAYING(!gd_failed(), "%s: %s", w->name, gd_error_message());
    take_snapshot(w, &t, &before);
    fault_begin(faults);
    gd_status status = do_work(w, &t, &result);
    fault_end(faults);
    CHECK_FAULT(faults, status);
    if (status == GD_OK || !w->all_or_nothing) return;
    take_snapshot(w, &t, &now);
    CHECK_ROUND(faults, same_snapshots(&now, &before));
    do_work_twice(w, &t, &now);
    CHECK_ROUND(faults, same_snapshots(&now, after) && now.result == after->result);
    gd_clear_error();
}

static void walk_work(const work *w, int level) {
    static snapshot after;
    gd_set_num_threads(1); /* so that allocation n is the same in each round */
    {
        GD_SCOPE;
        trial t = {.level = level};
        gd_seed(3);
        w->begin(&t);
        do_work_twice(w, &t, &after);
    }
    char name[100];
    snprintf(name, sizeof name, "%s, level %d", w->name, level);
    fault_walk one = {.what = name};
    while (fault_next(&one)) run_round(&one, w, level, &after);
    CHECK_SAYING(one.rounds > 5, "%s: %lld rounds", name, (long long)one.rounds);
    fault_walk all = {.what = name, .lasting = true, .stride = one.rounds / 30 + 1};
    while (fault_next(&all)) run_round(&all, w, level, &after);
    gd_set_num_threads(0);
}

/* --- sessions --------------------------------------------------------------------------------- */

/* The graph under test, which all trials share. */
static struct {
    gd_graph *graph;
    gd_tensor *x, *y, *loss, *train;
} g;

static gd_status run_rows(trial *t, int64_t rows, double *result) {
    gd_tensor *xs = gd_full(gd_dims(rows, 6), 0.3), *ys = gd_full(gd_dims(rows, 4), 0.7);
    if (gd_failed()) return gd_error_status();
    gd_tensors r = gd_session_run(t->session, gd_feed(g.x, xs, g.y, ys), gd_list(g.loss, g.train));
    if (gd_failed()) return gd_error_status();
    *result = gd_item(r.at[0]);
    return GD_OK;
}

static void copy_session_state(trial *t, char *to, size_t *bytes) {
    gd_tensors all = gd_graph_variables(g.graph);
    for (int64_t i = 0; i < all.count; i++)
        add_tensor(gd_session_get(t->session, all.at[i]), to, bytes);
}

static void new_session(trial *t) { t->session = gd_session_new(g.graph, .level = t->level); }
static void used_session(trial *t) {
    double result;
    new_session(t);
    CHECK(run_rows(t, 5, &result) == GD_OK);
}

/* Creates a session each time, so that leaks of a failed one show. */
static gd_status new_session_and_run(trial *t, double *result) {
    gd_session *s = gd_session_new(g.graph, .level = t->level);
    trial own = {.session = s};
    return s ? run_rows(&own, 3, result) : gd_error_status();
}
static gd_status run_session(trial *t, double *result) { return run_rows(t, 3, result); }

static void make_net(void) {
    g.graph = gd_graph_new();
    GD_GRAPH(g.graph);
    g.x = gd_placeholder(gd_dims(GD_ANY, 6));
    g.y = gd_placeholder(gd_dims(GD_ANY, 4));
    gd_tensor *w1 = gd_variable(gd_mul(gd_randn(gd_dims(6, 8)), gd_scalar(0.5))),
              *b1 = gd_variable(gd_zeros(gd_dims(8)));
    gd_tensor *w2 = gd_variable(gd_mul(gd_randn(gd_dims(8, 4)), gd_scalar(0.5)));
    gd_tensor *h = gd_dropout(gd_gelu(gd_add(gd_matmul(g.x, w1), b1)), .p = 0.3);
    g.loss = gd_mse_loss(gd_matmul(h, w2), g.y);
    g.train = gd_minimize(gd_optim_adam(gd_graph_variables(g.graph), .lr = 0.1), g.loss);
}

TEST(a_training_step_in_a_session_survives_any_failed_allocation) {
    GD_SCOPE;
    gd_seed(1);
    make_net();
    for (int level = 0; level <= 2; level += 2) {
        walk_work(&(work){"first run", new_session, run_session, copy_session_state, true}, level);
        walk_work(
            &(work){"new session", new_session, new_session_and_run, copy_session_state, true},
            level);
        walk_work(&(work){"another signature", used_session, run_session, copy_session_state, true},
                  level);
    }
}

/* --- branches and loops ----------------------------------------------------------------------- */

static gd_tensors scan_step(gd_tensors in, void *w) {
    gd_tensor *h = gd_tanh(gd_add(gd_matmul(in.at[0], w), in.at[1]));
    return gd_listed(h, gd_mul(h, h));
}
static gd_tensors halve(gd_tensors in, void *w) {
    (void)w;
    return gd_listed(gd_mul(in.at[0], gd_scalar(0.5)));
}
static gd_tensors times_w(gd_tensors in, void *w) { return gd_listed(gd_matmul(in.at[0], w)); }
static gd_tensors is_small(gd_tensors in, void *w) {
    (void)w;
    return gd_listed(gd_lt(gd_sum(in.at[0]), gd_scalar(100)));
}
static gd_tensors double_state(gd_tensors in, void *w) {
    (void)w;
    return gd_listed(gd_add(gd_mul(in.at[0], gd_scalar(2)), gd_scalar(0.1)));
}

static void make_loops(bool with_while) {
    g.graph = gd_graph_new();
    GD_GRAPH(g.graph);
    g.x = gd_placeholder(gd_dims(GD_ANY, 6));
    g.y = gd_placeholder(gd_dims(GD_ANY, 4));
    gd_tensor *w = gd_variable(gd_mul(gd_randn(gd_dims(6, 6)), gd_scalar(0.5))),
              *v = gd_variable(gd_mul(gd_randn(gd_dims(6, 6)), gd_scalar(0.5)));
    gd_tensor *start = gd_zeros(gd_dims(1, 6));
    gd_scanned s = gd_scan(scan_step, gd_list(start), gd_list(gd_unsqueeze(g.x, 1)), w);
    gd_tensor *mean = gd_mean(s.ys.at[0], .axis = 0);
    gd_tensor *h =
        gd_cond(gd_gt(gd_sum(g.x), gd_scalar(-1e9)), times_w, halve, gd_list(mean), v).at[0];
    g.loss = gd_add(gd_mean(gd_square(h)), gd_mean(gd_square(g.y)));
    g.train = gd_minimize(gd_optim_sgd(gd_graph_variables(g.graph), .lr = 0.1), g.loss);
    if (with_while)
        g.loss = gd_sum(
            gd_while_loop(is_small, double_state, gd_list(gd_mean(gd_square(g.x), .axis = 0)), NULL)
                .at[0]);
}

TEST(branches_and_loops_survive_any_failed_allocation) {
    for (int with_while = 0; with_while < 2; with_while++)
        for (int level = 0; level <= 2; level++) {
            GD_SCOPE;
            gd_seed(1);
            make_loops(with_while);
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            walk_work(&(work){with_while ? "loops, with while" : "loops", new_session, run_session,
                              copy_session_state, true},
                      level);
        }
}

/* --- optimizers ------------------------------------------------------------------------------- */

static void new_optimizer(trial *t) {
    t->w[0] = gd_requires_grad(gd_full(gd_dims(6, 8), 0.2));
    t->w[1] = gd_requires_grad(gd_full(gd_dims(8), 0.1));
    t->w[2] = gd_requires_grad(gd_full(gd_dims(8, 4), 0.3));
    t->optimizer = gd_optim_adam(gd_list(t->w[0], t->w[1], t->w[2]), .lr = 0.1);
    t->x = gd_full(gd_dims(3, 6), 0.4);
    GD_SCOPE;
    CHECK(gd_backward(gd_sum(gd_square(
              gd_matmul(gd_tanh(gd_add(gd_matmul(t->x, t->w[0]), t->w[1])), t->w[2])))) == GD_OK);
}
static gd_status step_optimizer(trial *t, double *result) {
    gd_status status = gd_optimizer_step(t->optimizer);
    if (status == GD_OK) *result = sum_elements(t->w[0]);
    return status;
}
static void copy_parameters(trial *t, char *to, size_t *bytes) {
    for (int i = 0; i < 3; i++) add_tensor(t->w[i], to, bytes);
}

TEST(a_step_of_an_optimizer_survives_any_failed_allocation) {
    walk_work(&(work){"adam", new_optimizer, step_optimizer, copy_parameters, true}, 0);
}

/* --- traced functions ------------------------------------------------------------------------- */

static trial *jit_trial; /* the function reads its tensors from here */
static gd_tensor *forward_net(gd_tensor *x) {
    return gd_matmul(gd_tanh(gd_add(gd_matmul(x, jit_trial->w[0]), jit_trial->w[1])),
                     jit_trial->w[2]);
}
static gd_tensors layers(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(forward_net(in.at[0]));
}
static void new_jit(trial *t) {
    t->w[0] = gd_requires_grad(gd_full(gd_dims(6, 8), 0.2));
    t->w[1] = gd_requires_grad(gd_full(gd_dims(8), 0.1));
    t->w[2] = gd_requires_grad(gd_full(gd_dims(8, 4), 0.3));
    t->x = gd_requires_grad(gd_full(gd_dims(3, 6), 0.4));
    t->jit = gd_jit_new(layers, NULL, .level = t->level);
    jit_trial = t;
}
static void used_jit(trial *t) {
    new_jit(t);
    GD_SCOPE;
    CHECK(gd_jit_call(t->jit, gd_list(t->x)).count == 1);
}
static gd_status call_jit(trial *t, double *result) {
    gd_tensors y = gd_jit_call(t->jit, gd_list(t->x));
    if (gd_failed()) return gd_error_status();
    *result = sum_elements(y.at[0]);
    return GD_OK;
}

static gd_status run_backward(trial *t, double *result) {
    gd_tensors y = gd_jit_call(t->jit, gd_list(t->x));
    if (gd_failed()) return gd_error_status();
    gd_tensors gradients =
        gd_grad(gd_list(gd_sum(gd_square(y.at[0]))), gd_list(t->x, t->w[0], t->w[2]));
    if (gd_failed()) return gd_error_status();
    *result = sum_elements(gradients.at[0]) + sum_elements(gradients.at[1]) +
              sum_elements(gradients.at[2]);
    return gd_error_status();
}
static void copy_nothing(trial *t, char *to, size_t *bytes) {
    (void)t;
    (void)to;
    *bytes = 0;
}

/* A training step that clears gradients first, or accumulates them. */
static bool accumulates;
static gd_tensors train_eagerly(gd_tensors in, void *user) {
    trial *t = user;
    if (!accumulates) gd_optimizer_zero_grad(t->optimizer);
    gd_tensor *loss = gd_sum(gd_square(forward_net(in.at[0])));
    gd_backward(loss);
    gd_optimizer_step(t->optimizer);
    return gd_listed(loss);
}
static void new_training(trial *t) {
    new_jit(t);
    t->x = gd_full(gd_dims(3, 6), 0.4);
    t->optimizer = gd_optim_adam(gd_list(t->w[0], t->w[1], t->w[2]), .lr = 0.1);
    t->jit = gd_jit_new(train_eagerly, t, .level = t->level);
}
static void used_training(trial *t) {
    new_training(t);
    GD_SCOPE;
    CHECK(gd_jit_call(t->jit, gd_list(t->x)).count == 1);
}
static void copy_gradients(trial *t, char *to, size_t *bytes) {
    copy_parameters(t, to, bytes);
    for (int i = 0; i < 3 && accumulates; i++)
        if (gd_tensor_grad(t->w[i])) add_tensor(gd_tensor_grad(t->w[i]), to, bytes);
}

TEST(traced_training_steps_survive_any_failed_allocation) {
    for (int level = 0; level <= 2; level += 2)
        for (int way = 0; way < 2; way++) {
            accumulates = way == 1;
            walk_work(&(work){"first step", new_training, call_jit, copy_gradients, true}, level);
            walk_work(&(work){"second step", used_training, call_jit, copy_gradients, true}, level);
        }
}

TEST(traced_functions_survive_any_failed_allocation) {
    for (int level = 0; level <= 2; level += 2) {
        walk_work(&(work){"first call", new_jit, call_jit, copy_nothing, true}, level);
        walk_work(&(work){"second call", used_jit, call_jit, copy_nothing, true}, level);
        walk_work(&(work){"gradients", new_jit, run_backward, copy_nothing, true}, level);
    }
}

TEST_MAIN
