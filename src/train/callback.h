/* callback.h - the inside of a callback, and what records of the kind "callback" are.
 *
 * Rules are functions of the record's file, named after it; all but NAME_on may be missing:
 *
 *   NAME_check(options)           whether options are right
 *   NAME_open(callback)           makes callback->self from callback->options
 *   NAME_on(callback, event)      one event; a failure ends the run
 *   NAME_after(callback, event)   the same event, once all callbacks of the run have seen it
 *   NAME_give(callback, state), NAME_take(callback, in)    its state (core/state.h)
 *   NAME_close(callback)          frees callback->self, which may be NULL
 */
#ifndef GRADUS_TRAIN_CALLBACK_H
#define GRADUS_TRAIN_CALLBACK_H

#include "core/error.h"
#include "core/state.h"
#include "gradus/callback.h"
#include "ops/maker.h"

typedef struct gd_callback_rules {
    gd_status (*check)(const void *options);
    gd_status (*open)(gd_callback *callback);
    gd_status (*on)(gd_callback *callback, gd_event *event);
    gd_status (*after)(gd_callback *callback, gd_event *event);
    gd_status (*give)(gd_callback *callback, gd_state *state);
    gd_status (*take)(gd_callback *callback, gd_taking *in);
    void (*close)(gd_callback *callback);
    gd_callback_type defined; /* of a user-defined record */
} gd_callback_rules;

struct gd_callback {
    gd_object object;
    const char *type; /* "early_stopping" */
    const gd_callback_rules *rules;
    void *options; /* of a record, its own copy; or NULL */
    void *self;
};

/* Behind the typed constructors. */
gd_callback *gd_callback_make(const char *site, const gd_maker *maker, const void *options);

/* A disk that fails costs a log and not the run: GD_E_IO is told once (`warned`), and is no failure then.
 * `what` is lost: "csv_log: rows". */
gd_status gd_event_tell_lost(gd_event *event, gd_status status, const char *what, bool *warned);

/* One event for a callback; a failure names it. */
gd_status gd_callback_call(gd_callback *callback, gd_event *event);
/* One event for all callbacks of a run, in their order; then what they do after it. Used by gd_fit. */
gd_status gd_callbacks_call(gd_callback_list callbacks, gd_event *event);

/* A value of the run. A name that is not there is a failure that lists those that are. */
gd_status gd_event_read(gd_event *event, const char *name, double *value);

/* Inputs of the net in the batch that has just ended; an empty list: there are none. */
gd_tensors gd_event_inputs(gd_event *event);

/* Whether a value is better than the best so far (NaN: there is none). The mode is GD_MIN or GD_MAX, or GD_AUTO: then
 * small values are good if the name is that of a loss or an error. */
bool gd_value_small_is_good(const char *name, gd_word mode);
bool gd_value_improves(const char *name, gd_word mode, double value, double best);

/* Tells the user of something that does not end the run, in the progress and in the log. */
void gd_event_warn(gd_event *event, const char *text);

#endif
