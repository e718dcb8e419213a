/* trace.c - appends a node for each op call that is traced; the public side is in trace.h. */
#include "graph/build/trace.h"

#include "graph/build/graph.h"
#include "graph/build/shapes_only.h"
#include "graph/build/trace_grad.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"
#include "core/alloc.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"

enum { FEW_INPUTS = 16 };

static gd_status make_symbol(gd_node *node, int index, gd_device *device, const gd_meta *m,
                             gd_tensor **out) {
    gd_tensor *y = gd_tensor_bare(GD_SYMBOL, device, m->dtype, m->rank, m->dims);
    if (!y) return GD_E_MEMORY;
    gd_slot *slot = &node->slots[node->n_in + index];
    gd_slot_set(slot, y, false);
    slot->index = index;
    gd_node_attach(node, y, index);
    y->requires_grad = slot->requires_grad = gd_dtype_is_float(m->dtype) && !node->stops;
    *out = y;
    return GD_OK;
}

static gd_graph *graph_of(const gd_tensor *t) {
    return t && t->kind == GD_SYMBOL && t->node && t->node->origin ? t->node->origin->graph : NULL;
}

static bool is_view(const gd_node *node) { return node->op && (node->op->flags & GD_OP_VIEW); }

/* After an op in place, the symbol's handle means the new value, and no memory is written. So there
 * must be no other handle, such as a view, that would see the write in eager code. */
static gd_status check_in_place(const gd_invocation *call, const gd_graph *graph) {
    const gd_tensor *x = call->in[0];
    const char *name = call->op->inputs[0].name;
    if (x->kind != GD_SYMBOL || !x->node)
        return GD_OK; /* it has no node: only shapes are inferred */
    if (x->node->origin && x->node->origin->kind == GD_FROM_VARIABLE)
        return gd_fail(
            GD_E_STATE,
            "'%s' is the variable '%s', which is changed with gd_assign(variable, value)", name,
            x->node->origin->name);
    if (is_view(x->node))
        return gd_fail(
            GD_E_UNSUPPORTED,
            "'%s' is a view (%s) and cannot be written in a graph; use the op that returns "
            "a new tensor",
            name, x->node->op->name);
    const gd_node *view = graph ? gd_graph_view_of(graph, x) : NULL;
    if (view)
        return gd_fail(GD_E_UNSUPPORTED,
                       "'%s' has a view (%s of %s), which would not see what is written in a "
                       "graph; use the op that returns a new tensor",
                       name, view->op->name, view->site ? view->site : "?");
    return GD_OK;
}

/* An op may write only tensors that keep their value: variables and captured tensors. */
static gd_status check_written(const gd_invocation *call, const gd_graph *graph) {
    const gd_op *op = call->op;
    const bool in_body = graph && graph->body;
    if (op->base && in_body && graph_of(call->in[0]) != graph)
        return gd_fail(GD_E_STATE,
                       "'%s' is from outside of the branch or the body of the loop and cannot be "
                       "written in it",
                       op->inputs[0].name);
    if (op->base) return check_in_place(call, graph);
    for (int i = 0; i < op->n_inputs && i < call->n_in; i++) {
        const gd_tensor *t = call->in[i];
        if (!op->inputs[i].mutated || !t) continue;
        GD_TRY(gd_check_hook_writes(graph, op->inputs[i].name));
        if (in_body)
            return gd_fail(GD_E_STATE,
                           "'%s' would be written in a branch or in the body of a loop; let the "
                           "body return the new value, and assign it outside",
                           op->inputs[i].name);
        if (t->kind != GD_SYMBOL || !t->node)
            continue; /* it has no node: only shapes are inferred */
        if (!t->node->origin || t->node->origin->kind != GD_FROM_VARIABLE)
            return gd_fail(GD_E_ARGUMENT, "'%s' is written and must be a variable",
                           op->inputs[i].name);
    }
    return GD_OK;
}

/* While it is set, inputs are used as they are: recorded writes to them are not looked up. */
static _Thread_local bool ignores_writes;

static bool is_mutated(const gd_op *op, int i) {
    return !op->base && i < op->n_inputs && op->inputs[i].mutated;
}

/* A view of all of the tensor, as a node that runs after the node that writes the tensor. */
static gd_tensor *view_after_write(gd_graph *graph, gd_tensor *t, gd_node *writer) {
    gd_shape axes = {.rank = t->rank, .form = 1};
    for (int d = 0; d < t->rank; d++) axes.at[d] = d;
    gd_node *after[] = {writer};
    const gd_building outside = gd_this_building;
    gd_this_building = (gd_building){.after = after, .n_after = 1};
    gd_block block = gd_graph_begin(graph);
    ignores_writes = true;
    gd_tensor *y = gd_permute(t, axes);
    ignores_writes = false;
    gd_graph_end(&block);
    gd_this_building = outside;
    return y;
}

gd_status gd_graph_show_write(gd_graph *graph, int index) {
    const gd_written w = graph->written[index];
    gd_tensor *y = view_after_write(graph, w.tensor, w.node);
    if (y->kind == GD_FAILED) return gd_failure();
    gd_retain(y);
    gd_release(w.symbol);
    graph->written[index].symbol = y;
    graph->written[index].opaque = false;
    return GD_OK;
}

/* An op that updates input i takes the captured tensor itself, so earlier writes must have reached
 * the tensor's memory. `writer` is the node that does so, after which the op must run; NULL:
 * none. */
static gd_status find_writer(gd_graph *graph, const gd_invocation *call, int i, gd_node **writer) {
    gd_tensor *t = call->in[i];
    const gd_written *w = gd_graph_find_write(graph, t);
    *writer = NULL;
    if (!w || (call->op->flags & GD_OP_ASSIGNS)) return GD_OK; /* an assign does not read it */
    if (!w->node) {
        ignores_writes = true;
        const gd_tensor *done = gd_assign(t, w->symbol);
        ignores_writes = false;
        if (done->kind == GD_FAILED) return gd_failure();
        w = gd_graph_find_write(graph, t);
    }
    *writer = w->node;
    return GD_OK;
}

/* In a jit's graph: records what the op writes to captured tensors. */
static gd_status record_writes(gd_graph *graph, const gd_invocation *call, gd_node *node) {
    const gd_op *op = call->op;
    for (int i = 0; i < op->n_inputs && i < call->n_in && !op->base; i++) {
        gd_tensor *x = call->in[i];
        if (!op->inputs[i].mutated || !x || x->kind != GD_VALUE || call->n_out == 0) continue;
        gd_written w = {.tensor = x,
                        .symbol = call->out[0],
                        .node = node,
                        .order = node->order,
                        .opaque = true};
        for (int k = 0; k < op->n_outputs && k < call->n_out; k++)
            if (strcmp(op->outputs[k].name, op->inputs[i].name) == 0)
                w.symbol = call->out[k], w.opaque = false;
        if (op->flags & GD_OP_ASSIGNS) w.opaque = false; /* its result is the new value */
        GD_TRY(gd_graph_record_write(graph, w));
    }
    return GD_OK;
}

/* What an input of a call means now, and the node that must run before the call; NULL: none. */
typedef struct traced_input {
    gd_tensor *now;
    gd_node *writer;
} traced_input;

static gd_status find_inputs(const gd_invocation *call, gd_graph *writing, traced_input *inputs) {
    for (int i = 0; i < call->n_in; i++) {
        gd_tensor *x = call->in[i];
        const bool mutated = is_mutated(call->op, i);
        inputs[i] = (traced_input){x, NULL};
        if (ignores_writes) continue;
        if (!mutated) GD_TRY(gd_graph_read(gd_graph_building(), x, &inputs[i].now));
        else if (x && x->kind == GD_VALUE && writing)
            GD_TRY(find_writer(writing, call, i, &inputs[i].writer));
    }
    return GD_OK;
}

static gd_status add_node(gd_invocation *call, const gd_meta *metas, const traced_input *inputs,
                          gd_graph *writing, gd_graph *graph) {
    const gd_op *op = call->op->base ? call->op->base : call->op;
    gd_node *node = gd_node_new(op, call->attrs, call->n_in, call->n_out, 0);
    if (!node) return GD_E_MEMORY;
    node->graph = true;
    node->as_of = gd_as_of ? gd_as_of : node->order;
    node->stops = gd_this_thread.no_grad > 0 && gd_this_thread.rules == 0;
    node->site = call->site;
    node->rng = call->rng;
    gd_device *device = NULL; /* of the inputs; scalars on the CPU go with any device */
    gd_status status = GD_OK;
    for (int i = 0; i < call->n_in && status == GD_OK; i++) {
        status = gd_graph_record_capture(gd_graph_building(), inputs[i].now);
        gd_slot_set(&node->slots[i], inputs[i].now, true); /* a value is captured, not copied */
        gd_slot_capture(&node->slots[i], inputs[i].now);
        if (graph && i < op->n_inputs && op->inputs[i].mutated && node->slots[i].storage)
            graph->writes_values = true;
        if (call->in[i] && (!device || device == gd_cpu())) device = call->in[i]->device;
    }
    if (!device) device = gd_default_device();
    for (int i = 0; i < call->n_out && status == GD_OK; i++)
        status = make_symbol(node, i, metas[i].device ? metas[i].device : device, &metas[i],
                             &call->out[i]);
    if (status == GD_OK && call->op->base) { /* in place: the handle now means the new value */
        gd_tensor *x = call->in[0], *y = call->out[0];
        if (x->kind == GD_VALUE && writing)
            status = gd_graph_record_write(
                writing, (gd_written){.tensor = x, .symbol = y, .order = node->order});
        else if (x->kind != GD_SYMBOL && gd_is_shapes_only)
            call->out[0] = x; /* nothing is written */
        else if (x->kind != GD_SYMBOL)
            status = gd_fail(GD_E_UNSUPPORTED,
                             "'%s' is a value outside the graph and cannot be written in it",
                             call->op->inputs[0].name);
        else {
            gd_node_attach(y->node, x, y->node_index);
            if (gd_this_thread.depth == 0) gd_release(y);
            call->out[0] = x;
        }
    }
    if (status == GD_OK && writing) status = record_writes(writing, call, node);
    if (status == GD_OK) status = gd_graph_add(graph, node, GD_FROM_OP, NULL);
    for (int i = 0; i < call->n_in && status == GD_OK; i++)
        if (inputs[i].writer) status = gd_graph_run_after(node, inputs[i].writer);
    gd_node_release(node);
    return status;
}

static gd_status trace_call(gd_invocation *call, const gd_meta *metas) {
    gd_graph *writing = gd_graph_building();
    if (writing && !writing->traces_writes) writing = NULL;
    gd_graph *graph = gd_graph_of(call->in, call->n_in);
    for (int i = 0; i < call->n_in; i++) {
        const gd_graph *of = graph_of(call->in[i]);
        if (of && of->body == GD_BODY_SEALED)
            return gd_fail(
                GD_E_STATE,
                "input %d belongs to the body of a loop or to a branch, and is used outside of it",
                i);
        const gd_tensor *t = call->in[i];
        char text[200];
        if (gd_symbol_is_left_over(t))
            return gd_fail(
                GD_E_STATE,
                "input %d, %s, is a symbol of a jit's function that has returned; return "
                "it from the function, and use the result of the call",
                i, gd_symbol_text_hook(t, text, sizeof text));
        if (t && t->kind == GD_SYMBOL && t->node && t->node->origin && !t->node->origin->graph)
            return gd_fail(
                GD_E_STATE,
                "input %d, %s, is a symbol of a graph that was freed; the function of a jit must "
                "return it",
                i, gd_symbol_text_hook(t, text, sizeof text));
        if (of && graph && of != graph && !of->body && !graph->body)
            return gd_fail(GD_E_ARGUMENT,
                           "input %d, '%s', is a symbol of another graph than the inputs before it",
                           i, t->node->origin->name);
    }
    GD_TRY(check_written(call, graph));
    traced_input few[FEW_INPUTS],
        *inputs = call->n_in <= FEW_INPUTS ? few : gd_malloc((size_t)call->n_in * sizeof *inputs);
    if (!inputs) return gd_no_memory(NULL, "for a node of the graph");
    gd_status status = find_inputs(call, writing, inputs); /* before add_node: it may add nodes */
    if (status == GD_OK) status = add_node(call, metas, inputs, writing, graph);
    if (inputs != few) gd_free(inputs);
    return status;
}

static void __attribute__((constructor)) register_tracer(void) {
    gd_record_hooks.trace = trace_call;
}

gd_tensor *gd_symbol(gd_shape shape, gd_dtype dtype, gd_device *device) {
    size_t bytes;
    gd_shape known = shape;
    for (int i = 0; i < known.rank && i < GD_MAX_RANK; i++)
        if (known.at[i] == GD_UNKNOWN) known.at[i] = 1;
    gd_status status = gd_shape_bytes(known, dtype, &bytes);
    if (status != GD_OK) return gd_tensor_fail(status);
    gd_node *node = gd_node_new(NULL, NULL, 0, 1, 0);
    if (!node) return gd_tensor_fail(GD_E_MEMORY);
    node->graph = true;
    gd_meta m = {.dtype = dtype, .rank = shape.rank};
    memcpy(m.dims, shape.at, sizeof m.dims);
    gd_tensor *y;
    status = make_symbol(node, 0, device ? device : gd_default_device(), &m, &y);
    gd_node_release(node);
    return status == GD_OK ? y : gd_tensor_fail(status);
}

void gd_trace_begin(void) { gd_this_thread.tracer = &gd_no_graph; }
void gd_trace_end(void) { gd_this_thread.tracer = NULL; }
