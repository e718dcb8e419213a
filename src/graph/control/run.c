/* run.c - runs branches and loops step by step. */
#include "graph/control/run.h"

#include <string.h>

#include "core/freed.h"
#include "core/alloc.h"
#include "graph/build/trace.h"
#include "gradus/ops.h"

/* --- calls of bodies -------------------------------------------------------------------------- */

void gd_held_release(gd_held *h) {
    for (int i = 0; i < h->count; i++) gd_release(h->at[i]);
    gd_free(h->at);
    *h = (gd_held){NULL, 0};
}

static gd_status alloc_held(gd_held *h, int64_t count) {
    *h = (gd_held){gd_calloc((size_t)count + 1, sizeof *h->at), 0};
    return h->at ? GD_OK : gd_fail(GD_E_MEMORY, "no memory for %lld tensors", (long long)count);
}

gd_status gd_held_init(gd_held *h, gd_tensor *const *tensors, int64_t count) {
    GD_TRY(alloc_held(h, count));
    for (int64_t i = 0; i < count; i++) h->at[h->count++] = gd_retain(tensors[i]);
    return GD_OK;
}

static gd_status call_c_function(const gd_callee *c, gd_tensor *const *in, int n_in, gd_held *out) {
    gd_scope *scope = gd_scope_open();
    gd_tensors y = c->body(gd_list_for(GD_READER_CONTROL, (gd_tensors){in, n_in}), c->user);
    gd_status status = GD_OK;
    if (y.count < 0 || y.count > 1 << 20 || !y.at)
        status = gd_this_thread.recorded != GD_OK
                     ? gd_this_thread.recorded
                     : gd_fail(GD_E_ARGUMENT, "the function returned no list of results");
    if (status == GD_OK) status = gd_check_returned(y, __builtin_frame_address(0));
    for (int64_t i = 0; i < y.count && status == GD_OK; i++)
        if (!y.at[i])
            status = gd_fail(GD_E_ARGUMENT, "result %lld of the function is NULL", (long long)i);
        else if (y.at[i]->kind == GD_FAILED) status = gd_failure();
    if (status == GD_OK) status = gd_held_init(out, y.at, y.count);
    gd_scope_close(&scope);
    return status;
}

static gd_status call_body(const gd_callee *c, gd_tensor *const *in, int n_in, gd_held *out,
                           const gd_running *r) {
    GD_TRY(gd_check_stack());
    if (!c->sub) return call_c_function(c, in, n_in, out);
    const int n_captured = c->sub->n_in - n_in;
    gd_tensor **all = gd_malloc((size_t)c->sub->n_in * sizeof *all + 1);
    gd_status status = all ? alloc_held(out, c->sub->n_out) : gd_no_memory(NULL, "to run a graph");
    if (status == GD_OK) {
        memcpy(all, in, (size_t)n_in * sizeof *all);
        if (n_captured) memcpy(all + n_in, c->captured, (size_t)n_captured * sizeof *all);
        status = gd_subgraph_run(c->sub, all, out->at, r);
    }
    gd_free(all);
    if (status == GD_OK) out->count = c->sub->n_out;
    else gd_free(out->at), out->at = NULL;
    return status;
}

/* Random ops get other numbers in each step, from a hash of the steps of all loops around. */
static gd_running enter_step(const gd_running *r, int64_t step) {
    gd_running inner = *r;
    inner.steps = gd_step_hash(r->steps, step);
    return inner;
}

/* --- checks ----------------------------------------------------------------------------------- */

const char *gd_meta_text(const gd_meta *m, char *text, size_t size) {
    gd_tensor like = {.kind = GD_SYMBOL, .dtype = (uint8_t)m->dtype, .rank = (uint8_t)m->rank};
    memcpy(like.dims, m->dims, sizeof like.dims);
    return gd_describe(&like, text, size);
}

bool gd_metas_alike(const gd_meta *a, const gd_meta *b) {
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dims[d] != b->dims[d] && a->dims[d] != GD_UNKNOWN && b->dims[d] != GD_UNKNOWN)
            return false;
    return true;
}

gd_status gd_check_state(const gd_meta *before, const gd_meta *after, int k) {
    char a[160], b[160];
    if (gd_metas_alike(before, after)) return GD_OK;
    return gd_fail(
        before->dtype != after->dtype ? GD_E_DTYPE : GD_E_SHAPE,
        "state %d is %s, and the body returns %s; a loop's state keeps its shape and dtype", k,
        gd_meta_text(before, a, sizeof a), gd_meta_text(after, b, sizeof b));
}

static gd_status check_next_state(const gd_held *state, const gd_held *next, int n_state) {
    if (next->count < n_state)
        return gd_fail(GD_E_ARGUMENT, "the body returns %d tensors for a state of %d", next->count,
                       n_state);
    for (int k = 0; k < n_state; k++) {
        gd_meta before = gd_meta_of(state->at[k]), after = gd_meta_of(next->at[k]);
        GD_TRY(gd_check_state(&before, &after, k));
    }
    return GD_OK;
}

gd_status gd_check_condition(const gd_meta *m, const char *what) {
    char text[160];
    int64_t n = 1;
    for (int d = 0; d < m->rank; d++) n *= m->dims[d] == GD_UNKNOWN ? 1 : m->dims[d];
    if (n == 1) return GD_OK;
    return gd_fail(GD_E_SHAPE, "the %s must be one element, not %s", what,
                   gd_meta_text(m, text, sizeof text));
}

static gd_status read_condition(gd_tensor *t, const char *what, bool *holds) {
    gd_meta m = gd_meta_of(t);
    if (t->kind != GD_VALUE)
        return gd_fail(
            GD_E_STATE,
            "the %s is a symbol and has no value yet; build the graph inside of GD_GRAPH", what);
    GD_TRY(gd_check_condition(&m, what));
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    *holds = gd_item(t) != 0; /* NaN is true, as in C */
    return gd_attempt_end(&attempt, GD_OK);
}

/* --- the loops -------------------------------------------------------------------------------- */

gd_status gd_run_cond(gd_tensor *predicate, const gd_callee *yes, const gd_callee *no,
                      gd_tensor *const *in, int n_in, gd_held *out, const gd_running *r) {
    bool holds;
    GD_TRY(read_condition(predicate, "predicate", &holds));
    return call_body(holds ? yes : no, in, n_in, out, r);
}

static gd_status eval_condition(const gd_callee *condition, const gd_held *state,
                                const gd_running *r, bool *holds) {
    gd_held answer = {NULL, 0};
    GD_TRY(call_body(condition, state->at, state->count, &answer, r));
    gd_status status =
        answer.count == 1
            ? read_condition(answer.at[0], "condition", holds)
            : gd_fail(GD_E_ARGUMENT, "the condition returns %d tensors, not 1", answer.count);
    gd_held_release(&answer);
    return status;
}

gd_status gd_run_while(const gd_callee *condition, const gd_callee *body, gd_held *state,
                       int64_t max_steps, const gd_running *r) {
    for (int64_t step = 0; step < max_steps; step++) {
        const gd_running inner = enter_step(r, step);
        bool more;
        GD_TRY(eval_condition(condition, state, &inner, &more));
        if (!more) break;
        gd_held next = {NULL, 0};
        gd_status status = call_body(body, state->at, state->count, &next, &inner);
        if (status == GD_OK) status = check_next_state(state, &next, state->count);
        if (status == GD_OK && next.count != state->count)
            status = gd_fail(GD_E_ARGUMENT, "the body returns %d tensors for a state of %d",
                             next.count, state->count);
        gd_held_release(status == GD_OK ? state : &next);
        if (status != GD_OK) {
            gd_error_suffix("; in step %lld", (long long)step);
            return status;
        }
        *state = next;
    }
    return GD_OK;
}

/* Splits x (T, ...) into its T positions. If a gradient may be needed it uses one gd_split, whose
 * gradient joins the pieces; the gradient of a gd_select would have the size of x in each step. */
static gd_status split_positions(gd_tensor *x, int64_t steps, gd_tensor **pieces, int stride) {
    const bool at_once = x->kind == GD_SYMBOL || (x->requires_grad && gd_grad_enabled());
    gd_tensors parts = {NULL, 0};
    if (at_once) {
        parts = gd_split(x, gd_dims(1));
        if (parts.count != steps) return gd_failure();
    }
    const gd_shape shape = gd_shape_of(x->rank - 1, x->dims + 1);
    for (int64_t t = 0; t < steps; t++) {
        gd_tensor *piece = at_once ? gd_reshape(parts.at[t], shape) : gd_select(x, 0, t);
        if (piece->kind == GD_FAILED) return gd_failure();
        pieces[t * stride] = piece;
    }
    return GD_OK;
}

/* The results of a scan of no steps: empty tensors with the shapes that a step would return. The
 * body is traced to find them. */
static gd_status make_empty_results(const gd_callee *body, const gd_held *state, gd_tensors xs,
                                    gd_held *out, const gd_running *r) {
    gd_thread *thread = &gd_this_thread;
    const int n_in = state->count + (int)xs.count;
    gd_tensor **in = gd_list_new(n_in);
    if (!in) return GD_E_MEMORY;
    void *tracer = thread->tracer;
    thread->tracer = &gd_no_graph;
    gd_status status = GD_OK;
    gd_held shapes = {NULL, 0};
    for (int i = 0; i < n_in && status == GD_OK; i++) {
        const gd_tensor *t = i < state->count ? state->at[i] : xs.at[i - state->count];
        const int skip = i < state->count ? 0 : 1;
        in[i] =
            gd_symbol(gd_shape_of(t->rank - skip, t->dims + skip), (gd_dtype)t->dtype, t->device);
        if (in[i]->kind == GD_FAILED) status = gd_failure();
    }
    if (status == GD_OK) status = call_body(body, in, n_in, &shapes, r);
    thread->tracer = tracer;
    if (status == GD_OK) status = check_next_state(state, &shapes, state->count);
    if (status == GD_OK) status = alloc_held(out, shapes.count);
    for (int k = 0; k < shapes.count && status == GD_OK; k++) {
        gd_tensor *y = k < state->count ? state->at[k] : NULL;
        if (!y) {
            const gd_tensor *like = shapes.at[k];
            gd_shape dims = {.rank = like->rank + 1, .form = 1};
            for (int d = 0; d < like->rank; d++)
                dims.at[d + 1] = like->dims[d] == GD_UNKNOWN ? 0 : like->dims[d];
            y = like->rank < GD_MAX_RANK
                    ? gd_zeros(dims, .dtype = (gd_dtype)like->dtype)
                    : gd_tensor_fail(gd_fail(GD_E_SHAPE, "result %d has too many dimensions", k));
        }
        if (y->kind == GD_FAILED) status = gd_failure();
        else out->at[out->count++] = gd_retain(y);
    }
    gd_held_release(&shapes);
    if (status != GD_OK) gd_held_release(out);
    return status;
}

/* Results of a scan: the final state, and the y_t of all steps (`ys`, T of each result) stacked. */
static gd_status stack_results(const gd_held *state, gd_tensor *const *ys, int64_t steps, int n_ys,
                               gd_held *out) {
    GD_TRY(alloc_held(out, state->count + n_ys));
    for (int k = 0; k < state->count; k++) out->at[out->count++] = gd_retain(state->at[k]);
    for (int k = 0; k < n_ys; k++) {
        gd_tensor *y = gd_stack(((gd_tensors){ys + k * steps, steps}));
        if (y->kind == GD_FAILED) {
            gd_held_release(out);
            return gd_failure();
        }
        out->at[out->count++] = gd_retain(y);
    }
    return GD_OK;
}

/* Checks that result k has the same shape in step t as in the first step. */
static gd_status check_same_shape(gd_tensor *const *y, int64_t first, int64_t t, int k) {
    char a[160], b[160];
    gd_meta x = gd_meta_of(y[first]), z = gd_meta_of(y[t]);
    if (gd_metas_alike(&x, &z)) return GD_OK;
    return gd_fail(GD_E_SHAPE,
                   "result %d is %s in the first step and %s in this one; they must have the same "
                   "shape and dtype",
                   k, gd_meta_text(&x, a, sizeof a), gd_meta_text(&z, b, sizeof b));
}

gd_status gd_run_scan(const gd_callee *body, gd_held *state, gd_tensors xs, bool reverse,
                      gd_held *out, const gd_running *r) {
    const int n_state = state->count, n_xs = (int)xs.count;
    const int64_t steps = xs.at[0]->dims[0];
    if (steps == 0) return make_empty_results(body, state, xs, out, r);
    gd_tensor **pieces =
                  gd_calloc((size_t)(steps * n_xs) + (size_t)(n_state + n_xs) + 1, sizeof *pieces),
              **ys = NULL;
    if (!pieces) return gd_fail(GD_E_MEMORY, "no memory for %lld steps", (long long)steps);
    gd_tensor **in = pieces + steps * n_xs; /* the inputs of one step */
    gd_status status = GD_OK;
    int n_ys = 0;
    for (int k = 0; k < n_xs && status == GD_OK; k++)
        status = split_positions(xs.at[k], steps, pieces + k, n_xs);
    const int64_t first = reverse ? steps - 1 : 0;
    for (int64_t i = 0; i < steps && status == GD_OK; i++) {
        const int64_t t = reverse ? steps - 1 - i : i;
        const gd_running inner = enter_step(r, i);
        gd_held next = {NULL, 0};
        memcpy(in, state->at, (size_t)n_state * sizeof *in);
        memcpy(in + n_state, pieces + t * n_xs, (size_t)n_xs * sizeof *in);
        status = call_body(body, in, n_state + n_xs, &next, &inner);
        if (status == GD_OK) status = check_next_state(state, &next, n_state);
        if (status == GD_OK && i == 0) {
            n_ys = next.count - n_state;
            ys = gd_calloc((size_t)(steps * n_ys) + 1, sizeof *ys);
            if (!ys) status = gd_fail(GD_E_MEMORY, "no memory for %lld steps", (long long)steps);
        }
        if (status == GD_OK && next.count - n_state != n_ys)
            status =
                gd_fail(GD_E_ARGUMENT, "the body returns %d tensors in this step, and %d before",
                        next.count, n_state + n_ys);
        for (int k = 0; k < n_ys && status == GD_OK; k++) {
            ys[k * steps + t] = next.at[n_state + k];
            status = check_same_shape(ys + k * steps, first, t, k);
            if (status == GD_OK) next.at[n_state + k] = NULL; /* moved */
            else ys[k * steps + t] = NULL;
        }
        if (status == GD_OK)
            for (int k = 0; k < n_state; k++) { /* replace the state */
                gd_release(state->at[k]);
                state->at[k] = next.at[k];
                next.at[k] = NULL;
            }
        gd_held_release(&next);
        if (status != GD_OK) gd_error_suffix("; in step %lld", (long long)t);
    }
    if (status == GD_OK) status = stack_results(state, ys, steps, n_ys, out);
    for (int64_t i = 0; ys && i < steps * n_ys; i++) gd_release(ys[i]);
    gd_free(ys);
    gd_free(pieces);
    return status;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static gd_status run_control_node(const gd_node *node, gd_tensor *const *in, gd_held *out,
                                  const gd_running *r) {
    if (node->op->facts.control == GD_CONTROL_BRANCH) {
        const gd_cond_graph_options *o = node->attrs;
        const int n = o->yes->n_given;
        const gd_callee yes = {.sub = o->yes, .captured = in + 1 + n},
                        no = {.sub = o->no, .captured = in + 1 + n};
        return gd_run_cond(in[0], &yes, &no, in + 1, n, out, r);
    }
    if (node->op->facts.control == GD_CONTROL_WHILE) {
        const gd_while_graph_options *o = node->attrs;
        const gd_callee condition = {.sub = o->condition, .captured = in + o->state},
                        body = {.sub = o->body, .captured = in + o->state};
        GD_TRY(gd_held_init(out, in, o->state));
        return gd_run_while(&condition, &body, out,
                            o->max_steps == GD_UNSET ? INT64_MAX : o->max_steps, r);
    }
    const gd_scan_graph_options *o = node->attrs;
    const gd_callee body = {.sub = o->body, .captured = in + o->state + o->xs};
    gd_held state = {NULL, 0};
    for (int64_t k = 1; k < o->xs; k++)
        if (in[o->state + k]->dims[0] != in[o->state]->dims[0])
            return gd_fail(GD_E_SHAPE, "input %lld has %lld positions, the first one %lld",
                           (long long)k, (long long)in[o->state + k]->dims[0],
                           (long long)in[o->state]->dims[0]);
    GD_TRY(gd_held_init(&state, in, o->state));
    gd_status status =
        gd_run_scan(&body, &state, (gd_tensors){in + o->state, o->xs}, o->reverse, out, r);
    gd_held_release(&state);
    return status;
}

int64_t gd_short_scan = 1000;

/* Whether a node stays one node in a replay. Short scans are unrolled: passes can then transform
 * their steps with all others, and the gradient recomputes nothing. */
static bool stays_one_node(const gd_node *node, gd_tensor *const *in, const gd_running *r) {
    if (node->op->flags & GD_OP_DYNAMIC)
        return true; /* a branch or a while loop: the condition has no value yet */
    const gd_scan_graph_options *o = node->attrs;
    const int64_t steps = in[o->state]->dims[0];
    return r->keep && steps > 0 && steps * o->body->n_needed > gd_short_scan;
}

gd_status gd_control_run(const gd_node *node, gd_tensor *const *in, gd_tensor **out,
                         const gd_running *r) {
    gd_held results = {NULL, 0};
    if (gd_this_thread.tracer && stays_one_node(node, in, r))
        return gd_control_trace(node, in, out, r);
    /* a failure inside is recorded later, with the place of this node */
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = run_control_node(node, in, &results, r);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (status == GD_OK && results.count != node->n_out)
        status =
            gd_fail(GD_E_STATE, "the body returned %d results, not %d", results.count, node->n_out);
    if (status == GD_OK) status = gd_scope_reserve((size_t)results.count);
    for (int k = 0; k < results.count && status == GD_OK; k++) {
        out[k] = gd_retain(results.at[k]);
        gd_scope_adopt(&out[k]->object);
    }
    gd_held_release(&results);
    if (status != GD_OK)
        gd_error_suffix("; in %s%s%s", node->op->name, node->site ? " at " : "",
                        node->site ? node->site : "");
    return status;
}
