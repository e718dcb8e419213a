/* value.c - the values of an ONNX file that is being loaded, by their names. */
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "onnx/load/load.h"

gd_status gd_onnx_add_value(gd_onnx_loader *l, const char *name, gd_onnx_value **out) {
    if (!*name) return gd_fail(GD_E_FORMAT, "a value has no name");
    if (gd_name_map_find(&l->frame->by_name, name))
        return gd_fail(GD_E_FORMAT, "there are two values named '%.200s'", name);
    if (l->count == l->room) {
        const size_t room = l->room ? 2 * l->room : 64;
        gd_onnx_value **grown = gd_realloc(l->values, room * sizeof *grown);
        if (!grown) return gd_no_memory(NULL, "to load a graph");
        l->values = grown;
        l->room = room;
    }
    gd_onnx_value *v = gd_calloc(1, sizeof *v);
    if (!v || !gd_name_map_add(&l->frame->by_name, name, v)) {
        gd_free(v);
        return gd_no_memory(NULL, "to load a graph");
    }
    v->name = name;
    v->number = l->count;
    l->values[l->count++] = v;
    *out = v;
    return GD_OK;
}

gd_onnx_value *gd_onnx_lookup_value(const gd_onnx_loader *l, const char *name) {
    gd_onnx_value *v = NULL;
    for (const gd_onnx_frame *f = l->frame; f && !v; f = f->outer)
        v = gd_name_map_find(&f->by_name, name);
    return v;
}

gd_status gd_onnx_find_value(gd_onnx_loader *l, const char *name, gd_onnx_value **out) {
    const gd_pb *producer = NULL;
    *out = gd_onnx_lookup_value(l, name);
    if (*out) return GD_OK;
    for (const gd_onnx_frame *f = l->frame; f && !producer; f = f->outer)
        producer = gd_name_map_find(&f->producers, name);
    if (!producer)
        return gd_fail(
            GD_E_FORMAT,
            "its input '%.200s' is neither an output of a node nor an input of the graph", name);
    return gd_fail(
        GD_E_FORMAT,
        "its input '%.200s' is an output of '%.200s', which comes later: the graph has a "
        "cycle, or its nodes are not in topological order",
        name, gd_pb_string(producer, "name"));
}

gd_status gd_onnx_value_tensor(gd_onnx_value *v, gd_tensor **out) {
    *out = NULL;
    if (v->items)
        return gd_fail(GD_E_UNSUPPORTED, "'%.200s' is a sequence where a tensor is needed",
                       v->name);
    if (!v->tensor && v->variable) {
        char *prefix = gd_this_building.prefix; /* the name in the file gets no prefix */
        gd_this_building.prefix = NULL;
        gd_tensor *variable = gd_variable(v->constant, .name = v->name, .trainable = v->trainable);
        gd_this_building.prefix = prefix;
        if (variable->kind != GD_SYMBOL) return gd_failure();
        v->tensor = variable;
    }
    *out = v->tensor;
    return GD_OK;
}
