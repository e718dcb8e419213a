/* modes_elsewhere.c - a case as symbols through the graph's executor, and on the test device. */
#include <string.h>

#include "backend/test/device.h"
#include "graph/trace.h"
#include "modes.h"

static bool writes_inputs(const gd_op *op) {
    for (int i = 0; i < gd_op_input_count(op); i++)
        if (input_is_mutated(op, i)) return true;
    return false;
}

/* --- as symbols --------------------------------------------------------------------------------- */

static bool graph_available(const test_case *c, const char **why) {
    if (writes_inputs(c->block->op)) *why = "a graph does not write into the values it is fed";
    return *why == NULL;
}

static void run_graph(const run_setup *s, run_result *r) {
    const gd_op *op = s->c->block->op;
    gd_tensor *in[MAX_TENSORS], *symbol[MAX_TENSORS] = {NULL}, *feeds[MAX_TENSORS], *values[MAX_TENSORS];
    gd_tensor *fetches[3 * MAX_TENSORS];
    int n_feeds = 0, n_fetches = 0;
    run_setup setup = *s;
    *r = (run_result){.status = GD_OK};
    gd_clear_error();
    gd_seed(7);
    if (gd_op_flags(op) & GD_OP_DYNAMIC) setup.gradients = false; /* no shape to weigh by yet */
    r->n_in = build_inputs(s, in);
    for (int i = 0; i < r->n_in; i++) {
        if (!in[i]) continue;
        symbol[i] = gd_symbol(gd_tensor_shape(in[i]), gd_tensor_dtype(in[i]), NULL);
        feeds[n_feeds] = symbol[i];
        values[n_feeds++] = gd_detach(in[i]);
    }
    if (n_feeds == 0) gd_trace_begin();
    gd_tensors y = gd_op_call(op, (gd_tensors){symbol, r->n_in}, build_attrs(s->c));
    if (n_feeds == 0) gd_trace_end();
    r->status = gd_error_status();
    if (r->status != GD_OK) return;
    for (int64_t k = 0; k < y.count; k++) fetches[n_fetches++] = y.at[k];
    r->n_out = n_fetches;
    if (setup.gradients) r->status = differentiate(symbol, y.at, (int)y.count, s->second, r);
    if (r->status != GD_OK) return;
    gd_tensor **grads[] = {r->grad, r->grad2};
    for (int order = 0; order < 2; order++)
        for (int i = 0; i < r->n_in; i++)
            if (gd_tensor_is_symbol(grads[order][i])) fetches[n_fetches++] = grads[order][i]; /* else a constant */
    gd_tensors got = gd_evaluate((gd_tensors){fetches, n_fetches}, (gd_tensors){feeds, n_feeds}, (gd_tensors){values, n_feeds});
    r->status = gd_error_status();
    int at = 0;
    for (int k = 0; k < r->n_out; k++) r->out[k] = got.at[at++];
    for (int order = 0; order < 2; order++)
        for (int i = 0; i < r->n_in; i++)
            if (gd_tensor_is_symbol(grads[order][i])) grads[order][i] = got.at[at++];
}

const run_mode graph_mode = {"as symbols", true, graph_available, run_graph, false};

/* --- on the test device ------------------------------------------------------------------------- */

static gd_tensor *to_host(gd_tensor *t) { return t ? gd_to_device(t, gd_device_get("cpu")) : NULL; }

static void run_device(const run_setup *s, run_result *r) {
    const gd_op *op = s->c->block->op;
    gd_tensor *in[MAX_TENSORS], *there[MAX_TENSORS] = {NULL};
    gd_device *device = gd_test_device();
    *r = (run_result){.status = GD_OK};
    gd_clear_error();
    gd_seed(7);
    r->n_in = build_inputs(s, in);
    for (int i = 0; i < r->n_in; i++) {
        if (!in[i]) continue;
        there[i] = gd_to_device(gd_detach(in[i]), device);
        if (gd_tensor_requires_grad(in[i])) gd_requires_grad(there[i]);
    }
    gd_set_default_device(device);
    gd_tensors y = gd_op_call(op, (gd_tensors){there, r->n_in}, build_attrs(s->c));
    if (!gd_failed() && s->gradients) differentiate(there, y.at, (int)y.count, s->second, r);
    gd_set_default_device(NULL);
    for (int64_t k = 0; k < y.count; k++) r->out[r->n_out++] = to_host(gd_detach(y.at[k]));
    for (int i = 0; i < r->n_in; i++) {
        r->grad[i] = to_host(r->grad[i]);
        r->grad2[i] = to_host(r->grad2[i]);
        if (there[i] && input_is_mutated(op, i)) r->out[r->n_out++] = to_host(there[i]);
    }
    gd_status late = gd_synchronize(device);
    r->status = gd_error_status();
    if (r->status == GD_OK) r->status = late;
}

const run_mode device_mode = {"on the test device", true, NULL, run_device, false};
