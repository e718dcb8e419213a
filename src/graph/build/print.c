/* print.c - graphs as text and as Graphviz DOT. */
#include <stdio.h>
#include <stdlib.h>

#include "core/freed.h"
#include "graph/build/graph.h"
#include "graph/build/options.h"
#include "dispatch/subgraph.h"

/* Dtype and shape of output k, as "f32[?,10]". */
static const char *output_text(const gd_node *node, int k, char *text, size_t size) {
    const gd_slot *slot = &node->slots[node->n_in + k];
    char dims[128];
    snprintf(text, size, "%s%s", gd_dtype_name((gd_dtype)slot->dtype),
             gd_shape_text(slot->rank, slot->dims, dims, sizeof dims));
    return text;
}

static const char *node_kind_text(const gd_node *node) {
    switch (node->origin->kind) {
    case GD_FROM_PLACEHOLDER: return "placeholder";
    case GD_FROM_VARIABLE: return "variable";
    default: return node->op ? node->op->name : "symbol";
    }
}

/* Prints an input as "matmul_2", "split_3:1", a name that the program gave, or "value f32[2,3]" for
 * a captured tensor. */
static void print_input(FILE *out, const gd_slot *slot) {
    char dims[128], name[256];
    if (!slot->present) fputs("-", out);
    else if (!slot->symbol)
        fprintf(out, "value %s%s", gd_dtype_name((gd_dtype)slot->dtype),
                gd_shape_text(slot->rank, slot->dims, dims, sizeof dims));
    else if (!slot->node || !slot->node->origin) fputs("symbol", out);
    else fputs(gd_output_name(slot->node, slot->index, name, sizeof name), out);
}

static void print_nodes(FILE *out, const gd_graph *graph, int indent);

/* Prints a branch or the body of a loop: its inputs, nodes and results. */
static void print_subgraph(FILE *out, const char *name, const gd_subgraph *sub, int indent) {
    fprintf(out, "%*s%s(", indent, "", name);
    for (int i = 0; i < sub->n_in; i++)
        fprintf(out, "%s%s", i ? ", " : "", sub->in[i]->origin->name);
    fputs("):\n", out);
    print_nodes(out, sub->graph, indent + 2);
    fprintf(out, "%*sgives", indent + 2, "");
    for (int k = 0; k < sub->n_out; k++) {
        char text[256];
        fprintf(out, "%s %s", k ? "," : "",
                gd_output_name(sub->out[k], sub->out_index[k], text, sizeof text));
    }
    fputs("\n", out);
}

static void print_node(FILE *out, const gd_node *node, int indent) {
    char text[192];
    fprintf(out, "%*s%s", indent, "", node->origin->name);
    for (int k = 1; node->origin->output_names && k < node->n_out; k++)
        fprintf(out, ", %s", gd_output_name(node, k, text, sizeof text));
    fprintf(out, " = %s", node_kind_text(node));
    if (node->op) {
        fputs("(", out);
        for (int i = 0; i < node->n_in; i++) {
            if (i) fputs(", ", out);
            print_input(out, &node->slots[i]);
        }
        fputs(")", out);
        gd_fprint_options(out, node->op, node->attrs);
    }
    for (int k = 0; k < node->n_out; k++)
        fprintf(out, "%s %s", k ? "," : " ->", output_text(node, k, text, sizeof text));
    for (int i = 0; i < node->origin->n_after; i++)
        if (node->origin->after[i]->origin)
            fprintf(out, "%s %s", i ? "," : "  after", node->origin->after[i]->origin->name);
    fputs("\n", out);
    for (int i = 0; node->op && i < node->op->n_attrs && node->attrs; i++) {
        const gd_op_attr *a = &node->op->attrs[i];
        const gd_subgraph *const *sub =
            (const gd_subgraph *const *)((const char *)node->attrs + a->offset);
        if (a->type == GD_ATTR_GRAPH && *sub) print_subgraph(out, a->name, *sub, indent + 2);
    }
}

static void print_nodes(FILE *out, const gd_graph *graph, int indent) {
    for (int i = 0; i < graph->count; i++) print_node(out, graph->nodes[i], indent);
}

static void print_top(FILE *out, const gd_node *node) { print_node(out, node, 0); }

/* Escapes quotes and backslashes, which names from the program may contain. */
static void print_quoted(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void print_dot_node(FILE *out, const gd_node *node) {
    static const char *const shapes[] = {"box", "ellipse", "cylinder"};
    char text[192];
    fprintf(out, "  n%d [shape=%s label=", node->origin->number, shapes[node->origin->kind]);
    char label[512];
    snprintf(label, sizeof label, "%.300s: %s", node->origin->name, node_kind_text(node));
    print_quoted(out, label);
    fprintf(out, " tooltip=\"%s\"];\n",
            node->n_out > 0 ? output_text(node, 0, text, sizeof text) : "");
    for (int i = 0; i < node->n_in; i++) {
        const gd_slot *slot = &node->slots[i];
        if (slot->symbol && slot->node && slot->node->origin)
            fprintf(out, "  n%d -> n%d [label=\"%s\"];\n", slot->node->origin->number,
                    node->origin->number, output_text(slot->node, slot->index, text, sizeof text));
    }
    for (int i = 0; i < node->origin->n_after; i++)
        if (node->origin->after[i]->origin)
            fprintf(out, "  n%d -> n%d [style=dashed];\n", node->origin->after[i]->origin->number,
                    node->origin->number);
}

static char *print_all(gd_graph *graph, const char *head, void (*print)(FILE *, const gd_node *),
                       const char *tail) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = graph ? open_memstream(&text, &size) : NULL;
    if (!out) return NULL;
    fputs(head, out);
    for (int i = 0; i < graph->count; i++) print(out, graph->nodes[i]);
    fputs(tail, out);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

char *gd_graph_text(gd_graph *graph) {
    GD_LIVE(graph);
    return print_all(graph, "", print_top, "");
}

char *gd_graph_dot(gd_graph *graph) {
    GD_LIVE(graph);
    return print_all(graph, "digraph graph_ {\n  rankdir=BT;\n  node [fontname=\"sans-serif\"];\n",
                     print_dot_node, "}\n");
}
