/* gemm_vector.h - vectors of `real` for the instruction set that is being compiled.
 *
 * `real` is float, or double if FOR_F64 is defined. A `vec` has VL lanes. It is a GNU vector type,
 * so operators such as + * < work on it; other operations are functions in this file.
 * gemm.typed.isa.c includes it, so everything is static.
 */
#include "ops/matmul/cpu/gemm_block.h"
#include "backend/cpu/loop.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

#if defined(FOR_F64)
typedef double real;
#define REAL_DTYPE GD_F64
#define REAL_INT   int64_t
#define OP(name)   name##_pd
#else
typedef float real;
#define REAL_DTYPE GD_F32
#define REAL_INT   int32_t
#define OP(name)   name##_ps
#endif

#if defined(__AVX512F__)
#define VEC_BYTES 64
#elif defined(__AVX2__)
#define VEC_BYTES 32
#else
#define VEC_BYTES 16
#endif

enum { VL = VEC_BYTES / sizeof(real) };

typedef real vec __attribute__((vector_size(VEC_BYTES), may_alias));
typedef REAL_INT ivec __attribute__((vector_size(VEC_BYTES), may_alias));

/* A vec at an unaligned address. */
typedef real vec_unaligned
    __attribute__((vector_size(VEC_BYTES), may_alias, aligned(sizeof(real))));

INLINE vec load(const real *p) { return *(const vec_unaligned *)p; }
INLINE void store(real *p, vec x) { *(vec_unaligned *)p = x; }

/* Masked load and store of the first n lanes, or of all if n >= VL. The other lanes are 0 after a
 * load and are not written by a store. */
INLINE vec load_first(const real *p, int64_t n);
INLINE void store_first(real *p, vec x, int64_t n);

INLINE vec broadcast(real x);

/* Stores the first n lanes, n <= VL, and possibly more: for destinations whose tail may be
 * overwritten. Stores half a vector where that is enough, because a full one often crosses a cache
 * line. */
INLINE void store_at_least(real *p, vec x, int64_t n) {
    if (n <= VL / 2) memcpy(p, &x, sizeof x / 2);
    else store(p, x);
}

/* a * b + c, as a fused multiply-add where the instruction set has it. */
INLINE vec multiply_add(vec a, vec b, vec c);

/* *sum = a * b + *sum. Inline assembly fixes the destination to the accumulator: compilers
 * otherwise insert register moves and spills into loops that use all registers. */
INLINE void multiply_add_to(vec *sum, vec a, vec b) {
#if defined(__AVX512F__) && defined(FOR_F64)
    __asm__("vfmadd231pd %1, %2, %0" : "+v"(*sum) : "v"(a), "v"(b));
#elif defined(__AVX512F__)
    __asm__("vfmadd231ps %1, %2, %0" : "+v"(*sum) : "v"(a), "v"(b));
#else
    *sum = multiply_add(a, b, *sum);
#endif
}

/* x where mask > 0 or NaN, else 0. */
INLINE vec masked(vec x, vec mask) { return (vec)((ivec)x & ~(ivec)(mask <= (vec){0})); }
/* x < 0 ? 0 : x; NaN stays NaN. */
INLINE vec relu(vec x) { return (vec)((ivec)x & ~(ivec)(x < (vec){0})); }

#if defined(__AVX512F__)

#if defined(FOR_F64)
typedef __mmask8 mask;
#else
typedef __mmask16 mask;
#endif

INLINE mask first_lanes(int64_t n) { return (mask)(n >= VL ? -1 : (1 << n) - 1); }
INLINE vec load_first(const real *p, int64_t n) {
    return OP(_mm512_maskz_loadu)(first_lanes(n), p);
}
INLINE void store_first(real *p, vec x, int64_t n) { OP(_mm512_mask_storeu)(p, first_lanes(n), x); }
INLINE vec broadcast(real x) { return OP(_mm512_set1)(x); }
INLINE vec multiply_add(vec a, vec b, vec c) { return OP(_mm512_fmadd)(a, b, c); }

#elif defined(__AVX2__)

/* VL times -1, then VL times 0: the mask of the first n lanes starts at element VL - n. */
static const REAL_INT mask_table[2 * VL] = {[0 ... VL - 1] = -1};
INLINE __m256i first_lanes(int64_t n) {
    return _mm256_loadu_si256((const __m256i *)(mask_table + (n >= VL ? 0 : VL - n)));
}
INLINE vec load_first(const real *p, int64_t n) { return OP(_mm256_maskload)(p, first_lanes(n)); }
INLINE void store_first(real *p, vec x, int64_t n) {
    if (n >= VL) store(p, x);
    else OP(_mm256_maskstore)(p, first_lanes(n), x);
}
INLINE vec broadcast(real x) { return OP(_mm256_set1)(x); }
INLINE vec multiply_add(vec a, vec b, vec c) { return OP(_mm256_fmadd)(a, b, c); }

#else

INLINE vec load_first(const real *p, int64_t n) {
    if (n >= VL) return load(p);
    vec x = {0};
    for (int64_t i = 0; i < n; i++) x[i] = p[i];
    return x;
}
INLINE void store_first(real *p, vec x, int64_t n) {
    if (n >= VL) store(p, x);
    else
        for (int64_t i = 0; i < n; i++) p[i] = x[i];
}
INLINE vec broadcast(real x) { return x - (vec){0}; } /* not x + 0: -0 + 0 is +0 */
INLINE vec multiply_add(vec a, vec b, vec c) { return a * b + c; }

#endif

/* The sum of all lanes in a fixed order: a binary tree that adds the upper half to the lower
 * one. */
INLINE real sum_lanes(vec x) {
    real part[VL];
    store(part, x);
    for (int width = VL / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) part[i] += part[i + width];
    return part[0];
}

/* Prefetches p[index], which may lie outside the array. */
INLINE void prefetch(const real *p, int64_t index) {
    __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)index * sizeof(real)));
}

/* The start of part i when `length` is divided evenly into `parts`. */
INLINE int64_t split_point(int64_t length, int64_t i, int64_t parts) { return length * i / parts; }
