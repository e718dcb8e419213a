/* vmath_whole.h - primitives that mean little on integers: rounding is no change, all are finite.
 */
#ifndef GRADUS_CPU_VMATH_WHOLE_H
#define GRADUS_CPU_VMATH_WHOLE_H

#include "backend/cpu/vmath.h"

#define V_WHOLE(T)                                           \
    static inline v##T v_floor_##T(v##T x) { return x; }     \
    static inline v##T v_ceil_##T(v##T x) { return x; }      \
    static inline v##T v_round_##T(v##T x) { return x; }     \
    static inline v##T v_trunc_##T(v##T x) { return x; }     \
    static inline v##T v_isnan_##T(v##T x) { return x - x; } \
    static inline v##T v_isinf_##T(v##T x) { return x - x; } \
    static inline v##T v_isfinite_##T(v##T x) { return x - x + 1; }

V_WHOLE(i32)
V_WHOLE(i64)

#endif
