/* draw_place.c - places nodes along their layers, so that lines are straight where they can be. See
 * draw.h. The method is that of Brandes and Köpf, "Fast and Simple Horizontal Coordinate Assignment".
 *
 * Nodes of neighbouring layers that a line should join straight form a block, which has one x. Each
 * of four runs forms blocks from the top or from the bottom, and from the left or from the right,
 * and packs them; a node gets the mean of the two middle results. A node has an offset in its block,
 * because lines may leave a box beside its middle.
 */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "nn/draw.h"

enum { RUNS = 4, INSET = 12 /* pixels from a line to the corner of its box */ };

typedef struct placer {
    gd_layers *l;
    double gap;
    bool *crossed;      /* of each link: it crosses one between bends, which must be straight */
    int *root, *next;   /* of each node: its block, and the next node of that; a cycle */
    double *offset;     /* of each node, in its block */
    int *waits, *queue; /* of each block, for a topological order */
    double *block;      /* x of each block */
    double *x[RUNS];    /* of each node */
} placer;

static bool is_bend(const gd_layers *l, int node) { return l->nodes[node].box < 0; }

/* --- crossings -------------------------------------------------------------------------------- */

/* The place above of the link between bends that enters a node; -1: none does. */
static int inner_place(const gd_layers *l, int node) {
    if (!is_bend(l, node)) return -1;
    const int from = l->links[l->ups[l->first_up[node]]].from;
    return is_bend(l, from) ? l->nodes[from].at : -1;
}

/* Marks the links of a layer that cross a link between bends. */
static void mark_crossed(placer *p, int rank) {
    const gd_layers *l = p->l;
    const int begin = l->first[rank], end = l->first[rank + 1];
    int left = 0, done = begin;
    for (int i = begin; i < end; i++) {
        const int inner = inner_place(l, l->order[i]);
        if (inner < 0 && i + 1 < end) continue;
        const int right = inner >= 0 ? inner : l->first[rank] - l->first[rank - 1] - 1;
        for (; done <= i; done++) {
            const int node = l->order[done];
            for (int k = l->first_up[node]; k < l->first_up[node + 1]; k++) {
                const int at = l->nodes[l->links[l->ups[k]].from].at;
                if (at < left || at > right) p->crossed[l->ups[k]] = true;
            }
        }
        if (inner >= 0) left = inner;
    }
}

/* Sorts the links of each node by the places of its neighbours. */
static bool sort_links(gd_layers *l) {
    int *next = gd_malloc(((size_t)l->n_nodes + 1) * sizeof *next);
    if (!next) return false;
    for (int pass = 0; pass < 2; pass++) {
        const int *first = pass ? l->first_down : l->first_up;
        const int *from = pass ? l->first_up : l->first_down, *links = pass ? l->ups : l->downs;
        int *sorted = pass ? l->downs : l->ups;
        memcpy(next, first, (size_t)l->n_nodes * sizeof *next);
        for (int i = 0; i < l->n_nodes; i++) /* layer by layer, in their order */
            for (int k = from[l->order[i]]; k < from[l->order[i] + 1]; k++) {
                const gd_draw_link *link = &l->links[links[k]];
                sorted[next[pass ? link->from : link->to]++] = links[k];
            }
    }
    gd_free(next);
    return true;
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* Joins a node to its middle neighbour in the layer before, unless that would cross a block. Places
 * are counted from the side where the run begins; `bound` is that of the last neighbour joined. */
static void join(placer *p, int v, bool from_top, bool from_left, int *bound) {
    const gd_layers *l = p->l;
    const int *first = from_top ? l->first_up : l->first_down;
    const int *links = (from_top ? l->ups : l->downs) + first[v];
    const int n = first[v + 1] - first[v];
    if (n == 0) return;
    const int middles[2] = {from_left ? (n - 1) / 2 : n / 2, from_left ? n / 2 : (n - 1) / 2};
    for (int i = 0; i < 2 && p->root[v] == v; i++) {
        const gd_draw_link *link = &l->links[links[middles[i]]];
        const int u = from_top ? link->from : link->to, rank = l->nodes[u].rank;
        const int place =
            from_left ? l->nodes[u].at : l->first[rank + 1] - l->first[rank] - 1 - l->nodes[u].at;
        if (p->crossed[links[middles[i]]] || place <= *bound) continue;
        p->next[v] = p->root[u];
        p->next[u] = v;
        p->root[v] = p->root[u];
        p->offset[v] = p->offset[u] + (from_top ? link->out : -link->out);
        *bound = place;
    }
}

static void form_blocks(placer *p, bool from_top, bool from_left) {
    const gd_layers *l = p->l;
    for (int i = 0; i < l->n_nodes; i++) {
        p->root[i] = p->next[i] = i;
        p->offset[i] = 0;
    }
    for (int i = 1; i < l->n_ranks; i++) {
        const int rank = from_top ? i : l->n_ranks - 1 - i;
        const int n = l->first[rank + 1] - l->first[rank];
        int bound = -1;
        for (int k = 0; k < n; k++)
            join(p, l->order[l->first[rank] + (from_left ? k : n - 1 - k)], from_top, from_left,
                 &bound);
    }
}

/* The node after v in its layer, seen from the side where the run begins; -1: v is the last. */
static int neighbour(const gd_layers *l, int v, bool from_left) {
    const int rank = l->nodes[v].rank, at = l->nodes[v].at + (from_left ? 1 : -1);
    return at >= 0 && at < l->first[rank + 1] - l->first[rank] ? l->order[l->first[rank] + at] : -1;
}

/* The least distance between the blocks of two neighbours. */
static double distance(const placer *p, int v, int after, bool from_left) {
    const gd_draw_node *a = &p->l->nodes[v], *b = &p->l->nodes[after];
    const double apart = gd_draw_distance(a, b, p->gap), shift = p->offset[v] - p->offset[after];
    return apart + (from_left ? shift : -shift);
}

/* Visits the blocks in an order in which neighbours come later; x is measured from the side where the
 * run begins. First each block is placed as near to that side as it can be. */
static int pack_near(placer *p, bool from_left) {
    const gd_layers *l = p->l;
    int n = 0, done = 0;
    for (int v = 0; v < l->n_nodes; v++) p->waits[v] = 0, p->block[v] = 0;
    for (int v = 0; v < l->n_nodes; v++) {
        const int after = neighbour(l, v, from_left);
        if (after >= 0) p->waits[p->root[after]]++;
    }
    for (int v = 0; v < l->n_nodes; v++)
        if (p->root[v] == v && p->waits[v] == 0) p->queue[n++] = v;
    while (done < n) {
        const int block = p->queue[done++];
        int v = block;
        do {
            const int after = neighbour(l, v, from_left);
            if (after >= 0) {
                const int b = p->root[after];
                p->block[b] = fmax(p->block[b], p->block[block] + distance(p, v, after, from_left));
                if (--p->waits[b] == 0) p->queue[n++] = b;
            }
            v = p->next[v];
        } while (v != block);
    }
    return n;
}

/* Then each moves towards those after it as far as it can. */
static void pack(placer *p, bool from_left) {
    const int n = pack_near(p, from_left);
    for (int i = n; i-- > 0;) {
        const int block = p->queue[i];
        double room = INFINITY;
        int v = block;
        do {
            const int after = neighbour(p->l, v, from_left);
            if (after >= 0)
                room = fmin(room, p->block[p->root[after]] - distance(p, v, after, from_left));
            v = p->next[v];
        } while (v != block);
        if (isfinite(room) && room > p->block[block]) p->block[block] = room;
    }
}

/* --- the four runs ---------------------------------------------------------------------------- */

static void extent(const gd_layers *l, const double *x, double *low, double *high) {
    *low = INFINITY, *high = -INFINITY;
    for (int v = 0; v < l->n_nodes; v++) {
        *low = fmin(*low, x[v] - l->nodes[v].size / 2);
        *high = fmax(*high, x[v] + l->nodes[v].size / 2);
    }
}

/* The results share a side with the narrowest one. */
static void bring_together(placer *p) {
    double low[RUNS], high[RUNS];
    int narrowest = 0;
    for (int r = 0; r < RUNS; r++) {
        extent(p->l, p->x[r], &low[r], &high[r]);
        if (high[r] - low[r] < high[narrowest] - low[narrowest]) narrowest = r;
    }
    for (int r = 0; r < RUNS; r++) {
        const double move = r % 2 == 0 ? low[narrowest] - low[r] : high[narrowest] - high[r];
        for (int v = 0; v < p->l->n_nodes; v++) p->x[r][v] += move;
    }
}

static double middle_of_four(double a, double b, double c, double d) {
    const double low = fmin(fmin(a, b), fmin(c, d)), high = fmax(fmax(a, b), fmax(c, d));
    return (a + b + c + d - low - high) / 2;
}

static void run_all(placer *p) {
    gd_layers *l = p->l;
    for (int r = 0; r < RUNS; r++) {
        const bool from_left = r % 2 == 0;
        form_blocks(p, r < 2, from_left);
        pack(p, from_left);
        for (int v = 0; v < l->n_nodes; v++)
            p->x[r][v] = (from_left ? 1 : -1) * p->block[p->root[v]] + p->offset[v];
    }
    bring_together(p);
    double *x = p->x[0];
    for (int v = 0; v < l->n_nodes; v++)
        x[v] = middle_of_four(x[v], p->x[1][v], p->x[2][v], p->x[3][v]);
    for (int v = 0; v < l->n_nodes; v++) l->nodes[v].x = x[v];
}

/* The picture begins at 0. */
static void move_to_zero(gd_layers *l) {
    double low = INFINITY;
    for (int v = 0; v < l->n_nodes; v++) low = fmin(low, l->nodes[v].x - l->nodes[v].size / 2);
    for (int v = 0; v < l->n_nodes; v++) l->nodes[v].x -= low;
}

/* --- where lines leave and enter -------------------------------------------------------------- */

static double clamped(double value, double most) { return fmax(-most, fmin(most, value)); }

/* Half of the side of a box along which lines may begin and end. */
static double half_side(const gd_draw_node *n) { return fmax(0, n->size / 2 - INSET); }

/* Lines of a single output begin above their ends if the box is as wide as that, else at one point. */
static void place_begins(gd_layers *l, int v) {
    const gd_draw_node *n = &l->nodes[v];
    const double most = half_side(n);
    bool all = true;
    for (int k = l->first_down[v]; k < l->first_down[v + 1]; k++)
        all &= fabs(l->nodes[l->links[l->downs[k]].to].x - n->x) <= most;
    for (int k = l->first_down[v]; k < l->first_down[v + 1]; k++) {
        gd_draw_link *link = &l->links[l->downs[k]];
        if (!link->fixed) link->out = all ? l->nodes[link->to].x - n->x : 0;
    }
}

/* Lines end below their beginnings, or at the nearest place with a distance to the next one. */
static void place_ends(gd_layers *l, int v) {
    const gd_draw_node *n = &l->nodes[v];
    const int begin = l->first_up[v], end = l->first_up[v + 1];
    const double most = half_side(n),
                 step = end - begin > 1 ? fmin(14, 2 * most / (end - begin - 1)) : 0;
    for (int k = begin; k < end; k++) {
        gd_draw_link *link = &l->links[l->ups[k]];
        const double x = l->nodes[link->from].x + link->out - n->x;
        if (end - begin == 1 && fabs(x) > most) { /* from far aside: nearer to the middle */
            link->in = clamped(x, most / 2);
            return;
        }
        const double least = -most + step * (k - begin);
        link->in = fmax(clamped(x, most), least);
        if (k > begin) link->in = fmax(link->in, l->links[l->ups[k - 1]].in + step);
    }
    for (int k = end; k-- > begin;) { /* those that were pushed beyond the right corner */
        gd_draw_link *link = &l->links[l->ups[k]];
        link->in = fmin(link->in, most - step * (end - 1 - k));
    }
}

static bool open_placer(placer *p) {
    const size_t nodes = (size_t)p->l->n_nodes + 1;
    p->crossed = gd_calloc((size_t)p->l->n_links + 1, sizeof *p->crossed);
    p->root = gd_malloc(nodes * sizeof *p->root);
    p->next = gd_malloc(nodes * sizeof *p->next);
    p->offset = gd_malloc(nodes * sizeof *p->offset);
    p->waits = gd_malloc(nodes * sizeof *p->waits);
    p->queue = gd_malloc(nodes * sizeof *p->queue);
    p->block = gd_malloc(nodes * sizeof *p->block);
    bool good = p->crossed && p->root && p->next && p->offset && p->waits && p->queue && p->block;
    for (int r = 0; r < RUNS; r++) good &= (p->x[r] = gd_malloc(nodes * sizeof *p->x[r])) != NULL;
    return good;
}

static void close_placer(placer *p) {
    gd_free(p->crossed);
    gd_free(p->root);
    gd_free(p->next);
    gd_free(p->offset);
    gd_free(p->waits);
    gd_free(p->queue);
    gd_free(p->block);
    for (int r = 0; r < RUNS; r++) gd_free(p->x[r]);
}

bool gd_draw_place(gd_layers *l, double gap) {
    placer p = {.l = l, .gap = gap};
    bool good = open_placer(&p) && sort_links(l);
    if (good && l->n_nodes > 0) {
        for (int r = 1; r < l->n_ranks; r++) mark_crossed(&p, r);
        run_all(&p);
        good = gd_draw_tighten(l, gap);
        move_to_zero(l);
        for (int v = 0; v < l->n_nodes; v++)
            if (!is_bend(l, v)) place_begins(l, v);
        for (int v = 0; v < l->n_nodes; v++)
            if (!is_bend(l, v)) place_ends(l, v);
    }
    close_placer(&p);
    return good;
}
