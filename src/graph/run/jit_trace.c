/* jit_trace.c - traces a jit's function to a graph, and tells for which calls the trace is
 * valid. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "graph/build/trace_grad.h"
#include "graph/run/jit.h"
#include "graph/run/session.h"
#include "gradus/ops.h"

/* --- the object ------------------------------------------------------------------------------- */

static void trace_in_child(gd_forked *forked) {
    gd_jit_trace *t = (gd_jit_trace *)((char *)forked - offsetof(gd_jit_trace, forked));
    t->torn |= gd_work_in_child(&t->deriving);
}

void gd_release_all(gd_tensor **list, int count) {
    for (int i = 0; list && i < count; i++) gd_release(list[i]);
    gd_free(list);
}

void gd_jit_trace_release(void *arg) {
    gd_jit_trace *t = arg;
    if (!t || atomic_fetch_sub(&t->refs, 1) != 1) return;
    if (t->torn) return; /* its graph may be incomplete: leak it */
    gd_forked_remove(&t->forked);
    gd_release_all(t->in, t->n_in);
    gd_release_all(t->written, t->n_in);
    gd_release_all(t->out, t->n_out);
    gd_release_all(t->gy, t->n_out);
    for (int twice = 0; twice < 2; twice++) gd_release_all(t->gx[twice], t->n_in + t->n_leaves);
    gd_release_all(t->leaves, t->n_leaves);
    gd_free(t->read);
    gd_release(t->effects);
    gd_release(t->session);
    gd_release(t->graph);
    gd_free(t);
}

/* --- tracing ---------------------------------------------------------------------------------- */

/* Finds the captured tensors that require a gradient. */
static gd_status find_leaves(gd_jit_trace *t) {
    const gd_graph *g = t->graph;
    t->leaves = gd_calloc((size_t)g->n_captured + 1, sizeof *t->leaves);
    if (!t->leaves) return gd_no_memory(NULL, "for a jit");
    for (int i = 0; i < g->n_captured; i++)
        if (g->captured[i].requires_grad)
            t->leaves[t->n_leaves++] = gd_retain(g->captured[i].tensor);
    return GD_OK;
}

/* Adds an assign for the last write to each captured tensor, and one symbol that groups them. */
static gd_status add_effects(gd_jit_trace *t) {
    gd_graph *g = t->graph;
    if (g->n_written == 0) return GD_OK;
    gd_tensor **done = gd_calloc((size_t)g->n_written + 1, sizeof *done);
    if (!done) return gd_no_memory(NULL, "for a jit");
    g->traces_writes = false; /* gd_assign now gets the captured tensor itself */
    int n = 0;
    for (int i = 0; i < g->n_written; i++) {
        const gd_written *w = &g->written[i];
        if (gd_graph_find_write(g, w->tensor) != w) continue;
        done[n++] = w->node ? w->symbol : gd_assign(w->tensor, w->symbol);
    }
    gd_tensor *all = gd_group(((gd_tensors){done, n}));
    gd_free(done);
    if (all->kind == GD_FAILED) return gd_failure();
    t->effects = gd_retain(all);
    return GD_OK;
}

/* Adds a placeholder for each input. The function gets handles of its own (`given`), which mean the
 * new value after the function has written them in place. */
static gd_status make_inputs(gd_jit_trace *t, gd_tensors inputs, gd_tensor **given) {
    for (int64_t i = 0; i < inputs.count; i++) {
        const gd_tensor *x = inputs.at[i];
        gd_device *device = gd_this_thread.device;
        char name[24];
        snprintf(name, sizeof name, "input%d", (int)i);
        gd_this_thread.device = x->device;
        gd_tensor *symbol = gd_placeholder(gd_shape_of(x->rank, x->dims),
                                           .dtype = (gd_dtype)x->dtype, .name = name);
        gd_this_thread.device = device;
        if (symbol->kind == GD_FAILED) return gd_failure();
        t->in[t->n_in++] = gd_retain(symbol);
        given[i] = gd_node_symbol(symbol->node, 0);
        if (!given[i]) return GD_E_MEMORY;
    }
    return GD_OK;
}

static gd_status record_results(gd_jit_trace *t, gd_tensors y) {
    if (y.count < 0 || (y.count > 0 && !y.at))
        return gd_fail(GD_E_STATE, "the function returned a list of %lld results at NULL",
                       (long long)y.count);
    t->out = gd_calloc((size_t)y.count + 1, sizeof *t->out);
    if (!t->out) return gd_no_memory(NULL, "for a jit");
    for (int64_t k = 0; k < y.count; k++) {
        if (!y.at[k])
            return gd_fail(GD_E_STATE, "result %lld of the function is NULL", (long long)k);
        gd_tensor *symbol;
        GD_TRY(gd_graph_read(t->graph, y.at[k], &symbol));
        if (symbol->kind == GD_VALUE)
            symbol = gd_clone(symbol); /* a captured tensor: trace a copy */
        if (symbol->kind != GD_SYMBOL) return gd_failure();
        t->out[t->n_out++] = gd_retain(symbol);
    }
    return GD_OK;
}

/* Records the new values of inputs that the function has written in place. */
static void record_written_inputs(gd_jit_trace *t, gd_tensor *const *given) {
    for (int i = 0; i < t->n_in; i++) {
        if (given[i]->node == t->in[i]->node) continue;
        t->written[i] = gd_retain(given[i]);
        t->n_written++;
    }
}

static gd_status trace_function(gd_jit *jit, gd_jit_trace *t, gd_tensors inputs) {
    GD_GRAPH(t->graph);
    int grad = gd_enable_grad_begin();
    gd_rng counter = {0, 0}, *before = gd_this_thread.replay_rng;
    gd_this_thread.replay_rng = &counter; /* the trace does not advance the generator */
    gd_tensor **given = gd_list_new(gd_with_missing(inputs.count));
    gd_status status = given ? make_inputs(t, inputs, given) : GD_E_MEMORY;
    gd_keep_freed_begin();
    if (status == GD_OK) {
        gd_put_missing(given, t->n_in, GD_READER_JIT);
        gd_tensors y = jit->fn((gd_tensors){given, t->n_in}, jit->user);
        status = gd_failed() ? gd_failure() : gd_check_returned(y, __builtin_frame_address(0));
        if (status == GD_OK) status = record_results(t, y);
    }
    gd_keep_freed_end();
    if (status == GD_OK) record_written_inputs(t, given);
    if (status == GD_OK) status = add_effects(t);
    status = gd_frozen_leaves_end(t->graph, status);
    if (status == GD_OK) status = gd_traced_values_check(t->graph);
    gd_this_thread.replay_rng = before;
    t->n_random_calls = counter.call;
    gd_grad_mode_end(&grad);
    return status;
}

/* A call runs on the device of its tensors. Scalars on the CPU decide only if there is no other. */
static gd_device *find_device(const gd_jit_trace *t, gd_tensors inputs) {
    for (int64_t i = 0; i < inputs.count; i++)
        if (inputs.at[i]->rank > 0 || inputs.at[i]->device != gd_cpu()) return inputs.at[i]->device;
    for (int i = 0; i < t->graph->n_captured; i++) {
        const gd_tensor *x = t->graph->captured[i].tensor;
        if (x->rank > 0 || x->device != gd_cpu()) return x->device;
    }
    return inputs.count > 0 ? inputs.at[0]->device : gd_default_device();
}

gd_status gd_jit_trace_make(gd_jit *jit, gd_tensors inputs, gd_jit_trace **made) {
    gd_jit_trace *t = gd_calloc(1, sizeof *t);
    *made = NULL;
    if (!t) return gd_no_memory(NULL, "for a jit");
    atomic_init(&t->refs, 1);
    t->caller = jit->caller;
    t->autocast = gd_this_thread.autocast;
    t->tf32 = gd_this_thread.tf32;
    t->guard = gd_guard_new();
    gd_work_init(&t->deriving);
    t->forked = (gd_forked){.in_child = trace_in_child};
    gd_forked_add(&t->forked);
    t->in = gd_calloc((size_t)inputs.count + 1, sizeof *t->in);
    t->written = gd_calloc((size_t)inputs.count + 1, sizeof *t->written);
    gd_scope *scope = gd_scope_open();
    gd_device *device = inputs.count > 0 ? inputs.at[0]->device : gd_default_device();
    t->graph = t->in && t->written ? gd_retain(gd_graph_new()) : NULL;
    t->session = t->graph
                     ? gd_retain(gd_session_new(t->graph, .device = device, .level = jit->level))
                     : NULL;
    gd_status status = t->session ? GD_OK : gd_no_memory(NULL, "for a jit");
    if (status == GD_OK) {
        t->graph->jit = t->graph->traces_writes = true;
        status = trace_function(jit, t, inputs);
        t->graph->traces_writes = false;
    }
    if (status == GD_OK) status = find_leaves(t);
    if (status == GD_OK) gd_session_set_device(t->session, find_device(t, inputs));
    gd_scope_close(&scope);
    if (status != GD_OK) {
        gd_jit_trace_release(t);
        return status;
    }
    t->function = (gd_function){
        .name = "jit", .n_out = t->n_out, .forward = gd_jit_forward, .backward = gd_jit_backward};
    t->number = atomic_fetch_add(&jit->traces, 1);
    *made = t;
    return GD_OK;
}

bool gd_jit_trace_is_stale(const gd_jit_trace *t) {
    for (int i = 0; i < t->graph->n_captured; i++)
        if (t->graph->captured[i].tensor->storage != t->graph->captured[i].storage) return true;
    return false;
}

bool gd_jit_trace_fits(const gd_jit_trace *t, gd_tensors inputs, int64_t key) {
    if (t->key != key || t->autocast != gd_this_thread.autocast || t->tf32 != gd_this_thread.tf32 ||
        t->n_in != inputs.count)
        return false;
    for (int i = 0; i < t->graph->n_captured; i++) /* parameters may have been frozen or unfrozen */
        if (t->graph->captured[i].requires_grad != t->graph->captured[i].tensor->requires_grad)
            return false;
    if (!gd_traced_values_fit(t->graph) || !gd_leaf_grads_fit(t->graph)) return false;
    for (int i = 0; i < t->n_in; i++) {
        const gd_tensor *a = t->in[i], *b = inputs.at[i];
        if (a->dtype != b->dtype || a->device != b->device || a->rank != b->rank ||
            memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) != 0)
            return false;
    }
    return true;
}

/* --- why it is not valid ------------------------------------------------------------------------ */

static bool same_input(const gd_tensor *a, const gd_tensor *b) {
    return a->dtype == b->dtype && a->device == b->device && a->rank == b->rank &&
           memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) == 0;
}

/* The first input that differs. */
static bool describe_input(const gd_jit_trace *t, gd_tensors inputs, char *text, size_t size) {
    char a[160], b[160];
    if (t->n_in != inputs.count) {
        snprintf(text, size, "%lld inputs instead of %d", (long long)inputs.count, t->n_in);
        return true;
    }
    for (int i = 0; i < t->n_in; i++) {
        const gd_tensor *x = inputs.at[i];
        if (same_input(t->in[i], x)) continue;
        if (t->in[i]->device != x->device)
            snprintf(text, size, "input %d is on %s, it was on %s", i, x->device->name,
                     t->in[i]->device->name);
        else
            snprintf(text, size, "input %d is %s, it was %s", i, gd_describe(x, a, sizeof a),
                     gd_describe(t->in[i], b, sizeof b));
        return true;
    }
    return false;
}

static const char *setting(int autocast) {
    return autocast ? gd_dtype_name((gd_dtype)autocast) : "off";
}

int gd_jit_trace_difference(const gd_jit_trace *t, gd_tensors inputs, int64_t key, char *text,
                            size_t size) {
    const gd_graph *g = t->graph;
    char shape[160];
    *text = 0;
    if (t->key != key || describe_input(t, inputs, text, size)) {
        if (t->key != key) snprintf(text, size, "the key is another one");
        return 0;
    }
    const gd_traced_value *changed = gd_traced_values_changed(g);
    const gd_tensor *frozen = NULL;
    for (int i = 0; i < g->n_captured && !frozen; i++)
        if (g->captured[i].requires_grad != g->captured[i].tensor->requires_grad)
            frozen = g->captured[i].tensor;
    if (t->autocast != gd_this_thread.autocast)
        snprintf(text, size, "autocast is %s, it was %s", setting(gd_this_thread.autocast),
                 setting(t->autocast));
    else if (t->tf32 != gd_this_thread.tf32)
        snprintf(text, size, "gd_allow_tf32 is %s now", t->tf32 ? "off" : "on");
    else if (frozen)
        snprintf(text, size, "a captured tensor, %s, %s", gd_describe(frozen, shape, sizeof shape),
                 frozen->requires_grad ? "requires a gradient now"
                                       : "requires no gradient any more");
    else if (changed && changed->is_mode)
        snprintf(text, size, "a %s is in %s mode", changed->owner->class->name,
                 *changed->where ? "training" : "evaluation");
    else if (changed)
        snprintf(text, size, "a %s of the function has changed", changed->owner->class->name);
    else if (!gd_leaf_grads_fit(g))
        snprintf(text, size, "gradients from before the call are there, or are not there any more");
    return 1;
}
