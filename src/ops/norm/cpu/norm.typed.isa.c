/* norm.typed.isa.c - the passes of normalizations for one dtype (see norm.h and simd_typed.h). */
#include <stddef.h>

#include "ops/norm/cpu/norm.h"
#include "backend/cpu/simd_typed.h"

enum { BLOCK = 2048 };

/* The same for sums: ADD(k, offset, LOAD, MASKED) adds to accumulator k of four. MASKED zeroes the
 * lanes beyond the end. */
#define MASK_NONE(v) (v)
#define MASK_TAIL(v) V(select)(IOTA < left, v, V(splat)(0))
#define EACH_SUM(n, ADD)                               \
    do {                                               \
        int64_t i = 0;                                 \
        for (; i + 4 * LANES <= (n); i += 4 * LANES) { \
            ADD(0, 0, LOAD_ALL, MASK_NONE);            \
            ADD(1, LANES, LOAD_ALL, MASK_NONE);        \
            ADD(2, 2 * LANES, LOAD_ALL, MASK_NONE);    \
            ADD(3, 3 * LANES, LOAD_ALL, MASK_NONE);    \
        }                                              \
        for (; i + LANES <= (n); i += LANES) {         \
            ADD(0, 0, LOAD_ALL, MASK_NONE);            \
        }                                              \
        if (i < (n)) {                                 \
            int left = (int)((n)-i);                   \
            ADD(1, 0, LOAD_TAIL, MASK_TAIL);           \
        }                                              \
    } while (0)
#define FOUR_ZEROS \
    { V(splat)(0), V(splat)(0), V(splat)(0), V(splat)(0) }

static inline double sum_accumulators(const VEC *a) {
    VEC v = (a[0] + a[1]) + (a[2] + a[3]);
    REDUCE_LANES(v, V(add));
    return v[0];
}

/* --- statistics ------------------------------------------------------------------------------- */

static double block_sum(int64_t n, const E *x) {
    VEC a[4] = FOUR_ZEROS;
#define ADD_SUM(k, at, LOAD, MASKED) a[k] += LOAD(x + i + at)
    EACH_SUM(n, ADD_SUM);
    return sum_accumulators(a);
}

static double block_squares(int64_t n, const E *x, E from) {
    VEC a[4] = FOUR_ZEROS, m = V(splat)(from);
#define ADD_SQUARES(k, at, LOAD, MASKED)      \
    do {                                      \
        VEC d = MASKED(LOAD(x + i + at) - m); \
        a[k] += d * d;                        \
    } while (0)
    EACH_SUM(n, ADD_SQUARES);
    return sum_accumulators(a);
}

/* The moments of each block, in two passes over L1, merged by the formulas of Chan et al. */
static void norm_moments(int64_t n, const void *p, double *mean, double *squares) {
    const E *x = p;
    *mean = *squares = 0;
    for (int64_t b = 0; b < n; b += BLOCK) {
        int64_t count = n - b < BLOCK ? n - b : BLOCK;
        E m = (E)(block_sum(count, x + b) / (double)count);
        double d = (double)m - *mean, share = (double)count / (double)(b + count);
        *squares += block_squares(count, x + b, m) + d * d * (double)b * share;
        *mean += d * share;
    }
}

static void norm_squares(int64_t n, const void *p, double *squares) {
    const E *x = p;
    *squares = 0;
    for (int64_t b = 0; b < n; b += BLOCK)
        *squares += block_squares(n - b < BLOCK ? n - b : BLOCK, x + b, 0);
}

/* --- forward ---------------------------------------------------------------------------------- */

static void norm_scale(int64_t n, const void *px, double pa, double pb, void *py) {
    const E *x = px;
    E *y = py;
    VEC a = V(splat)((E)pa), b = V(splat)((E)pb);
#define SCALE(LOAD, STORE) STORE(y + i, LOAD(x + i) * a + b)
    EACH_VECTOR(n, SCALE);
}

static void norm_scale_row(int64_t n, const void *px, double mean, double pa, const void *pw,
                           const void *pb, void *py) {
    const E *x = px, *w = pw, *b = pb;
    E *y = py;
    VEC m = V(splat)((E)mean), a = V(splat)((E)pa);
#define SCALE_ONLY(LOAD, STORE) STORE(y + i, (LOAD(x + i) - m) * a)
#define SCALE_W(LOAD, STORE)    STORE(y + i, (LOAD(x + i) - m) * a * LOAD(w + i))
#define SCALE_B(LOAD, STORE)    STORE(y + i, (LOAD(x + i) - m) * a + LOAD(b + i))
#define SCALE_WB(LOAD, STORE)   STORE(y + i, (LOAD(x + i) - m) * a * LOAD(w + i) + LOAD(b + i))
    if (w && b) EACH_VECTOR(n, SCALE_WB);
    else if (w) EACH_VECTOR(n, SCALE_W);
    else if (b) EACH_VECTOR(n, SCALE_B);
    else EACH_VECTOR(n, SCALE_ONLY);
}

static void norm_scale_each(int64_t n, const void *px, const void *pa, const void *pb, void *py) {
    const E *x = px, *a = pa, *b = pb;
    E *y = py;
#define SCALE_EACH(LOAD, STORE) STORE(y + i, LOAD(x + i) * LOAD(a + i) + LOAD(b + i))
    EACH_VECTOR(n, SCALE_EACH);
}

/* --- backward --------------------------------------------------------------------------------- */

static void block_dots(int64_t n, const E *gy, const E *x, E mean, double *sum, double *dot) {
    VEC a[4] = FOUR_ZEROS, d[4] = FOUR_ZEROS, m = V(splat)(mean);
#define ADD_DOTS(k, at, LOAD, MASKED)               \
    do {                                            \
        VEC g = LOAD(gy + i + at);                  \
        a[k] += g;                                  \
        d[k] += MASKED(g * (LOAD(x + i + at) - m)); \
    } while (0)
    EACH_SUM(n, ADD_DOTS);
    *sum += sum_accumulators(a);
    *dot += sum_accumulators(d);
}

static void norm_dots(int64_t n, const void *gy, const void *x, double mean, double *sum,
                      double *dot) {
    *sum = *dot = 0;
    for (int64_t b = 0; b < n; b += BLOCK)
        block_dots(n - b < BLOCK ? n - b : BLOCK, (const E *)gy + b, (const E *)x + b, (E)mean, sum,
                   dot);
}

/* One block of a row; `weighted` is a constant in each caller. */
static inline __attribute__((always_inline)) void block_dots_row(int64_t n, const E *gy, const E *x,
                                                                 E mean, E pa, int weighted,
                                                                 const E *w, E *gw, E *gb,
                                                                 double *sum, double *dot) {
    VEC s[4] = FOUR_ZEROS, d[4] = FOUR_ZEROS, m = V(splat)(mean), a = V(splat)(pa);
    int64_t i = 0;
#define ADD_ROW(k, at, LOAD, STORE, MASKED)                                \
    do {                                                                   \
        VEC g = LOAD(gy + i + at), p = MASKED(g * (LOAD(x + i + at) - m)); \
        STORE(gw + i + at, LOAD(gw + i + at) + p * a);                     \
        STORE(gb + i + at, LOAD(gb + i + at) + g);                         \
        if (weighted) {                                                    \
            VEC v = LOAD(w + i + at);                                      \
            g *= v;                                                        \
            p *= v;                                                        \
        }                                                                  \
        s[k] += g;                                                         \
        d[k] += p;                                                         \
    } while (0)
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        ADD_ROW(0, 0, LOAD_ALL, STORE_ALL, MASK_NONE);
        ADD_ROW(1, LANES, LOAD_ALL, STORE_ALL, MASK_NONE);
    }
    if (i + LANES <= n) {
        ADD_ROW(2, 0, LOAD_ALL, STORE_ALL, MASK_NONE);
        i += LANES;
    }
    if (i < n) {
        int left = (int)(n - i);
        ADD_ROW(3, 0, LOAD_TAIL, STORE_TAIL, MASK_TAIL);
    }
    *sum += sum_accumulators(s);
    *dot += sum_accumulators(d);
}

static void norm_dots_row(int64_t n, const void *gy, const void *x, double mean, double a,
                          const void *w, void *gw, void *gb, double *sum, double *dot) {
    *sum = *dot = 0;
    for (int64_t b = 0; b < n; b += BLOCK) {
        int64_t count = n - b < BLOCK ? n - b : BLOCK;
        const E *g = (const E *)gy + b, *v = (const E *)x + b;
        if (w)
            block_dots_row(count, g, v, (E)mean, (E)a, 1, (const E *)w + b, (E *)gw + b,
                           (E *)gb + b, sum, dot);
        else
            block_dots_row(count, g, v, (E)mean, (E)a, 0, NULL, (E *)gw + b, (E *)gb + b, sum, dot);
    }
}

static void norm_dots_each(int64_t n, const void *pg, const void *px, const void *pm, void *ps,
                           void *pd) {
    const E *gy = pg, *x = px, *mean = pm;
    E *sums = ps, *dots = pd;
#define DOTS_EACH(LOAD, STORE)                                                \
    do {                                                                      \
        VEC g = LOAD(gy + i);                                                 \
        STORE(sums + i, LOAD(sums + i) + g);                                  \
        STORE(dots + i, LOAD(dots + i) + g * (LOAD(x + i) - LOAD(mean + i))); \
    } while (0)
    EACH_VECTOR(n, DOTS_EACH);
}

static void norm_input_grad(int64_t n, const void *pg, const void *px, double mean, double pa,
                            double pb, double pc, void *py) {
    const E *gy = pg, *x = px;
    E *gx = py;
    VEC m = V(splat)((E)mean), a = V(splat)((E)pa), b = V(splat)((E)pb), c = V(splat)((E)pc);
#define INPUT_GRAD(LOAD, STORE) STORE(gx + i, LOAD(gy + i) * a + ((LOAD(x + i) - m) * b + c))
    EACH_VECTOR(n, INPUT_GRAD);
}

static void norm_input_grad_row(int64_t n, const void *pg, const void *px, double mean, double pa,
                                double pb, double pc, const void *pw, void *py) {
    const E *gy = pg, *x = px, *w = pw;
    E *gx = py;
    if (!w) {
        norm_input_grad(n, pg, px, mean, pa, pb, pc, py);
        return;
    }
    VEC m = V(splat)((E)mean), a = V(splat)((E)pa), b = V(splat)((E)pb), c = V(splat)((E)pc);
#define INPUT_GRAD_ROW(LOAD, STORE) \
    STORE(gx + i, LOAD(gy + i) * LOAD(w + i) * a + ((LOAD(x + i) - m) * b + c))
    EACH_VECTOR(n, INPUT_GRAD_ROW);
}

static void norm_input_grad_each(int64_t n, const void *pg, const void *px, const void *pm,
                                 const void *pa, const void *pb, const void *pc, void *py) {
    const E *gy = pg, *x = px, *mean = pm, *a = pa, *b = pb, *c = pc;
    E *gx = py;
#define INPUT_GRAD_EACH(LOAD, STORE)           \
    STORE(gx + i, LOAD(gy + i) * LOAD(a + i) + \
                      ((LOAD(x + i) - LOAD(mean + i)) * LOAD(b + i) + LOAD(c + i)))
    EACH_VECTOR(n, INPUT_GRAD_EACH);
}

static void norm_add(int64_t n, const void *px, void *py) {
    const E *x = px;
    E *y = py;
#define ADD_TO(LOAD, STORE) STORE(y + i, LOAD(y + i) + LOAD(x + i))
    EACH_VECTOR(n, ADD_TO);
}

const gd_norm_isa TYPED(gd_norm)[1] = {{
    norm_moments,
    norm_squares,
    norm_scale,
    norm_scale_row,
    norm_scale_each,
    norm_dots,
    norm_dots_row,
    norm_dots_each,
    norm_input_grad,
    norm_input_grad_row,
    norm_input_grad_each,
    norm_add,
}};
