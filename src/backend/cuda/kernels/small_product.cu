/* small_product.cu - f32 products of small matrices, several in one launch, with epilogues.
 *
 * A block computes a tile of y, or a part of the depth of one. It copies stages of both operands
 * asynchronously into shared memory; each warp has a share of the tile and of a stage's depth (a
 * slice), and each thread up to 8 x 8 elements in registers. The block adds the slices in shared
 * memory. If the depth is divided into parts, blocks store theirs, and the block that arrives last
 * adds them. All sums have a fixed order.
 */
#include "backend/cuda/kernels/small_product.h"

#include "backend/cuda/kernels/element.cuh"

typedef gd_small_product product;

enum { THREADS = GD_SMALL_PRODUCT_THREADS, STAGES = GD_SMALL_PRODUCT_STAGES };

/* How many blocks of each tile have arrived. The last one sets it back to 0. Kernels of a device run
 * one after the other, so all launches share the counters. */
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
    memset(to, 0, 16);
    memcpy(to, from, (size_t)bytes);
}
static inline void copy_float(float *to, const float *from, int bytes) {
    memset(to, 0, 4);
    memcpy(to, from, (size_t)bytes);
}
static inline void commit_copies() {}
template <int PENDING> static inline void wait_copies() {}
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }

#endif

static __device__ __forceinline__ int clamp_count(int n) { return n < 0 ? 0 : n > 4 ? 4 : n; }

/* The share of this thread in the copies of an operand's stages: rows [row, row + ROWS), and DEPTH
 * columns of the depth at a time, with zeros beyond its `rows` and beyond `end`. */
template <int ROWS, int DEPTH, bool DEEP> struct operand {
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
            float *at = to + (int)threadIdx.x / (LENGTH / 4) * STRIDE +
                        (int)threadIdx.x % (LENGTH / 4) * 4;
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
    /* Of the rows of a warp, from row `first` on, a thread has COUNT; LANES threads share them. */
    template <int COUNT, int LANES>
    static __device__ __forceinline__ int row_of(int first, int lane, int i) {
        return DEEP ? first + lane + i * LANES : first + i / 4 * (4 * LANES) + lane * 4 + i % 4;
    }
    /* Elements (row_of(i), k + l) for four l. */
    template <int COUNT, int LANES>
    static __device__ __forceinline__ void read(float (&to)[4][COUNT], const float *stage,
                                                int first, int lane, int k) {
        if constexpr (DEEP) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                const float4 x =
                    *(const float4 *)(stage + row_of<COUNT, LANES>(first, lane, i) * STRIDE + k);
                to[0][i] = x.x, to[1][i] = x.y, to[2][i] = x.z, to[3][i] = x.w;
            }
        } else {
#pragma unroll
            for (int l = 0; l < 4; l++)
#pragma unroll
                for (int i = 0; i < COUNT; i += 4) {
                    const float4 x = *(const float4 *)(stage + (k + l) * STRIDE +
                                                       row_of<COUNT, LANES>(first, lane, i));
                    to[l][i] = x.x, to[l][i + 1] = x.y, to[l][i + 2] = x.z, to[l][i + 3] = x.w;
                }
        }
    }
};

/* --- the end of a tile ------------------------------------------------------------------------ */

/* ReLU and the mask keep NaN. */
static __device__ __forceinline__ void store_element(const product &p, float rate, int i, int j,
                                                     float sum) {
    if (i >= p.m || j >= p.n) return;
    float *y = p.y + (long long)i * p.y_stride + j;
    if (p.bias) sum += p.bias[(long long)j * p.bias_stride];
    if (p.relu && sum <= 0) sum = 0;
    if (p.mask && p.mask[(long long)i * p.mask_stride + j] <= 0) sum = 0;
    *y = p.rate ? *y - rate * sum : sum;
}

/* Four elements of a row. */
static __device__ __forceinline__ void store_vector(const product &p, float rate, int i, int j,
                                                    float4 sum) {
    if (!p.vector_y || p.bias || p.mask || i >= p.m || j + 3 >= p.n) {
        store_element(p, rate, i, j, sum.x);
        store_element(p, rate, i, j + 1, sum.y);
        store_element(p, rate, i, j + 2, sum.z);
        store_element(p, rate, i, j + 3, sum.w);
        return;
    }
    float4 *y = (float4 *)(p.y + (long long)i * p.y_stride + j);
    if (p.relu) {
        if (sum.x <= 0) sum.x = 0;
        if (sum.y <= 0) sum.y = 0;
        if (sum.z <= 0) sum.z = 0;
        if (sum.w <= 0) sum.w = 0;
    }
    if (p.rate) {
        const float4 old = *y;
        sum.x = old.x - rate * sum.x, sum.y = old.y - rate * sum.y;
        sum.z = old.z - rate * sum.z, sum.w = old.w - rate * sum.w;
    }
    *y = sum;
}

static __device__ __forceinline__ void store_row_sum(const product &p, float rate, int i,
                                                     float sum) {
    if (i >= p.m) return;
    float *to = p.sums + (long long)i * p.sums_stride;
    *to = p.rate ? *to - rate * sum : sum;
}

static __device__ __forceinline__ float4 add_vectors(float4 a, float4 b) {
    a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
    return a;
}

/* Whether this block is the last one of its tile. Those before it have stored their parts. */
static __device__ __forceinline__ bool arrives_last(unsigned int *counter, int parts) {
    __shared__ int last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1u) == (unsigned)parts - 1;
        if (last) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return last != 0;
}

/* --- a tile ----------------------------------------------------------------------------------- */

template <int ROWS, int COLUMNS, int WARP_ROWS, int WARP_COLUMNS, int EACH_COLUMNS, int DEPTH,
          bool DEEP_A, bool DEEP_B>
static __device__ __forceinline__ void multiply_tile(const gd_small_products &all,
                                                     const product p) {
    typedef operand<ROWS, DEPTH, DEEP_A> left;
    typedef operand<COLUMNS, DEPTH, DEEP_B> right;
    enum {
        WARPS = ROWS / WARP_ROWS * (COLUMNS / WARP_COLUMNS), /* of a slice */
        SLICES = THREADS / 32 / WARPS,
        SLICE_DEPTH = DEPTH / SLICES,
        LANE_COLUMNS = WARP_COLUMNS / EACH_COLUMNS,
        LANE_ROWS = 32 / LANE_COLUMNS,
        EACH_ROWS = WARP_ROWS / LANE_ROWS,
        STAGE = left::FLOATS + right::FLOATS,
        TILE = ROWS * COLUMNS,
        SUM_SHARES = THREADS / ROWS, /* threads that add up one row of a */
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
    const bool failed = all.call.word->number != 0; /* arrives while the copies do */

    const int thread = (int)threadIdx.x, warp = thread / 32, lane = thread % 32,
              slice = warp / WARPS, row0 = warp % WARPS / (COLUMNS / WARP_COLUMNS) * WARP_ROWS,
              column0 = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS,
              lane_row = lane / LANE_COLUMNS, lane_column = lane % LANE_COLUMNS;
    float sum[EACH_ROWS][EACH_COLUMNS] = {}, row_sum = 0;
    int now = 0, next = STAGES - 1; /* stages of the shared memory */
#pragma unroll 1
    for (int s = 0; s < stages; s++) {
        wait_copies<STAGES - 2>();
        __syncthreads();
        if (s + STAGES - 1 < stages) {
            a.load(shared + next * STAGE);
            b.load(shared + next * STAGE + left::FLOATS);
        }
        commit_copies();
        const float *stage_a = shared + now * STAGE, *stage_b = stage_a + left::FLOATS;
#pragma unroll
        for (int k = 0; k < SLICE_DEPTH; k += 4) {
            float x[4][EACH_ROWS], y[4][EACH_COLUMNS];
            left::template read<EACH_ROWS, LANE_ROWS>(x, stage_a, row0, lane_row,
                                                      slice * SLICE_DEPTH + k);
            right::template read<EACH_COLUMNS, LANE_COLUMNS>(y, stage_b, column0, lane_column,
                                                             slice * SLICE_DEPTH + k);
#pragma unroll
            for (int l = 0; l < 4; l++)
#pragma unroll
                for (int i = 0; i < EACH_ROWS; i++)
#pragma unroll
                    for (int j = 0; j < EACH_COLUMNS; j++)
                        sum[i][j] = __fmaf_rn(x[l][i], y[l][j], sum[i][j]);
        }
        if (sums)
            for (int k = thread / ROWS; k < DEPTH; k += SUM_SHARES)
                row_sum += left::at(stage_a, thread % ROWS, k);
        now = now + 1 == STAGES ? 0 : now + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    if (failed) return;

    /* slices, as (slice, row, column), then the shares of row sums */
    wait_copies<0>();
    __syncthreads();
    float *const shares = shared + SLICES * TILE;
#pragma unroll
    for (int i = 0; i < EACH_ROWS; i++)
#pragma unroll
        for (int j = 0; j < EACH_COLUMNS; j++)
            shared[slice * TILE +
                   left::template row_of<EACH_ROWS, LANE_ROWS>(row0, lane_row, i) * COLUMNS +
                   right::template row_of<EACH_COLUMNS, LANE_COLUMNS>(column0, lane_column, j)] =
                sum[i][j];
    if (sums) shares[thread] = row_sum;
    __syncthreads();

    const float rate = p.rate ? (float)load_real(p.rate_dtype, p.rate, 0) : 0;
    float4 *const partial = (float4 *)(all.partials + (long long)blockIdx.x * (TILE + ROWS));
#pragma unroll
    for (int e = thread; e < TILE / 4; e += THREADS) {
        float4 total = ((const float4 *)shared)[e];
#pragma unroll
        for (int s = 1; s < SLICES; s++)
            total = add_vectors(total, ((const float4 *)shared)[s * (TILE / 4) + e]);
        if (p.parts == 1)
            store_vector(p, rate, i0 + e * 4 / COLUMNS, j0 + e * 4 % COLUMNS, total);
        else partial[e] = total;
    }
    if (sums && thread < ROWS) {
        float total = shares[thread];
#pragma unroll
        for (int s = 1; s < SUM_SHARES; s++) total += shares[s * ROWS + thread];
        if (p.parts == 1) store_row_sum(p, rate, i0 + thread, total);
        else ((float *)partial)[TILE + thread] = total;
    }
    if (p.parts == 1 || !arrives_last(&arrivals[p.first_counter + tile], p.parts)) return;

    const float4 *const parts = partial - (long long)part * ((TILE + ROWS) / 4);
#pragma unroll 1
    for (int e = thread; e < TILE / 4; e += THREADS) {
        float4 total = __ldcg(parts + e);
#pragma unroll 8
        for (int s = 1; s < p.parts; s++)
            total = add_vectors(total, __ldcg(parts + s * ((TILE + ROWS) / 4) + e));
        store_vector(p, rate, i0 + e * 4 / COLUMNS, j0 + e * 4 % COLUMNS, total);
    }
    if (sums && thread < ROWS) {
        float total = 0;
#pragma unroll 8
        for (int s = 0; s < p.parts; s++)
            total += __ldcg((const float *)parts + s * (TILE + ROWS) + TILE + thread);
        store_row_sum(p, rate, i0 + thread, total);
    }
}

/* --- kernels ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ int find_entry(const gd_small_products &p) {
    int entry = 0;
    while (entry + 1 < p.count && (int)blockIdx.x >= p.at[entry + 1].first_block) entry++;
    return entry;
}

/* The error word is checked before anything is written. */
#define PRODUCT_KERNEL(name, deep_a, deep_b, ...)                              \
    extern "C" __global__ void __launch_bounds__(THREADS)                      \
        gd_small_product_##name(const __grid_constant__ gd_small_products p) { \
        multiply_tile<__VA_ARGS__, deep_a, deep_b>(p, p.at[find_entry(p)]);    \
    }
/* a and b have contiguous rows (n) or contiguous depth (t) */
#define TILE_KERNELS(number, ...)                         \
    PRODUCT_KERNEL(nn##number, false, false, __VA_ARGS__) \
    PRODUCT_KERNEL(nt##number, false, true, __VA_ARGS__)  \
    PRODUCT_KERNEL(tn##number, true, false, __VA_ARGS__)  \
    PRODUCT_KERNEL(tt##number, true, true, __VA_ARGS__)
GD_SMALL_PRODUCT_TILES(TILE_KERNELS)
