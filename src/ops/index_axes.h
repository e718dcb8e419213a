/* index_axes.h - several axes indexed by tensors: the layout that rules and kernels share. */
#ifndef GRADUS_OPS_INDEX_AXES_H
#define GRADUS_OPS_INDEX_AXES_H

#include "ops/op.h"

/* x[..., i, ..., j, ...]: the indices broadcast to B; where their axes stand side by side, the result
 * has B in their place, else in front. */
typedef struct gd_axes_layout {
    int rank, n;           /* of x; of the axes */
    int axes[GD_MAX_RANK]; /* ascending */
    int index_rank;        /* B */
    int64_t index_dims[GD_MAX_RANK];
    int front;             /* dims of the result before B */
    int kept[GD_MAX_RANK]; /* the other axes of x, ascending: rank - n of them */
} gd_axes_layout;

gd_status gd_axes_layout_of(const gd_shape *axes, int rank, gd_axes_layout *l);

/* Checks axes and indices (n of them), and finds dtype and shape of x[indices]. */
gd_status gd_axes_shape(const gd_shape *axes, const gd_tensor *x, gd_tensor *const *indices, int n,
                        gd_meta *y);

/* B from views of the indices. */
void gd_axes_broadcast(gd_axes_layout *l, const gd_view *indices);

/* For elements [first, last) of B, in row-major order, where each points to in a tensor of these dims and
 * strides, in elements: places[e]. Negative indices count from the end. Returns `last`, or the first
 * element with an index that is out of range. */
int64_t gd_axes_places(const gd_axes_layout *l, const gd_view *indices, const int64_t *dims,
                       const int64_t *strides, int64_t first, int64_t last, int64_t *places);

/* What to say of that element. `names`: the numbers of the axes in messages, where given. */
gd_status gd_axes_wrong(const gd_axes_layout *l, const gd_view *indices, const int64_t *dims,
                        const gd_shape *names, int64_t element);

static inline int64_t gd_axes_count(const gd_axes_layout *l) {
    int64_t n = 1;
    for (int d = 0; d < l->index_rank; d++) n *= l->index_dims[d];
    return n;
}

#endif
