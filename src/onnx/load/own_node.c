/* own_node.c - loads a node of the domain "gradus": it names an op, and its attributes are the op's
 * options. */
#include <stdio.h>
#include <string.h>

#include "onnx/load/load.h"
#include "dispatch/call.h"

gd_status gd_onnx_load_own_node(gd_onnx_loader *l, const gd_pb *node) {
    const char *name = gd_pb_string(node, "op_type");
    const gd_op *op = gd_op_find(name);
    const size_t n_in = gd_onnx_input_count(node), n_out = gd_pb_count(node, "output");
    if (!op || op->base || (op->flags & GD_OP_CALLS)) /* a file must not call the program */
        return gd_fail(GD_E_UNSUPPORTED, "there is no op '%.60s' in this library", name);
    if (n_in > GD_MAX_VARIADIC || n_out > GD_MAX_VARIADIC)
        return gd_fail(GD_E_FORMAT, "it has too many inputs or outputs");
    gd_attrs *attrs = gd_attrs_new(op);
    if (!attrs) return GD_E_MEMORY;
    for (size_t i = 0; i < gd_pb_count(node, "attribute"); i++) {
        const gd_pb *a = gd_pb_message_at(node, "attribute", i);
        gd_operator_attribute word = {.twice = false};
        const gd_op_attr *option = gd_onnx_find_option(op, gd_pb_string(a, "name"));
        if (!option)
            return gd_fail(GD_E_UNSUPPORTED, "%s has no option '%.60s'", op->name,
                           gd_pb_string(a, "name"));
        snprintf(word.theirs, sizeof word.theirs, "%s", option->name);
        GD_TRY(gd_onnx_set_option(attrs, &word, option, a));
    }
    for (int i = 0; i < op->n_attrs; i++)
        if (op->attrs[i].required && !gd_onnx_find_attribute(node, op->attrs[i].name))
            return gd_fail(GD_E_FORMAT, "it needs the attribute '%s'", op->attrs[i].name);
    gd_tensor *in[GD_MAX_VARIADIC] = {NULL}, *out[GD_MAX_VARIADIC] = {NULL};
    gd_status status = GD_OK;
    for (size_t i = 0; i < n_in && status == GD_OK; i++)
        in[i] = gd_onnx_get_input(l, node, i, &status);
    GD_TRY(status);
    const bool variadic = op->n_outputs > 0 && op->outputs[op->n_outputs - 1].variadic;
    gd_tensors list = {NULL, 0};
    if (variadic) {
        list = gd_op_call(op, (gd_tensors){in, (int64_t)n_in}, attrs);
        if (list.count < 1) return gd_failure();
    } else { /* including hidden outputs, which another node may read */
        if (n_out > (size_t)op->n_outputs)
            return gd_fail(GD_E_FORMAT, "it has %zu outputs; %s has %d", n_out, op->name,
                           op->n_outputs);
        GD_TRY(gd_dispatch(op, NULL, in, n_in < (size_t)op->n_inputs ? op->n_inputs : (int)n_in,
                           op->n_attrs ? gd_attrs_data(attrs) : NULL, out, op->n_outputs));
    }
    for (size_t k = 0; k < n_out; k++) {
        if (variadic && k >= (size_t)list.count)
            return gd_fail(GD_E_FORMAT, "it has %zu outputs, but the op has computed %lld", n_out,
                           (long long)list.count);
        gd_tensor *t = variadic ? list.at[k] : out[k];
        if (t) GD_TRY(gd_onnx_set_output(l, node, k, t));
    }
    return GD_OK;
}
