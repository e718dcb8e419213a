/* indexing.h - what ops that take indices share. */
#ifndef GRADUS_OPS_INDEXING_H
#define GRADUS_OPS_INDEXING_H

#include "ops/op.h"

/* GD_OK if all indices (integers, any strides) lie in [0, size); else GD_E_INDEX, and the message
 * names the first that does not, its position, and `what` has that size ("axis 1"). */
gd_status gd_check_indices(const gd_view *index, int64_t size, const char *what);

/* Zeros of a shape and dtype on the device of `like`: one number, expanded. */
gd_tensor *gd_zeros_on(const gd_tensor *like, gd_dtype dtype, gd_shape dims);

/* A view of rank 0 seen as one of rank 1. */
static inline gd_view gd_at_least_1d(gd_view v) {
    if (v.rank == 0) {
        v.rank = 1;
        v.dims[0] = v.strides[0] = 1;
    }
    return v;
}

#endif
