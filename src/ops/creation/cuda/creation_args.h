/* creation_args.h - parameters of the kernels in creation.cu. */
#ifndef GRADUS_OPS_CREATION_CUDA_CREATION_ARGS_H
#define GRADUS_OPS_CREATION_CUDA_CREATION_ARGS_H

#include "backend/cuda/view.h"

/* The bits of one element, in the low bytes of `bits`. */
typedef struct gd_cuda_fill {
    gd_cuda_call call;
    gd_cuda_view to;
    unsigned long long bits;
} gd_cuda_fill;

/* Contiguous memory. */
typedef struct gd_cuda_fill_bytes {
    gd_cuda_call call;
    void *to;
    long long bytes;
    unsigned long long pattern; /* the element, repeated to 8 bytes */
} gd_cuda_fill_bytes;

/* Element i is start + i * step: integers for integer dtypes (they wrap), otherwise reals. */
typedef struct gd_cuda_arange {
    gd_cuda_call call;
    gd_cuda_view to; /* rank 1 */
    int is_real;
    double start, step;
    long long first, stride;
} gd_cuda_arange;

#endif
