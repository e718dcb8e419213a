/* profile.h - hooks around every kernel call, for the profiler and anomaly mode. */
#ifndef GRADUS_DISPATCH_PROFILE_H
#define GRADUS_DISPATCH_PROFILE_H

#include <stdatomic.h>

#include "core/device.h"

/* Flags: what the hooks do. Nearly always 0. */
enum { GD_WATCH_TIME = 1, GD_WATCH_NAN = 2, GD_WATCH_PLANS = 4 /* captured plans as one call */ };
extern _Atomic unsigned gd_watch;

int64_t gd_profile_now(void); /* nanoseconds, never 0 */

/* The start of a kernel. */
typedef struct gd_profile_mark {
    int64_t started;       /* nanoseconds; 0: the hooks are off */
    gd_queue_event *event; /* on a device that has times; or NULL */
} gd_profile_mark;

gd_profile_mark gd_profile_begin(gd_device *device);

/* To be called before a kernel is run or queued. */
static inline gd_profile_mark gd_profile_start(gd_device *device) {
    if (__builtin_expect(atomic_load_explicit(&gd_watch, memory_order_relaxed) != 0, 0))
        return gd_profile_begin(device);
    return (gd_profile_mark){0, NULL};
}

/* To be called after a kernel that began at a mark whose `started` is not 0: records its time and
 * checks its results for NaN. Returns `status`, or GD_E_STATE for a NaN. */
gd_status gd_profile_end(const gd_kernel_call *call, gd_profile_mark mark, gd_status status);

/* Fails if a result of the call has a NaN (anomaly.c). */
gd_status gd_check_for_nan(const gd_kernel_call *call);

/* The call that stands for a captured part of a plan. */
gd_kernel_call gd_profile_plan_call(gd_device *device);

#endif
