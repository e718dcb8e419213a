/* captures.c - what a traced function uses from outside: captured tensors that it reads or writes,
 * and C values that it depends on. */
#include <string.h>

#include "core/grow.h"
#include "graph/build/graph.h"

/* --- captured tensors ------------------------------------------------------------------------- */

bool gd_same_view(const gd_tensor *a, const gd_tensor *b) {
    return a == b || (a->storage && a->storage == b->storage && a->offset == b->offset &&
                      a->rank == b->rank && a->dtype == b->dtype &&
                      memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) == 0 &&
                      memcmp(a->strides, b->strides, sizeof(int64_t) * a->rank) == 0);
}

/* The offset in the storage of the last element of a tensor. */
static int64_t last_element(const gd_tensor *t) {
    int64_t last = t->offset;
    for (int d = 0; d < t->rank; d++) last += (t->dims[d] - 1) * t->strides[d];
    return last;
}

bool gd_overlap(const gd_tensor *a, const gd_tensor *b) {
    if (!a->storage || a->storage != b->storage || gd_numel(a->rank, a->dims) == 0 ||
        gd_numel(b->rank, b->dims) == 0)
        return false;
    return a->dtype != b->dtype || (a->offset <= last_element(b) && b->offset <= last_element(a));
}

/* Whether code that is differentiated or replayed as of `gd_as_of` sees this write. */
static bool is_visible_write(const gd_written *w) { return gd_as_of == 0 || w->order < gd_as_of; }

/* The latest write to the storage of a tensor; -1: none. */
static int latest_write(const gd_graph *graph, const gd_tensor *tensor) {
    return gd_map_find(&graph->latest_write, tensor->storage);
}

gd_written *gd_graph_find_write(const gd_graph *graph, const gd_tensor *tensor) {
    for (int i = latest_write(graph, tensor); i >= 0; i = graph->written[i].before)
        if (is_visible_write(&graph->written[i]) && gd_same_view(graph->written[i].tensor, tensor))
            return &graph->written[i];
    return NULL;
}

static gd_status check_overlap(const gd_graph *graph, const gd_tensor *tensor) {
    char shape[128];
    for (int i = latest_write(graph, tensor); i >= 0; i = graph->written[i].before) {
        const gd_written *w = &graph->written[i];
        if (!is_visible_write(w) || !gd_overlap(w->tensor, tensor)) continue;
        const gd_node *node = w->symbol->node;
        return gd_fail(GD_E_UNSUPPORTED,
                       "a tensor of shape %s shares its memory with one that %s (%s) has written "
                       "in the function that is being traced; use that one, and make views of it "
                       "in the function",
                       gd_shape_text(tensor->rank, tensor->dims, shape, sizeof shape),
                       node->op ? node->op->name : "it", node->site ? node->site : "?");
    }
    return GD_OK;
}

gd_status gd_graph_read(gd_graph *graph, gd_tensor *tensor, gd_tensor **now) {
    *now = tensor;
    if (!tensor || tensor->kind != GD_VALUE) return GD_OK;
    for (; graph; graph = graph->outer) {
        if (!graph->traces_writes && !gd_as_of) continue;
        gd_written *w = gd_graph_find_write(graph, tensor);
        if (!w) {
            GD_TRY(check_overlap(graph, tensor));
            continue;
        }
        if (w->opaque) GD_TRY(gd_graph_show_write(graph, (int)(w - graph->written)));
        *now = w->symbol;
        return GD_OK;
    }
    return GD_OK;
}

/* A leaf that is written stays a leaf: gd_backward needs the symbol of each of its versions. */
static gd_status record_version(gd_graph *graph, const gd_written *w) {
    if (!w->tensor->requires_grad || w->tensor->node || w->opaque) return GD_OK;
    if (!gd_grow(graph->versions, graph->n_versions, graph->version_room))
        return gd_no_memory(NULL, "for a graph");
    graph->versions[graph->n_versions++] =
        (gd_leaf_version){gd_retain(w->tensor), gd_retain(w->symbol)};
    return GD_OK;
}

gd_status gd_graph_record_write(gd_graph *graph, gd_written written) {
    if (!gd_graph_find_write(graph, written.tensor)) GD_TRY(check_overlap(graph, written.tensor));
    GD_TRY(record_version(graph, &written));
    written.before = latest_write(graph, written.tensor);
    if (!gd_grow(graph->written, graph->n_written, graph->written_room) ||
        !gd_map_put(&graph->latest_write, written.tensor->storage, graph->n_written))
        return gd_no_memory(NULL, "for a graph");
    gd_retain(written.tensor);
    gd_retain(written.symbol);
    if (written.node) gd_node_retain(written.node);
    graph->written[graph->n_written++] = written;
    return GD_OK;
}

gd_status gd_graph_run_after(gd_node *node, gd_node *before) {
    gd_origin *o = node->origin;
    if (!o) return GD_OK;
    gd_node **after = gd_realloc(o->after, (size_t)(o->n_after + 1) * sizeof *after);
    if (!after) return gd_no_memory(NULL, "for a graph");
    gd_node_retain(before);
    o->after = after;
    o->after[o->n_after++] = before;
    return GD_OK;
}

gd_status gd_graph_record_capture(gd_graph *graph, gd_tensor *tensor) {
    while (graph && graph->outer) graph = graph->outer;
    if (!graph || !graph->traces_writes || !tensor || tensor->kind != GD_VALUE) return GD_OK;
    if (gd_map_find(&graph->capture_of, tensor) >= 0) return GD_OK;
    if (!gd_grow(graph->captured, graph->n_captured, graph->captured_room) ||
        !gd_map_put(&graph->capture_of, tensor, graph->n_captured))
        return gd_no_memory(NULL, "for a graph");
    const int frozen = gd_map_find(&graph->frozen_of, tensor);
    const bool requires_grad = /* when the call began */
        frozen < 0 ? tensor->requires_grad : graph->frozen[frozen].before;
    gd_storage_retain(tensor->storage);
    graph->captured[graph->n_captured++] =
        (gd_captured){gd_retain(tensor), tensor->storage, requires_grad};
    return GD_OK;
}

/* --- C values --------------------------------------------------------------------------------- */

static gd_status record_value(gd_object *owner, const int *where, bool is_mode) {
    gd_graph *graph = gd_graph_traced();
    if (!graph || gd_map_find(&graph->value_of, where) >= 0) return GD_OK;
    if (!gd_grow(graph->values, graph->n_values, graph->value_room) ||
        !gd_map_put(&graph->value_of, where, graph->n_values))
        return gd_no_memory(NULL, "for a graph");
    gd_object_retain(owner);
    graph->values[graph->n_values++] = (gd_traced_value){owner, where, *where, is_mode};
    return GD_OK;
}
gd_status gd_trace_record_value(gd_object *owner, const int *where) {
    return record_value(owner, where, false);
}
gd_status gd_trace_record_mode(gd_object *owner, const int *where) {
    return record_value(owner, where, true);
}

const gd_traced_value *gd_traced_values_changed(const gd_graph *graph) {
    for (int i = 0; i < graph->n_values; i++)
        if (*graph->values[i].where != graph->values[i].value) return &graph->values[i];
    return NULL;
}
bool gd_traced_values_fit(const gd_graph *graph) { return !gd_traced_values_changed(graph); }

gd_status gd_traced_values_check(const gd_graph *graph) {
    for (int i = 0; i < graph->n_values; i++) {
        const gd_traced_value *v = &graph->values[i];
        if (*v->where == v->value) continue;
        return gd_fail(
            GD_E_UNSUPPORTED,
            "the function leaves the mode of a %s changed (it was %d, and is %d), which a later "
            "call of its jit would not do; change it back before the function returns, or change "
            "it outside",
            v->owner->class->name, v->value, *v->where);
    }
    return GD_OK;
}
