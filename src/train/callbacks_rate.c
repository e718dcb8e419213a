/* callbacks_rate.c - callbacks that change learning rates: reduce_on_plateau and scheduled. */
#include <math.h>

#include "core/alloc.h"
#include "core/number.h"
#include "gradus/callbacks.h"
#include "gradus/ops.h"
#include "dispatch/call.h"
#include "optim/schedule.h"
#include "train/monitor.h"
#include "train/training.h"

static gd_status need_optimizer(const gd_event *event) {
    if (event->optimizer) return GD_OK;
    return gd_fail(GD_E_STATE, "the net was compiled without an optimizer, so there is no learning "
                               "rate to change");
}

/*callback reduce_on_plateau
 * Multiplies the learning rates by a factor when a value has not improved for some epochs, as
 * Keras's ReduceLROnPlateau. Do not combine it with a schedule, which overwrites the rates.
 *   monitor string = val_loss      "loss" or a metric, with "val_" in front for validation
 *   factor float = 0.1             in (0, 1): multiplies the rates
 *   patience int = 10              in [0, inf): epochs in a row without an improvement; 0 means 1
 *   min_delta float = 0.0001       in [0, inf): the smallest change that counts as an improvement
 *   cooldown int = 0               in [0, inf): epochs after a change of the rate that are not counted
 *   min_lr float = 0               in [0, inf): lower bound of the rates
 *   mode {auto, min, max} = auto   whether small or large values are good; auto: small for losses, errors, mae, mse and perplexity, else large
 *   python ReduceLROnPlateau(monitor, factor, patience)
 */

typedef struct plateau {
    gd_monitor monitor;
    int64_t cooling; /* remaining epochs that are not counted */
} plateau;

static gd_status reduce_on_plateau_check(const void *options) {
    const gd_reduce_on_plateau_options *o = options;
    return o->monitor && *o->monitor ? GD_OK : gd_fail(GD_E_ARGUMENT, "monitor is empty");
}

static gd_status reduce_on_plateau_open(gd_callback *c) {
    plateau *p = gd_calloc(1, sizeof *p);
    if (!p) return gd_no_memory(NULL, "for the callback");
    p->monitor.best = NAN;
    c->self = p;
    return GD_OK;
}

static void reduce_on_plateau_close(gd_callback *c) { gd_free(c->self); }

static gd_status reduce_on_plateau_save(gd_callback *c, gd_state *state) {
    const plateau *p = c->self;
    GD_TRY(gd_monitor_save(&p->monitor, state));
    return gd_state_put_integer(state, "cooling", p->cooling);
}

static gd_status reduce_on_plateau_load(gd_callback *c, gd_loading *in) {
    plateau *p = c->self;
    GD_TRY(gd_monitor_load(&p->monitor, in));
    return gd_loading_integer(in, "cooling", &p->cooling);
}

/* *changed is set if a rate was above min_lr. */
static gd_status reduce_rates(const gd_reduce_on_plateau_options *o, gd_event *event,
                              bool *changed) {
    for (int g = 0; g < gd_optimizer_group_count(event->optimizer); g++) {
        const double before = gd_item(gd_optimizer_lr(event->optimizer, .group = g));
        if (gd_failed()) return gd_failure();
        const double lr = fmax(before * o->factor, o->min_lr);
        if (!(lr < before)) continue;
        *changed = true;
        GD_TRY(gd_optimizer_set_lr(event->optimizer, lr, .group = g));
        char text[120];
        gd_snprintf(text, sizeof text, "%.6g to %.6g", before, lr);
        gd_notice(GD_LOG_INFO, "reduce_on_plateau: epoch %lld: the learning rate changes from %s",
                  (long long)event->epoch + 1, text);
    }
    return GD_OK;
}

static gd_status reduce_on_plateau_on(gd_callback *c, gd_event *event) {
    const gd_reduce_on_plateau_options *o = c->options;
    plateau *p = c->self;
    bool better, changed = false;
    if (event->kind == GD_ON_FIT_BEGIN) {
        if (event->step == 0) *p = (plateau){.monitor = {.best = NAN}};
        return need_optimizer(event);
    }
    if (event->kind != GD_ON_EPOCH_END) return GD_OK;
    const bool counts = p->cooling == 0;
    GD_TRY(gd_monitor_look(&p->monitor, event, o->monitor, o->mode, o->min_delta, &better));
    if (!counts) {
        p->cooling--;
        p->monitor.waited = 0;
    }
    if (better || !counts || p->monitor.waited < o->patience) return GD_OK;
    GD_TRY(reduce_rates(o, event, &changed));
    p->monitor.waited = 0;
    if (changed) p->cooling = o->cooldown;
    return GD_OK;
}

/*callback scheduled(schedule:string)
 * Steps a learning rate schedule (schedules.h) after each epoch, or after each batch:
 * gd_scheduled("cosine steps=10"). For a schedule that steps with the optimizer, use the option
 * .schedule of gd_compile.
 *   every {epoch, step} = epoch
 */

typedef struct scheduled {
    gd_schedule *schedule; /* retained; NULL before the run begins */
    int64_t steps;         /* taken so far */
} scheduled;

static gd_status scheduled_check(const void *options) {
    const gd_scheduled_options *o = options;
    char name[GD_SPLIT_NAME];
    const char *rest;
    const gd_factory *factory;
    void *schedule_options;
    GD_TRY(gd_split_name(o->schedule ? o->schedule : "", name, &rest));
    GD_TRY(gd_factory_read("schedule", name, rest, &factory, &schedule_options));
    const gd_status status = gd_check_ranges(factory, schedule_options, "gd_lr_");
    gd_free(schedule_options);
    return status;
}

static gd_status scheduled_open(gd_callback *c) {
    c->self = gd_calloc(1, sizeof(scheduled));
    return c->self ? GD_OK : gd_no_memory(NULL, "for the callback");
}

static void scheduled_close(gd_callback *c) {
    scheduled *s = c->self;
    if (s) gd_release(s->schedule);
    gd_free(s);
}

static gd_status scheduled_save(gd_callback *c, gd_state *state) {
    return gd_state_put_integer(state, "steps", ((scheduled *)c->self)->steps);
}

static gd_status scheduled_load(gd_callback *c, gd_loading *in) {
    return gd_loading_integer(in, "steps", &((scheduled *)c->self)->steps);
}

/* Creates the schedule, which sets the rate of its first step. In a resumed run it then repeats the
 * last step before the checkpoint, which sets the rate again. */
static gd_status begin_schedule(const gd_scheduled_options *o, scheduled *s, gd_event *event) {
    char name[GD_SPLIT_NAME];
    const char *rest;
    GD_TRY(need_optimizer(event));
    if (s->schedule && s->schedule->optimizer != event->optimizer) {
        gd_release(s->schedule);
        s->schedule = NULL;
    }
    if (event->step == 0) s->steps = 0;
    if (s->schedule && s->steps > 0) return GD_OK; /* another run of the same process continues */
    gd_release(s->schedule);
    GD_TRY(gd_split_name(o->schedule, name, &rest));
    s->schedule = gd_retain(gd_schedule_new(name, event->optimizer, rest));
    if (!s->schedule) return gd_failure();
    if (s->steps == 0) return GD_OK;
    gd_tensor *before = gd_scalar_of((double)(s->steps - 1), GD_F64);
    if (before->kind == GD_FAILED) return gd_failure();
    GD_TRY(gd_copy_tensor(s->schedule->step, before));
    return gd_schedule_step(s->schedule);
}

static gd_status scheduled_on(gd_callback *c, gd_event *event) {
    const gd_scheduled_options *o = c->options;
    scheduled *s = c->self;
    if (event->kind == GD_ON_FIT_BEGIN) return begin_schedule(o, s, event);
    if (event->kind != (o->every == GD_STEP ? GD_ON_BATCH_END : GD_ON_EPOCH_END)) return GD_OK;
    GD_TRY(gd_schedule_step(s->schedule));
    s->steps++;
    return GD_OK;
}

#include "train/callbacks_rate.gen.h"
