/* attention_f16.cu - attention in f16. The kernels have barriers (__syncthreads). */
#include "ops/attention/cuda/attention_mma.cuh"

ATTENTION_KERNELS(f16, f16_element)
