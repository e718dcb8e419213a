/* copy_args.h - parameters of the kernels in copy.cu. */
#ifndef GRADUS_BACKEND_CUDA_COPY_ARGS_H
#define GRADUS_BACKEND_CUDA_COPY_ARGS_H

#include "backend/cuda/view.h"

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

#endif
