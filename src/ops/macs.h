/* macs.h - multiply-adds of ops, from the op table.
 *
 * Products count: convolutions, matrix products, attention, recurrent layers. An op has a rule
 * (NAME_macs beside its record) or a body whose ops are counted; elementwise ops and reductions
 * have none.
 */
#ifndef GRADUS_OPS_MACS_H
#define GRADUS_OPS_MACS_H

#include "ops/op.h"

/* Of one call. NAN where a size, or the number of steps, is not known; the failure is not recorded.
 */
gd_status gd_op_macs(const gd_op *op, const gd_op_shapes *shapes, double *macs);
/* Of a call with these tensors; `attrs` is the op's options struct. */
gd_status gd_tensor_macs(const gd_op *op, const void *attrs, gd_tensor *const *in, int n_in,
                         gd_tensor *const *out, int n_out, double *macs);
/* Of a kernel call, for the profiler. */
gd_status gd_kernel_macs(const gd_kernel_call *call, double *macs);

/* The dispatcher's: adds those of a call to the thread's sum. */
gd_status gd_count_macs(const gd_invocation *call, const gd_meta *out);

/* For rules: the number of elements; and of those along the axes from `axis` on. */
double gd_shape_elements(const gd_meta *shape);
double gd_shape_elements_from(const gd_meta *shape, int axis);

#endif
