/* trace.c - see trace.h. */
#include "graph/trace.h"

#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"
#include "core/alloc.h"
#include "gradus/autograd.h"

/* --- building ---------------------------------------------------------------------------------- */

static gd_status make_symbol(gd_node *node, int index, gd_device *device, const gd_meta *m, gd_tensor **out) {
    gd_tensor *y = gd_tensor_bare(GD_SYMBOL, device, m->dtype, m->rank, m->dims);
    if (!y) return GD_E_MEMORY;
    gd_slot *slot = &node->slots[node->n_in + index];
    gd_slot_set(slot, y, false);
    slot->index = index;
    gd_node_attach(node, y, index);
    y->requires_grad = slot->requires_grad = gd_dtype_is_float(m->dtype);
    *out = y;
    return GD_OK;
}

/* What an op writes must be able to keep it: a variable, or a tensor outside the graph. */
static gd_status check_written(const gd_invocation *call) {
    const gd_op *op = call->op;
    if (op->base) return GD_OK; /* in place: the symbol's handle will mean the new value */
    for (int i = 0; i < op->n_inputs && i < call->n_in; i++) {
        const gd_tensor *t = call->in[i];
        if (!op->inputs[i].mutated || !t || t->kind != GD_SYMBOL) continue;
        if (!t->node->origin || t->node->origin->kind != GD_FROM_VARIABLE)
            return gd_fail(GD_E_ARGUMENT, "'%s' is written and must be a variable", op->inputs[i].name);
    }
    return GD_OK;
}

/* In a jit's graph: what the op has written to tensors outside. */
static gd_status note_writes(gd_graph *graph, const gd_invocation *call) {
    const gd_op *op = call->op;
    for (int i = 0; i < op->n_inputs && i < call->n_in && !op->base; i++) {
        gd_tensor *x = call->in[i];
        if (!op->inputs[i].mutated || !x || x->kind != GD_VALUE || call->n_out == 0) continue;
        gd_written w = {.tensor = x, .symbol = call->out[0], .by_node = true, .opaque = true};
        for (int k = 0; k < op->n_outputs && k < call->n_out; k++)
            if (strcmp(op->outputs[k].name, op->inputs[i].name) == 0) w.symbol = call->out[k], w.opaque = false;
        GD_TRY(gd_graph_note_write(graph, w));
    }
    return GD_OK;
}

static gd_status trace(gd_invocation *call, const gd_meta *metas) {
    const gd_op *op = call->op->base ? call->op->base : call->op;
    gd_graph *writing = gd_graph_building();
    if (writing && !writing->traces_writes) writing = NULL;
    GD_TRY(check_written(call));
    gd_node *node = gd_node_new(op, call->attrs, call->n_in, call->n_out, 0);
    if (!node) return GD_E_MEMORY;
    node->graph = true;
    node->site = call->site;
    node->rng = call->rng;
    gd_device *device = gd_default_device();
    for (int i = 0; i < call->n_in; i++) {
        gd_slot_set(&node->slots[i], gd_graph_latest(writing, call->in[i]), true); /* a value is captured, not copied */
        if (call->in[i]) device = call->in[i]->device;
    }
    gd_status status = GD_OK;
    for (int i = 0; i < call->n_out && status == GD_OK; i++)
        status = make_symbol(node, i, metas[i].device ? metas[i].device : device, &metas[i], &call->out[i]);
    if (status == GD_OK && call->op->base) { /* in place: the handle now means the new value */
        gd_tensor *x = call->in[0], *y = call->out[0];
        if (x->kind == GD_VALUE && writing) status = gd_graph_note_write(writing, (gd_written){.tensor = x, .symbol = y});
        else if (x->kind != GD_SYMBOL)
            status = gd_fail(GD_E_UNSUPPORTED, "'%s' is a value outside the graph and cannot be written in it",
                             call->op->inputs[0].name);
        else {
            gd_node_attach(y->node, x, y->node_index);
            if (gd_this_thread.depth == 0) gd_release(y);
            call->out[0] = x;
        }
    }
    if (status == GD_OK && writing) status = note_writes(writing, call);
    if (status == GD_OK) status = gd_graph_add(gd_graph_of(call->in, call->n_in), node, GD_FROM_OP, NULL);
    gd_node_release(node);
    return status;
}

static void __attribute__((constructor)) register_tracer(void) { gd_record_hooks.trace = trace; }

gd_tensor *gd_symbol(gd_shape shape, gd_dtype dtype, gd_device *device) {
    size_t bytes;
    gd_status status = gd_shape_bytes(shape, dtype, &bytes);
    if (status != GD_OK) return gd_tensor_fail(status);
    gd_node *node = gd_node_new(NULL, NULL, 0, 1, 0);
    if (!node) return gd_tensor_fail(GD_E_MEMORY);
    node->graph = true;
    gd_meta m = {.dtype = dtype, .rank = shape.rank};
    memcpy(m.dims, shape.at, sizeof m.dims);
    gd_tensor *y;
    status = make_symbol(node, 0, device ? device : gd_default_device(), &m, &y);
    gd_node_release(node);
    return status == GD_OK ? y : gd_tensor_fail(status);
}

void gd_trace_begin(void) { gd_this_thread.tracer = &gd_no_graph; }
void gd_trace_end(void) { gd_this_thread.tracer = NULL; }

/* --- running ----------------------------------------------------------------------------------- */

typedef struct {
    gd_node *node;
    gd_tensor **values; /* of its outputs; NULL before it has run */
} entry;

typedef struct {
    entry *entries;
    int count, capacity;
} run;

static entry *find(run *r, const gd_node *node) {
    for (int i = 0; i < r->count; i++)
        if (r->entries[i].node == node) return &r->entries[i];
    return NULL;
}

static gd_status add(run *r, gd_node *node) {
    if (find(r, node)) return GD_OK;
    if (r->count == r->capacity) {
        int capacity = r->capacity ? 2 * r->capacity : 32;
        entry *grown = gd_realloc(r->entries, (size_t)capacity * sizeof *grown);
        if (!grown) return gd_fail(GD_E_MEMORY, "no memory to run a graph");
        r->entries = grown;
        r->capacity = capacity;
    }
    gd_tensor **values = gd_list_new(node->n_out);
    if (!values) return GD_E_MEMORY;
    r->entries[r->count++] = (entry){node, values};
    return GD_OK;
}

static int by_order(const void *a, const void *b) {
    uint64_t x = ((const entry *)a)->node->order, y = ((const entry *)b)->node->order;
    return x < y ? -1 : x > y;
}

static gd_status run_node(run *r, entry *e) {
    gd_node *node = e->node;
    if (e->values[0]) return GD_OK; /* fed */
    if (!node->op) return gd_fail(GD_E_ARGUMENT, "a symbol that the fetches need was not fed");
    gd_tensor **in = gd_calloc((size_t)node->n_in + 1, sizeof *in);
    if (!in) return gd_fail(GD_E_MEMORY, "no memory to run a graph");
    gd_status status = GD_OK;
    for (int i = 0; i < node->n_in && status == GD_OK; i++) {
        gd_slot *slot = &node->slots[i];
        if (!slot->present) continue;
        if (slot->symbol) in[i] = find(r, slot->node)->values[slot->index];
        else if (!(in[i] = gd_slot_get(slot, NULL, node->op->name))) status = gd_this_thread.noted;
    }
    if (status == GD_OK)
        status = gd_dispatch_again(node->op, node->site, in, node->n_in, node->attrs, node->rng, e->values, node->n_out);
    gd_free(in);
    return status;
}

/* A deferred gradient finds its way back over the tape: then everything is put on it. */
static bool needs_tape(const run *r) {
    for (int i = 0; i < r->count; i++)
        if (r->entries[i].node->op && (r->entries[i].node->op->flags & GD_OP_WHOLE)) return true;
    return false;
}

static gd_tensor *on_tape(gd_tensor *value) {
    return gd_dtype_is_float((gd_dtype)value->dtype) ? gd_requires_grad(gd_detach(value)) : value;
}

static gd_status evaluate(run *r, gd_tensors fetches, gd_tensors feeds, gd_tensors values) {
    for (int64_t i = 0; i < fetches.count; i++) {
        if (!gd_tensor_is_symbol(fetches.at[i])) return gd_fail(GD_E_ARGUMENT, "fetch %lld is no symbol", (long long)i);
        GD_TRY(add(r, fetches.at[i]->node));
    }
    for (int at = 0; at < r->count; at++) /* grows while we go */
        for (int i = 0; i < r->entries[at].node->n_in; i++)
            if (r->entries[at].node->slots[i].symbol) GD_TRY(add(r, r->entries[at].node->slots[i].node));
    qsort(r->entries, (size_t)r->count, sizeof *r->entries, by_order);
    const bool tape = needs_tape(r);
    for (int64_t i = 0; i < feeds.count; i++) {
        entry *e = find(r, feeds.at[i]->node);
        if (e) e->values[feeds.at[i]->node_index] = tape ? on_tape(values.at[i]) : values.at[i];
    }
    int before = tape ? gd_enable_grad_begin() : gd_no_grad_begin();
    gd_status status = GD_OK;
    for (int i = 0; i < r->count && status == GD_OK; i++) status = run_node(r, &r->entries[i]);
    gd_grad_mode_end(&before);
    return status;
}

gd_tensors gd_evaluate(gd_tensors fetches, gd_tensors feeds, gd_tensors values) {
    gd_tensor **results = gd_list_new(fetches.count);
    if (!results) {
        gd_error_stick(GD_E_MEMORY);
        return (gd_tensors){NULL, 0};
    }
    gd_scope *scope = gd_scope_open();
    run r = {.count = 0};
    gd_status status = evaluate(&r, fetches, feeds, values);
    for (int64_t i = 0; i < fetches.count && status == GD_OK; i++) {
        gd_tensor *y = gd_detach(find(&r, fetches.at[i]->node)->values[fetches.at[i]->node_index]);
        if (y->kind == GD_FAILED) status = gd_failure();
        else results[i] = gd_retain(y);
    }
    gd_free(r.entries);
    gd_scope_close(&scope);
    for (int64_t i = 0; i < fetches.count; i++) {
        if (results[i] && gd_scope_take(&results[i]->object) != GD_OK) {
            results[i] = NULL;
            if (status == GD_OK) status = GD_E_MEMORY;
        }
        if (!results[i]) results[i] = &gd_error_tensor;
    }
    if (status != GD_OK) gd_error_stick(status);
    return (gd_tensors){results, fetches.count};
}
