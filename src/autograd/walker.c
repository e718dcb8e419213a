/* walker.c - the backward pass, for the tape and for graphs.
 *
 * Later nodes have larger numbers, so a walk from the largest number down visits every node after
 * all its users: its gradients are complete, and they were added in a fixed order. There is no
 * recursion, so chains may have any length.
 *
 * Order: collecting the nodes and leaves; accumulating gradients; gradient rules; the walk.
 */
#include "autograd/walker.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/function.h"
#include "autograd/node.h"
#include "core/alloc.h"
#include "core/grow.h"
#include "core/map.h"
#include "gradus/ops.h"
#include "ops/autocast.h"
#include "ops/call.h"

/* An accumulator of gradients: of the outputs of a node, or of a leaf. */
typedef struct {
    gd_node *node; /* NULL: a leaf */
    gd_tensor *leaf;
    gd_tensor **grads;           /* one for each output; 1 for a leaf */
    int pending;                 /* leaf: users that are not visited yet */
    bool done;                   /* leaf: its gradient is delivered */
    bool needed;                 /* its gradient is requested, or that of an ancestor */
    bool has_requested_ancestor; /* node: that of an ancestor is; otherwise its rule need not run */
} accumulator;

typedef struct {
    accumulator *accumulators;
    int count, capacity;
    gd_map at; /* index of the node or the leaf */
    const gd_walk *walk;
} walker;

/* --- the map of accumulators ------------------------------------------------------------------ */

static int find_index(const walker *w, const void *key) { return gd_map_find(&w->at, key); }

static gd_status add_accumulator(walker *w, gd_node *node, gd_tensor *leaf, int *index) {
    const void *key = node ? (const void *)node : leaf;
    if (!gd_grow(w->accumulators, w->count, w->capacity) || !gd_map_put(&w->at, key, w->count))
        return gd_fail(GD_E_MEMORY, "no memory to walk back over %d nodes", w->count);
    int n = node ? node->n_out : 1;
    gd_tensor **grads = gd_calloc((size_t)n, sizeof *grads);
    if (!grads) return gd_fail(GD_E_MEMORY, "no memory for gradients");
    w->accumulators[w->count] = (accumulator){.node = node, .leaf = leaf, .grads = grads};
    *index = w->count++;
    return GD_OK;
}

static void walker_free(walker *w) {
    for (int i = 0; i < w->count; i++) {
        int n = w->accumulators[i].node ? w->accumulators[i].node->n_out : 1;
        for (int k = 0; k < n; k++)
            if (w->accumulators[i].grads[k])
                gd_object_release(&w->accumulators[i].grads[k]->object);
        gd_free(w->accumulators[i].grads);
    }
    gd_free(w->accumulators);
    gd_map_free(&w->at);
}

_Thread_local bool gd_walks_stay_inside;

/* Whether the walk ends at this node. */
static bool ends_at(const walker *w, const gd_node *node) {
    return node->order < w->walk->since || (gd_walks_stay_inside && !node->graph);
}

/* --- first pass: what is there, and what is needed -------------------------------------------- */

static bool is_target(const walker *w, const gd_node *node, int index, const gd_tensor *leaf) {
    const gd_walk *walk = w->walk;
    if (!walk->inputs) return leaf != NULL; /* backward: every leaf */
    for (int64_t i = 0; i < walk->n_inputs; i++) {
        const gd_tensor *t = walk->inputs[i];
        if (leaf ? t == leaf : (node && t->node == node && t->node_index == index)) return true;
    }
    return false;
}

static gd_status collect_nodes(walker *w) {
    int index;
    for (int64_t i = 0; i < w->walk->n_outputs; i++) {
        gd_tensor *y = w->walk->outputs[i];
        if (!y->node) {
            if (y->requires_grad && find_index(w, y) < 0)
                GD_TRY(add_accumulator(w, NULL, y, &index));
        } else if (find_index(w, y->node) < 0) GD_TRY(add_accumulator(w, y->node, NULL, &index));
    }
    for (int at = 0; at < w->count; at++) { /* the list grows meanwhile */
        gd_node *node = w->accumulators[at].node;
        if (node && ends_at(w, node)) continue;
        for (int i = 0; node && i < node->n_in; i++) {
            gd_slot *slot = &node->slots[i];
            const void *key = slot->node ? (const void *)slot->node : slot->leaf;
            if (!key) continue;
            int k = find_index(w, key);
            if (k < 0) GD_TRY(add_accumulator(w, slot->node, slot->leaf, &k));
            w->accumulators[k].pending++;
        }
    }
    return GD_OK;
}

static int compare_later_first(const void *a, const void *b, void *context) {
    const accumulator *accumulators = context;
    const gd_node *x = accumulators[*(const int *)a].node, *y = accumulators[*(const int *)b].node;
    uint64_t p = x ? x->order : 0, q = y ? y->order : 0;
    return p > q ? -1 : p < q;
}

/* The indices of all accumulators, latest nodes first. */
static gd_status sort_order(walker *w, int **order) {
    *order = gd_malloc((size_t)(w->count + 1) * sizeof **order);
    if (!*order) return gd_fail(GD_E_MEMORY, "no memory to walk back");
    for (int i = 0; i < w->count; i++) (*order)[i] = i;
    qsort_r(*order, (size_t)w->count, sizeof **order, compare_later_first, w->accumulators);
    return GD_OK;
}

/* Whether a node of a graph passes no gradient. */
static bool stops_gradient(const walker *w, const gd_node *node) {
    return node->stops || (node->op && (node->op->flags & GD_OP_NO_GRAD)) || ends_at(w, node);
}

static void mark_needed(walker *w, const int *order) {
    for (int i = w->count; i-- > 0;) { /* from the earliest */
        accumulator *p = &w->accumulators[order[i]];
        if (p->leaf) {
            p->needed = is_target(w, NULL, 0, p->leaf);
            continue;
        }
        const int n_in = stops_gradient(w, p->node) ? 0 : p->node->n_in;
        for (int k = 0; k < n_in && !p->has_requested_ancestor; k++) {
            gd_slot *slot = &p->node->slots[k];
            const void *key = slot->node ? (const void *)slot->node : slot->leaf;
            if (key) p->has_requested_ancestor = w->accumulators[find_index(w, key)].needed;
        }
        p->needed = p->has_requested_ancestor;
        for (int k = 0; k < p->node->n_out && !p->needed; k++)
            p->needed = is_target(w, p->node, k, NULL);
    }
}

/* --- gradients gather ------------------------------------------------------------------------- */

/* Adds g to a sum, and retains it if it is the first. */
static gd_status accumulate(gd_tensor **sum, gd_tensor *g) {
    if (*sum) {
        gd_tensor *total = gd_add(*sum, g);
        if (total->kind == GD_FAILED) return gd_failure();
        gd_object_retain(&total->object);
        gd_object_release(&(*sum)->object);
        *sum = total;
    } else {
        gd_object_retain(&g->object);
        *sum = g;
    }
    return GD_OK;
}

gd_status gd_call_hooks(const gd_hook *hooks, int index, gd_tensor **grad) {
    for (const gd_hook *h = hooks; h; h = h->next) {
        gd_tensor *other;
        if (h->index != index) continue;
        if ((*grad)->kind == GD_SYMBOL) GD_TRY(gd_traced_grads.hook(h, *grad, &other));
        else other = h->fn(*grad, h->user);
        if (!other) continue;
        if (other->kind == GD_FAILED) return gd_failure();
        gd_object_retain(&other->object);
        gd_object_release(&(*grad)->object);
        *grad = other;
    }
    return GD_OK;
}

/* The leaf may have another device or dtype since the forward pass (gd_tensor_become). */
static gd_status check_moved(const gd_tensor *leaf, const gd_tensor *g) {
    char a[160], b[160];
    if (g->kind != GD_VALUE || (g->dtype == leaf->dtype && g->device == leaf->device)) return GD_OK;
    return gd_fail(
        GD_E_STATE,
        "the gradient of a leaf is %s on %s, but the leaf has become %s on %s since the forward",
        gd_describe(g, a, sizeof a), g->device->name, gd_describe(leaf, b, sizeof b),
        leaf->device->name);
}

/* The gradient of a leaf is complete: adds it to that of the leaf, or keeps it for the caller. */
static gd_status finish_leaf(walker *w, accumulator *p) {
    gd_tensor *leaf = p->leaf;
    if (!p->grads[0] || p->done) return GD_OK;
    p->done = true;
    GD_TRY(check_moved(leaf, p->grads[0]));
    if (!w->walk->inputs || !gd_walks_stay_inside)
        GD_TRY(gd_call_hooks(leaf->hooks, 0, &p->grads[0]));
    if (w->walk->inputs) return GD_OK; /* collected at the end */
    gd_tensor *g = p->grads[0];
    if (w->walk->create_graph) {
        gd_tensor *sum = leaf->grad ? gd_add(leaf->grad, g) : g;
        return sum->kind == GD_FAILED ? gd_failure() : gd_replace_grad(leaf, sum);
    }
    if (leaf->grad) {
        if (leaf->grad->requires_grad || leaf->grad->node) {
            gd_tensor *sum = gd_add(leaf->grad, g);
            return sum->kind == GD_FAILED ? gd_failure() : gd_replace_grad(leaf, sum);
        }
        return gd_add_(leaf->grad, g)->kind == GD_FAILED ? gd_failure() : GD_OK;
    }
    /* the leaf needs its own copy: a gradient that passed unchanged may be shared */
    bool alone = atomic_load(&g->object.refs) == 1 && atomic_load(&g->storage->refs) == 1 &&
                 gd_is_row_major(g->rank, g->dims, g->strides) && !g->node && !g->requires_grad;
    if (!alone) g = gd_clone(g);
    return g->kind == GD_FAILED ? gd_failure() : gd_replace_grad(leaf, g);
}

/* --- one node --------------------------------------------------------------------------------- */

static gd_tensor *zeros_like_slot(const gd_slot *slot) {
    gd_device *before = gd_this_thread.device;
    gd_this_thread.device = slot->device;
    gd_tensor *zeros =
        gd_full(gd_shape_of(slot->rank, slot->dims), 0.0, .dtype = (gd_dtype)slot->dtype);
    gd_this_thread.device = before;
    return zeros;
}

/* Reduces and casts a gradient that a rule returned in the broadcast shape or in a wider dtype. */
static gd_tensor *fit_gradient(gd_tensor *g, const gd_slot *slot) {
    if (g->rank != slot->rank || memcmp(g->dims, slot->dims, sizeof(int64_t) * slot->rank) != 0)
        g = gd_sum_to(g, gd_shape_of(slot->rank, slot->dims));
    if (g->kind != GD_FAILED && g->dtype != slot->dtype) g = gd_cast(g, (gd_dtype)slot->dtype);
    return g;
}

typedef struct {
    gd_tensor **x, **y, **gy, **gx;
    bool *needs;
} rule_args;

static gd_status fill_args(walker *w, accumulator *p, rule_args *a) {
    gd_node *node = p->node;
    const char *what = node->op ? node->op->name : node->function->name;
    for (int i = 0; i < node->n_in; i++) {
        gd_slot *slot = &node->slots[i];
        const void *key = slot->node ? (const void *)slot->node : slot->leaf;
        a->needs[i] = key && w->accumulators[find_index(w, key)].needed;
        if (!slot->present) continue;
        /* a graph reads the values of its run; on the tape an overwritten value is an error */
        a->x[i] =
            node->graph && slot->storage ? gd_slot_as_it_is(slot) : gd_slot_get(slot, NULL, what);
        if (!a->x[i]) return gd_failure();
    }
    for (int i = 0; i < node->n_out; i++) {
        gd_slot *slot = &node->slots[node->n_in + i];
        if (!slot->present) continue;
        a->y[i] = gd_slot_get(slot, node, what);
        if (!a->y[i]) return gd_failure();
        if (node->op &&
            node->op->outputs[i < node->op->n_outputs ? i : node->op->n_outputs - 1].hidden)
            continue; /* no gradient */
        a->gy[i] = p->grads[i]                                ? p->grads[i]
                   : gd_dtype_is_float((gd_dtype)slot->dtype) ? zeros_like_slot(slot)
                                                              : NULL;
        if (a->gy[i] && a->gy[i]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

/* The gradient of an op without a rule: its body runs again on the tape, and is differentiated.
 * Inputs are passed as separate views, so that a tensor that is given twice has two gradients, and
 * second derivatives still reach the original. */
static gd_status run_body(const gd_walk *walk, gd_node *node, rule_args *a) {
    int n = node->n_in, m = node->n_out, n_by = 0, n_outs = 0;
    gd_tensor **block = gd_calloc((size_t)(3 * n + 3 * m) + 1, sizeof *block);
    if (!block) return gd_fail(GD_E_MEMORY, "no memory for a gradient");
    gd_tensor **x = block, **by = x + n, **result = by + n, **y = result + n, **outs = y + m,
              **gy = outs + m;
    gd_status status = GD_OK;
    int before = gd_enable_grad_begin();
    for (int i = 0; i < n; i++) {
        x[i] = a->x[i] && a->needs[i] ? gd_reshape(a->x[i], gd_tensor_shape(a->x[i])) : a->x[i];
        if (a->needs[i]) by[n_by++] = x[i];
        if (x[i] && x[i]->kind == GD_FAILED) status = gd_failure(); /* bodies read shapes */
    }
    if (status == GD_OK) node->op->expand(&(gd_expand){node->op, node->attrs, n, m, x, y});
    gd_grad_mode_end(&before);
    for (int i = 0; i < m && status == GD_OK; i++) {
        if (!y[i]) continue;
        if (y[i]->kind == GD_FAILED) status = gd_failure();
        else if (y[i]->requires_grad && a->gy[i]) {
            outs[n_outs] = y[i];
            gy[n_outs++] = a->gy[i];
        }
    }
    if (status == GD_OK && n_outs > 0)
        status = gd_walk_back(&(gd_walk){.outputs = outs,
                                         .gradients = gy,
                                         .n_outputs = n_outs,
                                         .inputs = by,
                                         .n_inputs = n_by,
                                         .results = result,
                                         .retain_graph = walk->create_graph,
                                         .create_graph = walk->create_graph});
    for (int i = 0, k = 0; i < n; i++) {
        gd_tensor *g = a->needs[i] ? result[k++] : NULL;
        if (!g) continue;
        gd_status taken = gd_scope_take(&g->object);
        a->gx[i] = taken == GD_OK ? g : NULL;
        if (status == GD_OK) status = taken;
    }
    gd_free(block);
    return status;
}

static gd_status run_rule(const gd_walk *walk, gd_node *node, rule_args *a) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt); /* a call that fails makes the rule fail */
    gd_status status = GD_OK;
    if (node->function) {
        gd_function_state state = {.node = node};
        gd_context context = {node->n_in, node->n_out, a->x,       a->y,  a->gy,
                              a->needs,   a->gx,       node->user, &state};
        node->function->backward(&context);
        return gd_attempt_end(&attempt, status);
    }
    gd_vjp vjp = {node->op, node->attrs, node->n_in, node->n_out, a->x,
                  a->y,     a->gy,       a->needs,   a->gx};
    gd_device *before =
        gd_this_thread.device; /* constants of a rule belong on the device of its values */
    const char *site = gd_this_thread.site;
    const uint64_t as_of = gd_as_of;
    if (node->graph) gd_as_of = node->as_of;
    gd_this_thread.site = node->site;
    gd_this_thread.device = node->slots[node->n_in].device;
    if (node->op->vjp) node->op->vjp(&vjp);
    else if (node->op->ir) gd_elementwise_vjp(&vjp);
    else if (node->op->expand) status = run_body(walk, node, a);
    else status = gd_fail(GD_E_UNSUPPORTED, "%s has no gradient", node->op->name);
    gd_as_of = as_of;
    gd_this_thread.device = before;
    gd_this_thread.site = site;
    return gd_attempt_end(&attempt, status);
}

static gd_status call_node_hooks(walker *w, accumulator *p) {
    const gd_node *node = p->node;
    for (int i = 0; i < node->n_out && node->hooks; i++) {
        const bool elsewhere = gd_walks_stay_inside && !node->graph && is_target(w, node, i, NULL);
        if (p->grads[i] && !elsewhere) GD_TRY(gd_call_hooks(node->hooks, i, &p->grads[i]));
    }
    return GD_OK;
}

static gd_status walk_node(walker *w, accumulator *p) {
    gd_node *node = p->node;
    bool any = false;
    for (int i = 0; i < node->n_out; i++) any |= p->grads[i] != NULL;
    GD_TRY(call_node_hooks(w, p));
    if (node->n_in == 0) return GD_OK; /* a placeholder */
    if (!any) return GD_OK;            /* no gradient; its leaves still count down below */
    if (node->spent)
        return gd_fail(GD_E_STATE,
                       "walked back through %s a second time; its saved values are gone "
                       "(.retain_graph = true keeps them)",
                       node->op ? node->op->name : node->function->name);
    int n = node->n_in, m = node->n_out;
    gd_tensor **block = gd_calloc((size_t)(2 * n + 2 * m) + 1, sizeof *block + sizeof(bool));
    if (!block) return gd_fail(GD_E_MEMORY, "no memory for a gradient rule");
    rule_args a = {block, block + n, block + n + m, block + n + 2 * m,
                   (bool *)(block + 2 * n + 2 * m)};
    gd_status status = fill_args(w, p, &a);
    if (status == GD_OK) status = run_rule(w->walk, node, &a);
    for (int i = 0; i < n && status == GD_OK; i++) {
        if (!a.needs[i] || !a.gx[i]) continue;
        gd_slot *slot = &node->slots[i];
        if (a.gx[i]->kind != GD_FAILED) a.gx[i] = fit_gradient(a.gx[i], slot);
        if (a.gx[i]->kind == GD_FAILED) status = gd_failure();
        else if (slot->node)
            status =
                accumulate(&w->accumulators[find_index(w, slot->node)].grads[slot->index], a.gx[i]);
        else if (slot->leaf)
            status = accumulate(&w->accumulators[find_index(w, slot->leaf)].grads[0], a.gx[i]);
    }
    gd_free(block);
    return status;
}

static void free_saved(gd_node *node) {
    if (node->graph) return;
    node->spent = true;
    for (int i = 0; i < node->n_in + node->n_out + node->n_saved; i++) {
        gd_storage_release(node->slots[i].storage);
        node->slots[i].storage = NULL;
    }
}

/* --- the walk --------------------------------------------------------------------------------- */

static gd_status seed_outputs(walker *w) {
    for (int64_t i = 0; i < w->walk->n_outputs; i++) {
        gd_tensor *y = w->walk->outputs[i], *g = w->walk->gradients[i];
        int k = find_index(w, y->node ? (const void *)y->node : y);
        if (k >= 0) GD_TRY(accumulate(&w->accumulators[k].grads[y->node ? y->node_index : 0], g));
    }
    return GD_OK;
}

static gd_status walk_all(walker *w, const int *order) {
    GD_TRY(seed_outputs(w));
    for (int i = 0; i < w->count; i++) {
        accumulator *p = &w->accumulators[order[i]];
        if (!p->node) { /* a leaf that is an output, and has no users */
            if (p->pending == 0) GD_TRY(finish_leaf(w, p));
            continue;
        }
        if (p->needed) {
            gd_scope *scope = gd_scope_open();
            /* if no ancestor of an input of gd_grad is requested, the walk ends there */
            gd_status status = p->has_requested_ancestor ? walk_node(w, p) : call_node_hooks(w, p);
            gd_scope_close(&scope);
            if (status != GD_OK) {
                gd_error_suffix("; in the gradient of %s at %s",
                                p->node->op ? p->node->op->name : p->node->function->name,
                                p->node->site ? p->node->site : "(unknown place)");
                return status;
            }
            if (!w->walk->retain_graph && p->has_requested_ancestor) free_saved(p->node);
        }
        const bool ends = ends_at(w, p->node);
        for (int k = 0; k < p->node->n_in && !ends; k++) {
            gd_tensor *leaf = p->node->slots[k].node ? NULL : p->node->slots[k].leaf;
            if (!leaf) continue;
            accumulator *q = &w->accumulators[find_index(w, leaf)];
            if (--q->pending > 0 || !q->needed) continue;
            gd_scope *scope = gd_scope_open();
            gd_status status = finish_leaf(w, q);
            gd_scope_close(&scope);
            GD_TRY(status);
        }
        /* the gradients of this node are passed on; targets are collected at the end */
        for (int k = 0; k < p->node->n_out && !w->walk->inputs; k++) {
            gd_release(p->grads[k]);
            p->grads[k] = NULL;
        }
    }
    return GD_OK;
}

static void collect_results(walker *w) {
    for (int64_t i = 0; i < w->walk->n_inputs; i++) {
        gd_tensor *x = w->walk->inputs[i];
        int k = find_index(w, x->node ? (const void *)x->node : x);
        gd_tensor *g = k < 0 ? NULL : w->accumulators[k].grads[x->node ? x->node_index : 0];
        w->walk->results[i] = gd_retain(g);
    }
}

/* Marks the accumulators that a gradient of the outputs reaches. */
static void mark_reached(walker *w, const int *order, bool *reached) {
    for (int i = 0; i < w->count; i++) w->accumulators[i].done = false;
    for (int64_t i = 0; i < w->walk->n_outputs; i++) {
        const gd_tensor *y = w->walk->outputs[i];
        const int k = find_index(w, y->node ? (const void *)y->node : y);
        if (k >= 0) w->accumulators[k].done = true;
    }
    for (int i = 0; i < w->count; i++) { /* from the latest */
        const accumulator *p = &w->accumulators[order[i]];
        if (!p->done || !p->node || stops_gradient(w, p->node)) continue;
        for (int k = 0; k < p->node->n_in; k++) {
            const gd_slot *slot = &p->node->slots[k];
            const void *key = slot->node ? (const void *)slot->node : slot->leaf;
            if (key && gd_dtype_is_float((gd_dtype)slot->dtype))
                w->accumulators[find_index(w, key)].done = true;
        }
    }
    for (int64_t i = 0; i < w->walk->n_inputs; i++) {
        const gd_tensor *x = w->walk->inputs[i];
        const int k = find_index(w, x->node ? (const void *)x->node : x);
        reached[i] = k >= 0 && w->accumulators[k].done;
    }
}

/* A deferred walk runs over nodes that are recorded again, without their hooks. */
static gd_status check_no_hooks(const walker *w) {
    for (int i = 0; i < w->count; i++) {
        const accumulator *p = &w->accumulators[i];
        const gd_hook *hook = p->node                          ? p->node->hooks
                              : is_target(w, NULL, 0, p->leaf) ? p->leaf->hooks
                                                               : NULL;
        if (hook)
            return gd_fail(GD_E_UNSUPPORTED,
                           "the hook of %s is on a tensor whose gradient goes through a branch or "
                           "a loop, or waits for a "
                           "size; it cannot be called there",
                           hook->site ? hook->site : "(unknown place)");
    }
    return GD_OK;
}

gd_status gd_walk_waits(const gd_walk *walk, bool *waits, bool *reached) {
    walker w = {.walk = walk};
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
    walker_free(&w);
    return status;
}

gd_status gd_walk_reaches(const gd_walk *walk, bool *reached) {
    walker w = {.walk = walk};
    int *order = NULL;
    gd_status status = collect_nodes(&w);
    if (status == GD_OK) status = sort_order(&w, &order);
    if (order) mark_reached(&w, order, reached);
    gd_free(order);
    walker_free(&w);
    return status;
}

gd_status gd_walk_back(const gd_walk *walk) {
    GD_TRY(gd_check_stack());
    walker w = {.walk = walk};
    int *order = NULL;
    gd_status status = collect_nodes(&w);
    if (status == GD_OK) status = sort_order(&w, &order);
    if (status == GD_OK) {
        mark_needed(&w, order);
        int before = walk->create_graph ? gd_enable_grad_begin() : gd_no_grad_begin();
        const int autocast = gd_autocast_pause(GD_DTYPE_NONE);
        gd_this_thread.rules++;
        status = walk_all(&w, order);
        gd_this_thread.rules--;
        gd_autocast_resume(&autocast);
        gd_grad_mode_end(&before);
    }
    if (status == GD_OK && walk->inputs) collect_results(&w);
    gd_free(order);
    walker_free(&w);
    return status;
}
