/* arena.c - see arena.h. */
#include "core/arena.h"

#include <stdbool.h>
#include <sys/mman.h>

#include "core/alloc.h"

enum {
    UNIT = 1 << 16, /* buffers are whole multiples of this */
    SEGMENT =
        1
        << 28, /* bytes of address space that are asked for at once; pages come as they are used */
    PAGE = 4096,
    SLACK =
        16, /* one part in so many more is kept, or every step would free and need the same pages */
};

/* Stands before each buffer. Blocks of a segment are linked in the order of their addresses. */
typedef struct block {
    _Alignas(64) size_t bytes; /* this header included */
    struct block *before, *after;
    struct block *next, *last; /* free blocks */
    size_t paged;              /* bytes that have pages; counted as if they were the first ones */
    uint64_t freed;            /* when */
    bool is_free;
} block;

static block *free_blocks;
static uint64_t clock_now;
static int64_t cached, live, most_live; /* bytes; cached: of free blocks that have pages */

/* --- lists ------------------------------------------------------------------------------------ */

static void put_free(block *b) {
    b->is_free = true;
    b->freed = ++clock_now;
    b->last = NULL;
    b->next = free_blocks;
    if (b->next) b->next->last = b;
    free_blocks = b;
    cached += (int64_t)b->paged;
}

static void take_free(block *b) {
    b->is_free = false;
    if (b->last) b->last->next = b->next;
    else free_blocks = b->next;
    if (b->next) b->next->last = b->last;
    cached -= (int64_t)b->paged;
}

/* Makes one block of a block and the one after it; neither is on the free list. */
static void join(block *a, block *b) {
    a->bytes += b->bytes;
    a->after = b->after;
    a->paged += b->paged;
    if (a->after) a->after->before = a;
}

/* What is behind the first `bytes` of a block becomes a free block. */
static void cut(block *a, size_t bytes) {
    if (a->bytes - bytes < UNIT) return;
    block *rest = (block *)(void *)((char *)a + bytes);
    *rest = (block){.bytes = a->bytes - bytes, .before = a, .after = a->after};
    if (a->paged > bytes) {
        rest->paged = a->paged - bytes;
        a->paged = bytes;
    }
    if (rest->after) rest->after->before = rest;
    a->bytes = bytes;
    a->after = rest;
    put_free(rest);
}

/* --- pages ------------------------------------------------------------------------------------ */

/* All but the header's. */
static void drop_pages(block *b) {
    char *from = (char *)b + PAGE, *end = (char *)b + b->bytes;
    madvise(from, (size_t)(end - from), MADV_DONTNEED);
    cached -= (int64_t)b->paged;
    b->paged = 0;
}

/* Gives pages back until a buffer of `bytes` may have `more` new ones; not those of `but`. */
static void make_room(size_t bytes, size_t more, const block *but) {
    const int64_t in_use = live + (int64_t)bytes, most = in_use > most_live ? in_use : most_live;
    while (live + cached + (int64_t)more > most + most / SLACK) {
        block *oldest = NULL;
        for (block *b = free_blocks; b; b = b->next)
            if (b->paged && b != but && (!oldest || b->freed < oldest->freed)) oldest = b;
        if (!oldest) return;
        drop_pages(oldest);
    }
}

static block *new_segment(size_t bytes) {
    size_t whole = bytes > SEGMENT ? bytes : SEGMENT;
    block *b = gd_alloc_pages(whole);
    if (!b && whole > bytes) b = gd_alloc_pages(whole = bytes);
    if (b) *b = (block){.bytes = whole};
    if (b) put_free(b);
    return b;
}

/* --- buffers ---------------------------------------------------------------------------------- */

/* The smallest that is large enough; of two, the one with more pages. */
static block *best_fit(size_t bytes) {
    block *best = NULL;
    for (block *b = free_blocks; b; b = b->next)
        if (b->bytes >= bytes && (!best || b->bytes < best->bytes ||
                                  (b->bytes == best->bytes && b->paged > best->paged)))
            best = b;
    return best;
}

void *gd_arena_alloc(size_t bytes) {
    bytes = (bytes + sizeof(block) + UNIT - 1) / UNIT * UNIT;
    block *b = best_fit(bytes);
    const size_t paged = !b ? 0 : b->paged < bytes ? b->paged : bytes;
    if (paged < bytes) make_room(bytes, bytes - paged, b);
    if (!b && !(b = new_segment(bytes))) return NULL;
    take_free(b);
    cut(b, bytes);
    b->paged = b->bytes;
    live += (int64_t)b->bytes;
    if (live > most_live) most_live = live;
    return b + 1;
}

void gd_arena_free(void *p) {
    block *b = (block *)p - 1;
    live -= (int64_t)b->bytes;
    if (b->after && b->after->is_free) {
        take_free(b->after);
        join(b, b->after);
    }
    if (b->before && b->before->is_free) {
        block *before = b->before;
        take_free(before);
        join(before, b);
        b = before;
    }
    put_free(b);
}

int64_t gd_arena_cached(void) { return cached; }

void gd_arena_trim(void) {
    for (block *b = free_blocks, *next; b; b = next) {
        next = b->next;
        if (!b->before && !b->after) { /* a whole segment */
            take_free(b);
            gd_free_pages(b, b->bytes);
        } else if (b->paged) drop_pages(b);
    }
}
