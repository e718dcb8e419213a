/* draw_rank.c - the layers of a picture: the longest path to each box, and bends of the lines that pass
 * layers. See draw.h. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "nn/draw.h"

enum {
    MAX_BENDS = 200000, /* of a picture; beyond that long lines are cut */
    MAX_NOTES = 4,      /* names of cut lines that a box shows */
    NOTE = 400,
};

/* What is known of each box while the layers are found. */
typedef struct box_facts {
    int rank, least_below; /* the least rank of its readers */
    int n_in, last_reader;
    bool free; /* it depends on nothing that other boxes read, too: it may move down */
    bool several_readers;
} box_facts;

/* Edges go from earlier boxes to later ones, but come in any order after folding: by their targets. */
static int *sort_edges(const gd_drawing *d, bool by_target) {
    int *first = gd_calloc((size_t)d->n_boxes + 2, sizeof *first);
    int *sorted = gd_malloc(((size_t)d->n_edges + 1) * sizeof *sorted);
    if (first && sorted) {
        for (int i = 0; i < d->n_edges; i++)
            first[(by_target ? d->edges[i].to : d->edges[i].from) + 1]++;
        for (int i = 0; i < d->n_boxes; i++) first[i + 1] += first[i];
        for (int i = 0; i < d->n_edges; i++)
            sorted[first[by_target ? d->edges[i].to : d->edges[i].from]++] = i;
    } else {
        gd_free(sorted);
        sorted = NULL;
    }
    gd_free(first);
    return sorted;
}

/* A box whose inputs are read by it alone moves down to its first reader: labels stand beside the
 * loss, not at the top. */
static bool find_ranks(const gd_drawing *d, box_facts *f) {
    int *up = sort_edges(d, true), *down = sort_edges(d, false);
    for (int i = 0; i < d->n_boxes; i++)
        f[i] = (box_facts){.least_below = INT_MAX, .last_reader = -1, .free = true};
    for (int i = 0; up && i < d->n_edges; i++) {
        const gd_drawn_edge *e = &d->edges[i];
        f[e->from].several_readers |=
            f[e->from].last_reader >= 0 && f[e->from].last_reader != e->to;
        f[e->from].last_reader = e->to;
    }
    for (int i = 0; up && i < d->n_edges; i++) {
        const gd_drawn_edge *e = &d->edges[up[i]];
        const box_facts *from = &f[e->from];
        if (f[e->to].rank <= from->rank) f[e->to].rank = from->rank + 1;
        f[e->to].free &= from->free && !from->several_readers;
    }
    for (int i = d->n_edges; down && i-- > 0;) {
        const gd_drawn_edge *e = &d->edges[down[i]];
        box_facts *from = &f[e->from];
        if (f[e->to].rank < from->least_below) from->least_below = f[e->to].rank;
        const bool last = i == 0 || d->edges[down[i - 1]].from != e->from;
        if (last && from->free) from->rank = from->least_below - 1;
    }
    gd_free(up);
    gd_free(down);
    return up && down;
}

/* --- cutting ---------------------------------------------------------------------------------- */

/* The bends of all lines that pass at most `most` layers. Lines from one output share theirs. */
static int64_t count_bends(const gd_drawing *d, const int *down, const box_facts *f, int most) {
    int64_t count = 0;
    int longest = 0;
    for (int i = 0; i < d->n_edges; i++) {
        const gd_drawn_edge *e = &d->edges[down[i]];
        const int span = f[e->to].rank - f[e->from].rank - 1;
        const bool same = i > 0 && d->edges[down[i - 1]].from == e->from;
        if (!same) count += longest, longest = 0; /* of any output of the box: at least one's */
        if (span <= most && span > longest) longest = span;
    }
    return count + longest;
}

/* Writes "reads a, b and 7 more" into the box. */
static void note_cut(gd_drawing *d, const gd_drawn_edge *e) {
    gd_drawn_box *to = &d->boxes[e->to];
    const gd_drawn_box *from = &d->boxes[e->from];
    const char *name = from->outputs[e->output].name;
    if (!*name && from->n_parts > 0) name = from->parts[from->n_parts - 1].name;
    if (!to->note && !(to->note = gd_calloc(1, NOTE))) {
        d->failed = true;
        return;
    }
    const size_t used = strlen(to->note);
    if (to->note_count < MAX_NOTES && used + 90 < NOTE)
        snprintf(to->note + used, NOTE - used, "%s%.60s", used ? ", " : "reads ", name);
    to->note_count++;
}

static void end_notes(gd_drawing *d) {
    for (int i = 0; i < d->n_boxes; i++) {
        char *note = d->boxes[i].note;
        const int more = d->boxes[i].note_count - MAX_NOTES;
        if (note && more > 0)
            snprintf(note + strlen(note), NOTE - strlen(note), " and %d more", more);
    }
}

static bool cut_long_lines(gd_drawing *d, const box_facts *f) {
    int *down = sort_edges(d, false), most = d->n_boxes;
    if (!down) return false;
    while (most > 0 && count_bends(d, down, f, most) > MAX_BENDS) most /= 2;
    for (int i = 0; i < d->n_edges && most < d->n_boxes; i++) {
        gd_drawn_edge *e = &d->edges[i];
        e->cut = f[e->to].rank - f[e->from].rank - 1 > most;
        if (e->cut) note_cut(d, e);
    }
    end_notes(d);
    gd_free(down);
    return true;
}

/* --- nodes and links -------------------------------------------------------------------------- */

static int add_node(gd_layers *l, int box, int rank) {
    if (!gd_grow(l->nodes, l->n_nodes, l->nodes_room)) return -1;
    l->nodes[l->n_nodes] = (gd_draw_node){.box = box, .rank = rank};
    if (rank >= l->n_ranks) l->n_ranks = rank + 1;
    return l->n_nodes++;
}

static bool add_link(gd_layers *l, int from, int to, bool fixed, int output) {
    if (from < 0 || to < 0 || !gd_grow(l->links, l->n_links, l->links_room)) return false;
    l->links[l->n_links++] = (gd_draw_link){.from = from, .to = to, .out = output, .fixed = fixed};
    return true;
}

/* The lines of one output: edges[0 .. n), of which some may be cut. A trunk of bends runs down to the
 * layer before that of the last reader. */
static bool add_lines(gd_layers *l, const gd_drawing *d, const int *edges, int n) {
    const gd_drawn_edge *first = &d->edges[edges[0]];
    const int top = l->node_of[first->from], rank = l->nodes[top].rank;
    const bool fixed = d->boxes[first->from].n_outputs > 1;
    int deepest = rank, trunk = l->n_nodes; /* of the bends, one for each layer */
    bool good = true;
    for (int i = 0; i < n; i++) {
        const gd_drawn_edge *e = &d->edges[edges[i]];
        const int to = l->nodes[l->node_of[e->to]].rank;
        if (!e->cut && to > deepest) deepest = to;
    }
    for (int r = rank + 1; r < deepest && good; r++) {
        const int bend = add_node(l, -1, r);
        good = add_link(l, r == rank + 1 ? top : bend - 1, bend, fixed && r == rank + 1,
                        r == rank + 1 ? first->output : 0);
    }
    for (int i = 0; i < n && good; i++) {
        const gd_drawn_edge *e = &d->edges[edges[i]];
        const int to = l->node_of[e->to], above = l->nodes[to].rank - 1 - rank;
        if (!e->cut)
            good = add_link(l, above == 0 ? top : trunk + above - 1, to, fixed && above == 0,
                            above == 0 ? e->output : 0);
    }
    return good;
}

static bool add_all_lines(gd_layers *l, const gd_drawing *d) {
    int *down = sort_edges(d, false), *some = gd_malloc(((size_t)d->n_edges + 1) * sizeof *some);
    bool good = down && some;
    for (int i = 0, end; i < d->n_edges && good; i = end) {
        const int from = d->edges[down[i]].from;
        for (end = i; end < d->n_edges && d->edges[down[end]].from == from;) end++;
        const int outputs = d->boxes[from].n_outputs;
        for (int o = 0; o < outputs && good; o++) {
            int n = 0;
            for (int k = i; k < end; k++)
                if (d->edges[down[k]].output == o) some[n++] = down[k];
            if (n > 0) good = add_lines(l, d, some, n);
        }
    }
    gd_free(down);
    gd_free(some);
    return good;
}

/* Sorts the links by one of their ends. */
static bool index_links(const gd_layers *l, bool up, int **list, int **firsts) {
    int *first = gd_calloc((size_t)l->n_nodes + 2, sizeof *first);
    int *links = gd_malloc(((size_t)l->n_links + 1) * sizeof *links);
    *list = links;
    *firsts = first;
    if (!first || !links) return false;
    for (int i = 0; i < l->n_links; i++) first[(up ? l->links[i].to : l->links[i].from) + 2]++;
    for (int i = 0; i < l->n_nodes; i++) first[i + 2] += first[i + 1];
    for (int i = 0; i < l->n_links; i++)
        links[first[(up ? l->links[i].to : l->links[i].from) + 1]++] = i;
    return true;
}

bool gd_draw_rank(gd_layers *l, gd_drawing *d) {
    box_facts *f = gd_calloc((size_t)d->n_boxes + 1, sizeof *f);
    l->drawing = d;
    l->node_of = gd_malloc(((size_t)d->n_boxes + 1) * sizeof *l->node_of);
    bool good = f && l->node_of && find_ranks(d, f) && cut_long_lines(d, f);
    for (int i = 0; i < d->n_boxes && good; i++) {
        l->node_of[i] = d->boxes[i].folded >= 0 ? -1 : add_node(l, i, f[i].rank);
        good = d->boxes[i].folded >= 0 || l->node_of[i] >= 0;
    }
    good = good && add_all_lines(l, d) && index_links(l, true, &l->ups, &l->first_up) &&
           index_links(l, false, &l->downs, &l->first_down);
    gd_free(f);
    return good;
}

void gd_layers_free(gd_layers *l) {
    gd_free(l->nodes);
    gd_free(l->links);
    gd_free(l->node_of);
    gd_free(l->first);
    gd_free(l->order);
    gd_free(l->ups);
    gd_free(l->downs);
    gd_free(l->first_up);
    gd_free(l->first_down);
}
