/* macs.h - counts the multiply-adds of op calls.
 *
 * Only products count: convolutions, matrix products, attention, recurrent layers. The count comes
 * from the op's rule NAME_macs, or else from the ops of its body. Elementwise ops and reductions
 * count 0.
 */
#ifndef GRADUS_DISPATCH_MACS_H
#define GRADUS_DISPATCH_MACS_H

#include "dispatch/op.h"

/* The multiply-adds of a call with these shapes; NAN if a size or a number of loop iterations is
 * unknown. A failure is not recorded. */
gd_status gd_op_macs(const gd_op *op, const gd_op_shapes *shapes, double *macs);
/* The same for these tensors; `attrs` is the op's options struct. */
gd_status gd_tensor_macs(const gd_op *op, const void *attrs, gd_tensor *const *in, int n_in,
                         gd_tensor *const *out, int n_out, double *macs);
/* The same for a kernel call, for the profiler. */
gd_status gd_kernel_macs(const gd_kernel_call *call, double *macs);

/* Adds the multiply-adds of a dispatched call to gd_this_thread.macs. */
gd_status gd_count_macs(const gd_invocation *call, const gd_meta *out);

/* For NAME_macs rules: the number of elements, and the product of the sizes from `axis` on. */
double gd_shape_elements(const gd_meta *shape);
double gd_shape_elements_from(const gd_meta *shape, int axis);

#endif
