/* callback.h - the internals of callbacks, and records of the kind "callback".
 *
 * Rules are functions of the record's file, named after it; all but NAME_on may be missing:
 *
 *   NAME_check(options)           fails if options are invalid
 *   NAME_open(callback)           creates callback->self from callback->options
 *   NAME_on(callback, event)      handles an event; a failure ends the run
 *   NAME_after(callback, event)   handles it again, after NAME_on of all callbacks of the run
 *   NAME_give(callback, state), NAME_take(callback, in)    save and load it (core/state.h)
 *   NAME_close(callback)          frees callback->self, which may be NULL
 */
#ifndef GRADUS_TRAIN_CALLBACK_H
#define GRADUS_TRAIN_CALLBACK_H

#include "core/error.h"
#include "core/state.h"
#include "gradus/callback.h"
#include "dispatch/factory.h"

typedef struct gd_callback_rules {
    gd_status (*check)(const void *options);
    gd_status (*open)(gd_callback *callback);
    gd_status (*on)(gd_callback *callback, gd_event *event);
    gd_status (*after)(gd_callback *callback, gd_event *event);
    gd_status (*save)(gd_callback *callback, gd_state *state);
    gd_status (*load)(gd_callback *callback, gd_loading *in);
    void (*close)(gd_callback *callback);
    gd_callback_type defined; /* of a user-defined record */
} gd_callback_rules;

struct gd_callback {
    gd_object object;
    const char *type; /* "early_stopping" */
    const gd_callback_rules *rules;
    void *options; /* of a record, owned; or NULL */
    void *self;
};

/* The typed constructors call it. */
gd_callback *gd_callback_make(const char *site, const gd_factory *factory, const void *options);

/* For logs: a failed write (GD_E_IO) does not end the run. Warns once (`warned`) that `what`,
 * "csv_log: rows", is lost, and returns GD_OK. */
gd_status gd_event_warn_lost(gd_event *event, gd_status status, const char *what, bool *warned);

/* Calls a callback; a failure names it. */
gd_status gd_callback_call(gd_callback *callback, gd_event *event);
/* Calls all callbacks of a run in their order, then their `after` rules. */
gd_status gd_callbacks_call(gd_callback_list callbacks, gd_event *event);

/* A value of the run. The failure for an unknown name lists the known ones. */
gd_status gd_event_read(gd_event *event, const char *name, double *value);

/* The inputs of the net in the last batch; may be an empty list. */
gd_tensors gd_event_inputs(gd_event *event);

/* Whether a value is better than the best so far (NaN: there is none). The mode is GD_MIN or
 * GD_MAX, or GD_AUTO: then small values are good if the name is that of a loss or an error. */
bool gd_value_small_is_good(const char *name, gd_word mode);
bool gd_value_improves(const char *name, gd_word mode, double value, double best);

/* Warns the user in the progress and in the log. */
void gd_event_warn(gd_event *event, const char *text);

#endif
