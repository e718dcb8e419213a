/* draw.c - the graph of a picture, and its files. See draw.h. */
#include "nn/draw.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "format/file.h"

/* Pixels between boxes of a layer. */
enum { GAP = 28 };

gd_drawing *gd_drawing_new(const char *title) {
    gd_drawing *d = gd_calloc(1, sizeof *d);
    char *copy = gd_malloc(strlen(title) + 1);
    if (!d || !copy) {
        gd_free(d);
        gd_free(copy);
        return NULL;
    }
    d->title = strcpy(copy, title);
    return d;
}

static void free_box(gd_drawn_box *b) {
    for (int i = 0; i < b->n_parts; i++) {
        gd_free(b->parts[i].name);
        gd_free(b->parts[i].type);
        gd_free(b->parts[i].detail);
    }
    for (int i = 0; i < b->n_outputs; i++) {
        gd_free(b->outputs[i].name);
        gd_free(b->outputs[i].shape);
    }
    gd_free(b->parts);
    gd_free(b->outputs);
    gd_free(b->note);
}

void gd_drawing_free(gd_drawing *d) {
    if (!d) return;
    for (int i = 0; i < d->n_boxes; i++) free_box(&d->boxes[i]);
    gd_free(d->boxes);
    gd_free(d->edges);
    gd_free(d->title);
    gd_free(d);
}

/* --- filling ---------------------------------------------------------------------------------- */

static char *copy_text(gd_drawing *d, const char *text) {
    char *copy = gd_malloc(strlen(text) + 1);
    if (!copy) d->failed = true;
    return copy ? strcpy(copy, text) : NULL;
}

int gd_draw_box(gd_drawing *d) {
    if (!gd_grow(d->boxes, d->n_boxes, d->boxes_room)) {
        d->failed = true;
        return -1;
    }
    d->boxes[d->n_boxes] = (gd_drawn_box){.folded = -1};
    return d->n_boxes++;
}

void gd_draw_part(gd_drawing *d, int box, const char *name, const char *type, const char *detail,
                  const char *family) {
    gd_drawn_box *b = box >= 0 ? &d->boxes[box] : NULL;
    if (!b || !gd_grow(b->parts, b->n_parts, b->parts_room)) {
        d->failed = true;
        return;
    }
    b->parts[b->n_parts++] =
        (gd_draw_line){copy_text(d, name), copy_text(d, type), copy_text(d, detail), family};
}

int gd_draw_output(gd_drawing *d, int box, const char *name, const char *shape) {
    gd_drawn_box *b = box >= 0 ? &d->boxes[box] : NULL;
    if (!b || !gd_grow(b->outputs, b->n_outputs, b->outputs_room)) {
        d->failed = true;
        return -1;
    }
    b->outputs[b->n_outputs] =
        (gd_draw_end){.name = copy_text(d, name), .shape = copy_text(d, shape)};
    return b->n_outputs++;
}

/* The box that has the parts of this one. */
static int shown_box(const gd_drawing *d, int box) {
    while (box >= 0 && d->boxes[box].folded >= 0) box = d->boxes[box].folded;
    return box;
}

void gd_draw_connect(gd_drawing *d, int from, int output, int to) {
    from = shown_box(d, from), to = shown_box(d, to);
    if (from < 0 || output < 0 || from >= to) return;
    for (int i = d->n_edges; i-- > 0 && d->edges[i].to == to;) /* those of a box come in one go */
        if (d->edges[i].from == from && d->edges[i].output == output) return;
    if (!gd_grow(d->edges, d->n_edges, d->edges_room)) {
        d->failed = true;
        return;
    }
    d->edges[d->n_edges++] = (gd_drawn_edge){.from = from, .output = output, .to = to};
    d->boxes[from].outputs[output].readers++;
}

void gd_draw_fold(gd_drawing *d, int into, int box) {
    into = shown_box(d, into);
    if (into < 0 || box < 0 || d->failed) return;
    gd_drawn_box *a = &d->boxes[into], *b = &d->boxes[box];
    for (int i = 0; i < b->n_parts; i++) {
        if (!gd_grow(a->parts, a->n_parts, a->parts_room)) {
            d->failed = true;
            return;
        }
        a->parts[a->n_parts++] = b->parts[i];
        b->parts[i] = (gd_draw_line){.name = NULL};
    }
    b->n_parts = 0;
    b->folded = into;
    gd_draw_end end = a->outputs[0];
    a->outputs[0] = b->outputs[0];
    b->outputs[0] = end;
}

/* --- colours ---------------------------------------------------------------------------------- */

const char *gd_draw_colour(const char *family) {
    static const struct {
        const char *family, *colour;
    } colours[] = {{"data", "#e2e8f0"},      {"conv", "#bfdbfe"},      {"matmul", "#c7d2fe"},
                   {"pool", "#bbf7d0"},      {"norm", "#fef08a"},      {"elementwise", "#fed7aa"},
                   {"softmax", "#fdba74"},   {"loss", "#fecaca"},      {"join", "#ddd6fe"},
                   {"recurrent", "#a5f3fc"}, {"attention", "#99f6e4"}, {"random", "#fbcfe8"},
                   {"index", "#d9f99d"},     {"distance", "#c7d2fe"}};
    for (size_t i = 0; family && i < sizeof colours / sizeof *colours; i++)
        if (strcmp(colours[i].family, family) == 0) return colours[i].colour;
    return "#f1f5f9";
}

/* --- files ------------------------------------------------------------------------------------ */

/* The sizes of boxes along their layers, and where lines of several outputs leave. */
static void set_sizes(gd_layers *l, const gd_drawing *d, bool left_to_right) {
    for (int i = 0; i < l->n_nodes; i++) {
        const gd_drawn_box *b = l->nodes[i].box >= 0 ? &d->boxes[l->nodes[i].box] : NULL;
        if (b) l->nodes[i].size = left_to_right ? b->height : b->width;
    }
    for (int i = 0; i < l->n_links; i++) {
        gd_draw_link *link = &l->links[i];
        if (link->fixed) link->out = d->boxes[l->nodes[link->from].box].outputs[(int)link->out].at;
    }
}

static bool print_svg(gd_drawing *d, gd_layers *l, bool left_to_right, FILE *out) {
    if (!gd_draw_rank(l, d) || d->failed) return false;
    gd_draw_measure(d, left_to_right);
    set_sizes(l, d, left_to_right);
    return gd_draw_order(l) && gd_draw_place(l, GAP) && gd_draw_svg(d, l, left_to_right, out);
}

static gd_status print_picture(gd_drawing *d, bool dot, bool left_to_right, FILE *out) {
    gd_layers l = {.drawing = d};
    const bool good =
        dot ? gd_draw_dot(d, left_to_right, out) : print_svg(d, &l, left_to_right, out);
    gd_layers_free(&l);
    return good ? GD_OK : gd_no_memory(NULL, "for a picture");
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static gd_status write_file(const char *path, const char *data, size_t bytes) {
    gd_file_writer *writer;
    GD_TRY(gd_file_writer_begin(&writer, path));
    const gd_status status = gd_file_writer_write(writer, data, bytes);
    if (status == GD_OK) return gd_file_writer_commit(writer);
    gd_file_writer_cancel(writer);
    return status;
}

gd_status gd_drawing_save(gd_drawing *d, const char *path, bool left_to_right) {
    char *text = NULL;
    size_t bytes = 0;
    const bool dot = ends_with(path, ".dot") || ends_with(path, ".gv");
    if (!dot && !ends_with(path, ".svg"))
        return gd_fail(GD_E_ARGUMENT, "%s: a picture ends in .svg or .dot", path);
    FILE *out = d->failed ? NULL : open_memstream(&text, &bytes);
    if (!out) return gd_no_memory(path, "for a picture");
    gd_status status = print_picture(d, dot, left_to_right, out);
    if (fclose(out) != 0 && status == GD_OK) status = gd_no_memory(path, "for a picture");
    if (status == GD_OK) status = write_file(path, text, bytes);
    free(text);
    return status;
}
