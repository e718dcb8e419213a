/* random_uniform.h - the parameters of a uniform distribution, for the host part of its kernels. It
 * needs no library function but those of math.h, so backends include it, too. */
#ifndef GRADUS_OPS_RANDOM_RANDOM_UNIFORM_H
#define GRADUS_OPS_RANDOM_RANDOM_UNIFORM_H

#include <math.h>

#include "core/half.h"
#include "ops/random/random_dist.h"

/* The next smaller number of a 16-bit float type, both as bits. */
static inline uint16_t gd_half_below(uint16_t bits) {
    if ((bits & 0x7fff) == 0) return 0x8001;
    return (uint16_t)(bits & 0x8000 ? bits + 1 : bits - 1);
}

/* For a float dtype and finite low <= high. */
static inline gd_uniform_params gd_uniform_prepare(gd_dtype dtype, double low, double high) {
    gd_uniform_params p = {.shift = 8, .unit = 0x1p-24f};
    double top; /* high, rounded to the dtype as p.low is */
    switch (dtype) {
    case GD_F16:
        p.shift = 21, p.unit = 0x1p-11f;
        p.low = gd_f16_to_f32(gd_f32_to_f16((float)low));
        top = gd_f16_to_f32(gd_f32_to_f16((float)high));
        p.below = gd_f16_to_f32(gd_half_below(gd_f32_to_f16((float)high)));
        break;
    case GD_BF16:
        p.shift = 24, p.unit = 0x1p-8f;
        p.low = gd_bf16_to_f32(gd_f32_to_bf16((float)low));
        top = gd_bf16_to_f32(gd_f32_to_bf16((float)high));
        p.below = gd_bf16_to_f32(gd_half_below(gd_f32_to_bf16((float)high)));
        break;
    case GD_F32:
        p.low = (float)low, top = (float)high;
        p.below = nextafterf((float)high, -INFINITY);
        break;
    default:
        p.low = low, top = high;
        p.below = nextafter(high, -(double)INFINITY);
        break;
    }
    p.range = top - p.low;
    if (dtype != GD_F64) p.range = (float)p.range;
    if (p.below < p.low) p.below = p.low; /* low == high */
    return p;
}

#endif
