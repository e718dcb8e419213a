/* refresh.c - updates graphs whose captured tensors were replaced (gd_tensor_become).
 *
 * A node binds the storage of a captured tensor when it is created. A counter in core tells whether
 * any tensor has been replaced since; only then are the nodes searched.
 */
#include <string.h>

#include "core/grow.h"
#include "graph/build/subgraph.h"

/* Storages that nodes no longer use, to be released when no guard is locked. */
typedef struct unbound_storages {
    gd_storage **list;
    int count, room;
} unbound_storages;

static gd_status fail_replaced(const gd_node *node, const gd_slot *slot, const gd_tensor *now) {
    char before[128], text[160];
    return gd_fail(GD_E_STATE,
                   "%s%s%s%s was built with a tensor that was %s%s then and has become %s since; "
                   "build the graph again",
                   node->origin ? node->origin->name : "a node", node->site ? " (" : "",
                   node->site ? node->site : "", node->site ? ")" : "",
                   gd_dtype_name((gd_dtype)slot->dtype),
                   gd_shape_text(slot->rank, slot->dims, before, sizeof before),
                   gd_describe(now, text, sizeof text));
}

static bool has_same_shape(const gd_slot *slot, const gd_tensor *t) {
    return slot->dtype == t->dtype && slot->rank == t->rank &&
           memcmp(slot->dims, t->dims, sizeof(int64_t) * t->rank) == 0;
}

static gd_status refresh_slot(const gd_node *node, gd_slot *slot, unbound_storages *old) {
    const gd_tensor *t = slot->captured;
    if (!t || t->storage == slot->storage) return GD_OK;
    if (!has_same_shape(slot, t)) return fail_replaced(node, slot, t);
    if (!gd_grow(old->list, old->count, old->room)) return gd_no_memory(NULL, "to update a graph");
    old->list[old->count++] = slot->storage;
    gd_storage_retain(t->storage);
    slot->storage = t->storage;
    slot->version = atomic_load(&t->storage->version);
    slot->device = t->device;
    slot->offset = t->offset;
    for (int d = 0; d < t->rank; d++) slot->strides[d] = t->strides[d];
    return GD_OK;
}

static gd_status refresh_nodes(const gd_graph *graph, unbound_storages *old) {
    GD_TRY(gd_check_stack());
    for (int n = 0; n < graph->count; n++) {
        gd_node *node = graph->nodes[n];
        const gd_tensor *initial = node->origin->initial;
        if (initial && initial->kind == GD_VALUE && !has_same_shape(&node->slots[0], initial))
            return fail_replaced(node, &node->slots[0], initial);
        for (int i = 0; i < node->n_in; i++) GD_TRY(refresh_slot(node, &node->slots[i], old));
        const gd_subgraph *sub;
        for (int k = 0; node->op && (sub = gd_node_subgraph(node, k)); k++)
            GD_TRY(refresh_nodes(sub->graph, old));
    }
    return GD_OK;
}

gd_status gd_graph_refresh(gd_graph *graph) {
    const uint64_t now = gd_tensors_became();
    if (atomic_load_explicit(&graph->became, memory_order_acquire) == now) return GD_OK;
    unbound_storages old = {NULL, 0, 0};
    gd_guard_lock(graph->guard);
    gd_status status = refresh_nodes(graph, &old);
    if (old.count > 0) atomic_fetch_add(&graph->refreshed, 1);
    if (status == GD_OK) atomic_store_explicit(&graph->became, now, memory_order_release);
    gd_guard_unlock(graph->guard);
    for (int i = 0; i < old.count; i++) gd_storage_release(old.list[i]);
    gd_free(old.list);
    return status;
}
