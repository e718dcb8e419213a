/* node.c - the messages of nodes, and of inputs and outputs of a graph. */
#include <stdio.h>

#include "onnx/save/save.h"

gd_pb *gd_onnx_add_node(gd_onnx_saver *s, const char *op_type, const char *domain,
                        const char *label) {
    gd_pb *node = gd_pb_put_message(s->current_graph, "node");
    gd_pb_put_string(node, "name", label);
    gd_pb_put_string(node, "op_type", op_type);
    if (*domain) {
        gd_pb_put_string(node, "domain", domain);
        s->has_own_nodes = true;
    }
    return node;
}

void gd_onnx_put_value_info(gd_pb *graph, const char *list, const char *name, gd_dtype dtype,
                            int rank, const int64_t *dims) {
    gd_pb *info = gd_pb_put_message(graph, list);
    gd_pb_put_string(info, "name", name);
    gd_pb *type = gd_pb_put_message(gd_pb_put_message(info, "type"), "tensor_type");
    gd_pb_put_int(type, "elem_type", gd_onnx_type_of(dtype));
    gd_pb *shape = gd_pb_put_message(type, "shape");
    for (int i = 0; i < rank; i++) {
        gd_pb *dim = gd_pb_put_message(shape, "dim");
        char param[300];
        /* unknown sizes may differ, so each has a different name */
        snprintf(param, sizeof param, "%.200s_%d", name, i);
        if (dims[i] == GD_UNKNOWN) gd_pb_put_string(dim, "dim_param", param);
        else gd_pb_put_int(dim, "dim_value", dims[i]);
    }
}

void gd_onnx_put_unary(gd_onnx_saver *s, const char *op_type, const char *from, const char *to) {
    gd_pb *node = gd_onnx_add_node(s, op_type, "", to);
    gd_pb_put_string(node, "input", from);
    gd_pb_put_string(node, "output", to);
}

const char *gd_onnx_put_node(gd_onnx_saver *s, const char *label, const char *op_type, int n,
                             const char *const *inputs, const char *to, gd_pb **node) {
    const char *result = to ? to : gd_onnx_unique_name(s, label, "/part");
    if (!result) return NULL;
    gd_pb *added = gd_onnx_add_node(s, op_type, "", result);
    for (int i = 0; i < n; i++) gd_pb_put_string(added, "input", inputs[i] ? inputs[i] : "");
    gd_pb_put_string(added, "output", result);
    if (node) *node = added;
    return result;
}

const char *gd_onnx_put_cast(gd_onnx_saver *s, const char *label, const char *name, gd_dtype dtype,
                             const char *to) {
    const char *result = to ? to : gd_onnx_unique_name(s, label, "/cast");
    gd_pb *node;
    if (!result || !gd_onnx_put_node(s, label, "Cast", 1, &name, result, &node)) return NULL;
    gd_onnx_put_int(node, "to", gd_onnx_type_of(dtype));
    return result;
}
