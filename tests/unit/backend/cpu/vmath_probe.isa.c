/* vmath_probe.isa.c - calls the vector math of each instruction set by name, for test_vmath.c.
 *
 *     vmath_probe("exp_f32", n, x, NULL, NULL, y)      y[i] = exp(x[i])
 *
 * The tail is computed as a partial vector. Returns 0 if there is no function with this name. The
 * other entry points test simd.h itself.
 */
#include "backend/cpu/isa.h"
#include "backend/cpu/vmath.h"

#include <stddef.h>
#include <string.h>

typedef void probe_fn(int64_t n, const void *a, const void *b, const void *c, void *out);

/* A loop as in generated kernels: full vectors, then a partial one. */
#define LOOP(T, E, lanes, FULL, PART)                                 \
    (void)b;                                                          \
    (void)c;                                                          \
    const E *pa = a, *pb = b, *pc = c;                                \
    E *po = out;                                                      \
    (void)pb;                                                         \
    (void)pc;                                                         \
    int64_t i = 0;                                                    \
    for (; i + (lanes) <= n; i += (lanes)) v_store_##T(po + i, FULL); \
    int rest = (int)(n - i);                                          \
    if (rest > 0) v_store_part_##T(po + i, PART, rest)

#define ARGS int64_t n, const void *a, const void *b, const void *c, void *out

#define DEFINE1(name, T, E, lanes)                            \
    static void name##_##T(ARGS) {                            \
        LOOP(T, E, lanes, v_##name##_##T(v_load_##T(pa + i)), \
             v_##name##_##T(v_load_part_##T(pa + i, rest)));  \
    }
#define DEFINE2(name, T, E, lanes)                                                          \
    static void name##_##T(ARGS) {                                                          \
        LOOP(T, E, lanes, v_##name##_##T(v_load_##T(pa + i), v_load_##T(pb + i)),           \
             v_##name##_##T(v_load_part_##T(pa + i, rest), v_load_part_##T(pb + i, rest))); \
    }
#define DEFINE3(name, T, E, lanes)                                                        \
    static void name##_##T(ARGS) {                                                        \
        LOOP(T, E, lanes,                                                                 \
             v_##name##_##T(v_load_##T(pa + i), v_load_##T(pb + i), v_load_##T(pc + i)),  \
             v_##name##_##T(v_load_part_##T(pa + i, rest), v_load_part_##T(pb + i, rest), \
                            v_load_part_##T(pc + i, rest)));                              \
    }
#define ENTRY(name, T, E, lanes) {#name "_" #T, name##_##T},

/* clang-format off */
#define FLOAT1(X, ...)                                                                        \
    X(neg, __VA_ARGS__) X(abs, __VA_ARGS__) X(sign, __VA_ARGS__) X(sqrt, __VA_ARGS__)         \
    X(rsqrt, __VA_ARGS__) X(reciprocal, __VA_ARGS__) X(exp, __VA_ARGS__)                      \
    X(exp2, __VA_ARGS__) X(expm1, __VA_ARGS__) X(log, __VA_ARGS__) X(log2, __VA_ARGS__)       \
    X(log10, __VA_ARGS__) X(log1p, __VA_ARGS__) X(sin, __VA_ARGS__) X(cos, __VA_ARGS__)       \
    X(tan, __VA_ARGS__) X(asin, __VA_ARGS__) X(acos, __VA_ARGS__) X(atan, __VA_ARGS__)        \
    X(sinh, __VA_ARGS__) X(cosh, __VA_ARGS__) X(tanh, __VA_ARGS__) X(asinh, __VA_ARGS__)      \
    X(acosh, __VA_ARGS__) X(atanh, __VA_ARGS__) X(erf, __VA_ARGS__) X(erfc, __VA_ARGS__)      \
    X(floor, __VA_ARGS__) X(ceil, __VA_ARGS__) X(round, __VA_ARGS__) X(trunc, __VA_ARGS__)    \
    X(lgamma, __VA_ARGS__) X(digamma, __VA_ARGS__) X(isnan, __VA_ARGS__)                      \
    X(isinf, __VA_ARGS__) X(isfinite, __VA_ARGS__) X(logical_not, __VA_ARGS__)
#define LOGIC2(X, ...)                                                                        \
    X(eq, __VA_ARGS__) X(ne, __VA_ARGS__) X(lt, __VA_ARGS__) X(le, __VA_ARGS__)               \
    X(gt, __VA_ARGS__) X(ge, __VA_ARGS__) X(logical_and, __VA_ARGS__)                         \
    X(logical_or, __VA_ARGS__) X(logical_xor, __VA_ARGS__)
#define FLOAT2(X, ...)                                                                        \
    X(add, __VA_ARGS__) X(sub, __VA_ARGS__) X(mul, __VA_ARGS__) X(div, __VA_ARGS__)           \
    X(pow, __VA_ARGS__) X(atan2, __VA_ARGS__) X(fmod, __VA_ARGS__) X(remainder, __VA_ARGS__)  \
    X(floor_divide, __VA_ARGS__) X(max, __VA_ARGS__) X(min, __VA_ARGS__)                      \
    X(copysign, __VA_ARGS__) LOGIC2(X, __VA_ARGS__)
#define FLOAT3(X, ...) X(fma, __VA_ARGS__) X(where, __VA_ARGS__)
#define INT1(X, ...)                                                                          \
    X(neg, __VA_ARGS__) X(abs, __VA_ARGS__) X(sign, __VA_ARGS__) X(logical_not, __VA_ARGS__)  \
    X(bit_not, __VA_ARGS__)
#define INT2(X, ...)                                                                          \
    X(add, __VA_ARGS__) X(sub, __VA_ARGS__) X(mul, __VA_ARGS__) X(div, __VA_ARGS__)           \
    X(floor_divide, __VA_ARGS__) X(remainder, __VA_ARGS__) X(fmod, __VA_ARGS__)               \
    X(max, __VA_ARGS__) X(min, __VA_ARGS__) X(bit_and, __VA_ARGS__) X(bit_or, __VA_ARGS__)    \
    X(bit_xor, __VA_ARGS__) X(shl, __VA_ARGS__) X(shr, __VA_ARGS__) X(pow, __VA_ARGS__)       \
    LOGIC2(X, __VA_ARGS__)
#define INT3(X, ...) X(where, __VA_ARGS__)

#define EVERY(X1, X2, X3)                                                                     \
    FLOAT1(X1, f32, float, VF32_LANES) FLOAT2(X2, f32, float, VF32_LANES)                     \
    FLOAT3(X3, f32, float, VF32_LANES)                                                        \
    FLOAT1(X1, f64, double, VF64_LANES) FLOAT2(X2, f64, double, VF64_LANES)                   \
    FLOAT3(X3, f64, double, VF64_LANES)                                                       \
    INT1(X1, i32, int32_t, VI32_LANES) INT2(X2, i32, int32_t, VI32_LANES)                     \
    INT3(X3, i32, int32_t, VI32_LANES)                                                        \
    INT1(X1, i64, int64_t, VI64_LANES) INT2(X2, i64, int64_t, VI64_LANES)                     \
    INT3(X3, i64, int64_t, VI64_LANES)
/* clang-format on */

EVERY(DEFINE1, DEFINE2, DEFINE3)

/* Conversions change the type of the lanes, so they have separate loops (full vectors). */
#define DEFINE_CAST(to, from, TE, FE, lanes)                                                     \
    static void to##_from_##from(ARGS) {                                                         \
        (void)b;                                                                                 \
        (void)c;                                                                                 \
        for (int64_t i = 0; i + (lanes) <= n; i += (lanes))                                      \
            v_store_##to((TE *)out + i, v_##to##_from_##from(v_load_##from((const FE *)a + i))); \
    }
DEFINE_CAST(f32, i32, float, int32_t, VF32_LANES)
DEFINE_CAST(i32, f32, int32_t, float, VF32_LANES)
DEFINE_CAST(f64, i64, double, int64_t, VF64_LANES)
DEFINE_CAST(i64, f64, int64_t, double, VF64_LANES)

#define DEFINE_HALF(name)          \
    static void name(ARGS) {       \
        (void)b;                   \
        (void)c;                   \
        convert_##name(n, a, out); \
    }
DEFINE_HALF(f16_to_f32)
DEFINE_HALF(bf16_to_f32)
DEFINE_HALF(f32_to_f16)
DEFINE_HALF(f32_to_bf16)

static const struct {
    const char *name;
    probe_fn *run;
} table[] = {EVERY(ENTRY, ENTRY, ENTRY){"f32_from_i32", f32_from_i32},
             {"i32_from_f32", i32_from_f32},
             {"f64_from_i64", f64_from_i64},
             {"i64_from_f64", i64_from_f64},
             {"f16_to_f32", f16_to_f32},
             {"bf16_to_f32", bf16_to_f32},
             {"f32_to_f16", f32_to_f16},
             {"f32_to_bf16", f32_to_bf16}};

GD_ISA_DECLARE(int, vmath_probe,
               (const char *name, int64_t n, const void *a, const void *b, const void *c,
                void *out));
GD_ISA_DECLARE(const char *, vmath_probe_name, (int index));
GD_ISA_DECLARE(double, vmath_probe_hsum, (const char *type, const void *x));
GD_ISA_DECLARE(int, vmath_probe_lanes, (void)); /* of f32; f64 has half as many */

int GD_ISA_FN(vmath_probe)(const char *name, int64_t n, const void *a, const void *b, const void *c,
                           void *out) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(table[i].name, name) != 0) continue;
        table[i].run(n, a, b, c, out);
        return 1;
    }
    return 0;
}

/* The name of the index-th function, NULL after the last. */
const char *GD_ISA_FN(vmath_probe_name)(int index) {
    return (size_t)index < sizeof table / sizeof table[0] ? table[index].name : NULL;
}

double GD_ISA_FN(vmath_probe_hsum)(const char *type, const void *x) {
    return strcmp(type, "f32") == 0 ? (double)v_hsum_f32(v_load_f32(x)) : v_hsum_f64(v_load_f64(x));
}

int GD_ISA_FN(vmath_probe_lanes)(void) { return VF32_LANES; }
