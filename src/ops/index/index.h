/* index.h - checks and helpers for ops that take indices. */
#ifndef GRADUS_OPS_INDEX_INDEX_H
#define GRADUS_OPS_INDEX_INDEX_H

#include "dispatch/op.h"

/* Checks that all indices (integers, any strides) are in [0, size). Otherwise fails with
 * GD_E_INDEX; the message names the first bad index, its position, and `what`, the thing of that
 * size ("axis 1"). */
gd_status gd_check_indices(const gd_view *index, int64_t size, const char *what);

/* A tensor of rank 0 with this value, on the device of `like`. */
gd_tensor *gd_scalar_on(const gd_tensor *like, double value, gd_dtype dtype);

/* Zeros on the device of `like`: one element, expanded to dims. */
gd_tensor *gd_zeros_on(const gd_tensor *like, gd_dtype dtype, gd_shape dims);

/* Zeros with the shape, dtype and device of x: one element, expanded. */
gd_tensor *gd_zeros_as(const gd_tensor *x);

/* gd_check_indices for the indices of an axis. */
gd_status gd_check_axis_indices(const gd_view *index, int64_t size, int axis);

/* Checks the shape of the index of gather and scatter: it has the rank of x, and no dimension
 * except `axis` is larger than that of x. An index without elements may have any shape. */
gd_status gd_check_index(const gd_tensor *x, const gd_tensor *index, int axis);

/* The offsets of element `number` (row-major) of index: at in the index, at_b in b, and at_a in
 * a, where the axis is left out. b may be NULL. All have the same rank. */
void gd_locate(int64_t number, const gd_view *index, int axis, int64_t *at, const gd_view *a,
               int64_t *at_a, const gd_view *b, int64_t *at_b);

/* Rank and sizes, where a tensor of rank 0 counts as one of shape (1). */
static inline int gd_rank_1d(const gd_tensor *t) { return t->rank > 0 ? t->rank : 1; }
static inline int64_t gd_dim_1d(const gd_tensor *t, int d) { return t->rank > 0 ? t->dims[d] : 1; }

/* A view of rank 0 as one of shape (1). */
static inline gd_view gd_at_least_1d(gd_view v) {
    if (v.rank == 0) {
        v.rank = 1;
        v.dims[0] = v.strides[0] = 1;
    }
    return v;
}

#endif
