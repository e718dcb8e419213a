/* recompute.c - gd_recompute: a segment of the tape that saves only its inputs (gradient
 * checkpointing).
 *
 * Forward runs with the tape on, to find the sources of the segment: its inputs, and tensors that
 * the function captures (the weights of a layer). Then one node with these inputs replaces all
 * nodes of the segment, which are freed with their saved tensors. Backward runs the function again,
 * with the same random numbers, and walks back to the start of the segment.
 */
#include <string.h>

#include "autograd/function.h"
#include "autograd/node.h"
#include "autograd/walker.h"
#include "core/alloc.h"
#include "core/freed.h"
#include "core/grow.h"
#include "core/map.h"
#include "core/random.h"
#include "gradus/ops.h"
#include "dispatch/autocast.h"

typedef struct {
    gd_fn fn;
    void *user;
    gd_rng rng;   /* before the first run */
    int autocast; /* the settings of the first run */
    bool tf32;
    void (*release)(void *user);
    bool kept; /* by the tape */
} segment;

static void segment_free(void *user) {
    segment *s = user;
    if (s->release) s->release(s->user);
    gd_free(s);
}

/* --- the sources of a segment ----------------------------------------------------------------- */

typedef struct {
    gd_map seen; /* nodes of the segment, and the keys of its sources */
    gd_node **todo;
    int n_todo, todo_room;
    gd_slot **sources; /* slots of nodes of the segment that read a source, one for each source */
    int n_sources, sources_room;
} search;

static bool push_node(search *s, gd_node *node) {
    if (!gd_map_put(&s->seen, node, 0) || !gd_grow(s->todo, s->n_todo, s->todo_room)) return false;
    s->todo[s->n_todo++] = node;
    return true;
}

/* The address that stands for a source: its leaf, or the output slot of its node. */
static const void *source_key(const gd_slot *slot) {
    return slot->node ? (const void *)&slot->node->slots[slot->node->n_in + slot->index]
                      : (const void *)slot->leaf;
}

/* Adds the source that the slot reads, unless it is known. */
static bool push_source(search *s, gd_slot *slot) {
    const void *key = source_key(slot);
    if (gd_map_find(&s->seen, key) >= 0) return true;
    if (!gd_map_put(&s->seen, key, 0) || !gd_grow(s->sources, s->n_sources, s->sources_room))
        return false;
    s->sources[s->n_sources++] = slot;
    return true;
}

/* Finds the sources of y: tensors that are older than the nodes from `since` on. */
static gd_status find_sources(search *s, const gd_tensor *y, uint64_t since) {
    bool fine = push_node(s, y->node);
    while (fine && s->n_todo > 0) {
        gd_node *node = s->todo[--s->n_todo];
        for (int i = 0; i < node->n_in && fine; i++) {
            gd_slot *slot = &node->slots[i];
            if (slot->node && slot->node->order >= since) {
                if (gd_map_find(&s->seen, slot->node) < 0) fine = push_node(s, slot->node);
            } else if (slot->node || slot->leaf) {
                fine = push_source(s, slot);
            }
        }
    }
    return fine ? GD_OK
                : gd_fail(GD_E_MEMORY,
                          "gd_recompute: no memory to find the tensors on which it depends");
}

static void search_free(search *s) {
    gd_map_free(&s->seen);
    gd_free(s->todo);
    gd_free(s->sources);
}

/* --- backward --------------------------------------------------------------------------------- */

/* Computes the gradients of y with respect to the needed sources, through nodes from `since` on. */
static gd_status walk_segment(gd_context *c, gd_tensor *y, uint64_t since, bool graph) {
    const gd_node *node = ((const gd_function_state *)c->state)->node;
    gd_tensor **by = gd_calloc(2 * (size_t)c->n_in + 1, sizeof *by), **result = by + c->n_in;
    if (!by) return gd_fail(GD_E_MEMORY, "gd_recompute: no memory for a list");
    int64_t count = 0;
    for (int i = 0; i < c->n_in; i++)
        if (c->needs[i]) by[count++] = node->slots[i].leaf ? node->slots[i].leaf : c->x[i];
    gd_status status = gd_walk_back(&(gd_walk){.outputs = &y,
                                               .gradients = c->gy,
                                               .n_outputs = 1,
                                               .inputs = by,
                                               .n_inputs = count,
                                               .results = result,
                                               .since = since,
                                               .retain_graph = graph,
                                               .create_graph = graph,
                                               .inner = true});
    for (int i = 0, at = 0; i < c->n_in; i++) {
        gd_tensor *g = c->needs[i] ? result[at++] : NULL;
        if (!g) continue;
        gd_status taken = gd_scope_take(&g->object);
        c->gx[i] = taken == GD_OK ? g : NULL;
        if (status == GD_OK) status = taken;
    }
    gd_free(by);
    return status;
}

static gd_status rerun_segment(gd_context *c) {
    const segment *s = c->user;
    const gd_node *node = ((const gd_function_state *)c->state)->node;
    const int n = node->n_saved;
    const bool graph = gd_grad_enabled();
    gd_tensor **x = gd_list_new(gd_with_missing(n));
    if (!x) return GD_E_MEMORY;
    gd_put_missing(x, n, GD_READER_FN);
    for (int i = 0; i < n; i++) {
        if (!node->slots[node->n_in + node->n_out + i].present) continue;
        x[i] = gd_saved(c, i);
        if (x[i]->kind == GD_FAILED) return gd_failure();
    }
    const uint64_t since = gd_node_next_order();
    gd_rng now = gd_rng_state();
    gd_rng_restore(s->rng);
    int before = gd_enable_grad_begin();
    const int autocast = gd_autocast_pause(s->autocast);
    const bool tf32 = gd_allow_tf32(s->tf32);
    gd_tensor *y = s->fn((gd_tensors){x, n}, s->user);
    gd_allow_tf32(tf32);
    gd_autocast_resume(&autocast);
    gd_grad_mode_end(&before);
    gd_rng_restore(now);
    if (!y || y->kind == GD_FAILED)
        return y ? gd_failure() : gd_fail(GD_E_STATE, "gd_recompute: the function returned NULL");
    if (y->rank != c->gy[0]->rank ||
        memcmp(y->dims, c->gy[0]->dims, sizeof(int64_t) * y->rank) != 0)
        return gd_fail(GD_E_STATE,
                       "gd_recompute: the function's result had another shape the second time");
    if (!y->requires_grad) return GD_OK; /* it does not depend on a source */
    return walk_segment(c, y, since, graph);
}

static void recompute_backward(gd_context *c) {
    gd_status status = rerun_segment(c);
    if (status == GD_OK) return;
    for (int i = 0; i < c->n_in; i++)
        if (c->needs[i]) c->gx[i] = gd_tensor_fail(status);
}

static const gd_function recompute_function = {.name = "recompute", .backward = recompute_backward};

/* --- forward ---------------------------------------------------------------------------------- */

/* Makes y the output of one node with these sources. */
static gd_status record_segment(segment *s, gd_tensors inputs, const search *found, gd_tensor *y) {
    const int n = (int)inputs.count, sources = found->n_sources;
    gd_node *node = gd_node_new(NULL, NULL, sources, 1, n);
    segment *kept = node ? gd_malloc(sizeof *kept) : NULL;
    if (!kept) {
        if (node) gd_node_release(node);
        return gd_fail(GD_E_MEMORY, "gd_recompute: no memory to record it");
    }
    *kept = *s;
    node->function = &recompute_function;
    node->user = kept;
    node->user_free = segment_free;
    s->kept = true;
    for (int i = 0; i < sources; i++) gd_slot_link(&node->slots[i], found->sources[i]);
    for (int i = 0; i < n; i++) gd_slot_set(&node->slots[sources + 1 + i], inputs.at[i], true);
    gd_slot *out = &node->slots[sources];
    gd_slot_set(out, y, false);
    out->index = 0;
    out->requires_grad = true;
    gd_node_give(node, y, 0);
    return GD_OK;
}

static gd_status recompute_segment(segment *s, gd_tensors inputs, gd_tensor **result) {
    for (int64_t i = 0; i < inputs.count; i++)
        if (inputs.at[i] && inputs.at[i]->kind == GD_FAILED) return gd_failure();
    const uint64_t since = gd_node_next_order();
    gd_tensor *y = *result = s->fn(gd_list_for(GD_READER_FN, inputs), s->user);
    if (!y) return GD_OK;
    if (y->kind == GD_FAILED) return gd_failure();
    if (!y->node || y->node->order < since)
        return GD_OK; /* no gradient, or an input that is returned */
    search found = {.n_todo = 0};
    gd_status status = find_sources(&found, y, since);
    if (status == GD_OK && !(*result = gd_tensor_alias(y)))
        status = GD_E_MEMORY; /* the nodes of the segment are freed */
    if (status == GD_OK) status = record_segment(s, inputs, &found, *result);
    search_free(&found);
    return status;
}

gd_tensor *gd_recompute_at(const char *site, gd_fn fn, gd_tensors inputs, void *user,
                           const gd_recompute_options *options) {
    options = options ? options : GD_RECOMPUTE_OPTIONS_();
    GD_CALLED_FROM(site);
    if (!fn || inputs.count < 0 || (inputs.count > 0 && !inputs.at)) {
        if (options->release) options->release(user);
        return gd_tensor_fail(
            gd_fail(GD_E_ARGUMENT, "gd_recompute: the function or the list of inputs is NULL"));
    }
    bool symbols = gd_this_thread.tracer != NULL;
    for (int64_t i = 0; i < inputs.count; i++) symbols |= gd_tensor_is_symbol(inputs.at[i]);
    const bool plain = symbols || !gd_grad_enabled();
    /* what a plain call of the function creates belongs to the scope of the call, if it has one */
    gd_scope *scope = plain && gd_this_thread.depth > 0 ? NULL : gd_scope_open();
    segment s = {
        fn,   user, gd_rng_state(), gd_this_thread.autocast, gd_this_thread.tf32, options->release,
        false};
    gd_tensor *y = NULL;
    gd_status status = GD_OK;
    /* without a tape nothing is saved; a graph plans its memory itself */
    if (plain) y = fn(gd_list_for(GD_READER_FN, inputs), user);
    else status = recompute_segment(&s, inputs, &y);
    if (y && y->kind == GD_FAILED && gd_is_missing(y))
        status = gd_check_freed(y, "gd_recompute: its result");
    else if (status == GD_OK && !y)
        status = gd_fail(GD_E_ARGUMENT, "gd_recompute: the function returned NULL");
    if (status == GD_OK && scope) gd_scope_hand_out(&y->object);
    gd_scope_close(&scope);
    if (!s.kept && s.release) s.release(user);
    return status == GD_OK ? y : gd_tensor_fail(status);
}
