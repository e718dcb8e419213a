/* matmul.cu - the product of batches of matrices with any strides.
 *
 * A block computes a tile of 64 x 64 elements of y. It loads tiles of a and b into shared memory,
 * 16 columns of a and rows of b at a time, and each thread adds up 4 x 4 elements in registers.
 * Floats of 16 and 32 bits are computed in f32.
 */
#include "ops/matmul/cuda/matmul_args.h"
#include "backend/cuda/typed.cuh"

enum {
    TILE = GD_CUDA_MATMUL_TILE,
    DEPTH = GD_CUDA_MATMUL_DEPTH,
    THREADS = GD_CUDA_MATMUL_THREADS,
    ROW = TILE + 4, /* elements of a row in shared memory: spreads columns over banks */
    EACH_SIDE = 4,  /* a thread computes 4 x 4 elements */
    SIDE = TILE / EACH_SIDE,
    SUM_LENGTH = 512, /* products that are summed before they are added to the total */
};

/* How elements become values of the compute type C: elements of type T, or of any dtype. */
template <typename C, typename T> struct typed_loads {
    static __device__ __forceinline__ C load(const gd_cuda_matrix &m, long long at) {
        return (C)widen(((const T *)m.data)[at]);
    }
};
struct any_as_f32 {
    static __device__ __forceinline__ float load(const gd_cuda_matrix &m, long long at) {
        return (float)load_real(m.dtype, m.data, at);
    }
};
struct any_as_f64 {
    static __device__ __forceinline__ double load(const gd_cuda_matrix &m, long long at) {
        return load_real(m.dtype, m.data, at);
    }
};
struct any_as_i64 {
    static __device__ __forceinline__ unsigned long long load(const gd_cuda_matrix &m,
                                                              long long at) {
        return (unsigned long long)load_integer(m.dtype, m.data, at);
    }
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

/* Adds the bias to column j of a row and stores it. ReLU keeps NaN. Not inlined: a thread stores 16
 * elements. */
template <typename R>
static __device__ __forceinline__ void store_float(const gd_cuda_matmul &p, long long at,
                                                   long long j, R sum) {
    if (p.bias) sum += (R)load_real(p.bias_dtype, p.bias, j * p.bias_stride);
    store_real(p.y.dtype, p.y.data, at, sum);
}
static __device__ __noinline__ void store_sum(const gd_cuda_matmul &p, long long at, long long j,
                                              double sum) {
    store_float(p, at, j, sum);
}
static __device__ __noinline__ void store_sum(const gd_cuda_matmul &p, long long at, long long j,
                                              float sum) {
    store_float(p, at, j, sum);
}
static __device__ __noinline__ void store_sum(const gd_cuda_matmul &p, long long at, long long j,
                                              unsigned long long sum) {
    if (p.bias) sum += (unsigned long long)load_integer(p.bias_dtype, p.bias, j * p.bias_stride);
    store_integer(p.y.dtype, p.y.data, at, (int64_t)sum);
}

static __device__ __noinline__ long long
batch_offset(const gd_cuda_matmul &p, const gd_cuda_matrix &matrix, long long number) {
    long long at = 0;
#pragma unroll 1
    for (int d = p.batch_rank - 1; d >= 0; d--) {
        at += number % p.batch_dims[d] * matrix.batch[d];
        number /= p.batch_dims[d];
    }
    return at;
}

static __device__ __forceinline__ long long magnitude(long long x) { return x < 0 ? -x : x; }

/* Loads `across` x `depth` elements (rows of a or columns of b, from position (i, k)) to
 * to[depth][across], with zeros beyond the matrix. Neighbouring threads read along the smaller
 * stride. */
template <typename C, typename L>
static __device__ __forceinline__ void
load_tile(C (*to)[ROW], const gd_cuda_matrix &m, long long base, long long stride,
          long long depth_stride, long long i, long long size, long long k, long long end) {
    const bool depth_first = magnitude(depth_stride) < magnitude(stride);
#pragma unroll
    for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        const int across = depth_first ? e / DEPTH : e % TILE,
                  depth = depth_first ? e % DEPTH : e / TILE;
        const long long at = base + (i + across) * stride + (k + depth) * depth_stride;
        to[depth][across] = i + across < size && k + depth < end ? L::load(m, at) : C(0);
    }
}

template <typename C, typename L>
static __device__ __forceinline__ void multiply_matrices(const gd_cuda_matmul &p, C (*a)[ROW],
                                                         C (*b)[ROW]) {
    const int row = (int)threadIdx.x / SIDE, column = (int)threadIdx.x % SIDE;
    const long long tiles_m = (p.m + TILE - 1) / TILE, tiles_n = (p.n + TILE - 1) / TILE,
                    tiles = tiles_m * tiles_n, items = tiles * p.batches * p.parts;
#pragma unroll 1
    for (long long item = blockIdx.x; item < items; item += gridDim.x) {
        const long long matrix = item / tiles % p.batches, part = item / tiles / p.batches,
                        i = item % tiles / tiles_n * TILE, j = item % tiles_n * TILE;
        const long long from_a = batch_offset(p, p.a, matrix),
                        from_b = batch_offset(p, p.b, matrix);
        const long long first = part * p.chunk, end = first + p.chunk < p.k ? first + p.chunk : p.k;
        C total[EACH_SIDE][EACH_SIDE] = {}, sum[EACH_SIDE][EACH_SIDE] = {};
        int summed = 0;
#pragma unroll 1
        for (long long k = first; k < end; k += DEPTH) {
            load_tile<C, L>(a, p.a, from_a, p.a.row, p.a.column, i, p.m, k, end);
            load_tile<C, L>(b, p.b, from_b, p.b.column, p.b.row, j, p.n, k, end);
            __syncthreads();
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                C left[EACH_SIDE], right[EACH_SIDE];
                for (int r = 0; r < EACH_SIDE; r++) left[r] = a[d][row * EACH_SIDE + r];
                for (int c = 0; c < EACH_SIDE; c++) right[c] = b[d][column + c * SIDE];
                for (int r = 0; r < EACH_SIDE; r++)
                    for (int c = 0; c < EACH_SIDE; c++)
                        sum[r][c] = multiply_add(left[r], right[c], sum[r][c]);
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
        const long long to_y = batch_offset(p, p.y, matrix);
#pragma unroll
        for (int r = 0; r < EACH_SIDE; r++)
#pragma unroll
            for (int c = 0; c < EACH_SIDE; c++) {
                const long long at_i = i + row * EACH_SIDE + r, at_j = j + column + c * SIDE;
                if (at_i >= p.m || at_j >= p.n) continue;
                if (p.parts == 1)
                    store_sum(p, to_y + at_i * p.y.row + at_j * p.y.column, at_j, total[r][c]);
                else
                    ((C *)p.partials)[((part * p.batches + matrix) * p.m + at_i) * p.n + at_j] =
                        total[r][c];
            }
    }
}

/* Adds the parts of each element. */
template <typename C> static __device__ __forceinline__ void add_parts(const gd_cuda_matmul &p) {
    const long long count = p.batches * p.m * p.n;
    for (EACH(e, count)) {
        const long long matrix = e / (p.m * p.n), i = e / p.n % p.m, j = e % p.n;
        C sum = 0;
        for (long long part = 0; part < p.parts; part++)
            sum += ((const C *)p.partials)[part * count + e];
        store_sum(p, batch_offset(p, p.y, matrix) + i * p.y.row + j * p.y.column, j, sum);
    }
}

#define PRODUCT_KERNEL(name, C, ...)                                 \
    extern "C" __global__ void __launch_bounds__(THREADS)            \
        gd_matmul_##name(const __grid_constant__ gd_cuda_matmul p) { \
        RETURN_IF_FAILED(p.call);                                    \
        __shared__ C a[DEPTH][ROW], b[DEPTH][ROW];                   \
        multiply_matrices<C, __VA_ARGS__>(p, a, b);                  \
    }
#define SUM_KERNEL(name, C)                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                  \
        gd_matmul_parts_##name(const __grid_constant__ gd_cuda_matmul p) { \
        RETURN_IF_FAILED(p.call);                                          \
        add_parts<C>(p);                                                   \
    }

/* Both operands are f32, f16 or bf16; or the operands differ and y is such a float. */
PRODUCT_KERNEL(f32, float, typed_loads<float, float>)
PRODUCT_KERNEL(f16, float, typed_loads<float, f16_element>)
PRODUCT_KERNEL(bf16, float, typed_loads<float, bf16_element>)
PRODUCT_KERNEL(mixed, float, any_as_f32)
PRODUCT_KERNEL(f64, double, any_as_f64)
PRODUCT_KERNEL(i64, unsigned long long, any_as_i64)
SUM_KERNEL(f32, float)
SUM_KERNEL(f64, double)
SUM_KERNEL(i64, unsigned long long)
