/* draw.h - pictures of nets: boxes with lines of text, and the lines between them.
 *
 *     gd_drawing *d = gd_drawing_new("lenet");
 *     const int image = gd_draw_box(d), conv = gd_draw_box(d);
 *     gd_draw_part(d, image, "image", "", "", "data");
 *     gd_draw_part(d, conv, "conv1", "conv2d", "kernel=5", "conv");
 *     gd_draw_connect(d, image, gd_draw_output(d, image, "", "(1, 1, 28, 28)"), conv);
 *     gd_status status = gd_drawing_save(d, "lenet.svg", false);
 *     gd_drawing_free(d);
 *
 * A box has parts, one below the other (a convolution, and the activation that follows it), and
 * outputs, from which lines go to other boxes. Lines go from earlier boxes to later ones.
 *
 * The picture has layers of boxes (draw_rank.c); the order in a layer has few crossings
 * (draw_order.c), and lines are straight where they can be (draw_place.c). Here x runs along a
 * layer and y from layer to layer; a picture from left to right exchanges them at the end.
 */
#ifndef GRADUS_NN_DRAW_H
#define GRADUS_NN_DRAW_H

#include <stdio.h>

#include "core/error.h"
#include "gradus/tensor.h"

/* --- the graph (draw.c) ----------------------------------------------------------------------- */

typedef struct gd_draw_line {
    char *name, *type, *detail; /* owned; "": not shown */
    const char *family; /* of ops (src/ops), which gives the colour; "data"; NULL: another */
} gd_draw_line;

/* An output: its name ("": it has none of its own) and shape, and where lines leave the box. */
typedef struct gd_draw_end {
    char *name, *shape;
    double at; /* from the middle of the box */
    int readers;
} gd_draw_end;

typedef struct gd_drawn_box {
    gd_draw_line *parts;
    gd_draw_end *outputs;
    int n_parts, parts_room, n_outputs, outputs_room;
    char *note; /* what it reads without a line; NULL: nothing */
    int note_count;
    int folded;           /* the box that has its parts and outputs now; -1: it is drawn */
    double width, height; /* of the text, on paper */
} gd_drawn_box;

typedef struct gd_drawn_edge {
    int from, output, to;
    bool cut; /* too long for a line: the note of the box `to` names it */
} gd_drawn_edge;

typedef struct gd_drawing {
    char *title;
    gd_drawn_box *boxes;
    gd_drawn_edge *edges;
    int n_boxes, boxes_room, n_edges, edges_room;
    bool failed; /* no memory */
} gd_drawing;

gd_drawing *gd_drawing_new(const char *title); /* NULL: no memory */
void gd_drawing_free(gd_drawing *drawing);     /* NULL is fine */

/* These note in the drawing that there was no memory; then they return -1. */
int gd_draw_box(gd_drawing *drawing);
void gd_draw_part(gd_drawing *drawing, int box, const char *name, const char *type,
                  const char *detail, const char *family);
int gd_draw_output(gd_drawing *drawing, int box, const char *name, const char *shape);
/* A second line from an output to the same box is left out. */
void gd_draw_connect(gd_drawing *drawing, int from, int output, int to);

/* Moves the parts of a box to the end of those of the box `into`, whose only output becomes the only
 * output of `box`. There is no line between the two, and lines from `box` will come from `into`. */
void gd_draw_fold(gd_drawing *drawing, int into, int box);

/* Writes the picture as SVG, or for a path that ends in .dot as text for Graphviz. An existing file
 * is replaced when the new one is complete. */
gd_status gd_drawing_save(gd_drawing *drawing, const char *path, bool left_to_right);

/* The colour of a family, "#rrggbb". */
const char *gd_draw_colour(const char *family);

/* --- layers ----------------------------------------------------------------------------------- */

/* A box, or a bend of a line that passes a layer. */
typedef struct gd_draw_node {
    int box;      /* -1: a bend */
    int rank, at; /* its layer, and its place in it */
    double size, x;
} gd_draw_node;

/* A piece of a line, from a layer to the next one. Pieces of several lines from the same output are
 * one as long as they run together. */
typedef struct gd_draw_link {
    int from, to;
    double out,
        in;     /* where it leaves and enters, from the middles; first the number of an output */
    bool fixed; /* `out` is that of one of several outputs */
} gd_draw_link;

typedef struct gd_layers {
    const gd_drawing *drawing;
    gd_draw_node *nodes;
    gd_draw_link *links;
    int n_nodes, n_links, nodes_room, links_room, n_ranks;
    int *node_of;               /* of each box; -1: it is folded */
    int *first;                 /* of each layer: its first entry in `order`; one more at the end */
    int *order;                 /* the nodes, layer by layer */
    int *ups, *downs;           /* of each node: the links that enter it, that leave it; */
    int *first_up, *first_down; /* its first entries there; one more at the end */
} gd_layers;

/* Finds the layers and adds bends. False: no memory. Edges that are too long are cut. */
bool gd_draw_rank(gd_layers *layers, gd_drawing *drawing);
/* Sets first, order, and `at` of the nodes. */
bool gd_draw_order(gd_layers *layers);
/* Sets x of the nodes, with `gap` between them, and out and in of the links. */
bool gd_draw_place(gd_layers *layers, double gap);
/* Brings the nodes nearer together; a part of gd_draw_place. */
bool gd_draw_tighten(gd_layers *layers, double gap);
/* The least distance of the middles of two neighbours. */
static inline double gd_draw_distance(const gd_draw_node *a, const gd_draw_node *b, double gap) {
    return (a->size + b->size) / 2 + (a->box < 0 && b->box < 0 ? gap / 2 : gap);
}
void gd_layers_free(gd_layers *layers);

/* --- output ----------------------------------------------------------------------------------- */

/* Measures the boxes: width, height, and where lines leave them. */
void gd_draw_measure(gd_drawing *drawing, bool left_to_right);
bool gd_draw_svg(const gd_drawing *drawing, const gd_layers *layers, bool left_to_right, FILE *out);
bool gd_draw_dot(const gd_drawing *drawing, bool left_to_right, FILE *out);

#endif
