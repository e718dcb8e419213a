/* replay.c - traces the nodes of a graph again, with known sizes and on the device of the run (the
 * default device), in no graph. */
#include "graph/build/trace.h"
#include "graph/lower/lower.h"
#include "gradus/ops.h"
#include "dispatch/call.h"

/* A node of a gradient sees the writes that its forward node sees (node->as_of). This is the same
 * moment in the replay; 0: the node sees all writes before it. */
static uint64_t find_as_of_in_replay(const gd_lowering *l, const gd_lowered_node *e) {
    if (e->node->as_of >= e->node->order) return 0;
    int at = (int)(e - l->entries);
    const uint64_t *began = &e->began;
    for (; at >= 0 && l->entries[at].node->order >= e->node->as_of; at--)
        if (l->entries[at].feed < 0) began = &l->entries[at].began;
    return *began;
}

static gd_status replay_node(gd_lowering *l, gd_lowered_node *e) {
    gd_node *node = e->node;
    e->began = gd_node_next_order();
    e->symbols = gd_program_alloc(l->p, (size_t)node->n_out * sizeof *e->symbols + 1);
    if (!e->symbols) return GD_E_MEMORY;
    for (int64_t i = e->feed; i >= 0 && i < l->feeds.count; i++) {
        const gd_tensor *value = l->fed.at[i];
        if (l->feeds.at[i]->node == node)
            e->symbols[l->feeds.at[i]->node_index] = gd_symbol(
                gd_shape_of(value->rank, value->dims), (gd_dtype)value->dtype, gd_default_device());
    }
    if (e->feed >= 0) return GD_OK;
    if (!node->op) {
        if (!gd_node_is_variable(node))
            return gd_fail(GD_E_ARGUMENT, "'%s' is needed and was not fed", gd_node_name(node));
        e->symbols[0] = gd_node_symbol(node, 0);
        if (!e->symbols[0]) return GD_E_MEMORY;
        e->symbols[0]->device = gd_default_device();
        return GD_OK;
    }
    gd_tensor **in = gd_program_alloc(l->p, (size_t)(node->n_in + 1) * sizeof *in);
    if (!in) return GD_E_MEMORY;
    for (int i = 0; i < node->n_in; i++) {
        const gd_slot *slot = &node->slots[i];
        if (!slot->present) continue;
        in[i] = slot->symbol ? gd_lowering_find(l, slot->node)->symbols[slot->index]
                             : gd_slot_current(slot);
        if (!in[i]) return GD_E_MEMORY;
    }
    l->running.left = gd_node_subgraph(node, 0) ? &l->left : NULL;
    gd_as_of = find_as_of_in_replay(l, e);
    gd_status status = gd_node_run(node, in, e->symbols, &l->running);
    gd_as_of = 0;
    return status;
}

static gd_status replay_nodes(gd_lowering *l, gd_tensors fetches) {
    void *before = gd_this_thread.tracer;
    gd_this_thread.tracer = &gd_no_graph;
    gd_this_thread.settled++;
    int grad = gd_enable_grad_begin();
    gd_status status = GD_OK;
    /* feeds first: those of a subgraph have later numbers than the nodes that read them */
    for (int i = 0; i < 2 * l->count && status == GD_OK; i++)
        if ((l->entries[i % l->count].feed >= 0) == (i < l->count))
            status = replay_node(l, &l->entries[i % l->count]);
    /* a gradient may be a constant for these shapes */
    for (int64_t i = 0; i < fetches.count && status == GD_OK; i++) {
        gd_tensor **t =
            &gd_lowering_find(l, fetches.at[i]->node)->symbols[fetches.at[i]->node_index];
        if ((*t)->kind == GD_VALUE) *t = gd_clone(*t);
        if ((*t)->kind != GD_SYMBOL) status = gd_failure();
    }
    gd_grad_mode_end(&grad);
    gd_this_thread.settled--;
    gd_this_thread.tracer = before;
    return status;
}

gd_status gd_lowering_replay(gd_lowering *l, gd_tensors fetches, gd_lowering *after) {
    GD_TRY(replay_nodes(l, fetches));
    /* the replayed fetches, and the replayed nodes that others must run after (GD_AFTER) */
    int64_t n = 0, most = fetches.count + l->count;
    gd_node **roots = gd_program_alloc(l->p, (size_t)(most + 1) * sizeof *roots);
    gd_tensor **symbols =
        gd_program_alloc(l->p, (size_t)(fetches.count + l->feeds.count + 1) * sizeof *symbols);
    if (!roots || !symbols) return GD_E_MEMORY;
    for (int64_t i = 0; i < fetches.count; i++) {
        symbols[i] = gd_lowering_find(l, fetches.at[i]->node)->symbols[fetches.at[i]->node_index];
        roots[n++] = symbols[i]->node;
    }
    for (int i = 0; i < l->count; i++) {
        const gd_origin *o = l->entries[i].node->origin;
        for (int k = 0; o && k < o->n_after && n < most; k++) {
            gd_tensor *t = gd_lowering_find(l, o->after[k])->symbols[0];
            if (t && t->kind == GD_SYMBOL) roots[n++] = t->node;
        }
    }
    gd_tensor **feeds = symbols + fetches.count;
    for (int64_t i = 0; i < l->feeds.count; i++) {
        const gd_lowered_node *e = gd_lowering_find(l, l->feeds.at[i]->node);
        /* keep feeds that are not needed: the index of a feed is that in the caller's list */
        feeds[i] = e ? e->symbols[l->feeds.at[i]->node_index] : l->feeds.at[i];
    }
    *after = (gd_lowering){.p = l->p, .feeds = {feeds, l->feeds.count}, .fed = l->fed};
    return gd_lowering_collect(after, roots, n);
}
