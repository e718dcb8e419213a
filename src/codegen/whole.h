/* whole.h - numbers of options as integers. Kernels, compiled while a program runs too, include it.
 */
#ifndef GRADUS_CODEGEN_WHOLE_H
#define GRADUS_CODEGEN_WHOLE_H

#include <stdint.h>

/* Without the fraction; where it is beyond the integers, the nearest of them, so that the infinity
 * of a limit that was not given limits nothing. NaN is 0. */
static inline int64_t gd_whole_i64(double x) {
    return x != x ? 0 : x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : (int64_t)x;
}
static inline int32_t gd_whole_i32(double x) {
    return x != x ? 0 : x >= 0x1p31 ? INT32_MAX : x < -0x1p31 ? INT32_MIN : (int32_t)x;
}

#endif
