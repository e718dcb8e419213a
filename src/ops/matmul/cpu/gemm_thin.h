/* gemm_thin.h - GEMV and products of very few rows. Each element of B is used only once or a few
 * times, so memory bandwidth is the limit: these kernels read B once, in memory order, and do not
 * pack it.
 */

static bool is_thin(const gd_gemm *g) {
    if (g->fill_b) return false;
    if (g->m > gd_gemm_thin_rows(GD_ISA_IS) || g->a.dtype != REAL_DTYPE || g->b.dtype != REAL_DTYPE)
        return false;
    return (g->m == 1 && g->b.col == 1) || (g->a.col == 1 && g->b.row == 1);
}

INLINE real product_scale(const gd_gemm *g) { return g->scaled ? (real)g->scale : 1; }

/* --- GEMV, rows of B contiguous: accumulators are vectors of columns ------------------------- */

enum { THIN_W = 8 };

/* totals = the row of A times W vectors of columns of B from j on; the last vector has `last`
 * columns. Like the micro-kernel, starts new accumulators every TILE_K products, which limits
 * rounding errors. */
INLINE void vector_times_panel(const int W, const gd_gemm *g, int64_t j, int64_t last,
                               vec totals[THIN_W]) {
    UNROLL for (int v = 0; v < W; v++) totals[v] = (vec){0};
    const real *a = g->a.data, *b = (const real *)g->b.data + j;
    const int64_t runs = divide_up(g->k, TILE_K);
    for (int64_t run = 0; run < runs; run++) {
        vec sums[THIN_W];
        UNROLL for (int v = 0; v < W; v++) sums[v] = (vec){0};
        for (int64_t k = split_point(g->k, run, runs); k < split_point(g->k, run + 1, runs); k++) {
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

static void compute_vector_times_matrix(const gd_gemm *g) {
    const vec scale = broadcast(product_scale(g));
    int64_t done = 0;
    while (done < g->n) {
        /* The last panel overlaps the one before rather than being narrow; the columns that are
         * computed twice are dropped. */
        const int64_t j = g->n >= THIN_W * VL ? min64(done, g->n - THIN_W * VL) : 0;
        const int64_t width = min64(divide_up(g->n - j, VL), THIN_W);
        const int64_t n = min64(width * VL, g->n - j), last = n - (width - 1) * VL;
        vec sums[THIN_W];
        switch (width) {
        case 1: vector_times_panel(1, g, j, last, sums); break;
        case 2: vector_times_panel(2, g, j, last, sums); break;
        case 3: vector_times_panel(3, g, j, last, sums); break;
        case 4: vector_times_panel(4, g, j, last, sums); break;
        case 5: vector_times_panel(5, g, j, last, sums); break;
        case 6: vector_times_panel(6, g, j, last, sums); break;
        case 7: vector_times_panel(7, g, j, last, sums); break;
        default: vector_times_panel(8, g, j, VL, sums); break;
        }
        real stage[THIN_W * VL];
        for (int64_t v = 0; v < width; v++) store(stage + v * VL, sums[v] * scale);
        write_c_span(g, stage + (done - j), 0, done, j + n - done, false);
        done = j + n;
    }
}

/* --- few rows, A and B contiguous along k: dot products -------------------------------------- */

/* sums[i * step + x] = row i of A times column j + x of B, for H rows and C columns. */
INLINE void dot_products(const int H, const int C, const gd_gemm *g, int64_t j, real *sums,
                         int64_t step) {
    /* Missing columns repeat the last one. */
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
        UNROLL for (int x = 0; x < C; x++) sums[i * step + x] =
            sum_lanes(dots[i][x]) * product_scale(g);
    }
}

static void compute_dot_products(const gd_gemm *g) {
    enum { STAGE_N = 64 };
    real stage[GD_GEMM_THIN_ROWS_MAX * STAGE_N];
    for (int64_t j = 0; j < g->n; j += STAGE_N) {
        const int64_t n = min64(g->n - j, STAGE_N);
        for (int64_t x = 0; x < n; x += g->m == 1 ? 8 : 4) {
            switch (g->m) {
            case 1: dot_products(1, 8, g, j + x, stage + x, STAGE_N); break;
            case 2: dot_products(2, 4, g, j + x, stage + x, STAGE_N); break;
#if defined(__AVX512F__)
            case 3: dot_products(3, 4, g, j + x, stage + x, STAGE_N); break;
            case 4: dot_products(4, 4, g, j + x, stage + x, STAGE_N); break;
#endif
            }
        }
        for (int64_t i = 0; i < g->m; i++) write_c_span(g, stage + i * STAGE_N, i, j, n, false);
    }
}

static gd_status compute_thin_block(const gd_gemm *g) {
    if (g->m == 1 && g->b.col == 1) compute_vector_times_matrix(g);
    else compute_dot_products(g);
    return GD_OK;
}
