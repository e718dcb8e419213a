/* simd_typed.h - macros for vector code that is written once for several dtypes.
 *
 * The build defines FOR_F32 or FOR_F64 for a *.typed.isa.c file; a file for i64 defines FOR_I64. For
 * FOR_F32, TYPE is f32, E the element, VEC the vector, MASK the integer vector with the same number of
 * lanes, and V(add) the function v_add_f32.
 */
#include "backend/cpu/isa.h"
#include "backend/cpu/loop.h"
#include "backend/cpu/vmath.h"

#if defined(FOR_F32)
#define TYPE      f32
#define E         float
#define MASK      vi32
#define MASK_TYPE i32
#define LANES     VF32_LANES
#define OWN_DTYPE GD_F32
#elif defined(FOR_F64)
#define TYPE      f64
#define E         double
#define MASK      vi64
#define MASK_TYPE i64
#define LANES     VF64_LANES
#define OWN_DTYPE GD_F64
#else
#define TYPE      i64
#define E         int64_t
#define MASK      vi64
#define MASK_TYPE i64
#define LANES     VI64_LANES
#define OWN_DTYPE GD_I64
#endif

#if defined(FOR_F32) || defined(FOR_F64)
#define IS_FLOAT 1
#define LOWEST   (-__builtin_inf())
#define LARGEST  __builtin_inf()
#else
#define IS_FLOAT 0
#define LOWEST   INT64_MIN
#define LARGEST  INT64_MAX
#endif

#define JOIN_(a, b)        a##b
#define JOIN(a, b)         JOIN_(a, b)
#define NAMED_(name, type) v_##name##_##type
#define NAMED(name, type)  NAMED_(name, type)
#define V(name)            NAMED(name, TYPE) /* V(add) is v_add_f32 */
#define VEC                JOIN(v, TYPE)     /* vf32 */

#define TYPED_(name, type)  GD_ISA_FN(name##_##type)
#define TYPED__(name, type) TYPED_(name, type)
#define TYPED(name)         TYPED__(name, TYPE) /* TYPED(gd_reducer) is gd_reducer_f32_avx2 */

/* IOTA: the lane indices 0, 1, 2, ... ROTATE_n: a vector rotated by n lanes. */
#if LANES == 16
#define IOTA ((MASK){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
#define ROTATE_8(v) \
    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
#define ROTATE_4(v) \
    __builtin_shufflevector(v, v, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3)
#define ROTATE_2(v) \
    __builtin_shufflevector(v, v, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1)
#define ROTATE_1(v) \
    __builtin_shufflevector(v, v, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0)
#elif LANES == 8
#define IOTA        ((MASK){0, 1, 2, 3, 4, 5, 6, 7})
#define ROTATE_4(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3)
#define ROTATE_2(v) __builtin_shufflevector(v, v, 2, 3, 4, 5, 6, 7, 0, 1)
#define ROTATE_1(v) __builtin_shufflevector(v, v, 1, 2, 3, 4, 5, 6, 7, 0)
#elif LANES == 4
#define IOTA        ((MASK){0, 1, 2, 3})
#define ROTATE_2(v) __builtin_shufflevector(v, v, 2, 3, 0, 1)
#define ROTATE_1(v) __builtin_shufflevector(v, v, 1, 2, 3, 0)
#else
#define IOTA        ((MASK){0, 1})
#define ROTATE_1(v) __builtin_shufflevector(v, v, 1, 0)
#endif
#ifndef ROTATE_8
#define ROTATE_8(v) (v)
#endif
#ifndef ROTATE_4
#define ROTATE_4(v) (v)
#endif
#ifndef ROTATE_2
#define ROTATE_2(v) (v)
#endif

/* Combines all lanes of a vector; the result is in every lane. */
#define REDUCE_LANES(v, COMBINE)                    \
    do {                                            \
        if (LANES > 8) v = COMBINE(v, ROTATE_8(v)); \
        if (LANES > 4) v = COMBINE(v, ROTATE_4(v)); \
        if (LANES > 2) v = COMBINE(v, ROTATE_2(v)); \
        v = COMBINE(v, ROTATE_1(v));                \
    } while (0)

/* Runs DO(LOAD, STORE) for each vector at i < n; the last one may be partial. */
#define LOAD_ALL(p)      V(load)(p)
#define STORE_ALL(p, v)  V(store)(p, v)
#define LOAD_TAIL(p)     V(load_part)(p, left)
#define STORE_TAIL(p, v) V(store_part)(p, v, left)
#define EACH_VECTOR(n, DO)                     \
    do {                                       \
        int64_t i = 0;                         \
        for (; i + LANES <= (n); i += LANES) { \
            DO(LOAD_ALL, STORE_ALL);           \
        }                                      \
        if (i < (n)) {                         \
            int left = (int)((n)-i);           \
            DO(LOAD_TAIL, STORE_TAIL);         \
        }                                      \
    } while (0)
