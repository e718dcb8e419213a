/* scalar_call.h - source and arguments of kernels in the scalar dialect, for elementwise ops, fused
 * ops and the reductions sum, mean, max and min.
 *
 * A device whose dialect has the scalar skeletons compiles the source of an op and launches it with
 * the arguments of a call. Addresses are copied and never dereferenced here.
 */
#ifndef GRADUS_DISPATCH_SCALAR_CALL_H
#define GRADUS_DISPATCH_SCALAR_CALL_H

#include "codegen/dialect.h"
#include "codegen/fusion_rules.h"
#include "codegen/scalar_args.h"

/* The source of an op's kernel for operands of these dtypes. `out` holds the outputs of a call,
 * followed by the inputs that the op mutates. False: the op has no expression, or more operands
 * than gd_scalar_args can hold, or it is a reduction that converts its operand first (option
 * dtype). */
bool gd_scalar_source(const gd_op *op, const gd_dtype *in, int n_in, const gd_dtype *out, int n_out,
                      gd_kernel_source *source);
/* The same for a fused op that a plan requests, and for a call. */
bool gd_scalar_source_of_request(const gd_fusion_request *request, gd_kernel_source *source);
bool gd_scalar_source_of_call(const gd_kernel_call *call, gd_kernel_source *source);

/* The arguments of a call for which gd_scalar_source_of_call returns true; the caller sets `kept`
 * and `kept_rows`. The kernel is to be called args->count times. */
void gd_scalar_args_of_call(const gd_kernel_call *call, gd_scalar_args *args);

/* --- calls that fill their own arguments ------------------------------------------------------ */

/* The parts of the above for a backend that has other arguments: the expression of an elementwise
 * or fused op. */
typedef struct gd_op_expression {
    const gd_ir *ir;
    uint64_t hash;            /* gd_ir_hash: the build's kernels are found by it */
    int n_tensors, n_scalars; /* variables; parameters that are tensors of one element */
    bool is_fused;
} gd_op_expression;
/* False: the op has none, or a reduction or row program. */
bool gd_scalar_expression(const gd_op *op, gd_op_expression *expression);

/* The dtype that a call computes in, also for a list call (call->each). */
gd_dtype gd_scalar_compute_dtype(const gd_kernel_call *call);

/* The first outputs of a call that its kernel does not compute: those of an op that mutates inputs
 * are the inputs themselves, which follow. */
int gd_scalar_skipped_outputs(const gd_kernel_call *call);

/* The parameters for the compute dtype; those that are tensors stay as they are. `params` has room
 * for GD_SCALAR_PARAMS. */
void gd_scalar_params(const gd_kernel_call *call, gd_dtype type, gd_param *params);

/* The shape that a call computes. Returns its rank. */
int gd_scalar_dims(const gd_kernel_call *call, const int64_t **dims);

/* The bytes of `kept` if kept_rows rows are computed at once. */
size_t gd_scalar_kept_bytes(const gd_kernel_call *call, const gd_scalar_args *args,
                            int64_t kept_rows);

#endif
