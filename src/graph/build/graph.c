/* graph.c - graphs, and the blocks in which they are built. */
#include "graph/build/graph.h"

#include <stdio.h>
#include <string.h>

#include "core/grow.h"

_Thread_local gd_building gd_this_building;

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
    gd_names_free(&graph->names);
    gd_free(graph->nodes);
    gd_free(graph->variables);
    gd_free(graph);
    gd_object_count(-1);
}
static const gd_class graph_class = {.name = "graph", .destroy = graph_destroy};

gd_graph *gd_graph_new(void) {
    gd_graph *graph = gd_scope_reserve(1) == GD_OK ? gd_calloc(1, sizeof *graph) : NULL;
    if (!graph) {
        gd_error_stick(gd_fail(GD_E_MEMORY, "no memory for a graph"));
        return NULL;
    }
    gd_object_init(&graph->object, &graph_class);
    graph->guard = gd_guard_new();
    atomic_init(&graph->became, gd_tensors_became());
    gd_object_count(1);
    gd_scope_adopt(&graph->object);
    return graph;
}

void gd_origin_free(gd_origin *origin) {
    if (origin->initial) gd_object_release(&origin->initial->object);
    for (int i = 0; i < origin->n_after; i++) gd_node_release(origin->after[i]);
    gd_free(origin->after);
    gd_free(origin->name);
    gd_free(origin);
}

static const char *symbol_text(const gd_tensor *t, char *text, size_t size) {
    const gd_node *node = t->node;
    const char *name = node && node->origin ? node->origin->name
                       : node && node->op   ? node->op->name
                                            : "the tensor";
    if (node && node->site) snprintf(text, size, "'%s' of %s", name, node->site);
    else snprintf(text, size, "'%s'", name);
    return text;
}

static void __attribute__((constructor)) set_hook(void) {
    gd_origin_free_hook = gd_origin_free;
    gd_symbol_text_hook = symbol_text;
}

/* --- blocks ----------------------------------------------------------------------------------- */

gd_block gd_graph_begin(gd_graph *graph) {
    gd_thread *thread = &gd_this_thread;
    gd_block block = {thread->tracer};
    if (graph) thread->tracer = graph;
    return block;
}

void gd_graph_end(gd_block *block) { gd_this_thread.tracer = block->before; }

gd_tracing gd_tracing_off(void) {
    gd_thread *thread = &gd_this_thread;
    const gd_tracing before = {thread->tracer, thread->autocast};
    thread->tracer = NULL;
    thread->autocast = GD_DTYPE_NONE;
    return before;
}

void gd_tracing_on(gd_tracing before) {
    gd_this_thread.tracer = before.tracer;
    gd_this_thread.autocast = before.autocast;
}

gd_eager gd_eager_begin(void) {
    gd_eager before = {gd_tracing_off(), gd_this_thread.noise};
    gd_this_thread.noise = NULL; /* a trace's own numbers begin at 0 */
    return before;
}

void gd_eager_end(gd_eager *before) {
    gd_tracing_on(before->tracing);
    gd_this_thread.noise = before->noise;
}

/* The list as it was, so that the end of the block can put it back. */
typedef struct after_list {
    gd_node **after;
    int n_after;
} after_list;

gd_block gd_after_begin(gd_tensors symbols) {
    gd_building *b = &gd_this_building;
    after_list *before = gd_malloc(sizeof *before);
    gd_node **all = gd_malloc((size_t)(b->n_after + symbols.count + 1) * sizeof *all);
    if (!before || !all) {
        gd_free(before);
        gd_free(all);
        gd_error_stick(gd_fail(GD_E_MEMORY, "no memory for GD_AFTER"));
        return (gd_block){NULL};
    }
    *before = (after_list){b->after, b->n_after};
    int n = 0;
    for (int i = 0; i < b->n_after; i++) all[n++] = b->after[i];
    for (int64_t i = 0; i < symbols.count; i++) {
        const gd_tensor *t = symbols.at[i];
        if (t && t->kind == GD_SYMBOL) all[n++] = t->node;
        else if (!t || t->kind != GD_FAILED)
            gd_error_stick(
                gd_fail(GD_E_ARGUMENT, "GD_AFTER: item %lld is no symbol", (long long)i));
    }
    for (int i = before->n_after; i < n; i++) gd_node_retain(all[i]);
    b->after = all;
    b->n_after = n;
    return (gd_block){before};
}

void gd_after_end(gd_block *block) {
    gd_building *b = &gd_this_building;
    after_list *before = block->before;
    if (!before) return;
    for (int i = before->n_after; i < b->n_after; i++) gd_node_release(b->after[i]);
    gd_free(b->after);
    b->after = before->after;
    b->n_after = before->n_after;
    gd_free(before);
}

gd_block gd_name_scope_begin(const char *name) {
    gd_building *b = &gd_this_building;
    gd_block block = {b->prefix};
    const char *outer = b->prefix ? b->prefix : "";
    size_t size = strlen(outer) + strlen(name ? name : "") + 2;
    char *prefix = gd_malloc(size);
    if (prefix) snprintf(prefix, size, "%s%s/", outer, name ? name : "");
    else gd_error_stick(gd_fail(GD_E_MEMORY, "no memory for a name scope"));
    b->prefix = prefix ? prefix : b->prefix;
    return block;
}

void gd_name_scope_end(gd_block *block) {
    gd_building *b = &gd_this_building;
    if (b->prefix != block->before) gd_free(b->prefix);
    b->prefix = block->before;
}

gd_block gd_device_begin(gd_device *device) {
    gd_block block = {gd_this_thread.device};
    if (device) gd_this_thread.device = device;
    return block;
}

void gd_device_end(gd_block *block) { gd_this_thread.device = block->before; }

/* --- nodes ------------------------------------------------------------------------------------ */

gd_graph *gd_graph_of(gd_tensor *const *in, int n_in) {
    gd_graph *building = gd_graph_building();
    if (gd_this_thread.tracer == &gd_no_graph) return NULL;
    if (building && building->body) return building; /* what it takes from outside is captured */
    for (int i = 0; i < n_in; i++)
        if (in[i] && in[i]->kind == GD_SYMBOL && in[i]->node && in[i]->node->origin)
            return in[i]->node->origin->graph;
    return building;
}

static char *copy_text(const char *prefix, const char *text, int number) {
    size_t size = strlen(prefix) + strlen(text) + 16;
    char *copy = gd_malloc(size);
    if (copy && number >= 0) snprintf(copy, size, "%s%s_%d", prefix, text, number);
    else if (copy) snprintf(copy, size, "%s%s", prefix, text);
    return copy;
}

gd_status gd_graph_add(gd_graph *graph, gd_node *node, gd_origin_kind kind, const char *name) {
    const gd_building *b = &gd_this_building;
    const char *prefix = b->prefix ? b->prefix : "";
    if (!graph) return GD_OK;
    gd_origin *o = gd_calloc(1, sizeof *o);
    gd_node **after = b->n_after ? gd_malloc((size_t)b->n_after * sizeof *after) : NULL;
    char *text = name ? copy_text(prefix, name, -1)
                      : copy_text(prefix,
                                  node->op                   ? node->op->name
                                  : kind == GD_FROM_VARIABLE ? "variable"
                                                             : "placeholder",
                                  graph->count);
    bool room = gd_grow(graph->nodes, graph->count, graph->capacity) &&
                gd_grow(graph->variables, graph->n_variables, graph->variable_capacity);
    if (room && name && text && !gd_names_find(&graph->names, text))
        room = gd_names_add(&graph->names, text, node);
    if (!o || !text || !room || (b->n_after && !after)) {
        if (text && gd_names_find(&graph->names, text) == node)
            gd_names_remove(&graph->names, text);
        gd_free(o);
        gd_free(text);
        gd_free(after);
        return gd_fail(GD_E_MEMORY, "no memory for a node of the graph");
    }
    *o = (gd_origin){.graph = graph,
                     .kind = kind,
                     .number = graph->count,
                     .name = text,
                     .named = name != NULL,
                     .caller = gd_this_thread.body ? gd_this_thread.body->op : NULL,
                     .noise = -1,
                     .variable = -1,
                     .after = after,
                     .n_after = b->n_after};
    for (int i = 0; i < o->n_after; i++) {
        after[i] = b->after[i];
        gd_node_retain(after[i]);
    }
    if (node->op && (node->op->flags & GD_OP_RANDOM)) o->noise = graph->n_noise++;
    if (kind == GD_FROM_VARIABLE) {
        o->variable = graph->n_variables;
        graph->variables[graph->n_variables++] = node;
    }
    node->origin = o;
    gd_node_retain(node);
    graph->nodes[graph->count++] = node;
    return GD_OK;
}

/* --- tensors outside that are written --------------------------------------------------------- */

bool gd_same_view(const gd_tensor *a, const gd_tensor *b) {
    return a == b || (a->storage && a->storage == b->storage && a->offset == b->offset &&
                      a->rank == b->rank && a->dtype == b->dtype &&
                      memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) == 0 &&
                      memcmp(a->strides, b->strides, sizeof(int64_t) * a->rank) == 0);
}

/* The last element that it looks at. */
static int64_t last_of(const gd_tensor *t) {
    int64_t last = t->offset;
    for (int d = 0; d < t->rank; d++) last += (t->dims[d] - 1) * t->strides[d];
    return last;
}

bool gd_overlap(const gd_tensor *a, const gd_tensor *b) {
    if (!a->storage || a->storage != b->storage || gd_numel(a->rank, a->dims) == 0 ||
        gd_numel(b->rank, b->dims) == 0)
        return false;
    return a->dtype != b->dtype || (a->offset <= last_of(b) && b->offset <= last_of(a));
}

static bool counts(const gd_written *w) { return gd_as_of == 0 || w->order < gd_as_of; }

gd_written *gd_graph_find_write(const gd_graph *graph, const gd_tensor *tensor) {
    for (int i = graph->n_written; i-- > 0;)
        if (counts(&graph->written[i]) && gd_same_view(graph->written[i].tensor, tensor))
            return &graph->written[i];
    return NULL;
}

static gd_status check_overlap(const gd_graph *graph, const gd_tensor *tensor) {
    char shape[128];
    for (int i = graph->n_written; i-- > 0;) {
        const gd_written *w = &graph->written[i];
        if (!counts(w) || !gd_overlap(w->tensor, tensor)) continue;
        const gd_node *node = w->symbol->node;
        return gd_fail(GD_E_UNSUPPORTED,
                       "a tensor of shape %s shares its memory with one that %s (%s) has written "
                       "in the function that is "
                       "being traced; use that one, and make views of it in the function",
                       gd_shape_text(tensor->rank, tensor->dims, shape, sizeof shape),
                       node->op ? node->op->name : "it", node->site ? node->site : "?");
    }
    return GD_OK;
}

gd_status gd_graph_read(gd_graph *graph, gd_tensor *tensor, gd_tensor **now) {
    *now = tensor;
    if (!tensor || tensor->kind != GD_VALUE) return GD_OK;
    for (; graph; graph = graph->outer) {
        if (!graph->traces_writes && !gd_as_of) continue;
        gd_written *w = gd_graph_find_write(graph, tensor);
        if (!w) {
            GD_TRY(check_overlap(graph, tensor));
            continue;
        }
        if (w->opaque) GD_TRY(gd_graph_show_write(graph, (int)(w - graph->written)));
        *now = w->symbol;
        return GD_OK;
    }
    return GD_OK;
}

/* A leaf that is written stays a leaf: what it has become is remembered for gd_backward. */
static gd_status note_version(gd_graph *graph, const gd_written *w) {
    if (!w->tensor->requires_grad || w->tensor->node || w->opaque) return GD_OK;
    if (!gd_grow(graph->versions, graph->n_versions, graph->version_room))
        return gd_fail(GD_E_MEMORY, "no memory for a graph");
    graph->versions[graph->n_versions++] =
        (gd_leaf_version){gd_retain(w->tensor), gd_retain(w->symbol)};
    return GD_OK;
}

gd_status gd_graph_record_write(gd_graph *graph, gd_written written) {
    if (!gd_graph_find_write(graph, written.tensor)) GD_TRY(check_overlap(graph, written.tensor));
    GD_TRY(note_version(graph, &written));
    if (!gd_grow(graph->written, graph->n_written, graph->written_room))
        return gd_fail(GD_E_MEMORY, "no memory for a graph");
    gd_retain(written.tensor);
    gd_retain(written.symbol);
    if (written.node) gd_node_retain(written.node);
    graph->written[graph->n_written++] = written;
    return GD_OK;
}

gd_status gd_graph_run_after(gd_node *node, gd_node *before) {
    gd_origin *o = node->origin;
    if (!o) return GD_OK;
    gd_node **after = gd_realloc(o->after, (size_t)(o->n_after + 1) * sizeof *after);
    if (!after) return gd_fail(GD_E_MEMORY, "no memory for a graph");
    gd_node_retain(before);
    o->after = after;
    o->after[o->n_after++] = before;
    return GD_OK;
}

gd_status gd_graph_record_capture(gd_graph *graph, gd_tensor *tensor) {
    while (graph && graph->outer) graph = graph->outer;
    if (!graph || !graph->traces_writes || !tensor || tensor->kind != GD_VALUE) return GD_OK;
    for (int i = 0; i < graph->n_captured; i++)
        if (graph->captured[i].tensor == tensor) return GD_OK;
    if (!gd_grow(graph->captured, graph->n_captured, graph->captured_room))
        return gd_fail(GD_E_MEMORY, "no memory for a graph");
    bool wants = tensor->requires_grad; /* when the call began */
    for (int i = 0; i < graph->n_frozen; i++)
        if (graph->frozen[i].tensor == tensor) wants = graph->frozen[i].before;
    gd_storage_retain(tensor->storage);
    graph->captured[graph->n_captured++] = (gd_captured){gd_retain(tensor), tensor->storage, wants};
    return GD_OK;
}

/* --- C values that a function reads ----------------------------------------------------------- */

gd_status gd_trace_record_value(gd_object *owner, const int *where) {
    gd_graph *graph = gd_graph_traced();
    for (int i = 0; graph && i < graph->n_values; i++)
        if (graph->values[i].where == where) return GD_OK;
    if (!graph) return GD_OK;
    if (!gd_grow(graph->values, graph->n_values, graph->value_room))
        return gd_fail(GD_E_MEMORY, "no memory for a graph");
    gd_object_retain(owner);
    graph->values[graph->n_values++] = (gd_traced_value){owner, where, *where};
    return GD_OK;
}

bool gd_traced_values_fit(const gd_graph *graph) {
    for (int i = 0; i < graph->n_values; i++)
        if (*graph->values[i].where != graph->values[i].value) return false;
    return true;
}

gd_status gd_traced_values_check(const gd_graph *graph) {
    for (int i = 0; i < graph->n_values; i++) {
        const gd_traced_value *v = &graph->values[i];
        if (*v->where == v->value) continue;
        return gd_fail(
            GD_E_UNSUPPORTED,
            "the function leaves the mode of a %s changed (it was %d, and is %d), which a later "
            "call of its "
            "jit would not do; change it back before the function returns, or change it outside",
            v->owner->class->name, v->value, *v->where);
    }
    return GD_OK;
}

/* --- sources ---------------------------------------------------------------------------------- */

static gd_tensor *fail_at(const char *site, gd_status status) {
    gd_error_place(site);
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

/* The name as it counts: inside of GD_NAME_SCOPE, with what stands before it. A name is of one
 * node. */
static gd_status new_name(const gd_graph *graph, const char *what, const char *name,
                          const gd_node *self, char **text) {
    *text = NULL;
    if (!*name) return gd_fail(GD_E_ARGUMENT, "%s: the name is empty", what);
    char *integer = copy_text(gd_this_building.prefix ? gd_this_building.prefix : "", name, -1);
    if (!integer) return gd_fail(GD_E_MEMORY, "no memory for a name");
    const gd_node *other = gd_names_find(&graph->names, integer);
    gd_status status = GD_OK;
    if (other && other != self)
        status = gd_fail(GD_E_ARGUMENT, "%s: the graph has another node named \"%s\"%s%s", what,
                         integer, other->site ? ", of " : "", other->site ? other->site : "");
    if (status == GD_OK) *text = integer;
    else gd_free(integer);
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
        return gd_fail(
            GD_E_STATE,
            "%s: a branch or the body of a loop cannot make one; make it before, and use it there",
            what);
    if (name) {
        char *text;
        GD_TRY(new_name(graph, what, name, NULL, &text));
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
            return gd_fail(GD_E_SHAPE, "gd_placeholder: dimension %d is %lld; a size, or GD_ANY", i,
                           (long long)dims.at[i]);
    if (gd_dtype_size(dtype) == 0)
        return gd_fail(GD_E_DTYPE, "gd_placeholder: there is no element type number %d",
                       (int)dtype);
    return GD_OK;
}

gd_tensor *gd_placeholder_at(const char *site, gd_shape dims, const gd_placeholder_options *o) {
    gd_tensor *y = NULL;
    gd_status status = check_placeholder(dims, o->dtype);
    if (status == GD_OK)
        status = add_source(GD_FROM_PLACEHOLDER, site, o->name, o->dtype, dims.rank, dims.at, &y);
    return status == GD_OK ? y : fail_at(site, status);
}

gd_tensor *gd_variable_at(const char *site, gd_tensor *initial, const gd_variable_options *o) {
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

/* --- asking ----------------------------------------------------------------------------------- */

static gd_tensor *symbol_of(gd_node *node, int index) {
    return gd_slot_get(&node->slots[node->n_in + index], node, "a graph");
}

gd_tensors gd_graph_variables(gd_graph *graph) {
    int n = 0;
    for (int i = 0; graph && i < graph->n_variables; i++)
        n += graph->variables[i]->origin->trainable;
    gd_tensor **list = gd_list_new(n);
    if (!list) return gd_list_of_errors(0);
    n = 0;
    for (int i = 0; graph && i < graph->n_variables; i++)
        if (graph->variables[i]->origin->trainable) {
            gd_tensor *t = symbol_of(graph->variables[i], 0);
            list[n++] = t ? t : gd_tensor_fail(GD_E_MEMORY);
        }
    return (gd_tensors){list, n};
}

gd_tensor *gd_graph_find(gd_graph *graph, const char *name) {
    if (!graph || !name) return NULL;
    gd_node *found = gd_names_find(&graph->names, name); /* names of the program go first */
    for (int i = 0; i < graph->count && !found; i++)
        if (strcmp(graph->nodes[i]->origin->name, name) == 0) found = graph->nodes[i];
    if (!found) return NULL;
    gd_tensor *t = symbol_of(found, 0);
    return t ? t : gd_tensor_fail(GD_E_MEMORY);
}

gd_tensor *gd_named_at(const char *site, gd_tensor *symbol, const char *name) {
    GD_CALLED_FROM(site);
    if (symbol && symbol->kind == GD_FAILED) return symbol;
    if (!symbol || symbol->kind != GD_SYMBOL || !symbol->node->origin ||
        !symbol->node->origin->graph || !name)
        return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_named: %s",
                                      name ? "not a symbol of a graph" : "the name is NULL"));
    gd_origin *o = symbol->node->origin;
    gd_names *names = &o->graph->names;
    char *text;
    gd_status status = new_name(o->graph, "gd_named", name, symbol->node, &text);
    if (status != GD_OK) return gd_tensor_fail(status);
    if (!gd_names_add(names, text, symbol->node)) {
        gd_free(text);
        return gd_tensor_fail(gd_fail(GD_E_MEMORY, "no memory for a name"));
    }
    const bool other = !o->named || strcmp(o->name, text) != 0;
    if (other && o->named && gd_names_find(names, o->name) == symbol->node)
        gd_names_remove(names, o->name);
    gd_free(o->name);
    o->name = text;
    o->named = true;
    return symbol;
}
