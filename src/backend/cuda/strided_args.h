/* strided_args.h - parameters of the kernels in strided.cu. */
#ifndef GRADUS_BACKEND_CUDA_STRIDED_ARGS_H
#define GRADUS_BACKEND_CUDA_STRIDED_ARGS_H

#include "backend/cuda/divisor.h"
#include "backend/cuda/view.h"

enum { GD_CUDA_TRANSPOSE_TILE = 32, GD_CUDA_TRANSPOSE_THREADS = 256 };

/* A copy between views of one shape and dtype. Numbers are below 2^31, in units of `unit` bytes. */
typedef struct gd_cuda_strided_copy {
    gd_cuda_call call;
    void *to;
    const void *from;
    int unit, rank, count; /* count: units, or tiles of a transpose */
    int dims[GD_CUDA_RANK], to_strides[GD_CUDA_RANK], from_strides[GD_CUDA_RANK];
    /* By dims. In a transpose by the number of tiles in the last two dims: `from` is contiguous in
     * the last but one, `to` in the last. */
    gd_cuda_divisor by[GD_CUDA_RANK];
} gd_cuda_strided_copy;

#endif
