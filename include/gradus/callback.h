/* callback.h - callbacks: functions that gd_fit calls during training.
 *
 *     gd_fit(net, train, .epochs = 50, .validation = test,
 *            .callbacks = gd_callbacks(gd_checkpoint("run/"), gd_early_stopping(.patience = 3)));
 *
 * The build generates callbacks.h, the constructors of the built-in callbacks, from their records.
 * A user-defined callback is a struct and functions, which receive the event:
 *
 *     typedef struct { double best; } mine;
 *     static gd_status epoch_end(gd_event *event, void *self) {
 *         mine *m = self;
 *         const double loss = gd_event_value(event, "val_loss");
 *         if (loss > 2 * m->best) gd_event_stop(event, "the loss has doubled");
 *         if (loss < m->best) m->best = loss;
 *         return GD_OK;
 *     }
 *     mine m = {INFINITY};
 *     gd_callback *c = gd_callback_from(&m, .epoch_end = epoch_end, .state_bytes = sizeof m);
 *
 * If a function returns a failure, gd_fit fails with it. Callbacks are called in the order of the
 * list. They belong to the current scope. A callback takes part in one gd_fit at a time.
 */
#ifndef GRADUS_CALLBACK_H
#define GRADUS_CALLBACK_H

#pragma GCC system_header /* as in module.h: options among the arguments of a list */

#include "gradus/options.h"
#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gd_event_kind {
    GD_ON_FIT_BEGIN,   /* once; with .resume after the state is restored */
    GD_ON_EPOCH_BEGIN, /* not for an epoch that .resume continues in the middle */
    GD_ON_BATCH_END,   /* after each batch and its optimizer step */
    GD_ON_EPOCH_END,   /* after validation, when the history has the row of the epoch */
    GD_ON_FIT_END,     /* once, also after a stop, but not after a failure */
} gd_event_kind;

typedef struct gd_event {
    gd_event_kind kind;
    gd_module *net;
    gd_optimizer *optimizer; /* NULL: .optimizer of gd_compile was NULL */
    gd_history *history;     /* rows of the epochs so far */
    int64_t epoch, epochs;   /* from 0; the number of epochs, 0: unknown */
    int64_t batch, batches;  /* in this epoch, from 0; the number of batches, 0: unknown */
    int64_t step;  /* batches since the first epoch, including the one that has just ended */
    bool stopping; /* the run ends after this event */
    struct gd_fit_run *run; /* internal */
} gd_event;

/* A current value: "loss" and metrics over the epoch so far; "val_loss" and so on from the last
 * validation; "lr", the learning rate. NaN if there is no such value. The first call after a batch
 * waits for the device. */
GD_API double gd_event_value(gd_event *event, const char *name);
/* The name of value number `index`, from 0; NULL beyond the last. */
GD_API const char *gd_event_name_at(gd_event *event, int index);

/* Ends the run after this event. The log and the progress output show the reason. */
GD_API void gd_event_stop(gd_event *event, const char *reason);

/* --- the list --------------------------------------------------------------------------------- */

typedef struct gd_callback_list {
    gd_callback *const *at;
    int64_t count;
} gd_callback_list;
#ifdef __cplusplus
}
template <int count> struct gd_callbacks_of_ {
    gd_callback *at[count];
    operator gd_callback_list() const { return gd_callback_list{at, count}; }
};
template <typename... Items>
inline gd_callbacks_of_<sizeof...(Items)> gd_callbacks(Items... items) {
    return gd_callbacks_of_<sizeof...(Items)>{{items...}};
}
extern "C" {
#else
#define gd_callbacks(...)                                                     \
    (__extension__(gd_callback_list){(gd_callback *[]){__VA_ARGS__},          \
                                     sizeof((gd_callback *[]){__VA_ARGS__}) / \
                                         sizeof(gd_callback *)})
#endif

/* A callback by the name of its record, with options as text:
 * gd_callback_new("early_stopping", "patience=2"). */
#define gd_callback_new(name, options) gd_callback_new_at(GD_HERE, name, options)
GD_API gd_callback *gd_callback_new_at(const char *site, const char *name, const char *options);

/* --- user-defined callbacks ------------------------------------------------------------------- */

typedef struct gd_callback_functions {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    gd_status (*fit_begin)(gd_event *event, void *self) GD_DEFAULT_(nullptr); /* each may be NULL */
    gd_status (*epoch_begin)(gd_event *event, void *self) GD_DEFAULT_(nullptr);
    gd_status (*batch_end)(gd_event *event, void *self) GD_DEFAULT_(nullptr);
    gd_status (*epoch_end)(gd_event *event, void *self) GD_DEFAULT_(nullptr);
    gd_status (*fit_end)(gd_event *event, void *self) GD_DEFAULT_(nullptr);
    void (*destroy)(void *self) GD_DEFAULT_(nullptr);
    /* Checkpoints save and restore the first state_bytes bytes of `self`: numbers, no pointers. */
    size_t state_bytes GD_DEFAULT_(0);
    /* State of any size, in place of state_bytes: `save` returns u8 of rank 1, or NULL if there is
     * none (or a failure, which ends the save); `load` gets it when all of a checkpoint was loaded. */
    gd_tensor *(*save)(void *self)GD_DEFAULT_(nullptr);
    void (*load)(const gd_tensor *bytes, void *self) GD_DEFAULT_(nullptr);
    const char *name GD_DEFAULT_(nullptr); /* for messages and checkpoints; NULL: "callback" */
} GD_GIVEN_BY_NAME_ gd_callback_functions;
#define GD_CALLBACK_FUNCTIONS_(...)                                                              \
    GD_OPTIONS_(gd_callback_functions,                                                           \
                (.fit_begin = NULL, .epoch_begin = NULL, .batch_end = NULL, .epoch_end = NULL,   \
                 .fit_end = NULL, .destroy = NULL, .state_bytes = 0, .save = NULL, .load = NULL, \
                 .name = NULL),                                                                  \
                __VA_ARGS__)

#define gd_callback_from(self, ...) \
    GD_WITH_OPTIONS_(gd_callback_from_at(GD_HERE, self, GD_CALLBACK_FUNCTIONS_(__VA_ARGS__)))
GD_API gd_callback *gd_callback_from_at(const char *site, void *self,
                                        const gd_callback_functions *functions);

/* Defines a record (CONTRIBUTING.md has the form), so that gd_callback_new can create the callback
 * by name:
 *
 *     static void *open(const void *options) { ... }
 *     gd_callback_define("beep\nRings after each epoch.\n  times int = 1   in [1, inf)\n",
 *                        (gd_callback_type){.open = open,
 *                                           .functions = {.epoch_end = beep, .destroy = free}});
 */
typedef struct gd_callback_type {
    gd_status (*check)(const void *options); /* checks combinations of options; may be NULL */
    /* Returns `self` of a new callback. The options struct has the fields in the order of the
     * record. NULL is a failure. */
    void *(*open)(const void *options);
    gd_callback_functions functions; /* .name is ignored: the record has the name */
} gd_callback_type;

#define gd_callback_define(...) gd_callback_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_callback_define_at(const char *site, const char *record, gd_callback_type type);

#ifdef __cplusplus
}
#endif
#endif
