/* call_inplace.c - calls of in-place ops: the kernel of the base op writes the first input. */
#include <string.h>

#include "dispatch/call.h"
#include "dispatch/dispatch.h"
#include "dispatch/launch.h"

/* Whether two tensors of one storage have the same elements in the same order. */
static bool same_memory(const gd_tensor *a, const gd_tensor *b) {
    return a->offset == b->offset && a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) == 0 &&
           memcmp(a->strides, b->strides, sizeof(int64_t) * a->rank) == 0;
}

/* Checks that the op can write its result into its first input. */
static gd_status check_inplace(const gd_invocation *call, const gd_meta *m, bool grad) {
    gd_tensor *x = call->in[0];
    char text[160];
    if (x->rank != m->rank || memcmp(x->dims, m->dims, sizeof(int64_t) * x->rank) != 0)
        return gd_fail(GD_E_SHAPE, "the result has shape %s and cannot be written into '%s'",
                       gd_shape_text(m->rank, m->dims, text, sizeof text),
                       call->op->inputs[0].name);
    bool dtype_fits = m->dtype == x->dtype || gd_dtype_is_float((gd_dtype)x->dtype) ||
                      (!gd_dtype_is_float(m->dtype) && x->dtype != GD_BOOL);
    if (!dtype_fits)
        return gd_fail(GD_E_DTYPE, "the result is %s and cannot be written into '%s'",
                       gd_dtype_name(m->dtype), call->op->inputs[0].name);
    for (int i = 0; i < x->rank; i++)
        if (x->strides[i] == 0 && x->dims[i] > 1)
            return gd_fail(GD_E_ARGUMENT,
                           "'%s' is expanded: several of its elements share memory; clone it first",
                           call->op->inputs[0].name);
    if (!grad) return GD_OK;
    if (x->requires_grad && !x->node)
        return gd_fail(GD_E_STATE, "'%s' is a leaf that requires grad; write it under GD_NO_GRAD",
                       call->op->inputs[0].name);
    if (x->is_view || x->storage->taped_view)
        return gd_fail(GD_E_STATE,
                       "'%s' shares its memory with another tensor, and the tape is on; "
                       "use the op that returns a new tensor, or GD_NO_GRAD",
                       call->op->inputs[0].name);
    return GD_OK;
}

/* Sets the view of an input. An input that may overlap x, which the op writes, is copied first. */
static gd_status set_input_view(gd_view *view, gd_tensor *t, const gd_tensor *x) {
    if (!t) {
        *view = (gd_view){.data = NULL};
        return GD_OK;
    }
    gd_status status = GD_OK;
    if (t != x && t->storage == x->storage && !same_memory(t, x)) {
        gd_tensor *copy = gd_tensor_new(t->device, (gd_dtype)t->dtype, t->rank, t->dims);
        if (!copy) return gd_this_thread.latest;
        status = gd_copy_tensor(copy, t);
        t = copy;
    }
    gd_view_set(view, t);
    return status;
}

gd_status gd_call_run_inplace(gd_invocation *call, const gd_meta *meta, bool grad,
                              gd_device *device) {
    GD_TRY(check_inplace(call, meta, grad));
    gd_tensor *x = call->in[0];
    gd_view views[GD_MAX_OUTPUTS + 1];
    gd_status status = GD_OK;
    gd_scope *scope = gd_scope_open(); /* frees the copies */
    for (int i = 0; i < call->n_in && status == GD_OK; i++)
        status = set_input_view(&views[i], call->in[i], x);
    gd_view_set(&views[call->n_in], x);
    gd_kernel_call k;
    gd_kernel_call_set(&k, call->attrs, views, call->n_in, &views[call->n_in], 1);
    k.rng = call->rng;
    k.site = call->site;
    k.overwrites = true;
    if (status == GD_OK && gd_numel(x->rank, x->dims) > 0)
        status = gd_run_kernel(call->op->base, &k, device);
    if (status == GD_OK) atomic_fetch_add(&x->storage->version, 1);
    gd_scope_close(&scope);
    call->out[0] = x;
    return status;
}
