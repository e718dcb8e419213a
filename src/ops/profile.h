/* profile.h - hooks around every kernel call, for the profiler and anomaly mode. */
#ifndef GRADUS_OPS_PROFILE_H
#define GRADUS_OPS_PROFILE_H

#include <stdatomic.h>

#include "core/device.h"

/* Flags: what the hooks do. Nearly always 0. */
enum { GD_WATCH_TIME = 1, GD_WATCH_NAN = 2 };
extern _Atomic unsigned gd_watch;

int64_t gd_profile_now(void); /* nanoseconds, never 0 */

/* The time now in nanoseconds if the hooks are on, else 0. */
static inline int64_t gd_profile_start(void) {
    return atomic_load_explicit(&gd_watch, memory_order_relaxed) ? gd_profile_now() : 0;
}

/* To be called after a kernel that began at `started`: records its time and checks its results for
 * NaN. Returns `status`, or GD_E_STATE for a NaN. */
gd_status gd_profile_end(const gd_kernel_call *call, int64_t started, gd_status status);

#endif
