/* draw_dot.c - a picture as text for Graphviz. See draw.h. */
#include <string.h>

#include "format/utf8.h"
#include "nn/draw.h"

/* A text between quotes. */
static void put_quoted(FILE *out, const char *text) {
    const char *end = text + strlen(text);
    while (text < end) {
        const size_t n = gd_utf8_length(text, end);
        const unsigned char c = (unsigned char)*text;
        if (n == 0 || (n == 1 && (c < 0x20 || c == 0x7F))) fputc('?', out);
        else if (c == '"' || c == '\\') fprintf(out, "\\%c", c);
        else fwrite(text, 1, n, out);
        text += n ? n : 1;
    }
}

static void put_words(FILE *out, const char *a, const char *b) {
    put_quoted(out, a);
    if (*a && *b) fputs("  ", out);
    put_quoted(out, b);
    if (*a || *b) fputs("\\n", out);
}

static void put_box(FILE *out, const gd_drawn_box *b, int number) {
    fprintf(out, "  b%d [label=\"", number);
    for (int i = 0; i < b->n_parts; i++) {
        put_words(out, b->parts[i].name, b->parts[i].type);
        put_words(out, b->parts[i].detail, "");
    }
    for (int i = 0; i < b->n_outputs; i++) put_words(out, b->outputs[i].name, b->outputs[i].shape);
    fprintf(out, "\" fillcolor=\"%s\"];\n",
            gd_draw_colour(b->n_parts > 0 ? b->parts[0].family : NULL));
}

bool gd_draw_dot(const gd_drawing *d, bool left_to_right, FILE *out) {
    fputs("digraph net {\n  label=\"", out);
    put_quoted(out, d->title);
    fprintf(out,
            "\" labelloc=t rankdir=%s;\n  node [shape=box style=filled fontname=\"Helvetica\" "
            "fontsize=11];\n",
            left_to_right ? "LR" : "TB");
    for (int i = 0; i < d->n_boxes; i++)
        if (d->boxes[i].folded < 0) put_box(out, &d->boxes[i], i);
    for (int i = 0; i < d->n_edges; i++) {
        const gd_drawn_edge *e = &d->edges[i];
        fprintf(out, "  b%d -> b%d", e->from, e->to);
        if (d->boxes[e->from].n_outputs > 1) {
            fputs(" [label=\"", out);
            put_quoted(out, d->boxes[e->from].outputs[e->output].name);
            fputs("\"]", out);
        }
        fputs(";\n", out);
    }
    fputs("}\n", out);
    return true;
}
