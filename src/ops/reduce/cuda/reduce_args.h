/* reduce_args.h - parameters of the kernels in reduce.cu. */
#ifndef GRADUS_OPS_REDUCE_CUDA_REDUCE_ARGS_H
#define GRADUS_OPS_REDUCE_CUDA_REDUCE_ARGS_H

#include "backend/cuda/view.h"

enum {
    GD_CUDA_REDUCE_THREADS = 256, /* of a block */
    GD_CUDA_PARTIAL_BYTES = 16,   /* of one partial result, at most */
};

/* Some axes of a tensor, outermost first. */
typedef struct gd_cuda_axes {
    int rank;
    long long dims[GD_CUDA_RANK], strides[GD_CUDA_RANK];
} gd_cuda_axes;

/* Each output is reduced from a group of `size` elements of x. A block computes threads / lanes
 * outputs: `lanes` threads read a group together and join their results in a tree. If there are few
 * outputs, a group is divided into parts of `chunk` elements; a block then computes one part of its
 * outputs, and a second kernel joins the parts. */
typedef struct gd_cuda_reduce {
    gd_cuda_call call;
    const void *x;
    int dtype;            /* of x */
    gd_cuda_axes kept;    /* the axes of x that number the outputs */
    gd_cuda_axes reduced; /* those that number the elements of a group */
    long long outputs, size;
    int lanes;       /* a power of two, at most the threads of a block */
    int lane_stride; /* between threads of a group: 1, or threads / lanes */
    long long parts, chunk;
    void *partials;       /* (parts, outputs), if there are several parts */
    double divisor;       /* real sums are divided by it: 1, or `size` for a mean */
    gd_cuda_view y;       /* data NULL: not needed */
    gd_cuda_view indices; /* i64, for argmax and argmin; data NULL: not needed */
} gd_cuda_reduce;

#endif
