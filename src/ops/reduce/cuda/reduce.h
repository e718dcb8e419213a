/* reduce.h - the problem of a reduction on CUDA. */
#ifndef GRADUS_OPS_REDUCE_CUDA_REDUCE_H
#define GRADUS_OPS_REDUCE_CUDA_REDUCE_H

#include "backend/cuda/kernels.h"
#include "ops/reduce/cuda/reduce_args.h"

/* The axes of x that the option `axis` of an op names; bit k: axis k is reduced. */
uint32_t gd_cuda_reduced_axes(const gd_view *x, const gd_shape *axis);

/* The reduction of the call's first input over the axes of `mask`. Its work is not divided. */
gd_cuda_reduce gd_cuda_reduction_of(const gd_kernel_call *call, uint32_t mask);

#endif
