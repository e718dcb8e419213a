/* softmax.cu - softmax, log_softmax, logsumexp and their gradients along an axis.
 *
 * Rows, which are contiguous lines, are kept in registers: those of up to 1024 elements by a warp,
 * longer ones by a block. Rows that are longer still are read twice. For lines that are not
 * contiguous, neighbouring threads compute neighbouring lines.
 */
#include "ops/softmax/cuda/softmax_args.h"

#include "ops/softmax/cuda/softmax_online.cuh"

/* Vectors of a row that a thread keeps: at most 32 elements. */
template <typename T, int N> struct row_vectors {
    enum { value = N == 1 ? 8 : 32 / N };
};

/* The sum and the largest over a warp or, with BLOCK, over a block. */
template <bool BLOCK, typename W> static __device__ __forceinline__ W sum_of_group(W x, W *shared) {
    return BLOCK ? sum_of_block(x, shared, (int)blockDim.x) : sum_of_lanes(x, 32);
}
template <bool BLOCK, typename W>
static __device__ __forceinline__ W largest_of_group(W x, W *shared) {
    for (int d = 16; d > 0; d /= 2) x = larger_of(x, __shfl_xor_sync(~0u, x, d));
    if (!BLOCK) return x;
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < (int)blockDim.x / 32; i++) x = larger_of(x, shared[i]);
    return x;
}

/* The rows of this thread's warp or block; f(row, thread of the row, threads of the row). */
#define EACH_ROW(row, rows)                                                                \
    long long row =                                                                        \
        BLOCK ? blockIdx.x : (long long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; \
    row < (rows);                                                                          \
    row += BLOCK ? gridDim.x : (long long)gridDim.x * (blockDim.x / 32)

/* --- rows in registers ------------------------------------------------------------------------ */

/* Loads the vectors of a thread; elements behind the row get the value `rest`. */
template <typename T, int N, int K, typename W>
static __device__ __forceinline__ void load_row(const T *row, long long n, int thread, int threads,
                                                W rest, W (*x)[N]) {
    raw_vector<T, N> raw[K];
#pragma unroll
    for (int k = 0; k < K; k++)
        if ((long long)(thread + k * threads) * N < n)
            raw[k].load(row + (long long)(thread + k * threads) * N);
#pragma unroll
    for (int k = 0; k < K; k++) {
        if ((long long)(thread + k * threads) * N < n) raw[k].widen_to(x[k]);
        else {
#pragma unroll
            for (int i = 0; i < N; i++) x[k][i] = rest;
        }
    }
}
template <typename T, int N, int K, typename W>
static __device__ __forceinline__ void store_row(T *row, long long n, int thread, int threads,
                                                 const W (*x)[N]) {
#pragma unroll
    for (int k = 0; k < K; k++)
        if ((long long)(thread + k * threads) * N < n)
            raw_vector<T, N>::store(row + (long long)(thread + k * threads) * N, x[k]);
}

/* The result of logsumexp. */
template <typename W> static __device__ __forceinline__ W log_of_sum(W largest, W sum) {
    return (largest == -(W)INFINITY ? (W)0 : largest) + log_of(sum);
}

template <typename T, int N, bool BLOCK>
static __device__ __forceinline__ void softmax_rows(const gd_cuda_softmax &p, void *memory) {
    typedef typename wide_type<T>::type W;
    enum { K = row_vectors<T, N>::value };
    W *shared = (W *)memory;
    const int threads = BLOCK ? (int)blockDim.x : 32, thread = (int)threadIdx.x % threads;
    for (EACH_ROW(row, p.outer)) {
        W x[K][N], largest = -(W)INFINITY, sum = 0;
        /* elements behind the row are -inf: their exp is 0 unless all elements are -inf */
        load_row<T, N, K>((const T *)p.x + row * p.n, p.n, thread, threads, -(W)INFINITY, x);
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
            for (int i = 0; i < N; i++) largest = larger_of(largest, x[k][i]);
        largest = largest_of_group<BLOCK>(largest, shared);
        if (p.kind == GD_CUDA_LOGSUMEXP) {
#pragma unroll
            for (int k = 0; k < K; k++)
#pragma unroll
                for (int i = 0; i < N; i++) sum += exp_below<true>(x[k][i], largest);
            sum = sum_of_group<BLOCK>(sum, shared);
            if (thread == 0) narrow(((T *)p.out)[row], log_of_sum(largest, sum));
        } else if (p.kind == GD_CUDA_SOFTMAX) {
#pragma unroll
            for (int k = 0; k < K; k++)
#pragma unroll
                for (int i = 0; i < N; i++) sum += x[k][i] = exp_of(x[k][i] - largest);
            const W scale = 1 / sum_of_group<BLOCK>(sum, shared);
#pragma unroll
            for (int k = 0; k < K; k++)
#pragma unroll
                for (int i = 0; i < N; i++) x[k][i] *= scale;
            store_row<T, N, K>((T *)p.out + row * p.n, p.n, thread, threads, x);
        } else {
#pragma unroll
            for (int k = 0; k < K; k++)
#pragma unroll
                for (int i = 0; i < N; i++) sum += exp_of(x[k][i] -= largest);
            const W shift = log_of(sum_of_group<BLOCK>(sum, shared));
#pragma unroll
            for (int k = 0; k < K; k++)
#pragma unroll
                for (int i = 0; i < N; i++) x[k][i] -= shift;
            store_row<T, N, K>((T *)p.out + row * p.n, p.n, thread, threads, x);
        }
    }
}

/* softmax: y (gy - sum(gy y)); log_softmax: gy - exp(y) sum(gy). */
template <typename W> static __device__ __forceinline__ W grad_term(int kind, W gy, W y) {
    return kind == GD_CUDA_SOFTMAX ? gy * y : gy;
}
template <typename W> static __device__ __forceinline__ W grad_of(int kind, W gy, W y, W sum) {
    return kind == GD_CUDA_SOFTMAX ? y * (gy - sum) : gy - exp_of(y) * sum;
}

template <typename T, int N, bool BLOCK>
static __device__ __forceinline__ void grad_rows(const gd_cuda_softmax &p, void *memory) {
    typedef typename wide_type<T>::type W;
    enum { K = row_vectors<T, N>::value };
    const int threads = BLOCK ? (int)blockDim.x : 32, thread = (int)threadIdx.x % threads;
    for (EACH_ROW(row, p.outer)) {
        raw_vector<T, N> raw_g[K], raw_y[K]; /* fewer registers than the wide elements */
        W g[N], y[N], sum = 0;
        const long long first = row * p.n;
#pragma unroll
        for (int k = 0; k < K; k++)
            if ((long long)(thread + k * threads) * N < p.n) {
                raw_g[k].load((const T *)p.x + first + (long long)(thread + k * threads) * N);
                raw_y[k].load((const T *)p.y + first + (long long)(thread + k * threads) * N);
            }
#pragma unroll
        for (int k = 0; k < K; k++)
            if ((long long)(thread + k * threads) * N < p.n) {
                raw_g[k].widen_to(g);
                raw_y[k].widen_to(y);
#pragma unroll
                for (int i = 0; i < N; i++) sum += grad_term(p.kind, g[i], y[i]);
            }
        sum = sum_of_group<BLOCK>(sum, (W *)memory);
#pragma unroll
        for (int k = 0; k < K; k++)
            if ((long long)(thread + k * threads) * N < p.n) {
                raw_g[k].widen_to(g);
                raw_y[k].widen_to(y);
#pragma unroll
                for (int i = 0; i < N; i++) g[i] = grad_of(p.kind, g[i], y[i], sum);
                raw_vector<T, N>::store((T *)p.out + first + (long long)(thread + k * threads) * N,
                                        g);
            }
    }
}

/* `blocks` on a multiprocessor limit the registers. Gradients of 16-bit types have their own kernels,
 * because they need fewer registers than those of the others. */
#define ROW_KERNEL(name, types, function, block, threads, blocks)              \
    extern "C" __global__ void __launch_bounds__(threads, blocks)              \
        gd_##name(const __grid_constant__ gd_cuda_softmax p) {                 \
        RETURN_IF_FAILED(p.call);                                              \
        __shared__ double memory[64];                                          \
        if (p.vector) {                                                        \
            types(p.dtype, function<T, pack_size<T>::value, block>(p, memory)) \
        } else {                                                               \
            types(p.dtype, function<T, 1, block>(p, memory))                   \
        }                                                                      \
    }
#define WITH_16_BIT_TYPE(dtype, ...)                         \
    switch (dtype) {                                         \
    case GD_F16: ELEMENT_TYPE_CASE(f16_element, __VA_ARGS__) \
    default: ELEMENT_TYPE_CASE(bf16_element, __VA_ARGS__)    \
    }
#define WITH_LARGER_TYPE(dtype, ...)                    \
    switch (dtype) {                                    \
    case GD_F64: ELEMENT_TYPE_CASE(double, __VA_ARGS__) \
    default: ELEMENT_TYPE_CASE(float, __VA_ARGS__)      \
    }
ROW_KERNEL(softmax_warp_rows, WITH_FLOAT_TYPE, softmax_rows, false, 256, 1)
ROW_KERNEL(softmax_block_rows, WITH_FLOAT_TYPE, softmax_rows, true, 512, 1)
ROW_KERNEL(softmax_grad_warp_rows_16, WITH_16_BIT_TYPE, grad_rows, false, 256, 4)
ROW_KERNEL(softmax_grad_warp_rows, WITH_LARGER_TYPE, grad_rows, false, 256, 1)
ROW_KERNEL(softmax_grad_block_rows, WITH_FLOAT_TYPE, grad_rows, true, 512, 1)

/* --- long rows: read twice -------------------------------------------------------------------- */

template <typename T, bool CAPPED>
static __device__ void softmax_long(const gd_cuda_softmax &p, void *memory) {
    typedef typename wide_type<T>::type W;
    for (long long row = blockIdx.x; row < p.outer; row += gridDim.x) {
        const T *from = (const T *)p.x + row * p.n;
        T *to = (T *)p.out + row * p.n;
        online_sum<W, CAPPED> total;
        total.start();
        visit_row<T>(from, p.n, (int)threadIdx.x, (int)blockDim.x,
                     [&](long long, const W *x, auto count) {
                         total.template add<decltype(count)::value>(x);
                     });
        total.join_block((W *)memory, (int)blockDim.x);
        if (CAPPED) {
            if (threadIdx.x == 0) narrow(((T *)p.out)[row], log_of_sum(total.largest, total.sum));
            continue;
        }
        const W scale = 1 / total.sum, shift = log_of(total.sum), largest = total.largest;
        if ((((uintptr_t)from ^ (uintptr_t)to) & 15) != 0) {
            for (long long i = threadIdx.x; i < p.n; i += blockDim.x) {
                const W d = widen(from[i]) - largest;
                narrow(to[i], p.kind == GD_CUDA_SOFTMAX ? exp_of(d) * scale : d - shift);
            }
            continue;
        }
        visit_row<T>(from, p.n, (int)threadIdx.x, (int)blockDim.x,
                     [&](long long first, const W *x, auto count) {
                         enum { COUNT = decltype(count)::value };
                         W y[COUNT];
#pragma unroll
                         for (int i = 0; i < COUNT; i++) {
                             const W d = x[i] - largest;
                             y[i] = p.kind == GD_CUDA_SOFTMAX ? exp_of(d) * scale : d - shift;
                         }
                         raw_vector<T, COUNT>::store(to + first, y);
                     });
    }
}

template <typename T> static __device__ void grad_long(const gd_cuda_softmax &p, void *memory) {
    typedef typename wide_type<T>::type W;
    for (long long row = blockIdx.x; row < p.outer; row += gridDim.x) {
        const T *g = (const T *)p.x + row * p.n, *y = (const T *)p.y + row * p.n;
        double total = 0;
#pragma unroll 4
        for (long long i = threadIdx.x; i < p.n; i += blockDim.x)
            total += (double)grad_term(p.kind, widen(g[i]), widen(y[i]));
        const W sum = (W)sum_of_block(total, (double *)memory, (int)blockDim.x);
#pragma unroll 4
        for (long long i = threadIdx.x; i < p.n; i += blockDim.x)
            narrow(((T *)p.out)[row * p.n + i], grad_of(p.kind, widen(g[i]), widen(y[i]), sum));
    }
}

extern "C" __global__ void __launch_bounds__(512)
    gd_softmax_long_rows(const __grid_constant__ gd_cuda_softmax p) {
    RETURN_IF_FAILED(p.call);
    __shared__ double memory[64];
    if (p.kind == GD_CUDA_LOGSUMEXP) {
        WITH_FLOAT_TYPE(p.dtype, softmax_long<T, true>(p, memory))
    } else {
        WITH_FLOAT_TYPE(p.dtype, softmax_long<T, false>(p, memory))
    }
}
extern "C" __global__ void __launch_bounds__(512)
    gd_softmax_grad_long_rows(const __grid_constant__ gd_cuda_softmax p) {
    RETURN_IF_FAILED(p.call);
    __shared__ double memory[64];
    WITH_FLOAT_TYPE(p.dtype, grad_long<T>(p, memory))
}

/* --- lines that are not contiguous ------------------------------------------------------------ */

template <typename T, bool CAPPED> static __device__ void softmax_lines(const gd_cuda_softmax &p) {
    typedef typename wide_type<T>::type W;
    for (EACH(line, p.outer * p.inner)) {
        const long long o = line / p.inner, first = o * p.n * p.inner + (line - o * p.inner);
        const T *from = (const T *)p.x + first;
        online_sum<W, CAPPED> total;
        total.start();
#pragma unroll 4
        for (long long i = 0; i < p.n; i++) {
            const W x = widen(from[i * p.inner]);
            total.template add<1>(&x);
        }
        if (CAPPED) {
            narrow(((T *)p.out)[line], log_of_sum(total.largest, total.sum));
            continue;
        }
        const W scale = 1 / total.sum, shift = log_of(total.sum);
#pragma unroll 4
        for (long long i = 0; i < p.n; i++) {
            const W d = widen(from[i * p.inner]) - total.largest;
            narrow(((T *)p.out)[first + i * p.inner],
                   p.kind == GD_CUDA_SOFTMAX ? exp_of(d) * scale : d - shift);
        }
    }
}

template <typename T> static __device__ void grad_lines(const gd_cuda_softmax &p) {
    typedef typename wide_type<T>::type W;
    for (EACH(line, p.outer * p.inner)) {
        const long long o = line / p.inner, first = o * p.n * p.inner + (line - o * p.inner);
        const T *g = (const T *)p.x + first, *y = (const T *)p.y + first;
        double total = 0;
#pragma unroll 4
        for (long long i = 0; i < p.n; i++)
            total += (double)grad_term(p.kind, widen(g[i * p.inner]), widen(y[i * p.inner]));
#pragma unroll 4
        for (long long i = 0; i < p.n; i++)
            narrow(((T *)p.out)[first + i * p.inner],
                   grad_of(p.kind, widen(g[i * p.inner]), widen(y[i * p.inner]), (W)total));
    }
}

extern "C" __global__ void gd_softmax_lines(const __grid_constant__ gd_cuda_softmax p) {
    RETURN_IF_FAILED(p.call);
    if (p.kind == GD_CUDA_LOGSUMEXP) {
        WITH_FLOAT_TYPE(p.dtype, softmax_lines<T, true>(p))
    } else {
        WITH_FLOAT_TYPE(p.dtype, softmax_lines<T, false>(p))
    }
}
extern "C" __global__ void gd_softmax_grad_lines(const __grid_constant__ gd_cuda_softmax p) {
    RETURN_IF_FAILED(p.call);
    WITH_FLOAT_TYPE(p.dtype, grad_lines<T>(p))
}
