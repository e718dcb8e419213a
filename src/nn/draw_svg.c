/* draw_svg.c - a picture as SVG: boxes with text, and curves between the layers. See draw.h.
 *
 * Each text has the width that it was measured with (textLength), so that no font makes it overlap
 * its box.
 */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/number.h"
#include "format/utf8.h"
#include "nn/draw.h"

enum {
    MARGIN = 20,
    TITLE = 34,
    PAD = 10,  /* from text to the side of its box */
    LINE = 16, /* height of a line of text */
    CELL = 18, /* of outputs */
    INNER = 5, /* above and below the lines of a part */
    LAYER_GAP = 30,
    ARROW = 9,  /* the straight end of a line to a box */
    WRAP = 250, /* pixels of a line of details */
    MAX_DETAILS = 4,
    MAX_TEXT = 64, /* characters of a line; the middle of a longer one is left out */
    BIG = 12,
    SMALL = 11,
    DETAIL = 512
};

/* --- text ------------------------------------------------------------------------------------- */

/* Widths of the characters ' ' to '~' in Helvetica, in thousandths of the size of the font. */
static const short widths[95] = {
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333,  278, 278, 556, 556, 556,
    556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667,
    611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667,  611, 722, 667, 944, 667,
    667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278,  556, 556, 222, 222, 500,
    222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500,  500, 334, 260, 334, 584};

/* The characters of a text, at most MAX_TEXT: reads the next one from *text and returns its width;
 * -1: the end. `to` gets it as XML, or as it is if it is NULL. What is no UTF-8 is a '?'. */
static double next_character(const char **text, FILE *to) {
    const char *s = *text;
    if (!*s) return -1;
    const size_t n = gd_utf8_length(s, s + strlen(s) < s + 4 ? s + strlen(s) : s + 4);
    const unsigned char c = (unsigned char)*s;
    *text = s + (n ? n : 1);
    const bool shown = n > 1 || (n == 1 && c >= 0x20 && c != 0x7F);
    if (to && !shown) fputc('?', to);
    else if (to && c == '<') fputs("&lt;", to);
    else if (to && c == '>') fputs("&gt;", to);
    else if (to && c == '&') fputs("&amp;", to);
    else if (to && c == '"') fputs("&quot;", to);
    else if (to) fwrite(s, 1, n, to);
    if (n < 2) return shown ? widths[c - 0x20] : 556;
    return c >= 0xE3 ? 1000 : 600; /* from U+3000 on, most characters are wide */
}

static int character_count(const char *text) {
    int n = 0;
    while (next_character(&text, NULL) >= 0) n++;
    return n;
}

/* Writes a text, without its middle if it is long, and returns its width for a font of one pixel. */
static double put_text(const char *text, FILE *to) {
    const int n = character_count(text), left = MAX_TEXT / 2 - 1;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const bool hidden = n > MAX_TEXT && i >= left && i < n - left;
        const double width = next_character(&text, hidden ? NULL : to);
        if (!hidden) sum += width / 1000;
        if (!hidden || i != left) continue;
        if (to) fputs("\xE2\x80\xA6", to); /* an ellipsis */
        sum += 1;
    }
    return sum;
}

static double text_width(const char *text, int size, bool bold) {
    return put_text(text, NULL) * size * (bold ? 1.13 : 1.06); /* room for wider fonts */
}

static void print_text(FILE *out, double x, double y, const char *text, int size, bool bold) {
    if (!*text) return;
    gd_fprintf(out,
               "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" textLength=\"%.1f\" "
               "lengthAdjust=\"spacingAndGlyphs\">",
               bold ? size == BIG ? "n" : "m" : "t", x, y, text_width(text, size, bold));
    put_text(text, out);
    fputs("</text>\n", out);
}

/* --- measuring -------------------------------------------------------------------------------- */

/* A part is its name and type on one line, and its details below. The first one of a box, and one with
 * details, has more room above and below. */
static bool is_wide(const gd_drawn_box *b, int part) { return part == 0 || *b->parts[part].detail; }

enum { BETWEEN = 8 }; /* pixels between two texts on a line */

static double beside(const char *a, int size, bool bold, const char *b) {
    const double left = *a ? text_width(a, size, bold) : 0;
    return left + (*a && *b ? BETWEEN : 0) + (*b ? text_width(b, SMALL, false) : 0);
}

/* Copies the next line of a detail to `line` and moves *text behind it; false: there is none. */
static bool next_line(const char **text, int number, char line[DETAIL]) {
    const char *s = *text + strspn(*text, " ");
    size_t n = 0;
    if (!*s) return false;
    do { /* another word */
        const size_t more = n + strspn(s + n, " ") + strcspn(s + n + strspn(s + n, " "), " ");
        snprintf(line, DETAIL, "%.*s", (int)more, s);
        if (n > 0 && number + 1 < MAX_DETAILS && text_width(line, SMALL, false) > WRAP) break;
        n = more;
    } while (s[n]);
    snprintf(line, DETAIL, "%.*s", (int)n, s);
    *text = s + n;
    return true;
}

static double part_width(const gd_drawn_box *b, int i) {
    const gd_draw_line *p = &b->parts[i];
    char line[DETAIL];
    const char *detail = p->detail;
    double width = beside(p->name, i == 0 ? BIG : SMALL, true, p->type);
    for (int n = 0; next_line(&detail, n, line); n++)
        width = fmax(width, text_width(line, SMALL, false));
    return width;
}

static double part_height(const gd_drawn_box *b, int i) {
    char line[DETAIL];
    const char *detail = b->parts[i].detail;
    int lines = 1;
    for (int n = 0; next_line(&detail, n, line); n++) lines++;
    return LINE * lines + (is_wide(b, i) ? 2 * INNER : INNER);
}

static bool is_shown(const gd_draw_end *e) { return *e->name || *e->shape; }

static double end_width(const gd_draw_end *e) {
    return beside(e->name, SMALL, true, e->shape) + 2 * PAD;
}

/* Outputs are cells side by side if the picture runs down, and lines if it runs to the right. */
static void measure_box(gd_drawn_box *b, bool left_to_right) {
    double width = 60, height = 0, cells = 0;
    int shown = 0;
    for (int i = 0; i < b->n_parts; i++) {
        width = fmax(width, part_width(b, i) + 2 * PAD);
        height += part_height(b, i);
    }
    if (b->note) {
        width = fmax(width, text_width(b->note, SMALL, false) + 2 * PAD);
        height += CELL;
    }
    for (int i = 0; i < b->n_outputs; i++) {
        cells = left_to_right ? fmax(cells, end_width(&b->outputs[i]))
                              : cells + end_width(&b->outputs[i]);
        shown += is_shown(&b->outputs[i]);
    }
    b->width = fmax(width, shown ? cells : 0);
    b->height = height + (left_to_right ? CELL * b->n_outputs : shown ? CELL : 0);
    double at = left_to_right ? height : 0;
    const double spare = b->n_outputs ? (b->width - cells) / b->n_outputs : 0;
    for (int i = 0; i < b->n_outputs && b->n_outputs > 1; i++) {
        const double size = left_to_right ? CELL : end_width(&b->outputs[i]) + spare;
        b->outputs[i].at = at + size / 2 - (left_to_right ? b->height : b->width) / 2;
        at += size;
    }
}

void gd_draw_measure(gd_drawing *d, bool left_to_right) {
    for (int i = 0; i < d->n_boxes; i++)
        if (d->boxes[i].folded < 0) measure_box(&d->boxes[i], left_to_right);
}

/* --- boxes ------------------------------------------------------------------------------------ */

static void print_part(FILE *out, const gd_drawn_box *b, int i, double x, double y) {
    const gd_draw_line *p = &b->parts[i];
    const int size = i == 0 ? BIG : SMALL;
    const double top = y + (is_wide(b, i) ? INNER : INNER / 2.0);
    double left = x + PAD;
    print_text(out, left, top + 12, p->name, size, true);
    if (*p->name) left += text_width(p->name, size, true) + BETWEEN;
    print_text(out, left, top + 12, p->type, SMALL, false);
    char line[DETAIL];
    const char *detail = p->detail;
    for (int n = 0; next_line(&detail, n, line); n++)
        print_text(out, x + PAD, top + 12 + LINE * (n + 1), line, SMALL, false);
}

static void print_ends(FILE *out, const gd_drawn_box *b, double x, double y, bool left_to_right) {
    const double middle_x = x + b->width / 2, middle_y = y + b->height / 2;
    for (int i = 0; i < b->n_outputs; i++) {
        const gd_draw_end *e = &b->outputs[i];
        const double width = end_width(e);
        double left = x, top = y + b->height - CELL;
        if (left_to_right && b->n_outputs > 1) top = middle_y + e->at - CELL / 2.0;
        if (!left_to_right && b->n_outputs > 1) left = middle_x + e->at - width / 2;
        if (!left_to_right && i > 0)
            gd_fprintf(out, "<path class=\"g\" d=\"M%.1f %.1fv%d\"/>\n", left, top, CELL);
        print_text(out, left + PAD, top + 13, e->name, SMALL, true);
        if (*e->name) left += text_width(e->name, SMALL, true) + BETWEEN;
        print_text(out, left + PAD, top + 13, e->shape, SMALL, false);
    }
}

/* The title, which viewers show beside the pointer, has texts that the box has shortened. */
static void print_title(FILE *out, const gd_drawn_box *b) {
    bool long_text = false;
    for (int i = 0; i < b->n_parts; i++)
        long_text |= character_count(b->parts[i].name) > MAX_TEXT ||
                     character_count(b->parts[i].detail) > MAX_TEXT;
    if (!long_text) return;
    fputs("<title>", out);
    for (int i = 0; i < b->n_parts; i++)
        for (int k = 0; k < 3; k++) {
            const char *text[3] = {b->parts[i].name, b->parts[i].type, b->parts[i].detail};
            for (const char *s = text[k]; next_character(&s, out) >= 0;) continue;
            fputs(k < 2 ? " " : "\n", out);
        }
    fputs("</title>", out);
}

static void print_box(FILE *out, const gd_drawn_box *b, double x, double y, bool left_to_right) {
    double at = y;
    fputs("<g>", out);
    print_title(out, b);
    gd_fprintf(out, "<rect class=\"w\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", x,
               y, b->width, b->height);
    for (int i = 0; i < b->n_parts; i++) {
        const double height = part_height(b, i);
        gd_fprintf(out,
                   "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x,
                   at, b->width, height, gd_draw_colour(b->parts[i].family));
        print_part(out, b, i, x, at);
        at += height;
    }
    if (b->note) print_text(out, x + PAD, at + 13, b->note, SMALL, false);
    print_ends(out, b, x, y, left_to_right);
    gd_fprintf(out,
               "<rect class=\"b\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/></g>\n", x,
               y, b->width, b->height);
}

/* --- lines ------------------------------------------------------------------------------------ */

/* Of each layer: where it begins and how high it is, along the picture. */
typedef struct band {
    double top, size;
} band;

static double depth_of(const gd_layers *l, int node, bool left_to_right) {
    const int box = l->nodes[node].box;
    if (box < 0) return 0;
    return left_to_right ? l->drawing->boxes[box].width : l->drawing->boxes[box].height;
}

/* Lines that go far to the side get more room below them. */
static void measure_bands(const gd_layers *l, band *bands, bool left_to_right) {
    for (int i = 0; i < l->n_nodes; i++)
        bands[l->nodes[i].rank].size =
            fmax(bands[l->nodes[i].rank].size, depth_of(l, i, left_to_right));
    for (int i = 0; i < l->n_links; i++) {
        const gd_draw_link *k = &l->links[i];
        const gd_draw_node *from = &l->nodes[k->from], *to = &l->nodes[k->to];
        const double aside = fabs(from->x + k->out - to->x - k->in);
        band *below = &bands[to->rank]; /* `top` has the gap above the layer for now */
        below->top = fmax(below->top, LAYER_GAP + fmin(60, aside * 0.06));
    }
    double at = 0;
    for (int r = 0; r < l->n_ranks; r++) {
        at += bands[r].top;
        bands[r].top = at;
        at += bands[r].size;
    }
}

typedef struct canvas {
    FILE *out;
    const gd_layers *l;
    band *bands;
    bool left_to_right;
} canvas;

/* A point of a path: x along the layer, y along the picture. */
static void print_point(const canvas *c, char command, double x, double y) {
    const double a = MARGIN + (c->left_to_right ? y : x),
                 b = MARGIN + TITLE + (c->left_to_right ? x : y);
    if (command) fputc(command, c->out);
    gd_fprintf(c->out, "%.1f %.1f ", a, b);
}

static double middle_of(const canvas *c, int rank) {
    return c->bands[rank].top + c->bands[rank].size / 2;
}

/* Straight through the layers, curved between them. */
static void print_link(const canvas *c, const gd_draw_link *k) {
    const gd_layers *l = c->l;
    const gd_draw_node *from = &l->nodes[k->from], *to = &l->nodes[k->to];
    const double x = from->x + k->out, end = to->x + k->in;
    const double leave = c->bands[from->rank].top + c->bands[from->rank].size,
                 enter = c->bands[to->rank].top - (to->box >= 0 ? ARROW : 0),
                 half = (leave + enter) / 2;
    /* a line passes the layer of a bend before it bends */
    const double begin_y = from->box < 0 ? leave
                                         : middle_of(c, from->rank) +
                                               depth_of(l, k->from, c->left_to_right) / 2,
                 end_y = to->box < 0
                             ? c->bands[to->rank].top + c->bands[to->rank].size
                             : middle_of(c, to->rank) - depth_of(l, k->to, c->left_to_right) / 2;
    fputs(to->box >= 0 ? "<path class=\"l a\" d=\"" : "<path class=\"l\" d=\"", c->out);
    print_point(c, 'M', x, begin_y);
    if (fabs(x - end) > 0.5) {
        print_point(c, 'L', x, leave);
        print_point(c, 'C', x, half);
        print_point(c, 0, end, half);
        print_point(c, 0, end, enter);
    }
    print_point(c, 'L', end, end_y - (to->box >= 0 ? 1 : 0));
    fputs("\"/>\n", c->out);
}

/* --- the picture ------------------------------------------------------------------------------ */

static void print_head(FILE *out, double width, double height, const char *title) {
    gd_fprintf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
               "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\">\n",
               width, height, width, height);
    fputs(
        "<style>.n{font-size:12px;font-weight:bold}.m{font-size:11px;font-weight:bold}.t{font-size:"
        "11px}.h{font-size:16px;font-weight:bold}text{fill:#111827;white-space:pre}.w{fill:#fff}"
        ".b{fill:none;stroke:#475569}.g{stroke:#cbd5e1}.l{fill:none;stroke:#64748b;stroke-width:"
        "1.3}.a{marker-end:url(#a)}</style>\n"
        "<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"7.5\" refY=\"4\" markerWidth=\"7\" "
        "markerHeight=\"7\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0.8L8 4L0 "
        "7.2z\" fill=\"#64748b\"/></marker></defs>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        out);
    fprintf(out, "<text class=\"h\" x=\"%d\" y=\"%d\">", MARGIN, MARGIN + 14);
    put_text(title, out);
    fputs("</text>\n", out);
}

static void print_all(const canvas *c, const gd_drawing *d) {
    const gd_layers *l = c->l;
    double across = 0, along = 0;
    for (int i = 0; i < l->n_nodes; i++)
        across = fmax(across, l->nodes[i].x + l->nodes[i].size / 2);
    if (l->n_ranks > 0) along = c->bands[l->n_ranks - 1].top + c->bands[l->n_ranks - 1].size;
    const double width = c->left_to_right ? along : across,
                 height = c->left_to_right ? across : along;
    print_head(c->out, fmax(width, put_text(d->title, NULL) * 17.5) + 2 * MARGIN,
               height + 2 * MARGIN + TITLE, d->title);
    for (int i = 0; i < l->n_links; i++) print_link(c, &l->links[i]);
    for (int i = 0; i < l->n_nodes; i++) {
        const gd_draw_node *n = &l->nodes[i];
        if (n->box < 0) continue;
        const gd_drawn_box *b = &d->boxes[n->box];
        const double x = n->x - n->size / 2,
                     y = middle_of(c, n->rank) - depth_of(l, i, c->left_to_right) / 2;
        print_box(c->out, b, MARGIN + (c->left_to_right ? y : x),
                  MARGIN + TITLE + (c->left_to_right ? x : y), c->left_to_right);
    }
    fputs("</svg>\n", c->out);
}

bool gd_draw_svg(const gd_drawing *d, const gd_layers *l, bool left_to_right, FILE *out) {
    canvas c = {.out = out, .l = l, .left_to_right = left_to_right};
    c.bands = gd_calloc((size_t)l->n_ranks + 1, sizeof *c.bands);
    if (!c.bands) return false;
    measure_bands(l, c.bands, left_to_right);
    print_all(&c, d);
    gd_free(c.bands);
    return true;
}
