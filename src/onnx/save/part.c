/* part.c - the part of a graph that goes into an ONNX file.
 *
 * Order: marking the nodes that the outputs need; names; saving the nodes.
 */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "onnx/save/save.h"

/* --- needed nodes ----------------------------------------------------------------------------- */

gd_status gd_onnx_part_begin(gd_onnx_part *p, gd_graph *graph) {
    const size_t count = (size_t)graph->count + 1;
    *p = (gd_onnx_part){.graph = graph};
    p->names = gd_calloc(count, sizeof *p->names);
    p->used = gd_calloc(count, sizeof *p->used);
    p->needed = gd_calloc(count, sizeof *p->needed);
    return p->names && p->used && p->needed ? GD_OK : gd_no_memory(NULL, "to save a graph");
}

void gd_onnx_part_end(gd_onnx_part *p) {
    for (int i = 0; p->names && i < p->graph->count; i++) gd_free(p->names[i]);
    gd_free(p->names);
    gd_free(p->used);
    gd_free(p->needed);
}

static gd_status output_names(gd_onnx_part *p, const gd_node *node, const char ***names) {
    const int number = node->origin->number;
    if (!p->names[number]) p->names[number] = gd_calloc((size_t)node->n_out + 1, sizeof **p->names);
    *names = p->names[number];
    return *names ? GD_OK : gd_no_memory(NULL, "to save a graph");
}

gd_status gd_onnx_part_input(gd_onnx_part *p, const gd_node *node, int index, const char *name) {
    const char **names;
    GD_TRY(output_names(p, node, &names));
    names[index] = name;
    return GD_OK;
}

gd_status gd_onnx_need_output(gd_onnx_part *p, const gd_node *node, int index, const char *reader) {
    const char **names;
    const gd_origin *o = node ? node->origin : NULL;
    if (!o || o->graph != p->graph)
        return gd_fail(GD_E_ARGUMENT, "'%s' reads a symbol of another graph", reader);
    GD_TRY(output_names(p, node, &names));
    p->used[o->number] |= (uint64_t)1 << (index & 63);
    if (!names[index]) p->needed[o->number] = true; /* inputs have a name already */
    return GD_OK;
}

/* Whether a node has a side effect: it writes a variable, or calls the program. */
static bool has_side_effect(const gd_node *node) {
    if (node->origin->kind != GD_FROM_OP) return false;
    if (!node->op) return true; /* calls a function of the program */
    for (int i = 0; i < node->op->n_inputs && i < node->n_in; i++)
        if (node->op->inputs[i].mutated && node->slots[i].present) return true;
    return false;
}

/* A node that was built under GD_AFTER runs after other nodes. A file cannot express that order. It
 * matters only if those nodes have side effects, so then this fails. */
static gd_status check_dependencies(const gd_onnx_part *p, const gd_node *node) {
    const gd_origin *o = node->origin;
    gd_status status = GD_OK;
    if (o->n_after == 0) return GD_OK;
    bool *runs = gd_calloc((size_t)p->graph->count + 1, sizeof *runs);
    if (!runs) return gd_no_memory(NULL, "to save a graph");
    for (int i = 0; i < o->n_after; i++) runs[o->after[i]->origin->number] = true;
    for (int i = o->number; i-- > 0 && status == GD_OK;) {
        const gd_node *before = p->graph->nodes[i];
        if (!runs[i]) continue;
        if (has_side_effect(before))
            status = gd_fail(GD_E_UNSUPPORTED,
                             "'%s' runs after '%s' (GD_AFTER), which %s: a file cannot express "
                             "that order. Save outputs that do not depend on it",
                             o->name, before->origin->name,
                             before->op ? "writes a variable" : "is a function of the program");
        for (int k = 0; k < before->n_in; k++)
            if (before->slots[k].symbol) runs[before->slots[k].node->origin->number] = true;
        for (int k = 0; k < before->origin->n_after; k++)
            runs[before->origin->after[k]->origin->number] = true;
    }
    gd_free(runs);
    return status;
}

gd_status gd_onnx_need_inputs(gd_onnx_part *p) {
    for (int i = p->graph->count; i-- > 0;) { /* from the last node: inputs come before */
        const gd_node *node = p->graph->nodes[i];
        if (!p->needed[i]) continue;
        GD_TRY(check_dependencies(p, node));
        for (int k = 0; k < node->n_in; k++)
            if (node->slots[k].symbol)
                GD_TRY(gd_onnx_need_output(p, node->slots[k].node, node->slots[k].index,
                                           node->origin->name));
    }
    return GD_OK;
}

gd_status gd_onnx_name_outputs(gd_onnx_saver *s, gd_onnx_part *p, const gd_node *node) {
    const char **names = p->names[node->origin->number];
    for (int k = 0; k < node->n_out; k++) {
        char text[256];
        if (names[k]) continue;
        const char *name = gd_output_name(node, k, text, sizeof text);
        if (!(names[k] = gd_onnx_unique_name(s, name, ""))) return GD_E_MEMORY;
    }
    return GD_OK;
}

/* --- saving ----------------------------------------------------------------------------------- */

static gd_status save_variable(gd_onnx_saver *s, const gd_onnx_part *p, gd_node *node) {
    const char *name = p->names[node->origin->number][0];
    gd_tensor *symbol = gd_slot_get(&node->slots[0], node, "a graph");
    gd_tensor *value = symbol ? gd_session_get(s->session, symbol) : NULL;
    if (!value || value->kind != GD_VALUE) return gd_failure();
    GD_TRY(gd_onnx_record_variable(s, node->origin->trainable, name));
    return gd_onnx_add_tensor(s, name, value);
}

static gd_status save_op(gd_onnx_saver *s, const gd_onnx_part *p, const gd_node *node,
                         const char **in) {
    const int number = node->origin->number;
    for (int i = 0; i < node->n_in; i++) {
        const gd_slot *slot = &node->slots[i];
        in[i] = NULL;
        if (!slot->present) continue;
        in[i] = slot->symbol ? p->names[slot->node->origin->number][slot->index]
                             : gd_onnx_captured_name(s, slot, node->origin->name);
        if (!in[i]) return gd_failure();
    }
    const gd_onnx_call call = {.op = node->op,
                               .attrs = node->attrs,
                               .in = node->slots,
                               .out = node->slots + node->n_in,
                               .n_in = node->n_in,
                               .n_out = node->n_out,
                               .in_names = in,
                               .out_names = p->names[number],
                               .used = p->used[number],
                               .label = node->n_out ? p->names[number][0] : node->origin->name};
    return gd_onnx_save_call(s, &call, 0);
}

static gd_status save_node(gd_onnx_saver *s, const gd_onnx_part *p, gd_node *node) {
    const gd_origin *o = node->origin;
    if (o->kind == GD_FROM_VARIABLE) return save_variable(s, p, node);
    if (o->kind == GD_FROM_PLACEHOLDER)
        return gd_fail(GD_E_ARGUMENT, "'%s' is needed and is not among the inputs", o->name);
    if (!node->op)
        return gd_fail(GD_E_UNSUPPORTED,
                       "'%s' is a function of the program, which a file cannot hold", o->name);
    const char **in = gd_calloc((size_t)node->n_in + 1, sizeof *in);
    if (!in) return gd_no_memory(NULL, "to save a graph");
    gd_status status = save_op(s, p, node, in);
    gd_free(in);
    if (status != GD_OK && node->site) gd_error_suffix(" (%s)", node->site);
    return status;
}

gd_status gd_onnx_save_part(gd_onnx_saver *s, gd_onnx_part *p) {
    /* the graph's names are assigned first, so that they stay unchanged */
    for (int i = 0; i < p->graph->count; i++)
        if (p->needed[i]) GD_TRY(gd_onnx_name_outputs(s, p, p->graph->nodes[i]));
    for (int i = 0; i < p->graph->count; i++)
        if (p->needed[i]) GD_TRY(save_node(s, p, p->graph->nodes[i]));
    return GD_OK;
}
