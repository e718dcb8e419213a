/* join.cu - concatenation, and copies that select elements of x by index maps: pad, roll and the
 * gradient of slices. */
#include "backend/cuda/kernels/join.h"
#include "backend/cuda/kernels/element.cuh"

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

static __device__ __forceinline__ long long divide(long long a, long long b) {
    return ((a | b) >> 31) == 0 ? (long long)((uint32_t)a / (uint32_t)b) : a / b;
}

extern "C" __global__ void gd_join_pieces(const __grid_constant__ gd_cuda_join p) {
    RETURN_IF_FAILED(p.call);
    const long long start = p.pieces[0].start, columns = p.pieces[p.count - 1].end - start;
    for (EACH(i, p.rows * columns)) {
        const long long row = divide(i, columns), column = start + i - row * columns;
        const void *x = p.pieces[0].x;
        long long first = start, end = p.pieces[0].end;
#pragma unroll
        for (int k = 1; k < GD_CUDA_PIECES; k++)
            if (k < p.count && column >= p.pieces[k].start) {
                x = p.pieces[k].x;
                first = p.pieces[k].start;
                end = p.pieces[k].end;
            }
        copy_unit(p.unit, p.y, row * p.row + column, x, row * (end - first) + column - first);
    }
}

/* The index of x for index i along axis d; -1: none. */
static __device__ __forceinline__ long long map_index(const gd_cuda_mapped_copy &p, int d,
                                                      long long i) {
    const long long n = p.sizes[d];
    long long j = i - p.first[d];
    switch (p.maps[d]) {
    case GD_CUDA_MAP_SAME: return i;
    case GD_CUDA_MAP_REFLECT: return j < 0 ? -j : j >= n ? 2 * (n - 1) - j : j;
    case GD_CUDA_MAP_REPLICATE: return j < 0 ? 0 : j >= n ? n - 1 : j;
    case GD_CUDA_MAP_CIRCULAR:
        j %= p.period[d];
        return p.base[d] + (j < 0 ? j + p.period[d] : j);
    case GD_CUDA_MAP_STRIDED:
        if (j % p.period[d] != 0) return -1;
        j /= p.period[d];
        break;
    default: break;
    }
    return j >= 0 && j < n ? j : -1;
}

extern "C" __global__ void gd_copy_mapped(const __grid_constant__ gd_cuda_mapped_copy p) {
    RETURN_IF_FAILED(p.call);
    union {
        uint4 unit;
        unsigned char bytes[16];
    } value;
    const int size = p.dtype == GD_F64 || p.dtype == GD_I64   ? 8
                     : p.dtype == GD_F32 || p.dtype == GD_I32 ? 4
                     : p.dtype == GD_F16 || p.dtype == GD_BF16 ? 2
                                                               : 1;
    for (int k = 0; k < 16; k += size) store_real(p.dtype, value.bytes + k, 0, p.value);
    for (EACH(i, p.count)) {
        long long rest = i, from = 0, to = 0;
        bool inside = true;
        for (int d = p.rank - 1; d >= 0; d--) {
            const long long next = d == 0    ? 0
                                   : p.small ? (long long)((uint32_t)rest / (uint32_t)p.dims[d])
                                             : rest / p.dims[d];
            const long long index = rest - next * p.dims[d], j = map_index(p, d, index);
            rest = next;
            to += index * p.y_strides[d];
            from += j * p.x_strides[d];
            inside = inside && j >= 0;
        }
        if (inside) copy_unit(p.unit, p.y, to, p.x, from);
        else copy_unit(p.unit, p.y, to, value.bytes, 0);
    }
}
