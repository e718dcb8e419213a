/* attention.h - which calls the kernels of attention.c support, and so those of a library. */
#ifndef GRADUS_OPS_ATTENTION_CUDA_ATTENTION_H
#define GRADUS_OPS_ATTENTION_CUDA_ATTENTION_H

#include "backend/cuda/kernels.h"

bool gd_cuda_match_attention(const gd_kernel_call *call);
bool gd_cuda_match_attention_grad(const gd_kernel_call *call);

#endif
