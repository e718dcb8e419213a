/* module.c - modules as ONNX files, and ONNX files as modules; see gradus/onnx.h. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "graph/build/trace.h"
#include "gradus/ops.h"
#include "onnx/save/save.h"
#include "nn/module.h"
#include "ops/intern.h"

/* --- saving ----------------------------------------------------------------------------------- */

/* Word `index` of a list of names, or of its last word with a number behind it. */
static void pick_name(const char *names, int64_t index, char *text, size_t size) {
    const char *word = names, *last = names;
    int64_t at = 0;
    for (;; at++) {
        word += strspn(word, " ");
        if (!*word) break;
        last = word;
        if (at == index) break;
        word += strcspn(word, " ");
    }
    const int length = (int)strcspn(last, " ");
    if (at == index && *word) snprintf(text, size, "%.*s", length, last);
    else snprintf(text, size, "%.*s_%lld", length, last, (long long)index);
}

typedef struct saving {
    const char *path;
    gd_module *net;
    gd_tensors examples;
    const gd_onnx_save_module_options *options;
} saving;

/* In a graph: placeholders like the examples. */
static gd_status make_inputs(const saving *s, bool any_batch, gd_tensor **inputs) {
    char name[200];
    for (int64_t i = 0; i < s->examples.count; i++) {
        const gd_tensor *x = s->examples.at[i];
        gd_shape dims = gd_shape_of(x->rank, x->dims);
        if (any_batch && dims.rank > 0) dims.at[0] = GD_ANY;
        pick_name(s->options->inputs, i, name, sizeof name);
        inputs[i] = gd_placeholder(dims, .name = name, .dtype = (gd_dtype)x->dtype);
        if (inputs[i]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

static gd_status trace_outputs(const saving *s, gd_tensor *const *inputs, gd_tensors *outputs) {
    char name[200];
    gd_tensors made = gd_module_call(s->net, (gd_tensors){inputs, s->examples.count});
    if (made.count < 1 || gd_failed()) return gd_failure();
    gd_tensor **named = gd_list_new(made.count);
    if (!named) return GD_E_MEMORY;
    for (int64_t i = 0; i < made.count; i++) {
        pick_name(s->options->outputs, i, name, sizeof name);
        gd_tensor *y = made.at[i];
        if (y->kind != GD_SYMBOL || y->node->origin->kind != GD_FROM_OP)
            y = gd_clone(y); /* an input as it is */
        named[i] = gd_named(y, name);
        if (named[i]->kind == GD_FAILED) return gd_failure();
    }
    *outputs = (gd_tensors){named, made.count};
    return GD_OK;
}

static gd_status save_traced(const saving *s, bool any_batch) {
    const gd_onnx_save_options options = {.external_above = s->options->external_above,
                                          .metadata = s->options->metadata};
    gd_graph *graph = gd_graph_new();
    gd_tensor **inputs = gd_list_new(s->examples.count);
    gd_tensors outputs;
    if (!graph || !inputs) return GD_E_MEMORY;
    gd_block block = gd_graph_begin(graph);
    gd_status status = make_inputs(s, any_batch, inputs);
    if (status == GD_OK) status = trace_outputs(s, inputs, &outputs);
    gd_graph_end(&block);
    GD_TRY(status);
    gd_session *session = gd_session_new(graph);
    if (!session) return gd_failure();
    return gd_onnx_save_model(s->path, session, (gd_tensors){inputs, s->examples.count}, outputs,
                              &options, s->net);
}

/* One attempt in a scope of its own. */
static gd_status try_save(const saving *s, bool any_batch) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin();
    gd_status status = save_traced(s, any_batch);
    gd_grad_mode_end(&grad);
    gd_scope_close(&scope);
    return gd_attempt_end(&attempt, status);
}

static gd_status check_saving(const saving *s) {
    const char *wrong = !s->path  ? "path is NULL"
                        : !s->net ? "the module is NULL"
                        : s->examples.count < 1 || !s->examples.at
                            ? "there are no examples of inputs"
                        : !s->options->inputs || !*s->options->inputs   ? "inputs have no name"
                        : !s->options->outputs || !*s->options->outputs ? "outputs have no name"
                                                                        : NULL;
    if (wrong) return gd_fail(GD_E_ARGUMENT, "gd_onnx_save_module: %s", wrong);
    for (int64_t i = 0; i < s->examples.count; i++)
        if (!s->examples.at[i])
            return gd_fail(GD_E_ARGUMENT, "gd_onnx_save_module: example %lld is NULL",
                           (long long)i);
    return GD_OK;
}

/* Modes of all modules of a tree, to put them back. */
typedef struct modes {
    gd_module **at;
    int *training;
    int count, room;
} modes;

static void count_modes(gd_module *m, const char *path, void *user) {
    (void)m, (void)path;
    ((modes *)user)->room++;
}

static void note_mode(gd_module *m, const char *path, void *user) {
    modes *all = user;
    (void)path;
    if (all->count == all->room) return;
    all->at[all->count] = m;
    all->training[all->count++] = m->training;
}

static gd_status take_modes(gd_module *net, modes *all) {
    *all = (modes){.count = 0};
    GD_TRY(gd_module_apply(net, count_modes, all));
    all->at = gd_calloc((size_t)all->room, sizeof *all->at);
    all->training = gd_calloc((size_t)all->room, sizeof *all->training);
    if (!all->at || !all->training) return gd_fail(GD_E_MEMORY, "no memory to save a module");
    return gd_module_apply(net, note_mode, all);
}

static void put_modes_back(modes *all) {
    for (int i = 0; i < all->count; i++) all->at[i]->training = all->training[i];
    gd_free(all->at);
    gd_free(all->training);
}

gd_status gd_onnx_save_module_at(const char *site, const char *path, gd_module *net,
                                 gd_tensors examples, const gd_onnx_save_module_options *options) {
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    const saving s = {path, net, examples, options};
    gd_status status = check_saving(&s);
    if (status != GD_OK) return gd_report(site, status);
    modes before;
    status = take_modes(net, &before);
    if (status == GD_OK) {
        gd_module_eval(net);
        status = try_save(&s, options->any_batch);
        if (status != GD_OK && options->any_batch && status != GD_E_MEMORY && status != GD_E_IO) {
            /* it may need to know the size of its batch; if it is something else, it fails again */
            char why[GD_MESSAGE_MAX];
            snprintf(why, sizeof why, "%s", gd_latest_failure());
            status = try_save(&s, false);
            if (status == GD_OK)
                gd_notice(GD_LOG_WARNING, "%s is for batches of %lld alone: %s", path,
                          (long long)examples.at[0]->dims[0], why);
        }
    }
    put_modes_back(&before);
    return gd_report(site, status);
}

/* --- loading ---------------------------------------------------------------------------------- */

/* The graph of a file, which clones of its module share. */
typedef struct model {
    gd_object object;
    gd_graph *graph;     /* held */
    gd_tensor **feeds;   /* inputs, then variables; held */
    const char **paths;  /* of the variables in the module; interned */
    gd_tensor **outputs; /* held */
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

/* The parameter or buffer at a path. */
static gd_tensor *find_tensor(gd_module *m, const char *path) {
    for (;;) {
        const char *dot = strchr(path, '.');
        char name[256];
        if (!dot) break;
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        const gd_entry *e = gd_module_entry(m, name);
        if (!e || !e->object) return NULL;
        m = (gd_module *)e->object;
        path = dot + 1;
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
        status = gd_fail(GD_E_ARGUMENT, "it takes %d inputs, and got %lld", m->n_inputs,
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
    gd_error_stick(status);
    return gd_list_of_errors(m->n_outputs);
}

/* Adds a tensor at a path: modules between are made. */
static gd_status put_tensor(gd_module *m, const char *path, gd_tensor *t, bool trainable) {
    for (;;) {
        const char *dot = strchr(path, '.');
        char name[256];
        if (!dot) break;
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        const gd_entry *e = gd_module_entry(m, name);
        gd_module *child = e ? (gd_module *)e->object : gd_module_bare("part");
        if (!child) return GD_E_MEMORY;
        if (e && e->kind != GD_A_CHILD)
            return gd_fail(GD_E_FORMAT, "'%s' is a tensor and a part of the name of another", name);
        if (!e) GD_TRY(gd_module_put(m, GD_A_CHILD, name, child, NULL));
        m = child;
        path = dot + 1;
    }
    return trainable ? gd_module_put_parameter(m, path, t, NULL)
                     : gd_module_put(m, GD_A_BUFFER, path, t, NULL);
}

/* Names of modules have no empty parts: others become one. */
static const char *path_of(const char *name) {
    char text[256];
    snprintf(text, sizeof text, "%s", name);
    const size_t n = strlen(text);
    bool parts = n > 0 && text[0] != '.' && text[n - 1] != '.' && !strstr(text, "..");
    for (char *c = text; !parts && *c; c++)
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
        const char *path = path_of(o->name);
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

/* Symbols of the names in a list of the file; old files have initializers among the inputs. */
static gd_status find_symbols(gd_graph *graph, const gd_pb *file, const char *list, bool sources,
                              gd_tensor ***symbols, int *count) {
    const size_t n = gd_pb_count(file, list);
    *symbols = gd_calloc(n + 1, sizeof **symbols);
    if (!*symbols) return gd_fail(GD_E_MEMORY, "no memory for a model");
    for (size_t i = 0; i < n; i++) {
        const char *name = gd_pb_string(gd_pb_message_at(file, list, i), "name");
        gd_tensor *t = gd_graph_find(graph, name);
        if (sources && (!t || t->node->origin->kind != GD_FROM_PLACEHOLDER)) continue;
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
