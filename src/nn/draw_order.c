/* draw_order.c - the order of the nodes in each layer of a picture, with few crossings. See draw.h.
 *
 * Sweeps down and up put each node at the mean place of its neighbours in the layer before; then
 * neighbours in a layer are exchanged where that saves crossings. The best order so far is kept.
 */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "nn/draw.h"

enum {
    SWEEPS = 24,
    SWEEPS_OF_LARGE = 6, /* with more links than this: */
    LARGE = 60000,
    MAX_COMPARED = 40000 /* pairs of links that are compared to exchange two nodes */
};

/* A place to sort by; equal ones keep their order. */
typedef struct sort_key {
    double at;
    int before, item;
} sort_key;

static int compare_keys(const void *a, const void *b) {
    const sort_key *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->before > y->before) - (x->before < y->before);
}

typedef struct sorter {
    gd_layers *l;
    sort_key *keys;
    int *tree, *best;
} sorter;

/* Where a link leaves its node: outputs side by side differ by less than one place. */
static double leaves_at(const gd_layers *l, const gd_draw_link *k) {
    const gd_draw_node *from = &l->nodes[k->from];
    return from->at + (from->size > 0 ? 0.9 * k->out / from->size : 0);
}

static void set_places(gd_layers *l, int rank) {
    for (int i = l->first[rank]; i < l->first[rank + 1]; i++)
        l->nodes[l->order[i]].at = i - l->first[rank];
}

/* --- crossings -------------------------------------------------------------------------------- */

/* Crossings between a layer and the next one: inversions, counted with a tree of partial sums. */
static int64_t crossings_below(sorter *s, int rank) {
    gd_layers *l = s->l;
    int n = 0;
    const int below = l->first[rank + 2] - l->first[rank + 1];
    for (int i = l->first[rank]; i < l->first[rank + 1]; i++) {
        const int node = l->order[i];
        for (int k = l->first_down[node]; k < l->first_down[node + 1]; k++) {
            const gd_draw_link *link = &l->links[l->downs[k]];
            const int to = l->nodes[link->to].at;
            s->keys[n++] = (sort_key){leaves_at(l, link), to, to};
        }
    }
    qsort(s->keys, (size_t)n, sizeof *s->keys, compare_keys);
    memset(s->tree, 0, ((size_t)below + 1) * sizeof *s->tree);
    int64_t count = 0;
    for (int i = 0; i < n; i++) {
        int smaller = 0; /* links so far that end here or before */
        for (int k = s->keys[i].item + 1; k > 0; k -= k & -k) smaller += s->tree[k];
        for (int k = s->keys[i].item + 1; k <= below; k += k & -k) s->tree[k]++;
        count += i - smaller;
    }
    return count;
}

static int64_t count_crossings(sorter *s) {
    int64_t count = 0;
    for (int r = 0; r + 1 < s->l->n_ranks; r++) count += crossings_below(s, r);
    return count;
}

/* --- sweeps ----------------------------------------------------------------------------------- */

static double mean_place(const gd_layers *l, int node, bool down) {
    const int *first = down ? l->first_up : l->first_down;
    const int *links = down ? l->ups : l->downs;
    const int n = first[node + 1] - first[node];
    double sum = 0;
    if (n == 0) return l->nodes[node].at;
    for (int k = first[node]; k < first[node + 1]; k++) {
        const gd_draw_link *link = &l->links[links[k]];
        sum += down ? leaves_at(l, link) : l->nodes[link->to].at;
    }
    return sum / n;
}

static void sort_layer(sorter *s, int rank, bool down, bool reversed) {
    gd_layers *l = s->l;
    int *order = &l->order[l->first[rank]];
    const int n = l->first[rank + 1] - l->first[rank];
    if (n < 2) return;
    for (int i = 0; i < n; i++)
        s->keys[i] = (sort_key){mean_place(l, order[i], down), reversed ? -i : i, order[i]};
    qsort(s->keys, (size_t)n, sizeof *s->keys, compare_keys);
    for (int i = 0; i < n; i++) order[i] = s->keys[i].item;
    set_places(l, rank);
}

static void sweep(sorter *s, bool down, bool reversed) {
    const int n = s->l->n_ranks;
    for (int i = 0; i < n; i++) sort_layer(s, down ? i : n - 1 - i, down, reversed);
}

/* --- exchanges -------------------------------------------------------------------------------- */

/* Crossings of the links of two neighbours, a left of b, minus those with b left of a. */
static int64_t saved_by_exchange(const gd_layers *l, int a, int b, bool up) {
    const int *first = up ? l->first_up : l->first_down;
    const int *links = up ? l->ups : l->downs;
    int64_t saved = 0;
    for (int i = first[a]; i < first[a + 1]; i++)
        for (int k = first[b]; k < first[b + 1]; k++) {
            const gd_draw_link *x = &l->links[links[i]], *y = &l->links[links[k]];
            const double p = up ? leaves_at(l, x) : l->nodes[x->to].at,
                         q = up ? leaves_at(l, y) : l->nodes[y->to].at;
            saved += (p > q) - (p < q);
        }
    return saved;
}

static int64_t pairs_of(const gd_layers *l, int a, int b) {
    const int64_t up = l->first_up[a + 1] - l->first_up[a],
                  down = l->first_down[a + 1] - l->first_down[a];
    return up * (l->first_up[b + 1] - l->first_up[b]) +
           down * (l->first_down[b + 1] - l->first_down[b]);
}

static bool exchange_layer(gd_layers *l, int rank) {
    bool any = false;
    for (int i = l->first[rank]; i + 1 < l->first[rank + 1]; i++) {
        const int a = l->order[i], b = l->order[i + 1];
        const int64_t pairs = pairs_of(l, a, b);
        if (pairs == 0 || pairs > MAX_COMPARED) continue;
        if (saved_by_exchange(l, a, b, true) + saved_by_exchange(l, a, b, false) <= 0) continue;
        l->order[i] = b, l->order[i + 1] = a;
        l->nodes[b].at--, l->nodes[a].at++;
        any = true;
    }
    return any;
}

static void exchange(gd_layers *l) {
    bool any = true;
    for (int round = 0; round < 8 && any; round++) {
        any = false;
        for (int r = 0; r < l->n_ranks; r++) any |= exchange_layer(l, r);
    }
}

/* --- all -------------------------------------------------------------------------------------- */

/* The nodes by their layers, at first in the order in which they were made. */
static bool fill_layers(gd_layers *l) {
    l->first = gd_calloc((size_t)l->n_ranks + 3, sizeof *l->first);
    l->order = gd_malloc(((size_t)l->n_nodes + 1) * sizeof *l->order);
    if (!l->first || !l->order) return false;
    for (int i = 0; i < l->n_nodes; i++) l->first[l->nodes[i].rank + 2]++;
    for (int r = 0; r < l->n_ranks; r++) l->first[r + 2] += l->first[r + 1];
    for (int i = 0; i < l->n_nodes; i++) l->order[l->first[l->nodes[i].rank + 1]++] = i;
    for (int r = 0; r < l->n_ranks; r++) set_places(l, r);
    return true;
}

static void improve(sorter *s) {
    gd_layers *l = s->l;
    const size_t bytes = (size_t)l->n_nodes * sizeof *l->order;
    const int sweeps = l->n_links > LARGE ? SWEEPS_OF_LARGE : SWEEPS;
    int64_t least = -1;
    for (int i = 0; i < sweeps && least != 0; i++) {
        sweep(s, i % 2 == 0, i % 4 >= 2);
        exchange(l);
        const int64_t count = count_crossings(s);
        if (least >= 0 && count >= least) continue;
        least = count;
        memcpy(s->best, l->order, bytes);
    }
    memcpy(l->order, s->best, bytes);
    for (int r = 0; r < l->n_ranks; r++) set_places(l, r);
}

bool gd_draw_order(gd_layers *l) {
    sorter s = {.l = l};
    if (!fill_layers(l)) return false;
    const size_t most = (size_t)(l->n_nodes > l->n_links ? l->n_nodes : l->n_links) + 2;
    s.keys = gd_malloc(most * sizeof *s.keys);
    s.tree = gd_malloc(most * sizeof *s.tree);
    s.best = gd_malloc(most * sizeof *s.best);
    const bool good = s.keys && s.tree && s.best;
    if (good && l->n_nodes > 0) improve(&s);
    gd_free(s.keys);
    gd_free(s.tree);
    gd_free(s.best);
    return good;
}
