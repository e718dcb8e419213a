/* gemm_template.h - one block of a matrix product on one thread, for `real` and for the
 * instruction set being compiled (gemm_vector.h).
 *
 * The loops, from the outside: runs of k (TILE_K deep), panels of B (TILE_N wide), strips of A
 * (one tile high). A panel of B is packed when enough strips use it, by the first of the tiles
 * that read it or, where that needs turning or widening, before. A is read where it lies unless
 * that would be slow. The sums of several runs of k meet in C, or in a row-major block of their
 * own when C has other strides or another type. A single run needs such a block for one panel only.
 */
#include "backend/cpu/gemm_vector.h"
#include "backend/cpu/gemm_half.h"
#include "backend/cpu/gemm_pack.h"
#include "backend/cpu/gemm_kernel.h"
#include "backend/cpu/gemm_finish.h"
#include "backend/cpu/gemm_thin.h"

/* How a block is done: decided from its shape, strides and types. */
typedef struct plan {
    int64_t runs;    /* of k */
    int64_t vectors; /* in a row of C */
    int64_t panels;  /* of B; their widths differ by one vector at most */
    bool pack_a;
    bool pack_b;
    bool turn_b;        /* the tiles cannot pack B themselves */
    bool finish;        /* sums go to a block of their own ... */
    bool finish_panels; /* ... which has room for a panel, and C is written panel by panel */
    int height;         /* the highest tile if A is packed: then all panels share the strips */
    real *a, *b, *sums; /* working memory */
} plan;

/* B is not worth packing when it is so small as to stay in the first-level cache as it is. */
enum { SMALL_B_BYTES = 20000 };

/* Rows or columns that lie a multiple of 4096 bytes apart fight for the same few cache lines. */
static bool collides(int64_t step) { return step * (int64_t)sizeof(real) % 4096 == 0; }

/* Packing A pays from so many vectors in a row of C on, and only where k is not contiguous in it:
 * when k is long (see there), or when its columns collide. */
enum { PACK_A_VECTORS = 4 };

static bool pays_to_pack_a(const gd_gemm *g, int64_t vectors) {
    if (g->a.dtype != REAL_DTYPE) return true;
    return g->a.col != 1 && vectors >= PACK_A_VECTORS &&
           (g->k > GD_GEMM_LONG_K || collides(g->a.col));
}

static plan make_plan(const gd_gemm *g) {
    plan p = {.runs = g->k > 0 ? divide_up(g->k, TILE_K) : 1, .vectors = divide_up(g->n, VL)};
    p.panels = divide_up(p.vectors, TILE_W);
    p.height = tile_height[divide_up(p.vectors, p.panels)];
    p.pack_a = pays_to_pack_a(g, p.vectors);
    p.turn_b = g->fill_b || g->b.dtype != REAL_DTYPE || g->b.col != 1;
    const bool small_b = g->k * g->b.row * (int64_t)sizeof(real) <= SMALL_B_BYTES;
    const bool a_panel = g->b.row <= TILE_N; /* B lies as packing would leave it */
    p.pack_b = p.turn_b || (!a_panel && ((g->m > GD_GEMM_PACK_B_ROWS && !small_b) ||
                                         (collides(g->b.row) && g->m > p.height)));
    bool bias_fits = !g->bias.data || g->bias.col == 0 || (g->bias.row == 0 && g->bias.col == 1);
    const bool mask_fits = !g->mask.data || g->mask.col == 1;
    p.finish = g->c.dtype != REAL_DTYPE || g->c.col != 1 || !bias_fits || !mask_fits;
    p.finish_panels = p.finish && p.runs == 1;
    return p;
}

/* Packed strips lie this far apart. */
INLINE int64_t strip_step(const plan *p, int64_t depth) { return p->height * depth + PACK_SLACK; }

/* Gets the working memory: false if there is none. */
static bool get_memory(const gd_gemm *g, plan *p) {
    enum { PAGE = 4096 / sizeof(real) };
    const int64_t depth = divide_up(g->k, p->runs);
    /* The tiles pack the last panel, which may be narrow, also when the others are not packed. */
    const bool any_b = p->pack_b || g->n % VL != 0;
    const int64_t a = p->pack_a ? divide_up(g->m, p->height) * strip_step(p, depth) : 0;
    const int64_t b = any_b ? divide_up(TILE_N * depth + PACK_SLACK, PAGE) * PAGE : 0;
    const int64_t sums = p->finish ? g->m * (p->finish_panels ? TILE_N : g->n) : 0;
    if (a + b + sums == 0) return true;
    p->b = gd_gemm_scratch(GD_GEMM_SCRATCH_BLOCK, (size_t)(a + b + sums) * sizeof(real));
    p->sums = p->b + b;
    p->a = p->sums + sums;
    return p->b != NULL;
}

/* Where rows are contiguous in A, a few k are packed at a time for all strips, so that each page
 * and each cache line of A is visited once. */
static void pack_strips(const gd_gemm *g, const plan *p, int64_t k, int64_t depth) {
    const int64_t step = g->a.row == 1 ? 16 : depth;
    const int64_t strips = divide_up(g->m, p->height), place = strip_step(p, depth);
    for (int64_t d = 0; d < depth; d += step) {
        const int64_t run = min64(depth - d, step);
        /* The strips' heights are cut() in small steps. */
        const int64_t low = g->m / strips, more = g->m % strips;
        for (int64_t s = 0, i = 0, error = 0; s < strips; s++) {
            int64_t height = low;
            error += more;
            if (error >= strips) error -= strips, height++;
            pack(p->a + s * place + d * height, height, strip_of(g->a, i, k + d), height, run);
            i += height;
        }
    }
}

/* The tile at row 0 of a panel, but for B. */
static tile make_tile(const gd_gemm *g, const plan *p, int64_t run, int64_t j, int64_t n) {
    tile t = {.n = n, .scale = g->scaled ? (real)g->scale : 1};
    if (p->finish) {
        t.c = p->sums + (p->finish_panels ? 0 : j);
        t.c_row = p->finish_panels ? TILE_N : g->n;
        t.accumulate = run > 0;
        return t;
    }
    t.c = (real *)g->c.data + j;
    t.c_row = g->c.row;
    t.accumulate = g->accumulate || run > 0;
    if (run < p->runs - 1) return t;
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

/* Whether rows of k numbers lie one behind the other, or nearly so. */
static bool follows(int64_t step, int64_t k) {
    return step >= k && step < k + 64 / (int64_t)sizeof(real);
}

/* What a tile fetches into the second-level cache while it multiplies. `left` counts the tiles of
 * the panel to come, all of them at most `height` high.
 *
 * The last tiles of a panel fetch the next panel of B, which begins at (k, j), for the first tile
 * there: it would wait for it otherwise, as rows of B lie on pages of their own. Each of the tiles
 * fetches one vector of half the rows; or, where columns of B will be turned and follow each other,
 * as many lines as it can. The others fetch the next strip of A, if its rows follow each other:
 * weights do not stay in that cache from one step of a training to the next. */
static void look_ahead(tile *t, const gd_gemm *g, const plan *p, int64_t k, int64_t j,
                       int64_t width, int64_t left, int64_t height) {
    enum { LINE = 64 / sizeof(real) };
    const bool next_columns = p->turn_b && !g->fill_b && g->b.row == 1 && j < g->n &&
                              follows(g->b.col, t->k) && g->b.dtype == REAL_DTYPE;
    t->ahead = t->b;
    t->ahead_step = 0;
    if (!p->turn_b && p->pack_b && left < 2 * width && j < g->n) {
        const int64_t row = k + left / width * (t->k / 2);
        t->ahead = (const real *)g->b.data + row * g->b.row + j + left % width * VL;
        t->ahead_step = g->b.row;
    } else if (next_columns && left < 2 * width * VL / LINE) {
        t->ahead = (const real *)g->b.data + j * g->b.col + left * (t->k / 2) * LINE;
        t->ahead_step = LINE;
    } else if (left > 0 && t->a_col == 1 && follows(t->a_row, t->k)) {
        t->ahead = t->a + height * t->a_row;
        t->ahead_step = LINE;
    }
}

/* Writes the columns of C that panel (m, n), the one that begins at column j, has the sums of. */
static void finish_panel(const gd_gemm *g, const plan *p, int64_t j, int64_t n) {
    gd_gemm part = *g;
    part.c = gd_gemm_out_from(g->c, 0, j);
    part.bias = gd_gemm_in_from(g->bias, 0, j);
    part.mask = gd_gemm_in_from(g->mask, 0, j);
    part.n = n;
    finish(&part, p->sums, TILE_N);
}

/* All strips of a panel that is `width` vectors wide and begins at column j. */
static void compute_panel(const gd_gemm *g, const plan *p, int64_t run, int64_t j, int64_t width) {
    const int64_t k = cut(g->k, run, p->runs), depth = cut(g->k, run + 1, p->runs) - k;
    const int64_t n = min64(width * VL, g->n - j);
    tile t = make_tile(g, p, run, j, n);
    t.k = depth;
    bool packing = false; /* by the first tile */
    if (p->turn_b) {
        if (g->fill_b) g->fill_b(g->filler, k, depth, j, n, p->b, width * VL);
        else pack(p->b, width * VL, panel_of(g->b, k, j), n, depth);
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
        const int64_t end = cut(g->m, s + 1, strips), height = end - i;
        if (p->pack_a) {
            t.a = p->a + s * strip_step(p, depth);
            t.a_row = 1;
            t.a_col = height;
        } else {
            t.a = (const real *)g->a.data + i * g->a.row + k * g->a.col;
            t.a_row = g->a.row;
            t.a_col = g->a.col;
        }
        look_ahead(&t, g, p, k, j + n, width, strips - 1 - s, height);
        kernel_for(&t, packing, width, height)(&t);
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
    if (p->finish_panels) finish_panel(g, p, j, n);
}

static gd_status compute_block(const gd_gemm *g) {
    plan p = make_plan(g);
    if (!get_memory(g, &p)) return GD_E_MEMORY;
    for (int64_t run = 0; run < p.runs; run++) {
        if (p.pack_a) {
            const int64_t k = cut(g->k, run, p.runs);
            pack_strips(g, &p, k, cut(g->k, run + 1, p.runs) - k);
        }
        for (int64_t panel = 0; panel < p.panels; panel++) {
            const int64_t v = cut(p.vectors, panel, p.panels);
            compute_panel(g, &p, run, v * VL, cut(p.vectors, panel + 1, p.panels) - v);
        }
    }
    if (p.finish && !p.finish_panels) finish(g, p.sums, g->n);
    gd_gemm_scratch_done(p.b);
    return GD_OK;
}

/* Adds the parts of k up, and finishes C. */
static void sum_parts(const gd_gemm *g, real *parts, int64_t count, int64_t step) {
    const int64_t n = g->m * g->n;
    for (int64_t part = 1; part < count; part++)
        for (int64_t i = 0; i < n; i++) parts[i] += parts[part * step + i];
    finish(g, parts, g->n);
}
