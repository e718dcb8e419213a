/* schedule.h - the struct of a schedule. Schedules are records; see schedules.c. */
#ifndef GRADUS_OPTIM_SCHEDULE_H
#define GRADUS_OPTIM_SCHEDULE_H

#include "gradus/schedule.h"
#include "optim/optimizer.h"

struct gd_schedule {
    gd_object object;
    const gd_factory *factory;
    void *options;
    gd_optimizer *optimizer; /* retained */
    gd_tensor *step;         /* the steps so far: f64 of rank 0, retained */
    double last; /* after this many steps, without the warm-up, the rates stay; 0: never */
};

/* A new schedule whose rates stay after `last` steps: where a run sets its length, cosine must not
 * rise again. */
void gd_schedule_stay(gd_schedule *schedule, int64_t last);
/* Whether it has taken its last step. Reads the step. */
/* The `steps` that the program has given, if the schedule has done them and now continues by its
 * formula; *stays: with the same rate. 0: it has not, or continues with the base rate. */
double gd_schedule_passed(const gd_schedule *schedule, bool *stays);
bool gd_schedule_has_ended(const gd_schedule *schedule);

/* Called by the generated constructors. */
gd_schedule *gd_schedule_make(const char *site, const gd_factory *factory, gd_optimizer *optimizer,
                              const void *options);

#endif
