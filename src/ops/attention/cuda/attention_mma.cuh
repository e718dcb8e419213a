/* attention_mma.cuh - attention in f16 and bf16 on tensor cores, without the matrix of weights in
 * memory. Sums are f32; weights and gradients of scores are rounded for the second product.
 *
 * A block has 4 warps. In forward and in the kernel for gq, each warp has 16 rows of q (forward: 16
 * ROW_TILES) and loops over tiles of k and v, which the block loads while it computes with the ones
 * before. In the kernel for gk and gv, each warp has 16 rows of k and loops over tiles of q and gy;
 * it computes the transposes of scores and weights. So the weights of a warp stay in its registers,
 * and every sum has a fixed order.
 */
#ifndef GRADUS_OPS_ATTENTION_CUDA_ATTENTION_MMA_CUH
#define GRADUS_OPS_ATTENTION_CUDA_ATTENTION_MMA_CUH

#include "ops/attention/cuda/attention.cuh"
#include "backend/cuda/mma.cuh"

enum { THREADS = GD_CUDA_ATTENTION_MMA_THREADS, WARPS = THREADS / 32, WARP_ROWS = 16 };

static const float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/* Head sizes up to HEAD; T is f16_element or bf16_element. GENERAL: there may be a mask or
 * dropout. */
template <typename T, int HEAD, bool GENERAL> struct attention {
    enum {
        STRIDE = HEAD + 8, /* of rows in shared memory: spreads them over banks */
        ROW_TILES = GD_CUDA_MMA_ROW_TILES(HEAD), /* forward: 16-row tiles of a warp */
        FORWARD_ROWS = WARPS * WARP_ROWS * ROW_TILES,
        ROWS = WARPS * WARP_ROWS,            /* backward: rows of a block */
        COLUMNS = GD_CUDA_MMA_COLUMNS(HEAD), /* forward: rows of a tile of k and v */
        KEYS_STEP = GD_CUDA_MMA_KEYS_STEP,   /* backward: rows of a tile that is looped over */
        QUERIES_STEP = GD_CUDA_MMA_QUERIES_STEP(HEAD),
        DEPTH = HEAD / 16,
    };

    static __device__ __forceinline__ int warp() { return (int)threadIdx.x / 32; }
    static __device__ __forceinline__ int group() { return (int)threadIdx.x % 32 / 4; }
    static __device__ __forceinline__ int pair() { return (int)threadIdx.x % 4 * 2; }

    /* --- tiles --- */

    /* Loads rows [first, first + COUNT) of a matrix with `rows` rows; the rest is zero. The
     * copies are complete after wait_copies and a barrier. */
    template <int COUNT>
    static __device__ __forceinline__ void load_rows(T *to, const gd_cuda_heads &m, const T *matrix,
                                                     long long first, long long rows, int width) {
        enum { UNITS = HEAD / 8, EACH_TIME = THREADS / UNITS }; /* a row has 16-byte units */
        const int count = (int)(rows - first < COUNT ? rows - first : COUNT);
        if (!m.vectors) {
            load_elements(to, m, matrix + first * m.row, COUNT, count, width);
            return;
        }
        const int row = (int)threadIdx.x / UNITS, column = (int)threadIdx.x % UNITS * 8;
        const T *from = matrix + (first + row) * m.row + column;
        T *at = to + row * STRIDE + column;
#pragma unroll
        for (int i = 0; i < COUNT; i += EACH_TIME, from += EACH_TIME * m.row) {
            const bool inside = i + row < count && column < width;
            copy_async(at + i * STRIDE, inside ? from : matrix, inside);
        }
    }
    /* The same for any strides and addresses; not inlined, because it is rare. */
    static __device__ __noinline__ void load_elements(T *to, const gd_cuda_heads &m, const T *from,
                                                      int total, int count, int width) {
#pragma unroll 1
        for (int e = (int)threadIdx.x; e < total * HEAD; e += THREADS) {
            const int i = e / HEAD, c = e % HEAD;
            to[i * STRIDE + c] = i < count && c < width ? from[i * m.row + c * m.column] : T{0};
        }
    }

    /* Stores the rows group() and group() + 8 of 16 rows from `first`, times a factor for each. */
    static __device__ __forceinline__ void store_rows(const gd_cuda_heads &m, T *matrix,
                                                      long long first, long long rows, int width,
                                                      const float (&r)[HEAD / 8][4], float factor0,
                                                      float factor1) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const long long row = first + group() + 8 * h;
            const float factor = h ? factor1 : factor0;
            T *to = matrix + row * m.row;
            if (row >= rows) continue;
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                const int column = 8 * n + pair();
                const uint32_t both = round_pair<T>(r[n][2 * h] * factor, r[n][2 * h + 1] * factor);
                if (!m.vectors) store_elements(to, m.column, column, width, both);
                else if (column < width) *(uint32_t *)(to + column) = both;
            }
        }
    }
    static __device__ __noinline__ void store_elements(T *to, long long stride, int column,
                                                       int width, uint32_t both) {
        if (column < width) to[column * stride] = T{(uint16_t)both};
        if (column + 1 < width) to[(column + 1) * stride] = T{(uint16_t)(both >> 16)};
    }

    template <typename P>
    static __device__ __forceinline__ P *matrix_of(const gd_cuda_attention &p,
                                                   const gd_cuda_heads &operand, long long matrix,
                                                   bool shared_heads) {
        return (P *)operand.data + matrix_offset(p, operand, matrix, shared_heads);
    }

    /* --- products --- */

    /* s = a b^T: 16 rows of a, from `row`, and N rows of b. */
    template <int N>
    static __device__ __forceinline__ void dot_rows(float (&s)[N / 8][4], const T *a, int row,
                                                    const T *b) {
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] = 0;
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            uint32_t left[4];
            load_left(left, a, STRIDE, row, 16 * k);
#pragma unroll
            for (int n = 0; n < N / 16; n++) {
                uint32_t right[4];
                load_right_transposed(right, b, STRIDE, 16 * n, 16 * k);
                multiply_fragments<T>(s[2 * n], left, right[0], right[1]);
                multiply_fragments<T>(s[2 * n + 1], left, right[2], right[3]);
            }
        }
    }

    /* r += w b: w is rounded, b has N rows. */
    template <int N>
    static __device__ __forceinline__ void add_product(float (&r)[HEAD / 8][4],
                                                       const float (&w)[N / 8][4], const T *b) {
#pragma unroll
        for (int k = 0; k < N / 16; k++) {
            const uint32_t left[4] = {round_pair<T>(w[2 * k][0], w[2 * k][1]),
                                      round_pair<T>(w[2 * k][2], w[2 * k][3]),
                                      round_pair<T>(w[2 * k + 1][0], w[2 * k + 1][1]),
                                      round_pair<T>(w[2 * k + 1][2], w[2 * k + 1][3])};
#pragma unroll
            for (int n = 0; n < DEPTH; n++) {
                uint32_t right[4];
                load_right(right, b, STRIDE, 16 * k, 16 * n);
                multiply_fragments<T>(r[2 * n], left, right[0], right[1]);
                multiply_fragments<T>(r[2 * n + 1], left, right[2], right[3]);
            }
        }
    }

    /* --- scores, in units of ln 2 --- */

    /* Scales the scores s of 16 rows from r and N columns from c; masked ones, and those of rows
     * and columns that do not exist, become minus infinity. TRANSPOSED: s has the 16 columns
     * from c as rows, and the N rows from r as columns. */
    template <int N, bool TRANSPOSED>
    static __device__ __forceinline__ void mask_scores(const gd_cuda_attention &p,
                                                       float (&s)[N / 8][4], long long mask,
                                                       long long r, long long c, float scale) {
        enum { HEIGHT = TRANSPOSED ? N : WARP_ROWS, WIDTH = TRANSPOSED ? WARP_ROWS : N };
        const int rows = clamp_size(p.rows - r, HEIGHT), columns = clamp_size(p.columns - c, WIDTH);
        const int diagonal = clamp_size(p.causal ? r - c : WIDTH, WIDTH); /* last column of row 0 */
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] *= scale;
        if (!(GENERAL && p.mask.data) && rows == HEIGHT && columns == WIDTH &&
            diagonal >= WIDTH - 1)
            return;
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int i = group() + e / 2 * 8, j = 8 * n + pair() + e % 2;
                const int row = TRANSPOSED ? j : i, column = TRANSPOSED ? i : j;
                const bool inside = row < rows && column < columns && column <= row + diagonal;
                if (GENERAL && inside && p.mask.data)
                    s[n][e] += mask_value<T>(p, mask + (r + row) * p.mask.row +
                                                    (c + column) * p.mask.column) *
                               LOG2_E;
                if (!inside) s[n][e] = -INFINITY;
            }
    }
    static __device__ __forceinline__ int clamp_size(long long size, int most) {
        return size < -most ? -most : size < most ? (int)size : most;
    }

    /* Multiplies by the factors of dropout. */
    template <int N, bool TRANSPOSED>
    static __device__ __forceinline__ void
    apply_dropout(const gd_cuda_attention &p, dropout_words &words, float (&s)[N / 8][4],
                  long long matrix, long long r, long long c) {
        const float kept = (float)p.kept_scale;
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int i = group() + e / 2 * 8, j = 8 * n + pair() + e % 2;
                const long long row = r + (TRANSPOSED ? j : i), column = c + (TRANSPOSED ? i : j);
                s[n][e] *= words.keeps(p, (uint64_t)((matrix * p.rows + row) * p.columns + column))
                               ? kept
                               : 0.0f;
            }
    }

    /* --- forward --- */

    static __device__ __forceinline__ float quad_max(float x) {
        x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
        return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
    }
    static __device__ __forceinline__ float quad_sum(float x) {
        x += __shfl_xor_sync(~0u, x, 1);
        return x + __shfl_xor_sync(~0u, x, 2);
    }

    /* The weights from the scores, relative to the maximum so far; h = 0 or 1 is row group() or 8
     * rows below. Each lane has its own part of the sums. */
    static __device__ __forceinline__ void update_softmax(float (&s)[COLUMNS / 8][4],
                                                          float (&most)[2], float (&sum)[2],
                                                          float (&y)[HEAD / 8][4]) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float largest = most[h], total = 0;
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
                largest = fmaxf(largest, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
            largest = quad_max(largest);
            const float base = largest == -INFINITY ? 0 : largest;
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++) {
                s[n][2 * h] = exp2f(s[n][2 * h] - base);
                s[n][2 * h + 1] = exp2f(s[n][2 * h + 1] - base);
                total += s[n][2 * h] + s[n][2 * h + 1];
            }
            const float rescale = exp2f(most[h] - base);
            sum[h] = fmaf(sum[h], rescale, total);
            most[h] = largest;
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                y[n][2 * h] *= rescale;
                y[n][2 * h + 1] *= rescale;
            }
        }
    }

    /* `first` is the first of the 16 rows. */
    static __device__ __forceinline__ void store_output(const gd_cuda_attention &p,
                                                        long long matrix, long long first,
                                                        const float (&most)[2], float (&sum)[2],
                                                        const float (&y)[HEAD / 8][4]) {
        float *lse = matrix_of<float>(p, p.lse, matrix, false), factors[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float total = quad_sum(sum[h]);
            const bool masked = most[h] == -INFINITY && !(total != total);
            const long long row = first + group() + 8 * h;
            factors[h] = masked ? 0.0f : 1 / total;
            if (p.lse.data && pair() == 0 && row < p.rows)
                lse[row * p.lse.row] = masked ? -INFINITY : fmaf(most[h], LN_2, logf(total));
        }
        store_rows(p.y, matrix_of<T>(p, p.y, matrix, false), first, p.rows, p.value_width, y,
                   factors[0], factors[1]);
    }

    static __device__ __forceinline__ void forward_tile(const gd_cuda_attention &p,
                                                        long long matrix, long long r) {
        enum { TILE = COLUMNS * STRIDE };
        T *const q = (T *)dynamic_shared, *const k = q + FORWARD_ROWS * STRIDE,
                 *const v = k + 2 * TILE; /* two tiles each */
        const T *from_k = matrix_of<const T>(p, p.k, matrix, true),
                *from_v = matrix_of<const T>(p, p.v, matrix, true);
        const long long mask = matrix_offset(p, p.mask, matrix, false);
        const long long end =
            p.causal && r + FORWARD_ROWS < p.columns ? r + FORWARD_ROWS : p.columns;
        const float scale = (float)p.scale * LOG2_E;
        const int own = warp() * WARP_ROWS * ROW_TILES; /* this warp's first row of the tile */
        dropout_words words(p);
        float most[ROW_TILES][2], sum[ROW_TILES][2], y[ROW_TILES][HEAD / 8][4] = {};
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) most[m][h] = -INFINITY, sum[m][h] = 0;
        load_rows<FORWARD_ROWS>(q, p.q, matrix_of<const T>(p, p.q, matrix, false), r, p.rows,
                                p.width);
        load_rows<COLUMNS>(k, p.k, from_k, 0, p.columns, p.width);
        load_rows<COLUMNS>(v, p.v, from_v, 0, p.columns, p.value_width);
        int turn = 0;
        for (long long c = 0; c < end; c += COLUMNS, turn ^= 1) {
            float s[ROW_TILES][COLUMNS / 8][4] = {};
            const T *keys = k + turn * TILE, *values = v + turn * TILE;
            wait_copies();
            __syncthreads();
            if (c + COLUMNS < end) {
                load_rows<COLUMNS>(k + (turn ^ 1) * TILE, p.k, from_k, c + COLUMNS, p.columns,
                                   p.width);
                load_rows<COLUMNS>(v + (turn ^ 1) * TILE, p.v, from_v, c + COLUMNS, p.columns,
                                   p.value_width);
            }
            if (p.causal && c > r + own + WARP_ROWS * ROW_TILES - 1) continue; /* all masked */
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                uint32_t left[ROW_TILES][4];
#pragma unroll
                for (int m = 0; m < ROW_TILES; m++)
                    load_left(left[m], q, STRIDE, own + m * WARP_ROWS, 16 * d);
#pragma unroll
                for (int n = 0; n < COLUMNS / 16; n++) {
                    uint32_t right[4];
                    load_right_transposed(right, keys, STRIDE, 16 * n, 16 * d);
#pragma unroll
                    for (int m = 0; m < ROW_TILES; m++) {
                        multiply_fragments<T>(s[m][2 * n], left[m], right[0], right[1]);
                        multiply_fragments<T>(s[m][2 * n + 1], left[m], right[2], right[3]);
                    }
                }
            }
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
                const long long row = r + own + m * WARP_ROWS;
                mask_scores<COLUMNS, false>(p, s[m], mask, row, c, scale);
                update_softmax(s[m], most[m], sum[m], y[m]);
                if (GENERAL && p.key) apply_dropout<COLUMNS, false>(p, words, s[m], matrix, row, c);
            }
#pragma unroll
            for (int n = 0; n < COLUMNS / 16; n++) {
                uint32_t left[ROW_TILES][4];
#pragma unroll
                for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        left[m][e] = round_pair<T>(s[m][2 * n + e / 2][e % 2 * 2],
                                                   s[m][2 * n + e / 2][e % 2 * 2 + 1]);
#pragma unroll
                for (int d = 0; d < DEPTH; d++) {
                    uint32_t right[4];
                    load_right(right, values, STRIDE, 16 * n, 16 * d);
#pragma unroll
                    for (int m = 0; m < ROW_TILES; m++) {
                        multiply_fragments<T>(y[m][2 * d], left[m], right[0], right[1]);
                        multiply_fragments<T>(y[m][2 * d + 1], left[m], right[2], right[3]);
                    }
                }
            }
        }
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
            store_output(p, matrix, r + own + m * WARP_ROWS, most[m], sum[m], y[m]);
        wait_copies();
        __syncthreads();
    }

    static __device__ __forceinline__ void forward(const gd_cuda_attention &p) {
        const long long tiles = (p.rows + FORWARD_ROWS - 1) / FORWARD_ROWS;
        for (long long item = blockIdx.x; item < tiles * p.matrices; item += gridDim.x)
            forward_tile(p, item / tiles, (tiles - 1 - item % tiles) * FORWARD_ROWS);
    }

    /* --- backward --- */

    /* gk and gv of rows [c, c + ROWS) of matrix `shared` of k and v, from all heads that share it.
     * Either may be left out: both together need too many registers for large heads. */
    template <bool WITH_K, bool WITH_V>
    static __device__ __forceinline__ void backward_columns(const gd_cuda_attention &p,
                                                            long long shared, long long c) {
        enum { TILE = KEYS_STEP * STRIDE };
        T *const k = (T *)dynamic_shared, *const v = k + ROWS * STRIDE,
                 *const q = v + ROWS * STRIDE, *const gy = q + 2 * TILE; /* two tiles each */
        float *const lse = (float *)(gy + 2 * TILE), *const inner = lse + 2 * KEYS_STEP;
        const long long first = shared * p.groups, start = p.causal ? c / KEYS_STEP * KEYS_STEP : 0;
        const long long column = c + warp() * WARP_ROWS; /* the warp's first */
        const float scale = (float)p.scale * LOG2_E;
        dropout_words words(p);
        float gk[WITH_K ? HEAD / 8 : 1][4] = {}, gv[WITH_V ? HEAD / 8 : 1][4] = {};
        load_rows<ROWS>(k, p.k, matrix_of<const T>(p, p.k, first, true), c, p.columns, p.width);
        if (WITH_K)
            load_rows<ROWS>(v, p.v, matrix_of<const T>(p, p.v, first, true), c, p.columns,
                            p.value_width);
        for (long long matrix = first; matrix < first + p.groups; matrix++) {
            const T *from_q = matrix_of<const T>(p, p.q, matrix, false),
                    *from_gy = matrix_of<const T>(p, p.gy, matrix, false);
            const float *from_lse = matrix_of<const float>(p, p.lse, matrix, false),
                        *from_inner = (const float *)p.inner + matrix * p.rows;
            const long long mask = matrix_offset(p, p.mask, matrix, false);
            int turn = 0;
            for (long long r = start - KEYS_STEP; r < p.rows; r += KEYS_STEP, turn ^= 1) {
                const long long next = r + KEYS_STEP; /* the tile that is loaded */
                wait_copies();
                __syncthreads();
                if (next < p.rows) {
                    const int at = turn ^ 1, t = (int)threadIdx.x;
                    load_rows<KEYS_STEP>(q + at * TILE, p.q, from_q, next, p.rows, p.width);
                    load_rows<KEYS_STEP>(gy + at * TILE, p.gy, from_gy, next, p.rows,
                                         p.value_width);
                    if (t < KEYS_STEP) {
                        const bool inside = next + t < p.rows;
                        lse[at * KEYS_STEP + t] =
                            inside ? from_lse[(next + t) * p.lse.row] * LOG2_E : 0.0f;
                        inner[at * KEYS_STEP + t] = inside ? from_inner[next + t] : 0.0f;
                    }
                }
                if (r < start || (p.causal && column > r + KEYS_STEP - 1)) continue; /* masked */
                float w[KEYS_STEP / 8][4], g[KEYS_STEP / 8][4];
                dot_rows<KEYS_STEP>(w, k, warp() * WARP_ROWS, q + turn * TILE);
                mask_scores<KEYS_STEP, true>(p, w, mask, r, column, scale);
                if (WITH_K) {
                    dot_rows<KEYS_STEP>(g, v, warp() * WARP_ROWS, gy + turn * TILE);
                    if (GENERAL && p.key)
                        apply_dropout<KEYS_STEP, true>(p, words, g, matrix, r, column);
                }
#pragma unroll
                for (int n = 0; n < KEYS_STEP / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const int row = turn * KEYS_STEP + 8 * n + pair() + e % 2;
                        w[n][e] = w[n][e] == -INFINITY ? 0.0f : exp2f(w[n][e] - lse[row]);
                        if (WITH_K)
                            g[n][e] = w[n][e] == 0 ? 0.0f : w[n][e] * (g[n][e] - inner[row]);
                    }
                if (WITH_V) {
                    if (GENERAL && p.key)
                        apply_dropout<KEYS_STEP, true>(p, words, w, matrix, r, column);
                    add_product<KEYS_STEP>(*(float(*)[HEAD / 8][4]) gv, w, gy + turn * TILE);
                }
                if (WITH_K) add_product<KEYS_STEP>(*(float(*)[HEAD / 8][4]) gk, g, q + turn * TILE);
            }
            __syncthreads();
        }
        if (WITH_K && p.gk.data)
            store_rows(p.gk, matrix_of<T>(p, p.gk, first, true), column, p.columns, p.width,
                       *(float(*)[HEAD / 8][4]) gk, (float)p.scale, (float)p.scale);
        if (WITH_V && p.gv.data)
            store_rows(p.gv, matrix_of<T>(p, p.gv, first, true), column, p.columns, p.value_width,
                       *(float(*)[HEAD / 8][4]) gv, 1, 1);
        __syncthreads();
    }

    template <bool WITH_K, bool WITH_V>
    static __device__ __forceinline__ void backward_keys(const gd_cuda_attention &p) {
        const long long tiles = (p.columns + ROWS - 1) / ROWS;
        for (long long item = blockIdx.x; item < tiles * (p.matrices / p.groups); item += gridDim.x)
            backward_columns<WITH_K, WITH_V>(p, item / tiles, item % tiles * ROWS);
    }

    /* gq of rows [r, r + ROWS). */
    static __device__ __forceinline__ void backward_rows(const gd_cuda_attention &p,
                                                         long long matrix, long long r) {
        enum { TILE = QUERIES_STEP * STRIDE };
        T *const q = (T *)dynamic_shared, *const gy = q + ROWS * STRIDE,
                 *const k = gy + ROWS * STRIDE, *const v = k + 2 * TILE; /* two tiles each */
        const T *from_k = matrix_of<const T>(p, p.k, matrix, true),
                *from_v = matrix_of<const T>(p, p.v, matrix, true);
        const long long mask = matrix_offset(p, p.mask, matrix, false),
                        at_lse = matrix_offset(p, p.lse, matrix, false);
        const long long end = p.causal && r + ROWS < p.columns ? r + ROWS : p.columns;
        const long long first = r + warp() * WARP_ROWS, row = first + group();
        const float scale = (float)p.scale * LOG2_E;
        dropout_words words(p);
        float gq[HEAD / 8][4] = {}, lse[2], inner[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const long long at = row + 8 * h;
            const bool inside = at < p.rows;
            lse[h] = inside ? ((const float *)p.lse.data)[at_lse + at * p.lse.row] * LOG2_E : 0.0f;
            inner[h] = inside ? ((const float *)p.inner)[matrix * p.rows + at] : 0.0f;
        }
        load_rows<ROWS>(q, p.q, matrix_of<const T>(p, p.q, matrix, false), r, p.rows, p.width);
        load_rows<ROWS>(gy, p.gy, matrix_of<const T>(p, p.gy, matrix, false), r, p.rows,
                        p.value_width);
        load_rows<QUERIES_STEP>(k, p.k, from_k, 0, p.columns, p.width);
        load_rows<QUERIES_STEP>(v, p.v, from_v, 0, p.columns, p.value_width);
        int turn = 0;
        for (long long c = 0; c < end; c += QUERIES_STEP, turn ^= 1) {
            float w[QUERIES_STEP / 8][4], g[QUERIES_STEP / 8][4];
            wait_copies();
            __syncthreads();
            if (c + QUERIES_STEP < end) {
                load_rows<QUERIES_STEP>(k + (turn ^ 1) * TILE, p.k, from_k, c + QUERIES_STEP,
                                        p.columns, p.width);
                load_rows<QUERIES_STEP>(v + (turn ^ 1) * TILE, p.v, from_v, c + QUERIES_STEP,
                                        p.columns, p.value_width);
            }
            dot_rows<QUERIES_STEP>(w, q, warp() * WARP_ROWS, k + turn * TILE);
            mask_scores<QUERIES_STEP, false>(p, w, mask, first, c, scale);
            dot_rows<QUERIES_STEP>(g, gy, warp() * WARP_ROWS, v + turn * TILE);
            if (GENERAL && p.key) apply_dropout<QUERIES_STEP, false>(p, words, g, matrix, first, c);
#pragma unroll
            for (int n = 0; n < QUERIES_STEP / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float weight = w[n][e] == -INFINITY ? 0.0f : exp2f(w[n][e] - lse[e / 2]);
                    g[n][e] = weight == 0 ? 0.0f : weight * (g[n][e] - inner[e / 2]);
                }
            add_product<QUERIES_STEP>(gq, g, k + turn * TILE);
        }
        store_rows(p.gq, matrix_of<T>(p, p.gq, matrix, false), first, p.rows, p.width, gq,
                   (float)p.scale, (float)p.scale);
        wait_copies();
        __syncthreads();
    }

    static __device__ __forceinline__ void backward_queries(const gd_cuda_attention &p) {
        const long long tiles = (p.rows + ROWS - 1) / ROWS;
        for (long long item = blockIdx.x; item < tiles * p.matrices; item += gridDim.x)
            backward_rows(p, item / tiles, (tiles - 1 - item % tiles) * ROWS);
    }
};

/* The kernels of a dtype. At least `blocks` blocks share a multiprocessor, which limits
 * registers. */
#define ATTENTION_KERNEL(name, blocks, ...)                                \
    extern "C" __global__ void __launch_bounds__(THREADS, blocks)          \
        gd_attention_##name(const __grid_constant__ gd_cuda_attention p) { \
        RETURN_IF_FAILED(p.call);                                          \
        __VA_ARGS__(p);                                                    \
    }
#define ATTENTION_KERNELS(name, ...)                                                              \
    ATTENTION_KERNEL(forward_##name##_64, 2, attention<__VA_ARGS__, 64, false>::forward)          \
    ATTENTION_KERNEL(queries_##name##_64, 3, attention<__VA_ARGS__, 64, false>::backward_queries) \
    ATTENTION_KERNEL(keys_##name##_64, 3,                                                         \
                     attention<__VA_ARGS__, 64, false>::backward_keys<true, true>)                \
    ATTENTION_KERNEL(forward_##name##_128, 2, attention<__VA_ARGS__, 128, false>::forward)        \
    ATTENTION_KERNEL(queries_##name##_128, 2,                                                     \
                     attention<__VA_ARGS__, 128, false>::backward_queries)                        \
    ATTENTION_KERNEL(keys_##name##_128, 2,                                                        \
                     attention<__VA_ARGS__, 128, false>::backward_keys<true, true>)               \
    ATTENTION_KERNEL(forward_##name##_general_64, 2, attention<__VA_ARGS__, 64, true>::forward)   \
    ATTENTION_KERNEL(queries_##name##_general_64, 2,                                              \
                     attention<__VA_ARGS__, 64, true>::backward_queries)                          \
    ATTENTION_KERNEL(keys_##name##_general_64, 2,                                                 \
                     attention<__VA_ARGS__, 64, true>::backward_keys<true, true>)                 \
    ATTENTION_KERNEL(forward_##name##_general_128, 1, attention<__VA_ARGS__, 128, true>::forward) \
    ATTENTION_KERNEL(queries_##name##_general_128, 1,                                             \
                     attention<__VA_ARGS__, 128, true>::backward_queries)                         \
    ATTENTION_KERNEL(keys_##name##_general_128, 1,                                                \
                     attention<__VA_ARGS__, 128, true>::backward_keys<true, true>)                \
    ATTENTION_KERNEL(forward_##name##_general_256, 1, attention<__VA_ARGS__, 256, true>::forward) \
    ATTENTION_KERNEL(queries_##name##_general_256, 1,                                             \
                     attention<__VA_ARGS__, 256, true>::backward_queries)                         \
    ATTENTION_KERNEL(keys_##name##_general_256, 1,                                                \
                     attention<__VA_ARGS__, 256, true>::backward_keys<true, false>)               \
    ATTENTION_KERNEL(values_##name##_general_256, 1,                                              \
                     attention<__VA_ARGS__, 256, true>::backward_keys<false, true>)

#endif
