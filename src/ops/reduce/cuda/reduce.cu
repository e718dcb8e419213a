/* reduce.cu - reductions over any axes.
 *
 * A fold is a struct with the code for elements of type T:
 *
 *     accumulator    the result so far; at most GD_CUDA_PARTIAL_BYTES
 *     start()        the result of no elements
 *     add(p, a, values, first, step)   adds CHUNK elements: numbers first, first + step, ...
 *     add(p, a, value, number)         adds one element
 *     join(a, b)     the result of the elements of both
 *     finish(p, a, o)   stores output o
 *
 * The order of all additions depends only on shapes and strides, so the bits are the same on every
 * run.
 */
#include "ops/reduce/cuda/reduce_args.h"
#include "backend/cuda/typed.cuh"

enum { CHUNK = 8 }; /* elements that a thread loads before it adds them */

typedef unsigned long long word;

/* Stores result o. Not inlined, because each kernel has code for all dtypes. */
static __device__ __noinline__ void store_result(const gd_cuda_view &y, long long o, double x) {
    store_real(y.dtype, y.data, offset_of(y, o), x);
}
static __device__ __noinline__ void store_result(const gd_cuda_view &y, long long o, long long x) {
    store_integer(y.dtype, y.data, offset_of(y, o), x);
}
static __device__ __forceinline__ void store_result(const gd_cuda_view &y, long long o, float x) {
    store_result(y, o, (double)x);
}

/* --- sums and products ------------------------------------------------------------------------ */

/* A chunk is added as a tree in the type of its elements, and chunks are added in double. So sums
 * of f32 are as exact as pairwise ones, and few operations are in double. */
template <typename T> struct real_sum {
    typedef double accumulator;
    typedef typename wide_type<T>::type wide;
    static __device__ double start() { return 0; }
    static __device__ double tree(const double *v) {
        return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
    }
    static __device__ double tree(const float *v) {
        return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
    }
    static __device__ double tree(const long long *v) {
        double sum = 0;
        for (int k = 0; k < CHUNK; k++) sum += (double)v[k];
        return sum;
    }
    static __device__ void add(const gd_cuda_reduce &, double &a, const wide *values, long long,
                               long long) {
        a += tree(values);
    }
    static __device__ void add(const gd_cuda_reduce &, double &a, wide value, long long) {
        a += (double)value;
    }
    static __device__ double join(double a, double b) { return a + b; }
    static __device__ void finish(const gd_cuda_reduce &p, double a, long long o) {
        store_result(p.y, o, a / p.divisor);
    }
};

template <typename T> struct real_product {
    typedef double accumulator;
    typedef typename wide_type<T>::type wide;
    static __device__ double start() { return 1; }
    static __device__ void add(const gd_cuda_reduce &, double &a, const wide *values, long long,
                               long long) {
        for (int k = 0; k < CHUNK; k++) a *= (double)values[k];
    }
    static __device__ void add(const gd_cuda_reduce &, double &a, wide value, long long) {
        a *= (double)value;
    }
    static __device__ double join(double a, double b) { return a * b; }
    static __device__ void finish(const gd_cuda_reduce &p, double a, long long o) {
        store_result(p.y, o, a);
    }
};

/* An element as an integer of y's dtype. A float saturates, so it must be converted before the sum;
 * integers wrap, so the conversion of the result suffices. */
static __device__ __forceinline__ word as_integer(int dtype, double x) {
    switch (dtype) {
    case GD_I32: return (word)(long long)gd_f64_to_i32(x);
    case GD_I8: return (word)(long long)gd_f64_to_i8(x);
    case GD_U8: return gd_f64_to_u8(x);
    default: return (word)gd_f64_to_i64(x);
    }
}
static __device__ __forceinline__ word as_integer(int dtype, float x) {
    return as_integer(dtype, (double)x);
}
static __device__ __forceinline__ word as_integer(int, long long x) { return (word)x; }

template <typename T, bool product> struct integer_fold {
    typedef word accumulator;
    typedef typename wide_type<T>::type wide;
    static __device__ word start() { return product; }
    static __device__ word join(word a, word b) { return product ? a * b : a + b; }
    static __device__ void add(const gd_cuda_reduce &p, word &a, const wide *values, long long,
                               long long) {
        for (int k = 0; k < CHUNK; k++) a = join(a, as_integer(p.y.dtype, values[k]));
    }
    static __device__ void add(const gd_cuda_reduce &p, word &a, wide value, long long) {
        a = join(a, as_integer(p.y.dtype, value));
    }
    static __device__ void finish(const gd_cuda_reduce &p, word a, long long o) {
        store_result(p.y, o, (long long)a);
    }
};
template <typename T> using integer_sum = integer_fold<T, false>;
template <typename T> using integer_product = integer_fold<T, true>;

/* Whether any or all elements are not 0. */
template <typename T, bool all> struct bool_fold {
    typedef int accumulator;
    typedef typename wide_type<T>::type wide;
    static __device__ int start() { return all; }
    static __device__ int join(int a, int b) { return all ? a & b : a | b; }
    static __device__ void add(const gd_cuda_reduce &, int &a, const wide *values, long long,
                               long long) {
        for (int k = 0; k < CHUNK; k++) a = join(a, values[k] != 0);
    }
    static __device__ void add(const gd_cuda_reduce &, int &a, wide value, long long) {
        a = join(a, value != 0);
    }
    static __device__ void finish(const gd_cuda_reduce &p, int a, long long o) {
        store_result(p.y, o, (long long)a);
    }
};
template <typename T> using any_true = bool_fold<T, false>;
template <typename T> using all_true = bool_fold<T, true>;

/* --- extremes --------------------------------------------------------------------------------- */

/* Whether a comes before b as an extreme. NaN comes first. */
template <bool largest, typename W> static __device__ __forceinline__ bool is_beyond(W a, W b) {
    if (a != a || b != b) return a != a && b == b;
    return largest ? a > b : a < b;
}

template <bool largest> static __device__ __forceinline__ void set_least(float &x) {
    x = largest ? -INFINITY : INFINITY;
}
template <bool largest> static __device__ __forceinline__ void set_least(double &x) {
    x = largest ? -INFINITY : INFINITY;
}
template <bool largest> static __device__ __forceinline__ void set_least(long long &x) {
    x = largest ? INT64_MIN : INT64_MAX;
}

template <typename T, bool largest> struct extreme_value {
    typedef typename wide_type<T>::type wide;
    typedef wide accumulator;
    static __device__ wide start() {
        wide least;
        set_least<largest>(least);
        return least;
    }
    static __device__ wide join(wide a, wide b) { return is_beyond<largest>(b, a) ? b : a; }
    static __device__ void add(const gd_cuda_reduce &, wide &a, const wide *values, long long,
                               long long) {
        for (int k = 0; k < CHUNK; k++) a = join(a, values[k]);
    }
    static __device__ void add(const gd_cuda_reduce &, wide &a, wide value, long long) {
        a = join(a, value);
    }
    static __device__ void finish(const gd_cuda_reduce &p, wide a, long long o) {
        store_result(p.y, o, a);
    }
};
template <typename T> using largest_value = extreme_value<T, true>;
template <typename T> using smallest_value = extreme_value<T, false>;

/* The first extreme of a group and its number in it. A negative number: no element yet. */
template <typename W> struct numbered_value {
    W value;
    long long number;
};

template <typename T, bool largest> struct extreme_index {
    typedef typename wide_type<T>::type wide;
    typedef numbered_value<wide> accumulator;
    static __device__ accumulator start() { return accumulator{0, -1}; }
    static __device__ accumulator join(accumulator a, accumulator b) {
        if (a.number < 0 || b.number < 0) return a.number < 0 ? b : a;
        if (is_beyond<largest>(a.value, b.value)) return a;
        if (is_beyond<largest>(b.value, a.value)) return b;
        return a.number < b.number ? a : b;
    }
    static __device__ void add(const gd_cuda_reduce &p, accumulator &a, const wide *values,
                               long long first, long long step) {
        for (int k = 0; k < CHUNK; k++) add(p, a, values[k], first + k * step);
    }
    /* A thread adds elements in the order of their numbers. */
    static __device__ void add(const gd_cuda_reduce &, accumulator &a, wide value,
                               long long number) {
        if (a.number < 0 || is_beyond<largest>(value, a.value)) a = accumulator{value, number};
    }
    static __device__ void finish(const gd_cuda_reduce &p, accumulator a, long long o) {
        if (p.y.data) store_result(p.y, o, a.value);
        if (p.indices.data) store_result(p.indices, o, a.number);
    }
};
template <typename T> using largest_index = extreme_index<T, true>;
template <typename T> using smallest_index = extreme_index<T, false>;

/* --- groups ----------------------------------------------------------------------------------- */

/* Numbers that fit into 32 bits are divided as such, which is several times faster. Not inlined:
 * divisions take many instructions. */
static __device__ __noinline__ long long axes_offset(const gd_cuda_axes &axes, long long number) {
    if (axes.rank <= 1) return axes.rank ? number * axes.strides[0] : 0;
    long long at = 0;
#pragma unroll 1
    for (int d = axes.rank - 1; d > 0; d--) {
        const long long dim = axes.dims[d],
                        rest = ((number | dim) >> 32) == 0
                                   ? (long long)((uint32_t)number / (uint32_t)dim)
                                   : number / dim;
        at += (number - rest * dim) * axes.strides[d];
        number = rest;
    }
    return at + number * axes.strides[0];
}

/* The elements first, first + lanes, ... before `end` of the group that begins at x. */
template <typename F, typename T>
static __device__ typename F::accumulator fold_elements(const gd_cuda_reduce &p, const T *x,
                                                        long long first, long long end) {
    typename F::accumulator a = F::start();
    const long long step = p.lanes;
    long long n = first;
    if (p.reduced.rank <= 1) {
        const long long stride = p.reduced.rank ? p.reduced.strides[0] : 0;
        for (; n + (CHUNK - 1) * step < end; n += CHUNK * step) {
            typename F::wide values[CHUNK];
#pragma unroll
            for (int k = 0; k < CHUNK; k++) values[k] = widen(x[(n + k * step) * stride]);
            F::add(p, a, values, n, step);
        }
#pragma unroll 1
        for (; n < end; n += step) F::add(p, a, widen(x[n * stride]), n);
        return a;
    }
    for (; n + (CHUNK - 1) * step < end; n += CHUNK * step) {
        long long at[CHUNK];
        typename F::wide values[CHUNK];
#pragma unroll
        for (int k = 0; k < CHUNK; k++) at[k] = axes_offset(p.reduced, n + k * step);
#pragma unroll
        for (int k = 0; k < CHUNK; k++) values[k] = widen(x[at[k]]);
        F::add(p, a, values, n, step);
    }
#pragma unroll 1
    for (; n < end; n += step) F::add(p, a, widen(x[axes_offset(p.reduced, n)]), n);
    return a;
}

/* Joins the results of the lanes of each group. Lane 0 then has the result in its element. */
template <typename F>
static __device__ void join_lanes(typename F::accumulator *shared, int lane, int lanes,
                                  int lane_stride) {
    for (int half = lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half)
            shared[threadIdx.x] =
                F::join(shared[threadIdx.x], shared[threadIdx.x + half * lane_stride]);
    }
}

template <typename F, typename T>
static __device__ void reduce_groups(const gd_cuda_reduce &p, void *memory) {
    typename F::accumulator *shared = (typename F::accumulator *)memory;
    const int lane = (int)threadIdx.x / p.lane_stride % p.lanes,
              group = p.lane_stride == 1 ? (int)threadIdx.x / p.lanes
                                         : (int)threadIdx.x % p.lane_stride;
    const int block_outputs = GD_CUDA_REDUCE_THREADS / p.lanes;
    const long long blocks = (p.outputs + block_outputs - 1) / block_outputs;
#pragma unroll 1
    for (long long b = blockIdx.x; b < blocks * p.parts; b += gridDim.x) {
        const long long part = b / blocks, o = (b - part * blocks) * block_outputs + group;
        const long long first = part * p.chunk,
                        end = first + p.chunk < p.size ? first + p.chunk : p.size;
        shared[threadIdx.x] =
            o < p.outputs
                ? fold_elements<F, T>(p, (const T *)p.x + axes_offset(p.kept, o), first + lane, end)
                : F::start();
        join_lanes<F>(shared, lane, p.lanes, p.lane_stride);
        if (lane == 0 && o < p.outputs) {
            const typename F::accumulator a = shared[threadIdx.x];
            if (p.parts == 1) F::finish(p, a, o);
            else ((typename F::accumulator *)p.partials)[part * p.outputs + o] = a;
        }
        __syncthreads();
    }
}

/* Joins the parts of each output; a block computes one output. */
template <typename F> static __device__ void join_parts(const gd_cuda_reduce &p, void *memory) {
    typename F::accumulator *shared = (typename F::accumulator *)memory;
    const typename F::accumulator *partials = (const typename F::accumulator *)p.partials;
    for (long long o = blockIdx.x; o < p.outputs; o += gridDim.x) {
        typename F::accumulator a = F::start();
        for (long long k = threadIdx.x; k < p.parts; k += GD_CUDA_REDUCE_THREADS)
            a = F::join(a, partials[k * p.outputs + o]);
        shared[threadIdx.x] = a;
        join_lanes<F>(shared, (int)threadIdx.x, GD_CUDA_REDUCE_THREADS, 1);
        if (threadIdx.x == 0) F::finish(p, shared[0], o);
        __syncthreads();
    }
}

/* gd_reduce_NAME reduces, gd_join_NAME joins the parts. */
#define FOLD_KERNELS(name, fold)                                         \
    extern "C" __global__ void __launch_bounds__(GD_CUDA_REDUCE_THREADS) \
        gd_reduce_##name(const __grid_constant__ gd_cuda_reduce p) {     \
        RETURN_IF_FAILED(p.call);                                        \
        __shared__ ulonglong2 shared[GD_CUDA_REDUCE_THREADS];            \
        WITH_ELEMENT_TYPE(p.dtype, reduce_groups<fold<T>, T>(p, shared)) \
    }                                                                    \
    extern "C" __global__ void __launch_bounds__(GD_CUDA_REDUCE_THREADS) \
        gd_join_##name(const __grid_constant__ gd_cuda_reduce p) {       \
        RETURN_IF_FAILED(p.call);                                        \
        __shared__ ulonglong2 shared[GD_CUDA_REDUCE_THREADS];            \
        WITH_ELEMENT_TYPE(p.dtype, join_parts<fold<T>>(p, shared))       \
    }

FOLD_KERNELS(real_sum, real_sum)
FOLD_KERNELS(real_product, real_product)
FOLD_KERNELS(integer_sum, integer_sum)
FOLD_KERNELS(integer_product, integer_product)
FOLD_KERNELS(any, any_true)
FOLD_KERNELS(all, all_true)
FOLD_KERNELS(max, largest_value)
FOLD_KERNELS(min, smallest_value)
FOLD_KERNELS(argmax, largest_index)
FOLD_KERNELS(argmin, smallest_index)
