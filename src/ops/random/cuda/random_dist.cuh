/* random_dist.cuh - the distributions of random_dist.h as device functions. */
#ifndef GRADUS_OPS_RANDOM_CUDA_RANDOM_DIST_CUH
#define GRADUS_OPS_RANDOM_CUDA_RANDOM_DIST_CUH

#include "backend/cuda/device_code.cuh"

#define inline __device__ __forceinline__ /* as in device_code.cuh */
#include "ops/random/random_dist.h"
#undef inline

#endif
