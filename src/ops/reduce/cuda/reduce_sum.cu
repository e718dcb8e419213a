/* reduce_sum.cu - sums of floats over the rows of a matrix or over contiguous elements.
 *
 * A thread adds up to 8 elements as a tree in f32 (f64 for f64), and these sums in f64. The order
 * depends on the shape alone.
 */
#include "ops/reduce/cuda/reduce_sum_args.h"

#include "backend/cuda/last_block.cuh"
#include "backend/cuda/pack.cuh"

enum { THREADS = GD_CUDA_SUM_THREADS };

/* Stores the sum of output o, or of a part of it. */
static __device__ __forceinline__ void store_sum(const gd_cuda_sum &p, long long part, long long o,
                                                 double sum) {
    if (p.parts > 1) p.partials[part * p.outputs + o] = sum;
    else store_real(p.y_dtype, p.y, o, sum / p.divisor);
}

template <int COUNT, typename W> static __device__ __forceinline__ W tree_sum(const W *x) {
    if constexpr (COUNT == 1) return x[0];
    else return tree_sum<COUNT / 2>(x) + tree_sum<COUNT / 2>(x + COUNT / 2);
}

/* --- columns ---------------------------------------------------------------------------------- */

/* Adds U rows of the vector at `from`. */
template <typename T, int N, int U>
static __device__ __forceinline__ void add_rows(const T *from, long long stride, double *sums) {
    typedef typename wide_type<T>::type W;
    raw_vector<T, N> raw[U];
    W x[U][N];
#pragma unroll
    for (int u = 0; u < U; u++) raw[u].load(from + u * stride);
#pragma unroll
    for (int u = 0; u < U; u++) raw[u].widen_to(x[u]);
#pragma unroll
    for (int i = 0; i < N; i++) {
        W column[U];
#pragma unroll
        for (int u = 0; u < U; u++) column[u] = x[u][i];
        sums[i] += (double)tree_sum<U>(column);
    }
}

template <typename T, int N>
static __device__ __forceinline__ void sum_columns(const gd_cuda_sum &p, double *shared) {
    enum { UNROLL = 8 };
    const int tx = (int)threadIdx.x % p.columns, ty = (int)threadIdx.x / p.columns,
              depth = THREADS / p.columns;
    const long long tile = blockIdx.x % p.tiles, part = blockIdx.x / p.tiles;
    const long long first = (tile * p.columns + tx) * N, step = p.parts * depth;
    double sums[N];
#pragma unroll
    for (int i = 0; i < N; i++) sums[i] = 0;
    if (ty < depth && first < p.outputs) {
        const T *x = (const T *)p.x + first;
        long long row = part * depth + ty;
        for (; row + (UNROLL - 1) * step < p.size; row += UNROLL * step)
            add_rows<T, N, UNROLL>(x + row * p.stride, step * p.stride, sums);
        for (; row < p.size; row += step) add_rows<T, N, 1>(x + row * p.stride, 0, sums);
    }
#pragma unroll
    for (int i = 0; i < N; i++) shared[i * THREADS + threadIdx.x] = sums[i];
    __syncthreads();
    for (int j = threadIdx.x; j < p.columns * N; j += THREADS) {
        const int i = j % N, column = j / N;
        const long long o = (tile * p.columns + column) * N + i;
        double sum = 0;
#pragma unroll 4
        for (int y = 0; y < depth; y++) sum += shared[i * THREADS + y * p.columns + column];
        if (o < p.outputs) store_sum(p, part, o, sum);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gd_sum_columns(const __grid_constant__ gd_cuda_sum p) {
    RETURN_IF_FAILED(p.call);
    __shared__ double shared[8 * THREADS];
    if (p.vector) {
        WITH_FLOAT_TYPE(p.dtype, sum_columns<T, pack_size<T>::value>(p, shared))
    } else {
        WITH_FLOAT_TYPE(p.dtype, sum_columns<T, 1>(p, shared))
    }
}

/* --- runs ------------------------------------------------------------------------------------- */

/* The sum of vectors first, first + step, ... before `end` of output o. */
template <typename T, int N>
static __device__ __forceinline__ double sum_vectors(const gd_cuda_sum &p, const T *x,
                                                     long long first, long long end, int step) {
    typedef typename wide_type<T>::type W;
    enum { UNROLL = N == 1 ? 8 : 4 };
    const long long width = p.length / N; /* vectors of a run */
    double sum = 0;
    long long v = first;
    for (; v + (UNROLL - 1) * step < end; v += UNROLL * step) {
        raw_vector<T, N> raw[UNROLL];
        W x_of[UNROLL][N];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const long long at = v + u * step, run = p.runs == 1 ? 0
                                                     : ((at | width) >> 32)
                                                         ? at / width
                                                         : (uint32_t)at / (uint32_t)width;
            raw[u].load(x + run * p.stride + (at - run * width) * N);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) raw[u].widen_to(x_of[u]);
        if (N == 1) sum += (double)tree_sum<UNROLL * N>(x_of[0]);
        else {
#pragma unroll
            for (int u = 0; u < UNROLL; u++) sum += (double)tree_sum<N>(x_of[u]);
        }
    }
    for (; v < end; v += step) {
        const long long run = p.runs == 1 ? 0 : v / width;
        raw_vector<T, N> raw;
        W values[N];
        raw.load(x + run * p.stride + (v - run * width) * N);
        raw.widen_to(values);
        sum += (double)tree_sum<N>(values);
    }
    return sum;
}

/* How many blocks of each output have arrived. */
static __device__ unsigned int arrivals[GD_CUDA_SUM_COUNTERS];

/* The block that arrives last adds the parts of output o. */
static __device__ __forceinline__ void add_parts(const gd_cuda_sum &p, long long o,
                                                 double *shared) {
    if (!arrives_last(&arrivals[o], (int)p.parts)) return;
    double sum = 0;
    for (int k = threadIdx.x; k < (int)p.parts; k += THREADS)
        sum += __ldcg(&p.partials[k * p.outputs + o]);
    sum = sum_of_block(sum, shared, THREADS);
    if (threadIdx.x == 0) store_real(p.y_dtype, p.y, o, sum / p.divisor);
}

template <typename T, int N>
static __device__ __forceinline__ void sum_runs(const gd_cuda_sum &p, double *shared) {
    const int threads = p.block ? THREADS : 32, thread = (int)threadIdx.x % threads;
    const long long groups = p.block ? 1 : THREADS / 32, all = p.outputs * p.parts,
                    vectors = p.runs * (p.length / N), share = (vectors + p.parts - 1) / p.parts;
    for (long long g = blockIdx.x * groups + (p.block ? 0 : threadIdx.x / 32); g < all;
         g += gridDim.x * groups) {
        const long long part = g / p.outputs, o = g - part * p.outputs, first = part * share,
                        end = first + share < vectors ? first + share : vectors;
        double sum = sum_vectors<T, N>(p, (const T *)p.x + o * p.output_stride, first + thread, end,
                                       threads);
        sum = p.block ? sum_of_block(sum, shared, THREADS) : sum_of_lanes(sum, 32);
        if (thread == 0) store_sum(p, part, o, sum);
        if (p.parts > 1) add_parts(p, o, shared); /* such sums are added by blocks */
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gd_sum_runs(const __grid_constant__ gd_cuda_sum p) {
    RETURN_IF_FAILED(p.call);
    __shared__ double shared[32];
    if (p.vector) {
        WITH_FLOAT_TYPE(p.dtype, sum_runs<T, pack_size<T>::value>(p, shared))
    } else {
        WITH_FLOAT_TYPE(p.dtype, sum_runs<T, 1>(p, shared))
    }
}

/* --- parts ------------------------------------------------------------------------------------ */

extern "C" __global__ void __launch_bounds__(GD_CUDA_SUM_FINISH_THREADS)
    gd_sum_parts(const __grid_constant__ gd_cuda_sum p) {
    RETURN_IF_FAILED(p.call);
    __shared__ double shared[GD_CUDA_SUM_FINISH_THREADS];
    const int column = (int)threadIdx.x % p.finish_columns,
              lane = (int)threadIdx.x / p.finish_columns,
              lanes = GD_CUDA_SUM_FINISH_THREADS / p.finish_columns;
    const long long o = (long long)blockIdx.x * p.finish_columns + column;
    double sum = 0;
    if (o < p.outputs) {
#pragma unroll 8
        for (int k = lane; k < (int)p.parts; k += lanes) sum += p.partials[k * p.outputs + o];
    }
    shared[threadIdx.x] = sum;
    for (int half = lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) shared[threadIdx.x] += shared[threadIdx.x + half * p.finish_columns];
    }
    if (lane == 0 && o < p.outputs) store_real(p.y_dtype, p.y, o, shared[threadIdx.x] / p.divisor);
}
