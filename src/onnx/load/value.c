/* value.c - the values of an ONNX file that is being read: names, tensors, and those that
 * are known now. */
#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "core/number.h"
#include "graph/build/trace.h"
#include "gradus/ops.h"
#include "onnx/load/load.h"
#include "ops/call.h"
#include "ops/probe.h"

enum { MOST_KNOWN = 1 << 16 }; /* elements of a constant that is worked out */

static gd_status no_memory(void) { return gd_fail(GD_E_MEMORY, "no memory to load a graph"); }

const char *gd_onnx_folder(const gd_onnx_loader *l) { return l->folder; }

/* --- values ----------------------------------------------------------------------------------- */

gd_status gd_onnx_add_value(gd_onnx_loader *l, const char *name, gd_onnx_value **out) {
    if (!*name) return gd_fail(GD_E_FORMAT, "a value has no name");
    if (gd_names_find(&l->frame->by_name, name))
        return gd_fail(GD_E_FORMAT, "there are two values named '%.200s'", name);
    if (l->count == l->room) {
        const size_t room = l->room ? 2 * l->room : 64;
        gd_onnx_value **grown = gd_realloc(l->values, room * sizeof *grown);
        if (!grown) return no_memory();
        l->values = grown;
        l->room = room;
    }
    gd_onnx_value *v = gd_calloc(1, sizeof *v);
    if (!v || !gd_names_add(&l->frame->by_name, name, v)) {
        gd_free(v);
        return no_memory();
    }
    v->name = name;
    v->number = l->count;
    l->values[l->count++] = v;
    *out = v;
    return GD_OK;
}

/* What the name means where we are; NULL: nothing yet. */
gd_onnx_value *gd_onnx_look_up(const gd_onnx_loader *l, const char *name) {
    gd_onnx_value *v = NULL;
    for (const gd_onnx_frame *f = l->frame; f && !v; f = f->outer)
        v = gd_names_find(&f->by_name, name);
    return v;
}

gd_status gd_onnx_find_value(gd_onnx_loader *l, const char *name, gd_onnx_value **out) {
    const gd_pb *maker = NULL;
    *out = gd_onnx_look_up(l, name);
    if (*out) return GD_OK;
    for (const gd_onnx_frame *f = l->frame; f && !maker; f = f->outer)
        maker = gd_names_find(&f->made, name);
    if (!maker)
        return gd_fail(GD_E_FORMAT,
                       "its input '%.200s' is made by no node and is no input of the graph", name);
    return gd_fail(GD_E_FORMAT,
                   "its input '%.200s' is made by '%.200s', which comes later: the graph has a "
                   "cycle, or is not in order",
                   name, gd_pb_string(maker, "name"));
}

/* The tensor that ops take. A variable is made when the first op reads it. */
gd_status gd_onnx_tensor_of(gd_onnx_value *v, gd_tensor **out) {
    *out = NULL;
    if (v->items)
        return gd_fail(GD_E_UNSUPPORTED, "'%.200s' is a sequence where a tensor is needed",
                       v->name);
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

/* --- working out ------------------------------------------------------------------------------ */

/* What an evaluation needs: nodes still to be looked at, and values for those it does not go
 * behind. */
typedef struct evaluation {
    gd_onnx_loader *l;
    int64_t size; /* for each that is not known */
    gd_map seen;
    gd_node **nodes;
    gd_tensor **symbols, **values;
    int n_nodes, nodes_room, n, room, values_room;
} evaluation;

static gd_status look_at(evaluation *e, gd_node *node) {
    if (gd_map_find(&e->seen, node) >= 0) return GD_OK;
    if (!gd_map_put(&e->seen, node, 0) || !gd_grow(e->nodes, e->n_nodes, e->nodes_room))
        return no_memory();
    e->nodes[e->n_nodes++] = node;
    return GD_OK;
}

static gd_status feed(evaluation *e, gd_tensor *symbol, gd_tensor *value) {
    if (!symbol || symbol->kind == GD_FAILED || value->kind == GD_FAILED) return gd_failure();
    if (!gd_grow(e->symbols, e->n, e->room) || !gd_grow(e->values, e->n, e->values_room))
        return no_memory();
    e->symbols[e->n] = symbol;
    e->values[e->n++] = value;
    return GD_OK;
}

/* The sizes that a node sizes_of gives, with one in place of those that are not known. */
static gd_tensor *sizes_with(const gd_slot *x, int64_t size) {
    int64_t dims[GD_MAX_RANK];
    for (int i = 0; i < x->rank; i++) dims[i] = x->dims[i] == GD_UNKNOWN ? size : x->dims[i];
    return gd_from_array(gd_dims(x->rank), GD_I64, dims);
}

static gd_tensor *symbol_of(gd_node *node) {
    return gd_slot_get(&node->slots[node->n_in], node, "a graph");
}

/* A variable has its first value, sizes are counted, and what was worked out before is known: the
 * nodes behind these are not looked at. So a file with many lists of sizes is read in linear time.
 */
static gd_status look_behind(evaluation *e, gd_node *node) {
    const int known = gd_map_find(&e->l->evaluated, node);
    if (known >= 0) return feed(e, e->l->values[known]->tensor, e->l->values[known]->constant);
    if (node->origin && node->origin->initial)
        return feed(e, symbol_of(node), node->origin->initial);
    if (node->op && strcmp(node->op->name, "sizes_of") == 0)
        return feed(e, symbol_of(node), sizes_with(&node->slots[0], e->size));
    for (int i = 0; i < node->n_in; i++)
        if (node->slots[i].symbol) GD_TRY(look_at(e, node->slots[i].node));
    return GD_OK;
}

static gd_status evaluate(evaluation *e, gd_tensor *symbol, gd_tensor **out) {
    GD_TRY(look_at(e, symbol->node));
    while (e->n_nodes > 0) GD_TRY(look_behind(e, e->nodes[--e->n_nodes]));
    gd_tensors got = gd_evaluate_nodes(gd_list(symbol), (gd_tensors){e->symbols, e->n},
                                       (gd_tensors){e->values, e->n});
    if (got.count != 1 || got.at[0]->kind != GD_VALUE) return gd_failure();
    *out = got.at[0];
    return GD_OK;
}

gd_status gd_onnx_evaluate(gd_onnx_loader *l, gd_tensor *symbol, int64_t size, gd_tensor **out) {
    evaluation e = {.l = l, .size = size};
    const gd_tracing tracing = gd_tracing_off();
    const gd_status status = evaluate(&e, symbol, out);
    gd_tracing_on(tracing);
    gd_map_free(&e.seen);
    gd_free(e.nodes);
    gd_free(e.symbols);
    gd_free(e.values);
    return status;
}

/* --- what loading a node asks and says -------------------------------------------------------- */

size_t gd_onnx_input_count(const gd_pb *node) { return gd_pb_count(node, "input"); }

gd_tensor *gd_onnx_get_input(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_status *status) {
    const char *name = gd_pb_string_at(node, "input", i);
    gd_onnx_value *v;
    gd_tensor *t = NULL;
    *status = GD_OK;
    if (!*name) return NULL;
    *status = gd_onnx_find_value(l, name, &v);
    if (*status == GD_OK) *status = gd_onnx_tensor_of(v, &t);
    return t;
}

gd_status gd_onnx_fix_axis(int64_t *axis, int rank) {
    if (*axis < -rank || *axis >= rank)
        return gd_fail(GD_E_INDEX, "its axis is %lld, and its input has %d dimensions",
                       (long long)*axis, rank);
    if (*axis < 0) *axis += rank;
    return GD_OK;
}

gd_status gd_onnx_known(gd_onnx_loader *l, const char *name, gd_tensor **out) {
    gd_onnx_value *v;
    GD_TRY(gd_onnx_find_value(l, name, &v));
    if (!v->constant && v->known) {
        GD_TRY(gd_onnx_evaluate(l, v->tensor, 1, &v->constant));
        if (v->tensor->node->n_out == 1 &&
            !gd_map_put(&l->evaluated, v->tensor->node, (int)v->number))
            return no_memory();
    }
    *out = v->constant;
    return GD_OK;
}

/* The data of a value that must be known now. */
static gd_status constant_of(gd_onnx_loader *l, const char *name, gd_tensor **out) {
    GD_TRY(gd_onnx_known(l, name, out));
    if (*out) return GD_OK;
    return gd_fail(
        GD_E_UNSUPPORTED,
        "its input '%.200s' is known only when the graph runs; here it must be a constant", name);
}

gd_status gd_onnx_set_number(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_attrs *attrs,
                             const char *option) {
    gd_tensor *t;
    GD_TRY(constant_of(l, gd_pb_string_at(node, "input", i), &t));
    if (gd_numel(t->rank, t->dims) != 1)
        return gd_fail(GD_E_FORMAT, "its input %zu must be one number", i);
    if (t->dtype == GD_I64) return gd_attrs_put_int(attrs, option, gd_item_int(t));
    const double number = gd_item(t);
    return gd_attrs_put_float(attrs, option,
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
    const gd_tracing tracing = gd_tracing_off();
    gd_tensor *whole = gd_cast(t, GD_I64);
    gd_tracing_on(tracing);
    GD_TRY(gd_copy_out(whole, numbers, (size_t)n * sizeof *numbers));
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

/* Whether all that a node reads is known now, or will be when sizes are. What the graphs in it read
 * is not looked at. */
static void follows_from(gd_onnx_loader *l, const gd_pb *node, bool *constants, bool *sizes) {
    *constants = *sizes = true;
    for (size_t i = 0; i < gd_pb_count(node, "attribute"); i++)
        if (gd_pb_message(gd_pb_message_at(node, "attribute", i), "g")) *constants = *sizes = false;
    for (size_t i = 0; i < gd_pb_count(node, "input"); i++) {
        const char *name = gd_pb_string_at(node, "input", i);
        const gd_onnx_value *v = *name ? gd_onnx_look_up(l, name) : NULL;
        const bool known = !*name || (v && (v->known || v->constant));
        *constants = *constants && known;
        *sizes = *sizes && (known || (v && v->sized));
    }
}

/* A symbol that the node did not make, or not as the first result of an op: its name is another's.
 */
static bool is_shared(const gd_onnx_loader *l, const gd_tensor *t) {
    return t->kind == GD_VALUE || t->node_index > 0 || t->node->origin->kind != GD_FROM_OP ||
           t->node->origin->graph != gd_graph_building() || t->node->origin->number < l->first_new;
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

/* Outputs of the file's graph must be found; those of inner graphs only go on. */
static bool is_output(const gd_onnx_loader *l, const char *name) {
    return gd_names_find(&l->frame->outputs, name) != NULL;
}

gd_status gd_onnx_set_output(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_tensor *t) {
    const char *name = gd_pb_string_at(node, "output", i);
    gd_onnx_value *v;
    if (!*name) return GD_OK;
    if (!t || t->kind == GD_FAILED) return gd_failure();
    GD_TRY(gd_onnx_add_value(l, name, &v));
    if (t->kind == GD_VALUE && !is_output(l, name)) {
        v->tensor = v->constant = t;
        return GD_OK;
    }
    /* one that must be found gets a node of its own */
    if (is_shared(l, t) && is_output(l, name)) t = gd_clone(t);
    if (t->kind != GD_SYMBOL) return gd_failure();
    v->tensor = t;
    const bool few = !gd_has_unknown(&t, 1) && gd_numel(t->rank, t->dims) <= MOST_KNOWN;
    const bool always = t->node->op && !(t->node->op->flags & (GD_OP_RANDOM | GD_OP_DYNAMIC));
    follows_from(l, node, &v->known, &v->sized);
    v->known = v->known && few && always;
    v->sized = v->sized && !v->known && few && always;
    if (!is_shared(l, t)) with_name(t, name);
    return GD_OK;
}

gd_status gd_onnx_set_sized(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_tensor *t) {
    const char *name = gd_pb_string_at(node, "output", i);
    GD_TRY(gd_onnx_set_output(l, node, i, t));
    gd_onnx_value *v = *name ? gd_onnx_look_up(l, name) : NULL;
    if (v) v->sized = true;
    return GD_OK;
}
