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
    if (!text) {
        gd_no_memory(NULL, "to save a graph");
        return NULL;
    }
    const int length = snprintf(text, size, "%s%s", *name ? name : "value", suffix);
    gd_number_name(&s->used_names, text, (size_t)length, size);
    if (gd_set_entry_number(&s->used_names, text, 0)) return text;
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
    const size_t more = strlen(name) + 8, needed = s->variables_length + more + 1;
    if (needed > s->variables_room) {
        char *grown = gd_realloc(s->variables, 2 * needed);
        if (!grown) return gd_no_memory(NULL, "to save a graph");
        s->variables = grown;
        s->variables_room = 2 * needed;
    }
    s->variables_length += (size_t)snprintf(s->variables + s->variables_length, more + 1, "%s %s\n",
                                            trainable ? "train" : "keep", name);
    return GD_OK;
}

/* A text that is the same for the same view of the same storage. */
static char *view_key(const gd_tensor *t) {
    char text[256], shape[128], strides[128];
    snprintf(text, sizeof text, "%p:%lld:%d%s%s", (void *)t->storage, (long long)t->offset,
             t->dtype, gd_shape_text(t->rank, t->dims, shape, sizeof shape),
             gd_shape_text(t->rank, t->strides, strides, sizeof strides));
    char *key = copy_text(text);
    if (!key) gd_no_memory(NULL, "to save a graph");
    return key;
}

/* A walk over the tensors of one kind of the module. */
typedef struct naming {
    gd_onnx_saver *saver;
    gd_entry_kind kind;
} naming;

static gd_status name_tensor(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    naming *n = w->user;
    (void)holder;
    if (e->kind != n->kind) return GD_OK;
    char *key = view_key((const gd_tensor *)e->object);
    if (!key) return GD_E_MEMORY;
    const bool known = gd_name_map_find(&n->saver->parameters, key) != NULL;
    char *path = known ? NULL : copy_text(w->path);
    if (path && gd_name_map_add(&n->saver->parameters, key, path)) return GD_OK;
    gd_free(key);
    gd_free(path);
    return known ? GD_OK : gd_no_memory(NULL, "to save a graph");
}

gd_status gd_onnx_name_parameters(gd_onnx_saver *s) {
    static const gd_entry_kind kinds[] = {GD_A_PARAMETER, GD_A_BUFFER};
    for (int i = 0; i < 2 && s->module; i++)
        GD_TRY(gd_module_walk(
            s->module, &(gd_tree_walk){.tensor = name_tensor, .user = &(naming){s, kinds[i]}}));
    return GD_OK;
}

/* The name of a captured tensor that is not in the file yet: its path in the module, if it is a
 * parameter or a buffer, or one that begins with the name of its reader. */
static const char *add_captured(gd_onnx_saver *s, const gd_slot *slot, gd_tensor *t,
                                const char *path, const char *reader) {
    const char *name =
        path ? gd_onnx_unique_name(s, path, "") : gd_onnx_unique_name(s, reader, "/value");
    if (!name || gd_onnx_add_tensor(s, name, t) != GD_OK) return NULL;
    if (!path) return name;
    const bool trainable = slot->leaf && gd_tensor_requires_grad(slot->leaf);
    return gd_onnx_record_variable(s, trainable, name) == GD_OK ? name : NULL;
}

/* The same view of the same storage is saved once. */
const char *gd_onnx_captured_name(gd_onnx_saver *s, const gd_slot *slot, const char *reader) {
    gd_tensor *t = gd_onnx_captured_tensor(slot);
    char *key = t ? view_key(t) : NULL;
    if (!key) return NULL;
    const char *name = gd_name_map_find(&s->captured, key);
    const bool known = name != NULL;
    if (!known) name = add_captured(s, slot, t, gd_name_map_find(&s->parameters, key), reader);
    if (!known && name && gd_name_map_add(&s->captured, key, (void *)name)) return name;
    gd_free(key);
    if (!known && name) gd_no_memory(NULL, "to save a graph");
    return known ? name : NULL;
}
