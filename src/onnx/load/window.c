/* window.c - borders of Conv, ConvTranspose, MaxPool and AveragePool that our ops have no
 * option for: a border is put around the input first, or cut off the result. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradus/ops.h"
#include "onnx/load/load.h"

enum { AXES = 3 };

typedef struct window {
    int n; /* axes */
    int64_t kernel[AXES], stride[AXES], dilation[AXES];
    int64_t before[AXES], after[AXES]; /* of the border */
} window;

/* A list of as many numbers as there are axes, or twice as many; `otherwise` where it is not given.
 */
static gd_status read_list(const gd_pb *node, const char *name, int count, int64_t otherwise,
                           int64_t *numbers) {
    const gd_pb_list *list = gd_pb_get(gd_onnx_attribute_of(node, name), "ints");
    for (int i = 0; i < count; i++) numbers[i] = otherwise;
    if (!list) return GD_OK;
    if (list->count != (size_t)count)
        return gd_fail(GD_E_FORMAT, "its attribute '%s' has %zu numbers, and should have %d", name,
                       list->count, count);
    memcpy(numbers, list->ints, (size_t)count * sizeof *numbers);
    return GD_OK;
}

/* As much as there must be for ceil(size / stride) windows; what is odd is behind, or before. */
static gd_status same_border(const gd_tensor *x, window *w, int axis, bool upper) {
    const int64_t size = x->dims[2 + axis], wide = w->dilation[axis] * (w->kernel[axis] - 1),
                  stride = w->stride[axis];
    int64_t all = wide + 1 - stride; /* where the size is a multiple of the stride */
    if (size == GD_UNKNOWN && stride != 1)
        return gd_fail(GD_E_UNSUPPORTED,
                       "its auto_pad depends on size %d of its input, which is known only when the "
                       "graph runs",
                       2 + axis);
    if (size != GD_UNKNOWN) all = ((size + stride - 1) / stride - 1) * stride + wide + 1 - size;
    if (all < 0) all = 0;
    w->before[axis] = upper ? all / 2 : all - all / 2;
    w->after[axis] = all - w->before[axis];
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
    GD_TRY(read_list(node, "kernel_shape", w->n, 1, w->kernel));
    for (int i = 0; weight && weight->rank == x->rank && i < w->n; i++)
        w->kernel[i] = weight->dims[2 + i];
    GD_TRY(read_list(node, "strides", w->n, 1, w->stride));
    GD_TRY(read_list(node, "dilations", w->n, 1, w->dilation));
    GD_TRY(read_list(node, "pads", 2 * w->n, 0, pads));
    memcpy(w->before, pads, (size_t)w->n * sizeof *pads);
    memcpy(w->after, pads + w->n, (size_t)w->n * sizeof *pads);
    for (int i = 0; i < w->n; i++)
        if (w->kernel[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || w->before[i] < 0 ||
            w->after[i] < 0 || w->kernel[i] > INT32_MAX || w->stride[i] > INT32_MAX ||
            w->dilation[i] > INT32_MAX || w->before[i] > INT32_MAX || w->after[i] > INT32_MAX)
            return gd_fail(GD_E_FORMAT, "its kernel, strides, dilations or pads are out of range");
    return GD_OK;
}

/* The border that a node asks for; *plain: it is the same on both sides. */
static gd_status find_border(gd_onnx_loader *l, const gd_pb *node, const gd_tensor *x, window *w,
                             bool *plain) {
    const bool upper = gd_onnx_word_is(node, "auto_pad", "NOTSET", "SAME_UPPER"),
               lower = gd_onnx_word_is(node, "auto_pad", "NOTSET", "SAME_LOWER");
    GD_TRY(read_window(l, node, x, w));
    *plain = !upper && !lower;
    for (int i = 0; i < w->n; i++) {
        if (upper || lower) GD_TRY(same_border(x, w, i, upper));
        *plain = *plain && w->before[i] == w->after[i];
    }
    return GD_OK;
}

/* x with the border around it, of elements that are `value`. */
static gd_tensor *with_border(gd_tensor *x, const window *w, double value) {
    int64_t sides[2 * AXES];
    bool none = true;
    for (int i = 0; i < w->n; i++) { /* ours begin with the last axis */
        sides[2 * i] = w->before[w->n - 1 - i];
        sides[2 * i + 1] = w->after[w->n - 1 - i];
        none = none && sides[2 * i] == 0 && sides[2 * i + 1] == 0;
    }
    return none ? x : gd_pad(x, gd_shape_of(2 * w->n, sides), .value = value);
}

static bool has_windows(const gd_tensor *x) { return x->rank >= 3 && x->rank <= 2 + AXES; }

gd_status gd_onnx_pad_windows(gd_onnx_loader *l, const gd_pb *node, gd_tensor **padded) {
    const char *type = gd_pb_string(node, "op_type");
    const bool conv = strcmp(type, "Conv") == 0, max = strcmp(type, "MaxPool") == 0;
    window w = {0};
    gd_status status;
    bool plain;
    *padded = NULL;
    if (!conv && !max) return GD_OK;
    gd_tensor *x = gd_onnx_get_input(l, node, 0, &status);
    GD_TRY(status);
    if (!x || !has_windows(x)) return GD_OK; /* for the rows to say */
    GD_TRY(find_border(l, node, x, &w, &plain));
    if (plain) return GD_OK;
    const bool whole = !gd_dtype_is_float((gd_dtype)x->dtype);
    const double least = x->dtype == GD_U8 ? 0 : x->dtype == GD_I8 ? -128 : -INFINITY;
    *padded = with_border(x, &w, !max ? 0 : whole ? least : -INFINITY);
    return (*padded)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* An op of so many axes, with the options of the node; `borders` false: all but those. */
static gd_status call(const gd_pb *node, const char *name, const window *w, bool borders,
                      gd_tensors in, gd_tensor **y) {
    char text[64];
    snprintf(text, sizeof text, "%s%dd", name, w->n);
    const gd_op *op = gd_op_find(text);
    gd_attrs *attrs = gd_attrs_new(op);
    if (!attrs) return GD_E_MEMORY;
    GD_TRY(gd_onnx_row_options(node, text, attrs, borders));
    gd_tensors out = gd_op_call(op, in, attrs);
    if (out.count < 1) return gd_failure();
    *y = out.at[0];
    return GD_OK;
}

/* A border that does not count is divided out again: by the average of ones with zeros around them.
 */
gd_status gd_onnx_load_average_pool(gd_onnx_loader *l, const gd_pb *node) {
    int64_t counts;
    window w = {0};
    bool plain, gaps = false, none = true;
    gd_tensor *y, *part;
    GD_ONNX_NEED(x, 0);
    if (!has_windows(x))
        return gd_fail(GD_E_UNSUPPORTED, "its input has %d dimensions; possible are 3 to %d",
                       x->rank, 2 + AXES);
    GD_TRY(gd_onnx_int_attribute(node, "count_include_pad", 0, &counts));
    GD_TRY(find_border(l, node, x, &w, &plain));
    for (int i = 0; i < w.n; i++) {
        gaps = gaps || w.dilation[i] != 1;
        none = none && w.before[i] == 0 && w.after[i] == 0;
    }
    if (gaps) return gd_fail(GD_E_UNSUPPORTED, "its dilations must be 1 here");
    if (plain) {
        GD_TRY(call(node, "avg_pool", &w, true, gd_list(x), &y));
        return gd_onnx_set_output(l, node, 0, y);
    }
    GD_TRY(call(node, "avg_pool", &w, false, gd_list(with_border(x, &w, 0)), &y));
    if (!counts && !none) {
        gd_tensor *ones = gd_ones_like(gd_narrow(gd_narrow(x, 0, 0, 1), 1, 0, 1));
        GD_TRY(call(node, "avg_pool", &w, false, gd_list(with_border(ones, &w, 0)), &part));
        y = gd_div(y, part);
    }
    return gd_onnx_set_output(l, node, 0, y);
}

/* --- ConvTranspose ---------------------------------------------------------------------------- */

/* What is cut off a result, so that it has the sizes that the node asks for. What is odd goes
 * first, or last for SAME_UPPER. */
static gd_status cut_to_sizes(const gd_pb *node, const gd_tensor *x, window *w) {
    const gd_pb_list *wanted = gd_pb_get(gd_onnx_attribute_of(node, "output_shape"), "ints");
    const bool upper = gd_onnx_word_is(node, "auto_pad", "NOTSET", "SAME_UPPER"),
               same = upper || gd_onnx_word_is(node, "auto_pad", "NOTSET", "SAME_LOWER");
    int64_t more[AXES];
    if (!wanted && !same) return GD_OK;
    GD_TRY(read_list(node, "output_padding", w->n, 0, more));
    if (wanted && wanted->count != (size_t)w->n && wanted->count != (size_t)w->n + 2)
        return gd_fail(GD_E_FORMAT, "its output_shape has %zu numbers, and should have %d",
                       wanted->count, w->n);
    for (int i = 0; i < w->n; i++) {
        const int64_t size = x->dims[2 + i], wide = w->dilation[i] * (w->kernel[i] - 1) + 1;
        int64_t all = wide + more[i] - w->stride[i]; /* beyond size * stride */
        if (wanted && size == GD_UNKNOWN)
            return gd_fail(GD_E_UNSUPPORTED,
                           "its output_shape is possible where size %d of its input is known",
                           2 + i);
        if (wanted) {
            const int64_t to = wanted->ints[wanted->count - (size_t)(w->n - i)];
            if (size > INT32_MAX || to < 0 || to > (int64_t)1 << 40)
                return gd_fail(GD_E_FORMAT, "its output_shape is out of range");
            all += size * w->stride[i] - to;
        }
        if (all < 0)
            return gd_fail(GD_E_UNSUPPORTED,
                           "it asks for %lld more elements along axis %d than come out",
                           (long long)-all, 2 + i);
        w->before[i] = upper ? all / 2 : all - all / 2;
        w->after[i] = all - w->before[i];
    }
    return GD_OK;
}

gd_status gd_onnx_load_conv_transpose(gd_onnx_loader *l, const gd_pb *node) {
    window w = {0};
    gd_status status;
    gd_tensor *y;
    bool plain = true;
    GD_ONNX_NEED(x, 0);
    GD_ONNX_NEED(weight, 1);
    gd_tensor *b = gd_onnx_get_input(l, node, 2, &status);
    GD_TRY(status);
    if (!has_windows(x) || weight->rank != x->rank)
        return gd_fail(GD_E_UNSUPPORTED,
                       "its input and its weight have %d and %d dimensions; possible are 3 to %d",
                       x->rank, weight->rank, 2 + AXES);
    GD_TRY(read_window(l, node, x, &w));
    if (gd_onnx_word_is(node, "auto_pad", "NOTSET", "VALID"))
        for (int i = 0; i < w.n; i++) w.before[i] = w.after[i] = 0;
    GD_TRY(cut_to_sizes(node, x, &w));
    plain = !gd_onnx_attribute_of(node, "output_shape") &&
            gd_onnx_word_is(node, "auto_pad", "NOTSET", "NOTSET");
    for (int i = 0; i < w.n; i++) plain = plain && w.before[i] == w.after[i];
    gd_tensor *in[] = {x, weight, b};
    GD_TRY(call(node, "conv_transpose", &w, plain, (gd_tensors){in, 3}, &y));
    for (int i = 0; i < w.n && !plain; i++)
        if (w.before[i] || w.after[i])
            y = gd_slice(y, .axis = 2 + i, .start = w.before[i],
                         .stop = w.after[i] ? -w.after[i] : GD_END);
    return gd_onnx_set_output(l, node, 0, y);
}
