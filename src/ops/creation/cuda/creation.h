/* creation.h - fills views with a constant, for all kernels. */
#ifndef GRADUS_OPS_CREATION_CUDA_CREATION_H
#define GRADUS_OPS_CREATION_CUDA_CREATION_H

#include "backend/cuda/kernels.h"

/* Writes the same bits, the low bytes of `bits`, to all elements. */
gd_status gd_cuda_queue_fill(const gd_kernel_call *call, const gd_view *to,
                             unsigned long long bits);

#endif
