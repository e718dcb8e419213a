/* control_flow.c - branches and loops as If, Loop and Scan.
 *
 * Their functions become subgraphs of the node. A subgraph reads values of the graphs around it by
 * name; weights and constants are in the graph of the file. Order: functions; cond; loops.
 */
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "onnx/save/save.h"

/* --- functions -------------------------------------------------------------------------------- */

/* Saves the nodes of a function into the current graph. `in` are the names of its inputs; `out`
 * receives those of its outputs. */
static gd_status save_function(gd_onnx_saver *s, const gd_subgraph *sub, const char *const *in,
                               const char **out) {
    gd_onnx_part part;
    gd_status status = gd_onnx_part_begin(&part, sub->graph);
    for (int i = 0; i < sub->n_in && status == GD_OK; i++)
        status = gd_onnx_part_input(&part, sub->in[i], 0, in[i]);
    for (int k = 0; k < sub->n_out && status == GD_OK; k++)
        status = gd_onnx_need_output(&part, sub->out[k], sub->out_index[k], "a function");
    if (status == GD_OK) status = gd_onnx_need_inputs(&part);
    if (status == GD_OK) status = gd_onnx_save_part(s, &part);
    for (int k = 0; k < sub->n_out && status == GD_OK; k++)
        out[k] = part.names[sub->out[k]->origin->number][sub->out_index[k]];
    gd_onnx_part_end(&part);
    return status;
}

static bool is_node_output(const gd_pb *graph, const char *name) {
    for (size_t i = 0; i < gd_pb_count(graph, "node"); i++) {
        const gd_pb *node = gd_pb_message_at(graph, "node", i);
        for (size_t k = 0; k < gd_pb_count(node, "output"); k++)
            if (strcmp(gd_pb_string_at(node, "output", k), name) == 0) return true;
    }
    return false;
}

static bool is_graph_output(const gd_pb *graph, const char *name) {
    for (size_t i = 0; i < gd_pb_count(graph, "output"); i++)
        if (strcmp(gd_pb_string(gd_pb_message_at(graph, "output", i), "name"), name) == 0)
            return true;
    return false;
}

/* Adds an output to the current graph. ONNX requires an output of a node that is listed only once;
 * any other value gets an Identity. */
static gd_status add_output(gd_onnx_saver *s, const char *name, gd_dtype dtype, int rank,
                            const int64_t *dims) {
    if (!is_node_output(s->current_graph, name) || is_graph_output(s->current_graph, name)) {
        const char *copy = gd_onnx_unique_name(s, name, "/output");
        if (!copy) return GD_E_MEMORY;
        gd_onnx_put_unary(s, "Identity", name, copy);
        name = copy;
    }
    gd_onnx_put_value_info(s->current_graph, "output", name, dtype, rank, dims);
    return GD_OK;
}

static gd_status add_outputs(gd_onnx_saver *s, const gd_subgraph *sub, const char *const *names) {
    for (int k = 0; k < sub->n_out; k++) {
        const gd_meta *m = &sub->metas[k];
        GD_TRY(add_output(s, names[k], m->dtype, m->rank, m->dims));
    }
    return GD_OK;
}

/* Adds an input with a new name to the current graph. */
static gd_status add_input(gd_onnx_saver *s, const char *label, const char *suffix, gd_dtype dtype,
                           int rank, const int64_t *dims, const char **name) {
    *name = gd_onnx_unique_name(s, label, suffix);
    if (!*name) return GD_E_MEMORY;
    gd_onnx_put_value_info(s->current_graph, "input", *name, dtype, rank, dims);
    return GD_OK;
}

/* Converts a condition, one element of any dtype, to a bool of rank 0. */
static gd_status convert_condition(gd_onnx_saver *s, const char *label, gd_dtype dtype, int rank,
                                   const char **name) {
    if (dtype != GD_BOOL) {
        *name = gd_onnx_put_cast(s, label, *name, GD_BOOL, NULL);
        if (!*name) return GD_E_MEMORY;
    }
    if (rank > 0) *name = gd_onnx_put_node(s, label, "Squeeze", 1, name, NULL, NULL);
    return *name ? GD_OK : GD_E_MEMORY;
}

/* Makes a subgraph of `node` the current graph; returns the previous one in *outer. */
static gd_status enter_subgraph(gd_onnx_saver *s, gd_pb *node, const char *attribute,
                                gd_pb **outer) {
    const char *name = gd_onnx_unique_name(s, gd_pb_string(node, "name"), "/graph");
    if (!name) return GD_E_MEMORY;
    *outer = s->current_graph;
    s->current_graph = gd_onnx_put_subgraph(node, attribute);
    gd_pb_put_string(s->current_graph, "name", name);
    return GD_OK;
}

static void put_outputs(gd_pb *node, const gd_onnx_call *c) {
    for (int k = 0; k < c->n_out; k++) gd_pb_put_string(node, "output", c->out_names[k]);
}

/* --- cond ------------------------------------------------------------------------------------- */

static gd_status save_branch(gd_onnx_saver *s, const gd_onnx_call *c, gd_pb *node,
                             const char *attribute, const gd_subgraph *sub) {
    const char **names = gd_calloc((size_t)sub->n_out + 1, sizeof *names);
    gd_pb *outer = s->current_graph;
    gd_status status =
        names ? enter_subgraph(s, node, attribute, &outer) : gd_no_memory(NULL, "to save a graph");
    if (status == GD_OK) status = save_function(s, sub, c->in_names + 1, names);
    if (status == GD_OK) status = add_outputs(s, sub, names);
    s->current_graph = outer;
    gd_free(names);
    return status;
}

static gd_status save_cond(gd_onnx_saver *s, const gd_onnx_call *c) {
    const gd_cond_graph_options *o = c->attrs;
    const char *predicate = c->in_names[0];
    GD_TRY(convert_condition(s, c->label, (gd_dtype)c->in[0].dtype, c->in[0].rank, &predicate));
    gd_pb *node = gd_onnx_add_node(s, "If", "", c->label);
    gd_pb_put_string(node, "input", predicate);
    put_outputs(node, c);
    GD_TRY(save_branch(s, c, node, "then_branch", o->yes));
    return save_branch(s, c, node, "else_branch", o->no);
}

/* --- loops ------------------------------------------------------------------------------------ */

/* Saves the condition as a bool. A Loop evaluates it before the first step, and in its body for the
 * next step. */
static gd_status save_condition(gd_onnx_saver *s, const gd_onnx_call *c,
                                const gd_subgraph *condition, const char *const *in,
                                const char **going) {
    GD_TRY(save_function(s, condition, in, going));
    return convert_condition(s, c->label, condition->metas[0].dtype, condition->metas[0].rank,
                             going);
}

/* Saves the body, then the condition of the next step, which reads the new state and captured
 * values. */
static gd_status save_while_body(gd_onnx_saver *s, const gd_onnx_call *c, const char **in,
                                 const char **out) {
    const gd_while_graph_options *o = c->attrs;
    const int n = (int)o->state;
    const char *ignored, *going;
    GD_TRY(add_input(s, c->label, "/step", GD_I64, 0, NULL, &ignored));
    GD_TRY(add_input(s, c->label, "/going", GD_BOOL, 0, NULL, &ignored));
    for (int k = 0; k < n; k++)
        GD_TRY(add_input(s, c->label, "/state", (gd_dtype)c->in[k].dtype, c->in[k].rank,
                         c->in[k].dims, &in[k]));
    GD_TRY(save_function(s, o->body, in, out));
    memcpy(in, out, (size_t)n * sizeof *in);
    GD_TRY(save_condition(s, c, o->condition, in, &going));
    GD_TRY(add_output(s, going, GD_BOOL, 0, NULL));
    return add_outputs(s, o->body, out);
}

static gd_status save_while(gd_onnx_saver *s, const gd_onnx_call *c) {
    const gd_while_graph_options *o = c->attrs;
    const char *going, *most = "";
    const int64_t max_steps = o->max_steps < 0 ? 0 : o->max_steps;
    if (o->max_steps != GD_UNSET &&
        !(most = gd_onnx_add_constant(s, c->label, GD_I64, 0, NULL, &max_steps)))
        return GD_E_MEMORY;
    GD_TRY(save_condition(s, c, o->condition, c->in_names, &going));
    gd_pb *node = gd_onnx_add_node(s, "Loop", "", c->label), *outer = s->current_graph;
    gd_pb_put_string(node, "input", most);
    gd_pb_put_string(node, "input", going);
    for (int k = 0; k < o->state; k++) gd_pb_put_string(node, "input", c->in_names[k]);
    put_outputs(node, c);
    const char **in = gd_calloc((size_t)(c->n_in + o->body->n_out) + 1, sizeof *in);
    gd_status status =
        in ? enter_subgraph(s, node, "body", &outer) : gd_no_memory(NULL, "to save a graph");
    if (status == GD_OK) {
        memcpy(in, c->in_names, (size_t)c->n_in * sizeof *in);
        status = save_while_body(s, c, in, in + c->n_in);
    }
    s->current_graph = outer;
    gd_free(in);
    return status;
}

static gd_status save_scan_body(gd_onnx_saver *s, const gd_onnx_call *c, const char **in,
                                const char **out) {
    const gd_scan_graph_options *o = c->attrs;
    for (int k = 0; k < o->state + o->xs; k++) {
        const gd_slot *x = &c->in[k];
        const int cut = k >= o->state; /* 1: a scan input, without its first axis */
        GD_TRY(add_input(s, c->label, cut ? "/x" : "/state", (gd_dtype)x->dtype, x->rank - cut,
                         x->dims + cut, &in[k]));
    }
    GD_TRY(save_function(s, o->body, in, out));
    return add_outputs(s, o->body, out);
}

static void put_directions(gd_pb *node, const char *name, int64_t count) {
    int64_t reversed[GD_ONNX_MAX_NUMBERS];
    for (int64_t k = 0; k < count; k++) reversed[k] = 1;
    if (count > 0) gd_onnx_put_ints(node, name, (int)count, reversed);
}

static gd_status save_scan(gd_onnx_saver *s, const gd_onnx_call *c) {
    const gd_scan_graph_options *o = c->attrs;
    if (o->reverse && (o->xs > GD_ONNX_MAX_NUMBERS || c->n_out - o->state > GD_ONNX_MAX_NUMBERS))
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: a reversed scan over %lld tensors; at most 64 are possible", c->label,
                       (long long)o->xs);
    gd_pb *node = gd_onnx_add_node(s, "Scan", "", c->label), *outer = s->current_graph;
    for (int k = 0; k < o->state + o->xs; k++) gd_pb_put_string(node, "input", c->in_names[k]);
    put_outputs(node, c);
    gd_onnx_put_int(node, "num_scan_inputs", o->xs);
    if (o->reverse) {
        put_directions(node, "scan_input_directions", o->xs);
        put_directions(node, "scan_output_directions", c->n_out - o->state);
    }
    const char **in = gd_calloc((size_t)(c->n_in + o->body->n_out) + 1, sizeof *in);
    gd_status status =
        in ? enter_subgraph(s, node, "body", &outer) : gd_no_memory(NULL, "to save a graph");
    if (status == GD_OK) {
        memcpy(in, c->in_names, (size_t)c->n_in * sizeof *in);
        status = save_scan_body(s, c, in, in + c->n_in);
    }
    s->current_graph = outer;
    gd_free(in);
    return status;
}

bool gd_onnx_is_control(const gd_op *op) {
    return op->facts.control != GD_CONTROL_NONE && op->facts.control != GD_CONTROL_GRADIENTS;
}

static gd_status save_nested(gd_onnx_saver *s, const gd_onnx_call *c) {
    if (c->op->facts.control == GD_CONTROL_BRANCH) return save_cond(s, c);
    return c->op->facts.control == GD_CONTROL_WHILE ? save_while(s, c) : save_scan(s, c);
}

gd_status gd_onnx_save_control(gd_onnx_saver *s, const gd_onnx_call *c) {
    if (s->depth >= GD_ONNX_MAX_NESTED)
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: branches and loops are nested more than %d levels deep", c->label,
                       GD_ONNX_MAX_NESTED);
    s->depth++;
    const gd_status status = save_nested(s, c);
    s->depth--;
    return status;
}
