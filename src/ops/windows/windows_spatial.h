/* windows_spatial.h - helpers that convolution, pooling and resize share.
 *
 * These ops work on one, two or three spatial axes, which are the last axes of their tensors, after
 * batch and channels. Numbers for each axis are in arrays of three (depth, height, width); an op
 * with fewer axes uses the last entries.
 */
#ifndef GRADUS_OPS_WINDOWS_WINDOWS_SPATIAL_H
#define GRADUS_OPS_WINDOWS_WINDOWS_SPATIAL_H

#include "dispatch/body.h"

enum { GD_SPATIAL_AXES = 3 };

/* The number of spatial axes of a call: the length of its first list option. */
int gd_spatial_axes(const gd_op *op, const void *attrs);

/* Copies a list option between a call's options and an array. It must have n numbers. */
gd_status gd_spatial_read(const gd_op_attr *attr, const void *attrs, int n, int64_t *to);
void gd_spatial_write(const gd_op_attr *attr, void *attrs, int n, const int64_t *from);

/* Requires x to be numbers of shape (C, n spatial axes) or (N, C, n spatial axes). */
gd_status gd_need_spatial(const gd_tensor *x, const char *name, int n);

/* The sizes of the last n axes of t; the last n entries of an array of three. */
gd_shape gd_spatial_dims(const gd_tensor *t, int n);
gd_shape gd_spatial_list(const int64_t *numbers, int n);

/* Splits an axis of size a * b into two of sizes a and b. */
gd_tensor *gd_split_axis(gd_tensor *x, int axis, int64_t a, int64_t b);
/* Merges axes `axis` and `axis` + 1 into one. */
gd_tensor *gd_merge_axes(gd_tensor *x, int axis);

/* Adds slice i of x along the axis to slice index[i] of zeros of size `length`. */
gd_tensor *gd_scatter_sums(gd_tensor *x, int axis, gd_tensor *index, int64_t length);

/* --- windows ---------------------------------------------------------------------------------- */

/* Windows along each spatial axis: window o begins at o * step - before, and its element k is at
 * offset k * dilation from there. Arrays of three, see above. */
typedef struct gd_window_form {
    int64_t before[GD_SPATIAL_AXES], count[GD_SPATIAL_AXES], size[GD_SPATIAL_AXES],
        step[GD_SPATIAL_AXES], dilation[GD_SPATIAL_AXES];
} gd_window_form;

/* The windows of x (..., in_1 .. in_n) as (..., count_1 .. count_n, size_1 .. size_n): a view of x
 * padded with zeros. */
gd_tensor *gd_window_views(gd_tensor *x, const gd_window_form *f, int n);

/* The adjoint: adds each element of the windows to the element of x that it was, for x of spatial
 * sizes dims. */
gd_tensor *gd_window_sums(gd_tensor *windows, const gd_window_form *f, gd_shape dims);

#endif
