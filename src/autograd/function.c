/* function.c - functions of the program with their own backward (gd_apply), and moves between
 * devices, which are such a function. */
#include "autograd/function.h"

#include "dispatch/autocast.h"

void gd_save(gd_context *context, gd_tensor *t) {
    gd_function_state *state = context->state;
    if (context->gy || !state) return; /* backward cannot save */
    const bool fits = t && (t->kind == GD_VALUE || (t->kind == GD_META && state->shapes));
    if (!fits || state->n_saved == GD_MAX_SAVED)
        state->status = gd_fail(GD_E_ARGUMENT, "gd_save: no tensor, or more than %d", GD_MAX_SAVED);
    else state->saved[state->n_saved++] = t;
}

gd_tensor *gd_saved(gd_context *context, int i) {
    const gd_function_state *state = context->state;
    gd_node *node = state ? (gd_node *)(uintptr_t)state->node : NULL;
    if (!context->gy || !state || i < 0 || i >= (node ? node->n_saved : state->n_saved))
        return gd_tensor_fail(gd_fail(GD_E_INDEX, "gd_saved: there is no saved tensor %d", i));
    if (!node) return state->saved[i];
    const gd_slot *slot = &node->slots[node->n_in + node->n_out + i];
    /* a saved output belongs to this node */
    gd_tensor *t =
        gd_slot_get(slot, slot->node == node ? node : NULL, gd_function_name(node->function));
    return t ? t : gd_tensor_fail(gd_this_thread.latest);
}

/* Records a node with the function on the tape, and makes y its outputs. */
static gd_status record_function(const gd_function *function, gd_tensors inputs, void *user,
                                 gd_tensor **y, int n_out, const gd_function_state *state,
                                 bool *kept) {
    gd_node *node = gd_node_new(NULL, NULL, (int)inputs.count, n_out, state->n_saved);
    if (!node) return GD_E_MEMORY;
    node->function = function;
    node->user = user;
    node->user_free = function->release;
    *kept = true;
    node->site = gd_this_thread.site;
    for (int64_t i = 0; i < inputs.count; i++) gd_slot_set(&node->slots[i], inputs.at[i], false);
    for (int i = 0; i < n_out; i++) {
        gd_slot *slot = &node->slots[inputs.count + i];
        gd_slot_set(slot, y[i], false);
        slot->index = i;
        slot->requires_grad = true;
    }
    for (int i = 0; i < state->n_saved; i++) {
        gd_slot *slot = &node->slots[inputs.count + n_out + i];
        gd_tensor *t = state->saved[i];
        int output = -1;
        for (int k = 0; k < n_out; k++)
            if (t == y[k]) output = k;
        gd_slot_set(slot, t, true);
        if (output >= 0) { /* the output retains the node: no counted reference back */
            slot->node = NULL;
            slot->index = output;
            slot->requires_grad = true;
        }
    }
    for (int i = 0; i < n_out; i++)
        if (gd_dtype_is_float((gd_dtype)y[i]->dtype)) gd_node_attach(node, y[i], i);
    gd_node_release(node);
    return GD_OK;
}

gd_status gd_function_forward(const gd_function *f, void (*half)(gd_context *), gd_tensors x,
                              void *user, gd_tensor **y, gd_function_state *state) {
    const int n_out = gd_function_results(f);
    gd_context context = {
        .n_in = (int)x.count, .n_out = n_out, .x = x.at, .y = y, .user = user, .state = state};
    GD_NO_AUTOCAST; /* a run of a graph may call it under another setting */
    const gd_status failed = gd_error_status(); /* before this call */
    int before = gd_no_grad_begin();
    half(&context);
    gd_grad_mode_end(&before);
    if (gd_error_status() != failed) return gd_failure();
    GD_TRY(state->status);
    for (int i = 0; i < n_out; i++) {
        if (!y[i])
            return gd_fail(GD_E_STATE, "%s: %s did not set output %d", gd_function_name(f),
                           half == f->forward ? "forward" : "infer", i);
        if (y[i]->kind == GD_FAILED)
            return gd_this_thread.recorded != GD_OK ? gd_this_thread.recorded : GD_E_STATE;
    }
    return GD_OK;
}

/* Calls forward, and records backward on the tape. */
static gd_status run_function(const gd_function *function, gd_tensors inputs, void *user,
                              gd_tensor **y, bool grad, bool *kept) {
    const int n_out = gd_function_results(function);
    gd_function_state state = {.n_saved = 0};
    GD_TRY(gd_function_forward(function, function->forward, inputs, user, y, &state));
    for (int i = 0; i < n_out; i++) {
        bool passed = y[i]->node != NULL || y[i]->requires_grad;
        for (int64_t k = 0; k < inputs.count; k++) passed |= y[i] == inputs.at[k];
        if (passed) { /* forward returned an input: make another handle */
            gd_tensor *alias = gd_tensor_alias(y[i]);
            if (!alias) return GD_E_MEMORY;
            for (int s = 0; s < state.n_saved; s++)
                if (state.saved[s] == y[i] && y[i]->node == NULL && !y[i]->requires_grad)
                    state.saved[s] = alias;
            y[i] = alias;
        }
    }
    return grad ? record_function(function, inputs, user, y, n_out, &state, kept) : GD_OK;
}

static const gd_function move_function;

static gd_status apply_function(const gd_function *function, gd_tensors inputs, void *user,
                                gd_tensor **y, bool *kept) {
    gd_thread *thread = &gd_this_thread;
    bool grad = false, traced = thread->tracer &&
                                function != &move_function; /* the library itself uses that one */
    for (int64_t i = 0; i < inputs.count; i++) {
        const gd_tensor *x = inputs.at[i];
        if (!x) continue;
        if (x->kind == GD_FAILED) return thread->recorded != GD_OK ? thread->recorded : GD_E_STATE;
        traced |= x->kind == GD_SYMBOL;
        grad |= x->requires_grad;
    }
    if (!traced) return run_function(function, inputs, user, y, grad && thread->no_grad == 0, kept);
    *kept = true; /* also by a failed trace: the number of the function remains */
    return gd_function_trace(function, inputs, user, y);
}

gd_tensors gd_apply_at(const char *site, const gd_function *function, gd_tensors inputs,
                       void *user) {
    GD_CALLED_FROM(site);
    int n_out = function && function->n_out > 0 ? function->n_out : 1;
    bool kept = false; /* by a node: `user` */
    gd_tensor **y = gd_list_new(n_out);
    gd_status status =
        !y ? GD_E_MEMORY
        : !function || !function->forward || !function->backward
            ? gd_fail(GD_E_ARGUMENT, "gd_apply: the function needs forward and backward")
        : inputs.count < 0 || inputs.count > INT16_MAX || (inputs.count > 0 && !inputs.at)
            ? gd_fail(GD_E_ARGUMENT, "gd_apply: the list of inputs is NULL, or too long")
            : GD_OK;
    if (status == GD_OK) {
        gd_scope *scope = gd_scope_open();
        status = apply_function(function, inputs, user, y, &kept);
        for (int i = 0; i < n_out && status == GD_OK; i++) gd_scope_keep(&y[i]->object);
        gd_scope_close(&scope);
    }
    if (function && function->release && !kept) function->release(user);
    if (status == GD_OK) return (gd_tensors){y, n_out};
    gd_report(site, status);
    for (int i = 0; y && i < n_out; i++) y[i] = &gd_error_tensor;
    return y ? (gd_tensors){y, n_out} : gd_list_of_errors(n_out);
}

/* --- moving between devices: a function whose backward moves back ----------------------------- */

static void move_forward(gd_context *c) { c->y[0] = gd_tensor_copy_on(c->x[0], c->user); }
static void move_backward(gd_context *c) {
    c->gx[0] = gd_to_device(c->gy[0], gd_tensor_device(c->x[0]));
}
static const gd_function move_function = {
    .name = "to_device", .forward = move_forward, .backward = move_backward};

gd_tensor *gd_to_device_at(const char *site, gd_tensor *t, gd_device *device) {
    GD_CALLED_FROM(site);
    if (!t || !device) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_to_device: NULL"));
    if (t->kind == GD_FAILED || t->device == device) {
        if (t->kind == GD_FAILED) return t;
        gd_object_retain(&t->object); /* the caller gets a reference, as from any call */
        gd_status status = gd_scope_take(&t->object);
        return status == GD_OK ? t : gd_tensor_fail(status);
    }
    if (t->kind == GD_SYMBOL)
        return gd_tensor_fail(
            gd_fail(GD_E_UNSUPPORTED,
                    "gd_to_device: a symbol of a graph stays on the device of its session"));
    gd_tensors y = gd_apply(&move_function, (gd_tensors){&t, 1}, device);
    gd_tensor *result = y.at[0];
    if (gd_this_thread.depth == 0 &&
        result->kind != GD_FAILED) { /* without a scope we free the list */
        gd_object_retain(&result->object);
        gd_release_list(y);
    }
    return result;
}
