/* graph.c - a part of a graph as nodes of an ONNX file: names, tensors, what is needed.
 */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "onnx/save/save.h"

static gd_status no_memory(void) { return gd_fail(GD_E_MEMORY, "no memory to save a graph"); }

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
    for (int i = 1; gd_names_find(&s->taken, text); i++)
        snprintf(text, size, "%s%s_%d", *name ? name : "value", suffix, i);
    if (gd_names_add(&s->taken, text, text)) return text;
    gd_free(text);
    no_memory();
    return NULL;
}

/* --- pieces of the file ----------------------------------------------------------------------- */

gd_pb *gd_onnx_add_node(gd_onnx_saver *s, const char *op_type, const char *domain,
                        const char *label) {
    gd_pb *node = gd_pb_put_message(s->into, "node");
    gd_pb_put_string(node, "name", label);
    gd_pb_put_string(node, "op_type", op_type);
    if (*domain) {
        gd_pb_put_string(node, "domain", domain);
        s->own_domain = true;
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
        /* two sizes that are not known may differ */
        snprintf(param, sizeof param, "%.200s_%d", name, i);
        if (dims[i] == GD_UNKNOWN) gd_pb_put_string(dim, "dim_param", param);
        else gd_pb_put_int(dim, "dim_value", dims[i]);
    }
}

void gd_onnx_put_simple(gd_onnx_saver *s, const char *op_type, const char *from, const char *to) {
    gd_pb *node = gd_onnx_add_node(s, op_type, "", to);
    gd_pb_put_string(node, "input", from);
    gd_pb_put_string(node, "output", to);
}

static gd_status add_initializer(gd_onnx_saver *s, const char *name, gd_dtype dtype, int rank,
                                 const int64_t *dims, const void *data, size_t bytes) {
    if (s->n_initializers == s->initializer_room) {
        const size_t room = s->initializer_room ? 2 * s->initializer_room : 64;
        gd_onnx_initializer *grown = gd_realloc(s->initializers, room * sizeof *grown);
        if (!grown) return no_memory();
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

/* --- what the file needs of the graph --------------------------------------------------------- */

gd_status gd_onnx_part_begin(gd_onnx_part *p, gd_graph *graph) {
    const size_t count = (size_t)graph->count + 1;
    *p = (gd_onnx_part){.graph = graph};
    p->names = gd_calloc(count, sizeof *p->names);
    p->used = gd_calloc(count, sizeof *p->used);
    p->wanted = gd_calloc(count, sizeof *p->wanted);
    return p->names && p->used && p->wanted ? GD_OK : no_memory();
}

void gd_onnx_part_end(gd_onnx_part *p) {
    for (int i = 0; p->names && i < p->graph->count; i++) gd_free(p->names[i]);
    gd_free(p->names);
    gd_free(p->used);
    gd_free(p->wanted);
}

static gd_status names_of(gd_onnx_part *p, const gd_node *node, const char ***names) {
    const int number = node->origin->number;
    if (!p->names[number]) p->names[number] = gd_calloc((size_t)node->n_out + 1, sizeof **p->names);
    *names = p->names[number];
    return *names ? GD_OK : no_memory();
}

gd_status gd_onnx_part_input(gd_onnx_part *p, const gd_node *node, int index, const char *name) {
    const char **names;
    GD_TRY(names_of(p, node, &names));
    names[index] = name;
    return GD_OK;
}

gd_status gd_onnx_want(gd_onnx_part *p, const gd_node *node, int index, const char *reader) {
    const char **names;
    const gd_origin *o = node ? node->origin : NULL;
    if (!o || o->graph != p->graph)
        return gd_fail(GD_E_ARGUMENT, "'%s' reads a symbol that is not of this graph", reader);
    GD_TRY(names_of(p, node, &names));
    p->used[o->number] |= (uint64_t)1 << (index & 63);
    if (!names[index]) p->wanted[o->number] = true; /* one that is fed is known already */
    return GD_OK;
}

/* Whether something remains when a node has run: a variable is written, or who knows what done. */
static bool has_effect(const gd_node *node) {
    if (node->origin->kind != GD_FROM_OP) return false;
    if (!node->op) return true; /* a function of the program */
    for (int i = 0; i < node->op->n_inputs && i < node->n_in; i++)
        if (node->op->inputs[i].mutated && node->slots[i].present) return true;
    return false;
}

/* GD_AFTER brings the nodes before it into every run. A file cannot say that; it need not, if
 * nothing remains of them. */
static gd_status check_before(const gd_onnx_part *p, const gd_node *node) {
    const gd_origin *o = node->origin;
    gd_status status = GD_OK;
    if (o->n_after == 0) return GD_OK;
    bool *runs = gd_calloc((size_t)p->graph->count + 1, sizeof *runs);
    if (!runs) return no_memory();
    for (int i = 0; i < o->n_after; i++) runs[o->after[i]->origin->number] = true;
    for (int i = o->number; i-- > 0 && status == GD_OK;) {
        const gd_node *before = p->graph->nodes[i];
        if (!runs[i]) continue;
        if (has_effect(before))
            status = gd_fail(GD_E_UNSUPPORTED,
                             "'%s' runs after '%s' (GD_AFTER), which %s: a file cannot say that "
                             "the one brings the other. Save what does not depend on it",
                             o->name, before->origin->name,
                             before->op ? "writes a variable" : "is a function of the program");
        for (int k = 0; k < before->n_in; k++)
            if (before->slots[k].symbol) runs[before->slots[k].node->origin->number] = true;
        for (int k = 0; k < before->origin->n_after; k++)
            runs[before->origin->after[k]->origin->number] = true;
    }
    gd_free(runs);
    return status;
}

gd_status gd_onnx_want_all(gd_onnx_part *p) {
    for (int i = p->graph->count; i-- > 0;) { /* what a node reads was made before it, */
        const gd_node *node = p->graph->nodes[i];
        if (!p->wanted[i]) continue;
        GD_TRY(check_before(p, node));
        for (int k = 0; k < node->n_in; k++)
            if (node->slots[k].symbol)
                GD_TRY(
                    gd_onnx_want(p, node->slots[k].node, node->slots[k].index, node->origin->name));
    }
    return GD_OK;
}

gd_status gd_onnx_name_outputs(gd_onnx_saver *s, gd_onnx_part *p, const gd_node *node) {
    const char **names = p->names[node->origin->number];
    for (int k = 0; k < node->n_out; k++) {
        char suffix[16] = "";
        if (names[k]) continue;
        if (k > 0) snprintf(suffix, sizeof suffix, ":%d", k); /* "name", "name:1" and so on */
        if (!(names[k] = gd_onnx_unique_name(s, node->origin->name, suffix))) return GD_E_MEMORY;
    }
    return GD_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

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

static gd_status note_variable(gd_onnx_saver *s, bool trainable, const char *name) {
    const size_t more = strlen(name) + 8;
    char *grown = gd_realloc(s->variables, s->variables_length + more + 1);
    if (!grown) return no_memory();
    s->variables = grown;
    s->variables_length += (size_t)snprintf(grown + s->variables_length, more + 1, "%s %s\n",
                                            trainable ? "train" : "keep", name);
    return GD_OK;
}

/* A parameter or a buffer of the module that is being saved has its path; NULL: it is none. */
static const char *parameter_name(gd_onnx_saver *s, const gd_tensor *t) {
    if (!s->module) return NULL;
    gd_tensors lists[2] = {gd_module_parameters(s->module), gd_module_buffers(s->module)};
    char path[512];
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < lists[k].count; i++)
            if (gd_same_view(lists[k].at[i], t) &&
                gd_module_name_of(s->module, lists[k].at[i], path, sizeof path))
                return gd_onnx_unique_name(s, path, "");
    return NULL;
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
    const char *name = parameter_name(s, t);
    const bool parameter = name != NULL;
    if (!name) name = gd_onnx_unique_name(s, reader, "/value");
    char *key = name ? copy_text(text) : NULL;
    if (!key || !gd_names_add(&s->captured, key, (void *)name)) {
        gd_free(key);
        no_memory();
        return NULL;
    }
    if (parameter &&
        note_variable(s, slot->leaf && gd_tensor_requires_grad(slot->leaf), name) != GD_OK)
        return NULL;
    return gd_onnx_add_tensor(s, name, t) == GD_OK ? name : NULL;
}

static gd_status save_variable(gd_onnx_saver *s, const gd_onnx_part *p, gd_node *node) {
    const char *name = p->names[node->origin->number][0];
    gd_tensor *symbol = gd_slot_get(&node->slots[0], node, "a graph");
    gd_tensor *value = symbol ? gd_session_get(s->session, symbol) : NULL;
    if (!value || value->kind != GD_VALUE) return gd_failure();
    GD_TRY(note_variable(s, node->origin->trainable, name));
    return gd_onnx_add_tensor(s, name, value);
}

/* --- nodes ------------------------------------------------------------------------------------ */

static gd_status save_op(gd_onnx_saver *s, const gd_onnx_part *p, const gd_node *node,
                         const char **in) {
    const int number = node->origin->number;
    for (int i = 0; i < node->n_in; i++) {
        const gd_slot *slot = &node->slots[i];
        in[i] = NULL;
        if (!slot->present) continue;
        in[i] = slot->symbol ? p->names[slot->node->origin->number][slot->index]
                             : gd_onnx_captured_name(s, slot, node->origin->name);
        if (!in[i]) return gd_failure();
    }
    const gd_onnx_call call = {.op = node->op,
                               .attrs = node->attrs,
                               .in = node->slots,
                               .out = node->slots + node->n_in,
                               .n_in = node->n_in,
                               .n_out = node->n_out,
                               .in_names = in,
                               .out_names = p->names[number],
                               .used = p->used[number],
                               .label = node->n_out ? p->names[number][0] : node->origin->name};
    return gd_onnx_save_call(s, &call, 0);
}

static gd_status save_node(gd_onnx_saver *s, const gd_onnx_part *p, gd_node *node) {
    const gd_origin *o = node->origin;
    if (o->kind == GD_FROM_VARIABLE) return save_variable(s, p, node);
    if (o->kind == GD_FROM_PLACEHOLDER)
        return gd_fail(GD_E_ARGUMENT, "'%s' is needed and is not among the inputs", o->name);
    if (!node->op)
        return gd_fail(GD_E_UNSUPPORTED,
                       "'%s' is a function of the program, which a file cannot say", o->name);
    const char **in = gd_calloc((size_t)node->n_in + 1, sizeof *in);
    if (!in) return no_memory();
    gd_status status = save_op(s, p, node, in);
    gd_free(in);
    if (status != GD_OK && node->site) gd_error_suffix(" (%s)", node->site);
    return status;
}

gd_status gd_onnx_save_part(gd_onnx_saver *s, gd_onnx_part *p) {
    for (int i = 0; i < p->graph->count; i++) /* names first: those of the graph stay as they are */
        if (p->wanted[i]) GD_TRY(gd_onnx_name_outputs(s, p, p->graph->nodes[i]));
    for (int i = 0; i < p->graph->count; i++)
        if (p->wanted[i]) GD_TRY(save_node(s, p, p->graph->nodes[i]));
    return GD_OK;
}
