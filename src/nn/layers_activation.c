/* layers_activation.c - activations. All but prelu have no weights. */
#include <math.h>

#include "gradus/autograd.h"
#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/* --- single ops ------------------------------------------------------------------------------- */

/*layer relu(x) -> y  of relu
 * max(x, 0).
 *   python ReLU(inplace~False)
 */

/*layer relu6(x) -> y  of relu6
 * min(max(x, 0), 6).
 *   python ReLU6(inplace~False)
 */

/*layer leaky_relu(x) -> y  of leaky_relu
 * x where positive, slope * x elsewhere.
 *   options of leaky_relu
 *   python LeakyReLU(negative_slope=slope, inplace~False)
 */

/*layer threshold(x, threshold:number, value:number) -> y  of threshold
 * x where above the threshold, the value elsewhere.
 *   python (threshold, value, inplace~False)
 */

/*layer hardtanh(x) -> y  of hardtanh
 * x clamped to [min, max].
 *   options of hardtanh
 *   python (min_val=min, max_val=max, inplace~False, min_value!None, max_value!None)
 */
static gd_status hardtanh_check(const gd_module *m) {
    const gd_nn_hardtanh_options *o = m->options;
    if (!(o->min > o->max)) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s: min is %g and max is %g; min must not be larger", m->type,
                   o->min, o->max);
}

/*layer elu(x) -> y  of elu
 * x where positive, alpha * (exp(x) - 1) elsewhere.
 *   options of elu
 *   python ELU(alpha, inplace~False)
 */

/*layer selu(x) -> y  of selu
 * A scaled elu that keeps activations normalized.
 *   python SELU(inplace~False)
 */

/*layer celu(x) -> y  of celu
 * x where positive, alpha * (exp(x / alpha) - 1) elsewhere.
 *   options of celu
 *   python CELU(alpha, inplace~False)
 */
static gd_status celu_check(const gd_module *m) {
    const gd_nn_celu_options *o = m->options;
    return o->alpha == 0 ? gd_fail(GD_E_ARGUMENT, "%s: alpha is 0", m->type) : GD_OK;
}

/*layer sigmoid(x) -> y  of sigmoid
 * 1 / (1 + exp(-x)).
 */

/*layer logsigmoid(x) -> y  of logsigmoid
 * log(sigmoid(x)), without overflow.
 *   python LogSigmoid
 */

/*layer tanh(x) -> y  of tanh
 * Hyperbolic tangent.
 */

/*layer silu(x) -> y  of silu
 * x * sigmoid(x), also called swish.
 *   python SiLU(inplace~False)
 */

/*layer mish(x) -> y  of mish
 * x * tanh(softplus(x)).
 *   python (inplace~False)
 */

/*layer softplus(x) -> y  of softplus
 * log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold.
 *   options of softplus
 *   python (beta, threshold)
 */

/*layer softsign(x) -> y  of softsign
 * x / (1 + |x|).
 */

/*layer hardsigmoid(x) -> y  of hardsigmoid
 * x / 6 + 1/2, clamped to [0, 1].
 *   python (inplace~False)
 */

/*layer hardswish(x) -> y  of hardswish
 * x * hardsigmoid(x).
 *   python (inplace~False)
 */

/*layer gelu(x) -> y
 * x times the normal distribution function of x.
 *   approximate {none, tanh} = none   tanh: an approximation by tanh
 *   python GELU(approximate)
 */
static gd_tensors gelu_forward(gd_module *m, gd_tensors in) {
    const gd_nn_gelu_options *o = m->options;
    return gd_listed(o->approximate == GD_TANH ? gd_gelu_tanh(in.at[0]) : gd_gelu(in.at[0]));
}

/*layer softmax(x) -> y  of softmax
 * exp(x) divided by its sum along an axis.
 *   options of softmax
 *   python (dim=axis)
 */

/*layer log_softmax(x) -> y  of log_softmax
 * The logarithm of softmax, without overflow.
 *   options of log_softmax
 *   python (dim=axis)
 */

/* --- several ops ------------------------------------------------------------------------------ */

/*layer softmin(x) -> y
 * softmax(-x).
 *   axis int = -1
 *   python (dim=axis)
 */
static gd_tensors softmin_forward(gd_module *m, gd_tensors in) {
    const gd_nn_softmin_options *o = m->options;
    return gd_listed(gd_softmax(gd_neg(in.at[0]), .axis = o->axis));
}

/*layer softmax2d(x) -> y
 * softmax over the channels of x (N, C, H, W) or (C, H, W).
 */
static gd_tensors softmax2d_forward(gd_module *m, gd_tensors in) {
    (void)m;
    return gd_listed(gd_softmax(in.at[0], .axis = -3));
}

/*layer glu(x) -> y
 * a * sigmoid(b), a and b being the halves of x along an axis.
 *   axis int = -1
 *   python GLU(dim=axis)
 */
static gd_tensors glu_forward(gd_module *m, gd_tensors in) {
    const gd_nn_glu_options *o = m->options;
    const gd_tensor *x = in.at[0];
    char text[160];
    if (o->axis < -x->rank || o->axis >= x->rank)
        return gd_layer_fail(gd_fail(GD_E_SHAPE, "axis is %lld; x is %s", (long long)o->axis,
                                     gd_describe(x, text, sizeof text)));
    const int64_t n = x->dims[o->axis < 0 ? o->axis + x->rank : o->axis];
    if (n < 0 || n % 2)
        return gd_layer_fail(gd_fail(GD_E_SHAPE,
                                     "the size of x along axis %lld must be even; x is %s",
                                     (long long)o->axis, gd_describe(x, text, sizeof text)));
    gd_tensor *a = gd_narrow(in.at[0], o->axis, 0, n / 2),
              *b = gd_narrow(in.at[0], o->axis, n / 2, n / 2);
    return gd_listed(gd_mul(a, gd_sigmoid(b)));
}

/*layer tanhshrink(x) -> y
 * x - tanh(x).
 */
static gd_tensors tanhshrink_forward(gd_module *m, gd_tensors in) {
    (void)m;
    return gd_listed(gd_sub(in.at[0], gd_tanh(in.at[0])));
}

/*layer hardshrink(x) -> y
 * 0 where |x| is at most lambd, x elsewhere.
 *   lambd float = 0.5
 *   python (lambd)
 */
static gd_status hardshrink_check(const gd_module *m) {
    const gd_nn_hardshrink_options *o = m->options;
    return gd_layer_within(m, "lambd", o->lambd, 0, (double)INFINITY, true);
}
static gd_tensors hardshrink_forward(gd_module *m, gd_tensors in) {
    const gd_nn_hardshrink_options *o = m->options;
    gd_tensor *x = in.at[0];
    return gd_listed(gd_where(gd_le(gd_abs(x), gd_layer_scalar(x, o->lambd)), gd_zeros_like(x), x));
}

/*layer softshrink(x) -> y
 * 0 where |x| is at most lambd; elsewhere x, shifted toward 0 by lambd.
 *   lambd float = 0.5
 *   python (lambd)
 */
static gd_status softshrink_check(const gd_module *m) {
    const gd_nn_softshrink_options *o = m->options;
    return gd_layer_within(m, "lambd", o->lambd, 0, (double)INFINITY, false);
}
static gd_tensors softshrink_forward(gd_module *m, gd_tensors in) {
    const gd_nn_softshrink_options *o = m->options;
    return gd_listed(gd_sub(in.at[0], gd_clamp(in.at[0], .min = -o->lambd, .max = o->lambd)));
}

/*layer rrelu(x) -> y
 * x where positive; elsewhere x times a slope, which in train mode is random for each element,
 * between lower and upper, and in eval mode is their mean.
 *   lower float = 0.125
 *   upper float = 0.3333333333333333
 *   python RReLU(lower, upper, inplace~False)
 */
static gd_status rrelu_check(const gd_module *m) {
    const gd_nn_rrelu_options *o = m->options;
    GD_TRY(gd_layer_within(m, "lower", o->lower, -(double)INFINITY, (double)INFINITY, false));
    if (!(o->lower <= o->upper))
        return gd_fail(GD_E_ARGUMENT, "%s: lower is %g and upper %g; lower must be at most upper",
                       m->type, o->lower, o->upper);
    return gd_layer_within(m, "upper", o->upper, o->lower, (double)INFINITY, false);
}
static gd_tensors rrelu_forward(gd_module *m, gd_tensors in) {
    const gd_nn_rrelu_options *o = m->options;
    gd_tensor *x = in.at[0];
    if (!gd_layer_is_training(m))
        return gd_listed(gd_leaky_relu(x, .slope = (o->lower + o->upper) / 2));
    gd_tensor *slope = gd_add(gd_mul(gd_rand_like(x), gd_layer_scalar(x, o->upper - o->lower)),
                              gd_layer_scalar(x, o->lower));
    return gd_listed(gd_where(gd_ge(x, gd_scalar(0)), x, gd_mul(x, gd_stop_gradient(slope))));
}

/*layer prelu(x) -> y
 * x where positive, weight * x elsewhere: one weight, or one for each channel of x (N, C, ...).
 *   num_parameters int = 1     1, or the number of channels
 *   init float = 0.25          initial value of the weights
 *   finds num_parameters x[1]
 *   python PReLU(num_parameters, init)
 */
static gd_status prelu_check(const gd_module *m) {
    const gd_nn_prelu_options *o = m->options;
    return gd_layer_size(m, "num_parameters", o->num_parameters);
}
static gd_status prelu_build(gd_module *m) {
    const gd_nn_prelu_options *o = m->options;
    return gd_layer_fill(m, "weight", gd_dims(o->num_parameters), o->init);
}
static gd_tensors prelu_forward(gd_module *m, gd_tensors in) {
    const gd_nn_prelu_options *o = m->options;
    gd_tensor *x = in.at[0], *weight = gd_layer_tensor_at(m, 0);
    if (o->num_parameters > 1 &&
        (x->rank < 2 || (x->dims[1] >= 0 && x->dims[1] != o->num_parameters))) {
        char text[160];
        return gd_layer_fail(
            gd_fail(GD_E_SHAPE,
                    "num_parameters is %lld; x must be (N, C, ...) with as many channels; it is %s",
                    (long long)o->num_parameters, gd_describe(x, text, sizeof text)));
    }
    if (o->num_parameters == 1 || x->rank < 2) return gd_listed(gd_prelu(x, weight));
    /* (C, 1, ...) broadcasts against (N, C, ...) */
    gd_shape dims = {.rank = x->rank - 1, .form = 1};
    for (int i = 0; i < dims.rank; i++) dims.at[i] = i ? 1 : o->num_parameters;
    return gd_listed(gd_prelu(x, gd_reshape(weight, dims)));
}

#include "nn/layers_activation.gen.h"
