/* blocks.h - the caching allocator of every device but the CPU.
 *
 * A device's own alloc is slow and may wait for the device, so memory is taken from it in segments,
 * which are split into blocks. A freed block is merged with its free neighbours and handed out again
 * at once: work of the compute queue runs in order, so a kernel that still reads the block runs
 * before the kernel that writes it for its next owner. Blocks that the upload queue writes are kept
 * apart (GD_QUEUE_UPLOAD): such a block carries an event of the compute queue, for which the upload
 * queue waits.
 */
#ifndef GRADUS_CORE_BLOCKS_H
#define GRADUS_CORE_BLOCKS_H

#include "core/device.h"

typedef struct gd_blocks gd_blocks;

/* NULL: no memory. */
gd_blocks *gd_blocks_new(gd_device *device);

/* A block for work of one queue. The caller holds the device's lock. */
gd_status gd_blocks_alloc(gd_blocks *blocks, size_t bytes, gd_queue queue, void **handle);
void gd_blocks_free(gd_blocks *blocks, void *handle);

/* Gives segments that are free back to the device. The compute queue must be idle. */
void gd_blocks_trim(gd_blocks *blocks);

/* The bytes of all segments, and of those parts that are free. */
size_t gd_blocks_held(const gd_blocks *blocks);
size_t gd_blocks_unused(const gd_blocks *blocks);

#endif
