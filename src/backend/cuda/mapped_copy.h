/* mapped_copy.h - copies that select elements of x by an index map for each axis. */
#ifndef GRADUS_BACKEND_CUDA_MAPPED_COPY_H
#define GRADUS_BACKEND_CUDA_MAPPED_COPY_H

#include "backend/cuda/kernels.h"
#include "backend/cuda/mapped_copy_args.h"

/* The map of one axis; gd_cuda_axis_map explains the numbers. */
typedef struct gd_cuda_mapped_axis {
    gd_cuda_axis_map map;
    long long first, period, base;
} gd_cuda_mapped_axis;

/* Copies x to y, whose rank is that of x; elements that no element of x maps to become `value`. */
gd_status gd_cuda_queue_mapped(const gd_kernel_call *call, const gd_view *x, const gd_view *y,
                               const gd_cuda_mapped_axis *maps, double value);

#endif
