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

gd_status gd_call_run_kernel(gd_invocation *call, const gd_meta *metas, gd_device *device) {
    const gd_op *op = call->op;
    int n_mutated = op->n_mutated, n_views = call->n_in + call->n_out + n_mutated;
    gd_view few[FEW_VIEWS], *views = few;
    if (n_views > FEW_VIEWS && !(views = gd_malloc((size_t)n_views * sizeof *views)))
        return gd_fail(GD_E_MEMORY, "no memory for %d tensors", n_views);
    void *made[GD_MAX_OUTPUTS] = {NULL}; /* storages of a dynamic op's outputs */
    gd_kernel_call k;
    gd_kernel_call_set(&k, call->attrs, views, call->n_in, views + call->n_in,
                       call->n_out + n_mutated);
    k.rng = call->rng;
    k.site = call->site;
    if (op->flags & GD_OP_DYNAMIC) k.made = made;
    gd_status status = GD_OK;
    bool needed = n_mutated > 0 || (op->flags & GD_OP_DYNAMIC);
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i]) gd_view_set(&views[i], call->in[i]);
        else views[i] = (gd_view){.data = NULL};
    }
    for (int i = 0; i < call->n_out && status == GD_OK; i++) {
        const gd_meta *m = &metas[i];
        gd_view *view = &k.out[i];
        if (gd_output_is_hidden(op, i) && !call->want_hidden) {
            call->out[i] = NULL;
            *view = (gd_view){.dtype = m->dtype, .rank = m->rank};
            memcpy(view->dims, m->dims, sizeof view->dims);
            gd_row_major(m->rank, m->dims, view->strides);
            continue;
        }
        if (op->flags & GD_OP_DYNAMIC) { /* the kernel creates it when its size is known */
            *view = (gd_view){.dtype = m->dtype};
            continue;
        }
        gd_tensor *y =
            m->view_of >= 0
                ? gd_tensor_view(call->in[m->view_of], m->rank, m->dims, m->strides, m->offset)
                : gd_tensor_new(m->device ? m->device : device, m->dtype, m->rank, m->dims);
        if (!y) status = gd_this_thread.latest;
        else {
            call->out[i] = y;
            gd_view_set(view, y);
            if (m->view_of < 0 && y->storage->bytes > 0) needed = true;
        }
    }
    for (int i = 0, n = call->n_out; n_mutated > 0 && i < op->n_inputs && i < call->n_in; i++)
        if (op->inputs[i].mutated) {
            k.out[n++] = views[i];
            if (call->in[i]) atomic_fetch_add(&call->in[i]->storage->version, 1);
        }
    if (op->ir &&
        n_mutated > 0) { /* the outputs of the expression are the inputs that it mutates */
        k.out += call->n_out;
        k.n_out = n_mutated;
    }
    if (status == GD_OK && needed) status = gd_run_kernel(op, &k, device);
    for (int i = 0; i < call->n_out && i < GD_MAX_OUTPUTS && (op->flags & GD_OP_DYNAMIC); i++) {
        gd_tensor *y = status != GD_OK ? NULL
                                       : gd_tensor_bare(GD_VALUE, device, k.out[i].dtype,
                                                        k.out[i].rank, k.out[i].dims);
        if (y) {
            y->storage = made[i];
            call->out[i] = y;
        } else {
            gd_storage_release(made[i]);
            if (status == GD_OK) status = GD_E_MEMORY;
        }
    }
    if (views != few) gd_free(views);
    return status;
}
