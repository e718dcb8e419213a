/* attention.cu - attention in f32 and f64, without the matrix of weights in memory.
 *
 * A block holds tiles of TILE rows of q, k, v (and gy) in shared memory. Its 8 x 16 threads compute
 * a tile of scores, a part of HIGH x WIDE for each thread, and the weights go through shared memory
 * to the second product. Forward computes the softmax online: when a tile has a larger maximum, the
 * sums and outputs so far are rescaled. Backward recomputes the weights from the log-sum-exp. One
 * kernel has a block for each tile of k, which loops over the tiles of q and sums gk and gv;
 * another has a block for each tile of q and sums gq. So every sum has a fixed order.
 */
#include "ops/attention/cuda/attention.cuh"

enum {
    THREADS = GD_CUDA_ATTENTION_THREADS,
    SIDE = 16, /* threads of a row of the block */
    HEIGHT = THREADS / SIDE,
};

/* Four neighbouring elements, which are loaded together. */
template <typename C> struct alignas(16) quad { C at[4]; };

static __device__ __forceinline__ float multiply_add(float a, float b, float c) {
    return fmaf(a, b, c);
}
static __device__ __forceinline__ double multiply_add(double a, double b, double c) {
    return fma(a, b, c);
}
static __device__ __forceinline__ float exponential(float x) { return expf(x); }
static __device__ __forceinline__ double exponential(double x) { return exp(x); }
static __device__ __forceinline__ float logarithm(float x) { return logf(x); }
static __device__ __forceinline__ double logarithm(double x) { return log(x); }

/* Tiles of TILE rows; head sizes up to HEAD. C is float or double. */
template <typename C, int TILE, int HEAD> struct attention {
    enum {
        HIGH = TILE / HEIGHT,      /* rows of scores of a thread */
        WIDE = TILE / SIDE,        /* columns */
        PAD = 16 / sizeof(C),      /* spreads rows over banks, and keeps them aligned */
        ROW = HEAD + PAD,          /* elements of a row in shared memory */
        WEIGHTS = TILE + PAD,      /* of a row of weights */
        QUADS = HEAD / (4 * SIDE), /* groups of 4 columns of a result of a thread */
        MATRIX = TILE * ROW,
    };
    typedef C scores[HIGH][WIDE];     /* rows row() + i, columns column() + SIDE * j */
    typedef C result[HIGH][QUADS][4]; /* rows row() + i, columns first_column(g) + c */

    static __device__ __forceinline__ int row() { return (int)threadIdx.x / SIDE * HIGH; }
    static __device__ __forceinline__ int column() { return (int)threadIdx.x % SIDE; }
    static __device__ __forceinline__ int first_column(int g) {
        return (int)threadIdx.x % SIDE * 4 + g * 4 * SIDE;
    }

    /* --- tiles --- */

    /* Loads rows [first, first + TILE) of a matrix with `rows` rows. Rows beyond it, and columns up
     * to the next multiple of 4, are zero. */
    static __device__ __forceinline__ void load_rows(C *to, const gd_cuda_heads &m, long long base,
                                                     long long first, long long rows, int width) {
        enum { UNITS = HEAD / 4, EACH_TIME = THREADS / UNITS }; /* quads of a row */
        const int count = (int)(rows - first < TILE ? rows - first : TILE);
        const C *matrix = (const C *)m.data + base + first * m.row;
        if (!m.vectors) {
            load_elements(to, m, matrix, count, width);
            return;
        }
        const int row = (int)threadIdx.x / UNITS, column = (int)threadIdx.x % UNITS * 4;
        const C *from = matrix + row * m.row + column;
        if (column >= width) return;
#pragma unroll
        for (int i = 0; i < TILE; i += EACH_TIME, from += EACH_TIME * m.row) {
            quad<C> values = {};
            if (i + row < count) values = *(const quad<C> *)from;
            *(quad<C> *)(to + (i + row) * ROW + column) = values;
        }
    }
    /* The same for any strides and addresses; not inlined, because it is rare. */
    static __device__ __noinline__ void load_elements(C *to, const gd_cuda_heads &m, const C *from,
                                                      int count, int width) {
        const int columns = (width + 3) / 4 * 4;
#pragma unroll 1
        for (int e = (int)threadIdx.x; e < TILE * columns; e += THREADS) {
            const int i = e / columns, c = e % columns;
            to[i * ROW + c] = i < count && c < width ? from[i * m.row + c * m.column] : C(0);
        }
    }

    static __device__ __forceinline__ void store_rows(const gd_cuda_heads &m, long long base,
                                                      long long first, long long rows, int width,
                                                      const result &r, C factor) {
        C *to = (C *)m.data + base;
#pragma unroll
        for (int i = 0; i < HIGH; i++) {
            const long long at = first + row() + i;
#pragma unroll
            for (int g = 0; g < QUADS; g++) {
                const int c = first_column(g);
                quad<C> values;
                if (at >= rows || c >= width) continue;
                for (int t = 0; t < 4; t++) values.at[t] = r[i][g][t] * factor;
                if (m.vectors) *(quad<C> *)(to + at * m.row + c) = values;
                else store_elements(to + at * m.row, m.column, c, width, values);
            }
        }
    }
    static __device__ __noinline__ void store_elements(C *to, long long stride, int column,
                                                       int width, quad<C> values) {
        for (int t = 0; t < 4; t++)
            if (column + t < width) to[(column + t) * stride] = values.at[t];
    }

    /* --- products --- */

    /* s = a b^T, both with `width` columns. */
    static __device__ __forceinline__ void dot_rows(scores &s, const C *a, const C *b, int width) {
        for (int i = 0; i < HIGH; i++)
            for (int j = 0; j < WIDE; j++) s[i][j] = 0;
#pragma unroll 4
        for (int k = 0; k < width; k += 4) {
            quad<C> left[HIGH], right[WIDE];
            for (int i = 0; i < HIGH; i++) left[i] = *(const quad<C> *)(a + (row() + i) * ROW + k);
            for (int j = 0; j < WIDE; j++)
                right[j] = *(const quad<C> *)(b + (column() + SIDE * j) * ROW + k);
            for (int t = 0; t < 4; t++)
                for (int i = 0; i < HIGH; i++)
                    for (int j = 0; j < WIDE; j++)
                        s[i][j] = multiply_add(left[i].at[t], right[j].at[t], s[i][j]);
        }
    }

    /* r += w b: rows of w are those of r. */
    static __device__ __forceinline__ void add_product(result &r, const C *w, const C *b) {
#pragma unroll 2
        for (int k = 0; k < TILE; k += 4) {
            quad<C> left[HIGH];
            for (int i = 0; i < HIGH; i++)
                left[i] = *(const quad<C> *)(w + (row() + i) * WEIGHTS + k);
            for (int t = 0; t < 4; t++)
                for (int g = 0; g < QUADS; g++) {
                    const quad<C> right = *(const quad<C> *)(b + (k + t) * ROW + first_column(g));
                    for (int i = 0; i < HIGH; i++)
                        for (int c = 0; c < 4; c++)
                            r[i][g][c] = multiply_add(left[i].at[t], right.at[c], r[i][g][c]);
                }
        }
    }

    /* Elements whose address is a multiple of HIGH elements. */
    static __device__ __forceinline__ void load_neighbours(C (&to)[HIGH], const C *from) {
        for (int i = 0; i < HIGH; i += 4) {
            if (HIGH % 4 == 0) *(quad<C> *)(to + i) = *(const quad<C> *)(from + i);
            else
                for (int t = 0; t < HIGH; t++) to[t] = from[t];
        }
    }

    /* r += w^T b: columns of w are the rows of r. */
    static __device__ __forceinline__ void add_transposed_product(result &r, const C *w,
                                                                  const C *b) {
#pragma unroll 4
        for (int k = 0; k < TILE; k++) {
            C left[HIGH];
            load_neighbours(left, w + k * WEIGHTS + row());
            for (int g = 0; g < QUADS; g++) {
                const quad<C> right = *(const quad<C> *)(b + k * ROW + first_column(g));
                for (int i = 0; i < HIGH; i++)
                    for (int c = 0; c < 4; c++)
                        r[i][g][c] = multiply_add(left[i], right.at[c], r[i][g][c]);
            }
        }
    }

    static __device__ __forceinline__ void store_weights(C *to, const scores &s) {
        for (int i = 0; i < HIGH; i++)
            for (int j = 0; j < WIDE; j++)
                to[(row() + i) * WEIGHTS + column() + SIDE * j] = s[i][j];
    }

    /* --- scores --- */

    /* The scores of the tile at rows r, columns c: minus infinity where a column is masked, or
     * where there is no such row or column. `mask` is the offset of the matrix's mask. */
    static __device__ __forceinline__ void compute_scores(const gd_cuda_attention &p, scores &s,
                                                          const C *q, const C *k, long long mask,
                                                          long long r, long long c) {
        const C scale = (C)p.scale;
        dot_rows(s, q, k, p.width);
        for (int i = 0; i < HIGH; i++)
            for (int j = 0; j < WIDE; j++) {
                const long long at = r + row() + i, to = c + column() + SIDE * j;
                const bool inside = at < p.rows && to < p.columns && !(p.causal && to > at);
                s[i][j] *= scale;
                if (inside && p.mask.data)
                    s[i][j] += mask_value<C>(p, mask + at * p.mask.row + to * p.mask.column);
                if (!inside) s[i][j] = C(-INFINITY);
            }
    }

    /* Multiplies by the factors of dropout. */
    static __device__ __forceinline__ void apply_dropout(const gd_cuda_attention &p,
                                                         dropout_words &words, scores &s,
                                                         long long matrix, long long r,
                                                         long long c) {
        for (int i = 0; i < HIGH; i++)
            for (int j = 0; j < WIDE; j++) {
                const long long number =
                    (matrix * p.rows + r + row() + i) * p.columns + c + column() + SIDE * j;
                s[i][j] *= words.keeps(p, (uint64_t)number) ? (C)p.kept_scale : C(0);
            }
    }

    /* --- kernels --- */

    static __device__ __forceinline__ C row_max(C x) {
        for (int bits = SIDE / 2; bits > 0; bits /= 2) {
            const C other = __shfl_xor_sync(~0u, x, bits);
            x = other > x ? other : x;
        }
        return x;
    }
    static __device__ __forceinline__ C row_sum(C x) {
        for (int bits = SIDE / 2; bits > 0; bits /= 2) x += __shfl_xor_sync(~0u, x, bits);
        return x;
    }

    /* The weights of a tile from the scores s, relative to the maximum so far, which is updated
     * together with the sums; y is rescaled. */
    static __device__ __forceinline__ void update_softmax(scores &s, C (&most)[HIGH],
                                                          C (&sum)[HIGH], result &y) {
        for (int i = 0; i < HIGH; i++) {
            C largest = most[i], total = 0;
            for (int j = 0; j < WIDE; j++) largest = s[i][j] > largest ? s[i][j] : largest;
            largest = row_max(largest);
            const C base = largest == C(-INFINITY) ? C(0) : largest;
            for (int j = 0; j < WIDE; j++) total += s[i][j] = exponential(s[i][j] - base);
            const C rescale = exponential(most[i] - base);
            sum[i] = multiply_add(sum[i], rescale, row_sum(total));
            most[i] = largest;
            for (int g = 0; g < QUADS; g++)
                for (int c = 0; c < 4; c++) y[i][g][c] *= rescale;
        }
    }

    static __device__ __forceinline__ void forward_tile(const gd_cuda_attention &p,
                                                        long long matrix, long long r) {
        C *q = (C *)dynamic_shared, *k = q + MATRIX, *v = k + MATRIX, *w = v + MATRIX;
        const long long at_k = matrix_offset(p, p.k, matrix, true),
                        at_v = matrix_offset(p, p.v, matrix, true),
                        at_mask = matrix_offset(p, p.mask, matrix, false);
        const long long end = p.causal && r + TILE < p.columns ? r + TILE : p.columns;
        dropout_words words(p);
        C most[HIGH], sum[HIGH];
        result y = {};
        for (int i = 0; i < HIGH; i++) most[i] = C(-INFINITY), sum[i] = 0;
        load_rows(q, p.q, matrix_offset(p, p.q, matrix, false), r, p.rows, p.width);
        for (long long c = 0; c < end; c += TILE) {
            scores s;
            load_rows(k, p.k, at_k, c, p.columns, p.width);
            load_rows(v, p.v, at_v, c, p.columns, p.value_width);
            __syncthreads();
            compute_scores(p, s, q, k, at_mask, r, c);
            update_softmax(s, most, sum, y);
            if (p.key) apply_dropout(p, words, s, matrix, r, c);
            store_weights(w, s);
            __syncthreads();
            add_product(y, w, v);
            __syncthreads();
        }
        const long long at_lse = matrix_offset(p, p.lse, matrix, false);
        for (int i = 0; i < HIGH; i++) {
            const bool masked = most[i] == C(-INFINITY) && !(sum[i] != sum[i]);
            const long long at = r + row() + i;
            for (int g = 0; g < QUADS; g++)
                for (int c = 0; c < 4; c++) y[i][g][c] = masked ? C(0) : y[i][g][c] / sum[i];
            if (p.lse.data && at < p.rows && column() == 0)
                ((C *)p.lse.data)[at_lse + at * p.lse.row] =
                    masked ? C(-INFINITY) : most[i] + logarithm(sum[i]);
        }
        store_rows(p.y, matrix_offset(p, p.y, matrix, false), r, p.rows, p.value_width, y, C(1));
        __syncthreads();
    }

    static __device__ __forceinline__ void forward(const gd_cuda_attention &p) {
        const long long tiles = (p.rows + TILE - 1) / TILE;
        for (long long item = blockIdx.x; item < tiles * p.matrices; item += gridDim.x)
            forward_tile(p, item / tiles, (tiles - 1 - item % tiles) * TILE);
    }

    /* A matrix, and the offsets of its mask and of its values for each row. */
    struct row_offsets {
        long long matrix, mask, lse, inner;
        __device__ __forceinline__ row_offsets(const gd_cuda_attention &p, long long number)
            : matrix(number), mask(matrix_offset(p, p.mask, number, false)),
              lse(matrix_offset(p, p.lse, number, false)), inner(number * p.rows) {}
    };

    /* The weights w of a tile, and the gradients g of its scores. w is after dropout. */
    static __device__ __forceinline__ void
    score_gradients(const gd_cuda_attention &p, dropout_words &words, scores &w, scores &g,
                    const C *q, const C *k, const C *v, const C *gy, const row_offsets &at,
                    long long r, long long c) {
        compute_scores(p, w, q, k, at.mask, r, c);
        dot_rows(g, gy, v, p.value_width);
        if (p.key) apply_dropout(p, words, g, at.matrix, r, c);
        for (int i = 0; i < HIGH; i++) {
            const long long n = r + row() + i;
            const bool inside = n < p.rows;
            const C lse = inside ? ((const C *)p.lse.data)[at.lse + n * p.lse.row] : C(0),
                    inner = inside ? ((const C *)p.inner)[at.inner + n] : C(0);
            for (int j = 0; j < WIDE; j++) {
                w[i][j] = w[i][j] == C(-INFINITY) ? C(0) : exponential(w[i][j] - lse);
                g[i][j] = w[i][j] == C(0) ? C(0) : w[i][j] * (g[i][j] - inner);
            }
        }
        if (p.key) apply_dropout(p, words, w, at.matrix, r, c);
    }

    /* gk and gv of rows [c, c + TILE) of matrix `shared` of k and v, from all heads that share
     * it. */
    static __device__ __forceinline__ void backward_columns(const gd_cuda_attention &p,
                                                            long long shared, long long c) {
        C *q = (C *)dynamic_shared, *k = q + MATRIX, *v = k + MATRIX, *gy = v + MATRIX,
          *w = gy + MATRIX, *g = w + TILE * WEIGHTS;
        dropout_words words(p);
        result gk = {}, gv = {};
        const long long first = shared * p.groups;
        load_rows(k, p.k, matrix_offset(p, p.k, first, true), c, p.columns, p.width);
        load_rows(v, p.v, matrix_offset(p, p.v, first, true), c, p.columns, p.value_width);
        for (long long matrix = first; matrix < first + p.groups; matrix++) {
            const long long at_q = matrix_offset(p, p.q, matrix, false),
                            at_gy = matrix_offset(p, p.gy, matrix, false);
            const row_offsets offsets(p, matrix);
            for (long long r = p.causal ? c : 0; r < p.rows; r += TILE) {
                scores weights, gradients;
                load_rows(q, p.q, at_q, r, p.rows, p.width);
                load_rows(gy, p.gy, at_gy, r, p.rows, p.value_width);
                __syncthreads();
                score_gradients(p, words, weights, gradients, q, k, v, gy, offsets, r, c);
                store_weights(w, weights);
                store_weights(g, gradients);
                __syncthreads();
                add_transposed_product(gv, w, gy);
                add_transposed_product(gk, g, q);
                __syncthreads();
            }
        }
        if (p.gk.data)
            store_rows(p.gk, matrix_offset(p, p.gk, first, true), c, p.columns, p.width, gk,
                       (C)p.scale);
        if (p.gv.data)
            store_rows(p.gv, matrix_offset(p, p.gv, first, true), c, p.columns, p.value_width, gv,
                       C(1));
        __syncthreads();
    }

    static __device__ __forceinline__ void backward_keys(const gd_cuda_attention &p) {
        const long long tiles = (p.columns + TILE - 1) / TILE;
        for (long long item = blockIdx.x; item < tiles * (p.matrices / p.groups); item += gridDim.x)
            backward_columns(p, item / tiles, item % tiles * TILE);
    }

    /* gq of rows [r, r + TILE). */
    static __device__ __forceinline__ void backward_rows(const gd_cuda_attention &p,
                                                         long long matrix, long long r) {
        C *q = (C *)dynamic_shared, *k = q + MATRIX, *v = k + MATRIX, *gy = v + MATRIX,
          *g = gy + MATRIX;
        const long long at_k = matrix_offset(p, p.k, matrix, true),
                        at_v = matrix_offset(p, p.v, matrix, true);
        const long long end = p.causal && r + TILE < p.columns ? r + TILE : p.columns;
        const row_offsets offsets(p, matrix);
        dropout_words words(p);
        result gq = {};
        load_rows(q, p.q, matrix_offset(p, p.q, matrix, false), r, p.rows, p.width);
        load_rows(gy, p.gy, matrix_offset(p, p.gy, matrix, false), r, p.rows, p.value_width);
        for (long long c = 0; c < end; c += TILE) {
            scores weights, gradients;
            load_rows(k, p.k, at_k, c, p.columns, p.width);
            load_rows(v, p.v, at_v, c, p.columns, p.value_width);
            __syncthreads();
            score_gradients(p, words, weights, gradients, q, k, v, gy, offsets, r, c);
            store_weights(g, gradients);
            __syncthreads();
            add_product(gq, g, k);
            __syncthreads();
        }
        store_rows(p.gq, matrix_offset(p, p.gq, matrix, false), r, p.rows, p.width, gq, (C)p.scale);
        __syncthreads();
    }

    static __device__ __forceinline__ void backward_queries(const gd_cuda_attention &p) {
        const long long tiles = (p.rows + TILE - 1) / TILE;
        for (long long item = blockIdx.x; item < tiles * p.matrices; item += gridDim.x)
            backward_rows(p, item / tiles, (tiles - 1 - item % tiles) * TILE);
    }
};

/* The sums of gy y: LANES lanes for each row, and a block for INNER_ROWS rows. */
template <typename T> struct alignas(16) vector { T at[16 / sizeof(T)]; };

template <typename T> static __device__ __forceinline__ void sum_rows(const gd_cuda_attention &p) {
    typedef typename wide_type<T>::type C;
    enum { LANES = 8, UNIT = 16 / sizeof(T), INNER_ROWS = GD_CUDA_ATTENTION_INNER_ROWS };
    const int lane = (int)threadIdx.x % LANES;
    const long long tiles = (p.rows + INNER_ROWS - 1) / INNER_ROWS;
    for (long long item = blockIdx.x; item < tiles * p.matrices; item += gridDim.x) {
        const long long matrix = item / tiles, first = item % tiles * INNER_ROWS;
        const T *y = (const T *)p.y.data + matrix_offset(p, p.y, matrix, false),
                *gy = (const T *)p.gy.data + matrix_offset(p, p.gy, matrix, false);
        for (int i = (int)threadIdx.x / LANES; i < INNER_ROWS; i += THREADS / LANES) {
            const long long row = first + i;
            const T *a = y + row * p.y.row, *b = gy + row * p.gy.row;
            const int width = row < p.rows ? p.value_width : 0;
            C sum = 0;
            if (p.y.vectors && p.gy.vectors)
                for (int t = lane * UNIT; t < width; t += LANES * UNIT) {
                    const vector<T> left = *(const vector<T> *)(a + t),
                                    right = *(const vector<T> *)(b + t);
                    for (int e = 0; e < UNIT; e++)
                        sum = multiply_add(widen(left.at[e]), widen(right.at[e]), sum);
                }
            else
                for (int t = lane; t < width; t += LANES)
                    sum = multiply_add(widen(a[t * p.y.column]), widen(b[t * p.gy.column]), sum);
            for (int bits = LANES / 2; bits > 0; bits /= 2) sum += __shfl_xor_sync(~0u, sum, bits);
            if (lane == 0 && row < p.rows) ((C *)p.inner)[matrix * p.rows + row] = sum;
        }
    }
}

#define ATTENTION_KERNEL(name, ...)                                        \
    extern "C" __global__ void __launch_bounds__(THREADS)                  \
        gd_attention_##name(const __grid_constant__ gd_cuda_attention p) { \
        RETURN_IF_FAILED(p.call);                                          \
        __VA_ARGS__(p);                                                    \
    }
#define ATTENTION_KERNELS(name, ...)                                     \
    ATTENTION_KERNEL(forward_##name, attention<__VA_ARGS__>::forward)    \
    ATTENTION_KERNEL(keys_##name, attention<__VA_ARGS__>::backward_keys) \
    ATTENTION_KERNEL(queries_##name, attention<__VA_ARGS__>::backward_queries)

/* The tiles are those of attention.c. */
ATTENTION_KERNELS(f32_64, float, 64, 64)
ATTENTION_KERNELS(f32_128, float, 32, 128)
ATTENTION_KERNELS(f32_256, float, 32, 256)
ATTENTION_KERNELS(f64_64, double, 32, 64)
ATTENTION_KERNELS(f64_128, double, 32, 128)
ATTENTION_KERNELS(f64_256, double, 16, 256)

ATTENTION_KERNEL(inner_f32, sum_rows<float>)
ATTENTION_KERNEL(inner_f64, sum_rows<double>)
ATTENTION_KERNEL(inner_f16, sum_rows<f16_element>)
ATTENTION_KERNEL(inner_bf16, sum_rows<bf16_element>)
