/* infer.h - helpers of infer rules: shapes, dtypes and checks of inputs. */
#ifndef GRADUS_DISPATCH_INFER_H
#define GRADUS_DISPATCH_INFER_H

#include "dispatch/op.h"

/* Whether an int[] option was given. gd_attrs_normalize has set its form. */
bool gd_shape_is_set(const gd_shape *list);

/* A bit mask of the axes in a list; all axes if the list was not given. Negative axes count from
 * the end. An axis that is out of range or occurs twice is an error. */
gd_status gd_axes_mask(const gd_shape *axes, int rank, uint32_t *mask);

/* An axis that the infer rule has accepted, counted from the front. */
static inline int gd_wrap_axis(int64_t axis, int rank) {
    return (int)(axis < 0 ? axis + rank : axis);
}

/* The shape of x after reducing the axes in the mask. */
void gd_reduced_dims(const gd_tensor *x, uint32_t mask, bool keepdim, gd_meta *y);

/* Sets y to the dtype and shape of x. */
void gd_meta_like(gd_meta *y, const gd_tensor *x);
/* Sets y to a view of x, which is input number `input`. The rule changes dims and strides
 * afterwards. */
void gd_meta_view(gd_meta *y, const gd_tensor *x, int input);

/* gd_infer_elementwise for an op that clamps x to [min, max]: bools become i64, and bounds that
 * exclude every number of an integer dtype are an error. */
gd_status gd_infer_bounds(gd_infer *infer, double min, double max);

/* Checks that an integer dtype can hold the integer part of a number. */
gd_status gd_need_fits(gd_number value, gd_dtype dtype);

/* The smallest and the largest number of an integer dtype. */
void gd_dtype_range(gd_dtype dtype, double *low, double *high);

/* Checks of inputs, with messages that contain the name of the input. */
gd_status gd_need_float(const gd_tensor *t, const char *name);
gd_status gd_need_int(const gd_tensor *t, const char *name);
gd_status gd_need_rank(const gd_tensor *t, const char *name, int rank);
gd_status gd_need_same_dtype(const gd_tensor *a, const gd_tensor *b, const char *name_a,
                             const char *name_b);

#endif
