/* run_state.c - the state of a run that checkpoints save, and how a resumed run restores it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/device.h"
#include "core/state_fields.h"
#include "gradus/autograd.h"
#include "gradus/random.h"
#include "train/checkpoint_files.h"
#include "train/run.h"

static gd_fit_run *run_of(gd_object *object) {
    return (gd_fit_run *)((char *)object - offsetof(gd_fit_run, state));
}

/* --- the run's own state ---------------------------------------------------------------------- */

static const gd_state_field run_fields[] = {
    {"epoch", GD_FIELD_INTEGER, offsetof(gd_fit_run, epoch)},
    {"batch", GD_FIELD_INTEGER, offsetof(gd_fit_run, batch)},
    {"step", GD_FIELD_INTEGER, offsetof(gd_fit_run, step)},
    {"ended", GD_FIELD_INTEGER, offsetof(gd_fit_run, ended)},
    {"partial", GD_FIELD_INTEGER, offsetof(gd_fit_run, partial)},
    {"group_done", GD_FIELD_INTEGER, offsetof(gd_fit_run, group_done)},
    {"group_size", GD_FIELD_INTEGER, offsetof(gd_fit_run, group_size)},
    {"seconds", GD_FIELD_FLOAT, offsetof(gd_fit_run, seconds)},
    {"stopped", GD_FIELD_TEXT, offsetof(gd_fit_run, stopped)},
    {"loss_sum", GD_FIELD_TENSOR, offsetof(gd_fit_run, train.loss_sum)},
    {"weight_sum", GD_FIELD_TENSOR, offsetof(gd_fit_run, train.weight_sum)},
};
enum { RUN_FIELDS = sizeof run_fields / sizeof *run_fields };

/* The gradients of an incomplete group. */
static gd_status save_grads(gd_fit_run *r, gd_state *state) {
    for (int64_t i = 0; i < r->parameters.count; i++) {
        gd_tensor *g = gd_tensor_grad(r->parameters.at[i]);
        const char *name =
            g ? gd_state_name_for(state, r->parameters.at[i], NULL, i, "grad") : NULL;
        if (g && !name) return gd_failure();
        if (g) GD_TRY(gd_state_put_tensor(state, name, g));
    }
    return GD_OK;
}

static gd_status save_run_state(gd_object *object, gd_state *state) {
    gd_fit_run *r = run_of(object);
    const double before = r->seconds;
    r->seconds = before + gd_progress_clock() - r->began; /* saved: up to now */
    const gd_status status = gd_state_put_fields(state, r, run_fields, RUN_FIELDS);
    r->seconds = before;
    return status == GD_OK && r->group_done > 0 ? save_grads(r, state) : status;
}

/* Loaded gradients replace those of the parameters only when the entire load has succeeded. */
typedef struct loaded_grads {
    gd_fit_run *run;
    gd_tensor *at[]; /* one for each parameter, retained; NULL: none */
} loaded_grads;

static void adopt_grads(void *user, bool loaded) {
    loaded_grads *g = user;
    gd_scope *scope = gd_scope_open();
    for (int64_t i = 0; i < g->run->parameters.count; i++) {
        if (loaded) gd_set_grad(g->run->parameters.at[i], g->at[i]);
        gd_release(g->at[i]);
    }
    gd_scope_close(&scope);
    gd_free(g);
}

static gd_status load_grads(loaded_grads *g, gd_loading *in) {
    const gd_tensors parameters = g->run->parameters;
    for (int64_t i = 0; i < parameters.count; i++) {
        const gd_tensor *p = parameters.at[i];
        const char *name = gd_loading_name_for(in, p, NULL, i, "grad");
        if (!name) return gd_failure();
        if (!gd_loading_has(in, name)) continue;
        g->at[i] = gd_retain(gd_tensor_new(p->device, (gd_dtype)p->dtype, p->rank, p->dims));
        if (!g->at[i]) return gd_failure();
        GD_TRY(gd_loading_tensor(in, name, g->at[i]));
    }
    return GD_OK;
}

static gd_status load_run_state(gd_object *object, gd_loading *in) {
    gd_fit_run *r = run_of(object);
    GD_TRY(gd_loading_fields(in, r, run_fields, RUN_FIELDS));
    loaded_grads *g = gd_calloc(1, sizeof *g + (size_t)r->parameters.count * sizeof *g->at);
    if (!g) return gd_no_memory(NULL, "for gradients");
    g->run = r;
    gd_scope *scope = gd_scope_open();
    const gd_status status = load_grads(g, in);
    gd_scope_close(&scope);
    if (status != GD_OK) {
        adopt_grads(g, false);
        return status;
    }
    return gd_loading_when_done(in, adopt_grads, g);
}

static const gd_state_rules run_state_rules = {save_run_state, load_run_state};
static void destroy_nothing(gd_object *object) { (void)object; }
static const gd_class run_class = {
    .name = "run", .destroy = destroy_nothing, .state = &run_state_rules};

/* The object is embedded in the run and never freed separately. */
void gd_run_state_init(gd_fit_run *r) {
    gd_object_init(&r->state, &run_class);
    atomic_init(&r->state.refs, GD_IMMORTAL);
}

/* --- the parts of a checkpoint ---------------------------------------------------------------- */

/* `format` has one number and one string, both optional: "metric.%d.%.40s". Ignores NULL. */
static gd_status add_part(gd_fit_run *r, int *n, void *object, const char *format, int number,
                          const char *name) {
    if (!object) return GD_OK;
    if (*n == GD_FIT_PARTS)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "the run has too many metrics and callbacks: a checkpoint holds at most %d parts",
            GD_FIT_PARTS);
    snprintf(r->part_names[*n], sizeof r->part_names[*n], format, number, name);
    r->parts[*n] = (gd_state_part){r->part_names[*n], object};
    ++*n;
    return GD_OK;
}

/* The name is the type, "callback.early_stopping", "callback.early_stopping_2": a resumed run may
 * add and remove callbacks of other types. */
static gd_status add_callback(gd_fit_run *r, int *n, gd_callback_list list, int index) {
    const char *type = list.at[index]->type;
    int number = 1;
    for (int i = 0; i < index; i++) number += strcmp(list.at[i]->type, type) == 0;
    if (number == 1) return add_part(r, n, list.at[index], "callback.%.0d%.40s", 0, type);
    char name[60];
    snprintf(name, sizeof name, "%.40s_%d", type, number);
    return add_part(r, n, list.at[index], "callback.%.0d%.50s", 0, name);
}

gd_status gd_fit_parts(gd_event *event, gd_state_part parts[GD_FIT_PARTS], int *count) {
    gd_fit_run *r = event->run;
    const gd_callback_list callbacks = r->options->callbacks;
    int n = 0;
    GD_TRY(add_part(r, &n, r->net, "net", 0, ""));
    GD_TRY(add_part(r, &n, r->training->optimizer, "optimizer", 0, ""));
    GD_TRY(add_part(r, &n, r->training->schedule, "schedule", 0, ""));
    GD_TRY(add_part(r, &n, r->training->scale, "loss_scale", 0, ""));
    GD_TRY(add_part(r, &n, gd_generator(), "generator", 0, ""));
    GD_TRY(add_part(r, &n, r->train.loader, "loader", 0, ""));
    GD_TRY(add_part(r, &n, r->validation.loader, "validation", 0, ""));
    for (int i = 0; i < r->train.n_metrics; i++)
        GD_TRY(add_part(r, &n, r->train.metrics[i], "metric.%d.%.40s", i,
                        r->train.metrics[i]->factory->record.name));
    GD_TRY(add_part(r, &n, r->history, "history", 0, ""));
    for (int i = 0; i < callbacks.count; i++) GD_TRY(add_callback(r, &n, callbacks, i));
    GD_TRY(add_part(r, &n, &r->state, "run", 0, ""));
    memcpy(parts, r->parts, (size_t)n * sizeof *parts);
    *count = n;
    return GD_OK;
}

/* If the last row of the history is of an incomplete epoch, it is removed and written again when
 * the epoch ends. The values of the last validation are in the row before. A run that has taken its
 * .max_steps keeps its row. */
void gd_run_resumed(gd_fit_run *r) {
    const int64_t most = r->options->max_steps;
    const bool complete = most > 0 && r->step >= most;
    for (int i = 0; i < r->n_values; i++)
        r->values[i].value = gd_history_value(r->history, r->values[i].name, r->partial ? -2 : -1);
    if (r->partial && r->history->n_rows > 0 && !complete) r->history->n_rows--;
    if (!complete) r->partial = 0;
    r->fresh = false;
    r->restored = true;
}

bool gd_fit_has_resume(const gd_event *event) {
    const gd_fit_run *r = event->run;
    return r->options->resume != NULL;
}

bool gd_fit_resumed_from(const gd_event *event, const char *folder) {
    const gd_fit_run *r = event->run;
    return r->restored && gd_checkpoint_same_folder(r->options->resume, folder);
}

void gd_fit_begin_at(gd_event *event, int64_t step) {
    gd_fit_run *r = event->run;
    const int64_t batches = gd_run_epoch_batches(r);
    r->step = event->step = step;
    r->epoch = batches > 0 ? step / batches : 0;
    r->batch = batches > 0 ? step % batches : step;
    event->epoch = r->epoch;
}

bool gd_fit_is_interrupted(const gd_event *event) {
    const gd_fit_run *r = event->run;
    return r->interrupted || gd_interrupted(&r->interrupt) != NULL;
}
