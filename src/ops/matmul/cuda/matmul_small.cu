/* matmul_small.cu - f32 products of small matrices, several in one launch, with epilogues.
 *
 * A block computes a tile of y, or a part of the depth of one. It copies stages of both operands
 * asynchronously into shared memory. A thread has 8 x 8 elements of the tile in registers, and a
 * slice of the depth of each stage: smaller tiles have more slices. Reading 16 floats from shared
 * memory takes as long as the 64 multiply-adds with them, so a thread reads those of the next step
 * before it multiplies those of this one. The block adds the slices in shared memory. If the depth
 * is divided into parts, blocks store theirs, and the block that arrives last adds them. All sums
 * have a fixed order.
 */
#include "ops/matmul/cuda/matmul_small_args.h"

#include "backend/cuda/element.cuh"
#include "backend/cuda/last_block.cuh"
#include "backend/cuda/previous_kernel.cuh"

typedef gd_small_product product;

enum {
    STAGES = GD_SMALL_PRODUCT_STAGES,
    EACH = 8, /* a thread computes 8 x 8 elements */
};

/* How many blocks of each tile have arrived. */
static __device__ unsigned int arrivals[GD_SMALL_PRODUCT_COUNTERS];

/* --- asynchronous copies ---------------------------------------------------------------------- */

#ifdef __CUDACC__

extern __shared__ __align__(16) unsigned char product_shared[];

/* Copy 4 floats or one; `bytes` of them are read, the others are 0. */
static __device__ __forceinline__ void copy_vector(float *to, const float *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
}
static __device__ __forceinline__ void copy_float(float *to, const float *from, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
}
static __device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most `PENDING` later groups of copies are not done. */
template <int PENDING> static __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#else /* the emulator of tests/cuda */

#define product_shared emulated_shared
static inline void copy_vector(float *to, const float *from, int bytes) {
    emulated_copy_async(to, from, bytes, 16);
}
static inline void copy_float(float *to, const float *from, int bytes) {
    emulated_copy_async(to, from, bytes, 4);
}
static inline void commit_copies() { emulated_commit_copies(); }
template <int PENDING> static inline void wait_copies() { emulated_wait_copies(PENDING); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }

#endif

static __device__ __forceinline__ int clamp_count(int n) { return n < 0 ? 0 : n > 4 ? 4 : n; }

/* The share of this thread in the copies of an operand's stages: rows [row, row + ROWS), and DEPTH
 * columns of the depth at a time, with zeros beyond its `rows` and beyond `end`. */
template <int ROWS, int DEPTH, int THREADS, bool DEEP> struct operand {
    enum {
        LENGTH = DEEP ? DEPTH : ROWS, /* contiguous elements */
        STRIDE = LENGTH + GD_SMALL_PRODUCT_PAD,
        FLOATS = ROWS * DEPTH / LENGTH * STRIDE,
        VECTORS = ROWS * DEPTH / 4 / THREADS,
        APART = THREADS / (LENGTH / 4), /* rows of the stage between the vectors of a thread */
    };
    const float *from; /* the first vector of the next stage */
    int stride, outer, inner, outer_end, inner_end;
    bool vector;

    __device__ __forceinline__ operand(const float *data, int data_stride, bool has_vectors,
                                       int row, int rows, int k, int end)
        : stride(data_stride), vector(has_vectors) {
        const int o = vector ? (int)threadIdx.x / (LENGTH / 4) : 0,
                  i = vector ? (int)threadIdx.x % (LENGTH / 4) * 4 : 0;
        outer = (DEEP ? row : k) + o, inner = (DEEP ? k : row) + i;
        outer_end = DEEP ? rows : end, inner_end = DEEP ? end : rows;
        from = data + (long long)outer * stride + inner;
    }
    __device__ __forceinline__ void load(float *to) {
        if (vector) {
            float *at =
                to + (int)threadIdx.x / (LENGTH / 4) * STRIDE + (int)threadIdx.x % (LENGTH / 4) * 4;
            const int bytes = 4 * clamp_count(inner_end - inner);
#pragma unroll
            for (int v = 0; v < VECTORS; v++)
                copy_vector(at + v * (APART * STRIDE), from + (long long)(v * APART) * stride,
                            outer + v * APART < outer_end ? bytes : 0);
        } else {
#pragma unroll 4
            for (int e = (int)threadIdx.x; e < ROWS * DEPTH; e += THREADS) {
                const int o = e / LENGTH, i = e % LENGTH;
                copy_float(to + o * STRIDE + i, from + (long long)o * stride + i,
                           outer + o < outer_end && inner + i < inner_end ? 4 : 0);
            }
        }
        if (DEEP) from += DEPTH, inner += DEPTH;
        else from += (long long)DEPTH * stride, outer += DEPTH;
    }
    static __device__ __forceinline__ float at(const float *stage, int row, int k) {
        return DEEP ? stage[row * STRIDE + k] : stage[k * STRIDE + row];
    }
    /* The rows of a thread: EACH of them, LANES threads share all. */
    template <int LANES> static __device__ __forceinline__ int row_of(int lane, int i) {
        return DEEP ? lane + i * LANES : i / 4 * (4 * LANES) + lane * 4 + i % 4;
    }
    /* Elements (row_of(i), k) and (row_of(i), k + 1). */
    template <int LANES>
    static __device__ __forceinline__ void read(float (&to)[2][EACH], const float *stage, int lane,
                                                int k) {
        if constexpr (DEEP) {
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const float2 x = *(const float2 *)(stage + row_of<LANES>(lane, i) * STRIDE + k);
                to[0][i] = x.x, to[1][i] = x.y;
            }
        } else {
#pragma unroll
            for (int l = 0; l < 2; l++)
#pragma unroll
                for (int i = 0; i < EACH; i += 4) {
                    const float4 x =
                        *(const float4 *)(stage + (k + l) * STRIDE + row_of<LANES>(lane, i));
                    to[l][i] = x.x, to[l][i + 1] = x.y, to[l][i + 2] = x.z, to[l][i + 3] = x.w;
                }
        }
    }
};

/* --- the end of a tile ------------------------------------------------------------------------ */

/* The elements of y that a thread stores: column j, and COUNT rows from i on that are `step` apart.
 * What the epilogue reads is loaded before the first store, since each load takes long, and the
 * compiler cannot move it across a store. */
template <int COUNT> struct tile_end {
    int i, j, step;
    float bias, rate, other[COUNT]; /* other: the mask, or the old y */

    __device__ __forceinline__ void load_column(const product &p) {
        bias = p.bias && j < p.n ? p.bias[(long long)j * p.bias_stride] : 0;
        rate = p.rate ? (float)load_real(p.rate_dtype, p.rate, 0) : 0;
    }
    __device__ __forceinline__ void load_others(const product &p) {
        const float *from = p.mask ? p.mask : p.y;
        const int stride = p.mask ? p.mask_stride : p.y_stride;
        if (!p.mask && !p.rate) return;
#pragma unroll
        for (int q = 0; q < COUNT; q++)
            other[q] =
                i + q * step < p.m && j < p.n ? from[(long long)(i + q * step) * stride + j] : 0;
    }
    /* ReLU and the mask keep NaN. */
    __device__ __forceinline__ void store(const product &p, const float *sum) const {
#pragma unroll
        for (int q = 0; q < COUNT; q++) {
            float x = sum[q];
            if (p.bias) x += bias;
            if (p.relu && x <= 0) x = 0;
            if (p.mask) x = other[q] <= 0 ? 0 : x;
            else if (p.rate) x = other[q] - rate * x;
            if (i + q * step < p.m && j < p.n) p.y[(long long)(i + q * step) * p.y_stride + j] = x;
        }
    }
};

/* --- a tile ----------------------------------------------------------------------------------- */

template <int ROWS, int COLUMNS, int DEPTH, int THREADS, bool DEEP_A, bool DEEP_B>
static __device__ __forceinline__ void multiply_tile(const gd_small_products &all,
                                                     const product p) {
    typedef operand<ROWS, DEPTH, THREADS, DEEP_A> left;
    typedef operand<COLUMNS, DEPTH, THREADS, DEEP_B> right;
    enum {
        LANE_ROWS = ROWS / EACH,
        LANE_COLUMNS = COLUMNS / EACH,
        LANES = LANE_ROWS * LANE_COLUMNS, /* threads of a slice */
        SLICES = THREADS / LANES,
        STEPS = DEPTH / (2 * SLICES), /* of a stage; a step has two columns of a for each slice */
        STAGE = left::FLOATS + right::FLOATS,
        TILE = ROWS * COLUMNS,
        ROW = COLUMNS + 4,                     /* of a slice in shared memory */
        SLICE = ROWS * ROW + (DEEP_B ? 2 : 8), /* spreads slices over banks */
        TOTALS = TILE / THREADS,               /* elements that a thread stores */
        SUM_SHARES = THREADS / ROWS,           /* threads that add up one row of a */
    };
    float *const shared = (float *)product_shared;
    const int block = (int)blockIdx.x - p.first_block, tile = block / p.parts,
              part = block % p.parts, i0 = tile / p.columns * ROWS, j0 = tile % p.columns * COLUMNS;
    const int first = part * p.chunk, end = min(first + p.chunk, p.k),
              stages = (end - first + DEPTH - 1) / DEPTH;
    const bool sums = p.sums && j0 == 0;
    left a(p.a, p.a_stride, p.vector_a != 0, i0, p.m, first, end);
    right b(p.b, p.b_stride, p.vector_b != 0, j0, p.n, first, end);
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < stages) {
            a.load(shared + s * STAGE);
            b.load(shared + s * STAGE + left::FLOATS);
        }
        commit_copies();
    }
    const int thread = (int)threadIdx.x;
    tile_end<TOTALS> tail = {i0 + thread / COLUMNS, j0 + thread % COLUMNS, THREADS / COLUMNS};
    tail.load_column(p);
    if (!DEEP_B && p.parts == 1) tail.load_others(p); /* products with a mask or a rate */
    float *const sum_to = p.sums + (long long)(i0 + thread) * p.sums_stride;
    const bool stores_sum = sums && thread < ROWS && i0 + thread < p.m;
    const float old_sum = stores_sum && p.rate ? *sum_to : 0;
    const bool failed = all.call.word->number != 0; /* all arrive while the copies do */

    const int slice = thread / LANES, lane_row = thread % LANES / LANE_COLUMNS,
              lane_column = thread % LANE_COLUMNS;
    float sum[EACH][EACH] = {}, row_sum = 0;
    int now = 0, next = STAGES - 1; /* stages of the shared memory */
#pragma unroll 1
    for (int s = 0; s < stages; s++) {
        wait_copies<STAGES - 2>();
        __syncthreads();
        const float *stage_a = shared + now * STAGE, *stage_b = stage_a + left::FLOATS;
        float x[2][2][EACH], y[2][2][EACH]; /* elements of this step and of the next one */
        left::template read<LANE_ROWS>(x[0], stage_a, lane_row, 2 * slice);
        right::template read<LANE_COLUMNS>(y[0], stage_b, lane_column, 2 * slice);
        if (s + STAGES - 1 < stages) {
            a.load(shared + next * STAGE);
            b.load(shared + next * STAGE + left::FLOATS);
        }
        commit_copies();
#pragma unroll
        for (int t = 0; t < STEPS; t++) {
            if (t + 1 < STEPS) {
                const int k = 2 * ((t + 1) * SLICES + slice);
                left::template read<LANE_ROWS>(x[(t + 1) % 2], stage_a, lane_row, k);
                right::template read<LANE_COLUMNS>(y[(t + 1) % 2], stage_b, lane_column, k);
            }
#pragma unroll
            for (int l = 0; l < 2; l++)
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++)
                        sum[i][j] = __fmaf_rn(x[t % 2][l][i], y[t % 2][l][j], sum[i][j]);
        }
        if (sums)
#pragma unroll 8
            for (int k = thread / ROWS; k < DEPTH; k += SUM_SHARES)
                row_sum += left::at(stage_a, thread % ROWS, k);
        now = now + 1 == STAGES ? 0 : now + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    if (failed) return;

    if (DEEP_B && p.parts == 1) tail.load_others(p); /* there are no registers for it before */

    /* slices, as (slice, row, column), then the shares of row sums */
    wait_copies<0>();
    __syncthreads();
    static_assert(4 * (SLICES * SLICE + THREADS) <=
                          GD_SMALL_PRODUCT_SLICED(ROWS, COLUMNS, THREADS) &&
                      4 * STAGES * STAGE <= GD_SMALL_PRODUCT_STAGED(ROWS, COLUMNS, DEPTH),
                  "the host reserves this much shared memory");
    float *const shares = shared + SLICES * SLICE;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        float *row = shared + slice * SLICE + left::template row_of<LANE_ROWS>(lane_row, i) * ROW;
        if constexpr (DEEP_B) {
#pragma unroll
            for (int j = 0; j < EACH; j++)
                row[right::template row_of<LANE_COLUMNS>(lane_column, j)] = sum[i][j];
        } else {
#pragma unroll
            for (int j = 0; j < EACH; j += 4) {
                const float4 four = {sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]};
                *(float4 *)(row + right::template row_of<LANE_COLUMNS>(lane_column, j)) = four;
            }
        }
    }
    if (sums) shares[thread] = row_sum;
    __syncthreads();

    float total[TOTALS], sum_total = 0;
#pragma unroll
    for (int q = 0; q < TOTALS; q++) {
        const int e = q * THREADS + thread;
        const float *from = shared + e / COLUMNS * ROW + e % COLUMNS;
        total[q] = from[0];
#pragma unroll
        for (int s = 1; s < SLICES; s++) total[q] += from[s * SLICE];
    }
    if (sums && thread < ROWS) {
#pragma unroll
        for (int s = 0; s < SUM_SHARES; s++) sum_total += shares[s * ROWS + thread];
    }
    if (p.parts > 1) {
        float *const partial = all.partials + (long long)blockIdx.x * (TILE + ROWS) + thread;
#pragma unroll
        for (int q = 0; q < TOTALS; q++) partial[q * THREADS] = total[q];
        if (sums && thread < ROWS) partial[TILE] = sum_total;
        if (!arrives_last(&arrivals[p.first_counter + tile], p.parts)) return;
        tail.load_others(p);
        const float *from = partial - (long long)part * (TILE + ROWS);
#pragma unroll
        for (int q = 0; q < TOTALS; q++) total[q] = 0;
        sum_total = 0;
#pragma unroll 4
        for (int s = 0; s < p.parts; s++, from += TILE + ROWS) {
#pragma unroll
            for (int q = 0; q < TOTALS; q++) total[q] += __ldcg(from + q * THREADS);
            if (sums && thread < ROWS) sum_total += __ldcg(from + TILE);
        }
    }
    tail.store(p, total);
    if (stores_sum) *sum_to = p.rate ? old_sum - tail.rate * sum_total : sum_total;
}

/* --- kernels ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ int find_entry(const gd_small_products &p) {
    int entry = 0;
    while (entry + 1 < p.count && (int)blockIdx.x >= p.at[entry + 1].first_block) entry++;
    return entry;
}

/* The error word is checked before anything is written. */
#define PRODUCT_KERNEL(name, deep_a, deep_b, rows, columns, depth, threads)                   \
    extern "C" __global__ void __launch_bounds__(threads)                                     \
        gd_small_product_##name(const __grid_constant__ gd_small_products p) {                \
        wait_for_previous_kernel();                                                           \
        multiply_tile<rows, columns, depth, threads, deep_a, deep_b>(p, p.at[find_entry(p)]); \
    }
/* a and b have contiguous rows (n) or contiguous depth (t) */
#define TILE_KERNELS(number, ...)                         \
    PRODUCT_KERNEL(nn##number, false, false, __VA_ARGS__) \
    PRODUCT_KERNEL(nt##number, false, true, __VA_ARGS__)  \
    PRODUCT_KERNEL(tn##number, true, false, __VA_ARGS__)  \
    PRODUCT_KERNEL(tt##number, true, true, __VA_ARGS__)
GD_SMALL_PRODUCT_TILES(TILE_KERNELS)
