/* load.c - an ONNX file as a graph; see gradus/onnx.h. */
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
#include "ops/autocast.h"

static gd_status no_memory(void) { return gd_fail(GD_E_MEMORY, "no memory to load a graph"); }

/* --- inputs, initializers, outputs ------------------------------------------------------------ */

static GD_OWN_FRAME gd_status read_shape(const gd_pb *info, gd_dtype *dtype, gd_shape *dims) {
    const gd_pb *type = gd_pb_message(gd_pb_message(info, "type"), "tensor_type"),
                *shape = gd_pb_message(type, "shape");
    const size_t rank = gd_pb_count(shape, "dim");
    if (!type) return gd_fail(GD_E_UNSUPPORTED, "it is not a tensor");
    *dtype = gd_onnx_dtype(gd_pb_int(type, "elem_type", 0));
    if (*dtype == GD_DTYPE_NONE)
        return gd_fail(GD_E_UNSUPPORTED, "its elements are %s, which no dtype here holds",
                       gd_onnx_type_name(gd_pb_int(type, "elem_type", 0)));
    if (!shape) return gd_fail(GD_E_UNSUPPORTED, "its rank is not known");
    if (rank > GD_MAX_RANK)
        return gd_fail(GD_E_UNSUPPORTED, "it has %zu dimensions; at most %d are possible here",
                       rank, GD_MAX_RANK);
    *dims = (gd_shape){.rank = (int)rank, .form = 1};
    int64_t all = 1;
    for (size_t i = 0; i < rank; i++) {
        const gd_pb *dim = gd_pb_message_at(shape, "dim", i);
        const int64_t size = gd_pb_int(dim, "dim_value", GD_ANY);
        if (size < 0 && size != GD_ANY)
            return gd_fail(GD_E_FORMAT, "its dimension %zu is %lld", i, (long long)size);
        dims->at[i] = size;
        if (size > 0 && __builtin_mul_overflow(all, size, &all))
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
    const gd_onnx_value *v = gd_names_find(&l->frame->by_name, name);
    return v && v->constant;
}

/* What the file says of a variable that was saved here: "train NAME" or "keep NAME" in a line. */
static const char *own_variables(const gd_onnx_loader *l) {
    for (size_t i = 0; i < gd_pb_count(l->model, "metadata_props"); i++) {
        const gd_pb *pair = gd_pb_message_at(l->model, "metadata_props", i);
        if (strcmp(gd_pb_string(pair, "key"), "gradus.variables") == 0)
            return gd_pb_string(pair, "value");
    }
    return NULL;
}

static GD_OWN_FRAME void mark_own_variables(gd_onnx_loader *l, const char *lines) {
    char name[1024];
    for (; *lines; lines += strcspn(lines, "\n"), lines += *lines == '\n') {
        const bool train = strncmp(lines, "train ", 6) == 0, keep = strncmp(lines, "keep ", 5) == 0;
        if (!train && !keep) continue;
        const char *begin = lines + (train ? 6 : 5);
        const size_t length = strcspn(begin, "\n");
        if (length >= sizeof name) continue;
        memcpy(name, begin, length);
        name[length] = '\0';
        gd_onnx_value *v = gd_names_find(&l->frame->by_name, name);
        if (!v || !v->constant) continue;
        v->variable = true;
        v->trainable = train;
        v->tensor = NULL;
    }
}

static gd_status load_initializers(gd_onnx_loader *l) {
    const char *own = own_variables(l);
    l->own = own != NULL;
    if (gd_pb_count(l->frame->graph, "sparse_initializer"))
        return gd_fail(GD_E_UNSUPPORTED, "it has sparse initializers");
    for (size_t i = 0; i < gd_pb_count(l->frame->graph, "initializer"); i++) {
        const gd_pb *tensor = gd_pb_message_at(l->frame->graph, "initializer", i);
        gd_onnx_value *v;
        GD_TRY(gd_onnx_add_value(l, gd_pb_string(tensor, "name"), &v));
        GD_TRY(gd_onnx_read_tensor(tensor, l->folder, &v->constant));
        v->tensor = v->constant;
        if (own || !gd_dtype_is_float((gd_dtype)v->constant->dtype)) continue;
        v->variable = true;
        v->trainable = l->trainable;
        v->tensor = NULL;
    }
    if (own) mark_own_variables(l, own);
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

/* The outputs are there, with the shapes that the file says. */
static GD_OWN_FRAME gd_status check_output(gd_onnx_loader *l, const gd_pb *info) {
    const char *name = gd_pb_string(info, "name");
    gd_onnx_value *v = gd_names_find(&l->frame->by_name, name);
    gd_dtype dtype;
    gd_shape dims;
    gd_tensor *t;
    char text[160], wanted[160], message[400];
    if (!v) return gd_fail(GD_E_FORMAT, "no node makes it");
    GD_TRY(gd_onnx_tensor_of(v, &t));
    if (!gd_pb_message(gd_pb_message(gd_pb_message(info, "type"), "tensor_type"), "shape"))
        return GD_OK;
    GD_TRY(read_shape(info, &dtype, &dims));
    bool fits = t->rank == dims.rank;
    for (int i = 0; fits && i < dims.rank; i++)
        fits = dims.at[i] == GD_ANY || t->dims[i] == GD_UNKNOWN || t->dims[i] == dims.at[i];
    if (fits && (gd_dtype)t->dtype == dtype) return GD_OK;
    snprintf(message, sizeof message, "it is %s, and the file says %s%s",
             gd_describe(t, text, sizeof text), gd_dtype_name(dtype),
             gd_shape_text(dims.rank, dims.at, wanted, sizeof wanted));
    if ((gd_dtype)t->dtype != dtype) return gd_fail(GD_E_SHAPE, "%s", message);
    /* exporters are known to guess wrong sizes: what the nodes make counts */
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

/* --- nodes ------------------------------------------------------------------------------------ */

/* Rows for loading an operator: those of the table, then records that are one by themselves. */
typedef struct gd_onnx_operator {
    int count, room;
    gd_onnx_row *rows;
} gd_onnx_operator;

static bool add_row(gd_onnx_operator *o, const gd_onnx_row *row) {
    if (!gd_grow(o->rows, o->count, o->room)) return false;
    o->rows[o->count++] = *row;
    return true;
}

static bool add_rows(gd_onnx_operator *o, const char *type) {
    bool ok = true;
    for (int i = 0; i < gd_onnx_row_count && ok; i++) {
        const gd_onnx_row *row = &gd_onnx_rows[i];
        if (!row->body && !row->save && strcmp(gd_onnx_row_name(row), type) == 0)
            ok = add_row(o, row);
    }
    for (int i = 0; i < gd_op_count() && ok; i++) {
        gd_onnx_row row;
        const gd_op *op = gd_op_at(i);
        if (op->onnx && strcmp(op->onnx, type) == 0 && gd_onnx_own_row(op, &row))
            ok = add_row(o, &row);
    }
    return ok;
}

static void operator_free(gd_onnx_operator *o) {
    if (o) gd_free(o->rows);
    gd_free(o);
}

/* The table is long, and files have many nodes of few operators: each is looked up once. */
static gd_status find_operator(gd_onnx_loader *l, const char *type, const gd_onnx_operator **out) {
    gd_onnx_operator *o = gd_names_find(&l->operators, type);
    *out = o;
    if (o) return GD_OK;
    o = gd_calloc(1, sizeof *o);
    if (!o || !add_rows(o, type) || !gd_names_add(&l->operators, type, o)) {
        operator_free(o);
        return no_memory();
    }
    *out = o;
    return GD_OK;
}

static gd_status load_standard(gd_onnx_loader *l, const gd_pb *node) {
    const gd_onnx_operator *o;
    gd_tensor *padded;
    GD_TRY(gd_onnx_pad_windows(l, node, &padded));
    GD_TRY(find_operator(l, gd_pb_string(node, "op_type"), &o));
    for (int i = 0; i < o->count; i++) {
        const gd_onnx_row *row = &o->rows[i];
        bool fits = true;
        GD_TRY(row->load ? row->load(l, node) : gd_onnx_load_row(l, node, row, padded, &fits));
        if (fits) return GD_OK;
    }
    if (o->count) return gd_failure(); /* why the last one did not fit */
    return gd_fail(GD_E_UNSUPPORTED, "this operator is not known here");
}

static gd_status load_node(gd_onnx_loader *l, const gd_pb *node) {
    const char *domain = gd_pb_string(node, "domain");
    if (strcmp(domain, "gradus") == 0) return gd_onnx_load_own(l, node);
    if (*domain && strcmp(domain, "ai.onnx") != 0)
        return gd_fail(GD_E_UNSUPPORTED, "operators of the domain '%.60s' are not known here",
                       domain);
    return load_standard(l, node);
}

static gd_status load_nodes(gd_onnx_loader *l) {
    const size_t count = gd_pb_count(l->frame->graph, "node");
    for (size_t i = 0; i < count; i++) {
        const gd_pb *node = gd_pb_message_at(l->frame->graph, "node", i);
        for (size_t k = 0; k < gd_pb_count(node, "output"); k++)
            if (*gd_pb_string_at(node, "output", k) &&
                !gd_names_add(&l->frame->made, gd_pb_string_at(node, "output", k), (void *)node))
                return no_memory();
    }
    for (size_t i = 0; i < count; i++) {
        const gd_pb *node = gd_pb_message_at(l->frame->graph, "node", i);
        /* what the node is made of, if of more than one op, is named after it */
        gd_block scope = gd_name_scope_begin(gd_pb_string_at(node, "output", 0));
        l->first_new = gd_graph_building()->count;
        const gd_status status = load_node(l, node);
        gd_name_scope_end(&scope);
        if (status == GD_OK) continue;
        gd_error_prefix("node %zu '%.200s' (%.60s): ", i, gd_pb_string(node, "name"),
                        gd_pb_string(node, "op_type"));
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
    if (!l->frame->graph) return gd_fail(GD_E_FORMAT, "it is no ONNX file: it has no graph");
    if (version == -1 && gd_pb_count(l->frame->graph, "node") == 0) return GD_OK;
    if (version < GD_ONNX_OLDEST)
        return gd_fail(GD_E_UNSUPPORTED, "its opset is %lld; those from %d on can be read",
                       (long long)version, GD_ONNX_OLDEST);
    return GD_OK;
}

static void frame_free(gd_onnx_frame *f) {
    gd_names_free(&f->by_name);
    gd_names_free(&f->made);
    gd_names_free(&f->outputs);
}

/* --- graphs in nodes -------------------------------------------------------------------------- */

gd_status gd_onnx_make_variables(gd_onnx_loader *l, const gd_pb *graph) {
    static const char *const lists[] = {"input", "output"};
    gd_tensor *made;
    for (size_t i = 0; i < gd_pb_count(graph, "node"); i++) {
        const gd_pb *node = gd_pb_message_at(graph, "node", i);
        for (size_t k = 0; k < gd_pb_count(node, lists[0]); k++) {
            gd_onnx_value *v = gd_onnx_look_up(l, gd_pb_string_at(node, lists[0], k));
            if (v) GD_TRY(gd_onnx_tensor_of(v, &made));
        }
        for (size_t k = 0; k < gd_pb_count(node, "attribute"); k++) {
            const gd_pb *g = gd_pb_message(gd_pb_message_at(node, "attribute", k), "g");
            if (g) GD_TRY(gd_onnx_make_variables(l, g));
        }
    }
    for (size_t i = 0; i < gd_pb_count(graph, lists[1]); i++) {
        gd_onnx_value *v =
            gd_onnx_look_up(l, gd_pb_string(gd_pb_message_at(graph, lists[1], i), "name"));
        if (v) GD_TRY(gd_onnx_tensor_of(v, &made));
    }
    return GD_OK;
}

static gd_status inner_inputs(gd_onnx_loader *l, const gd_pb *graph, gd_tensor *const *inputs,
                              size_t n_inputs) {
    if (gd_pb_count(graph, "input") != n_inputs)
        return gd_fail(GD_E_FORMAT, "it has %zu inputs, and %zu are given to it",
                       gd_pb_count(graph, "input"), n_inputs);
    for (size_t i = 0; i < n_inputs; i++) {
        const gd_pb *info = gd_pb_message_at(graph, "input", i);
        const gd_pb *type = gd_pb_message(gd_pb_message(info, "type"), "tensor_type");
        const int64_t element = gd_pb_int(type, "elem_type", 0);
        gd_onnx_value *v;
        if (element && gd_onnx_dtype(element) != (gd_dtype)inputs[i]->dtype)
            return gd_fail(GD_E_DTYPE, "its input '%.200s' is to be %s, and is given %s",
                           gd_pb_string(info, "name"), gd_onnx_type_name(element),
                           gd_dtype_name((gd_dtype)inputs[i]->dtype));
        GD_TRY(gd_onnx_add_value(l, gd_pb_string(info, "name"), &v));
        v->tensor = inputs[i];
        if (inputs[i]->kind == GD_VALUE) v->constant = inputs[i];
    }
    return GD_OK;
}

/* Tensors that lie in an inner graph are constants of it. */
static gd_status inner_initializers(gd_onnx_loader *l, const gd_pb *graph) {
    for (size_t i = 0; i < gd_pb_count(graph, "initializer"); i++) {
        const gd_pb *tensor = gd_pb_message_at(graph, "initializer", i);
        gd_onnx_value *v;
        GD_TRY(gd_onnx_add_value(l, gd_pb_string(tensor, "name"), &v));
        GD_TRY(gd_onnx_read_tensor(tensor, l->folder, &v->constant));
        v->tensor = v->constant;
    }
    return GD_OK;
}

/* Outputs must be made by a node, so that what a graph gives as it got it goes through an Identity
 * (save/control.c writes them): it stays what it is. */
static const char *before_identity(const gd_onnx_loader *l, const char *name) {
    const gd_pb *maker = gd_names_find(&l->frame->made, name);
    if (!maker || strcmp(gd_pb_string(maker, "op_type"), "Identity") != 0) return name;
    const char *input = gd_pb_string_at(maker, "input", 0);
    return gd_names_find(&l->frame->made, input) ? name : input;
}

static gd_status inner_graph(gd_onnx_loader *l, const gd_pb *graph, gd_tensor *const *inputs,
                             size_t n_inputs, gd_onnx_value **outputs) {
    gd_tensor *t;
    GD_TRY(inner_initializers(l, graph));
    GD_TRY(inner_inputs(l, graph, inputs, n_inputs));
    GD_TRY(load_nodes(l));
    for (size_t k = 0; k < gd_pb_count(graph, "output"); k++) {
        const char *name = gd_pb_string(gd_pb_message_at(graph, "output", k), "name");
        outputs[k] = gd_onnx_look_up(l, before_identity(l, name));
        if (!outputs[k]) return gd_fail(GD_E_FORMAT, "no node makes its output '%.200s'", name);
        GD_TRY(gd_onnx_tensor_of(outputs[k], &t));
    }
    return GD_OK;
}

gd_status gd_onnx_load_inner(gd_onnx_loader *l, const gd_pb *graph, gd_tensor *const *inputs,
                             size_t n_inputs, gd_onnx_value **outputs) {
    gd_onnx_frame frame = {.graph = graph, .outer = l->frame};
    const int first_new = l->first_new;
    if (l->depth >= GD_ONNX_MOST_NESTED)
        return gd_fail(GD_E_UNSUPPORTED, "graphs lie in graphs more than %d levels deep",
                       GD_ONNX_MOST_NESTED);
    l->frame = &frame;
    l->depth++;
    const gd_status status = inner_graph(l, graph, inputs, n_inputs, outputs);
    l->depth--;
    l->frame = frame.outer;
    l->first_new = first_new;
    frame_free(&frame);
    return status;
}

/* --- the call --------------------------------------------------------------------------------- */

static gd_status load_graph(gd_onnx_loader *l) {
    GD_TRY(check_versions(l));
    for (size_t i = 0; i < gd_pb_count(l->frame->graph, "output"); i++) {
        const gd_pb *info = gd_pb_message_at(l->frame->graph, "output", i);
        if (!gd_names_add(&l->frame->outputs, gd_pb_string(info, "name"), (void *)info))
            return no_memory();
    }
    GD_TRY(load_initializers(l));
    GD_TRY(load_inputs(l));
    GD_TRY(load_nodes(l));
    return check_outputs(l);
}

/* A graph from a message, owned by the caller. `folder` NULL: there are no files beside it. */
gd_status gd_onnx_load_model(const gd_pb *model, char *folder, bool trainable, gd_graph **out) {
    gd_onnx_frame frame = {.graph = gd_pb_message(model, "graph")};
    gd_onnx_loader l = {.model = model, .frame = &frame, .folder = folder, .trainable = trainable};
    gd_scope *scope = gd_scope_open();
    const gd_building building =
        gd_this_building; /* blocks that are open here are not the file's */
    gd_this_building = (gd_building){NULL, NULL, 0};
    const gd_tracing tracing = gd_tracing_off();
    gd_block device = gd_device_begin(gd_device_get("cpu"));
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_graph *made = gd_graph_new();
    gd_status status = made ? GD_OK : GD_E_MEMORY;
    if (status == GD_OK) {
        gd_block block = gd_graph_begin(made);
        status = load_graph(&l);
        gd_graph_end(&block);
    }
    status = gd_attempt_end(&attempt, status);
    if (status == GD_OK) *out = gd_retain(made);
    gd_device_end(&device);
    gd_tracing_on(tracing);
    gd_this_building = building;
    frame_free(&frame);
    for (size_t i = 0; i < l.count; i++) {
        gd_free(l.values[i]->items);
        gd_free(l.values[i]);
    }
    gd_free(l.values);
    gd_map_free(&l.evaluated);
    for (size_t i = 0; i < l.operators.size; i++) operator_free(l.operators.slots[i].value);
    gd_names_free(&l.operators);
    gd_scope_close(&scope);
    return status;
}

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    const size_t length = !slash ? 1 : slash == path ? 1 : (size_t)(slash - path);
    char *folder = gd_malloc(length + 1);
    if (!folder) return NULL;
    memcpy(folder, slash ? path : ".", length);
    folder[length] = '\0';
    return folder;
}

static gd_status load_once(const char *path, char *folder, bool trainable, gd_graph **out) {
    gd_pb_doc *doc;
    GD_TRY(gd_pb_load(&doc, &gd_onnx_model_schema, path));
    const gd_status status = gd_onnx_load_model(gd_pb_root(doc), folder, trainable, out);
    gd_pb_free(doc);
    if (status != GD_OK) gd_error_prefix("%s: ", path);
    return status;
}

/* Data that a model refers to are gone once another process has replaced the model. Then it is read
 * once more while no process may replace it. */
gd_status gd_onnx_load_file(const char *path, bool trainable, gd_graph **out) {
    if (!path) return gd_fail(GD_E_ARGUMENT, "gd_onnx_load: path is NULL");
    GD_TRY(gd_scope_reserve(1));
    char *folder = folder_of(path);
    if (!folder) return no_memory();
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
    GD_CALLED_FROM(site);
    GD_NO_AUTOCAST;
    gd_graph *graph = NULL;
    const gd_status status = gd_onnx_load_file(path, o->trainable, &graph);
    if (status != GD_OK) {
        gd_error_stick(status);
        return NULL;
    }
    gd_scope_adopt(&graph->object);
    return graph;
}
