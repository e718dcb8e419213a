/* reduce.typed.isa.c - the vectorized leaf functions of reductions for one accumulator dtype (see
 * reduce.h and simd_typed.h). reduce_i64.isa.c includes it for i64.
 *
 * FOLD_EACH lists the folds of one value: identity, map of an element, combination of two results.
 */
#include <stdbool.h>
#include <string.h>

#include "backend/cpu/reduce.h"
#include "backend/cpu/simd_typed.h"
#include "core/copy.h"

/* --- folds of one value ----------------------------------------------------------------------- */

#define MAP_NONE(x)           (x)
#define MAP_TRUTH(x)          ((VEC)(((x) != 0) & (MASK)V(splat)(1)))
#define MAP_SQUARE(x)         ((x) * (x))
#define MAP_POWER(x)          V(pow)(V(abs)(x), extra)
#define MAP_DIFFERENCE(x)     ((x)-extra)
#define MAP_EXP_DIFFERENCE(x) V(exp)((x)-extra)

#if IS_FLOAT
#define IS_NAN(x)     ((x) != (x)) /* of a scalar or a vector */
#define IS_NOT_NAN(x) ((x) == (x))
#else
#define IS_NAN(x)     ((x)*0 != 0)
#define IS_NOT_NAN(x) ((x)*0 == 0)
#endif

/* X(name, identity, map, combine) */
#define FOLD_ANY_TYPE(X)              \
    X(SUM, 0, MAP_NONE, V(add))       \
    X(PROD, 1, MAP_NONE, V(mul))      \
    X(MAX, LOWEST, MAP_NONE, V(max))  \
    X(MIN, LARGEST, MAP_NONE, V(min)) \
    X(ANY, 0, MAP_TRUTH, V(max))      \
    X(ALL, 1, MAP_TRUTH, V(min))
#define FOLD_FLOAT(X)                    \
    X(SUM_ABS, 0, V(abs), V(add))        \
    X(SUM_SQUARE, 0, MAP_SQUARE, V(add)) \
    X(SUM_POWER, 0, MAP_POWER, V(add))   \
    X(COUNT, 0, MAP_TRUTH, V(add))       \
    X(MAX_ABS, 0, V(abs), V(max))        \
    X(MIN_ABS, LARGEST, V(abs), V(min))
/* parts of the folds of two values; `extra` is subtracted */
#define FOLD_PARTS(X)                            \
    X(SUM_DIFFERENCE, 0, MAP_DIFFERENCE, V(add)) \
    X(SUM_EXP_DIFFERENCE, 0, MAP_EXP_DIFFERENCE, V(add))

#if IS_FLOAT
#define FOLD_EACH(X) FOLD_ANY_TYPE(X) FOLD_FLOAT(X)
#else
#define FOLD_EACH(X) FOLD_ANY_TYPE(X)
#endif

/* The elements of a leaf: `runs` runs of n elements, `run_stride` bytes apart. */
typedef struct {
    const char *x;
    int64_t n, runs, run_stride;
} leaf_block;

/* Reduces a leaf to one result. Eight independent accumulators hide the latency of the operation,
 * and are combined as a tree. The partial vector at the end of a run is padded with the
 * identity. */
#define DEFINE_ROW(NAME, IDENTITY, MAP, COMBINE)                                            \
    static inline E row_##NAME(leaf_block b, VEC extra) {                                   \
        (void)extra;                                                                        \
        VEC a[8];                                                                           \
        for (int k = 0; k < 8; k++) a[k] = V(splat)((E)(IDENTITY));                         \
        for (int64_t r = 0; r < b.runs; r++) {                                              \
            const E *x = (const E *)(const void *)(b.x + r * b.run_stride);                 \
            int64_t i = 0;                                                                  \
            for (; i + 8 * LANES <= b.n; i += 8 * LANES)                                    \
                for (int k = 0; k < 8; k++) {                                               \
                    VEC v = V(load)(x + i + k * LANES);                                     \
                    a[k] = COMBINE(a[k], MAP(v));                                           \
                }                                                                           \
            for (; i + 2 * LANES <= b.n; i += 2 * LANES)                                    \
                for (int k = 0; k < 2; k++) {                                               \
                    VEC v = V(load)(x + i + k * LANES);                                     \
                    a[k] = COMBINE(a[k], MAP(v));                                           \
                }                                                                           \
            if (i + LANES <= b.n) {                                                         \
                VEC v = V(load)(x + i);                                                     \
                a[2] = COMBINE(a[2], MAP(v));                                               \
                i += LANES;                                                                 \
            }                                                                               \
            if (i < b.n) {                                                                  \
                int left = (int)(b.n - i);                                                  \
                VEC v = V(load_part)(x + i, left);                                          \
                v = MAP(v);                                                                 \
                v = V(select)(IOTA < left, v, V(splat)((E)(IDENTITY)));                     \
                a[3] = COMBINE(a[3], v);                                                    \
            }                                                                               \
        }                                                                                   \
        for (int h = 4; h > 0; h /= 2)                                                      \
            for (int k = 0; k < h; k++) a[k] = COMBINE(a[k], a[k + h]);                     \
        REDUCE_LANES(a[0], COMBINE);                                                        \
        return a[0][0];                                                                     \
    }                                                                                       \
    static __attribute__((unused)) void rows_##NAME(leaf_block b, VEC extra, int64_t count, \
                                                    int64_t step, E *y) {                   \
        for (int64_t c = 0; c < count; c++, b.x += step) y[c] = row_##NAME(b, extra);       \
    }
FOLD_EACH(DEFINE_ROW)

/* Reduces rows to one result per column, four vectors of columns at a time. `extra` is the same for
 * all columns. */
#define COLUMNS_AT(C, WIDTH, MAP, COMBINE, LOAD, STORE)                 \
    do {                                                                \
        VEC a[WIDTH];                                                   \
        for (int k = 0; k < WIDTH; k++) {                               \
            VEC v = LOAD((const E *)rows[0] + C + k * LANES);           \
            a[k] = MAP(v);                                              \
        }                                                               \
        for (int r = 1; r < n_rows; r++)                                \
            for (int k = 0; k < WIDTH; k++) {                           \
                VEC v = LOAD((const E *)rows[r] + C + k * LANES);       \
                a[k] = COMBINE(a[k], MAP(v));                           \
            }                                                           \
        for (int k = 0; k < WIDTH; k++) STORE(y + C + k * LANES, a[k]); \
    } while (0)
#define LOAD_LAST(p)     V(load_part)(p, (int)(cols - c))
#define STORE_LAST(p, v) V(store_part)(p, v, (int)(cols - c))
#define DEFINE_COLUMNS(NAME, IDENTITY, MAP, COMBINE)                                             \
    static void columns_##NAME(const void *const *rows, int n_rows, int64_t cols, VEC extra,     \
                               E *y) {                                                           \
        (void)extra;                                                                             \
        int64_t c = 0;                                                                           \
        for (; c + 4 * LANES <= cols; c += 4 * LANES)                                            \
            COLUMNS_AT(c, 4, MAP, COMBINE, V(load), V(store));                                   \
        for (; c + LANES <= cols; c += LANES) COLUMNS_AT(c, 1, MAP, COMBINE, V(load), V(store)); \
        if (c < cols) COLUMNS_AT(c, 1, MAP, COMBINE, LOAD_LAST, STORE_LAST);                     \
    }
FOLD_EACH(DEFINE_COLUMNS)

#define DEFINE_MERGE(NAME, IDENTITY, MAP, COMBINE)                                    \
    static void merge_##NAME(int64_t cols, E *a, const E *b) {                        \
        int64_t c = 0;                                                                \
        for (; c + LANES <= cols; c += LANES)                                         \
            V(store)(a + c, COMBINE(V(load)(a + c), V(load)(b + c)));                 \
        if (c < cols) STORE_LAST(a + c, COMBINE(LOAD_LAST(a + c), LOAD_LAST(b + c))); \
    }
FOLD_EACH(DEFINE_MERGE)

/* --- argmax and argmin ------------------------------------------------------------------------ */

/* Whether b, which comes later, replaces a as the extremum; the first NaN wins. */
static inline bool replaces_extremum(gd_fold fold, E a, E b) {
    if (IS_NAN(b)) return IS_NOT_NAN(a);
    return fold == GD_FOLD_ARGMAX ? b > a : b < a;
}

static int64_t find_first(const E *x, int64_t n, E value) {
    int64_t i = 0;
    if (IS_NAN(value)) {
        while (i < n && IS_NOT_NAN(x[i])) i++;
        return i;
    }
    VEC v = V(splat)(value);
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        MASK hit = (V(load)(x + i) == v) | (V(load)(x + i + LANES) == v) |
                   (V(load)(x + i + 2 * LANES) == v) | (V(load)(x + i + 3 * LANES) == v);
        if (NAMED(any, MASK_TYPE)(hit)) break;
    }
    while (i < n && x[i] != value) i++;
    return i;
}

static void arg_rows(gd_fold fold, leaf_block b, int64_t count, int64_t step, int64_t index, E *s0,
                     int64_t *s1) {
    VEC none = V(splat)(0);
    for (int64_t c = 0; c < count; c++, b.x += step) {
        s0[c] = fold == GD_FOLD_ARGMAX ? row_MAX(b, none) : row_MIN(b, none);
        int64_t r = 0, at = b.n;
        for (; r < b.runs; r++) {
            at = find_first((const E *)(const void *)(b.x + r * b.run_stride), b.n, s0[c]);
            if (at < b.n) break;
        }
        s1[c] = index + r * b.n + at;
    }
}

/* One vector of columns, or the first `left` lanes of it. */
static inline void arg_columns_at(gd_fold fold, const void *const *rows, int n_rows, int64_t c,
                                  int left, int64_t index, E *s0, int64_t *s1) {
    VEC best = V(load_part)((const E *)rows[0] + c, left);
    MASK best_row = {0};
    for (int r = 1; r < n_rows; r++) {
        VEC v = V(load_part)((const E *)rows[r] + c, left);
        MASK over = fold == GD_FOLD_ARGMAX ? v > best : v < best;
        over |= IS_NAN(v) & IS_NOT_NAN(best);
        best = V(select)(over, v, best);
        best_row = (over & r) | (~over & best_row);
    }
    V(store_part)(s0 + c, best, left);
    for (int k = 0; k < left; k++) s1[c + k] = index + best_row[k];
}

static void arg_columns(gd_fold fold, const void *const *rows, int n_rows, int64_t cols,
                        int64_t index, E *s0, int64_t *s1) {
    int64_t c = 0;
    for (; c + LANES <= cols; c += LANES)
        arg_columns_at(fold, rows, n_rows, c, LANES, index, s0, s1);
    if (c < cols) arg_columns_at(fold, rows, n_rows, c, (int)(cols - c), index, s0, s1);
}

static void arg_merge(gd_fold fold, int64_t cols, E *a0, int64_t *a1, const E *b0,
                      const int64_t *b1) {
    for (int64_t c = 0; c < cols; c++)
        if (replaces_extremum(fold, a0[c], b0[c])) {
            a0[c] = b0[c];
            a1[c] = b1[c];
        }
}

/* --- moments, sums of exponentials ------------------------------------------------------------ */

#if IS_FLOAT

FOLD_PARTS(DEFINE_ROW)

/* The moments of a leaf are computed in three steps, with values that stay small for any mean:
 *   1. The mean of the differences from the first element gives a rough mean, rounded to E.
 *   2. The differences d from the rough mean give sum(d) and sum(d * d).
 *   3. The mean is rough + sum(d) / n, and the squared deviations from it are
 *      sum(d * d) - sum(d)^2 / n, which has almost no cancellation. */

/* Two-pass moments in double precision, element by element: for values whose differences overflow
 * E, and for infinities and NaN. With `rows`, run r starts at rows[r][at]. */
static void moments_two_pass(const void *const *rows, int64_t at, leaf_block b, double *s0,
                             double *s1) {
    double mean = 0, squares = 0, total = (double)b.n * (double)b.runs;
    for (int twice = 0; twice < 2; twice++)
        for (int64_t r = 0; r < b.runs; r++) {
            const E *x =
                rows ? (const E *)rows[r] + at : (const E *)(const void *)(b.x + r * b.run_stride);
            for (int64_t i = 0; i < b.n; i++)
                if (!twice) mean += (double)x[i] / total;
                else squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        }
    *s0 = mean;
    *s1 = squares;
}

/* Step 3; returns the mean. `share` is 1 / n, *rest the sum of squared deviations. */
static inline vf64 finish_moments(vf64 rough, vf64 sum, vf64 squares, double share, vf64 *rest) {
    vf64 e = sum * v_splat_f64(share);
    *rest = squares - sum * e;
    *rest = v_select_f64(*rest < 0, v_splat_f64(0), *rest); /* keeps NaN */
    return rough + e;
}

/* Stores the states of one vector of columns, or of its first `left` lanes. */
static inline void store_moments(VEC rough, VEC sum, VEC squares, double share, int left,
                                 double *s0, double *s1) {
#if defined(FOR_F32)
    vf64 rest_lo, rest_hi;
    vf64 lo = finish_moments(v_lo_f64(rough), v_lo_f64(sum), v_lo_f64(squares), share, &rest_lo);
    vf64 hi = finish_moments(v_hi_f64(rough), v_hi_f64(sum), v_hi_f64(squares), share, &rest_hi);
    if (left == LANES) {
        v_store_f64(s0, lo);
        v_store_f64(s1, rest_lo);
        v_store_f64(s0 + VF64_LANES, hi);
        v_store_f64(s1 + VF64_LANES, rest_hi);
        return;
    }
    int upper = left - VF64_LANES < 0 ? 0 : left - VF64_LANES, lower = left - upper;
    v_store_part_f64(s0, lo, lower);
    v_store_part_f64(s1, rest_lo, lower);
    v_store_part_f64(s0 + lower, hi, upper);
    v_store_part_f64(s1 + lower, rest_hi, upper);
#else
    vf64 rest, mean = finish_moments(rough, sum, squares, share, &rest);
    v_store_part_f64(s0, mean, left);
    v_store_part_f64(s1, rest, left);
#endif
}

static inline void moments_row(leaf_block b, double share, double *s0, double *s1) {
    E first = *(const E *)(const void *)b.x;
    E rough = first + row_SUM_DIFFERENCE(b, V(splat)(first)) * (E)share;
    VEC from = V(splat)(rough), sum[4], squares[4];
    for (int k = 0; k < 4; k++) sum[k] = squares[k] = V(splat)(0);
    for (int64_t r = 0; r < b.runs; r++) {
        const E *x = (const E *)(const void *)(b.x + r * b.run_stride);
        int64_t i = 0;
        for (; i + 4 * LANES <= b.n; i += 4 * LANES)
            for (int k = 0; k < 4; k++) {
                VEC d = V(load)(x + i + k * LANES) - from;
                sum[k] += d;
                squares[k] = V(fma)(d, d, squares[k]);
            }
        for (int k = 0; i < b.n; i += LANES, k++) {
            int left = b.n - i < LANES ? (int)(b.n - i) : LANES;
            VEC d = V(select)(IOTA < left, V(load_part)(x + i, left) - from, V(splat)(0));
            sum[k] += d;
            squares[k] = V(fma)(d, d, squares[k]);
        }
    }
    for (int h = 2; h > 0; h /= 2)
        for (int k = 0; k < h; k++) sum[k] += sum[k + h], squares[k] += squares[k + h];
    REDUCE_LANES(sum[0], V(add));
    REDUCE_LANES(squares[0], V(add));
    double e = sum[0][0] * share, rest = squares[0][0] - sum[0][0] * e;
    *s0 = rough + e;
    *s1 = rest < 0 ? 0 : rest;
    if (!(squares[0][0] < LARGEST)) moments_two_pass(NULL, 0, b, s0, s1);
}

static void moments_rows(leaf_block b, int64_t count, int64_t step, double *s0, double *s1) {
    double share = 1 / (double)(b.n * b.runs); /* the weight of an element in the mean */
    for (int64_t c = 0; c < count; c++, b.x += step) moments_row(b, share, s0 + c, s1 + c);
}

/* An unmasked load if `left` is all lanes, which the compiler sees after inlining. */
static inline VEC load_lanes(const E *x, int left) {
    return left == LANES ? V(load)(x) : V(load_part)(x, left);
}

static inline void moments_columns_at(const void *const *rows, int n_rows, double share, int64_t c,
                                      int left, double *s0, double *s1) {
    VEC first = load_lanes((const E *)rows[0] + c, left), rough = V(splat)(0);
    VEC sum = rough, squares = rough;
    for (int r = 1; r < n_rows; r++) rough += load_lanes((const E *)rows[r] + c, left) - first;
    rough = first + rough * V(splat)((E)share);
    for (int r = 0; r < n_rows; r++) {
        VEC d = load_lanes((const E *)rows[r] + c, left) - rough;
        sum += d;
        squares = V(fma)(d, d, squares);
    }
    store_moments(rough, sum, squares, share, left, s0 + c, s1 + c);
    if (!NAMED(any, MASK_TYPE)(~(squares < V(splat)((E)LARGEST)))) return;
    for (int k = 0; k < left; k++)
        if (!(squares[k] < LARGEST))
            moments_two_pass(rows, c + k, (leaf_block){NULL, 1, n_rows, 0}, s0 + c + k, s1 + c + k);
}

static void moments_columns(const void *const *rows, int n_rows, int64_t cols, double *s0,
                            double *s1) {
    double share = 1.0 / n_rows;
    int64_t c = 0;
    for (; c + LANES <= cols; c += LANES) moments_columns_at(rows, n_rows, share, c, LANES, s0, s1);
    if (c < cols) moments_columns_at(rows, n_rows, share, c, (int)(cols - c), s0, s1);
}

static void moments_merge(int64_t cols, int64_t na, double *a0, double *a1, int64_t nb,
                          const double *b0, const double *b1) {
    double share = (double)nb / (double)(na + nb), weight = (double)na * share;
    for (int64_t c = 0; c < cols; c++) {
        double d = b0[c] - a0[c];
        a0[c] += d * share;
        a1[c] += b1[c] + d * d * weight;
    }
}

/* The maximum to subtract before exp: 0 if it is infinite, because inf - inf is NaN. */
static inline VEC exp_anchor(VEC m) {
    return V(select)(V(abs)(m) == V(splat)(LARGEST), V(splat)(0), m);
}

static void exp_rows(leaf_block b, int64_t count, int64_t step, E *s0, E *s1) {
    for (int64_t c = 0; c < count; c++, b.x += step) {
        s0[c] = row_MAX(b, V(splat)(0));
        s1[c] = row_SUM_EXP_DIFFERENCE(b, exp_anchor(V(splat)(s0[c])));
    }
}

static void exp_columns(const void *const *rows, int n_rows, int64_t cols, E *s0, E *s1) {
    for (int64_t c = 0; c < cols; c += LANES) {
        int left = cols - c < LANES ? (int)(cols - c) : LANES;
        VEC m = V(load_part)((const E *)rows[0] + c, left), sum = V(splat)(0);
        for (int r = 1; r < n_rows; r++) m = V(max)(m, V(load_part)((const E *)rows[r] + c, left));
        VEC from = exp_anchor(m);
        for (int r = 0; r < n_rows; r++)
            sum += V(exp)(V(load_part)((const E *)rows[r] + c, left) - from);
        V(store_part)(s0 + c, m, left);
        V(store_part)(s1 + c, sum, left);
    }
}

/* A side whose maximum is -inf has the sum 0, and its anchor is meaningless. */
static void exp_merge(int64_t cols, E *a0, E *a1, const E *b0, const E *b1) {
    for (int64_t c = 0; c < cols; c += LANES) {
        int left = cols - c < LANES ? (int)(cols - c) : LANES;
        VEC ma = V(load_part)(a0 + c, left), mb = V(load_part)(b0 + c, left);
        VEC sa = V(load_part)(a1 + c, left), sb = V(load_part)(b1 + c, left);
        VEC m = V(max)(ma, mb), from = exp_anchor(m), zero = V(splat)(0);
        sa = V(select)(ma == V(splat)(LOWEST), zero, sa * V(exp)(exp_anchor(ma) - from));
        sb = V(select)(mb == V(splat)(LOWEST), zero, sb * V(exp)(exp_anchor(mb) - from));
        V(store_part)(a0 + c, m, left);
        V(store_part)(a1 + c, sa + sb, left);
    }
}

#endif

/* --- the table -------------------------------------------------------------------------------- */

static void reduce_rows(gd_fold fold, double p, const void *x, int64_t n, int64_t runs,
                        int64_t run_stride, int64_t count, int64_t step, int64_t index, void *s0,
                        void *s1) {
    VEC extra = V(splat)((E)p);
    leaf_block b = {x, n, runs, run_stride};
    switch (fold) {
#define CASE_ROWS(NAME, ...) \
    case GD_FOLD_##NAME: rows_##NAME(b, extra, count, step, s0); break;
        FOLD_EACH(CASE_ROWS)
    case GD_FOLD_ARGMAX:
    case GD_FOLD_ARGMIN: arg_rows(fold, b, count, step, index, s0, s1); break;
#if IS_FLOAT
    case GD_FOLD_MOMENTS: moments_rows(b, count, step, s0, s1); break;
    case GD_FOLD_EXP: exp_rows(b, count, step, s0, s1); break;
#endif
    default: break;
    }
}

static void reduce_columns(gd_fold fold, double p, const void *const *rows, int n_rows,
                           int64_t cols, int64_t index, void *s0, void *s1) {
    VEC extra = V(splat)((E)p);
    switch (fold) {
#define CASE_COLUMNS(NAME, ...) \
    case GD_FOLD_##NAME: columns_##NAME(rows, n_rows, cols, extra, s0); break;
        FOLD_EACH(CASE_COLUMNS)
    case GD_FOLD_ARGMAX:
    case GD_FOLD_ARGMIN: arg_columns(fold, rows, n_rows, cols, index, s0, s1); break;
#if IS_FLOAT
    case GD_FOLD_MOMENTS: moments_columns(rows, n_rows, cols, s0, s1); break;
    case GD_FOLD_EXP: exp_columns(rows, n_rows, cols, s0, s1); break;
#endif
    default: break;
    }
}

static void reduce_merge(gd_fold fold, int64_t cols, int64_t count_a, void *a0, void *a1,
                         int64_t count_b, const void *b0, const void *b1) {
    (void)count_a, (void)count_b;
    switch (fold) {
#define CASE_MERGE(NAME, ...) \
    case GD_FOLD_##NAME: merge_##NAME(cols, a0, b0); break;
        FOLD_EACH(CASE_MERGE)
    case GD_FOLD_ARGMAX:
    case GD_FOLD_ARGMIN: arg_merge(fold, cols, a0, a1, b0, b1); break;
#if IS_FLOAT
    case GD_FOLD_MOMENTS: moments_merge(cols, count_a, a0, a1, count_b, b0, b1); break;
    case GD_FOLD_EXP: exp_merge(cols, a0, a1, b0, b1); break;
#endif
    default: break;
    }
}

static void reduce_finish(gd_finish finish, double p, int64_t n, int64_t cols, void *s0, void *s1) {
    E *y = s0;
    const E *second = s1;
    (void)p, (void)n, (void)cols, (void)y, (void)second;
    switch (finish) {
#if IS_FLOAT
    case GD_FINISH_MEAN:
        for (int64_t c = 0; c < cols; c++) y[c] /= (E)n;
        break;
    case GD_FINISH_VARIANCE:
    case GD_FINISH_DEVIATION: {
        double freedom = (double)n - p > 0 ? (double)n - p : 0, *result = s0;
        const double *squares = s1;
        for (int64_t c = 0; c < cols; c++) {
            result[c] = squares[c] / freedom;
            if (finish == GD_FINISH_DEVIATION) result[c] = __builtin_sqrt(result[c]);
        }
        break;
    }
    case GD_FINISH_LOG_EXP:
        for (int64_t c = 0; c < cols; c += LANES) {
            int left = cols - c < LANES ? (int)(cols - c) : LANES;
            VEC m = V(load_part)(y + c, left), sum = V(load_part)(second + c, left);
            V(store_part)(y + c, exp_anchor(m) + V(log)(sum), left);
        }
        break;
    case GD_FINISH_SQRT:
        for (int64_t c = 0; c < cols; c++) y[c] = (E)__builtin_sqrt(y[c]);
        break;
    case GD_FINISH_ROOT:
        for (int64_t c = 0; c < cols; c++) y[c] = (E)__builtin_pow(y[c], 1 / p);
        break;
#endif
    default: break;
    }
}

/* Contiguous loops for the common dtypes, which the compiler vectorizes; gd_convert_row for
 * others. */
static void reduce_load(void *to, gd_dtype from, const void *x, int64_t step, int64_t n) {
    bool dense = step == (int64_t)gd_dtype_size(from);
#if !IS_FLOAT
#define LOAD_INTS(T)                                                  \
    for (int64_t i = 0; i < n; i++) ((E *)to)[i] = ((const T *)x)[i]; \
    return
    if (dense && from == GD_I32) {
        LOAD_INTS(int32_t);
    }
    if (dense && from == GD_I8) {
        LOAD_INTS(int8_t);
    }
    if (dense && from == GD_U8) {
        LOAD_INTS(uint8_t);
    }
    if (dense && from == GD_BOOL) {
        for (int64_t i = 0; i < n; i++) ((E *)to)[i] = ((const uint8_t *)x)[i] != 0;
        return;
    }
#elif defined(FOR_F32)
    if (dense && from == GD_F16) {
        convert_f16_to_f32(n, x, to);
        return;
    }
    if (dense && from == GD_BF16) {
        convert_bf16_to_f32(n, x, to);
        return;
    }
#endif
    (void)dense;
    gd_convert_row(OWN_DTYPE, to, sizeof(E), from, x, step, n);
}

const gd_reducer TYPED(gd_reducer)[1] = {
    {reduce_rows, reduce_columns, reduce_merge, reduce_finish, reduce_load}};
