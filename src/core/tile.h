/* tile.h - scratch memory for kernels that is too large for a small stack.
 *
 *     GD_TILE(float, sums, 4096);      // as float sums[4096], until the end of the block
 *
 * threads.h promises that 64 KiB of stack are enough, so kernels keep arrays of more than one or
 * two kilobytes here: on a second stack, which each thread maps at first use; only pages that are
 * used are touched. Allocating a tile cannot fail and costs a few instructions. Tiles are 64-byte
 * aligned and not initialized. They are freed in reverse order, at the end of their block.
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
