/* distance.typed.isa.c - blocks of cdist and of its gradient for one dtype (see distance.h and
 * simd_typed.h).
 *
 * For distances, lanes are rows of b: a panel of b is transposed to (width, PANEL), and a tile of
 * TILE_H rows of a by PANEL distances accumulates in registers. For gradients, lanes are
 * coordinates: a tile of GRAD_H rows of x by up to GRAD_W vectors accumulates over all rows of z.
 * Each sum adds its terms in the order of their index, so tile sizes do not change the result.
 */
#include "ops/distance/cpu/distance.h"
#include "backend/cpu/simd_typed.h"
#include "core/tile.h"

enum {
    TILE_H = 6,
    TILE_W = 2,
    PANEL = TILE_W * LANES,  /* rows of b */
    DEPTH = 512 / sizeof(E), /* coordinates of a panel, which takes 16 KiB with AVX-512 */
    GRAD_H = 4,
    GRAD_W = 2,
    OTHERS = 128, /* rows of z whose weights are computed together */
};

/* The first n lanes of a vector in memory. */
V_FN VEC load_lanes(const E *p, int n) { return n == LANES ? V(load)(p) : V(load_part)(p, n); }
V_FN void store_lanes(E *p, VEC v, int n) {
    if (n == LANES) V(store)(p, v);
    else V(store_part)(p, v, n);
}

/* --- distances -------------------------------------------------------------------------------- */

/* Adds the term of one difference d to the sum. */
V_FN VEC add_term(const gd_cdist_norm norm, VEC sum, VEC d, VEC p) {
    const VEC zero = V(splat)(0), one = V(splat)(1);
    switch (norm) {
    case GD_CDIST_COUNT: return sum + V(select)(d != d, d, V(select)(d != zero, one, zero));
    case GD_CDIST_ABSOLUTE: return sum + V(abs)(d);
    case GD_CDIST_EUCLID: return V(fma)(d, d, sum);
    case GD_CDIST_LARGEST: return V(max)(sum, V(abs)(d));
    default: return sum + V(pow)(V(abs)(d), p);
    }
}
/* The distance from the sum of its terms. */
V_FN VEC finish_sum(const gd_cdist_norm norm, VEC sum, VEC inverse_p) {
    return norm == GD_CDIST_EUCLID  ? V(sqrt)(sum)
           : norm == GD_CDIST_POWER ? V(pow)(sum, inverse_p)
                                    : sum;
}

/* The operands of a tile: H rows of a (H, depth), a_row apart, and a panel of b (depth, PANEL). */
typedef struct {
    const E *a, *panel;
    int64_t a_row, depth, columns; /* columns to store, at most PANEL */
    E *y;
    int64_t y_row;
    bool first, last; /* whether it is the first or last panel along the width */
    E p, inverse_p;
} distance_tile;

V_FN void compute_tile(const gd_cdist_norm norm, const int H, const distance_tile *t) {
    VEC sum[TILE_H][TILE_W];
    const VEC p = V(splat)(t->p), inverse_p = V(splat)(t->inverse_p);
    const int lanes0 = (int)(t->columns < LANES ? t->columns : LANES); /* to store */
    const int lanes1 = (int)t->columns - lanes0;
    UNROLL for (int h = 0; h < H; h++) {
        const E *y = t->y + h * t->y_row;
        sum[h][0] = t->first ? V(splat)(0) : load_lanes(y, lanes0);
        sum[h][1] = t->first || lanes1 == 0 ? V(splat)(0) : load_lanes(y + LANES, lanes1);
    }
    for (int64_t k = 0; k < t->depth; k++) {
        const VEC b0 = V(load)(t->panel + k * PANEL), b1 = V(load)(t->panel + k * PANEL + LANES);
        UNROLL for (int h = 0; h < H; h++) {
            const VEC a = V(splat)(t->a[h * t->a_row + k]);
            sum[h][0] = add_term(norm, sum[h][0], a - b0, p);
            sum[h][1] = add_term(norm, sum[h][1], a - b1, p);
        }
    }
    UNROLL for (int h = 0; h < H; h++) {
        E *y = t->y + h * t->y_row;
        if (t->last) {
            sum[h][0] = finish_sum(norm, sum[h][0], inverse_p);
            sum[h][1] = finish_sum(norm, sum[h][1], inverse_p);
        }
        store_lanes(y, sum[h][0], lanes0);
        if (lanes1 > 0) store_lanes(y + LANES, sum[h][1], lanes1);
    }
}

#define TILE_KERNELS(norm)                                                           \
    static __attribute__((noinline)) void tall_tile_##norm(const distance_tile *t) { \
        compute_tile(GD_CDIST_##norm, TILE_H, t);                                    \
    }                                                                                \
    static __attribute__((noinline)) void row_tile_##norm(const distance_tile *t) {  \
        compute_tile(GD_CDIST_##norm, 1, t);                                         \
    }
TILE_KERNELS(COUNT)
TILE_KERNELS(ABSOLUTE)
TILE_KERNELS(EUCLID)
TILE_KERNELS(LARGEST)
TILE_KERNELS(POWER)

typedef void (*tile_fn)(const distance_tile *);
static const tile_fn tall_tile[] = {tall_tile_COUNT, tall_tile_ABSOLUTE, tall_tile_EUCLID,
                                    tall_tile_LARGEST, tall_tile_POWER};
static const tile_fn row_tile[] = {row_tile_COUNT, row_tile_ABSOLUTE, row_tile_EUCLID,
                                   row_tile_LARGEST, row_tile_POWER};

/* Transposes b (columns, depth), whose rows are `width` apart, to a panel (depth, PANEL), padded
 * with zeros. */
static void pack_panel(const E *b, int64_t width, int64_t columns, int64_t depth, E *panel) {
    for (int64_t j = 0; j < columns; j++)
        for (int64_t k = 0; k < depth; k++) panel[k * PANEL + j] = b[j * width + k];
    for (int64_t j = columns; j < PANEL; j++)
        for (int64_t k = 0; k < depth; k++) panel[k * PANEL + j] = 0;
}

void TYPED(gd_cdist_block)(const gd_cdist_block *block) {
    const gd_cdist_block s = *block;
    const E *a = s.a, *b = s.b;
    GD_TILE(E, panel, PANEL * DEPTH);
    for (int64_t j = 0; j < s.columns; j += PANEL)
        for (int64_t k = 0; k == 0 || k < s.width; k += DEPTH) {
            const int64_t depth = s.width - k < DEPTH ? s.width - k : DEPTH;
            distance_tile t = {.panel = panel,
                               .a_row = s.width,
                               .depth = depth,
                               .columns = s.columns - j < PANEL ? s.columns - j : PANEL,
                               .y_row = s.y_row,
                               .first = k == 0,
                               .last = k + depth == s.width,
                               .p = (E)s.p,
                               .inverse_p = (E)(1 / s.p)};
            pack_panel(b + j * s.width + k, s.width, t.columns, depth, panel);
            for (int64_t i = 0; i < s.rows;) {
                const bool tall = s.rows - i >= TILE_H;
                t.a = a + i * s.width + k;
                t.y = (E *)s.y + i * s.y_row + j;
                (tall ? tall_tile : row_tile)[s.norm](&t);
                i += tall ? TILE_H : 1;
            }
        }
}

/* --- gradients -------------------------------------------------------------------------------- */

/* Two values for each pair (x[i], z[j]), at i * x_step + j * z_step, which add_slope reads.
 * `factor` is gy / y for p = 2, otherwise gy. `measure` is y for p = inf, otherwise 1 / y. Both are
 * 0 where y is 0, except that the factor of p = 1 is always gy. */
typedef struct {
    E *factor, *measure;
    int64_t x_step, z_step;
} pair_weights;

V_FN void weigh_pairs(const gd_cdist_norm norm, VEC gy, VEC y, VEC *factor, VEC *measure) {
    const VEC zero = V(splat)(0);
    const MASK at_zero = y == zero;
    *factor = norm == GD_CDIST_EUCLID     ? V(select)(at_zero, zero, gy / y)
              : norm == GD_CDIST_ABSOLUTE ? gy
                                          : V(select)(at_zero, zero, gy);
    *measure = norm == GD_CDIST_LARGEST ? y : V(select)(at_zero, zero, V(splat)(1) / y);
}

/* Computes the weights (rows, n), `to_step` apart, of gy and y (rows, n), `step` apart. */
static void weigh_rows(const gd_cdist_norm norm, int64_t rows, int64_t n, const E *gy, const E *y,
                       int64_t step, pair_weights *to, int64_t to_step) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < n; c += LANES) {
            const int part = (int)(n - c < LANES ? n - c : LANES);
            const int64_t from = i * step + c, at = i * to_step + c;
            VEC factor, measure;
            if (part == LANES)
                weigh_pairs(norm, V(load)(gy + from), V(load)(y + from), &factor, &measure);
            else
                weigh_pairs(norm, V(load_part)(gy + from, part), V(load_part)(y + from, part),
                            &factor, &measure);
            V(store)(to->factor + at, factor); /* rows of weights are padded to vectors */
            if (norm == GD_CDIST_LARGEST || norm == GD_CDIST_POWER)
                V(store)(to->measure + at, measure);
        }
}

/* Adds the gradient of the distance by one coordinate, whose difference is d, to the sum. */
V_FN VEC add_slope(const gd_cdist_norm norm, VEC sum, VEC d, VEC factor, VEC measure, VEC power) {
    const VEC zero = V(splat)(0), one = V(splat)(1);
    if (norm == GD_CDIST_EUCLID) return V(fma)(factor, d, sum);
    const VEC sign = V(select)(d > zero, one, V(select)(d < zero, -one, zero));
    if (norm == GD_CDIST_ABSOLUTE) return V(fma)(factor, sign, sum);
    if (norm == GD_CDIST_LARGEST) return sum + V(select)(V(abs)(d) == measure, factor * sign, zero);
    const VEC slope = factor * sign * V(pow)(V(abs)(d) * measure, power);
    return sum + V(select)((d == zero) | (measure == zero), zero, slope);
}

/* The operands of a tile: H rows of x and of their gradient g, W vectors of coordinates each, and
 * the same coordinates of `others` rows of z. Rows are `width` apart. */
typedef struct {
    const E *x, *z;
    int64_t width, others;
    pair_weights weights;
    E *g;
    int part;   /* coordinates in the last vector */
    bool first; /* overwrite g; otherwise add to it */
    E power;
} slope_tile;

V_FN void compute_slopes(const gd_cdist_norm norm, const int H, const int W, const bool full,
                         const slope_tile *t) {
    VEC x[GRAD_H][GRAD_W], sum[GRAD_H][GRAD_W], z[GRAD_W];
    const VEC power = V(splat)(t->power);
    const bool measured = norm == GD_CDIST_LARGEST || norm == GD_CDIST_POWER;
#define PART(v) (v < W - 1 || full ? LANES : t->part)
    UNROLL for (int h = 0; h < H; h++) UNROLL for (int v = 0; v < W; v++) {
        const int64_t at = h * t->width + v * LANES;
        x[h][v] = load_lanes(t->x + at, PART(v));
        sum[h][v] = t->first ? V(splat)(0) : load_lanes(t->g + at, PART(v));
    }
    for (int64_t j = 0; j < t->others; j++) {
        const E *row = t->z + j * t->width, *factor = t->weights.factor + j * t->weights.z_step;
        const E *measure = t->weights.measure + j * t->weights.z_step;
        UNROLL for (int v = 0; v < W; v++) z[v] = load_lanes(row + v * LANES, PART(v));
        UNROLL for (int h = 0; h < H; h++) {
            const VEC f = V(splat)(factor[h * t->weights.x_step]);
            const VEC m = measured ? V(splat)(measure[h * t->weights.x_step]) : f;
            UNROLL for (int v = 0; v < W; v++) sum[h][v] =
                add_slope(norm, sum[h][v], x[h][v] - z[v], f, m, power);
        }
    }
    UNROLL for (int h = 0; h < H; h++) UNROLL for (int v = 0; v < W; v++)
        store_lanes(t->g + h * t->width + v * LANES, sum[h][v], PART(v));
#undef PART
}

/* Dispatches to constant W, and to code without masks if the last vector is full. */
V_FN void compute_slopes_of(const gd_cdist_norm norm, const int H, int W, const slope_tile *t) {
    const bool full = t->part == LANES;
    if (W == 2 && full) compute_slopes(norm, H, 2, true, t);
    else if (W == 2) compute_slopes(norm, H, 2, false, t);
    else if (full) compute_slopes(norm, H, 1, true, t);
    else compute_slopes(norm, H, 1, false, t);
}

#define SLOPE_KERNELS(norm)                                                                \
    static __attribute__((noinline)) void tall_slopes_##norm(int W, const slope_tile *t) { \
        compute_slopes_of(GD_CDIST_##norm, GRAD_H, W, t);                                  \
    }                                                                                      \
    static __attribute__((noinline)) void row_slopes_##norm(int W, const slope_tile *t) {  \
        compute_slopes_of(GD_CDIST_##norm, 1, W, t);                                       \
    }
SLOPE_KERNELS(ABSOLUTE)
SLOPE_KERNELS(EUCLID)
SLOPE_KERNELS(LARGEST)
SLOPE_KERNELS(POWER)

typedef void (*slope_fn)(int W, const slope_tile *);
static const slope_fn tall_slopes[] = {NULL, tall_slopes_ABSOLUTE, tall_slopes_EUCLID,
                                       tall_slopes_LARGEST, tall_slopes_POWER};
static const slope_fn row_slopes[] = {NULL, row_slopes_ABSOLUTE, row_slopes_EUCLID,
                                      row_slopes_LARGEST, row_slopes_POWER};

/* Adds the gradients from t.others rows of z, whose weights are computed, to all rows of g. */
static void add_slopes(const gd_cdist_grad_block *s, slope_tile t) {
    const slope_tile all = t;
    for (int64_t i = 0; i < s->rows;) {
        const bool tall = s->rows - i >= GRAD_H;
        t.weights.factor = all.weights.factor + i * t.weights.x_step;
        t.weights.measure = all.weights.measure + i * t.weights.x_step;
        for (int64_t c = 0; c < s->width;) {
            const int64_t left = s->width - c;
            const int W = left > LANES ? 2 : 1;
            t.part = (int)(left < W * LANES ? left - (W - 1) * LANES : LANES);
            t.x = all.x + i * s->width + c;
            t.z = all.z + c;
            t.g = all.g + i * s->width + c;
            (tall ? tall_slopes : row_slopes)[s->norm](W, &t);
            c += W * LANES;
        }
        i += tall ? GRAD_H : 1;
    }
}

void TYPED(gd_cdist_grad_block)(const gd_cdist_grad_block *block) {
    const gd_cdist_grad_block s = *block;
    const E *gy = s.gy, *y = s.y;
    const bool by_z = s.z_step == 1; /* gy and y are contiguous along z */
    GD_TILE(E, factor, GD_CDIST_GRAD_ROWS * OTHERS);
    GD_TILE(E, measure, GD_CDIST_GRAD_ROWS * OTHERS);
    slope_tile t = {.x = s.x,
                    .width = s.width,
                    .weights = {factor, measure, by_z ? OTHERS : 1, by_z ? 1 : GD_CDIST_GRAD_ROWS},
                    .g = s.g,
                    .power = (E)(s.p - 1)};
    for (int64_t j = 0; j < s.others; j += OTHERS) {
        t.others = s.others - j < OTHERS ? s.others - j : OTHERS;
        t.z = (const E *)s.z + j * s.width;
        t.first = j == 0;
        const int64_t at = j * s.z_step;
        if (by_z)
            weigh_rows(s.norm, s.rows, t.others, gy + at, y + at, s.x_step, &t.weights, OTHERS);
        else
            weigh_rows(s.norm, t.others, s.rows, gy + at, y + at, s.z_step, &t.weights,
                       GD_CDIST_GRAD_ROWS);
        add_slopes(&s, t);
    }
}
