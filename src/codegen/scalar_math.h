/* scalar_math.h - functions that kernels of the scalar dialect call: s_NAME_TYPE for every
 * primitive of prims.c, loads and stores for every dtype, and offsets of elements. TYPE is f32,
 * f64, i32 or i64.
 *
 * The text of this file, after those of core/float_to_int.h, core/half.h and scalar_args.h,
 * precedes every kernel; together they include only C's headers. Compile with -ffp-contract=off:
 * only s_fma may fuse a multiplication and an addition.
 *
 * Each primitive computes what prims.c defines. Truth values are 1 and 0 of the type itself;
 * everything that is not zero, also NaN, is true. Integers wrap; division by zero gives 0.
 */
#ifndef GRADUS_CODEGEN_SCALAR_MATH_H
#define GRADUS_CODEGEN_SCALAR_MATH_H

#include <math.h>
#include <stdint.h>

#include "codegen/scalar_args.h"
#include "core/half.h"
#include "core/float_to_int.h"

#define S_FN static inline __attribute__((unused))

typedef float s_f32;
typedef double s_f64;
typedef int32_t s_i32;
typedef int64_t s_i64;

/* --- elements --------------------------------------------------------------------------------- */

/* Sets the coordinates of call i in the outer dims, or of step j of its loop in the inner dims. */
S_FN void s_outer(const gd_scalar_args *a, int64_t i, int64_t *at) {
    for (int d = a->rank; d-- > 0; i /= a->dims[d]) at[d] = i % a->dims[d];
}
S_FN void s_inner(const gd_scalar_args *a, int64_t j, int64_t *at) {
    for (int d = a->rank + a->inner_rank; d-- > a->rank; j /= a->dims[d]) at[d] = j % a->dims[d];
}

/* The offset of an operand's element; `flat` if the operand is contiguous. */
S_FN int64_t s_offset(const gd_scalar_args *a, int operand, const int64_t *at, int64_t flat) {
    const int64_t *strides = a->operand[operand].strides;
    int64_t offset = 0;
    if (a->contiguous >> operand & 1) return flat;
    for (int d = 0; d < a->rank + a->inner_rank; d++) offset += at[d] * strides[d];
    return offset;
}

/* s_load_DTYPE_TYPE reads an element of a dtype as a type; s_store_TYPE_DTYPE writes it. Values are
 * converted as by the library's copies: floats to integers by core/float_to_int.h; integers
 * wrap. */
#define S_DEFINE_LOADS(T)                                                                          \
    S_FN s_##T s_load_bool_##T(const void *p, int64_t i) {                                         \
        return (s_##T)(((const uint8_t *)p)[i] != 0);                                              \
    }                                                                                              \
    S_FN s_##T s_load_u8_##T(const void *p, int64_t i) { return (s_##T)((const uint8_t *)p)[i]; }  \
    S_FN s_##T s_load_i8_##T(const void *p, int64_t i) { return (s_##T)((const int8_t *)p)[i]; }   \
    S_FN s_##T s_load_i32_##T(const void *p, int64_t i) { return (s_##T)((const int32_t *)p)[i]; } \
    S_FN s_##T s_load_i64_##T(const void *p, int64_t i) { return (s_##T)((const int64_t *)p)[i]; } \
    S_FN s_##T s_load_f16_##T(const void *p, int64_t i) {                                          \
        return s_from_f32_##T(gd_f16_to_f32(((const uint16_t *)p)[i]));                            \
    }                                                                                              \
    S_FN s_##T s_load_bf16_##T(const void *p, int64_t i) {                                         \
        return s_from_f32_##T(gd_bf16_to_f32(((const uint16_t *)p)[i]));                           \
    }                                                                                              \
    S_FN s_##T s_load_f32_##T(const void *p, int64_t i) {                                          \
        return s_from_f32_##T(((const float *)p)[i]);                                              \
    }                                                                                              \
    S_FN s_##T s_load_f64_##T(const void *p, int64_t i) {                                          \
        return s_from_f64_##T(((const double *)p)[i]);                                             \
    }

S_FN s_f32 s_from_f32_f32(float x) { return x; }
S_FN s_f64 s_from_f32_f64(float x) { return x; }
S_FN s_i32 s_from_f32_i32(float x) { return gd_f32_to_i32(x); }
S_FN s_i64 s_from_f32_i64(float x) { return gd_f64_to_i64(x); }
S_FN s_f32 s_from_f64_f32(double x) { return (float)x; }
S_FN s_f64 s_from_f64_f64(double x) { return x; }
S_FN s_i32 s_from_f64_i32(double x) { return gd_f64_to_i32(x); }
S_FN s_i64 s_from_f64_i64(double x) { return gd_f64_to_i64(x); }

S_DEFINE_LOADS(f32)
S_DEFINE_LOADS(f64)
S_DEFINE_LOADS(i32)
S_DEFINE_LOADS(i64)

#define S_DEFINE_STORES(T, U8, I8, I32, I64)                                                  \
    S_FN void s_store_##T##_bool(void *p, int64_t i, s_##T x) { ((uint8_t *)p)[i] = x != 0; } \
    S_FN void s_store_##T##_u8(void *p, int64_t i, s_##T x) { ((uint8_t *)p)[i] = U8(x); }    \
    S_FN void s_store_##T##_i8(void *p, int64_t i, s_##T x) { ((int8_t *)p)[i] = I8(x); }     \
    S_FN void s_store_##T##_i32(void *p, int64_t i, s_##T x) { ((int32_t *)p)[i] = I32(x); }  \
    S_FN void s_store_##T##_i64(void *p, int64_t i, s_##T x) { ((int64_t *)p)[i] = I64(x); }  \
    S_FN void s_store_##T##_f16(void *p, int64_t i, s_##T x) {                                \
        ((uint16_t *)p)[i] = gd_f32_to_f16((float)x);                                         \
    }                                                                                         \
    S_FN void s_store_##T##_bf16(void *p, int64_t i, s_##T x) {                               \
        ((uint16_t *)p)[i] = gd_f32_to_bf16((float)x);                                        \
    }                                                                                         \
    S_FN void s_store_##T##_f32(void *p, int64_t i, s_##T x) { ((float *)p)[i] = (float)x; }  \
    S_FN void s_store_##T##_f64(void *p, int64_t i, s_##T x) { ((double *)p)[i] = (double)x; }

S_DEFINE_STORES(f32, gd_f32_to_u8, gd_f32_to_i8, gd_f32_to_i32, gd_f64_to_i64)
S_DEFINE_STORES(f64, gd_f64_to_u8, gd_f64_to_i8, gd_f64_to_i32, gd_f64_to_i64)
S_DEFINE_STORES(i32, (uint8_t), (int8_t), (int32_t), (int64_t))
S_DEFINE_STORES(i64, (uint8_t), (int8_t), (int32_t), (int64_t))

/* --- comparisons and logic: all types --------------------------------------------------------- */

#define S_DEFINE_LOGIC(T)                                                           \
    S_FN s_##T s_eq_##T(s_##T a, s_##T b) { return a == b; }                        \
    S_FN s_##T s_ne_##T(s_##T a, s_##T b) { return a != b; }                        \
    S_FN s_##T s_lt_##T(s_##T a, s_##T b) { return a < b; }                         \
    S_FN s_##T s_le_##T(s_##T a, s_##T b) { return a <= b; }                        \
    S_FN s_##T s_gt_##T(s_##T a, s_##T b) { return a > b; }                         \
    S_FN s_##T s_ge_##T(s_##T a, s_##T b) { return a >= b; }                        \
    S_FN s_##T s_logical_not_##T(s_##T a) { return a == 0; }                        \
    S_FN s_##T s_logical_and_##T(s_##T a, s_##T b) { return a != 0 && b != 0; }     \
    S_FN s_##T s_logical_or_##T(s_##T a, s_##T b) { return a != 0 || b != 0; }      \
    S_FN s_##T s_logical_xor_##T(s_##T a, s_##T b) { return (a != 0) != (b != 0); } \
    S_FN s_##T s_where_##T(s_##T c, s_##T a, s_##T b) { return c != 0 ? a : b; }    \
    S_FN s_##T s_sign_##T(s_##T a) { return (s_##T)((a > 0) - (a < 0)); }

S_DEFINE_LOGIC(f32)
S_DEFINE_LOGIC(f64)
S_DEFINE_LOGIC(i32)
S_DEFINE_LOGIC(i64)

/* --- floats ----------------------------------------------------------------------------------- */

/* Functions of the C library: s_exp_f32 is expf. */
#define S_CALL1(name, function)                                   \
    S_FN s_f32 s_##name##_f32(s_f32 a) { return function##f(a); } \
    S_FN s_f64 s_##name##_f64(s_f64 a) { return function(a); }
#define S_CALL2(name, function)                                               \
    S_FN s_f32 s_##name##_f32(s_f32 a, s_f32 b) { return function##f(a, b); } \
    S_FN s_f64 s_##name##_f64(s_f64 a, s_f64 b) { return function(a, b); }

S_CALL1(abs, fabs)
S_CALL1(sqrt, sqrt)
S_CALL1(exp, exp)
S_CALL1(exp2, exp2)
S_CALL1(expm1, expm1)
S_CALL1(log, log)
S_CALL1(log2, log2)
S_CALL1(log10, log10)
S_CALL1(log1p, log1p)
S_CALL1(sin, sin)
S_CALL1(cos, cos)
S_CALL1(tan, tan)
S_CALL1(asin, asin)
S_CALL1(acos, acos)
S_CALL1(atan, atan)
S_CALL1(sinh, sinh)
S_CALL1(cosh, cosh)
S_CALL1(tanh, tanh)
S_CALL1(asinh, asinh)
S_CALL1(acosh, acosh)
S_CALL1(atanh, atanh)
S_CALL1(erf, erf)
S_CALL1(erfc, erfc)
S_CALL1(floor, floor)
S_CALL1(ceil, ceil)
S_CALL1(round, nearbyint)
S_CALL1(trunc, trunc)
S_CALL2(fmod, fmod)
S_CALL2(copysign, copysign)
S_CALL2(pow, pow)
S_CALL2(atan2, atan2)
S_FN s_f32 s_fma_f32(s_f32 a, s_f32 b, s_f32 c) { return fmaf(a, b, c); }
S_FN s_f64 s_fma_f64(s_f64 a, s_f64 b, s_f64 c) { return fma(a, b, c); }

/* max and min give NaN if an operand is NaN, and -0 is smaller than 0. The remainder has the sign
 * of the divisor. floor_divide is the floor of the exact quotient: a minus the remainder is
 * divisible by b. */
#define S_DEFINE_FLOAT(T)                                           \
    S_FN s_##T s_add_##T(s_##T a, s_##T b) { return a + b; }        \
    S_FN s_##T s_sub_##T(s_##T a, s_##T b) { return a - b; }        \
    S_FN s_##T s_mul_##T(s_##T a, s_##T b) { return a * b; }        \
    S_FN s_##T s_div_##T(s_##T a, s_##T b) { return a / b; }        \
    S_FN s_##T s_neg_##T(s_##T a) { return -a; }                    \
    S_FN s_##T s_reciprocal_##T(s_##T a) { return 1 / a; }          \
    S_FN s_##T s_rsqrt_##T(s_##T a) { return 1 / s_sqrt_##T(a); }   \
    S_FN s_##T s_isnan_##T(s_##T a) { return a != a; }              \
    S_FN s_##T s_isinf_##T(s_##T a) { return isinf(a) != 0; }       \
    S_FN s_##T s_isfinite_##T(s_##T a) { return isfinite(a) != 0; } \
    S_FN s_##T s_max_##T(s_##T a, s_##T b) {                        \
        if (a != a || a > b) return a;                              \
        return a == b && signbit(b) ? a : b;                        \
    }                                                               \
    S_FN s_##T s_min_##T(s_##T a, s_##T b) {                        \
        if (a != a || a < b) return a;                              \
        return a == b && signbit(a) ? a : b;                        \
    }                                                               \
    S_FN s_##T s_remainder_##T(s_##T a, s_##T b) {                  \
        const s_##T r = s_fmod_##T(a, b);                           \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;            \
    }                                                               \
    S_FN s_##T s_floor_divide_##T(s_##T a, s_##T b) {               \
        if (b == 0) return a / b;                                   \
        const s_##T r = s_fmod_##T(a, b);                           \
        s_##T quotient = (a - r) / b;                               \
        if (r != 0 && (b < 0) != (r < 0)) quotient -= 1;            \
        if (quotient == 0) return s_copysign_##T(0, a / b);         \
        const s_##T below = s_floor_##T(quotient);                  \
        return quotient - below > (s_##T)0.5 ? below + 1 : below;   \
    }

S_DEFINE_FLOAT(f32)
S_DEFINE_FLOAT(f64)

/* --- integers --------------------------------------------------------------------------------- */

#define S_MIN_i32 INT32_MIN
#define S_MAX_i32 INT32_MAX
#define S_MIN_i64 INT64_MIN
#define S_MAX_i64 INT64_MAX

/* U is the unsigned type. A shift by a negative count, or by the width or more, gives 0 to the left
 * and 0 or -1, the sign, to the right. A power with a negative exponent is 1 for 1, 1 or -1 for -1,
 * else 0. */
#define S_DEFINE_INT(T, U, bits)                                                                   \
    S_FN s_##T s_add_##T(s_##T a, s_##T b) { return (s_##T)((U)a + (U)b); }                        \
    S_FN s_##T s_sub_##T(s_##T a, s_##T b) { return (s_##T)((U)a - (U)b); }                        \
    S_FN s_##T s_mul_##T(s_##T a, s_##T b) { return (s_##T)((U)a * (U)b); }                        \
    S_FN s_##T s_neg_##T(s_##T a) { return (s_##T)(0 - (U)a); }                                    \
    S_FN s_##T s_abs_##T(s_##T a) { return a < 0 ? s_neg_##T(a) : a; }                             \
    S_FN s_##T s_max_##T(s_##T a, s_##T b) { return a > b ? a : b; }                               \
    S_FN s_##T s_min_##T(s_##T a, s_##T b) { return a < b ? a : b; }                               \
    S_FN s_##T s_div_##T(s_##T a, s_##T b) { return b == 0 ? 0 : b == -1 ? s_neg_##T(a) : a / b; } \
    S_FN s_##T s_fmod_##T(s_##T a, s_##T b) { return b == 0 || b == -1 ? 0 : a % b; }              \
    S_FN s_##T s_remainder_##T(s_##T a, s_##T b) {                                                 \
        const s_##T r = s_fmod_##T(a, b);                                                          \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                           \
    }                                                                                              \
    S_FN s_##T s_floor_divide_##T(s_##T a, s_##T b) {                                              \
        const s_##T r = s_fmod_##T(a, b);                                                          \
        return s_div_##T(a, b) - (r != 0 && (r < 0) != (b < 0));                                   \
    }                                                                                              \
    S_FN s_##T s_pow_##T(s_##T a, s_##T b) {                                                       \
        if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;                             \
        U result = 1, base = (U)a;                                                                 \
        for (; b > 0; b >>= 1, base *= base)                                                       \
            if (b & 1) result *= base;                                                             \
        return (s_##T)result;                                                                      \
    }                                                                                              \
    S_FN s_##T s_floor_##T(s_##T a) { return a; }                                                  \
    S_FN s_##T s_ceil_##T(s_##T a) { return a; }                                                   \
    S_FN s_##T s_round_##T(s_##T a) { return a; }                                                  \
    S_FN s_##T s_trunc_##T(s_##T a) { return a; }                                                  \
    S_FN s_##T s_isnan_##T(s_##T a) { return (void)a, 0; }                                         \
    S_FN s_##T s_isinf_##T(s_##T a) { return (void)a, 0; }                                         \
    S_FN s_##T s_isfinite_##T(s_##T a) { return (void)a, 1; }                                      \
    S_FN s_##T s_bit_and_##T(s_##T a, s_##T b) { return a & b; }                                   \
    S_FN s_##T s_bit_or_##T(s_##T a, s_##T b) { return a | b; }                                    \
    S_FN s_##T s_bit_xor_##T(s_##T a, s_##T b) { return a ^ b; }                                   \
    S_FN s_##T s_bit_not_##T(s_##T a) { return ~a; }                                               \
    S_FN s_##T s_shl_##T(s_##T a, s_##T b) { return b < 0 || b >= bits ? 0 : (s_##T)((U)a << b); } \
    S_FN s_##T s_shr_##T(s_##T a, s_##T b) { return a >> (b < 0 || b >= bits ? bits - 1 : b); }

S_DEFINE_INT(i32, uint32_t, 32)
S_DEFINE_INT(i64, uint64_t, 64)

#endif
