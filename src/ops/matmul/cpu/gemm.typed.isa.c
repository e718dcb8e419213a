/* gemm.typed.isa.c - computes one block of a matrix product on one thread, for `real` and for the
 * instruction set that is being compiled (gemm_vector.h).
 *
 * This is the Goto/BLIS algorithm. The loops from the outside in: blocks of k (kc = TILE_K), panels
 * of B (kc x nr, nr = TILE_N), strips of A (mr x kc), and the micro-kernel, which accumulates an mr
 * x nr tile of C in registers. The loop over blocks of rows and columns (mc, nc) is in gemm.c.
 *
 * Unlike BLIS, it packs only where that pays. A panel of B is packed if enough strips reuse it: by
 * the micro-kernel of the first strip, or in advance if B has to be transposed or widened. A is
 * read in strip_step unless its strides make that slow.
 *
 * Sums of several blocks of k accumulate in C. If C has another dtype or is not row-major, they
 * accumulate in a row-major buffer, and gemm_epilogue.h writes C from it. With one block of k, a
 * buffer of one panel is enough.
 */
#include "core/tile.h"
#include "ops/matmul/cpu/gemm_vector.h"
#include "ops/matmul/cpu/gemm_half.h"
#include "ops/matmul/cpu/gemm_pack.h"
#include "ops/matmul/cpu/gemm_microkernel.h"
#include "ops/matmul/cpu/gemm_epilogue.h"
#include "ops/matmul/cpu/gemm_thin.h"

/* How to compute a block; depends only on its shape, strides and dtypes. */
typedef struct block_plan {
    int64_t k_blocks;
    int64_t vectors; /* in a row of C */
    int64_t panels;  /* of B; their widths differ by at most one vector */
    bool pack_a;
    bool pack_b;
    bool transpose_b;      /* B is transposed, widened or filled before the micro-kernel runs */
    bool buffer_sums;      /* tiles go to `sums` instead of C */
    bool buffer_one_panel; /* `sums` holds one panel, and C is written after each panel */
    int height;         /* rows of a strip (mr) if A is packed; all panels share the strips then */
    real *a, *b, *sums; /* scratch memory */
} block_plan;

/* A matrix B of at most this size stays in L1 and is not packed. */
enum { SMALL_B_BYTES = 20000 };

/* Rows or columns whose stride is a multiple of 4096 bytes map to the same few cache sets. */
static bool has_cache_conflicts(int64_t step) { return step * (int64_t)sizeof(real) % 4096 == 0; }

/* Packing A pays off if a row of C has at least this many vectors and A is not contiguous along k,
 * and either k is long (see GD_GEMM_LONG_K) or the columns of A conflict in the cache. */
enum { PACK_A_VECTORS = 4 };

static bool pays_to_pack_a(const gd_gemm *g, int64_t vectors) {
    if (g->a.dtype != REAL_DTYPE) return true;
    return g->a.col != 1 && vectors >= PACK_A_VECTORS &&
           (g->k > GD_GEMM_LONG_K || has_cache_conflicts(g->a.col));
}

static block_plan plan_block(const gd_gemm *g) {
    block_plan p = {.k_blocks = g->k > 0 ? divide_up(g->k, TILE_K) : 1,
                    .vectors = divide_up(g->n, VL)};
    p.panels = divide_up(p.vectors, TILE_W);
    p.height = tile_height[divide_up(p.vectors, p.panels)];
    p.pack_a = pays_to_pack_a(g, p.vectors);
    p.transpose_b = g->fill_b || g->b.dtype != REAL_DTYPE || g->b.col != 1;
    const bool small_b = g->k * g->b.row * (int64_t)sizeof(real) <= SMALL_B_BYTES;
    const bool a_panel = g->b.row <= TILE_N; /* B already has the layout of a packed panel */
    p.pack_b = p.transpose_b || (!a_panel && ((g->m > GD_GEMM_PACK_B_ROWS && !small_b) ||
                                              (has_cache_conflicts(g->b.row) && g->m > p.height)));
    bool bias_fits = !g->bias.data || g->bias.col == 0 || (g->bias.row == 0 && g->bias.col == 1);
    const bool mask_fits = !g->mask.data || g->mask.col == 1;
    p.buffer_sums = g->c.dtype != REAL_DTYPE || g->c.col != 1 || !bias_fits || !mask_fits;
    p.buffer_one_panel = p.buffer_sums && p.k_blocks == 1;
    return p;
}

/* The distance between packed strips. */
INLINE int64_t strip_size(const block_plan *p, int64_t depth) {
    return p->height * depth + PACK_SLACK;
}

/* Allocates the scratch memory; false if there is none. */
static bool allocate_block_scratch(const gd_gemm *g, block_plan *p) {
    enum { PAGE = 4096 / sizeof(real) };
    const int64_t depth = divide_up(g->k, p->k_blocks);
    /* A last panel with a partial vector is packed even if the others are not. */
    const bool any_b = p->pack_b || g->n % VL != 0;
    const int64_t a = p->pack_a ? divide_up(g->m, p->height) * strip_size(p, depth) : 0;
    const int64_t b = any_b ? divide_up(TILE_N * depth + PACK_SLACK, PAGE) * PAGE : 0;
    const int64_t sums = p->buffer_sums ? g->m * (p->buffer_one_panel ? TILE_N : g->n) : 0;
    if (a + b + sums == 0) return true;
    p->b = gd_gemm_scratch(GD_GEMM_SCRATCH_BLOCK, (size_t)(a + b + sums) * sizeof(real));
    p->sums = p->b + b;
    p->a = p->sums + sums;
    return p->b != NULL;
}

/* Packs all strips of A. If A is contiguous along m, packs 16 k of all strips at a time, so that
 * each page and cache line of A is visited once. */
static void pack_strips(const gd_gemm *g, const block_plan *p, int64_t k, int64_t depth) {
    const int64_t step = g->a.row == 1 ? 16 : depth;
    const int64_t strips = divide_up(g->m, p->height), strip_step = strip_size(p, depth);
    for (int64_t d = 0; d < depth; d += step) {
        const int64_t count = min64(depth - d, step);
        /* The same heights as split_point() gives, computed incrementally. */
        const int64_t quotient = g->m / strips, remainder = g->m % strips;
        for (int64_t s = 0, i = 0, error = 0; s < strips; s++) {
            int64_t height = quotient;
            error += remainder;
            if (error >= strips) error -= strips, height++;
            pack(p->a + s * strip_step + d * height, height, strip_source(g->a, i, k + d), height,
                 count);
            i += height;
        }
    }
}

/* The tile of the first strip of a panel: everything except A, B and k. */
static tile first_tile_of_panel(const gd_gemm *g, const block_plan *p, int64_t k_block, int64_t j,
                                int64_t n) {
    tile t = {.n = n, .scale = g->scaled ? (real)g->scale : 1};
    if (p->buffer_sums) {
        t.c = p->sums + (p->buffer_one_panel ? 0 : j);
        t.c_row = p->buffer_one_panel ? TILE_N : g->n;
        t.accumulate = k_block > 0;
        return t;
    }
    t.c = (real *)g->c.data + j;
    t.c_row = g->c.row;
    t.accumulate = g->accumulate || k_block > 0;
    if (k_block < p->k_blocks - 1) return t;
    t.relu = g->act == GD_GEMM_RELU;
    if (g->mask.data) {
        t.mask = (const real *)g->mask.data + j;
        t.mask_row = g->mask.row;
    }
    const real *bias = g->bias.data;
    if (bias && g->bias.col == 1 && g->bias.row == 0) {
        t.bias_col = bias + j;
    } else if (bias) {
        t.bias_row = bias;
        t.bias_step = g->bias.row;
    }
    return t;
}

/* Whether rows of k elements are contiguous, up to less than a cache line of padding. */
static bool is_dense(int64_t step, int64_t k) {
    return step >= k && step < k + 64 / (int64_t)sizeof(real);
}

/* Chooses what a tile prefetches into L2 while it computes. `tiles_left` counts the later tiles of
 * the panel, each of at most `height` rows.
 *
 * The last tiles of a panel prefetch the next panel of B, which starts at (k, j); its first tile
 * would stall otherwise, because every row of B is on another page. Each of these tiles prefetches
 * one vector of half of the rows. If B has to be transposed and its columns are contiguous, each
 * prefetches consecutive cache lines instead. All other tiles prefetch the next strip of A if its
 * rows are contiguous: weights do not stay in L2 from one training step to the next. */
static void set_tile_prefetch(tile *t, const gd_gemm *g, const block_plan *p, int64_t k, int64_t j,
                              int64_t width, int64_t tiles_left, int64_t height) {
    enum { LINE = 64 / sizeof(real) };
    const bool next_columns = p->transpose_b && !g->fill_b && g->b.row == 1 && j < g->n &&
                              is_dense(g->b.col, t->k) && g->b.dtype == REAL_DTYPE;
    t->prefetch_at = t->b;
    t->prefetch_step = 0;
    if (!p->transpose_b && p->pack_b && tiles_left < 2 * width && j < g->n) {
        const int64_t row = k + tiles_left / width * (t->k / 2);
        t->prefetch_at = (const real *)g->b.data + row * g->b.row + j + tiles_left % width * VL;
        t->prefetch_step = g->b.row;
    } else if (next_columns && tiles_left < 2 * width * VL / LINE) {
        t->prefetch_at = (const real *)g->b.data + j * g->b.col + tiles_left * (t->k / 2) * LINE;
        t->prefetch_step = LINE;
    } else if (tiles_left > 0 && t->a_col == 1 && is_dense(t->a_row, t->k)) {
        t->prefetch_at = t->a + height * t->a_row;
        t->prefetch_step = LINE;
    }
}

/* Writes columns j to j + n of C from the buffer of one panel. */
static void write_c_panel(const gd_gemm *g, const block_plan *p, int64_t j, int64_t n) {
    gd_gemm part = *g;
    part.c = gd_gemm_out_at(g->c, 0, j);
    part.bias = gd_gemm_in_at(g->bias, 0, j);
    part.mask = gd_gemm_in_at(g->mask, 0, j);
    part.n = n;
    write_c(&part, p->sums, TILE_N);
}

/* Computes all strips of the panel that starts at column j and is `width` vectors wide. */
static void compute_panel(const gd_gemm *g, const block_plan *p, int64_t k_block, int64_t j,
                          int64_t width) {
    const int64_t k = split_point(g->k, k_block, p->k_blocks),
                  depth = split_point(g->k, k_block + 1, p->k_blocks) - k;
    const int64_t n = min64(width * VL, g->n - j);
    tile t = first_tile_of_panel(g, p, k_block, j, n);
    t.k = depth;
    bool packing = false; /* whether the next tile packs B; only the first one may */
    if (p->transpose_b) {
        if (g->fill_b) g->fill_b(g->fill_context, k, depth, j, n, p->b, width * VL);
        else pack(p->b, width * VL, panel_source(g->b, k, j), n, depth);
        t.b = p->b;
        t.b_row = width * VL;
    } else {
        packing = p->pack_b || n < width * VL;
        t.b = (const real *)g->b.data + k * g->b.row + j;
        t.b_row = g->b.row;
        t.b_packed = p->b;
    }
    const int height_limit = p->pack_a ? p->height : tile_height[width];
    const int64_t strips = divide_up(g->m, height_limit);
    for (int64_t s = 0, i = 0; s < strips; s++) {
        const int64_t end = split_point(g->m, s + 1, strips), height = end - i;
        if (p->pack_a) {
            t.a = p->a + s * strip_size(p, depth);
            t.a_row = 1;
            t.a_col = height;
        } else {
            t.a = (const real *)g->a.data + i * g->a.row + k * g->a.col;
            t.a_row = g->a.row;
            t.a_col = g->a.col;
        }
        set_tile_prefetch(&t, g, p, k, j + n, width, strips - 1 - s, height);
        tile_kernel_for(&t, packing, width, height)(&t);
        if (packing) {
            packing = false;
            t.b = p->b;
            t.b_row = width * VL;
        }
        t.c += height * t.c_row;
        if (t.bias_row) t.bias_row += height * t.bias_step;
        if (t.mask) t.mask += height * t.mask_row;
        i = end;
    }
    if (p->buffer_one_panel) write_c_panel(g, p, j, n);
}

/* Computes a block: all blocks of k, panels and strips. */
static gd_status compute_block(const gd_gemm *g) {
    block_plan p = plan_block(g);
    if (!allocate_block_scratch(g, &p)) return GD_E_MEMORY;
    for (int64_t k_block = 0; k_block < p.k_blocks; k_block++) {
        if (p.pack_a) {
            const int64_t k = split_point(g->k, k_block, p.k_blocks);
            pack_strips(g, &p, k, split_point(g->k, k_block + 1, p.k_blocks) - k);
        }
        for (int64_t panel = 0; panel < p.panels; panel++) {
            const int64_t v = split_point(p.vectors, panel, p.panels);
            compute_panel(g, &p, k_block, v * VL, split_point(p.vectors, panel + 1, p.panels) - v);
        }
    }
    if (p.buffer_sums && !p.buffer_one_panel) write_c(g, p.sums, g->n);
    gd_gemm_scratch_done(p.b);
    return GD_OK;
}

gd_status GD_ISA_TYPED(gd_gemm_block)(const gd_gemm *g) {
    return is_thin(g) ? compute_thin_block(g) : compute_block(g);
}

/* Adds the partial products of split-K in order and writes C. */
void GD_ISA_TYPED(gd_gemm_sum)(const gd_gemm *g, real *partials, int64_t count, int64_t step) {
    const int64_t n = g->m * g->n;
    for (int64_t split = 1; split < count; split++)
        for (int64_t i = 0; i < n; i++) partials[i] += partials[split * step + i];
    write_c(g, partials, g->n);
}
