/* norm_rows.cu - normalization of rows: layer, RMS, group and instance norm, and their gradients.
 *
 * A row is kept in registers: by a warp if it has up to 1024 elements, otherwise by a block. Longer
 * rows are read twice. Mean and variance of a row in registers are computed one after the other, so
 * that the variance of values with a large mean is exact.
 *
 * The gradients of weight and bias are sums over rows. In layer norm, a warp adds those of its rows
 * in registers; in group norm of images, they follow from the sums over planes; otherwise a pass
 * over gy and x computes them.
 */
#include "ops/norm/cuda/norm_rows_args.h"

#include "backend/cuda/pack.cuh"

typedef gd_cuda_row_norm parameters;

enum { THREADS = GD_CUDA_ROW_NORM_THREADS };

/* Four 16-bit elements beside four of f32: 8 bytes. */
template <typename T> struct raw_quad {
    uint2 bits;
    __device__ __forceinline__ void load(const T *p) { bits = *(const uint2 *)p; }
    __device__ __forceinline__ void widen_to(float *to) const {
        to[0] = widen_bits(T{}, bits.x & 0xffffu), to[1] = widen_bits(T{}, bits.x >> 16);
        to[2] = widen_bits(T{}, bits.y & 0xffffu), to[3] = widen_bits(T{}, bits.y >> 16);
    }
    static __device__ __forceinline__ void store(T *p, const float *x) {
        *(uint2 *)p = uint2{narrow_two(T{}, x[0], x[1]), narrow_two(T{}, x[2], x[3])};
    }
};
template <> struct raw_vector<f16_element, 4> : raw_quad<f16_element> {};
template <> struct raw_vector<bf16_element, 4> : raw_quad<bf16_element> {};

/* The sum over a warp or, with BLOCK, over a block of THREADS threads. */
template <bool BLOCK, typename W> static __device__ __forceinline__ W sum_of_group(W x, W *shared) {
    return BLOCK ? sum_of_block(x, shared, THREADS) : sum_of_lanes(x, 32);
}

static __device__ __forceinline__ float root_of(float x) { return sqrtf(x); }
static __device__ __forceinline__ double root_of(double x) { return sqrt(x); }

/* The channel of element i of a row. */
static __device__ __forceinline__ long long channel_of(const parameters &p, long long row,
                                                       long long i) {
    if (p.groups == 1 && p.s == 1) return i;
    const long long first = p.groups == 1 ? 0 : row % p.groups * (p.c / p.groups);
    return first + (p.s == 1 ? i : i / p.s);
}

template <typename W>
static __device__ __forceinline__ W parameter_of(const void *data, int dtype, long long channel,
                                                 W otherwise) {
    return data ? (W)load_real(dtype, data, channel) : otherwise;
}

/* The parameters of the N elements of a row from element i on. They belong to N neighbouring
 * channels in layer norm, otherwise to one channel. A parameter has x's dtype or the wide one. */
template <typename T, int N, typename W>
static __device__ __forceinline__ void load_parameters(const parameters &p, const void *data,
                                                       int dtype, long long row, long long i,
                                                       W otherwise, W *to) {
    if constexpr (N == 1) to[0] = parameter_of(data, dtype, channel_of(p, row, i), otherwise);
    else if (!data || p.s > 1) {
        const W one = parameter_of(data, dtype, data ? channel_of(p, row, i) : 0, otherwise);
#pragma unroll
        for (int k = 0; k < N; k++) to[k] = one;
    } else if (dtype == p.dtype) {
        raw_vector<T, N> raw;
        raw.bits = __ldg((const uint4 *)((const T *)data + i));
        raw.widen_to(to);
    } else {
        enum { M = pack_size<W>::value };
#pragma unroll
        for (int k = 0; k < N; k += M) {
            raw_vector<W, M> raw;
            raw.bits = __ldg((const uint4 *)((const W *)data + i + k));
            raw.widen_to(to + k);
        }
    }
}

/* The rows of this thread's warp or block. */
#define EACH_ROW(row)                                                                   \
    long long row =                                                                     \
        BLOCK ? blockIdx.x : (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; \
    row < p.rows;                                                                       \
    row += BLOCK ? gridDim.x : (long long)gridDim.x * (THREADS / 32)

/* The elements of a row that this thread visits, in vectors of N. */
#define EACH_OF_ROW(i, N)                \
    long long i = (long long)thread * N; \
    i < p.length;                        \
    i += (long long)threads * N

/* f(i, elements) for the vectors of N elements of a row that this thread visits. */
template <typename T, int N, class F>
static __device__ __forceinline__ void each_vector(const T *row, long long length, int thread,
                                                   int threads, F &&f) {
    typedef typename wide_type<T>::type W;
    enum { UNROLL = 4 };
    const long long step = (long long)threads * N;
    long long i = (long long)thread * N;
    for (; i + (UNROLL - 1) * step < length; i += UNROLL * step) {
        raw_vector<T, N> raw[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) raw[u].load(row + i + u * step);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            W x[N];
            raw[u].widen_to(x);
            f(i + u * step, (const W *)x);
        }
    }
    for (; i < length; i += step) {
        raw_vector<T, N> raw;
        W x[N];
        raw.load(row + i);
        raw.widen_to(x);
        f(i, (const W *)x);
    }
}

/* --- forward ---------------------------------------------------------------------------------- */

template <typename W>
static __device__ __forceinline__ W store_statistics(const parameters &p, long long row, int thread,
                                                     W mean, W variance) {
    const W rstd = 1 / root_of(variance + (W)p.eps);
    if (thread == 0 && p.mean) ((W *)p.mean)[row] = mean;
    if (thread == 0 && p.rstd) ((W *)p.rstd)[row] = rstd;
    if (thread == 0 && p.moments) {
        p.moments[2 * row] = (double)mean;
        p.moments[2 * row + 1] = (double)variance;
    }
    return rstd;
}

/* x of type T, y of type S. K vectors of N elements for each thread; K = 0: rows of any length,
 * which are read again. */
template <typename T, typename S, int N, int K, bool BLOCK>
static __device__ __forceinline__ void norm_rows(const parameters &p, void *memory) {
    typedef typename wide_type<T>::type W;
    const int threads = BLOCK ? THREADS : 32, thread = (int)threadIdx.x % threads;
    const W count = (W)p.length;
    for (EACH_ROW(row)) {
        const T *from = (const T *)p.x + row * p.length;
        S *to = (S *)p.y + row * p.length;
        W mean = 0, square = 0;
        if constexpr (K > 0) {
            raw_vector<T, N> raw[K]; /* it has fewer registers than the wide elements */
            W x[N];
#pragma unroll
            for (int k = 0; k < K; k++)
                if ((long long)(thread + k * threads) * N < p.length)
                    raw[k].load(from + (long long)(thread + k * threads) * N);
            if (p.centered) {
#pragma unroll
                for (int k = 0; k < K; k++)
                    if ((long long)(thread + k * threads) * N < p.length) {
                        raw[k].widen_to(x);
#pragma unroll
                        for (int j = 0; j < N; j++) mean += x[j];
                    }
                mean = sum_of_group<BLOCK>(mean, (W *)memory) / count;
            }
#pragma unroll
            for (int k = 0; k < K; k++)
                if ((long long)(thread + k * threads) * N < p.length) {
                    raw[k].widen_to(x);
#pragma unroll
                    for (int j = 0; j < N; j++) {
                        const W d = x[j] - mean;
                        square = multiply_add(d, d, square);
                    }
                }
            const W rstd = store_statistics(p, row, thread, mean,
                                            sum_of_group<BLOCK>(square, (W *)memory) / count);
#pragma unroll
            for (int k = 0; k < K; k++) {
                const long long i = (long long)(thread + k * threads) * N;
                if (i < p.length) {
                    W w[N], b[N];
                    load_parameters<T, N>(p, p.weight, p.weight_dtype, row, i, (W)1, w);
                    load_parameters<T, N>(p, p.bias, p.bias_dtype, row, i, (W)0, b);
                    raw[k].widen_to(x);
#pragma unroll
                    for (int j = 0; j < N; j++)
                        x[j] = multiply_add((x[j] - mean) * rstd, w[j], b[j]);
                    raw_vector<S, N>::store(to + i, x);
                }
            }
        } else { /* sums of x - shift and its square in one pass, as in batch norm */
            const W shift = p.centered ? widen(from[0]) : (W)0;
            double sum = 0, squares = 0;
            each_vector<T, N>(from, p.length, thread, threads, [&](long long, const W *x) {
                W part = 0, of_squares = 0;
#pragma unroll
                for (int j = 0; j < N; j++) {
                    const W d = x[j] - shift;
                    part += d;
                    of_squares = multiply_add(d, d, of_squares);
                }
                sum += (double)part;
                squares += (double)of_squares;
            });
            sum = sum_of_group<BLOCK>(sum, (double *)memory) / (double)p.length;
            squares = sum_of_group<BLOCK>(squares, (double *)memory) / (double)p.length;
            if (p.centered) {
                mean = (W)(sum + (double)shift);
                squares -= sum * sum;
                if (squares < 0) squares = 0;
            }
            const W rstd = store_statistics(p, row, thread, mean, (W)squares);
            each_vector<T, N>(from, p.length, thread, threads, [&](long long i, const W *x) {
                W w[N], b[N], y[N];
                load_parameters<T, N>(p, p.weight, p.weight_dtype, row, i, (W)1, w);
                load_parameters<T, N>(p, p.bias, p.bias_dtype, row, i, (W)0, b);
#pragma unroll
                for (int j = 0; j < N; j++) y[j] = multiply_add((x[j] - mean) * rstd, w[j], b[j]);
                raw_vector<S, N>::store(to + i, y);
            });
        }
    }
}

/* --- gradients -------------------------------------------------------------------------------- */

/* gx = rstd (gw - mean(gw) - hat mean(gw hat)), gw = gy weight; without a mean, without the second
 * term. */
template <typename W> struct row_sums {
    W mean, rstd, sum, dot;
    __device__ __forceinline__ void load(const parameters &p, long long row) {
        mean = p.mean ? (W)load_real(p.statistics_dtype, p.mean, row) : (W)0;
        rstd = (W)load_real(p.statistics_dtype, p.rstd, row);
        sum = dot = 0;
    }
};

/* Layer norm: vectors of channels, gy of type S. Each thread adds gy * hat and gy of its channels
 * over the rows; blocks store the sums as their parts. */
template <typename T, typename S, int N, int K, bool BLOCK>
static __device__ __forceinline__ void layer_grad_rows(const parameters &p, void *memory) {
    typedef typename wide_type<T>::type W;
    const int threads = BLOCK ? THREADS : 32, thread = (int)threadIdx.x % threads;
    const W count = (W)p.length;
    W gweight[K][N], gbias[K][N];
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int j = 0; j < N; j++) gweight[k][j] = gbias[k][j] = 0;
    for (EACH_ROW(row)) {
        raw_vector<S, N> raw_g[K];
        raw_vector<T, N> raw_x[K];
        row_sums<W> r;
        r.load(p, row);
#pragma unroll
        for (int k = 0; k < K; k++)
            if ((long long)(thread + k * threads) * N < p.length) {
                const long long at = row * p.length + (long long)(thread + k * threads) * N;
                raw_g[k].load((const S *)p.gy + at);
                raw_x[k].load((const T *)p.x + at);
            }
#pragma unroll
        for (int k = 0; k < K; k++) {
            const long long i = (long long)(thread + k * threads) * N;
            if (i < p.length) {
                W g[N], x[N], w[N];
                raw_g[k].widen_to(g);
                raw_x[k].widen_to(x);
                load_parameters<T, N>(p, p.weight, p.weight_dtype, row, i, (W)1, w);
#pragma unroll
                for (int j = 0; j < N; j++) {
                    const W hat = (x[j] - r.mean) * r.rstd;
                    gweight[k][j] = multiply_add(g[j], hat, gweight[k][j]);
                    gbias[k][j] += g[j];
                    const W scaled = g[j] * w[j];
                    r.sum += scaled;
                    r.dot = multiply_add(scaled, hat, r.dot);
                }
            }
        }
        if (!p.y) continue;
        r.sum = p.centered ? sum_of_group<BLOCK>(r.sum, (W *)memory) / count : (W)0;
        r.dot = sum_of_group<BLOCK>(r.dot, (W *)memory) / count;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const long long i = (long long)(thread + k * threads) * N;
            if (i < p.length) {
                W g[N], x[N], w[N];
                raw_g[k].widen_to(g);
                raw_x[k].widen_to(x);
                load_parameters<T, N>(p, p.weight, p.weight_dtype, row, i, (W)1, w);
#pragma unroll
                for (int j = 0; j < N; j++) {
                    const W hat = (x[j] - r.mean) * r.rstd;
                    g[j] = r.rstd * ((g[j] * w[j] - r.sum) - hat * r.dot);
                }
                raw_vector<T, N>::store((T *)p.y + row * p.length + i, g);
            }
        }
    }
    if (!p.partials) return;
    double *parts = p.partials + (long long)blockIdx.x * 2 * p.c;
    W *shared = (W *)memory; /* N for each thread */
    for (int which = 0; which < 2; which++) {
#pragma unroll
        for (int k = 0; k < K; k++) {
            const long long first = (long long)k * threads * N; /* of the channels in shared */
            if (BLOCK) {
                const long long i = first + (long long)thread * N;
#pragma unroll
                for (int j = 0; j < N; j++)
                    if (i < p.length)
                        parts[which * p.c + i + j] = (double)(which ? gbias[k][j] : gweight[k][j]);
                continue;
            }
            __syncthreads();
#pragma unroll
            for (int j = 0; j < N; j++)
                shared[threadIdx.x * N + j] = which ? gbias[k][j] : gweight[k][j];
            __syncthreads();
            for (int j = threadIdx.x; j < 32 * N; j += THREADS) { /* over the warps */
                double sum = 0;
                for (int w = 0; w < THREADS / 32; w++) sum += (double)shared[w * 32 * N + j];
                if (first + j < p.length) parts[which * p.c + first + j] = sum;
            }
        }
    }
}

/* gx of rows of any kind. */
template <typename T, typename S, bool BLOCK>
static __device__ void row_grads(const parameters &p, void *memory) {
    typedef typename wide_type<T>::type W;
    const int threads = BLOCK ? THREADS : 32, thread = (int)threadIdx.x % threads;
    for (EACH_ROW(row)) {
        const S *g = (const S *)p.gy + row * p.length;
        const T *x = (const T *)p.x + row * p.length;
        row_sums<W> r;
        r.load(p, row);
        double sum = 0, dot = 0;
#pragma unroll 4
        for (EACH_OF_ROW(i, 1)) {
            const W scaled =
                widen(g[i]) * parameter_of(p.weight, p.weight_dtype, channel_of(p, row, i), (W)1);
            sum += (double)scaled;
            dot += (double)(scaled * ((widen(x[i]) - r.mean) * r.rstd));
        }
        r.sum =
            p.centered ? (W)(sum_of_group<BLOCK>(sum, (double *)memory) / (double)p.length) : (W)0;
        r.dot = (W)(sum_of_group<BLOCK>(dot, (double *)memory) / (double)p.length);
#pragma unroll 4
        for (EACH_OF_ROW(i, 1)) {
            const W w = parameter_of(p.weight, p.weight_dtype, channel_of(p, row, i), (W)1);
            const W hat = (widen(x[i]) - r.mean) * r.rstd;
            narrow(((T *)p.y)[row * p.length + i],
                   r.rstd * ((widen(g[i]) * w - r.sum) - hat * r.dot));
        }
    }
}

/* Calls f<K> with K vectors of N elements that hold `eights` times 8 elements, 1 to 4. */
#define WITH_VECTORS(eights, N, f) \
    switch (eights) {              \
    case 1: f(8 / (N)); break;     \
    case 2: f(16 / (N)); break;    \
    case 3: f(24 / (N)); break;    \
    default: f(32 / (N)); break;   \
    }

template <typename T, typename S>
static __device__ __forceinline__ void norm_warps(const parameters &p, void *memory) {
    enum { N = pack_size<T>::value };
#define NORM_ROWS(K) norm_rows<T, S, N, K, false>(p, memory)
    WITH_VECTORS(p.eights, N, NORM_ROWS)
}
template <typename T, typename S>
static __device__ __forceinline__ void layer_grad_warps(const parameters &p, void *memory) {
    enum { N = pack_size<T>::value };
#define GRAD_ROWS(K) layer_grad_rows<T, S, N, K, false>(p, memory)
    WITH_VECTORS(p.eights, N, GRAD_ROWS)
}

#define NORM_KERNEL(name, types, blocks, memory_bytes, ...)                         \
    extern "C" __global__ void __launch_bounds__(THREADS, blocks)                   \
        gd_##name(const __grid_constant__ gd_cuda_row_norm p) {                     \
        RETURN_IF_FAILED(p.call);                                                   \
        __shared__ uint4 memory[(memory_bytes) / 16]; /* used with __syncthreads */ \
        types(p.dtype, __VA_ARGS__(p, memory))                                      \
    }

/* The types of kernels with vectors: f64 has none, to limit the code. */
#define WITH_VECTOR_TYPE(dtype, ...)                         \
    switch (dtype) {                                         \
    case GD_F32: ELEMENT_TYPE_CASE(float, __VA_ARGS__)       \
    case GD_F16: ELEMENT_TYPE_CASE(f16_element, __VA_ARGS__) \
    default: ELEMENT_TYPE_CASE(bf16_element, __VA_ARGS__)    \
    }

/* The statement with T the type of x and S that of y, or of gy in gradients: T, or a 16-bit float
 * beside f32. */
#define TYPE_PAIR_CASE(type, other, ...) \
    {                                    \
        typedef type T;                  \
        typedef other S;                 \
        __VA_ARGS__;                     \
        break;                           \
    }
#define WITH_MIXED_TYPES(...)                                    \
    case GD_F16: TYPE_PAIR_CASE(float, f16_element, __VA_ARGS__) \
    default:                                                     \
        TYPE_PAIR_CASE(float, bf16_element, __VA_ARGS__)
#define WITH_VECTOR_TYPES(dtype, ...)                                      \
    if (p.mixed_dtype < 0) switch (dtype) {                                \
        case GD_F32: TYPE_PAIR_CASE(float, float, __VA_ARGS__)             \
        case GD_F16: TYPE_PAIR_CASE(f16_element, f16_element, __VA_ARGS__) \
        default: TYPE_PAIR_CASE(bf16_element, bf16_element, __VA_ARGS__)   \
        }                                                                  \
    else switch (p.mixed_dtype) {                                          \
            WITH_MIXED_TYPES(__VA_ARGS__)                                  \
        }
#define WITH_FLOAT_TYPES(dtype, ...)                                       \
    if (p.mixed_dtype < 0) switch (dtype) {                                \
        case GD_F64: TYPE_PAIR_CASE(double, double, __VA_ARGS__)           \
        case GD_F32: TYPE_PAIR_CASE(float, float, __VA_ARGS__)             \
        case GD_F16: TYPE_PAIR_CASE(f16_element, f16_element, __VA_ARGS__) \
        default: TYPE_PAIR_CASE(bf16_element, bf16_element, __VA_ARGS__)   \
        }                                                                  \
    else switch (p.mixed_dtype) {                                          \
            WITH_MIXED_TYPES(__VA_ARGS__)                                  \
        }

/* At most 32 elements for each thread; in gradients of rows that a block keeps, 16. */
#define PACK pack_size<T>::value
NORM_KERNEL(norm_warp_rows, WITH_VECTOR_TYPES, 4, 256, norm_warps<T, S>)
NORM_KERNEL(norm_block_rows, WITH_VECTOR_TYPES, 4, 256, norm_rows<T, S, PACK, 32 / PACK, true>)
NORM_KERNEL(norm_warp_any, WITH_FLOAT_TYPES, 4, 256, norm_rows<T, S, 1, 8, false>)
NORM_KERNEL(norm_block_any, WITH_FLOAT_TYPES, 4, 256, norm_rows<T, S, 1, 8, true>)
NORM_KERNEL(norm_long_rows, WITH_VECTOR_TYPES, 4, 256, norm_rows<T, S, PACK, 0, true>)
NORM_KERNEL(norm_long_any, WITH_FLOAT_TYPES, 4, 256, norm_rows<T, S, 1, 0, true>)
NORM_KERNEL(layer_grad_warp_rows, WITH_VECTOR_TYPES, 2, 8192, layer_grad_warps<T, S>)
NORM_KERNEL(layer_grad_block_rows, WITH_VECTOR_TYPES, 2, 256,
            layer_grad_rows<T, S, PACK, 16 / PACK, true>)
NORM_KERNEL(row_grad_warp_rows, WITH_FLOAT_TYPES, 4, 256, row_grads<T, S, false>)
NORM_KERNEL(row_grad_block_rows, WITH_FLOAT_TYPES, 4, 256, row_grads<T, S, true>)

/* --- gradients of weight and bias ------------------------------------------------------------- */

/* The sums of a part of the samples for 32 channels, with s = 1: neighbouring threads have
 * neighbouring channels, and the lanes of a channel its samples. */
template <typename T, typename S>
static __device__ void parameter_sums(const parameters &p, double (*shared)[2]) {
    typedef typename wide_type<T>::type W;
    enum { COLUMNS = GD_CUDA_PARAMETER_COLUMNS, LANES = GD_CUDA_PARAMETER_LANES };
    const long long tiles = (p.c + COLUMNS - 1) / COLUMNS, tile = blockIdx.x % tiles,
                    part = blockIdx.x / tiles;
    const int lane = (int)threadIdx.x / COLUMNS;
    const long long channel = tile * COLUMNS + threadIdx.x % COLUMNS;
    const long long group = p.groups == 1 ? 0 : channel / (p.c / p.groups);
    const long long share = (p.n + p.parts - 1) / p.parts, first = part * share,
                    end = first + share < p.n ? first + share : p.n;
    double dot = 0, sum = 0;
    if (channel < p.c)
        for (long long n = first + lane; n < end; n += LANES) {
            const long long row = n * p.groups + group, at = n * p.c + channel;
            const W mean = p.mean ? (W)load_real(p.statistics_dtype, p.mean, row) : (W)0,
                    rstd = (W)load_real(p.statistics_dtype, p.rstd, row);
            const W g = widen(((const S *)p.gy)[at]);
            dot += (double)(g * ((widen(((const T *)p.x)[at]) - mean) * rstd));
            sum += (double)g;
        }
    shared[threadIdx.x][0] = dot;
    shared[threadIdx.x][1] = sum;
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) {
            shared[threadIdx.x][0] += shared[threadIdx.x + half * COLUMNS][0];
            shared[threadIdx.x][1] += shared[threadIdx.x + half * COLUMNS][1];
        }
    }
    if (lane == 0 && channel < p.c) {
        p.partials[2 * part * p.c + channel] = shared[threadIdx.x][0];
        p.partials[(2 * part + 1) * p.c + channel] = shared[threadIdx.x][1];
    }
}
extern "C" __global__ void __launch_bounds__(512)
    gd_norm_parameter_sums(const __grid_constant__ gd_cuda_row_norm p) {
    RETURN_IF_FAILED(p.call);
    __shared__ double shared[512][2];
    WITH_FLOAT_TYPES(p.dtype, parameter_sums<T, S>(p, shared))
}

/* Adds the parts. */
extern "C" __global__ void __launch_bounds__(512)
    gd_norm_parameter_grads(const __grid_constant__ gd_cuda_row_norm p) {
    RETURN_IF_FAILED(p.call);
    enum { COLUMNS = GD_CUDA_PARAMETER_COLUMNS, LANES = GD_CUDA_PARAMETER_LANES };
    __shared__ double shared[2][LANES][COLUMNS];
    const int lane = threadIdx.x / COLUMNS, c = threadIdx.x % COLUMNS;
    const long long channel = (long long)blockIdx.x * COLUMNS + c;
    double dot = 0, sum = 0;
    if (channel < p.c) {
        const double *from = p.partials + channel;
#pragma unroll 8
        for (int k = lane; k < (int)p.parts; k += LANES) {
            dot += from[2 * k * p.c];
            sum += from[(2 * k + 1) * p.c];
        }
    }
    shared[0][lane][c] = dot;
    shared[1][lane][c] = sum;
    __syncthreads();
    if (lane != 0 || channel >= p.c) return;
    for (int k = 1; k < LANES; k++) dot += shared[0][k][c], sum += shared[1][k][c];
    if (p.gweight) store_real(p.dtype == GD_F64 ? GD_F64 : GD_F32, p.gweight, channel, dot);
    if (p.gbias) store_real(p.dtype == GD_F64 ? GD_F64 : GD_F32, p.gbias, channel, sum);
}

/* --- gradients of group norm ------------------------------------------------------------------ */

/* For s > 1. A plane is the s elements of one channel of a sample. All sums follow from two values
 * for each plane: the sums of gy and of gy (x - mean). */

/* The planes of this thread's warp or, with BLOCK, block. */
#define EACH_PLANE(plane)                                                               \
    long long plane =                                                                   \
        BLOCK ? blockIdx.x : (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; \
    plane < p.n *p.c;                                                                   \
    plane += BLOCK ? gridDim.x : (long long)gridDim.x * (THREADS / 32)

static __device__ __forceinline__ long long row_of_plane(const parameters &p, long long plane) {
    const long long n = plane / p.c;
    return n * p.groups + (plane - n * p.c) / (p.c / p.groups);
}

/* f(i, gy, x) for the vectors of a plane that this thread visits. */
template <typename T, int N, class F>
static __device__ __forceinline__ void each_pair(const parameters &p, long long plane, int thread,
                                                 int threads, F &&f) {
    typedef typename wide_type<T>::type W;
    enum { UNROLL = 2 };
    const T *gy = (const T *)p.gy + plane * p.s, *x = (const T *)p.x + plane * p.s;
    const long long step = (long long)threads * N;
    for (long long i = (long long)thread * N; i < p.s; i += UNROLL * step) {
        raw_vector<T, N> raw_g[UNROLL], raw_x[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (i + u * step < p.s) {
                raw_g[u].load(gy + i + u * step);
                raw_x[u].load(x + i + u * step);
            }
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (i + u * step < p.s) {
                W g[N], v[N];
                raw_g[u].widen_to(g);
                raw_x[u].widen_to(v);
                f(i + u * step, g, v);
            }
    }
}

template <typename T, int N, bool BLOCK>
static __device__ __forceinline__ void plane_sums(const parameters &p, void *memory) {
    typedef typename wide_type<T>::type W;
    const int threads = BLOCK ? THREADS : 32, thread = (int)threadIdx.x % threads;
    for (EACH_PLANE(plane)) {
        const long long row = row_of_plane(p, plane);
        const W mean = p.mean ? (W)load_real(p.statistics_dtype, p.mean, row) : (W)0;
        double sum = 0, dot = 0;
        each_pair<T, N>(p, plane, thread, threads, [&](long long, const W *g, const W *x) {
            W part = 0, of_products = 0;
#pragma unroll
            for (int j = 0; j < N; j++) {
                part += g[j];
                of_products = multiply_add(g[j], x[j] - mean, of_products);
            }
            sum += (double)part;
            dot += (double)of_products;
        });
        sum = sum_of_group<BLOCK>(sum, (double *)memory);
        dot = sum_of_group<BLOCK>(dot, (double *)memory);
        if (thread == 0) {
            p.planes[2 * plane] = sum;
            p.planes[2 * plane + 1] = dot;
        }
    }
}

template <typename T, int N, bool BLOCK>
static __device__ __forceinline__ void plane_grads(const parameters &p, void *) {
    typedef typename wide_type<T>::type W;
    const int threads = BLOCK ? THREADS : 32, thread = (int)threadIdx.x % threads;
    for (EACH_PLANE(plane)) {
        const long long row = row_of_plane(p, plane);
        row_sums<W> r;
        r.load(p, row);
        const double *sums = p.planes + 2 * p.n * p.c + 2 * row;
        const W sum = (W)sums[0], slope = (W)sums[1] * r.rstd;
        const W w = parameter_of(p.weight, p.weight_dtype, plane % p.c, (W)1);
        T *gx = (T *)p.y + plane * p.s;
        each_pair<T, N>(p, plane, thread, threads, [&](long long i, const W *g, const W *x) {
            W to[N];
#pragma unroll
            for (int j = 0; j < N; j++)
                to[j] = r.rstd * ((g[j] * w - sum) - (x[j] - r.mean) * slope);
            raw_vector<T, N>::store(gx + i, to);
        });
    }
}

/* A warp computes the sums of a row, which plane_grads reads, or the gradients of a channel's
 * parameters. */
extern "C" __global__ void __launch_bounds__(THREADS)
    gd_plane_grad_finish(const __grid_constant__ gd_cuda_row_norm p) {
    RETURN_IF_FAILED(p.call);
    const int lane = (int)threadIdx.x % 32, wide = p.dtype == GD_F64 ? GD_F64 : GD_F32;
    const long long share = p.c / p.groups;
    for (long long i = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; i < p.rows + p.c;
         i += (long long)gridDim.x * (THREADS / 32)) {
        double sum = 0, dot = 0;
        if (i < p.rows) {
            const long long n = i / p.groups, first = (i - n * p.groups) * share;
            for (long long k = lane; k < share; k += 32) {
                const double *plane = p.planes + 2 * (n * p.c + first + k);
                const double w = p.weight ? load_real(p.weight_dtype, p.weight, first + k) : 1.0;
                sum += w * plane[0];
                dot += w * plane[1];
            }
            sum = sum_of_lanes(sum, 32);
            dot = sum_of_lanes(dot, 32) * load_real(p.statistics_dtype, p.rstd, i);
            if (lane == 0) {
                double *to = p.planes + 2 * p.n * p.c + 2 * i;
                to[0] = p.centered ? sum / (double)p.length : 0;
                to[1] = dot / (double)p.length;
            }
            continue;
        }
        const long long channel = i - p.rows;
        for (long long n = lane; n < p.n; n += 32) {
            const double *plane = p.planes + 2 * (n * p.c + channel);
            sum += plane[0];
            dot += plane[1] * load_real(p.statistics_dtype, p.rstd, n * p.groups + channel / share);
        }
        sum = sum_of_lanes(sum, 32);
        dot = sum_of_lanes(dot, 32);
        if (lane == 0 && p.gweight) store_real(wide, p.gweight, channel, dot);
        if (lane == 0 && p.gbias) store_real(wide, p.gbias, channel, sum);
    }
}

NORM_KERNEL(plane_sums_warp, WITH_VECTOR_TYPE, 4, 256, plane_sums<T, PACK, false>)
NORM_KERNEL(plane_sums_block, WITH_VECTOR_TYPE, 4, 256, plane_sums<T, PACK, true>)
NORM_KERNEL(plane_sums_any, WITH_FLOAT_TYPE, 4, 256, plane_sums<T, 1, false>)
NORM_KERNEL(plane_grads_warp, WITH_VECTOR_TYPE, 4, 256, plane_grads<T, PACK, false>)
NORM_KERNEL(plane_grads_block, WITH_VECTOR_TYPE, 4, 256, plane_grads<T, PACK, true>)
NORM_KERNEL(plane_grads_any, WITH_FLOAT_TYPE, 4, 256, plane_grads<T, 1, false>)

/* --- instance norm: running statistics -------------------------------------------------------- */

/* Moves the running statistics to the mean and the unbiased variance, averaged over the samples. A
 * thread handles one channel. */
extern "C" __global__ void gd_instance_running(const __grid_constant__ gd_cuda_row_norm p) {
    RETURN_IF_FAILED(p.call);
    const double unbiased = (double)p.s / (double)(p.s - 1);
    for (EACH(c, p.c)) {
        double mean = 0, variance = 0;
        for (long long n = 0; n < p.n; n++) {
            mean += p.moments[2 * (n * p.c + c)] / (double)p.n;
            variance += p.moments[2 * (n * p.c + c) + 1] * unbiased / (double)p.n;
        }
        const double old_mean = load_real(p.running_mean_dtype, p.running_mean, c),
                     old_var = load_real(p.running_var_dtype, p.running_var, c);
        store_real(p.running_mean_dtype, p.running_mean, c,
                   old_mean + p.momentum * (mean - old_mean));
        store_real(p.running_var_dtype, p.running_var, c,
                   old_var + p.momentum * (variance - old_var));
    }
}
