/* body.h - what bodies of ops are made of: index expressions, and the dtype that they compute in.
 *
 * A body runs on a device that has no kernel for the op. It gives what the CPU's kernel gives, so it
 * accumulates in the same dtype and refuses the same data with the same message. The tensors that it
 * creates lie on the device of the call: the dispatcher has set the thread's device.
 */
#ifndef GRADUS_OPS_BODY_H
#define GRADUS_OPS_BODY_H

#include "ops/op.h"

/* The dtype in which kernels compute with a float dtype: f64 for f64, f32 for all others. */
static inline gd_dtype gd_wide_dtype(gd_dtype dtype) { return dtype == GD_F64 ? GD_F64 : GD_F32; }

/* Whether gradients may flow through what the body makes: the tape is on, or a graph is built. */
bool gd_body_differentiates(const gd_expand *body);

/* x, cast if its dtype is another. */
gd_tensor *gd_as_dtype(gd_tensor *x, gd_dtype dtype);

/* A tensor filled with a value, as a result for x: a symbol where x is one. */
gd_tensor *gd_constant_for(const gd_tensor *x, gd_shape dims, gd_number value, gd_dtype dtype);

/* A tensor of rank 0 as a list of one, others as they are. */
gd_tensor *gd_as_list(gd_tensor *x);

/* first, first + step, ... (n numbers, i64) along one axis of `rank` axes; the others have size 1. */
gd_tensor *gd_positions(int rank, int axis, int64_t first, int64_t n, int64_t step);

/* x at the positions in `index` along an axis: index has size 1 in all other axes, as from
 * gd_positions. */
gd_tensor *gd_take_positions(gd_tensor *x, int axis, gd_tensor *index);

/* x at the positions first, first + 1, ... (n of them) along an axis, and zeros where there is no
 * such position. */
gd_tensor *gd_take_window(gd_tensor *x, int axis, int64_t first, int64_t n);

/* Integers that must be from 0 to size - 1, checked: the op fails with the message of
 * gd_check_indices, in which `what` has that size. */
gd_tensor *gd_checked_index(gd_tensor *index, int64_t size, const char *what);
/* The same for the indices of an axis. */
gd_tensor *gd_checked_axis_index(gd_tensor *index, int64_t size, int axis);

#endif
