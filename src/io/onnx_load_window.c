/* onnx_load_window.c - borders of Conv, MaxPool and AveragePool that our ops have no option for: a
 * border is put around the input first. */
#include <math.h>
#include <string.h>

#include "gradus/ops.h"
#include "io/onnx.h"

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

static bool word_is(const gd_pb *node, const char *name, const char *word) {
    const gd_pb_list *s = gd_pb_get(gd_onnx_attribute_of(node, name), "s");
    return s && s->bytes[0].length == strlen(word) &&
           memcmp(s->bytes[0].data, word, strlen(word)) == 0;
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
    const gd_tensor *weight = strcmp(gd_pb_string(node, "op_type"), "Conv") == 0
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

gd_status gd_onnx_pad_windows(gd_onnx_loader *l, const gd_pb *node, gd_tensor **padded) {
    const char *type = gd_pb_string(node, "op_type");
    const bool conv = strcmp(type, "Conv") == 0, max = strcmp(type, "MaxPool") == 0,
               average = strcmp(type, "AveragePool") == 0;
    const bool upper = word_is(node, "auto_pad", "SAME_UPPER"),
               lower = word_is(node, "auto_pad", "SAME_LOWER");
    window w = {0};
    gd_status status;
    *padded = NULL;
    if (!conv && !max && !average) return GD_OK;
    gd_tensor *x = gd_onnx_get_input(l, node, 0, &status);
    GD_TRY(status);
    if (!x || x->rank < 3 || x->rank > 2 + AXES) return GD_OK; /* for the rows to say */
    GD_TRY(read_window(l, node, x, &w));
    bool plain = true;
    for (int i = 0; i < w.n; i++) {
        if (upper || lower) GD_TRY(same_border(x, &w, i, upper));
        plain = plain && w.before[i] == w.after[i];
    }
    if (plain && !upper && !lower) return GD_OK;
    int64_t counts = 0, sides[2 * AXES];
    if (average) GD_TRY(gd_onnx_int_attribute(node, "count_include_pad", 0, &counts));
    for (int i = 0; i < w.n; i++) { /* ours begin with the last axis */
        sides[2 * i] = w.before[w.n - 1 - i];
        sides[2 * i + 1] = w.after[w.n - 1 - i];
    }
    bool none = true;
    for (int i = 0; i < 2 * w.n; i++) none = none && sides[i] == 0;
    if (average && !counts && !none)
        return gd_fail(GD_E_UNSUPPORTED,
                       "an average that does not count a border, which differs between the sides "
                       "(count_include_pad 0), is not possible here");
    const bool whole = !gd_dtype_is_float((gd_dtype)x->dtype);
    const double least = x->dtype == GD_U8 ? 0 : x->dtype == GD_I8 ? -128 : -INFINITY;
    *padded = none ? x
                   : gd_pad(x, gd_shape_of(2 * w.n, sides),
                            .value = !max    ? 0
                                     : whole ? least
                                             : -INFINITY);
    return (*padded)->kind == GD_FAILED ? gd_failure() : GD_OK;
}
