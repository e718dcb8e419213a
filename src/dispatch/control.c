/* control.c - branches and loops as ops: nodes whose options are graphs. gd_cond, gd_while_loop and
 * gd_scan (control.h) create them; src/graph/control/control.c runs them. */
#include <math.h>

#include "gradus/ops.h"
#include "dispatch/infer.h"
#include "dispatch/subgraph.h"

gd_control_rules gd_control_hooks;

/* Checks that the graph option `name` is set and takes n_in tensors. */
static gd_status need_graph(const gd_subgraph *sub, const char *name, const char *call, int n_in) {
    if (!sub)
        return gd_op_fail(GD_E_ARGUMENT, "the option '%s' is missing; call %s instead", name, call);
    if (sub->n_in != n_in)
        return gd_op_fail(GD_E_ARGUMENT, "'%s' takes %d tensors, not %d", name, sub->n_in, n_in);
    return GD_OK;
}

static void set_meta(gd_meta *m, const gd_meta *from) {
    m->dtype = from->dtype;
    m->rank = from->rank;
    for (int d = 0; d < from->rank; d++) m->dims[d] = from->dims[d];
}

/*op cond_graph(tensors*) -> ys*  internal opaque dynamic
 * The first tensor is a condition. The results are those of `yes` or `no`, called with the other
 * tensors.
 *   yes graph = none
 *   no  graph = none
 *   control branch
 *   onnx If
 */
static gd_status cond_graph_infer(gd_infer *i) {
    const gd_cond_graph_options *o = i->attrs;
    GD_TRY(need_graph(o->yes, "yes", "gd_cond", i->n_in - 1));
    GD_TRY(need_graph(o->no, "no", "gd_cond", i->n_in - 1));
    if (o->yes->n_out != o->no->n_out)
        return gd_op_fail(GD_E_ARGUMENT, "the branches return %d and %d tensors", o->yes->n_out,
                          o->no->n_out);
    GD_TRY(gd_infer_outputs(i, o->yes->n_out));
    for (int k = 0; k < o->yes->n_out; k++) {
        set_meta(&i->out[k], &o->yes->metas[k]);
        for (int d = 0; d < i->out[k].rank && d < o->no->metas[k].rank; d++)
            if (o->no->metas[k].dims[d] == GD_UNKNOWN) i->out[k].dims[d] = GD_UNKNOWN;
    }
    return GD_OK;
}

/* The larger branch: the condition is unknown. */
static double cond_graph_macs(const gd_op_shapes *s) {
    const gd_cond_graph_options *o = s->attrs;
    return fmax(o->yes->macs, o->no->macs);
}

static void cond_graph_vjp(gd_vjp *v) { gd_control_hooks.cond(v); }

/*op while_graph(tensors*) -> state*  internal opaque dynamic
 * While `condition` of the tensors is true, replaces the first `state` tensors by the results of
 * `body` for all tensors. Returns the final state.
 *   condition graph = none
 *   body      graph = none
 *   state     int = 0
 *   max_steps int = none
 *   control while
 *   onnx Loop
 */
static gd_status while_graph_infer(gd_infer *i) {
    const gd_while_graph_options *o = i->attrs;
    GD_TRY(need_graph(o->condition, "condition", "gd_while_loop", i->n_in));
    GD_TRY(need_graph(o->body, "body", "gd_while_loop", i->n_in));
    if (o->state != o->body->n_out || o->state > i->n_in)
        return gd_op_fail(GD_E_ARGUMENT, "the state has %lld tensors, and the body returns %d",
                          (long long)o->state, o->body->n_out);
    GD_TRY(gd_infer_outputs(i, o->body->n_out));
    for (int k = 0; k < o->body->n_out; k++) set_meta(&i->out[k], &o->body->metas[k]);
    return GD_OK;
}

/* NAN: the number of steps is unknown. */
static double while_graph_macs(const gd_op_shapes *s) {
    const gd_while_graph_options *o = s->attrs;
    return o->condition->macs + o->body->macs == 0 ? 0 : NAN;
}

/*op scan_graph(tensors*) -> ys*  internal opaque
 * Calls `body` once for each position of the next `xs` tensors (along axis 0), with the state (the
 * first `state` tensors), that position and the remaining tensors. Its first results are the next
 * state. Returns the final state, and the other results stacked along axis 0.
 *   body    graph = none
 *   state   int = 0
 *   xs      int = 0
 *   reverse bool = false  from the last position to the first
 *   stacked bool = false  the last results are the states before each step
 *   control scan
 *   onnx Scan
 */
static gd_status scan_graph_infer(gd_infer *i) {
    const gd_scan_graph_options *o = i->attrs;
    GD_TRY(need_graph(o->body, "body", "gd_scan", i->n_in));
    const int n = o->body->n_out;
    if (o->state < 0 || o->xs < 1 || o->state > n || o->state + o->xs > i->n_in ||
        i->in[o->state]->rank < 1)
        return gd_op_fail(
            GD_E_ARGUMENT,
            "%lld tensors of state and %lld sequences do not fit a body with %d results",
            (long long)o->state, (long long)o->xs, n);
    GD_TRY(gd_infer_outputs(i, n));
    for (int k = 0; k < n; k++) {
        const gd_meta *from = &o->body->metas[k];
        gd_meta *m = &i->out[k];
        set_meta(m, from);
        if (k < o->state) continue;
        m->rank = from->rank + 1; /* gd_scan has checked that there is room */
        m->dims[0] = i->in[o->state]->dims[0];
        for (int d = 0; d < from->rank; d++) m->dims[d + 1] = from->dims[d];
    }
    return GD_OK;
}

static double scan_graph_macs(const gd_op_shapes *s) {
    const gd_scan_graph_options *o = s->attrs;
    return (double)s->in[o->state].dims[0] * o->body->macs;
}

static void scan_graph_vjp(gd_vjp *v) { gd_control_hooks.scan(v); }

#include "dispatch/control.gen.h"
