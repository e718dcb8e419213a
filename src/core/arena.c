/* arena.c - the allocator for large host buffers (arena.h). */
#include "core/arena.h"

#include <stdbool.h>
#include <sys/mman.h>

#include "core/alloc.h"

enum {
    BLOCK_UNIT = 1 << 16,    /* blocks are multiples of this */
    SEGMENT_BYTES = 1 << 28, /* address space that is mapped at a time; pages fault in later */
    PAGE = 4096,
    /* 1/16 more than needed is kept: otherwise every step would free and fault the same pages. */
    SLACK_FRACTION = 16,
};

/* The header before each buffer. The blocks of a segment are linked in the order of their
 * addresses. */
typedef struct block {
    _Alignas(64) size_t bytes; /* including this header */
    struct block *before, *after;
    struct block *next, *last; /* the list of free blocks */
    size_t resident;           /* bytes that have pages; assumed to be the first ones */
    uint64_t freed_at;         /* value of free_clock */
    bool is_free;
} block;

static block *free_blocks;
static uint64_t free_clock;
static int64_t cached_bytes, live_bytes, max_live; /* cached: resident bytes of free blocks */

/* --- blocks ----------------------------------------------------------------------------------- */

static void add_free_block(block *b) {
    b->is_free = true;
    b->freed_at = ++free_clock;
    b->last = NULL;
    b->next = free_blocks;
    if (b->next) b->next->last = b;
    free_blocks = b;
    cached_bytes += (int64_t)b->resident;
}

static void remove_free_block(block *b) {
    b->is_free = false;
    if (b->last) b->last->next = b->next;
    else free_blocks = b->next;
    if (b->next) b->next->last = b->last;
    cached_bytes -= (int64_t)b->resident;
}

/* Merges a block with the one after it; neither is on the free list. */
static void merge_blocks(block *a, block *b) {
    a->bytes += b->bytes;
    a->after = b->after;
    a->resident += b->resident;
    if (a->after) a->after->before = a;
}

/* Splits a block: everything after its first `bytes` becomes a free block. */
static void split_block(block *a, size_t bytes) {
    if (a->bytes - bytes < BLOCK_UNIT) return;
    block *rest = (block *)(void *)((char *)a + bytes);
    *rest = (block){.bytes = a->bytes - bytes, .before = a, .after = a->after};
    if (a->resident > bytes) {
        rest->resident = a->resident - bytes;
        a->resident = bytes;
    }
    if (rest->after) rest->after->before = rest;
    a->bytes = bytes;
    a->after = rest;
    add_free_block(rest);
}

/* --- pages ------------------------------------------------------------------------------------ */

/* Returns all pages of a block except that of the header to the system. */
static void release_block_pages(block *b) {
    char *from = (char *)b + PAGE, *end = (char *)b + b->bytes;
    madvise(from, (size_t)(end - from), MADV_DONTNEED);
    cached_bytes -= (int64_t)b->resident;
    b->resident = 0;
}

/* Returns pages to the system until a buffer of `bytes` may get `more` new ones; keeps those of
 * `except`. */
static void release_old_pages(size_t bytes, size_t more, const block *except) {
    const int64_t in_use = live_bytes + (int64_t)bytes,
                  limit = in_use > max_live ? in_use : max_live;
    while (live_bytes + cached_bytes + (int64_t)more > limit + limit / SLACK_FRACTION) {
        block *oldest = NULL;
        for (block *b = free_blocks; b; b = b->next)
            if (b->resident && b != except && (!oldest || b->freed_at < oldest->freed_at))
                oldest = b;
        if (!oldest) return;
        release_block_pages(oldest);
    }
}

static block *map_segment(size_t bytes) {
    size_t segment_bytes = bytes > SEGMENT_BYTES ? bytes : SEGMENT_BYTES;
    block *b = gd_alloc_pages(segment_bytes);
    if (!b && segment_bytes > bytes) b = gd_alloc_pages(segment_bytes = bytes);
    if (b) *b = (block){.bytes = segment_bytes};
    if (b) add_free_block(b);
    return b;
}

/* --- buffers ---------------------------------------------------------------------------------- */

/* The smallest free block that is large enough; of equal ones, the one with more pages. */
static block *find_best_fit(size_t bytes) {
    block *best = NULL;
    for (block *b = free_blocks; b; b = b->next)
        if (b->bytes >= bytes && (!best || b->bytes < best->bytes ||
                                  (b->bytes == best->bytes && b->resident > best->resident)))
            best = b;
    return best;
}

void *gd_arena_alloc(size_t bytes) {
    bytes = (bytes + sizeof(block) + BLOCK_UNIT - 1) / BLOCK_UNIT * BLOCK_UNIT;
    block *b = find_best_fit(bytes);
    const size_t resident = !b ? 0 : b->resident < bytes ? b->resident : bytes;
    if (resident < bytes) release_old_pages(bytes, bytes - resident, b);
    if (!b && !(b = map_segment(bytes))) return NULL;
    remove_free_block(b);
    split_block(b, bytes);
    b->resident = b->bytes;
    live_bytes += (int64_t)b->bytes;
    if (live_bytes > max_live) max_live = live_bytes;
    return b + 1;
}

void gd_arena_free(void *p) {
    block *b = (block *)p - 1;
    live_bytes -= (int64_t)b->bytes;
    if (b->after && b->after->is_free) {
        remove_free_block(b->after);
        merge_blocks(b, b->after);
    }
    if (b->before && b->before->is_free) {
        block *before = b->before;
        remove_free_block(before);
        merge_blocks(before, b);
        b = before;
    }
    add_free_block(b);
}

int64_t gd_arena_cached(void) { return cached_bytes; }

void gd_arena_trim(void) {
    for (block *b = free_blocks, *next; b; b = next) {
        next = b->next;
        if (!b->before && !b->after) { /* the entire segment is free */
            remove_free_block(b);
            gd_free_pages(b, b->bytes);
        } else if (b->resident) release_block_pages(b);
    }
}
