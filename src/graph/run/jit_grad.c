/* jit_grad.c - gradients of a jit's calls: adds them to the graph, and runs them. */
#include "autograd/walker.h"
#include "core/alloc.h"
#include "graph/build/subgraph.h"
#include "graph/run/evaluate.h"
#include "graph/run/jit.h"
#include "gradus/ops.h"

static gd_tensor *differentiated_tensor(const gd_jit_trace *t, int i) {
    return i < t->n_in ? t->in[i] : t->leaves[i - t->n_in];
}

/* Adds placeholders for the gradients of the results to the graph. */
static gd_status add_gradient_feeds(gd_jit_trace *t) {
    if (t->gy) return GD_OK;
    gd_tensor **gy = gd_calloc((size_t)t->n_out + 1, sizeof *gy);
    gd_status status = gy ? GD_OK : gd_no_memory(NULL, "for a jit");
    for (int k = 0; k < t->n_out && status == GD_OK; k++) {
        const gd_tensor *y = t->out[k];
        if (!gd_dtype_is_float((gd_dtype)y->dtype)) continue;
        gd_device *device = gd_this_thread.device;
        gd_this_thread.device = y->device;
        gd_tensor *symbol =
            gd_placeholder(gd_shape_of(y->rank, y->dims), .dtype = (gd_dtype)y->dtype);
        gd_this_thread.device = device;
        if (symbol->kind == GD_FAILED) status = gd_failure();
        else gy[k] = gd_retain(symbol);
    }
    if (status == GD_OK) t->gy = gy;
    else gd_release_all(gy, t->n_out);
    return status;
}

/* Adds the gradients of inputs and leaves to the graph. */
static gd_status add_gradients(gd_jit_trace *t, bool create_graph) {
    if (t->gx[create_graph]) return GD_OK;
    const int n_inputs = t->n_in + t->n_leaves;
    gd_tensor **gx = gd_calloc((size_t)n_inputs + 1, sizeof *gx);
    gd_tensor **inputs = gd_calloc((size_t)(n_inputs + 2 * t->n_out) + 1, sizeof *inputs),
              **outputs = inputs + n_inputs, **gy = outputs + t->n_out;
    gd_scope *scope = gd_scope_open();
    gd_block block = gd_graph_begin(t->graph);
    gd_status status = gx && inputs ? add_gradient_feeds(t) : gd_no_memory(NULL, "for a jit");
    int n_float_inputs = 0, n_outputs = 0;
    for (int i = 0; i < n_inputs && status == GD_OK; i++)
        if (gd_dtype_is_float((gd_dtype)differentiated_tensor(t, i)->dtype))
            inputs[n_float_inputs++] = differentiated_tensor(t, i);
    for (int k = 0; k < t->n_out && status == GD_OK; k++)
        if (t->gy[k]) outputs[n_outputs] = t->out[k], gy[n_outputs++] = t->gy[k];
    if (status == GD_OK && n_float_inputs > 0 && n_outputs > 0) {
        gd_walks_stay_inside = true; /* hooks of leaves are called by the walk of the tape */
        gd_tensors g =
            gd_grad(((gd_tensors){outputs, n_outputs}), ((gd_tensors){inputs, n_float_inputs}),
                    .gradients = (gd_tensors){gy, n_outputs}, .allow_unused = true,
                    .create_graph = create_graph);
        gd_walks_stay_inside = false;
        if (gd_failed()) status = gd_failure();
        for (int i = 0, k = 0; i < n_inputs && status == GD_OK; i++)
            if (gd_dtype_is_float((gd_dtype)differentiated_tensor(t, i)->dtype))
                gx[i] = gd_retain(g.at[k++]);
    }
    gd_graph_end(&block);
    gd_scope_close(&scope);
    gd_free(inputs);
    if (status == GD_OK) t->gx[create_graph] = gx;
    else gd_release_all(gx, n_inputs);
    return status;
}

/* Adds the storages that a node reads from outside. Inputs that an op updates, such as the running
 * statistics of gd_batch_norm, do not count: no gradient depends on them. */
static gd_status add_storages_read(const gd_node *node, gd_map *storages) {
    for (int i = 0; i < node->n_in; i++) {
        const gd_op *op = node->op;
        const gd_slot *slot = &node->slots[i];
        if (slot->symbol || !slot->storage || (op && i < op->n_inputs && op->inputs[i].mutated))
            continue;
        if (!gd_map_put(storages, slot->storage, 0)) return gd_no_memory(NULL, "for a jit");
    }
    const gd_subgraph *sub;
    for (int k = 0; (sub = gd_node_subgraph(node, k)); k++)
        for (int n = 0; n < sub->graph->count; n++)
            GD_TRY(add_storages_read(sub->graph->nodes[n], storages));
    return GD_OK;
}

/* Marks the captured tensors that gx depends on. Nodes come after their inputs, so that one pass
 * from the last node suffices. */
static gd_status find_captured_reads(gd_jit_trace *t, gd_tensor *const *gx) {
    const gd_graph *g = t->graph;
    bool *needed = gd_calloc((size_t)g->count + 1, sizeof *needed);
    if (!t->read) t->read = gd_calloc((size_t)g->n_captured + 1, sizeof *t->read);
    if (!needed || !t->read) {
        gd_free(needed);
        return gd_no_memory(NULL, "for a jit");
    }
    for (int i = 0; i < t->n_in + t->n_leaves; i++)
        if (gx[i] && gx[i]->kind == GD_SYMBOL && gx[i]->node->origin)
            needed[gx[i]->node->origin->number] = true;
    gd_map storages = {NULL, 0, 0};
    gd_status status = GD_OK;
    for (int n = g->count; n-- > 0 && status == GD_OK;) {
        const gd_node *node = g->nodes[n];
        if (!needed[n]) continue;
        status = add_storages_read(node, &storages);
        for (int i = 0; i < node->n_in; i++)
            if (node->slots[i].symbol && node->slots[i].node->origin)
                needed[node->slots[i].node->origin->number] = true;
        for (int i = 0; i < node->origin->n_after; i++)
            if (node->origin->after[i]->origin)
                needed[node->origin->after[i]->origin->number] = true;
    }
    for (int k = 0; k < g->n_captured && status == GD_OK; k++)
        t->read[k] |= gd_map_find(&storages, g->captured[k].tensor->storage) >= 0;
    gd_map_free(&storages);
    gd_free(needed);
    return status;
}

/* `begun`: this thread derives the gradients, and must end the work; else they exist already. */
static gd_status begin_deriving(gd_jit_trace *t, bool create_graph, bool *begun) {
    gd_guard_lock(t->guard);
    while (!t->derived[create_graph] && gd_work_waited(&t->deriving, t->guard)) {
    }
    *begun = !t->derived[create_graph] && !t->torn;
    const bool torn = !t->derived[create_graph] && t->torn;
    if (*begun) gd_work_begin(&t->deriving);
    gd_guard_unlock(t->guard);
    if (!torn) return GD_OK;
    return gd_fail(
        GD_E_STATE,
        "the process was forked while another thread derived the gradient of this call; call the "
        "jit again in this child, and call gd_backward on its new results");
}

static gd_status derive_gradients(gd_jit_trace *t, bool create_graph) {
    bool begun;
    GD_TRY(begin_deriving(t, create_graph, &begun));
    if (!begun) return GD_OK;
    gd_status status = add_gradients(t, create_graph);
    if (status == GD_OK) status = find_captured_reads(t, t->gx[create_graph]);
    gd_guard_lock(t->guard);
    t->derived[create_graph] |= status == GD_OK;
    gd_work_end(&t->deriving);
    gd_guard_unlock(t->guard);
    return status;
}

/* The gradient computes the forward part again, so the captured tensors must be unchanged. */
static gd_status check_captured(const gd_jit_trace *t, const int64_t *versions) {
    char shape[128];
    const gd_graph *g = t->graph;
    for (int i = 0; i < g->n_captured; i++) {
        const gd_tensor *x = g->captured[i].tensor;
        if (x->storage != g->captured[i].storage)
            return gd_fail(GD_E_STATE,
                           "a tensor that the function uses has moved to another device or dtype "
                           "since the call; it is %s on %s now",
                           gd_describe(x, shape, sizeof shape), x->device->name);
        if (!t->read[i] || (int64_t)atomic_load(&x->storage->version) == versions[i]) continue;
        const bool by_function = gd_map_find(&g->latest_write, x->storage) >= 0;
        return gd_fail(GD_E_STATE, "a tensor of shape %s that the function uses was overwritten %s",
                       gd_shape_text(x->rank, x->dims, shape, sizeof shape),
                       by_function
                           ? "by the function itself, and its gradient needs what was there before"
                           : "since the call");
    }
    return GD_OK;
}

/* For gradients of gradients: runs the nodes of the graph as eager ops on the tape. */
static gd_status run_on_tape(gd_jit_trace *t, gd_tensor *const *x, gd_tensor *const *gy,
                             gd_tensors wanted, gd_rng rng_offset, gd_tensor **results) {
    const int n = t->n_in + t->n_out;
    gd_tensor **feeds = gd_malloc((2 * (size_t)n + 1) * sizeof *feeds), **values = feeds + n;
    if (!feeds) return gd_no_memory(NULL, "for a jit");
    int fed = 0;
    for (int i = 0; i < t->n_in; i++) feeds[fed] = t->in[i], values[fed++] = x[i];
    for (int k = 0; k < t->n_out; k++)
        if (gy[k]) feeds[fed] = t->gy[k], values[fed++] = gy[k];
    gd_status status = gd_evaluate_on_tape(wanted, (gd_tensors){feeds, fed},
                                           (gd_tensors){values, fed}, rng_offset, results);
    gd_free(feeds);
    if (status == GD_E_UNSUPPORTED)
        gd_error_suffix(
            "; for gradients of gradients, call the function itself instead of its gd_jit");
    return status;
}

static gd_status run_backward(gd_jit_trace *t, gd_context *c) {
    const bool create_graph = gd_grad_enabled();
    GD_TRY(derive_gradients(t, create_graph));
    gd_tensor **const gx = t->gx[create_graph];
    const int n_inputs = t->n_in + t->n_leaves;
    gd_tensor *saved_state = gd_saved(c, 0);
    if (saved_state->kind == GD_FAILED) return gd_failure();
    const int64_t *state = gd_data(saved_state);
    const gd_rng rng_offset = {(uint64_t)state[0], (uint64_t)state[1]};
    GD_TRY(check_captured(t, state + 2));
    gd_tensor **lists = gd_calloc((size_t)(t->n_in + 2 * n_inputs) + 1, sizeof *lists),
              **wanted = lists + t->n_in, **results = wanted + n_inputs;
    if (!lists) return gd_no_memory(NULL, "for a jit");
    gd_status status = GD_OK;
    int n = 0;
    for (int i = 0; i < t->n_in && status == GD_OK; i++)
        if ((lists[i] = gd_saved(c, 1 + i))->kind == GD_FAILED) status = gd_failure();
    for (int i = 0; i < n_inputs; i++)
        if (c->needs[i] && gx[i] && gx[i]->kind == GD_SYMBOL) wanted[n++] = gx[i];
    if (status == GD_OK && n > 0 && create_graph) {
        status = run_on_tape(t, lists, c->gy, (gd_tensors){wanted, n}, rng_offset, results);
    } else if (status == GD_OK && n > 0) {
        status = gd_jit_run(t, lists, c->gy, (gd_tensors){wanted, n}, rng_offset, results);
    }
    for (int i = 0, k = 0; i < n_inputs && status == GD_OK; i++) {
        if (!c->needs[i] || !gx[i]) continue;
        c->gx[i] = gx[i]->kind == GD_SYMBOL ? results[k++] : gx[i];
    }
    gd_free(lists);
    return status;
}

void gd_jit_backward(gd_context *c) {
    const gd_jit_trace *t = c->user;
    const bool tf32 = gd_allow_tf32(t->tf32);
    gd_status status = run_backward(c->user, c);
    gd_allow_tf32(tf32);
    if (status == GD_OK) return;
    gd_error_record(status);
    for (int i = 0; i < c->n_in; i++)
        if (c->needs[i]) c->gx[i] = &gd_error_tensor;
}
