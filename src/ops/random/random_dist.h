/* random_dist.h - distributions: how random words become numbers, with the same bits on every
 * device.
 *
 * A random call has a gd_rng (seed and call number). Philox (core/random.h) gives it blocks of four
 * 32-bit words. Element i of the call, in row-major order, uses
 *
 *   32 bits    word i % 4 of block i / 4:  uniform f32, f16, bf16; bernoulli; dropout
 *   64 bits    words 2 (i % 2) (the upper half) and 2 (i % 2) + 1 of block i / 2:
 *              uniform f64 (53 of the bits), randint, randperm, multinomial
 *   a pair     normals come in pairs (Box-Muller): f32 elements 2j and 2j + 1 from their two words,
 *              f64 elements from the four words of their block
 *
 * The functions below use + - * / and sqrt, each rounded once, and no fused multiply-add. So scalar
 * code, vectors of any width and other devices agree. They have no branches, so that compilers
 * vectorize loops over them.
 */
#ifndef GRADUS_OPS_RANDOM_RANDOM_DIST_H
#define GRADUS_OPS_RANDOM_RANDOM_DIST_H

#include <string.h>

#include "core/random.h"
#include "gradus/dtype.h"

static inline uint32_t gd_bits_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float gd_float_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline uint64_t gd_bits_f64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline double gd_double_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* --- words of an element ---------------------------------------------------------------------- */

static inline uint32_t gd_word_at(gd_rng rng, uint64_t i) {
    uint32_t words[4];
    gd_philox(rng, i / 4, words);
    return words[i % 4];
}

static inline uint64_t gd_long_at(gd_rng rng, uint64_t i) {
    uint32_t words[4];
    gd_philox(rng, i / 2, words);
    return (uint64_t)words[i % 2 * 2] << 32 | words[i % 2 * 2 + 1];
}

/* --- uniform ---------------------------------------------------------------------------------- */

/* A uniform distribution over [low, high). Results are clamped to `below`, the largest number under
 * high, because rounding may give high. gd_uniform_prepare (random_uniform.h) computes them. */
typedef struct gd_uniform_params {
    double low, range, below;
    int shift;  /* bits of the word that the dtype cannot hold: 8 (f32), 21 (f16), 24 (bf16) */
    float unit; /* 2^(shift - 32) */
} gd_uniform_params;

static inline float gd_uniform_f32(const gd_uniform_params *p, uint32_t word) {
    float u = (float)(int32_t)(word >> p->shift) * p->unit;
    float y = (float)p->low + u * (float)p->range, below = (float)p->below;
    return y < below ? y : below;
}

/* 53 bits: 27 of the first word and 26 of the second. */
static inline double gd_unit_f64(uint32_t a, uint32_t b) {
    return ((double)(int32_t)(a >> 5) * 0x1p26 + (double)(int32_t)(b >> 6)) * 0x1p-53;
}
static inline double gd_uniform_f64(const gd_uniform_params *p, uint32_t a, uint32_t b) {
    double y = p->low + gd_unit_f64(a, b) * p->range;
    return y < p->below ? y : p->below;
}

/* --- logarithm, sine and cosine --------------------------------------------------------------- */

/* log u of a positive normal number u = 2^k (1 + f), with 1 + f from 2/3 to 4/3: k ln 2 + f + f^2
 * P(f), with an error of 2^-27. */
static inline float gd_log_unit_f32(float u) {
    uint32_t bits = gd_bits_f32(u) - 0x3f2aaaabu;
    float k = (float)((int32_t)bits >> 23);
    float f = gd_float_bits((bits & 0x7fffffu) + 0x3f2aaaabu) - 1.0f;
    float p = -0.12948867f;
    p = p * f + 0.14004648f;
    p = p * f - 0.12167175f;
    p = p * f + 0.14001183f;
    p = p * f - 0.16682304f;
    p = p * f + 0.20010746f;
    p = p * f - 0.24999717f;
    p = p * f + 0.33333208f;
    p = p * f - 0.5f;
    float low = k * -2.12194440e-4f + f * f * p; /* ln 2 in two parts; k times the first is exact */
    return k * 0.693359375f + (f + low);
}

/* The same with s = f / (2 + f): log(1 + f) = 2 s + s^3 Q(s^2), with an error of 2^-60. */
static inline double gd_log_unit_f64(double u) {
    uint64_t bits = gd_bits_f64(u) - 0x3fe5555555555555u;
    double k = (double)((int32_t)(bits >> 32) >> 20);
    double f = gd_double_bits((bits & 0xfffffffffffffu) + 0x3fe5555555555555u) - 1.0;
    double s = f / (2.0 + f), z = s * s;
    double q = 0.13837692297574123;
    q = q * z + 0.13174406996600827;
    q = q * z + 0.15391062578642381;
    q = q * z + 0.18181667439425416;
    q = q * z + 0.22222224269205439;
    q = q * z + 0.28571428556083838;
    q = q * z + 0.40000000000055526;
    q = q * z + 0.66666666666666598;
    double low = k * 1.9082149292705877e-10 + s * z * q;
    return k * 0.69314718036912381649 + (2.0 * s + low);
}

/* Sine and cosine of 2 pi (t + q / 4), |t| <= 1/8. */
static inline void gd_quarters_f32(uint32_t q, float t, float *sine, float *cosine) {
    float z = t * t;
    float s = t * (((-75.393562f * z + 81.592354f) * z - 41.341661f) * z + 6.2831853f);
    float c = 1.0f + z * (((59.245963f * z - 85.443742f) * z + 64.939326f) * z - 19.739209f);
    float odd_s = q & 1 ? c : s, odd_c = q & 1 ? s : c;
    *sine = gd_float_bits(gd_bits_f32(odd_s) ^ (q & 2) << 30);
    *cosine = gd_float_bits(gd_bits_f32(odd_c) ^ ((q + 1) & 2) << 30);
}

static inline void gd_quarters_f64(uint32_t q, double t, double *sine, double *cosine) {
    double z = t * t;
    double s = -0.71161501542567463;
    s = s * z + 3.8197869812065824;
    s = s * z - 15.094640379376058;
    s = s * z + 42.058693928727027;
    s = s * z - 76.705859752996691;
    s = s * z + 81.605249276074927;
    s = s * z - 41.341702240399760;
    s = t * (s * z + 6.2831853071795865);
    double c = 0.27947820104370866;
    c = c * z - 1.7143174799639705;
    c = c * z + 7.9035352299264970;
    c = c * z - 26.426256773052533;
    c = c * z + 60.244641371822261;
    c = c * z - 85.456817206693569;
    c = c * z + 64.939394022668291;
    c = 1.0 + z * (c * z - 19.739208802178717);
    double odd_s = q & 1 ? c : s, odd_c = q & 1 ? s : c;
    *sine = gd_double_bits(gd_bits_f64(odd_s) ^ (uint64_t)(q & 2) << 62);
    *cosine = gd_double_bits(gd_bits_f64(odd_c) ^ (uint64_t)((q + 1) & 2) << 62);
}

/* --- normal ----------------------------------------------------------------------------------- */

/* Two normal numbers: the radius comes from the first word, the angle from the second. Range
 * reduction to a quarter turn is done on integers. The largest radius is 6.66. */
static inline void gd_normals_f32(uint32_t a, uint32_t b, float *x, float *y) {
    float u = ((float)(int32_t)(a >> 1) + 0.5f) * 0x1p-31f;
    float radius = __builtin_sqrtf(-2.0f * gd_log_unit_f32(u));
    uint32_t q = (b + 0x20000000u) >> 30;
    float sine, cosine;
    gd_quarters_f32(q, (float)(int32_t)(b - (q << 30)) * 0x1p-32f, &sine, &cosine);
    *x = radius * cosine;
    *y = radius * sine;
}

/* The same from 53 bits each, which are taken as in gd_unit_f64. The largest radius is 8.57. */
static inline void gd_normals_f64(const uint32_t w[4], double *x, double *y) {
    double u =
        ((double)(int32_t)(w[0] >> 5) * 0x1p26 + (double)(int32_t)(w[1] >> 6) + 0.5) * 0x1p-53;
    double radius = __builtin_sqrt(-2.0 * gd_log_unit_f64(u));
    uint32_t q = (w[2] + 0x20000000u) >> 30;
    double t =
        ((double)((int32_t)(w[2] - (q << 30)) >> 5) * 0x1p26 + (double)(int32_t)(w[3] >> 6)) *
        0x1p-53;
    double sine, cosine;
    gd_quarters_f64(q, t, &sine, &cosine);
    *x = radius * cosine;
    *y = radius * sine;
}

/* --- integers --------------------------------------------------------------------------------- */

/* An integer from 0 to range - 1 (range 0 means 2^64). The bias is at most range / 2^64. */
static inline uint64_t gd_below(uint64_t bits, uint64_t range) {
    return range ? (uint64_t)((unsigned __int128)bits * range >> 64) : bits;
}

/* --- bernoulli -------------------------------------------------------------------------------- */

/* True with probability p, which is rounded to steps of 2^-32: always for 1, never for 0. */
static inline bool gd_chance(double p, uint32_t word) { return (double)word < p * 0x1p32; }

/* The same as a limit from 0 to 2^32, for one p and many words: gd_chance(p, word) is word
 * < limit. */
static inline uint64_t gd_chance_limit(double p) { return (uint64_t)__builtin_ceil(p * 0x1p32); }

#endif
