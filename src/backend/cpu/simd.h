/* simd.h - vectors of the instruction set that is being compiled: 16 bytes (SSE2, AArch64 and
 * others), 32 (AVX2) or 64 (AVX-512).
 *
 * The types are GNU vectors, so the operators + - * / & | ^ ~ < <= == work on them, also mixed with
 * a scalar (x * 2.0f). This file adds what the language lacks or compiles badly. A mask is an
 * integer vector with the same number of lanes, -1 for true and 0 for false, as comparisons return
 * it.
 *
 * x86 built-ins are called directly instead of through <immintrin.h>: kernels that are compiled at
 * run time include this file, and parsing that header would take a quarter of a second. Built-ins
 * that gcc and clang spell differently have both forms below.
 *
 * Names: v_OP_TYPE, TYPE one of f32, f64, i32, i64. f32 and i32 have the same number of lanes, and
 * so have f64 and i64. f16 and bf16 are stored as uint16_t and computed as f32.
 */
#ifndef GRADUS_BACKEND_CPU_SIMD_H
#define GRADUS_BACKEND_CPU_SIMD_H

#include <stdint.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define V_BYTES 64
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define V_BYTES 32
#else
#define V_BYTES 16
#endif

#define VF32_LANES (V_BYTES / 4)
#define VI32_LANES (V_BYTES / 4)
#define VF64_LANES (V_BYTES / 8)
#define VI64_LANES (V_BYTES / 8)

typedef float vf32 __attribute__((vector_size(V_BYTES)));
typedef double vf64 __attribute__((vector_size(V_BYTES)));
typedef int32_t vi32 __attribute__((vector_size(V_BYTES)));
typedef int64_t vi64 __attribute__((vector_size(V_BYTES)));
typedef uint32_t vu32 __attribute__((vector_size(V_BYTES))); /* for wrapping arithmetic */
typedef uint64_t vu64 __attribute__((vector_size(V_BYTES)));

/* Half a vector: as many lanes as vf64 has. */
typedef float vf32_half __attribute__((vector_size(V_BYTES / 2)));
typedef int32_t vi32_half __attribute__((vector_size(V_BYTES / 2)));

/* As many 16-bit lanes as vf32 has. */
typedef uint16_t vu16_half __attribute__((vector_size(V_BYTES / 2)));
typedef short vi16_half __attribute__((vector_size(V_BYTES / 2)));

/* Always inlined: a call would pass vectors through memory and hide constants from the loop around
 * it. */
#define V_FN static inline __attribute__((always_inline, unused))

/* ---- Operations of all types: load, store, splat, select ------------------------------------- */

/* Addresses may be unaligned. v_select returns a where the mask is set, else b. */
#define V_DEFINE_BASICS(T, V, E, M)                                         \
    V_FN V v_load_##T(const E *p) {                                         \
        V v;                                                                \
        __builtin_memcpy(&v, p, sizeof v);                                  \
        return v;                                                           \
    }                                                                       \
    V_FN void v_store_##T(E *p, V v) { __builtin_memcpy(p, &v, sizeof v); } \
    V_FN V v_splat_##T(E x) { return x - (V){0}; }                          \
    V_FN V v_select_##T(M mask, V a, V b) { return (V)((mask & (M)a) | (~mask & (M)b)); }

V_DEFINE_BASICS(f32, vf32, float, vi32)
V_DEFINE_BASICS(f64, vf64, double, vi64)
V_DEFINE_BASICS(i32, vi32, int32_t, vi32)
V_DEFINE_BASICS(i64, vi64, int64_t, vi64)

/* ---- Operations that depend on the instruction set -------------------------------------------
 *
 * v_load_part_T(p, n)     masked load: the first n lanes (0 <= n <= lanes), zeros after them
 * v_store_part_T(p, v, n) masked store; neither accesses memory at p + n or after it
 * v_fma_T(a, b, c)        a*b + c, rounded once (AVX2, AVX-512, AArch64) or twice (SSE2)
 * v_sqrt_T                correctly rounded
 * v_pick_min_T(a, b)      a < b ? a : b, so b if either is NaN
 * v_pick_max_T(a, b)      a > b ? a : b, so b if either is NaN
 * v_floor_T, v_ceil_T, v_trunc_T, v_round_T (half to even); all keep the sign of zero
 * v_any_T(mask)           whether any lane of the mask is set (T i32 or i64)
 */
#if V_BYTES == 64

#define V_DEFINE_PART(T, V, E, B, bits)                    \
    V_FN V v_load_part_##T(const E *p, int n) {            \
        return B##_load(p, (V){0}, (bits)((1u << n) - 1)); \
    }                                                      \
    V_FN void v_store_part_##T(E *p, V v, int n) { B##_store(p, v, (bits)((1u << n) - 1)); }
#define V_PS_load(p, zero, k) __builtin_ia32_loadups512_mask(p, zero, k)
#define V_PS_store(p, v, k)   __builtin_ia32_storeups512_mask(p, v, k)
#define V_PD_load(p, zero, k) __builtin_ia32_loadupd512_mask(p, zero, k)
#define V_PD_store(p, v, k)   __builtin_ia32_storeupd512_mask(p, v, k)

V_DEFINE_PART(f32, vf32, float, V_PS, uint16_t)
V_DEFINE_PART(f64, vf64, double, V_PD, uint8_t)

#define V_ALL16   0xffff /* masks of all 16 and of all 8 lanes */
#define V_ALL8    0xff
#define V_CURRENT 4 /* the current rounding mode: to nearest, ties to even */

V_FN vf32 v_fma_f32(vf32 a, vf32 b, vf32 c) {
    return __builtin_ia32_vfmaddps512_mask(a, b, c, V_ALL16, V_CURRENT);
}
V_FN vf64 v_fma_f64(vf64 a, vf64 b, vf64 c) {
    return __builtin_ia32_vfmaddpd512_mask(a, b, c, V_ALL8, V_CURRENT);
}

#if defined(__clang__)
V_FN vf32 v_sqrt_f32(vf32 x) { return __builtin_ia32_sqrtps512(x, V_CURRENT); }
V_FN vf64 v_sqrt_f64(vf64 x) { return __builtin_ia32_sqrtpd512(x, V_CURRENT); }
V_FN vf32 v_pick_min_f32(vf32 a, vf32 b) { return __builtin_ia32_minps512(a, b, V_CURRENT); }
V_FN vf32 v_pick_max_f32(vf32 a, vf32 b) { return __builtin_ia32_maxps512(a, b, V_CURRENT); }
V_FN vf64 v_pick_min_f64(vf64 a, vf64 b) { return __builtin_ia32_minpd512(a, b, V_CURRENT); }
V_FN vf64 v_pick_max_f64(vf64 a, vf64 b) { return __builtin_ia32_maxpd512(a, b, V_CURRENT); }
#else
V_FN vf32 v_sqrt_f32(vf32 x) { return __builtin_ia32_sqrtps512_mask(x, x, V_ALL16, V_CURRENT); }
V_FN vf64 v_sqrt_f64(vf64 x) { return __builtin_ia32_sqrtpd512_mask(x, x, V_ALL8, V_CURRENT); }
V_FN vf32 v_pick_min_f32(vf32 a, vf32 b) {
    return __builtin_ia32_minps512_mask(a, b, a, V_ALL16, V_CURRENT);
}
V_FN vf32 v_pick_max_f32(vf32 a, vf32 b) {
    return __builtin_ia32_maxps512_mask(a, b, a, V_ALL16, V_CURRENT);
}
V_FN vf64 v_pick_min_f64(vf64 a, vf64 b) {
    return __builtin_ia32_minpd512_mask(a, b, a, V_ALL8, V_CURRENT);
}
V_FN vf64 v_pick_max_f64(vf64 a, vf64 b) {
    return __builtin_ia32_maxpd512_mask(a, b, a, V_ALL8, V_CURRENT);
}
#endif

#define V_ROUND_f32(x, mode) __builtin_ia32_rndscaleps_mask(x, mode, x, V_ALL16, V_CURRENT)
#define V_ROUND_f64(x, mode) __builtin_ia32_rndscalepd_mask(x, mode, x, V_ALL8, V_CURRENT)

V_FN int v_any_i32(vi32 m) { return (uint16_t)__builtin_ia32_cvtd2mask512(m) != 0; }
V_FN int v_any_i64(vi64 m) { return v_any_i32((vi32)m); }

#elif V_BYTES == 32

/* Masked instructions access only the selected lanes and cannot fault on the others. */
#define V_IOTA_f32 ((vi32){0, 1, 2, 3, 4, 5, 6, 7})
#define V_IOTA_f64 ((v_longs){0, 1, 2, 3})
typedef long long v_longs
    __attribute__((vector_size(V_BYTES))); /* the type that the built-ins take for vi64 */

V_FN vf32 v_load_part_f32(const float *p, int n) {
    return __builtin_ia32_maskloadps256((const vf32 *)p, V_IOTA_f32 < n);
}
V_FN void v_store_part_f32(float *p, vf32 v, int n) {
    __builtin_ia32_maskstoreps256((vf32 *)p, V_IOTA_f32 < n, v);
}
V_FN vf64 v_load_part_f64(const double *p, int n) {
    return __builtin_ia32_maskloadpd256((const vf64 *)p, V_IOTA_f64 < n);
}
V_FN void v_store_part_f64(double *p, vf64 v, int n) {
    __builtin_ia32_maskstorepd256((vf64 *)p, V_IOTA_f64 < n, v);
}

V_FN vf32 v_fma_f32(vf32 a, vf32 b, vf32 c) { return __builtin_ia32_vfmaddps256(a, b, c); }
V_FN vf64 v_fma_f64(vf64 a, vf64 b, vf64 c) { return __builtin_ia32_vfmaddpd256(a, b, c); }
V_FN vf32 v_sqrt_f32(vf32 x) { return __builtin_ia32_sqrtps256(x); }
V_FN vf64 v_sqrt_f64(vf64 x) { return __builtin_ia32_sqrtpd256(x); }
V_FN vf32 v_pick_min_f32(vf32 a, vf32 b) { return __builtin_ia32_minps256(a, b); }
V_FN vf32 v_pick_max_f32(vf32 a, vf32 b) { return __builtin_ia32_maxps256(a, b); }
V_FN vf64 v_pick_min_f64(vf64 a, vf64 b) { return __builtin_ia32_minpd256(a, b); }
V_FN vf64 v_pick_max_f64(vf64 a, vf64 b) { return __builtin_ia32_maxpd256(a, b); }

#define V_ROUND_f32(x, mode) __builtin_ia32_roundps256(x, mode)
#define V_ROUND_f64(x, mode) __builtin_ia32_roundpd256(x, mode)

V_FN int v_any_i32(vi32 m) { return __builtin_ia32_movmskps256((vf32)m) != 0; }
V_FN int v_any_i64(vi64 m) { return __builtin_ia32_movmskpd256((vf64)m) != 0; }

#else /* 16 bytes: the x86-64 baseline and every other architecture */

#define V_DEFINE_PART(T, V, E)                            \
    V_FN V v_load_part_##T(const E *p, int n) {           \
        V v = {0};                                        \
        __builtin_memcpy(&v, p, (uint32_t)n * sizeof(E)); \
        return v;                                         \
    }                                                     \
    V_FN void v_store_part_##T(E *p, V v, int n) {        \
        __builtin_memcpy(p, &v, (uint32_t)n * sizeof(E)); \
    }
V_DEFINE_PART(f32, vf32, float)
V_DEFINE_PART(f64, vf64, double)

#if defined(__aarch64__) || (defined(__FP_FAST_FMA) && defined(__FP_FAST_FMAF))
V_FN vf32 v_fma_f32(vf32 a, vf32 b, vf32 c) {
    for (int i = 0; i < VF32_LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}
V_FN vf64 v_fma_f64(vf64 a, vf64 b, vf64 c) {
    for (int i = 0; i < VF64_LANES; i++) c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
}
#else
V_FN vf32 v_fma_f32(vf32 a, vf32 b, vf32 c) { return a * b + c; }
V_FN vf64 v_fma_f64(vf64 a, vf64 b, vf64 c) { return a * b + c; }
#endif

#if defined(__SSE2__)
V_FN vf32 v_sqrt_f32(vf32 x) { return __builtin_ia32_sqrtps(x); }
V_FN vf64 v_sqrt_f64(vf64 x) { return __builtin_ia32_sqrtpd(x); }
V_FN vf32 v_pick_min_f32(vf32 a, vf32 b) { return __builtin_ia32_minps(a, b); }
V_FN vf32 v_pick_max_f32(vf32 a, vf32 b) { return __builtin_ia32_maxps(a, b); }
V_FN vf64 v_pick_min_f64(vf64 a, vf64 b) { return __builtin_ia32_minpd(a, b); }
V_FN vf64 v_pick_max_f64(vf64 a, vf64 b) { return __builtin_ia32_maxpd(a, b); }
V_FN int v_any_i32(vi32 m) { return __builtin_ia32_movmskps((vf32)m) != 0; }
V_FN int v_any_i64(vi64 m) { return __builtin_ia32_movmskpd((vf64)m) != 0; }
#else
V_FN vf32 v_sqrt_f32(vf32 x) {
    for (int i = 0; i < VF32_LANES; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
}
V_FN vf64 v_sqrt_f64(vf64 x) {
    for (int i = 0; i < VF64_LANES; i++) x[i] = __builtin_sqrt(x[i]);
    return x;
}
V_FN vf32 v_pick_min_f32(vf32 a, vf32 b) { return v_select_f32(a < b, a, b); }
V_FN vf32 v_pick_max_f32(vf32 a, vf32 b) { return v_select_f32(a > b, a, b); }
V_FN vf64 v_pick_min_f64(vf64 a, vf64 b) { return v_select_f64(a < b, a, b); }
V_FN vf64 v_pick_max_f64(vf64 a, vf64 b) { return v_select_f64(a > b, a, b); }
V_FN int v_any_i64(vi64 m) { return (m[0] | m[1]) != 0; }
V_FN int v_any_i32(vi32 m) { return v_any_i64((vi64)m); }
#endif

#endif /* V_BYTES */

/* Integers use the loads and stores of floats, which move bits without interpreting them. */
V_FN vi32 v_load_part_i32(const int32_t *p, int n) {
    return (vi32)v_load_part_f32((const float *)(const void *)p, n);
}
V_FN void v_store_part_i32(int32_t *p, vi32 v, int n) {
    v_store_part_f32((float *)(void *)p, (vf32)v, n);
}
V_FN vi64 v_load_part_i64(const int64_t *p, int n) {
    return (vi64)v_load_part_f64((const double *)(const void *)p, n);
}
V_FN void v_store_part_i64(int64_t *p, vi64 v, int n) {
    v_store_part_f64((double *)(void *)p, (vf64)v, n);
}

/* ---- Rounding to integers -------------------------------------------------------------------- */

V_FN vf32 v_abs_f32(vf32 x) { return (vf32)((vi32)x & INT32_MAX); }
V_FN vf64 v_abs_f64(vf64 x) { return (vf64)((vi64)x & INT64_MAX); }
V_FN vf32 v_copysign_f32(vf32 size, vf32 sign) {
    return (vf32)(((vi32)size & INT32_MAX) | ((vi32)sign & INT32_MIN));
}
V_FN vf64 v_copysign_f64(vf64 size, vf64 sign) {
    return (vf64)(((vi64)size & INT64_MAX) | ((vi64)sign & INT64_MIN));
}

#if V_BYTES > 16

/* 8 suppresses the inexact flag. */
#define V_DEFINE_ROUNDING(T, V)                               \
    V_FN V v_round_##T(V x) { return V_ROUND_##T(x, 8 | 0); } \
    V_FN V v_floor_##T(V x) { return V_ROUND_##T(x, 8 | 1); } \
    V_FN V v_ceil_##T(V x) { return V_ROUND_##T(x, 8 | 2); }  \
    V_FN V v_trunc_##T(V x) { return V_ROUND_##T(x, 8 | 3); }
V_DEFINE_ROUNDING(f32, vf32)
V_DEFINE_ROUNDING(f64, vf64)

#else

/* Adding and subtracting 2^23 (2^52) rounds smaller numbers to an integer, half to even; all other
 * numbers are integers already, infinite or NaN. floor, ceil and trunc correct the result by one
 * where it was rounded in the wrong direction. */
#define V_DEFINE_ROUNDING(T, V, M, magic)                        \
    V_FN V v_round_##T(V x) {                                    \
        V a = v_abs_##T(x);                                      \
        V r = (a + magic) - magic;                               \
        return v_select_##T(a < magic, v_copysign_##T(r, x), x); \
    }                                                            \
    V_FN V v_floor_##T(V x) {                                    \
        V r = v_round_##T(x);                                    \
        V one = (V)((r > x) & (M)v_splat_##T(1));                \
        return v_copysign_##T(r - one, x);                       \
    }                                                            \
    V_FN V v_ceil_##T(V x) { return -v_floor_##T(-x); }          \
    V_FN V v_trunc_##T(V x) { return v_copysign_##T(v_floor_##T(v_abs_##T(x)), x); }
V_DEFINE_ROUNDING(f32, vf32, vi32, 0x1p23f)
V_DEFINE_ROUNDING(f64, vf64, vi64, 0x1p52)

#endif

/* ---- Halves of a vector, and horizontal sums ------------------------------------------------- */

#if V_BYTES == 64
#define V_LO(x) __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7)
#define V_HI(x) __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15)
#define V_JOIN(a, b) \
    __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#elif V_BYTES == 32
#define V_LO(x)      __builtin_shufflevector(x, x, 0, 1, 2, 3)
#define V_HI(x)      __builtin_shufflevector(x, x, 4, 5, 6, 7)
#define V_JOIN(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7)
#else
#define V_LO(x)      __builtin_shufflevector(x, x, 0, 1)
#define V_HI(x)      __builtin_shufflevector(x, x, 2, 3)
#define V_JOIN(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3)
#endif

/* Adds the upper half to the lower one until one lane is left, so the order depends only on the
 * number of lanes. */
#if V_BYTES == 64
V_FN float v_hsum_f32(vf32 v) {
    vf32_half h = V_LO(v) + V_HI(v);
    float a = h[0] + h[4], b = h[1] + h[5], c = h[2] + h[6], d = h[3] + h[7];
    return (a + c) + (b + d);
}
V_FN double v_hsum_f64(vf64 v) {
    double a = v[0] + v[4], b = v[1] + v[5], c = v[2] + v[6], d = v[3] + v[7];
    return (a + c) + (b + d);
}
#elif V_BYTES == 32
V_FN float v_hsum_f32(vf32 v) {
    vf32_half h = V_LO(v) + V_HI(v);
    return (h[0] + h[2]) + (h[1] + h[3]);
}
V_FN double v_hsum_f64(vf64 v) { return (v[0] + v[2]) + (v[1] + v[3]); }
#else
V_FN float v_hsum_f32(vf32 v) { return (v[0] + v[2]) + (v[1] + v[3]); }
V_FN double v_hsum_f64(vf64 v) { return v[0] + v[1]; }
#endif

/* ---- Conversions ----------------------------------------------------------------------------
 *
 * Conversions to integers truncate; the result for NaN and for numbers out of range is
 * undefined. */
V_FN vf32 v_f32_from_i32(vi32 x) { return __builtin_convertvector(x, vf32); }
V_FN vi32 v_i32_from_f32(vf32 x) { return __builtin_convertvector(x, vi32); }
V_FN vf64 v_f64_from_i64(vi64 x) { return __builtin_convertvector(x, vf64); }
V_FN vi64 v_i64_from_f64(vf64 x) { return __builtin_convertvector(x, vi64); }

/* A vector of 32-bit lanes corresponds to two of 64-bit lanes: v_lo_f64 widens its first half,
 * v_hi_f64 its second, v_join_f32 rounds the two back into one. (gcc 12 splits the generic
 * conversion from 32 to 64 bits into parts, so it gets built-ins.) */
#if defined(__clang__) || !defined(__SSE2__)
V_FN vf64 v_lo_f64(vf32 x) { return __builtin_convertvector(V_LO(x), vf64); }
V_FN vf64 v_hi_f64(vf32 x) { return __builtin_convertvector(V_HI(x), vf64); }
V_FN vf64 v_lo_f64_i32(vi32 x) { return __builtin_convertvector(V_LO(x), vf64); }
V_FN vf64 v_hi_f64_i32(vi32 x) { return __builtin_convertvector(V_HI(x), vf64); }
#else
#if V_BYTES == 64
#define V_WIDEN_f32(half) __builtin_ia32_cvtps2pd512_mask(half, (vf64){0}, V_ALL8, V_CURRENT)
#define V_WIDEN_i32(half) __builtin_ia32_cvtdq2pd512_mask(half, (vf64){0}, V_ALL8)
#elif V_BYTES == 32
#define V_WIDEN_f32(half) __builtin_ia32_cvtps2pd256(half)
#define V_WIDEN_i32(half) __builtin_ia32_cvtdq2pd256(half)
#else /* converts the lower half of a full vector */
#define V_WIDEN_f32(half) __builtin_ia32_cvtps2pd(V_JOIN(half, half))
#define V_WIDEN_i32(half) __builtin_ia32_cvtdq2pd(V_JOIN(half, half))
#endif
V_FN vf64 v_lo_f64(vf32 x) { return V_WIDEN_f32(V_LO(x)); }
V_FN vf64 v_hi_f64(vf32 x) { return V_WIDEN_f32(V_HI(x)); }
V_FN vf64 v_lo_f64_i32(vi32 x) { return V_WIDEN_i32(V_LO(x)); }
V_FN vf64 v_hi_f64_i32(vi32 x) { return V_WIDEN_i32(V_HI(x)); }
#endif

V_FN vf32 v_join_f32(vf64 lo, vf64 hi) {
    vf32_half a = __builtin_convertvector(lo, vf32_half),
              b = __builtin_convertvector(hi, vf32_half);
    return V_JOIN(a, b);
}
V_FN vi32 v_join_i32(vf64 lo, vf64 hi) {
    vi32_half a = __builtin_convertvector(lo, vi32_half),
              b = __builtin_convertvector(hi, vi32_half);
    return V_JOIN(a, b);
}

/* ---- f16 and bf16 ---------------------------------------------------------------------------
 *
 * Widening is exact, narrowing rounds to nearest, ties to even. Subnormals are kept; NaN stays NaN,
 * made quiet, with the bits of its payload that fit. All instruction sets give the same bits.
 */
#if V_BYTES == 64

V_FN vf32 v_f32_from_f16(vu16_half h) {
    return __builtin_ia32_vcvtph2ps512_mask((vi16_half)h, (vf32){0}, V_ALL16, V_CURRENT);
}
V_FN vu16_half v_f16_from_f32(vf32 x) {
    return (vu16_half)__builtin_ia32_vcvtps2ph512_mask(x, 0, (vi16_half){0}, V_ALL16);
}

#elif V_BYTES == 32

V_FN vf32 v_f32_from_f16(vu16_half h) { return __builtin_ia32_vcvtph2ps256((vi16_half)h); }
V_FN vu16_half v_f16_from_f32(vf32 x) { return (vu16_half)__builtin_ia32_vcvtps2ph256(x, 0); }

#else

/* Exponent and mantissa shifted into the position of an f32 are the number times 2^-112, also for
 * subnormals; a multiplication corrects that exactly. Exponent 31 (infinity, NaN) results in 2^16
 * and more. */
V_FN vf32 v_f32_from_f16(vu16_half h) {
    vu32 w = __builtin_convertvector(h, vu32);
    vu32 sign = (w & 0x8000) << 16, size = (w & 0x7fff) << 13;
    vu32 bits = (vu32)((vf32)size * 0x1p112f);
    vu32 special = (vu32)(size >= 0x7c00u << 13) & 0x7f800000;
    vu32 quiet = (vu32)(size > 0x7c00u << 13) & 0x400000;
    return (vf32)(bits | special | quiet | sign);
}

/* Normal numbers are rounded in the integers: adding half of the last place kept (minus one if that
 * place is even) rounds to even, and a carry propagates into the exponent. Numbers below 2^-14 keep
 * multiples of 2^-24, as a float near 0.5 does, so adding 0.5 rounds them. */
V_FN vu16_half v_f16_from_f32(vf32 x) {
    vu32 bits = (vu32)x, sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
    vu32 normal = (size - (112u << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
    vu32 denormal = (vu32)((vf32)size + 0.5f) - 0x3f000000;
    vu32 nan = (((size >> 13) & 0x3ff) | 0x7e00);
    vi32 is_small = (vf32)size < 0x1p-14f, is_large = (vf32)size >= 65520.0f;
    vi32 half = v_select_i32(is_small, (vi32)denormal, (vi32)normal);
    half = v_select_i32(is_large, v_splat_i32(0x7c00), half);
    half = v_select_i32(x != x, (vi32)nan, half);
    return __builtin_convertvector((vu32)half | sign, vu16_half);
}

#endif

V_FN vf32 v_f32_from_bf16(vu16_half h) { return (vf32)(__builtin_convertvector(h, vu32) << 16); }
V_FN vu16_half v_bf16_from_f32(vf32 x) {
    vu32 bits = (vu32)x;
    vu32 rounded = bits + 0x7fff + ((bits >> 16) & 1);
    vi32 narrow = v_select_i32(x != x, (vi32)(bits | 0x400000), (vi32)rounded);
    return __builtin_convertvector((vu32)narrow >> 16, vu16_half);
}

/* Loads and stores of VF32_LANES such numbers, or of the first n, as vf32; and conversions of
 * arrays. */
#define V_DEFINE_HALF(T)                                                                        \
    V_FN vf32 v_load_##T(const uint16_t *p) {                                                   \
        vu16_half h;                                                                            \
        __builtin_memcpy(&h, p, sizeof h);                                                      \
        return v_f32_from_##T(h);                                                               \
    }                                                                                           \
    V_FN void v_store_##T(uint16_t *p, vf32 v) {                                                \
        vu16_half h = v_##T##_from_f32(v);                                                      \
        __builtin_memcpy(p, &h, sizeof h);                                                      \
    }                                                                                           \
    V_FN vf32 v_load_part_##T(const uint16_t *p, int n) {                                       \
        vu16_half h = {0};                                                                      \
        __builtin_memcpy(&h, p, (uint32_t)n * sizeof *p);                                       \
        return v_f32_from_##T(h);                                                               \
    }                                                                                           \
    V_FN void v_store_part_##T(uint16_t *p, vf32 v, int n) {                                    \
        vu16_half h = v_##T##_from_f32(v);                                                      \
        __builtin_memcpy(p, &h, (uint32_t)n * sizeof *p);                                       \
    }                                                                                           \
    static inline void convert_##T##_to_f32(int64_t n, const uint16_t *src, float *dst) {       \
        int64_t i = 0;                                                                          \
        for (; i + VF32_LANES <= n; i += VF32_LANES) v_store_f32(dst + i, v_load_##T(src + i)); \
        if (i < n)                                                                              \
            v_store_part_f32(dst + i, v_load_part_##T(src + i, (int)(n - i)), (int)(n - i));    \
    }                                                                                           \
    static inline void convert_f32_to_##T(int64_t n, const float *src, uint16_t *dst) {         \
        int64_t i = 0;                                                                          \
        for (; i + VF32_LANES <= n; i += VF32_LANES) v_store_##T(dst + i, v_load_f32(src + i)); \
        if (i < n)                                                                              \
            v_store_part_##T(dst + i, v_load_part_f32(src + i, (int)(n - i)), (int)(n - i));    \
    }
V_DEFINE_HALF(f16)
V_DEFINE_HALF(bf16)

#endif
