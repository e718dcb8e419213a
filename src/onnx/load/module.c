/* module.c - loads an ONNX file as a module, and reads its metadata; see gradus/onnx.h.
 *
 * The variables of the loaded graph become parameters and buffers of the module. A forward call
 * evaluates the graph with ordinary ops, so that gradients reach the parameters.
 */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "graph/build/trace.h"
#include "gradus/ops.h"
#include "nn/module.h"
#include "onnx/load/load.h"
#include "dispatch/intern.h"

/* The graph of a file. Clones of its module share it. */
typedef struct model {
    gd_object object;
    gd_graph *graph;     /* retained */
    gd_tensor **feeds;   /* symbols of inputs, then of variables; retained */
    const char **paths;  /* of the variables in the module; interned */
    gd_tensor **outputs; /* retained */
    int n_inputs, n_variables, n_outputs;
} model;

static void destroy_model(gd_object *object) {
    model *m = (model *)object;
    for (int i = 0; m->feeds && i < m->n_inputs + m->n_variables; i++) gd_release(m->feeds[i]);
    for (int i = 0; m->outputs && i < m->n_outputs; i++) gd_release(m->outputs[i]);
    gd_free(m->feeds);
    gd_free(m->paths);
    gd_free(m->outputs);
    gd_release(m->graph);
    gd_free(m);
    gd_object_count(-1);
}
static const gd_class model_class = {.name = "onnx model", .destroy = destroy_model};

/* Copies the part of a path before its first dot and moves *path behind the dot; false: there is no
 * dot. */
static bool next_path_part(const char **path, char name[256]) {
    const char *dot = strchr(*path, '.');
    if (!dot) return false;
    snprintf(name, 256, "%.*s", (int)(dot - *path), *path);
    *path = dot + 1;
    return true;
}

/* The parameter or buffer at a path. */
static gd_tensor *find_tensor(gd_module *m, const char *path) {
    char name[256];
    while (next_path_part(&path, name)) {
        const gd_entry *e = gd_module_entry(m, name);
        if (!e || !e->object) return NULL;
        m = (gd_module *)e->object;
    }
    const gd_entry *e = gd_module_entry(m, path);
    return e ? (gd_tensor *)e->object : NULL;
}

static gd_tensors run_model(gd_module *module, gd_tensors in) {
    const model *m = (const model *)module->source;
    const int count = m->n_inputs + m->n_variables;
    gd_tensor **values = gd_list_new(count), **results = gd_list_new(m->n_outputs);
    gd_status status = values && results ? GD_OK : GD_E_MEMORY;
    if (status == GD_OK && in.count != m->n_inputs)
        status = gd_fail(GD_E_ARGUMENT, "it takes %d inputs, and gets %lld", m->n_inputs,
                         (long long)in.count);
    for (int i = 0; i < count && status == GD_OK; i++) {
        values[i] = i < m->n_inputs ? in.at[i] : find_tensor(module, m->paths[i - m->n_inputs]);
        if (!values[i]) status = gd_fail(GD_E_ARGUMENT, "input or tensor %d is absent", i);
    }
    if (status == GD_OK)
        status = gd_evaluate_as_ops((gd_tensors){m->outputs, m->n_outputs},
                                    (gd_tensors){m->feeds, count}, (gd_tensors){values, count},
                                    (gd_rng){0, 0}, results);
    if (status == GD_OK) return (gd_tensors){results, m->n_outputs};
    gd_error_record(status);
    return gd_list_of_errors(m->n_outputs);
}

/* Adds a tensor at a path, and the modules that the path leads through. */
static gd_status put_tensor(gd_module *m, const char *path, gd_tensor *t, bool trainable) {
    char name[256];
    while (next_path_part(&path, name)) {
        const gd_entry *e = gd_module_entry(m, name);
        gd_module *child = e ? (gd_module *)e->object : gd_module_bare("part");
        if (!child) return GD_E_MEMORY;
        if (e && e->kind != GD_A_CHILD)
            return gd_fail(
                GD_E_FORMAT,
                "'%s' is the name of a tensor and also the beginning of the name of another", name);
        if (!e) GD_TRY(gd_module_put(m, GD_A_CHILD, name, child, NULL));
        m = child;
    }
    return trainable ? gd_module_put_parameter(m, path, t, NULL)
                     : gd_module_put(m, GD_A_BUFFER, path, t, NULL);
}

/* A variable's name as a path in the module. A path has no empty parts: in a name that has some,
 * dots become underscores. */
static const char *variable_path(const char *name) {
    char text[256];
    snprintf(text, sizeof text, "%s", name);
    const size_t n = strlen(text);
    bool is_path = n > 0 && text[0] != '.' && text[n - 1] != '.' && !strstr(text, "..");
    for (char *c = text; !is_path && *c; c++)
        if (*c == '.') *c = '_';
    return gd_intern(text);
}

static gd_status add_variables(gd_module *module, model *m) {
    const int count = m->graph->n_variables;
    m->paths = gd_calloc((size_t)count + 1, sizeof *m->paths);
    gd_tensor **feeds = gd_realloc(m->feeds, (size_t)(m->n_inputs + count + 1) * sizeof *feeds);
    if (feeds) m->feeds = feeds;
    if (!feeds || !m->paths) return gd_fail(GD_E_MEMORY, "no memory for a model");
    for (int i = 0; i < count; i++) {
        const gd_origin *o = m->graph->variables[i]->origin;
        gd_tensor *symbol = gd_graph_find(m->graph, o->name);
        const char *path = variable_path(o->name);
        if (!path || !symbol || symbol->kind != GD_SYMBOL)
            return gd_fail(GD_E_MEMORY, "no memory for a model");
        gd_tensor *value = gd_clone(o->initial);
        if (value->kind == GD_FAILED) return gd_failure();
        const gd_status status = put_tensor(module, path, value, o->trainable);
        if (status != GD_OK) {
            gd_error_prefix("'%.200s': ", o->name);
            return status;
        }
        m->paths[m->n_variables] = path;
        m->feeds[m->n_inputs + m->n_variables++] = gd_retain(symbol);
    }
    return GD_OK;
}

/* The symbols of a list of the file, "input" or "output". Old files also list initializers among
 * the inputs: with `placeholders` those are skipped. */
static gd_status find_symbols(gd_graph *graph, const gd_pb *file, const char *list,
                              bool placeholders, gd_tensor ***symbols, int *count) {
    const size_t n = gd_pb_count(file, list);
    *symbols = gd_calloc(n + 1, sizeof **symbols);
    if (!*symbols) return gd_fail(GD_E_MEMORY, "no memory for a model");
    for (size_t i = 0; i < n; i++) {
        const char *name = gd_pb_string(gd_pb_message_at(file, list, i), "name");
        gd_tensor *t = gd_graph_find(graph, name);
        if (placeholders && (!t || t->node->origin->kind != GD_FROM_PLACEHOLDER)) continue;
        if (!t) return gd_fail(GD_E_UNSUPPORTED, "output '%.200s' is a constant", name);
        (*symbols)[(*count)++] = gd_retain(t);
    }
    return GD_OK;
}

static gd_status fill_model(gd_module *module, model *m, const char *path) {
    gd_pb_doc *doc;
    GD_TRY(gd_onnx_load_file(path, true, &m->graph));
    GD_TRY(gd_pb_load(&doc, &gd_onnx_model_schema, path));
    const gd_pb *file = gd_pb_message(gd_pb_root(doc), "graph");
    gd_status status = find_symbols(m->graph, file, "input", true, &m->feeds, &m->n_inputs);
    if (status == GD_OK)
        status = find_symbols(m->graph, file, "output", false, &m->outputs, &m->n_outputs);
    gd_pb_free(doc);
    GD_TRY(status);
    if (m->n_outputs == 0) return gd_fail(GD_E_FORMAT, "it has no outputs");
    return add_variables(module, m);
}

gd_module *gd_onnx_module_at(const char *site, const char *path) {
    GD_CALLED_FROM(site);
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    GD_EAGER;
    gd_module *module = path ? gd_module_bare("onnx") : NULL;
    gd_status status = module ? GD_OK : path ? GD_E_MEMORY : gd_fail(GD_E_ARGUMENT, "path is NULL");
    model *m = status == GD_OK ? gd_calloc(1, sizeof *m) : NULL;
    if (status == GD_OK && !m) status = gd_fail(GD_E_MEMORY, "no memory for a model");
    if (m) {
        gd_object_init(&m->object, &model_class);
        gd_object_count(1);
        module->source = &m->object;
        module->contained = run_model;
        status = fill_model(module, m, path);
    }
    if (status == GD_OK) gd_keep(module);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (status != GD_OK) gd_error_prefix("gd_onnx_module: ");
    gd_report(site, status);
    return status == GD_OK ? module : NULL;
}

/* --- metadata --------------------------------------------------------------------------------- */

int64_t gd_onnx_metadata_at(const char *site, const char *path, const char *key, char *text,
                            size_t size) {
    gd_pb_doc *doc;
    if (size > 0 && text) text[0] = '\0';
    gd_status status = path && key
                           ? gd_pb_load(&doc, &gd_onnx_model_schema, path)
                           : gd_fail(GD_E_ARGUMENT, "gd_onnx_metadata: an argument is NULL");
    if (status != GD_OK) {
        gd_report(site, status);
        return -1;
    }
    const gd_pb *root = gd_pb_root(doc);
    int64_t length = -1;
    for (size_t i = 0; i < gd_pb_count(root, "metadata_props") && length < 0; i++) {
        const gd_pb *pair = gd_pb_message_at(root, "metadata_props", i);
        if (strcmp(gd_pb_string(pair, "key"), key) != 0) continue;
        const char *value = gd_pb_string(pair, "value");
        length = (int64_t)strlen(value);
        if (size > 0 && text) snprintf(text, size, "%s", value);
    }
    gd_pb_free(doc);
    return length;
}
