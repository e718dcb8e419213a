/* node.c - nodes and their slots: creation, release, and tensors from slots. */
#include "autograd/node.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/alloc.h"
#include "dispatch/intern.h"
#include "dispatch/subgraph.h"

static _Atomic uint64_t next_order = 1;
void (*gd_origin_free_hook)(struct gd_origin *origin);
gd_grad_hooks gd_traced_grads;
_Thread_local uint64_t gd_as_of;

static void retain_graphs(gd_node *node) {
    for (int i = 0; i < node->op->n_attrs && node->attrs; i++)
        if (node->op->attrs[i].type == GD_ATTR_GRAPH)
            gd_subgraph_retain(*(gd_subgraph **)((char *)node->attrs + node->op->attrs[i].offset));
}

static void release_graphs(gd_node *node) {
    for (int i = 0; i < node->op->n_attrs && node->attrs; i++)
        if (node->op->attrs[i].type == GD_ATTR_GRAPH)
            gd_subgraph_release(*(gd_subgraph **)((char *)node->attrs + node->op->attrs[i].offset));
}

gd_node *gd_node_new(const gd_op *op, const void *attrs, int n_in, int n_out, int n_saved) {
    size_t slots = (size_t)(n_in + n_out + n_saved) * sizeof(gd_slot);
    size_t attrs_size = op && attrs ? op->attrs_size : 0;
    gd_node *node = gd_malloc(sizeof *node + slots + attrs_size);
    if (!node) {
        gd_fail(GD_E_MEMORY, "no memory to record %s", op ? op->name : "a function");
        return NULL;
    }
    memset(node, 0, sizeof *node);
    atomic_init(&node->refs, 1);
    node->order = atomic_fetch_add_explicit(&next_order, 1, memory_order_relaxed);
    node->op = op;
    node->n_in = n_in;
    node->n_out = n_out;
    node->n_saved = n_saved;
    node->slots = (gd_slot *)(node + 1);
    for (int i = 0; i < n_in + n_out + n_saved; i++) {
        gd_slot *s = &node->slots[i]; /* dims and strides are set only up to the rank */
        memset(s, 0, offsetof(gd_slot, dims));
    }
    if (attrs_size) {
        node->attrs = (char *)node->slots + slots;
        memcpy(node->attrs, attrs, attrs_size);
        for (int i = 0; i < op->n_attrs; i++) { /* strings of the caller may be freed */
            const char **text = (const char **)((char *)node->attrs + op->attrs[i].offset);
            if (op->attrs[i].type != GD_ATTR_STRING || !*text) continue;
            *text = gd_intern(*text);
            if (!*text) {
                gd_free(node);
                gd_fail(GD_E_MEMORY, "no memory to record %s", op->name);
                return NULL;
            }
        }
        if (op->flags & GD_OP_OPAQUE) retain_graphs(node);
    }
    return node;
}

uint64_t gd_node_next_order(void) {
    return atomic_load_explicit(&next_order, memory_order_relaxed);
}

void gd_node_retain(gd_node *node) {
    atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
}

static void slot_clear(gd_slot *slot, bool output) {
    if (slot->storage) gd_storage_release(slot->storage);
    if (slot->leaf) gd_object_release(&slot->leaf->object);
    if (slot->captured) gd_object_release(&slot->captured->object);
    gd_node *node = slot->node;
    slot->storage = NULL;
    slot->leaf = slot->captured = NULL;
    slot->node = NULL;
    if (node && !output) gd_node_release(node);
}

_Thread_local int gd_hooks_running;

void gd_hook_free(gd_hook *hook) {
    if (hook->fn && hook->release) hook->release(hook->user);
    gd_free(hook);
}

static void node_free(gd_node *node) {
    for (int i = 0; i < node->n_in + node->n_out + node->n_saved; i++)
        slot_clear(&node->slots[i], i >= node->n_in && i < node->n_in + node->n_out);
    while (node->hooks) {
        gd_hook *hook = node->hooks;
        node->hooks = hook->next;
        gd_hook_free(hook);
    }
    if (node->user_free) node->user_free(node->user);
    if (node->op && (node->op->flags & GD_OP_OPAQUE)) release_graphs(node);
    if (node->origin) gd_origin_free_hook(node->origin);
    gd_free(node);
}

/* Released nodes wait in a list, since freeing one may release the next: recursion over a chain of
 * a hundred thousand nodes would overflow the stack. */
static _Thread_local gd_node *dead;
static _Thread_local bool freeing;

void gd_node_release(gd_node *node) {
    if (!node) return;
    if (atomic_load_explicit(&node->refs, memory_order_acquire) != 1 && /* see gd_object_release */
        atomic_fetch_sub_explicit(&node->refs, 1, memory_order_acq_rel) != 1)
        return;
    node->next_dead = dead;
    dead = node;
    if (freeing) return;
    freeing = true;
    while (dead) {
        gd_node *next = dead;
        dead = next->next_dead;
        node_free(next);
    }
    freeing = false;
}

static void hooks_release(gd_hook *hook) {
    while (hook) {
        gd_hook *next = hook->next;
        gd_hook_free(hook);
        hook = next;
    }
}

static void __attribute__((constructor)) set_hooks(void) {
    gd_node_release_hook = gd_node_release;
    gd_hooks_release_hook = hooks_release;
}

/* --- slots ------------------------------------------------------------------------------------ */

void gd_slot_set(gd_slot *slot, gd_tensor *t, bool save) {
    slot->present = t != NULL;
    if (!t) return;
    slot->device = t->device;
    slot->offset = t->offset;
    slot->dtype = t->dtype;
    slot->rank = t->rank;
    slot->requires_grad = t->requires_grad;
    slot->symbol = t->kind == GD_SYMBOL;
    for (int i = 0; i < t->rank; i++) slot->dims[i] = t->dims[i], slot->strides[i] = t->strides[i];
    slot->index = t->node_index;
    slot->node = t->node;
    if (t->node) gd_node_retain(t->node);
    else if (t->requires_grad) {
        slot->leaf = t;
        gd_object_retain(&t->object);
    }
    if (save && t->storage) {
        slot->saved = true;
        slot->storage = t->storage;
        gd_storage_retain(t->storage);
        slot->version = atomic_load_explicit(&t->storage->version, memory_order_relaxed);
    }
}

void gd_slot_link(gd_slot *slot, const gd_slot *from) {
    *slot = *from;
    slot->storage = NULL;
    slot->captured = NULL;
    slot->saved = false;
    if (slot->node) gd_node_retain(slot->node);
    if (slot->leaf) gd_object_retain(&slot->leaf->object);
}

void gd_slot_replace(gd_slot *slot, gd_tensor *t) {
    slot_clear(slot, false);
    memset(slot, 0, offsetof(gd_slot, dims));
    gd_slot_set(slot, t, true);
}

void gd_slot_capture(gd_slot *slot, gd_tensor *t) {
    if (!slot->storage || !t || t->node || slot->captured) return;
    gd_object_retain(&t->object);
    slot->captured = t;
}

gd_tensor *gd_slot_current(const gd_slot *slot) {
    if (slot->leaf) return slot->leaf;
    if (slot->captured && slot->captured->storage == slot->storage) return slot->captured;
    gd_tensor *t =
        gd_tensor_bare(GD_VALUE, slot->device, (gd_dtype)slot->dtype, slot->rank, slot->dims);
    if (!t) return NULL;
    for (int i = 0; i < slot->rank; i++) t->strides[i] = slot->strides[i];
    t->offset = slot->offset;
    t->storage = slot->storage;
    gd_storage_retain(t->storage);
    if (slot->node) { /* an output of a node on the tape */
        t->requires_grad = slot->requires_grad;
        t->node = slot->node;
        t->node_index = slot->index;
        gd_node_retain(t->node);
    }
    return t;
}

gd_tensor *gd_slot_get(const gd_slot *slot, gd_node *self, const char *what) {
    gd_tensor_kind kind = slot->symbol ? GD_SYMBOL : slot->storage ? GD_VALUE : GD_META;
    if (slot->storage && atomic_load(&slot->storage->version) != slot->version) {
        char shape[128];
        gd_fail(GD_E_STATE,
                "the gradient of %s needs a tensor of shape %s that was overwritten since by an "
                "in-place op (write %u, the gradient saw %u)",
                what, gd_shape_text(slot->rank, slot->dims, shape, sizeof shape),
                (unsigned)atomic_load(&slot->storage->version), (unsigned)slot->version);
        return NULL;
    }
    if (slot->leaf && kind == GD_VALUE && slot->leaf->storage == slot->storage) {
        /* the leaf itself, so that it can be differentiated again */
        if (gd_scope_reserve(1) != GD_OK) return NULL;
        gd_object_retain(&slot->leaf->object);
        gd_scope_adopt(&slot->leaf->object);
        return slot->leaf;
    }
    gd_tensor *t =
        gd_tensor_bare(kind, slot->device, (gd_dtype)slot->dtype, slot->rank, slot->dims);
    if (!t) return NULL;
    for (int i = 0; i < slot->rank; i++) t->strides[i] = slot->strides[i];
    t->offset = slot->offset;
    t->requires_grad = slot->requires_grad;
    if (slot->storage) {
        t->storage = slot->storage;
        gd_storage_retain(t->storage);
    }
    gd_node *node = self ? self : slot->node;
    if (node) {
        t->node = node;
        t->node_index = slot->index;
        gd_node_retain(node);
    }
    return t;
}

void gd_node_attach(gd_node *node, gd_tensor *t, int index) {
    gd_node_retain(node);
    gd_node_give(node, t, index);
}

void gd_node_give(gd_node *node, gd_tensor *t, int index) {
    gd_node *old = t->node;
    t->node = node;
    t->node_index = index;
    t->requires_grad = true;
    if (old) gd_node_release(old);
}
