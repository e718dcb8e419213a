/* dispatch.h - the steps of a call in the dispatcher. dispatch.c runs them; op.h has the functions that
 * make a call. */
#ifndef GRADUS_DISPATCH_DISPATCH_H
#define GRADUS_DISPATCH_DISPATCH_H

#include "dispatch/op.h"
#include "dispatch/probe.h"

/* --- what kind of call it is ------------------------------------------------------------------ */

/* Whether the call becomes a node of a graph. */
static inline bool gd_call_is_symbolic(const gd_invocation *call) {
    if (call->plain) return false;
    if (gd_this_thread.tracer) return true;
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && call->in[i]->kind == GD_SYMBOL) return true;
    return false;
}

/* Whether the call stays one node of a graph, also if its op has a body: bodies compute with sizes, so
 * they cannot run while a size is unknown. */
static inline bool gd_call_stays_node(const gd_invocation *call) {
    return gd_call_is_symbolic(call) &&
           ((call->op->flags & GD_OP_OPAQUE) || gd_has_unknown(call->in, call->n_in));
}

/* Whether output i is hidden; all entries of a variadic output are alike. */
static inline bool gd_output_is_hidden(const gd_op *op, int i) {
    return op->outputs[i < op->n_outputs ? i : op->n_outputs - 1].hidden;
}

/* --- failures (call_message.c) ---------------------------------------------------------------- */

/* Records the failure of a call. All its results are error tensors; a list is dropped. */
GD_COLD gd_status gd_call_fail(gd_invocation *call, gd_status status);

/* The name of input i; all entries of a variadic input have the same. */
const char *gd_input_name(const gd_op *op, int i);

/* --- checks (call_check.c) -------------------------------------------------------------------- */

/* Whether the call does nothing and returns error tensors: one of its inputs is an error tensor, or
 * an earlier call of the same body or gradient rule has failed. That failure is recorded already. */
bool gd_call_is_skipped(const gd_invocation *call);

/* Checks inputs and options and finds the device. Scalars on the CPU can be combined with tensors of
 * any device; *scalars: there are some. */
gd_status gd_call_check(const gd_invocation *call, gd_device **device, bool *scalars);
/* Fails if the op would write memory of another library that is read-only. */
gd_status gd_call_check_written(const gd_invocation *call);

/* Fills `in` with the inputs, where scalars on the CPU are uploaded to the device. */
gd_status gd_call_upload_scalars(const gd_invocation *call, gd_device *device, gd_tensor **in);

/* --- casts of inputs: autocast.h. Shapes and dtypes of the results: call_infer.h --------------- */

/* --- bodies (call_body.c) --------------------------------------------------------------------- */

/* Whether the call of an op with a body runs as that: the op has no kernel that matches. A call that has both runs its
 * kernel, also if a gradient is required, so that results do not depend on that. */
bool gd_call_runs_as_body(const gd_invocation *call, const gd_infer *infer, gd_device *device);

/* Runs the body of the op in its own scope. Tensors that the body creates (a range, a constant)
 * are on the device of the call. A failure inside is reported as a failure of the op. */
gd_status gd_call_run_body(gd_invocation *call, gd_device *device);

/* The view of an input that is absent. Like gd_view_set it sets no sizes beyond the rank: clearing all
 * costs a small call a twentieth of its time. */
static inline void gd_view_set_absent(gd_view *v) {
    v->data = NULL;
    v->dtype = GD_DTYPE_NONE;
    v->rank = 0;
}

/* --- kernels (call_results.c, call_inplace.c) ------------------------------------------------- */

/* Creates the results and runs the kernel (launch.h). */
gd_status gd_call_run_kernel(gd_invocation *call, const gd_meta *metas, gd_device *device);

/* Runs the kernel of an in-place op's base with the first input as output. `meta` is the result that
 * was inferred; `grad`: the tape will record the call. */
gd_status gd_call_run_inplace(gd_invocation *call, const gd_meta *meta, bool grad,
                              gd_device *device);

#endif
