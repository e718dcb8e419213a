/* schedule.h - how learning rates change from step to step.
 *
 *     gd_schedule *cosine = gd_lr_cosine(adam, 1000, .warmup = 100);
 *     for (...) {
 *         ...
 *         gd_optimizer_step(adam);
 *         gd_schedule_step(cosine);
 *     }
 *
 * A schedule belongs to an optimizer and sets the rate of each of its groups, starting from the
 * group's own (its base rate): at once for step 0, and then after each step. Counts and rates are
 * tensors, so a jit that calls gd_schedule_step has one plan, and gd_minimize(adam, loss, .schedule
 * = cosine) puts it into a graph.
 *
 * schedules.h has the constructors, written by the build from the records. They compute PyTorch's
 * closed forms. All of them take .warmup: in so many steps before the first of the schedule the
 * rate grows in a line, from .warmup_start times the base rate to the base rate.
 */
#ifndef GRADUS_SCHEDULE_H
#define GRADUS_SCHEDULE_H

#include "gradus/optim.h"
#include "gradus/schedules.h"

#ifdef __cplusplus
extern "C" {
#endif

/* By the name of its record, with options as text: gd_schedule_new("cosine", adam, "steps=1000
 * warmup=100"). */
#define gd_schedule_new(name, optimizer, options) \
    gd_schedule_new_at(GD_HERE, name, optimizer, options)
GD_API gd_schedule *gd_schedule_new_at(const char *site, const char *name, gd_optimizer *optimizer,
                                       const char *options);

/* Sets the rates for the next step. Does nothing, and returns it, while a failure is recorded. */
#define gd_schedule_step(schedule) gd_schedule_step_at(GD_HERE, schedule)
GD_API gd_status gd_schedule_step_at(const char *site, gd_schedule *schedule);

/* --- user-defined schedules ------------------------------------------------------------------- */

typedef struct gd_schedule_rules {
    gd_status (*check)(const void *options); /* of options together; NULL: all are fine */
    /* The rate after `step` steps of a group whose own is `base`, in ordinary ops: both are f64 of
     * rank 0. */
    gd_tensor *(*rate)(const void *options, gd_tensor *step, gd_tensor *base);
} gd_schedule_rules;

/* The record has the form of the library's (CONTRIBUTING.md). Warm-up needs options `warmup` and
 * `warmup_start`. */
#define gd_schedule_define(...) gd_schedule_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_schedule_define_at(const char *site, const char *record,
                                       gd_schedule_rules rules);

#ifdef __cplusplus
}
#endif
#endif
