/* whole.h - floats as integers: the one rule of the library (gradus/dtype.h states it for users).
 *
 * The fraction is dropped; what lies beyond the integer type becomes the nearest number of that
 * type; NaN becomes 0. Copies, options and kernels use these functions, kernels that are compiled
 * while a program runs too.
 *
 * Each first brings x into the range, so that the conversion itself is always defined: that is
 * what lets a compiler turn a loop of them into vector code.
 */
#ifndef GRADUS_CORE_WHOLE_H
#define GRADUS_CORE_WHOLE_H

#include <stdint.h>

static inline uint8_t gd_whole_u8(double x) {
    x = x > 0 ? x : 0; /* NaN too */
    return (uint8_t)(int32_t)(x < 255 ? x : 255);
}
static inline int8_t gd_whole_i8(double x) {
    x = x == x ? x : 0;
    x = x > -128 ? x : -128;
    return (int8_t)(int32_t)(x < 127 ? x : 127);
}
static inline int32_t gd_whole_i32(double x) {
    x = x == x ? x : 0;
    x = x > -0x1p31 ? x : -0x1p31;
    return (int32_t)(x < 0x1p31 - 1 ? x : 0x1p31 - 1);
}
static inline int64_t gd_whole_i64(double x) { /* no vector code: branches that nobody takes */
    if (x > -0x1p63 && x < 0x1p63) return (int64_t)x;
    return x >= 0x1p63 ? INT64_MAX : x < 0 ? INT64_MIN : 0;
}

/* The same of an f32, whose nearest neighbour below 2^31 is 2^31 - 128. */
static inline uint8_t gd_whole_u8_f32(float x) {
    x = x > 0 ? x : 0;
    return (uint8_t)(int32_t)(x < 255 ? x : 255);
}
static inline int8_t gd_whole_i8_f32(float x) {
    x = x == x ? x : 0;
    x = x > -128 ? x : -128;
    return (int8_t)(int32_t)(x < 127 ? x : 127);
}
static inline int32_t gd_whole_i32_f32(float x) {
    x = x == x ? x : 0;
    const int32_t beyond = x >= 0x1p31f;
    x = x > -0x1p31f ? x : -0x1p31f;
    return (int32_t)(x < 0x1p31f ? x : 0x1p31f - 128) | (beyond ? INT32_MAX : 0);
}

/* A parameter of an expression: whole where it is computed in integers. */
typedef union gd_param {
    double real;
    int64_t whole;
} gd_param;

#endif
