/* mapped_copy.cu - copies that select elements of x by index maps. */
#include "backend/cuda/mapped_copy_args.h"
#include "backend/cuda/copy_unit.cuh"

/* The index of x for index i along axis d; -1: none. I is int if all numbers are below 2^31. */
template <typename I>
static __device__ __forceinline__ I map_index(const gd_cuda_mapped_copy &p, int d, I i) {
    const I n = (I)p.sizes[d], period = (I)p.period[d];
    I j = i - (I)p.first[d];
    switch (p.maps[d]) {
    case GD_CUDA_MAP_SAME: return i;
    case GD_CUDA_MAP_REFLECT: return j < 0 ? -j : j >= n ? 2 * (n - 1) - j : j;
    case GD_CUDA_MAP_REPLICATE: return j < 0 ? 0 : j >= n ? n - 1 : j;
    case GD_CUDA_MAP_CIRCULAR: j %= period; return (I)p.base[d] + (j < 0 ? j + period : j);
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
