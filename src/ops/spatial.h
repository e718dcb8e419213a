/* spatial.h - what convolution and pooling share: ops over one, two or three spatial axes, which
 * are the last of their tensors, behind batch and channels.
 *
 * Numbers of an axis are kept in arrays of three (depth, height, width); an op with fewer axes uses
 * the last entries.
 */
#ifndef GRADUS_OPS_SPATIAL_H
#define GRADUS_OPS_SPATIAL_H

#include "ops/body.h"

enum { GD_SPATIAL_AXES = 3 };

/* The number of spatial axes of a call: as many as its first list option has numbers. */
int gd_spatial_axes(const gd_op *op, const void *attrs);

/* Copies a list option between a call's options and an array. It must have n numbers. */
gd_status gd_spatial_read(const gd_op_attr *attr, const void *attrs, int n, int64_t *to);
void gd_spatial_write(const gd_op_attr *attr, void *attrs, int n, const int64_t *from);

/* Numbers with n spatial axes behind channels, or behind batch and channels. */
gd_status gd_need_spatial(const gd_tensor *x, const char *name, int n);

/* The sizes of the last n axes; an array's entries of n axes. */
gd_shape gd_spatial_dims(const gd_tensor *t, int n);
gd_shape gd_spatial_list(const int64_t *numbers, int n);

/* x with axis `axis`, of size a * b, as two axes of sizes a and b; and two neighbours as one. */
gd_tensor *gd_split_axis(gd_tensor *x, int axis, int64_t a, int64_t b);
gd_tensor *gd_merge_axes(gd_tensor *x, int axis);

/* Zeros with `length` places along the axis, to which slice i of x is added at place index[i]. */
gd_tensor *gd_scatter_sums(gd_tensor *x, int axis, gd_tensor *index, int64_t length);

/* --- windows ---------------------------------------------------------------------------------- */

/* Windows along each spatial axis: window o begins at o * step - before, element k of a window lies
 * k * dilation behind that. Arrays of three, as above. */
typedef struct gd_window_form {
    int64_t before[GD_SPATIAL_AXES], count[GD_SPATIAL_AXES], size[GD_SPATIAL_AXES],
        step[GD_SPATIAL_AXES], dilation[GD_SPATIAL_AXES];
} gd_window_form;

/* Shows the windows of x (..., in_1 .. in_n) as (..., count_1 .. count_n, size_1 .. size_n): a view
 * of x with zeros around it. */
gd_tensor *gd_window_views(gd_tensor *x, const gd_window_form *f, int n);

/* The adjoint: adds the elements of such windows where they came from, in planes of sizes dims. */
gd_tensor *gd_window_sums(gd_tensor *windows, const gd_window_form *f, gd_shape dims);

#endif
