/* print.c - graphs as text and as Graphviz DOT. */
#include "graph/build/print.h"

#include <stdlib.h>
#include <string.h>

#include "core/integer.h"
#include "core/number.h"
#include "graph/build/graph.h"
#include "graph/lower/program.h"
#include "dispatch/subgraph.h"

void gd_print_options(FILE *out, const gd_op *op, const void *attrs) {
    for (int i = 0; i < op->n_attrs && attrs; i++) {
        const gd_op_attr *a = &op->attrs[i];
        const char *field = (const char *)attrs + a->offset;
        const char *default_field = (const char *)op->defaults + a->offset;
        char text[128];
        switch (a->type) {
        case GD_ATTR_INT:
            if (memcmp(field, default_field, sizeof(int64_t)) == 0) break;
            fprintf(out, " %s=%lld", a->name, (long long)*(const int64_t *)field);
            break;
        case GD_ATTR_FLOAT:
            if (memcmp(field, default_field, sizeof(double)) == 0) break;
            gd_fprintf(out, " %s=%.9g", a->name, *(const double *)field);
            break;
        case GD_ATTR_NUMBER: {
            const gd_number n = *(const gd_number *)field;
            if (gd_same_option(a, field, default_field)) break;
            if (gd_number_is_integer(n) && (double)gd_number_i64(n) == n.value)
                fprintf(out, " %s=%lld", a->name, (long long)gd_number_i64(n));
            else gd_fprintf(out, " %s=%.9g", a->name, n.value);
            break;
        }
        case GD_ATTR_BOOL:
            if (*(const bool *)field == *(const bool *)default_field) break;
            fprintf(out, " %s=%s", a->name, *(const bool *)field ? "true" : "false");
            break;
        case GD_ATTR_INTS:
            if (memcmp(field, default_field, (size_t)a->count * sizeof(int64_t)) == 0) break;
            fprintf(out, " %s=%s", a->name,
                    gd_numbers_text(a->count, (const int64_t *)field, text, sizeof text));
            break;
        case GD_ATTR_SHAPE: {
            const gd_shape *s = (const gd_shape *)field;
            if (s->form == 1)
                fprintf(out, " %s=%s", a->name, gd_numbers_text(s->rank, s->at, text, sizeof text));
            break;
        }
        case GD_ATTR_DTYPE:
            if (*(const gd_dtype *)field)
                fprintf(out, " %s=%s", a->name, gd_dtype_name(*(const gd_dtype *)field));
            break;
        default: break;
        }
    }
}

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

/* Prints an input as "matmul_2", "split_3:1", or "value f32[2,3]" for a captured tensor. */
static void print_input(FILE *out, const gd_slot *slot) {
    char dims[128];
    if (!slot->present) fputs("-", out);
    else if (!slot->symbol)
        fprintf(out, "value %s%s", gd_dtype_name((gd_dtype)slot->dtype),
                gd_shape_text(slot->rank, slot->dims, dims, sizeof dims));
    else if (!slot->node || !slot->node->origin) fputs("symbol", out);
    else if (slot->index > 0) fprintf(out, "%s:%d", slot->node->origin->name, slot->index);
    else fputs(slot->node->origin->name, out);
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
        fprintf(out, "%s %s", k ? "," : "", sub->out[k]->origin->name);
        if (sub->out_index[k]) fprintf(out, ":%d", sub->out_index[k]);
    }
    fputs("\n", out);
}

static void print_node(FILE *out, const gd_node *node, int indent) {
    char text[192];
    fprintf(out, "%*s%s = %s", indent, "", node->origin->name, node_kind_text(node));
    if (node->op) {
        fputs("(", out);
        for (int i = 0; i < node->n_in; i++) {
            if (i) fputs(", ", out);
            print_input(out, &node->slots[i]);
        }
        fputs(")", out);
        gd_print_options(out, node->op, node->attrs);
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

char *gd_graph_text(gd_graph *graph) { return print_all(graph, "", print_top, ""); }

char *gd_graph_dot(gd_graph *graph) {
    return print_all(graph, "digraph graph_ {\n  rankdir=BT;\n  node [fontname=\"sans-serif\"];\n",
                     print_dot_node, "}\n");
}
