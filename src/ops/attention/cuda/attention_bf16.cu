/* attention_bf16.cu - attention in bf16. The kernels have barriers (__syncthreads). */
#include "ops/attention/cuda/attention_mma.cuh"

ATTENTION_KERNELS(bf16, bf16_element)
