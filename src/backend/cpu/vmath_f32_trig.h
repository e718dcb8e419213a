/* vmath_f32_trig.h - sine, cosine, tangent and their inverses in single precision (see vmath.h). */
#ifndef GRADUS_BACKEND_CPU_VMATH_F32_TRIG_H
#define GRADUS_BACKEND_CPU_VMATH_F32_TRIG_H

#include "vmath_f32.h"

#define V_TRIG_LARGE 0x1p20f /* larger arguments are computed by libm */
#define V_PI_2_HI    1.570796371f
#define V_PI_2_LO    -4.371139e-8f /* pi/2 = hi + lo */
#define V_PI_HI      3.141592741f
#define V_PI_LO      -8.742278e-8f

/* ---- Sine, cosine, tangent ------------------------------------------------------------------- */

typedef struct v_angle {
    vu32 quarter;  /* the multiple of pi/2 that was subtracted */
    vf32 sin, cos; /* of the remainder, between about -pi/4 and pi/4 */
} v_angle;

/* x - n pi/2 in double precision (Cody-Waite reduction): the product of n with the first 33 bits of
 * pi/2 is exact, and the remaining bits are small. */
V_FN vf64 v_angle_remainder_f64(vf64 x, vf64 n) {
    vf64 rest = v_fma_f64(n, v_splat_f64(-0x1.921fb544p+0), x);
    return v_fma_f64(n, v_splat_f64(-0x1.0b4611a626331p-34), rest);
}

/* For 0 <= a <= V_TRIG_LARGE. */
V_FN v_angle v_angle_reduce_f32(vf32 a) {
    /* (sin r - r)/r^3 and (cos r - 1 + r^2/2)/r^4 in r^2, to 2^-32 and 2^-31 for |r| <= 0.85 */
    static const float s[] = {-0.1666666716f, 0.008333371021f, -0.0001984885748f, 2.784239314e-6f};
    static const float c[] = {1.0f, -0.5f, 0.04166663438f, -0.001388678094f, 2.437435614e-5f};
    v_angle angle;
    vf32 n = v_nearest_f32(a, 0.636619772f, &angle.quarter);
    vf32 r = v_join_f32(v_angle_remainder_f64(v_lo_f64(a), v_lo_f64(n)),
                        v_angle_remainder_f64(v_hi_f64(a), v_hi_f64(n)));
    vf32 u = r * r;
    angle.sin = v_fma_f32(r * u, V_POLY_F32(u, s), r);
    angle.cos = V_POLY_F32(u, c);
    return angle;
}

/* Large arguments, infinities and NaN: libm has as many digits of pi as they need. */
#define V_DEFINE_TRIG_LARGE(name)                                                               \
    static __attribute__((noinline, unused)) vf32 v_##name##_large_f32(vf32 x, vf32 y) {        \
        for (int i = 0; i < VF32_LANES; i++)                                                    \
            if (!(__builtin_fabsf(x[i]) <= V_TRIG_LARGE)) y[i] = (float)__builtin_##name(x[i]); \
        return y;                                                                               \
    }
V_DEFINE_TRIG_LARGE(sin)
V_DEFINE_TRIG_LARGE(cos)
V_DEFINE_TRIG_LARGE(tan)

/* Odd quarters exchange sine and cosine, and every second pair of quarters changes the sign. */
V_FN vf32 v_sin_f32(vf32 x) {
    vf32 a = v_abs_f32(x);
    v_angle t = v_angle_reduce_f32(a);
    vf32 y = v_select_f32((vi32) - (t.quarter & 1), t.cos, t.sin);
    y = (vf32)((vu32)y ^ ((t.quarter >> 1) << 31) ^ ((vu32)x & 0x80000000));
    return v_any_i32(~(a <= V_TRIG_LARGE)) ? v_sin_large_f32(x, y) : y;
}

V_FN vf32 v_cos_f32(vf32 x) {
    vf32 a = v_abs_f32(x);
    v_angle t = v_angle_reduce_f32(a);
    vf32 y = v_select_f32((vi32) - (t.quarter & 1), t.sin, t.cos);
    y = (vf32)((vu32)y ^ (((t.quarter + 1) >> 1) << 31));
    return v_any_i32(~(a <= V_TRIG_LARGE)) ? v_cos_large_f32(x, y) : y;
}

V_FN vf32 v_tan_f32(vf32 x) {
    vf32 a = v_abs_f32(x);
    v_angle t = v_angle_reduce_f32(a);
    vi32 odd = (vi32) - (t.quarter & 1);
    vf32 y = v_select_f32(odd, t.cos, t.sin) / v_select_f32(odd, t.sin, t.cos);
    y = (vf32)((vi32)y ^ (((vi32)x ^ odd) & INT32_MIN));
    return v_any_i32(~(a <= V_TRIG_LARGE)) ? v_tan_large_f32(x, y) : y;
}

/* ---- Inverse functions ----------------------------------------------------------------------- */

/* asin(w) = w + w z A(z) with z = w^2 for w <= 1/2, A to 2^-31. Above that, asin(a) = pi/2 - 2
 * asin(sqrt((1 - a)/2)). */
V_FN vf32 v_asin_tail_f32(vf32 z) {
    static const float c[] = {0.1666665971f, 0.07500521839f, 0.04451338947f,
                              0.0318386741f, 0.01431814115f, 0.03768895194f};
    return V_POLY_F32(z, c);
}

V_FN vf32 v_asin_f32(vf32 x) {
    vf32 a = v_abs_f32(x);
    vi32 far = a > 0.5f;
    vf32 z = v_select_f32(far, 0.5f - 0.5f * a, a * a);
    vf32 w = v_select_f32(far, v_sqrt_f32(z), a);
    vf32 tail = w * z * v_asin_tail_f32(z);
    vf32 from_end = (V_PI_2_HI - (w + w)) - (tail + tail - V_PI_2_LO);
    return v_copysign_f32(v_select_f32(far, from_end, w + tail), x);
}

/* pi/2 - asin(x) in the middle, 2 asin(sqrt((1 - a)/2)) near 1, and pi less that near -1. */
V_FN vf32 v_acos_f32(vf32 x) {
    vf32 a = v_abs_f32(x);
    vi32 far = a > 0.5f;
    vf32 z = v_select_f32(far, 0.5f - 0.5f * a, a * a);
    vf32 w = v_select_f32(far, v_sqrt_f32(z), x);
    vf32 tail = w * z * v_asin_tail_f32(z);
    vf32 middle = V_PI_2_HI - (w + (tail - V_PI_2_LO));
    vf32 end = 2.0f * (w + tail);
    end = v_select_f32(x < 0, V_PI_HI - (end - V_PI_LO), end);
    return v_select_f32(far, end, middle);
}

/* atan(t) for 0 <= t <= 1, to 2^-27. */
V_FN vf32 v_atan_core_f32(vf32 t) {
    static const float c[] = {-0.3333329856f,  0.1999852955f,   -0.1426401287f,
                              0.1095085144f,   -0.08399178088f, 0.05787837133f,
                              -0.03109305352f, 0.0108660236f,   -0.001782091334f};
    vf32 u = t * t;
    return v_fma_f32(t * u, V_POLY_F32(u, c), t);
}

/* Beyond 1, atan(a) = pi/2 - atan(1/a). */
V_FN vf32 v_atan_f32(vf32 x) {
    vf32 a = v_abs_f32(x), one = v_splat_f32(1.0f);
    vf32 y = v_atan_core_f32(v_pick_min_f32(one, a) / v_pick_max_f32(one, a));
    y = v_select_f32(a > 1.0f, V_PI_2_HI - (y - V_PI_2_LO), y);
    return v_copysign_f32(y, x);
}

/* The angle in the first octant, then mirrored at the diagonal, the vertical and the horizontal
 * axis according to the operands. Two zeros have slope 0, two infinities slope 1. */
V_FN vf32 v_atan2_f32(vf32 y, vf32 x) {
    vf32 ay = v_abs_f32(y), ax = v_abs_f32(x);
    vf32 shorter = v_pick_min_f32(ay, ax), longer = v_pick_max_f32(ay, ax);
    vf32 slope = shorter / longer;
    slope = v_select_f32(longer == 0, shorter, slope);
    slope = v_select_f32(shorter == V_INF_f32, v_splat_f32(1.0f), slope);
    vf32 angle = v_atan_core_f32(slope);
    angle = v_select_f32(ay > ax, V_PI_2_HI - (angle - V_PI_2_LO), angle);
    angle = v_select_f32((vi32)x < 0, V_PI_HI - (angle - V_PI_LO), angle);
    angle = v_copysign_f32(angle, y);
    return v_select_f32((x != x) | (y != y), x + y, angle);
}

#endif
