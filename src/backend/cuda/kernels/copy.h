/* copy.h - parameters of the kernels in copy.cu. */
#ifndef GRADUS_CUDA_COPY_H
#define GRADUS_CUDA_COPY_H

#include "backend/cuda/kernels/view.h"

typedef struct gd_cuda_copy {
    gd_cuda_call call;
    gd_cuda_view to, from;
    int reshapes; /* element i of `from` in row-major order goes to element i of `to`; otherwise
                     `from` is broadcast to the shape of `to` */
} gd_cuda_copy;

/* Both are contiguous and of one dtype. */
typedef struct gd_cuda_copy_bytes {
    gd_cuda_call call;
    void *to;
    const void *from;
    long long bytes;
} gd_cuda_copy_bytes;

/* Views of one dtype, as units of `size` bytes: elements, or up to 16 bytes that are adjacent in
 * both. Strides are in units. `count` is below 2^32. In a transpose the last dim has stride 1 in
 * `to`, and the dim before it has stride 1 in `from`. */
typedef struct gd_cuda_copy_units {
    gd_cuda_call call;
    void *to;
    const void *from;
    long long count;
    int size, rank;
    long long dims[GD_CUDA_RANK], to_strides[GD_CUDA_RANK], from_strides[GD_CUDA_RANK];
} gd_cuda_copy_units;

enum { GD_CUDA_TILE = 32, GD_CUDA_TILE_ROWS = 8 }; /* of a transpose */

#endif
