/* prims.c - the primitives of the scalar IR: derivative rules, and reference implementations in f64
 * and i64.
 *
 * A derivative rule is an expression in the operands a, b, c and the result y. It is the factor by
 * which the adjoint g of the result is multiplied; a rule that begins with '=' is the product
 * itself and contains g. A new primitive needs a row here and functions of the same name in
 * backend/cpu/vmath_*.h and in scalar_math.h.
 */
#include <math.h>
#include <string.h>

#include "codegen/ir.h"

#define REAL(name, expr)                                      \
    static double real_##name(double a, double b, double c) { \
        (void)a, (void)b, (void)c;                            \
        return expr;                                          \
    }
#define INTEGER(name, expr)                                          \
    static int64_t integer_##name(int64_t a, int64_t b, int64_t c) { \
        (void)a, (void)b, (void)c;                                   \
        return (int64_t)(expr);                                      \
    }
#define U(x) ((uint64_t)(x)) /* wrapping arithmetic */

/* --- arithmetic ------------------------------------------------------------------------------- */

REAL(add, a + b)
REAL(sub, a - b)
REAL(mul, a *b)
REAL(div, a / b)
REAL(neg, -a)
REAL(abs, fabs(a))
REAL(sign, (double)((a > 0) - (a < 0))) /* 0 for NaN, as in PyTorch */
REAL(max, isnan(a) || isnan(b) ? NAN : fmax(a, b) == 0 && !signbit(b) ? b : fmax(a, b))
REAL(min, isnan(a) || isnan(b) ? NAN : fmin(a, b) == 0 && signbit(b) ? b : fmin(a, b))
REAL(fmod, fmod(a, b))
static double real_remainder(double a, double b, double c) {
    (void)c;
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/* The floor of the exact quotient: a minus the remainder is divisible by b. */
static double real_floor_divide(double a, double b, double c) {
    (void)c;
    if (b == 0) return a / b;
    double r = fmod(a, b), quotient = (a - r) / b;
    if (r != 0 && (b < 0) != (r < 0)) quotient -= 1;
    if (quotient == 0) return copysign(0.0, a / b);
    double integer = floor(quotient);
    return quotient - integer > 0.5 ? integer + 1 : integer;
}
REAL(copysign, copysign(a, b))
REAL(fma, fma(a, b, c))

INTEGER(add, U(a) + U(b))
INTEGER(sub, U(a) - U(b))
INTEGER(mul, U(a) * U(b))
INTEGER(neg, 0 - U(a))
INTEGER(abs, a < 0 ? 0 - U(a) : U(a))
INTEGER(sign, (a > 0) - (a < 0))
INTEGER(max, a > b ? a : b)
INTEGER(min, a < b ? a : b)
INTEGER(div, b == 0 ? 0 : b == -1 ? 0 - U(a) : (uint64_t)(a / b))
INTEGER(fmod, b == 0 || b == -1 ? 0 : a % b)
static int64_t integer_remainder(int64_t a, int64_t b, int64_t c) {
    int64_t r = integer_fmod(a, b, c);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static int64_t integer_floor_divide(int64_t a, int64_t b, int64_t c) {
    int64_t q = integer_div(a, b, c), r = integer_fmod(a, b, c);
    return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
}

/* --- functions -------------------------------------------------------------------------------- */

REAL(sqrt, sqrt(a))
REAL(rsqrt, 1 / sqrt(a))
REAL(reciprocal, 1 / a)
REAL(exp, exp(a))
REAL(exp2, exp2(a))
REAL(expm1, expm1(a))
REAL(log, log(a))
REAL(log2, log2(a))
REAL(log10, log10(a))
REAL(log1p, log1p(a))
REAL(sin, sin(a))
REAL(cos, cos(a))
REAL(tan, tan(a))
REAL(asin, asin(a))
REAL(acos, acos(a))
REAL(atan, atan(a))
REAL(sinh, sinh(a))
REAL(cosh, cosh(a))
REAL(tanh, tanh(a))
REAL(asinh, asinh(a))
REAL(acosh, acosh(a))
REAL(atanh, atanh(a))
REAL(erf, erf(a))
REAL(erfc, erfc(a))
REAL(floor, floor(a))
REAL(ceil, ceil(a))
REAL(round, nearbyint(a))
REAL(trunc, trunc(a))
REAL(pow, pow(a, b))
REAL(atan2, atan2(a, b))
static int64_t integer_pow(int64_t a, int64_t b, int64_t c) {
    (void)c;
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    uint64_t result = 1, base = U(a);
    for (; b > 0; b >>= 1, base *= base)
        if (b & 1) result *= base;
    return (int64_t)result;
}

/* --- comparisons and logic: results are 1 and 0 ----------------------------------------------- */

REAL(eq, a == b)
REAL(ne, a != b)
REAL(lt, a < b)
REAL(le, a <= b)
REAL(gt, a > b)
REAL(ge, a >= b)
REAL(isnan, isnan(a) != 0)
REAL(isinf, isinf(a) != 0)
REAL(isfinite, isfinite(a) != 0)
REAL(logical_not, a == 0)
REAL(logical_and, a != 0 && b != 0)
REAL(logical_or, a != 0 || b != 0)
REAL(logical_xor, (a != 0) != (b != 0))
REAL(where, a != 0 ? b : c)
INTEGER(eq, a == b)
INTEGER(ne, a != b)
INTEGER(lt, a < b)
INTEGER(le, a <= b)
INTEGER(gt, a > b)
INTEGER(ge, a >= b)
INTEGER(isnan, 0)
INTEGER(isinf, 0)
INTEGER(isfinite, 1)
INTEGER(floor, a)
INTEGER(ceil, a)
INTEGER(round, a)
INTEGER(trunc, a)
INTEGER(logical_not, a == 0)
INTEGER(logical_and, a != 0 && b != 0)
INTEGER(logical_or, a != 0 || b != 0)
INTEGER(logical_xor, (a != 0) != (b != 0))
INTEGER(where, a != 0 ? b : c)

/* --- bits ------------------------------------------------------------------------------------- */

INTEGER(bit_and, a &b)
INTEGER(bit_or, a | b)
INTEGER(bit_xor, a ^ b)
INTEGER(bit_not, ~a)
INTEGER(shl, b<0 || b> 63 ? 0 : U(a) << b)
INTEGER(shr, a >> (b < 0 || b > 63 ? 63 : b))

/* --- the table -------------------------------------------------------------------------------- */

#define F1(name, da) \
    { #name, 1, GD_PRIM_FLOAT, {da }, real_##name, NULL, false }
#define F2(name, da, db) \
    { #name, 2, GD_PRIM_FLOAT, {da, db }, real_##name, NULL, false }
/* L: long primitives, some twenty instructions that depend on each other (stages.h) */
#define L1(name, da) \
    { #name, 1, GD_PRIM_FLOAT, {da }, real_##name, NULL, true }
#define L2(name, da, db) \
    { #name, 2, GD_PRIM_FLOAT, {da, db }, real_##name, NULL, true }
#define B1(name, da) \
    { #name, 1, GD_PRIM_BOTH, {da }, real_##name, integer_##name, false }
#define B2(name, da, db) \
    { #name, 2, GD_PRIM_BOTH, {da, db }, real_##name, integer_##name, false }
#define I1(name) \
    { #name, 1, GD_PRIM_INT, {NULL }, NULL, integer_##name, false }
#define I2(name) \
    { #name, 2, GD_PRIM_INT, {NULL }, NULL, integer_##name, false }

const gd_prim gd_prims[] = {
    B2(add, "1", "1"),
    B2(sub, "1", "-1"),
    B2(mul, "b", "a"),
    B2(div, "1/b", "-y/b"),
    B1(neg, "-1"),
    B1(abs, "sign(a)"),
    B1(sign, NULL),
    /* at a tie each operand gets half of the gradient, as in PyTorch */
    B2(max, "=a == b ? 0.5*g : a > b ? g : 0", "=a == b ? 0.5*g : b > a ? g : 0"),
    B2(min, "=a == b ? 0.5*g : a < b ? g : 0", "=a == b ? 0.5*g : b < a ? g : 0"),
    B2(fmod, "1", "-trunc(a/b)"),
    B2(remainder, "1", "-floor_divide(a, b)"),
    B2(floor_divide, NULL, NULL),
    F2(copysign, "copysign(1, b) * copysign(1, a)", NULL),
    {"fma", 3, GD_PRIM_FLOAT, {"b", "a", "1"}, real_fma, NULL, false},
    F1(sqrt, "0.5/y"),
    F1(rsqrt, "-0.5*y*y*y"),
    F1(reciprocal, "-y*y"),
    L1(exp, "y"),
    L1(exp2, "y*0.693147180559945309417232121458"),
    L1(expm1, "y + 1"),
    L1(log, "1/a"),
    L1(log2, "1/(a*0.693147180559945309417232121458)"),
    L1(log10, "1/(a*2.30258509299404568401799145468)"),
    L1(log1p, "1/(a + 1)"),
    L1(sin, "cos(a)"),
    L1(cos, "-sin(a)"),
    L1(tan, "1 + y*y"),
    L1(asin, "rsqrt(1 - a*a)"),
    L1(acos, "-rsqrt(1 - a*a)"),
    L1(atan, "1/(1 + a*a)"),
    L1(sinh, "cosh(a)"),
    L1(cosh, "sinh(a)"),
    L1(tanh, "1 - y*y"),
    L1(asinh, "rsqrt(a*a + 1)"),
    L1(acosh, "rsqrt(a*a - 1)"),
    L1(atanh, "1/(1 - a*a)"),
    L1(erf, "1.12837916709551257389615890312*exp(-a*a)"),
    L1(erfc, "-1.12837916709551257389615890312*exp(-a*a)"),
    B1(floor, NULL),
    B1(ceil, NULL),
    B1(round, NULL),
    B1(trunc, NULL),
    {"pow",
     2,
     GD_PRIM_BOTH,
     {"=b == 0 ? 0 : g*b*pow(a, b - 1)", "=a == 0 && b >= 0 ? 0 : g*y*log(a)"},
     real_pow,
     integer_pow,
     true},
    /* at the origin the gradient is 0 */
    L2(atan2, "=a*a + b*b == 0 ? 0 : g*(b/(a*a + b*b))",
       "=a*a + b*b == 0 ? 0 : -(g*(a/(a*a + b*b)))"),
    B2(eq, NULL, NULL),
    B2(ne, NULL, NULL),
    B2(lt, NULL, NULL),
    B2(le, NULL, NULL),
    B2(gt, NULL, NULL),
    B2(ge, NULL, NULL),
    B1(isnan, NULL),
    B1(isinf, NULL),
    B1(isfinite, NULL),
    B1(logical_not, NULL),
    B2(logical_and, NULL, NULL),
    B2(logical_or, NULL, NULL),
    B2(logical_xor, NULL, NULL),
    {"where",
     3,
     GD_PRIM_BOTH,
     {NULL, NULL, NULL},
     real_where,
     integer_where,
     false}, /* see gd_ir_derivative */
    I2(bit_and),
    I2(bit_or),
    I2(bit_xor),
    I1(bit_not),
    I2(shl),
    I2(shr),
};

const int gd_prim_count = sizeof gd_prims / sizeof gd_prims[0];

int gd_prim_find(const char *name, size_t length) {
    for (int i = 0; i < gd_prim_count; i++)
        if (strlen(gd_prims[i].name) == length && memcmp(gd_prims[i].name, name, length) == 0)
            return i;
    return -1;
}
