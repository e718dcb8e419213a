/* blocks.h - the caching allocator of asynchronous devices.
 *
 * The alloc function of a device is slow and may wait for the device, so the allocator takes large
 * segments from it and splits them into blocks. A freed block is merged with its free neighbours
 * and can be reused immediately: work of the compute queue runs in order, so a kernel that still
 * reads the block runs before the kernel that writes it for its next owner. Blocks that the upload
 * queue writes (GD_QUEUE_UPLOAD) are kept separately: such a block has an event of the compute
 * queue, for which the upload queue waits.
 */
#ifndef GRADUS_CORE_BLOCKS_H
#define GRADUS_CORE_BLOCKS_H

#include "core/device.h"

typedef struct gd_blocks gd_blocks;

/* NULL if out of memory. */
gd_blocks *gd_blocks_new(gd_device *device);

/* Allocates a block that work of this queue writes first. The caller holds the device's lock. */
gd_status gd_blocks_alloc(gd_blocks *blocks, size_t bytes, gd_queue queue, void **handle);
void gd_blocks_free(gd_blocks *blocks, void *handle);

/* Returns free segments to the device. The compute queue must be idle. */
void gd_blocks_trim(gd_blocks *blocks);

/* The bytes of all segments, and of all free blocks. */
size_t gd_blocks_held(const gd_blocks *blocks);
size_t gd_blocks_unused(const gd_blocks *blocks);

#endif
