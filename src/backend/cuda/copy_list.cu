/* copy_list.cu - copies with conversion for all entries of a list. */
#include "backend/cuda/copy_list_args.h"
#include "backend/cuda/element.cuh"

typedef gd_cuda_copy_entry entry_type;
enum { THREADS = GD_CUDA_COPY_THREADS, TILE = GD_CUDA_COPY_TILE, VECTOR = 4 };

/* The last entry whose first block is not behind the block. */
static __device__ __forceinline__ const entry_type &find_entry(const gd_cuda_copy_list &p) {
    int low = 0, high = p.count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (p.entries[middle].first <= blockIdx.x) low = middle;
        else high = middle - 1;
    }
    return p.entries[low];
}

static __device__ __forceinline__ float load_float(int dtype, const void *p, long long i) {
    return dtype == GD_F32    ? ((const float *)p)[i]
           : dtype == GD_BF16 ? gd_bf16_to_f32(((const uint16_t *)p)[i])
                              : gd_f16_to_f32(((const uint16_t *)p)[i]);
}
static __device__ __forceinline__ void store_float(int dtype, void *p, long long i, float x) {
    if (dtype == GD_F32) ((float *)p)[i] = x;
    else ((uint16_t *)p)[i] = dtype == GD_BF16 ? gd_f32_to_bf16(x) : gd_f32_to_f16(x);
}

static __device__ __forceinline__ bool is_short_float(int dtype) {
    return dtype == GD_F32 || dtype == GD_BF16 || dtype == GD_F16;
}

struct alignas(16) four_floats {
    float at[VECTOR];
};
struct alignas(8) four_halves {
    uint16_t at[VECTOR];
};

/* VECTOR elements at once. */
static __device__ __forceinline__ void copy_vector(const entry_type &e, long long i) {
    four_floats x;
    if (e.from_dtype == GD_F32) x = *(const four_floats *)((const float *)e.from + i);
    else {
        const four_halves bits = *(const four_halves *)((const uint16_t *)e.from + i);
#pragma unroll
        for (int k = 0; k < VECTOR; k++) x.at[k] = load_float(e.from_dtype, bits.at, k);
    }
    if (e.to_dtype == GD_F32) *(four_floats *)((float *)e.to + i) = x;
    else {
        four_halves bits;
#pragma unroll
        for (int k = 0; k < VECTOR; k++) store_float(e.to_dtype, bits.at, k, x.at[k]);
        *(four_halves *)((uint16_t *)e.to + i) = bits;
    }
}

static __device__ void copy_flat(const entry_type &e, long long block) {
    const long long begin = block * TILE, end = begin + TILE < e.rows ? begin + TILE : e.rows;
    const bool vectors = is_short_float(e.to_dtype) && is_short_float(e.from_dtype) &&
                         (((uintptr_t)e.to | (uintptr_t)e.from) & 15) == 0;
    const long long aligned_end = vectors ? begin + (end - begin) / VECTOR * VECTOR : begin;
    for (long long i = begin + VECTOR * threadIdx.x; i < aligned_end; i += VECTOR * THREADS)
        copy_vector(e, i);
    for (long long i = aligned_end + threadIdx.x; i < end; i += THREADS)
        convert_element(e.to_dtype, e.to, i, e.from_dtype, e.from, i);
}

/* Some channels c of a row, with all taps t, go through shared memory as [c][t]. Channels first
 * they are adjacent, channels last they are `taps` runs of channels. */
static __device__ void copy_transposed(const entry_type &e, long long block, float *shared) {
    const int tiles = (e.channels + e.tile - 1) / e.tile, first = (int)(block % tiles) * e.tile,
              width = first + e.tile < e.channels ? e.tile : e.channels - first, n = width * e.taps;
    const long long row = block / tiles * e.channels * e.taps, packed = row + first * e.taps;
    const bool to_last = e.order == GD_CUDA_COPY_TO_LAST;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        const int t = i / width, c = i - t * width;
        if (to_last) shared[i] = load_float(e.from_dtype, e.from, packed + i);
        else
            shared[c * e.taps + t] =
                load_float(e.from_dtype, e.from, row + (long long)t * e.channels + first + c);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS) {
        const int t = i / width, c = i - t * width;
        if (to_last)
            store_float(e.to_dtype, e.to, row + (long long)t * e.channels + first + c,
                        shared[c * e.taps + t]);
        else store_float(e.to_dtype, e.to, packed + i, shared[i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gd_copy_list(const __grid_constant__ gd_cuda_copy_list p) {
    RETURN_IF_FAILED(p.call);
    __shared__ float shared[TILE];
    const entry_type &e = find_entry(p);
    if (e.order == GD_CUDA_COPY_FLAT) copy_flat(e, blockIdx.x - e.first);
    else copy_transposed(e, blockIdx.x - e.first, shared);
}
