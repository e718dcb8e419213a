/* walk.h - the host's part of loops over several views: shapes with merged dimensions. */
#ifndef GRADUS_BACKEND_CUDA_WALK_H
#define GRADUS_BACKEND_CUDA_WALK_H

#include "backend/cuda/kernels.h"
#include "backend/cuda/walk_args.h"

static inline int gd_cuda_axis(int64_t axis, int rank) {
    return (int)(axis < 0 ? axis + rank : axis);
}

/* A view of rank 0 as one of shape (1). */
static inline gd_view gd_cuda_at_least_1d(gd_view v) {
    if (v.rank == 0) v.rank = 1, v.dims[0] = v.strides[0] = 1;
    return v;
}

/* A walk over the shape `dims` without dimension `left_out` (-1: all dimensions). The views have
 * this rank; NULL: absent. */
gd_cuda_walk gd_cuda_walk_over(int rank, const int64_t *dims, int left_out,
                               const gd_view *const views[GD_CUDA_WALK_VIEWS]);

#endif
