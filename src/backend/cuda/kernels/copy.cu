/* copy.cu - copies between views, with conversion. */
#include "backend/cuda/kernels/copy.h"
#include "backend/cuda/kernels/element.cuh"

extern "C" __global__ void gd_copy_views(const __grid_constant__ gd_cuda_copy p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.to.count)) {
        const long long from = p.reshapes ? offset_of(p.from, i)
                                          : offset_of(p.from, p.to.rank, p.to.dims, i);
        convert_element(p.to.dtype, p.to.data, offset_of(p.to, i), p.from.dtype, p.from.data, from);
    }
}

/* 16 bytes at a time if both addresses allow it. */
extern "C" __global__ void gd_copy_bytes(const __grid_constant__ gd_cuda_copy_bytes p) {
    RETURN_IF_FAILED(p.call);
    const bool aligned = (((uintptr_t)p.to | (uintptr_t)p.from) & 15) == 0;
    const long long units = aligned ? p.bytes / 16 : 0;
    for (EACH(i, units)) ((uint4 *)p.to)[i] = ((const uint4 *)p.from)[i];
    for (EACH(i, p.bytes - 16 * units))
        ((char *)p.to)[16 * units + i] = ((const char *)p.from)[16 * units + i];
}

/* --- copies without conversion ------------------------------------------------------------------ */

struct __align__(16) unit16 {
    unsigned long long low, high;
};

template <typename T> static __device__ __forceinline__ void copy_units(const gd_cuda_copy_units &p) {
    for (EACH(i, p.count)) {
        unsigned rest = (unsigned)i;
        long long to = 0, from = 0;
        for (int d = p.rank - 1; d > 0; d--) {
            const unsigned dim = (unsigned)p.dims[d], quotient = rest / dim;
            const long long at = rest - quotient * dim;
            to += at * p.to_strides[d];
            from += at * p.from_strides[d];
            rest = quotient;
        }
        if (p.rank > 0) to += rest * p.to_strides[0], from += rest * p.from_strides[0];
        ((T *)p.to)[to] = ((const T *)p.from)[from];
    }
}

extern "C" __global__ void gd_copy_units(const __grid_constant__ gd_cuda_copy_units p) {
    RETURN_IF_FAILED(p.call);
    switch (p.size) {
    case 1: copy_units<unsigned char>(p); break;
    case 2: copy_units<unsigned short>(p); break;
    case 4: copy_units<unsigned>(p); break;
    case 8: copy_units<unsigned long long>(p); break;
    default: copy_units<unit16>(p);
    }
}

/* Tiles of the last two dims go through shared memory, so that reads and writes are both along
 * adjacent addresses. A block has 32 x 8 threads and one tile. */
template <typename T> static __device__ __forceinline__ void transpose_tile(const gd_cuda_copy_units &p) {
    __shared__ T tile[GD_CUDA_TILE][GD_CUDA_TILE + 1];
    const int row = p.rank - 2, column = p.rank - 1;
    const long long rows = p.dims[row], columns = p.dims[column],
                    row_tiles = (rows + GD_CUDA_TILE - 1) / GD_CUDA_TILE,
                    column_tiles = (columns + GD_CUDA_TILE - 1) / GD_CUDA_TILE;
    const int x = threadIdx.x % GD_CUDA_TILE, y = threadIdx.x / GD_CUDA_TILE;
    long long rest = blockIdx.x;
    const long long first_column = rest % column_tiles * GD_CUDA_TILE;
    rest /= column_tiles;
    const long long first_row = rest % row_tiles * GD_CUDA_TILE;
    rest /= row_tiles;
    T *to = (T *)p.to;
    const T *from = (const T *)p.from;
    for (int d = row - 1; d >= 0; d--) {
        const long long at = rest % p.dims[d];
        to += at * p.to_strides[d];
        from += at * p.from_strides[d];
        rest /= p.dims[d];
    }
    for (int k = y; k < GD_CUDA_TILE; k += GD_CUDA_TILE_ROWS) /* along rows, adjacent in `from` */
        if (first_row + x < rows && first_column + k < columns)
            tile[k][x] = from[first_row + x + (first_column + k) * p.from_strides[column]];
    __syncthreads();
    for (int k = y; k < GD_CUDA_TILE; k += GD_CUDA_TILE_ROWS)
        if (first_row + k < rows && first_column + x < columns)
            to[(first_row + k) * p.to_strides[row] + first_column + x] = tile[x][k];
}

extern "C" __global__ void gd_transpose_units(const __grid_constant__ gd_cuda_copy_units p) {
    RETURN_IF_FAILED(p.call);
    switch (p.size) {
    case 1: transpose_tile<unsigned char>(p); break;
    case 2: transpose_tile<unsigned short>(p); break;
    case 4: transpose_tile<unsigned>(p); break;
    default: transpose_tile<unsigned long long>(p);
    }
}
