/* schedule.h - learning rate schedules.
 *
 *     gd_schedule *cosine = gd_lr_cosine(adam, 1000, .warmup = 100);
 *     for (...) {
 *         ...
 *         gd_optimizer_step(adam);
 *         gd_schedule_step(cosine);
 *     }
 *
 * A schedule belongs to an optimizer and sets the learning rate of each group as a function of the
 * group's base rate (its rate when the schedule is created): on creation for step 0, and then after
 * each step. Step counts and rates are tensors, so a jit that calls gd_schedule_step needs one
 * plan. In a graph: gd_minimize(adam, loss, .schedule = cosine).
 *
 * The build generates schedules.h, the constructors, from the records. They compute PyTorch's
 * closed forms. All have the option .warmup: for that many steps before the schedule starts, the
 * rate grows linearly from .warmup_start times the base rate to the base rate.
 */
#ifndef GRADUS_SCHEDULE_H
#define GRADUS_SCHEDULE_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/optim.h"
#include "gradus/schedules.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A schedule by the name of its record, with options as text: gd_schedule_new("cosine", adam,
 * "steps=1000 warmup=100"). */
#define gd_schedule_new(name, optimizer, options) \
    gd_schedule_new_at(GD_HERE, name, optimizer, options)
GD_API gd_schedule *gd_schedule_new_at(const char *site, const char *name, gd_optimizer *optimizer,
                                       const char *options);

/* The name of its record: "cosine". */
GD_API const char *gd_schedule_type(const gd_schedule *schedule);

/* Sets the rates for the next step. While a failure is recorded, it does nothing and returns that
 * failure. */
#define gd_schedule_step(schedule) gd_schedule_step_at(GD_HERE, schedule)
GD_API gd_status gd_schedule_step_at(const char *site, gd_schedule *schedule);

/* --- user-defined schedules ------------------------------------------------------------------- */

typedef struct gd_schedule_rules {
    gd_status (*check)(const void *options); /* checks combinations of options; may be NULL */
    /* The learning rate after `step` steps of a group with base rate `base`, computed with ordinary
     * ops: all are f64 tensors of rank 0. */
    gd_tensor *(*rate)(const void *options, gd_tensor *step, gd_tensor *base);
} gd_schedule_rules;

/* Defines a schedule. CONTRIBUTING.md has the form of the record. Warm-up needs the options
 * `warmup` and `warmup_start`. */
#define gd_schedule_define(...) gd_schedule_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_schedule_define_at(const char *site, const char *record,
                                       gd_schedule_rules rules);

#ifdef __cplusplus
}
#endif
#endif
