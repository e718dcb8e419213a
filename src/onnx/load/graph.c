/* graph.c - loads the nodes of a graph, in their order.
 *
 * Order: the rows that can load an operator; nodes; subgraphs of If, Loop and Scan.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "onnx/load/operators/operators.h"

/* --- rows of an operator ---------------------------------------------------------------------- */

/* The rows that can load an operator: those of records, those of the table, and at last those of
 * ops that the program has defined. */
typedef struct gd_onnx_operator {
    int count, room;
    gd_onnx_row *rows;
} gd_onnx_operator;

static bool add_row(gd_onnx_operator *o, const gd_onnx_row *row) {
    if (!gd_grow(o->rows, o->count, o->room)) return false;
    o->rows[o->count++] = *row;
    return true;
}

static bool add_record_rows(gd_onnx_operator *o, const char *type, unsigned user) {
    bool ok = true;
    for (int i = 0; i < gd_op_count() && ok; i++) {
        gd_onnx_row row;
        const gd_op *op = gd_op_at(i);
        if ((op->flags & GD_OP_USER) == user && strcmp(gd_op_onnx_name(op), type) == 0 &&
            gd_onnx_record_row(op, &row) && gd_onnx_row_loads(&row))
            ok = add_row(o, &row);
    }
    return ok;
}

static bool add_rows(gd_onnx_operator *o, const char *type) {
    bool ok = add_record_rows(o, type, 0);
    for (int i = 0; i < gd_onnx_row_count && ok; i++) {
        const gd_onnx_row *row = &gd_onnx_rows[i];
        if (gd_onnx_row_loads(row) && strcmp(gd_onnx_row_name(row), type) == 0)
            ok = add_row(o, row);
    }
    return ok && add_record_rows(o, type, GD_OP_USER);
}

static void operator_free(gd_onnx_operator *o) {
    if (o) gd_free(o->rows);
    gd_free(o);
}

void gd_onnx_operators_free(gd_name_map *operators) {
    for (size_t i = 0; i < operators->size; i++) operator_free(operators->slots[i].value);
    gd_name_map_free(operators);
}

/* Finds the rows of an operator, and caches them: the table is long, and a file has many nodes but
 * few different operators. */
static gd_status find_operator(gd_onnx_loader *l, const char *type, const gd_onnx_operator **out) {
    gd_onnx_operator *o = gd_name_map_find(&l->operators, type);
    *out = o;
    if (o) return GD_OK;
    o = gd_calloc(1, sizeof *o);
    if (!o || !add_rows(o, type) || !gd_name_map_add(&l->operators, type, o)) {
        operator_free(o);
        return gd_no_memory(NULL, "to load a graph");
    }
    *out = o;
    return GD_OK;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static gd_status load_standard_node(gd_onnx_loader *l, const gd_pb *node) {
    const gd_onnx_operator *o;
    gd_tensor *padded;
    GD_TRY(gd_onnx_pad_input(l, node, &padded));
    GD_TRY(find_operator(l, gd_pb_string(node, "op_type"), &o));
    for (int i = 0; i < o->count; i++) {
        const gd_onnx_row *row = &o->rows[i];
        bool fits = true;
        GD_TRY(row->load ? row->load(l, node) : gd_onnx_load_row(l, node, row, padded, &fits));
        if (fits) return GD_OK;
    }
    if (o->count) return gd_failure(); /* the reason of the last row that did not fit */
    return gd_fail(GD_E_UNSUPPORTED, "this operator is not supported");
}

static gd_status load_node(gd_onnx_loader *l, const gd_pb *node) {
    const char *domain = gd_pb_string(node, "domain");
    if (strcmp(domain, "gradus") == 0) return gd_onnx_load_own_node(l, node);
    if (*domain && strcmp(domain, "ai.onnx") != 0)
        return gd_fail(GD_E_UNSUPPORTED, "operators of the domain '%.60s' are not supported",
                       domain);
    return load_standard_node(l, node);
}

gd_status gd_onnx_load_nodes(gd_onnx_loader *l) {
    const size_t count = gd_pb_count(l->frame->graph, "node");
    for (size_t i = 0; i < count; i++) {
        const gd_pb *node = gd_pb_message_at(l->frame->graph, "node", i);
        for (size_t k = 0; k < gd_pb_count(node, "output"); k++)
            if (*gd_pb_string_at(node, "output", k) &&
                !gd_name_map_add(&l->frame->producers, gd_pb_string_at(node, "output", k),
                                 (void *)node))
                return gd_no_memory(NULL, "to load a graph");
    }
    for (size_t i = 0; i < count; i++) {
        const gd_pb *node = gd_pb_message_at(l->frame->graph, "node", i);
        /* further ops that this node needs get names that begin with its name */
        gd_block scope = gd_name_scope_begin(gd_pb_string_at(node, "output", 0));
        l->first_new_node = gd_graph_building()->count;
        const gd_status status = load_node(l, node);
        gd_name_scope_end(&scope);
        if (status == GD_OK) continue;
        gd_error_prefix("node %zu '%.200s' (%.60s): ", i, gd_pb_string(node, "name"),
                        gd_pb_string(node, "op_type"));
        return status;
    }
    return GD_OK;
}

void gd_onnx_frame_free(gd_onnx_frame *f) {
    gd_name_map_free(&f->by_name);
    gd_name_map_free(&f->producers);
    gd_name_map_free(&f->outputs);
}

/* --- subgraphs -------------------------------------------------------------------------------- */

gd_status gd_onnx_create_variables(gd_onnx_loader *l, const gd_pb *graph) {
    gd_tensor *created;
    for (size_t i = 0; i < gd_pb_count(graph, "node"); i++) {
        const gd_pb *node = gd_pb_message_at(graph, "node", i);
        for (size_t k = 0; k < gd_pb_count(node, "input"); k++) {
            gd_onnx_value *v = gd_onnx_lookup_value(l, gd_pb_string_at(node, "input", k));
            if (v) GD_TRY(gd_onnx_value_tensor(v, &created));
        }
        for (size_t k = 0; k < gd_pb_count(node, "attribute"); k++) {
            const gd_pb *g = gd_pb_message(gd_pb_message_at(node, "attribute", k), "g");
            if (g) GD_TRY(gd_onnx_create_variables(l, g));
        }
    }
    for (size_t i = 0; i < gd_pb_count(graph, "output"); i++) {
        gd_onnx_value *v =
            gd_onnx_lookup_value(l, gd_pb_string(gd_pb_message_at(graph, "output", i), "name"));
        if (v) GD_TRY(gd_onnx_value_tensor(v, &created));
    }
    return GD_OK;
}

static gd_status add_inputs(gd_onnx_loader *l, const gd_pb *graph, gd_tensor *const *inputs,
                            size_t n_inputs) {
    if (gd_pb_count(graph, "input") != n_inputs)
        return gd_fail(GD_E_FORMAT, "it has %zu inputs, and gets %zu", gd_pb_count(graph, "input"),
                       n_inputs);
    for (size_t i = 0; i < n_inputs; i++) {
        const gd_pb *info = gd_pb_message_at(graph, "input", i);
        const gd_pb *type = gd_pb_message(gd_pb_message(info, "type"), "tensor_type");
        const int64_t element = gd_pb_int(type, "elem_type", 0);
        gd_onnx_value *v;
        if (element && gd_onnx_dtype(element) != (gd_dtype)inputs[i]->dtype)
            return gd_fail(GD_E_DTYPE, "its input '%.200s' must be %s, and it gets %s",
                           gd_pb_string(info, "name"), gd_onnx_type_name(element),
                           gd_dtype_name((gd_dtype)inputs[i]->dtype));
        GD_TRY(gd_onnx_add_value(l, gd_pb_string(info, "name"), &v));
        v->tensor = inputs[i];
        if (inputs[i]->kind == GD_VALUE) v->constant = inputs[i];
    }
    return GD_OK;
}

/* Initializers of a subgraph are constants, not variables. */
static gd_status add_initializers(gd_onnx_loader *l, const gd_pb *graph) {
    for (size_t i = 0; i < gd_pb_count(graph, "initializer"); i++) {
        const gd_pb *tensor = gd_pb_message_at(graph, "initializer", i);
        gd_onnx_value *v;
        GD_TRY(gd_onnx_add_value(l, gd_pb_string(tensor, "name"), &v));
        GD_TRY(gd_onnx_read_tensor(tensor, l->folder, &v->constant));
        v->tensor = v->constant;
    }
    return GD_OK;
}

/* An output of a graph must be the output of a node, so a subgraph that returns one of its inputs
 * has an Identity (save/control_flow.c adds them). Returns the name of the Identity's input. */
static const char *skip_identity(const gd_onnx_loader *l, const char *name) {
    const gd_pb *producer = gd_name_map_find(&l->frame->producers, name);
    if (!producer || strcmp(gd_pb_string(producer, "op_type"), "Identity") != 0) return name;
    const char *input = gd_pb_string_at(producer, "input", 0);
    return gd_name_map_find(&l->frame->producers, input) ? name : input;
}

static gd_status load_in_frame(gd_onnx_loader *l, const gd_pb *graph, gd_tensor *const *inputs,
                               size_t n_inputs, gd_onnx_value **outputs) {
    gd_tensor *t;
    GD_TRY(add_initializers(l, graph));
    GD_TRY(add_inputs(l, graph, inputs, n_inputs));
    GD_TRY(gd_onnx_load_nodes(l));
    for (size_t k = 0; k < gd_pb_count(graph, "output"); k++) {
        const char *name = gd_pb_string(gd_pb_message_at(graph, "output", k), "name");
        outputs[k] = gd_onnx_lookup_value(l, skip_identity(l, name));
        if (!outputs[k]) return gd_fail(GD_E_FORMAT, "no node computes its output '%.200s'", name);
        GD_TRY(gd_onnx_value_tensor(outputs[k], &t));
    }
    return GD_OK;
}

gd_status gd_onnx_load_subgraph(gd_onnx_loader *l, const gd_pb *graph, gd_tensor *const *inputs,
                                size_t n_inputs, gd_onnx_value **outputs) {
    gd_onnx_frame frame = {.graph = graph, .outer = l->frame};
    const int first_new_node = l->first_new_node;
    if (l->depth >= GD_ONNX_MAX_NESTED)
        return gd_fail(GD_E_UNSUPPORTED, "subgraphs are nested more than %d levels deep",
                       GD_ONNX_MAX_NESTED);
    l->frame = &frame;
    l->depth++;
    const gd_status status = load_in_frame(l, graph, inputs, n_inputs, outputs);
    l->depth--;
    l->frame = frame.outer;
    l->first_new_node = first_new_node;
    gd_onnx_frame_free(&frame);
    return status;
}
