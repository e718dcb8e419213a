/* body.h - helpers for the bodies of ops: casts, optional inputs, index expressions, checked indices.
 *
 * A body runs on a device that has no kernel for the op. It computes what the CPU's kernel computes:
 * it accumulates in the same dtype, and it fails for the same data with the same message. The tensors
 * that it creates are on the device of the call, because the dispatcher has set the thread's device.
 */
#ifndef GRADUS_DISPATCH_BODY_H
#define GRADUS_DISPATCH_BODY_H

#include "dispatch/op.h"

/* Input i of a call, or NULL if the call has fewer inputs. */
static inline gd_tensor *gd_optional_input(gd_tensor *const *x, int n_in, int i) {
    return i < n_in ? x[i] : NULL;
}

/* Whether the body's ops are recorded for gradients: the tape is on, or a graph is being built. */
bool gd_body_differentiates(const gd_expansion *body);

/* --- dtypes ----------------------------------------------------------------------------------- */

/* The dtype in which kernels compute with a float dtype: f64 for f64, f32 for all others. */
static inline gd_dtype gd_wide_dtype(gd_dtype dtype) { return dtype == GD_F64 ? GD_F64 : GD_F32; }

/* x cast to dtype, or x itself if it already has it. NULL stays NULL. */
gd_tensor *gd_as_dtype(gd_tensor *x, gd_dtype dtype);

/* f16 and bf16 cast to f32, so that a body rounds once, at its end, as kernels do. All other dtypes,
 * and NULL, stay as they are. */
gd_tensor *gd_widen(gd_tensor *x);

/* --- constants and positions ------------------------------------------------------------------ */

/* A tensor filled with a value. It is a symbol if x is one. */
gd_tensor *gd_constant_for(const gd_tensor *x, gd_shape dims, gd_number value, gd_dtype dtype);

/* A tensor of rank 0 reshaped to (1); others as they are. */
gd_tensor *gd_as_list(gd_tensor *x);

/* The n integers first, first + step, ... (i64) along one of `rank` axes; the other axes have size 1. */
gd_tensor *gd_positions(int rank, int axis, int64_t first, int64_t n, int64_t step);

/* The elements of x at the positions in `index` along an axis. index has size 1 in all other axes, as
 * the result of gd_positions has. */
gd_tensor *gd_take_positions(gd_tensor *x, int axis, gd_tensor *index);

/* The region of x that starts at first[d] and has size length[d] along each of the last n axes (4 at
 * most), with zeros outside of x. The result is x itself or a view of it where nothing is padded. */
gd_tensor *gd_take_region(gd_tensor *x, int n, const int64_t *first, const int64_t *length);
/* The same along one axis, which may be any. */
gd_tensor *gd_take_window(gd_tensor *x, int axis, int64_t first, int64_t length);

/* --- checks of data --------------------------------------------------------------------------- */

/* `index`, checked to be from 0 to size - 1. Otherwise the op fails with the message of
 * gd_check_indices, where `what` names the thing of that size. */
gd_tensor *gd_checked_index(gd_tensor *index, int64_t size, const char *what);
/* The same for the indices of an axis. */
gd_tensor *gd_checked_axis_index(gd_tensor *index, int64_t size, int axis);

#endif
