/* gaps.c - a segment tree over time with runs of used memory (gaps.h).
 *
 * A node stands for a range of times, its two children for the halves. A buffer that is live in all
 * of a node's range, but not of its parent's, is in the runs `all` of the node; one that is live in
 * a part of the range is in the runs `some` of the node, and goes on to the children.
 */
#include "graph/plan/gaps.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"

typedef struct run {
    size_t begin, end;
} run;

/* In the order of addresses, with gaps between them. */
typedef struct run_list {
    run *at;
    int count, room;
} run_list;

typedef struct node {
    run_list all, some;
} node;

struct gd_gap_tree {
    int size;    /* the number of times, a power of two */
    node *nodes; /* the children of node i are 2i and 2i + 1; node 1 is all of the time */
    run_list found;
    bool failed;
};

gd_gap_tree *gd_gap_tree_new(int times) {
    gd_gap_tree *t = gd_calloc(1, sizeof *t);
    if (!t) return NULL;
    for (t->size = 1; t->size < times;) t->size *= 2;
    t->nodes = gd_calloc(2 * (size_t)t->size, sizeof *t->nodes);
    if (t->nodes) return t;
    gd_free(t);
    return NULL;
}

gd_status gd_gap_tree_free(gd_gap_tree *t) {
    if (!t) return GD_OK;
    const bool failed = t->failed;
    for (int i = 1; i < 2 * t->size; i++) {
        gd_free(t->nodes[i].all.at);
        gd_free(t->nodes[i].some.at);
    }
    gd_free(t->nodes);
    gd_free(t->found.at);
    gd_free(t);
    return failed ? GD_E_MEMORY : GD_OK;
}

void gd_gap_tree_clear(gd_gap_tree *t) {
    for (int i = 1; i < 2 * t->size; i++) t->nodes[i].all.count = t->nodes[i].some.count = 0;
}

/* Adds a run, and joins it with those that it touches. */
static bool add_run(run_list *l, run r) {
    int first = 0, high = l->count; /* finds the first run that does not end before it */
    while (first < high) {
        const int middle = (first + high) / 2;
        if (l->at[middle].end < r.begin) first = middle + 1;
        else high = middle;
    }
    int end = first;
    for (; end < l->count && l->at[end].begin <= r.end; end++) {
        if (l->at[end].begin < r.begin) r.begin = l->at[end].begin;
        if (l->at[end].end > r.end) r.end = l->at[end].end;
    }
    if (end == first && !gd_grow(l->at, l->count, l->room)) return false;
    if (end != first + 1)
        memmove(l->at + first + 1, l->at + end, (size_t)(l->count - end) * sizeof *l->at);
    l->count += first + 1 - end;
    l->at[first] = r;
    return true;
}

/* A buffer, or a search for one: what happens in node `i`, which stands for times low to high - 1. */
typedef struct visit {
    gd_gap_tree *tree;
    int begin, end;
    run used;
} visit;

static void add_below(const visit *v, int i, int low, int high) {
    node *n = &v->tree->nodes[i];
    if (v->end < low || v->begin >= high) return;
    if (v->begin <= low && v->end >= high - 1) {
        v->tree->failed |= !add_run(&n->all, v->used);
        return;
    }
    v->tree->failed |= !add_run(&n->some, v->used);
    add_below(v, 2 * i, low, (low + high) / 2);
    add_below(v, 2 * i + 1, (low + high) / 2, high);
}

void gd_gap_tree_add(gd_gap_tree *t, int begin, int end, size_t offset, size_t bytes) {
    if (bytes > 0) add_below(&(visit){t, begin, end, {offset, offset + bytes}}, 1, 0, t->size);
}

static void collect(gd_gap_tree *t, const run_list *from) {
    for (int k = 0; k < from->count && !t->failed; k++)
        t->failed |= !add_run(&t->found, from->at[k]);
}

static void collect_below(const visit *v, int i, int low, int high) {
    const node *n = &v->tree->nodes[i];
    if (v->end < low || v->begin >= high) return;
    collect(v->tree, &n->all);
    if (v->begin <= low && v->end >= high - 1) {
        collect(v->tree, &n->some);
        return;
    }
    collect_below(v, 2 * i, low, (low + high) / 2);
    collect_below(v, 2 * i + 1, (low + high) / 2, high);
}

size_t gd_gap_tree_find(gd_gap_tree *t, int begin, int end, size_t bytes) {
    size_t from = 0, best = SIZE_MAX, best_at = SIZE_MAX;
    t->found.count = 0;
    collect_below(&(visit){t, begin, end, {0, 0}}, 1, 0, t->size);
    for (int k = 0; k < t->found.count; k++) {
        const run *r = &t->found.at[k];
        if (r->begin > from && r->begin - from >= bytes && r->begin - from < best) {
            best = r->begin - from;
            best_at = from;
        }
        from = r->end;
    }
    return best_at != SIZE_MAX ? best_at : from;
}
