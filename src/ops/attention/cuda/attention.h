/* attention.h - the kernels of attention.c, for files that run them where a library does not. */
#ifndef GRADUS_OPS_ATTENTION_CUDA_ATTENTION_H
#define GRADUS_OPS_ATTENTION_CUDA_ATTENTION_H

#include "backend/cuda/kernels.h"

bool gd_cuda_match_attention(const gd_kernel_call *call);
gd_status gd_cuda_run_attention(gd_kernel_call *call);

bool gd_cuda_match_attention_grad(const gd_kernel_call *call);
size_t gd_cuda_attention_grad_workspace(const gd_kernel_call *call);
gd_status gd_cuda_run_attention_grad(gd_kernel_call *call);

#endif
