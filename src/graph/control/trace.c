/* trace.c - branches and loops in a replay, where sizes are known: tracing them again, and their
 * gradient rules, which are branches and loops again. */
#include <string.h>

#include "core/alloc.h"
#include "graph/control/run.h"
#include "gradus/ops.h"

/* --- tracing again ---------------------------------------------------------------------------- */

/* The user data of rerun_body. */
typedef struct subgraph_rerun {
    const gd_subgraph *sub;
    const gd_running *running;
    int stacked; /* the number of its first inputs that are also results */
} subgraph_rerun;

/* Runs a subgraph. Returns a list of the current scope, with room for `more` results; NULL:
 * failed. */
static gd_tensor **run_sub(const gd_subgraph *sub, gd_tensor *const *in, const gd_running *r,
                           int more) {
    gd_tensor **y = gd_list_new(sub->n_out + more);
    gd_status status = y ? gd_subgraph_run(sub, in, y, r) : GD_E_MEMORY;
    for (int k = 0; k < sub->n_out && y; k++) {
        if (status == GD_OK) status = gd_scope_take(&y[k]->object);
        if (status != GD_OK) y[k] = &gd_error_tensor;
    }
    if (status == GD_OK) return y;
    gd_error_record(status);
    return NULL;
}

static gd_tensors rerun_body(gd_tensors in, void *user) {
    const subgraph_rerun *f = user;
    gd_tensor **y = run_sub(f->sub, in.at, f->running, f->stacked);
    if (!y) return gd_list_of_errors(f->sub->n_out + f->stacked);
    for (int k = 0; k < f->stacked; k++) y[f->sub->n_out + k] = in.at[k];
    return (gd_tensors){y, f->sub->n_out + f->stacked};
}

/* Traces a subgraph again with the shapes of these inputs. Those from `sliced` to `unsliced` are
 * passed one position of the first axis at a time. */
static gd_status retrace_subgraph(const gd_subgraph *sub, gd_tensor *const *in, int sliced,
                                  int unsliced, const gd_running *r, int stacked,
                                  gd_subgraph **made) {
    gd_meta *metas = gd_malloc((size_t)(sub->n_in + 1) * sizeof *metas);
    if (!metas) return gd_no_memory(NULL, "for the graph of a function");
    for (int i = 0; i < sub->n_in; i++) {
        gd_meta m = metas[i] = gd_meta_of(in[i]);
        if (i < sliced || i >= unsliced) continue;
        metas[i].rank--;
        memcpy(metas[i].dims, m.dims + 1, sizeof(int64_t) * (GD_MAX_RANK - 1));
    }
    subgraph_rerun f = {sub, r, stacked};
    gd_status status = gd_subgraph_trace(rerun_body, &f, metas, sub->n_in, made);
    gd_free(metas);
    gd_capturing none = {NULL, 0, 0};
    if (status == GD_OK) status = gd_subgraph_close(&none, made, 1);
    if (status == GD_OK && none.count)
        status = gd_fail(GD_E_STATE, "a subgraph captures a tensor when it is traced again");
    gd_capturing_free(&none);
    return status;
}

static gd_status add_control_node(const gd_node *node, gd_tensor *const *in, const void *attrs,
                                  gd_tensor **out) {
    gd_tensors y = gd_dispatch_list(node->op, node->site, in, node->n_in, attrs);
    if (y.count < node->n_out) return gd_failure();
    for (int k = 0; k < node->n_out; k++) out[k] = y.at[k];
    return GD_OK;
}

gd_status gd_control_trace(const gd_node *node, gd_tensor *const *in, gd_tensor **out,
                           const gd_running *r) {
    gd_subgraph *a = NULL, *b = NULL;
    gd_status status;
    if (node->op->facts.control == GD_CONTROL_BRANCH) {
        gd_cond_graph_options o = *(const gd_cond_graph_options *)node->attrs;
        status = retrace_subgraph(o.yes, in + 1, 0, 0, r, 0, &a);
        if (status == GD_OK) status = retrace_subgraph(o.no, in + 1, 0, 0, r, 0, &b);
        o.yes = a, o.no = b;
        if (status == GD_OK) status = add_control_node(node, in, &o, out);
    } else if (node->op->facts.control == GD_CONTROL_WHILE) {
        gd_while_graph_options o = *(const gd_while_graph_options *)node->attrs;
        status = retrace_subgraph(o.condition, in, 0, 0, r, 0, &a);
        if (status == GD_OK) status = retrace_subgraph(o.body, in, 0, 0, r, 0, &b);
        o.condition = a, o.body = b;
        if (status == GD_OK) status = add_control_node(node, in, &o, out);
    } else {
        gd_scan_graph_options o = *(const gd_scan_graph_options *)node->attrs;
        const bool stacked = r->stacked && !o.stacked;
        status = retrace_subgraph(o.body, in, (int)o.state, (int)(o.state + o.xs), r,
                                  stacked ? (int)o.state : 0, &a);
        o.body = a;
        o.stacked |= stacked;
        if (status == GD_OK) status = add_control_node(node, in, &o, out);
    }
    gd_subgraph_release(a);
    gd_subgraph_release(b);
    return status;
}

/* --- gradients -------------------------------------------------------------------------------- */

static const gd_running replaying = {.keep = true};

static bool is_float(const gd_tensor *t) { return t && gd_dtype_is_float((gd_dtype)t->dtype); }

/* A list in memory that is large enough. */
typedef struct tensor_list {
    gd_tensor **at;
    int64_t count;
} tensor_list;

static void push_tensor(tensor_list *l, gd_tensor *t) { l->at[l->count++] = t; }
static gd_tensors as_tensors(tensor_list l) { return (gd_tensors){l.at, l.count}; }

/* The gradients of `of` with respect to `by`, and zeros where there are none. */
static gd_status compute_gradients(tensor_list of, tensor_list gradients, tensor_list by,
                                   gd_tensor **results) {
    if (by.count == 0) return GD_OK;
    gd_tensors g = {NULL, 0};
    if (of.count)
        g = gd_grad(as_tensors(of), as_tensors(by), .gradients = as_tensors(gradients),
                    .create_graph = true, .allow_unused = true);
    if (of.count && g.count != by.count) return gd_failure();
    for (int64_t i = 0; i < by.count; i++) {
        results[i] = of.count && g.at[i] ? g.at[i] : gd_zeros_like(by.at[i]);
        if (results[i]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

/* The user data of the bodies below. Their inputs are the gradients of the outputs; everything else
 * is captured. */
typedef struct backward_body {
    gd_vjp *v;
    const gd_subgraph *sub;
    int first; /* the first input of the node that the subgraph takes */
    int n_state, n_xs;
} backward_body;

static gd_tensors fail_list(int64_t count, gd_status status) {
    gd_error_record(status);
    return gd_list_of_errors(count);
}

/* A captured tensor as a new tensor inside the body: a backward walk ends there, and does not
 * continue outside. */
static gd_tensor *make_boundary(gd_tensor *x) { return gd_reshape(x, gd_tensor_shape(x)); }

/* Runs the branch again, and computes the gradients of the float inputs that need one. */
static gd_tensors differentiate_branch(gd_tensors gy, backward_body *b) {
    const int n_in = b->sub->n_in, n_out = b->sub->n_out;
    gd_tensor **room = gd_list_new(2 * (n_out + n_in)), **results = gd_list_new(n_in), **x = room;
    if (!room || !results) return fail_list(n_in, GD_E_MEMORY);
    for (int i = 0; i < n_in; i++) x[i] = make_boundary(b->v->x[b->first + i]);
    gd_tensor **y = run_sub(b->sub, x, &replaying, 0);
    if (!y) return fail_list(n_in, gd_failure());
    tensor_list of = {room + n_in, 0}, g = {of.at + n_out, 0}, by = {g.at + n_out, 0};
    for (int k = 0, at = 0; k < n_out; k++) {
        if (!is_float(y[k])) continue;
        push_tensor(&of, y[k]);
        push_tensor(&g, gy.at[at++]);
    }
    for (int i = 0; i < n_in; i++)
        if (b->v->needs[b->first + i] && is_float(x[i])) push_tensor(&by, x[i]);
    gd_status status = compute_gradients(of, g, by, results);
    return status == GD_OK ? (gd_tensors){results, by.count} : fail_list(n_in, status);
}

static gd_tensors differentiate_yes(gd_tensors gy, void *user) {
    backward_body *b = user;
    b->sub = ((const gd_cond_graph_options *)b->v->attrs)->yes;
    return differentiate_branch(gy, b);
}

static gd_tensors differentiate_no(gd_tensors gy, void *user) {
    backward_body *b = user;
    b->sub = ((const gd_cond_graph_options *)b->v->attrs)->no;
    return differentiate_branch(gy, b);
}

static void cond_vjp(gd_vjp *v) {
    backward_body b = {.v = v, .first = 1};
    gd_tensor **gy = gd_list_new(v->n_out);
    int64_t n = 0;
    if (!gy) {
        gd_error_record(GD_E_MEMORY);
        return;
    }
    for (int k = 0; k < v->n_out; k++)
        if (is_float(v->gy[k])) gy[n++] = v->gy[k];
    gd_tensors g = gd_cond(v->x[0], differentiate_yes, differentiate_no, ((gd_tensors){gy, n}), &b);
    for (int i = 1, at = 0; i < v->n_in && at < g.count; i++)
        if (v->needs[i] && is_float(v->x[i])) v->gx[i] = g.at[at++];
}

/* The backward pass of one step. Its inputs are the gradients of the state after the step, the
 * gradients of captured inputs accumulated so far, the state before the step, x_t, and the
 * gradients of y_t. Gradients of captured inputs are accumulated in the order of the tape. */
static gd_tensors differentiate_step(gd_tensors in, void *user) {
    backward_body *b = user;
    const gd_vjp *v = b->v;
    const int n_in = b->sub->n_in, n_out = b->sub->n_out, outer = b->n_state + b->n_xs;
    gd_tensor **room = gd_list_new(4 * (n_in + n_out)), **results = gd_list_new(n_in);
    if (!room || !results) return fail_list(n_in, GD_E_MEMORY);
    gd_tensor **x = room, **rest = room + n_in;
    tensor_list of = {rest, 0}, g = {rest + n_in + n_out, 0}, by = {rest + 2 * (n_in + n_out), 0};
    int64_t at = 0, states = 0, accumulated = 0;
    for (int i = 0; i < b->n_state; i++) states += is_float(v->x[i]);
    for (int i = outer; i < n_in; i++) accumulated += v->needs[i] && is_float(v->x[i]);
    for (int i = 0; i < n_in; i++)
        x[i] = i < outer ? in.at[states + accumulated + i] : make_boundary(v->x[i]);
    gd_tensor **y = run_sub(b->sub, x, &replaying, 0);
    if (!y) return fail_list(n_in, gd_failure());
    for (int k = 0; k < b->n_state; k++)
        if (is_float(y[k])) push_tensor(&of, y[k]), push_tensor(&g, in.at[at++]);
    for (int i = outer; i < n_in; i++) /* captured: its output gradient is what was accumulated */
        if (v->needs[i] && is_float(v->x[i])) push_tensor(&of, x[i]), push_tensor(&g, in.at[at++]);
    at += outer;
    for (int k = b->n_state; k < n_out; k++)
        if (is_float(y[k])) push_tensor(&of, y[k]), push_tensor(&g, in.at[at++]);
    for (int i = 0; i < b->n_state; i++)
        if (is_float(v->x[i])) push_tensor(&by, x[i]);
    for (int i = outer; i < n_in; i++)
        if (v->needs[i] && is_float(v->x[i])) push_tensor(&by, x[i]);
    for (int i = b->n_state; i < outer; i++)
        if (v->needs[i] && is_float(v->x[i])) push_tensor(&by, x[i]);
    gd_status status = compute_gradients(of, g, by, results);
    return status == GD_OK ? (gd_tensors){results, by.count} : fail_list(n_in, status);
}

/* The states before each step, (T, ...) each: results of the node, or of the same scan traced again
 * with .stacked. */
static gd_status get_states_before(const gd_vjp *v, const gd_scan_graph_options *o,
                                   gd_tensor **before) {
    const int n = (int)o->state;
    if (n == 0) return GD_OK;
    if (o->stacked) {
        memcpy(before, v->y + v->n_out - n, (size_t)n * sizeof *before);
        return GD_OK;
    }
    gd_scan_graph_options again = *o;
    gd_subgraph *sub = NULL;
    GD_TRY(retrace_subgraph(o->body, v->x, n, n + (int)o->xs, &replaying, n, &sub));
    again.body = sub;
    again.stacked = true;
    gd_tensors y = gd_dispatch_list(v->op, NULL, v->x, v->n_in, &again);
    gd_subgraph_release(sub);
    if (y.count != v->n_out + n) return gd_failure();
    memcpy(before, y.at + v->n_out, (size_t)n * sizeof *before);
    return GD_OK;
}

static void scan_vjp(gd_vjp *v) {
    const gd_scan_graph_options *o = v->attrs;
    const int n_state = (int)o->state, outer = n_state + (int)o->xs;
    backward_body b = {.v = v, .sub = o->body, .n_state = n_state, .n_xs = (int)o->xs};
    gd_tensor **room = gd_list_new(2 * (v->n_in + v->n_out) + n_state);
    if (!room) {
        gd_error_record(GD_E_MEMORY);
        return;
    }
    tensor_list state = {room, 0}, xs = {room + v->n_in + v->n_out, 0};
    for (int i = 0; i < n_state; i++)
        if (is_float(v->x[i])) push_tensor(&state, v->gy[i]);
    for (int i = outer; i < v->n_in; i++)
        if (v->needs[i] && is_float(v->x[i])) push_tensor(&state, gd_zeros_like(v->x[i]));
    const gd_status status = get_states_before(v, o, xs.at);
    if (status != GD_OK) {
        gd_error_record(status);
        return;
    }
    xs.count = n_state;
    for (int i = n_state; i < outer; i++) push_tensor(&xs, v->x[i]);
    for (int k = n_state; k < v->n_out; k++)
        if (is_float(v->gy[k])) push_tensor(&xs, v->gy[k]);
    gd_scanned g =
        gd_scan(differentiate_step, as_tensors(state), as_tensors(xs), &b, .reverse = !o->reverse);
    if (g.state.count != state.count) return;
    int64_t at = 0, y = 0;
    for (int i = 0; i < n_state; i++)
        if (is_float(v->x[i])) v->gx[i] = g.state.at[at++];
    for (int i = outer; i < v->n_in; i++)
        if (v->needs[i] && is_float(v->x[i])) v->gx[i] = g.state.at[at++];
    for (int i = n_state; i < outer; i++)
        if (v->needs[i] && is_float(v->x[i]) && y < g.ys.count) v->gx[i] = g.ys.at[y++];
}

static void __attribute__((constructor)) set_control_rules(void) {
    gd_control_hooks = (gd_control_rules){cond_vjp, scan_vjp};
}
