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

/* An index of the product as major index and positions. */
struct divided {
    long long major;
    int at[3];
};
static __device__ __forceinline__ divided divide_index(const gd_cuda_conv_index &index,
                                                       long long number) {
    divided d;
    /* most indices fit into 32 bits, whose division is much faster */
    if (number <= 0x7fffffff) {
        unsigned rest = (unsigned)number;
#pragma unroll
        for (int a = 2; a >= 0; a--) {
            const unsigned size = (unsigned)index.size[a], next = rest / size;
            d.at[a] = (int)(rest - next * size);
            rest = next;
        }
        d.major = rest;
        return d;
    }
#pragma unroll
    for (int a = 2; a >= 0; a--) {
        const long long next = number / index.size[a];
        d.at[a] = (int)(number - next * index.size[a]);
        number = next;
    }
    d.major = number;
    return d;
}

/* What an index contributes to the address of a gathered element. */
struct gathered_place {
    long long base;
    int at[3];
};
static __device__ __forceinline__ gathered_place place_of(const gd_cuda_conv_index &index,
                                                          const divided &d) {
    gathered_place place;
    place.base = d.major * index.stride;
#pragma unroll
    for (int a = 0; a < 3; a++) place.at[a] = index.first[a] + d.at[a] * index.step[a];
    return place;
}

/* The element of b in a row and column of the product, or 0. DIVIDES: some divisor is not 1. */
template <typename C, typename T, bool DIVIDES>
static __device__ __forceinline__ C gather(const gd_cuda_conv &p, long long group,
                                           const gathered_place &column,
                                           const gathered_place &row) {
    long long at = group + column.base + row.base;
    bool inside = true;
#pragma unroll
    for (int a = 0; a < 3; a++) {
        int place = column.at[a] + row.at[a];
        if (DIVIDES) {
            const int quotient = place / p.divisor[a];
            inside = inside && place >= 0 && quotient * p.divisor[a] == place;
            place = quotient;
        }
        inside = inside && (unsigned)place < (unsigned)p.b_size[a];
        at += place * p.b_axis[a];
    }
    return inside ? (C)widen(((const T *)p.b)[at]) : C(0);
}

/* Stores an element of the result: sum, bias, relu. */
template <typename C>
static __device__ __forceinline__ void store_result(const gd_cuda_conv &p, long long group,
                                                    long long row, long long column_offset, C sum) {
    if (p.bias)
        sum += (C)load_real(p.dtype, p.bias, (group * p.m + row) * p.bias_stride);
    if (p.relu) sum = sum > 0 || sum != sum ? sum : C(0);
    store_real(p.dtype, p.out, group * p.out_group + row * p.out_row + column_offset, sum);
}

static __device__ __forceinline__ long long output_offset(const gd_cuda_conv &p,
                                                          long long column) {
    const divided d = divide_index(p.column, column);
    return d.major * p.out_major + d.at[0] * p.out_axis[0] + d.at[1] * p.out_axis[1] +
           d.at[2] * p.out_axis[2];
}

/* The summed index of one load: places in a and b. */
struct summed_place {
    long long a;
    gathered_place b;
};

template <typename C, typename T, bool DIVIDES>
static __device__ __forceinline__ void convolve(const gd_cuda_conv &p, C (*left)[ROW],
                                                C (*right)[ROW], summed_place *depths) {
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
        const gathered_place own =
            place_of(p.column, divide_index(p.column, in_columns ? j + across : 0));
        const long long own_row = group * p.a_group + (i + across) * p.a_row;
        C total[EACH_SIDE][EACH_SIDE] = {}, sum[EACH_SIDE][EACH_SIDE] = {};
        int summed = 0;
#pragma unroll 1
        for (long long k = first; k < end; k += DEPTH) {
            if (threadIdx.x < DEPTH && k + threadIdx.x < end) {
                const divided d = divide_index(p.depth, k + threadIdx.x);
                summed_place *place = &depths[threadIdx.x];
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
                        ? gather<C, T, DIVIDES>(p, group * p.b_group, own, depths[depth].b)
                        : C(0);
                left[depth][across] = in_depth && in_rows
                                          ? (C)widen(((const T *)p.a)[own_row + depths[depth].a])
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
            const long long offset = p.parts == 1 ? output_offset(p, at_j) : 0;
#pragma unroll
            for (int r = 0; r < EACH_SIDE; r++) {
                const long long at_i = i + row * EACH_SIDE + r;
                /* total[r][c] with a constant index, so that it stays in registers */
                const C value = c == 0   ? total[r][0]
                                : c == 1 ? total[r][1]
                                : c == 2 ? total[r][2]
                                         : total[r][3];
                if (at_i >= p.m) continue;
                if (p.parts == 1) store_result(p, group, at_i, offset, value);
                else
                    ((C *)p.partials)[((part * p.groups + group) * p.m + at_i) * p.n + at_j] =
                        value;
            }
        }
    }
}

/* Adds the parts of each element. */
template <typename C>
static __device__ __forceinline__ void add_parts(const gd_cuda_conv &p) {
    const long long count = p.groups * p.m * p.n;
    for (EACH(e, count)) {
        const long long group = e / (p.m * p.n), row = e / p.n % p.m, column = e % p.n;
        C sum = 0;
        for (long long part = 0; part < p.parts; part++)
            sum += ((const C *)p.partials)[part * count + e];
        store_result(p, group, row, output_offset(p, column), sum);
    }
}

#define CONVOLUTION_KERNEL(name, C, T, DIVIDES)                            \
    extern "C" __global__ void __launch_bounds__(THREADS)                  \
        gd_convolve_##name(const __grid_constant__ gd_cuda_conv p) {       \
        RETURN_IF_FAILED(p.call);                                          \
        __shared__ C left[DEPTH][ROW], right[DEPTH][ROW];                  \
        __shared__ summed_place depths[DEPTH];                             \
        convolve<C, T, DIVIDES>(p, left, right, depths);                   \
    }
#define PARTS_KERNEL(name, C)                                              \
    extern "C" __global__ void __launch_bounds__(THREADS)                  \
        gd_convolve_parts_##name(const __grid_constant__ gd_cuda_conv p) { \
        RETURN_IF_FAILED(p.call);                                          \
        add_parts<C>(p);                                                   \
    }

CONVOLUTION_KERNEL(f32, float, float, false)
CONVOLUTION_KERNEL(f16, float, f16_element, false)
CONVOLUTION_KERNEL(bf16, float, bf16_element, false)
CONVOLUTION_KERNEL(f64, double, double, false)
CONVOLUTION_KERNEL(divided_f32, float, float, true)
CONVOLUTION_KERNEL(divided_f16, float, f16_element, true)
CONVOLUTION_KERNEL(divided_bf16, float, bf16_element, true)
CONVOLUTION_KERNEL(divided_f64, double, double, true)
PARTS_KERNEL(f32, float)
PARTS_KERNEL(f64, double)
