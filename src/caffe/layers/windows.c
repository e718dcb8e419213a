/* windows.c - reads the windows of convolutions, and brings tensors into the form that ops take. */
#include "caffe/layers/windows.h"

#include <stdio.h>
#include <string.h>

enum { AXES = GD_CAFFE_WINDOW_AXES };

/* --- fields ----------------------------------------------------------------------------------- */

static const gd_pb_list *list_of(const gd_caffe_layer *l, const char *field, size_t *count) {
    char path[80];
    snprintf(path, sizeof path, "convolution_param.%s", field);
    const gd_pb_list *list = gd_pb_list_of(l->message, path);
    *count = list ? list->count : 0;
    return list;
}

/* Two fields, such as kernel_h and kernel_w, in the place of a list. */
static gd_status read_pair(const gd_caffe_layer *l, const gd_caffe_windows *w, const char *list,
                           const char *stem, size_t count, int64_t *to) {
    static const char *const sides[] = {"h", "w"};
    if (count > 0)
        return gd_caffe_fail(l, "it has %s and %s_h or %s_w; it can have one of both forms", list,
                             stem, stem);
    if (w->axes != 2)
        return gd_caffe_fail(l, "%s_h and %s_w are for 2 spatial axes; its bottom has %d", stem,
                             stem, w->axes);
    for (int i = 0; i < 2; i++) {
        char path[80];
        snprintf(path, sizeof path, "convolution_param.%s_%s", stem, sides[i]);
        if (gd_pb_has(l->message, path)) to[i] = gd_pb_int_of(l->message, path);
    }
    return GD_OK;
}

/* The numbers of a list, one for each axis, or one for all axes. */
static gd_status read_sizes(const gd_caffe_layer *l, const gd_caffe_windows *w, const char *list,
                            const char *stem, int64_t by_default, int64_t *to) {
    char h[80], v[80];
    size_t count;
    const gd_pb_list *given = list_of(l, list, &count);
    for (int i = 0; i < AXES; i++) to[i] = by_default;
    snprintf(h, sizeof h, "convolution_param.%s_h", stem);
    snprintf(v, sizeof v, "convolution_param.%s_w", stem);
    if (gd_pb_has(l->message, h) || gd_pb_has(l->message, v))
        return read_pair(l, w, list, stem, count, to);
    if (count > 1 && count != (size_t)w->axes)
        return gd_caffe_fail(l, "%s has %zu numbers; it takes one, or one for each of %d axes",
                             list, count, w->axes);
    for (int i = 0; i < AXES && count > 0; i++)
        to[i] = given->ints[count == 1 ? 0 : (size_t)i < count ? (size_t)i : count - 1];
    return GD_OK;
}

static gd_status check_sizes(const gd_caffe_layer *l, const gd_caffe_windows *w) {
    for (int i = 0; i < w->axes; i++) {
        if (w->kernel[i] < 1)
            return gd_caffe_fail(l, "it has no kernel_size, or a kernel of size 0");
        if (w->stride[i] < 1 || w->dilation[i] < 1)
            return gd_caffe_fail(l, "stride and dilation must be at least 1");
        if (w->kernel[i] > INT32_MAX || w->stride[i] > INT32_MAX || w->pad[i] > INT32_MAX ||
            w->dilation[i] > INT32_MAX)
            return gd_caffe_fail(l, "kernel, stride, pad and dilation must be at most %d",
                                 INT32_MAX);
    }
    return GD_OK;
}

gd_status gd_caffe_read_windows(const gd_caffe_layer *l, gd_caffe_windows *w) {
    GD_TRY(gd_caffe_axis(l, "convolution_param.axis", &w->axis));
    w->axes = l->bottoms[0].rank - w->axis - 1;
    if (w->axes > AXES)
        return gd_caffe_fail(l, "its bottom has %d axes after the channels; there can be %d",
                             w->axes, AXES);
    GD_TRY(read_sizes(l, w, "kernel_size", "kernel", w->axes > 0 ? 0 : 1, w->kernel));
    GD_TRY(read_sizes(l, w, "stride", "stride", 1, w->stride));
    GD_TRY(read_sizes(l, w, "pad", "pad", 0, w->pad));
    GD_TRY(read_sizes(l, w, "dilation", "dilation", 1, w->dilation));
    GD_TRY(check_sizes(l, w));
    for (int i = 1; i < l->n_bottoms; i++)
        if (l->bottoms[i].rank != l->bottoms[0].rank ||
            memcmp(l->bottoms[i].at, l->bottoms[0].at,
                   (size_t)l->bottoms[0].rank * sizeof *l->bottoms[0].at) != 0)
            return gd_caffe_fail(l, "its bottoms 0 and %d have different shapes", i);
    return GD_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

/* Caffe divides (size + 2 pad - window) by the stride without regard to the sign: a window that is a
 * little too large counts. The zeros that it needs after the end. */
static int64_t missing_at_end(const gd_caffe_windows *w, int i, int64_t size) {
    const int64_t room = size + 2 * w->pad[i] - w->dilation[i] * (w->kernel[i] - 1) - 1;
    return room < 0 && -room < w->stride[i] ? -room : 0;
}

gd_tensor *gd_caffe_windows_in(const gd_caffe_windows *w, gd_tensor *x, bool pads_end) {
    const gd_shape dims = gd_tensor_shape(x);
    gd_shape ends = {.rank = 2 * w->axes, .form = 1};
    bool missing = false;
    if (w->axis == 0) x = gd_unsqueeze(x, 0);
    if (w->axis > 1) x = gd_flatten(x, .start_axis = 0, .end_axis = w->axis - 1);
    if (w->axes == 0) x = gd_unsqueeze(x, -1);
    for (int i = 0; i < w->axes && pads_end; i++) {
        int64_t *end = &ends.at[2 * (w->axes - 1 - i) + 1]; /* the last axis comes first */
        *end = missing_at_end(w, i, dims.at[w->axis + 1 + i]);
        missing |= *end > 0;
    }
    return missing ? gd_pad(x, ends) : x;
}

gd_tensor *gd_caffe_windows_out(const gd_caffe_windows *w, gd_tensor *y, gd_tensor *x) {
    if (w->axes == 0) y = gd_squeeze(y, .axis = gd_dims(-1));
    if (w->axis == 0) return gd_squeeze(y, .axis = gd_dims(0));
    if (w->axis == 1 || gd_tensor_is_error(y)) return y;
    gd_shape to = gd_tensor_shape(x);
    to.rank = w->axis;
    for (int i = 1; i < gd_tensor_rank(y); i++) to.at[to.rank++] = gd_tensor_dim(y, i);
    return gd_reshape(y, to);
}
