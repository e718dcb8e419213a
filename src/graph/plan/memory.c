/* memory.c - places buffers in a slab.
 *
 * Finding the smallest slab is hard in theory and easy in practice: spans are placed one after the
 * other, each into the tightest gap between the spans that are live at the same time. The order of
 * the spans decides how good the result is, so several orders are tried, and improved if there are
 * few spans. The search ends when the slab is no larger than the bytes that are live at a time.
 */
#include "graph/plan/memory.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "graph/plan/gaps.h"

static size_t round_up(size_t bytes) {
    return (bytes + GD_SLAB_ALIGNMENT - 1) / GD_SLAB_ALIGNMENT * GD_SLAB_ALIGNMENT;
}

/* --- live bytes ------------------------------------------------------------------------------- */

static int by_begin(const void *a, const void *b) {
    const int x = (*(gd_span *const *)a)->begin, y = (*(gd_span *const *)b)->begin;
    return (x > y) - (x < y);
}
static int by_end(const void *a, const void *b) {
    const int x = (*(gd_span *const *)a)->end, y = (*(gd_span *const *)b)->end;
    return (x > y) - (x < y);
}

/* The most bytes that are live at a time. `begins` and `ends` have room for pointers to all
 * spans. */
static size_t find_peak(gd_span *spans, int count, gd_span **begins, gd_span **ends) {
    size_t peak = 0, alive = 0;
    for (int i = 0; i < count; i++) begins[i] = ends[i] = &spans[i];
    qsort(begins, (size_t)count, sizeof *begins, by_begin);
    qsort(ends, (size_t)count, sizeof *ends, by_end);
    for (int i = 0, over = 0; i < count; i++) { /* a peak begins where some span begins */
        while (ends[over]->end < begins[i]->begin) alive -= round_up(ends[over++]->bytes);
        alive += round_up(begins[i]->bytes);
        if (alive > peak) peak = alive;
    }
    return peak;
}

/* --- placing in one order --------------------------------------------------------------------- */

static bool lives_overlap(const gd_span *a, const gd_span *b) {
    return a->begin <= b->end && a->end >= b->begin;
}

/* The offset of the tightest gap for `s` between the placed spans (sorted by offset) that are live
 * at the same time. */
static size_t tightest_gap(gd_span *const *placed, int count, const gd_span *s) {
    const size_t bytes = round_up(s->bytes);
    size_t end = 0, best = SIZE_MAX, best_at = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        if (!lives_overlap(placed[i], s)) continue;
        const size_t begin = placed[i]->offset;
        if (begin > end && begin - end >= bytes && begin - end < best) {
            best = begin - end;
            best_at = end;
        }
        const size_t other_end = begin + round_up(placed[i]->bytes);
        if (other_end > end) end = other_end;
    }
    return best_at != SIZE_MAX ? best_at : end;
}

static void insert_by_offset(gd_span **placed, int count, gd_span *s) {
    int low = 0, high = count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (placed[middle]->offset <= s->offset) low = middle + 1;
        else high = middle;
    }
    memmove(placed + low + 1, placed + low, (size_t)(count - low) * sizeof *placed);
    placed[low] = s;
}

/* Up to this many spans a search in all of them is faster than one in a gd_gap_tree, which finds
 * the same gaps. */
enum { FEW = 256 };

/* Returns the bytes needed; `*highest` is the first span in the order that ends there. `tree` is
 * NULL for few spans. */
static size_t place_in_order(gd_span **order, int count, gd_span **placed, gd_gap_tree *tree,
                             int *highest) {
    size_t slab = 0;
    if (tree) gd_gap_tree_clear(tree);
    for (int i = 0; i < count; i++) {
        gd_span *s = order[i];
        const size_t bytes = round_up(s->bytes);
        if (tree) {
            s->offset = gd_gap_tree_find(tree, s->begin, s->end, bytes);
            gd_gap_tree_add(tree, s->begin, s->end, s->offset, bytes);
        } else {
            s->offset = tightest_gap(placed, i, s);
            insert_by_offset(placed, i, s);
        }
        if (s->offset + bytes > slab) slab = s->offset + bytes, *highest = i;
    }
    return slab;
}

/* --- orders to try ---------------------------------------------------------------------------- */

static int compare_descending(size_t x, size_t y) { return x > y ? -1 : x < y; }
static size_t life_length(const gd_span *s) { return (size_t)(s->end - s->begin + 1); }

static int largest_first(const void *a, const void *b) {
    const gd_span *x = *(const gd_span *const *)a, *y = *(const gd_span *const *)b;
    int c = compare_descending(x->bytes, y->bytes);
    return c ? c : compare_descending((size_t)y->begin, (size_t)x->begin);
}
static int longest_first(const void *a, const void *b) {
    const gd_span *x = *(const gd_span *const *)a, *y = *(const gd_span *const *)b;
    int c = compare_descending(life_length(x), life_length(y));
    return c ? c : largest_first(a, b);
}
static int area_first(const void *a, const void *b) {
    const gd_span *x = *(const gd_span *const *)a, *y = *(const gd_span *const *)b;
    int c = compare_descending(life_length(x) * round_up(x->bytes),
                               life_length(y) * round_up(y->bytes));
    return c ? c : largest_first(a, b);
}
static int earliest_first(const void *a, const void *b) {
    const gd_span *x = *(const gd_span *const *)a, *y = *(const gd_span *const *)b;
    int c = compare_descending((size_t)y->begin, (size_t)x->begin);
    return c ? c : largest_first(a, b);
}

/* The search for better orders ends when at most 1/GOOD of the live bytes are wasted, or after some
 * milliseconds: a try takes about count * count units. A bad order wastes most where there are few
 * spans; with thousands of spans nothing is improved. */
enum { GOOD = 64, UNITS = 10 * 1000 * 1000 };

/* With more spans than this, the search ends at the first good order. */
enum { MANY = 1000 };

typedef struct placement_search {
    gd_span *spans, **order, **placed;
    gd_gap_tree *tree; /* of many spans */
    size_t *best;      /* offsets */
    int count;
    size_t slab, live;
} placement_search;

/* Places all spans in the current order, and keeps the offsets if they are the best so far. */
static int try_order(placement_search *s) {
    int highest = 0;
    const size_t bytes = place_in_order(s->order, s->count, s->placed, s->tree, &highest);
    if (bytes < s->slab) {
        s->slab = bytes;
        for (int i = 0; i < s->count; i++) s->best[i] = s->spans[i].offset;
    }
    return highest;
}

static bool is_good(const placement_search *s) {
    return s->slab <= s->live || s->slab - s->live <= s->live / GOOD;
}

/* Starts with the current order, and moves the span that ends highest to an earlier position, again
 * and again. */
static void improve_order(placement_search *s, int tries) {
    unsigned random = 1;
    for (int t = 0; t < tries && !is_good(s); t++) {
        const int highest = try_order(s);
        random = random * 1664525u + 1013904223u;
        const int to = highest > 0 ? (int)((random >> 8) % (unsigned)highest) : 0;
        gd_span *moved = s->order[highest];
        memmove(s->order + to + 1, s->order + to, (size_t)(highest - to) * sizeof *s->order);
        s->order[to] = moved;
    }
}

gd_status gd_place_spans(gd_span *spans, int count, size_t *slab, size_t *live) {
    static int (*const orders[])(const void *, const void *) = {largest_first, area_first,
                                                                longest_first, earliest_first};
    enum { ORDERS = sizeof orders / sizeof *orders };
    *live = *slab = 0;
    if (count == 0) return GD_OK;
    gd_span **order = gd_malloc((size_t)count * 2 * sizeof *order);
    size_t *best = gd_malloc((size_t)count * sizeof *best);
    if (!order || !best) {
        gd_free(order);
        gd_free(best);
        return gd_fail(GD_E_MEMORY, "no memory to place %d buffers", count);
    }
    *live = find_peak(spans, count, order, order + count);
    gd_gap_tree *tree = count > FEW ? gd_gap_tree_new(order[2 * count - 1]->end + 1) : NULL;
    placement_search s = {spans, order, order + count, tree, best, count, SIZE_MAX, *live};
    gd_status status = count > FEW && !tree ? GD_E_MEMORY : GD_OK;
    const int tries = (int)(UNITS / ORDERS / ((double)count * count));
    for (int round = 0; round < 2 && status == GD_OK; round++)
        for (int o = 0; o < ORDERS && s.slab > s.live && !(count > MANY && is_good(&s)); o++) {
            for (int i = 0; i < count; i++) order[i] = &spans[i];
            qsort(order, (size_t)count, sizeof *order, orders[o]);
            if (round == 0) try_order(&s);
            else improve_order(&s, tries);
        }
    if (status == GD_OK) status = gd_gap_tree_free(tree);
    for (int i = 0; i < count && status == GD_OK; i++) spans[i].offset = best[i];
    *slab = s.slab;
    gd_free(order);
    gd_free(best);
    return status == GD_OK ? GD_OK : gd_fail(GD_E_MEMORY, "no memory to place %d buffers", count);
}
