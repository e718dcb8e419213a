/* walker.c - the backward pass, for the tape and for graphs.
 *
 * Later nodes have larger numbers. A walk from the largest number down visits every node after all
 * its users, so that its gradients are complete and were added in a fixed order. There is no
 * recursion, so chains may have any length.
 *
 * walk_nodes.c collects the nodes of a walk, and rule.c runs the gradient rule of a node.
 */
#include "autograd/walker.h"

#include <string.h>

#include "autograd/rule.h"
#include "autograd/walk_nodes.h"
#include "core/alloc.h"
#include "gradus/ops.h"
#include "dispatch/autocast.h"
#include "dispatch/call.h"

/* --- accumulating gradients ------------------------------------------------------------------- */

/* Adds g to a sum, and retains it if it is the first. */
static gd_status accumulate_gradient(gd_tensor **sum, gd_tensor *g) {
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
    const gd_status before = gd_error_status();
    for (const gd_hook *h = hooks; h; h = h->next) {
        gd_tensor *other;
        if (h->index != index || !h->fn) continue;
        gd_hooks_running++;
        gd_status status = GD_OK;
        if ((*grad)->kind == GD_SYMBOL) status = gd_traced_grads.hook(h, *grad, &other);
        else other = h->fn(*grad, h->user);
        gd_hooks_running--;
        GD_TRY(status);
        if (gd_error_status() != before) return gd_failure();
        if (!other) continue;
        if (other->kind == GD_FAILED) return gd_failure();
        gd_object_retain(&other->object);
        gd_object_release(&(*grad)->object);
        *grad = other;
    }
    return GD_OK;
}

/* Fails if the leaf has got another device or dtype since the forward pass (gd_tensor_become). */
static gd_status check_leaf_moved(const gd_tensor *leaf, const gd_tensor *g) {
    char a[160], b[160];
    if (g->kind != GD_VALUE || (g->dtype == leaf->dtype && g->device == leaf->device)) return GD_OK;
    return gd_fail(
        GD_E_STATE,
        "the gradient of a leaf is %s on %s, but the leaf has become %s on %s since the forward",
        gd_describe(g, a, sizeof a), g->device->name, gd_describe(leaf, b, sizeof b),
        leaf->device->name);
}

/* The gradient of a leaf is complete: adds it to that of the leaf, or keeps it for the caller. */
static gd_status finish_leaf(gd_walker *w, gd_accumulator *p) {
    gd_tensor *leaf = p->leaf;
    if (!p->grads[0] || p->done) return GD_OK;
    p->done = true;
    GD_TRY(check_leaf_moved(leaf, p->grads[0]));
    if (!w->walk->inputs || !(gd_walks_stay_inside || w->walk->inner))
        GD_TRY(gd_call_hooks(leaf->hooks, 0, &p->grads[0]));
    if (w->walk->inputs) return GD_OK; /* collected at the end */
    gd_tensor *g = p->grads[0], *old = leaf->grad;
    if (w->walk->create_graph || (old && (old->requires_grad || old->node))) { /* has history */
        gd_tensor *sum = old ? gd_add(old, g) : g;
        return sum->kind == GD_FAILED ? gd_failure() : gd_replace_grad(leaf, sum);
    }
    if (old) return gd_add_(old, g)->kind == GD_FAILED ? gd_failure() : GD_OK;
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

static gd_status fill_args(gd_walker *w, gd_accumulator *p, gd_rule_args *a) {
    gd_node *node = p->node;
    const char *what = node->op ? node->op->name : node->function->name;
    for (int i = 0; i < node->n_in; i++) {
        gd_slot *slot = &node->slots[i];
        const void *key = slot->node ? (const void *)slot->node : slot->leaf;
        a->needs[i] = key && w->accumulators[gd_walker_find(w, key)].needed;
        if (!slot->present) continue;
        /* a graph reads the values of its run; on the tape an overwritten value is an error */
        a->x[i] =
            node->graph && slot->storage ? gd_slot_current(slot) : gd_slot_get(slot, NULL, what);
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

static gd_status call_node_hooks(gd_walker *w, gd_accumulator *p) {
    const gd_node *node = p->node;
    for (int i = 0; i < node->n_out && node->hooks; i++) {
        const bool outside = w->walk->inner || (gd_walks_stay_inside && !node->graph);
        const bool elsewhere = outside && gd_walker_is_target(w, p, i);
        if (p->grads[i] && !elsewhere) GD_TRY(gd_call_hooks(node->hooks, i, &p->grads[i]));
    }
    return GD_OK;
}

static gd_status walk_node(gd_walker *w, gd_accumulator *p) {
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
    if (!block) return gd_no_memory(NULL, "for a gradient rule");
    gd_rule_args a = {block, block + n, block + n + m, block + n + 2 * m,
                      (bool *)(block + 2 * n + 2 * m)};
    gd_status status = fill_args(w, p, &a);
    if (status == GD_OK) status = gd_rule_run(w->walk, node, &a);
    for (int i = 0; i < n && status == GD_OK; i++) {
        if (!a.needs[i] || !a.gx[i]) continue;
        gd_slot *slot = &node->slots[i];
        if (a.gx[i]->kind != GD_FAILED) a.gx[i] = fit_gradient(a.gx[i], slot);
        if (a.gx[i]->kind == GD_FAILED) status = gd_failure();
        else if (slot->node)
            status = accumulate_gradient(
                &w->accumulators[gd_walker_find(w, slot->node)].grads[slot->index], a.gx[i]);
        else if (slot->leaf)
            status = accumulate_gradient(&w->accumulators[gd_walker_find(w, slot->leaf)].grads[0],
                                         a.gx[i]);
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

static gd_status seed_outputs(gd_walker *w) {
    for (int64_t i = 0; i < w->walk->n_outputs; i++) {
        gd_tensor *y = w->walk->outputs[i], *g = w->walk->gradients[i];
        int k = gd_walker_find(w, y->node ? (const void *)y->node : y);
        if (k >= 0)
            GD_TRY(accumulate_gradient(&w->accumulators[k].grads[y->node ? y->node_index : 0], g));
    }
    return GD_OK;
}

/* After a visit of a node: finishes leaves of which it was the last user. */
static gd_status count_down_leaves(gd_walker *w, const gd_node *node) {
    for (int k = 0; k < node->n_in; k++) {
        const gd_tensor *leaf = node->slots[k].node ? NULL : node->slots[k].leaf;
        if (!leaf) continue;
        gd_accumulator *p = &w->accumulators[gd_walker_find(w, leaf)];
        if (--p->pending > 0 || !p->needed) continue;
        gd_scope *scope = gd_scope_open();
        gd_status status = finish_leaf(w, p);
        gd_scope_close(&scope);
        GD_TRY(status);
    }
    return GD_OK;
}

static gd_status walk_nodes(gd_walker *w, const int *order) {
    GD_TRY(seed_outputs(w));
    for (int i = 0; i < w->count; i++) {
        gd_accumulator *p = &w->accumulators[order[i]];
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
        if (!gd_walker_ends_at(w, p->node)) GD_TRY(count_down_leaves(w, p->node));
        /* the gradients of this node are passed on; targets are collected at the end */
        for (int k = 0; k < p->node->n_out && !w->walk->inputs; k++) {
            gd_release(p->grads[k]);
            p->grads[k] = NULL;
        }
    }
    return GD_OK;
}

static void collect_results(gd_walker *w) {
    for (int64_t i = 0; i < w->walk->n_inputs; i++) {
        gd_tensor *x = w->walk->inputs[i];
        int k = gd_walker_find(w, x->node ? (const void *)x->node : x);
        gd_tensor *g = k < 0 ? NULL : w->accumulators[k].grads[x->node ? x->node_index : 0];
        w->walk->results[i] = gd_retain(g);
    }
}

gd_status gd_walk_back(const gd_walk *walk) {
    GD_TRY(gd_check_stack());
    gd_walker w = {.walk = walk};
    int *order = NULL;
    gd_status status = gd_walker_collect(&w, &order);
    if (status == GD_OK) {
        gd_walker_mark_needed(&w, order);
        int before = walk->create_graph ? gd_enable_grad_begin() : gd_no_grad_begin();
        const int autocast = gd_autocast_pause(GD_DTYPE_NONE);
        gd_this_thread.rules++;
        status = walk_nodes(&w, order);
        gd_this_thread.rules--;
        gd_autocast_resume(&autocast);
        gd_grad_mode_end(&before);
    }
    if (status == GD_OK && walk->inputs) collect_results(&w);
    gd_free(order);
    gd_walker_free(&w);
    return status;
}
