/* attention_mma.cu - attention in f16 and bf16 on tensor cores, without the matrix of weights in
 * memory. Sums are f32; weights and gradients of scores are rounded for the second product.
 *
 * A block has 4 warps. In forward and in the kernel for gq, each warp has 16 rows of q (forward: 16
 * ROW_TILES) and loops over tiles of k and v, which the block loads while it computes with the ones
 * before. In the kernel for gk and gv, each warp has 16 rows of k and loops over tiles of q and gy; it
 * computes the transposes of scores and weights. So the weights of a warp stay in its registers, and
 * every sum has a fixed order.
 */
#include "backend/cuda/kernels/attention.cuh"
#include "backend/cuda/kernels/mma.cuh"

enum { THREADS = GD_CUDA_ATTENTION_MMA_THREADS, WARPS = THREADS / 32, WARP_ROWS = 16 };

static const float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/* Head sizes up to HEAD; T is f16_element or bf16_element. */
template <typename T, int HEAD>
struct attention {
    enum {
        STRIDE = HEAD + 8,                      /* of rows in shared memory: spreads them over banks */
        ROW_TILES = GD_CUDA_MMA_ROW_TILES(HEAD), /* forward: 16-row tiles of a warp */
        FORWARD_ROWS = WARPS * WARP_ROWS * ROW_TILES,
        ROWS = WARPS * WARP_ROWS,                /* backward: rows of a block */
        COLUMNS = GD_CUDA_MMA_COLUMNS(HEAD),     /* forward: rows of a tile of k and v */
        STEP = GD_CUDA_MMA_STEP(HEAD),           /* backward: rows of a tile that is looped over */
        DEPTH = HEAD / 16,
    };

    static __device__ __forceinline__ int warp() { return (int)threadIdx.x / 32; }
    static __device__ __forceinline__ int group() { return (int)threadIdx.x % 32 / 4; }
    static __device__ __forceinline__ int pair() { return (int)threadIdx.x % 4 * 2; }

    /* --- tiles --- */

    /* Loads rows [first, first + COUNT) of a matrix with `rows` rows; the rest is zero. The copies are
     * complete after wait_copies and a barrier. */
    template <int COUNT>
    static __device__ __forceinline__ void load_rows(T *to, const gd_cuda_heads &m, const T *matrix,
                                                     long long first, long long rows, int width) {
        enum { UNITS = HEAD / 8 };
#pragma unroll 4
        for (int e = (int)threadIdx.x; e < COUNT * UNITS; e += THREADS) {
            const int i = e / UNITS, c = e % UNITS * 8;
            const bool inside = first + i < rows && c < width;
            T *at = to + i * STRIDE + c;
            const T *from = matrix + (first + i) * m.row + c * m.column;
            if (m.vectors) {
                copy_async(at, inside ? from : matrix, inside);
                continue;
            }
            for (int t = 0; t < 8; t++)
                at[t] = inside && c + t < width ? from[t * m.column] : T{0};
        }
    }

    /* Stores a pair of neighbouring columns of a row. */
    static __device__ __forceinline__ void store_pair(const gd_cuda_heads &m, T *matrix,
                                                      long long row, int column, int width, float x,
                                                      float y) {
        const uint32_t both = round_pair<T>(x, y);
        T *to = matrix + row * m.row + column * m.column;
        if (column >= width) return;
        if (m.vectors) {
            *(uint32_t *)to = both;
            return;
        }
        *to = T{(uint16_t)both};
        if (column + 1 < width) to[m.column] = T{(uint16_t)(both >> 16)};
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

    /* Scales the scores s of rows r and r + 8 of this lane and N columns from c; masked ones, and
     * those of columns that do not exist, become minus infinity. TRANSPOSED: s has the columns from r
     * as rows, and the rows from c as columns. `first` and `last` are the first row and last column of
     * the warp's tile. */
    template <int N, bool TRANSPOSED>
    static __device__ __forceinline__ void mask_scores(const gd_cuda_attention &p,
                                                       float (&s)[N / 8][4], long long mask,
                                                       long long r, long long c, float scale) {
        const long long first = TRANSPOSED ? c : r - group(),
                        last = TRANSPOSED ? r - group() + WARP_ROWS - 1 : c + N - 1;
        const bool complete =
            !p.mask.data && last < p.columns && !(p.causal && last > first) &&
            (!TRANSPOSED || c + N <= p.rows);
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] *= scale;
        if (complete) return;
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const long long i = r + e / 2 * 8, j = c + 8 * n + pair() + e % 2;
                const long long row = TRANSPOSED ? j : i, column = TRANSPOSED ? i : j;
                const bool inside =
                    row < p.rows && column < p.columns && !(p.causal && column > row);
                if (inside && p.mask.data)
                    s[n][e] += mask_value<T>(p, mask + row * p.mask.row + column * p.mask.column) *
                               LOG2_E;
                if (!inside) s[n][e] = -INFINITY;
            }
    }

    /* Multiplies by the factors of dropout. */
    template <int N, bool TRANSPOSED>
    static __device__ __forceinline__ void apply_dropout(const gd_cuda_attention &p,
                                                         dropout_words &words,
                                                         float (&s)[N / 8][4], long long matrix,
                                                         long long r, long long c) {
        const float kept = (float)p.kept_scale;
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const long long i = r + e / 2 * 8, j = c + 8 * n + pair() + e % 2;
                const long long row = TRANSPOSED ? j : i, column = TRANSPOSED ? i : j;
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

    static __device__ __forceinline__ void store_output(const gd_cuda_attention &p,
                                                        long long matrix, long long r,
                                                        const float (&most)[2], float (&sum)[2],
                                                        const float (&y)[HEAD / 8][4]) {
        T *to = matrix_of<T>(p, p.y, matrix, false);
        float *lse = matrix_of<float>(p, p.lse, matrix, false);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float total = quad_sum(sum[h]);
            const bool masked = most[h] == -INFINITY && !(total != total);
            const float factor = masked ? 0.0f : 1 / total;
            const long long row = r + 8 * h;
            if (row >= p.rows) continue;
            if (p.lse.data && pair() == 0)
                lse[row * p.lse.row] = masked ? -INFINITY : fmaf(most[h], LN_2, logf(total));
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++)
                store_pair(p.y, to, row, 8 * n + pair(), p.value_width, y[n][2 * h] * factor,
                           y[n][2 * h + 1] * factor);
        }
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
                const long long row = r + own + m * WARP_ROWS + group();
                mask_scores<COLUMNS, false>(p, s[m], mask, row, c, scale);
                update_softmax(s[m], most[m], sum[m], y[m]);
                if (p.key) apply_dropout<COLUMNS, false>(p, words, s[m], matrix, row, c);
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
            store_output(p, matrix, r + own + m * WARP_ROWS + group(), most[m], sum[m], y[m]);
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
        enum { TILE = STEP * STRIDE };
        T *const k = (T *)dynamic_shared, *const v = k + ROWS * STRIDE, *const q = v + ROWS * STRIDE,
                 *const gy = q + 2 * TILE; /* two tiles each */
        float *const lse = (float *)(gy + 2 * TILE), *const inner = lse + 2 * STEP;
        const long long first = shared * p.groups, start = p.causal ? c / STEP * STEP : 0;
        const long long column = c + warp() * WARP_ROWS + group();
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
            for (long long r = start - STEP; r < p.rows; r += STEP, turn ^= 1) {
                const long long next = r + STEP; /* the tile that is loaded */
                wait_copies();
                __syncthreads();
                if (next < p.rows) {
                    const int at = turn ^ 1, t = (int)threadIdx.x;
                    load_rows<STEP>(q + at * TILE, p.q, from_q, next, p.rows, p.width);
                    load_rows<STEP>(gy + at * TILE, p.gy, from_gy, next, p.rows, p.value_width);
                    if (t < STEP) {
                        const bool inside = next + t < p.rows;
                        lse[at * STEP + t] =
                            inside ? from_lse[(next + t) * p.lse.row] * LOG2_E : 0.0f;
                        inner[at * STEP + t] = inside ? from_inner[next + t] : 0.0f;
                    }
                }
                if (r < start) continue;
                float w[STEP / 8][4], g[STEP / 8][4];
                dot_rows<STEP>(w, k, warp() * WARP_ROWS, q + turn * TILE);
                mask_scores<STEP, true>(p, w, mask, column, r, scale);
                if (WITH_K) {
                    dot_rows<STEP>(g, v, warp() * WARP_ROWS, gy + turn * TILE);
                    if (p.key) apply_dropout<STEP, true>(p, words, g, matrix, column, r);
                }
#pragma unroll
                for (int n = 0; n < STEP / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const int row = turn * STEP + 8 * n + pair() + e % 2;
                        w[n][e] = w[n][e] == -INFINITY ? 0.0f : exp2f(w[n][e] - lse[row]);
                        if (WITH_K)
                            g[n][e] = w[n][e] == 0 ? 0.0f : w[n][e] * (g[n][e] - inner[row]);
                    }
                if (WITH_V) {
                    if (p.key) apply_dropout<STEP, true>(p, words, w, matrix, column, r);
                    add_product<STEP>(*(float(*)[HEAD / 8][4])gv, w, gy + turn * TILE);
                }
                if (WITH_K) add_product<STEP>(*(float(*)[HEAD / 8][4])gk, g, q + turn * TILE);
            }
            __syncthreads();
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const long long row = column + 8 * h;
            if (row >= p.columns) continue;
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                if (WITH_K && p.gk.data)
                    store_pair(p.gk, matrix_of<T>(p, p.gk, first, true), row, 8 * n + pair(),
                               p.width, gk[n][2 * h] * (float)p.scale,
                               gk[n][2 * h + 1] * (float)p.scale);
                if (WITH_V && p.gv.data)
                    store_pair(p.gv, matrix_of<T>(p, p.gv, first, true), row, 8 * n + pair(),
                               p.value_width, gv[n][2 * h], gv[n][2 * h + 1]);
            }
        }
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
        enum { TILE = STEP * STRIDE };
        T *const q = (T *)dynamic_shared, *const gy = q + ROWS * STRIDE,
                 *const k = gy + ROWS * STRIDE, *const v = k + 2 * TILE; /* two tiles each */
        const T *from_k = matrix_of<const T>(p, p.k, matrix, true),
                *from_v = matrix_of<const T>(p, p.v, matrix, true);
        const long long mask = matrix_offset(p, p.mask, matrix, false),
                        at_lse = matrix_offset(p, p.lse, matrix, false);
        const long long end = p.causal && r + ROWS < p.columns ? r + ROWS : p.columns;
        const long long row = r + warp() * WARP_ROWS + group();
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
        load_rows<STEP>(k, p.k, from_k, 0, p.columns, p.width);
        load_rows<STEP>(v, p.v, from_v, 0, p.columns, p.value_width);
        int turn = 0;
        for (long long c = 0; c < end; c += STEP, turn ^= 1) {
            float w[STEP / 8][4], g[STEP / 8][4];
            wait_copies();
            __syncthreads();
            if (c + STEP < end) {
                load_rows<STEP>(k + (turn ^ 1) * TILE, p.k, from_k, c + STEP, p.columns, p.width);
                load_rows<STEP>(v + (turn ^ 1) * TILE, p.v, from_v, c + STEP, p.columns,
                                p.value_width);
            }
            dot_rows<STEP>(w, q, warp() * WARP_ROWS, k + turn * TILE);
            mask_scores<STEP, false>(p, w, mask, row, c, scale);
            dot_rows<STEP>(g, gy, warp() * WARP_ROWS, v + turn * TILE);
            if (p.key) apply_dropout<STEP, false>(p, words, g, matrix, row, c);
#pragma unroll
            for (int n = 0; n < STEP / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float weight =
                        w[n][e] == -INFINITY ? 0.0f : exp2f(w[n][e] - lse[e / 2]);
                    g[n][e] = weight == 0 ? 0.0f : weight * (g[n][e] - inner[e / 2]);
                }
            add_product<STEP>(gq, g, k + turn * TILE);
        }
        T *to = matrix_of<T>(p, p.gq, matrix, false);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (row + 8 * h >= p.rows) continue;
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++)
                store_pair(p.gq, to, row + 8 * h, 8 * n + pair(), p.width,
                           gq[n][2 * h] * (float)p.scale, gq[n][2 * h + 1] * (float)p.scale);
        }
        wait_copies();
        __syncthreads();
    }

    static __device__ __forceinline__ void backward_queries(const gd_cuda_attention &p) {
        const long long tiles = (p.rows + ROWS - 1) / ROWS;
        for (long long item = blockIdx.x; item < tiles * p.matrices; item += gridDim.x)
            backward_rows(p, item / tiles, (tiles - 1 - item % tiles) * ROWS);
    }
};

#define ATTENTION_KERNEL(name, ...)                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                          \
        gd_attention_##name(const __grid_constant__ gd_cuda_attention p) {         \
        RETURN_IF_FAILED(p.call);                                                  \
        __VA_ARGS__(p);                                                            \
    }
#define ATTENTION_KERNELS(name, T, HEAD)                                                           \
    ATTENTION_KERNEL(forward_##name##_##HEAD, attention<T, HEAD>::forward)                         \
    ATTENTION_KERNEL(queries_##name##_##HEAD, attention<T, HEAD>::backward_queries)
#define ATTENTION_KEY_KERNELS(name, T)                                                             \
    ATTENTION_KERNEL(keys_##name##_64, attention<T, 64>::backward_keys<true, true>)                \
    ATTENTION_KERNEL(keys_##name##_128, attention<T, 128>::backward_keys<true, true>)              \
    ATTENTION_KERNEL(keys_##name##_256, attention<T, 256>::backward_keys<true, false>)             \
    ATTENTION_KERNEL(values_##name##_256, attention<T, 256>::backward_keys<false, true>)

ATTENTION_KERNELS(f16, f16_element, 64)
ATTENTION_KERNELS(f16, f16_element, 128)
ATTENTION_KERNELS(f16, f16_element, 256)
ATTENTION_KEY_KERNELS(f16, f16_element)
ATTENTION_KERNELS(bf16, bf16_element, 64)
ATTENTION_KERNELS(bf16, bf16_element, 128)
ATTENTION_KERNELS(bf16, bf16_element, 256)
ATTENTION_KEY_KERNELS(bf16, bf16_element)
