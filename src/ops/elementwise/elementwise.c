/* elementwise.c - arithmetic, comparisons, rounding and other ops on each element.
 *
 * The record defines an elementwise op: its expression, and its gradient if the derived one would
 * be slower or lose digits. Inputs broadcast; dtypes promote. `float`: integers are computed as
 * f32. `predicate`: the result is bool. `integral`: only integers and bools are allowed.
 */
#include "core/copy.h"
#include "dispatch/call.h"
#include "dispatch/infer.h"
#include "gradus/ops.h"

/* --- copies ----------------------------------------------------------------------------------- */

/*op clone(x) -> y  elementwise
 * A copy in new memory.
 *   y = x
 *   onnx Identity  when saving
 */

/*op cast(x, dtype:dtype) -> y  elementwise
 * The same values in another dtype. A cast from float to integer drops the fraction.
 *   y = x
 *   onnx Cast to=dtype saturate!1~1  cast -
 */
static gd_status cast_infer(gd_infer *i) {
    const gd_cast_options *o = i->attrs;
    GD_TRY(gd_infer_elementwise(i));
    if (gd_dtype_size(o->dtype) == 0) return gd_op_fail(GD_E_DTYPE, "there is no such dtype");
    i->out[0].dtype = o->dtype;
    return GD_OK;
}
/* Staging would convert to i64 first, and the bool of 0.5 would be false. */
static gd_status cast_raw(gd_kernel_call *k) {
    gd_copy_elements(&k->out[0], &k->in[0]);
    return GD_OK;
}

/* --- arithmetic ------------------------------------------------------------------------------- */

/*op add(a, b) -> y  elementwise inplace
 * a + b.
 *   y = a + b
 *   neutral a 0, b 0
 *   onnx Add
 */

/*op sub(a, b) -> y  elementwise inplace
 * a - b. Two bools are an error; use logical_xor.
 *   y = a - b
 *   neutral b 0
 *   onnx Sub
 *   python subtract sub
 */
static gd_status sub_infer(gd_infer *i) {
    GD_TRY(gd_infer_elementwise(i));
    if (i->out[0].dtype != GD_BOOL) return GD_OK;
    return gd_op_fail(GD_E_DTYPE,
                      "bools cannot be subtracted; use gd_logical_xor, or cast them to numbers "
                      "with gd_cast");
}

/*op mul(a, b) -> y  elementwise inplace
 * a times b, element by element.
 *   y  = a * b
 *   neutral a 1, b 1
 *   onnx Mul
 *   python multiply mul
 */

/*op div(a, b) -> y  elementwise float inplace
 * a divided by b, as floats.
 *   y  = a / b
 *   ga = gy / b
 *   gb = -gy * a / (b*b)
 *   neutral b 1
 *   onnx Div  when a:float b:float
 *   python divide div true_divide
 */

/*op floor_divide(a, b) -> y  elementwise
 * The floor of a / b, rounded toward -inf, as Python's //. Integers divided by 0 give 0. The
 * gradient is 0. (div, trunc_divide and floor_divide are the three rounding modes of PyTorch's
 * div.)
 *   y = floor_divide(a, b)
 */

/*op trunc_divide(a, b) -> y  elementwise
 * a / b, rounded toward 0, as C divides integers. Integers divided by 0 give 0. The gradient is 0.
 *   y = trunc(a / b)
 */

/*op remainder(a, b) -> y  elementwise
 * The remainder with the sign of b, as Python's %. Integers modulo 0 give 0.
 *   y = remainder(a, b)
 *   onnx Mod
 */

/*op fmod(a, b) -> y  elementwise
 * The remainder with the sign of a, as C's fmod. Integers modulo 0 give 0.
 *   y = fmod(a, b)
 *   onnx Mod fmod!1~0
 */

/*op pow(a, b) -> y  elementwise inplace fullp
 * a to the power b.
 *   y  = pow(a, b)
 *   ga = b == 0 ? 0 : gy * b * pow(a, b - 1)
 *   gb = a == 0 && b >= 0 ? 0 : gy * y * log(a)
 *   neutral b 1
 *   onnx Pow
 *   python (a, exponent=b)
 */

/*op atan2(a, b) -> y  elementwise float
 * The angle of the point (b, a), from -pi to pi.
 *   y = atan2(a, b)
 *   python atan2 arctan2(a, b)
 */

/*op maximum(a, b) -> y  elementwise
 * The larger of the two; NaN if either is NaN. At a tie each gets half of the gradient.
 *   y  = max(a, b)
 *   ga = a == b ? 0.5 * gy : a < b ? 0 : gy
 *   gb = a == b ? 0.5 * gy : b < a ? 0 : gy
 *   onnx Max  when saving
 */

/*op minimum(a, b) -> y  elementwise
 * The smaller of the two; NaN if either is NaN. At a tie each gets half of the gradient.
 *   y  = min(a, b)
 *   ga = a == b ? 0.5 * gy : a > b ? 0 : gy
 *   gb = a == b ? 0.5 * gy : b > a ? 0 : gy
 *   onnx Min  when saving
 */

/*op lerp(a, b, weight) -> y  elementwise float
 * a + weight * (b - a).
 *   y  = weight < 0.5 ? a + weight*(b - a) : b - (b - a)*(1 - weight)
 *   ga = gy * (1 - weight)
 *   gb = gy * weight
 *   gweight = gy * (b - a)
 *   python (a, end=b, weight)
 */

/*op neg(x) -> y  elementwise involution inplace
 * -x. Bools are an error; use logical_not.
 *   y = -x
 *   onnx Neg
 *   python negative neg
 */
static gd_status neg_infer(gd_infer *i) {
    GD_TRY(gd_infer_elementwise(i));
    if (i->out[0].dtype != GD_BOOL) return GD_OK;
    return gd_op_fail(
        GD_E_DTYPE,
        "bools cannot be negated; use gd_logical_not, or cast them to numbers with gd_cast");
}

/*op abs(x) -> y  elementwise idempotent inplace
 * The absolute value.
 *   y = abs(x)
 *   onnx Abs   caffe AbsVal
 *   python abs absolute(x)
 */

/*op sign(x) -> y  elementwise idempotent
 * -1, 0 or 1; 0 for NaN.
 *   y = sign(x)
 *   onnx Sign
 *   python sign sgn(x)
 */

/*op square(x) -> y  elementwise inplace fullp
 * x squared. Bools give i64, as in PyTorch.
 *   y  = x * x
 *   gx = 2 * gy * x
 */
static gd_status square_infer(gd_infer *i) {
    GD_TRY(gd_infer_elementwise(i));
    if (i->out[0].dtype == GD_BOOL) i->out[0].dtype = GD_I64;
    return GD_OK;
}

/*op reciprocal(x) -> y  elementwise float inplace fullp
 * 1 / x.
 *   y  = reciprocal(x)
 *   gx = -gy * y * y
 *   onnx Reciprocal
 */

/*op sqrt(x) -> y  elementwise float inplace
 * The square root.
 *   y  = sqrt(x)
 *   gx = gy / (2 * y)
 *   onnx Sqrt
 */

/*op rsqrt(x) -> y  elementwise float inplace fullp
 * 1 / sqrt(x).
 *   y  = rsqrt(x)
 *   gx = -0.5 * gy * y*y*y
 */

/* --- exponentials and logarithms -------------------------------------------------------------- */

/*op exp(x) -> y  elementwise float inplace fullp
 * e to the power x.
 *   y  = exp(x)
 *   gx = gy * y
 *   onnx Exp
 */

/*op exp2(x) -> y  elementwise float fullp
 * 2 to the power x.
 *   y  = exp2(x)
 *   gx = gy * y * 0.693147180559945309417232121458
 */

/*op expm1(x) -> y  elementwise float fullp
 * exp(x) - 1, exact near 0.
 *   y  = expm1(x)
 *   gx = gy * (y + 1)
 */

/*op log(x) -> y  elementwise float inplace fullp
 * The natural logarithm.
 *   y  = log(x)
 *   gx = gy / x
 *   onnx Log
 */

/*op log2(x) -> y  elementwise float fullp
 * The logarithm to base 2.
 *   y  = log2(x)
 *   gx = gy / (x * 0.693147180559945309417232121458)
 */

/*op log10(x) -> y  elementwise float fullp
 * The logarithm to base 10.
 *   y  = log10(x)
 *   gx = gy / (x * 2.30258509299404568401799145468)
 */

/*op log1p(x) -> y  elementwise float fullp
 * log(1 + x), exact near 0.
 *   y  = log1p(x)
 *   gx = gy / (x + 1)
 */

/*op logaddexp(a, b) -> y  elementwise float fullp
 * log(exp(a) + exp(b)) without overflow. Where both are the same infinity, the result is that
 * infinity and the gradients are NaN, as in PyTorch.
 *   d  = a > b ? b - a : a - b
 *   e  = exp(d)
 *   y  = a == b && isinf(a) ? a : max(a, b) + log1p(e)
 *   ga = gy * (a > b ? 1 : e) / (1 + e)
 *   gb = gy * (a > b ? e : 1) / (1 + e)
 *   neutral a -inf, b -inf
 */

/* --- trigonometry ----------------------------------------------------------------------------- */

/*op sin(x) -> y  elementwise float
 * Sine.
 *   y = sin(x)
 *   onnx Sin
 */

/*op sinc(x) -> y  elementwise float
 * sin(pi x) / (pi x), and 1 at 0. Full periods are subtracted first, so large x lose no digits.
 *   t    = pi * x
 *   turn = pi * (x - 2 * round(x / 2))
 *   y    = x == 0 ? 1 : sin(turn) / t
 *   far  = (cos(turn) - sin(turn) / t) / x
 *   near = -pi * t * (1/3 - t*t * (1/30 - t*t * (1/840 - t*t * (1/45360 - t*t / 3991680))))
 *   gx   = gy * (abs(t) < 0.3 ? near : far)
 */

/*op cos(x) -> y  elementwise float
 * Cosine.
 *   y = cos(x)
 *   onnx Cos
 */

/*op tan(x) -> y  elementwise float fullp
 * Tangent.
 *   y  = tan(x)
 *   gx = gy * (1 + y*y)
 *   onnx Tan
 */

/*op asin(x) -> y  elementwise float fullp
 * Inverse sine.
 *   y = asin(x)
 *   onnx Asin
 *   python asin arcsin(x)
 */

/*op acos(x) -> y  elementwise float fullp
 * Inverse cosine.
 *   y = acos(x)
 *   onnx Acos
 *   python acos arccos(x)
 */

/*op atan(x) -> y  elementwise float
 * Inverse tangent.
 *   y = atan(x)
 *   onnx Atan
 *   python atan arctan(x)
 */

/*op sinh(x) -> y  elementwise float fullp
 * Hyperbolic sine.
 *   y = sinh(x)
 *   onnx Sinh
 */

/*op cosh(x) -> y  elementwise float fullp
 * Hyperbolic cosine.
 *   y = cosh(x)
 *   onnx Cosh
 */

/*op tanh(x) -> y  elementwise float inplace
 * Hyperbolic tangent.
 *   y  = tanh(x)
 *   gx = gy * (1 - y*y)
 *   onnx Tanh   caffe TanH
 */

/*op asinh(x) -> y  elementwise float
 * Inverse hyperbolic sine.
 *   y = asinh(x)
 *   onnx Asinh
 *   python asinh arcsinh(x)
 */

/*op acosh(x) -> y  elementwise float
 * Inverse hyperbolic cosine.
 *   y = acosh(x)
 *   onnx Acosh
 *   python acosh arccosh(x)
 */

/*op atanh(x) -> y  elementwise float
 * Inverse hyperbolic tangent.
 *   y = atanh(x)
 *   onnx Atanh
 *   python atanh arctanh(x)
 */

/*op erf(x) -> y  elementwise float
 * The error function.
 *   y = erf(x)
 *   onnx Erf
 */

/*op erfc(x) -> y  elementwise float
 * 1 - erf(x), exact for large x.
 *   y = erfc(x)
 */

/* --- rounding --------------------------------------------------------------------------------- */

/*op floor(x) -> y  elementwise idempotent
 * The largest integer not above x.
 *   y = floor(x)
 *   onnx Floor  when x:float
 */

/*op ceil(x) -> y  elementwise idempotent
 * The smallest integer not below x.
 *   y = ceil(x)
 *   onnx Ceil  when x:float
 */

/*op round(x) -> y  elementwise idempotent
 * The nearest integer; halves round to the even one.
 *   y = round(x)
 *   onnx Round  when x:float
 */

/*op trunc(x) -> y  elementwise idempotent
 * x without its fraction.
 *   y = trunc(x)
 *   python trunc fix(x)
 */

/*op clamp(x) -> y  elementwise inplace
 * x clamped to [min, max]; max if min is larger; NaN where x or a bound is NaN. Integers stay
 * integers if the bounds are integers or infinite, and become f32 if a bound has a fraction or is
 * NaN. Bools become i64. clamp_tensor takes bounds that are tensors.
 *   min number = -inf  smallest result
 *   max number = inf   largest result
 *   y  = min(max(x, min), max)
 *   gx = x >= min && x <= max ? gy : 0
 *   onnx Clip   caffe Clip
 */
static gd_status clamp_infer(gd_infer *i) {
    const gd_clamp_options *o = i->attrs;
    return gd_infer_bounds(i, o->min.value, o->max.value);
}

/*op clamp_both(x, min, max) -> y  elementwise internal
 * clamp_tensor with both bounds.
 *   y    = min(max(x, min), max)
 *   gx   = x >= min && x <= max ? gy : 0
 *   gmin = min < max && x < min ? gy : 0
 *   gmax = x > max || max < min ? gy : 0
 */

/*op clamp_low(x, min) -> y  elementwise internal
 * clamp_tensor with a lower bound only.
 *   y    = max(x, min)
 *   gx   = x >= min ? gy : 0
 *   gmin = x < min ? gy : 0
 */

/*op clamp_high(x, max) -> y  elementwise internal
 * clamp_tensor with an upper bound only.
 *   y    = min(x, max)
 *   gx   = x <= max ? gy : 0
 *   gmax = x > max ? gy : 0
 */

/*op clamp_tensor(x, min?, max?) -> y
 * x clamped to [min, max], tensors that broadcast and promote with x; NULL: no bound on that side.
 * max where min is larger; NaN where x or a bound is NaN. The gradient goes to x where it is within
 * the bounds (inclusive), and to the bound that replaced it elsewhere.
 */
static gd_status clamp_tensor_infer(gd_infer *i) {
    if (!i->in[1] && !i->in[2])
        return gd_op_fail(GD_E_ARGUMENT, "'min' and 'max' are both absent; give at least one");
    return gd_infer_elementwise(i);
}
static void clamp_tensor_expand(gd_expansion *e) {
    gd_tensor *x = e->x[0], *min = e->x[1], *max = e->x[2];
    e->y[0] = min && max ? gd_clamp_both(x, min, max)
              : min      ? gd_clamp_low(x, min)
                         : gd_clamp_high(x, max);
}

/* --- tests and comparisons -------------------------------------------------------------------- */

/*op isnan(x) -> y  elementwise predicate
 * Whether x is NaN.
 *   y = isnan(x)
 *   onnx IsNaN  when x:float
 */

/*op isinf(x) -> y  elementwise predicate
 * Whether x is infinite.
 *   y = isinf(x)
 *   onnx IsInf detect_negative!1~1 detect_positive!1~1  when x:float
 */

/*op isfinite(x) -> y  elementwise predicate
 * Whether x is neither infinite nor NaN.
 *   y = isfinite(x)
 */

/*op eq(a, b) -> y  elementwise predicate
 * a == b.
 *   y = a == b
 *   onnx Equal  cast p
 *   python equal eq
 */

/*op ne(a, b) -> y  elementwise predicate
 * a != b.
 *   y = a != b
 *   python not_equal ne
 */

/*op lt(a, b) -> y  elementwise predicate
 * a < b.
 *   y = a < b
 *   onnx Less
 *   python less lt
 */

/*op le(a, b) -> y  elementwise predicate
 * a <= b.
 *   y = a <= b
 *   onnx LessOrEqual
 *   python less_equal le
 */

/*op gt(a, b) -> y  elementwise predicate
 * a > b.
 *   y = a > b
 *   onnx Greater
 *   python greater gt
 */

/*op ge(a, b) -> y  elementwise predicate
 * a >= b.
 *   y = a >= b
 *   onnx GreaterOrEqual
 *   python greater_equal ge
 */

/*op logical_not(x) -> y  elementwise predicate involution
 * Whether x is zero.
 *   y = logical_not(x)
 *   onnx Not  cast b
 */

/*op logical_and(a, b) -> y  elementwise predicate
 * Whether both are nonzero.
 *   y = logical_and(a, b)
 *   onnx And  cast b
 */

/*op logical_or(a, b) -> y  elementwise predicate
 * Whether one or both are nonzero.
 *   y = logical_or(a, b)
 *   onnx Or  cast b
 */

/*op logical_xor(a, b) -> y  elementwise predicate
 * Whether exactly one is nonzero.
 *   y = logical_xor(a, b)
 *   onnx Xor  cast b
 */

/*op where(condition, a, b) -> y  elementwise
 * a where the condition is nonzero, b elsewhere.
 *   y  = where(condition, a, b)
 *   ga = where(condition, gy, 0)
 *   gb = where(condition, 0, gy)
 *   onnx Where  cast by
 *   python (condition, input=a, other=b)
 */
static gd_status where_infer(gd_infer *i) {
    gd_tensor *const branches[2] = {i->in[1], i->in[2]};
    GD_TRY(gd_infer_elementwise(i));
    i->out[0].dtype = gd_result_dtype(branches, 2);
    return GD_OK;
}

/* --- bits ------------------------------------------------------------------------------------- */

/*op bitwise_and(a, b) -> y  elementwise integral
 * Bits set in both.
 *   y = bit_and(a, b)
 *   onnx BitwiseAnd
 */

/*op bitwise_or(a, b) -> y  elementwise integral
 * Bits set in one or both.
 *   y = bit_or(a, b)
 *   onnx BitwiseOr
 */

/*op bitwise_xor(a, b) -> y  elementwise integral
 * Bits set in exactly one.
 *   y = bit_xor(a, b)
 *   onnx BitwiseXor
 */

/*op invert_bits(x) -> y  elementwise integral internal
 * All bits of an integer inverted.
 *   y = bit_not(x)
 */

/*op bitwise_not(x) -> y  nograd involution
 * All bits inverted; for a bool, its negation.
 *   onnx BitwiseNot  when x:int
 *   python bitwise_invert bitwise_not
 */
static void bitwise_not_expand(gd_expansion *e) {
    e->y[0] = e->x[0]->dtype == GD_BOOL ? gd_logical_not(e->x[0]) : gd_invert_bits(e->x[0]);
}

/*op bitwise_left_shift(a, b) -> y  elementwise integral
 * a shifted left by b bits; 0 where b is negative or too large.
 *   y = shl(a, b)
 *   onnx BitShift direction!LEFT  when a:u8 b:u8
 */

/*op bitwise_right_shift(a, b) -> y  elementwise integral
 * a shifted right by b bits, filled with the sign bit.
 *   y = shr(a, b)
 *   onnx BitShift direction!RIGHT  when a:u8 b:u8
 */

#include "ops/elementwise/elementwise.gen.h"
