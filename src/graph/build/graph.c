/* graph.c - graphs: their nodes, placeholders, variables, and names. */
#include "graph/build/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/freed.h"
#include "core/grow.h"

/* --- the object ------------------------------------------------------------------------------- */

static void graph_destroy(gd_object *object) {
    gd_graph *graph = (gd_graph *)object;
    for (int i = 0; i < graph->count; i++) graph->nodes[i]->origin->graph = NULL;
    for (int i = graph->count; i-- > 0;) gd_node_release(graph->nodes[i]);
    for (int i = 0; i < graph->n_written; i++) {
        gd_release(graph->written[i].tensor);
        gd_release(graph->written[i].symbol);
        gd_node_release(graph->written[i].node);
    }
    for (int i = 0; i < graph->n_captured; i++) {
        gd_release(graph->captured[i].tensor);
        gd_storage_release(graph->captured[i].storage);
    }
    for (int i = 0; i < graph->n_versions; i++) {
        gd_release(graph->versions[i].leaf);
        gd_release(graph->versions[i].symbol);
    }
    for (int i = 0; i < graph->n_grads; i++) {
        gd_release(graph->grads[i].leaf);
        gd_release(graph->grads[i].now);
        gd_release(graph->grads[i].fed);
    }
    for (int i = 0; i < graph->n_frozen; i++) gd_release(graph->frozen[i].tensor);
    for (int i = 0; i < graph->n_values; i++) gd_object_release(graph->values[i].owner);
    gd_free(graph->values);
    gd_free(graph->frozen);
    gd_free(graph->versions);
    gd_free(graph->grads);
    gd_free(graph->captured);
    gd_free(graph->written);
    for (size_t i = 0; i < graph->symbols.size; i++) gd_release(graph->symbols.slots[i].value);
    gd_name_map_free(&graph->symbols);
    gd_map_free(&graph->value_of);
    gd_map_free(&graph->frozen_of);
    gd_map_free(&graph->grad_of);
    gd_map_free(&graph->capture_of);
    gd_map_free(&graph->latest_write);
    gd_map_free(&graph->views);
    gd_name_map_free(&graph->names);
    gd_free(graph->nodes);
    gd_free(graph->variables);
    gd_free(graph->placeholders);
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class graph_class = {.name = "graph", .destroy = graph_destroy};
GD_KNOWN_CLASS(graph_class)

gd_graph *gd_graph_new(void) {
    gd_graph *graph = gd_scope_reserve(1) == GD_OK ? gd_calloc(1, sizeof *graph) : NULL;
    if (!graph) {
        gd_error_record(gd_no_memory(NULL, "for a graph"));
        return NULL;
    }
    gd_object_init(&graph->object, &graph_class);
    graph->guard = gd_guard_new();
    atomic_init(&graph->became, gd_tensors_became());
    gd_object_count(1);
    gd_scope_adopt(&graph->object);
    return graph;
}

static void free_output_names(gd_origin *origin) {
    for (int k = 0; k < origin->n_output_names; k++) gd_free(origin->output_names[k]);
    gd_free(origin->output_names);
}

void gd_origin_free(gd_origin *origin) {
    if (origin->initial) gd_object_release(&origin->initial->object);
    for (int i = 0; i < origin->n_after; i++) gd_node_release(origin->after[i]);
    gd_free(origin->after);
    free_output_names(origin);
    gd_free(origin->name);
    gd_free(origin);
}

static const char *symbol_text(const gd_tensor *t, char *text, size_t size) {
    const gd_node *node = t->node;
    char output[160];
    const char *name = node && node->origin
                           ? gd_output_name(node, t->node_index, output, sizeof output)
                       : node && node->op ? node->op->name
                                          : "the tensor";
    if (node && node->site) snprintf(text, size, "'%s' of %s", name, node->site);
    else snprintf(text, size, "'%s'", name);
    return text;
}

static bool is_of_jit(const gd_graph *graph) {
    while (graph && graph->outer) graph = graph->outer;
    return graph && graph->jit;
}

bool gd_symbol_is_left_over(const gd_tensor *t) {
    const gd_origin *origin = t && t->kind == GD_SYMBOL && t->node ? t->node->origin : NULL;
    const gd_graph *graph = origin ? origin->graph : NULL, *building = gd_graph_building();
    if (!graph || !graph->jit || graph->traces_writes) return false;
    while (building && building != graph) building = building->outer;
    return !building; /* a jit adds its gradients later */
}

static gd_status fail_unread(const gd_tensor *t, const char *what) {
    const gd_origin *origin = t->node ? t->node->origin : NULL;
    char text[200];
    symbol_text(t, text, sizeof text);
    if (origin && (!origin->graph || gd_symbol_is_left_over(t)))
        return gd_fail(GD_E_STATE,
                       "%s: %s is a symbol of a %s; return it from the function of a jit, and read "
                       "the result of the call",
                       what, text,
                       origin->graph ? "jit's function that has returned" : "graph that was freed");
    if (origin && is_of_jit(origin->graph))
        return gd_fail(GD_E_STATE,
                       "%s: %s has no value while the function of a jit is traced; return it and "
                       "read the result of the call, or choose between tensors with gd_where or "
                       "gd_cond",
                       what, text);
    return gd_fail(GD_E_STATE,
                   "%s: %s is a symbol of a graph and has no data; run the graph and read its "
                   "fetches",
                   what, text);
}

static void __attribute__((constructor)) set_graph_hooks(void) {
    gd_symbol_unread_hook = fail_unread;
    gd_origin_free_hook = gd_origin_free;
    gd_symbol_text_hook = symbol_text;
}

bool gd_is_tracing(void) { return gd_graph_building() != NULL; }

/* --- nodes ------------------------------------------------------------------------------------ */

gd_graph *gd_graph_of(gd_tensor *const *in, int n_in) {
    gd_graph *building = gd_graph_building();
    if (gd_this_thread.tracer == &gd_no_graph) return NULL;
    if (building && building->body) return building; /* inputs from outside are captured */
    for (int i = 0; i < n_in; i++)
        if (in[i] && in[i]->kind == GD_SYMBOL && in[i]->node && in[i]->node->origin)
            return in[i]->node->origin->graph;
    return building;
}

static char *format_name(const char *prefix, const char *text, int number) {
    size_t size = strlen(prefix) + strlen(text) + 16;
    char *copy = gd_malloc(size);
    if (copy && number >= 0) snprintf(copy, size, "%s%s_%d", prefix, text, number);
    else if (copy) snprintf(copy, size, "%s%s", prefix, text);
    return copy;
}

/* Notes a node that is a view, for gd_graph_view_of. */
static bool add_view(gd_graph *graph, const gd_node *node) {
    const gd_node *of =
        node->op && (node->op->flags & GD_OP_VIEW) && node->n_in > 0 ? node->slots[0].node : NULL;
    if (!of) return true;
    const gd_slot *slot = &of->slots[of->n_in + node->slots[0].index];
    return gd_map_find(&graph->views, slot) >= 0 || gd_map_put(&graph->views, slot, graph->count);
}

const gd_node *gd_graph_view_of(const gd_graph *graph, const gd_tensor *symbol) {
    const gd_node *node = symbol->node;
    const int i = gd_map_find(&graph->views, &node->slots[node->n_in + symbol->node_index]);
    return i < 0 ? NULL : graph->nodes[i];
}

gd_status gd_graph_add(gd_graph *graph, gd_node *node, gd_origin_kind kind, const char *name) {
    const gd_building *b = &gd_this_building;
    const char *prefix = b->prefix ? b->prefix : "";
    if (!graph) return GD_OK;
    gd_origin *o = gd_calloc(1, sizeof *o);
    gd_node **after = b->n_after ? gd_malloc((size_t)b->n_after * sizeof *after) : NULL;
    char *text = name ? format_name(prefix, name, -1)
                      : format_name(prefix,
                                    node->op                   ? node->op->name
                                    : kind == GD_FROM_VARIABLE ? "variable"
                                                               : "placeholder",
                                    graph->count);
    bool room = gd_grow(graph->nodes, graph->count, graph->capacity) &&
                gd_grow(graph->variables, graph->n_variables, graph->variable_capacity) &&
                gd_grow(graph->placeholders, graph->n_placeholders, graph->placeholder_capacity);
    if (room && name && text && !gd_name_map_find(&graph->names, text))
        room = gd_name_map_add(&graph->names, text, node);
    if (!o || !text || !room || (b->n_after && !after) || !add_view(graph, node)) {
        if (text && gd_name_map_find(&graph->names, text) == node)
            gd_name_map_remove(&graph->names, text);
        gd_free(o);
        gd_free(text);
        gd_free(after);
        return gd_no_memory(NULL, "for a node of the graph");
    }
    *o = (gd_origin){.graph = graph,
                     .kind = kind,
                     .number = graph->count,
                     .name = text,
                     .named = name != NULL,
                     .caller = gd_this_thread.body ? gd_this_thread.body->op : NULL,
                     .random_index = -1,
                     .variable = -1,
                     .after = after,
                     .n_after = b->n_after};
    for (int i = 0; i < o->n_after; i++) {
        after[i] = b->after[i];
        gd_node_retain(after[i]);
    }
    if (node->op && (node->op->flags & GD_OP_RANDOM)) o->random_index = graph->n_random++;
    if (kind == GD_FROM_VARIABLE) {
        o->variable = graph->n_variables;
        graph->variables[graph->n_variables++] = node;
    }
    if (kind == GD_FROM_PLACEHOLDER) graph->placeholders[graph->n_placeholders++] = node;
    node->origin = o;
    gd_node_retain(node);
    graph->nodes[graph->count++] = node;
    return GD_OK;
}

/* --- sources ---------------------------------------------------------------------------------- */

static gd_tensor *fail_at(const char *site, gd_status status) {
    gd_error_location(site);
    return gd_tensor_fail(status);
}

gd_status gd_graph_source(gd_graph *graph, gd_origin_kind kind, const char *site, const char *name,
                          const gd_meta *meta, gd_tensor **symbol) {
    gd_node *node = gd_node_new(NULL, NULL, 0, 1, 0);
    if (!node) return GD_E_MEMORY;
    node->graph = true;
    node->site = site;
    gd_status status = gd_graph_add(graph, node, kind, name);
    gd_device *device = meta->device ? meta->device : gd_default_device();
    gd_tensor *y = status == GD_OK
                       ? gd_tensor_bare(GD_SYMBOL, device, meta->dtype, meta->rank, meta->dims)
                       : NULL;
    if (status == GD_OK && !y) status = GD_E_MEMORY;
    if (status == GD_OK) {
        gd_slot_set(&node->slots[0], y, false);
        gd_node_attach(node, y, 0);
        y->requires_grad = node->slots[0].requires_grad = gd_dtype_is_float(meta->dtype);
        *symbol = y;
    }
    gd_node_release(node);
    return status;
}

/* The full name, with the prefix of the open GD_NAME_SCOPE blocks; the caller frees it. Fails if
 * the graph has it already, and it is not `own`. */
static gd_status make_full_name(const gd_graph *graph, const char *what, const char *name,
                                const char *own, char **text) {
    *text = NULL;
    if (!*name) return gd_fail(GD_E_ARGUMENT, "%s: the name is empty", what);
    char *full = format_name(gd_this_building.prefix ? gd_this_building.prefix : "", name, -1);
    if (!full) return gd_no_memory(NULL, "for a name");
    const gd_node *other = gd_name_map_find(&graph->names, full);
    gd_status status = GD_OK;
    if (other && !(own && strcmp(own, full) == 0))
        status = gd_fail(GD_E_ARGUMENT, "%s: the graph has another node named \"%s\"%s%s", what,
                         full, other->site ? ", of " : "", other->site ? other->site : "");
    if (status == GD_OK) *text = full;
    else gd_free(full);
    return status;
}

static gd_status add_source(gd_origin_kind kind, const char *site, const char *name, gd_dtype dtype,
                            int rank, const int64_t *dims, gd_tensor **symbol) {
    gd_graph *graph = gd_graph_building();
    const char *what = kind == GD_FROM_VARIABLE ? "gd_variable" : "gd_placeholder";
    if (!graph)
        return gd_fail(GD_E_STATE, "%s: no graph is being built; write GD_GRAPH(graph); first",
                       what);
    if (graph->body)
        return gd_fail(GD_E_STATE,
                       "%s: a branch or the body of a loop cannot create one; create it before, "
                       "and use it there",
                       what);
    if (name) {
        char *text;
        GD_TRY(make_full_name(graph, what, name, NULL, &text));
        gd_free(text);
    }
    gd_meta meta = {.dtype = dtype, .rank = rank};
    memcpy(meta.dims, dims, sizeof(int64_t) * (size_t)rank);
    return gd_graph_source(graph, kind, site, name, &meta, symbol);
}

static gd_status check_placeholder(gd_shape dims, gd_dtype dtype) {
    if (dims.rank < 0 || dims.rank > GD_MAX_RANK)
        return gd_fail(GD_E_SHAPE, "gd_placeholder: a tensor has 0 to %d dimensions, not %d",
                       GD_MAX_RANK, dims.rank);
    for (int i = 0; i < dims.rank; i++)
        if (dims.at[i] < 0 && dims.at[i] != GD_ANY)
            return gd_fail(GD_E_SHAPE,
                           "gd_placeholder: dimension %d is %lld; expected a size or GD_ANY", i,
                           (long long)dims.at[i]);
    if (gd_dtype_size(dtype) == 0)
        return gd_fail(GD_E_DTYPE, "gd_placeholder: there is no element type number %d",
                       (int)dtype);
    return GD_OK;
}

gd_tensor *gd_placeholder_at(const char *site, gd_shape dims, const gd_placeholder_options *o) {
    o = o ? o : GD_PLACEHOLDER_OPTIONS_();
    gd_tensor *y = NULL;
    gd_status status = check_placeholder(dims, o->dtype);
    if (status == GD_OK)
        status = add_source(GD_FROM_PLACEHOLDER, site, o->name, o->dtype, dims.rank, dims.at, &y);
    return status == GD_OK ? y : fail_at(site, status);
}

gd_tensor *gd_variable_at(const char *site, gd_tensor *initial, const gd_variable_options *o) {
    o = o ? o : GD_VARIABLE_OPTIONS_();
    gd_tensor *y = NULL;
    if (!initial)
        return fail_at(site, gd_fail(GD_E_ARGUMENT, "gd_variable: its initial value is NULL"));
    if (initial->kind == GD_FAILED) return initial;
    for (int i = 0; i < initial->rank; i++)
        if (initial->dims[i] == GD_UNKNOWN)
            return fail_at(
                site, gd_fail(GD_E_SHAPE,
                              "gd_variable: dimension %d of its initial value is not known", i));
    gd_status status = add_source(GD_FROM_VARIABLE, site, o->name, (gd_dtype)initial->dtype,
                                  initial->rank, initial->dims, &y);
    if (status != GD_OK) return fail_at(site, status);
    y->node->origin->trainable = o->trainable && gd_dtype_is_float((gd_dtype)initial->dtype);
    y->node->origin->initial = gd_retain(initial);
    return y;
}

/* --- lookup ----------------------------------------------------------------------------------- */

gd_tensors gd_graph_variables(gd_graph *graph) {
    GD_LIVE(graph);
    int n = 0;
    for (int i = 0; graph && i < graph->n_variables; i++)
        n += graph->variables[i]->origin->trainable;
    gd_tensor **list = gd_list_new(n);
    if (!list) return gd_list_of_errors(0);
    n = 0;
    for (int i = 0; graph && i < graph->n_variables; i++)
        if (graph->variables[i]->origin->trainable) {
            gd_tensor *t = gd_node_symbol(graph->variables[i], 0);
            list[n++] = t ? t : gd_tensor_fail(GD_E_MEMORY);
        }
    return (gd_tensors){list, n};
}

/* The node of a name that the program did not give: it ends in "_" and the node's number. */
static gd_node *find_unnamed(const gd_graph *graph, const char *name) {
    const char *end = strrchr(name, '_');
    const long number = end ? strtol(end + 1, NULL, 10) : -1;
    if (number < 0 || number >= graph->count) return NULL;
    gd_node *node = graph->nodes[number];
    return strcmp(node->origin->name, name) == 0 ? node : NULL;
}

gd_tensor *gd_graph_find(gd_graph *graph, const char *name) {
    GD_LIVE(graph);
    if (!graph || !name) return NULL;
    gd_tensor *symbol = gd_name_map_find(&graph->symbols, name);
    if (symbol) {
        if (gd_scope_reserve(1) != GD_OK) return gd_tensor_fail(GD_E_MEMORY);
        gd_object_retain(&symbol->object);
        gd_scope_adopt(&symbol->object);
        return symbol;
    }
    gd_node *found = gd_name_map_find(&graph->names, name); /* names given by the program first */
    if (!found) found = find_unnamed(graph, name);
    if (!found) return NULL;
    gd_tensor *t = gd_node_symbol(found, 0);
    return t ? t : gd_tensor_fail(GD_E_MEMORY);
}

/* The place of the name of an output: that of the node for its first one. NULL: no memory. */
static char **name_place(gd_node *node, int index) {
    gd_origin *o = node->origin;
    if (index == 0) return &o->name;
    if (!o->output_names) {
        o->output_names = gd_calloc((size_t)node->n_out, sizeof *o->output_names);
        o->n_output_names = o->output_names ? node->n_out - 1 : 0;
    }
    return o->output_names ? &o->output_names[index - 1] : NULL;
}

const char *gd_output_name(const gd_node *node, int index, char *text, size_t size) {
    const gd_origin *o = node->origin;
    if (index == 0) return o->name;
    if (index <= o->n_output_names && o->output_names[index - 1]) return o->output_names[index - 1];
    snprintf(text, size, "%s:%d", o->name, index);
    return text;
}

/* Removes the earlier name of an output of a node. (Several nodes may have the same name; it leads
 * to the first one.) */
static void forget_name(gd_graph *graph, const gd_node *node, const char *name) {
    gd_tensor *symbol = gd_name_map_find(&graph->symbols, name);
    if (gd_name_map_find(&graph->names, name) == node) gd_name_map_remove(&graph->names, name);
    if (!symbol || symbol->node != node) return;
    gd_name_map_remove(&graph->symbols, name);
    gd_release(symbol);
}

static gd_status name_output(gd_tensor *symbol, const char *name) {
    gd_node *node = symbol->node;
    gd_origin *o = node->origin;
    gd_graph *graph = o->graph;
    const int index = symbol->node_index;
    char *full;
    char **place = name_place(node, index);
    if (!place) return gd_no_memory(NULL, "for a name");
    const char *before = index > 0 || o->named ? *place : NULL;
    GD_TRY(make_full_name(graph, "gd_named", name, before, &full));
    if (before && strcmp(before, full) == 0) {
        gd_free(full);
        return GD_OK;
    }
    const bool added = gd_name_map_add(&graph->names, full, node);
    if (!added || !gd_name_map_add(&graph->symbols, full, symbol)) {
        if (added) gd_name_map_remove(&graph->names, full);
        gd_free(full);
        return gd_no_memory(NULL, "for a name");
    }
    gd_object_retain(&symbol->object);
    if (before) forget_name(graph, node, before);
    gd_free(*place);
    *place = full;
    if (index == 0) o->named = true;
    return GD_OK;
}

gd_tensor *gd_named_at(const char *site, gd_tensor *symbol, const char *name) {
    GD_CALLED_FROM(site);
    if (symbol && symbol->kind == GD_FAILED) return symbol;
    if (!symbol || symbol->kind != GD_SYMBOL || !symbol->node->origin ||
        !symbol->node->origin->graph || !name)
        return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_named: %s",
                                      name ? "not a symbol of a graph" : "the name is NULL"));
    const gd_status status = name_output(symbol, name);
    return status == GD_OK ? symbol : gd_tensor_fail(status);
}
