/* onnx_save_special.c - ops that ONNX says in nodes which no op of ours is. */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "io/onnx_save.h"

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

/* --- constants -------------------------------------------------------------------------------- */

/* One number, as often as x has elements. */
gd_status gd_onnx_save_full_like(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_full_like_options *o = c->attrs;
    if (!is_known(&c->in[0])) return GD_OK;
    const char *number = put_number(s, c, (gd_dtype)c->out[0].dtype, o->value), *shape;
    shape = put_list(s, c, c->in[0].rank, c->in[0].dims);
    if (!number || !shape) return GD_E_MEMORY;
    put_node(s, c, "Expand", INPUTS(number, shape), c->out_names[0], &shape);
    *done = true;
    return GD_OK;
}
