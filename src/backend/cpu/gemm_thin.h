/* gemm_thin.h - products with so few rows that each element of B is used once or a few times.
 * They are bound by reading B, so B is read once, in the order in which it lies, and never copied.
 */

static bool is_thin(const gd_gemm *g) {
    if (g->fill_b) return false;
    if (g->m > gd_gemm_thin_rows(GD_ISA_IS) || g->a.dtype != REAL_DTYPE || g->b.dtype != REAL_DTYPE)
        return false;
    return (g->m == 1 && g->b.col == 1) || (g->a.col == 1 && g->b.row == 1);
}

INLINE real scale_of(const gd_gemm *g) { return g->scaled ? (real)g->scale : 1; }

/* --- one row, columns contiguous in B: sums along the row ------------------------------------- */

enum { THIN_W = 8 };

/* totals gets the row times W vectors of columns from j on. The last vector has `last` columns. As
 * in tiles, no more than TILE_K products are added to one sum. */
INLINE void row_times_panel(const int W, const gd_gemm *g, int64_t j, int64_t last,
                            vec totals[THIN_W]) {
    UNROLL for (int v = 0; v < W; v++) totals[v] = (vec){0};
    const real *a = g->a.data, *b = (const real *)g->b.data + j;
    const int64_t runs = divide_up(g->k, TILE_K);
    for (int64_t run = 0; run < runs; run++) {
        vec sums[THIN_W];
        UNROLL for (int v = 0; v < W; v++) sums[v] = (vec){0};
        for (int64_t k = cut(g->k, run, runs); k < cut(g->k, run + 1, runs); k++) {
            const real *row = b + k * g->b.row;
            vec x = broadcast(a[k * g->a.col]);
            UNROLL for (int v = 0; v < W; v++) {
                vec y = v < W - 1 ? load(row + v * VL) : load_first(row + v * VL, last);
                sums[v] = multiply_add(x, y, sums[v]);
            }
        }
        UNROLL for (int v = 0; v < W; v++) totals[v] += sums[v];
    }
}

static void compute_row(const gd_gemm *g) {
    const vec scale = broadcast(scale_of(g));
    int64_t done = 0;
    while (done < g->n) {
        /* The last panel begins early rather than being narrow: what it finds again is dropped. */
        const int64_t j = g->n >= THIN_W * VL ? min64(done, g->n - THIN_W * VL) : 0;
        const int64_t width = min64(divide_up(g->n - j, VL), THIN_W);
        const int64_t n = min64(width * VL, g->n - j), last = n - (width - 1) * VL;
        vec sums[THIN_W];
        switch (width) {
        case 1: row_times_panel(1, g, j, last, sums); break;
        case 2: row_times_panel(2, g, j, last, sums); break;
        case 3: row_times_panel(3, g, j, last, sums); break;
        case 4: row_times_panel(4, g, j, last, sums); break;
        case 5: row_times_panel(5, g, j, last, sums); break;
        case 6: row_times_panel(6, g, j, last, sums); break;
        case 7: row_times_panel(7, g, j, last, sums); break;
        default: row_times_panel(8, g, j, VL, sums); break;
        }
        real stage[THIN_W * VL];
        for (int64_t v = 0; v < width; v++) store(stage + v * VL, sums[v] * scale);
        finish_run(g, stage + (done - j), 0, done, j + n - done, false);
        done = j + n;
    }
}

/* --- a few rows, k contiguous in A and B: sums along k ---------------------------------------- */

/* sums[i * step + x] gets row i of A times column j + x of B, for H rows and C columns. */
INLINE void rows_times_columns(const int H, const int C, const gd_gemm *g, int64_t j, real *sums,
                               int64_t step) {
    /* Columns beyond the last are the last again. */
    const real *a[GD_GEMM_THIN_ROWS_MAX], *b[8];
    UNROLL for (int i = 0; i < H; i++) a[i] = (const real *)g->a.data + i * g->a.row;
    UNROLL for (int x = 0; x < C; x++) {
        b[x] = (const real *)g->b.data + min64(j + x, g->n - 1) * g->b.col;
    }
    vec dots[GD_GEMM_THIN_ROWS_MAX][8];
    UNROLL for (int i = 0; i < H; i++) { UNROLL for (int x = 0; x < C; x++) dots[i][x] = (vec){0}; }
    for (int64_t k = 0; k < g->k; k += VL) {
        const int64_t left = g->k - k;
        vec column[8];
        UNROLL for (int x = 0; x < C; x++) {
            column[x] = left >= VL ? load(b[x] + k) : load_first(b[x] + k, left);
        }
        UNROLL for (int i = 0; i < H; i++) {
            vec row = left >= VL ? load(a[i] + k) : load_first(a[i] + k, left);
            UNROLL for (int x = 0; x < C; x++) {
                dots[i][x] = multiply_add(row, column[x], dots[i][x]);
            }
        }
    }
    UNROLL for (int i = 0; i < H; i++) {
        UNROLL for (int x = 0; x < C; x++) sums[i * step + x] = sum_of(dots[i][x]) * scale_of(g);
    }
}

static void compute_dots(const gd_gemm *g) {
    enum { STAGE_N = 64 };
    real stage[GD_GEMM_THIN_ROWS_MAX * STAGE_N];
    for (int64_t j = 0; j < g->n; j += STAGE_N) {
        const int64_t n = min64(g->n - j, STAGE_N);
        for (int64_t x = 0; x < n; x += g->m == 1 ? 8 : 4) {
            switch (g->m) {
            case 1: rows_times_columns(1, 8, g, j + x, stage + x, STAGE_N); break;
            case 2: rows_times_columns(2, 4, g, j + x, stage + x, STAGE_N); break;
#if defined(__AVX512F__)
            case 3: rows_times_columns(3, 4, g, j + x, stage + x, STAGE_N); break;
            case 4: rows_times_columns(4, 4, g, j + x, stage + x, STAGE_N); break;
#endif
            }
        }
        for (int64_t i = 0; i < g->m; i++) finish_run(g, stage + i * STAGE_N, i, j, n, false);
    }
}

static gd_status compute_thin(const gd_gemm *g) {
    if (g->m == 1 && g->b.col == 1) compute_row(g);
    else compute_dots(g);
    return GD_OK;
}
