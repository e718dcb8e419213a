/* vmath_f32.h - exp, log, tanh, erf and their families in single precision (see vmath.h).
 *
 * Each function reduces its argument to a small range, evaluates a minimax polynomial and
 * reconstructs the result. Constants in two parts (_HI, _LO) have a first part with so few bits
 * that products with it are exact. The ranges and errors of the polynomials are given beside them.
 *
 * Integers that are added to exponents are unsigned and wrap: -1 is 2^32 - 1. Lanes of NaN may hold
 * any integer.
 */
#ifndef GRADUS_BACKEND_CPU_VMATH_F32_H
#define GRADUS_BACKEND_CPU_VMATH_F32_H

#include "vmath_basic.h"

#define V_LN2_HI_F32      0.693359375f    /* 9 bits: its product with an exponent is exact */
#define V_LN2_LO_F32      -2.12194440e-4f /* ln 2 - V_LN2_HI_F32 */
#define V_LOG2E_F32       1.44269504f     /* 1 / ln 2 */
#define V_ROUND_MAGIC_F32 0x1.8p23f /* adding it rounds to an integer, which is in the low bits */

/* ---- exp and functions based on it ----------------------------------------------------------- */

/* The integer nearest to x * by (below 2^22 in magnitude), as a float and, in *n, as an integer.
 */
V_FN vf32 v_nearest_f32(vf32 x, float by, vu32 *n) {
    vf32 t = v_fma_f32(x, v_splat_f32(by), v_splat_f32(V_ROUND_MAGIC_F32));
    *n = (vu32)t - (vu32)v_splat_f32(V_ROUND_MAGIC_F32);
    return t - V_ROUND_MAGIC_F32;
}

/* 2^n for -126 <= n <= 127. */
V_FN vf32 v_power2_f32(vu32 n) { return (vf32)((n + 127) << 23); }

/* x * 2^n for |n| <= 250, in two steps. The first step is exact, so a subnormal result is rounded
 * once. */
V_FN vf32 v_scale_f32(vf32 x, vu32 n) {
    vu32 half = (vu32)((vi32)n >> 1);
    return x * v_power2_f32(half) * v_power2_f32(n - half);
}

/* e^x = 2^n e^r, |r| <= ln2/2; returns r. */
V_FN vf32 v_exp_reduce_f32(vf32 x, vu32 *n) {
    vf32 k = v_nearest_f32(x, V_LOG2E_F32, n);
    vf32 r = v_fma_f32(k, v_splat_f32(-V_LN2_HI_F32), x);
    return v_fma_f32(k, v_splat_f32(-V_LN2_LO_F32), r);
}

/* (e^r - 1 - r)/r^2, to 2^-26 of e^r - 1 for |r| <= ln2/2. */
V_FN vf32 v_exp_tail_f32(vf32 r) {
    static const float c[] = {0.4999999702f, 0.1666653752f, 0.04166773334f, 0.0083672693f,
                              0.001383855357f};
    return V_POLY_F32(r, c);
}
V_FN vf32 v_expm1_core_f32(vf32 r) { return v_fma_f32(r * r, v_exp_tail_f32(r), r); }
V_FN vf32 v_exp_core_f32(vf32 r) {
    vf32 one = v_splat_f32(1.0f);
    return v_fma_f32(v_fma_f32(v_exp_tail_f32(r), r, one), r, one);
}

/* Outside of the clamped range the result is 0 or infinite; NaN passes through. */
V_FN vf32 v_exp_f32(vf32 x) {
    x = v_pick_max_f32(v_splat_f32(-104.0f), v_pick_min_f32(v_splat_f32(89.0f), x));
    vu32 n;
    vf32 r = v_exp_reduce_f32(x, &n);
    return v_scale_f32(v_exp_core_f32(r), n);
}

V_FN vf32 v_exp2_f32(vf32 x) {
    /* 2^r to 2^-27 for |r| <= 1/2 */
    static const float c[] = {
        1.0f,           0.6931472421f,   0.2402265519f, 0.0555027239f, 0.009617066942f,
        0.00134176109f, 0.0001580998214f};
    x = v_pick_max_f32(v_splat_f32(-151.0f), v_pick_min_f32(v_splat_f32(129.0f), x));
    vu32 n;
    vf32 r = x - v_nearest_f32(x, 1.0f, &n);
    return v_scale_f32(V_POLY_F32(r, c), n);
}

/* 2^n (e^r - 1) + (2^n - 1), computed as twice its half because 2^128 overflows. For tiny x the
 * result is x, which keeps the sign of zero. */
V_FN vf32 v_expm1_f32(vf32 x) {
    vf32 y = v_pick_max_f32(v_splat_f32(-20.0f), v_pick_min_f32(v_splat_f32(89.0f), x));
    vu32 n;
    vf32 r = v_exp_reduce_f32(y, &n);
    vf32 half = v_power2_f32(n - 1);
    y = v_fma_f32(v_expm1_core_f32(r), half, half - 0.5f);
    return v_select_f32(v_abs_f32(x) < 0x1p-25f, x, y + y);
}

/* e^|x|/2, for sinh and cosh; infinite only if they are. */
V_FN vf32 v_half_exp_f32(vf32 a) {
    vu32 n;
    vf32 r = v_exp_reduce_f32(v_pick_min_f32(v_splat_f32(90.0f), a), &n);
    return v_scale_f32(v_exp_core_f32(r), n - 1);
}

V_FN vf32 v_sinh_f32(vf32 x) {
    /* (sinh a - a)/a^3 in a^2, to 2^-31 for a <= 1 */
    static const float c[] = {0.1666666716f, 0.008333310485f, 0.0001984289411f, 2.78223024e-6f};
    vf32 a = v_abs_f32(x), u = a * a;
    vf32 near = v_fma_f32(a * u, V_POLY_F32(u, c), a);
    vf32 e = v_half_exp_f32(a);
    return v_copysign_f32(v_select_f32(a < 1.0f, near, e - 0.25f / e), x);
}

V_FN vf32 v_cosh_f32(vf32 x) {
    vf32 e = v_half_exp_f32(v_abs_f32(x));
    return e + 0.25f / e;
}

/* y >= 0 with the sign of x. */
V_FN vf32 v_take_sign_f32(vf32 y, vf32 x) { return (vf32)((vi32)y | ((vi32)x & INT32_MIN)); }

/* t/(t + 2) with t = e^2|x| - 1 = 2^n (e^r - 1) + (2^n - 1); above 9.02 the result is 1. */
V_FN vf32 v_tanh_f32(vf32 x) {
    vf32 a = v_pick_min_f32(v_splat_f32(9.02f), v_abs_f32(x));
    vu32 n;
    vf32 r = v_exp_reduce_f32(a + a, &n), power = v_power2_f32(n);
    vf32 t = v_fma_f32(v_expm1_core_f32(r), power, power - 1.0f);
    return v_take_sign_f32(t / (t + 2.0f), x);
}

/* 1 - 2^(-h) with h = a R(a), a = |x|: the logarithm of erfc is nearly a parabola, and its error
 * matters less as erfc decreases. R to 2^-27 of erf; above 3.93 the result is 1. */
V_FN vf32 v_erf_f32(vf32 x) {
    static const float c[] = {1.627907035f,      0.9184476252f,     0.1482770674f,
                              -0.02763203407f,   -0.0002313956762f, 0.00240500529f,
                              -0.0009129867383f, 0.0001697193811f,  -1.335384315e-5f};
    /* (2^r - 1)/r, to 2^-25 for |r| <= 1/2 */
    static const float e[] = {0.6931471825f,   0.2402264923f,   0.05550357327f,
                              0.009618237615f, 0.001339073526f, 0.000154035064f};
    vu32 n;
    vf32 a = v_pick_min_f32(v_splat_f32(3.93f), v_abs_f32(x));
    vf32 h = a * V_POLY_F32(a, c);
    vf32 r = v_nearest_f32(h, 1.0f, &n) - h, power = v_power2_f32(-n);
    vf32 y = v_fma_f32(-(r * V_POLY_F32(r, e)), power, 1.0f - power);
    return v_take_sign_f32(y, x);
}

/* ---- Logarithms ------------------------------------------------------------------------------ */

#define V_TWO_THIRDS_BITS 0x3f2aaaab /* the bits of 2/3 */

/* x = 2^k (1 + f), 1 + f from 2/3 to 4/3, x positive; returns f. */
V_FN vf32 v_log_reduce_f32(vf32 x, vf32 *k) {
    vi32 tiny = x < 0x1p-126f;
    vu32 bits = (vu32)v_select_f32(tiny, x * 0x1p23f, x) - V_TWO_THIRDS_BITS;
    *k = v_f32_from_i32(((vi32)bits >> 23) - (tiny & 23));
    return (vf32)((bits & 0x7fffff) + V_TWO_THIRDS_BITS) - 1.0f;
}

/* log(1 + f) - f = f^2 (f P(f) - 1/2), to 2^-27 of log(1 + f) for |f| <= 1/3. */
V_FN vf32 v_log_tail_f32(vf32 f) {
    static const float c[] = {-0.5f,          0.3333321512f,  -0.2499978393f,
                              0.200104773f,   -0.1668120474f, 0.1400447041f,
                              -0.1217299476f, 0.1399162561f,  -0.1294820458f};
    return f * f * V_POLY_F32(f, c);
}
V_FN vf32 v_log_core_f32(vf32 f, vf32 k) {
    vf32 low = v_fma_f32(k, v_splat_f32(V_LN2_LO_F32), v_log_tail_f32(f));
    return v_fma_f32(k, v_splat_f32(V_LN2_HI_F32), f + low);
}

/* y, or the logarithm of zero, a negative number, infinity or NaN. */
V_FN vf32 v_log_edges_f32(vf32 x, vf32 y) {
    vf32 edge = v_select_f32(x < 0, v_splat_f32(V_NAN_f32), x);
    edge = v_select_f32(x == 0, v_splat_f32(-V_INF_f32), edge);
    return v_select_f32((x > 0) & (x < V_INF_f32), y, edge);
}

V_FN vf32 v_log_f32(vf32 x) {
    vf32 k, f = v_log_reduce_f32(x, &k);
    return v_log_edges_f32(x, v_log_core_f32(f, k));
}

/* To another base: k + (f + tail)/ln 2, and k log10(2) + (f + tail)/ln 10, with factors in two
 * parts. */
V_FN vf32 v_log2_f32(vf32 x) {
    vf32 k, f = v_log_reduce_f32(x, &k);
    vf32 low = v_fma_f32(f, v_splat_f32(1.925963e-8f), v_log_tail_f32(f) * 1.442695022f);
    return v_log_edges_f32(x, k + v_fma_f32(f, v_splat_f32(1.442695022f), low));
}

V_FN vf32 v_log10_f32(vf32 x) {
    vf32 k, f = v_log_reduce_f32(x, &k);
    vf32 low = v_fma_f32(f, v_splat_f32(-1.010305e-8f), v_log_tail_f32(f) * 0.434294492f);
    low = v_fma_f32(k, v_splat_f32(4.605038981e-6f), low);
    low = v_fma_f32(f, v_splat_f32(0.434294492f), low);
    return v_log_edges_f32(x, v_fma_f32(k, v_splat_f32(0.301025390625f), low));
}

/* log(1 + x) + more ln 2 for x > -1. Exponent and fraction are those of 1 + x, but the fraction is
 * computed from x itself: f = x 2^-k + (2^-k - 1), which is exact if k is 0. (4 * 2^-k is
 * representable for every k.) */
V_FN vf32 v_log1p_core_f32(vf32 x, vf32 more) {
    vu32 bits = (vu32)(1.0f + x) - V_TWO_THIRDS_BITS;
    vu32 shift = bits & 0xff800000;
    vf32 k = v_f32_from_i32((vi32)bits >> 23);
    vf32 quad = (vf32)((vu32)v_splat_f32(4.0f) - shift);
    vf32 f = (vf32)((vu32)x - shift) + v_fma_f32(quad, v_splat_f32(0.25f), v_splat_f32(-1.0f));
    return v_log_core_f32(f, k + more);
}

V_FN vf32 v_log1p_f32(vf32 x) {
    vf32 y = v_log1p_core_f32(x, (vf32){0});
    vf32 edge = v_select_f32(x < -1.0f, v_splat_f32(V_NAN_f32),
                             x); /* inf, NaN and zeros are returned unchanged */
    edge = v_select_f32(x == -1.0f, v_splat_f32(-V_INF_f32), edge);
    return v_select_f32((x > -1.0f) & (x < V_INF_f32) & (x != 0), y, edge);
}

/* ---- Inverse hyperbolic functions, through log1p --------------------------------------------- */

/* log(a + sqrt(a^2 + 1)) = log1p(a + a^2/(1 + sqrt(a^2 + 1))), and log(2a) where a^2 + 1 is a^2. */
V_FN vf32 v_asinh_f32(vf32 x) {
    vf32 a = v_abs_f32(x), u = a * a;
    vi32 huge = a > 0x1p28f;
    vf32 z = a + u / (1.0f + v_sqrt_f32(u + 1.0f));
    vf32 y = v_log1p_core_f32(v_select_f32(huge, a, z), V_TRUTH(f32, vf32, vi32, huge));
    return v_copysign_f32(v_select_f32((a < V_INF_f32) & (a != 0), y, a), x);
}

/* log(x + sqrt(x^2 - 1)) = log1p(t + sqrt(t^2 + 2t)) with t = x - 1. */
V_FN vf32 v_acosh_f32(vf32 x) {
    vf32 t = x - 1.0f;
    vi32 huge = x > 0x1p28f;
    vf32 z = t + v_sqrt_f32(v_fma_f32(t, t, t + t));
    vf32 y = v_log1p_core_f32(v_select_f32(huge, x, z), V_TRUTH(f32, vf32, vi32, huge));
    y = v_select_f32(x < 1.0f, v_splat_f32(V_NAN_f32), y);
    y = v_select_f32(x == 1.0f, (vf32){0}, y);
    return v_select_f32(x < V_INF_f32, y, x);
}

/* log1p(2a/(1 - a))/2. */
V_FN vf32 v_atanh_f32(vf32 x) {
    vf32 a = v_abs_f32(x);
    return v_copysign_f32(0.5f * v_log1p_f32((a + a) / (1.0f - a)), x);
}

#endif
