/* walk.cuh - offsets of elements in the views of a walk, and copies of elements, for kernels. */
#ifndef GRADUS_BACKEND_CUDA_WALK_CUH
#define GRADUS_BACKEND_CUDA_WALK_CUH

#include "backend/cuda/element.cuh"
#include "backend/cuda/walk_args.h"

/* Offsets in the views of a walk. */
struct walk_offsets {
    long long at[GD_CUDA_WALK_VIEWS];
};

/* The offsets of element `number`. */
static __device__ __forceinline__ walk_offsets walk_to(const gd_cuda_walk &w, long long number) {
    walk_offsets o = {{0, 0, 0}};
    for (int d = w.rank - 1; d >= 0; d--) {
        const long long rest = d > 0 ? number / w.dims[d] : 0, index = number - rest * w.dims[d];
        for (int v = 0; v < GD_CUDA_WALK_VIEWS; v++) o.at[v] += index * w.strides[v][d];
        number = rest;
    }
    return o;
}

/* Copies one element of `size` bytes, bit for bit. */
static __device__ __forceinline__ void copy_element(int size, void *to, long long i,
                                                    const void *from, long long k) {
    switch (size) {
    case 8: ((uint64_t *)to)[i] = ((const uint64_t *)from)[k]; break;
    case 4: ((uint32_t *)to)[i] = ((const uint32_t *)from)[k]; break;
    case 2: ((uint16_t *)to)[i] = ((const uint16_t *)from)[k]; break;
    default: ((uint8_t *)to)[i] = ((const uint8_t *)from)[k]; break;
    }
}

#endif
