/* vmath_int.h - arithmetic, bit operations and shifts of integer vectors (see vmath.h).
 *
 * Sums, differences, products and powers wrap (they are computed as unsigned). Division by zero
 * gives 0 for quotient and remainder, and the smallest integer divided by -1 is itself.
 */
#ifndef GRADUS_BACKEND_CPU_VMATH_INT_H
#define GRADUS_BACKEND_CPU_VMATH_INT_H

#include "core/float_to_int.h"
#include "vmath_basic.h"

/* Truncated quotients. i32: a double holds both operands, and the rounded quotient cannot reach the
 * next integer. i64: one lane at a time, because there is no vector instruction. */
V_FN vi32 v_div_i32(vi32 a, vi32 b) {
    vi32 plain = ~((b == 0) | (b == -1));
    vi32 divisor = v_select_i32(plain, b, v_splat_i32(1));
    vi32 q = v_join_i32(v_lo_f64_i32(a) / v_lo_f64_i32(divisor),
                        v_hi_f64_i32(a) / v_hi_f64_i32(divisor));
    return v_select_i32(plain, q, (vi32)((vu32)b * (vu32)a)); /* -a or 0 */
}
static inline vi64 v_div_i64(vi64 a, vi64 b) {
    vi64 q = (vi64)((vu64)b * (vu64)a); /* -a if b is -1, 0 if b is 0 */
    for (int i = 0; i < VI64_LANES; i++)
        if (b[i] != 0 && b[i] != -1) q[i] = a[i] / b[i];
    return q;
}

/* Shifts by a negative count or by at least the width: left shifts give 0, right shifts the sign (0
 * or -1). pow is computed by repeated squaring; a negative exponent gives 1 for 1, +-1 for -1, and
 * 0 otherwise. */
#define V_DEFINE_INT(T, V, U, bits)                                             \
    V_FN V v_add_##T(V a, V b) { return (V)((U)a + (U)b); }                     \
    V_FN V v_sub_##T(V a, V b) { return (V)((U)a - (U)b); }                     \
    V_FN V v_mul_##T(V a, V b) { return (V)((U)a * (U)b); }                     \
    V_FN V v_neg_##T(V x) { return (V)(0 - (U)x); }                             \
    V_FN V v_abs_##T(V x) { return v_select_##T(x < 0, v_neg_##T(x), x); }      \
    V_FN V v_sign_##T(V x) { return (x < 0) - (x > 0); }                        \
    V_FN V v_max_##T(V a, V b) { return v_select_##T(a > b, a, b); }            \
    V_FN V v_min_##T(V a, V b) { return v_select_##T(a < b, a, b); }            \
                                                                                \
    V_FN V v_fmod_##T(V a, V b) {                                               \
        V r = v_sub_##T(a, v_mul_##T(v_div_##T(a, b), b));                      \
        return r & (b != 0);                                                    \
    }                                                                           \
    V_FN V v_remainder_##T(V a, V b) {                                          \
        V r = v_fmod_##T(a, b);                                                 \
        return v_add_##T(r, b & (r != 0) & ((r ^ b) < 0));                      \
    }                                                                           \
    V_FN V v_floor_divide_##T(V a, V b) {                                       \
        V q = v_div_##T(a, b);                                                  \
        V r = v_sub_##T(a, v_mul_##T(q, b)) & (b != 0);                         \
        return v_add_##T(q, (r != 0) & ((r ^ b) < 0));                          \
    }                                                                           \
                                                                                \
    V_FN V v_bit_and_##T(V a, V b) { return a & b; }                            \
    V_FN V v_bit_or_##T(V a, V b) { return a | b; }                             \
    V_FN V v_bit_xor_##T(V a, V b) { return a ^ b; }                            \
    V_FN V v_bit_not_##T(V x) { return ~x; }                                    \
    V_FN V v_shl_##T(V a, V n) {                                                \
        V inside = (n >= 0) & (n < bits);                                       \
        return (V)((U)a << (U)(n & (bits - 1))) & inside;                       \
    }                                                                           \
    V_FN V v_shr_##T(V a, V n) {                                                \
        V inside = (n >= 0) & (n < bits);                                       \
        return a >> v_select_##T(inside, n, v_splat_##T(bits - 1));             \
    }                                                                           \
                                                                                \
    V_FN V v_pow_##T(V a, V n) {                                                \
        V odd = -(n & 1);                                                       \
        V unit = v_select_##T(odd, a, v_splat_##T(1)) & ((a == 1) | (a == -1)); \
        V power = v_splat_##T(1), left = n & (n > 0);                           \
        while (v_any_##T(left != 0)) {                                          \
            power = v_select_##T(-(left & 1), v_mul_##T(power, a), power);      \
            a = v_mul_##T(a, a);                                                \
            left >>= 1;                                                         \
        }                                                                       \
        return v_select_##T(n < 0, unit, power);                                \
    }

V_DEFINE_INT(i32, vi32, vu32, 32)
V_DEFINE_INT(i64, vi64, vu64, 64)

#endif
