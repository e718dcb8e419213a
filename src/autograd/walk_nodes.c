/* walk_nodes.c - the nodes and leaves of a backward pass: collects and sorts them, and finds out
 * which gradients are needed and which inputs a gradient reaches. */
#include "autograd/walk_nodes.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "dispatch/call.h"

/* --- the map of accumulators ------------------------------------------------------------------ */

static gd_status add_accumulator(gd_walker *w, gd_node *node, gd_tensor *leaf, int *index) {
    const void *key = node ? (const void *)node : leaf;
    if (!gd_grow(w->accumulators, w->count, w->capacity) || !gd_map_put(&w->at, key, w->count))
        return gd_fail(GD_E_MEMORY, "no memory for a backward pass over %d nodes", w->count);
    int n = node ? node->n_out : 1;
    gd_tensor **grads = gd_calloc((size_t)n, sizeof *grads);
    if (!grads) return gd_no_memory(NULL, "for gradients");
    w->accumulators[w->count] =
        (gd_accumulator){.node = node, .leaf = leaf, .grads = grads, .target = -1};
    *index = w->count++;
    return GD_OK;
}

void gd_walker_free(gd_walker *w) {
    for (int i = 0; i < w->count; i++) {
        int n = w->accumulators[i].node ? w->accumulators[i].node->n_out : 1;
        for (int k = 0; k < n; k++)
            if (w->accumulators[i].grads[k])
                gd_object_release(&w->accumulators[i].grads[k]->object);
        gd_free(w->accumulators[i].grads);
    }
    gd_free(w->accumulators);
    gd_free(w->next_target);
    gd_map_free(&w->at);
}

_Thread_local bool gd_walks_stay_inside;

/* Whether the walk ends at this node. */
bool gd_walker_ends_at(const gd_walker *w, const gd_node *node) {
    return node->order < w->walk->since || (gd_walks_stay_inside && !node->graph);
}

/* --- the nodes of a walk ---------------------------------------------------------------------- */

bool gd_walker_is_target(const gd_walker *w, const gd_accumulator *a, int index) {
    const gd_walk *walk = w->walk;
    if (!walk->inputs) return a->leaf != NULL; /* backward: every leaf */
    for (int i = a->target; i >= 0; i = w->next_target[i])
        if (a->leaf || walk->inputs[i]->node_index == index) return true;
    return false;
}

static gd_status find_targets(gd_walker *w) {
    const gd_walk *walk = w->walk;
    if (!walk->inputs) return GD_OK;
    w->next_target = gd_malloc((size_t)(walk->n_inputs + 1) * sizeof *w->next_target);
    if (!w->next_target) return gd_no_memory(NULL, "for a backward pass");
    for (int i = 0; i < walk->n_inputs; i++) {
        const gd_tensor *t = walk->inputs[i];
        const int k = gd_walker_find(w, t->node ? (const void *)t->node : t);
        if (k < 0) continue;
        w->next_target[i] = w->accumulators[k].target;
        w->accumulators[k].target = i;
    }
    return GD_OK;
}

static gd_status collect_nodes(gd_walker *w) {
    int index;
    for (int64_t i = 0; i < w->walk->n_outputs; i++) {
        gd_tensor *y = w->walk->outputs[i];
        if (!y->node) {
            if (y->requires_grad && gd_walker_find(w, y) < 0)
                GD_TRY(add_accumulator(w, NULL, y, &index));
        } else if (gd_walker_find(w, y->node) < 0)
            GD_TRY(add_accumulator(w, y->node, NULL, &index));
    }
    for (int at = 0; at < w->count; at++) { /* the list grows meanwhile */
        gd_node *node = w->accumulators[at].node;
        if (node && gd_walker_ends_at(w, node)) continue;
        for (int i = 0; node && i < node->n_in; i++) {
            gd_slot *slot = &node->slots[i];
            const void *key = slot->node ? (const void *)slot->node : slot->leaf;
            if (!key) continue;
            int k = gd_walker_find(w, key);
            if (k < 0) GD_TRY(add_accumulator(w, slot->node, slot->leaf, &k));
            w->accumulators[k].pending++;
        }
    }
    return find_targets(w);
}

static int compare_later_first(const void *a, const void *b, void *context) {
    const gd_accumulator *accumulators = context;
    const gd_node *x = accumulators[*(const int *)a].node, *y = accumulators[*(const int *)b].node;
    uint64_t p = x ? x->order : 0, q = y ? y->order : 0;
    return p > q ? -1 : p < q;
}

/* The indices of all accumulators, latest nodes first. */
static gd_status sort_order(gd_walker *w, int **order) {
    *order = gd_malloc((size_t)(w->count + 1) * sizeof **order);
    if (!*order) return gd_no_memory(NULL, "for a backward pass");
    for (int i = 0; i < w->count; i++) (*order)[i] = i;
    qsort_r(*order, (size_t)w->count, sizeof **order, compare_later_first, w->accumulators);
    return GD_OK;
}

gd_status gd_walker_collect(gd_walker *w, int **order) {
    *order = NULL;
    GD_TRY(collect_nodes(w));
    return sort_order(w, order);
}

/* Whether a node of a graph passes no gradient. */
static bool stops_gradient(const gd_walker *w, const gd_node *node) {
    return node->stops || (node->op && (node->op->flags & GD_OP_NO_GRAD)) ||
           gd_walker_ends_at(w, node);
}

void gd_walker_mark_needed(gd_walker *w, const int *order) {
    for (int i = w->count; i-- > 0;) { /* from the earliest */
        gd_accumulator *p = &w->accumulators[order[i]];
        if (p->leaf) {
            p->needed = gd_walker_is_target(w, p, 0);
            continue;
        }
        const int n_in = stops_gradient(w, p->node) ? 0 : p->node->n_in;
        for (int k = 0; k < n_in && !p->has_requested_ancestor; k++) {
            gd_slot *slot = &p->node->slots[k];
            const void *key = slot->node ? (const void *)slot->node : slot->leaf;
            if (key) p->has_requested_ancestor = w->accumulators[gd_walker_find(w, key)].needed;
        }
        p->needed = p->has_requested_ancestor;
        for (int k = 0; k < p->node->n_out && !p->needed; k++)
            p->needed = gd_walker_is_target(w, p, k);
    }
}

/* --- what a gradient reaches ------------------------------------------------------------------ */

/* Marks the accumulators that a gradient of the outputs reaches. */
static void mark_reached(gd_walker *w, const int *order, bool *reached) {
    for (int i = 0; i < w->count; i++) w->accumulators[i].done = false;
    for (int64_t i = 0; i < w->walk->n_outputs; i++) {
        const gd_tensor *y = w->walk->outputs[i];
        const int k = gd_walker_find(w, y->node ? (const void *)y->node : y);
        if (k >= 0) w->accumulators[k].done = true;
    }
    for (int i = 0; i < w->count; i++) { /* from the latest */
        const gd_accumulator *p = &w->accumulators[order[i]];
        if (!p->done || !p->node || stops_gradient(w, p->node)) continue;
        for (int k = 0; k < p->node->n_in; k++) {
            const gd_slot *slot = &p->node->slots[k];
            const void *key = slot->node ? (const void *)slot->node : slot->leaf;
            if (key && gd_dtype_is_float((gd_dtype)slot->dtype))
                w->accumulators[gd_walker_find(w, key)].done = true;
        }
    }
    for (int64_t i = 0; i < w->walk->n_inputs; i++) {
        const gd_tensor *x = w->walk->inputs[i];
        const int k = gd_walker_find(w, x->node ? (const void *)x->node : x);
        reached[i] = k >= 0 && w->accumulators[k].done;
    }
}

/* A deferred walk runs over nodes that are recorded again, without their hooks. */
static gd_status check_no_hooks(const gd_walker *w) {
    for (int i = 0; i < w->count; i++) {
        const gd_accumulator *p = &w->accumulators[i];
        const gd_hook *hook = p->node                        ? p->node->hooks
                              : gd_walker_is_target(w, p, 0) ? p->leaf->hooks
                                                             : NULL;
        while (hook && !hook->fn) hook = hook->next;
        if (hook)
            return gd_fail(GD_E_UNSUPPORTED,
                           "the hook of %s is on a tensor whose gradient goes through a branch or "
                           "a loop, or waits for a size; it cannot be called there",
                           hook->site ? hook->site : "(unknown place)");
    }
    return GD_OK;
}

gd_status gd_walk_is_deferred(const gd_walk *walk, bool *waits, bool *reached) {
    gd_walker w = {.walk = walk};
    gd_status status = collect_nodes(&w);
    *waits = false;
    for (int i = 0; i < w.count && !*waits; i++) {
        const gd_node *node = w.accumulators[i].node;
        if (node && node->op && (node->op->flags & GD_OP_OPAQUE))
            *waits |= !gd_this_thread.settled || !node->op->vjp;
        for (int k = 0; node && k < node->n_in + node->n_out; k++)
            for (int d = 0; d < node->slots[k].rank; d++)
                *waits |= node->slots[k].dims[d] == GD_UNKNOWN;
    }
    int *order = NULL;
    if (status == GD_OK && *waits) status = check_no_hooks(&w);
    if (status == GD_OK && *waits) status = sort_order(&w, &order);
    if (order) mark_reached(&w, order, reached);
    gd_free(order);
    gd_walker_free(&w);
    return status;
}

gd_status gd_walk_reaches(const gd_walk *walk, bool *reached) {
    gd_walker w = {.walk = walk};
    int *order = NULL;
    gd_status status = gd_walker_collect(&w, &order);
    if (order) mark_reached(&w, order, reached);
    gd_free(order);
    gd_walker_free(&w);
    return status;
}
