/* attribute.c - writes attributes of nodes, and converts lists of integers to ONNX's form. */
#include <math.h>
#include <string.h>

#include "onnx/save/save.h"

/* AttributeProto.AttributeType */
enum { FLOAT = 1, INT = 2, STRING = 3, TENSOR = 4, GRAPH = 5, INTS = 7, STRINGS = 8 };

static gd_pb *put_attribute(gd_pb *node, const char *name, int type) {
    gd_pb *a = gd_pb_put_message(node, "attribute");
    gd_pb_put_string(a, "name", name);
    gd_pb_put_int(a, "type", type);
    return a;
}

void gd_onnx_put_int(gd_pb *node, const char *name, int64_t value) {
    gd_pb_put_int(put_attribute(node, name, INT), "i", value);
}

void gd_onnx_put_float(gd_pb *node, const char *name, double value) {
    gd_pb_put_float(put_attribute(node, name, FLOAT), "f", value);
}

void gd_onnx_put_ints(gd_pb *node, const char *name, int count, const int64_t *values) {
    gd_pb *a = put_attribute(node, name, INTS);
    for (int i = 0; i < count; i++) gd_pb_put_int(a, "ints", values[i]);
}

void gd_onnx_put_string(gd_pb *node, const char *name, const char *value) {
    gd_pb_put_string(put_attribute(node, name, STRING), "s", value);
}

void gd_onnx_put_strings(gd_pb *node, const char *name, int count, const char *const *values) {
    gd_pb *a = put_attribute(node, name, STRINGS);
    for (int i = 0; i < count; i++) gd_pb_put_string(a, "strings", values[i]);
}

gd_pb *gd_onnx_put_subgraph(gd_pb *node, const char *name) {
    return gd_pb_put_message(put_attribute(node, name, GRAPH), "g");
}

void gd_onnx_put_double(gd_pb *node, const char *name, double value) {
    gd_pb *t = gd_pb_put_message(put_attribute(node, name, TENSOR), "t");
    gd_pb_put_int(t, "data_type", gd_onnx_type_of(GD_F64));
    gd_pb_put_float(t, "double_data", value);
}

/* --- conversions of lists --------------------------------------------------------------------- */

/* Whether a slice has a negative step. */
static bool has_negative_step(const gd_onnx_call *c) {
    const gd_op_attr *step = gd_onnx_find_option(c->op, "step");
    int64_t value = 1;
    return step && gd_onnx_option_numbers(step, c->attrs, &value) == 1 && value < 0;
}

/* From the op's padding, (left, right) of the last axis, then of the one before it, to ONNX's pads:
 * all lefts, then all rights. */
static int convert_padding(int rank, int count, int64_t *numbers) {
    int64_t pads[2 * GD_MAX_RANK] = {0};
    for (int k = 0; k + 1 < count && k / 2 < rank; k += 2) {
        pads[rank - 1 - k / 2] = numbers[k];
        pads[2 * rank - 1 - k / 2] = numbers[k + 1];
    }
    memcpy(numbers, pads, sizeof *pads * 2 * (size_t)rank);
    return 2 * rank;
}

int gd_onnx_convert_list(const gd_onnx_call *c, const char *conversion, const gd_op_attr *attr,
                         int64_t *numbers) {
    int count = gd_onnx_option_numbers(attr, c->attrs, numbers);
    if (strcmp(conversion, "broadcast") == 0) { /* a size that is kept is 1 in ONNX */
        for (int i = 0; i < count; i++)
            if (numbers[i] < 0) numbers[i] = 1;
    } else if (strcmp(conversion, "first") == 0 && count < 0) { /* default of start */
        numbers[0] = has_negative_step(c) ? INT64_MAX : 0;
        count = 1;
    } else if (strcmp(conversion, "last") == 0 && count < 0) { /* default of stop */
        numbers[0] = has_negative_step(c) ? INT64_MIN : INT64_MAX;
        count = 1;
    } else if (strcmp(conversion, "output_sizes") == 0) { /* of a split */
        int64_t axis = 0;
        gd_onnx_option_numbers(gd_onnx_find_option(c->op, "axis"), c->attrs, &axis);
        count = c->n_out < GD_ONNX_MAX_NUMBERS ? c->n_out : GD_ONNX_MAX_NUMBERS;
        for (int k = 0; k < count; k++)
            numbers[k] = c->out[k].dims[gd_onnx_nonnegative_axis(axis, c->out[k].rank)];
    } else if (strcmp(conversion, "pads") == 0) {
        count = convert_padding(c->in[0].rank, count, numbers);
    } else if (strcmp(conversion, "same_pads") ==
               0) { /* of an odd total, the larger half is behind */
        int64_t dilation[GD_MAX_RANK];
        count = gd_onnx_option_numbers(gd_onnx_find_option(c->op, "dilation"), c->attrs, dilation);
        for (int i = 0; i < count; i++) {
            const int64_t wide = dilation[i] * (c->in[1].dims[2 + i] - 1);
            numbers[i] = wide / 2;
            numbers[count + i] = wide - wide / 2;
        }
        count *= 2;
    } else if (strcmp(conversion, "nonnegative") == 0) { /* axes */
        for (int i = 0; i < count; i++)
            numbers[i] = gd_onnx_nonnegative_axis(numbers[i], c->in[0].rank);
    } else if (strcmp(conversion, "trailing_axes") == 0) { /* as the first of them, negative */
        numbers[0] = -(int64_t)(count >= 0                        ? count
                                : c->n_in > 1 && c->in[1].present ? c->in[1].rank
                                                                  : 1);
        count = 1;
    }
    return count;
}
