/* gemm_vector.h - vectors of `real`, in whichever instruction set is being compiled.
 *
 * `real` is float, or double where GEMM_F64 is defined. A `vec` holds VL of them. It is a GNU
 * vector, so + * < work on it; what has no operator is a function here. Included by one *.isa.c
 * file for each type, so everything is static.
 */
#include "backend/cpu/gemm_block.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

/* Full unrolling of loops whose bounds are known once a function is inlined. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(GEMM_F64)
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

/* The same at any address. */
typedef real vec_unaligned
    __attribute__((vector_size(VEC_BYTES), may_alias, aligned(sizeof(real))));

INLINE vec load(const real *p) { return *(const vec_unaligned *)p; }
INLINE void store(real *p, vec x) { *(vec_unaligned *)p = x; }

/* The first n elements (all of them if n >= VL), the rest 0 when loading and untouched when
 * storing. */
INLINE vec load_first(const real *p, int64_t n);
INLINE void store_first(real *p, vec x, int64_t n);

INLINE vec broadcast(real x);

/* The first n elements, n <= VL, and perhaps some more: for where what follows may be overwritten.
 * Halves where they do, since whole vectors would often straddle two cache lines. */
INLINE void store_at_least(real *p, vec x, int64_t n) {
    if (n <= VL / 2) memcpy(p, &x, sizeof x / 2);
    else store(p, x);
}

/* a * b + c, rounded once where the processor has such an instruction. */
INLINE vec multiply_add(vec a, vec b, vec c);

/* sum += a * b, as above. In place: a compiler that is free to choose where the result goes moves
 * vectors about in loops that have none to spare. */
INLINE void add_product(vec *sum, vec a, vec b) {
#if defined(__AVX512F__) && defined(GEMM_F64)
    __asm__("vfmadd231pd %1, %2, %0" : "+v"(*sum) : "v"(a), "v"(b));
#elif defined(__AVX512F__)
    __asm__("vfmadd231ps %1, %2, %0" : "+v"(*sum) : "v"(a), "v"(b));
#else
    *sum = multiply_add(a, b, *sum);
#endif
}

/* x, and 0 where the mask is <= 0. */
INLINE vec masked(vec x, vec mask) { return (vec)((ivec)x & ~(ivec)(mask <= (vec){0})); }
/* x < 0 ? 0 : x, which keeps NaN. */
INLINE vec relu(vec x) { return (vec)((ivec)x & ~(ivec)(x < (vec){0})); }

#if defined(__AVX512F__)

#if defined(GEMM_F64)
typedef __mmask8 mask;
#else
typedef __mmask16 mask;
#endif

INLINE mask first(int64_t n) { return (mask)(n >= VL ? -1 : (1 << n) - 1); }
INLINE vec load_first(const real *p, int64_t n) { return OP(_mm512_maskz_loadu)(first(n), p); }
INLINE void store_first(real *p, vec x, int64_t n) { OP(_mm512_mask_storeu)(p, first(n), x); }
INLINE vec broadcast(real x) { return OP(_mm512_set1)(x); }
INLINE vec multiply_add(vec a, vec b, vec c) { return OP(_mm512_fmadd)(a, b, c); }

#elif defined(__AVX2__)

/* VL times -1, then VL times 0: a mask of n begins VL - n elements into it. */
static const REAL_INT mask_table[2 * VL] = {[0 ... VL - 1] = -1};
INLINE __m256i first(int64_t n) {
    return _mm256_loadu_si256((const __m256i *)(mask_table + (n >= VL ? 0 : VL - n)));
}
INLINE vec load_first(const real *p, int64_t n) { return OP(_mm256_maskload)(p, first(n)); }
INLINE void store_first(real *p, vec x, int64_t n) {
    if (n >= VL) store(p, x);
    else OP(_mm256_maskstore)(p, first(n), x);
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
INLINE vec broadcast(real x) { return x - (vec){0}; } /* minus, because -0 + 0 would be 0 */
INLINE vec multiply_add(vec a, vec b, vec c) { return a * b + c; }

#endif

INLINE real sum_of(vec x) {
    /* Halves onto halves: a fixed tree. */
    real part[VL];
    store(part, x);
    for (int width = VL / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) part[i] += part[i + width];
    return part[0];
}

/* Asks for p[index], which need not exist. */
INLINE void prefetch(const real *p, int64_t index) {
    __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)index * sizeof(real)));
}

INLINE int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Where part i of `parts` begins when `whole` is cut evenly. */
INLINE int64_t cut(int64_t whole, int64_t i, int64_t parts) { return whole * i / parts; }
