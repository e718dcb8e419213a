/* gemm_epilogue.h - writes C from a row-major (m, n) buffer of sums, with bias, activation and
 * mask.
 *
 * The micro-kernel applies the epilogue in registers (tile_store in gemm_microkernel.h) if C has
 * contiguous rows and the dtype of the accumulators. This file handles every other C: f16 and bf16,
 * any strides, and biases that the micro-kernel cannot add. A column-major C is written from
 * transposed blocks of the buffer.
 */

/* Whether write_c_blocks can write C: contiguous columns, no conversion, no mask. */
static bool can_transpose_in_registers(const gd_gemm *g) {
    const bool bias_fits =
        !g->bias.data || (g->bias.dtype == REAL_DTYPE && (g->bias.row == 0 || g->bias.row == 1));
    return g->c.dtype == REAL_DTYPE && g->c.row == 1 && bias_fits && !g->mask.data &&
           !g->accumulate;
}

/* Writes a column-major C, m and n multiples of VL: transposes VL x VL blocks of the sums in
 * registers. The loop over rows is the inner one, so that VL columns of C are written at a time,
 * each from its start to its end. */
static void write_c_blocks(const gd_gemm *g, const real *sums, int64_t step, int64_t m, int64_t n) {
    const bool with_relu = g->act == GD_GEMM_RELU;
    for (int64_t j = 0; j < n; j += VL)
        for (int64_t i = 0; i < m; i += VL) {
            const real *bias = gd_gemm_in_at(g->bias, i, j).data;
            real *c = (real *)g->c.data + i + j * g->c.col;
            for (int d = 0; d < VL; d += TRANSPOSE_DEPTH) {
                vec x[TRANSPOSE_DEPTH];
                transpose_strided(sums + i * step + j + d, step, x);
                UNROLL for (int t = 0; t < TRANSPOSE_DEPTH; t++) {
                    if (bias) {
                        const real *add = bias + (d + t) * g->bias.col;
                        x[t] += g->bias.row ? load(add) : broadcast(*add);
                    }
                    store(c + (d + t) * g->c.col, with_relu ? relu(x[t]) : x[t]);
                }
            }
        }
}

/* Writes `n` elements of C from (i, j) on, along a row or along a column. */
static void write_c_span(const gd_gemm *g, const real *sums, int64_t i, int64_t j, int64_t n,
                         bool along_column) {
    const gd_gemm_out c = gd_gemm_out_at(g->c, i, j);
    const gd_gemm_in bias = gd_gemm_in_at(g->bias, i, j);
    const int64_t c_step = along_column ? c.row : c.col;
    const int64_t bias_step = along_column ? bias.row : bias.col;
    const gd_gemm_in m = gd_gemm_in_at(g->mask, i, j);
    const int64_t m_step = along_column ? m.row : m.col;
    for (int64_t at = 0; at < n; at += VL) {
        void *to = (void *)gd_gemm_at(c.data, c.dtype, at * c_step);
        vec x = load_first(sums + at, n - at);
        if (g->accumulate) x += read_vec(to, c.dtype, c_step, n - at);
        if (bias.data)
            x += read_vec(gd_gemm_at(bias.data, bias.dtype, at * bias_step), bias.dtype, bias_step,
                          n - at);
        if (g->act == GD_GEMM_RELU) x = relu(x);
        if (m.data)
            x = masked(x,
                       read_vec(gd_gemm_at(m.data, m.dtype, at * m_step), m.dtype, m_step, n - at));
        write_vec(to, c.dtype, c_step, x, n - at);
    }
}

/* Writes rows i to m and columns j to n of a column-major C: transposes the sums into a small tile
 * and writes its columns with write_c_span. For the tails and for what write_c_blocks excludes. */
static void write_c_staged(const gd_gemm *g, const real *sums, int64_t step, int64_t i, int64_t m,
                           int64_t j, int64_t n) {
    enum { STAGE_M = 4 * VL, STAGE_N = 32 }; /* the tile in rows and columns */
    GD_TILE(real, stage, STAGE_N * STAGE_M);
    for (int64_t at = i; at < m; at += STAGE_M)
        for (int64_t from = j; from < n; from += STAGE_N) {
            const int64_t rows = min64(m - at, STAGE_M), columns = min64(n - from, STAGE_N);
            pack_source s = {sums + at * step + from, REAL_DTYPE, step, 1};
            pack_transposed(stage, STAGE_M, s, rows, columns);
            for (int64_t x = 0; x < columns; x++)
                write_c_span(g, stage + x * STAGE_M, at, from + x, rows, true);
        }
}

/* Writes all of C; `sums` is (m, n) with leading dimension `step`. */
static void write_c(const gd_gemm *g, const real *sums, int64_t step) {
    if (g->c.row != 1 || g->c.col == 1) {
        for (int64_t i = 0; i < g->m; i++) write_c_span(g, sums + i * step, i, 0, g->n, false);
        return;
    }
    const int64_t m = can_transpose_in_registers(g) ? g->m / VL * VL : 0, n = g->n / VL * VL;
    write_c_blocks(g, sums, step, m, n);
    write_c_staged(g, sums, step, 0, m, n, g->n);
    write_c_staged(g, sums, step, m, g->m, 0, g->n);
}
