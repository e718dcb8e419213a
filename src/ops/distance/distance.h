/* distance.h - the shapes of cdist, for its rules and its kernels. */
#ifndef GRADUS_OPS_DISTANCE_DISTANCE_H
#define GRADUS_OPS_DISTANCE_DISTANCE_H

#include "dispatch/op.h"

/* a (batch..., n, width) and b (batch..., m, width); the leading dimensions of both broadcast. */
typedef struct gd_cdist_shape {
    int rank; /* number of leading dimensions */
    int64_t batch[GD_MAX_RANK];
    int64_t count; /* matrices in the batch */
    int64_t n, m, width;
} gd_cdist_shape;

/* The shapes of a kernel call, which infer has checked. */
gd_cdist_shape gd_cdist_shape_of(const gd_view *a, const gd_view *b);

/* The offset in elements of matrix number `index` of the batch in a row-major operand. */
int64_t gd_cdist_offset(const gd_cdist_shape *s, const gd_view *operand, int64_t index);

#endif
