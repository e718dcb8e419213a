/* strided.cu - copies between strided views of one dtype. */
#include "backend/cuda/element.cuh"
#include "backend/cuda/strided_args.h"

template <typename T>
static __device__ __forceinline__ void copy_units(const gd_cuda_strided_copy &p) {
    for (EACH(i, p.count)) {
        int rest = (int)i, to = 0, from = 0;
#pragma unroll 1
        for (int d = p.rank - 1; d > 0; d--) {
            const int index = split_off(p.by[d], &rest);
            to += index * p.to_strides[d];
            from += index * p.from_strides[d];
        }
        if (p.rank > 0) to += rest * p.to_strides[0], from += rest * p.from_strides[0];
        ((T *)p.to)[to] = ((const T *)p.from)[from];
    }
}

extern "C" __global__ void gd_copy_strided(const __grid_constant__ gd_cuda_strided_copy p) {
    RETURN_IF_FAILED(p.call);
    switch (p.unit) {
    case 16: copy_units<uint4>(p); break;
    case 8: copy_units<uint64_t>(p); break;
    case 4: copy_units<uint32_t>(p); break;
    case 2: copy_units<uint16_t>(p); break;
    default: copy_units<uint8_t>(p); break;
    }
}

/* One element, copied to contiguous memory; `count` is in units of 16 bytes. */
extern "C" __global__ void gd_copy_broadcast(const __grid_constant__ gd_cuda_strided_copy p) {
    RETURN_IF_FAILED(p.call);
    union {
        uint4 unit;
        unsigned char bytes[16];
    } value;
    for (int k = 0; k < 16; k++) value.bytes[k] = ((const unsigned char *)p.from)[k % p.unit];
    for (EACH(i, p.count)) ((uint4 *)p.to)[i] = value.unit;
}

/* A block copies tiles of 32 x 32 elements by shared memory: it reads along one dimension and
 * writes along the other. */
template <typename T>
static __device__ void transpose_tiles(const gd_cuda_strided_copy &p, void *memory) {
    enum { TILE = GD_CUDA_TRANSPOSE_TILE, STEP = GD_CUDA_TRANSPOSE_THREADS / TILE };
    T(*tile)[TILE + 1] = (T(*)[TILE + 1]) memory;
    const int x = (int)threadIdx.x % TILE, y = (int)threadIdx.x / TILE;
    const int a = p.rank - 2, b = p.rank - 1; /* `from` is contiguous along a, `to` along b */
    for (int i = (int)blockIdx.x; i < p.count; i += (int)gridDim.x) {
        int rest = i;
        const int first_b = split_off(p.by[b], &rest) * TILE,
                  first_a = split_off(p.by[a], &rest) * TILE;
        int to = 0, from = 0;
        for (int d = a - 1; d >= 0; d--) {
            const int index = split_off(p.by[d], &rest);
            to += index * p.to_strides[d];
            from += index * p.from_strides[d];
        }
        for (int k = y; k < TILE; k += STEP)
            if (first_a + x < p.dims[a] && first_b + k < p.dims[b])
                tile[k][x] =
                    ((const T *)p.from)[from + first_a + x + (first_b + k) * p.from_strides[b]];
        __syncthreads();
        for (int k = y; k < TILE; k += STEP)
            if (first_a + k < p.dims[a] && first_b + x < p.dims[b])
                ((T *)p.to)[to + (first_a + k) * p.to_strides[a] + first_b + x] = tile[x][k];
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(GD_CUDA_TRANSPOSE_THREADS)
    gd_copy_transposed(const __grid_constant__ gd_cuda_strided_copy p) {
    RETURN_IF_FAILED(p.call);
    __shared__ uint64_t memory[GD_CUDA_TRANSPOSE_TILE * (GD_CUDA_TRANSPOSE_TILE + 1)];
    switch (p.unit) {
    case 8: transpose_tiles<uint64_t>(p, memory); break;
    case 4: transpose_tiles<uint32_t>(p, memory); break;
    case 2: transpose_tiles<uint16_t>(p, memory); break;
    default: transpose_tiles<uint8_t>(p, memory); break;
    }
}
