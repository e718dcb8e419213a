/* lower.c - lowers the part of a graph that the fetches need to a program.
 *
 * First the nodes are collected. If a size is not known in the graph, or the graph was built for
 * another kind of device, the nodes are traced again (replay.c) with the sizes of the feeds on the
 * device of the run. That also differentiates deferred gradients and unrolls scans, and ops without a
 * kernel on the device become their bodies. Last, each node becomes a step (steps.c).
 */
#include "graph/lower/lower.h"

#include <stdlib.h>

#include "core/grow.h"
#include "core/map.h"

/* Loops with more nodes in all steps together are not unrolled. */
enum { MAX_UNROLLED = 3000 };

/* --- collecting nodes ------------------------------------------------------------------------- */

/* Lists the feeds of each node. */
static gd_status index_feeds(gd_lowering *l) {
    l->next_feed = gd_program_alloc(l->p, (size_t)(l->feeds.count + 1) * sizeof *l->next_feed);
    if (!l->next_feed) return GD_E_MEMORY;
    for (int i = (int)l->feeds.count; i-- > 0;) {
        const gd_node *node = l->feeds.at[i]->node;
        l->next_feed[i] = gd_map_find(&l->feed_of, node);
        if (!gd_map_put(&l->feed_of, node, i)) return gd_no_memory(NULL, "to plan a run");
    }
    return GD_OK;
}

static gd_status collect_node(gd_lowering *l, gd_map *seen, gd_node *node) {
    if (gd_map_find(seen, node) >= 0) return GD_OK;
    if (!gd_map_put(seen, node, 0) || !gd_grow(l->entries, l->count, l->capacity))
        return gd_no_memory(NULL, "to plan a run");
    l->entries[l->count++] =
        (gd_lowered_node){.node = node, .feed = gd_map_find(&l->feed_of, node)};
    return GD_OK;
}

static int by_order(const void *a, const void *b) {
    uint64_t x = ((const gd_lowered_node *)a)->node->order,
             y = ((const gd_lowered_node *)b)->node->order;
    return x < y ? -1 : x > y;
}

gd_status gd_lowering_collect(gd_lowering *l, gd_node *const *roots, int64_t n_roots) {
    gd_map seen = {NULL, 0, 0};
    gd_status status = index_feeds(l);
    for (int64_t i = 0; i < n_roots && status == GD_OK; i++)
        status = collect_node(l, &seen, roots[i]);
    for (int at = 0; at < l->count && status == GD_OK; at++) { /* the list grows meanwhile */
        const gd_node *node = l->entries[at].node;
        if (l->entries[at].feed >= 0) continue;
        for (int i = 0; i < node->n_in && status == GD_OK; i++)
            if (node->slots[i].symbol) status = collect_node(l, &seen, node->slots[i].node);
        for (int i = 0; node->origin && i < node->origin->n_after && status == GD_OK; i++)
            status = collect_node(l, &seen, node->origin->after[i]);
    }
    gd_map_free(&seen);
    if (l->count) qsort(l->entries, (size_t)l->count, sizeof *l->entries, by_order);
    return status;
}

gd_lowered_node *gd_lowering_find(gd_lowering *l, const gd_node *node) {
    int low = 0, high = l->count - 1;
    while (low <= high) {
        int middle = (low + high) / 2;
        if (l->entries[middle].node == node) return &l->entries[middle];
        if (l->entries[middle].node->order < node->order) low = middle + 1;
        else high = middle - 1;
    }
    return NULL;
}

/* If some results of a node are fed, other results of it must not be needed. */
static gd_status check_fed(gd_lowering *l, const gd_node *node, int index) {
    const gd_lowered_node *e = gd_lowering_find(l, node);
    if (!e || e->feed < 0) return GD_OK;
    for (int i = e->feed; i >= 0; i = l->next_feed[i])
        if (l->feeds.at[i]->node_index == index) return GD_OK;
    return gd_fail(GD_E_ARGUMENT,
                   "'%s' has several results; result %d is needed, and only others were fed: feed "
                   "them all, or none",
                   gd_node_name(node), index);
}

static gd_status check_all_fed(gd_lowering *l, gd_tensors fetches) {
    for (int64_t i = 0; i < fetches.count; i++)
        GD_TRY(check_fed(l, fetches.at[i]->node, fetches.at[i]->node_index));
    for (int k = 0; k < l->count; k++) {
        const gd_node *node = l->entries[k].node;
        for (int i = 0; i < node->n_in && l->entries[k].feed < 0; i++)
            if (node->slots[i].symbol)
                GD_TRY(check_fed(l, node->slots[i].node, node->slots[i].index));
    }
    return GD_OK;
}

/* --- properties of the nodes ------------------------------------------------------------------ */

static bool needs_replay(const gd_lowering *l) {
    const gd_device_api *api = gd_default_device()->api; /* of the run */
    for (int i = 0; i < l->count; i++) {
        const gd_node *node = l->entries[i].node;
        if (node->op && (node->op->flags & GD_OP_OPAQUE)) return true;
        for (int k = node->n_in; k < node->n_in + node->n_out; k++) {
            const gd_slot *slot = &node->slots[k];
            if (slot->device && slot->device->api != api) return true;
            for (int d = 0; d < slot->rank; d++)
                if (slot->dims[d] == GD_UNKNOWN) return true;
        }
    }
    return false;
}

static unsigned collect_traits(const gd_lowering *l) {
    unsigned traits = 0;
    for (int i = 0; i < l->count; i++)
        if (l->entries[i].feed < 0) traits |= gd_node_traits(l->entries[i].node);
    return traits;
}

/* Whether no plan can be built: sizes or control flow depend on values, and there is no step for
 * that. */
static bool is_dynamic(unsigned traits, bool loops) {
    if (!loops || (traits & GD_HAS_SIZES)) return traits & GD_NEEDS_VALUES;
    return (traits & GD_HAS_WHILE) &&
           (traits & GD_HAS_GRADIENTS); /* they would need the values of every step */
}

/* --- programs --------------------------------------------------------------------------------- */

/* If a replay of loops or branches fails, the program is run node by node instead, which also
 * reports what is wrong with it. */
static gd_status fall_back_to_dynamic(gd_lowering *l, unsigned traits, gd_status status) {
    const unsigned control = GD_HAS_BRANCH | GD_HAS_WHILE | GD_HAS_SCAN;
    if (status == GD_OK || status == GD_E_MEMORY || (l->left >= 0 && !(traits & control)))
        return status;
    l->p->dynamic = true;
    gd_this_thread.latest = GD_OK;
    gd_this_thread.latest_text[0] = 0;
    return GD_OK;
}

static void free_lowering(gd_lowering *l) {
    gd_map_free(&l->feed_of);
    gd_free(l->entries);
    gd_free(l->versions);
}

static gd_status make_program(gd_tensors fetches, gd_tensors feeds, gd_tensors values, bool loops,
                              gd_program **program) {
    gd_program *p = gd_calloc(1, sizeof *p);
    if (!p) return gd_no_memory(NULL, "to plan a run");
    gd_lowering l = {.p = p, .feeds = feeds, .fed = values, .left = MAX_UNROLLED},
                replayed = {.p = p};
    gd_scope *scope = gd_scope_open();
    gd_node **roots = gd_program_alloc(p, (size_t)(fetches.count + 1) * sizeof *roots);
    p->fetches = gd_program_alloc(p, (size_t)(fetches.count + 1) * sizeof(int));
    gd_status status = roots && p->fetches ? GD_OK : GD_E_MEMORY;
    for (int64_t i = 0; i < fetches.count && status == GD_OK; i++) roots[i] = fetches.at[i]->node;
    if (status == GD_OK) status = gd_lowering_collect(&l, roots, fetches.count);
    if (status == GD_OK) status = check_all_fed(&l, fetches);
    const unsigned traits = collect_traits(&l);
    l.running = (gd_running){.keep = loops, .stacked = loops && (traits & GD_HAS_GRADIENTS)};
    if (status == GD_OK && is_dynamic(traits, loops)) p->dynamic = true;
    else if (status == GD_OK && needs_replay(&l)) {
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        status = gd_attempt_end(&attempt, gd_lowering_replay(&l, fetches, &replayed));
        status = fall_back_to_dynamic(&l, traits, status);
        /* ops that the replay has added may have results whose sizes depend on data */
        if (status == GD_OK && !p->dynamic && is_dynamic(collect_traits(&replayed), loops))
            p->dynamic = true;
        gd_tensor **symbols =
            status == GD_OK ? gd_program_alloc(p, (size_t)(fetches.count + 1) * sizeof *symbols)
                            : NULL;
        if (status == GD_OK && !symbols) status = GD_E_MEMORY;
        for (int64_t i = 0; i < fetches.count && status == GD_OK && !p->dynamic; i++)
            symbols[i] =
                gd_lowering_find(&l, fetches.at[i]->node)->symbols[fetches.at[i]->node_index];
        if (status == GD_OK && !p->dynamic)
            status = gd_lowering_add_steps(&replayed, (gd_tensors){symbols, fetches.count});
    } else if (status == GD_OK) {
        status = gd_lowering_add_steps(&l, fetches);
    }
    free_lowering(&l);
    free_lowering(&replayed);
    gd_scope_close(&scope);
    if (status != GD_OK) {
        gd_program_free(p);
        p = NULL;
    }
    *program = p;
    return status;
}

gd_status gd_program_make(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                          gd_program **program) {
    return make_program(fetches, feeds, values, false, program);
}

gd_status gd_program_make_loops(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                                gd_program **program) {
    return make_program(fetches, feeds, values, true, program);
}
