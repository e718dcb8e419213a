/* infer.h - what infer rules are made of. */
#ifndef GRADUS_OPS_INFER_H
#define GRADUS_OPS_INFER_H

#include "ops/op.h"

/* An int[] attribute that was given (it has its form from gd_attrs_normalize). */
bool gd_shape_is_set(const gd_shape *list);

/* Bits of the axes in a list; all axes if it is not set. Negative axes count from the end; an axis
 * out of range or named twice is an error. */
gd_status gd_axes_mask(const gd_shape *axes, int rank, uint32_t *mask);

/* The shape of x after reducing the axes in the mask. */
void gd_reduced_dims(const gd_tensor *x, uint32_t mask, bool keepdim, gd_meta *y);

/* y has x's dtype and shape; or is x seen again (a view of input number `input`). */
void gd_meta_like(gd_meta *y, const gd_tensor *x);
void gd_meta_view(gd_meta *y, const gd_tensor *x, int input);

/* Checks, with messages that name the input. */
/* The same for an op that holds x between two numbers: bools become i64, and integers refuse bounds
 * that leave no number of their dtype. */
gd_status gd_infer_bounds(gd_infer *infer, double min, double max);

/* A number as an element of the dtype: an integer dtype must hold it, its fraction aside. */
gd_status gd_need_fits(gd_number value, gd_dtype dtype);

/* The numbers that an integer dtype holds, both included. */
void gd_dtype_range(gd_dtype dtype, double *low, double *high);

gd_status gd_need_float(const gd_tensor *t, const char *name);
gd_status gd_need_int(const gd_tensor *t, const char *name);
gd_status gd_need_rank(const gd_tensor *t, const char *name, int rank);
gd_status gd_need_same_dtype(const gd_tensor *a, const gd_tensor *b, const char *name_a,
                             const char *name_b);

#endif
