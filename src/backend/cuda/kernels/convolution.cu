/* convolution.cu - convolutions and their gradients as products of matrices (implicit GEMM).
 *
 * A block computes a tile of the product. It loads tiles of both operands into shared memory, for 16
 * products of each sum at a time, and each thread adds up 4 x 4 to 8 x 8 elements in registers.
 * While it computes, it loads the next tiles. The windows of the gathered operand are never stored.
 * Floats of 16 and 32 bits are computed in f32.
 */
#include "backend/cuda/kernels/convolution.h"
#include "backend/cuda/kernels/typed.cuh"

enum {
    DEPTH = GD_CUDA_CONV_DEPTH,
    PAD = 4,  /* elements at the end of a row in shared memory: spread columns over banks */
    QUAD = 4, /* neighbouring rows or columns that a thread loads at once */
    SIDE = 16, /* threads side by side in a tile */
    SUM_LENGTH = 512, /* products that are summed before they are added to the total */
    PART_ELEMENTS = GD_CUDA_CONV_PART_ELEMENTS,
    PART_THREADS = GD_CUDA_CONV_PART_THREADS,
    ELEMENT_THREADS = GD_CUDA_CONV_ELEMENT_THREADS,
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
    P at = 0; /* within an image, so 32 bits are enough if P is int */
    bool inside = true;
#pragma unroll
    for (int a = 0; a < 3; a++) {
        if (a == 0 && !p.has_depth_axis) continue;
        P place = column.at[a] + row.at[a];
        if (DIVIDES) {
            const P quotient = place / (P)p.divisor[a];
            inside = inside && place >= 0 && quotient * (P)p.divisor[a] == place;
            place = quotient;
        }
        inside = inside && place >= 0 && place < (P)p.b_size[a];
        at += place * (P)p.b_axis[a];
    }
    return inside ? L::load(p.dtype, p.b, group + column.base + row.base + at)
                  : typename L::type(0);
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

/* The shape of a tile. A thread computes ROWS_EACH x COLUMNS_EACH elements, in quads that are
 * ROW_STEP or COLUMN_STEP apart. */
template <int ROW_COUNT, int COLUMN_COUNT, int THREAD_COUNT>
struct tile_shape {
    enum {
        ROWS = ROW_COUNT,
        COLUMNS = COLUMN_COUNT,
        THREADS = THREAD_COUNT,
        ROW_STEP = THREADS / SIDE * QUAD,
        COLUMN_STEP = SIDE * QUAD,
        ROWS_EACH = ROWS / (THREADS / SIDE),
        COLUMNS_EACH = COLUMNS / SIDE,
    };
    /* The row of the thread's row number r in the tile, and the column likewise. */
    static __device__ __forceinline__ int row(int r) {
        return (int)threadIdx.x / SIDE * QUAD + r / QUAD * ROW_STEP + r % QUAD;
    }
    static __device__ __forceinline__ int column(int c) {
        return (int)threadIdx.x % SIDE * QUAD + c / QUAD * COLUMN_STEP + c % QUAD;
    }
};

/* Shared memory: two tiles of each operand, and the places of their summed indices. The first of
 * each is in use while the second is filled, and the other way round. */
template <typename L, typename P, typename S>
struct tiles {
    alignas(16) typename L::type left[2][DEPTH][S::ROWS + PAD];
    alignas(16) typename L::type right[2][DEPTH][S::COLUMNS + PAD];
    summed_place<P> depths[2][DEPTH];
};

/* The part of a product that a block computes. */
struct product_tile {
    long long group, part, row, column, first, end;
};

/* The elements of both operands that a thread loads for one step. */
template <typename L, typename P, bool DIVIDES, typename S>
struct tile_loader {
    enum {
        LEFT = S::ROWS * DEPTH / S::THREADS,
        RIGHT = S::COLUMNS * DEPTH / S::THREADS,
        RIGHT_STEP = S::THREADS / S::COLUMNS,
    };
    typename L::type left[LEFT], right[RIGHT];
    gathered_place<P> column;
    bool in_columns;

    __device__ __forceinline__ void begin(const gd_cuda_conv &p, const product_tile &t) {
        const long long own = t.column + threadIdx.x % S::COLUMNS;
        in_columns = own < p.n;
        column = place_of(p.column, divide_index<P>(p.column, in_columns ? own : 0));
    }
    /* The row and depth of element e of `left`. */
    static __device__ __forceinline__ int left_row(const gd_cuda_conv &p, int e) {
        return p.a_by_depth ? (int)threadIdx.x / DEPTH + e * (S::THREADS / DEPTH)
                            : (int)threadIdx.x % S::ROWS;
    }
    static __device__ __forceinline__ int left_depth(const gd_cuda_conv &p, int e) {
        return p.a_by_depth ? (int)threadIdx.x % DEPTH
                            : (int)threadIdx.x / S::ROWS + e * (S::THREADS / S::ROWS);
    }
    static __device__ __forceinline__ int right_depth(int e) {
        return (int)threadIdx.x / S::COLUMNS + e * RIGHT_STEP;
    }
    __device__ __forceinline__ void load(const gd_cuda_conv &p, const product_tile &t, long long k,
                                         const summed_place<P> *depths) {
        const int deep = t.end - k < DEPTH ? (int)(t.end - k) : DEPTH;
#pragma unroll
        for (int e = 0; e < RIGHT; e++) {
            const int depth = right_depth(e);
            right[e] = in_columns && depth < deep
                           ? gather<L, P, DIVIDES>(p, t.group * p.b_group, column, depths[depth].b)
                           : typename L::type(0);
        }
#pragma unroll
        for (int e = 0; e < LEFT; e++) {
            const int row = left_row(p, e), depth = left_depth(p, e);
            const bool inside = t.row + row < p.m && depth < deep;
            const long long at =
                t.group * p.a_group + (t.row + row) * p.a_row + (inside ? depths[depth].a : 0);
            left[e] = inside ? L::load(p.dtype, p.a, at) : typename L::type(0);
        }
    }
    __device__ __forceinline__ void store(const gd_cuda_conv &p, tiles<L, P, S> *s,
                                          int buffer) const {
#pragma unroll
        for (int e = 0; e < RIGHT; e++)
            s->right[buffer][right_depth(e)][threadIdx.x % S::COLUMNS] = right[e];
#pragma unroll
        for (int e = 0; e < LEFT; e++) s->left[buffer][left_depth(p, e)][left_row(p, e)] = left[e];
    }
};

/* Fills the places of the summed indices k .. k + DEPTH - 1, by the first threads. */
template <typename P>
static __device__ __forceinline__ void place_depths(const gd_cuda_conv &p, long long k,
                                                    long long end, summed_place<P> *depths) {
    if (threadIdx.x >= DEPTH || k + threadIdx.x >= end) return;
    const divided<P> d = divide_index<P>(p.depth, k + threadIdx.x);
    summed_place<P> *place = &depths[threadIdx.x];
    place->a = d.major * p.a_major + d.at[0] * p.a_axis[0] + d.at[1] * p.a_axis[1] +
               d.at[2] * p.a_axis[2];
    place->b = place_of(p.depth, d);
}

/* Adds the products of one step to the sums of a thread. */
template <typename L, typename P, typename S>
static __device__ __forceinline__ void multiply_tiles(const tiles<L, P, S> *s, int buffer,
                                                      typename L::type (*sum)[S::COLUMNS_EACH]) {
    typedef typename L::type C;
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        C a[S::ROWS_EACH], b[S::COLUMNS_EACH];
#pragma unroll
        for (int r = 0; r < S::ROWS_EACH; r++) a[r] = s->left[buffer][d][S::row(r)];
#pragma unroll
        for (int c = 0; c < S::COLUMNS_EACH; c++) b[c] = s->right[buffer][d][S::column(c)];
#pragma unroll
        for (int r = 0; r < S::ROWS_EACH; r++)
#pragma unroll
            for (int c = 0; c < S::COLUMNS_EACH; c++)
                sum[r][c] = multiply_add(a[r], b[c], sum[r][c]);
    }
}

/* Computes the sums of a tile: total[r][c] is the element in the thread's row r and column c. */
template <typename L, typename P, bool DIVIDES, typename S>
static __device__ __forceinline__ void sum_tile(const gd_cuda_conv &p, const product_tile &t,
                                                tiles<L, P, S> *s,
                                                typename L::type (*total)[S::COLUMNS_EACH]) {
    typename L::type sum[S::ROWS_EACH][S::COLUMNS_EACH] = {};
    tile_loader<L, P, DIVIDES, S> loader;
    int summed = 0, buffer = 0;
    loader.begin(p, t);
    place_depths(p, t.first, t.end, s->depths[0]);
    place_depths(p, t.first + DEPTH, t.end, s->depths[1]);
    __syncthreads();
    loader.load(p, t, t.first, s->depths[0]);
    loader.store(p, s, 0);
    __syncthreads();
#pragma unroll 1
    for (long long k = t.first; k < t.end; k += DEPTH, buffer ^= 1) {
        const bool more = k + DEPTH < t.end;
        if (more) loader.load(p, t, k + DEPTH, s->depths[buffer ^ 1]);
        place_depths(p, k + 2 * DEPTH, t.end, s->depths[buffer]);
        multiply_tiles<L, P, S>(s, buffer, sum);
        if (more) loader.store(p, s, buffer ^ 1);
        __syncthreads();
        summed += DEPTH;
        if (summed < SUM_LENGTH && more) continue;
        summed = 0; /* rounding errors grow with the length of a sum */
#pragma unroll
        for (int r = 0; r < S::ROWS_EACH; r++)
#pragma unroll
            for (int c = 0; c < S::COLUMNS_EACH; c++) {
                total[r][c] += sum[r][c];
                sum[r][c] = 0;
            }
    }
}

template <typename L, typename P, bool DIVIDES, typename S>
static __device__ __forceinline__ void convolve(const gd_cuda_conv &p, tiles<L, P, S> *s) {
    typedef typename L::type C;
    const long long tiles_m = (p.m + S::ROWS - 1) / S::ROWS,
                    tiles_n = (p.n + S::COLUMNS - 1) / S::COLUMNS, tiles = tiles_m * tiles_n,
                    items = tiles * p.groups * p.parts;
#pragma unroll 1
    for (long long item = blockIdx.x; item < items; item += gridDim.x) {
        product_tile t;
        t.group = item / tiles % p.groups;
        t.part = item / tiles / p.groups;
        t.row = item % tiles % tiles_m * S::ROWS; /* blocks in flight share columns of b */
        t.column = item % tiles / tiles_m * S::COLUMNS;
        t.first = t.part * p.chunk;
        t.end = t.first + p.chunk < p.k ? t.first + p.chunk : p.k;
        C total[S::ROWS_EACH][S::COLUMNS_EACH] = {};
        sum_tile<L, P, DIVIDES, S>(p, t, s, total);
#pragma unroll
        for (int c = 0; c < S::COLUMNS_EACH; c++) {
            const long long at_n = t.column + S::column(c);
            if (at_n >= p.n) break;
            const long long offset = p.parts == 1 ? output_offset<P>(p, at_n) : 0;
#pragma unroll
            for (int r = 0; r < S::ROWS_EACH; r++) {
                const long long at_m = t.row + S::row(r);
                if (at_m >= p.m) break;
                if (p.parts == 1) store_result<L>(p, t.group, at_m, offset, total[r][c]);
                else
                    ((C *)p.partials)[((t.part * p.groups + t.group) * p.m + at_m) * p.n + at_n] =
                        total[r][c];
            }
        }
    }
}

/* Adds the parts of each element. Neighbouring threads read neighbouring elements; several threads
 * share the parts of an element. */
template <typename L>
static __device__ __forceinline__ void add_parts(const gd_cuda_conv &p, typename L::type *sums) {
    typedef typename L::type C;
    const long long count = p.groups * p.m * p.n;
    const int lane = (int)threadIdx.x % PART_ELEMENTS, slice = (int)threadIdx.x / PART_ELEMENTS;
#pragma unroll 1
    for (long long base = (long long)blockIdx.x * PART_ELEMENTS; base < count;
         base += (long long)gridDim.x * PART_ELEMENTS) {
        const long long e = base + lane;
        C sum = 0;
        if (e < count)
#pragma unroll 8
            for (long long part = slice; part < p.parts; part += PART_THREADS)
                sum += ((const C *)p.partials)[part * count + e];
        sums[threadIdx.x] = sum;
        __syncthreads();
        if (slice == 0 && e < count) {
            for (int i = 1; i < PART_THREADS; i++) sum += sums[i * PART_ELEMENTS + lane];
            const long long group = e / (p.m * p.n), row = e / p.n % p.m, column = e % p.n;
            store_result<L>(p, group, row, output_offset<long long>(p, column), sum);
        }
        __syncthreads();
    }
}

/* --- few rows in each group, as in depthwise convolution ---------------------------------------- */

/* Each thread computes elements of the result one by one. */
template <typename L, bool DIVIDES>
static __device__ __forceinline__ void convolve_directly(const gd_cuda_conv &p) {
    const long long taps = p.depth.size[0] * p.depth.size[1] * p.depth.size[2];
    for (EACH(e, p.groups * p.m * p.n)) {
        const long long rest = e / p.n, column = e - rest * p.n, group = rest / p.m,
                        row = rest - group * p.m;
        const divided<int> d = divide_index<int>(p.column, column);
        const gathered_place<int> own = place_of(p.column, d);
        typename L::type sum = 0;
#pragma unroll 1
        for (long long major = 0; major * taps < p.k; major++) {
            divided<int> at;
            at.major = major;
            for (at.at[0] = 0; at.at[0] < p.depth.size[0]; at.at[0]++)
                for (at.at[1] = 0; at.at[1] < p.depth.size[1]; at.at[1]++)
#pragma unroll 4
                    for (at.at[2] = 0; at.at[2] < p.depth.size[2]; at.at[2]++) {
                        const long long a = group * p.a_group + row * p.a_row +
                                            major * p.a_major + at.at[0] * p.a_axis[0] +
                                            at.at[1] * p.a_axis[1] + at.at[2] * p.a_axis[2];
                        sum = multiply_add(L::load(p.dtype, p.a, a),
                                           gather<L, int, DIVIDES>(p, group * p.b_group, own,
                                                                   place_of(p.depth, at)),
                                           sum);
                    }
        }
        const long long offset = d.major * p.out_major + d.at[0] * p.out_axis[0] +
                                 d.at[1] * p.out_axis[1] + d.at[2] * p.out_axis[2];
        store_result<L>(p, group, row, offset, sum);
    }
}

/* A block computes an element of the result, which is a long sum. */
template <typename L>
static __device__ __forceinline__ void sum_directly(const gd_cuda_conv &p,
                                                    typename L::type *sums) {
#pragma unroll 1
    for (long long e = blockIdx.x; e < p.groups * p.m * p.n; e += gridDim.x) {
        const long long column = e % p.n, row = e / p.n % p.m, group = e / p.n / p.m;
        const gathered_place<int> own = place_of(p.column, divide_index<int>(p.column, column));
        typename L::type sum = 0;
        for (long long k = threadIdx.x; k < p.k; k += ELEMENT_THREADS) {
            const divided<int> d = divide_index<int>(p.depth, k);
            const long long a = group * p.a_group + row * p.a_row + d.major * p.a_major +
                                d.at[0] * p.a_axis[0] + d.at[1] * p.a_axis[1] +
                                d.at[2] * p.a_axis[2];
            sum = multiply_add(
                L::load(p.dtype, p.a, a),
                gather<L, int, false>(p, group * p.b_group, own, place_of(p.depth, d)), sum);
        }
        sums[threadIdx.x] = sum;
        __syncthreads();
        for (int half = ELEMENT_THREADS / 2; half > 0; half /= 2) {
            if ((int)threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) store_result<L>(p, group, row, output_offset<int>(p, column), sums[0]);
        __syncthreads();
    }
}

/* --- bias and relu ------------------------------------------------------------------------------ */

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
    extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS)                    \
        gd_convolve_epilogue_##name(const __grid_constant__ gd_cuda_conv_epilogue_args p) { \
        RETURN_IF_FAILED(p.call);                                                    \
        finish_results<T>(p, dtype);                                                 \
    }
EPILOGUE_KERNEL(f32, float, GD_F32)
EPILOGUE_KERNEL(f16, f16_element, GD_F16)
EPILOGUE_KERNEL(bf16, bf16_element, GD_BF16)
EPILOGUE_KERNEL(f64, double, GD_F64)

#define SHAPE(name, rows, columns, threads) typedef tile_shape<rows, columns, threads> name##_shape;
GD_CUDA_CONV_TILES(SHAPE)
#undef SHAPE

#define CONVOLUTION_KERNEL(name, P, DIVIDES, S, ...)                           \
    extern "C" __global__ void __launch_bounds__(S::THREADS)                   \
        gd_convolve_##name(const __grid_constant__ gd_cuda_conv p) {           \
        RETURN_IF_FAILED(p.call);                                              \
        __shared__ tiles<__VA_ARGS__, P, S> shared;                            \
        convolve<__VA_ARGS__, P, DIVIDES, S>(p, &shared);                      \
    }
#define PARTS_KERNEL(name, ...)                                                \
    extern "C" __global__ void __launch_bounds__(PART_ELEMENTS * PART_THREADS) \
        gd_convolve_parts_##name(const __grid_constant__ gd_cuda_conv p) {     \
        RETURN_IF_FAILED(p.call);                                              \
        __shared__ __VA_ARGS__::type sums[PART_ELEMENTS * PART_THREADS];       \
        add_parts<__VA_ARGS__>(p, sums);                                       \
    }
#define SHAPE_KERNELS(shape, name, T)                                             \
    CONVOLUTION_KERNEL(shape##_##name, int, false, shape##_shape, typed_loads<T>) \
    CONVOLUTION_KERNEL(shape##_divided_##name, int, true, shape##_shape, typed_loads<T>)
#define DIRECT_KERNELS(name, T)                                                          \
    extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS)                        \
        gd_convolve_direct_##name(const __grid_constant__ gd_cuda_conv p) {              \
        RETURN_IF_FAILED(p.call);                                                        \
        convolve_directly<typed_loads<T>, false>(p);                                     \
    }                                                                                    \
    extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS)                        \
        gd_convolve_direct_divided_##name(const __grid_constant__ gd_cuda_conv p) {      \
        RETURN_IF_FAILED(p.call);                                                        \
        convolve_directly<typed_loads<T>, true>(p);                                      \
    }                                                                                    \
    extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS)                        \
        gd_convolve_direct_sum_##name(const __grid_constant__ gd_cuda_conv p) {          \
        RETURN_IF_FAILED(p.call);                                                        \
        __shared__ typed_loads<T>::type sums[ELEMENT_THREADS];                           \
        sum_directly<typed_loads<T>>(p, sums);                                           \
    }
#define TYPED_KERNELS(name, T)     \
    SHAPE_KERNELS(few, name, T)    \
    SHAPE_KERNELS(middle, name, T) \
    DIRECT_KERNELS(name, T)        \
    PARTS_KERNEL(name, typed_loads<T>)

TYPED_KERNELS(f32, float)
SHAPE_KERNELS(wide, f32, float)
SHAPE_KERNELS(large, f32, float)
TYPED_KERNELS(f16, f16_element)
TYPED_KERNELS(bf16, bf16_element)
TYPED_KERNELS(f64, double)
/* Integers, and problems whose positions do not fit into 32 bits. */
CONVOLUTION_KERNEL(any_real, long long, true, middle_shape, real_loads)
CONVOLUTION_KERNEL(any_integer, long long, true, middle_shape, integer_loads)
PARTS_KERNEL(any_real, real_loads)
PARTS_KERNEL(any_integer, integer_loads)
