/* test_place.c - buffer placement in a plan: live buffers never overlap, and the slab is hardly
 * larger than the largest sum of live buffers.
 */
#include "draw.h"
#include "graph/plan/gaps.h"
#include "graph/plan/memory.h"
#include "test.h"

enum { MAX_LAYERS = 400, MAX_SPANS = 12 * MAX_LAYERS };

/* A training step: activations live until their gradient is computed, some values for a few steps
 * only. Sizes change in every layer (`uneven`) or in every third. */
static int make_training_spans(draws *d, gd_span *spans, int layers, bool uneven) {
    int begin[MAX_LAYERS], turn = 0, n = 0;
    size_t bytes[MAX_LAYERS], size = 64 * (size_t)(1 + draw_below(d, 64));
    for (int l = 0; l < layers; l++) {
        if (uneven || draw_below(d, 3) == 0) size = 64 * (size_t)(1 + draw_below(d, 4096));
        begin[l] = turn;
        bytes[l] = size;
        turn += 2 + draw_below(d, 3);
    }
    const int end = 2 * turn + 2;
    for (int l = 0; l < layers; l++) {
        const int back = end - 1 - begin[l];
        spans[n++] = (gd_span){bytes[l], begin[l], back, 0};
        for (int k = draw_below(d, 4); k > 0; k--) {
            const int at = begin[l] + draw_below(d, 3);
            spans[n++] = (gd_span){bytes[l] * (size_t)(1 + draw_below(d, 3)) / 2 + 1, at,
                                   at + 1 + draw_below(d, 3), 0};
        }
        for (int k = 1 + draw_below(d, 3); k > 0; k--) {
            const int at = back - draw_below(d, 3) > turn ? back - draw_below(d, 3) : turn;
            spans[n++] = (gd_span){bytes[l] / (size_t)(1 + draw_below(d, 2)) + 1, at,
                                   at + 1 + draw_below(d, 4), 0};
        }
        if (draw_below(d, 4) == 0)
            spans[n++] = (gd_span){4, begin[l], end, 0}; /* a number to fetch */
    }
    return n;
}

static size_t end_of(const gd_span *s) { return s->offset + s->bytes; }

static void check_apart(const gd_span *spans, int n, size_t slab) {
    for (int i = 0; i < n; i++) {
        CHECK(end_of(&spans[i]) <= slab && spans[i].offset % GD_SLAB_ALIGNMENT == 0);
        for (int k = 0; k < i; k++) {
            const bool same_time = spans[i].begin <= spans[k].end && spans[k].begin <= spans[i].end;
            const bool same_place =
                spans[i].offset < end_of(&spans[k]) && spans[k].offset < end_of(&spans[i]);
            CHECK_SAYING(!same_time || !same_place, "buffers %d and %d overlap", i, k);
        }
    }
}

TEST(a_training_step_needs_only_the_memory_of_live_values) {
    static gd_span spans[MAX_SPANS];
    static const int layers[] = {1, 2, 5, 20, 80, MAX_LAYERS};
    for (size_t x = 0; x < sizeof layers / sizeof *layers; x++)
        for (int seed = 0; seed < (layers[x] < 50 ? 100 : 3); seed++) {
            draws d = {(uint64_t)(seed + 1)};
            const int n = make_training_spans(&d, spans, layers[x], seed % 2);
            size_t slab, live;
            CHECK(gd_place_spans(spans, n, &slab, &live) == GD_OK);
            CHECK(slab >= live);
            CHECK_SAYING((double)slab <= 1.05 * (double)live,
                         "%d layers, seed %d: %zu bytes for %zu alive", layers[x], seed, slab,
                         live);
            check_apart(spans, n, slab);
        }
}

TEST(overlapping_spans_are_placed_without_conflict) {
    size_t slab, live;
    CHECK(gd_place_spans(NULL, 0, &slab, &live) == GD_OK);
    CHECK(slab == 0 && live == 0);
    gd_span same[] = {{0, 3, 3, 0}, {1, 0, 9, 0}, {64, 3, 3, 0}, {65, 4, 4, 0}};
    CHECK(gd_place_spans(same, 4, &slab, &live) == GD_OK);
    CHECK(live == 192 && slab == 192);
    check_apart(same, 4, slab);
}

/* The tightest gap, by a search in all placed spans that are live at the same time. */
static size_t search_all(const gd_span *spans, int n, const gd_span *s) {
    size_t best = SIZE_MAX, at = SIZE_MAX, end = 0;
    for (bool more = true;
         more;) { /* the used memory ends at `end` up to here: find the next run */
        const gd_span *next = NULL;
        more = false;
        for (int i = 0; i < n; i++)
            if (spans[i].begin <= s->end && spans[i].end >= s->begin && end_of(&spans[i]) > end &&
                (!next || spans[i].offset < next->offset))
                next = &spans[i];
        if (!next) break;
        if (next->offset > end && next->offset - end >= s->bytes && next->offset - end < best) {
            best = next->offset - end;
            at = end;
        }
        end = end_of(next);
        more = true;
    }
    return at != SIZE_MAX ? at : end;
}

TEST(the_tree_of_gaps_finds_what_a_search_in_all_buffers_finds) {
    enum { SPANS = 150, TIMES = 70 };
    gd_span spans[SPANS];
    for (int seed = 0; seed < 40; seed++) {
        draws d = {(uint64_t)(seed + 1)};
        gd_gap_tree *tree = gd_gap_tree_new(TIMES);
        for (int i = 0; i < SPANS; i++) {
            gd_span *s = &spans[i];
            s->bytes = (size_t)(1 + draw_below(&d, 6)) * GD_SLAB_ALIGNMENT;
            s->begin = draw_below(&d, TIMES);
            s->end = s->begin + draw_below(&d, seed % 2 ? 4 : TIMES - s->begin);
            if (s->end >= TIMES) s->end = TIMES - 1;
            s->offset = gd_gap_tree_find(tree, s->begin, s->end, s->bytes);
            const size_t expected = search_all(spans, i, s);
            CHECK_SAYING(s->offset == expected, "seed %d, span %d: %zu instead of %zu", seed, i,
                         s->offset, expected);
            gd_gap_tree_add(tree, s->begin, s->end, s->offset, s->bytes);
        }
        CHECK(gd_gap_tree_free(tree) == GD_OK);
        check_apart(spans, SPANS, SIZE_MAX);
    }
}

TEST_MAIN
