/* index_axes.h - indexing several axes by tensors: the layout that infer rules and kernels
 * share. */
#ifndef GRADUS_OPS_INDEX_INDEX_AXES_H
#define GRADUS_OPS_INDEX_INDEX_AXES_H

#include "dispatch/op.h"

/* x[..., i, ..., j, ...]: the indices broadcast to a shape B. If their axes are neighbours, the
 * dimensions B replace them in the result; otherwise B comes first. */
typedef struct gd_axes_layout {
    int rank, n;           /* the rank of x; the number of indexed axes */
    int axes[GD_MAX_RANK]; /* ascending */
    int index_rank;        /* the rank and sizes of B */
    int64_t index_dims[GD_MAX_RANK];
    int front;             /* dimensions of the result before B */
    int kept[GD_MAX_RANK]; /* the other axes of x, ascending: rank - n of them */
} gd_axes_layout;

gd_status gd_axes_layout_of(const gd_shape *axes, int rank, gd_axes_layout *l);

/* Checks the axes and the n indices, and computes dtype and shape of x[indices]. */
gd_status gd_axes_shape(const gd_shape *axes, const gd_tensor *x, gd_tensor *const *indices, int n,
                        gd_meta *y);

/* Computes B from views of the indices. */
void gd_axes_broadcast(gd_axes_layout *l, const gd_view *indices);

/* For elements e in [first, last) of B, row-major: places[e] is the offset, in elements, that
 * the indices select in a tensor of these dims and strides. Negative indices count from the end.
 * Returns `last`, or the first element with an index out of range. */
int64_t gd_axes_places(const gd_axes_layout *l, const gd_view *indices, const int64_t *dims,
                       const int64_t *strides, int64_t first, int64_t last, int64_t *places);

/* Fails with a message about that element. `names`: the numbers of the axes in messages, if
 * given. */
gd_status gd_axes_wrong(const gd_axes_layout *l, const gd_view *indices, const int64_t *dims,
                        const gd_shape *names, int64_t element);

/* The number of elements of B. */
static inline int64_t gd_axes_count(const gd_axes_layout *l) {
    int64_t n = 1;
    for (int d = 0; d < l->index_rank; d++) n *= l->index_dims[d];
    return n;
}

#endif
