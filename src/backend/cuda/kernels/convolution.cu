/* convolution.cu - convolutions and their gradients as products of matrices (implicit GEMM).
 *
 * A block computes a tile of 64 x 64 elements. It loads tiles of both operands into shared memory,
 * for 16 products of each sum at a time, and each thread adds up 4 x 4 elements in registers. The
 * windows of the gathered operand are never stored. Floats of 16 and 32 bits are computed in f32.
 */
#include "backend/cuda/kernels/convolution.h"
#include "backend/cuda/kernels/typed.cuh"

enum {
    TILE = GD_CUDA_CONV_TILE,
    DEPTH = GD_CUDA_CONV_DEPTH,
    THREADS = GD_CUDA_CONV_THREADS,
    ROW = TILE + 4, /* elements of a row in shared memory: spreads columns over banks */
    EACH_SIDE = 4,  /* a thread computes 4 x 4 elements */
    SIDE = TILE / EACH_SIDE,
    SUM_LENGTH = 512, /* products that are summed before they are added to the total */
};

static __device__ __forceinline__ float multiply_add(float a, float b, float c) {
    return fmaf(a, b, c);
}
static __device__ __forceinline__ double multiply_add(double a, double b, double c) {
    return fma(a, b, c);
}
static __device__ __forceinline__ unsigned long long multiply_add(unsigned long long a,
                                                                  unsigned long long b,
                                                                  unsigned long long c) {
    return a * b + c; /* wraps */
}

/* How a kernel loads elements: those of one type T, or of any dtype. */
template <typename T>
struct typed_loads {
    typedef typename wide_type<T>::type type;
    static __device__ __forceinline__ type load(int, const void *p, long long i) {
        return widen(((const T *)p)[i]);
    }
};
struct real_loads {
    typedef double type;
    static __device__ __forceinline__ double load(int dtype, const void *p, long long i) {
        return load_real(dtype, p, i);
    }
};
struct integer_loads {
    typedef unsigned long long type;
    static __device__ __forceinline__ unsigned long long load(int dtype, const void *p,
                                                              long long i) {
        return (unsigned long long)load_integer(dtype, p, i);
    }
};
static __device__ __forceinline__ void store_sum(int dtype, void *p, long long i, double sum) {
    store_real(dtype, p, i, sum);
}
static __device__ __forceinline__ void store_sum(int dtype, void *p, long long i, float sum) {
    store_real(dtype, p, i, sum);
}
static __device__ __forceinline__ void store_sum(int dtype, void *p, long long i,
                                                 unsigned long long sum) {
    store_integer(dtype, p, i, (int64_t)sum);
}
static __device__ __forceinline__ bool is_positive_or_nan(double x) { return !(x <= 0); }
static __device__ __forceinline__ bool is_positive_or_nan(float x) { return !(x <= 0); }
static __device__ __forceinline__ bool is_positive_or_nan(unsigned long long x) {
    return (long long)x > 0;
}

/* An index of the product as major index and positions, of type P: int, or long long for problems
 * with huge strides or sizes. */
template <typename P>
struct divided {
    long long major;
    P at[3];
};
template <typename P>
static __device__ __forceinline__ divided<P> divide_index(const gd_cuda_conv_index &index,
                                                          long long number) {
    divided<P> d;
    /* most indices fit into 32 bits, whose division is much faster */
    if (sizeof(P) == 4 && number <= 0x7fffffff) {
        unsigned rest = (unsigned)number;
#pragma unroll
        for (int a = 2; a >= 0; a--) {
            const unsigned size = (unsigned)index.size[a], next = rest / size;
            d.at[a] = (P)(rest - next * size);
            rest = next;
        }
        d.major = rest;
        return d;
    }
#pragma unroll
    for (int a = 2; a >= 0; a--) {
        const long long next = number / index.size[a];
        d.at[a] = (P)(number - next * index.size[a]);
        number = next;
    }
    d.major = number;
    return d;
}

/* What an index contributes to the address of a gathered element. */
template <typename P>
struct gathered_place {
    long long base;
    P at[3];
};
template <typename P>
static __device__ __forceinline__ gathered_place<P> place_of(const gd_cuda_conv_index &index,
                                                             const divided<P> &d) {
    gathered_place<P> place;
    place.base = d.major * index.stride;
#pragma unroll
    for (int a = 0; a < 3; a++) place.at[a] = (P)index.first[a] + d.at[a] * (P)index.step[a];
    return place;
}

/* The element of b in a row and column of the product, or 0. DIVIDES: some divisor is not 1. */
template <typename L, typename P, bool DIVIDES>
static __device__ __forceinline__ typename L::type gather(const gd_cuda_conv &p, long long group,
                                                          const gathered_place<P> &column,
                                                          const gathered_place<P> &row) {
    long long at = group + column.base + row.base;
    bool inside = true;
#pragma unroll
    for (int a = 0; a < 3; a++) {
        P place = column.at[a] + row.at[a];
        if (DIVIDES) {
            const P quotient = place / (P)p.divisor[a];
            inside = inside && place >= 0 && quotient * (P)p.divisor[a] == place;
            place = quotient;
        }
        inside = inside && place >= 0 && place < (P)p.b_size[a];
        at += place * p.b_axis[a];
    }
    return inside ? L::load(p.dtype, p.b, at) : typename L::type(0);
}

/* Stores an element of the result: sum, bias, relu. */
template <typename L>
static __device__ __forceinline__ void store_result(const gd_cuda_conv &p, long long group,
                                                    long long row, long long column_offset,
                                                    typename L::type sum) {
    if (p.bias) sum += L::load(p.dtype, p.bias, (group * p.m + row) * p.bias_stride);
    if (p.relu && !is_positive_or_nan(sum)) sum = 0;
    store_sum(p.dtype, p.out, group * p.out_group + row * p.out_row + column_offset, sum);
}

template <typename P>
static __device__ __forceinline__ long long output_offset(const gd_cuda_conv &p,
                                                          long long column) {
    const divided<P> d = divide_index<P>(p.column, column);
    return d.major * p.out_major + d.at[0] * p.out_axis[0] + d.at[1] * p.out_axis[1] +
           d.at[2] * p.out_axis[2];
}

/* The summed index of one load: places in a and b. */
template <typename P>
struct summed_place {
    long long a;
    gathered_place<P> b;
};

template <typename L, typename P, bool DIVIDES>
static __device__ __forceinline__ void convolve(const gd_cuda_conv &p,
                                                typename L::type (*left)[ROW],
                                                typename L::type (*right)[ROW],
                                                summed_place<P> *depths) {
    typedef typename L::type C;
    const int row = (int)threadIdx.x / SIDE, column = (int)threadIdx.x % SIDE;
    const long long tiles_m = (p.m + TILE - 1) / TILE, tiles_n = (p.n + TILE - 1) / TILE,
                    tiles = tiles_m * tiles_n, items = tiles * p.groups * p.parts;
#pragma unroll 1
    for (long long item = blockIdx.x; item < items; item += gridDim.x) {
        const long long group = item / tiles % p.groups, part = item / tiles / p.groups,
                        i = item % tiles / tiles_n * TILE, j = item % tiles_n * TILE;
        const long long first = part * p.chunk,
                        end = first + p.chunk < p.k ? first + p.chunk : p.k;
        /* every thread loads elements of one column of b and of one row of a */
        const int across = (int)threadIdx.x % TILE, deep = (int)threadIdx.x / TILE;
        const bool in_columns = j + across < p.n, in_rows = i + across < p.m;
        const gathered_place<P> own =
            place_of(p.column, divide_index<P>(p.column, in_columns ? j + across : 0));
        const long long own_row = group * p.a_group + (i + across) * p.a_row;
        C total[EACH_SIDE][EACH_SIDE] = {}, sum[EACH_SIDE][EACH_SIDE] = {};
        int summed = 0;
#pragma unroll 1
        for (long long k = first; k < end; k += DEPTH) {
            if (threadIdx.x < DEPTH && k + threadIdx.x < end) {
                const divided<P> d = divide_index<P>(p.depth, k + threadIdx.x);
                summed_place<P> *place = &depths[threadIdx.x];
                place->a = d.major * p.a_major + d.at[0] * p.a_axis[0] + d.at[1] * p.a_axis[1] +
                           d.at[2] * p.a_axis[2];
                place->b = place_of(p.depth, d);
            }
            __syncthreads();
#pragma unroll
            for (int e = 0; e < DEPTH * TILE / THREADS; e++) {
                const int depth = deep + e * (THREADS / TILE);
                const bool in_depth = k + depth < end;
                right[depth][across] =
                    in_depth && in_columns
                        ? gather<L, P, DIVIDES>(p, group * p.b_group, own, depths[depth].b)
                        : C(0);
                left[depth][across] = in_depth && in_rows
                                          ? L::load(p.dtype, p.a, own_row + depths[depth].a)
                                          : C(0);
            }
            __syncthreads();
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                C a[EACH_SIDE], b[EACH_SIDE];
                for (int r = 0; r < EACH_SIDE; r++) a[r] = left[d][row * EACH_SIDE + r];
                for (int c = 0; c < EACH_SIDE; c++) b[c] = right[d][column + c * SIDE];
                for (int r = 0; r < EACH_SIDE; r++)
                    for (int c = 0; c < EACH_SIDE; c++)
                        sum[r][c] = multiply_add(a[r], b[c], sum[r][c]);
            }
            __syncthreads();
            summed += DEPTH;
            if (summed < SUM_LENGTH && k + DEPTH < end) continue;
            summed = 0; /* rounding errors grow with the length of a sum */
            for (int r = 0; r < EACH_SIDE; r++)
                for (int c = 0; c < EACH_SIDE; c++) {
                    total[r][c] += sum[r][c];
                    sum[r][c] = 0;
                }
        }
#pragma unroll 1
        for (int c = 0; c < EACH_SIDE; c++) {
            const long long at_j = j + column + c * SIDE;
            if (at_j >= p.n) continue;
            const long long offset = p.parts == 1 ? output_offset<P>(p, at_j) : 0;
#pragma unroll
            for (int r = 0; r < EACH_SIDE; r++) {
                const long long at_i = i + row * EACH_SIDE + r;
                /* total[r][c] with a constant index, so that it stays in registers */
                const C value = c == 0   ? total[r][0]
                                : c == 1 ? total[r][1]
                                : c == 2 ? total[r][2]
                                         : total[r][3];
                if (at_i >= p.m) continue;
                if (p.parts == 1) store_result<L>(p, group, at_i, offset, value);
                else
                    ((C *)p.partials)[((part * p.groups + group) * p.m + at_i) * p.n + at_j] =
                        value;
            }
        }
    }
}

/* Adds the parts of each element. */
template <typename L>
static __device__ __forceinline__ void add_parts(const gd_cuda_conv &p) {
    typedef typename L::type C;
    const long long count = p.groups * p.m * p.n;
    for (EACH(e, count)) {
        const long long group = e / (p.m * p.n), row = e / p.n % p.m, column = e % p.n;
        C sum = 0;
        for (long long part = 0; part < p.parts; part++)
            sum += ((const C *)p.partials)[part * count + e];
        store_result<L>(p, group, row, output_offset<long long>(p, column), sum);
    }
}

/* Bias and relu. A thread handles 16 bytes, and all of them at once if they are aligned. */
template <typename T>
static __device__ __forceinline__ void finish_results(const gd_cuda_conv_epilogue_args &p,
                                                      int dtype) {
    typedef typename wide_type<T>::type C;
    enum { TOGETHER = 16 / sizeof(T) };
    const bool aligned = ((uintptr_t)p.y & 15) == 0;
    for (EACH(chunk, (p.count + TOGETHER - 1) / TOGETHER)) {
        const long long first = chunk * TOGETHER;
        const bool all = aligned && first + TOGETHER <= p.count;
        alignas(16) T values[TOGETHER];
        if (all) *(uint4 *)values = ((const uint4 *)p.y)[chunk];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const long long e = first + i;
            if (e >= p.count) break;
            if (!all) values[i] = ((const T *)p.y)[e];
            C value = widen(values[i]);
            if (p.bias)
                value += widen(((const T *)p.bias)[e / p.inner % p.channels * p.bias_stride]);
            if (p.relu && !is_positive_or_nan(value)) value = 0;
            store_wide(dtype, values, i, value);
            if (!all) ((T *)p.y)[e] = values[i];
        }
        if (all) ((uint4 *)p.y)[chunk] = *(const uint4 *)values;
    }
}

#define EPILOGUE_KERNEL(name, T, dtype)                                              \
    extern "C" __global__ void __launch_bounds__(THREADS)                            \
        gd_convolve_epilogue_##name(const __grid_constant__ gd_cuda_conv_epilogue_args p) { \
        RETURN_IF_FAILED(p.call);                                                    \
        finish_results<T>(p, dtype);                                                 \
    }
EPILOGUE_KERNEL(f32, float, GD_F32)
EPILOGUE_KERNEL(f16, f16_element, GD_F16)
EPILOGUE_KERNEL(bf16, bf16_element, GD_BF16)
EPILOGUE_KERNEL(f64, double, GD_F64)

#define CONVOLUTION_KERNEL(name, P, DIVIDES, ...)                          \
    extern "C" __global__ void __launch_bounds__(THREADS)                  \
        gd_convolve_##name(const __grid_constant__ gd_cuda_conv p) {       \
        RETURN_IF_FAILED(p.call);                                          \
        __shared__ __VA_ARGS__::type left[DEPTH][ROW], right[DEPTH][ROW];  \
        __shared__ summed_place<P> depths[DEPTH];                          \
        convolve<__VA_ARGS__, P, DIVIDES>(p, left, right, depths);         \
    }
#define PARTS_KERNEL(name, ...)                                            \
    extern "C" __global__ void __launch_bounds__(THREADS)                  \
        gd_convolve_parts_##name(const __grid_constant__ gd_cuda_conv p) { \
        RETURN_IF_FAILED(p.call);                                          \
        add_parts<__VA_ARGS__>(p);                                         \
    }

CONVOLUTION_KERNEL(f32, int, false, typed_loads<float>)
CONVOLUTION_KERNEL(f16, int, false, typed_loads<f16_element>)
CONVOLUTION_KERNEL(bf16, int, false, typed_loads<bf16_element>)
CONVOLUTION_KERNEL(f64, int, false, typed_loads<double>)
CONVOLUTION_KERNEL(divided_f32, int, true, typed_loads<float>)
CONVOLUTION_KERNEL(divided_f16, int, true, typed_loads<f16_element>)
CONVOLUTION_KERNEL(divided_bf16, int, true, typed_loads<bf16_element>)
CONVOLUTION_KERNEL(divided_f64, int, true, typed_loads<double>)
/* Integers, and problems whose positions do not fit into 32 bits. */
CONVOLUTION_KERNEL(any_real, long long, true, real_loads)
CONVOLUTION_KERNEL(any_integer, long long, true, integer_loads)
PARTS_KERNEL(f32, typed_loads<float>)
PARTS_KERNEL(f16, typed_loads<f16_element>)
PARTS_KERNEL(bf16, typed_loads<bf16_element>)
PARTS_KERNEL(f64, typed_loads<double>)
PARTS_KERNEL(any_real, real_loads)
PARTS_KERNEL(any_integer, integer_loads)
