/* convolution.c - Convolution and Deconvolution over one to three axes, of several bottoms with the same
 * weights. */
#include <string.h>

#include "caffe/layers/windows.h"
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
