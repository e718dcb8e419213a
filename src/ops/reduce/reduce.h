/* reduce.h - helpers that ops reducing axes share: shapes, gradients, reference kernels. */
#ifndef GRADUS_OPS_REDUCE_REDUCE_H
#define GRADUS_OPS_REDUCE_REDUCE_H

#include "dispatch/op.h"

/* The number of elements that one result is computed from when the axes in the mask are reduced. */
int64_t gd_reduced_count(const gd_tensor *x, uint32_t mask);

/* The axes of a mask as a list, for calls of other reductions. */
gd_shape gd_mask_axes(uint32_t mask);

/* Reshapes y, the result of a reduction of x, so that reduced dimensions have size 1. */
gd_tensor *gd_restore_dims(gd_tensor *y, const gd_tensor *x, uint32_t mask);

/* Fails if an axis in the mask is empty, for reductions that are undefined without elements. */
gd_status gd_need_elements(const gd_tensor *x, uint32_t mask);

/* For reference kernels: calls body once for each result, with the n elements of the first input
 * that it is computed from, contiguous, as f64 or i64. `result` is the index of the result in
 * row-major order. Such a kernel needs a workspace of gd_group_bytes. */
typedef void (*gd_group_fn)(void *context, const void *elements, int64_t n, int64_t result);
gd_status gd_each_group(const gd_kernel_call *k, uint32_t mask, gd_group_fn body, void *context);
size_t gd_group_bytes(const gd_kernel_call *k);

#endif
