/* subgraph.c - traces functions to subgraphs, and finds what they capture. */
#include "graph/build/subgraph.h"

#include <stdio.h>
#include <string.h>

#include "core/freed.h"
#include "core/frame.h"
#include "core/grow.h"
#include "gradus/ops.h"

gd_meta gd_meta_of(const gd_tensor *t) {
    gd_meta m = {.dtype = (gd_dtype)t->dtype, .rank = t->rank, .view_of = -1, .device = t->device};
    for (int d = 0; d < t->rank; d++) m.dims[d] = t->dims[d];
    return m;
}

static void subgraph_destroy(gd_subgraph *sub) {
    gd_release(sub->graph);
    gd_free(sub->in);
    gd_free(sub->out);
    gd_free(sub->out_index);
    gd_free(sub->metas);
    gd_free(sub->first_value);
    gd_free(sub);
}

/* --- tracing ---------------------------------------------------------------------------------- */

static bool is_inside(const gd_subgraph *sub, const gd_node *node) {
    return node && node->origin && node->origin->graph == sub->graph;
}

static GD_OWN_FRAME gd_status add_input(gd_subgraph *sub, const gd_meta *meta, gd_tensor **symbol) {
    char name[32];
    gd_node **grown = gd_realloc(sub->in, (size_t)(sub->n_in + 1) * sizeof *grown);
    if (!grown) return gd_no_memory(NULL, "for the graph of a function");
    sub->in = grown;
    snprintf(name, sizeof name, "in_%d", sub->n_in);
    GD_TRY(gd_graph_source(sub->graph, GD_FROM_PLACEHOLDER, NULL, name, meta, symbol));
    sub->in[sub->n_in++] = (*symbol)->node; /* the graph retains it */
    return GD_OK;
}

/* A node for a captured tensor: a view with the same strides. A copy could have other strides, and
 * a sum over it other last bits. */
static gd_tensor *trace_identity(gd_tensor *t) {
    gd_shape axes = {.rank = t->rank, .form = 1};
    for (int d = 0; d < t->rank; d++) axes.at[d] = d;
    return gd_permute(t, axes);
}

static gd_status take_output(gd_subgraph *sub, gd_tensor *y, int k) {
    if (!y) return gd_fail(GD_E_ARGUMENT, "result %d is NULL", k);
    if (y->kind == GD_FAILED) return gd_failure();
    if (y->kind != GD_SYMBOL || !is_inside(sub, y->node)) y = trace_identity(y);
    if (y->kind == GD_FAILED) return gd_failure();
    sub->out[k] = y->node;
    sub->out_index[k] = y->node_index;
    sub->metas[k] = gd_meta_of(y);
    return GD_OK;
}

static GD_OWN_FRAME gd_status take_outputs(gd_subgraph *sub, gd_tensors y) {
    if (y.count < 0 || y.count > 1 << 20 || (y.count > 0 && !y.at))
        return gd_fail(GD_E_ARGUMENT, "a list of %lld results", (long long)y.count);
    sub->out = gd_calloc((size_t)y.count + 1, sizeof *sub->out);
    sub->out_index = gd_calloc((size_t)y.count + 1, sizeof *sub->out_index);
    sub->metas = gd_calloc((size_t)y.count + 1, sizeof *sub->metas);
    if (!sub->out || !sub->out_index || !sub->metas)
        return gd_no_memory(NULL, "for the graph of a function");
    sub->n_function_nodes = sub->graph->count;
    for (int64_t k = 0; k < y.count; k++) GD_TRY(take_output(sub, y.at[k], (int)k));
    sub->n_out = (int)y.count;
    return GD_OK;
}

static gd_status trace_body(gd_subgraph *sub, gd_body body, void *user, const gd_meta *inputs,
                            int n_inputs) {
    gd_tensor **x = gd_list_new(gd_with_missing(n_inputs));
    if (!x) return GD_E_MEMORY;
    for (int i = 0; i < n_inputs; i++) GD_TRY(add_input(sub, &inputs[i], &x[i]));
    gd_put_missing(x, n_inputs, GD_READER_CONTROL);
    sub->n_given = n_inputs;
    gd_keep_freed_begin();
    gd_tensors y = body((gd_tensors){x, n_inputs}, user);
    gd_status status =
        !y.at && gd_failed() ? gd_failure() : gd_check_returned(y, __builtin_frame_address(0));
    if (status == GD_OK) status = take_outputs(sub, y);
    gd_keep_freed_end();
    return status;
}

gd_status gd_subgraph_trace(gd_body body, void *user, const gd_meta *inputs, int n_inputs,
                            gd_subgraph **made) {
    *made = NULL;
    GD_TRY(gd_check_stack());
    gd_subgraph *sub = gd_calloc(1, sizeof *sub);
    if (!sub) return gd_no_memory(NULL, "for the graph of a function");
    atomic_init(&sub->refs, 1);
    sub->destroy = subgraph_destroy;
    gd_scope *scope = gd_scope_open();
    sub->graph = gd_retain(gd_graph_new());
    gd_status status = sub->graph ? GD_OK : GD_E_MEMORY;
    if (status == GD_OK) {
        /* blocks around the call (names, GD_AFTER) hold for its node, not for the nodes inside */
        const gd_building outside = gd_this_building;
        gd_this_building = (gd_building){.prefix = NULL};
        sub->graph->body = GD_BODY_OPEN;
        sub->graph->outer = gd_graph_building();
        gd_block block = gd_graph_begin(sub->graph);
        int grad = gd_enable_grad_begin();
        double *macs = gd_this_thread.macs;
        if (macs) gd_this_thread.macs = &sub->macs;
        status = trace_body(sub, body, user, inputs, n_inputs);
        gd_this_thread.macs = macs;
        gd_grad_mode_end(&grad);
        gd_graph_end(&block);
        sub->graph->body = GD_BODY_SEALED;
        sub->graph->outer = NULL;
        gd_this_building = outside;
    }
    gd_scope_close(&scope);
    if (status == GD_OK) *made = sub;
    else gd_subgraph_release(sub);
    return status;
}

/* --- capturing -------------------------------------------------------------------------------- */

/* Whether a graph around the function writes this value. The function then reads what was written
 * before the call, which only the graph outside knows. */
static bool is_written(const gd_slot *slot) {
    for (const gd_graph *g = gd_graph_building(); g; g = g->outer)
        for (int n = 0; g->writes_values && n < g->count; n++) {
            const gd_node *node = g->nodes[n];
            for (int i = 0; node->op && i < node->n_in && i < node->op->n_inputs; i++)
                if (node->op->inputs[i].mutated && node->slots[i].present &&
                    node->slots[i].storage == slot->storage)
                    return true;
        }
    return false;
}

/* Captured are symbols from outside, values that may need a gradient, and values that the graph
 * outside writes. Other values stay constants of the node, and are read when the graph runs. */
static bool is_captured(const gd_subgraph *sub, const gd_slot *slot) {
    if (!slot->present) return false;
    if (slot->symbol) return !is_inside(sub, slot->node);
    return (slot->requires_grad && (slot->leaf || slot->node)) ||
           (slot->storage && is_written(slot));
}

static bool is_same_value(const gd_tensor *t, const gd_slot *slot) {
    if (slot->leaf) return t == slot->leaf;
    if (slot->node || t->node) return t->node == slot->node && t->node_index == slot->index;
    return t->kind == GD_VALUE && t->storage == slot->storage && t->offset == slot->offset &&
           t->dtype == slot->dtype && t->rank == slot->rank &&
           memcmp(t->dims, slot->dims, sizeof *t->dims * t->rank) == 0 &&
           memcmp(t->strides, slot->strides, sizeof *t->strides * t->rank) == 0;
}

static gd_status find_or_add_capture(gd_capturing *c, const gd_slot *slot, int *index) {
    for (*index = 0; *index < c->count; ++*index)
        if (is_same_value(c->captured[*index], slot)) return GD_OK;
    if (!gd_grow(c->captured, c->count, c->capacity))
        return gd_no_memory(NULL, "for the graph of a function");
    gd_tensor *t = slot->symbol ? gd_slot_get(slot, NULL, "a graph") : gd_slot_current(slot);
    if (!t) return GD_E_MEMORY;
    c->captured[c->count++] = gd_retain(t);
    return GD_OK;
}

static gd_status capture_all(gd_capturing *c, const gd_subgraph *sub) {
    int index;
    for (int n = 0; n < sub->graph->count; n++)
        for (int i = 0; i < sub->graph->nodes[n]->n_in; i++)
            if (is_captured(sub, &sub->graph->nodes[n]->slots[i]))
                GD_TRY(find_or_add_capture(c, &sub->graph->nodes[n]->slots[i], &index));
    return GD_OK;
}

/* Every subgraph takes all captured tensors, so that one list of inputs serves them all. */
static gd_status replace_captured(gd_capturing *c, gd_subgraph *sub) {
    const int before = sub->graph->count;
    gd_tensor **symbols = gd_malloc((size_t)(c->count + 1) * sizeof *symbols);
    gd_status status = symbols ? GD_OK : gd_no_memory(NULL, "for the graph of a function");
    for (int i = 0; i < c->count && status == GD_OK; i++) {
        gd_meta m = gd_meta_of(c->captured[i]);
        status = add_input(sub, &m, &symbols[i]);
    }
    for (int n = 0; n < before && status == GD_OK; n++)
        for (int i = 0; i < sub->graph->nodes[n]->n_in && status == GD_OK; i++) {
            gd_slot *slot = &sub->graph->nodes[n]->slots[i];
            int index;
            if (!is_captured(sub, slot)) continue;
            status = find_or_add_capture(c, slot, &index); /* finds it */
            if (status == GD_OK) gd_slot_replace(slot, symbols[index]);
        }
    gd_free(symbols);
    return status;
}

/* A captured result is an input now, and needs no identity node. (Without it gradients are summed
 * in the order of eager code.) */
static void skip_identities(gd_subgraph *sub) {
    for (int k = 0; k < sub->n_out; k++) {
        if (sub->out[k]->origin->number < sub->n_function_nodes) continue;
        const gd_slot *slot = &sub->out[k]->slots[0];
        if (!slot->symbol || slot->node->op) continue;
        sub->out[k] = slot->node;
        sub->out_index[k] = slot->index;
    }
}

void gd_capturing_free(gd_capturing *c) {
    for (int i = 0; i < c->count; i++) gd_release(c->captured[i]);
    gd_free(c->captured);
    *c = (gd_capturing){NULL, 0, 0};
}

/* --- traits and value numbers ----------------------------------------------------------------- */

gd_subgraph *gd_node_subgraph(const gd_node *node, int index) {
    for (int i = 0; node->op && i < node->op->n_attrs && node->attrs; i++)
        if (node->op->attrs[i].type == GD_ATTR_GRAPH && index-- == 0)
            return *(gd_subgraph *const *)((const char *)node->attrs + node->op->attrs[i].offset);
    return NULL;
}

unsigned gd_node_traits(const gd_node *node) {
    static const unsigned of_control[] = {[GD_CONTROL_BRANCH] = GD_HAS_BRANCH,
                                          [GD_CONTROL_WHILE] = GD_HAS_WHILE,
                                          [GD_CONTROL_SCAN] = GD_HAS_SCAN,
                                          [GD_CONTROL_GRADIENTS] = GD_HAS_GRADIENTS};
    const gd_op *op = node->op;
    if (!op) return 0;
    if (!(op->flags & GD_OP_OPAQUE)) return op->flags & GD_OP_DYNAMIC ? GD_HAS_SIZES : 0;
    unsigned traits = of_control[op->facts.control];
    const gd_subgraph *sub;
    for (int i = 0; (sub = gd_node_subgraph(node, i)) != NULL; i++) traits |= sub->traits;
    return traits;
}

/* Numbers the results of all nodes that the outputs need. Nodes come after their inputs. */
static gd_status number_values(gd_subgraph *sub) {
    gd_graph *g = sub->graph;
    sub->first_value = gd_malloc((size_t)(g->count + 1) * sizeof *sub->first_value);
    if (!sub->first_value) return gd_no_memory(NULL, "for the graph of a function");
    for (int n = 0; n < g->count; n++) sub->first_value[n] = -1;
    for (int k = 0; k < sub->n_out; k++) sub->first_value[sub->out[k]->origin->number] = 0;
    for (int k = 0; k < sub->n_in; k++) sub->first_value[sub->in[k]->origin->number] = 0;
    for (int n = g->count; n-- > 0;) {
        const gd_node *node = g->nodes[n];
        if (sub->first_value[n] < 0) continue;
        for (int i = 0; i < node->n_in; i++)
            if (node->slots[i].symbol) sub->first_value[node->slots[i].node->origin->number] = 0;
    }
    for (int n = 0; n < g->count; n++) {
        if (sub->first_value[n] < 0) continue;
        sub->first_value[n] = sub->n_values;
        sub->n_values += g->nodes[n]->n_out;
        sub->n_needed += g->nodes[n]->op != NULL;
        sub->traits |= gd_node_traits(g->nodes[n]);
    }
    return GD_OK;
}

gd_status gd_subgraph_close(gd_capturing *c, gd_subgraph *const *subs, int n_subs) {
    gd_status status = GD_OK;
    gd_scope *scope = gd_scope_open();
    for (int i = 0; i < n_subs && status == GD_OK; i++) status = capture_all(c, subs[i]);
    for (int i = 0; i < n_subs && status == GD_OK; i++) status = replace_captured(c, subs[i]);
    for (int i = 0; i < n_subs && status == GD_OK; i++) {
        skip_identities(subs[i]);
        status = number_values(subs[i]);
    }
    gd_scope_close(&scope);
    return status;
}
