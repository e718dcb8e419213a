/* size_list.c - saves Resize, and deferred calls (dispatch/deferred_call.h), whose lists of integers
 * depend on sizes and are tensors in ONNX. */
#include <math.h>

#include "core/number.h"
#include "gradus/ops.h"
#include "onnx/save/save.h"
#include "dispatch/deferred_call.h"

/* --- Resize ----------------------------------------------------------------------------------- */

static void put_resize_modes(gd_pb *node, bool linear, bool align_corners, bool first) {
    gd_onnx_put_string(node, "mode", linear ? "linear" : "nearest");
    gd_onnx_put_string(node, "coordinate_transformation_mode",
                       !linear         ? "asymmetric"
                       : align_corners ? "align_corners"
                       : first         ? "pytorch_half_pixel"
                                       : "half_pixel");
    if (!linear) gd_onnx_put_string(node, "nearest_mode", "floor");
}

/* Saves the factor if it is given, since positions of elements depend on it; else the sizes. */
gd_status gd_onnx_save_resize(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_resize_options *o = c->attrs;
    const gd_slot *x = &c->in[0];
    const bool linear = o->mode == GD_LINEAR, scaled = !isnan(o->scale);
    int64_t dims[GD_MAX_RANK];
    float scales[GD_MAX_RANK];
    const char *numbers;
    if (x->dtype == GD_BF16 || (linear && scaled && o->align_corners)) return GD_OK;
    if (scaled && x->dtype == GD_F64 && gd_float_shortest((float)o->scale) != o->scale)
        return GD_OK;
    for (int i = 0; i < x->rank; i++) {
        dims[i] = c->out[0].dims[i];
        scales[i] = i < 2 ? 1 : (float)o->scale;
        if (!scaled && dims[i] == GD_UNKNOWN && i >= 2) return GD_OK;
        /* ONNX's factors are f32: rounded, they must give the same size */
        if (scaled && x->dims[i] != GD_UNKNOWN &&
            (int64_t)floor((double)x->dims[i] * (double)scales[i]) != dims[i])
            return GD_OK;
    }
    const int64_t count = scaled ? x->rank : x->rank - 2, first = scaled ? 0 : 2;
    numbers = scaled ? gd_onnx_add_constant(s, c->label, GD_F32, 1, &count, scales)
                     : gd_onnx_add_constant(s, c->label, GD_I64, 1, &count, dims + first);
    if (!numbers) return GD_E_MEMORY;
    gd_pb *node = gd_onnx_add_node(s, "Resize", "", c->label);
    gd_pb_put_string(node, "input", c->in_names[0]);
    gd_pb_put_string(node, "input", "");
    if (!scaled) gd_pb_put_string(node, "input", "");
    gd_pb_put_string(node, "input", numbers);
    gd_pb_put_string(node, "output", c->out_names[0]);
    put_resize_modes(node, linear, o->align_corners, false);
    if (!scaled) { /* the batch and the channels are not resized */
        int64_t axes[GD_MAX_RANK];
        for (int i = 2; i < x->rank; i++) axes[i - 2] = i;
        gd_onnx_put_ints(node, "axes", x->rank - 2, axes);
    }
    *done = true;
    return GD_OK;
}

/* --- lists that depend on sizes --------------------------------------------------------------- */

gd_status gd_onnx_save_sizes_of(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    gd_onnx_put_unary(s, "Shape", c->in_names[0], c->out_names[0]);
    *done = true;
    return GD_OK;
}

/* The sizes are the fourth input of Resize. */
static gd_status save_deferred_resize(gd_onnx_saver *s, const gd_onnx_call *c) {
    const gd_deferred_call_options *o = c->attrs;
    const bool linear = o->mode == GD_LINEAR;
    gd_pb *node = gd_onnx_add_node(s, "Resize", "", c->label);
    const char *const in[] = {c->in_names[0], "", "", c->in_names[1]};
    for (int i = 0; i < 4; i++) gd_pb_put_string(node, "input", in[i]);
    gd_pb_put_string(node, "output", c->out_names[0]);
    put_resize_modes(node, linear, o->align_corners, o->first);
    return GD_OK;
}

static gd_status save_deferred_pad(gd_onnx_saver *s, const gd_onnx_call *c) {
    const gd_deferred_call_options *o = c->attrs;
    const char *value =
        gd_onnx_add_number(s, c->label, (gd_dtype)c->in[0].dtype, gd_number_of(o->value));
    if (!value) return GD_E_MEMORY;
    gd_pb *node = gd_onnx_add_node(s, "Pad", "", c->label);
    const char *const in[] = {c->in_names[0], c->in_names[1], value};
    for (int i = 0; i < 3; i++) gd_pb_put_string(node, "input", in[i]);
    gd_pb_put_string(node, "output", c->out_names[0]);
    gd_onnx_put_string(node, "mode",
                       o->mode == GD_REFLECT     ? "reflect"
                       : o->mode == GD_REPLICATE ? "edge"
                       : o->mode == GD_CIRCULAR  ? "wrap"
                                                 : "constant");
    return GD_OK;
}

/* The node has the same inputs as the op deferred_call. */
gd_status gd_onnx_save_deferred(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    static const char *const operators[GD_DEFERRED_KINDS] = {
        [GD_DEFERRED_RESHAPE] = "Reshape", [GD_DEFERRED_EXPAND] = "Expand",
        [GD_DEFERRED_SLICE] = "Slice",     [GD_DEFERRED_REPEAT] = "Tile",
        [GD_DEFERRED_SELECT] = "Gather",   [GD_DEFERRED_RANGE] = "Range"};
    const gd_deferred_call_options *o = c->attrs;
    *done = true;
    if (o->kind == GD_DEFERRED_PAD) return save_deferred_pad(s, c);
    if (o->kind == GD_DEFERRED_RESIZE) return save_deferred_resize(s, c);
    gd_pb *node = gd_onnx_add_node(s, operators[o->kind], "", c->label);
    for (int i = 0; i < c->n_in; i++) gd_pb_put_string(node, "input", c->in_names[i]);
    gd_pb_put_string(node, "output", c->out_names[0]);
    if (o->kind == GD_DEFERRED_RESHAPE && o->zero) gd_onnx_put_int(node, "allowzero", 1);
    if (o->kind == GD_DEFERRED_SELECT) gd_onnx_put_int(node, "axis", o->axis);
    return GD_OK;
}
