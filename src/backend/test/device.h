/* device.h - what tests see of the test device, "test:0".
 *
 * The device behaves like a GPU as seen through gradus/backend.h, and nothing else: a library of its
 * own that links nothing of Gradus; memory that the host cannot read, behind handles that are no
 * addresses; three queues, each served by a thread; kernels that run some time after they were
 * queued; an error word; plans that are captured and replayed; its own kernels, each the simplest
 * loop that is right.
 */
#ifndef GRADUS_TEST_DEVICE_H
#define GRADUS_TEST_DEVICE_H

#include "gradus/backend.h"

/* What the host has done so far. */
typedef struct gd_test_counts {
    int64_t kernels;    /* queued one by one */
    int64_t captured;   /* recorded into captures */
    int64_t launches;   /* of captures */
    int64_t replayed;   /* kernels that ran because a capture was launched */
    int64_t boundaries; /* entry and exit kernels queued one by one */
    int64_t uploads, downloads, copies, allocs, waits;
    int64_t prepared, released; /* of kernels that prepare */
} gd_test_counts;

/* The beginning of gd_device.state. */
typedef struct gd_test_controls {
    gd_test_counts counts;
    int64_t fail_alloc_after; /* the n-th alloc from now fails, and all after it; -1: none */
    bool lose;                /* from now on every call says that the device is lost */
    int delay_us;             /* before each kernel */
} gd_test_controls;

static inline gd_test_controls *gd_test_device_controls(gd_device *device) {
    return (gd_test_controls *)device->state;
}

#ifdef GRADUS_TEST_BACKENDS /* the folder of the backend: for the project's own tests */
#include <stdlib.h>

/* The device, loaded at the first call. */
static inline gd_device *gd_test_device(void) {
    setenv("GRADUS_BACKEND_PATH", GRADUS_TEST_BACKENDS, 0);
    return gd_device_get("test");
}

/* Kernels that were queued so far, one by one or as part of a capture. */
static inline int64_t gd_test_device_kernels(void) {
    const gd_test_counts *counts = &gd_test_device_controls(gd_test_device())->counts;
    return counts->kernels + counts->replayed;
}
#endif

#endif
