/* float_to_int.h - converts floats to integers, by the one rule of the library (gradus/dtype.h
 * states it for users).
 *
 * Truncates; saturates numbers that are out of range; NaN becomes 0. Copies, options and kernels
 * use these functions, and so do kernels that are compiled at run time.
 *
 * Each function clamps x to the range first, so that the conversion is always defined. That allows
 * compilers to vectorize loops over them.
 */
#ifndef GRADUS_CORE_FLOAT_TO_INT_H
#define GRADUS_CORE_FLOAT_TO_INT_H

#include <stdint.h>

static inline uint8_t gd_f64_to_u8(double x) {
    x = x > 0 ? x : 0; /* also for NaN */
    return (uint8_t)(int32_t)(x < 255 ? x : 255);
}
static inline int8_t gd_f64_to_i8(double x) {
    x = x == x ? x : 0;
    x = x > -128 ? x : -128;
    return (int8_t)(int32_t)(x < 127 ? x : 127);
}
static inline int32_t gd_f64_to_i32(double x) {
    x = x == x ? x : 0;
    x = x > -0x1p31 ? x : -0x1p31;
    return (int32_t)(x < 0x1p31 - 1 ? x : 0x1p31 - 1);
}
static inline int64_t
gd_f64_to_i64(double x) { /* cannot be vectorized; its branches predict well */
    if (x > -0x1p63 && x < 0x1p63) return (int64_t)x;
    return x >= 0x1p63 ? INT64_MAX : x < 0 ? INT64_MIN : 0;
}

/* The same for f32. The largest f32 below 2^31 is 2^31 - 128. */
static inline uint8_t gd_f32_to_u8(float x) {
    x = x > 0 ? x : 0;
    return (uint8_t)(int32_t)(x < 255 ? x : 255);
}
static inline int8_t gd_f32_to_i8(float x) {
    x = x == x ? x : 0;
    x = x > -128 ? x : -128;
    return (int8_t)(int32_t)(x < 127 ? x : 127);
}
static inline int32_t gd_f32_to_i32(float x) {
    x = x == x ? x : 0;
    const int32_t beyond = x >= 0x1p31f;
    x = x > -0x1p31f ? x : -0x1p31f;
    return (int32_t)(x < 0x1p31f ? x : 0x1p31f - 128) | (beyond ? INT32_MAX : 0);
}

/* A parameter of an expression; `integer` if the expression is computed in integers. */
typedef union gd_param {
    double real;
    int64_t integer;
} gd_param;

#endif
