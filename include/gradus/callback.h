/* callback.h - what gd_fit calls while it trains.
 *
 *     gd_fit(net, train, .epochs = 50, .validation = test,
 *            .callbacks = gd_callbacks(gd_checkpoint("run/"), gd_early_stopping(.patience = 3)));
 *
 * callbacks.h has the ready ones, written by the build from their records. One of a program's own is
 * a struct and functions, which get the event:
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
 * A function that returns a failure ends the run with it. Callbacks are called in the order of the
 * list; they belong to the current scope, and one is in one run at a time.
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
    GD_ON_FIT_BEGIN,   /* once, after a resumed run has been restored */
    GD_ON_EPOCH_BEGIN, /* not for an epoch that a resumed run begins in the middle of */
    GD_ON_BATCH_END,   /* after each batch, the optimizer's step included */
    GD_ON_EPOCH_END,   /* after validation, when the epoch's row is in the history */
    GD_ON_FIT_END,     /* once, also after a stop; not after a failure */
} gd_event_kind;

typedef struct gd_event {
    gd_event_kind kind;
    gd_module *net;
    gd_optimizer *optimizer; /* NULL: the run has none of its own */
    gd_history *history;     /* rows of the epochs so far */
    int64_t epoch, epochs;   /* from 0; how many there will be, 0: not known */
    int64_t batch, batches;  /* in this epoch, from 0; 0: not known */
    int64_t step;  /* batches since the first epoch began; after a batch it counts that batch */
    bool stopping; /* somebody has asked for a stop */
    struct gd_fit_run *run; /* the library's */
} gd_event;

/* What the run knows now: "loss" and metrics are those of the epoch so far; "val_loss" and so on are
 * those of the last validation, "lr" is the learning rate. NaN where there is no such value. The
 * first call after a batch waits for the device. */
GD_API double gd_event_value(gd_event *event, const char *name);
/* Names of the values there are: number `index`, from 0; NULL where there are fewer. */
GD_API const char *gd_event_name_at(gd_event *event, int index);

/* The run ends after this event; the reason is said in the log and in the progress. */
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

/* By the name of its record, with options as text: gd_callback_new("early_stopping", "patience=2"). */
#define gd_callback_new(name, options) gd_callback_new_at(GD_HERE, name, options)
GD_API gd_callback *gd_callback_new_at(const char *site, const char *name, const char *options);

/* --- user-defined callbacks ------------------------------------------------------------------- */

typedef struct gd_callback_functions {
    gd_status (*fit_begin)(gd_event *event, void *self) GD_DEFAULT_(nullptr); /* each may be NULL */
    gd_status (*epoch_begin)(gd_event *event, void *self) GD_DEFAULT_(nullptr);
    gd_status (*batch_end)(gd_event *event, void *self) GD_DEFAULT_(nullptr);
    gd_status (*epoch_end)(gd_event *event, void *self) GD_DEFAULT_(nullptr);
    gd_status (*fit_end)(gd_event *event, void *self) GD_DEFAULT_(nullptr);
    void (*destroy)(void *self) GD_DEFAULT_(nullptr);
    /* So many bytes from `self` on are saved in checkpoints and restored: numbers, no pointers. */
    size_t state_bytes GD_DEFAULT_(0);
    const char *name GD_DEFAULT_(nullptr); /* for messages and checkpoints; NULL: "callback" */
} gd_callback_functions;

#define gd_callback_from(self, ...)                                                                \
    GD_WITH_OPTIONS_(gd_callback_from_at(                                                          \
        GD_HERE, self,                                                                             \
        GD_OPTIONS_(gd_callback_functions,                                                         \
                    (.fit_begin = NULL, .epoch_begin = NULL, .batch_end = NULL, .epoch_end = NULL, \
                     .fit_end = NULL, .destroy = NULL, .state_bytes = 0, .name = NULL)             \
                        __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_callback *gd_callback_from_at(const char *site, void *self,
                                        const gd_callback_functions *functions);

/* A record (CONTRIBUTING.md has the form), so that gd_callback_new makes it by name:
 *
 *     static void *open(const void *options) { ... }
 *     gd_callback_define("beep\nRings after each epoch.\n  times int = 1   in [1, inf)\n",
 *                        (gd_callback_type){.open = open, .functions = {.epoch_end = beep, .destroy = free}});
 */
typedef struct gd_callback_type {
    gd_status (*check)(const void *options); /* of options together; NULL: all are fine */
    /* `self` of a new callback, from the options struct: the fields in the order of the record. NULL
     * is a failure. */
    void *(*open)(const void *options);
    gd_callback_functions functions; /* .name is not read: it is the record's */
} gd_callback_type;

#define gd_callback_define(...) gd_callback_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_callback_define_at(const char *site, const char *record, gd_callback_type type);

#ifdef __cplusplus
}
#endif
#endif
