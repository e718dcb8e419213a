/* arena.h - an allocator for large buffers of host memory: best fit with coalescing, and a bound on
 * the memory that it caches.
 *
 * A training step needs buffers of many sizes, one after the other. A cache with a free list per
 * size would hold the maximum of each size at the same time. Here free neighbours are merged, and
 * the smallest free block that is large enough is split.
 *
 * Freed buffers keep their pages, because a page fault costs more than the arithmetic on the page.
 * But live and free buffers together have at most a sixteenth more pages than were ever live at one
 * time: if a new buffer would exceed that, the blocks that have been free for longest return their
 * pages to the system first.
 *
 * Not thread-safe: the caller holds a lock.
 */
#ifndef GRADUS_CORE_ARENA_H
#define GRADUS_CORE_ARENA_H

#include <stddef.h>
#include <stdint.h>

enum { GD_ARENA_LEAST = 1 << 20 /* the smallest buffer that callers should allocate here */ };

/* Aligned to 64 bytes; NULL if out of memory. */
void *gd_arena_alloc(size_t bytes);
void gd_arena_free(void *p);

/* The bytes of free buffers that have pages. gd_arena_trim returns all of them to the system. */
int64_t gd_arena_cached(void);
void gd_arena_trim(void);

#endif
