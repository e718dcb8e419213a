/* pool_args.h - parameters of the kernels in pool.cu. */
#ifndef GRADUS_OPS_POOL_CUDA_POOL_ARGS_H
#define GRADUS_OPS_POOL_CUDA_POOL_ARGS_H

#include "backend/cuda/divisor.h"
#include "backend/cuda/view.h"

enum {
    GD_CUDA_POOL_AXES = 3,    /* depth, height, width */
    GD_CUDA_POOL_LANES = 32,  /* threads of an output with a large window */
    GD_CUDA_POOL_VECTOR = 16, /* bytes of the channels of one thread, if they are contiguous */
};

/* A tensor of shape (N, C, D, H, W); absent axes have size 1. */
typedef struct gd_cuda_planes {
    void *data; /* NULL: not needed */
    int strides[5];
} gd_cuda_planes;

/* x are the planes that are pooled, y the results. Forward kernels write y, backward kernels x. A
 * thread computes one element, or adjacent channels that are contiguous. Offsets and numbers of
 * elements are below 2^31: the host divides large batches. */
typedef struct gd_cuda_pool {
    gd_cuda_call call;
    gd_cuda_planes x, y, indices; /* indices of maxima in their plane, shaped as y */
    gd_cuda_planes mask;          /* shaped as x: gradients are 0 where it is not above 0 */
    int wide_indices;             /* i64, otherwise i32 */
    int channels_last;            /* threads next to each other work on adjacent channels */
    int scattered;                /* channels are contiguous in x, but not in y and indices */
    int count;                    /* of threads */
    int channels;                 /* of threads, i.e. vectors of them */
    gd_cuda_divisor by_channels, by_size[GD_CUDA_POOL_AXES]; /* sizes of the tensor written */
    gd_cuda_divisor by_stride[GD_CUDA_POOL_AXES];
    int in[GD_CUDA_POOL_AXES], out[GD_CUDA_POOL_AXES];
    int adaptive; /* windows follow from `in` and `out` */
    int kernel[GD_CUDA_POOL_AXES], stride[GD_CUDA_POOL_AXES], dilation[GD_CUDA_POOL_AXES],
        padding[GD_CUDA_POOL_AXES];
    int count_padding; /* averages divide by the size of the window including padding */
    long long divisor; /* if not 0, averages divide by this instead */
} gd_cuda_pool;

#endif
