/* control.c - branches and loops as ops: nodes of a graph whose options are graphs. gd_cond,
 * gd_while_loop and gd_scan (control.h) make them; src/graph/control/control.c runs them. */
#include <math.h>

#include "gradus/ops.h"
#include "ops/infer.h"
#include "ops/subgraph.h"

gd_control_rules gd_control_hooks;

/* The function that the option names, for a call with so many inputs. */
static gd_status need_graph(const gd_subgraph *sub, const char *name, const char *call, int n_in) {
    if (!sub)
        return gd_op_fail(GD_E_ARGUMENT, "'%s' is missing; such nodes are made by %s", name, call);
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
 * What `yes` or `no` gives for the tensors behind the first, which says which one it is.
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
        return gd_op_fail(GD_E_ARGUMENT, "one branch gives %d tensors, the other %d", o->yes->n_out,
                          o->no->n_out);
    GD_TRY(gd_infer_outputs(i, o->yes->n_out));
    for (int k = 0; k < o->yes->n_out; k++) {
        set_meta(&i->out[k], &o->yes->metas[k]);
        for (int d = 0; d < i->out[k].rank && d < o->no->metas[k].rank; d++)
            if (o->no->metas[k].dims[d] == GD_UNKNOWN) i->out[k].dims[d] = GD_UNKNOWN;
    }
    return GD_OK;
}

/* At most. */
static double cond_graph_macs(const gd_op_shapes *s) {
    const gd_cond_graph_options *o = s->attrs;
    return fmax(o->yes->macs, o->no->macs);
}

static void cond_graph_vjp(gd_vjp *v) { gd_control_hooks.cond(v); }

/*op while_graph(tensors*) -> state*  internal opaque dynamic
 * The first `state` tensors, replaced by what `body` gives for them and the rest as long as
 * `condition` of the same is true.
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
        return gd_op_fail(GD_E_ARGUMENT, "a state of %lld tensors, and a body that gives %d",
                          (long long)o->state, o->body->n_out);
    GD_TRY(gd_infer_outputs(i, o->body->n_out));
    for (int k = 0; k < o->body->n_out; k++) set_meta(&i->out[k], &o->body->metas[k]);
    return GD_OK;
}

/* Nobody knows how many steps there will be. */
static double while_graph_macs(const gd_op_shapes *s) {
    const gd_while_graph_options *o = s->attrs;
    return o->condition->macs + o->body->macs == 0 ? 0 : NAN;
}

/*op scan_graph(tensors*) -> ys*  internal opaque
 * The first `state` tensors go through `body` together with one position after the other of the
 * next `xs` ones, and the rest as it is. Gives the last state, and the other results side by side.
 *   body    graph = none
 *   state   int = 0
 *   xs      int = 0
 *   reverse bool = false  from the last position to the first
 *   stacked bool = false  its last results are the states before each step
 *   control scan
 *   onnx Scan
 */
static gd_status scan_graph_infer(gd_infer *i) {
    const gd_scan_graph_options *o = i->attrs;
    GD_TRY(need_graph(o->body, "body", "gd_scan", i->n_in));
    const int n = o->body->n_out;
    if (o->state < 0 || o->xs < 1 || o->state > n || o->state + o->xs > i->n_in ||
        i->in[o->state]->rank < 1)
        return gd_op_fail(GD_E_ARGUMENT, "%lld tensors of state, %lld to go along, %d results",
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

#include "control.gen.h"
