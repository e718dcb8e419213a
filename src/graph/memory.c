/* memory.c - see memory.h.
 *
 * Finding the smallest slab is hard in theory and easy in practice: spans are placed one after the
 * other, each into the tightest gap that its contemporaries leave. The order decides how good that
 * is, so several are tried and the best is kept; if one needs no more than is alive at one time,
 * none can be better.
 */
#include "graph/memory.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"

static size_t rounded(size_t bytes) { return (bytes + GD_SLAB_ALIGNMENT - 1) / GD_SLAB_ALIGNMENT * GD_SLAB_ALIGNMENT; }

/* --- how much is alive ------------------------------------------------------------------------- */

static size_t peak_of(const gd_span *spans, int count) {
    size_t peak = 0;
    for (int i = 0; i < count; i++) { /* a peak begins where some span begins */
        size_t alive = 0;
        for (int k = 0; k < count; k++)
            if (spans[k].begin <= spans[i].begin && spans[k].end >= spans[i].begin) alive += rounded(spans[k].bytes);
        if (alive > peak) peak = alive;
    }
    return peak;
}

/* --- one way of placing ------------------------------------------------------------------------ */

static int by_offset(const void *a, const void *b) {
    const gd_span *x = *(const gd_span *const *)a, *y = *(const gd_span *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The start of the tightest gap of `bytes` between the spans, sorted by offset. */
static size_t tightest_gap(gd_span *const *others, int count, size_t bytes) {
    size_t end = 0, best = SIZE_MAX, best_at = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        const size_t begin = others[i]->offset;
        if (begin > end && begin - end >= bytes && begin - end < best) {
            best = begin - end;
            best_at = end;
        }
        const size_t other_end = begin + rounded(others[i]->bytes);
        if (other_end > end) end = other_end;
    }
    return best_at != SIZE_MAX ? best_at : end;
}

static size_t place(gd_span **order, int count, gd_span **others) {
    size_t slab = 0;
    for (int i = 0; i < count; i++) {
        int n = 0;
        for (int k = 0; k < i; k++)
            if (order[k]->begin <= order[i]->end && order[k]->end >= order[i]->begin) others[n++] = order[k];
        qsort(others, (size_t)n, sizeof *others, by_offset);
        order[i]->offset = tightest_gap(others, n, rounded(order[i]->bytes));
        const size_t end = order[i]->offset + rounded(order[i]->bytes);
        if (end > slab) slab = end;
    }
    return slab;
}

/* --- orders to try ----------------------------------------------------------------------------- */

static int compare(size_t x, size_t y) { return x > y ? -1 : x < y; }
static size_t life(const gd_span *s) { return (size_t)(s->end - s->begin + 1); }

static int largest_first(const void *a, const void *b) {
    const gd_span *x = *(const gd_span *const *)a, *y = *(const gd_span *const *)b;
    int c = compare(x->bytes, y->bytes);
    return c ? c : compare((size_t)y->begin, (size_t)x->begin);
}
static int longest_first(const void *a, const void *b) {
    const gd_span *x = *(const gd_span *const *)a, *y = *(const gd_span *const *)b;
    int c = compare(life(x), life(y));
    return c ? c : largest_first(a, b);
}
static int area_first(const void *a, const void *b) {
    const gd_span *x = *(const gd_span *const *)a, *y = *(const gd_span *const *)b;
    int c = compare(life(x) * rounded(x->bytes), life(y) * rounded(y->bytes));
    return c ? c : largest_first(a, b);
}
static int earliest_first(const void *a, const void *b) {
    const gd_span *x = *(const gd_span *const *)a, *y = *(const gd_span *const *)b;
    int c = compare((size_t)y->begin, (size_t)x->begin);
    return c ? c : largest_first(a, b);
}

gd_status gd_place_spans(gd_span *spans, int count, size_t *slab, size_t *live) {
    static int (*const orders[])(const void *, const void *) = {largest_first, area_first, longest_first, earliest_first};
    *live = peak_of(spans, count);
    *slab = 0;
    if (count == 0) return GD_OK;
    gd_span **order = gd_malloc((size_t)count * 2 * sizeof *order);
    size_t *best = gd_malloc((size_t)count * sizeof *best);
    if (!order || !best) {
        gd_free(order);
        gd_free(best);
        return gd_fail(GD_E_MEMORY, "no memory to place %d buffers", count);
    }
    *slab = SIZE_MAX;
    for (size_t o = 0; o < sizeof orders / sizeof *orders && *slab > *live; o++) {
        for (int i = 0; i < count; i++) order[i] = &spans[i];
        qsort(order, (size_t)count, sizeof *order, orders[o]);
        const size_t bytes = place(order, count, order + count);
        if (bytes >= *slab) continue;
        *slab = bytes;
        for (int i = 0; i < count; i++) best[i] = spans[i].offset;
    }
    for (int i = 0; i < count; i++) spans[i].offset = best[i];
    gd_free(order);
    gd_free(best);
    return GD_OK;
}
