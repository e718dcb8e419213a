/* window.c - Conv, MaxPool, AveragePool and ConvTranspose with padding for which the ops have no
 * option: it differs between the two sides of an axis, or keeps sizes (auto_pad). The input is
 * padded first; the result of a ConvTranspose is sliced. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"

enum { AXES = 3 }; /* at most */

/* The windows of a node over its n spatial axes. */
typedef struct window {
    int n;
    int64_t kernel[AXES], stride[AXES], dilation[AXES];
    int64_t before[AXES], after[AXES]; /* the padding */
} window;

/* The padding for ceil(size / stride) windows. If it is odd, SAME_UPPER puts the larger half
 * behind, SAME_LOWER before. */
static gd_status same_padding(const gd_tensor *x, window *w, int axis, bool upper) {
    const int64_t size = x->dims[2 + axis], wide = w->dilation[axis] * (w->kernel[axis] - 1),
                  stride = w->stride[axis];
    int64_t total = wide + 1 - stride; /* if the size is a multiple of the stride */
    if (size == GD_UNKNOWN && stride != 1)
        return gd_fail(GD_E_UNSUPPORTED,
                       "its auto_pad depends on size %d of its input, which is known only when the "
                       "graph runs",
                       2 + axis);
    if (size != GD_UNKNOWN) total = ((size + stride - 1) / stride - 1) * stride + wide + 1 - size;
    if (total < 0) total = 0;
    w->before[axis] = upper ? total / 2 : total - total / 2;
    w->after[axis] = total - w->before[axis];
    return GD_OK;
}

static gd_status read_window(gd_onnx_loader *l, const gd_pb *node, const gd_tensor *x, window *w) {
    gd_status status = GD_OK;
    int64_t pads[2 * AXES];
    w->n = x->rank - 2;
    const gd_tensor *weight = strncmp(gd_pb_string(node, "op_type"), "Conv", 4) == 0
                                  ? gd_onnx_get_input(l, node, 1, &status)
                                  : NULL;
    GD_TRY(status);
    GD_TRY(gd_onnx_ints_attribute(node, "kernel_shape", w->n, 1, w->kernel));
    for (int i = 0; weight && weight->rank == x->rank && i < w->n; i++)
        w->kernel[i] = weight->dims[2 + i];
    GD_TRY(gd_onnx_ints_attribute(node, "strides", w->n, 1, w->stride));
    GD_TRY(gd_onnx_ints_attribute(node, "dilations", w->n, 1, w->dilation));
    GD_TRY(gd_onnx_ints_attribute(node, "pads", 2 * w->n, 0, pads));
    memcpy(w->before, pads, (size_t)w->n * sizeof *pads);
    memcpy(w->after, pads + w->n, (size_t)w->n * sizeof *pads);
    for (int i = 0; i < w->n; i++)
        if (w->kernel[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || w->before[i] < 0 ||
            w->after[i] < 0 || w->kernel[i] > INT32_MAX || w->stride[i] > INT32_MAX ||
            w->dilation[i] > INT32_MAX || w->before[i] > INT32_MAX || w->after[i] > INT32_MAX)
            return gd_fail(GD_E_FORMAT, "its kernel, strides, dilations or pads are out of range");
    return GD_OK;
}

/* The padding of a node. *symmetric: the op has an option for it. */
static gd_status read_padding(gd_onnx_loader *l, const gd_pb *node, const gd_tensor *x, window *w,
                              bool *symmetric) {
    const bool upper = gd_onnx_attribute_is(node, "auto_pad", "NOTSET", "SAME_UPPER"),
               lower = gd_onnx_attribute_is(node, "auto_pad", "NOTSET", "SAME_LOWER");
    GD_TRY(read_window(l, node, x, w));
    *symmetric = !upper && !lower;
    for (int i = 0; i < w->n; i++) {
        if (upper || lower) GD_TRY(same_padding(x, w, i, upper));
        *symmetric = *symmetric && w->before[i] == w->after[i];
    }
    return GD_OK;
}

/* Pads x with `value`. */
static gd_tensor *pad_by_window(gd_tensor *x, const window *w, double value) {
    int64_t sides[2 * AXES];
    bool none = true;
    for (int i = 0; i < w->n; i++) { /* the op pad starts with the last axis */
        sides[2 * i] = w->before[w->n - 1 - i];
        sides[2 * i + 1] = w->after[w->n - 1 - i];
        none = none && sides[2 * i] == 0 && sides[2 * i + 1] == 0;
    }
    return none ? x : gd_pad(x, gd_shape_of(2 * w->n, sides), .value = value);
}

static bool has_spatial_axes(const gd_tensor *x) { return x->rank >= 3 && x->rank <= 2 + AXES; }

gd_status gd_onnx_pad_input(gd_onnx_loader *l, const gd_pb *node, gd_tensor **padded) {
    const char *type = gd_pb_string(node, "op_type");
    const bool conv = strcmp(type, "Conv") == 0, max = strcmp(type, "MaxPool") == 0;
    window w = {0};
    gd_status status;
    bool symmetric;
    *padded = NULL;
    if (!conv && !max) return GD_OK;
    gd_tensor *x = gd_onnx_get_input(l, node, 0, &status);
    GD_TRY(status);
    if (!x || !has_spatial_axes(x)) return GD_OK; /* the rows report it */
    GD_TRY(read_padding(l, node, x, &w, &symmetric));
    if (symmetric) return GD_OK;
    const double least = x->dtype == GD_U8 ? 0 : x->dtype == GD_I8 ? -128 : -INFINITY;
    *padded = pad_by_window(x, &w, max ? least : 0);
    return (*padded)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* Calls NAME1d, NAME2d or NAME3d with the options of the node; without `pads`: all but the
 * padding. */
static gd_status call_window_op(const gd_pb *node, const char *name, const window *w, bool pads,
                                gd_tensors in, gd_tensor **y) {
    char text[64];
    snprintf(text, sizeof text, "%s%dd", name, w->n);
    const gd_op *op = gd_op_find(text);
    gd_attrs *attrs = gd_attrs_new(op);
    if (!attrs) return GD_E_MEMORY;
    GD_TRY(gd_onnx_read_row_options(node, text, attrs, pads));
    gd_tensors out = gd_op_call(op, in, attrs);
    if (out.count < 1) return gd_failure();
    *y = out.at[0];
    return GD_OK;
}

/* With count_include_pad 0, the average over the padded input is divided by the average over ones
 * padded in the same way. */
gd_status gd_onnx_load_average_pool(gd_onnx_loader *l, const gd_pb *node) {
    int64_t counts;
    window w = {0};
    bool symmetric, dilated = false, none = true;
    gd_tensor *y, *share;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    if (!has_spatial_axes(x))
        return gd_fail(GD_E_UNSUPPORTED, "its input has %d dimensions; from 3 to %d are supported",
                       x->rank, 2 + AXES);
    GD_TRY(gd_onnx_int_attribute(node, "count_include_pad", 0, &counts));
    GD_TRY(read_padding(l, node, x, &w, &symmetric));
    for (int i = 0; i < w.n; i++) {
        dilated = dilated || w.dilation[i] != 1;
        none = none && w.before[i] == 0 && w.after[i] == 0;
    }
    if (dilated) return gd_fail(GD_E_UNSUPPORTED, "its dilations must be 1 here");
    if (symmetric) {
        GD_TRY(call_window_op(node, "avg_pool", &w, true, gd_list(x), &y));
        return gd_onnx_set_output(l, node, 0, y);
    }
    GD_TRY(call_window_op(node, "avg_pool", &w, false, gd_list(pad_by_window(x, &w, 0)), &y));
    if (!counts && !none) {
        gd_tensor *ones = gd_ones_like(gd_narrow(gd_narrow(x, 0, 0, 1), 1, 0, 1));
        GD_TRY(call_window_op(node, "avg_pool", &w, false, gd_list(pad_by_window(ones, &w, 0)),
                              &share));
        y = gd_div(y, share);
    }
    return gd_onnx_set_output(l, node, 0, y);
}

/* --- ConvTranspose ---------------------------------------------------------------------------- */

/* The elements to remove from both ends of each axis, so that the result has the sizes of
 * output_shape or auto_pad. If they are odd, SAME_UPPER removes more at the end, others at the
 * beginning. */
static gd_status read_output_crop(const gd_pb *node, const gd_tensor *x, window *w) {
    const gd_pb_list *output_shape =
        gd_pb_get(gd_onnx_find_attribute(node, "output_shape"), "ints");
    const bool upper = gd_onnx_attribute_is(node, "auto_pad", "NOTSET", "SAME_UPPER"),
               same = upper || gd_onnx_attribute_is(node, "auto_pad", "NOTSET", "SAME_LOWER");
    int64_t output_padding[AXES];
    if (!output_shape && !same) return GD_OK;
    GD_TRY(gd_onnx_ints_attribute(node, "output_padding", w->n, 0, output_padding));
    if (output_shape && output_shape->count != (size_t)w->n &&
        output_shape->count != (size_t)w->n + 2)
        return gd_fail(GD_E_FORMAT, "its output_shape has %zu numbers, and should have %d",
                       output_shape->count, w->n);
    for (int i = 0; i < w->n; i++) {
        const int64_t size = x->dims[2 + i], wide = w->dilation[i] * (w->kernel[i] - 1) + 1;
        int64_t total = wide + output_padding[i] - w->stride[i]; /* beyond size * stride */
        if (output_shape && size == GD_UNKNOWN)
            return gd_fail(GD_E_UNSUPPORTED,
                           "its output_shape is supported only if size %d of its input is known",
                           2 + i);
        if (output_shape) {
            const int64_t result = output_shape->ints[output_shape->count - (size_t)(w->n - i)];
            if (size > INT32_MAX || result < 0 || result > (int64_t)1 << 40)
                return gd_fail(GD_E_FORMAT, "its output_shape is out of range");
            total += size * w->stride[i] - result;
        }
        if (total < 0)
            return gd_fail(GD_E_UNSUPPORTED,
                           "its output_shape has %lld elements more along axis %d than the result",
                           (long long)-total, 2 + i);
        w->before[i] = upper ? total / 2 : total - total / 2;
        w->after[i] = total - w->before[i];
    }
    return GD_OK;
}

gd_status gd_onnx_load_conv_transpose(gd_onnx_loader *l, const gd_pb *node) {
    window w = {0};
    gd_tensor *y;
    bool symmetric = true;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_ONNX_REQUIRE_INPUT(weight, 1);
    GD_ONNX_OPTIONAL_INPUT(b, 2);
    if (!has_spatial_axes(x) || weight->rank != x->rank)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "its input and its weight have %d and %d dimensions; from 3 to %d are supported",
            x->rank, weight->rank, 2 + AXES);
    GD_TRY(read_window(l, node, x, &w));
    if (gd_onnx_attribute_is(node, "auto_pad", "NOTSET", "VALID"))
        for (int i = 0; i < w.n; i++) w.before[i] = w.after[i] = 0;
    GD_TRY(read_output_crop(node, x, &w));
    symmetric = !gd_onnx_find_attribute(node, "output_shape") &&
                gd_onnx_attribute_is(node, "auto_pad", "NOTSET", "NOTSET");
    for (int i = 0; i < w.n; i++) symmetric = symmetric && w.before[i] == w.after[i];
    gd_tensor *in[] = {x, weight, b};
    GD_TRY(call_window_op(node, "conv_transpose", &w, symmetric, (gd_tensors){in, 3}, &y));
    for (int i = 0; i < w.n && !symmetric; i++)
        if (w.before[i] || w.after[i])
            y = gd_slice(y, .axis = 2 + i, .start = w.before[i],
                         .stop = w.after[i] ? -w.after[i] : GD_END);
    return gd_onnx_set_output(l, node, 0, y);
}
