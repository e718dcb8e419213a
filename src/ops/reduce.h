/* reduce.h - what the ops that reduce axes share: shapes, gradients, plain kernels. */
#ifndef GRADUS_OPS_REDUCE_H
#define GRADUS_OPS_REDUCE_H

#include "ops/op.h"

/* Elements that make up one result when the axes in the mask are reduced. */
int64_t gd_reduced_count(const gd_tensor *x, uint32_t mask);

/* The same axes as a list, for calls of other reductions. */
gd_shape gd_mask_axes(uint32_t mask);

/* y, the result of a reduction of x, with the reduced dimensions back at size 1. */
gd_tensor *gd_restore_dims(gd_tensor *y, const gd_tensor *x, uint32_t mask);

/* Says which axis is empty, for reductions that mean nothing without elements. */
gd_status gd_need_elements(const gd_tensor *x, uint32_t mask);

/* For plain kernels: calls body once for each result, with the elements of the first input that make
 * it up in a row, as f64 or i64 (what that is). `result` counts the results in row-major order. Such a
 * kernel has a workspace of gd_group_bytes. */
typedef void (*gd_group_fn)(void *context, const void *elements, int64_t n, int64_t result);
gd_status gd_each_group(const gd_kernel_call *k, uint32_t mask, gd_group_fn body, void *context);
size_t gd_group_bytes(const gd_kernel_call *k);

#endif
