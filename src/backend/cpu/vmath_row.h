/* vmath_row.h - reductions of a row, shared by kernels that are compiled at run time and by the
 * evaluator (rows.isa.c), so that both give the same bits.
 *
 * A row is reduced in chunks. In each chunk, `ways` vector accumulators are reduced independently;
 * they are combined pairwise, and then the lanes are. The results of the chunks are combined in
 * order in f64.
 */
#ifndef GRADUS_BACKEND_CPU_VMATH_ROW_H
#define GRADUS_BACKEND_CPU_VMATH_ROW_H

#include "vmath_basic.h"

/* Lane i of the result is lane[i] of v. */
#if defined(__clang__)
#define V_SHUFFLE(v, lane, LANES)                                     \
    __extension__({                                                   \
        __typeof__(v) to_;                                            \
        for (int k_ = 0; k_ < LANES; k_++) to_[k_] = (v)[(lane)[k_]]; \
        to_;                                                          \
    })
#else
#define V_SHUFFLE(v, lane, LANES) __builtin_shuffle(v, lane)
#endif

/* v_first: the first n lanes, `fill` in the others. v_rotate: rotated by `by` lanes. v_across_FOLD:
 * combines all lanes of `ways` accumulators. */
#define V_DEFINE_ROW(T, V, E, M, LANES)                             \
    V_FN V v_first_##T(V v, int n, E fill) {                        \
        M lane;                                                     \
        for (int i = 0; i < LANES; i++) lane[i] = i;                \
        return v_select_##T(lane < n, v, v_splat_##T(fill));        \
    }                                                               \
    V_FN V v_rotate_##T(V v, int by) {                              \
        M lane;                                                     \
        for (int i = 0; i < LANES; i++) lane[i] = (i + by) % LANES; \
        return V_SHUFFLE(v, lane, LANES);                           \
    }                                                               \
    V_DEFINE_ACROSS(add, T, V, E, LANES)                            \
    V_DEFINE_ACROSS(max, T, V, E, LANES)                            \
    V_DEFINE_ACROSS(min, T, V, E, LANES)

#define V_DEFINE_ACROSS(FOLD, T, V, E, LANES)                                                   \
    V_FN E v_across_##FOLD##_##T(const V *a, int ways) {                                        \
        V v = a[0];                                                                             \
        if (ways == 4) v = v_##FOLD##_##T(v_##FOLD##_##T(v, a[1]), v_##FOLD##_##T(a[2], a[3])); \
        if (LANES > 8) v = v_##FOLD##_##T(v, v_rotate_##T(v, 8));                               \
        if (LANES > 4) v = v_##FOLD##_##T(v, v_rotate_##T(v, 4));                               \
        if (LANES > 2) v = v_##FOLD##_##T(v, v_rotate_##T(v, 2));                               \
        return v_##FOLD##_##T(v, v_rotate_##T(v, 1))[0];                                        \
    }

V_DEFINE_ROW(f32, vf32, float, vi32, VF32_LANES)
V_DEFINE_ROW(f64, vf64, double, vi64, VF64_LANES)

/* Combines the results of two chunks; NaN propagates. */
V_FN double v_on_add(double a, double b) { return a + b; }
V_FN double v_on_max(double a, double b) { return a != a || a > b ? a : b; }
V_FN double v_on_min(double a, double b) { return a != a || a < b ? a : b; }

#endif
