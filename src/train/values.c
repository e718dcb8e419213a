/* values.c - the values of a run by name ("loss", "val_accuracy", "lr"), for histories, callbacks
 * and progress. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/number.h"
#include "train/run.h"

int64_t gd_run_epoch_batches(const gd_fit_run *r) {
    const int64_t steps = r->options->steps_per_epoch;
    return steps > 0 ? steps : gd_loader_batches(r->train.loader);
}

int gd_run_find(const gd_fit_run *r, const char *name) {
    for (int i = 0; i < r->n_values; i++)
        if (strcmp(r->values[i].name, name) == 0) return i;
    return -1;
}

static void add_value(gd_fit_run *r, const char *prefix, const char *name) {
    gd_run_value *v = &r->values[r->n_values++];
    v->value = (double)NAN;
    snprintf(v->name, sizeof v->name, "%s%s", prefix, name);
}

/* Adds "loss", then the metrics; validation has the prefix "val_". Returns the number of values. */
static int add_loss_and_metrics(gd_fit_run *r, const gd_batches *b, const char *prefix) {
    const int first = r->n_values;
    char text[GD_METRIC_UNIQUE];
    add_value(r, prefix, "loss");
    for (int i = 0; i < b->n_scalars; i++)
        add_value(r, prefix, gd_metric_unique_name(b->metrics, i, text));
    return r->n_values - first;
}

gd_status gd_run_name_values(gd_fit_run *r) {
    const size_t most = 4 + (size_t)r->train.n_metrics + (size_t)r->validation.n_metrics;
    r->values = gd_calloc(most, sizeof *r->values);
    if (!r->values) return gd_no_memory(NULL, "for the values of a run");
    r->n_train = add_loss_and_metrics(r, &r->train, "");
    if (r->validates) r->n_val = add_loss_and_metrics(r, &r->validation, "val_");
    r->lr_at = r->n_values;
    if (r->training->optimizer) add_value(r, "", "lr");
    else r->lr_at = -1;
    r->seconds_at = r->n_values;
    add_value(r, "", "seconds");
    for (int i = 0; i < r->n_values; i++)
        if (gd_history_column(r->history, r->values[i].name) < 0) return GD_E_MEMORY;
    return GD_OK;
}

/* Once in a run; with stop_on_nan the run fails instead. */
static void log_nonfinite_loss(gd_fit_run *r) {
    const double loss = r->values[0].value;
    if (r->said_nan || isfinite(loss) || r->step == 0) return;
    if (!r->training->loss && !r->training->loss_function && !r->options->step) return;
    r->said_nan = true;
    gd_notice(GD_LOG_WARNING,
              "gd_fit: epoch %lld, step %lld: the loss is %g; the callback gd_stop_on_nan ends a "
              "run at the first such step and names the layer",
              (long long)r->event.epoch + 1, (long long)r->step, gd_shown_number(loss));
}

gd_status gd_run_read(gd_fit_run *r) {
    double *read = gd_malloc((size_t)(1 + r->train.n_metrics) * sizeof *read);
    if (!read) return gd_no_memory(NULL, "for the values of a run");
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = r->fresh ? GD_OK : gd_batches_read(&r->train, read);
    for (int i = 0; !r->fresh && i < r->n_train && status == GD_OK; i++)
        r->values[i].value = read[i];
    if (!r->fresh && status == GD_OK) log_nonfinite_loss(r);
    r->fresh |= status == GD_OK;
    /* always read: callbacks may change the rate between batches */
    if (r->lr_at >= 0 && status == GD_OK)
        r->values[r->lr_at].value = gd_item(gd_optimizer_lr(r->training->optimizer));
    gd_scope_close(&scope);
    gd_free(read);
    if (r->event.kind != GD_ON_EPOCH_END) /* there the clock of the next epoch already runs */
        r->values[r->seconds_at].value = r->seconds + gd_progress_clock() - r->began;
    return gd_attempt_end(&attempt, status);
}

/* --- gd_event_source: what callbacks read from an event --------------------------------------- */

static double event_value(gd_event *event, const char *name) {
    gd_fit_run *r = event->run;
    const int i = gd_run_find(r, name);
    if (i < 0) return (double)NAN;
    const bool validation = i >= r->n_train && i < r->n_train + r->n_val;
    if (!validation) {
        const gd_status status = gd_run_read(r);
        if (status != GD_OK) gd_report(NULL, status);
    }
    return r->values[i].value;
}

static const char *event_name_at(gd_event *event, int index) {
    const gd_fit_run *r = event->run;
    return index < r->n_values ? r->values[index].name : NULL;
}

static void event_stop(gd_event *event, const char *reason) {
    gd_fit_run *r = event->run;
    event->stopping = true;
    if (r->stopped && *r->stopped) return;
    char *copy = gd_malloc(strlen(reason) + 1);
    if (copy) {
        gd_free(r->stopped);
        r->stopped = strcpy(copy, *reason ? reason : "a callback");
    }
}

static void event_say(gd_event *event, const char *text) {
    gd_progress_say(&event->run->progress, text);
}

/* The inputs of the batch that has just ended; the loader keeps them until the next batch. */
static gd_tensors event_inputs(gd_event *event) {
    gd_fit_run *r = event->run;
    gd_tensors list = {NULL, 0};
    if (r->current.count > 0 && gd_batch_inputs(&r->train, r->current, &list) != GD_OK)
        list.count = 0;
    return list;
}

const gd_event_source gd_run_source = {event_value, event_name_at, event_stop, event_say,
                                       event_inputs};
