/* schedule.h - the inside of a schedule. Schedules are records; see schedules.c. */
#ifndef GRADUS_OPTIM_SCHEDULE_H
#define GRADUS_OPTIM_SCHEDULE_H

#include "gradus/schedule.h"
#include "optim/optimizer.h"

struct gd_schedule {
    gd_object object;
    const gd_maker *maker;
    void *options;
    gd_optimizer *optimizer; /* held */
    gd_tensor *step;         /* how many it has taken: f64 of rank 0, held */
};

/* What the generated constructors call. */
gd_schedule *gd_schedule_make(const char *site, const gd_maker *maker, gd_optimizer *optimizer,
                              const void *options);

#endif
