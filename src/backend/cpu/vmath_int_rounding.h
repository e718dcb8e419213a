/* vmath_int_rounding.h - rounding and classification of integers: rounding is the identity, and all
 * integers are finite.
 */
#ifndef GRADUS_BACKEND_CPU_VMATH_INT_ROUNDING_H
#define GRADUS_BACKEND_CPU_VMATH_INT_ROUNDING_H

#include "backend/cpu/vmath.h"

#define V_DEFINE_INT_ROUNDING(T)                             \
    static inline v##T v_floor_##T(v##T x) { return x; }     \
    static inline v##T v_ceil_##T(v##T x) { return x; }      \
    static inline v##T v_round_##T(v##T x) { return x; }     \
    static inline v##T v_trunc_##T(v##T x) { return x; }     \
    static inline v##T v_isnan_##T(v##T x) { return x - x; } \
    static inline v##T v_isinf_##T(v##T x) { return x - x; } \
    static inline v##T v_isfinite_##T(v##T x) { return x - x + 1; }

V_DEFINE_INT_ROUNDING(i32)
V_DEFINE_INT_ROUNDING(i64)

#endif
