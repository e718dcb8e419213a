/* profile.h - the dispatcher's side of the profiler and of anomaly mode. */
#ifndef GRADUS_OPS_PROFILE_H
#define GRADUS_OPS_PROFILE_H

#include <stdatomic.h>

#include "core/device.h"

/* What is to be done around every kernel; 0 nearly always. */
enum { GD_WATCH_TIME = 1, GD_WATCH_NAN = 2 };
extern _Atomic unsigned gd_watch;

int64_t gd_profile_now(void); /* nanoseconds, never 0 */

/* Nanoseconds now if kernels are watched, else 0. */
static inline int64_t gd_profile_start(void) {
    return atomic_load_explicit(&gd_watch, memory_order_relaxed) ? gd_profile_now() : 0;
}

/* After a kernel that started then: notes it, and looks for NaN. Returns `status`, or what was
 * found. */
gd_status gd_profile_end(const gd_kernel_call *call, int64_t started, gd_status status);

#endif
