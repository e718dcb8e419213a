/* conv.cu - convolutions and their gradients as products of matrices (implicit GEMM).
 *
 * A block computes a tile of the product. It loads tiles of both operands into shared memory, for 16
 * products of each sum at a time, and each thread adds up 4 x 4 to 8 x 8 elements in registers.
 * While it computes, it loads the next tiles. The windows of the gathered operand are never stored.
 * Floats of 16 and 32 bits are computed in f32.
 */
#include "ops/conv/cuda/conv_args.h"
#include "backend/cuda/typed.cuh"

enum {
    DEPTH = GD_CUDA_CONV_DEPTH,
    PAD = 4,          /* elements at the end of a row in shared memory: spread columns over banks */
    QUAD = 4,         /* neighbouring rows or columns that a thread loads at once */
    SIDE = 16,        /* threads side by side in a tile */
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
static __device__ __forceinline__ unsigned long long
multiply_add(unsigned long long a, unsigned long long b, unsigned long long c) {
    return a * b + c; /* wraps */
}

static __device__ __forceinline__ void narrow(float x, float *to) { *to = x; }
static __device__ __forceinline__ void narrow(double x, double *to) { *to = x; }
static __device__ __forceinline__ void narrow(float x, f16_element *to) {
    to->bits = gd_f32_to_f16(x);
}
static __device__ __forceinline__ void narrow(float x, bf16_element *to) {
    to->bits = gd_f32_to_bf16(x);
}

/* How a kernel loads and stores elements: those of one type T, or of any dtype. */
template <typename T> struct typed_loads {
    typedef typename wide_type<T>::type type;
    static __device__ __forceinline__ type load(int, const void *p, long long i) {
        return widen(((const T *)p)[i]);
    }
    static __device__ __forceinline__ void store(int, void *p, long long i, type x) {
        narrow(x, (T *)p + i);
    }
};
struct real_loads {
    typedef double type;
    static __device__ __forceinline__ double load(int dtype, const void *p, long long i) {
        return load_real(dtype, p, i);
    }
    static __device__ __forceinline__ void store(int dtype, void *p, long long i, double x) {
        store_real(dtype, p, i, x);
    }
};
struct integer_loads {
    typedef unsigned long long type;
    static __device__ __forceinline__ unsigned long long load(int dtype, const void *p,
                                                              long long i) {
        return (unsigned long long)load_integer(dtype, p, i);
    }
    static __device__ __forceinline__ void store(int dtype, void *p, long long i,
                                                 unsigned long long x) {
        store_integer(dtype, p, i, (int64_t)x);
    }
};
static __device__ __forceinline__ bool is_positive_or_nan(double x) { return !(x <= 0); }
static __device__ __forceinline__ bool is_positive_or_nan(float x) { return !(x <= 0); }
static __device__ __forceinline__ bool is_positive_or_nan(unsigned long long x) {
    return (long long)x > 0;
}

/* Sizes, positions and offsets have type P: int, or long long if they do not fit. */

/* An index of the product as major index and positions. */
template <typename P> struct divided { P major, at[3]; };
static __device__ __forceinline__ int quotient_of(int a, int b) {
    return (int)((unsigned)a / (unsigned)b); /* faster than with signs, which none has */
}
static __device__ __forceinline__ long long quotient_of(long long a, long long b) { return a / b; }
template <typename P>
static __device__ __forceinline__ divided<P> divide_index(const gd_cuda_conv_index &index,
                                                          P number) {
    divided<P> d;
#pragma unroll
    for (int a = 2; a >= 0; a--) {
        const P size = (P)index.size[a], next = quotient_of(number, size);
        d.at[a] = number - next * size;
        number = next;
    }
    d.major = number;
    return d;
}

/* What an index contributes to the address of a gathered element: coordinates, and the offset that
 * they have if no divisor is used. */
template <typename P> struct gathered_place { P base, at[3]; };
template <typename P, bool DIVIDES>
static __device__ __forceinline__ gathered_place<P>
place_of(const gd_cuda_conv &p, const gd_cuda_conv_index &index, const divided<P> &d) {
    gathered_place<P> place;
    place.base = d.major * (P)index.stride;
#pragma unroll
    for (int a = 0; a < 3; a++) {
        place.at[a] = (P)index.first[a] + d.at[a] * (P)index.step[a];
        if (!DIVIDES) place.base += place.at[a] * (P)p.b_axis[a];
    }
    return place;
}

/* Whether a row and column of the product have an element of b, and its offset in the group; the
 * offset is 0 if there is none. DIVIDES: some divisor is not 1. */
template <typename P, bool DIVIDES>
static __device__ __forceinline__ bool find_gathered(const gd_cuda_conv &p,
                                                     const gathered_place<P> &column,
                                                     const gathered_place<P> &row, P *offset) {
    P at = column.base + row.base;
    bool inside = true;
#pragma unroll
    for (int a = 0; a < 3; a++) {
        if (a == 0 && !p.has_depth_axis) continue;
        P place = column.at[a] + row.at[a];
        if (DIVIDES) {
            const int shift = p.shifts[a];
            const P divisor = (P)p.divisor[a],
                    quotient = shift >= 0 ? place >> shift : place / divisor;
            inside = inside & (place >= 0) & (quotient * divisor == place);
            place = quotient;
            at += place * (P)p.b_axis[a];
        }
        inside = inside & (place >= 0) & (place < (P)p.b_size[a]);
    }
    *offset = inside ? at : 0;
    return inside;
}

/* Stores an element of the result: sum, bias, relu. */
template <typename L>
static __device__ __forceinline__ void store_result(const gd_cuda_conv &p, long long group,
                                                    long long row, long long column_offset,
                                                    typename L::type sum) {
    if (p.bias) sum += L::load(p.dtype, p.bias, (group * p.m + row) * p.bias_stride);
    if (p.relu && !is_positive_or_nan(sum)) sum = 0;
    L::store(p.dtype, p.out, group * p.out_group + row * p.out_row + column_offset, sum);
}

template <typename P>
static __device__ __forceinline__ long long output_offset(const gd_cuda_conv &p,
                                                          const divided<P> &d) {
    return d.major * p.out_major + d.at[0] * p.out_axis[0] + d.at[1] * p.out_axis[1] +
           d.at[2] * p.out_axis[2];
}

/* The offset of a summed index in a row of a. */
template <typename P>
static __device__ __forceinline__ P row_offset(const gd_cuda_conv &p, const divided<P> &d) {
    return d.major * (P)p.a_major + d.at[0] * (P)p.a_axis[0] + d.at[1] * (P)p.a_axis[1] +
           d.at[2] * (P)p.a_axis[2];
}

/* The summed index of one load: places in a and b. */
template <typename P> struct alignas(16) summed_place {
    gathered_place<P> b;
    P a;
};

/* The shape of a tile. A thread computes ROWS_EACH x COLUMNS_EACH elements, in quads that are
 * ROW_STEP or COLUMN_STEP apart. */
template <int ROW_COUNT, int COLUMN_COUNT, int THREAD_COUNT, int BLOCK_COUNT> struct tile_shape {
    enum {
        ROWS = ROW_COUNT,
        COLUMNS = COLUMN_COUNT,
        THREADS = THREAD_COUNT,
        ROW_STEP = THREADS / SIDE * QUAD,
        COLUMN_STEP = SIDE * QUAD,
        ROWS_EACH = ROWS / (THREADS / SIDE),
        COLUMNS_EACH = COLUMNS / SIDE,
        /* blocks on a multiprocessor, which limit the registers of a thread */
        BLOCKS = BLOCK_COUNT,
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
template <typename L, typename P, typename S> struct tiles {
    alignas(16) typename L::type left[2][DEPTH][S::ROWS + PAD];
    alignas(16) typename L::type right[2][DEPTH][S::COLUMNS + PAD];
    summed_place<P> depths[2][DEPTH];
};

/* The part of a product that a block computes: its tile from (row, column) on, and of the sums the
 * products first .. end - 1. */
template <typename P> struct product_tile { P group, part, row, column, first, end; };

/* The elements of both operands that a thread loads for one step. */
template <typename L, typename P, bool DIVIDES, typename S> struct tile_loader {
    enum {
        LEFT = S::ROWS * DEPTH / S::THREADS,
        RIGHT = S::COLUMNS * DEPTH / S::THREADS,
        RIGHT_STEP = S::THREADS / S::COLUMNS,
    };
    typename L::type left[LEFT], right[RIGHT];
    gathered_place<P> column; /* of the thread's elements of `right` */
    bool in_columns;
    P group_b, group_a, rows; /* offsets of the group and tile; rows of a in the tile */

    __device__ __forceinline__ void begin(const gd_cuda_conv &p, const product_tile<P> &t) {
        const P own = t.column + (P)(threadIdx.x % S::COLUMNS);
        in_columns = own < (P)p.n;
        column = place_of<P, DIVIDES>(p, p.column, divide_index<P>(p.column, in_columns ? own : 0));
        group_b = t.group * (P)p.b_group;
        group_a = t.group * (P)p.a_group + t.row * (P)p.a_row;
        rows = (P)p.m - t.row;
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
    /* Loads do not branch, so that all are in flight at once: elements that do not exist are
     * loaded from the beginning of the operand, and dropped. */
    __device__ __forceinline__ void load(const gd_cuda_conv &p, const product_tile<P> &t, P k,
                                         const summed_place<P> *depths) {
        const P deep = t.end - k;
#pragma unroll
        for (int e = 0; e < RIGHT; e++) {
            const int depth = right_depth(e);
            P at;
            bool inside = find_gathered<P, DIVIDES>(p, column, depths[depth].b, &at);
            inside = inside & in_columns & (depth < deep);
            const typename L::type value = L::load(p.dtype, p.b, inside ? group_b + at : 0);
            right[e] = inside ? value : typename L::type(0);
        }
#pragma unroll
        for (int e = 0; e < LEFT; e++) {
            const int row = left_row(p, e), depth = left_depth(p, e);
            const bool inside = (row < rows) & (depth < deep);
            const P at = group_a + row * (P)p.a_row + depths[depth].a;
            const typename L::type value = L::load(p.dtype, p.a, inside ? at : 0);
            left[e] = inside ? value : typename L::type(0);
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
template <typename P, bool DIVIDES>
static __device__ __forceinline__ void place_depths(const gd_cuda_conv &p, P k, P end,
                                                    summed_place<P> *depths) {
    const P own = k + (P)threadIdx.x;
    if (threadIdx.x >= DEPTH) return;
    const divided<P> d = divide_index<P>(p.depth, own < end ? own : 0);
    depths[threadIdx.x].b = place_of<P, DIVIDES>(p, p.depth, d);
    depths[threadIdx.x].a = row_offset<P>(p, d);
}

/* Four neighbouring elements of shared memory. */
template <typename C> struct alignas(16) quad { C at[QUAD]; };

/* Adds the products of one step to the sums of a thread. */
template <typename L, typename P, typename S>
static __device__ __forceinline__ void multiply_tiles(const tiles<L, P, S> *s, int buffer,
                                                      typename L::type (*sum)[S::COLUMNS_EACH]) {
    typedef typename L::type C;
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        quad<C> a[S::ROWS_EACH / QUAD], b[S::COLUMNS_EACH / QUAD];
#pragma unroll
        for (int r = 0; r < S::ROWS_EACH / QUAD; r++)
            a[r] = *(const quad<C> *)&s->left[buffer][d][S::row(r * QUAD)];
#pragma unroll
        for (int c = 0; c < S::COLUMNS_EACH / QUAD; c++)
            b[c] = *(const quad<C> *)&s->right[buffer][d][S::column(c * QUAD)];
#pragma unroll
        for (int r = 0; r < S::ROWS_EACH; r++)
#pragma unroll
            for (int c = 0; c < S::COLUMNS_EACH; c++)
                sum[r][c] =
                    multiply_add(a[r / QUAD].at[r % QUAD], b[c / QUAD].at[c % QUAD], sum[r][c]);
    }
}

/* Computes the sums of a tile: total[r][c] is the element in the thread's row r and column c. */
template <typename L, typename P, bool DIVIDES, typename S>
static __device__ __forceinline__ void sum_tile(const gd_cuda_conv &p, const product_tile<P> &t,
                                                tiles<L, P, S> *s,
                                                typename L::type (*total)[S::COLUMNS_EACH]) {
    typename L::type sum[S::ROWS_EACH][S::COLUMNS_EACH] = {};
    tile_loader<L, P, DIVIDES, S> loader;
    int summed = 0, buffer = 0;
    if (t.first >= t.end) return;
    loader.begin(p, t);
    place_depths<P, DIVIDES>(p, t.first, t.end, s->depths[0]);
    place_depths<P, DIVIDES>(p, t.first + DEPTH, t.end, s->depths[1]);
    __syncthreads();
    loader.load(p, t, t.first, s->depths[0]);
    loader.store(p, s, 0);
    __syncthreads();
#pragma unroll 1
    for (P k = t.first; k < t.end; k += DEPTH, buffer ^= 1) {
        const bool more = k + DEPTH < t.end;
        if (more) loader.load(p, t, k + DEPTH, s->depths[buffer ^ 1]);
        if (k + 2 * DEPTH < t.end)
            place_depths<P, DIVIDES>(p, k + 2 * DEPTH, t.end, s->depths[buffer]);
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
    const P tiles_m = ((P)p.m + S::ROWS - 1) / S::ROWS,
            tiles_n = ((P)p.n + S::COLUMNS - 1) / S::COLUMNS, tiles = tiles_m * tiles_n,
            groups = (P)p.groups, items = tiles * groups * (P)p.parts;
#pragma unroll 1
    for (P item = (P)blockIdx.x; item < items; item += (P)gridDim.x) {
        product_tile<P> t;
        const P matrix = quotient_of(item, tiles), in_matrix = item - matrix * tiles;
        t.part = quotient_of(matrix, groups);
        t.group = matrix - t.part * groups;
        t.column = quotient_of(in_matrix, tiles_m); /* blocks in flight share columns of b */
        t.row = (in_matrix - t.column * tiles_m) * S::ROWS;
        t.column *= S::COLUMNS;
        t.first = t.part * (P)p.chunk;
        t.end = (P)p.k - t.first < (P)p.chunk ? (P)p.k : t.first + (P)p.chunk;
        C total[S::ROWS_EACH][S::COLUMNS_EACH] = {};
        sum_tile<L, P, DIVIDES, S>(p, t, s, total);
        const long long part = (t.part * p.groups + t.group) * p.m * p.n;
#pragma unroll
        for (int c = 0; c < S::COLUMNS_EACH; c++) {
            const P at_n = t.column + S::column(c);
            if (at_n >= (P)p.n) break;
            const long long offset =
                p.parts == 1 ? output_offset<P>(p, divide_index<P>(p.column, at_n)) : 0;
#pragma unroll
            for (int r = 0; r < S::ROWS_EACH; r++) {
                const P at_m = t.row + S::row(r);
                if (at_m >= (P)p.m) break;
                if (p.parts == 1) store_result<L>(p, t.group, at_m, offset, total[r][c]);
                else ((C *)p.partials)[part + at_m * p.n + at_n] = total[r][c];
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
            const long long rest = e / p.n, group = rest / p.m;
            const divided<long long> d = divide_index<long long>(p.column, e - rest * p.n);
            store_result<L>(p, group, rest - group * p.m, output_offset<long long>(p, d), sum);
        }
        __syncthreads();
    }
}

/* --- few rows in each group, as in depthwise convolution ---------------------------------------- */

/* Each thread computes elements of the result one by one. */
template <typename L, bool DIVIDES>
static __device__ __forceinline__ void convolve_directly(const gd_cuda_conv &p) {
    const int n = (int)p.n, m = (int)p.m, count = (int)(p.groups * p.m * p.n),
              depth = (int)p.depth.size[0], height = (int)p.depth.size[1],
              width = (int)p.depth.size[2],
              majors = p.k == 0 ? 0 : (int)(p.k / ((long long)depth * height * width));
    for (EACH(e, count)) {
        const int rest = quotient_of((int)e, n), group = quotient_of(rest, m),
                  row = rest - group * m;
        const divided<int> d = divide_index<int>(p.column, (int)e - rest * n);
        const gathered_place<int> own = place_of<int, DIVIDES>(p, p.column, d);
        const int a = group * (int)p.a_group + row * (int)p.a_row, b = group * (int)p.b_group;
        typename L::type sum = 0;
        divided<int> at;
#pragma unroll 1
        for (at.major = 0; at.major < majors; at.major++)
#pragma unroll 1
            for (at.at[0] = 0; at.at[0] < depth; at.at[0]++)
#pragma unroll 1
                for (at.at[1] = 0; at.at[1] < height; at.at[1]++)
#pragma unroll 4
                    for (at.at[2] = 0; at.at[2] < width; at.at[2]++) {
                        int offset;
                        const bool inside = find_gathered<int, DIVIDES>(
                            p, own, place_of<int, DIVIDES>(p, p.depth, at), &offset);
                        const typename L::type x = L::load(p.dtype, p.b, inside ? b + offset : 0),
                                               w = L::load(p.dtype, p.a, a + row_offset(p, at));
                        sum = multiply_add(w, inside ? x : typename L::type(0), sum);
                    }
        store_result<L>(p, group, row, output_offset<int>(p, d), sum);
    }
}

/* A block computes an element of the result, which is a long sum. */
template <typename L>
static __device__ __forceinline__ void sum_directly(const gd_cuda_conv &p, typename L::type *sums) {
    const int k_end = (int)p.k;
#pragma unroll 1
    for (long long e = blockIdx.x; e < p.groups * p.m * p.n; e += gridDim.x) {
        const int column = (int)(e % p.n), row = (int)(e / p.n % p.m), group = (int)(e / p.n / p.m);
        const divided<int> d = divide_index<int>(p.column, column);
        const gathered_place<int> own = place_of<int, false>(p, p.column, d);
        const int a = group * (int)p.a_group + row * (int)p.a_row, b = group * (int)p.b_group;
        typename L::type sum = 0;
#pragma unroll 4
        for (int k = (int)threadIdx.x; k < k_end; k += ELEMENT_THREADS) {
            const divided<int> at = divide_index<int>(p.depth, k);
            int offset;
            const bool inside =
                find_gathered<int, false>(p, own, place_of<int, false>(p, p.depth, at), &offset);
            const typename L::type x = L::load(p.dtype, p.b, inside ? b + offset : 0),
                                   y = L::load(p.dtype, p.a, a + row_offset(p, at));
            sum = multiply_add(y, inside ? x : typename L::type(0), sum);
        }
        sums[threadIdx.x] = sum;
        __syncthreads();
        for (int half = ELEMENT_THREADS / 2; half > 0; half /= 2) {
            if ((int)threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) store_result<L>(p, group, row, output_offset<int>(p, d), sums[0]);
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

#define EPILOGUE_KERNEL(name, T, dtype)                                                     \
    extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS)                           \
        gd_convolve_epilogue_##name(const __grid_constant__ gd_cuda_conv_epilogue_args p) { \
        RETURN_IF_FAILED(p.call);                                                           \
        finish_results<T>(p, dtype);                                                        \
    }
EPILOGUE_KERNEL(f32, float, GD_F32)
EPILOGUE_KERNEL(f16, f16_element, GD_F16)
EPILOGUE_KERNEL(bf16, bf16_element, GD_BF16)
EPILOGUE_KERNEL(f64, double, GD_F64)

#define SHAPE(name, rows, columns, threads, blocks)                  \
    typedef tile_shape<rows, columns, threads, blocks> name##_shape; \
    typedef tile_shape<rows, columns, threads, 1> name##_wide_shape; /* for f64 */
GD_CUDA_CONV_TILES(SHAPE)
#undef SHAPE

#define CONVOLUTION_KERNEL(name, P, DIVIDES, S, ...)                    \
    extern "C" __global__ void __launch_bounds__(S::THREADS, S::BLOCKS) \
        gd_convolve_##name(const __grid_constant__ gd_cuda_conv p) {    \
        RETURN_IF_FAILED(p.call);                                       \
        __shared__ tiles<__VA_ARGS__, P, S> shared;                     \
        convolve<__VA_ARGS__, P, DIVIDES, S>(p, &shared);               \
    }
#define PARTS_KERNEL(name, ...)                                               \
    extern "C" __global__ void __launch_bounds__(PART_ELEMENTS *PART_THREADS) \
        gd_convolve_parts_##name(const __grid_constant__ gd_cuda_conv p) {    \
        RETURN_IF_FAILED(p.call);                                             \
        __shared__ __VA_ARGS__::type sums[PART_ELEMENTS * PART_THREADS];      \
        add_parts<__VA_ARGS__>(p, sums);                                      \
    }
#define SHAPE_KERNELS(shape, name, S, T)                              \
    CONVOLUTION_KERNEL(shape##_##name, int, false, S, typed_loads<T>) \
    CONVOLUTION_KERNEL(shape##_divided_##name, int, true, S, typed_loads<T>)
#define DIRECT_KERNELS(name, T)                                                     \
    extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS)                   \
        gd_convolve_direct_##name(const __grid_constant__ gd_cuda_conv p) {         \
        RETURN_IF_FAILED(p.call);                                                   \
        convolve_directly<typed_loads<T>, false>(p);                                \
    }                                                                               \
    extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS)                   \
        gd_convolve_direct_divided_##name(const __grid_constant__ gd_cuda_conv p) { \
        RETURN_IF_FAILED(p.call);                                                   \
        convolve_directly<typed_loads<T>, true>(p);                                 \
    }                                                                               \
    extern "C" __global__ void __launch_bounds__(ELEMENT_THREADS)                   \
        gd_convolve_direct_sum_##name(const __grid_constant__ gd_cuda_conv p) {     \
        RETURN_IF_FAILED(p.call);                                                   \
        __shared__ typed_loads<T>::type sums[ELEMENT_THREADS];                      \
        sum_directly<typed_loads<T>>(p, sums);                                      \
    }
#define TYPED_KERNELS(name, kind, T)                     \
    SHAPE_KERNELS(few, name, few_##kind##shape, T)       \
    SHAPE_KERNELS(middle, name, middle_##kind##shape, T) \
    DIRECT_KERNELS(name, T)                              \
    PARTS_KERNEL(name, typed_loads<T>)

TYPED_KERNELS(f32, , float)
SHAPE_KERNELS(wide, f32, wide_shape, float)
SHAPE_KERNELS(large, f32, large_shape, float)
TYPED_KERNELS(f16, , f16_element)
TYPED_KERNELS(bf16, , bf16_element)
TYPED_KERNELS(f64, wide_, double)
/* Integers, and problems whose positions do not fit into 32 bits. */
CONVOLUTION_KERNEL(any_real, long long, true, middle_wide_shape, real_loads)
CONVOLUTION_KERNEL(any_integer, long long, true, middle_wide_shape, integer_loads)
PARTS_KERNEL(any_real, real_loads)
PARTS_KERNEL(any_integer, integer_loads)
