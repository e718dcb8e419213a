/* vmath_basic.h - arithmetic, comparisons and logic of floating-point vectors (see vmath.h). */
#ifndef GRADUS_BACKEND_CPU_VMATH_BASIC_H
#define GRADUS_BACKEND_CPU_VMATH_BASIC_H

#include "simd.h"

/* ---- Polynomials ----------------------------------------------------------------------------- */

/* c[0] + c[1] x + ... + c[n-1] x^(n-1) by Horner's rule. A long polynomial is split into its even
 * and odd terms, each evaluated by Horner's rule in x^2: one more multiplication, but the
 * dependency chains are half as long. n and c are constants in every caller, so the loops unroll
 * and the coefficients stay in registers. */
#define V_DEFINE_POLY(T, V, E)                                                                    \
    V_FN V v_horner_##T(V x, const E *c, int n, int step) {                                       \
        V sum = v_splat_##T(c[n - 1]);                                                            \
        for (int i = n - 1 - step; i >= 0; i -= step) sum = v_fma_##T(sum, x, v_splat_##T(c[i])); \
        return sum;                                                                               \
    }                                                                                             \
    V_FN V v_poly_##T(V x, const E *c, int n) {                                                   \
        if (n < 8) return v_horner_##T(x, c, n, 1);                                               \
        V square = x * x;                                                                         \
        V even = v_horner_##T(square, c, (n - 1) | 1, 2);                                         \
        V odd = v_horner_##T(square, c + 1, (n - 2) | 1, 2);                                      \
        return v_fma_##T(odd, x, even);                                                           \
    }
V_DEFINE_POLY(f32, vf32, float)
V_DEFINE_POLY(f64, vf64, double)
#define V_COUNT(table)        ((int)(sizeof(table) / sizeof((table)[0])))
#define V_POLY_F32(x, coeffs) v_poly_f32(x, coeffs, V_COUNT(coeffs))
#define V_POLY_F64(x, coeffs) v_poly_f64(x, coeffs, V_COUNT(coeffs))

/* ---- Comparisons and logic of all four types ------------------------------------------------- */

#define V_TRUTH(T, V, M, mask) ((V)((mask) & (M)v_splat_##T(1)))

#define V_DEFINE_LOGIC(T, V, M)                                                          \
    V_FN V v_eq_##T(V a, V b) { return V_TRUTH(T, V, M, a == b); }                       \
    V_FN V v_ne_##T(V a, V b) { return V_TRUTH(T, V, M, a != b); }                       \
    V_FN V v_lt_##T(V a, V b) { return V_TRUTH(T, V, M, a < b); }                        \
    V_FN V v_le_##T(V a, V b) { return V_TRUTH(T, V, M, a <= b); }                       \
    V_FN V v_gt_##T(V a, V b) { return V_TRUTH(T, V, M, a > b); }                        \
    V_FN V v_ge_##T(V a, V b) { return V_TRUTH(T, V, M, a >= b); }                       \
    V_FN V v_logical_not_##T(V a) { return V_TRUTH(T, V, M, a == 0); }                   \
    V_FN V v_logical_and_##T(V a, V b) { return V_TRUTH(T, V, M, (a != 0) & (b != 0)); } \
    V_FN V v_logical_or_##T(V a, V b) { return V_TRUTH(T, V, M, (a != 0) | (b != 0)); }  \
    V_FN V v_logical_xor_##T(V a, V b) { return V_TRUTH(T, V, M, (a != 0) ^ (b != 0)); } \
    V_FN V v_where_##T(V c, V a, V b) { return v_select_##T(c != 0, a, b); }

V_DEFINE_LOGIC(f32, vf32, vi32)
V_DEFINE_LOGIC(f64, vf64, vi64)
V_DEFINE_LOGIC(i32, vi32, vi32)
V_DEFINE_LOGIC(i64, vi64, vi64)

/* ---- Arithmetic of floats --------------------------------------------------------------------
 *
 * max and min return NaN if either operand is NaN. sign returns 0 for zeros and NaN, as PyTorch
 * does. (abs, copysign, fma, sqrt, floor, ceil, round and trunc are in simd.h.)
 *
 * floor_divide and remainder follow PyTorch: both start from the exact fmod, the remainder has the
 * sign of the divisor, and the quotient is the integer nearest to (a - remainder)/b. */
#define V_DEFINE_ARITHMETIC(T, V, M)                                                     \
    V_FN V v_add_##T(V a, V b) { return a + b; }                                         \
    V_FN V v_sub_##T(V a, V b) { return a - b; }                                         \
    V_FN V v_mul_##T(V a, V b) { return a * b; }                                         \
    V_FN V v_div_##T(V a, V b) { return a / b; }                                         \
    V_FN V v_neg_##T(V x) { return -x; }                                                 \
    V_FN V v_reciprocal_##T(V x) { return 1 / x; }                                       \
    V_FN V v_rsqrt_##T(V x) { return 1 / v_sqrt_##T(x); }                                \
    V_FN V v_sign_##T(V x) { return V_TRUTH(T, V, M, x > 0) - V_TRUTH(T, V, M, x < 0); } \
    V_FN V v_max_##T(V a, V b) { return v_select_##T(a != a, a, v_pick_max_##T(a, b)); } \
    V_FN V v_min_##T(V a, V b) { return v_select_##T(a != a, a, v_pick_min_##T(a, b)); } \
    V_FN V v_isnan_##T(V x) { return V_TRUTH(T, V, M, x != x); }                         \
    V_FN V v_isinf_##T(V x) { return V_TRUTH(T, V, M, v_abs_##T(x) == V_INF_##T); }      \
    V_FN V v_isfinite_##T(V x) { return V_TRUTH(T, V, M, v_abs_##T(x) < V_INF_##T); }    \
                                                                                         \
    V_FN V v_remainder_##T(V a, V b) {                                                   \
        V r = v_fmod_##T(a, b);                                                          \
        M step = (r != 0) & ((b < 0) ^ (r < 0));                                         \
        return v_select_##T(step, r + b, r);                                             \
    }                                                                                    \
    V_FN V v_floor_divide_##T(V a, V b) {                                                \
        V r = v_fmod_##T(a, b), quotient = a / b;                                        \
        M step = (r != 0) & ((b < 0) ^ (r < 0));                                         \
        V q = (a - r) / b - V_TRUTH(T, V, M, step);                                      \
        V nearest = v_floor_##T(q);                                                      \
        nearest += V_TRUTH(T, V, M, q - nearest > 0.5f);                                 \
        nearest = v_select_##T(q == 0, v_copysign_##T((V){0}, quotient), nearest);       \
        return v_select_##T(b == 0, quotient, nearest);                                  \
    }

#define V_INF_f32 __builtin_inff()
#define V_INF_f64 __builtin_inf()
#define V_NAN_f32 __builtin_nanf("")
#define V_NAN_f64 __builtin_nan("")

/* fmod is exact for all operands. In double precision the quotient of two floats cannot round up to
 * an integer while it is below 2^28, and quotient times divisor has at most 53 bits, so one
 * division, one multiplication and one subtraction give the exact remainder. Larger quotients, and
 * a divisor of 0, are computed by libm lane by lane. */
V_FN vf64 v_fmod_short_f64(vf64 a, vf64 b) { return a - v_trunc_f64(a / b) * b; }

static __attribute__((noinline, unused)) vf32 v_fmod_lanes_f32(vf32 a, vf32 b, vf32 r, vi32 mask) {
    for (int i = 0; i < VF32_LANES; i++)
        if (mask[i]) r[i] = __builtin_fmodf(a[i], b[i]);
    return r;
}
V_FN vf32 v_fmod_f32(vf32 a, vf32 b) {
    vf32 r = v_join_f32(v_fmod_short_f64(v_lo_f64(a), v_lo_f64(b)),
                        v_fmod_short_f64(v_hi_f64(a), v_hi_f64(b)));
    vf32 size_a = v_abs_f32(a), size_b = v_abs_f32(b);
    vi32 is_long = ~((size_a < size_b * 0x1p27f) & (size_b < V_INF_f32));
    r = v_copysign_f32(r, a);
    return v_any_i32(is_long) ? v_fmod_lanes_f32(a, b, r, is_long) : r;
}
static inline vf64 v_fmod_f64(vf64 a, vf64 b) {
    for (int i = 0; i < VF64_LANES; i++) a[i] = __builtin_fmod(a[i], b[i]);
    return a;
}

V_DEFINE_ARITHMETIC(f32, vf32, vi32)
V_DEFINE_ARITHMETIC(f64, vf64, vi64)

#endif
