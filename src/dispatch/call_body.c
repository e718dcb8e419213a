/* call_body.c - calls that run as the body of their op. */
#include <string.h>

#include "core/alloc.h"
#include "dispatch/autocast.h"
#include "dispatch/call.h"
#include "dispatch/dispatch.h"
#include "dispatch/launch.h"

enum { FEW_VIEWS = 24 }; /* views on the stack; more are allocated */

/* Sets the views of a call's outputs from their shapes. They do not exist yet: the views have a dummy
 * address. */
static void set_output_views(const gd_invocation *call, const gd_infer *infer, gd_view *views) {
    static _Alignas(256) char dummy;
    const gd_op *op = call->op;
    const bool want_hidden = call->want_hidden || gd_grad_wanted(op, call->in, call->n_in);
    for (int i = 0; i < infer->n_out; i++) {
        const gd_meta *m = &infer->out[i];
        const bool hidden = gd_output_is_hidden(op, i);
        views[i] = (gd_view){
            .data = hidden && !want_hidden ? NULL : &dummy, .dtype = m->dtype, .rank = m->rank};
        memcpy(views[i].dims, m->dims, sizeof(int64_t) * (size_t)m->rank);
        if (m->view_of < 0) gd_row_major(m->rank, m->dims, views[i].strides);
        else memcpy(views[i].strides, m->strides, sizeof(int64_t) * (size_t)m->rank);
    }
}

static void set_input_views(const gd_invocation *call, gd_view *views) {
    static _Alignas(256) char dummy;
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i]) gd_view_set(&views[i], call->in[i]);
        else gd_view_set_absent(&views[i]);
        if (call->in[i] && !views[i].data) views[i].data = &dummy; /* a symbol */
    }
}

/* Whether a kernel of the device matches the call. */
static bool call_has_kernel(const gd_invocation *call, const gd_infer *infer, gd_device *device) {
    const gd_op *op = call->op;
    gd_view few[FEW_VIEWS], *views = few;
    const int n = call->n_in + infer->n_out + op->n_mutated;
    if (n > FEW_VIEWS && !(views = gd_malloc((size_t)n * sizeof *views)))
        return true; /* the call reports the failure */
    gd_view *outputs = views + call->n_in;
    set_input_views(call, views);
    set_output_views(call, infer, outputs);
    for (int i = 0, k = infer->n_out; i < op->n_inputs && i < call->n_in; i++)
        if (op->inputs[i].mutated) outputs[k++] = views[i];
    gd_kernel_call k;
    gd_kernel_call_set(&k, call->attrs, views, call->n_in, outputs, infer->n_out + op->n_mutated);
    k.op = op;
    k.device = device;
    const bool found = gd_kernel_select(op, &k, device->api->kind) || gd_fallback_allowed(op);
    if (views != few) gd_free(views);
    return found;
}

bool gd_call_runs_as_body(const gd_invocation *call, const gd_infer *infer, gd_device *device) {
    const gd_op *op = call->op;
    const char *kind = device->api->kind;
    if (gd_call_stays_node(call)) return false;
    if (!op->infer || !gd_kernel_exists(op, kind)) return true;
    if (gd_draws_from_key(op, call->in, call->n_in)) return true;
    if (op->flags & GD_OP_VIEW) { /* a view needs no kernel, but a call that has to copy does */
        const bool copies = !call->is_list && infer->n_out == 1 && infer->out[0].view_of < 0;
        return copies && strcmp(gd_op_runs_as(op, kind), "view") == 0;
    }
    return gd_kernels_are_partial(op, kind) && !call_has_kernel(call, infer, device);
}

/* Moves the results of a body out of its scope. Fails if one is missing. */
static gd_status keep_outputs(gd_invocation *call) {
    const gd_op *op = call->op;
    for (int i = 0; i < call->n_out; i++) {
        const gd_tensor *y = call->out[i];
        if (y && y->kind == GD_FAILED) return gd_failure();
        /* a body need not compute hidden outputs */
        if (!y && !gd_output_is_hidden(op, i))
            return gd_failed() ? gd_failure()
                               : gd_fail(GD_E_STATE, "its body has not set result %d", i);
    }
    if (gd_failed()) return gd_failure();
    for (int i = 0; i < call->n_out;
         i++) /* a result that is an input: the caller gets a reference */
        for (int k = 0; k < call->n_in && call->out[i]; k++)
            if (call->out[i] == call->in[k]) {
                gd_object_retain(&call->out[i]->object);
                GD_TRY(gd_scope_take(&call->out[i]->object));
                break;
            }
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i]) gd_scope_keep(&call->out[i]->object);
    return GD_OK;
}

gd_status gd_call_run_body(gd_invocation *call, gd_device *device) {
    gd_thread *thread = &gd_this_thread;
    gd_device *before = thread->device;
    const char *site = thread->site;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    thread->device = device;
    thread->site = call->site;
    const gd_invocation *outer = thread->body;
    if (!outer) thread->body = call;
    thread->bodies++;
    const int autocast =
        gd_autocast_pause(GD_DTYPE_NONE); /* the inputs of the op are cast already */
    gd_expansion expand = {
        call->op, call->attrs, call->n_in, call->n_out, (gd_tensor **)(uintptr_t)call->in,
        call->out};
    for (int i = 0; i < call->n_out; i++) call->out[i] = NULL;
    call->op->expand(&expand);
    gd_autocast_resume(&autocast);
    thread->bodies--;
    thread->body = outer;
    thread->device = before;
    thread->site = site;
    gd_status status = keep_outputs(call);
    gd_scope_close(&scope);
    return gd_attempt_end(&attempt, status);
}
