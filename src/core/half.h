/* half.h - conversion of f16 and bf16: rounding to nearest even, NaN stays NaN, denormals are kept.
 *
 * Kernels that are compiled at run time contain this file, so it may include only standard headers.
 */
#ifndef GRADUS_CORE_HALF_H
#define GRADUS_CORE_HALF_H

#include <stdint.h>

typedef union gd_half_bits {
    float f;
    uint32_t u;
} gd_half_bits;

static inline float gd_f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, mantissa = h & 0x3ffu,
                   exponent = h >> 10 & 0x1fu;
    gd_half_bits bits;
    if (exponent == 0x1fu) bits.u = sign | 0x7f800000u | mantissa << 13;
    else if (exponent != 0) bits.u = sign | (exponent + 112u) << 23 | mantissa << 13;
    else {
        bits.f = (float)mantissa * 0x1p-24f; /* zero or denormal: exact in f32 */
        bits.u |= sign;
    }
    return bits.f;
}

static inline uint16_t gd_f32_to_f16(float f) {
    const gd_half_bits bits = {f};
    const uint32_t sign = bits.u >> 16 & 0x8000u, magnitude = bits.u & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu)); /* NaN */
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);    /* rounds to infinity */
    if (magnitude < 0x38800000u) { /* denormal in f16: let the adder round */
        gd_half_bits sum = {.u = magnitude};
        sum.f += 0.5f; /* one unit in the last place of 0.5 is 2^-24 */
        return (uint16_t)(sign | (sum.u - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

static inline float gd_bf16_to_f32(uint16_t h) {
    const gd_half_bits bits = {.u = (uint32_t)h << 16};
    return bits.f;
}

static inline uint16_t gd_f32_to_bf16(float f) {
    const gd_half_bits bits = {f};
    if ((bits.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits.u >> 16) | 0x40u);
    return (uint16_t)((bits.u + 0x7fffu + ((bits.u >> 16) & 1u)) >> 16);
}

#endif
