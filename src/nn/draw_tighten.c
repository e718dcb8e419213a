/* draw_tighten.c - brings the nodes of a picture nearer together. See draw.h.
 *
 * Nodes that straight lines join move as one, so that these stay straight: to the median of the places where
 * their other lines would be straight, as far as the neighbours in their layers leave room.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "nn/draw.h"

enum { ROUNDS = 24, ROUNDS_OF_LARGE = 6, LARGE = 60000 };

typedef struct tightener {
    gd_layers *l;
    double gap;
    int *root, *first, *members; /* of each node: its group; the nodes of each group */
    int *places;                 /* the nodes from left to right */
    double *moves;               /* of one group: what its lines ask for */
} tightener;

static int root_of(int *root, int v) {
    while (root[v] != v) v = root[v] = root[root[v]];
    return v;
}

/* How much the lower end of a link is right of its upper end. */
static double slant(const gd_layers *l, const gd_draw_link *k) {
    return l->nodes[k->to].x - l->nodes[k->from].x - k->out;
}

/* Groups of nodes with straight lines between them. */
static void form_groups(tightener *t) {
    const gd_layers *l = t->l;
    for (int v = 0; v < l->n_nodes; v++) t->root[v] = v;
    for (int i = 0; i < l->n_links; i++)
        if (fabs(slant(l, &l->links[i])) < 0.5)
            t->root[root_of(t->root, l->links[i].from)] = root_of(t->root, l->links[i].to);
    memset(t->first, 0, ((size_t)l->n_nodes + 2) * sizeof *t->first);
    for (int v = 0; v < l->n_nodes; v++) t->first[(t->root[v] = root_of(t->root, v)) + 2]++;
    for (int v = 0; v < l->n_nodes; v++) t->first[v + 2] += t->first[v + 1];
    for (int v = 0; v < l->n_nodes; v++) t->members[t->first[t->root[v] + 1]++] = v;
}

/* How far a group can move to a side, a number that is not negative. */
static double room_for(const tightener *t, int group, bool right) {
    const gd_layers *l = t->l;
    double room = INFINITY;
    for (int i = t->first[group]; i < t->first[group + 1]; i++) {
        const gd_draw_node *n = &l->nodes[t->members[i]];
        const int begin = l->first[n->rank], count = l->first[n->rank + 1] - begin;
        const int at = n->at + (right ? 1 : -1);
        if (at < 0 || at >= count || t->root[l->order[begin + at]] == group) continue;
        const gd_draw_node *other = &l->nodes[l->order[begin + at]];
        room = fmin(room, fabs(other->x - n->x) - gd_draw_distance(n, other, t->gap));
    }
    return fmax(0, room);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The move that the lines of a group ask for: between the two middle ones, the smallest. */
static double wanted_move(tightener *t, int group) {
    const gd_layers *l = t->l;
    int n = 0;
    for (int i = t->first[group]; i < t->first[group + 1]; i++) {
        const int v = t->members[i];
        for (int k = l->first_up[v]; k < l->first_up[v + 1]; k++) {
            const gd_draw_link *link = &l->links[l->ups[k]];
            if (t->root[link->from] != group) t->moves[n++] = -slant(l, link);
        }
        for (int k = l->first_down[v]; k < l->first_down[v + 1]; k++) {
            const gd_draw_link *link = &l->links[l->downs[k]];
            if (t->root[link->to] != group) t->moves[n++] = slant(l, link);
        }
    }
    if (n == 0) return 0;
    qsort(t->moves, (size_t)n, sizeof *t->moves, compare);
    const double low = t->moves[(n - 1) / 2], high = t->moves[n / 2];
    return low > 0 ? low : high < 0 ? high : 0;
}

/* Groups from left to right, so that each finds the room that those before it have left; or from right
 * to left. */
static bool move_groups(tightener *t, bool from_left) {
    gd_layers *l = t->l;
    double most = 0;
    for (int i = 0; i < l->n_nodes; i++) {
        const int v = t->places[from_left ? i : l->n_nodes - 1 - i], group = t->root[v];
        if (group != v) continue;
        const double wanted = wanted_move(t, group);
        if (wanted == 0) continue;
        const double room = room_for(t, group, wanted > 0);
        const double move = wanted > 0 ? fmin(wanted, room) : fmax(wanted, -room);
        for (int k = t->first[group]; k < t->first[group + 1]; k++)
            l->nodes[t->members[k]].x += move;
        most = fmax(most, fabs(move));
    }
    return most > 1;
}

/* The nodes of all layers by x, which the moves keep nearly in order. */
typedef struct place {
    double x;
    int node;
} place;
static int compare_places(const void *a, const void *b) {
    const place *p = a, *q = b;
    if (p->x != q->x) return p->x < q->x ? -1 : 1;
    return (p->node > q->node) - (p->node < q->node);
}
static bool sort_places(tightener *t) {
    const gd_layers *l = t->l;
    place *sorted = gd_malloc(((size_t)l->n_nodes + 1) * sizeof *sorted);
    if (!sorted) return false;
    for (int v = 0; v < l->n_nodes; v++) sorted[v] = (place){l->nodes[v].x, v};
    if (l->n_nodes > 0) qsort(sorted, (size_t)l->n_nodes, sizeof *sorted, compare_places);
    for (int v = 0; v < l->n_nodes; v++) t->places[v] = sorted[v].node;
    gd_free(sorted);
    return true;
}

bool gd_draw_tighten(gd_layers *l, double gap) {
    const size_t nodes = (size_t)l->n_nodes + 3;
    tightener t = {.l = l, .gap = gap};
    t.root = gd_malloc(nodes * sizeof *t.root);
    t.first = gd_malloc(nodes * sizeof *t.first);
    t.members = gd_malloc(nodes * sizeof *t.members);
    t.places = gd_malloc(nodes * sizeof *t.places);
    t.moves = gd_malloc((2 * (size_t)l->n_links + 1) * sizeof *t.moves);
    bool good = t.root && t.first && t.members && t.places && t.moves;
    const int rounds = l->n_links > LARGE ? ROUNDS_OF_LARGE : ROUNDS;
    good = good && sort_places(&t);
    bool any = good;
    for (int r = 0; r < rounds && any; r++) {
        form_groups(&t);
        any = move_groups(&t, r % 2 == 0);
        any |= move_groups(&t, r % 2 != 0);
    }
    gd_free(t.root);
    gd_free(t.first);
    gd_free(t.members);
    gd_free(t.places);
    gd_free(t.moves);
    return good;
}
