/* vmath.h - vector math functions for the generated elementwise kernels: v_NAME_TYPE for every
 * scalar function of the table of operations, TYPE one of f32, f64, i32, i64.
 *
 * Guarantees. The result of a lane depends only on the input of that lane, not on other lanes or on
 * whether the vector was loaded completely or partially (except for the sign and payload of a NaN).
 * Subnormals are kept, in inputs and outputs. Signed zeros, infinities and NaN behave as in C's
 * libm. Only v_fma fuses multiplications and additions. The last bits may differ between
 * instruction sets; within one they never change.
 *
 * Truth values are 1 and 0 of the type itself; everything that is not zero (also NaN) is true.
 *
 *   vmath_basic.h     arithmetic, comparisons, logic, maximum and minimum, remainders of floats
 *   vmath_int.h       the same for integers, with bit operations and shifts
 *   vmath_f32.h       exp, log, tanh, erf and their families, in single precision throughout
 *   vmath_f32_trig.h  sine, cosine and tangent, and the inverse functions
 *   vmath_f32_wide.h  f32 functions computed in double precision: pow, erfc, the gamma functions
 *   vmath_f64.h       double precision
 */
#ifndef GRADUS_BACKEND_CPU_VMATH_H
#define GRADUS_BACKEND_CPU_VMATH_H

#include "simd.h"

#include "vmath_basic.h"
#include "vmath_int.h"
#include "vmath_f64.h"
#include "vmath_f32.h"
#include "vmath_f32_trig.h"
#include "vmath_f32_wide.h"

#endif
