/* initializer.c - names and initializers of an ONNX file: constants, captured tensors,
 * variables. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/integer.h"
#include "gradus/ops.h"
#include "nn/module.h"
#include "onnx/save/save.h"

/* --- names ------------------------------------------------------------------------------------ */

static char *copy_text(const char *text) {
    const size_t bytes = strlen(text) + 1;
    char *copy = gd_malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

const char *gd_onnx_unique_name(gd_onnx_saver *s, const char *name, const char *suffix) {
    const size_t size = strlen(name) + strlen(suffix) + 24;
    char *text = gd_malloc(size);
    if (!text) return NULL;
    snprintf(text, size, "%s%s", *name ? name : "value", suffix);
    for (int i = 1; gd_name_map_find(&s->used_names, text); i++)
        snprintf(text, size, "%s%s_%d", *name ? name : "value", suffix, i);
    if (gd_name_map_add(&s->used_names, text, text)) return text;
    gd_free(text);
    gd_no_memory(NULL, "to save a graph");
    return NULL;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static gd_status add_initializer(gd_onnx_saver *s, const char *name, gd_dtype dtype, int rank,
                                 const int64_t *dims, const void *data, size_t bytes) {
    if (s->n_initializers == s->initializer_room) {
        const size_t room = s->initializer_room ? 2 * s->initializer_room : 64;
        gd_onnx_initializer *grown = gd_realloc(s->initializers, room * sizeof *grown);
        if (!grown) return gd_no_memory(NULL, "to save a graph");
        s->initializers = grown;
        s->initializer_room = room;
    }
    gd_pb *tensor = gd_pb_put_message(s->file_graph, "initializer");
    for (int i = 0; i < rank; i++) gd_pb_put_int(tensor, "dims", dims[i]);
    gd_pb_put_int(tensor, "data_type", gd_onnx_type_of(dtype));
    gd_pb_put_string(tensor, "name", name);
    s->initializers[s->n_initializers++] = (gd_onnx_initializer){tensor, data, bytes};
    return GD_OK;
}

gd_status gd_onnx_add_tensor(gd_onnx_saver *s, const char *name, gd_tensor *t) {
    gd_tensor *here = gd_to_device(t, gd_device_get("cpu"));
    if (here->kind == GD_VALUE && !gd_is_row_major(here->rank, here->dims, here->strides))
        here = gd_contiguous(here);
    if (here->kind != GD_VALUE) return gd_failure();
    const size_t bytes = (size_t)gd_numel(here->rank, here->dims) * gd_dtype_bytes(here->dtype);
    return add_initializer(s, name, (gd_dtype)here->dtype, here->rank, here->dims, gd_data(here),
                           bytes);
}

/* --- constants -------------------------------------------------------------------------------- */

/* The contents of a constant as text: equal constants have equal keys. */
static char *constant_key(gd_dtype dtype, int rank, const int64_t *dims, const uint8_t *data,
                          size_t bytes) {
    char *key = gd_malloc(2 * bytes + 64), *at = key;
    if (!key) return NULL;
    at += sprintf(at, "%d:%d:%lld:", (int)dtype, rank, rank ? (long long)dims[0] : 0);
    for (size_t i = 0; i < bytes; i++) at += sprintf(at, "%02x", data[i]);
    return key;
}

const char *gd_onnx_add_constant(gd_onnx_saver *s, const char *label, gd_dtype dtype, int rank,
                                 const int64_t *dims, const void *data) {
    const size_t bytes = (size_t)gd_numel(rank, dims) * gd_dtype_bytes(dtype);
    char *key = constant_key(dtype, rank, dims, data, bytes);
    const char *known = key ? gd_name_map_find(&s->constants, key) : NULL;
    if (known || !key) {
        gd_free(key);
        if (!known) gd_no_memory(NULL, "to save a graph");
        return known;
    }
    const char *name = gd_onnx_unique_name(s, label, "/constant");
    gd_tensor *t = name ? gd_from_array(gd_shape_of(rank, dims), dtype, data) : NULL;
    if (!t || t->kind != GD_VALUE || gd_onnx_add_tensor(s, name, t) != GD_OK ||
        !gd_name_map_add(&s->constants, key, (void *)name)) {
        gd_free(key);
        gd_no_memory(NULL, "to save a graph");
        return NULL;
    }
    return name;
}

const char *gd_onnx_add_number(gd_onnx_saver *s, const char *label, gd_dtype dtype,
                               gd_number value) {
    char bytes[8];
    if (dtype == GD_I64) gd_store_i64(dtype, bytes, gd_number_i64(value));
    else gd_store_f64(dtype, bytes, value.value);
    return gd_onnx_add_constant(s, label, dtype, 0, NULL, bytes);
}

/* --- captured tensors and variables ----------------------------------------------------------- */

gd_tensor *gd_onnx_captured_tensor(const gd_slot *slot) {
    gd_storage *storage = slot->storage ? slot->storage : slot->leaf ? slot->leaf->storage : NULL;
    gd_tensor *t = storage ? gd_tensor_bare(GD_VALUE, slot->device, (gd_dtype)slot->dtype,
                                            slot->rank, slot->dims)
                           : NULL;
    if (!storage) gd_fail(GD_E_STATE, "a captured tensor has no data");
    if (!t) return NULL;
    for (int i = 0; i < slot->rank; i++) t->strides[i] = slot->strides[i];
    t->offset = slot->offset;
    t->storage = storage;
    gd_storage_retain(storage);
    return t;
}

gd_status gd_onnx_record_variable(gd_onnx_saver *s, bool trainable, const char *name) {
    const size_t more = strlen(name) + 8;
    char *grown = gd_realloc(s->variables, s->variables_length + more + 1);
    if (!grown) return gd_no_memory(NULL, "to save a graph");
    s->variables = grown;
    s->variables_length += (size_t)snprintf(grown + s->variables_length, more + 1, "%s %s\n",
                                            trainable ? "train" : "keep", name);
    return GD_OK;
}

/* The path of a tensor that is a parameter or buffer of the module being saved; NULL: it is
 * neither. */
static const char *parameter_name(gd_onnx_saver *s, const gd_tensor *t) {
    if (!s->module) return NULL;
    gd_tensors lists[2] = {gd_module_parameters_so_far(s->module), gd_module_buffers(s->module)};
    char path[512];
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < lists[k].count; i++)
            if (gd_same_view(lists[k].at[i], t) &&
                gd_module_name_of(s->module, lists[k].at[i], path, sizeof path))
                return gd_onnx_unique_name(s, path, "");
    return NULL;
}

/* The same view of the same storage is saved once. */
const char *gd_onnx_captured_name(gd_onnx_saver *s, const gd_slot *slot, const char *reader) {
    char text[256], shape[128], strides[128];
    gd_tensor *t = gd_onnx_captured_tensor(slot);
    if (!t) return NULL;
    snprintf(text, sizeof text, "%p:%lld:%d%s%s", (void *)t->storage, (long long)t->offset,
             t->dtype, gd_shape_text(t->rank, t->dims, shape, sizeof shape),
             gd_shape_text(t->rank, t->strides, strides, sizeof strides));
    const char *known = gd_name_map_find(&s->captured, text);
    if (known) return known;
    const char *name = parameter_name(s, t);
    const bool parameter = name != NULL;
    if (!name) name = gd_onnx_unique_name(s, reader, "/value");
    char *key = name ? copy_text(text) : NULL;
    if (!key || !gd_name_map_add(&s->captured, key, (void *)name)) {
        gd_free(key);
        gd_no_memory(NULL, "to save a graph");
        return NULL;
    }
    if (parameter && gd_onnx_record_variable(s, slot->leaf && gd_tensor_requires_grad(slot->leaf),
                                             name) != GD_OK)
        return NULL;
    return gd_onnx_add_tensor(s, name, t) == GD_OK ? name : NULL;
}
