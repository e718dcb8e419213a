/* mapped_copy_args.h - parameters of the kernel in mapped_copy.cu. */
#ifndef GRADUS_BACKEND_CUDA_MAPPED_COPY_ARGS_H
#define GRADUS_BACKEND_CUDA_MAPPED_COPY_ARGS_H

#include "backend/cuda/divisor.h"
#include "backend/cuda/view.h"

/* How an index i of the result selects an index j of x along one axis. */
typedef enum gd_cuda_axis_map {
    GD_CUDA_MAP_SAME,
    GD_CUDA_MAP_SHIFT,     /* j = i - first, or none */
    GD_CUDA_MAP_REFLECT,   /* the same, mirrored at the ends of x */
    GD_CUDA_MAP_REPLICATE, /* the same, limited to x */
    GD_CUDA_MAP_CIRCULAR,  /* j = base + (i - first) modulo period */
    GD_CUDA_MAP_STRIDED,   /* i = first + j * period, or none */
} gd_cuda_axis_map;

/* Each element of y is an element of x, or `value` if an axis selects none. */
typedef struct gd_cuda_mapped_copy {
    gd_cuda_call call;
    void *y;
    const void *x;
    int dtype, unit; /* bytes that are copied at a time: an element, or 16 */
    double value;
    int rank, small; /* small: 32 bits hold the number of units */
    long long count;
    gd_cuda_divisor by[GD_CUDA_RANK]; /* dims, if they are small */
    long long dims[GD_CUDA_RANK];     /* of y; strides are in units */
    long long x_strides[GD_CUDA_RANK], y_strides[GD_CUDA_RANK];
    int maps[GD_CUDA_RANK];
    long long sizes[GD_CUDA_RANK]; /* of x */
    long long first[GD_CUDA_RANK], period[GD_CUDA_RANK], base[GD_CUDA_RANK];
} gd_cuda_mapped_copy;

#endif
