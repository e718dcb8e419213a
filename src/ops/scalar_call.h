/* scalar_call.h - calls of elementwise ops, fused ops and plain reductions (sum, mean, max, min) as
 * kernels of the scalar dialect.
 *
 * A device whose dialect has the scalar skeletons compiles the source of an op and launches it with
 * the arguments of a call. Addresses are copied and never followed.
 */
#ifndef GRADUS_OPS_SCALAR_CALL_H
#define GRADUS_OPS_SCALAR_CALL_H

#include "codegen/dialect.h"
#include "codegen/fusion_rules.h"
#include "codegen/scalar_args.h"

/* The source of an op's kernel for operands of these dtypes. `out` are the outputs of a call, with
 * the inputs that the op writes behind them. False: the op has no expression, it has more operands
 * than gd_scalar_args holds, or a reduction would have to convert its operand first (option
 * dtype). */
bool gd_scalar_source(const gd_op *op, const gd_dtype *in, int n_in, const gd_dtype *out, int n_out,
                      gd_kernel_source *source);
/* The same for a fused op that a plan requests, and for a call. */
bool gd_scalar_source_of_request(const gd_fusion_request *request, gd_kernel_source *source);
bool gd_scalar_source_of_call(const gd_kernel_call *call, gd_kernel_source *source);

/* The arguments of a call, but for `kept` and `kept_rows`, for which gd_scalar_source_of_call gives
 * true. The kernel is called args->count times. */
void gd_scalar_args_of_call(const gd_kernel_call *call, gd_scalar_args *args);

/* Bytes of `kept` where this many rows are computed at once. */
size_t gd_scalar_kept_bytes(const gd_kernel_call *call, const gd_scalar_args *args,
                            int64_t kept_rows);

#endif
