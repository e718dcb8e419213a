/* load.c - loads an ONNX file as a graph; see gradus/onnx.h.
 *
 * Order: versions, initializers and inputs; outputs, which are checked at the end; the load of a
 * model and of a file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/frame.h"
#include "core/grow.h"
#include "format/file.h"
#include "gradus/ops.h"
#include "onnx/load/load.h"
#include "dispatch/autocast.h"

/* --- initializers and inputs ------------------------------------------------------------------ */

static GD_OWN_FRAME gd_status read_shape(const gd_pb *info, gd_dtype *dtype, gd_shape *dims) {
    const gd_pb *type = gd_pb_message(gd_pb_message(info, "type"), "tensor_type"),
                *shape = gd_pb_message(type, "shape");
    const size_t rank = gd_pb_count(shape, "dim");
    if (!type) return gd_fail(GD_E_UNSUPPORTED, "it is not a tensor");
    *dtype = gd_onnx_dtype(gd_pb_int(type, "elem_type", 0));
    if (*dtype == GD_DTYPE_NONE)
        return gd_fail(GD_E_UNSUPPORTED, "its elements are %s, which no dtype can hold",
                       gd_onnx_type_name(gd_pb_int(type, "elem_type", 0)));
    if (!shape) return gd_fail(GD_E_UNSUPPORTED, "its rank is unknown");
    if (rank > GD_MAX_RANK)
        return gd_fail(GD_E_UNSUPPORTED, "it has %zu dimensions; at most %d are supported", rank,
                       GD_MAX_RANK);
    *dims = (gd_shape){.rank = (int)rank, .form = 1};
    int64_t elements = 1;
    for (size_t i = 0; i < rank; i++) {
        const gd_pb *dim = gd_pb_message_at(shape, "dim", i);
        const int64_t size = gd_pb_int(dim, "dim_value", GD_ANY);
        if (size < 0 && size != GD_ANY)
            return gd_fail(GD_E_FORMAT, "its dimension %zu is %lld", i, (long long)size);
        dims->at[i] = size;
        if (size > 0 && __builtin_mul_overflow(elements, size, &elements))
            return gd_fail(GD_E_OVERFLOW, "it has more than 2^63 elements");
    }
    return GD_OK;
}

static GD_OWN_FRAME gd_status load_input(gd_onnx_loader *l, const gd_pb *info) {
    const char *name = gd_pb_string(info, "name");
    gd_dtype dtype;
    gd_shape dims;
    gd_onnx_value *v;
    GD_TRY(read_shape(info, &dtype, &dims));
    GD_TRY(gd_onnx_add_value(l, name, &v));
    v->tensor = gd_placeholder(dims, .name = name, .dtype = dtype);
    return v->tensor->kind == GD_SYMBOL ? GD_OK : gd_failure();
}

/* Old files list initializers among the inputs as well. */
static bool is_initializer(const gd_onnx_loader *l, const char *name) {
    const gd_onnx_value *v = gd_name_map_find(&l->frame->by_name, name);
    return v && v->constant;
}

/* The list of variables in a file that Gradus saved. It has a line "train NAME" or "keep NAME" for
 * each. */
static const char *saved_variables(const gd_onnx_loader *l) {
    for (size_t i = 0; i < gd_pb_count(l->model, "metadata_props"); i++) {
        const gd_pb *pair = gd_pb_message_at(l->model, "metadata_props", i);
        if (strcmp(gd_pb_string(pair, "key"), "gradus.variables") == 0)
            return gd_pb_string(pair, "value");
    }
    return NULL;
}

static GD_OWN_FRAME void mark_saved_variables(gd_onnx_loader *l, const char *lines) {
    char name[1024];
    for (; *lines; lines += strcspn(lines, "\n"), lines += *lines == '\n') {
        const bool train = strncmp(lines, "train ", 6) == 0, keep = strncmp(lines, "keep ", 5) == 0;
        if (!train && !keep) continue;
        const char *begin = lines + (train ? 6 : 5);
        const size_t length = strcspn(begin, "\n");
        if (length >= sizeof name) continue;
        memcpy(name, begin, length);
        name[length] = '\0';
        gd_onnx_value *v = gd_name_map_find(&l->frame->by_name, name);
        if (!v || !v->constant) continue;
        v->variable = true;
        v->trainable = train;
        v->tensor = NULL;
    }
}

static gd_status load_initializers(gd_onnx_loader *l) {
    const char *lines = saved_variables(l);
    l->saved_by_gradus = lines != NULL;
    if (gd_pb_count(l->frame->graph, "sparse_initializer"))
        return gd_fail(GD_E_UNSUPPORTED, "it has sparse initializers, which are not supported");
    for (size_t i = 0; i < gd_pb_count(l->frame->graph, "initializer"); i++) {
        const gd_pb *tensor = gd_pb_message_at(l->frame->graph, "initializer", i);
        gd_onnx_value *v;
        GD_TRY(gd_onnx_add_value(l, gd_pb_string(tensor, "name"), &v));
        GD_TRY(gd_onnx_read_tensor(tensor, l->folder, &v->constant));
        v->tensor = v->constant;
        if (lines || !gd_dtype_is_float((gd_dtype)v->constant->dtype)) continue;
        v->variable = true;
        v->trainable = l->trainable;
        v->tensor = NULL;
    }
    if (lines) mark_saved_variables(l, lines);
    return GD_OK;
}

static gd_status load_inputs(gd_onnx_loader *l) {
    for (size_t i = 0; i < gd_pb_count(l->frame->graph, "input"); i++) {
        const gd_pb *info = gd_pb_message_at(l->frame->graph, "input", i);
        if (is_initializer(l, gd_pb_string(info, "name"))) continue;
        const gd_status status = load_input(l, info);
        if (status == GD_OK) continue;
        gd_error_prefix("input '%.200s': ", gd_pb_string(info, "name"));
        return status;
    }
    return GD_OK;
}

/* --- outputs ---------------------------------------------------------------------------------- */

/* Compares an output with the shape in the file. */
static GD_OWN_FRAME gd_status check_output(gd_onnx_loader *l, const gd_pb *info) {
    const char *name = gd_pb_string(info, "name");
    gd_onnx_value *v = gd_name_map_find(&l->frame->by_name, name);
    gd_dtype dtype;
    gd_shape dims;
    gd_tensor *t;
    char text[160], wanted[160], message[400];
    if (!v) return gd_fail(GD_E_FORMAT, "no node computes it");
    GD_TRY(gd_onnx_value_tensor(v, &t));
    if (!gd_pb_message(gd_pb_message(gd_pb_message(info, "type"), "tensor_type"), "shape"))
        return GD_OK;
    GD_TRY(read_shape(info, &dtype, &dims));
    bool fits = t->rank == dims.rank;
    for (int i = 0; fits && i < dims.rank; i++)
        fits = dims.at[i] == GD_ANY || t->dims[i] == GD_UNKNOWN || t->dims[i] == dims.at[i];
    if (fits && (gd_dtype)t->dtype == dtype) return GD_OK;
    snprintf(message, sizeof message, "it is %s, and the file declares %s%s",
             gd_describe(t, text, sizeof text), gd_dtype_name(dtype),
             gd_shape_text(dims.rank, dims.at, wanted, sizeof wanted));
    if ((gd_dtype)t->dtype != dtype) return gd_fail(GD_E_SHAPE, "%s", message);
    /* some exporters write wrong sizes; those of the nodes are used */
    gd_notice(GD_LOG_WARNING, "ONNX output '%.200s': %s", name, message);
    return GD_OK;
}

static gd_status check_outputs(gd_onnx_loader *l) {
    for (size_t i = 0; i < gd_pb_count(l->frame->graph, "output"); i++) {
        const gd_pb *info = gd_pb_message_at(l->frame->graph, "output", i);
        const gd_status status = check_output(l, info);
        if (status == GD_OK) continue;
        gd_error_prefix("output '%.200s': ", gd_pb_string(info, "name"));
        return status;
    }
    return GD_OK;
}

static gd_status check_versions(const gd_onnx_loader *l) {
    int64_t version = -1;
    for (size_t i = 0; i < gd_pb_count(l->model, "opset_import"); i++) {
        const gd_pb *opset = gd_pb_message_at(l->model, "opset_import", i);
        const char *domain = gd_pb_string(opset, "domain");
        if (!*domain || strcmp(domain, "ai.onnx") == 0) version = gd_pb_int(opset, "version", -1);
    }
    if (!l->frame->graph) return gd_fail(GD_E_FORMAT, "it is not an ONNX file: it has no graph");
    if (version == -1 && gd_pb_count(l->frame->graph, "node") == 0) return GD_OK;
    if (version == -1)
        return gd_fail(GD_E_FORMAT,
                       "it does not say which opset of ONNX its nodes are from: there is no "
                       "opset_import with the domain \"\" or \"ai.onnx\"");
    if (version < GD_ONNX_OLDEST_OPSET)
        return gd_fail(GD_E_UNSUPPORTED, "its opset is %lld; opsets from %d on are supported",
                       (long long)version, GD_ONNX_OLDEST_OPSET);
    return GD_OK;
}

/* --- models and files ------------------------------------------------------------------------- */

static gd_status load_graph(gd_onnx_loader *l) {
    GD_TRY(check_versions(l));
    for (size_t i = 0; i < gd_pb_count(l->frame->graph, "output"); i++) {
        const gd_pb *info = gd_pb_message_at(l->frame->graph, "output", i);
        if (!gd_name_map_add(&l->frame->outputs, gd_pb_string(info, "name"), (void *)info))
            return gd_no_memory(NULL, "to load a graph");
    }
    GD_TRY(load_initializers(l));
    GD_TRY(load_inputs(l));
    GD_TRY(gd_onnx_load_nodes(l));
    return check_outputs(l);
}

gd_status gd_onnx_load_model(const gd_pb *model, char *folder, bool trainable, gd_graph **out) {
    gd_onnx_frame frame = {.graph = gd_pb_message(model, "graph")};
    gd_onnx_loader l = {.model = model, .frame = &frame, .folder = folder, .trainable = trainable};
    gd_scope *scope = gd_scope_open();
    /* the program's open graph blocks do not apply to the file */
    const gd_building building = gd_this_building;
    gd_this_building = (gd_building){NULL, NULL, 0};
    const gd_tracing tracing = gd_tracing_off();
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_graph *graph = gd_graph_new();
    gd_status status = graph ? GD_OK : GD_E_MEMORY;
    if (status == GD_OK) {
        gd_block block = gd_graph_begin(graph);
        status = load_graph(&l);
        gd_graph_end(&block);
    }
    status = gd_attempt_end(&attempt, status);
    if (status == GD_OK) *out = gd_retain(graph);
    gd_tracing_on(tracing);
    gd_this_building = building;
    gd_onnx_frame_free(&frame);
    for (size_t i = 0; i < l.count; i++) {
        gd_free(l.values[i]->items);
        gd_free(l.values[i]);
    }
    gd_free(l.values);
    gd_map_free(&l.evaluated);
    gd_onnx_operators_free(&l.operators);
    gd_scope_close(&scope);
    return status;
}

static gd_status load_once(const char *path, char *folder, bool trainable, gd_graph **out) {
    gd_pb_doc *doc;
    GD_TRY(gd_pb_load(&doc, &gd_onnx_model_schema, path));
    const gd_status status = gd_onnx_load_model(gd_pb_root(doc), folder, trainable, out);
    gd_pb_free(doc);
    if (status != GD_OK) gd_error_prefix("%s: ", path);
    return status;
}

/* If another process replaces the model while it is read, its external data may be removed. Then
 * the model is read again, with a lock that keeps other processes from replacing it. */
gd_status gd_onnx_load_file(const char *path, bool trainable, gd_graph **out) {
    if (!path) return gd_fail(GD_E_ARGUMENT, "gd_onnx_load: path is NULL");
    GD_TRY(gd_scope_reserve(1));
    char *folder = gd_file_folder(path);
    if (!folder) return gd_no_memory(NULL, "to load a graph");
    gd_status status = load_once(path, folder, trainable, out);
    if (status == GD_E_IO && access(path, R_OK) == 0) {
        const int lock = gd_file_lock_folder(path, false);
        status = load_once(path, folder, trainable, out);
        if (lock >= 0) close(lock);
    }
    gd_free(folder);
    return status;
}

gd_graph *gd_onnx_load_at(const char *site, const char *path, const gd_onnx_load_options *o) {
    o = o ? o : GD_ONNX_LOAD_OPTIONS_();
    GD_CALLED_FROM(site);
    GD_NO_AUTOCAST;
    gd_graph *graph = NULL;
    const gd_status status = gd_onnx_load_file(path, o->trainable, &graph);
    if (status != GD_OK) {
        gd_error_record(status);
        return NULL;
    }
    gd_scope_adopt(&graph->object);
    return graph;
}
