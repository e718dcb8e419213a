/* index_embedding.cu - rows that are selected by index, and sums of rows by index, in a fixed order. */
#include "ops/index/cuda/index_embedding_args.h"
#include "backend/cuda/typed.cuh"
#include "gradus/backend.h"

/* --- selection -------------------------------------------------------------------------------- */

static __device__ __forceinline__ long long divide(long long a, long long b) {
    return ((a | b) >> 31) == 0 ? (long long)((uint32_t)a / (uint32_t)b) : a / b;
}

static __device__ __forceinline__ long long index_at(const gd_cuda_view &index, long long i) {
    const long long at = index.rank == 1 ? i * index.strides[0] : offset_of(index, i);
    return load_integer(index.dtype, index.data, at);
}

extern "C" __global__ void gd_take_rows(const __grid_constant__ gd_cuda_take_rows p) {
    RETURN_IF_FAILED(p.call);
    const long long units = p.y ? p.row : 1, outer = p.y ? p.outer : 1;
    for (EACH(i, outer * p.count * units)) {
        const long long number = divide(i, units), column = i - number * units;
        const long long o = outer == 1 ? 0 : divide(number, p.count), n = number - o * p.count;
        const long long index = index_at(p.index, n);
        if (index < 0 || index >= p.size) {
            report_problem(p.call, p.problem, n, index, p.size, p.axis, 0);
            continue;
        }
        if (!p.y) continue;
        const long long from = (o * p.size + index) * p.row + column;
        switch (p.unit) {
        case 16: ((uint4 *)p.y)[i] = ((const uint4 *)p.x)[from]; break;
        case 8: ((uint64_t *)p.y)[i] = ((const uint64_t *)p.x)[from]; break;
        case 4: ((uint32_t *)p.y)[i] = ((const uint32_t *)p.x)[from]; break;
        case 2: ((uint16_t *)p.y)[i] = ((const uint16_t *)p.x)[from]; break;
        default: ((uint8_t *)p.y)[i] = ((const uint8_t *)p.x)[from]; break;
        }
    }
}

/* --- segments --------------------------------------------------------------------------------- */

/* Atomic counters of integers: their results do not depend on the order of the threads. */
extern "C" __global__ void gd_index_add_count(const __grid_constant__ gd_cuda_index_add p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.count)) {
        const long long index = index_at(p.index, i);
        if (index < 0 || index >= p.size)
            report_problem(p.call, GD_DATA_AXIS_INDEX, i, index, p.size, p.axis, 0);
        else atomicAdd(&p.counts[index], 1u);
    }
}

/* The order of the segments is arbitrary: each of them is added up alone. Short segments are at the
 * beginning of the array, long ones at its end. A warp reserves the segments of 32 rows at once. */
extern "C" __global__ void gd_index_add_reserve(const __grid_constant__ gd_cuda_index_add p) {
    RETURN_IF_FAILED(p.call);
    const int lane = (int)(threadIdx.x % 32);
    const long long rows = (p.size + 31) / 32 * 32; /* all lanes of a warp take part */
    for (EACH(r, rows)) {
        const unsigned length = r < p.size ? p.counts[r] : 0;
        const bool is_long = length > GD_CUDA_SHORT_SEGMENT;
        const unsigned short_ones = __ballot_sync(~0u, length > 0 && !is_long),
                       long_ones = __ballot_sync(~0u, is_long);
        unsigned before = length; /* rows of src up to this lane */
        for (int step = 1; step < 32; step *= 2) {
            const unsigned other = __shfl_up_sync(~0u, before, step);
            if (lane >= step) before += other;
        }
        unsigned first_short = 0, first_long = 0, first_row = 0;
        if (lane == 31 && (short_ones | long_ones)) {
            if (short_ones) first_short = atomicAdd(&p.totals[0], (unsigned)__popc(short_ones));
            if (long_ones) first_long = atomicAdd(&p.totals[2], (unsigned)__popc(long_ones));
            first_row = atomicAdd(&p.totals[1], before);
        }
        first_short = __shfl_sync(~0u, first_short, 31);
        first_long = __shfl_sync(~0u, first_long, 31);
        first_row = __shfl_sync(~0u, first_row, 31);
        if (length == 0) continue;
        gd_cuda_segment s;
        s.row = (unsigned)r;
        s.start = first_row + before - length;
        s.length = length;
        const unsigned lower = (1u << lane) - 1;
        if (is_long)
            p.segments[p.max_segments - 1 - (first_long + (unsigned)__popc(long_ones & lower))] = s;
        else p.segments[first_short + (unsigned)__popc(short_ones & lower)] = s;
        p.starts[r] = s.start;
    }
}

/* The order in a segment is arbitrary, too; the next kernels put it right. */
extern "C" __global__ void gd_index_add_place(const __grid_constant__ gd_cuda_index_add p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.count)) {
        const long long index = index_at(p.index, i);
        const unsigned left = atomicAdd(&p.counts[index], ~0u); /* subtracts 1 */
        p.order[p.starts[index] + left - 1] = (unsigned)i;
    }
}

/* --- sums ------------------------------------------------------------------------------------- */

template <typename T, int V> struct alignas(V * sizeof(T)) vector_of { T at[V]; };

static __device__ __forceinline__ void narrow(double x, double *y) { *y = x; }
static __device__ __forceinline__ void narrow(float x, float *y) { *y = x; }
static __device__ __forceinline__ void narrow(float x, f16_element *y) {
    y->bits = gd_f32_to_f16(x);
}
static __device__ __forceinline__ void narrow(float x, bf16_element *y) {
    y->bits = gd_f32_to_bf16(x);
}

template <typename T, int V>
static __device__ __forceinline__ void add_row(typename wide_type<T>::type *sums, const T *row,
                                               typename wide_type<T>::type alpha) {
    const vector_of<T, V> values = *(const vector_of<T, V> *)row;
#pragma unroll
    for (int v = 0; v < V; v++) sums[v] += alpha * widen(values.at[v]);
}

template <typename T, int V>
static __device__ __forceinline__ void add_to_result(T *y,
                                                     const typename wide_type<T>::type *sums) {
    vector_of<T, V> values = *(const vector_of<T, V> *)y;
#pragma unroll
    for (int v = 0; v < V; v++) narrow(widen(values.at[v]) + sums[v], &values.at[v]);
    *(vector_of<T, V> *)y = values;
}

/* Short segments: a warp adds 32 * V columns of one. */
template <typename T, int V> static __device__ void add_short_segments(const gd_cuda_index_add &p) {
    typedef typename wide_type<T>::type wide;
    const long long parts = (p.width + 32 * V - 1) / (32 * V), segments = p.totals[0];
    const int lane = (int)(threadIdx.x % 32);
    const long long warps = (long long)gridDim.x * GD_CUDA_ADD_WARPS;
    for (long long i = (long long)blockIdx.x * GD_CUDA_ADD_WARPS + threadIdx.x / 32;
         i < segments * p.outer * parts; i += warps) {
        const long long number = divide(i, parts), part = i - number * parts;
        const long long o = p.outer == 1 ? 0 : divide(number, segments);
        const gd_cuda_segment s = p.segments[number - o * segments];
        /* sort the numbers of the rows: each lane finds the rank of its own */
        const unsigned own = lane < (int)s.length ? p.order[s.start + lane] : ~0u;
        int rank = 0;
        unsigned sorted = own;
        for (unsigned k = 0; k < s.length; k++) rank += __shfl_sync(~0u, own, (int)k) < own;
        for (unsigned k = 0; k < s.length; k++) {
            const unsigned value = __shfl_sync(~0u, own, (int)k);
            if (__shfl_sync(~0u, rank, (int)k) == lane) sorted = value;
        }
        const long long column = part * 32 * V + lane * V;
        const T *src = (const T *)p.src + o * p.count * p.width + column;
        wide sums[V] = {0};
        for (unsigned k = 0; k < s.length; k++) {
            const unsigned row = __shfl_sync(~0u, sorted, (int)k);
            if (column < p.width) add_row<T, V>(sums, src + row * p.width, (wide)p.alpha);
        }
        if (column < p.width)
            add_to_result<T, V>((T *)p.y + (o * p.size + s.row) * p.width + column, sums);
    }
}

/* Adds the rows whose bits are set in words [from, to), in order; several loads are in flight. */
template <typename T, int V>
static __device__ __forceinline__ void
add_marked_rows(const gd_cuda_index_add &p, typename wide_type<T>::type *sums, const T *src,
                const unsigned *bits, int from, int to, bool inside) {
    enum { AHEAD = 16 / (V > 4 ? 2 : 1) };
    unsigned word = from < to ? bits[from] : 0;
    while (from < to) {
        long long rows[AHEAD];
        int count = 0;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            while (word == 0 && ++from < to) word = bits[from];
            if (from < to) {
                rows[k] = from * 32 + __ffs((int)word) - 1;
                word &= word - 1;
                count = k + 1;
            }
        }
        vector_of<T, V> loaded[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (k < count && inside)
                loaded[k] = *(const vector_of<T, V> *)(src + rows[k] * p.width);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (k < count && inside) {
#pragma unroll
                for (int v = 0; v < V; v++)
                    sums[v] += (typename wide_type<T>::type)p.alpha * widen(loaded[k].at[v]);
            }
    }
}

/* Long segments: a block adds 32 * V columns of one. A bit for each row of a window of src puts
 * them in order; each warp adds the rows of its part of the window. */
template <typename T, int V> static __device__ void add_long_segments(const gd_cuda_index_add &p) {
    typedef typename wide_type<T>::type wide;
    enum { WORDS = GD_CUDA_ADD_WINDOW / 32 };
    __shared__ unsigned bits[WORDS];
    __shared__ double partials[GD_CUDA_LONG_WARPS * 32 * V];
    const long long parts = (p.width + 32 * V - 1) / (32 * V), segments = p.totals[2];
    const int lane = (int)(threadIdx.x % 32), warp = (int)(threadIdx.x / 32);
    for (long long i = blockIdx.x; i < segments * p.outer * parts; i += gridDim.x) {
        const long long number = divide(i, parts), part = i - number * parts;
        const long long o = p.outer == 1 ? 0 : divide(number, segments);
        const gd_cuda_segment s = p.segments[p.max_segments - 1 - (number - o * segments)];
        const long long column = part * 32 * V + lane * V;
        const T *src = (const T *)p.src + o * p.count * p.width + column;
        wide sums[V] = {0};
        for (long long first = 0; first < p.count; first += GD_CUDA_ADD_WINDOW) {
            const long long left = p.count - first;
            const int words =
                (int)((left < GD_CUDA_ADD_WINDOW ? left + 31 : GD_CUDA_ADD_WINDOW) / 32);
            for (int k = (int)threadIdx.x; k < words; k += GD_CUDA_LONG_THREADS) bits[k] = 0;
            __syncthreads();
            for (unsigned k = threadIdx.x; k < s.length; k += GD_CUDA_LONG_THREADS) {
                const long long at = (long long)p.order[s.start + k] - first;
                if (at >= 0 && at < GD_CUDA_ADD_WINDOW) atomicOr(&bits[at / 32], 1u << (at % 32));
            }
            __syncthreads();
            const int share = (words + GD_CUDA_LONG_WARPS - 1) / GD_CUDA_LONG_WARPS;
            const int end = (warp + 1) * share < words ? (warp + 1) * share : words;
            add_marked_rows<T, V>(p, sums, src + first * p.width, bits, warp * share, end,
                                  column < p.width);
            __syncthreads();
        }
        for (int v = 0; v < V; v++) partials[(warp * 32 + lane) * V + v] = sums[v];
        __syncthreads();
        if (warp == 0 && column < p.width) {
            wide total[V] = {0};
            for (int w = 0; w < GD_CUDA_LONG_WARPS; w++)
                for (int v = 0; v < V; v++) total[v] += (wide)partials[(w * 32 + lane) * V + v];
            add_to_result<T, V>((T *)p.y + (o * p.size + s.row) * p.width + column, total);
        }
        __syncthreads();
    }
}

#define INDEX_ADD_KERNEL(name, threads, function)                          \
    extern "C" __global__ void __launch_bounds__(threads)                  \
        gd_index_add_##name(const __grid_constant__ gd_cuda_index_add p) { \
        RETURN_IF_FAILED(p.call);                                          \
        function(p);                                                       \
    }
#define COMMA ,
#define INDEX_ADD_KERNELS(dtype, T, V)                                                           \
    INDEX_ADD_KERNEL(short_##dtype, GD_CUDA_ADD_THREADS, add_short_segments<T COMMA 1>)          \
    INDEX_ADD_KERNEL(short_##dtype##_vector, GD_CUDA_ADD_THREADS, add_short_segments<T COMMA V>) \
    INDEX_ADD_KERNEL(long_##dtype, GD_CUDA_LONG_THREADS, add_long_segments<T COMMA 1>)           \
    INDEX_ADD_KERNEL(long_##dtype##_vector, GD_CUDA_LONG_THREADS, add_long_segments<T COMMA V>)

INDEX_ADD_KERNELS(f64, double, 2)
INDEX_ADD_KERNELS(f32, float, 4)
INDEX_ADD_KERNELS(f16, f16_element, 8)
INDEX_ADD_KERNELS(bf16, bf16_element, 8)
