/* vmath.h - what the generated elementwise kernels are made of: v_NAME_TYPE for every scalar
 * function of the table of operations, TYPE one of f32, f64, i32, i64.
 *
 * Promises. A lane's result depends on that lane's input alone: not on its neighbours, nor on
 * whether the vector was loaded whole or in part (which NaN it is, where it is NaN, may vary).
 * Denormals are kept, in and out. Signed zeros, infinities and NaN go the way of C's libm. Nothing
 * is fused but through v_fma. Each instruction set has its own last bits; within one they never
 * change.
 *
 * Truth values are 1 and 0 of the type itself; whatever is not zero (NaN too) counts as true.
 *
 *   vmath_basic.h     arithmetic, comparisons, logic, maximum and minimum, remainders of floats
 *   vmath_int.h       the same for integers, with bits and shifts
 *   vmath_f32.h       exp, log, tanh, erf and their families, in single precision throughout
 *   vmath_f32_trig.h  sine, cosine and tangent, and the inverse functions
 *   vmath_f32_wide.h  what needs double precision inside: pow, erfc, the gamma functions
 *   vmath_f64.h       double precision
 */
#ifndef GRADUS_CPU_VMATH_H
#define GRADUS_CPU_VMATH_H

#include "simd.h"

#include "vmath_basic.h"
#include "vmath_int.h"
#include "vmath_f64.h"
#include "vmath_f32.h"
#include "vmath_f32_trig.h"
#include "vmath_f32_wide.h"

#endif
