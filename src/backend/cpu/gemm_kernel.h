/* gemm_kernel.h - the innermost loops: a tile of C that stays in registers.
 *
 * A tile is H rows by W vectors of C. For every k it reads W vectors of B and broadcasts H numbers
 * of A: H * W multiply-adds for H + W loads. The sums of one tile element are made in the order of
 * k whatever the tile's shape, so tiles may be cut in any way without changing a bit.
 */

/* The widest tile, and the highest for each width: as many sums as fit into the registers beside
 * W vectors of B and one of A (32 registers with AVX-512, 16 with AVX2 and SSE). */
#define TILES_1_TO_6(X, w)  X(1, w) X(2, w) X(3, w) X(4, w) X(5, w) X(6, w)
#define TILES_1_TO_8(X, w)  TILES_1_TO_6(X, w) X(7, w) X(8, w)
#define TILES_1_TO_14(X, w) TILES_1_TO_8(X, w) X(9, w) X(10, w) X(11, w) X(12, w) X(13, w) X(14, w)
#if defined(__AVX512F__)
enum { TILE_W = 4, TILE_H = 14 };
static const int tile_height[TILE_W + 1] = {0, 14, 14, 8, 6};
#define TILES(X) TILES_1_TO_14(X, 1) TILES_1_TO_14(X, 2) TILES_1_TO_8(X, 3) TILES_1_TO_6(X, 4)
#else
enum { TILE_W = 2, TILE_H = 8 };
static const int tile_height[TILE_W + 1] = {0, 8, 6};
#define TILES(X) TILES_1_TO_8(X, 1) TILES_1_TO_6(X, 2)
#endif

/* Columns of the widest tile, and the longest run of k that a tile sums before C is touched: such
 * a panel of B (TILE_N x TILE_K) stays in the second-level cache, H rows of A in the first. */
enum { TILE_N = TILE_W * VL, TILE_K = 4096 / sizeof(real) };
_Static_assert((int)TILE_N <= (int)GD_GEMM_PANEL_MAX, "panels are wider than fill functions expect");

typedef struct tile {
    int64_t n, k;  /* columns to store, n <= W * VL; depth */
    const real *a; /* (H, k) */
    int64_t a_row, a_col;
    const real *b; /* (k, n), columns side by side */
    int64_t b_row;
    real *b_packed;    /* for the packing kernel: where B goes, with W * VL columns */
    const real *ahead;  /* a cache line to be fetched into the second-level cache meanwhile ... */
    int64_t ahead_step; /* ... and, after every other k, the next one, so much further on */
    real *c;           /* (H, n), columns side by side */
    int64_t c_row;
    bool accumulate;
    bool relu;
    real scale;           /* of the product */
    const real *bias_col; /* one value a column, or NULL */
    const real *bias_row; /* one value a row, `bias_step` apart, or NULL */
    int64_t bias_step;
    const real *mask; /* (H, n), columns side by side, or NULL */
    int64_t mask_row;
} tile;

/* A statement for each of the H rows and W vectors of a tile. */
#define EACH_SUM(i, v, ...)                                                                        \
    UNROLL for (int i = 0; i < H; i++) {                                                           \
        UNROLL for (int v = 0; v < W; v++) { __VA_ARGS__; }                                        \
    }

/* sums -> C, by way of the epilogue. */
INLINE void tile_store(const int H, const int W, const tile *t, vec sums[TILE_H][TILE_W]) {
    /* All vectors of a tile but the last are whole. */
    const int64_t last = t->n - (W - 1) * VL;
    const vec scale = broadcast(t->scale);
    if (t->accumulate) {
        EACH_SUM(i, v, {
            const real *c = t->c + i * t->c_row + v * VL;
            sums[i][v] = multiply_add(sums[i][v], scale, v < W - 1 ? load(c) : load_first(c, last));
        })
    } else if (t->scale != 1) {
        EACH_SUM(i, v, sums[i][v] *= scale);
    }
    if (t->bias_col) {
        UNROLL for (int v = 0; v < W; v++) {
            const real *p = t->bias_col + v * VL;
            vec bias = v < W - 1 ? load(p) : load_first(p, last);
            UNROLL for (int i = 0; i < H; i++) sums[i][v] += bias;
        }
    }
    if (t->bias_row) {
        UNROLL for (int i = 0; i < H; i++) {
            vec bias = broadcast(t->bias_row[i * t->bias_step]);
            UNROLL for (int v = 0; v < W; v++) sums[i][v] += bias;
        }
    }
    if (t->relu) {
        EACH_SUM(i, v, sums[i][v] = relu(sums[i][v]));
    }
    if (t->mask) {
        EACH_SUM(i, v, {
            const real *m = t->mask + i * t->mask_row + v * VL;
            sums[i][v] = masked(sums[i][v], v < W - 1 ? load(m) : load_first(m, last));
        })
    }
    if (last == VL) {
        EACH_SUM(i, v, store(t->c + i * t->c_row + v * VL, sums[i][v]));
    } else {
        EACH_SUM(i, v, {
            real *c = t->c + i * t->c_row + v * VL;
            if (v < W - 1)
                store(c, sums[i][v]);
            else
                store_first(c, sums[i][v], last);
        })
    }
}

/* One k: W vectors of B at b, times H numbers of A. There is one pointer for three rows of A: with
 * multiples of a_row as index registers that makes all addresses, and registers are few. */
INLINE void tile_step(const int H, const int W, const bool packing, vec sums[TILE_H][TILE_W],
                      const real *const *a, int64_t a_row, const real *b, int64_t last,
                      real *packed) {
    vec row[TILE_W];
    UNROLL for (int v = 0; v < W; v++) {
        row[v] = packing && v == W - 1 ? load_first(b + v * VL, last) : load(b + v * VL);
        if (packing) store(packed + v * VL, row[v]);
    }
    UNROLL for (int i = 0; i < H; i++) {
        const vec x = broadcast(a[i / 3][i % 3 * a_row]);
        UNROLL for (int v = 0; v < W; v++) sums[i][v] = multiply_add(x, row[v], sums[i][v]);
    }
}

/* How many rows of B ahead of their use the packing kernel asks for them. */
enum { PACK_AHEAD = 16 };

/* Computes a tile. H, W and `packing` are constants wherever this is inlined. The packing kernel
 * is the first to see a panel of B: it leaves a packed copy for the tiles below, and is the one
 * that can read a panel narrower than W vectors. */
INLINE void tile_compute(const int H, const int W, const bool packing, const tile *t) {
    vec sums[TILE_H][TILE_W];
    EACH_SUM(i, v, sums[i][v] = (vec){0});
    const int64_t a_row = t->a_row, a_col = t->a_col, b_row = t->b_row;
    const int64_t last = t->n - (W - 1) * VL;
    const real *a[(TILE_H + 2) / 3], *b = t->b;
    UNROLL for (int g = 0; g < (H + 2) / 3; g++) a[g] = t->a + 3 * g * a_row;
    real *packed = t->b_packed;
    uintptr_t ahead = (uintptr_t)t->ahead;
    const uintptr_t ahead_step = (uintptr_t)t->ahead_step * sizeof(real);

    if (t->accumulate) { /* or the end of the tile waits for C: it is often far away */
        EACH_SUM(i, v, __builtin_prefetch(t->c + i * t->c_row + v * VL, 1, 3));
    }
    int64_t k = t->k;
    for (; k >= 2; k -= 2) {
        UNROLL for (int twice = 0; twice < 2; twice++) {
            if (packing) {
                UNROLL for (int v = 0; v < W; v++) prefetch(b, PACK_AHEAD * b_row + v * VL);
            }
            tile_step(H, W, packing, sums, a, a_row, b, last, packed);
            UNROLL for (int g = 0; g < (H + 2) / 3; g++) a[g] += a_col;
            b += b_row;
            if (packing) packed += W * VL;
        }
        if (!packing) {
            __builtin_prefetch((const void *)ahead, 0, 2);
            ahead += ahead_step;
        }
    }
    if (k > 0) tile_step(H, W, packing, sums, a, a_row, b, last, packed);
    tile_store(H, W, t, sums);
}

/* tile_kernels[packing][W][H] */
typedef void (*tile_kernel)(const tile *t);
#define DEFINE_TILE(h, w)                                                                          \
    static void tile_##h##x##w(const tile *t) { tile_compute(h, w, false, t); }                    \
    static void tile_##h##x##w##_packing(const tile *t) { tile_compute(h, w, true, t); }
TILES(DEFINE_TILE)
#define TILE_ENTRY(h, w)         [w][h] = tile_##h##x##w,
#define TILE_ENTRY_PACKING(h, w) [w][h] = tile_##h##x##w##_packing,
static const tile_kernel tile_kernels[2][TILE_W + 1][TILE_H + 1] = {
    {TILES(TILE_ENTRY)},
    {TILES(TILE_ENTRY_PACKING)},
};
