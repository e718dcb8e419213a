/* call_check.c - checks the inputs of a call, and finds its device. */
#include "core/freed.h"
#include "dispatch/call.h"
#include "dispatch/dispatch.h"

gd_status gd_check_inputs(const gd_op *op, gd_tensor *const *in, int n_in) {
    bool variadic = op->n_inputs > 0 && op->inputs[op->n_inputs - 1].variadic;
    int least = op->n_required;
    if (n_in == GD_BAD_LIST)
        return gd_fail(GD_E_ARGUMENT,
                       "the list of tensors is NULL, of negative length or longer than %d",
                       GD_MAX_VARIADIC);
    if (n_in < least || (n_in > op->n_inputs && !variadic))
        return gd_fail(GD_E_ARGUMENT, "takes %d to %d tensors, not %d", least, op->n_inputs, n_in);
    if (variadic && n_in < op->n_inputs && !op->inputs[op->n_inputs - 1].optional &&
        !(op->flags & GD_OP_CALLS))
        return gd_fail(GD_E_ARGUMENT, "the list '%s' is empty", op->inputs[op->n_inputs - 1].name);
    for (int i = 0; i < n_in; i++) {
        const gd_op_param *param = &op->inputs[i < op->n_inputs ? i : op->n_inputs - 1];
        const gd_tensor *t = in[i];
        if (!t) {
            if (!param->optional || param->variadic)
                return gd_fail(GD_E_ARGUMENT, "'%s' is NULL", param->name);
        } else if (t->kind == GD_META) {
            return gd_fail(GD_E_STATE,
                           "'%s' was not saved for the gradient; only its shape is known",
                           param->name);
        }
    }
    return GD_OK;
}

/* Whether input i is a scalar on the CPU, which a call on any device can read. */
static bool is_host_scalar(const gd_invocation *call, int i) {
    const gd_tensor *t = call->in[i];
    const gd_op *op = call->op;
    return t->rank == 0 && t->device == gd_cpu() && t->kind == GD_VALUE &&
           !(i < op->n_inputs && op->inputs[i].mutated) && !(i == 0 && op->flags & GD_OP_INPLACE);
}

/* Finds the device of the call. Scalars on the CPU can be combined with tensors of any device;
 * *scalars: there are some. */
static gd_status find_device(const gd_invocation *call, gd_device **device, bool *scalars) {
    *device = NULL;
    *scalars = false;
    for (int i = 0; i < call->n_in; i++) {
        const gd_tensor *t = call->in[i];
        if (!t || t->device == *device) continue;
        if (*device && is_host_scalar(call, i)) *scalars = true;
        else if (!*device) *device = t->device;
        else {
            /* a second device is allowed if all inputs so far were scalars on the CPU */
            for (int k = 0; k < i; k++) {
                const gd_tensor *u = call->in[k];
                if (u && !is_host_scalar(call, k))
                    return gd_fail(GD_E_DEVICE,
                                   "'%s' is on %s and '%s' is on %s; move one with gd_to_device",
                                   gd_input_name(call->op, k), u->device->name,
                                   gd_input_name(call->op, i), t->device->name);
            }
            *scalars = true;
            *device = t->device;
        }
    }
    if (!*device) *device = gd_default_device();
    return GD_OK;
}

/* The first input that is an error tensor, or -1. */
static int failed_input(const gd_invocation *call) {
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && call->in[i]->kind == GD_FAILED) return i;
    return -1;
}

bool gd_call_is_skipped(const gd_invocation *call) {
    const gd_thread *thread = &gd_this_thread;
    return thread->recorded != GD_OK && (thread->attempts > 0 || failed_input(call) >= 0);
}

/* Fails because input i is an error tensor whose failure was cleared, or a freed tensor. */
static gd_status fail_input(const gd_invocation *call, int i) {
    const char *name = gd_input_name(call->op, i);
    char text[600];
    if (gd_is_freed(call->in[i]))
        return gd_fail(GD_E_STATE, "use after free: '%s' is %s", name,
                       gd_freed_text(call->in[i], text, sizeof text));
    if (gd_is_missing(call->in[i]))
        return gd_fail(GD_E_ARGUMENT, "'%s' is %s", name,
                       gd_missing_text(call->in[i], text, sizeof text));
    return gd_fail(GD_E_STATE, "'%s' is the result of a call that failed", name);
}

gd_status gd_call_check_written(const gd_invocation *call) {
    const gd_op *op = call->op;
    for (int i = 0; i < call->n_in && i < op->n_inputs; i++)
        if (call->in[i] && (op->inputs[i].mutated || (i == 0 && op->flags & GD_OP_INPLACE)))
            GD_TRY(gd_check_writable(call->in[i], op->inputs[i].name));
    return GD_OK;
}

gd_status gd_call_check(const gd_invocation *call, gd_device **device, bool *scalars) {
    const int failed = failed_input(call);
    if (failed >= 0) return fail_input(call, failed);
    GD_TRY(gd_check_inputs(call->op, call->in, call->n_in));
    GD_TRY(gd_attrs_check(call->op, call->attrs));
    return find_device(call, device, scalars);
}

gd_status gd_call_upload_scalars(const gd_invocation *call, gd_device *device, gd_tensor **in) {
    for (int i = 0; i < call->n_in; i++) {
        in[i] = call->in[i];
        if (!in[i] || in[i]->device == device) continue;
        in[i] = gd_record_hooks.move(in[i], device);
        if (in[i]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}
