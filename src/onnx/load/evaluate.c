/* evaluate.c - constant folding while a file is loaded.
 *
 * Files compute shapes, axes and counts by nodes (Shape, Gather, Concat, ...). To evaluate such a
 * value, this file walks back from its symbol to nodes whose values are known, and runs the nodes
 * in between.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "graph/build/trace.h"
#include "gradus/ops.h"
#include "onnx/load/load.h"
#include "dispatch/call.h"

/* The nodes still to visit, and the feeds: symbols at which the walk stops, with their values. */
typedef struct evaluation {
    gd_onnx_loader *l;
    int64_t size; /* replaces each unknown size */
    gd_map visited;
    gd_node **nodes;
    gd_tensor **symbols, **values;
    int n_nodes, nodes_room, n_feeds, symbols_room, values_room;
} evaluation;

static gd_status push_node(evaluation *e, gd_node *node) {
    if (gd_map_find(&e->visited, node) >= 0) return GD_OK;
    if (!gd_map_put(&e->visited, node, 0) || !gd_grow(e->nodes, e->n_nodes, e->nodes_room))
        return gd_no_memory(NULL, "to load a graph");
    e->nodes[e->n_nodes++] = node;
    return GD_OK;
}

static gd_status add_feed(evaluation *e, gd_tensor *symbol, gd_tensor *value) {
    if (!symbol || symbol->kind == GD_FAILED || value->kind == GD_FAILED) return gd_failure();
    if (!gd_grow(e->symbols, e->n_feeds, e->symbols_room) ||
        !gd_grow(e->values, e->n_feeds, e->values_room))
        return gd_no_memory(NULL, "to load a graph");
    e->symbols[e->n_feeds] = symbol;
    e->values[e->n_feeds++] = value;
    return GD_OK;
}

/* The value of an op sizes_of, with `size` for each unknown size. */
static gd_tensor *evaluate_sizes(const gd_slot *x, int64_t size) {
    int64_t dims[GD_MAX_RANK];
    for (int i = 0; i < x->rank; i++) dims[i] = x->dims[i] == GD_UNKNOWN ? size : x->dims[i];
    return gd_from_array(gd_dims(x->rank), GD_I64, dims);
}

static gd_tensor *node_symbol(gd_node *node) {
    return gd_slot_get(&node->slots[node->n_in], node, "a graph");
}

/* The walk stops at variables (their initial value), at sizes_of, and at nodes that were evaluated
 * before, so that a file with many lists of sizes is loaded in linear time. */
static gd_status visit_node(evaluation *e, gd_node *node) {
    const int known = gd_map_find(&e->l->evaluated, node);
    if (known >= 0) return add_feed(e, e->l->values[known]->tensor, e->l->values[known]->constant);
    if (node->origin && node->origin->initial)
        return add_feed(e, node_symbol(node), node->origin->initial);
    if (node->op && strcmp(node->op->name, "sizes_of") == 0)
        return add_feed(e, node_symbol(node), evaluate_sizes(&node->slots[0], e->size));
    for (int i = 0; i < node->n_in; i++)
        if (node->slots[i].symbol) GD_TRY(push_node(e, node->slots[i].node));
    return GD_OK;
}

static gd_status evaluate_symbol(evaluation *e, gd_tensor *symbol, gd_tensor **out) {
    GD_TRY(push_node(e, symbol->node));
    while (e->n_nodes > 0) GD_TRY(visit_node(e, e->nodes[--e->n_nodes]));
    gd_tensors result = gd_evaluate_nodes(gd_list(symbol), (gd_tensors){e->symbols, e->n_feeds},
                                          (gd_tensors){e->values, e->n_feeds});
    if (result.count != 1 || result.at[0]->kind != GD_VALUE) return gd_failure();
    *out = result.at[0];
    return GD_OK;
}

gd_status gd_onnx_evaluate(gd_onnx_loader *l, gd_tensor *symbol, int64_t size, gd_tensor **out) {
    evaluation e = {.l = l, .size = size};
    const gd_tracing tracing = gd_tracing_off();
    const gd_status status = evaluate_symbol(&e, symbol, out);
    gd_tracing_on(tracing);
    gd_map_free(&e.visited);
    gd_free(e.nodes);
    gd_free(e.symbols);
    gd_free(e.values);
    return status;
}

gd_status gd_onnx_constant_value(gd_onnx_loader *l, const char *name, gd_tensor **out) {
    gd_onnx_value *v;
    GD_TRY(gd_onnx_find_value(l, name, &v));
    if (!v->constant && v->foldable) {
        GD_TRY(gd_onnx_evaluate(l, v->tensor, 1, &v->constant));
        if (v->tensor->node->n_out == 1 &&
            !gd_map_put(&l->evaluated, v->tensor->node, (int)v->number))
            return gd_no_memory(NULL, "to load a graph");
    }
    *out = v->constant;
    return GD_OK;
}
