/* nodes.c - runs nodes one after the other, as ops that are called again. Branches and loops run in
 * run.c. */
#include "graph/control/nodes.h"

#include "core/alloc.h"
#include "graph/control/run.h"
#include "gradus/ops.h"

gd_tensor *gd_on_tape(gd_tensor *value) {
    return gd_dtype_is_float((gd_dtype)value->dtype) ? gd_requires_grad(gd_detach(value)) : value;
}

/* The random numbers of a node in this run and in this step of the loops around it. */
static gd_rng rng_offset_of(const gd_node *node, const gd_running *r) {
    gd_rng rng = node->rng;
    rng.call += r->run;
    rng.seed ^= r->steps;
    return rng;
}

static gd_status run_opaque(const gd_node *node, gd_tensor *const *in, gd_tensor **out) {
    gd_expansion expand = {
        node->op, node->attrs, node->n_in, node->n_out, (gd_tensor **)(uintptr_t)in, out};
    node->op->expand(&expand);
    for (int k = 0; k < node->n_out; k++)
        if (!out[k] || out[k]->kind == GD_FAILED) return gd_failure();
    return GD_OK;
}

static gd_status run_node_as_op(gd_node *node, gd_tensor *const *in, gd_tensor **out,
                                const gd_running *r) {
    if (gd_node_subgraph(node, 0)) return gd_control_run(node, in, out, r);
    if (node->op->flags & GD_OP_OPAQUE) return run_opaque(node, in, out);
    gd_rng rng_offset = rng_offset_of(node, r), *before = gd_this_thread.replay_rng;
    if (node->op->flags & GD_OP_RANDOM) gd_this_thread.replay_rng = &rng_offset; /* for its body */
    gd_status status = gd_dispatch_again(node->op, node->site, in, node->n_in, node->attrs,
                                         rng_offset, out, node->n_out);
    gd_this_thread.replay_rng = before;
    return status;
}

/* Runs a node that was traced under GD_NO_GRAD in the same mode. */
static gd_status run_without_grad(gd_node *node, gd_tensor *const *in, gd_tensor **out,
                                  const gd_running *r) {
    const int rules = gd_this_thread.rules;
    int grad = gd_no_grad_begin();
    gd_this_thread.rules = 0;
    gd_status status = run_node_as_op(node, in, out, r);
    gd_this_thread.rules = rules;
    gd_grad_mode_end(&grad);
    return status;
}

gd_status gd_node_run(gd_node *node, gd_tensor *const *in, gd_tensor **out, const gd_running *r) {
    if (r->left && --*r->left < 0)
        return gd_fail(GD_E_STATE, "the loops of the graph are too long to be unrolled");
    gd_status status = (node->stops ? run_without_grad : run_node_as_op)(node, in, out, r);
    for (int k = 0; k < node->n_out && status == GD_OK && r->tape; k++) {
        if (!out[k] || out[k]->requires_grad || out[k]->kind != GD_VALUE) continue;
        out[k] = gd_on_tape(out[k]);
        if (out[k]->kind == GD_FAILED) status = gd_failure();
    }
    return status;
}

static gd_status run_subgraph_node(const gd_subgraph *sub, gd_node *node, gd_tensor **values,
                                   const gd_running *r) {
    gd_tensor *few[16], **in = node->n_in > 16 ? gd_malloc((size_t)node->n_in * sizeof *in) : few;
    if (!in) return gd_no_memory(NULL, "to run a graph");
    gd_status status = GD_OK;
    for (int i = 0; i < node->n_in && status == GD_OK; i++) {
        const gd_slot *slot = &node->slots[i];
        in[i] = !slot->present ? NULL
                : slot->symbol ? values[sub->first_value[slot->node->origin->number] + slot->index]
                               : gd_slot_current(slot);
        if (slot->present && !in[i]) status = gd_failure();
    }
    if (status == GD_OK)
        status = gd_node_run(node, in, values + sub->first_value[node->origin->number], r);
    if (in != few) gd_free(in);
    return status;
}

gd_status gd_subgraph_run(const gd_subgraph *sub, gd_tensor *const *in, gd_tensor **out,
                          const gd_running *r) {
    gd_tensor **values = gd_calloc((size_t)sub->n_values + 1, sizeof *values);
    if (!values) return gd_no_memory(NULL, "to run a graph");
    gd_scope *scope = gd_scope_open();
    gd_status status = GD_OK;
    for (int i = 0; i < sub->n_in; i++)
        values[sub->first_value[sub->in[i]->origin->number]] = in[i];
    for (int n = 0; n < sub->graph->count && status == GD_OK; n++)
        if (sub->first_value[n] >= 0 && sub->graph->nodes[n]->op)
            status = run_subgraph_node(sub, sub->graph->nodes[n], values, r);
    for (int k = 0; k < sub->n_out && status == GD_OK; k++)
        out[k] =
            gd_retain(values[sub->first_value[sub->out[k]->origin->number] + sub->out_index[k]]);
    gd_scope_close(&scope);
    gd_free(values);
    return status;
}
