/* rows.isa.c - reduces chunks of rows in the order of the vector dialect
 * (codegen/dialect_vector.c), so that the evaluator and compiled kernels give the same bits. */
#include "backend/cpu/rows.h"
#include "backend/cpu/vmath.h"
#include "backend/cpu/vmath_row.h"

#define FOLD_CHUNK(FOLD_NAME, T, V, E, LANES, START)                                         \
    do {                                                                                     \
        V a[4];                                                                              \
        int64_t at = 0;                                                                      \
        for (int w = 0; w < 4; w++) a[w] = v_splat_##T(START);                               \
        for (; ways > 1 && at + 4 * LANES <= n; at += 4 * LANES)                             \
            for (int w = 0; w < 4; w++)                                                      \
                a[w] = v_##FOLD_NAME##_##T(a[w], v_load_##T((const E *)x + at + w * LANES)); \
        for (; at + LANES <= n; at += LANES)                                                 \
            a[0] = v_##FOLD_NAME##_##T(a[0], v_load_##T((const E *)x + at));                 \
        if (at < n) {                                                                        \
            const int left = (int)(n - at);                                                  \
            a[0] = v_##FOLD_NAME##_##T(                                                      \
                a[0], v_first_##T(v_load_part_##T((const E *)x + at, left), left, START));   \
        }                                                                                    \
        return v_across_##FOLD_NAME##_##T(a, ways);                                          \
    } while (0)

#define DEFINE_ROW_FOLD(T, V, E, LANES)                                                     \
    double GD_ISA_FN(gd_row_fold_##T)(gd_row_use use, int ways, int64_t n, const void *x) { \
        if (use == GD_ROW_MAX) FOLD_CHUNK(max, T, V, E, LANES, -V_INF_##T);                 \
        if (use == GD_ROW_MIN) FOLD_CHUNK(min, T, V, E, LANES, V_INF_##T);                  \
        FOLD_CHUNK(add, T, V, E, LANES, 0);                                                 \
    }

DEFINE_ROW_FOLD(f32, vf32, float, VF32_LANES)
DEFINE_ROW_FOLD(f64, vf64, double, VF64_LANES)
