/* device.h - a device for tests: its memory cannot be read by the host, its kernels run later. */
#ifndef GRADUS_TEST_DEVICE_H
#define GRADUS_TEST_DEVICE_H

#include "core/device.h"

/* "test:0", made and registered at the first call. NULL when there is no memory. */
gd_device *gd_test_device(void);

/* Waits, stops the worker and frees all. The device stays registered and can be started again. */
void gd_test_device_stop(void);

/* Kernels that were queued so far. */
int64_t gd_test_device_kernels(void);

#endif
