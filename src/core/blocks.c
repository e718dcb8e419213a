/* blocks.c - the caching allocator of asynchronous devices (blocks.h).
 *
 * Segments have at least SEGMENT bytes. A request of more than half of that allocates a segment of
 * its size, rounded up, which may later be split for smaller requests. A free block is chosen by
 * best fit: the smallest block that is large enough, and among equal ones that at the lowest
 * address, so that the same sequence of requests always gets the same blocks. Handles are never
 * dereferenced.
 *
 * Small blocks that were freed recently are reused before all others, without a merge and a split:
 * eager ops on small tensors free and allocate the same sizes again and again.
 */
#include "core/blocks.h"

#include "core/alloc.h"
#include "core/error.h"

enum { SEGMENT = 2 << 20, LEAST_BLOCK = 512, HASH_SIZE = 4096 };

typedef struct block {
    struct block *before, *after;  /* neighbours in the segment; NULL at its ends */
    struct block *previous, *next; /* in the list of free blocks of its class */
    struct block *chain;           /* in the hash table of blocks in use */
    char *handle;
    size_t bytes;
    gd_queue queue;
    gd_queue_event *event; /* free block of the upload queue: its last use on the compute queue */
    uint64_t freed;        /* counts blocks in the order in which they were freed */
    bool is_free;
} block;

enum {
    CLASSES = 64,
    RECENT_BYTES = 16 << 10,
    RECENT_SIZES = RECENT_BYTES / LEAST_BLOCK,
    MAX_RECENT = 32
};

struct gd_blocks {
    gd_device *device;
    block *free_blocks[GD_QUEUE_COUNT][CLASSES]; /* by the logarithm of their size */
    block *recent[RECENT_SIZES +
                  1]; /* of the compute queue, by size / LEAST_BLOCK, linked by `next` */
    int recent_count[RECENT_SIZES + 1];
    block *in_use[HASH_SIZE];
    size_t held, unused;
    uint64_t freed;
};

gd_blocks *gd_blocks_new(gd_device *device) {
    gd_blocks *blocks = gd_calloc(1, sizeof *blocks);
    if (blocks) blocks->device = device;
    return blocks;
}

size_t gd_blocks_held(const gd_blocks *blocks) { return blocks->held; }
size_t gd_blocks_unused(const gd_blocks *blocks) { return blocks->unused; }

static int class_of(size_t bytes) { return 63 - __builtin_clzll((unsigned long long)bytes); }

/* `to` is a power of two. */
static size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) & ~(to - 1); }

static block **hash_slot(gd_blocks *blocks, const void *handle) {
    return &blocks->in_use[((uintptr_t)handle >> 9) * 0x9E3779B97F4A7C15u >> 52];
}

/* --- lists of free blocks --------------------------------------------------------------------- */

static void add_free_block(gd_blocks *blocks, block *b) {
    block **first = &blocks->free_blocks[b->queue][class_of(b->bytes)];
    b->is_free = true;
    b->freed = ++blocks->freed;
    b->previous = NULL;
    b->next = *first;
    if (b->next) b->next->previous = b;
    *first = b;
    blocks->unused += b->bytes;
}

static void remove_free_block(gd_blocks *blocks, block *b) {
    if (b->previous) b->previous->next = b->next;
    else blocks->free_blocks[b->queue][class_of(b->bytes)] = b->next;
    if (b->next) b->next->previous = b->previous;
    b->is_free = false;
    blocks->unused -= b->bytes;
}

/* The smaller block; of equal ones the lower, or on the upload queue the one that was freed first,
 * because an upload waits for the last use of its block. */
static bool is_better_block(const block *b, const block *best) {
    if (b->bytes != best->bytes) return b->bytes < best->bytes;
    return b->queue == GD_QUEUE_UPLOAD ? b->freed < best->freed
                                       : (uintptr_t)b->handle < (uintptr_t)best->handle;
}

static block *find_free_block(const gd_blocks *blocks, size_t bytes, gd_queue queue) {
    for (int class = class_of(bytes); class < CLASSES; class ++) {
        block *best = NULL;
        for (block *b = blocks->free_blocks[queue][class]; b; b = b->next)
            if (b->bytes >= bytes && (!best || is_better_block(b, best))) best = b;
        if (best) return best;
    }
    return NULL;
}

/* --- segments --------------------------------------------------------------------------------- */

static gd_status add_segment(gd_blocks *blocks, size_t bytes, gd_queue queue) {
    gd_device *d = blocks->device;
    block *b = gd_calloc(1, sizeof *b);
    if (!b) return GD_E_MEMORY;
    b->bytes = round_up(bytes, bytes > SEGMENT / 2 ? SEGMENT : LEAST_BLOCK);
    if (b->bytes < SEGMENT) b->bytes = SEGMENT;
    b->queue = queue;
    void *handle = NULL;
    gd_status status = d->api->alloc(d, b->bytes, &handle);
    if (status != GD_OK) {
        gd_free(b);
        return status;
    }
    b->handle = handle;
    blocks->held += b->bytes;
    add_free_block(blocks, b);
    return GD_OK;
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* Splits a block: the bytes after the first `bytes` become a free block. Does nothing if there is
 * no memory for its descriptor. */
static void split_block(gd_blocks *blocks, block *b, size_t bytes) {
    if (b->bytes - bytes < LEAST_BLOCK || b->event) return;
    block *rest = gd_calloc(1, sizeof *rest);
    if (!rest) return;
    rest->queue = b->queue;
    rest->handle = b->handle + bytes;
    rest->bytes = b->bytes - bytes;
    rest->before = b;
    rest->after = b->after;
    if (rest->after) rest->after->before = rest;
    b->after = rest;
    b->bytes = bytes;
    add_free_block(blocks, rest);
}

/* Merges two neighbours that are on no list. */
static block *merge_blocks(block *left, block *right) {
    left->bytes += right->bytes;
    left->after = right->after;
    if (left->after) left->after->before = left;
    gd_free(right);
    return left;
}

static void add_used_block(gd_blocks *blocks, block *b) {
    block **slot = hash_slot(blocks, b->handle);
    b->chain = *slot;
    *slot = b;
}

/* The size of a block's list of recent blocks; 0: it has none. */
static size_t recent_size(size_t bytes, gd_queue queue) {
    return queue == GD_QUEUE_COMPUTE && bytes <= RECENT_BYTES ? bytes / LEAST_BLOCK : 0;
}

static block *take_recent_block(gd_blocks *blocks, size_t bytes, gd_queue queue) {
    const size_t size = recent_size(bytes, queue);
    block *b = blocks->recent[size]; /* recent[0] is empty */
    if (!b) return NULL;
    blocks->recent[size] = b->next;
    blocks->recent_count[size]--;
    blocks->unused -= b->bytes;
    return b;
}

static bool add_recent_block(gd_blocks *blocks, block *b) {
    const size_t size = recent_size(b->bytes, b->queue);
    if (size == 0 || blocks->recent_count[size] == MAX_RECENT) return false;
    b->next = blocks->recent[size];
    blocks->recent[size] = b;
    blocks->recent_count[size]++;
    blocks->unused += b->bytes;
    return true;
}

/* GRADUS_DEBUG=memory: a block of exactly this size, which is not cached. */
static gd_status alloc_separately(gd_blocks *blocks, size_t bytes, gd_queue queue, void **handle) {
    gd_device *d = blocks->device;
    block *b = gd_calloc(1, sizeof *b);
    if (!b) return GD_E_MEMORY;
    b->bytes = bytes ? bytes : 1;
    b->queue = queue;
    gd_status status = d->api->alloc(d, b->bytes, handle);
    if (status != GD_OK) {
        gd_free(b);
        return status;
    }
    b->handle = *handle;
    blocks->held += b->bytes;
    add_used_block(blocks, b);
    return GD_OK;
}

static void free_separately(gd_blocks *blocks, block *b) {
    gd_device *d = blocks->device;
    blocks->held -= b->bytes;
    d->api->free(d, b->handle, b->bytes);
    gd_free(b);
}

gd_status gd_blocks_alloc(gd_blocks *blocks, size_t bytes, gd_queue queue, void **handle) {
    gd_device *d = blocks->device;
    const size_t alignment = d->api->alignment > LEAST_BLOCK ? d->api->alignment : LEAST_BLOCK;
    if (bytes > (size_t)1 << 52) return GD_E_MEMORY;
    if (gd_device_debug_memory) return alloc_separately(blocks, bytes, queue, handle);
    bytes = round_up(bytes ? bytes : 1, alignment);
    block *b = take_recent_block(blocks, bytes, queue);
    if (b) {
        add_used_block(blocks, b);
        *handle = b->handle;
        return GD_OK;
    }
    b = find_free_block(blocks, bytes, queue);
    if (!b) {
        gd_status status = add_segment(blocks, bytes, queue);
        if (status != GD_OK) return status;
        b = find_free_block(blocks, bytes, queue);
    }
    if (b->event) { /* the upload queue must not write it before its last reader is done */
        gd_status status = d->api->event_join(d, queue, b->event);
        if (status != GD_OK) return status;
    }
    remove_free_block(blocks, b);
    if (b->event) d->api->event_free(d, b->event);
    b->event = NULL;
    split_block(blocks, b, bytes);
    add_used_block(blocks, b);
    *handle = b->handle;
    return GD_OK;
}

/* Adds a block of the compute queue to the free blocks, merged with its free neighbours. */
static void merge_free_block(gd_blocks *blocks, block *b) {
    block *before = b->before, *after = b->after;
    if (after && after->is_free) {
        remove_free_block(blocks, after);
        b = merge_blocks(b, after);
    }
    if (before && before->is_free) {
        remove_free_block(blocks, before);
        b = merge_blocks(before, b);
    }
    add_free_block(blocks, b);
}

void gd_blocks_free(gd_blocks *blocks, void *handle) {
    gd_device *d = blocks->device;
    block **at = hash_slot(blocks, handle);
    while (*at && (*at)->handle != handle) at = &(*at)->chain;
    block *b = *at;
    if (!b) return;
    *at = b->chain;
    if (gd_device_debug_memory) {
        free_separately(blocks, b);
        return;
    }
    if (b->queue == GD_QUEUE_UPLOAD) {
        /* Without an event the block can never be written again: leave it in use. */
        if (d->api->event_record(d, GD_QUEUE_COMPUTE, &b->event) != GD_OK) return;
        add_free_block(blocks, b);
        return;
    }
    if (!add_recent_block(blocks, b)) merge_free_block(blocks, b);
}

/* Free blocks of the upload queue keep their events and are not merged. When the compute queue is
 * idle, the events are dropped and the blocks merged. */
static void merge_upload_blocks(gd_blocks *blocks, int class) {
    gd_device *d = blocks->device;
    for (block *b = blocks->free_blocks[GD_QUEUE_UPLOAD][class], *next; b; b = next) {
        next = b->next;
        if (b->event) d->api->event_free(d, b->event);
        b->event = NULL;
        if (!b->before || !b->before->is_free) continue;
        block *before = b->before;
        remove_free_block(blocks, b);
        remove_free_block(blocks, before);
        if (next == before) next = before->next;
        if (before->event) d->api->event_free(d, before->event);
        before->event = NULL;
        add_free_block(blocks, merge_blocks(before, b));
    }
}

void gd_blocks_trim(gd_blocks *blocks) {
    gd_device *d = blocks->device;
    for (size_t size = 1; size <= RECENT_SIZES; size++)
        for (block *b; (b = take_recent_block(blocks, size * LEAST_BLOCK, GD_QUEUE_COMPUTE));)
            merge_free_block(blocks, b);
    for (int class = 0; class < CLASSES; class ++) merge_upload_blocks(blocks, class);
    for (int queue = 0; queue < GD_QUEUE_COUNT; queue++)
        for (int class = 0; class < CLASSES; class ++)
            for (block *b = blocks->free_blocks[queue][class], *next; b; b = next) {
                next = b->next;
                if (b->before || b->after) continue;
                remove_free_block(blocks, b);
                if (b->event) d->api->event_free(d, b->event);
                blocks->held -= b->bytes;
                d->api->free(d, b->handle, b->bytes);
                gd_free(b);
            }
}
