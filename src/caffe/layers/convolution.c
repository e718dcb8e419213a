/* convolution.c - Convolution and Deconvolution over one to three axes, of several bottoms with the same
 * weights. */
#include <string.h>

#include "caffe/layers/windows.h"
#include "caffe/save/save.h"
#include "core/tensor_list.h"

typedef struct convolution_module {
    gd_tensor *weight,
        *bias; /* (out, in / groups, window...), of Deconvolution (in, out / groups, ...) */
    gd_shape weight_shape; /* as the op takes it */
    gd_caffe_windows windows;
    int64_t outputs, groups;
    bool transposed;
} convolution_module;

static gd_tensor *convolve(const convolution_module *m, gd_tensor *x, gd_tensor *w, gd_tensor *b) {
    const int64_t *stride = m->windows.stride, *pad = m->windows.pad, *step = m->windows.dilation;
    switch (m->windows.axes) {
    case 3:
        return gd_conv3d(x, w, b, .stride = {{stride[0], stride[1], stride[2]}},
                         .padding = {{pad[0], pad[1], pad[2]}},
                         .dilation = {{step[0], step[1], step[2]}}, .groups = m->groups);
    case 2:
        return gd_conv2d(x, w, b, .stride = {{stride[0], stride[1]}}, .padding = {{pad[0], pad[1]}},
                         .dilation = {{step[0], step[1]}}, .groups = m->groups);
    default:
        return gd_conv1d(x, w, b, .stride = {{stride[0]}}, .padding = {{pad[0]}},
                         .dilation = {{step[0]}}, .groups = m->groups);
    }
}

static gd_tensor *convolve_transposed(const convolution_module *m, gd_tensor *x, gd_tensor *w,
                                      gd_tensor *b) {
    const int64_t *stride = m->windows.stride, *pad = m->windows.pad, *step = m->windows.dilation;
    switch (m->windows.axes) {
    case 3:
        return gd_conv_transpose3d(x, w, b, .stride = {{stride[0], stride[1], stride[2]}},
                                   .padding = {{pad[0], pad[1], pad[2]}},
                                   .dilation = {{step[0], step[1], step[2]}}, .groups = m->groups);
    case 2:
        return gd_conv_transpose2d(x, w, b, .stride = {{stride[0], stride[1]}},
                                   .padding = {{pad[0], pad[1]}}, .dilation = {{step[0], step[1]}},
                                   .groups = m->groups);
    default:
        return gd_conv_transpose1d(x, w, b, .stride = {{stride[0]}}, .padding = {{pad[0]}},
                                   .dilation = {{step[0]}}, .groups = m->groups);
    }
}

static gd_tensors convolution_forward(gd_tensors in, void *self) {
    const convolution_module *m = self;
    gd_tensor **out = gd_list_new(in.count);
    gd_tensor *w = gd_caffe_shaped(m->weight, m->weight_shape),
              *b = m->bias ? gd_caffe_shaped(m->bias, gd_dims(m->outputs)) : NULL;
    if (!out) return gd_list_of_errors(in.count);
    for (int64_t i = 0; i < in.count; i++) {
        gd_tensor *x = gd_caffe_windows_in(&m->windows, in.at[i], !m->transposed);
        x = m->transposed ? convolve_transposed(m, x, w, b) : convolve(m, x, w, b);
        out[i] = gd_caffe_windows_out(&m->windows, x, in.at[i]);
    }
    return (gd_tensors){out, in.count};
}

static gd_status check_groups(const gd_caffe_layer *l, int64_t channels, int64_t outputs,
                              int64_t groups) {
    if (outputs < 1)
        return gd_caffe_fail(l, "it has no num_output, the number of channels of its top");
    if (groups > 0 && channels % groups == 0 && outputs % groups == 0) return GD_OK;
    return gd_caffe_fail(l,
                         "group is %lld; it must divide the %lld channels of its bottom and "
                         "num_output, %lld",
                         (long long)groups, (long long)channels, (long long)outputs);
}

static gd_status make(gd_caffe_layer *l, bool transposed) {
    gd_caffe_windows windows;
    GD_TRY(gd_caffe_read_windows(l, &windows));
    const int64_t channels = l->bottoms[0].at[windows.axis],
                  outputs = gd_pb_int_of(l->message, "convolution_param.num_output"),
                  groups = gd_pb_int_of(l->message, "convolution_param.group");
    GD_TRY(check_groups(l, channels, outputs, groups));
    convolution_module *m = gd_caffe_module(l, convolution_forward, sizeof *m);
    if (!m) return gd_failure();
    m->windows = windows;
    m->outputs = outputs;
    m->groups = groups;
    m->transposed = transposed;
    gd_shape shape =
        gd_dims(transposed ? channels : outputs, (transposed ? outputs : channels) / groups);
    m->weight_shape = shape;
    for (int i = 0; i < windows.axes; i++) shape.at[shape.rank++] = windows.kernel[i];
    if (windows.axes == 0) m->weight_shape.at[m->weight_shape.rank++] = 1;
    else m->weight_shape = shape;
    GD_TRY(gd_caffe_add_blob(l, &m->weight, "weight", shape, "convolution_param.weight_filler"));
    if (!gd_pb_int_of(l->message, "convolution_param.bias_term")) return GD_OK;
    return gd_caffe_add_blob(l, &m->bias, "bias", gd_dims(outputs),
                             "convolution_param.bias_filler");
}

gd_status gd_caffe_make_Convolution(gd_caffe_layer *l) { return make(l, false); }
gd_status gd_caffe_make_Deconvolution(gd_caffe_layer *l) { return make(l, true); }

/* --- saving ----------------------------------------------------------------------------------- */

/* The zeros on each side of an op's input; -1: there are more at the end than at the beginning. */
static int64_t pad_of(const gd_caffe_call *c, int i, const int64_t *padding, int64_t window) {
    const int64_t mode = (int64_t)gd_caffe_option(c, "pad_mode");
    if (mode == GD_SAME) return window % 2 ? window / 2 : -1;
    return mode == GD_VALID ? 0 : padding[i];
}

static gd_status save_windows(gd_caffe_call *c, int axes) {
    int64_t stride[3], padding[3], dilation[3], kernel[3];
    gd_caffe_option_list(c, "stride", stride);
    gd_caffe_option_list(c, "padding", padding);
    gd_caffe_option_list(c, "dilation", dilation);
    for (int i = 0; i < axes; i++) {
        kernel[i] = c->in[1].dims[2 + i];
        padding[i] = pad_of(c, i, padding, dilation[i] * (kernel[i] - 1) + 1);
        if (padding[i] < 0)
            return gd_caffe_cannot(c, "its padding has one more element at the end, and Caffe pads "
                                      "both sides alike");
    }
    gd_caffe_put_sizes(c, "kernel_size", axes, kernel, 0);
    gd_caffe_put_sizes(c, "stride", axes, stride, 1);
    gd_caffe_put_sizes(c, "pad", axes, padding, 0);
    gd_caffe_put_sizes(c, "dilation", axes, dilation, 1);
    return GD_OK;
}

static gd_status save(gd_caffe_call *c, bool transposed) {
    const gd_slot *w = &c->in[1];
    const int axes = w->rank - 2;
    const int64_t groups = (int64_t)gd_caffe_option(c, "groups");
    const bool has_bias = c->n_in > 2 && c->in[2].present;
    if (c->in[0].rank != axes + 2)
        return gd_caffe_cannot(c, "its input has %d axes; Caffe's has a batch, %d", c->in[0].rank,
                               axes + 2);
    gd_caffe_out(c, transposed ? "Deconvolution" : "Convolution", gd_caffe_bottom(c, 0),
                 gd_caffe_top(c, 0));
    c->options = gd_caffe_message_of("Convolution");
    gd_caffe_put_int(c, "num_output", transposed ? w->dims[1] * groups : w->dims[0]);
    gd_caffe_put_int(c, "bias_term", has_bias);
    gd_caffe_put_int(c, "group", groups);
    GD_TRY(save_windows(c, axes));
    GD_TRY(gd_caffe_put_weight(c, gd_caffe_constant(c, 1)));
    return has_bias ? gd_caffe_put_weight(c, gd_caffe_constant(c, 2)) : GD_OK;
}

gd_status gd_caffe_save_convolution(gd_caffe_call *c) { return save(c, false); }

gd_status gd_caffe_save_deconvolution(gd_caffe_call *c) {
    int64_t more[3];
    const int count = gd_caffe_option_list(c, "output_padding", more);
    for (int i = 0; i < count; i++)
        if (more[i] != 0)
            return gd_caffe_cannot(c, "its output_padding is %lld, and Caffe has none",
                                   (long long)more[i]);
    return save(c, true);
}
