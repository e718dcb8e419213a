/* sum.h - sums of floats over rows or contiguous elements, the common reductions. */
#ifndef GRADUS_OPS_REDUCE_CUDA_SUM_H
#define GRADUS_OPS_REDUCE_CUDA_SUM_H

#include "backend/cuda/kernels.h"
#include "ops/reduce/cuda/reduce_args.h"

/* Whether the kernels of sum.cu compute the sums of reduction `r`, or means, into y. */
bool gd_cuda_can_sum(const gd_cuda_reduce *r, const gd_view *y);
/* An upper bound of their workspace. */
size_t gd_cuda_sum_bytes(const gd_cuda_reduce *r);
gd_status gd_cuda_queue_sum(const gd_kernel_call *call, const gd_cuda_reduce *r, const gd_view *y);

#endif
