/* checkpoint.c - the callback that saves a run, and the resume from its files.
 *
 * A checkpoint is one file with all parts of the run (gd_fit_parts) and a checksum. It is written
 * to a temporary file, synced and renamed; then older ones are removed. So if the process dies at
 * any time, the newest complete file is the state of the run at that step, and a run that resumes
 * from it has the same bits as one that was never interrupted. Files that an earlier process did
 * not remove go before the save, since the disk may be full; `keep` good ones remain at any time.
 *
 * It is saved after all other callbacks have handled the event, since it includes their state.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "gradus/callbacks.h"
#include "io/state_io.h"
#include "train/callback.h"
#include "train/checkpoint_files.h"
#include "train/fit.h"

/*callback checkpoint(path:string)
 * Saves the run in a folder: weights, optimizer, schedule, random generator, position in the data,
 * history, callbacks. A run with `.resume` set to that folder continues from the newest undamaged
 * file and gives the same bits as a run that never stopped. It also saves when the run ends, and
 * when Ctrl-C or SIGTERM ends it. If a save fails (the disk is full), a warning appears in the
 * progress and in the log, training continues, and the previous checkpoint remains.
 *   every_steps int = 0       in [0, inf): batches between saves; 0: off
 *   every_minutes float = 0   in [0, inf): minutes between saves; 0: off
 *   every_epochs int = 1      in [0, inf): epochs between saves; 0: off
 *   keep int = 3              in [0, inf): number of files that are kept, the newest ones; 0: all
 *   best string = none        a value, such as "val_loss": best.safetensors is the state with the best one
 *   mode {auto, min, max} = auto   whether small or large values of it are good; auto: small for losses, errors, mae, mse and perplexity, else large
 */

typedef struct checkpoint {
    double best;      /* the value of best.safetensors; NaN: none yet */
    double last_time; /* of the latest attempt to save, in minutes */
    bool unsaved;     /* the run has changed since the last save */
    int64_t good;     /* the step of the newest checkpoint that was restored or saved; -1: none */
    bool skipped;     /* the run was resumed, and those after `good` are damaged */
} checkpoint;

static double minutes_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((double)now.tv_sec + (double)now.tv_nsec * 1e-9) / 60;
}

static gd_status checkpoint_check(const void *options) {
    const gd_checkpoint_options *o = options;
    return o->path && *o->path ? GD_OK : gd_fail(GD_E_ARGUMENT, "the path is empty");
}

static gd_status checkpoint_open(gd_callback *c) {
    checkpoint *self = gd_calloc(1, sizeof *self);
    if (!self) return gd_no_memory(NULL, "for the callback");
    self->best = NAN;
    c->self = self;
    return GD_OK;
}

static void checkpoint_close(gd_callback *c) { gd_free(c->self); }

static gd_status checkpoint_save(gd_callback *c, gd_state *state) {
    const checkpoint *self = c->self;
    return gd_state_put_float(state, "best", self->best);
}

static gd_status checkpoint_load(gd_callback *c, gd_loading *in) {
    checkpoint *self = c->self;
    return gd_loading_float(in, "best", &self->best);
}

/* --- saving ----------------------------------------------------------------------------------- */

static gd_status write_parts(gd_event *event, const char *path) {
    gd_state_part parts[GD_FIT_PARTS];
    int count = 0;
    GD_TRY(gd_fit_parts(event, parts, &count));
    const gd_save_state_options options = {.checksum = true};
    return gd_save_state_at(NULL, path, (gd_state_parts){parts, count}, &options);
}

/* A disk error or missing memory is only a warning, and *saved is false; any other failure is
 * returned. */
static gd_status save_checkpoint(gd_callback *c, gd_event *event, char *path, bool *saved) {
    const gd_checkpoint_options *o = c->options;
    gd_status status = GD_E_MEMORY;
    gd_attempt attempt;
    gd_checkpoint_prune(o->path, ((checkpoint *)c->self)->good, o->keep);
    gd_attempt_begin(&attempt);
    status = path ? write_parts(event, path) : gd_no_memory(NULL, "for its path");
    status = gd_attempt_end(&attempt, status);
    gd_free(path);
    *saved = status == GD_OK;
    if (status != GD_E_IO && status != GD_E_MEMORY) return status;
    char text[GD_MESSAGE_MAX + 120];
    snprintf(text, sizeof text,
             "the checkpoint of step %lld is not saved, and training continues: %s",
             (long long)event->step, gd_latest_failure());
    gd_event_warn(event, text);
    return GD_OK;
}

static gd_status save_step(gd_callback *c, gd_event *event) {
    const gd_checkpoint_options *o = c->options;
    checkpoint *self = c->self;
    bool saved;
    self->last_time = minutes_now();
    gd_checkpoint_sweep(o->path);
    GD_TRY(save_checkpoint(c, event, gd_checkpoint_path(o->path, event->step), &saved));
    if (!saved) return GD_OK;
    self->unsaved = false;
    if (self->skipped) gd_checkpoint_remove_later(o->path, self->good, event->step);
    self->skipped = false;
    self->good = event->step;
    gd_checkpoint_prune(o->path, event->step, o->keep);
    return GD_OK;
}

/* After an epoch. `best` is set before the save, because the file includes it. */
static gd_status save_best(gd_callback *c, gd_event *event) {
    const gd_checkpoint_options *o = c->options;
    checkpoint *self = c->self;
    double value;
    bool saved;
    if (!o->best || !*o->best) return GD_OK;
    GD_TRY(gd_event_read(event, o->best, &value));
    if (!gd_value_improves(o->best, o->mode, value, self->best)) return GD_OK;
    const double before = self->best;
    self->best = value;
    GD_TRY(save_checkpoint(c, event, gd_checkpoint_best_path(o->path), &saved));
    if (!saved) self->best = before;
    return GD_OK;
}

/* --- events ----------------------------------------------------------------------------------- */

/* A run that was not resumed from this folder keeps the files of the previous run. With .resume it
 * also keeps those of the run before: the folder that it names may be the wrong one. So does a run
 * that finds nothing but best.safetensors, the rest of one that was killed early. */
static gd_status begin_folder(const gd_checkpoint_options *o, gd_event *event) {
    int steps, moved;
    bool best;
    char name[32], what[40] = "best.safetensors", text[GD_MESSAGE_MAX];
    GD_TRY(gd_checkpoint_make_folder(o->path));
    GD_TRY(gd_checkpoint_count(o->path, &steps, &best));
    if (steps == 0 && !best) return GD_OK;
    const bool replaces = steps > 0 && !gd_fit_has_resume(event);
    GD_TRY(gd_checkpoint_set_aside(o->path, replaces, &moved, name));
    if (moved) snprintf(what, sizeof what, "%d checkpoint%s", moved, moved == 1 ? "" : "s");
    snprintf(text, sizeof text, "%.800s: moved %s of an earlier run to its folder '%s'", o->path,
             what, name);
    gd_event_warn(event, text);
    return GD_OK;
}

static gd_status checkpoint_on(gd_callback *c, gd_event *event) {
    const gd_checkpoint_options *o = c->options;
    checkpoint *self = c->self;
    if (event->kind != GD_ON_FIT_BEGIN) return GD_OK;
    self->last_time = minutes_now();
    self->unsaved = false;
    self->skipped = gd_fit_resumed_from(event, o->path);
    self->good = self->skipped ? event->step : -1;
    return self->skipped ? GD_OK : begin_folder(o, event);
}

static bool is_due(const gd_checkpoint_options *o, const checkpoint *self, const gd_event *event) {
    switch (event->kind) {
    case GD_ON_BATCH_END:
        return (o->every_steps > 0 && event->step % o->every_steps == 0) ||
               (o->every_minutes > 0 && minutes_now() - self->last_time >= o->every_minutes);
    case GD_ON_EPOCH_END: return o->every_epochs > 0 && (event->epoch + 1) % o->every_epochs == 0;
    case GD_ON_FIT_END: return self->unsaved;
    default: return false;
    }
}

static gd_status checkpoint_after(gd_callback *c, gd_event *event) {
    const gd_checkpoint_options *o = c->options;
    checkpoint *self = c->self;
    if (event->kind == GD_ON_BATCH_END || event->kind == GD_ON_EPOCH_END) self->unsaved = true;
    if (event->kind == GD_ON_EPOCH_END) GD_TRY(save_best(c, event));
    if (is_due(o, self, event)) return save_step(c, event);
    if (event->kind == GD_ON_FIT_END) { /* an earlier process may have died before it could prune */
        gd_checkpoint_sweep(o->path);
        gd_checkpoint_prune(o->path, self->good, o->keep);
    }
    return GD_OK;
}

/* --- resuming --------------------------------------------------------------------------------- */

static gd_status load_checkpoint(const char *path, gd_state_parts parts, bool *damaged) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    const gd_status status = gd_state_load_checked(path, parts, "callback.", damaged);
    gd_scope_close(&scope);
    return gd_attempt_end(&attempt, status);
}

/* Loads the newest undamaged checkpoint; the message of a failure names the newest one. */
static gd_status load_newest(const char *folder, const int64_t *steps, int count,
                             gd_state_parts parts, gd_restored *restored) {
    char first[GD_MESSAGE_MAX] = "";
    gd_status status = GD_OK;
    bool damaged = true;
    for (int i = 0; i < count && damaged; i++) {
        char *path = gd_checkpoint_path(folder, steps[i]);
        if (!path) return gd_no_memory(folder, "to resume");
        restored->step = steps[i];
        snprintf(restored->path, sizeof restored->path, "%s", path);
        status = load_checkpoint(path, parts, &damaged);
        gd_free(path);
        if (!damaged) break;
        restored->damaged++;
        gd_notice(GD_LOG_WARNING, "skipping a damaged checkpoint: %s", gd_latest_failure());
        if (!*first) snprintf(first, sizeof first, "%s", gd_latest_failure());
    }
    restored->found = status == GD_OK;
    if (status == GD_OK || !damaged) return status;
    return gd_fail(GD_E_FORMAT, "%s: cannot resume: all %d checkpoints are damaged; the newest: %s",
                   folder, count, first);
}

gd_status gd_checkpoint_restore(const char *folder, gd_state_parts parts, gd_restored *restored) {
    int64_t *steps;
    int count;
    *restored = (gd_restored){0};
    GD_TRY(gd_checkpoint_steps(folder, &steps, &count));
    const gd_status status = count ? load_newest(folder, steps, count, parts, restored) : GD_OK;
    gd_free(steps);
    if (status == GD_OK && restored->found)
        gd_notice(GD_LOG_INFO, "resumed from step %lld: %s", (long long)restored->step,
                  restored->path);
    return status;
}

#include "train/checkpoint.gen.h"
