/* test_vmath.c - the accuracy of the vector math in every instruction set of this machine.
 *
 *   test_vmath                  a stratified sample of all inputs and every special value
 *   test_vmath --full [name]    unary f32 functions (or the named one, "exp_f32") over all 2^32
 *   test_vmath --table          also prints the largest errors
 *   test_vmath --bench          ns per element, one thread, 16k elements, instead of testing
 *
 * References are libm's functions in double for f32, and in long double for f64. Errors are in
 * units of the last place of the exact result; the sign is compared, too, also that of zero.
 */
#include "backend/cpu/isa.h"
#include "draw.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

GD_ISA_DECLARE(int, vmath_probe,
               (const char *name, int64_t n, const void *a, const void *b, const void *c,
                void *out));
GD_ISA_DECLARE(const char *, vmath_probe_name, (int index));
GD_ISA_DECLARE(double, vmath_probe_hsum, (const char *type, const void *x));
GD_ISA_DECLARE(int, vmath_probe_lanes, (void));

enum { CHUNK = 1 << 16 };

static draws random_stream = {1};

static int failures, print_table, full_mode;
static gd_isa best; /* the best instruction set of this machine */

static void report_failure(const char *name, gd_isa isa, const char *what) {
    if (failures++ < 50) printf("FAIL %s (%s): %s\n", name, gd_isa_name(isa), what);
}

static void run_function(gd_isa isa, const char *name, int64_t n, const void *a, const void *b,
                         const void *c, void *out) {
    gd_cpu_set_isa(isa);
    if (!GD_ISA_CALL(vmath_probe)(name, n, a, b, c, out))
        report_failure(name, isa, "no such function");
}

/* --- inputs ----------------------------------------------------------------------------------- */

static double uniform(double low, double high) {
    return low + (high - low) * (double)(draw_bits(&random_stream) >> 11) * 0x1p-53;
}
static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static double double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Values where functions change their method, each with its neighbors and both signs. */
static const double corners[] = {0,       0x1p-149, 0x1p-126, 0x1p-25,  0x1p-24,
                                 0x1p-14, 0x1p-12,  0.1,      0.25,     1.0 / 3,
                                 0.5,     2.0 / 3,  0.75,     1,        4.0 / 3,
                                 1.5,     M_PI / 4, M_PI / 2, M_PI,     2,
                                 2.5,     3,        3.93,     4,        5.5,
                                 6,       9.02,     10.06,    10.5,     17.4,
                                 22,      40,       64,       87.33655, 88.72284,
                                 89.4160, 103.9721, 127,      128,      149,
                                 150,     709.7827, 710.4758, 744.4401, 745.1332,
                                 1022,    1024,     1075,     8388608,  0x1p24,
                                 0x1p28,  0x1p31,   1048576,  0x1p127,  3.402823466e38};

static int special_f32(float *x) {
    int n = 0;
    for (size_t i = 0; i < sizeof corners / sizeof corners[0]; i++) {
        float c = (float)corners[i], up = nextafterf(c, INFINITY), down = nextafterf(c, -INFINITY);
        float all[] = {c, up, down, -c, -up, -down};
        for (int j = 0; j < 6; j++) x[n++] = all[j];
    }
    x[n++] = INFINITY, x[n++] = -INFINITY, x[n++] = NAN, x[n++] = -NAN;
    return n;
}
static int special_f64(double *x) {
    int n = 0;
    for (size_t i = 0; i < sizeof corners / sizeof corners[0]; i++) {
        double c = corners[i], up = nextafter(c, INFINITY), down = nextafter(c, -INFINITY);
        double all[] = {c, up, down, -c, -up, -down};
        for (int j = 0; j < 6; j++) x[n++] = all[j];
    }
    x[n++] = 0x1p-1074, x[n++] = 0x1p-1022, x[n++] = 0x1p1023, x[n++] = 1.797693134862315e308;
    x[n++] = INFINITY, x[n++] = -INFINITY, x[n++] = NAN, x[n++] = -NAN;
    return n;
}
enum { SPECIALS = 6 * sizeof corners / sizeof corners[0] + 8 };

/* --- errors in units of the last place -------------------------------------------------------- */

static double ulps_f32(float got, double expected) {
    if (isnan(expected) || isnan(got)) return isnan(expected) && isnan(got) ? 0 : INFINITY;
    if (!signbit(got) != !signbit(expected)) return INFINITY;
    double g = fmin(fabs((double)got), 0x1p128), w = fmin(fabs(expected), 0x1p128);
    int exponent = w < 0x1p-126 ? -126 : ilogb(w);
    return fabs(g - w) * double_of((uint64_t)(1023 + 23 - exponent) << 52);
}
static double ulps_f64(double got, long double expected) {
    if (isnan(expected) || isnan(got)) return isnan(expected) && isnan(got) ? 0 : INFINITY;
    if (!signbit(got) != !signbit(expected)) return INFINITY;
    long double g = fminl(fabsl((long double)got), 0x1p1024L),
                w = fminl(fabsl(expected), 0x1p1024L);
    int exponent = w < 0x1p-1022L ? -1022 : ilogbl(w);
    return (double)(fabsl(g - w) * ldexpl(1, 52 - exponent));
}

typedef struct worst {
    double ulps, a, b, got, expected;
} worst;

static void record_worst(worst *w, double ulps, double a, double b, double got, double expected) {
    if (!(ulps <= w->ulps)) *w = (worst){ulps, a, b, got, expected};
}
static void judge_worst(const char *name, const char *type, gd_isa isa, const worst *w,
                        double limit) {
    if (print_table)
        printf("%-14s %s %-7s %8.3f ulp  at %a\n", name, type, gd_isa_name(isa), w->ulps, w->a);
    if (w->ulps <= limit) return;
    char full[64], text[256];
    snprintf(full, sizeof full, "%s_%s", name, type);
    snprintf(text, sizeof text,
             "%.3f ulp, at most %.2f promised, at (%.17g, %.17g): %.17g, not %.17g", w->ulps, limit,
             w->a, w->b, w->got, w->expected);
    report_failure(full, isa, text);
}

/* --- unary functions -------------------------------------------------------------------------- */

#define REFERENCES(D, S)                                                                       \
    static D ref_neg##S(D x) { return -x; }                                                    \
    static D ref_sign##S(D x) { return (x > 0) - (x < 0); }                                    \
    static D ref_rsqrt##S(D x) { return 1 / sqrt##S(x); }                                      \
    static D ref_reciprocal##S(D x) { return 1 / x; }                                          \
    static D ref_isnan##S(D x) { return isnan(x) ? 1 : 0; }                                    \
    static D ref_isinf##S(D x) { return isinf(x) ? 1 : 0; }                                    \
    static D ref_isfinite##S(D x) { return isfinite(x) ? 1 : 0; }                              \
    static D ref_not##S(D x) { return x == 0 ? 1 : 0; }                                        \
    static D ref_digamma##S(D x) {                                                             \
        if (x == 0) return copysign##S(INFINITY, -x);                                          \
        if (x < 0 && (isinf(x) || x == floor##S(x))) return NAN;                               \
        D sum = 0, pi = 3.14159265358979323846264338L;                                         \
        if (x < 0) sum = -pi / tan##S(pi * (x - round##S(x))), x = 1 - x;                      \
        for (; x < 30; x += 1) sum -= 1 / x;                                                   \
        D z = 1 / (x * x);                                                                     \
        D tail =                                                                               \
            z * (-1 / (D)12 +                                                                  \
                 z * (1 / (D)120 + z * (-1 / (D)252 + z * (1 / (D)240 + z * (-1 / (D)132))))); \
        return (isinf(x) ? x : log##S(x) - (D)0.5 / x) + tail + sum;                           \
    }
REFERENCES(double, )
REFERENCES(long double, l)

/* Limits in ulp: f32 with and without a fused multiply-add, f64. The error of digamma is absolute
 * where its value is below 1, because it has zeros. */
static const struct unary {
    const char *name;
    double (*ref)(double);
    long double (*refl)(long double);
    float limit, limit_base, limit_f64;
} unary[] = {
    {"neg", ref_neg, ref_negl, 0, 0, 0},
    {"abs", fabs, fabsl, 0, 0, 0},
    {"sign", ref_sign, ref_signl, 0, 0, 0},
    {"sqrt", sqrt, sqrtl, 0.501f, 0.501f, 0.501f},
    {"rsqrt", ref_rsqrt, ref_rsqrtl, 1.5f, 1.5f, 1.5f},
    {"reciprocal", ref_reciprocal, ref_reciprocall, 0.501f, 0.501f, 0.501f},
    {"exp", exp, expl, 1, 1.25f, 1.05f},
    {"exp2", exp2, exp2l, 1, 1.2f, 1.3f},
    {"expm1", expm1, expm1l, 1.7f, 1.8f, 2},
    {"log", log, logl, 1.1f, 1.1f, 0.9f},
    {"log2", log2, log2l, 1.8f, 2.3f, 2},
    {"log10", log10, log10l, 1.8f, 2.5f, 3},
    {"log1p", log1p, log1pl, 1.8f, 1.8f, 1.5f},
    {"sin", sin, sinl, 1.6f, 1.6f, 2},
    {"cos", cos, cosl, 1.6f, 1.6f, 2},
    {"tan", tan, tanl, 3.5f, 3.7f, 2},
    {"asin", asin, asinl, 2.2f, 2.2f, 2},
    {"acos", acos, acosl, 1.3f, 1.3f, 2},
    {"atan", atan, atanl, 2.2f, 2.6f, 2},
    {"sinh", sinh, sinhl, 1.9f, 1.9f, 3},
    {"cosh", cosh, coshl, 1.6f, 1.8f, 3},
    {"tanh", tanh, tanhl, 2.7f, 2.7f, 2.5f},
    {"asinh", asinh, asinhl, 2.2f, 2.2f, 3},
    {"acosh", acosh, acoshl, 2.3f, 2.3f, 3},
    {"atanh", atanh, atanhl, 2.5f, 2.5f, 3},
    {"erf", erf, erfl, 3.1f, 3.1f, 1.4f},
    {"erfc", erfc, erfcl, 0.55f, 0.55f, 6},
    {"floor", floor, floorl, 0, 0, 0},
    {"ceil", ceil, ceill, 0, 0, 0},
    {"round", rint, rintl, 0, 0, 0},
    {"trunc", trunc, truncl, 0, 0, 0},
    {"lgamma", lgamma, lgammal, 1, 1, 8},
    {"digamma", ref_digamma, ref_digammal, 1, 1, 16},
    {"isnan", ref_isnan, ref_isnanl, 0, 0, 0},
    {"isinf", ref_isinf, ref_isinfl, 0, 0, 0},
    {"isfinite", ref_isfinite, ref_isfinitel, 0, 0, 0},
    {"logical_not", ref_not, ref_notl, 0, 0, 0},
};
enum { UNARY = sizeof unary / sizeof unary[0] };

static void test_unary_f32(const struct unary *u, const float *x, int n, worst *w) {
    static double expected[CHUNK];
    static float got[CHUNK];
    char name[64];
    snprintf(name, sizeof name, "%s_f32", u->name);
    for (int i = 0; i < n; i++) expected[i] = u->ref(x[i]);
    for (gd_isa isa = 0; isa <= best; isa++) {
        run_function(isa, name, n, x, NULL, NULL, got);
        for (int i = 0; i < n; i++) {
            if (got[i] == (float)expected[i] && got[i] != 0 && w[isa].ulps >= 0.5) continue;
            double ulps = ulps_f32(got[i], expected[i]);
            if (u->ref == ref_digamma && fabs(expected[i]) < 1)
                ulps = fabs(got[i] - expected[i]) * 0x1p23;
            record_worst(&w[isa], ulps, x[i], 0, got[i], expected[i]);
        }
    }
}

/* Tests every bit pattern in full mode, otherwise a random one of each 2^12 neighbors. */
static void test_all_unary_f32(const char *only) {
    static float x[CHUNK];
    for (int k = 0; k < UNARY; k++) {
        char name[64];
        snprintf(name, sizeof name, "%s_f32", unary[k].name);
        if (only && strcmp(only, name) != 0) continue;
        worst w[GD_ISA_COUNT] = {{0, 0, 0, 0, 0}};
        test_unary_f32(&unary[k], x, special_f32(x), w);
        uint64_t step = full_mode ? 1 : 1 << 12;
        for (uint64_t at = 0; at < 1ull << 32; at += CHUNK * step) {
            for (uint64_t i = 0; i < CHUNK; i++)
                x[i] =
                    float_of((uint32_t)(at + i * step + (draw_bits(&random_stream) & (step - 1))));
            test_unary_f32(&unary[k], x, CHUNK, w);
        }
        for (gd_isa isa = 0; isa <= best; isa++)
            judge_worst(unary[k].name, "f32", isa, &w[isa],
                        isa == GD_ISA_BASE ? unary[k].limit_base : unary[k].limit);
    }
}

static void test_all_unary_f64(void) {
    static double x[CHUNK], got[CHUNK];
    static long double expected[CHUNK];
    for (int k = 0; k < UNARY; k++) {
        if (!unary[k].refl) continue;
        int n = special_f64(x);
        for (; n < CHUNK; n++) {
            int kind = n % 4;
            x[n] = kind == 0   ? double_of(draw_bits(&random_stream))
                   : kind == 1 ? uniform(-4, 4)
                   : kind == 2 ? uniform(-50, 50)
                               : copysign(exp2(uniform(-60, 12)), uniform(-1, 3));
        }
        for (int i = 0; i < n; i++) expected[i] = unary[k].refl(x[i]);
        char name[64];
        snprintf(name, sizeof name, "%s_f64", unary[k].name);
        for (gd_isa isa = 0; isa <= best; isa++) {
            worst w = {0, 0, 0, 0, 0};
            run_function(isa, name, n, x, NULL, NULL, got);
            for (int i = 0; i < n; i++) {
                double ulps = ulps_f64(got[i], expected[i]);
                if (unary[k].ref == ref_digamma && fabsl(expected[i]) < 1)
                    ulps = (double)fabsl(got[i] - expected[i]) * 0x1p52;
                record_worst(&w, ulps, x[i], 0, got[i], (double)expected[i]);
            }
            judge_worst(unary[k].name, "f64", isa, &w, unary[k].limit_f64);
        }
    }
}

/* --- binary functions ------------------------------------------------------------------------- */

#define REFERENCES2(E, D, S, F)                                                           \
    static D ref2_add##S(E a, E b) { return (D)a + b; }                                   \
    static D ref2_sub##S(E a, E b) { return (D)a - b; }                                   \
    static D ref2_mul##S(E a, E b) { return (D)a * b; }                                   \
    static D ref2_div##S(E a, E b) { return (D)a / b; }                                   \
    static D ref2_fmod##S(E a, E b) { return fmod##F(a, b); }                             \
    static D ref2_max##S(E a, E b) { return isnan(a) || isnan(b) ? NAN : a > b ? a : b; } \
    static D ref2_min##S(E a, E b) { return isnan(a) || isnan(b) ? NAN : a < b ? a : b; } \
    static D ref2_copysign##S(E a, E b) { return copysign##F(a, b); }                     \
    static D ref2_eq##S(E a, E b) { return a == b; }                                      \
    static D ref2_ne##S(E a, E b) { return a != b; }                                      \
    static D ref2_lt##S(E a, E b) { return a < b; }                                       \
    static D ref2_le##S(E a, E b) { return a <= b; }                                      \
    static D ref2_gt##S(E a, E b) { return a > b; }                                       \
    static D ref2_ge##S(E a, E b) { return a >= b; }                                      \
    static D ref2_and##S(E a, E b) { return a != 0 && b != 0; }                           \
    static D ref2_or##S(E a, E b) { return a != 0 || b != 0; }                            \
    static D ref2_xor##S(E a, E b) { return (a != 0) != (b != 0); }                       \
    static D ref2_remainder##S(E a, E b) {                                                \
        E r = fmod##F(a, b);                                                              \
        if (r != 0 && (b < 0) != (r < 0)) r += b;                                         \
        return r;                                                                         \
    }                                                                                     \
    static D ref2_floor_divide##S(E a, E b) { /* as PyTorch computes it */                \
        if (b == 0) return a / b;                                                         \
        E r = fmod##F(a, b), q = (a - r) / b;                                             \
        if (r != 0 && (b < 0) != (r < 0)) q -= 1;                                         \
        if (q == 0) return copysign##F(0, a / b);                                         \
        E integer = floor##F(q);                                                          \
        if (q - integer > (E)0.5) integer += 1;                                           \
        return integer;                                                                   \
    }
REFERENCES2(float, double, , f)
REFERENCES2(double, long double, l, )
static double ref2_pow(float a, float b) { return pow(a, b); }
static double ref2_atan2(float a, float b) { return atan2(a, b); }
static long double ref2_powl(double a, double b) { return powl(a, b); }
static long double ref2_atan2l(double a, double b) { return atan2l(a, b); }

#define BINARY_ENTRY(name, ref, limit) \
    { name, ref, ref##l, limit }
static const struct binary {
    const char *name;
    double (*ref)(float, float);
    long double (*refl)(double, double);
    float limit;
} binary[] = {
    BINARY_ENTRY("add", ref2_add, 0.501f),
    BINARY_ENTRY("sub", ref2_sub, 0.501f),
    BINARY_ENTRY("mul", ref2_mul, 0.501f),
    BINARY_ENTRY("div", ref2_div, 0.501f),
    BINARY_ENTRY("pow", ref2_pow, 0.6f),
    BINARY_ENTRY("atan2", ref2_atan2, 2.6f),
    BINARY_ENTRY("fmod", ref2_fmod, 0),
    BINARY_ENTRY("remainder", ref2_remainder, 0),
    BINARY_ENTRY("floor_divide", ref2_floor_divide, 0),
    BINARY_ENTRY("max", ref2_max, 0),
    BINARY_ENTRY("min", ref2_min, 0),
    BINARY_ENTRY("copysign", ref2_copysign, 0),
    BINARY_ENTRY("eq", ref2_eq, 0),
    BINARY_ENTRY("ne", ref2_ne, 0),
    BINARY_ENTRY("lt", ref2_lt, 0),
    BINARY_ENTRY("le", ref2_le, 0),
    BINARY_ENTRY("gt", ref2_gt, 0),
    BINARY_ENTRY("ge", ref2_ge, 0),
    BINARY_ENTRY("logical_and", ref2_and, 0),
    BINARY_ENTRY("logical_or", ref2_or, 0),
    BINARY_ENTRY("logical_xor", ref2_xor, 0),
};

/* Random pairs of five kinds: any bits; ordinary sizes; bases near 1 with large exponents; close
 * together; integers. */
static void random_pair(int kind, double *a, double *b) {
    *a = kind == 0   ? double_of(draw_bits(&random_stream))
         : kind == 1 ? uniform(-10, 10)
         : kind == 2 ? 1 + uniform(-0.01, 0.01)
         : kind == 3 ? uniform(0, 20)
                     : floor(uniform(-30, 30));
    *b = kind == 0   ? double_of(draw_bits(&random_stream))
         : kind == 1 ? uniform(-10, 10)
         : kind == 2 ? uniform(-9000, 9000)
         : kind == 3 ? *a * (1 + uniform(-1e-6, 1e-6))
                     : floor(uniform(-30, 30));
}

static void test_all_binary(void) {
    enum { N = SPECIALS * SPECIALS + (1 << 17) };
    float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b), *got = malloc(N * sizeof *got);
    double *al = malloc(N * sizeof *al), *bl = malloc(N * sizeof *bl), *gl = malloc(N * sizeof *gl);
    float s[SPECIALS];
    double sl[SPECIALS];
    int n = 0, nl = 0, count = special_f32(s), count_l = special_f64(sl);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) a[n] = s[i], b[n++] = s[j];
    for (int i = 0; i < count_l; i++)
        for (int j = 0; j < count_l; j++) al[nl] = sl[i], bl[nl++] = sl[j];
    for (int k = 0; n < N; k++, n++) {
        double x, y;
        random_pair(k % 5, &x, &y);
        a[n] = k % 5 ? (float)x : float_of((uint32_t)draw_bits(&random_stream));
        b[n] = k % 5 ? (float)y : float_of((uint32_t)draw_bits(&random_stream));
    }
    for (int k = 0; nl < N; k++, nl++) random_pair(k % 5, &al[nl], &bl[nl]);

    for (size_t k = 0; k < sizeof binary / sizeof binary[0]; k++) {
        char name[64];
        for (gd_isa isa = 0; isa <= best; isa++) {
            worst w = {0, 0, 0, 0, 0}, wl = {0, 0, 0, 0, 0};
            snprintf(name, sizeof name, "%s_f32", binary[k].name);
            run_function(isa, name, n, a, b, NULL, got);
            snprintf(name, sizeof name, "%s_f64", binary[k].name);
            run_function(isa, name, nl, al, bl, NULL, gl);
            int either_zero = binary[k].ref == ref2_max || binary[k].ref == ref2_min;
            for (int i = 0; i < n; i++) {
                double expected = binary[k].ref(a[i], b[i]);
                if (either_zero && a[i] == 0 && b[i] == 0) expected = copysign(0, got[i]);
                record_worst(&w, ulps_f32(got[i], expected), a[i], b[i], got[i], expected);
            }
            for (int i = 0; i < nl; i++) {
                long double expected = binary[k].refl(al[i], bl[i]);
                if (either_zero && al[i] == 0 && bl[i] == 0) expected = copysign(0, gl[i]);
                record_worst(&wl, ulps_f64(gl[i], expected), al[i], bl[i], gl[i], (double)expected);
            }
            judge_worst(binary[k].name, "f32", isa, &w, binary[k].limit);
            judge_worst(binary[k].name, "f64", isa, &wl, binary[k].limit);
        }
    }
    free(a), free(b), free(got), free(al), free(bl), free(gl);
}

static void test_ternary(void) {
    enum { N = 1003 };
    float a[N], b[N], c[N], got[N];
    double al[N], bl[N], cl[N], gl[N];
    for (int i = 0; i < N; i++) {
        a[i] = (float)(al[i] = i % 7 == 0 ? 0 : i % 7 == 1 ? NAN : uniform(-3, 3));
        b[i] = (float)(bl[i] = uniform(-3, 3));
        c[i] = (float)(cl[i] = uniform(-3, 3));
    }
    for (gd_isa isa = 0; isa <= best; isa++) {
        run_function(isa, "where_f32", N, a, b, c, got);
        run_function(isa, "where_f64", N, al, bl, cl, gl);
        for (int i = 0; i < N; i++)
            if (got[i] != (a[i] != 0 ? b[i] : c[i]) || gl[i] != (al[i] != 0 ? bl[i] : cl[i]))
                report_failure("where", isa, "takes the wrong side");
        run_function(isa, "fma_f32", N, a, b, c, got);
        run_function(isa, "fma_f64", N, al, bl, cl, gl);
        for (int i = 0; i < N; i++) {
            int fused = isa != GD_ISA_BASE;
#if !defined(__x86_64__)
            continue;
#endif
            float expected =
                fused ? fmaf(a[i], b[i], c[i]) : (float)((float)((double)a[i] * b[i]) + c[i]);
            volatile double product = al[i] * bl[i];
            double want_l = fused ? fma(al[i], bl[i], cl[i]) : product + cl[i];
            if (!(got[i] == expected || isnan(expected)) || !(gl[i] == want_l || isnan(want_l)))
                report_failure("fma", isa, fused ? "rounds twice" : "is not a product and a sum");
        }
    }
}

/* --- integers --------------------------------------------------------------------------------- */

/* Wide enough for every exact result, which is truncated to the type at the end. */
typedef __int128 wide;

static wide int_floor_divide(wide a, wide b) { return b ? a / b - (a % b != 0 && (a ^ b) < 0) : 0; }
static wide int_pow(wide a, wide n) {
    if (n < 0) return a == 1 ? 1 : a == -1 ? (n & 1 ? -1 : 1) : 0;
    uint64_t power = 1, base = (uint64_t)a;
    for (; n; n >>= 1, base *= base)
        if (n & 1) power *= base;
    return (wide)power;
}

static wide int_reference(const char *op, wide a, wide b, int bits) {
    int inside = b >= 0 && b < bits;
    if (!strcmp(op, "neg")) return -a;
    if (!strcmp(op, "abs")) return a < 0 ? -a : a;
    if (!strcmp(op, "sign")) return (a > 0) - (a < 0);
    if (!strcmp(op, "logical_not")) return !a;
    if (!strcmp(op, "bit_not")) return ~a;
    if (!strcmp(op, "add")) return a + b;
    if (!strcmp(op, "sub")) return a - b;
    if (!strcmp(op, "mul")) return a * b;
    if (!strcmp(op, "div")) return b ? a / b : 0;
    if (!strcmp(op, "floor_divide")) return int_floor_divide(a, b);
    if (!strcmp(op, "remainder")) return b ? a - int_floor_divide(a, b) * b : 0;
    if (!strcmp(op, "fmod")) return b ? a % b : 0;
    if (!strcmp(op, "max")) return a > b ? a : b;
    if (!strcmp(op, "min")) return a < b ? a : b;
    if (!strcmp(op, "eq")) return a == b;
    if (!strcmp(op, "ne")) return a != b;
    if (!strcmp(op, "lt")) return a < b;
    if (!strcmp(op, "le")) return a <= b;
    if (!strcmp(op, "gt")) return a > b;
    if (!strcmp(op, "ge")) return a >= b;
    if (!strcmp(op, "logical_and")) return a && b;
    if (!strcmp(op, "logical_or")) return a || b;
    if (!strcmp(op, "logical_xor")) return !a != !b;
    if (!strcmp(op, "bit_and")) return a & b;
    if (!strcmp(op, "bit_or")) return a | b;
    if (!strcmp(op, "bit_xor")) return a ^ b;
    if (!strcmp(op, "shl")) return inside ? (wide)((unsigned __int128)a << b) : 0;
    if (!strcmp(op, "shr")) return inside ? a >> b : a < 0 ? -1 : 0;
    if (!strcmp(op, "pow")) return int_pow(a, b);
    return (wide)1 << 100; /* equals no result: an op that this test does not have */
}

static void test_integers(void) {
    enum { N = 4099 };
    static const int64_t edges[] = {
        0,  1,  -1, 2,   -2,        3,         7,         31,        32,           33,
        63, 64, 65, -31, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX, INT32_MIN + 1};
    enum { EDGES = sizeof edges / sizeof edges[0] };
    static int64_t a64[N], b64[N], c64[N], g64[N];
    static int32_t a32[N], b32[N], c32[N], g32[N];
    for (int i = 0; i < N; i++) {
        int shift_a = (int)(draw_bits(&random_stream) % 64),
            shift_b = (int)(draw_bits(&random_stream) % 64);
        a64[i] =
            i < EDGES * EDGES ? edges[i / EDGES] : (int64_t)draw_bits(&random_stream) >> shift_a;
        b64[i] =
            i < EDGES * EDGES ? edges[i % EDGES] : (int64_t)draw_bits(&random_stream) >> shift_b;
        a32[i] = (int32_t)a64[i], b32[i] = (int32_t)b64[i];
        c64[i] = c32[i] = i;
    }
    for (gd_isa isa = 0; isa <= best; isa++) {
        const char *name;
        gd_cpu_set_isa(isa);
        for (int k = 0; (name = GD_ISA_CALL(vmath_probe_name)(k)) != NULL; k++) {
            size_t length = strlen(name);
            int is32 = length > 4 && strcmp(name + length - 4, "_i32") == 0;
            int is64 = length > 4 && strcmp(name + length - 4, "_i64") == 0;
            if ((!is32 && !is64) || strstr(name, "_from_") || strstr(name, "where")) continue;
            char op[64];
            snprintf(op, sizeof op, "%.*s", (int)length - 4, name);
            if (is32) run_function(isa, name, N, a32, b32, NULL, g32);
            if (is64) run_function(isa, name, N, a64, b64, NULL, g64);
            for (int i = 0; i < N; i++) {
                wide x = is32 ? a32[i] : a64[i], y = is32 ? b32[i] : b64[i];
                wide expected = int_reference(op, x, y, is32 ? 32 : 64);
                if (is32 ? g32[i] == (int32_t)expected : g64[i] == (int64_t)expected) continue;
                char text[128];
                snprintf(text, sizeof text, "(%lld, %lld) gives %lld, not %lld", (long long)x,
                         (long long)y, (long long)(is32 ? g32[i] : g64[i]), (long long)expected);
                report_failure(name, isa, text);
                break;
            }
        }
        run_function(isa, "where_i32", N, a32, b32, c32, g32);
        run_function(isa, "where_i64", N, a64, b64, c64, g64);
        for (int i = 0; i < N; i++)
            if (g32[i] != (a32[i] ? b32[i] : c32[i]) || g64[i] != (a64[i] ? b64[i] : c64[i]))
                report_failure("where", isa, "takes the wrong side of integers");
    }
}

/* --- half precision and other conversions ----------------------------------------------------- */

static double half_value(uint16_t h) {
    int exponent = (h >> 10) & 31, fraction = h & 1023;
    double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                  : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                 : ldexp(fraction, -24);
    return h & 0x8000 ? -size : size;
}

/* Rounds x to `places` binary digits after the leading one, but not finer than 2^least. Every step
 * is exact in double. */
static double round_to_digits(double x, int places, int least, double overflow) {
    if (x == 0 || isnan(x) || isinf(x)) return x;
    int exponent = ilogb(x) - places;
    if (exponent < least) exponent = least;
    double r = ldexp(rint(ldexp(x, -exponent)), exponent);
    return fabs(r) >= overflow ? copysign(INFINITY, x) : copysign(r, x);
}

static void check_halves(gd_isa isa, const float *x, int n) {
    static uint16_t f16[CHUNK], bf16[CHUNK];
    run_function(isa, "f32_to_f16", n, x, NULL, NULL, f16);
    run_function(isa, "f32_to_bf16", n, x, NULL, NULL, bf16);
    for (int i = 0; i < n; i++) {
        double expected = round_to_digits(x[i], 10, -24, 65536), got = half_value(f16[i]);
        double want_b = round_to_digits(x[i], 7, -133, 0x1p128),
               got_b = float_of((uint32_t)bf16[i] << 16);
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        /* NaN is quiet, with the leading bits of the payload, in every instruction set */
        if (isnan(x[i])) {
            if (f16[i] != ((bits >> 16 & 0x8000) | 0x7e00 | (bits >> 13 & 0x3ff)))
                report_failure("f32_to_f16", isa, "loses a NaN");
            if (bf16[i] != (bits >> 16 | 0x40)) report_failure("f32_to_bf16", isa, "loses a NaN");
            continue;
        }
        if (got != expected || !signbit(got) != !signbit(expected))
            report_failure("f32_to_f16", isa, "wrong");
        if (got_b != want_b || !signbit(got_b) != !signbit(want_b))
            report_failure("f32_to_bf16", isa, "wrong");
    }
}

static void test_halves(void) {
    static float x[CHUNK];
    static uint16_t h[CHUNK];
    for (gd_isa isa = 0; isa <= best; isa++) {
        for (int i = 0; i < CHUNK; i++) h[i] = (uint16_t)i;
        run_function(isa, "f16_to_f32", CHUNK - 1, h, NULL, NULL, x);
        for (int i = 0; i < CHUNK - 1; i++) {
            double expected = half_value(h[i]);
            uint32_t bits;
            memcpy(&bits, &x[i], sizeof bits);
            uint32_t nan = (uint32_t)(i & 0x8000) << 16 | 0x7fc00000 | (uint32_t)(i & 0x3ff) << 13;
            if (isnan(expected) ? bits != nan
                                : x[i] != expected || !signbit(x[i]) != !signbit(expected))
                report_failure("f16_to_f32", isa, "wrong");
        }
        run_function(isa, "bf16_to_f32", CHUNK - 1, h, NULL, NULL, x);
        for (int i = 0; i < CHUNK - 1; i++) {
            float expected = float_of((uint32_t)i << 16);
            if (memcmp(&x[i], &expected, sizeof expected) != 0)
                report_failure("bf16_to_f32", isa, "wrong");
        }
        /* the sample keeps the ties, whose low bits are 0x1000 and 0x8000 */
        uint64_t step = full_mode ? 1 : 1 << 10;
        for (uint64_t at = 0; at < 1ull << 32; at += CHUNK * step) {
            for (uint64_t i = 0; i < CHUNK; i++) x[i] = float_of((uint32_t)(at + i * step));
            check_halves(isa, x, CHUNK);
            if (full_mode) continue;
            for (uint64_t i = 0; i < CHUNK; i++)
                x[i] =
                    float_of((uint32_t)(at + i * step + (draw_bits(&random_stream) & (step - 1))));
            check_halves(isa, x, CHUNK);
        }
    }
}

static void test_conversions(void) {
    enum { N = 64 };
    int32_t i32[N], back32[N];
    int64_t i64[N], back64[N];
    float f32[N];
    double f64[N];
    for (int i = 0; i < N; i++) {
        i32[i] = (int32_t)draw_bits(&random_stream) >> (i % 31);
        i64[i] = (int64_t)draw_bits(&random_stream) >> (i % 63);
    }
    for (gd_isa isa = 0; isa <= best; isa++) {
        run_function(isa, "f32_from_i32", N, i32, NULL, NULL, f32);
        run_function(isa, "f64_from_i64", N, i64, NULL, NULL, f64);
        for (int i = 0; i < N; i++)
            if (f32[i] != (float)i32[i] || f64[i] != (double)i64[i])
                report_failure("float from integer", isa, "wrong");
        for (int i = 0; i < N; i++) f32[i] = (float)(f64[i] = uniform(-2e9, 2e9));
        for (int i = 0; i < N / 2; i++) f32[i] = (float)uniform(-3, 3), f64[i] *= 4e9;
        run_function(isa, "i32_from_f32", N, f32, NULL, NULL, back32);
        run_function(isa, "i64_from_f64", N, f64, NULL, NULL, back64);
        for (int i = 0; i < N; i++)
            if (back32[i] != (int32_t)f32[i] || back64[i] != (int64_t)f64[i])
                report_failure("integer from float", isa, "wrong");
    }
}

/* The sum repeatedly adds the upper half of the lanes to the lower half. */
static void test_hsum(void) {
    for (int round = 0; round < 100 * (int)(best + 1); round++) {
        gd_isa isa = gd_cpu_set_isa((gd_isa)(round % (int)(best + 1)));
        int lanes = GD_ISA_CALL(vmath_probe_lanes)();
        float x[64], t[64];
        double xl[64], tl[64];
        for (int i = 0; i < lanes; i++) x[i] = t[i] = (float)(xl[i] = tl[i] = uniform(-1, 1));
        for (int half = lanes / 2; half; half /= 2)
            for (int i = 0; i < half; i++) t[i] += t[i + half];
        for (int half = lanes / 4; half; half /= 2)
            for (int i = 0; i < half; i++) tl[i] += tl[i + half];
        if (GD_ISA_CALL(vmath_probe_hsum)("f32", x) != (double)t[0])
            report_failure("hsum_f32", isa, "order");
        if (GD_ISA_CALL(vmath_probe_hsum)("f64", xl) != tl[0])
            report_failure("hsum_f64", isa, "order");
    }
}

/* --- lanes and memory ------------------------------------------------------------------------- */

typedef union lanes {
    float f32[2 * SPECIALS];
    double f64[2 * SPECIALS];
    int32_t i32[2 * SPECIALS];
    int64_t i64[2 * SPECIALS];
    char bytes[16 * SPECIALS];
} lanes;

/* Special and ordinary values for floats, any bits for integers. */
static void fill_lanes(lanes *a, lanes *b, const char *type) {
    float s[SPECIALS];
    double sl[SPECIALS];
    int count = special_f32(s), count_l = special_f64(sl);
    for (int i = 0; i < 2 * SPECIALS; i++) {
        int j = i / 2, other = (int)(draw_bits(&random_stream) % (unsigned)count);
        if (type[0] == 'i')
            a->i64[i] = (int64_t)draw_bits(&random_stream),
            b->i64[i] = (int64_t)draw_bits(&random_stream);
        if (!strcmp(type, "f32")) {
            a->f32[i] = i % 2 ? (float)uniform(0, 2) : s[j % count];
            b->f32[i] = i % 2 ? 1.5f : s[other];
        }
        if (!strcmp(type, "f64")) {
            a->f64[i] = i % 2 ? uniform(0, 2) : sl[j % count_l];
            b->f64[i] = i % 2 ? 1.5 : sl[other];
        }
    }
}

/* Returns whether the lanes have the same bits or are both NaN. */
static int same_lane(const char *type, const char *a, const char *b) {
    float x, y;
    double xl, yl;
    if (!strcmp(type, "f32")) {
        memcpy(&x, a, 4), memcpy(&y, b, 4);
        return memcmp(a, b, 4) == 0 || (isnan(x) && isnan(y));
    }
    if (!strcmp(type, "f64")) {
        memcpy(&xl, a, 8), memcpy(&yl, b, 8);
        return memcmp(a, b, 8) == 0 || (isnan(xl) && isnan(yl));
    }
    return memcmp(a, b, type[1] == '3' ? 4 : 8) == 0;
}

/* The result of a lane is the same alone in a partial vector, and at any position among any
 * neighbors. */
static void test_lanes_are_independent(void) {
    enum { N = 2 * SPECIALS };
    static lanes a, b, c, all, moved;
    fill_lanes(&c, &c, "i64");
    for (gd_isa isa = 0; isa <= best; isa++) {
        const char *name;
        gd_cpu_set_isa(isa);
        for (int k = 0; (name = GD_ISA_CALL(vmath_probe_name)(k)) != NULL; k++) {
            if (strstr(name, "_from_") || strstr(name, "_to_")) continue;
            const char *type = name + strlen(name) - 3;
            size_t size = type[1] == '3' ? 4 : 8;
            fill_lanes(&a, &b, type);
            run_function(isa, name, N, &a, &b, &c, &all);
            for (int at = 0, same = 1; same && at < N; at++) {
                size_t skip = (size_t)at * size; /* first alone, then with all that follow */
                run_function(isa, name, 1, a.bytes + skip, b.bytes + skip, c.bytes + skip, &moved);
                same = same_lane(type, moved.bytes, all.bytes + skip);
                int follow = at < 20 ? N - at : 0;
                run_function(isa, name, follow, a.bytes + skip, b.bytes + skip, c.bytes + skip,
                             &moved);
                for (int i = 0; i < follow; i++) {
                    size_t place = (size_t)i * size;
                    same &= same_lane(type, moved.bytes + place, all.bytes + skip + place);
                }
                if (!same) report_failure(name, isa, "depends on the neighbours or on the place");
            }
        }
    }
}

/* Partial vectors end at a guard page, and do not write beyond their end. */
static void test_parts_stay_inside(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + page, page, PROT_NONE) != 0) {
        report_failure("parts", GD_ISA_BASE, "no memory for the test");
        return;
    }
    static const struct {
        const char *name;
        size_t in, out;
    } kinds[] = {{"neg_f32", 4, 4},     {"neg_f64", 8, 8},    {"neg_i32", 4, 4},
                 {"neg_i64", 8, 8},     {"f16_to_f32", 2, 4}, {"f32_to_f16", 4, 2},
                 {"bf16_to_f32", 2, 4}, {"f32_to_bf16", 4, 2}};
    for (gd_isa isa = 0; isa <= best; isa++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            for (int n = 0; n <= 35; n++) {
                char buffer[512];
                memset(buffer, 0x55, sizeof buffer);
                char *edge = map + page;
                memset(edge - 512, 1, 512);
                run_function(isa, kinds[k].name, n, edge - (size_t)n * kinds[k].in, NULL, NULL,
                             buffer);
                for (size_t i = (size_t)n * kinds[k].out; i < sizeof buffer; i++)
                    if (buffer[i] != 0x55)
                        report_failure(kinds[k].name, isa, "writes beyond its end");
                run_function(isa, kinds[k].name, n, buffer, NULL, NULL,
                             edge - (size_t)n * kinds[k].out);
            }
    munmap(map, 2 * page);
}

/* --- speed ------------------------------------------------------------------------------------ */

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_benchmark(const char *only) {
    enum { N = 1 << 14 };
    static union {
        float f32[N];
        double f64[N];
        int32_t i32[N];
        int64_t i64[N];
    } a, b, out;
    const char *name;
    for (int k = 0; (name = GD_ISA_CALL(vmath_probe_name)(k)) != NULL; k++) {
        if (strstr(name, "_from_") || strstr(name, "_to_")) continue;
        if (only && !strstr(name, only)) continue;
        const char *type = name + strlen(name) - 3;
        int above_one = !strncmp(name, "acosh", 5), unit = !strncmp(name, "a", 1) && !above_one;
        int positive = !strncmp(name, "log", 3) || strstr(name, "sqrt") || strstr(name, "pow");
        double low = above_one ? 1 : positive ? 0.01 : unit ? -1 : -4, high = unit ? 1 : 4;
        for (int i = 0; i < N; i++) {
            double x = uniform(low, high), y = uniform(0.5, 3);
            if (!strcmp(type, "f32")) a.f32[i] = (float)x, b.f32[i] = (float)y;
            if (!strcmp(type, "f64")) a.f64[i] = x, b.f64[i] = y;
            if (!strcmp(type, "i32")) a.i32[i] = (int32_t)(1000 * x), b.i32[i] = (int32_t)(5 * y);
            if (!strcmp(type, "i64")) a.i64[i] = (int64_t)(1000 * x), b.i64[i] = (int64_t)(5 * y);
        }
        printf("%-18s", name);
        for (gd_isa isa = 0; isa <= best; isa++) {
            double least = 1;
            for (int round = 0; round < 60; round++) {
                double start = now_seconds();
                run_function(isa, name, N, &a, &b, &b, &out);
                double t = now_seconds() - start;
                if (t < least) least = t;
            }
            printf("  %s %6.3f", gd_isa_name(isa), least * 1e9 / N);
        }
        printf("\n");
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *only = argc > 2 ? argv[2] : NULL;
    best = gd_cpu_set_isa(GD_ISA_AVX512);
    if (!strcmp(mode, "--bench")) return run_benchmark(only), 0;
    full_mode = !strcmp(mode, "--full");
    print_table = full_mode || !strcmp(mode, "--table");
    test_all_unary_f32(only);
    if (!only) {
        test_all_unary_f64();
        test_all_binary();
        test_ternary();
        test_integers();
        test_halves();
        test_conversions();
        test_hsum();
        test_lanes_are_independent();
        test_parts_stay_inside();
    }
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}
