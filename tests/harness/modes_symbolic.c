/* modes_symbolic.c - the modes that build a case from symbols. They run it node by node, or as a
 * session's plan. */
#include <string.h>

#include "graph/build/graph.h"
#include "graph/build/trace.h"
#include "graph/run/evaluate.h"
#include "gradus/session.h"
#include "modes.h"
#include "report.h"

static bool writes_inputs(const gd_op *op) {
    for (int i = 0; i < gd_op_input_count(op); i++)
        if (input_is_mutated(op, i)) return true;
    return false;
}

/* --- as symbols ------------------------------------------------------------------------------- */

static bool graph_available(const test_case *c, const char **why) {
    if (writes_inputs(c->block->op)) *why = "a graph does not write into its feeds";
    return *why == NULL;
}

/* A case as symbols: placeholders and their values to feed, outputs and gradients to fetch. */
typedef struct symbolic_case {
    gd_tensor *feeds[MAX_TENSORS], *values[MAX_TENSORS], *fetches[3 * MAX_TENSORS];
    gd_tensor *written[MAX_TENSORS]; /* variables, for the inputs that the op mutates */
    int n_feeds, n_fetches, n_written;
} symbolic_case;

/* Calls the op on symbols that make_symbol creates, and differentiates it. */
static void build_symbolic(const run_setup *s,
                           gd_tensor *(*make_symbol)(gd_tensor *like, int number), run_result *r,
                           symbolic_case *g) {
    const gd_op *op = s->c->block->op;
    gd_tensor *in[MAX_TENSORS], *symbol[MAX_TENSORS] = {NULL};
    run_setup setup = *s;
    if (gd_op_flags(op) & GD_OP_DYNAMIC) setup.gradients = false; /* weights need a known shape */
    g->n_feeds = g->n_fetches = g->n_written = 0;
    gd_tracing tracing = gd_tracing_off();
    gd_seed(7);
    r->n_in = build_inputs(s, in);
    for (int i = 0; i < r->n_in; i++)
        if (in[i] && !input_is_mutated(op, i)) g->values[g->n_feeds++] = gd_detach(in[i]);
    gd_tracing_on(tracing);
    for (int i = 0, k = 0; i < r->n_in; i++)
        if (in[i] && input_is_mutated(op, i))
            symbol[i] = g->written[g->n_written++] = gd_variable(in[i]);
        else if (in[i]) symbol[i] = g->feeds[k++] = make_symbol(in[i], i);
    gd_tensors y = gd_op_call(op, (gd_tensors){symbol, r->n_in}, build_attrs(s->c));
    r->status = gd_error_status();
    if (r->status != GD_OK) return;
    for (int64_t k = 0; k < y.count; k++) {
        const gd_shape shape = gd_tensor_shape(y.at[k]);
        for (int d = 0; d < shape.rank; d++) r->unknown_sizes |= shape.at[d] == GD_ANY;
        g->fetches[g->n_fetches++] = y.at[k];
    }
    r->n_out = g->n_fetches;
    if (setup.gradients) {
        tracing = gd_tracing_off(); /* loss weights are values, not symbols */
        r->status = differentiate(s, symbol, y.at, (int)y.count, r);
        gd_tracing_on(tracing);
    }
    if (r->status != GD_OK) return;
    gd_tensor **grads[] = {r->grad, r->grad2};
    for (int order = 0; order < 2; order++)
        for (int i = 0; i < r->n_in; i++)
            if (gd_tensor_is_symbol(grads[order][i]))
                g->fetches[g->n_fetches++] = grads[order][i]; /* others are values already */
}

static void store_results(gd_tensors got, run_result *r) {
    int at = 0;
    gd_tensor **grads[] = {r->grad, r->grad2};
    for (int k = 0; k < r->n_out; k++) r->out[k] = got.at[at++];
    for (int order = 0; order < 2; order++)
        for (int i = 0; i < r->n_in; i++)
            if (gd_tensor_is_symbol(grads[order][i])) grads[order][i] = got.at[at++];
}

static gd_tensor *symbol_like(gd_tensor *t, int number) {
    (void)number;
    return gd_symbol(gd_tensor_shape(t), gd_tensor_dtype(t), NULL);
}
static gd_tensor *placeholder_like(gd_tensor *t, int number) {
    (void)number;
    return gd_placeholder(gd_tensor_shape(t), .dtype = gd_tensor_dtype(t));
}
/* All sizes of the first input are unknown. */
static gd_tensor *unknown_like(gd_tensor *t, int number) {
    if (number > 0) return placeholder_like(t, number);
    gd_shape shape = gd_tensor_shape(t);
    for (int d = 0; d < shape.rank; d++) shape.at[d] = GD_ANY;
    return gd_placeholder(shape, .dtype = gd_tensor_dtype(t));
}

static bool has_inputs(const test_case *c) {
    int item;
    const char *name;
    for (int i = 0; i < case_tensor_count(c); i++)
        if (case_item_at(c, i, &name, &item)) return true;
    return false;
}

static void run_graph(const run_setup *s, run_result *r) {
    symbolic_case g;
    const bool traces = !has_inputs(s->c); /* nothing else makes the call a node */
    *r = (run_result){.status = GD_OK};
    gd_clear_error();
    if (traces) gd_trace_begin();
    build_symbolic(s, symbol_like, r, &g);
    if (traces) gd_trace_end();
    if (r->status != GD_OK) return;
    gd_tensors got =
        gd_evaluate_nodes((gd_tensors){g.fetches, g.n_fetches}, (gd_tensors){g.feeds, g.n_feeds},
                          (gd_tensors){g.values, g.n_feeds});
    r->status = gd_error_status();
    store_results(got, r);
}

const run_mode graph_mode = {"as symbols", true, graph_available, run_graph, false};

/* --- as a plan -------------------------------------------------------------------------------- */

static void run_session(const run_setup *s, run_result *r, int level, int runs,
                        void (*before_run)(int run),
                        gd_tensor *(*make_symbol)(gd_tensor *like, int number)) {
    symbolic_case g;
    *r = (run_result){.status = GD_OK};
    gd_clear_error();
    gd_graph *graph = gd_graph_new();
    gd_session *session = gd_session_new(graph, .level = level);
    {
        GD_GRAPH(graph);
        build_symbolic(s, make_symbol, r, &g);
    }
    if (r->status != GD_OK) return;
    gd_tensor *feeds[2 * MAX_TENSORS];
    for (int i = 0; i < g.n_feeds; i++) feeds[2 * i] = g.feeds[i], feeds[2 * i + 1] = g.values[i];
    gd_tensors got = {NULL, 0};
    for (int run = 0; run < runs && !gd_failed(); run++) {
        if (before_run) before_run(run);
        got = gd_session_run(session, ((gd_tensors){feeds, 2 * g.n_feeds}),
                             ((gd_tensors){g.fetches, g.n_fetches}));
    }
    if (before_run) before_run(runs);
    r->status = gd_error_status();
    if (r->status != GD_OK) return;
    store_results(got, r);
    for (int i = 0; i < g.n_written; i++)
        r->out[r->n_out++] = gd_session_get(session, g.written[i]);
}

static bool plan_available(const test_case *c, const char **why) {
    if (gd_op_flags(c->block->op) & GD_OP_INPLACE)
        *why = "an in-place op rebinds its symbol to the new value";
    return *why == NULL;
}

void run_plan_repeatedly(const run_setup *s, run_result *r, int runs, void (*before_run)(int run)) {
    run_session(s, r, 2, runs, before_run, placeholder_like);
}

static void run_planned(const run_setup *s, run_result *r) {
    run_session(s, r, 0, 1, NULL, placeholder_like);
}
static void run_optimized(const run_setup *s, run_result *r) {
    run_session(s, r, 2, 1, NULL, placeholder_like);
}

const run_mode plan_mode = {"as a plan", true, plan_available, run_planned, false};
const run_mode optimized_mode = {"as a plan of level 2", false, plan_available, run_optimized,
                                 false};

/* --- with sizes unknown ----------------------------------------------------------------------- */

/* A shape rule that needs a size may fail with "not known yet". */
static void run_unknown(const run_setup *s, run_result *r) {
    run_session(s, r, 0, 1, NULL, unknown_like);
    if (r->status == GD_E_SHAPE && strstr(gd_error_message(), "not known yet")) {
        gd_clear_error();
        run_session(s, r, 0, 1, NULL, placeholder_like);
        report_skip("a shape depends on a size that is not known");
    }
}

const run_mode unknown_mode = {"as a plan of unknown sizes", true, plan_available, run_unknown,
                               true};
