/* onnx_save.c - a part of a session's graph as an ONNX file; see gradus/onnx.h. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "io/names.h"
#include "io/onnx.h"

/* A tensor of the file, whose bytes are written at the end. */
typedef struct initializer {
    gd_pb *tensor;
    const void *data;
    size_t bytes;
} initializer;

struct gd_onnx_saver {
    gd_session *session;
    gd_graph *graph;
    gd_pb_doc *doc;
    gd_pb *file_graph;
    gd_names taken;      /* names of values */
    gd_names constants;  /* small tensors by their contents: their names */
    gd_names captured;   /* tensors outside the graph, by where they lie: their names */
    const char ***names; /* of each node's outputs; NULL: not needed */
    uint64_t *used;      /* which of them are read */
    bool *wanted;        /* nodes that must be computed */
    initializer *initializers;
    size_t n_initializers, initializer_room;
    char *variables; /* their names, a line each, for the metadata */
    size_t variables_length;
    bool own_domain;
};

static gd_status no_memory(void) { return gd_fail(GD_E_MEMORY, "no memory to save a graph"); }

/* --- names
 * ---------------------------------------------------------------------------------------- */

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
    for (int i = 1; gd_names_find(&s->taken, text); i++)
        snprintf(text, size, "%s%s_%d", *name ? name : "value", suffix, i);
    if (gd_names_add(&s->taken, text, text)) return text;
    gd_free(text);
    no_memory();
    return NULL;
}

/* --- pieces of the file
 * --------------------------------------------------------------------------- */

gd_pb *gd_onnx_add_node(gd_onnx_saver *s, const char *op_type, const char *domain,
                        const char *label) {
    gd_pb *node = gd_pb_put_message(s->file_graph, "node");
    gd_pb_put_string(node, "name", label);
    gd_pb_put_string(node, "op_type", op_type);
    if (*domain) {
        gd_pb_put_string(node, "domain", domain);
        s->own_domain = true;
    }
    return node;
}

static gd_status add_initializer(gd_onnx_saver *s, const char *name, gd_dtype dtype, int rank,
                                 const int64_t *dims, const void *data, size_t bytes) {
    if (s->n_initializers == s->initializer_room) {
        const size_t room = s->initializer_room ? 2 * s->initializer_room : 64;
        initializer *grown = gd_realloc(s->initializers, room * sizeof *grown);
        if (!grown) return no_memory();
        s->initializers = grown;
        s->initializer_room = room;
    }
    gd_pb *tensor = gd_pb_put_message(s->file_graph, "initializer");
    for (int i = 0; i < rank; i++) gd_pb_put_int(tensor, "dims", dims[i]);
    gd_pb_put_int(tensor, "data_type", gd_onnx_type_of(dtype));
    gd_pb_put_string(tensor, "name", name);
    s->initializers[s->n_initializers++] = (initializer){tensor, data, bytes};
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

/* The contents as text, the key under which equal constants are found. */
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
    const char *known = key ? gd_names_find(&s->constants, key) : NULL;
    if (known || !key) {
        gd_free(key);
        if (!known) no_memory();
        return known;
    }
    const char *name = gd_onnx_unique_name(s, label, "/constant");
    gd_tensor *t = name ? gd_from_array(gd_shape_of(rank, dims), dtype, data) : NULL;
    if (!t || t->kind != GD_VALUE || gd_onnx_add_tensor(s, name, t) != GD_OK ||
        !gd_names_add(&s->constants, key, (void *)name)) {
        gd_free(key);
        no_memory();
        return NULL;
    }
    return name;
}

/* --- what the file needs of the graph
 * ------------------------------------------------------------- */

static gd_origin *origin_in(const gd_onnx_saver *s, const gd_node *node) {
    return node && node->origin && node->origin->graph == s->graph ? node->origin : NULL;
}

/* Notes that output `index` of a node is read. One that is fed is known already. */
static gd_status want(gd_onnx_saver *s, const gd_node *node, int index, const char *reader) {
    const gd_origin *o = origin_in(s, node);
    if (!o) return gd_fail(GD_E_ARGUMENT, "'%s' reads a symbol that is not of this graph", reader);
    if (!s->names[o->number] &&
        !(s->names[o->number] = gd_calloc((size_t)node->n_out + 1, sizeof **s->names)))
        return no_memory();
    s->used[o->number] |= (uint64_t)1 << (index & 63);
    if (!s->names[o->number][index]) s->wanted[o->number] = true;
    return GD_OK;
}

static gd_status want_all(gd_onnx_saver *s) {
    for (int i = s->graph->count; i-- > 0;) { /* what a node reads was made before it */
        const gd_node *node = s->graph->nodes[i];
        if (!s->wanted[i]) continue;
        if (node->origin->n_after > 0)
            return gd_fail(GD_E_UNSUPPORTED,
                           "'%s' runs after other nodes (GD_AFTER), which a file cannot say",
                           node->origin->name);
        for (int k = 0; k < node->n_in; k++)
            if (node->slots[k].symbol)
                GD_TRY(want(s, node->slots[k].node, node->slots[k].index, node->origin->name));
    }
    return GD_OK;
}

/* The names of a node's outputs: its own, and for those behind the first "name:1" and so on. */
static gd_status name_outputs(gd_onnx_saver *s, const gd_node *node) {
    const char **names = s->names[node->origin->number];
    for (int k = 0; k < node->n_out; k++) {
        char suffix[16] = "";
        if (names[k]) continue;
        if (k > 0) snprintf(suffix, sizeof suffix, ":%d", k);
        if (!(names[k] = gd_onnx_unique_name(s, node->origin->name, suffix))) return GD_E_MEMORY;
    }
    return GD_OK;
}

/* --- tensors
 * -------------------------------------------------------------------------------------- */

gd_tensor *gd_onnx_captured(const gd_slot *slot) {
    gd_storage *storage = slot->storage ? slot->storage : slot->leaf ? slot->leaf->storage : NULL;
    gd_tensor *t = storage ? gd_tensor_bare(GD_VALUE, slot->device, (gd_dtype)slot->dtype,
                                            slot->rank, slot->dims)
                           : NULL;
    if (!storage) gd_fail(GD_E_STATE, "a tensor outside the graph has no data");
    if (!t) return NULL;
    for (int i = 0; i < slot->rank; i++) t->strides[i] = slot->strides[i];
    t->offset = slot->offset;
    t->storage = storage;
    gd_storage_retain(storage);
    return t;
}

/* The name of a tensor outside the graph; the same view of the same memory is saved once. */
const char *gd_onnx_captured_name(gd_onnx_saver *s, const gd_slot *slot, const char *reader) {
    char text[256], shape[128], strides[128];
    gd_tensor *t = gd_onnx_captured(slot);
    if (!t) return NULL;
    snprintf(text, sizeof text, "%p:%lld:%d%s%s", (void *)t->storage, (long long)t->offset,
             t->dtype, gd_shape_text(t->rank, t->dims, shape, sizeof shape),
             gd_shape_text(t->rank, t->strides, strides, sizeof strides));
    const char *known = gd_names_find(&s->captured, text);
    if (known) return known;
    const char *name = gd_onnx_unique_name(s, reader, "/value");
    char *key = name ? copy_text(text) : NULL;
    if (!key || !gd_names_add(&s->captured, key, (void *)name)) {
        gd_free(key);
        no_memory();
        return NULL;
    }
    return gd_onnx_add_tensor(s, name, t) == GD_OK ? name : NULL;
}

static gd_status note_variable(gd_onnx_saver *s, const gd_origin *o, const char *name) {
    const size_t more = strlen(name) + 8;
    char *grown = gd_realloc(s->variables, s->variables_length + more + 1);
    if (!grown) return no_memory();
    s->variables = grown;
    s->variables_length += (size_t)snprintf(grown + s->variables_length, more + 1, "%s %s\n",
                                            o->trainable ? "train" : "keep", name);
    return GD_OK;
}

static gd_status save_variable(gd_onnx_saver *s, gd_node *node) {
    const char *name = s->names[node->origin->number][0];
    gd_tensor *symbol = gd_slot_get(&node->slots[0], node, "a graph");
    gd_tensor *value = symbol ? gd_session_get(s->session, symbol) : NULL;
    if (!value || value->kind != GD_VALUE) return gd_failure();
    GD_TRY(note_variable(s, node->origin, name));
    return gd_onnx_add_tensor(s, name, value);
}

/* --- nodes
 * ---------------------------------------------------------------------------------------- */

static gd_status save_op(gd_onnx_saver *s, const gd_node *node, const char **in) {
    const int number = node->origin->number;
    for (int i = 0; i < node->n_in; i++) {
        const gd_slot *slot = &node->slots[i];
        in[i] = NULL;
        if (!slot->present) continue;
        in[i] = slot->symbol ? s->names[slot->node->origin->number][slot->index]
                             : gd_onnx_captured_name(s, slot, node->origin->name);
        if (!in[i]) return gd_failure();
    }
    const gd_onnx_call call = {
        node->op,    node->attrs, node->slots,      node->slots + node->n_in, node->n_in,
        node->n_out, in,          s->names[number], s->used[number],          s->names[number][0]};
    return gd_onnx_save_call(s, &call, 0);
}

static gd_status save_node(gd_onnx_saver *s, gd_node *node) {
    const gd_origin *o = node->origin;
    GD_TRY(name_outputs(s, node));
    if (o->kind == GD_FROM_VARIABLE) return save_variable(s, node);
    if (o->kind == GD_FROM_PLACEHOLDER)
        return gd_fail(GD_E_ARGUMENT, "'%s' is needed and is not among the inputs", o->name);
    if (!node->op)
        return gd_fail(GD_E_UNSUPPORTED,
                       "'%s' is a function of the program, which a file cannot say", o->name);
    const char **in = gd_calloc((size_t)node->n_in + 1, sizeof *in);
    if (!in) return no_memory();
    gd_status status = save_op(s, node, in);
    gd_free(in);
    if (status != GD_OK && node->site) gd_error_suffix(" (%s)", node->site);
    return status;
}

/* --- inputs and outputs
 * --------------------------------------------------------------------------- */

static void put_value_info(gd_onnx_saver *s, const char *list, const char *name,
                           const gd_tensor *t) {
    gd_pb *info = gd_pb_put_message(s->file_graph, list);
    gd_pb_put_string(info, "name", name);
    gd_pb *type = gd_pb_put_message(gd_pb_put_message(info, "type"), "tensor_type");
    gd_pb_put_int(type, "elem_type", gd_onnx_type_of((gd_dtype)t->dtype));
    gd_pb *shape = gd_pb_put_message(type, "shape");
    for (int i = 0; i < t->rank; i++) {
        gd_pb *dim = gd_pb_put_message(shape, "dim");
        char param[300];
        snprintf(param, sizeof param, "%.200s_%d", name,
                 i); /* two sizes that are not known may differ */
        if (t->dims[i] == GD_UNKNOWN)
            gd_pb_put_string(dim, "dim_param", param);
        else
            gd_pb_put_int(dim, "dim_value", t->dims[i]);
    }
}

static gd_status check_symbol(const gd_onnx_saver *s, const gd_tensor *t, const char *what,
                              int64_t i) {
    if (!t || t->kind != GD_SYMBOL || !origin_in(s, t->node))
        return gd_fail(GD_E_ARGUMENT, "%s %lld is no symbol of the session's graph", what,
                       (long long)i);
    return GD_OK;
}

static gd_status add_inputs(gd_onnx_saver *s, gd_tensors inputs) {
    for (int64_t i = 0; i < inputs.count; i++) {
        const gd_tensor *t = inputs.at[i];
        GD_TRY(check_symbol(s, t, "input", i));
        const gd_origin *o = t->node->origin;
        const char **names = s->names[o->number];
        if (!names)
            names = s->names[o->number] = gd_calloc((size_t)t->node->n_out + 1, sizeof *names);
        if (!names) return no_memory();
        if (names[t->node_index])
            return gd_fail(GD_E_ARGUMENT, "'%s' is twice among the inputs", o->name);
        const char *name = gd_onnx_unique_name(s, o->name, "");
        if (!name) return GD_E_MEMORY;
        names[t->node_index] = name;
        put_value_info(s, "input", name, t);
    }
    return GD_OK;
}

/* An output is a value that a node makes, under a name of its own: what is something else goes
 * through an Identity. */
static gd_status add_outputs(gd_onnx_saver *s, gd_tensors outputs) {
    gd_names said = {0};
    gd_status status = GD_OK;
    for (int64_t i = 0; i < outputs.count && status == GD_OK; i++) {
        const gd_tensor *t = outputs.at[i];
        const gd_origin *o = t->node->origin;
        const char *name = s->names[o->number][t->node_index];
        if (!s->wanted[o->number] || o->kind != GD_FROM_OP || gd_names_find(&said, name)) {
            const char *copy = gd_onnx_unique_name(s, name, "/output");
            if (!copy) status = GD_E_MEMORY;
            if (!copy) break;
            gd_pb *node = gd_onnx_add_node(s, "Identity", "", copy);
            gd_pb_put_string(node, "input", name);
            gd_pb_put_string(node, "output", copy);
            name = copy;
        }
        if (!gd_names_add(&said, name, (void *)name)) status = no_memory();
        put_value_info(s, "output", name, t);
    }
    gd_names_free(&said);
    return status;
}

static void put_head(gd_onnx_saver *s) {
    gd_pb *model = gd_pb_root(s->doc);
    gd_pb_put_int(model, "ir_version", GD_ONNX_IR);
    gd_pb_put_string(model, "producer_name", "gradus");
    gd_pb *opset = gd_pb_put_message(model, "opset_import");
    gd_pb_put_string(opset, "domain", "");
    gd_pb_put_int(opset, "version", GD_ONNX_OPSET);
    if (s->own_domain) {
        opset = gd_pb_put_message(model, "opset_import");
        gd_pb_put_string(opset, "domain", "gradus");
        gd_pb_put_int(opset, "version", 1);
    }
    gd_pb *variables = gd_pb_put_message(model, "metadata_props");
    gd_pb_put_string(variables, "key", "gradus.variables");
    gd_pb_put_string(variables, "value", s->variables ? s->variables : "");
}

static gd_status fill(gd_onnx_saver *s, gd_tensors inputs, gd_tensors outputs) {
    GD_TRY(add_inputs(s, inputs));
    for (int64_t i = 0; i < outputs.count; i++) {
        GD_TRY(check_symbol(s, outputs.at[i], "output", i));
        GD_TRY(want(s, outputs.at[i]->node, outputs.at[i]->node_index, "the file"));
    }
    GD_TRY(want_all(s));
    /* names that the user has given come first, so that they stay as they are */
    for (int64_t i = 0; i < outputs.count; i++)
        if (s->wanted[outputs.at[i]->node->origin->number])
            GD_TRY(name_outputs(s, outputs.at[i]->node));
    for (int i = 0; i < s->graph->count; i++)
        if (s->wanted[i]) GD_TRY(name_outputs(s, s->graph->nodes[i]));
    for (int i = 0; i < s->graph->count; i++)
        if (s->wanted[i]) GD_TRY(save_node(s, s->graph->nodes[i]));
    GD_TRY(add_outputs(s, outputs));
    put_head(s);
    return GD_OK;
}

/* --- files
 * ---------------------------------------------------------------------------------------- */

enum { SMALL = 1024, PAGE = 4096, LINE = 64 };

static void put_pair(gd_pb *tensor, const char *key, const char *value) {
    gd_pb *pair = gd_pb_put_message(tensor, "external_data");
    gd_pb_put_string(pair, "key", key);
    gd_pb_put_string(pair, "value", value);
}

/* Large ones begin at a page, so that they can be mapped. */
static gd_status write_external(gd_file_writer *data, const char *location, const initializer *i) {
    static const char zeros[PAGE];
    const uint64_t at = gd_file_writer_position(data), step = i->bytes >= PAGE ? PAGE : LINE;
    const uint64_t begin = (at + step - 1) / step * step;
    GD_TRY(gd_file_writer_write(data, zeros, (size_t)(begin - at)));
    GD_TRY(gd_file_writer_write(data, i->data, i->bytes));
    char number[24];
    put_pair(i->tensor, "location", location);
    snprintf(number, sizeof number, "%llu", (unsigned long long)begin);
    put_pair(i->tensor, "offset", number);
    snprintf(number, sizeof number, "%zu", i->bytes);
    put_pair(i->tensor, "length", number);
    gd_pb_put_int(i->tensor, "data_location", 1);
    return GD_OK;
}

static gd_status write_file(void *to, const void *data, size_t bytes) {
    return gd_file_writer_write(to, data, bytes);
}

/* Above how many bytes tensors go into the other file. */
static size_t threshold(const gd_onnx_saver *s, int64_t above) {
    size_t inside = 0;
    for (size_t i = 0; i < s->n_initializers; i++)
        if (s->initializers[i].bytes <= (size_t)above) inside += s->initializers[i].bytes;
    return inside > (size_t)1 << 30 && above > SMALL ? SMALL : (size_t)above;
}

static gd_status write_all(gd_onnx_saver *s, const char *path, const char *data_path, int64_t above,
                           gd_file_writer **model, gd_file_writer **data) {
    const size_t most = threshold(s, above);
    const char *slash = strrchr(data_path, '/');
    for (size_t i = 0; i < s->n_initializers; i++) {
        const initializer *tensor = &s->initializers[i];
        if (tensor->bytes <= most) {
            gd_pb_put_bytes(tensor->tensor, "raw_data", tensor->data, tensor->bytes);
            continue;
        }
        if (!*data) GD_TRY(gd_file_writer_begin(data, data_path));
        GD_TRY(write_external(*data, slash ? slash + 1 : data_path, tensor));
    }
    GD_TRY(gd_file_writer_begin(model, path));
    return gd_pb_write(s->doc, write_file, *model);
}

static gd_status write_files(gd_onnx_saver *s, const char *path, int64_t above) {
    gd_file_writer *model = NULL, *data = NULL;
    const size_t size = strlen(path) + 6;
    char *data_path = gd_malloc(size);
    if (!data_path) return no_memory();
    snprintf(data_path, size, "%s.data", path);
    gd_status status = write_all(s, path, data_path, above, &model, &data);
    /* both are written before either is put in place */
    if (status == GD_OK && data) {
        status = gd_file_writer_commit(data);
        data = NULL;
    }
    if (status == GD_OK) {
        status = gd_file_writer_commit(model);
        model = NULL;
    }
    gd_file_writer_cancel(data);
    gd_file_writer_cancel(model);
    gd_free(data_path);
    return status;
}

/* --- the call
 * ------------------------------------------------------------------------------------- */

static void free_keys(gd_names *names) {
    for (size_t i = 0; i < names->size; i++) gd_free((void *)names->slots[i].name);
    gd_names_free(names);
}

static void saver_free(gd_onnx_saver *s) {
    for (int i = 0; s->names && i < s->graph->count; i++) gd_free(s->names[i]);
    gd_free(s->names);
    gd_free(s->used);
    gd_free(s->wanted);
    gd_free(s->initializers);
    gd_free(s->variables);
    free_keys(&s->constants);
    free_keys(&s->captured);
    free_keys(&s->taken);
    gd_pb_free(s->doc);
}

static gd_status save(const char *path, gd_session *session, gd_graph *graph, gd_tensors inputs,
                      gd_tensors outputs, int64_t above) {
    gd_onnx_saver s = {.session = session, .graph = graph};
    const size_t count = (size_t)graph->count + 1;
    s.doc = gd_pb_new(&gd_onnx_model_schema);
    s.names = gd_calloc(count, sizeof *s.names);
    s.used = gd_calloc(count, sizeof *s.used);
    s.wanted = gd_calloc(count, sizeof *s.wanted);
    gd_status status = s.doc && s.names && s.used && s.wanted ? GD_OK : no_memory();
    if (status == GD_OK) {
        s.file_graph = gd_pb_put_message(gd_pb_root(s.doc), "graph");
        gd_pb_put_string(s.file_graph, "name", "graph");
        status = fill(&s, inputs, outputs);
    }
    if (status == GD_OK) status = write_files(&s, path, above);
    saver_free(&s);
    return status;
}

gd_status gd_onnx_save_at(const char *path, gd_session *session, gd_tensors inputs,
                          gd_tensors outputs, const gd_onnx_save_options *o) {
    gd_thread *thread = &gd_this_thread;
    if (thread->recorded != GD_OK) return thread->recorded; /* half a program's results are none */
    if (!path || !session || outputs.count < 1)
        return gd_fail(GD_E_ARGUMENT, "gd_onnx_save: %s",
                       !path      ? "path is NULL"
                       : !session ? "the session is NULL"
                                  : "there are no outputs");
    if (o->external_above < 0)
        return gd_fail(GD_E_ARGUMENT, "gd_onnx_save: external_above is %lld",
                       (long long)o->external_above);
    const gd_tensor *first = outputs.at[0];
    gd_graph *graph = first && first->kind == GD_SYMBOL && first->node->origin
                          ? first->node->origin->graph
                          : NULL;
    if (!graph) return gd_fail(GD_E_ARGUMENT, "gd_onnx_save: output 0 is no symbol of a graph");
    gd_scope *scope = gd_scope_open(); /* tensors live until they are written */
    gd_block device = gd_device_begin(gd_device_get("cpu"));
    void *tracing = gd_tracing_off();
    int grad = gd_no_grad_begin();
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_status status = save(path, session, graph, inputs, outputs, o->external_above);
    status = gd_attempt_end(&attempt, status);
    gd_grad_mode_end(&grad);
    gd_tracing_on(tracing);
    gd_device_end(&device);
    gd_scope_close(&scope);
    if (status != GD_OK) gd_error_prefix("gd_onnx_save: %s: ", path);
    return status;
}
