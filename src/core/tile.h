/* tile.h - working memory of kernels that is too large for a small stack.
 *
 *     GD_TILE(float, sums, 4096);      // as float sums[4096], until the end of the block
 *
 * threads.h promises that 64 KiB of stack are enough, so kernels keep tiles of more than a kilobyte or
 * two here: in a block of memory that each thread maps when it first needs it and touches as far as it
 * uses it. Taking a tile cannot fail and costs a few instructions. Tiles are 64-byte aligned and not
 * initialized; they are given back in reverse order, by the end of their block.
 */
#ifndef GRADUS_CORE_TILE_H
#define GRADUS_CORE_TILE_H

#include <stddef.h>

void *gd_tile_take(size_t bytes);
void gd_tile_give(void *tile);

static inline void gd_tile_end_(const void *tile) { gd_tile_give(*(void *const *)tile); }
#define GD_TILE(type, name, count)                            \
    type *const name __attribute__((cleanup(gd_tile_end_))) = \
        __builtin_assume_aligned(gd_tile_take(sizeof(type) * (size_t)(count)), 64)

#endif
