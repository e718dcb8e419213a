/* activation.c - activation functions: elementwise ops with PyTorch's names and defaults.
 *
 * relu, relu6, hardtanh and threshold keep integer dtypes; if an option has a fraction, the result
 * is f32. All other ops here convert integers to f32.
 *
 * A record states the gradient where the derived one would overflow or cost more. Example: the
 * derivative of sigmoid's expression 1/(1 + exp(-x)) evaluates to inf/inf at x = -100.
 */
#include "dispatch/call.h"
#include "dispatch/infer.h"
#include "gradus/ops.h"

/*op relu(x) -> y  elementwise idempotent inplace
 * max(x, 0); NaN stays NaN.
 *   y  = x != x ? x : x > 0 ? x : 0
 *   gx = y <= 0 ? 0 : gy
 *   onnx Relu   caffe ReLU negative_slope!0
 *   python (x, inplace)
 */

/*op relu6(x) -> y  elementwise idempotent inplace
 * min(max(x, 0), 6).
 *   y  = x != x ? x : x > 0 ? (x < 6 ? x : 6) : 0
 *   gx = x > 0 && x < 6 ? gy : 0
 *   python (x, inplace)
 */

/*op leaky_relu(x) -> y  elementwise float inplace
 * x where positive, slope * x elsewhere.
 *   slope float = 0.01
 *   y  = x > 0 ? x : slope * x
 *   gx = x > 0 ? gy : slope * gy
 *   onnx LeakyRelu alpha=slope   caffe ReLU negative_slope=slope
 *   python (x, negative_slope=slope, inplace)
 */

/*op threshold(x, threshold:number, value:number) -> y  elementwise
 * x where x is above the threshold, `value` elsewhere. Integers are computed as f32 if threshold or
 * value has a fraction.
 *   y  = x > threshold || x != x ? x : value
 *   gx = x <= threshold ? 0 : gy
 */

/*op hardtanh(x) -> y  elementwise inplace
 * x clamped to [min, max], where min must not be larger than max. Dtypes are as in clamp.
 *   min float = -1
 *   max float = 1
 *   y  = min(max(x, min), max)
 *   gx = x > min && x < max ? gy : 0
 *   python (x, min_val=min, max_val=max, inplace)
 */
static gd_status hardtanh_infer(gd_infer *i) {
    const gd_hardtanh_options *o = i->attrs;
    if (o->min > o->max)
        return gd_op_fail(
            GD_E_ARGUMENT,
            "min is %g and max is %g; min must not be larger (gd_clamp allows it, and "
            "gives max)",
            o->min, o->max);
    return gd_infer_bounds(i, o->min, o->max);
}

/*op elu(x) -> y  elementwise float inplace
 * x where positive, alpha * (exp(x) - 1) elsewhere.
 *   alpha float = 1
 *   y  = x > 0 ? x : alpha * expm1(x)
 *   gx = x > 0 ? gy : gy * alpha * exp(x)
 *   onnx Elu   caffe ELU
 *   python (x, alpha, inplace)
 */

/*op selu(x) -> y  elementwise float inplace
 * A scaled elu that keeps activations normalized.
 *   y  = 1.0507009873554804934193349852946 * (x > 0 ? x : 1.6732632423543772848170429916717 * expm1(x))
 *   gx = gy * 1.0507009873554804934193349852946 * (x > 0 ? 1 : 1.6732632423543772848170429916717 * exp(x))
 *   onnx Selu alpha!1.6732632~1.6732632 gamma!1.050701~1.050701
 *   python (x, inplace)
 */

/*op celu(x) -> y  elementwise float inplace
 * x where positive, alpha * (exp(x / alpha) - 1) elsewhere.
 *   alpha float = 1
 *   y  = x > 0 ? x : alpha * expm1(x / alpha)
 *   gx = x > 0 ? gy : gy * exp(x / alpha)
 *   onnx Celu alpha=alpha  when x:f32
 *   python (x, alpha, inplace)
 */

/*op sigmoid(x) -> y  elementwise float inplace
 * 1 / (1 + exp(-x)).
 *   y  = 1 / (1 + exp(-x))
 *   gx = gy * y * (1 - y)
 *   onnx Sigmoid   caffe Sigmoid
 */

/*op logsigmoid(x) -> y  elementwise float
 * log(sigmoid(x)), without overflow.
 *   y  = (x < 0 ? x : 0) - log1p(exp(-abs(x)))
 *   gx = gy / (1 + exp(x))
 */

/*op silu(x) -> y  elementwise float inplace
 * x * sigmoid(x), also called swish.
 *   y  = x / (1 + exp(-x))
 *   s  = 1 / (1 + exp(-x))
 *   gx = gy * s * (1 + x * (1 - s))
 *   python (x, inplace)
 */

/*op softplus(x) -> y  elementwise float fullp
 * log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold.
 *   beta float = 1
 *   threshold float = 20
 *   z  = x * beta
 *   y  = z > threshold ? x : ((z > 0 ? z : 0) + log1p(exp(-abs(z)))) / beta
 *   gx = z > threshold ? gy : gy / (1 + exp(-z))
 *   onnx Softplus  when beta=1 threshold=20   caffe BNLL  when beta=1 threshold=20
 */

/*op mish(x) -> y  elementwise float inplace
 * x * tanh(softplus(x)).
 *   t  = tanh((x > 0 ? x : 0) + log1p(exp(-abs(x))))
 *   y  = x * t
 *   gx = gy * (t + x / (1 + exp(-x)) * (1 - t * t))
 *   onnx Mish
 *   python (x, inplace)
 */

/*op gelu(x) -> y  elementwise float
 * x times the cumulative normal distribution of x, computed with erf. gelu_tanh approximates it.
 *   cdf = 0.5 * (1 + erf(x * 0.70710678118654752440084436210485))
 *   pdf = 0.39894228040143267793994605993438 * exp(-0.5*x*x)
 *   y  = x * cdf
 *   gx = gy * (cdf + x * pdf)
 *   onnx Gelu approximate!none~none
 */

/*op gelu_tanh(x) -> y  elementwise float
 * The tanh approximation of gelu.
 *   c  = 0.79788456080286535587989211986876
 *   t  = tanh(c * (x + 0.044715*x*x*x))
 *   y  = 0.5 * x * (1 + t)
 *   gx = gy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 0.134145*x*x))
 *   onnx Gelu approximate!tanh~none
 */

/*op softsign(x) -> y  elementwise float
 * x / (1 + |x|).
 *   y  = x / (1 + abs(x))
 *   gx = gy / ((1 + abs(x)) * (1 + abs(x)))
 *   onnx Softsign
 */

/*op hardsigmoid(x) -> y  elementwise float inplace
 * x / 6 + 1/2, clamped to [0, 1].
 *   y  = x != x ? x : x <= -3 ? 0 : x >= 3 ? 1 : (x + 3) / 6
 *   gx = x > -3 && x < 3 ? gy / 6 : 0
 *   onnx HardSigmoid alpha!0.16666667~0.2 beta!0.5~0.5
 *   python (x, inplace)
 */

/*op hardswish(x) -> y  elementwise float inplace
 * x * hardsigmoid(x).
 *   y  = x * (x <= -3 ? 0 : x >= 3 ? 1 : (x + 3) / 6)
 *   gx = x <= -3 ? 0 : x >= 3 ? gy : gy * (2*x + 3) / 6
 *   onnx HardSwish
 *   python (x, inplace)
 */

/*op prelu(x, slope) -> y  elementwise float
 * x where positive, slope * x elsewhere; slope is a tensor that broadcasts against x.
 *   y  = x > 0 ? x : slope * x
 *   gx = x > 0 ? gy : slope * gy
 *   gslope = x > 0 ? 0 : x * gy
 *   onnx PRelu
 *   python (x, weight=slope)
 */

#include "ops/elementwise/activation.gen.h"
