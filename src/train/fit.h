/* fit.h - a run of gd_fit, as callbacks of the library see it. */
#ifndef GRADUS_TRAIN_FIT_H
#define GRADUS_TRAIN_FIT_H

#include "core/state.h"
#include "gradus/train.h"

/* How gd_event_value, gd_event_name_at and gd_event_stop reach a run (event.c). struct gd_fit_run begins
 * with a pointer to one. */
typedef struct gd_event_source {
    double (*value)(gd_event *event, const char *name); /* NaN: there is none of that name */
    const char *(*name_at)(gd_event *event, int index); /* NULL: there are fewer */
    void (*stop)(gd_event *event, const char *reason);
    void (*say)(gd_event *event, const char *text); /* a line of its own in the progress */
    /* Inputs of the net in the batch that has just ended, for pictures of the net; an empty list: there
     * are none. May be NULL. */
    gd_tensors (*inputs)(gd_event *event);
} gd_event_source;

/* Everything that a checkpoint holds: net, optimizer, schedule, generator, loader, metrics, history,
 * callbacks, and the run's own counters, each with its name. The same names for saving and for
 * loading. Objects live as long as the run. */
enum { GD_FIT_PARTS = 64 };
gd_status gd_fit_parts(gd_event *event, gd_state_part parts[GD_FIT_PARTS], int *count);

/* A step whose loss or gradient is not finite is not applied, and ends the run with a failure that
 * names the first layer (the callback stop_on_nan, when the run begins). */
void gd_fit_check_finite(gd_event *event);

/* --- checkpoints (checkpoint.c), called by gd_fit when it resumes ----------------------------- */

typedef struct gd_restored {
    bool found;      /* false: there is no checkpoint, and nothing was changed */
    int64_t step;    /* of the checkpoint */
    int damaged;     /* how many newer ones were passed over */
    char path[4096]; /* of its file */
} gd_restored;

/* Loads the newest checkpoint in a folder that is good, and says in the log which one, and which
 * damaged ones it passed over. A folder that is not there has none. */
gd_status gd_checkpoint_restore(const char *folder, gd_state_parts parts, gd_restored *restored);

#endif
