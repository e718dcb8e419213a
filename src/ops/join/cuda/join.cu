/* join.cu - concatenation, and copies that select elements of x by index maps: pad, roll and the
 * gradient of slices. */
#include "ops/join/cuda/join_args.h"
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

/* Copies a piece; 32-bit numbers if they are large enough. */
template <typename I>
static __device__ __forceinline__ void copy_piece(const gd_cuda_join &p, int k) {
    const long long start = p.pieces[k].start, columns = p.pieces[k].end - start;
    for (EACH(i, p.rows * columns)) {
        const long long row = sizeof(I) == 4 ? divide_by(p.pieces[k].by, (int)i) : i / columns;
        copy_unit(p.unit, p.y, row * p.row + start + (i - row * columns), p.pieces[k].x, i);
    }
}

extern "C" __global__ void gd_join_pieces(const __grid_constant__ gd_cuda_join p) {
    RETURN_IF_FAILED(p.call);
    for (int k = 0; k < p.count; k++)
        if (p.pieces[k].small) copy_piece<int>(p, k);
        else copy_piece<long long>(p, k);
}

/* The index of x for index i along axis d; -1: none. I is int if all numbers are below 2^31. */
template <typename I>
static __device__ __forceinline__ I map_index(const gd_cuda_mapped_copy &p, int d, I i) {
    const I n = (I)p.sizes[d], period = (I)p.period[d];
    I j = i - (I)p.first[d];
    switch (p.maps[d]) {
    case GD_CUDA_MAP_SAME: return i;
    case GD_CUDA_MAP_REFLECT: return j < 0 ? -j : j >= n ? 2 * (n - 1) - j : j;
    case GD_CUDA_MAP_REPLICATE: return j < 0 ? 0 : j >= n ? n - 1 : j;
    case GD_CUDA_MAP_CIRCULAR:
        j %= period;
        return (I)p.base[d] + (j < 0 ? j + period : j);
    case GD_CUDA_MAP_STRIDED:
        if (j % period != 0) return -1;
        j /= period;
        break;
    default: break;
    }
    return j >= 0 && j < n ? j : -1;
}

static __device__ __forceinline__ int quotient(const gd_cuda_mapped_copy &p, int d, int n) {
    return divide_by(p.by[d], n);
}
static __device__ __forceinline__ long long quotient(const gd_cuda_mapped_copy &p, int d,
                                                     long long n) {
    return n / p.dims[d];
}

template <typename I>
static __device__ void copy_elements(const gd_cuda_mapped_copy &p, const void *value) {
    for (EACH(number, p.count)) {
        I rest = (I)number, from = 0, to = 0;
        bool inside = true;
#pragma unroll 1
        for (int d = p.rank - 1; d >= 0; d--) {
            const I next = d == 0 ? 0 : quotient(p, d, rest);
            const I index = rest - next * (I)p.dims[d], j = map_index<I>(p, d, index);
            rest = next;
            to += index * (I)p.y_strides[d];
            from += j * (I)p.x_strides[d];
            inside = inside && j >= 0;
        }
        if (inside) copy_unit(p.unit, p.y, to, p.x, from);
        else copy_unit(p.unit, p.y, to, value, 0);
    }
}

extern "C" __global__ void gd_copy_mapped(const __grid_constant__ gd_cuda_mapped_copy p) {
    RETURN_IF_FAILED(p.call);
    union {
        uint4 unit;
        unsigned char bytes[16];
    } value;
    const int size = p.dtype == GD_F64 || p.dtype == GD_I64    ? 8
                     : p.dtype == GD_F32 || p.dtype == GD_I32  ? 4
                     : p.dtype == GD_F16 || p.dtype == GD_BF16 ? 2
                                                               : 1;
    for (int k = 0; k < 16; k += size) store_real(p.dtype, value.bytes + k, 0, p.value);
    if (p.small) copy_elements<int>(p, value.bytes);
    else copy_elements<long long>(p, value.bytes);
}
