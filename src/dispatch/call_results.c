/* call_results.c - creates the results of a call and runs its kernel. */
#include <string.h>

#include "core/alloc.h"
#include "dispatch/call.h"
#include "dispatch/dispatch.h"
#include "dispatch/launch.h"

enum { FEW_VIEWS = 24 }; /* views on the stack; more are allocated */

gd_status gd_kernel_output(gd_kernel_call *call, int i, int rank, const int64_t *dims) {
    gd_view *view = &call->out[i];
    size_t bytes;
    GD_TRY(gd_dims_bytes(rank, dims, view->dtype, &bytes));
    gd_storage *storage = gd_storage_new(call->device, bytes);
    if (!storage) return gd_this_thread.latest;
    gd_storage_release(call->made[i]);
    call->made[i] = storage;
    view->data = storage->data;
    view->rank = rank;
    for (int k = 0; k < rank; k++) view->dims[k] = dims[k];
    gd_row_major(rank, view->dims, view->strides);
    return GD_OK;
}

/* Creates result i, and its view for the kernel. *needed is set if there is something to compute. */
static gd_status create_result(gd_invocation *call, int i, const gd_meta *m, gd_device *device,
                               gd_view *view, bool *needed) {
    if (gd_output_is_hidden(call->op, i) && !call->want_hidden) {
        call->out[i] = NULL;
        *view = (gd_view){.dtype = m->dtype, .rank = m->rank};
        memcpy(view->dims, m->dims, sizeof view->dims);
        gd_row_major(m->rank, m->dims, view->strides);
        return GD_OK;
    }
    if (call->op->flags & GD_OP_DYNAMIC) { /* the kernel creates it when its size is known */
        *view = (gd_view){.dtype = m->dtype};
        return GD_OK;
    }
    gd_tensor *y =
        m->view_of >= 0
            ? gd_tensor_view(call->in[m->view_of], m->rank, m->dims, m->strides, m->offset)
            : gd_tensor_new(m->device ? m->device : device, m->dtype, m->rank, m->dims);
    if (!y) return gd_this_thread.latest;
    call->out[i] = y;
    gd_view_set(view, y);
    if (m->view_of < 0 && y->storage->bytes > 0) *needed = true;
    return GD_OK;
}

/* Appends the inputs that the op writes to the outputs of the kernel call. */
static void add_mutated(const gd_invocation *call, gd_kernel_call *k) {
    const gd_op *op = call->op;
    for (int i = 0, n = call->n_out; i < op->n_inputs && i < call->n_in; i++)
        if (op->inputs[i].mutated) {
            k->out[n++] = k->in[i];
            if (call->in[i]) atomic_fetch_add(&call->in[i]->storage->version, 1);
        }
    if (!op->ir) return;
    k->out += call->n_out; /* the outputs of an expression are the inputs that it mutates */
    k->n_out = op->n_mutated;
}

/* Makes tensors of the storages that the kernel of a dynamic op has created. */
static gd_status adopt_results(gd_invocation *call, gd_device *device, const gd_kernel_call *k,
                               gd_status status) {
    for (int i = 0; i < call->n_out && i < GD_MAX_OUTPUTS; i++) {
        const gd_view *v = &k->out[i];
        gd_tensor *y =
            status == GD_OK ? gd_tensor_bare(GD_VALUE, device, v->dtype, v->rank, v->dims) : NULL;
        if (y) {
            y->storage = k->made[i];
            call->out[i] = y;
        } else {
            gd_storage_release(k->made[i]);
            if (status == GD_OK) status = GD_E_MEMORY;
        }
    }
    return status;
}

gd_status gd_call_run_kernel(gd_invocation *call, const gd_meta *metas, gd_device *device) {
    const gd_op *op = call->op;
    const int n_views = call->n_in + call->n_out + op->n_mutated;
    const bool dynamic = op->flags & GD_OP_DYNAMIC;
    gd_view few[FEW_VIEWS], *views = few;
    if (n_views > FEW_VIEWS && !(views = gd_malloc((size_t)n_views * sizeof *views)))
        return gd_fail(GD_E_MEMORY, "no memory for %d tensors", n_views);
    void *made[GD_MAX_OUTPUTS] = {NULL}; /* storages of a dynamic op's outputs */
    gd_kernel_call k;
    gd_kernel_call_set(&k, call->attrs, views, call->n_in, views + call->n_in,
                       call->n_out + op->n_mutated);
    k.rng = call->rng;
    k.site = call->site;
    if (dynamic) k.made = made;
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i]) gd_view_set(&views[i], call->in[i]);
        else gd_view_set_absent(&views[i]);
    }
    gd_status status = GD_OK;
    bool needed = op->n_mutated > 0 || dynamic;
    for (int i = 0; i < call->n_out && status == GD_OK; i++)
        status = create_result(call, i, &metas[i], device, &k.out[i], &needed);
    if (op->n_mutated > 0) add_mutated(call, &k);
    if (status == GD_OK && needed) status = gd_run_kernel(op, &k, device);
    if (dynamic) status = adopt_results(call, device, &k, status);
    if (views != few) gd_free(views);
    return status;
}
