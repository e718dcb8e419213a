/* pool_row.isa.c - rows of pooling windows (pool_row.h).
 *
 * Computes eight windows at a time, or four, one per lane: a vector of maxima and one of their
 * indices, or a vector of sums. The last vector of a row overlaps the one before, so some windows
 * are computed twice.
 */
#include "ops/pool/cpu/pool_row.h"

#include <string.h>

typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int64_t i64x8 __attribute__((vector_size(64)));
typedef double f64x8 __attribute__((vector_size(64)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int64_t i64x4 __attribute__((vector_size(32)));
typedef double f64x4 __attribute__((vector_size(32)));

/* Every second of 2 L - 1 elements, without reading beyond them. */
#define EVEN_8(low, high) __builtin_shufflevector(low, high, 0, 2, 4, 6, 9, 11, 13, 15)
#define EVEN_4(low, high) __builtin_shufflevector(low, high, 0, 2, 5, 7)
#define LANES_8 \
    { 0, 1, 2, 3, 4, 5, 6, 7 }
#define LANES_4 \
    { 0, 1, 2, 3 }

/* Computes L windows from window w on. As in index_of_max (pool_template.h), the first of equal
 * elements is taken, and a NaN replaces everything before it. */
#define DEFINE_BLOCK(L)                                                                        \
    static inline void load_##L(f32x##L *to, const float *x, int64_t stride) {                 \
        f32x##L high;                                                                          \
        memcpy(to, x, sizeof *to);                                                             \
        if (stride == 1) return;                                                               \
        memcpy(&high, x + L - 1, sizeof high);                                                 \
        *to = EVEN_##L(*to, high);                                                             \
    }                                                                                          \
                                                                                               \
    static inline void max_##L(const gd_pool_row *r, int64_t stride, int64_t w) {              \
        const i32x##L lanes = LANES_##L;                                                       \
        f32x##L best = {0};                                                                    \
        i32x##L best_at = {0};                                                                 \
        bool first = true;                                                                     \
        for (int64_t z = 0; z < r->depth.count; z++)                                           \
            for (int64_t h = 0; h < r->rows.count; h++) {                                      \
                const int64_t plane = r->depth.first + z * r->depth.step;                      \
                const int64_t row = plane * r->height + r->rows.first + h * r->rows.step;      \
                for (int64_t c = 0; c < r->columns.count; c++) {                               \
                    const int64_t at =                                                         \
                        row * r->width + r->columns.first + c * r->columns.step + w * stride;  \
                    f32x##L x;                                                                 \
                    load_##L(&x, r->x + at, stride);                                           \
                    const i32x##L x_at = (int32_t)at + lanes * (int32_t)stride;                \
                    const i32x##L replaces = first ? (lanes == lanes) : (x > best) | (x != x); \
                    best = (f32x##L)((replaces & (i32x##L)x) | (~replaces & (i32x##L)best));   \
                    best_at = (replaces & x_at) | (~replaces & best_at);                       \
                    first = false;                                                             \
                }                                                                              \
            }                                                                                  \
        memcpy(r->y + w, &best, sizeof best);                                                  \
        if (r->indices_i32) memcpy(r->indices_i32 + w, &best_at, sizeof best_at);              \
        if (!r->indices) return;                                                               \
        const i64x##L wide = __builtin_convertvector(best_at, i64x##L);                        \
        memcpy(r->indices + w, &wide, sizeof wide);                                            \
    }                                                                                          \
                                                                                               \
    static inline void average_##L(const gd_pool_row *r, int64_t stride, int64_t w) {          \
        f64x##L sums = {0};                                                                    \
        for (int64_t z = 0; z < r->depth.count; z++)                                           \
            for (int64_t h = 0; h < r->rows.count; h++) {                                      \
                const int64_t plane = r->depth.first + z * r->depth.step;                      \
                const int64_t row = plane * r->height + r->rows.first + h * r->rows.step;      \
                const float *at = r->x + row * r->width + r->columns.first + w * stride;       \
                f64x##L sum = {0};                                                             \
                for (int64_t c = 0; c < r->columns.count; c++) {                               \
                    f32x##L x;                                                                 \
                    load_##L(&x, at + c * r->columns.step, stride);                            \
                    sum += __builtin_convertvector(x, f64x##L);                                \
                }                                                                              \
                sums += sum;                                                                   \
            }                                                                                  \
        const f32x##L y = __builtin_convertvector(sums / r->divisor, f32x##L);                 \
        memcpy(r->y + w, &y, sizeof y);                                                        \
    }

DEFINE_BLOCK(8)
DEFINE_BLOCK(4)

#define EACH_BLOCK(L, stride, block)                                    \
    do {                                                                \
        int64_t w_ = 0;                                                 \
        for (; w_ + L <= r->count; w_ += L) block##_##L(r, stride, w_); \
        if (w_ < r->count) block##_##L(r, stride, r->count - L);        \
    } while (0)

#define DEFINE_ROW(block)                                             \
    void GD_ISA_FN(gd_##block##_row_f32)(const gd_pool_row *r) {      \
        if (r->count >= 8 && r->stride == 1) EACH_BLOCK(8, 1, block); \
        else if (r->count >= 8) EACH_BLOCK(8, 2, block);              \
        else if (r->stride == 1) EACH_BLOCK(4, 1, block);             \
        else EACH_BLOCK(4, 2, block);                                 \
    }
DEFINE_ROW(max)
DEFINE_ROW(average)

double GD_ISA_FN(gd_pool_sum_f32)(const float *x, int64_t n) {
    f64x8 a = {0}, b = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        f32x8 low, high;
        memcpy(&low, x + i, sizeof low);
        memcpy(&high, x + i + 8, sizeof high);
        a += __builtin_convertvector(low, f64x8);
        b += __builtin_convertvector(high, f64x8);
    }
    a += b;
    double sum = ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
    for (; i < n; i++) sum += (double)x[i];
    return sum;
}
