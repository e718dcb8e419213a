/* call_message.c - the failure of a call: its message and its results. */
#include <stdarg.h>
#include <stdio.h>

#include "core/freed.h"
#include "core/number.h"
#include "dispatch/call.h"
#include "dispatch/dispatch.h"

gd_status gd_op_fail(gd_status status, const char *format, ...) {
    char text[GD_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    gd_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return gd_fail(status, "%s", text);
}

const char *gd_input_name(const gd_op *op, int i) {
    const int last = op->n_inputs - 1;
    return last < 0 ? "extra" : op->inputs[i < last ? i : last].name;
}

void gd_describe_call(const gd_op *op, int n_in, gd_describe_input_fn describe, const void *call,
                      char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "%s(", op->name);
    for (int i = 0; i < n_in && used < size - 1; i++) {
        char input[160];
        describe(call, i, input, sizeof input);
        used += (size_t)snprintf(text + used, size - used, "%s%s %s", i ? ", " : "",
                                 gd_input_name(op, i), input);
    }
    snprintf(text + (used < size - 2 ? used : size - 2), 2, ")");
}

static void describe_input(const void *call, int i, char *text, size_t size) {
    const gd_tensor *t = ((const gd_invocation *)call)->in[i];
    if (!t) snprintf(text, size, "absent");
    else if (gd_is_freed(t)) snprintf(text, size, "freed");
    else gd_describe(t, text, size);
}

/* Makes the message "matmul(a f32[2,3], b f32[4,5]): what went wrong (train.c:42)". Internal ops
 * in a body are not named, because the program has not called them: the caller of the body adds
 * its name. */
static void add_call_to_message(const gd_invocation *call) {
    if (gd_this_thread.bodies > 0 && (call->op->flags & GD_OP_INTERNAL)) return;
    char text[640];
    gd_describe_call(call->op, call->n_in, describe_input, call, text, sizeof text);
    gd_error_prefix("%s: ", text);
    gd_error_location(call->site);
}

gd_status gd_call_fail(gd_invocation *call, gd_status status) {
    gd_unrecord_raised(); /* by a rule or a kernel of the program */
    add_call_to_message(call);
    gd_error_record(status);
    if (call->is_list) {
        call->out = NULL;
        call->n_out = 0;
    }
    for (int i = 0; i < call->n_out; i++) call->out[i] = &gd_error_tensor;
    return status;
}
