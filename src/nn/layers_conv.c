/* layers_conv.c - convolutions and transposed convolutions over one, two and three dimensions. */
#include <math.h>

#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/* The options that all ranks share. */
typedef struct conv {
    int rank; /* of the window */
    int64_t in, out, groups;
    const int64_t *kernel, *padding, *dilation;
    gd_word pad_mode, padding_mode, data_format;
    bool bias, transposed;
} conv;

static gd_status check_conv(const gd_module *m, const conv *c) {
    GD_TRY(gd_layer_size(m, "in_channels", c->in));
    GD_TRY(gd_layer_at_least(m, "out_channels", c->out, 1));
    GD_TRY(gd_layer_at_least(m, "groups", c->groups, 1));
    GD_TRY(gd_layer_all_at_least(m, "kernel", c->rank, c->kernel, 1));
    GD_TRY(gd_layer_all_at_least(m, "padding", c->rank, c->padding, 0));
    GD_TRY(gd_layer_all_at_least(m, "dilation", c->rank, c->dilation, 1));
    const bool divides = (c->in == GD_ANY || c->in % c->groups == 0) && c->out % c->groups == 0;
    if (!divides)
        return gd_fail(
            GD_E_ARGUMENT,
            "%s: groups is %lld; it must divide in_channels (%lld) and out_channels (%lld)",
            m->type, (long long)c->groups, (long long)c->in, (long long)c->out);
    return GD_OK;
}

/* weight (out, in / groups, window...), transposed (in, out / groups, window...). */
static gd_status build_conv(gd_module *m, const conv *c) {
    gd_shape dims = {.rank = c->rank + 2, .form = 1};
    dims.at[0] = c->transposed ? c->in : c->out;
    dims.at[1] = (c->transposed ? c->out : c->in) / c->groups;
    double fan_in = (double)dims.at[1];
    for (int i = 0; i < c->rank; i++) {
        dims.at[2 + i] = c->kernel[i];
        fan_in *= (double)c->kernel[i];
    }
    const double bound = 1 / sqrt(fan_in);
    GD_TRY(gd_layer_uniform(m, "weight", dims, bound));
    return c->bias ? gd_layer_uniform(m, "bias", gd_dims(c->out), bound)
                   : gd_layer_absent(m, "bias");
}

/* Pads x (N, C, ...) in the modes that the op does not have: reflect, replicate, circular. */
static gd_tensor *pad_input(const conv *c, gd_tensor *x) {
    gd_shape sides = {.rank = 2 * c->rank, .form = 1}; /* (before, after) of the last axis first */
    for (int i = 0; i < c->rank; i++) {
        const int k = c->rank - 1 - i;
        const int64_t all =
            c->pad_mode == GD_SAME ? c->dilation[k] * (c->kernel[k] - 1) : 2 * c->padding[k];
        sides.at[2 * i] = all / 2;
        sides.at[2 * i + 1] = all - all / 2;
    }
    return gd_pad(x, sides, .mode = c->padding_mode);
}

static bool pads(const conv *c) { return c->padding_mode != GD_ZEROS && c->pad_mode != GD_VALID; }

/* Converts the input for the op: channels first, padded. */
static gd_tensor *prepare_input(const conv *c, gd_tensor *x) {
    if (c->data_format == GD_CHANNELS_LAST) x = gd_movedim(x, gd_dims(-1), gd_dims(1));
    return pads(c) ? pad_input(c, x) : x;
}

static gd_tensors finish_output(const conv *c, gd_tensor *y) {
    return gd_listed(c->data_format == GD_CHANNELS_LAST ? gd_movedim(y, gd_dims(1), gd_dims(-1))
                                                        : y);
}

static gd_tensors call_conv(gd_module *m, const conv *c, gd_tensors in) {
    return finish_output(
        c, gd_layer_call_op(m, gd_list(prepare_input(c, in.at[0])), m->op_options).at[0]);
}

/* --- convolutions ----------------------------------------------------------------------------- */

#define CONV(N, o)                             \
    ((conv){.rank = (N),                       \
            .in = (o)->in_channels,            \
            .out = (o)->out_channels,          \
            .groups = (o)->groups,             \
            .kernel = (o)->kernel.at,          \
            .padding = (o)->padding.at,        \
            .dilation = (o)->dilation.at,      \
            .pad_mode = (o)->pad_mode,         \
            .padding_mode = (o)->padding_mode, \
            .data_format = (o)->data_format,   \
            .bias = (o)->bias})

/*layer conv1d(x, in_channels:int, out_channels:int, kernel:int[1]) -> y  of conv1d
 * 1-d convolution of x (N, C, L). Weights are (out_channels, in_channels / groups, window...).
 *   bias bool = true
 *   options of conv1d
 *   padding_mode {zeros, reflect, replicate, circular} = zeros   what the borders hold
 *   data_format {channels_first, channels_last} = channels_first   channels_last: x is (N, ..., C), as Keras has it
 *   finds in_channels x[1]
 */
static gd_status conv1d_check(const gd_module *m) {
    const gd_nn_conv1d_options *o = m->options;
    GD_TRY(gd_layer_all_at_least(m, "stride", 1, o->stride.at, 1));
    return check_conv(m, &CONV(1, o));
}
static gd_status conv1d_build(gd_module *m) {
    const gd_nn_conv1d_options *o = m->options;
    return build_conv(m, &CONV(1, o));
}
static gd_tensors conv1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_conv1d_options *o = m->options;
    const conv c = CONV(1, o);
    if (!pads(&c)) return call_conv(m, &c, in);
    return finish_output(&c, gd_conv1d(prepare_input(&c, in.at[0]), gd_layer_tensor_at(m, 0),
                                       gd_layer_tensor_at(m, 1), .stride = o->stride,
                                       .dilation = o->dilation, .groups = o->groups));
}

/*layer conv2d(x, in_channels:int, out_channels:int, kernel:int[2]) -> y  of conv2d
 * 2-d convolution of x (N, C, H, W). Weights are (out_channels, in_channels / groups, window...).
 *   bias bool = true
 *   options of conv2d
 *   padding_mode {zeros, reflect, replicate, circular} = zeros   what the borders hold
 *   data_format {channels_first, channels_last} = channels_first   channels_last: x is (N, ..., C), as Keras has it
 *   finds in_channels x[1]
 */
static gd_status conv2d_check(const gd_module *m) {
    const gd_nn_conv2d_options *o = m->options;
    GD_TRY(gd_layer_all_at_least(m, "stride", 2, o->stride.at, 1));
    return check_conv(m, &CONV(2, o));
}
static gd_status conv2d_build(gd_module *m) {
    const gd_nn_conv2d_options *o = m->options;
    return build_conv(m, &CONV(2, o));
}
static gd_tensors conv2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_conv2d_options *o = m->options;
    const conv c = CONV(2, o);
    if (!pads(&c)) return call_conv(m, &c, in);
    return finish_output(&c, gd_conv2d(prepare_input(&c, in.at[0]), gd_layer_tensor_at(m, 0),
                                       gd_layer_tensor_at(m, 1), .stride = o->stride,
                                       .dilation = o->dilation, .groups = o->groups));
}

/*layer conv3d(x, in_channels:int, out_channels:int, kernel:int[3]) -> y  of conv3d
 * 3-d convolution of x (N, C, D, H, W). Weights are (out_channels, in_channels / groups,
 * window...).
 *   bias bool = true
 *   options of conv3d
 *   padding_mode {zeros, reflect, replicate, circular} = zeros   what the borders hold
 *   data_format {channels_first, channels_last} = channels_first   channels_last: x is (N, ..., C), as Keras has it
 *   finds in_channels x[1]
 */
static gd_status conv3d_check(const gd_module *m) {
    const gd_nn_conv3d_options *o = m->options;
    GD_TRY(gd_layer_all_at_least(m, "stride", 3, o->stride.at, 1));
    return check_conv(m, &CONV(3, o));
}
static gd_status conv3d_build(gd_module *m) {
    const gd_nn_conv3d_options *o = m->options;
    return build_conv(m, &CONV(3, o));
}
static gd_tensors conv3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_conv3d_options *o = m->options;
    const conv c = CONV(3, o);
    if (!pads(&c)) return call_conv(m, &c, in);
    return finish_output(&c, gd_conv3d(prepare_input(&c, in.at[0]), gd_layer_tensor_at(m, 0),
                                       gd_layer_tensor_at(m, 1), .stride = o->stride,
                                       .dilation = o->dilation, .groups = o->groups));
}

/* --- transposed convolutions ------------------------------------------------------------------ */

#define TRANSPOSED(N, o)                     \
    ((conv){.rank = (N),                     \
            .in = (o)->in_channels,          \
            .out = (o)->out_channels,        \
            .groups = (o)->groups,           \
            .kernel = (o)->kernel.at,        \
            .padding = (o)->padding.at,      \
            .dilation = (o)->dilation.at,    \
            .padding_mode = GD_ZEROS,        \
            .data_format = (o)->data_format, \
            .bias = (o)->bias,               \
            .transposed = true})

/*layer conv_transpose1d(x, in_channels:int, out_channels:int, kernel:int[1]) -> y  of conv_transpose1d
 * The gradient of a 1-d convolution with respect to its input, as a layer: x (N, C, L) grows by the
 * stride. Weights are (in_channels, out_channels / groups, window...).
 *   bias bool = true
 *   options of conv_transpose1d
 *   data_format {channels_first, channels_last} = channels_first   channels_last: x is (N, ..., C), as Keras has it
 *   finds in_channels x[1]
 */
static gd_status conv_transpose1d_check(const gd_module *m) {
    const gd_nn_conv_transpose1d_options *o = m->options;
    GD_TRY(gd_layer_all_at_least(m, "stride", 1, o->stride.at, 1));
    GD_TRY(gd_layer_all_at_least(m, "output_padding", 1, o->output_padding.at, 0));
    return check_conv(m, &TRANSPOSED(1, o));
}
static gd_status conv_transpose1d_build(gd_module *m) {
    const gd_nn_conv_transpose1d_options *o = m->options;
    return build_conv(m, &TRANSPOSED(1, o));
}
static gd_tensors conv_transpose1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_conv_transpose1d_options *o = m->options;
    return call_conv(m, &TRANSPOSED(1, o), in);
}

/*layer conv_transpose2d(x, in_channels:int, out_channels:int, kernel:int[2]) -> y  of conv_transpose2d
 * The gradient of a 2-d convolution with respect to its input, as a layer: x (N, C, H, W) grows by
 * the stride. Weights are (in_channels, out_channels / groups, window...).
 *   bias bool = true
 *   options of conv_transpose2d
 *   data_format {channels_first, channels_last} = channels_first   channels_last: x is (N, ..., C), as Keras has it
 *   finds in_channels x[1]
 */
static gd_status conv_transpose2d_check(const gd_module *m) {
    const gd_nn_conv_transpose2d_options *o = m->options;
    GD_TRY(gd_layer_all_at_least(m, "stride", 2, o->stride.at, 1));
    GD_TRY(gd_layer_all_at_least(m, "output_padding", 2, o->output_padding.at, 0));
    return check_conv(m, &TRANSPOSED(2, o));
}
static gd_status conv_transpose2d_build(gd_module *m) {
    const gd_nn_conv_transpose2d_options *o = m->options;
    return build_conv(m, &TRANSPOSED(2, o));
}
static gd_tensors conv_transpose2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_conv_transpose2d_options *o = m->options;
    return call_conv(m, &TRANSPOSED(2, o), in);
}

/*layer conv_transpose3d(x, in_channels:int, out_channels:int, kernel:int[3]) -> y  of conv_transpose3d
 * The gradient of a 3-d convolution with respect to its input, as a layer: x (N, C, D, H, W) grows
 * by the stride. Weights are (in_channels, out_channels / groups, window...).
 *   bias bool = true
 *   options of conv_transpose3d
 *   data_format {channels_first, channels_last} = channels_first   channels_last: x is (N, ..., C), as Keras has it
 *   finds in_channels x[1]
 */
static gd_status conv_transpose3d_check(const gd_module *m) {
    const gd_nn_conv_transpose3d_options *o = m->options;
    GD_TRY(gd_layer_all_at_least(m, "stride", 3, o->stride.at, 1));
    GD_TRY(gd_layer_all_at_least(m, "output_padding", 3, o->output_padding.at, 0));
    return check_conv(m, &TRANSPOSED(3, o));
}
static gd_status conv_transpose3d_build(gd_module *m) {
    const gd_nn_conv_transpose3d_options *o = m->options;
    return build_conv(m, &TRANSPOSED(3, o));
}
static gd_tensors conv_transpose3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_conv_transpose3d_options *o = m->options;
    return call_conv(m, &TRANSPOSED(3, o), in);
}

#include "layers_conv.gen.h"
