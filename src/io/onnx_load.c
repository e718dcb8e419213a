/* onnx_load.c - an ONNX file as a graph; see gradus/onnx.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "format/number.h"
#include "graph/trace.h"
#include "gradus/ops.h"
#include "io/names.h"
#include "io/onnx.h"
#include "ops/probe.h"

/* A value of the file. */
typedef struct value {
    const char *name;
    gd_tensor *tensor; /* as ops take it: a symbol, or a constant; NULL: a variable not made yet */
    gd_tensor *constant; /* its data, where they are known now */
    bool known;          /* they follow from constants alone, and are few */
    bool variable, trainable;
} value;

struct gd_onnx_loader {
    const gd_pb *model, *graph;
    gd_graph *made;
    char *folder;
    value **values;
    size_t count, room;
    gd_names by_name;
    gd_names later; /* outputs of nodes that come later: their nodes */
    int first_new;  /* nodes from this one on belong to what is being loaded */
    bool trainable; /* initializers of other programs' files */
};

enum { MOST_KNOWN = 1 << 16 }; /* elements of a constant that is worked out */

static gd_status no_memory(void) { return gd_fail(GD_E_MEMORY, "no memory to load a graph"); }

const char *gd_onnx_folder(const gd_onnx_loader *l) { return l->folder; }

/* --- values
 * --------------------------------------------------------------------------------------- */

static gd_status add_value(gd_onnx_loader *l, const char *name, value **out) {
    if (!*name) return gd_fail(GD_E_FORMAT, "a value has no name");
    if (gd_names_find(&l->by_name, name))
        return gd_fail(GD_E_FORMAT, "there are two values named '%.200s'", name);
    if (l->count == l->room) {
        const size_t room = l->room ? 2 * l->room : 64;
        value **grown = gd_realloc(l->values, room * sizeof *grown);
        if (!grown) return no_memory();
        l->values = grown;
        l->room = room;
    }
    value *v = gd_calloc(1, sizeof *v);
    if (!v || !gd_names_add(&l->by_name, name, v)) {
        gd_free(v);
        return no_memory();
    }
    v->name = name;
    l->values[l->count++] = v;
    *out = v;
    return GD_OK;
}

static gd_status find_value(gd_onnx_loader *l, const char *name, value **out) {
    *out = gd_names_find(&l->by_name, name);
    if (*out) return GD_OK;
    const gd_pb *maker = gd_names_find(&l->later, name);
    if (!maker)
        return gd_fail(GD_E_FORMAT,
                       "its input '%.200s' is made by no node and is no input of the graph", name);
    return gd_fail(GD_E_FORMAT,
                   "its input '%.200s' is made by '%.200s', which comes later: the graph has a "
                   "cycle, or is not in order",
                   name, gd_pb_string(maker, "name"));
}

/* The tensor that ops take. A variable is made when the first op reads it. */
static gd_status tensor_of(value *v, gd_tensor **out) {
    if (!v->tensor && v->variable) {
        char *prefix = gd_this_building.prefix;
        gd_this_building.prefix = NULL;
        gd_tensor *made = gd_variable(v->constant, .name = v->name, .trainable = v->trainable);
        gd_this_building.prefix = prefix;
        if (made->kind != GD_SYMBOL) return gd_failure();
        v->tensor = made;
    }
    *out = v->tensor;
    return GD_OK;
}

/* Works out a value that follows from constants. */
static gd_status evaluate(gd_onnx_loader *l, value *v) {
    gd_tensor **symbols = gd_calloc(2 * l->count + 1, sizeof *symbols),
              **given = symbols + l->count;
    if (!symbols) return no_memory();
    int64_t n = 0;
    for (size_t i = 0; i < l->count; i++)
        if (l->values[i]->variable && l->values[i]->tensor) {
            symbols[n] = l->values[i]->tensor;
            given[n++] = l->values[i]->constant;
        }
    void *tracing = gd_tracing_off();
    gd_tensors got =
        gd_evaluate(gd_list(v->tensor), (gd_tensors){symbols, n}, (gd_tensors){given, n});
    gd_tracing_on(tracing);
    gd_free(symbols);
    if (got.count != 1 || got.at[0]->kind != GD_VALUE) return gd_failure();
    v->constant = got.at[0];
    return GD_OK;
}

/* --- what loading a node asks and says
 * ------------------------------------------------------------ */

size_t gd_onnx_input_count(const gd_pb *node) { return gd_pb_count(node, "input"); }

gd_tensor *gd_onnx_get_input(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_status *status) {
    const char *name = gd_pb_string_at(node, "input", i);
    value *v;
    gd_tensor *t = NULL;
    *status = GD_OK;
    if (!*name) return NULL;
    *status = find_value(l, name, &v);
    if (*status == GD_OK) *status = tensor_of(v, &t);
    return t;
}

/* The data of a value that must be known now. */
static gd_status constant_of(gd_onnx_loader *l, const char *name, gd_tensor **out) {
    value *v;
    GD_TRY(find_value(l, name, &v));
    if (!v->constant && v->known) GD_TRY(evaluate(l, v));
    if (!v->constant)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "its input '%.200s' is known only when the graph runs; here it must be a constant",
            name);
    *out = v->constant;
    return GD_OK;
}

gd_status gd_onnx_set_number(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_attrs *attrs,
                             const char *option) {
    gd_tensor *t;
    GD_TRY(constant_of(l, gd_pb_string_at(node, "input", i), &t));
    if (gd_numel(t->rank, t->dims) != 1)
        return gd_fail(GD_E_FORMAT, "its input %zu must be one number", i);
    const double number = gd_item(t);
    return gd_attrs_set_float(attrs, option,
                              t->dtype == GD_F32 ? gd_float_shortest((float)number) : number);
}

static gd_status numbers_of(gd_onnx_loader *l, const char *name, int *count, int64_t *numbers) {
    gd_tensor *t;
    GD_TRY(constant_of(l, name, &t));
    const int64_t n = gd_numel(t->rank, t->dims);
    if (gd_dtype_is_float((gd_dtype)t->dtype) || t->rank > 1)
        return gd_fail(GD_E_FORMAT, "its input '%.200s' must be a list of whole numbers", name);
    if (n > GD_ONNX_MOST_NUMBERS)
        return gd_fail(GD_E_UNSUPPORTED, "its input '%.200s' has %lld numbers", name, (long long)n);
    if (n == 0) {
        *count = 0;
        return GD_OK;
    }
    void *tracing = gd_tracing_off();
    gd_tensor *whole = gd_cast(t, GD_I64);
    gd_tracing_on(tracing);
    GD_TRY(gd_copy_to(whole, numbers, (size_t)n * sizeof *numbers));
    *count = (int)n;
    return GD_OK;
}

gd_status gd_onnx_get_numbers(gd_onnx_loader *l, const gd_pb *node, size_t i, const char *attribute,
                              int *count, int64_t *numbers) {
    const char *name = gd_pb_string_at(node, "input", i);
    *count = -1;
    if (*name) return numbers_of(l, name, count, numbers);
    const gd_pb *a = gd_onnx_attribute_of(node, attribute);
    const gd_pb_list *list = gd_pb_get(a, "ints");
    if (!a) return GD_OK;
    if (!list && gd_pb_count(a, "i")) list = gd_pb_get(a, "i");
    *count =
        list ? (int)(list->count < GD_ONNX_MOST_NUMBERS ? list->count : GD_ONNX_MOST_NUMBERS) : 0;
    if (*count) memcpy(numbers, list->ints, (size_t)*count * sizeof *numbers);
    return GD_OK;
}

/* Whether all that a node reads is known now. */
static bool reads_constants(gd_onnx_loader *l, const gd_pb *node) {
    for (size_t i = 0; i < gd_pb_count(node, "input"); i++) {
        const char *name = gd_pb_string_at(node, "input", i);
        const value *v = *name ? gd_names_find(&l->by_name, name) : NULL;
        if (*name && (!v || (!v->known && !v->constant))) return false;
    }
    return true;
}

/* A symbol that the node did not make, or not as the first result of an op: its name is another's.
 */
static bool is_shared(const gd_onnx_loader *l, const gd_tensor *t) {
    return t->kind == GD_VALUE || t->node_index > 0 || t->node->origin->kind != GD_FROM_OP ||
           t->node->origin->number < l->first_new;
}

/* Names of the file are whole: what is put before the names of other nodes is not put before them.
 */
static gd_tensor *with_name(gd_tensor *t, const char *name) {
    char *prefix = gd_this_building.prefix;
    gd_this_building.prefix = NULL;
    gd_named(t, name);
    gd_this_building.prefix = prefix;
    return t;
}

static bool is_output(const gd_onnx_loader *l, const char *name) {
    for (size_t i = 0; i < gd_pb_count(l->graph, "output"); i++)
        if (strcmp(gd_pb_string(gd_pb_message_at(l->graph, "output", i), "name"), name) == 0)
            return true;
    return false;
}

gd_status gd_onnx_set_output(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_tensor *t) {
    const char *name = gd_pb_string_at(node, "output", i);
    value *v;
    if (!*name) return GD_OK;
    if (!t || t->kind == GD_FAILED) return gd_failure();
    GD_TRY(add_value(l, name, &v));
    if (t->kind == GD_VALUE && !is_output(l, name)) {
        v->tensor = v->constant = t;
        return GD_OK;
    }
    /* one that must be found gets a node of its own */
    if (is_shared(l, t) && is_output(l, name)) t = gd_clone(t);
    if (t->kind != GD_SYMBOL) return gd_failure();
    v->tensor = t;
    const bool few = !gd_has_unknown(&t, 1) && gd_numel(t->rank, t->dims) <= MOST_KNOWN;
    v->known = few && reads_constants(l, node) && t->node->op &&
               !(t->node->op->flags & (GD_OP_RANDOM | GD_OP_DYNAMIC));
    if (!is_shared(l, t)) with_name(t, name);
    return GD_OK;
}

/* --- inputs, initializers, outputs
 * ------------------------------------------------------------------ */

static gd_status read_shape(const gd_pb *info, gd_dtype *dtype, gd_shape *dims) {
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

static gd_status load_input(gd_onnx_loader *l, const gd_pb *info) {
    const char *name = gd_pb_string(info, "name");
    gd_dtype dtype;
    gd_shape dims;
    value *v;
    GD_TRY(read_shape(info, &dtype, &dims));
    GD_TRY(add_value(l, name, &v));
    v->tensor = gd_placeholder(dims, .name = name, .dtype = dtype);
    return v->tensor->kind == GD_SYMBOL ? GD_OK : gd_failure();
}

/* Old files list initializers among the inputs as well. */
static bool is_initializer(const gd_onnx_loader *l, const char *name) {
    const value *v = gd_names_find(&l->by_name, name);
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

static void mark_own_variables(gd_onnx_loader *l, const char *lines) {
    char name[1024];
    for (; *lines; lines += strcspn(lines, "\n"), lines += *lines == '\n') {
        const bool train = strncmp(lines, "train ", 6) == 0, keep = strncmp(lines, "keep ", 5) == 0;
        if (!train && !keep) continue;
        const char *begin = lines + (train ? 6 : 5);
        const size_t length = strcspn(begin, "\n");
        if (length >= sizeof name) continue;
        memcpy(name, begin, length);
        name[length] = '\0';
        value *v = gd_names_find(&l->by_name, name);
        if (!v || !v->constant) continue;
        v->variable = true;
        v->trainable = train;
        v->tensor = NULL;
    }
}

static gd_status load_initializers(gd_onnx_loader *l) {
    const char *own = own_variables(l);
    if (gd_pb_count(l->graph, "sparse_initializer"))
        return gd_fail(GD_E_UNSUPPORTED, "it has sparse initializers");
    for (size_t i = 0; i < gd_pb_count(l->graph, "initializer"); i++) {
        const gd_pb *tensor = gd_pb_message_at(l->graph, "initializer", i);
        value *v;
        GD_TRY(add_value(l, gd_pb_string(tensor, "name"), &v));
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
    for (size_t i = 0; i < gd_pb_count(l->graph, "input"); i++) {
        const gd_pb *info = gd_pb_message_at(l->graph, "input", i);
        if (is_initializer(l, gd_pb_string(info, "name"))) continue;
        const gd_status status = load_input(l, info);
        if (status == GD_OK) continue;
        gd_error_prefix("input '%.200s': ", gd_pb_string(info, "name"));
        return status;
    }
    return GD_OK;
}

/* The outputs are there, with the shapes that the file says. */
static gd_status check_output(gd_onnx_loader *l, const gd_pb *info) {
    const char *name = gd_pb_string(info, "name");
    value *v = gd_names_find(&l->by_name, name);
    gd_dtype dtype;
    gd_shape dims;
    gd_tensor *t;
    char text[160], wanted[160];
    if (!v) return gd_fail(GD_E_FORMAT, "no node makes it");
    GD_TRY(tensor_of(v, &t));
    if (!gd_pb_message(gd_pb_message(gd_pb_message(info, "type"), "tensor_type"), "shape"))
        return GD_OK;
    GD_TRY(read_shape(info, &dtype, &dims));
    bool fits = (gd_dtype)t->dtype == dtype && t->rank == dims.rank;
    for (int i = 0; fits && i < dims.rank; i++)
        fits = dims.at[i] == GD_ANY || t->dims[i] == GD_UNKNOWN || t->dims[i] == dims.at[i];
    if (fits) return GD_OK;
    return gd_fail(GD_E_SHAPE, "it is %s, and the file says %s%s",
                   gd_describe(t, text, sizeof text), gd_dtype_name(dtype),
                   gd_shape_text(dims.rank, dims.at, wanted, sizeof wanted));
}

static gd_status check_outputs(gd_onnx_loader *l) {
    for (size_t i = 0; i < gd_pb_count(l->graph, "output"); i++) {
        const gd_pb *info = gd_pb_message_at(l->graph, "output", i);
        const gd_status status = check_output(l, info);
        if (status == GD_OK) continue;
        gd_error_prefix("output '%.200s': ", gd_pb_string(info, "name"));
        return status;
    }
    return GD_OK;
}

/* --- nodes
 * ---------------------------------------------------------------------------------------- */

/* Every row, and every record that is one by itself, whose ONNX name this is. */
static gd_status load_standard(gd_onnx_loader *l, const gd_pb *node) {
    const char *type = gd_pb_string(node, "op_type");
    bool known = false, fits = false;
    for (int i = 0; i < gd_onnx_row_count; i++) {
        const gd_onnx_row *row = &gd_onnx_rows[i];
        if (row->body || strcmp(gd_onnx_row_name(row), type) != 0) continue;
        known = true;
        GD_TRY(row->load ? row->load(l, node) : gd_onnx_load_row(l, node, row, &fits));
        if (row->load || fits) return GD_OK;
    }
    for (int i = 0; i < gd_op_count(); i++) {
        gd_onnx_row row;
        const gd_op *op = gd_op_at(i);
        if (!op->onnx || strcmp(op->onnx, type) != 0 || !gd_onnx_own_row(op, &row)) continue;
        known = true;
        GD_TRY(gd_onnx_load_row(l, node, &row, &fits));
        if (fits) return GD_OK;
    }
    if (known) return gd_failure(); /* why the last one did not fit */
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
    const size_t count = gd_pb_count(l->graph, "node");
    for (size_t i = 0; i < count; i++) {
        const gd_pb *node = gd_pb_message_at(l->graph, "node", i);
        for (size_t k = 0; k < gd_pb_count(node, "output"); k++)
            if (*gd_pb_string_at(node, "output", k) &&
                !gd_names_add(&l->later, gd_pb_string_at(node, "output", k), (void *)node))
                return no_memory();
    }
    for (size_t i = 0; i < count; i++) {
        const gd_pb *node = gd_pb_message_at(l->graph, "node", i);
        /* what the node is made of, if of more than one op, is named after it */
        gd_block scope = gd_name_scope_begin(gd_pb_string_at(node, "output", 0));
        l->first_new = l->made->count;
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
    if (!l->graph) return gd_fail(GD_E_FORMAT, "it is no ONNX file: it has no graph");
    if (version == -1 && gd_pb_count(l->graph, "node") == 0) return GD_OK;
    if (version < GD_ONNX_OLDEST)
        return gd_fail(GD_E_UNSUPPORTED, "its opset is %lld; those from %d on can be read",
                       (long long)version, GD_ONNX_OLDEST);
    return GD_OK;
}

/* --- the call
 * ------------------------------------------------------------------------------------- */

static gd_status load_graph(gd_onnx_loader *l) {
    GD_TRY(check_versions(l));
    GD_TRY(load_initializers(l));
    GD_TRY(load_inputs(l));
    GD_TRY(load_nodes(l));
    return check_outputs(l);
}

static void loader_free(gd_onnx_loader *l) {
    for (size_t i = 0; i < l->count; i++) gd_free(l->values[i]);
    gd_free(l->values);
    gd_names_free(&l->by_name);
    gd_names_free(&l->later);
}

/* A graph from a message, owned by the caller. `folder` NULL: there are no files beside it. */
gd_status gd_onnx_load_model(const gd_pb *model, char *folder, bool trainable, gd_graph **out) {
    gd_onnx_loader l = {.model = model,
                        .graph = gd_pb_message(model, "graph"),
                        .folder = folder,
                        .trainable = trainable};
    gd_scope *scope = gd_scope_open();
    const gd_building building =
        gd_this_building; /* blocks that are open here are not the file's */
    gd_this_building = (gd_building){NULL, NULL, 0};
    void *tracing = gd_tracing_off();
    gd_block device = gd_device_begin(gd_device_get("cpu"));
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    l.made = gd_graph_new();
    gd_status status = l.made ? GD_OK : GD_E_MEMORY;
    if (status == GD_OK) {
        gd_block block = gd_graph_begin(l.made);
        status = load_graph(&l);
        gd_graph_end(&block);
    }
    status = gd_attempt_end(&attempt, status);
    if (status == GD_OK) *out = gd_graph_retain(l.made);
    gd_device_end(&device);
    gd_tracing_on(tracing);
    gd_this_building = building;
    loader_free(&l);
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

static gd_status load_file(const char *path, bool trainable, gd_graph **out) {
    gd_pb_doc *doc;
    if (!path) return gd_fail(GD_E_ARGUMENT, "gd_onnx_load: path is NULL");
    GD_TRY(gd_scope_reserve(1));
    GD_TRY(gd_pb_load(&doc, &gd_onnx_model_schema, path));
    char *folder = folder_of(path);
    const gd_status status =
        folder ? gd_onnx_load_model(gd_pb_root(doc), folder, trainable, out) : no_memory();
    gd_free(folder);
    gd_pb_free(doc);
    if (status != GD_OK) gd_error_prefix("%s: ", path);
    return status;
}

gd_graph *gd_onnx_load_at(const char *path, const gd_onnx_load_options *o) {
    gd_graph *graph = NULL;
    const gd_status status = load_file(path, o->trainable, &graph);
    if (status != GD_OK) {
        gd_error_stick(status);
        return NULL;
    }
    gd_scope_adopt(&graph->object);
    return graph;
}
