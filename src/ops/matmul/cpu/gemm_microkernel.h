/* gemm_microkernel.h - the micro-kernel: accumulates an mr x nr tile of C in registers.
 *
 * A tile is H rows (mr) by W vectors (nr = W * VL columns) of C. For every k the micro-kernel loads
 * W vectors of B, broadcasts H scalars of A and does the H * W multiply-adds of an outer product.
 * Every element of a tile is summed in the order of k for any tile shape, so a block may be divided
 * into any tiles without changing a bit.
 */

/* The largest W (TILE_W), and the largest H for each W: the accumulators, W vectors of B and one of
 * A fill the register file (32 registers with AVX-512, 16 with AVX2 and SSE) without spills. Large
 * products consist of TALL_TILES. */
#define TILES_1_TO_6(X, w)  X(1, w) X(2, w) X(3, w) X(4, w) X(5, w) X(6, w)
#define TILES_1_TO_8(X, w)  TILES_1_TO_6(X, w) X(7, w) X(8, w)
#define TILES_1_TO_14(X, w) TILES_1_TO_8(X, w) X(9, w) X(10, w) X(11, w) X(12, w) X(13, w) X(14, w)
#if defined(__AVX512F__)
enum { TILE_W = 4, TILE_H = 14 };
static const int tile_height[TILE_W + 1] = {0, 14, 14, 8, 6};
#define TILES(X)      TILES_1_TO_14(X, 1) TILES_1_TO_14(X, 2) TILES_1_TO_8(X, 3) TILES_1_TO_6(X, 4)
#define TALL_TILES(X) X(12, 2) X(13, 2) X(14, 2) X(7, 3) X(8, 3) X(5, 4) X(6, 4)
#else
enum { TILE_W = 2, TILE_H = 8 };
static const int tile_height[TILE_W + 1] = {0, 8, 6};
#define TILES(X)      TILES_1_TO_8(X, 1) TILES_1_TO_6(X, 2)
#define TALL_TILES(X) X(5, 2) X(6, 2)
#endif

/* Columns of the widest tile (nr), and the largest depth of a panel (kc). A panel of B
 * (TILE_N x TILE_K) stays in L2, a strip of A (H x TILE_K) in L1. */
enum { TILE_N = TILE_W * VL, TILE_K = 4096 / sizeof(real) };
_Static_assert((int)TILE_N <= (int)GD_GEMM_PANEL_MAX,
               "panels are wider than fill functions expect");

typedef struct tile {
    int64_t n, k;  /* columns to store, n <= W * VL; depth of the sums */
    const real *a; /* (H, k) */
    int64_t a_row, a_col;
    const real *b; /* (k, n), contiguous rows */
    int64_t b_row;
    real *b_packed;          /* output of the packing kernels: (k, W * VL) */
    const real *prefetch_at; /* the next cache line to prefetch into L2 */
    int64_t prefetch_step;   /* added to it after every second k */
    real *c;                 /* (H, n), contiguous rows */
    int64_t c_row;
    bool accumulate;
    bool relu;
    real scale;           /* of the product */
    const real *bias_col; /* one value per column, or NULL */
    const real *bias_row; /* one value per row, `bias_step` apart, or NULL */
    int64_t bias_step;
    const real *mask; /* (H, n), contiguous rows, or NULL */
    int64_t mask_row;
} tile;

/* Runs a statement for each accumulator of a tile: row i, vector v. */
#define EACH_SUM(i, v, ...)                                 \
    UNROLL for (int i = 0; i < H; i++) {                    \
        UNROLL for (int v = 0; v < W; v++) { __VA_ARGS__; } \
    }

/* Applies the epilogue to the accumulators and stores them to C. */
INLINE void tile_store(const int H, const int W, const tile *t, vec sums[TILE_H][TILE_W]) {
    /* All vectors but the last have VL columns. */
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

/* The memory layout of the operands. With a packed B there are specialized kernels for an A that is
 * contiguous along k (row-major) and for one that is contiguous along m (packed or
 * column-major). */
typedef enum tile_layout { ANY_LAYOUT, A_K_CONTIGUOUS, A_M_CONTIGUOUS, LAYOUTS } tile_layout;

/* Rows of A that share one pointer. x86 addressing reaches three rows from a pointer, at 0, 1 and 2
 * times a_row; more pointers would not fit into the general-purpose registers. */
INLINE int rows_per_pointer(const tile_layout layout, const int H) {
    return layout == A_M_CONTIGUOUS ? H : 3;
}

/* The position of a tile along k. */
typedef struct tile_cursor {
    const real *a[(TILE_H + 2) / 3], *b;
    real *packed;
    uintptr_t prefetch_at;
} tile_cursor;

/* How many rows of B the packing kernels prefetch ahead. */
enum { PACK_PREFETCH_ROWS = 8 };

/* Accumulates the outer products of the next `depth` k: W vectors of B by H scalars of A. */
INLINE void tile_steps(const int depth, const int H, const int W, const bool packing,
                       const tile_layout layout, const tile *t, tile_cursor *at,
                       vec sums[TILE_H][TILE_W]) {
    const int rows = rows_per_pointer(layout, H);
    const int64_t a_row = layout == A_M_CONTIGUOUS ? 1 : t->a_row;
    const int64_t a_col = layout == A_K_CONTIGUOUS ? 1 : t->a_col;
    const int64_t b_row = layout == ANY_LAYOUT ? t->b_row : W * VL;
    UNROLL for (int d = 0; d < depth; d++) {
        vec row[TILE_W];
        UNROLL for (int v = 0; v < W; v++) {
            const bool is_partial = packing && v == W - 1; /* the last vector may be partial */
            const real *b = at->b + v * VL;
            row[v] = is_partial ? load_first(b, t->n - (W - 1) * VL) : load(b);
            if (packing) {
                prefetch(b, PACK_PREFETCH_ROWS * b_row);
                store(at->packed + v * VL, row[v]);
            }
        }
        UNROLL for (int i = 0; i < H; i++) {
            const vec x = broadcast(at->a[i / rows][i % rows * a_row]);
            UNROLL for (int v = 0; v < W; v++) multiply_add_to(&sums[i][v], x, row[v]);
        }
        for (int g = 0; g < (H + rows - 1) / rows; g++) at->a[g] += a_col;
        at->b += b_row;
        if (packing) at->packed += W * VL;
        if (!packing && d % 2 == 1) {
            __builtin_prefetch((const void *)at->prefetch_at, 0, 2);
            at->prefetch_at += (uintptr_t)t->prefetch_step * sizeof(real);
        }
    }
}

/* Computes a tile. H, W, `packing` and `layout` are constants in every instance.
 *
 * A packing kernel is the first to read a panel of B: besides computing its tile, it writes the
 * packed panel that the tiles below read. Only the packing kernels can read a panel whose last
 * vector is partial.
 *
 * The kernels specialized by layout have fewer address computations. They are about 1 % faster,
 * although the loop is bound by its multiply-adds. */
INLINE void tile_compute(const int H, const int W, const bool packing, const tile_layout layout,
                         const tile *given) {
    const int depth = layout == ANY_LAYOUT ? 2 : 4, rows = rows_per_pointer(layout, H);
    const tile copy = *given, *t = &copy; /* a local copy: no store can alias it */
    vec sums[TILE_H][TILE_W];
    EACH_SUM(i, v, sums[i][v] = (vec){0});
    tile_cursor at = {.b = t->b, .packed = t->b_packed, .prefetch_at = (uintptr_t)t->prefetch_at};
    for (int g = 0; g < (H + rows - 1) / rows; g++)
        at.a[g] = t->a + rows * g * (layout == A_M_CONTIGUOUS ? 1 : t->a_row);
    int64_t k = t->k;

    /* C is often not in cache, so it is prefetched long before the epilogue reads it. The
     * prefetches are spread over the first k, one row each, because a core has only about a dozen
     * outstanding cache misses. */
    if (layout != ANY_LAYOUT && t->accumulate && k >= H * depth) {
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

/* tile_kernels[layout or PACKING][W][H]. Only TALL_TILES have kernels for all layouts. */
enum { PACKING = LAYOUTS };
typedef void (*tile_kernel)(const tile *t);
#define DEFINE_TILE(h, w)                                                                   \
    static void tile_##h##x##w(const tile *t) { tile_compute(h, w, false, ANY_LAYOUT, t); } \
    static void tile_##h##x##w##_packing(const tile *t) { tile_compute(h, w, true, ANY_LAYOUT, t); }
#define DEFINE_TALL_TILE(h, w)                         \
    static void tile_##h##x##w##_k(const tile *t) {    \
        tile_compute(h, w, false, A_K_CONTIGUOUS, t);  \
    }                                                  \
    static void tile_##h##x##w##_rows(const tile *t) { \
        tile_compute(h, w, false, A_M_CONTIGUOUS, t);  \
    }
TILES(DEFINE_TILE)
TALL_TILES(DEFINE_TALL_TILE)
#define TILE_ENTRY(h, w)         [w][h] = tile_##h##x##w,
#define TILE_ENTRY_PACKING(h, w) [w][h] = tile_##h##x##w##_packing,
#define TILE_ENTRY_K(h, w)       [w][h] = tile_##h##x##w##_k,
#define TILE_ENTRY_ROWS(h, w)    [w][h] = tile_##h##x##w##_rows,
static const tile_kernel tile_kernels[LAYOUTS + 1][TILE_W + 1][TILE_H + 1] = {
    [ANY_LAYOUT] = {TILES(TILE_ENTRY)},
    [PACKING] = {TILES(TILE_ENTRY_PACKING)},
    [A_K_CONTIGUOUS] = {TALL_TILES(TILE_ENTRY_K)},
    [A_M_CONTIGUOUS] = {TALL_TILES(TILE_ENTRY_ROWS)},
};

INLINE tile_kernel tile_kernel_for(const tile *t, bool packing, int64_t width, int64_t height) {
    if (packing) return tile_kernels[PACKING][width][height];
    const int how = t->b_row != width * VL ? ANY_LAYOUT
                    : t->a_row == 1        ? A_M_CONTIGUOUS
                    : t->a_col == 1        ? A_K_CONTIGUOUS
                                           : ANY_LAYOUT;
    const tile_kernel kernel = tile_kernels[how][width][height];
    return kernel ? kernel : tile_kernels[ANY_LAYOUT][width][height];
}
