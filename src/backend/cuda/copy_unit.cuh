/* copy_unit.cuh - copies of a unit of 1 to 16 bytes, for kernels that move elements without reading
 * them. */
#ifndef GRADUS_BACKEND_CUDA_COPY_UNIT_CUH
#define GRADUS_BACKEND_CUDA_COPY_UNIT_CUH

#include "backend/cuda/element.cuh"

/* Copies one unit, bit for bit. */
static __device__ __forceinline__ void copy_unit(int unit, void *to, long long i, const void *from,
                                                 long long k) {
    switch (unit) {
    case 16: ((uint4 *)to)[i] = ((const uint4 *)from)[k]; break;
    case 8: ((uint64_t *)to)[i] = ((const uint64_t *)from)[k]; break;
    case 4: ((uint32_t *)to)[i] = ((const uint32_t *)from)[k]; break;
    case 2: ((uint16_t *)to)[i] = ((const uint16_t *)from)[k]; break;
    default: ((uint8_t *)to)[i] = ((const uint8_t *)from)[k]; break;
    }
}

#endif
