/* vmath_f32_wide.h - single-precision functions that are computed in double precision (see
 * vmath.h).
 *
 * pow magnifies the error of its logarithm up to 150 times, and erfc spans 38 orders of magnitude.
 * In double precision short polynomials are enough, and overflow and subnormals need no special
 * treatment: rounding to f32 handles them. The functions named v_wide_* are accurate to about
 * 2^-30.
 */
#ifndef GRADUS_BACKEND_CPU_VMATH_F32_WIDE_H
#define GRADUS_BACKEND_CPU_VMATH_F32_WIDE_H

#include "vmath_f32.h"
#include "vmath_f64.h"

/* ---- pow ------------------------------------------------------------------------------------- */

/* log2 of a positive normal number, to 2^-37: with s = f/(2 + f), log2(1 + f) = s P(s^2). */
V_FN vf64 v_wide_log2(vf64 x) {
    static const double c[] = {2.8853900817901716, 0.9617966732422978, 0.5770836030069996,
                               0.411671676600064, 0.34074885825124823};
    vf64 k, f = v_log_reduce_f64(x, &k);
    vf64 s = f / (f + 2.0);
    return v_fma_f64(s, V_POLY_F64(s * s, c), k);
}

/* 2^x, to 2^-29; outside of the clamped range every f32 is 0 or infinite. NaN passes through. */
V_FN vf64 v_wide_exp2(vf64 x) {
    static const double c[] = {1.0,
                               0.6931472028542269,
                               0.24022647913755932,
                               0.055503324722266115,
                               0.009618437371677706,
                               0.0013398874145486971,
                               0.00015353354522427797};
    x = v_pick_max_f64(v_splat_f64(-200.0), v_pick_min_f64(v_splat_f64(200.0), x));
    vu64 n;
    vf64 r = x - v_nearest_f64(x, &n);
    return V_POLY_F64(r, c) * v_power2_f64(n);
}

/* The results that C requires for zero, negative, infinite and NaN operands; `size` is the result
 * for regular ones. */
static __attribute__((noinline, unused)) vf32 v_pow_edges_f32(vf32 x, vf32 y, vf32 size) {
    vf32 a = v_abs_f32(x), half = 0.5f * y;
    vi32 integral = v_trunc_f32(y) == y, odd = integral & (v_trunc_f32(half) != half);
    /* 0 and infinity are kept, or exchanged if y is negative */
    vf32 end = (vf32)((vi32)a ^ ((y < 0) & (vi32)v_splat_f32(V_INF_f32)));
    vf32 r = v_select_f32((a == 0) | (a == V_INF_f32), end, size);
    r = (vf32)((vi32)r ^ ((vi32)x & odd & INT32_MIN));
    r = v_select_f32((x < 0) & (a < V_INF_f32) & ~integral, v_splat_f32(V_NAN_f32), r);
    r = v_select_f32((x != x) | (y != y), x + y, r);
    vi32 one = (y == 0) | (x == 1.0f) | ((x == -1.0f) & (v_abs_f32(y) == V_INF_f32));
    return v_select_f32(one, v_splat_f32(1.0f), r);
}

V_FN vf32 v_pow_f32(vf32 x, vf32 y) {
    vf32 a = v_abs_f32(x);
    vf32 r = v_join_f32(v_wide_exp2(v_wide_log2(v_lo_f64(a)) * v_lo_f64(y)),
                        v_wide_exp2(v_wide_log2(v_hi_f64(a)) * v_hi_f64(y)));
    vi32 is_regular = (x > 0) & (x < V_INF_f32) & (v_abs_f32(y) < V_INF_f32);
    return v_any_i32(~is_regular) ? v_pow_edges_f32(x, y, r) : r;
}

/* ---- erfc ------------------------------------------------------------------------------------ */

/* e^(-x^2) G(x) for x >= 0, where G = e^(x^2) erfc(x) is a polynomial in t = (x - 3)/(x + 3),
 * divided by 1 + 2x; above 10.5 the result is 0. erfc(-x) = 2 - erfc(x). */
V_FN vf64 v_wide_erfc(vf64 x) {
    static const double g[] = {
        1.2530080589171715,     -0.13562111292981552,    -0.04756238100822273,
        0.12964542745085147,    -0.11927167072196491,    0.06830575571108194,
        -0.023787586135085994,  0.0025308005841433476,   0.001950829447007755,
        -0.0007431203462214465, -0.00018493159925454038, 3.456904265413486e-05};
    /* e^r to 2^-34 for |r| <= ln2/2 */
    static const double e[] = {1.0,
                               1.0,
                               0.500000006768387,
                               0.16666665868897457,
                               0.04166629494316218,
                               0.008333497083607923,
                               0.0013944659865253897,
                               0.00019790337023044803};
    vf64 a = v_pick_min_f64(v_splat_f64(10.5), v_abs_f64(x));
    vu64 n;
    vf64 power = v_poly_f64(v_exp_reduce_f64(-(a * a), &n), e, V_COUNT(e)) * v_power2_f64(n);

    vf64 width = a + a + 1.0, sum = a + 3.0, inverse = 1.0 / (width * sum);
    vf64 t = (a - 3.0) * width * inverse;
    vf64 y = power * (V_POLY_F64(t, g) * (sum * inverse));
    return v_select_f64(x < 0, 2.0 - y, y);
}

V_FN vf32 v_erfc_f32(vf32 x) {
    return v_join_f32(v_wide_erfc(v_lo_f64(x)), v_wide_erfc(v_hi_f64(x)));
}

/* ---- The gamma functions --------------------------------------------------------------------- */

static inline vf32 v_lgamma_f32(vf32 x) {
    return v_join_f32(v_lgamma_f64(v_lo_f64(x)), v_lgamma_f64(v_hi_f64(x)));
}
static inline vf32 v_digamma_f32(vf32 x) {
    return v_join_f32(v_digamma_f64(v_lo_f64(x)), v_digamma_f64(v_hi_f64(x)));
}

#endif
