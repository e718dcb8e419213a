/* test_blocks.c - blocks of device memory that uploads write (core/blocks.h). */
#include "backend/test/device.h"
#include "core/device.h"
#include "gradus/gradus.h"
#include "test.h"

enum { BYTES = 100000, COUNT = 4 };

/* An upload waits for the last use of its block, so it gets the block whose last use is longest ago. */
TEST(uploads_reuse_the_block_that_was_freed_first) {
    gd_device *device = gd_test_device();
    void *blocks[COUNT], *again;
    for (int i = 0; i < COUNT; i++)
        CHECK(gd_queue_alloc(device, BYTES, GD_QUEUE_UPLOAD, &blocks[i]) == GD_OK);
    static const int order[COUNT] = {2, 0, 3, 1};
    for (int i = 0; i < COUNT; i++) gd_queue_free(device, blocks[order[i]], BYTES);
    for (int i = 0; i < COUNT; i++) {
        CHECK(gd_queue_alloc(device, BYTES, GD_QUEUE_UPLOAD, &again) == GD_OK);
        CHECK(again == blocks[order[i]]);
    }
    for (int i = 0; i < COUNT; i++) gd_queue_free(device, blocks[i], BYTES);
    CHECK(!gd_failed());
}

TEST_MAIN
