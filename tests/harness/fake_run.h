/* fake_run.h - a run without training: sends events with chosen values to callbacks. */
#ifndef GRADUS_TESTS_HARNESS_FAKE_RUN_H
#define GRADUS_TESTS_HARNESS_FAKE_RUN_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/callback.h"
#include "train/fit.h"

enum { FAKE_VALUES = 8 };

typedef struct fake_run {
    const gd_event_source *source; /* first, as in struct gd_fit_run */
    const char *names[FAKE_VALUES];
    double values[FAKE_VALUES];
    gd_tensors inputs;
    char stopped[400]; /* the reason of a stop; "": not stopped */
    char said[400];    /* the latest message of a callback */
    gd_event event;
} fake_run;

static inline fake_run *fake_of(gd_event *event) { return (fake_run *)event->run; }

static double fake_value(gd_event *event, const char *name) {
    const fake_run *r = fake_of(event);
    for (int i = 0; i < FAKE_VALUES && r->names[i]; i++)
        if (strcmp(r->names[i], name) == 0) return r->values[i];
    return strcmp(name, "lr") == 0 && event->optimizer ? gd_item(gd_optimizer_lr(event->optimizer))
                                                       : NAN;
}

static const char *fake_name_at(gd_event *event, int index) {
    return index < FAKE_VALUES ? fake_of(event)->names[index] : NULL;
}

static void fake_stop(gd_event *event, const char *reason) {
    snprintf(fake_of(event)->stopped, sizeof fake_of(event)->stopped, "%s", reason);
}

static void fake_say(gd_event *event, const char *text) {
    snprintf(fake_of(event)->said, sizeof fake_of(event)->said, "%s", text);
}

static gd_tensors fake_inputs(gd_event *event) { return fake_of(event)->inputs; }

static const gd_event_source fake_source = {.value = fake_value,
                                            .name_at = fake_name_at,
                                            .stop = fake_stop,
                                            .say = fake_say,
                                            .inputs = fake_inputs};

static inline void fake_begin(fake_run *r, gd_module *net, gd_optimizer *optimizer) {
    *r = (fake_run){.source = &fake_source};
    r->event = (gd_event){.net = net, .optimizer = optimizer, .run = (struct gd_fit_run *)r};
}

/* Sets the value of this name, and adds it if needed. */
static inline void fake_set(fake_run *r, const char *name, double value) {
    int i = 0;
    while (r->names[i] && strcmp(r->names[i], name) != 0) i++;
    r->names[i] = name;
    r->values[i] = value;
}

static inline gd_status fake_call(fake_run *r, gd_callback *c, gd_event_kind kind) {
    r->event.kind = kind;
    return gd_callback_call(c, &r->event);
}

/* Sends the end of the next batch, or the end of the epoch. */
static inline gd_status fake_batch(fake_run *r, gd_callback *c) {
    r->event.step++;
    return fake_call(r, c, GD_ON_BATCH_END);
}
static inline gd_status fake_epoch_end(fake_run *r, gd_callback *c) {
    const gd_status status = fake_call(r, c, GD_ON_EPOCH_END);
    r->event.epoch++;
    return status;
}
/* Sends the events of an epoch, at whose end `name` has this value. */
static inline gd_status fake_epoch(fake_run *r, gd_callback *c, int batches, const char *name,
                                   double value) {
    gd_status status = GD_OK;
    for (int i = 0; i < batches && status == GD_OK; i++) status = fake_batch(r, c);
    fake_set(r, name, value);
    return status == GD_OK ? fake_epoch_end(r, c) : status;
}

#endif
