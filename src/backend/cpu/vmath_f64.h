/* vmath_f64.h - double-precision functions (see vmath.h).
 *
 * The functions that networks and losses use most are vector code, accurate to about two units in
 * the last place: exp, exp2, expm1, log, log1p, tanh, erf. The others call libm lane by lane.
 * Polynomials are minimax fits; their ranges and errors are given beside them.
 */
#ifndef GRADUS_BACKEND_CPU_VMATH_F64_H
#define GRADUS_BACKEND_CPU_VMATH_F64_H

#include "vmath_basic.h"

#define V_LN2_HI_F64      0x1.62e42fefp-1       /* 32 bits: its product with an exponent is exact */
#define V_LN2_LO_F64      0x1.473de6af278edp-34 /* ln 2 - V_LN2_HI_F64 */
#define V_LOG2E_F64       0x1.71547652b82fep+0  /* 1 / ln 2 */
#define V_ROUND_MAGIC_F64 0x1.8p52 /* adding it rounds to an integer, which is in the low bits */

/* ---- exp and functions based on it ----------------------------------------------------------- */

/* The integer nearest to x (|x| < 2^51), as a double and, in *n, as an integer. (Integers that are
 * added to exponents are unsigned and wrap.) */
V_FN vf64 v_nearest_f64(vf64 x, vu64 *n) {
    vf64 t = x + V_ROUND_MAGIC_F64;
    *n = (vu64)t - (vu64)v_splat_f64(V_ROUND_MAGIC_F64);
    return t - V_ROUND_MAGIC_F64;
}

/* 2^n for -1022 <= n <= 1023. */
V_FN vf64 v_power2_f64(vu64 n) { return (vf64)((n + 1023) << 52); }

/* x * 2^n for |n| <= 2000, in two steps. The first step is exact, so a subnormal result is rounded
 * once. (The shift is unsigned, because AVX2 has no arithmetic shift of 64-bit lanes.) */
V_FN vf64 v_scale_f64(vf64 x, vu64 n) {
    vu64 half = ((n + 2048) >> 1) - 1024;
    return x * v_power2_f64(half) * v_power2_f64(n - half);
}

/* e^x = 2^n e^r, |r| <= ln2/2; returns r. */
V_FN vf64 v_exp_reduce_f64(vf64 x, vu64 *n) {
    vf64 k = v_nearest_f64(x * V_LOG2E_F64, n);
    vf64 r = v_fma_f64(k, v_splat_f64(-V_LN2_HI_F64), x);
    return v_fma_f64(k, v_splat_f64(-V_LN2_LO_F64), r);
}

/* e^r - 1 = r + r^2/2 + r^3 Q(r) to 2^-61 for |r| <= ln2/2. */
V_FN vf64 v_expm1_core_f64(vf64 r) {
    static const double c[] = {
        0.5,
        0.16666666666666677,
        0.04166666666666658,
        0.00833333333332216,
        0.0013888888888942683,
        0.00019841269884944288,
        2.480158719818389e-05,
        2.755724529198399e-06,
        2.755738707940378e-07,
        2.5108687338275584e-08,
        2.087890058313105e-09,
    };
    return v_fma_f64(r * r, V_POLY_F64(r, c), r);
}

/* Outside of the clamped range the result is 0 or infinite; NaN passes through. */
V_FN vf64 v_exp_f64(vf64 x) {
    x = v_pick_max_f64(v_splat_f64(-746.0), v_pick_min_f64(v_splat_f64(710.0), x));
    vu64 n;
    vf64 r = v_exp_reduce_f64(x, &n);
    return v_scale_f64(1.0 + v_expm1_core_f64(r), n);
}

V_FN vf64 v_exp2_f64(vf64 x) {
    /* (2^r - 1)/r, to 2^-58 of 2^r for |r| <= 1/2 */
    static const double c[] = {
        0.6931471805599453,     0.2402265069591013,     0.055504108664820084,
        0.009618129107594119,   0.0013333558146774662,  0.00015403530457113699,
        1.525273349309785e-05,  1.3215435281540125e-06, 1.0178199581573009e-07,
        7.0737833760220315e-09, 4.4347701197406733e-10,
    };
    x = v_pick_max_f64(v_splat_f64(-1080.0), v_pick_min_f64(v_splat_f64(1025.0), x));
    vu64 n;
    vf64 r = x - v_nearest_f64(x, &n);
    return v_scale_f64(v_fma_f64(r, V_POLY_F64(r, c), v_splat_f64(1.0)), n);
}

/* 2^n (e^r - 1) + (2^n - 1), computed as twice its half because 2^1024 overflows. For tiny x the
 * result is x, which keeps the sign of zero. */
V_FN vf64 v_expm1_f64(vf64 x) {
    vf64 y = v_pick_max_f64(v_splat_f64(-40.0), v_pick_min_f64(v_splat_f64(710.0), x));
    vu64 n;
    vf64 r = v_exp_reduce_f64(y, &n);
    vf64 half = v_power2_f64(n - 1);
    y = v_fma_f64(v_expm1_core_f64(r), half, half - 0.5);
    return v_select_f64(v_abs_f64(x) < 0x1p-54, x, y + y);
}

/* t/(t + 2) with t = e^2|x| - 1; above 22 the result is 1. */
V_FN vf64 v_tanh_f64(vf64 x) {
    vf64 a = v_pick_min_f64(v_splat_f64(22.0), v_abs_f64(x));
    vf64 t = v_expm1_f64(a + a);
    return v_copysign_f64(t / (t + 2.0), x);
}

/* ---- Logarithms ------------------------------------------------------------------------------ */

#define V_SQRT_HALF_BITS 0x3fe6a09e667f3bcd /* the bits of sqrt(1/2) */

/* x = 2^k (1 + f), 1 + f from sqrt(1/2) to sqrt(2), x positive and normal; returns f. */
V_FN vf64 v_log_reduce_f64(vf64 x, vf64 *k) {
    vu64 bits = (vu64)x - V_SQRT_HALF_BITS;
    vu64 exponent = ((bits + (1024ull << 52)) >> 52) - 1024;
    *k = (vf64)(exponent + (vu64)v_splat_f64(V_ROUND_MAGIC_F64)) - V_ROUND_MAGIC_F64;
    return (vf64)((bits & 0xfffffffffffff) + V_SQRT_HALF_BITS) - 1.0;
}

/* k ln 2 + log(1 + f). With s = f/(2 + f): log(1 + f) = 2s + s^3 R(s^2), arranged so that f itself
 * is added last. R to 2^-59 for f from sqrt(1/2) - 1 to sqrt(2) - 1. */
V_FN vf64 v_log_core_f64(vf64 f, vf64 k) {
    static const double c[] = {
        0.6666666666666735,  0.3999999999941289,  0.2857142874282559,  0.22222198524498296,
        0.18183567038527523, 0.15313976736872542, 0.14796730542656145,
    };
    vf64 s = f / (f + 2.0);
    vf64 z = s * s, half_square = 0.5 * f * f;
    vf64 t = s * (half_square + z * V_POLY_F64(z, c));
    t = v_fma_f64(k, v_splat_f64(V_LN2_LO_F64), t);
    return v_fma_f64(k, v_splat_f64(V_LN2_HI_F64), f - (half_square - t));
}

V_FN vf64 v_log_f64(vf64 x) {
    vi64 tiny = x < 0x1p-1022;
    vf64 k, f = v_log_reduce_f64(v_select_f64(tiny, x * 0x1p54, x), &k);
    k -= (vf64)(tiny & (vi64)v_splat_f64(54.0));
    vf64 y = v_log_core_f64(f, k);
    vf64 edge =
        v_select_f64(x < 0, v_splat_f64(V_NAN_f64), x); /* inf and NaN are returned unchanged */
    edge = v_select_f64(x == 0, v_splat_f64(-V_INF_f64), edge);
    return v_select_f64((x > 0) & (x < V_INF_f64), y, edge);
}

/* Exponent and fraction are those of 1 + x, but the fraction is computed from x itself: f = x 2^-k
 * + (2^-k - 1), which is exact if k is 0. (4 * 2^-k is representable for every k.) */
V_FN vf64 v_log1p_f64(vf64 x) {
    vf64 k, u = 1.0 + x;
    v_log_reduce_f64(u, &k);
    vu64 shift = ((vu64)u - V_SQRT_HALF_BITS) & (0xfffull << 52);
    vf64 quad = (vf64)((vu64)v_splat_f64(4.0) - shift);
    vf64 f = (vf64)((vu64)x - shift) + v_fma_f64(quad, v_splat_f64(0.25), v_splat_f64(-1.0));
    vf64 y = v_log_core_f64(f, k);
    vf64 edge = v_select_f64(x < -1.0, v_splat_f64(V_NAN_f64),
                             x); /* inf, NaN and zeros are returned unchanged */
    edge = v_select_f64(x == -1.0, v_splat_f64(-V_INF_f64), edge);
    return v_select_f64((x > -1.0) & (x < V_INF_f64) & (x != 0), y, edge);
}

/* ---- erf ------------------------------------------------------------------------------------- */

/* Up to 1: x + x P(x^2), to 2^-57. Above: 1 - e^(-x^2) G, where G = e^(x^2) erfc(x) is a polynomial
 * in t = (x - 4)/(x + 4), divided by 1 + 2x, to 2^-54 up to 6; above 6 the result is 1.
 */
V_FN vf64 v_erf_f64(vf64 x) {
    static const double p[] = {
        0.12837916709551256,     -0.3761263890318352,     0.11283791670944185,
        -0.02686617064311147,    0.005223977606118481,    -0.0008548325929316656,
        0.0001205529357702147,   -1.4924712305189893e-05, 1.6447131617748237e-06,
        -1.6206314146064028e-07, 1.3710982127039678e-08,  -7.779471692267398e-10,
    };
    static const double g[] = {
        1.2329951186255526,     -0.139621116840561,     0.015379652102591708,
        0.06809705425412793,    -0.10103906603264573,   0.09373283506341452,
        -0.06633036588902465,   0.03716751243415575,    -0.016197739979973643,
        0.00503202582217826,    -0.0007575133842721693, -0.00019922752689096424,
        0.00014823821567828778, -3.15835758830427e-05,  -2.0842208462792053e-05,
    };
    vf64 a = v_pick_min_f64(v_splat_f64(6.0), v_abs_f64(x));
    vf64 u = a * a;
    vf64 near = v_fma_f64(a, V_POLY_F64(u, p), a);

    vf64 width = v_fma_f64(a, v_splat_f64(2.0), v_splat_f64(1.0));
    vf64 sum = a + 4.0, inverse = 1.0 / (width * sum);
    vf64 t = (a - 4.0) * width * inverse;
    vf64 far = 1.0 - v_exp_f64(-u) * (V_POLY_F64(t, g) * (sum * inverse));
    return v_copysign_f64(v_select_f64(a < 1.0, near, far), x);
}

/* ---- Lane by lane ---------------------------------------------------------------------------- */

#define V_DEFINE_LANES1(name)                                               \
    static inline vf64 v_##name##_f64(vf64 x) {                             \
        for (int i = 0; i < VF64_LANES; i++) x[i] = __builtin_##name(x[i]); \
        return x;                                                           \
    }
#define V_DEFINE_LANES2(name)                                                     \
    static inline vf64 v_##name##_f64(vf64 a, vf64 b) {                           \
        for (int i = 0; i < VF64_LANES; i++) a[i] = __builtin_##name(a[i], b[i]); \
        return a;                                                                 \
    }
V_DEFINE_LANES1(log2)
V_DEFINE_LANES1(log10)
V_DEFINE_LANES1(sin)
V_DEFINE_LANES1(cos)
V_DEFINE_LANES1(tan)
V_DEFINE_LANES1(asin)
V_DEFINE_LANES1(acos)
V_DEFINE_LANES1(atan)
V_DEFINE_LANES1(sinh)
V_DEFINE_LANES1(cosh)
V_DEFINE_LANES1(asinh)
V_DEFINE_LANES1(acosh)
V_DEFINE_LANES1(atanh)
V_DEFINE_LANES1(erfc)
V_DEFINE_LANES2(pow)
V_DEFINE_LANES2(atan2)

/* lgamma writes to a global variable, which threads share. lgamma_r is in libm too, but no header
 * declares it in strict C11. */
extern double lgamma_r(double x, int *sign);
static inline vf64 v_lgamma_f64(vf64 x) {
    int sign;
    for (int i = 0; i < VF64_LANES; i++) x[i] = lgamma_r(x[i], &sign);
    return x;
}

/* The derivative of lgamma. Negative arguments use the reflection digamma(x) = digamma(1 - x) -
 * pi/tan(pi x); small arguments use the recurrence digamma(x) = digamma(x + 1) - 1/x until the
 * asymptotic series converges. Poles give NaN, except that zero (as in PyTorch) gives an infinity
 * of the opposite sign. */
static inline double v_digamma_scalar(double x) {
    static const double series[] = {/* -B(2k)/(2k), k = 1..8 */
                                    -1.0 / 12,  1.0 / 120,       -1.0 / 252, 1.0 / 240,
                                    -1.0 / 132, 691.0 / 32760.0, -1.0 / 12,  3617.0 / 8160.0};
    if (x == 0) return __builtin_copysign(__builtin_inf(), -x);
    double sum = 0;
    if (x < 0) {
        double part = x - __builtin_round(x); /* tan(pi x) has period 1: reduced exactly */
        if (part == 0 || x == -__builtin_inf()) return __builtin_nan("");
        sum = -0x1.921fb54442d18p+1 / __builtin_tan(0x1.921fb54442d18p+1 * part);
        x = 1 - x;
    }
    for (; x < 12; x += 1) sum -= 1 / x;
    if (x == __builtin_inf()) return x;
    double z = 1 / (x * x), tail = 0;
    for (int i = V_COUNT(series) - 1; i >= 0; i--) tail = (tail + series[i]) * z;
    return __builtin_log(x) - 0.5 / x + tail + sum;
}
static inline vf64 v_digamma_f64(vf64 x) {
    for (int i = 0; i < VF64_LANES; i++) x[i] = v_digamma_scalar(x[i]);
    return x;
}

#endif
