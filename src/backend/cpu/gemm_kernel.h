/* gemm_kernel.h - the innermost loops: a tile of C that stays in registers.
 *
 * A tile is H rows by W vectors of C. For every k it reads W vectors of B and broadcasts H numbers
 * of A: H * W multiply-adds for H + W loads. The sums of one tile element are made in the order of
 * k whatever the tile's shape, so tiles may be cut in any way without changing a bit.
 */

/* The widest tile, and the highest for each width: as many sums as fit into the registers beside
 * W vectors of B and one of A (32 registers with AVX-512, 16 with AVX2 and SSE). Large products are
 * made of HIGH_TILES. */
#define TILES_1_TO_6(X, w)  X(1, w) X(2, w) X(3, w) X(4, w) X(5, w) X(6, w)
#define TILES_1_TO_8(X, w)  TILES_1_TO_6(X, w) X(7, w) X(8, w)
#define TILES_1_TO_14(X, w) TILES_1_TO_8(X, w) X(9, w) X(10, w) X(11, w) X(12, w) X(13, w) X(14, w)
#if defined(__AVX512F__)
enum { TILE_W = 4, TILE_H = 14 };
static const int tile_height[TILE_W + 1] = {0, 14, 14, 8, 6};
#define TILES(X)      TILES_1_TO_14(X, 1) TILES_1_TO_14(X, 2) TILES_1_TO_8(X, 3) TILES_1_TO_6(X, 4)
#define HIGH_TILES(X) X(12, 2) X(13, 2) X(14, 2) X(7, 3) X(8, 3) X(5, 4) X(6, 4)
#else
enum { TILE_W = 2, TILE_H = 8 };
static const int tile_height[TILE_W + 1] = {0, 8, 6};
#define TILES(X)      TILES_1_TO_8(X, 1) TILES_1_TO_6(X, 2)
#define HIGH_TILES(X) X(5, 2) X(6, 2)
#endif

/* Columns of the widest tile, and the longest run of k that a tile sums before C is touched: such
 * a panel of B (TILE_N x TILE_K) stays in the second-level cache, H rows of A in the first. */
enum { TILE_N = TILE_W * VL, TILE_K = 4096 / sizeof(real) };
_Static_assert((int)TILE_N <= (int)GD_GEMM_PANEL_MAX,
               "panels are wider than fill functions expect");

typedef struct tile {
    int64_t n, k;  /* columns to store, n <= W * VL; depth */
    const real *a; /* (H, k) */
    int64_t a_row, a_col;
    const real *b; /* (k, n), columns side by side */
    int64_t b_row;
    real *b_packed;     /* for the packing kernel: where B goes, with W * VL columns */
    const real *ahead;  /* a cache line to be fetched into the second-level cache meanwhile ... */
    int64_t ahead_step; /* ... and, after every other k, the next one, so much further on */
    real *c;            /* (H, n), columns side by side */
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
#define EACH_SUM(i, v, ...)                                 \
    UNROLL for (int i = 0; i < H; i++) {                    \
        UNROLL for (int v = 0; v < W; v++) { __VA_ARGS__; } \
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
            if (v < W - 1) store(c, sums[i][v]);
            else store_first(c, sums[i][v], last);
        })
    }
}

/* How A and B lie: with B packed there are kernels for an A that has its columns side by side (k),
 * or its rows. */
typedef enum tile_layout { ANYHOW, A_ALONG_K, A_ALONG_ROWS, LAYOUTS } tile_layout;

/* Rows of A for which there is one pointer: with multiples of a_row as index registers that makes
 * all addresses, and registers are few. */
INLINE int rows_a_pointer(const tile_layout layout, const int H) {
    return layout == A_ALONG_ROWS ? H : 3;
}

/* Where a tile is on its way along k. */
typedef struct tile_place {
    const real *a[(TILE_H + 2) / 3], *b;
    real *packed;
    uintptr_t ahead;
} tile_place;

/* How many rows of B ahead of their use the packing kernel asks for them. */
enum { PACK_AHEAD = 8 };

/* The next `depth` k. For each, W vectors of B, times H numbers of A. */
INLINE void tile_steps(const int depth, const int H, const int W, const bool packing,
                       const tile_layout layout, const tile *t, tile_place *at,
                       vec sums[TILE_H][TILE_W]) {
    const int rows = rows_a_pointer(layout, H);
    const int64_t a_row = layout == A_ALONG_ROWS ? 1 : t->a_row;
    const int64_t a_col = layout == A_ALONG_K ? 1 : t->a_col;
    const int64_t b_row = layout == ANYHOW ? t->b_row : W * VL;
    UNROLL for (int d = 0; d < depth; d++) {
        vec row[TILE_W];
        UNROLL for (int v = 0; v < W; v++) {
            const bool part = packing && v == W - 1; /* of a vector, maybe */
            const real *b = at->b + v * VL;
            row[v] = part ? load_first(b, t->n - (W - 1) * VL) : load(b);
            if (packing) {
                prefetch(b, PACK_AHEAD * b_row);
                store(at->packed + v * VL, row[v]);
            }
        }
        UNROLL for (int i = 0; i < H; i++) {
            const vec x = broadcast(at->a[i / rows][i % rows * a_row]);
            UNROLL for (int v = 0; v < W; v++) add_product(&sums[i][v], x, row[v]);
        }
        for (int g = 0; g < (H + rows - 1) / rows; g++) at->a[g] += a_col;
        at->b += b_row;
        if (packing) at->packed += W * VL;
        if (!packing && d % 2 == 1) {
            __builtin_prefetch((const void *)at->ahead, 0, 2);
            at->ahead += (uintptr_t)t->ahead_step * sizeof(real);
        }
    }
}

/* Computes a tile. H, W, `packing` and `layout` are constants wherever this is inlined. The packing
 * kernel is the first to see a panel of B: it leaves a packed copy for the tiles below, and is the
 * one that can read a panel narrower than W vectors.
 *
 * Loops of few instructions are faster by a percent, although multiplications alone fill the time:
 * this is why there are kernels for layouts. */
INLINE void tile_compute(const int H, const int W, const bool packing, const tile_layout layout,
                         const tile *given) {
    const int depth = layout == ANYHOW ? 2 : 4, rows = rows_a_pointer(layout, H);
    const tile copy = *given, *t = &copy; /* nothing that is written can change it */
    vec sums[TILE_H][TILE_W];
    EACH_SUM(i, v, sums[i][v] = (vec){0});
    tile_place at = {.b = t->b, .packed = t->b_packed, .ahead = (uintptr_t)t->ahead};
    for (int g = 0; g < (H + rows - 1) / rows; g++)
        at.a[g] = t->a + rows * g * (layout == A_ALONG_ROWS ? 1 : t->a_row);
    int64_t k = t->k;

    /* C is often far away, and is asked for before the end of the tile needs it: row by row, since
     * a core waits for a dozen cache lines at a time. */
    if (layout != ANYHOW && t->accumulate && k >= H * depth) {
        const real *c = t->c;
        for (int i = 0; i < H; i++, c += t->c_row, k -= depth) {
            UNROLL for (int v = 0; v < W; v++) __builtin_prefetch(c + v * VL, 1, 3);
            tile_steps(depth, H, W, packing, layout, t, &at, sums);
        }
    } else if (t->accumulate) {
        EACH_SUM(i, v, __builtin_prefetch(t->c + i * t->c_row + v * VL, 1, 3));
    }
    for (; k >= depth; k -= depth) tile_steps(depth, H, W, packing, layout, t, &at, sums);
    for (; k > 0; k--) tile_steps(1, H, W, packing, layout, t, &at, sums);
    tile_store(H, W, t, sums);
}

/* tile_kernels[how][W][H]: for each layout, and the one that packs. Only high tiles have kernels for
 * all layouts. */
enum { PACKING = LAYOUTS };
typedef void (*tile_kernel)(const tile *t);
#define DEFINE_TILE(h, w)                                                               \
    static void tile_##h##x##w(const tile *t) { tile_compute(h, w, false, ANYHOW, t); } \
    static void tile_##h##x##w##_packing(const tile *t) { tile_compute(h, w, true, ANYHOW, t); }
#define DEFINE_HIGH_TILE(h, w)                                                                 \
    static void tile_##h##x##w##_k(const tile *t) { tile_compute(h, w, false, A_ALONG_K, t); } \
    static void tile_##h##x##w##_rows(const tile *t) { tile_compute(h, w, false, A_ALONG_ROWS, t); }
TILES(DEFINE_TILE)
HIGH_TILES(DEFINE_HIGH_TILE)
#define TILE_ENTRY(h, w)         [w][h] = tile_##h##x##w,
#define TILE_ENTRY_PACKING(h, w) [w][h] = tile_##h##x##w##_packing,
#define TILE_ENTRY_K(h, w)       [w][h] = tile_##h##x##w##_k,
#define TILE_ENTRY_ROWS(h, w)    [w][h] = tile_##h##x##w##_rows,
static const tile_kernel tile_kernels[LAYOUTS + 1][TILE_W + 1][TILE_H + 1] = {
    [ANYHOW] = {TILES(TILE_ENTRY)},
    [PACKING] = {TILES(TILE_ENTRY_PACKING)},
    [A_ALONG_K] = {HIGH_TILES(TILE_ENTRY_K)},
    [A_ALONG_ROWS] = {HIGH_TILES(TILE_ENTRY_ROWS)},
};

INLINE tile_kernel kernel_for(const tile *t, bool packing, int64_t width, int64_t height) {
    if (packing) return tile_kernels[PACKING][width][height];
    const int how = t->b_row != width * VL ? ANYHOW
                    : t->a_row == 1        ? A_ALONG_ROWS
                    : t->a_col == 1        ? A_ALONG_K
                                           : ANYHOW;
    const tile_kernel kernel = tile_kernels[how][width][height];
    return kernel ? kernel : tile_kernels[ANYHOW][width][height];
}
