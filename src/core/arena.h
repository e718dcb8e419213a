/* arena.h - large buffers of host memory, which are used again in other sizes.
 *
 * A training step needs buffers of many sizes, one after the other. A cache that kept a buffer for its
 * own size would hold the most that was ever in use of each size, all at once. Here a free buffer
 * becomes one with its free neighbours, and the smallest that is large enough is cut to size.
 *
 * Pages stay with the process when a buffer is freed, because a fresh page costs more than the
 * arithmetic on it. But buffers in use and free ones together have hardly more pages (a sixteenth) than
 * were ever in use at one time: where no free buffer is large enough, those that were free for longest
 * give theirs back to the system first.
 *
 * Not for several threads at once: the caller has a lock.
 */
#ifndef GRADUS_CORE_ARENA_H
#define GRADUS_CORE_ARENA_H

#include <stddef.h>
#include <stdint.h>

enum { GD_ARENA_LEAST = 1 << 20 /* bytes that are worth it */ };

/* Aligned to 64 bytes; NULL: no memory. */
void *gd_arena_alloc(size_t bytes);
void gd_arena_free(void *p);

/* Bytes of free buffers that have pages; and gives all of them back. */
int64_t gd_arena_cached(void);
void gd_arena_trim(void);

#endif
