/* fit.h - the interface of a run of gd_fit for callbacks of the library. */
#ifndef GRADUS_TRAIN_FIT_H
#define GRADUS_TRAIN_FIT_H

#include "core/state.h"
#include "gradus/train.h"

/* Behind gd_event_value, gd_event_name_at and gd_event_stop (event.c). The first member of struct
 * gd_fit_run points to one. */
typedef struct gd_event_source {
    double (*value)(gd_event *event, const char *name); /* NaN: no such value */
    const char *(*name_at)(gd_event *event, int index); /* NULL: beyond the last */
    void (*stop)(gd_event *event, const char *reason);
    void (*say)(gd_event *event, const char *text); /* a separate line in the progress */
    /* The inputs of the net in the last batch, for the graph of the net; may be an empty list. May
     * be NULL. */
    gd_tensors (*inputs)(gd_event *event);
} gd_event_source;

/* Everything that a checkpoint holds: net, optimizer, schedule, generator, loader, metrics,
 * history, callbacks, and the counters of the run, each with its name. Saving and loading use the
 * same names. Objects live as long as the run. */
enum { GD_FIT_PARTS = 64 };
gd_status gd_fit_parts(gd_event *event, gd_state_part parts[GD_FIT_PARTS], int *count);

/* Whether the option .resume is set; and whether the run continues from a checkpoint of this folder. */
bool gd_fit_has_resume(const gd_event *event);
bool gd_fit_resumed_from(const gd_event *event, const char *folder);

/* In GD_ON_FIT_BEGIN of a run that is not resumed: its steps and epochs count as if it had taken so many
 * steps before. The data begin where the loader is. */
void gd_fit_begin_at(gd_event *event, int64_t step);
/* Whether Ctrl-C, SIGTERM or gd_fit_interrupt ends the run. */
bool gd_fit_is_interrupted(const gd_event *event);

/* From now on a step with a nonfinite loss or gradient is not applied, and ends the run with a
 * failure that names the first layer (the callback stop_on_nan). */
void gd_fit_check_finite(gd_event *event);

/* --- checkpoints (checkpoint.c), called by gd_fit when it resumes ----------------------------- */

typedef struct gd_restored {
    bool found;      /* false: there is no checkpoint; nothing has changed */
    int64_t step;    /* of the checkpoint */
    int damaged;     /* newer ones that were skipped */
    char path[4096]; /* of its file */
} gd_restored;

/* Loads the newest undamaged checkpoint of a folder, and logs its name and those of damaged ones. A
 * folder that does not exist has none. */
gd_status gd_checkpoint_restore(const char *folder, gd_state_parts parts, gd_restored *restored);

#endif
