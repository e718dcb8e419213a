/* steps.c - five training steps of a layer give the same bits eagerly, in a jit and in a session at
 * level 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradus/graph.h"
#include "gradus/jit.h"
#include "gradus/session.h"
#include "layer.h"

enum { STEPS = 5, MAX_RESULTS = 2 * MAX_TENSORS };

/* The results of a run: loss, outputs and gradients of each step, then the final state. */
typedef struct run_record {
    gd_tensor *at[STEPS * MAX_RESULTS + MAX_TENSORS];
    int n;
} run_record;

/* The loss: the sum of squares of the first output. */
static gd_tensor *loss_of(gd_tensors y) { return gd_sum(gd_square(y.at[0])); }

/* SGD: p -= 0.001 g. Appends the assignments, which a session has to fetch. */
static void update_parameters(const gd_tensor *const *parameters, gd_tensor *const *gradients,
                              int n, gd_tensor **updates, int *n_updates) {
    GD_NO_GRAD;
    for (int i = 0; i < n; i++) {
        if (!gradients[i]) continue;
        gd_tensor *p = (gd_tensor *)parameters[i];
        updates[(*n_updates)++] = gd_assign(p, gd_sub(p, gd_mul(gradients[i], gd_scalar(0.001))));
    }
}

typedef struct step_context {
    gd_module *m;
    bool absent[MAX_TENSORS]; /* inputs that the case leaves out; train_step gets the others */
    int n_in;
    gd_tensor *updates[MAX_TENSORS];
    int n_updates;
} step_context;

/* All inputs, with NULL for absent ones: a jit takes no NULL. */
static gd_tensors with_absent(gd_tensors in, const step_context *s) {
    gd_tensor *all[MAX_TENSORS];
    for (int i = 0, k = 0; i < s->n_in; i++) all[i] = s->absent[i] ? NULL : in.at[k++];
    return gd_list_copy((gd_tensors){all, s->n_in});
}

/* One training step. Returns the loss, the outputs and the gradients of inputs and parameters. */
static gd_tensors train_step(gd_tensors in, void *user) {
    step_context *s = user;
    gd_tensor *by[MAX_RESULTS], *gradients[MAX_RESULTS] = {NULL}, *results[MAX_RESULTS];
    int n_by = 0, n = 0;
    gd_tensors y = gd_module_call(s->m, with_absent(in, s)),
               parameters = gd_module_parameters(s->m);
    s->n_updates = 0;
    if (gd_failed()) return y;
    gd_tensor *loss = loss_of(y);
    for (int64_t i = 0; i < in.count; i++)
        if (in.at[i] && gd_tensor_requires_grad(in.at[i])) by[n_by++] = in.at[i];
    const int n_in = n_by;
    for (int64_t i = 0; i < parameters.count; i++) by[n_by++] = parameters.at[i];
    if (n_by > 0 && gd_tensor_requires_grad(loss)) {
        gd_tensors g = gd_grad(gd_list(loss), ((gd_tensors){by, n_by}), .allow_unused = true);
        for (int i = 0; i < n_by && i < g.count; i++) gradients[i] = g.at[i];
    }
    results[n++] = loss;
    for (int64_t k = 0; k < y.count; k++) results[n++] = y.at[k];
    for (int i = 0; i < n_by; i++)
        if (gradients[i]) results[n++] = gradients[i];
    update_parameters((const gd_tensor *const *)parameters.at, gradients + n_in,
                      (int)parameters.count, s->updates, &s->n_updates);
    return gd_list_copy((gd_tensors){results, n});
}

static void record_results(run_record *t, gd_tensors results) {
    for (int64_t i = 0; i < results.count && t->n < STEPS * MAX_RESULTS; i++)
        t->at[t->n++] = gd_clone(gd_detach(results.at[i]));
}

static void record_state(run_record *t, gd_module *m) {
    layer_state s;
    layer_state_of(m, &s);
    for (int i = 0; i < s.n; i++) t->at[t->n++] = gd_clone(gd_detach(s.at[i]));
}

/* Creates the inputs that are not absent. */
static int make_present_inputs(const test_case *c, gd_dtype dtype, gd_tensor **in,
                               step_context *s) {
    s->n_in = layer_inputs(c, dtype, in);
    int n = 0;
    for (int i = 0; i < s->n_in; i++)
        if (!(s->absent[i] = !in[i])) in[n++] = in[i];
    return n;
}

static void run_eager(const test_case *c, gd_module *m, gd_dtype dtype, run_record *t) {
    gd_tensor *in[MAX_TENSORS];
    step_context s = {.m = m};
    const int n = make_present_inputs(c, dtype, in, &s);
    gd_seed(7);
    for (int i = 0; i < STEPS && !gd_failed(); i++)
        record_results(t, train_step((gd_tensors){in, n}, &s));
    record_state(t, m);
}

static void run_jit(const test_case *c, gd_module *m, gd_dtype dtype, int level, run_record *t) {
    gd_tensor *in[MAX_TENSORS];
    step_context s = {.m = m};
    gd_jit *jit = gd_jit_new(train_step, &s, .level = level);
    const int n = make_present_inputs(c, dtype, in, &s);
    gd_seed(7);
    for (int i = 0; i < STEPS && !gd_failed(); i++)
        record_results(t, gd_jit_call(jit, ((gd_tensors){in, n})));
    record_state(t, m);
}

static void run_session(const test_case *c, gd_module *m, gd_dtype dtype, int level,
                        run_record *t) {
    gd_tensor *in[MAX_TENSORS], *symbols[MAX_TENSORS] = {NULL}, *feeds[2 * MAX_TENSORS],
                                *fetches[2 * MAX_RESULTS];
    step_context s = {.m = m};
    const int n = make_present_inputs(c, dtype, in, &s);
    int n_feeds = 0;
    gd_graph *graph = gd_graph_new();
    gd_tensors results;
    gd_seed(7);
    {
        GD_GRAPH(graph);
        for (int i = 0; i < n; i++)
            symbols[i] = gd_placeholder(gd_tensor_shape(in[i]), .dtype = gd_tensor_dtype(in[i]));
        results = train_step((gd_tensors){symbols, n}, &s);
    }
    if (gd_failed()) return;
    for (int i = 0; i < n; i++) feeds[n_feeds++] = symbols[i], feeds[n_feeds++] = gd_detach(in[i]);
    int n_fetches = 0;
    for (int64_t i = 0; i < results.count; i++) fetches[n_fetches++] = results.at[i];
    for (int i = 0; i < s.n_updates; i++) fetches[n_fetches++] = s.updates[i];
    gd_session *session = gd_session_new(graph, .level = level);
    for (int i = 0; i < STEPS && !gd_failed(); i++) {
        gd_tensors got = gd_session_run(session, ((gd_tensors){feeds, n_feeds}),
                                        ((gd_tensors){fetches, n_fetches}));
        record_results(t, (gd_tensors){got.at, results.count});
    }
    record_state(t, m);
}

static bool records_agree(const run_record *a, const run_record *b, double tolerance, char *why) {
    char what[256];
    for (int i = 0; i < a->n && i < b->n; i++)
        if (!tensors_agree(a->at[i], b->at[i], tolerance, what)) {
            snprintf(
                why, 400,
                "tensor %d of %d (loss, outputs and gradients of each step, then the state): %s", i,
                a->n, what);
            return false;
        }
    snprintf(why, 400, "%d results, expected %d", a->n, b->n);
    return a->n == b->n;
}

typedef struct run_way {
    const char *name;
    int level;
    void (*run)(const test_case *c, gd_module *m, gd_dtype dtype, int level, run_record *t);
    bool exact;
} run_way;
static const run_way ways[] = {{"a jit", 0, run_jit, true},
                               {"a session", 0, run_session, true},
                               {"a jit of level 2", 2, run_jit, false},
                               {"a session of level 1", 1, run_session, false},
                               {"a session of level 2", 2, run_session, false}};

static void compare_steps(const test_case *c, gd_dtype dtype) {
    static run_record expected, got;
    char why[512];
    GD_SCOPE;
    gd_clear_error();
    gd_module *m = layer_of(c, dtype);
    if (!m) {
        report_fail(c, dtype, "%s", gd_error_message());
        return;
    }
    gd_module_train(m);
    expected.n = 0;
    run_eager(c, m, dtype, &expected);
    if (gd_failed()) {
        report_fail(c, dtype, "eagerly: %s", gd_error_message());
        return;
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        GD_SCOPE;
        gd_clear_error();
        if (c->random && ways[i].run == run_session) {
            report_skip("a session draws other random numbers than eager code");
            continue;
        }
        got.n = 0;
        layer_fill(c, m);
        ways[i].run(c, m, dtype, ways[i].level, &got);
        const double tolerance = ways[i].exact ? 0 : 10 * block_tolerance(c->block, dtype);
        if (gd_failed()) report_fail(c, dtype, "%s: %s", ways[i].name, gd_error_message());
        else if (!records_agree(&got, &expected, tolerance, why))
            report_fail(c, dtype, "%s, against eager: %s", ways[i].name, why);
        else report_pass();
    }
}

void suite_nn_steps(const test_cases *cases) { each_layer_case(cases, compare_steps); }
