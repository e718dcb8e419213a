/* device.h - the interface of the test device "test:0" for tests.
 *
 * The device behaves like a GPU behind gradus/backend.h:
 *   - It is a separate library that links nothing of Gradus.
 *   - The host cannot read its memory: handles are not addresses.
 *   - It has three queues, each with a worker thread. Kernels run asynchronously.
 *   - Kernels report bad data in an error word.
 *   - Plans are captured and replayed.
 *   - It has its own kernels, each the simplest correct loop.
 */
#ifndef GRADUS_BACKEND_TEST_DEVICE_H
#define GRADUS_BACKEND_TEST_DEVICE_H

#include "gradus/backend.h"

/* Calls of the host so far. */
typedef struct gd_test_counts {
    int64_t kernels;    /* kernels queued, one by one or into a capture */
    int64_t captured;   /* tasks recorded into captures */
    int64_t launches;   /* launches of captures */
    int64_t replayed;   /* tasks that ran as part of a launched capture */
    int64_t boundaries; /* entry and exit kernels queued outside of captures */
    int64_t uploads, downloads, allocs, waits;
    int64_t prepared, released; /* calls of the kernels' prepare and release */
} gd_test_counts;

/* The first fields of gd_device.state. */
typedef struct gd_test_controls {
    gd_test_counts counts;
    int64_t fail_alloc_after; /* allocations that still succeed; -1: all succeed */
    bool lose;                /* the next queued task loses the device */
    int delay_us;             /* microseconds that a worker sleeps before each kernel */
} gd_test_controls;

static inline gd_test_controls *gd_test_device_controls(gd_device *device) {
    return (gd_test_controls *)device->state;
}

#ifdef GRADUS_TEST_BACKENDS /* the folder of the backend, set for the tests of this project */
#include <stdlib.h>

/* The device; the first call loads the backend. */
static inline gd_device *gd_test_device(void) {
    setenv("GRADUS_BACKEND_PATH", GRADUS_TEST_BACKENDS, 0);
    return gd_device_get("test");
}

/* Kernels that were queued or replayed so far. */
static inline int64_t gd_test_device_kernels(void) {
    const gd_test_counts *counts = &gd_test_device_controls(gd_test_device())->counts;
    return counts->kernels + counts->replayed;
}
#endif

#endif
