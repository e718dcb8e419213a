/* conv_tiled.cu - convolutions of f32 images and their gradients as products of matrices
 * (implicit GEMM), for small and large problems.
 *
 * A block copies tiles of both operands to shared memory; while it computes with them, it loads the
 * next ones. The places of a step's summed indices are computed once, by one warp, so a copy only
 * adds them to the place of its row or column. If the threads of a tile are too few to keep a multiprocessor busy,
 * several groups of threads (slices) share the products of each step, and their sums are added in
 * the order of the slices. If tiles are few, their sums are also divided among blocks (parts). Each
 * stores its part, and the block that arrives last adds them in the order of the parts.
 */
#include "ops/conv/cuda/conv_tiled_args.h"

#include "backend/cuda/element.cuh"
#include "backend/cuda/last_block.cuh"

enum {
    STAGES = GD_CUDA_CONV_STAGES,
    PLACES = 2, /* steps whose places are in shared memory */
    ROW_PAD = GD_CUDA_CONV_ROW_PAD,
    SUM_LENGTH = 512,     /* products that are summed before they are added to the total */
    OUTSIDE = -(1 << 29), /* a coordinate that is outside of every image, with all others added */
    WARP = 32,
};

#ifdef __CUDACC__
extern __shared__ __align__(16) unsigned char shared_memory[];
#else
#define shared_memory emulated_shared
#endif

template <int ROW_COUNT, int COLUMN_COUNT, int ROWS_OF_THREAD, int COLUMNS_OF_THREAD,
          int SLICE_COUNT, int STEP_DEPTH, bool FOLDS_SUMS>
struct fast_tile {
    enum {
        ROWS = ROW_COUNT,
        COLUMNS = COLUMN_COUNT,
        ROWS_EACH = ROWS_OF_THREAD,
        COLUMNS_EACH = COLUMNS_OF_THREAD,
        SLICES = SLICE_COUNT,
        DEPTH = STEP_DEPTH,
        FOLDS = FOLDS_SUMS,
        ROW_THREADS = ROWS / ROWS_EACH,
        COLUMN_THREADS = COLUMNS / COLUMNS_EACH,
        SLICE_THREADS = ROW_THREADS * COLUMN_THREADS,
        THREADS = SLICE_THREADS * SLICES,
        SLICE_DEPTH = DEPTH / SLICES,
        LEFT = ROWS + ROW_PAD, /* floats of a row in shared memory */
        STAGE = DEPTH * (LEFT + COLUMNS),
        /* adjacent rows of a thread, and columns; its others are a multiple of these apart */
        ROW_VECTOR = ROWS_EACH % 4 == 0 ? 4 : 1,
        COLUMN_VECTOR = 4,
        WARPS = THREADS / WARP,
    };
    static_assert(THREADS % COLUMNS == 0 && DEPTH % (THREADS / COLUMNS) == 0, "copies of columns");
    static_assert(COLUMN_THREADS % 8 == 0 && ROW_THREADS % 4 == 0, "a warp computes 4 x 8 parts");
    static_assert(DEPTH <= THREADS && DEPTH % 8 == 0 && ROWS % 4 == 0, "copies of rows");

    /* The thread's part of the tile: a warp has 4 x 8 parts. */
    static __device__ __forceinline__ int row_part() {
        const int t = (int)threadIdx.x % SLICE_THREADS;
        return t / WARP / (COLUMN_THREADS / 8) * 4 + t % WARP / 8;
    }
    static __device__ __forceinline__ int column_part() {
        const int t = (int)threadIdx.x % SLICE_THREADS;
        return t / WARP % (COLUMN_THREADS / 8) * 8 + t % 8;
    }
    /* The row in the tile of the thread's row number r, and the column likewise. */
    static __device__ __forceinline__ int row(int r) {
        return row_part() * ROW_VECTOR + r / ROW_VECTOR * (ROW_THREADS * ROW_VECTOR) +
               r % ROW_VECTOR;
    }
    static __device__ __forceinline__ int column(int c) {
        return column_part() * COLUMN_VECTOR +
               c / COLUMN_VECTOR * (COLUMN_THREADS * COLUMN_VECTOR) + c % COLUMN_VECTOR;
    }
};

/* Coordinates that an index adds, and its offset in the gathered operand; for a summed index also
 * its offset in the left operand. */
struct conv_place {
    int b, y, x, a;
};

/* The places of the summed indices of a step, in shared memory. */
template <int DEPTH> struct alignas(16) step_places { int b[DEPTH], y[DEPTH], x[DEPTH], a[DEPTH]; };
struct alignas(16) four_ints {
    int at[4];
};

static __device__ __forceinline__ conv_place place_of(const gd_cuda_conv_tiled &p,
                                                      const gd_cuda_conv_split &split, int number) {
    const int j = split_off(split.width, &number), i = split_off(split.height, &number);
    conv_place place;
    place.y = split.first[0] + i * split.step[0];
    place.x = split.first[1] + j * split.step[1];
    place.b = number * split.stride + place.y * p.b_axis[0] + place.x * p.b_axis[1];
    place.a = number * p.a_major + i * p.a_axis[0] + j * p.a_axis[1];
    return place;
}

/* How many blocks of each tile and of its groups of parts have arrived. */
static __device__ unsigned arrivals[GD_CUDA_CONV_COUNTERS];

/* The tile and the products of its sums that a block computes. */
struct conv_task {
    const gd_cuda_conv_phase *phase;
    int columns; /* of the product */
    int part, tile, group, row, column, first, end;
};

template <typename S>
static __device__ __forceinline__ conv_task task_of(const gd_cuda_conv_tiled &p) {
    conv_task t;
    int item = (int)blockIdx.x, number = 0;
    while (number + 1 < p.phases && item >= p.phase[number + 1].first_block) number++;
    t.phase = &p.phase[number];
    item -= t.phase->first_block;
    t.columns = t.phase->n + p.has_row_sums;
    const int column_tiles = (t.columns + S::COLUMNS - 1) / S::COLUMNS,
              tiles = p.row_tiles * column_tiles;
    t.part = item / (tiles * p.groups);
    item -= t.part * tiles * p.groups;
    t.tile = item;
    t.group = item / tiles;
    item -= t.group * tiles;
    t.column = item / p.row_tiles;
    t.row = (item - t.column * p.row_tiles) * S::ROWS;
    t.column *= S::COLUMNS;
    t.first = t.part * p.chunk;
    t.end = min(t.phase->k, t.first + p.chunk);
    return t;
}

/* Keeps a pointer in registers. Otherwise the compiler computes it again for each element, with the
 * parameters that it is computed from. */
static __device__ __forceinline__ const float *keep_pointer(const float *pointer) {
#ifdef __CUDACC__
    asm("" : "+l"(pointer));
#endif
    return pointer;
}

/* Copies the operands of each step to shared memory. */
template <typename S> struct tile_copier {
    enum {
        ROW_RANGE = S::ROWS <= 32   ? 32
                    : S::ROWS <= 64 ? 64
                                    : 128,
        LEFT = S::DEPTH * ROW_RANGE / S::THREADS,
        RIGHT = S::DEPTH * S::COLUMNS / S::THREADS,
    };
    static_assert(RIGHT % 4 == 0, "places are read four at a time");
    static_assert(S::WARPS % (S::DEPTH / 8) == 0, "a warp loads the same products of each step");
    float left[LEFT], right[RIGHT]; /* the thread's elements of a step */
    const float *a, *b;             /* at the row of `left` and at the column of the thread */
    int y, x;                       /* coordinates of the column */
    bool gathers; /* the thread copies its column: it is not the one of row_sums */
    int rows;     /* of the product, from the first row of the tile on, at most its rows */
    int left_row, left_depth, row_step, depth_step;

    __device__ __forceinline__ void begin(const gd_cuda_conv_tiled &p, const conv_task &t,
                                          float *stages) {
        const int own = t.column + (int)threadIdx.x % S::COLUMNS;
        const conv_place column = place_of(p, t.phase->column, min(own, t.phase->n - 1));
        y = own < t.phase->n ? column.y : OUTSIDE;
        x = column.x;
        gathers = !(p.has_row_sums && own == t.phase->n);
        if (!gathers) fill_with_ones(stages);
        rows = min((int)S::ROWS, p.m - t.row);
        assign_left(p.a_by_depth);
        a = keep_pointer(p.a + t.phase->a_first + t.group * p.a_group +
                         (t.row + left_row) * p.a_row);
        b = keep_pointer(p.b + t.group * p.b_group + column.b);
    }
    /* Sets the thread's elements of b to 1, in all stages. */
    static __device__ __forceinline__ void fill_with_ones(float *stages) {
        const int own = (int)threadIdx.x % S::COLUMNS;
        for (int stage = 0; stage < STAGES; stage++)
            for (int depth = (int)threadIdx.x / S::COLUMNS; depth < S::DEPTH;
                 depth += S::THREADS / S::COLUMNS)
                stages[stage * S::STAGE + S::DEPTH * S::LEFT + depth * S::COLUMNS + own] = 1;
    }
    /* Computes the places of the summed indices of a step, by the last threads of the block. */
    static __device__ __forceinline__ void place_step(const gd_cuda_conv_tiled &p,
                                                      const conv_task &t, int step,
                                                      step_places<S::DEPTH> *places) {
        const int lane = (int)threadIdx.x - (S::THREADS - S::DEPTH),
                  own = t.first + step * S::DEPTH + lane;
        if (lane < 0) return;
        const conv_place place = place_of(p, t.phase->depth, min(own, t.end - 1));
        step_places<S::DEPTH> *to = &places[step % PLACES];
        to->b[lane] = place.b;
        to->y[lane] = own < t.end ? place.y : OUTSIDE;
        to->x[lane] = place.x;
        to->a[lane] = place.a;
    }
    /* Element e of `left` has row left_row + e * row_step and product left_depth + e * depth_step
     * of the step. If adjacent products are adjacent in memory, a warp loads 8 products of 4 rows,
     * which are in different banks of shared memory; otherwise adjacent rows. */
    __device__ __forceinline__ void assign_left(bool by_depth) {
        const int thread = (int)threadIdx.x, warp = thread / WARP;
        left_row = by_depth ? warp / (S::DEPTH / 8) * 4 + thread % WARP / 8 : thread % ROW_RANGE;
        left_depth = by_depth ? warp % (S::DEPTH / 8) * 8 + thread % 8 : thread / ROW_RANGE;
        row_step = by_depth ? S::WARPS / (S::DEPTH / 8) * 4 : 0;
        depth_step = by_depth ? 0 : S::THREADS / ROW_RANGE;
    }
    /* The first product of the thread's elements of `right`, which follow each other. */
    static __device__ __forceinline__ int right_depth() {
        return (int)threadIdx.x / S::COLUMNS * RIGHT;
    }
    /* Loads elements of b that may be outside of its images. */
    __device__ __forceinline__ void load_checked(const gd_cuda_conv_tiled &p,
                                                 const step_places<S::DEPTH> &places) {
        const int height = p.b_size[0], width = p.b_size[1], first = right_depth();
#pragma unroll
        for (int e = 0; e < RIGHT; e += 4) {
            const four_ints at = *(const four_ints *)(places.b + first + e),
                            down = *(const four_ints *)(places.y + first + e),
                            across = *(const four_ints *)(places.x + first + e);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool inside = (unsigned)(y + down.at[i]) < (unsigned)height &&
                                    (unsigned)(x + across.at[i]) < (unsigned)width;
                right[e + i] = inside ? __ldg(b + at.at[i]) : 0.0f;
            }
        }
    }
    /* Loads elements of b that are all inside; those after the last product are 0. */
    __device__ __forceinline__ void load_unchecked(const step_places<S::DEPTH> &places, int count) {
        const int first = right_depth();
#pragma unroll
        for (int e = 0; e < RIGHT; e += 4) {
            const four_ints at = *(const four_ints *)(places.b + first + e);
#pragma unroll
            for (int i = 0; i < 4; i++) right[e + i] = __ldg(b + at.at[i]);
        }
        if (count < S::DEPTH)
#pragma unroll
            for (int e = 0; e < RIGHT; e++)
                if (first + e >= count) right[e] = 0;
    }
    /* Loads the operands of a step with `count` products; elements that do not exist are 0. */
    __device__ __forceinline__ void load_step(const gd_cuda_conv_tiled &p,
                                              const step_places<S::DEPTH> &places, int count) {
        if (p.is_checked) load_checked(p, places);
        else load_unchecked(places, count);
        if (p.a_by_depth) {
            const float *from = a + places.a[left_depth];
            const int step = row_step * p.a_row;
            const bool inside = left_depth < count;
#pragma unroll
            for (int e = 0; e < LEFT; e++)
                left[e] = inside && left_row + e * row_step < rows ? __ldg(from + e * step) : 0.0f;
        } else {
            const bool inside = left_row < rows;
#pragma unroll
            for (int e = 0; e < LEFT; e++) {
                const int depth = left_depth + e * depth_step;
                left[e] = inside && depth < count ? __ldg(a + places.a[depth]) : 0.0f;
            }
        }
    }
    /* Stores them in a stage of shared memory. */
    __device__ __forceinline__ void store_step(float *stage) const {
        float *to =
            stage + S::DEPTH * S::LEFT + right_depth() * S::COLUMNS + (int)threadIdx.x % S::COLUMNS;
        if (gathers)
#pragma unroll
            for (int e = 0; e < RIGHT; e++) to[e * S::COLUMNS] = right[e];
        to = stage + left_depth * S::LEFT + left_row;
#pragma unroll
        for (int e = 0; e < LEFT; e++)
            if (left_row + e * row_step < S::ROWS)
                to[e * (depth_step * S::LEFT + row_step)] = left[e];
    }
};

template <int N> struct alignas(4 * N) float_vector { float at[N]; };

/* Adds the products of one step and the thread's slice to its sums. */
template <typename S>
static __device__ __forceinline__ void multiply_step(const float *stage,
                                                     float (*sum)[S::COLUMNS_EACH]) {
    const int first = (int)threadIdx.x / S::SLICE_THREADS * S::SLICE_DEPTH;
    const float *left = stage + first * S::LEFT + S::row(0),
                *right = stage + S::DEPTH * S::LEFT + first * S::COLUMNS + S::column(0);
#pragma unroll 4
    for (int d = 0; d < S::SLICE_DEPTH; d++) {
        float_vector<S::ROW_VECTOR> a[S::ROWS_EACH / S::ROW_VECTOR];
        float_vector<S::COLUMN_VECTOR> b[S::COLUMNS_EACH / S::COLUMN_VECTOR];
#pragma unroll
        for (int r = 0; r < S::ROWS_EACH / S::ROW_VECTOR; r++)
            a[r] = *(const float_vector<S::ROW_VECTOR> *)(left + d * S::LEFT +
                                                          r * S::ROW_THREADS * S::ROW_VECTOR);
#pragma unroll
        for (int c = 0; c < S::COLUMNS_EACH / S::COLUMN_VECTOR; c++)
            b[c] =
                *(const float_vector<S::COLUMN_VECTOR> *)(right + d * S::COLUMNS +
                                                          c * S::COLUMN_THREADS * S::COLUMN_VECTOR);
#pragma unroll
        for (int r = 0; r < S::ROWS_EACH; r++)
#pragma unroll
            for (int c = 0; c < S::COLUMNS_EACH; c++)
                sum[r][c] = fmaf(a[r / S::ROW_VECTOR].at[r % S::ROW_VECTOR],
                                 b[c / S::COLUMN_VECTOR].at[c % S::COLUMN_VECTOR], sum[r][c]);
    }
}

template <typename S>
static __device__ __forceinline__ void add_sums(float (*total)[S::COLUMNS_EACH],
                                                float (*sum)[S::COLUMNS_EACH]) {
#pragma unroll
    for (int r = 0; r < S::ROWS_EACH; r++)
#pragma unroll
        for (int c = 0; c < S::COLUMNS_EACH; c++) {
            total[r][c] += sum[r][c];
            sum[r][c] = 0;
        }
}

/* Computes the sums of the thread's part of a tile, over the products of its slice. */
template <typename S>
static __device__ __forceinline__ void
sum_task(const gd_cuda_conv_tiled &p, const conv_task &t, tile_copier<S> &copier,
         step_places<S::DEPTH> *places, float *stages, float (*sum)[S::COLUMNS_EACH]) {
    float total[S::ROWS_EACH][S::COLUMNS_EACH];
    const int steps = (t.end - t.first + S::DEPTH - 1) / S::DEPTH;
    int stage = 0, summed = 0;
    if (S::FOLDS)
#pragma unroll
        for (int r = 0; r < S::ROWS_EACH; r++)
#pragma unroll
            for (int c = 0; c < S::COLUMNS_EACH; c++) total[r][c] = 0;
    if (steps <= 0) return;
    copier.place_step(p, t, 0, places);
    copier.place_step(p, t, 1, places);
    __syncthreads();
    copier.load_step(p, places[0], t.end - t.first);
    copier.store_step(stages);
    __syncthreads();
#pragma unroll 1
    for (int step = 0; step < steps; step++, stage ^= 1) {
        const bool has_next = step + 1 < steps;
        if (has_next)
            copier.load_step(p, places[(step + 1) % PLACES],
                             t.end - t.first - (step + 1) * S::DEPTH);
        if (step + 2 < steps) copier.place_step(p, t, step + 2, places);
        multiply_step<S>(stages + stage * S::STAGE, sum);
        if (has_next) copier.store_step(stages + (stage ^ 1) * S::STAGE);
        __syncthreads();
        if (!S::FOLDS) continue;
        summed += S::SLICE_DEPTH;
        if (summed < SUM_LENGTH) continue;
        summed = 0;
        add_sums<S>(total, sum); /* rounding errors grow with the length of a sum */
    }
    if (S::FOLDS) {
        add_sums<S>(total, sum);
#pragma unroll
        for (int r = 0; r < S::ROWS_EACH; r++)
#pragma unroll
            for (int c = 0; c < S::COLUMNS_EACH; c++) sum[r][c] = total[r][c];
    }
}

/* Stores the sums of the thread in shared memory, for each slice. */
template <typename S>
static __device__ __forceinline__ void share_sums(const float (*sum)[S::COLUMNS_EACH],
                                                  float *sums) {
    float *slice = sums + (int)threadIdx.x / S::SLICE_THREADS * (S::ROWS * S::COLUMNS);
#pragma unroll
    for (int r = 0; r < S::ROWS_EACH; r++)
#pragma unroll
        for (int c = 0; c < S::COLUMNS_EACH; c += S::COLUMN_VECTOR) {
            float_vector<S::COLUMN_VECTOR> four;
#pragma unroll
            for (int i = 0; i < S::COLUMN_VECTOR; i++) four.at[i] = sum[r][c + i];
            *(float_vector<S::COLUMN_VECTOR> *)(slice + S::row(r) * S::COLUMNS + S::column(c)) =
                four;
        }
    __syncthreads();
}

/* The elements of a tile that a thread stores: those of one column, in every ROW_STEPth row, so
 * that adjacent threads store adjacent columns. */
template <typename S> struct stored_elements {
    enum {
        ROW_STEP = S::THREADS / S::COLUMNS,
        COUNT = (S::ROWS + ROW_STEP - 1) / ROW_STEP,
        TILE = S::ROWS * S::COLUMNS,
    };
    float value[COUNT];

    static __device__ __forceinline__ int column() { return (int)threadIdx.x % S::COLUMNS; }
    static __device__ __forceinline__ int row(int i) {
        return (int)threadIdx.x / S::COLUMNS + i * ROW_STEP;
    }
    /* Adds the slices. */
    __device__ __forceinline__ void add_slices(const float *sums) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (S::ROWS % ROW_STEP != 0 && row(i) >= S::ROWS) break;
            const float *at = sums + row(i) * S::COLUMNS + column();
            value[i] = at[0];
#pragma unroll
            for (int s = 1; s < S::SLICES; s++) value[i] += at[s * TILE];
        }
    }
    __device__ __forceinline__ void store_part(float *part) const {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (S::ROWS % ROW_STEP != 0 && row(i) >= S::ROWS) break;
            part[row(i) * S::COLUMNS + column()] = value[i];
        }
    }
    /* Adds every `step`th of `count` parts. */
    __device__ __forceinline__ void sum_parts(const gd_cuda_conv_tiled &p, const conv_task &t,
                                              const float *parts, int count, int step) {
        const int rows = min((int)S::ROWS, p.m - t.row);
#pragma unroll
        for (int i = 0; i < COUNT; i++) value[i] = 0;
        if (t.column + column() >= t.columns) return;
#pragma unroll(COUNT > 16 ? 1 : 4)
        for (int part = 0; part < count; part += step)
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                if (row(i) < rows)
                    value[i] += __ldcg(&parts[part * TILE + row(i) * S::COLUMNS + column()]);
    }
    /* Stores the part of this block. The last block of a group of parts adds them, and the last
     * block of all groups adds these sums. Returns whether this block has the sum of all. */
    __device__ __forceinline__ bool add_parts(const gd_cuda_conv_tiled &p, const conv_task &t) {
        enum { GROUP = GD_CUDA_CONV_GROUP };
        float *parts = p.partials + (long long)t.tile * p.parts * TILE;
        unsigned *counters = arrivals + t.tile * (1 + p.part_groups);
        const int groups = p.part_groups, group = groups > 1 ? t.part / GROUP : 0,
                  members = groups > 1 ? min((int)GROUP, p.parts - group * GROUP) : p.parts;
        store_part(parts + t.part * TILE);
        if (!arrives_last(&counters[1 + group], members)) return false;
        sum_parts(p, t, parts + group * GROUP * TILE, members, 1);
        if (groups == 1) return true;
        store_part(parts + group * GROUP * TILE);
        if (!arrives_last(&counters[0], groups)) return false;
        sum_parts(p, t, parts, p.parts, GROUP);
        return true;
    }
    /* Stores results: sums, bias, relu. */
    __device__ __forceinline__ void store(const gd_cuda_conv_tiled &p, const conv_task &t) const {
        const int first = t.group * p.m + t.row, rows = min((int)S::ROWS, p.m - t.row);
        int number = t.column + column();
        if (number >= t.columns) return;
        if (number == t.phase->n) {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                if (row(i) < rows) p.row_sums[(first + row(i)) * p.row_sums_stride] = value[i];
            return;
        }
        const int j = split_off(t.phase->column.width, &number),
                  i = split_off(t.phase->column.height, &number);
        float *out = p.out + t.phase->out_first + t.group * p.out_group + number * p.out_major +
                     i * p.out_axis[0] + j * p.out_axis[1] + t.row * p.out_row;
#pragma unroll
        for (int e = 0; e < COUNT; e++) {
            if (row(e) >= rows) break;
            float result = value[e];
            if (p.bias) result += p.bias[(first + row(e)) * p.bias_stride];
            if (p.relu && result <= 0) result = 0;
            out[row(e) * p.out_row] = result;
        }
    }
};

template <typename S>
static __device__ __forceinline__ void convolve_tile(const gd_cuda_conv_tiled &p) {
    step_places<S::DEPTH> *places = (step_places<S::DEPTH> *)shared_memory;
    float *stages = (float *)(places + PLACES);
    const conv_task t = task_of<S>(p);
    float sum[S::ROWS_EACH][S::COLUMNS_EACH] = {};
    tile_copier<S> copier;
    copier.begin(p, t, stages);
    sum_task<S>(p, t, copier, places, stages, sum);
    share_sums<S>(sum, stages);
    stored_elements<S> elements;
    elements.add_slices(stages);
    if (p.parts > 1 && !elements.add_parts(p, t)) return;
    elements.store(p, t);
}

#define FAST_KERNEL(name, rows, columns, rows_each, columns_each, slices, depth, blocks, folds,  \
                    speed)                                                                       \
    typedef fast_tile<rows, columns, rows_each, columns_each, slices, depth, folds> tile_##name; \
    extern "C" __global__ void __launch_bounds__(tile_##name::THREADS, blocks)                   \
        gd_convolve_tiled_##name(const __grid_constant__ gd_cuda_conv_tiled p) {                 \
        RETURN_IF_FAILED(p.call);                                                                \
        convolve_tile<tile_##name>(p);                                                           \
    }
GD_CUDA_CONV_FAST_TILES(FAST_KERNEL)
