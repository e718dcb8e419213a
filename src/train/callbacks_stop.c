/* callbacks_stop.c - callbacks that end a run: early_stopping and stop_on_nan. */
#include <math.h>

#include "core/alloc.h"
#include "core/number.h"
#include "gradus/callbacks.h"
#include "train/fit.h"
#include "train/kept_state.h"
#include "train/monitor.h"

/*callback early_stopping
 * Ends the run when a value has not improved for some epochs, as in Keras. At the end of the run it
 * restores the weights of the best epoch (in Keras this is off by default). They are kept in memory
 * and in checkpoints; a run that is resumed from a checkpoint continues with its last weights. NaN
 * is never an improvement.
 *   monitor string = val_loss      "loss" or a metric, with "val_" in front for validation
 *   patience int = 1               in [0, inf): epochs in a row without an improvement after which the run ends; 0 means 1
 *   min_delta float = 0            in [0, inf): the smallest change that counts as an improvement
 *   mode {auto, min, max} = auto   whether small or large values are good; auto: small for losses, errors, mae, mse and perplexity, else large
 *   restore_best bool = true       restores the weights of the best epoch when the run ends
 *   python EarlyStopping(monitor, min_delta, patience, mode, restore_best_weights=restore_best)
 */

typedef struct early_stopping {
    gd_monitor monitor;
    int64_t stopped;    /* 1: it has ended the run */
    int64_t exchanged;  /* 1: the net has the best weights, and `kept` has the last ones */
    gd_kept_state kept; /* the best weights until the run ends */
} early_stopping;

static void early_stopping_reset(early_stopping *s) {
    gd_kept_state_drop(&s->kept);
    *s = (early_stopping){.monitor = {.best = NAN}};
}

static gd_status early_stopping_check(const void *options) {
    const gd_early_stopping_options *o = options;
    return o->monitor && *o->monitor ? GD_OK : gd_fail(GD_E_ARGUMENT, "monitor is empty");
}

static gd_status early_stopping_open(gd_callback *c) {
    early_stopping *s = gd_calloc(1, sizeof *s);
    if (!s) return gd_no_memory(NULL, "for the callback");
    c->self = s;
    early_stopping_reset(s);
    return GD_OK;
}

static void early_stopping_close(gd_callback *c) {
    early_stopping *s = c->self;
    if (s) gd_kept_state_drop(&s->kept);
    gd_free(s);
}

static gd_status early_stopping_save(gd_callback *c, gd_state *state) {
    const early_stopping *s = c->self;
    GD_TRY(gd_monitor_save(&s->monitor, state));
    GD_TRY(gd_state_put_integer(state, "stopped", s->stopped));
    GD_TRY(gd_state_put_integer(state, "exchanged", s->exchanged));
    return gd_kept_state_save(&s->kept, "weights", state);
}

static gd_status early_stopping_load(gd_callback *c, gd_loading *in) {
    early_stopping *s = c->self;
    GD_TRY(gd_monitor_load(&s->monitor, in));
    GD_TRY(gd_loading_integer(in, "stopped", &s->stopped));
    GD_TRY(gd_loading_integer(in, "exchanged", &s->exchanged));
    return gd_kept_state_load(&s->kept, "weights", in);
}

static void stop_run(const gd_early_stopping_options *o, const early_stopping *s, gd_event *event) {
    char reason[300];
    gd_snprintf(reason, sizeof reason,
                "%.100s has not improved for %lld epoch%s; the best was %.6g, in epoch %lld",
                o->monitor, (long long)s->monitor.waited, s->monitor.waited == 1 ? "" : "s",
                s->monitor.best, (long long)s->monitor.best_epoch + 1);
    gd_event_stop(event, reason);
}

static gd_status after_epoch(const gd_early_stopping_options *o, early_stopping *s,
                             gd_event *event) {
    bool better;
    GD_TRY(gd_monitor_look(&s->monitor, event, o->monitor, o->mode, o->min_delta, &better));
    if (better) return o->restore_best ? gd_kept_state_copy(&s->kept, event->net) : GD_OK;
    if (s->monitor.waited < o->patience) return GD_OK;
    s->stopped = 1;
    stop_run(o, s, event);
    return GD_OK;
}

/* A run that continues one that has ended starts from its last weights, not from the best ones. */
static gd_status begin_run(const gd_early_stopping_options *o, early_stopping *s, gd_event *event) {
    if (event->step == 0) early_stopping_reset(s); /* a new run */
    if (s->exchanged) GD_TRY(gd_kept_state_exchange(&s->kept, event->net));
    s->exchanged = 0;
    if (s->stopped) stop_run(o, s, event);
    return GD_OK;
}

static gd_status end_run(early_stopping *s, gd_event *event) {
    if (!s->kept.at || s->monitor.waited == 0 || s->exchanged)
        return GD_OK; /* the last epoch was the best */
    GD_TRY(gd_kept_state_exchange(&s->kept, event->net));
    s->exchanged = 1;
    gd_notice(GD_LOG_INFO, "early_stopping: the weights are those of epoch %lld",
              (long long)s->monitor.best_epoch + 1);
    return GD_OK;
}

static gd_status early_stopping_on(gd_callback *c, gd_event *event) {
    early_stopping *s = c->self;
    switch (event->kind) {
    case GD_ON_FIT_BEGIN: return begin_run(c->options, s, event);
    case GD_ON_EPOCH_END: return after_epoch(c->options, s, event);
    case GD_ON_FIT_END: return end_run(s, event);
    default: return GD_OK;
    }
}

/*callback stop_on_nan
 * Ends the run with a failure when the loss or a gradient is not finite. The step is not applied;
 * the batch runs again eagerly, and the message names the first layer that returned such a value.
 *   python StopOnNaN
 */
static gd_status stop_on_nan_on(gd_callback *c, gd_event *event) {
    (void)c;
    if (event->kind == GD_ON_FIT_BEGIN) gd_fit_check_finite(event);
    return GD_OK;
}

#include "train/callbacks_stop.gen.h"
