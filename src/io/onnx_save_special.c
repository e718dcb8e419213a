/* onnx_save_special.c - ops that ONNX says in nodes which no op of ours is. */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "io/onnx_save.h"
#include "ops/late.h"

/* --- pieces ----------------------------------------------------------------------------------- */

/* A node of up to three inputs, and the name of its result: `to`, or a new one where it is NULL. */
static gd_pb *put_node(gd_onnx_saver *s, const gd_onnx_call *c, const char *op_type,
                       const char *const in[3], const char *to, const char **result) {
    *result = to ? to : gd_onnx_unique_name(s, c->label, "/part");
    gd_pb *node = gd_onnx_add_node(s, op_type, "", *result ? *result : c->label);
    for (int i = 0; i < 3 && in[i]; i++) gd_pb_put_string(node, "input", in[i]);
    if (*result) gd_pb_put_string(node, "output", *result);
    return node;
}
#define INPUTS(...) ((const char *const[3]){__VA_ARGS__})

static const char *put_number(gd_onnx_saver *s, const gd_onnx_call *c, gd_dtype dtype,
                              double value) {
    char bytes[8];
    gd_store_f64(dtype, bytes, value);
    return gd_onnx_add_constant(s, c->label, dtype, 0, NULL, bytes);
}

static const char *put_list(gd_onnx_saver *s, const gd_onnx_call *c, int count,
                            const int64_t *numbers) {
    return gd_onnx_add_constant(s, c->label, GD_I64, 1, &(int64_t){count}, numbers);
}

static bool is_known(const gd_slot *x) {
    for (int i = 0; i < x->rank; i++)
        if (x->dims[i] == GD_UNKNOWN) return false;
    return true;
}

static const char *cast_to(gd_onnx_saver *s, const gd_onnx_call *c, const char *name, gd_dtype from,
                           gd_dtype to) {
    const char *result = name;
    if (from == to) return name;
    gd_onnx_put_int(put_node(s, c, "Cast", INPUTS(name), NULL, &result), "to", gd_onnx_type_of(to));
    return result;
}

/* --- whole numbers ------------------------------------------------------------------------------
 */

/* ONNX divides towards 0: one less, where something is left and a and b lie on different sides of
 * 0. */
gd_status gd_onnx_save_floor_divide(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_dtype dtype = (gd_dtype)c->out[0].dtype;
    const char *a = cast_to(s, c, c->in_names[0], (gd_dtype)c->in[0].dtype, dtype),
               *b = cast_to(s, c, c->in_names[1], (gd_dtype)c->in[1].dtype, dtype),
               *zero = put_number(s, c, dtype, 0), *t[8];
    if (!a || !b || !zero) return GD_E_MEMORY;
    put_node(s, c, "Div", INPUTS(a, b), NULL, &t[0]);
    put_node(s, c, "Mod", INPUTS(a, b), NULL, &t[1]);
    put_node(s, c, "Less", INPUTS(a, zero), NULL, &t[2]);
    put_node(s, c, "Less", INPUTS(b, zero), NULL, &t[3]);
    t[4] = t[1] ? cast_to(s, c, t[1], dtype, GD_BOOL) : NULL;
    put_node(s, c, "Xor", INPUTS(t[2], t[3]), NULL, &t[5]);
    put_node(s, c, "And", INPUTS(t[4], t[5]), NULL, &t[6]);
    for (int i = 0; i < 7; i++)
        if (!t[i]) return GD_E_MEMORY;
    const char *less = cast_to(s, c, t[6], GD_BOOL, dtype);
    if (!less) return GD_E_MEMORY;
    put_node(s, c, "Sub", INPUTS(t[0], less), c->out_names[0], &t[7]);
    *done = true;
    return GD_OK;
}

/* --- constants -------------------------------------------------------------------------------- */

/* One number, as often as x has elements. */
gd_status gd_onnx_save_full_like(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_full_like_options *o = c->attrs;
    const char *number = put_number(s, c, (gd_dtype)c->out[0].dtype, o->value), *shape;
    if (is_known(&c->in[0]))
        shape = put_list(s, c, c->in[0].rank, c->in[0].dims);
    else
        put_node(s, c, "Shape", INPUTS(c->in_names[0]), NULL, &shape);
    if (!number || !shape) return GD_E_MEMORY;
    put_node(s, c, "Expand", INPUTS(number, shape), c->out_names[0], &shape);
    *done = true;
    return GD_OK;
}

/* --- numbers that follow from sizes -------------------------------------------------------------
 */

gd_status gd_onnx_save_sizes_of(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    gd_onnx_put_simple(s, "Shape", c->in_names[0], c->out_names[0]);
    *done = true;
    return GD_OK;
}

/* ONNX has these lists as tensors anyway. */
gd_status gd_onnx_save_late(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    static const char *const operators[GD_LATE_KINDS] = {
        [GD_LATE_RESHAPE] = "Reshape", [GD_LATE_EXPAND] = "Expand", [GD_LATE_SLICE] = "Slice",
        [GD_LATE_REPEAT] = "Tile",     [GD_LATE_SELECT] = "Gather", [GD_LATE_RANGE] = "Range"};
    const gd_late_options *o = c->attrs;
    gd_pb *node = gd_onnx_add_node(s, operators[o->kind], "", c->label);
    for (int i = 0; i < c->n_in; i++) gd_pb_put_string(node, "input", c->in_names[i]);
    gd_pb_put_string(node, "output", c->out_names[0]);
    if (o->kind == GD_LATE_RESHAPE && o->zero) gd_onnx_put_int(node, "allowzero", 1);
    if (o->kind == GD_LATE_SELECT) gd_onnx_put_int(node, "axis", o->axis);
    *done = true;
    return GD_OK;
}
