/* softmax.typed.isa.c - softmax for one dtype (see softmax.h and simd_typed.h).
 *
 * Along a row it makes three passes: the maximum; the sum of exponentials, which softmax also
 * stores; and the scaled result. Rows of usual length stay in cache. The sums of blocks of a long
 * row accumulate in f64.
 */
#include "backend/cpu/simd_typed.h"
#include "core/tile.h"
#include "ops/softmax/cpu/softmax.h"

enum { BLOCK = 4096 };

/* The first `left` lanes of v, and `fill` in the others. */
#define MASK_TAIL(v, fill) V(select)(IOTA < left, v, V(splat)((E)(fill)))

static E max_lanes(VEC v) {
    REDUCE_LANES(v, V(max));
    return v[0];
}
static E sum_lanes(VEC v) {
    REDUCE_LANES(v, V(add));
    return v[0];
}

/* --- rows ------------------------------------------------------------------------------------- */

static E row_max(const E *x, int64_t n) {
    VEC a[4];
    int64_t i = 0;
    for (int k = 0; k < 4; k++) a[k] = V(splat)((E)LOWEST);
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int k = 0; k < 4; k++) a[k] = V(max)(a[k], V(load)(x + i + k * LANES));
    for (; i + LANES <= n; i += LANES) a[0] = V(max)(a[0], V(load)(x + i));
    if (i < n) {
        int left = (int)(n - i);
        a[1] = V(max)(a[1], MASK_TAIL(LOAD_TAIL(x + i), LOWEST));
    }
    return max_lanes(V(max)(V(max)(a[0], a[1]), V(max)(a[2], a[3])));
}

/* The sum of exp(x - m) over a block; stores the exponentials in y unless `logs`. */
static inline E exp_block(bool logs, int64_t n, const E *x, E m, E *y) {
    VEC from = V(splat)(m), a = V(splat)(0), b = a;
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        VEC v = V(exp)(V(load)(x + i) - from), w = V(exp)(V(load)(x + i + LANES) - from);
        if (!logs) V(store)(y + i, v), V(store)(y + i + LANES, w);
        a += v;
        b += w;
    }
    if (i + LANES <= n) {
        VEC v = V(exp)(V(load)(x + i) - from);
        if (!logs) V(store)(y + i, v);
        a += v;
        i += LANES;
    }
    if (i < n) {
        int left = (int)(n - i);
        VEC v = V(exp)(LOAD_TAIL(x + i) - from);
        if (!logs) STORE_TAIL(y + i, v);
        b += MASK_TAIL(v, 0);
    }
    return sum_lanes(a + b);
}

static void softmax_row(bool logs, int64_t n, const E *x, E *y) {
    E m = row_max(x, n);
    double sum = 0;
    for (int64_t b = 0; b < n; b += BLOCK) {
        int64_t count = n - b < BLOCK ? n - b : BLOCK;
        sum += logs ? exp_block(true, count, x + b, m, y + b)
                    : exp_block(false, count, x + b, m, y + b);
    }
    VEC by = V(splat)((E)(logs ? __builtin_log(sum) : 1 / sum)), from = V(splat)(m);
#define SCALE(LOAD, STORE)    STORE(y + i, LOAD(y + i) * by)
#define SUBTRACT(LOAD, STORE) STORE(y + i, (LOAD(x + i) - from) - by)
    if (logs) EACH_VECTOR(n, SUBTRACT);
    else EACH_VECTOR(n, SCALE);
}

static void softmax_rows(bool logs, int64_t rows, int64_t n, const void *x, void *y) {
    for (int64_t r = 0; r < rows; r++) softmax_row(logs, n, (const E *)x + r * n, (E *)y + r * n);
}

/* The sum that the gradient of a row subtracts: of gy * y, or of gy for log_softmax. */
static inline E dot_block(bool logs, int64_t n, const E *gy, const E *y) {
    VEC a = V(splat)(0), b = a;
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        VEC v = V(load)(gy + i), w = V(load)(gy + i + LANES);
        a += logs ? v : v * V(load)(y + i);
        b += logs ? w : w * V(load)(y + i + LANES);
    }
    if (i + LANES <= n) {
        VEC v = V(load)(gy + i);
        a += logs ? v : v * V(load)(y + i);
        i += LANES;
    }
    if (i < n) {
        int left = (int)(n - i); /* masked-off lanes load as 0 */
        VEC v = LOAD_TAIL(gy + i);
        b += logs ? v : v * LOAD_TAIL(y + i);
    }
    return sum_lanes(a + b);
}

static void softmax_grad_row(bool logs, int64_t n, const E *gy, const E *y, E *gx) {
    double dot = 0;
    for (int64_t b = 0; b < n; b += BLOCK) {
        int64_t count = n - b < BLOCK ? n - b : BLOCK;
        dot +=
            logs ? dot_block(true, count, gy + b, y + b) : dot_block(false, count, gy + b, y + b);
    }
    VEC s = V(splat)((E)dot);
#define ROW_GRAD(LOAD, STORE)     STORE(gx + i, (LOAD(gy + i) - s) * LOAD(y + i))
#define LOG_ROW_GRAD(LOAD, STORE) STORE(gx + i, LOAD(gy + i) - V(exp)(LOAD(y + i)) * s)
    if (logs) EACH_VECTOR(n, LOG_ROW_GRAD);
    else EACH_VECTOR(n, ROW_GRAD);
}

static void softmax_grad_rows(bool logs, int64_t rows, int64_t n, const void *gy, const void *y,
                              void *gx) {
    for (int64_t r = 0; r < rows; r++)
        softmax_grad_row(logs, n, (const E *)gy + r * n, (const E *)y + r * n, (E *)gx + r * n);
}

/* --- columns ------------------------------------------------------------------------------------
 *
 * Rows of a tensor are often a power of two apart and then map to the same cache sets. The elements
 * of short columns are therefore kept in a buffer. Long columns are read twice instead: online
 * softmax, which rescales the sum whenever the maximum grows, needs a single pass before the one
 * that writes.
 */

enum {
    KEPT = 512,  /* capacity of the buffer in vectors */
    CHUNK = 512, /* long columns that are computed together */
};

/* Softmax of `width` vectors of columns; the last vector has `left` lanes. n is at most KEPT /
 * width. */
static inline __attribute__((always_inline)) void
short_columns(bool logs, int width, int left, int64_t n, int64_t step, const E *x, E *y) {
    VEC m[4], sum[4], by[4];
    GD_TILE(VEC, kept, KEPT);
#define LOAD_AT(p, k) ((k) + 1 < width || left == LANES ? V(load)(p) : V(load_part)(p, left))
#define STORE_AT(p, k, v)                                     \
    do {                                                      \
        if ((k) + 1 < width || left == LANES) V(store)(p, v); \
        else V(store_part)(p, v, left);                       \
    } while (0)
    for (int k = 0; k < width; k++) m[k] = V(splat)((E)LOWEST), sum[k] = V(splat)(0);
    for (int64_t t = 0; t < n; t++)
        for (int k = 0; k < width; k++) {
            VEC v = LOAD_AT(x + t * step + k * LANES, k);
            kept[t * width + k] = v;
            m[k] = V(max)(m[k], v);
        }
    for (int64_t t = 0; t < n; t++)
        for (int k = 0; k < width; k++) {
            VEC v = V(exp)(kept[t * width + k] - m[k]);
            if (!logs) kept[t * width + k] = v;
            sum[k] += v;
        }
    for (int k = 0; k < width; k++) by[k] = logs ? V(log)(sum[k]) : V(splat)(1) / sum[k];
    for (int64_t t = 0; t < n; t++)
        for (int k = 0; k < width; k++) {
            VEC v = kept[t * width + k];
            STORE_AT(y + t * step + k * LANES, k, logs ? (v - m[k]) - by[k] : v * by[k]);
        }
}

/* Online softmax: sum = sum * exp(m - x) + 1 if x is a new maximum, else sum + exp(x - m). */
static inline void long_columns(bool logs, int64_t cols, int64_t n, int64_t step, const E *x,
                                E *y) {
    VEC m[CHUNK / LANES], sum[CHUNK / LANES], one = V(splat)(1);
    int64_t vectors = (cols + LANES - 1) / LANES;
    for (int64_t k = 0; k < vectors; k++) m[k] = V(splat)((E)LOWEST), sum[k] = V(splat)(0);
    for (int64_t t = 0; t < n; t++)
        for (int64_t k = 0; k < vectors; k++) {
            int left = cols - k * LANES < LANES ? (int)(cols - k * LANES) : LANES;
            VEC v = LOAD_TAIL(x + t * step + k * LANES);
            VEC e = V(select)(v == m[k], one, V(exp)(-V(abs)(v - m[k])));
            sum[k] = V(select)(v > m[k], sum[k] * e + one, sum[k] + e);
            m[k] = V(max)(m[k], v);
        }
    for (int64_t k = 0; k < vectors; k++) {
        sum[k] += (m[k] - m[k]); /* NaN if the maximum is infinite, as inf - inf in the sum */
        sum[k] = logs ? V(log)(sum[k]) : one / sum[k];
    }
    for (int64_t t = 0; t < n; t++)
        for (int64_t k = 0; k < vectors; k++) {
            int left = cols - k * LANES < LANES ? (int)(cols - k * LANES) : LANES;
            VEC v = LOAD_TAIL(x + t * step + k * LANES) - m[k];
            STORE_TAIL(y + t * step + k * LANES, logs ? v - sum[k] : V(exp)(v) * sum[k]);
        }
}

static void softmax_columns(bool logs, int64_t cols, int64_t n, int64_t step, const void *xp,
                            void *yp) {
    const E *x = xp;
    E *y = yp;
    int64_t c = 0;
    for (; n > KEPT && c < cols; c += CHUNK) {
        int64_t count = cols - c < CHUNK ? cols - c : CHUNK;
        if (logs) long_columns(true, count, n, step, x + c, y + c);
        else long_columns(false, count, n, step, x + c, y + c);
    }
    for (; n <= KEPT / 4 && c + 4 * LANES <= cols; c += 4 * LANES) {
        if (logs) short_columns(true, 4, LANES, n, step, x + c, y + c);
        else short_columns(false, 4, LANES, n, step, x + c, y + c);
    }
    for (; c < cols; c += LANES) {
        int left = cols - c < LANES ? (int)(cols - c) : LANES;
        if (logs) short_columns(true, 1, left, n, step, x + c, y + c);
        else short_columns(false, 1, left, n, step, x + c, y + c);
    }
}

static inline void grad_columns(bool logs, int64_t cols, int64_t n, int64_t step, const E *gy,
                                const E *y, E *gx) {
    VEC sum[CHUNK / LANES];
    int64_t vectors = (cols + LANES - 1) / LANES;
    for (int64_t k = 0; k < vectors; k++) sum[k] = V(splat)(0);
    for (int64_t t = 0; t < n; t++)
        for (int64_t k = 0; k < vectors; k++) {
            int left = cols - k * LANES < LANES ? (int)(cols - k * LANES) : LANES;
            VEC g = LOAD_TAIL(gy + t * step + k * LANES);
            sum[k] += logs ? g : g * LOAD_TAIL(y + t * step + k * LANES);
        }
    for (int64_t t = 0; t < n; t++)
        for (int64_t k = 0; k < vectors; k++) {
            int left = cols - k * LANES < LANES ? (int)(cols - k * LANES) : LANES;
            VEC g = LOAD_TAIL(gy + t * step + k * LANES), v = LOAD_TAIL(y + t * step + k * LANES);
            STORE_TAIL(gx + t * step + k * LANES, logs ? g - V(exp)(v) * sum[k] : (g - sum[k]) * v);
        }
}

/* Long columns are computed in smaller chunks, so that the second pass finds them in cache. */
static void softmax_grad_columns(bool logs, int64_t cols, int64_t n, int64_t step, const void *gy,
                                 const void *y, void *gx) {
    int64_t chunk = n <= 64 ? CHUNK : 4 * LANES;
    for (int64_t c = 0; c < cols; c += chunk) {
        int64_t count = cols - c < chunk ? cols - c : chunk;
        if (logs)
            grad_columns(true, count, n, step, (const E *)gy + c, (const E *)y + c, (E *)gx + c);
        else grad_columns(false, count, n, step, (const E *)gy + c, (const E *)y + c, (E *)gx + c);
    }
}

const gd_softmax_isa TYPED(gd_softmax)[1] = {
    {softmax_rows, softmax_columns, softmax_grad_rows, softmax_grad_columns}};
