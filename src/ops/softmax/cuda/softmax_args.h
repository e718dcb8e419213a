/* softmax_args.h - parameters of the kernels in softmax.cu. */
#ifndef GRADUS_OPS_SOFTMAX_CUDA_SOFTMAX_ARGS_H
#define GRADUS_OPS_SOFTMAX_CUDA_SOFTMAX_ARGS_H

#include "backend/cuda/view.h"

typedef enum {
    GD_CUDA_SOFTMAX,
    GD_CUDA_LOG_SOFTMAX,
    GD_CUDA_LOGSUMEXP,
} gd_cuda_softmax_kind;

/* Lines of n elements in contiguous tensors (outer, n, inner). */
typedef struct gd_cuda_softmax {
    gd_cuda_call call;
    gd_cuda_softmax_kind kind;
    int dtype;
    int vector; /* rows, which are lines with inner = 1, are multiples of 16 aligned bytes */
    long long outer, n, inner;
    const void *x; /* or gy */
    const void *y; /* of gradients: the result of the forward op */
    void *out;
} gd_cuda_softmax;

#endif
