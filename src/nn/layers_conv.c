/* layers_conv.c - convolutions and transposed convolutions over one, two and three dimensions. */
#include <math.h>

#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/* The options that convolutions and transposed ones share. */
typedef struct conv_options {
    int axes; /* spatial axes of x, 1 to 3; the lists below have as many numbers */
    int64_t in_channels, out_channels, groups;
    gd_int3 kernel, stride, padding, dilation;
    gd_word pad_mode, padding_mode, data_format;
    bool bias, transposed;
} conv_options;

static gd_status check_conv(const gd_module *m, const conv_options *o) {
    GD_TRY(gd_layer_all_at_least(m, "stride", o->axes, o->stride.at, 1));
    GD_TRY(gd_layer_size(m, "in_channels", o->in_channels));
    GD_TRY(gd_layer_at_least(m, "out_channels", o->out_channels, 1));
    GD_TRY(gd_layer_at_least(m, "groups", o->groups, 1));
    GD_TRY(gd_layer_all_at_least(m, "kernel", o->axes, o->kernel.at, 1));
    GD_TRY(gd_layer_all_at_least(m, "padding", o->axes, o->padding.at, 0));
    GD_TRY(gd_layer_all_at_least(m, "dilation", o->axes, o->dilation.at, 1));
    const bool divides_in = o->in_channels == GD_ANY || o->in_channels % o->groups == 0;
    if (divides_in && o->out_channels % o->groups == 0) return GD_OK;
    return gd_fail(GD_E_ARGUMENT,
                   "%s: groups is %lld; it must divide in_channels (%lld) and out_channels (%lld)",
                   m->type, (long long)o->groups, (long long)o->in_channels,
                   (long long)o->out_channels);
}

/* weight (out, in / groups, window...), transposed (in, out / groups, window...). */
static gd_status build_conv(gd_module *m, const conv_options *o) {
    gd_shape dims = {.rank = o->axes + 2, .form = 1};
    dims.at[0] = o->transposed ? o->in_channels : o->out_channels;
    dims.at[1] = (o->transposed ? o->out_channels : o->in_channels) / o->groups;
    double fan_in = (double)dims.at[1];
    for (int i = 0; i < o->axes; i++) {
        dims.at[2 + i] = o->kernel.at[i];
        fan_in *= (double)o->kernel.at[i];
    }
    const double bound = 1 / sqrt(fan_in);
    GD_TRY(gd_layer_uniform(m, "weight", dims, bound));
    return o->bias ? gd_layer_uniform(m, "bias", gd_dims(o->out_channels), bound)
                   : gd_layer_absent(m, "bias");
}

/* The op pads with zeros. In the other modes the layer pads x before it calls the op. */
static bool pads_input(const conv_options *o) {
    return o->padding_mode != GD_ZEROS && o->pad_mode != GD_VALID;
}

static gd_tensor *pad_input(const conv_options *o, gd_tensor *x) {
    gd_shape sides = {.rank = 2 * o->axes, .form = 1}; /* (before, after), the last axis first */
    for (int i = 0; i < o->axes; i++) {
        const int k = o->axes - 1 - i;
        const int64_t both = o->pad_mode == GD_SAME ? o->dilation.at[k] * (o->kernel.at[k] - 1)
                                                    : 2 * o->padding.at[k];
        sides.at[2 * i] = both / 2;
        sides.at[2 * i + 1] = both - both / 2;
    }
    return gd_pad(x, sides, .mode = o->padding_mode);
}

static gd_tensors call_conv(gd_module *m, const conv_options *o, gd_tensors in) {
    gd_tensor *x = gd_layer_channels_first(in.at[0], o->data_format);
    if (pads_input(o)) x = pad_input(o, x);
    gd_tensor *y = gd_layer_call_op(m, gd_list(x)).at[0];
    return gd_listed(gd_layer_channels_restored(y, o->data_format));
}

/* --- convolutions ----------------------------------------------------------------------------- */

static conv_options read_conv_options(const gd_module *m) {
    const gd_nn_conv3d_options o = GD_LAYER_OPTIONS(gd_nn_conv3d_options, m);
    return (conv_options){.axes = gd_layer_variant(m),
                          .in_channels = o.in_channels,
                          .out_channels = o.out_channels,
                          .groups = o.groups,
                          .kernel = o.kernel,
                          .stride = o.stride,
                          .padding = o.padding,
                          .dilation = o.dilation,
                          .pad_mode = o.pad_mode,
                          .padding_mode = o.padding_mode,
                          .data_format = o.data_format,
                          .bias = o.bias};
}

/*layer conv{1,2,3}d(x, in_channels:int, out_channels:int, kernel:int[{}]) -> y  of conv{}d
 * {}-d convolution of x (N, C, {L|H, W|D, H, W}). Weights are (out_channels, in_channels / groups,
 * window...).
 *   bias bool = true
 *   options of conv{}d
 *   padding_mode {zeros, reflect, replicate, circular} = zeros   values of the padding
 *   data_format {channels_first, channels_last} = channels_first   channels_last: x is (N, ..., C), as in Keras
 *   finds in_channels x[1]
 *   python Conv{}d(in_channels, out_channels, kernel_size=kernel, stride, padding|pad_mode, dilation, groups, bias, padding_mode)
 */
static gd_status convNd_check(const gd_module *m) {
    const conv_options o = read_conv_options(m);
    return check_conv(m, &o);
}
static gd_status convNd_build(gd_module *m) {
    const conv_options o = read_conv_options(m);
    if (pads_input(&o)) { /* the op gets an input that is padded already */
        gd_layer_reset_op_option(m, "padding");
        gd_layer_reset_op_option(m, "pad_mode");
    }
    return build_conv(m, &o);
}
static gd_tensors convNd_forward(gd_module *m, gd_tensors in) {
    const conv_options o = read_conv_options(m);
    return call_conv(m, &o, in);
}

/* --- transposed convolutions ------------------------------------------------------------------ */

static conv_options read_transposed_options(const gd_module *m) {
    const gd_nn_conv_transpose3d_options o = GD_LAYER_OPTIONS(gd_nn_conv_transpose3d_options, m);
    return (conv_options){.axes = gd_layer_variant(m),
                          .in_channels = o.in_channels,
                          .out_channels = o.out_channels,
                          .groups = o.groups,
                          .kernel = o.kernel,
                          .stride = o.stride,
                          .padding = o.padding,
                          .dilation = o.dilation,
                          .padding_mode = GD_ZEROS,
                          .data_format = o.data_format,
                          .bias = o.bias,
                          .transposed = true};
}

/*layer conv_transpose{1,2,3}d(x, in_channels:int, out_channels:int, kernel:int[{}]) -> y  of conv_transpose{}d
 * The gradient of a {}-d convolution with respect to its input, as a layer: x (N, C,
 * {L|H, W|D, H, W}) grows by the stride. Weights are (in_channels, out_channels / groups,
 * window...).
 *   bias bool = true
 *   options of conv_transpose{}d
 *   data_format {channels_first, channels_last} = channels_first   channels_last: x is (N, ..., C), as in Keras
 *   finds in_channels x[1]
 *   python ConvTranspose{}d(in_channels, out_channels, kernel_size=kernel, stride, padding, output_padding, groups, bias, dilation, padding_mode!zeros)
 */
static gd_status conv_transposeNd_check(const gd_module *m) {
    const gd_nn_conv_transpose3d_options given =
        GD_LAYER_OPTIONS(gd_nn_conv_transpose3d_options, m);
    const conv_options o = read_transposed_options(m);
    GD_TRY(gd_layer_all_at_least(m, "output_padding", o.axes, given.output_padding.at, 0));
    return check_conv(m, &o);
}
static gd_status conv_transposeNd_build(gd_module *m) {
    const conv_options o = read_transposed_options(m);
    return build_conv(m, &o);
}
static gd_tensors conv_transposeNd_forward(gd_module *m, gd_tensors in) {
    const conv_options o = read_transposed_options(m);
    return call_conv(m, &o, in);
}

#include "nn/layers_conv.gen.h"
