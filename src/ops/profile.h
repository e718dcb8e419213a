/* profile.h - the dispatcher's side of the profiler. */
#ifndef GRADUS_OPS_PROFILE_H
#define GRADUS_OPS_PROFILE_H

#include "core/device.h"

/* Nanoseconds now if a profile is being taken, else 0. */
int64_t gd_profile_start(void);
void gd_profile_end(const gd_kernel_call *call, int64_t started);

#endif
