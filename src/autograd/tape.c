/* tape.c - records ops while they run; leaves, gradients and hooks of tensors; the grad mode. */
#include <string.h>

#include "autograd/node.h"
#include "core/alloc.h"
#include "gradus/ops.h"
#include "dispatch/call.h"

/* Whether the gradient needs input i: a variadic input of the record covers all further ones. */
static bool saves_input(const gd_op *op, int i) {
    int declared = i < op->n_inputs ? i : op->n_inputs - 1;
    return op->saves_in >> declared & 1;
}

static bool saves_output(const gd_op *op, int i) {
    int declared = i < op->n_outputs ? i : op->n_outputs - 1;
    return op->saves_out >> declared & 1;
}

gd_node *gd_node_record(const gd_invocation *call) {
    const gd_op *op = call->op->base ? call->op->base : call->op;
    gd_node *node = gd_node_new(op, call->attrs, call->n_in, call->n_out, 0);
    if (!node) return NULL;
    node->site = call->site;
    node->rng = call->rng;
    for (int i = 0; i < call->n_in; i++) {
        gd_slot *slot = &node->slots[i];
        gd_slot_set(slot, call->in[i], saves_input(op, i));
        /* an in-place op has already overwritten its first input */
        if (call->op->base && slot->storage && slot->storage == call->in[0]->storage)
            slot->version--;
    }
    return node;
}

static gd_status record_call(gd_invocation *call) {
    const gd_op *op = call->op->base ? call->op->base : call->op;
    bool any = false; /* integer results have no gradient */
    for (int i = 0; i < call->n_out; i++)
        any |= call->out[i] && gd_dtype_is_float((gd_dtype)call->out[i]->dtype);
    if (!any) return GD_OK;
    gd_node *node = gd_node_record(call);
    if (!node) return GD_E_MEMORY;
    gd_tensor *held = NULL; /* an output that retains the node */
    for (int i = 0; i < call->n_out; i++) {
        gd_tensor *y = call->out[i];
        gd_slot *slot = &node->slots[call->n_in + i];
        if (!y) continue;
        gd_node *before = y->node; /* of an in-place op: the input slot retains it */
        y->node = NULL;
        gd_slot_set(slot, y, saves_output(op, i));
        y->node = before;
        if (slot->leaf) { /* cannot happen: outputs are not leaves */
            gd_object_release(&slot->leaf->object);
            slot->leaf = NULL;
        }
        slot->index = i;
        slot->requires_grad = true;
        const gd_op_param *param = &op->outputs[i < op->n_outputs ? i : op->n_outputs - 1];
        if (gd_dtype_is_float((gd_dtype)y->dtype) && !param->hidden) {
            if (held) gd_node_attach(node, y, i);
            else gd_node_give(node, held = y, i);
        }
        if (y->is_view && y->storage) atomic_store(&y->storage->taped_view, true);
    }
    if (!held) gd_node_release(node);
    return GD_OK;
}

static gd_tensor *move(gd_tensor *t, gd_device *device) { return gd_to_device(t, device); }

static void __attribute__((constructor)) register_tape(void) {
    gd_record_hooks.tape = record_call;
    gd_record_hooks.move = move;
}

/* --- leaves ----------------------------------------------------------------------------------- */

static gd_status set_requires_grad(gd_tensor *t, bool wanted) {
    char text[160];
    if (!t || t->kind == GD_FAILED)
        return gd_fail(GD_E_ARGUMENT, "gd_set_requires_grad: no tensor");
    if (t->node && t->kind == GD_VALUE)
        return gd_fail(GD_E_STATE,
                       "gd_set_requires_grad: %s is the result of an op; only leaves can be set",
                       gd_describe(t, text, sizeof text));
    if (wanted && !gd_dtype_is_float((gd_dtype)t->dtype))
        return gd_fail(GD_E_DTYPE, "gd_set_requires_grad: %s is not a float tensor",
                       gd_describe(t, text, sizeof text));
    if (t->kind == GD_VALUE && t->requires_grad != wanted && gd_grads_are_traced()) {
        gd_status status = gd_traced_grads.freeze(t);
        if (status != GD_OK) gd_error_record(status); /* stops the traced function */
        GD_TRY(status);
    }
    t->requires_grad = wanted;
    return GD_OK;
}

gd_status gd_set_requires_grad_at(const char *site, gd_tensor *t, bool wanted) {
    return gd_report(site, set_requires_grad(t, wanted));
}

gd_tensor *gd_requires_grad_at(const char *site, gd_tensor *t) {
    if (t && t->kind == GD_FAILED) return t;
    return gd_report(site, set_requires_grad(t, true)) == GD_OK ? t : &gd_error_tensor;
}

bool gd_tensor_requires_grad(const gd_tensor *t) { return t && t->requires_grad; }
bool gd_tensor_is_leaf(const gd_tensor *t) { return t && t->kind == GD_VALUE && !t->node; }

gd_tensor *gd_tensor_grad(const gd_tensor *t) {
    gd_tensor *grad = NULL;
    if (!t || t->kind == GD_FAILED || !gd_grads_are_traced()) return t ? t->grad : NULL;
    gd_status status = gd_traced_grads.get(t, &grad);
    return status == GD_OK ? grad : gd_tensor_fail(status);
}

static bool is_tensor(const gd_tensor *t, bool traced) {
    return t->kind == GD_VALUE || (traced && t->kind == GD_SYMBOL);
}

gd_status gd_replace_grad(gd_tensor *t, gd_tensor *grad) {
    const bool traced = gd_grads_are_traced();
    if (!t || !is_tensor(t, traced) || (grad && !is_tensor(grad, traced)))
        return gd_fail(GD_E_ARGUMENT, "gd_set_grad: no tensor");
    if (grad &&
        (grad->rank != t->rank || memcmp(grad->dims, t->dims, sizeof(int64_t) * t->rank) != 0)) {
        char a[160], b[160];
        return gd_fail(GD_E_SHAPE, "gd_set_grad: %s is not a gradient of %s",
                       gd_describe(grad, a, sizeof a), gd_describe(t, b, sizeof b));
    }
    if (grad && !gd_dtype_is_float((gd_dtype)grad->dtype))
        return gd_fail(GD_E_DTYPE, "gd_set_grad: a gradient cannot be %s",
                       gd_dtype_name((gd_dtype)grad->dtype));
    if (grad && grad->device != t->device)
        return gd_fail(GD_E_DEVICE, "gd_set_grad: a gradient on %s for a tensor on %s",
                       grad->device->name, t->device->name);
    if (grad == t)
        return gd_fail(GD_E_ARGUMENT, "gd_set_grad: a tensor cannot be its own gradient");
    if (traced) return gd_traced_grads.set(t, grad);
    if (grad) gd_object_retain(&grad->object);
    if (t->grad) gd_object_release(&t->grad->object);
    t->grad = grad;
    return GD_OK;
}

gd_status gd_set_grad_at(const char *site, gd_tensor *t, gd_tensor *grad) {
    return gd_report(site, gd_replace_grad(t, grad));
}

void(gd_zero_grad)(gd_tensor *t) { /* the parentheses keep the macro of this name away */
    if (t && is_tensor(t, gd_grads_are_traced())) gd_report(NULL, gd_replace_grad(t, NULL));
}

void gd_zero_grad_list(gd_tensors list) {
    for (int64_t i = 0; list.at && i < list.count; i++) gd_zero_grad(list.at[i]);
}

gd_tensor *gd_detach_at(const char *site, gd_tensor *t) {
    GD_CALLED_FROM(site);
    if (!t) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_detach: the tensor is NULL"));
    if (t->kind == GD_FAILED) return t;
    if (t->kind == GD_SYMBOL) return gd_stop_gradient(t);
    gd_tensor *alias = gd_tensor_alias(t);
    return alias ? alias : gd_tensor_fail(GD_E_MEMORY);
}

static gd_hook **hooks_of(gd_tensor *t) { return t->node ? &t->node->hooks : &t->hooks; }

static void free_removed_hooks(gd_hook **at) {
    while (*at && gd_hooks_running == 0) {
        gd_hook *hook = *at;
        if (hook->fn) {
            at = &hook->next;
            continue;
        }
        *at = hook->next;
        gd_hook_free(hook);
    }
}

void gd_tensor_unhook(gd_tensor *t, gd_hook_fn fn, void *user) {
    if (!t || !fn || t->kind == GD_FAILED) return;
    gd_hook *hook = *hooks_of(t);
    while (hook && (hook->fn != fn || hook->user != user)) hook = hook->next;
    if (!hook) return;
    hook->fn = NULL;
    if (hook->release) hook->release(user);
}

static gd_status add_hook(const char *site, gd_tensor *t, gd_hook_fn fn, void *user,
                          void (*release)(void *)) {
    if (!t || !fn || !t->requires_grad)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_tensor_hook: needs a tensor that requires grad, and a function");
    if (t->kind == GD_SYMBOL) GD_TRY(gd_traced_grads.check_hook(t));
    if (t->kind == GD_VALUE)
        GD_TRY(gd_check_traced_access(t, "gd_tensor_hook of a captured tensor", true));
    gd_hook *hook = gd_malloc(sizeof *hook);
    if (!hook) return gd_no_memory(NULL, "for a hook");
    *hook =
        (gd_hook){.fn = fn, .user = user, .release = release, .index = t->node_index, .site = site};
    gd_hook **list = hooks_of(t);
    free_removed_hooks(list);
    while (*list) list = &(*list)->next; /* hooks are called in the order of their addition */
    *list = hook;
    return GD_OK;
}

gd_status gd_tensor_hook_at(const char *site, gd_tensor *t, gd_hook_fn fn, void *user,
                            const gd_tensor_hook_options *o) {
    return gd_report(
        site, add_hook(site ? site : gd_this_thread.site, t, fn, user, o ? o->release : NULL));
}

/* --- the grad mode ---------------------------------------------------------------------------- */

int gd_no_grad_begin(void) {
    int before = gd_this_thread.no_grad;
    gd_this_thread.no_grad = 1;
    return before;
}
int gd_enable_grad_begin(void) {
    int before = gd_this_thread.no_grad;
    gd_this_thread.no_grad = 0;
    return before;
}
void gd_grad_mode_end(int *before) {
    if (before) gd_this_thread.no_grad = *before;
}
bool gd_grad_enabled(void) { return gd_this_thread.no_grad == 0; }
