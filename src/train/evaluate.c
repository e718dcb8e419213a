/* evaluate.c - loss and metrics without training: gd_evaluate, and the validation of gd_fit. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/number.h"
#include "gradus/autograd.h"
#include "train/loss.h"
#include "train/run.h"

/* The traced function. */
static gd_tensors evaluate_batch(gd_tensors batch, void *user) {
    gd_batches *b = user;
    gd_batch_result result;
    GD_NO_GRAD;
    gd_status status = gd_batches_forward(b, batch, &result);
    if (status == GD_OK) status = gd_batches_add(b, &result);
    if (status != GD_OK) gd_report(NULL, status);
    return (gd_tensors){NULL, 0};
}

/* One pass over all batches. */
typedef struct pass {
    gd_batches *batches;
    gd_progress_writer *progress;
    gd_progress_numbers shown;
    const gd_interrupt *interrupt; /* NULL: ignored */
    int64_t samples;
} pass;

static void show_progress(pass *p, int64_t batch, double began) {
    const double now = gd_progress_clock();
    if (p->progress->mode != GD_PROGRESS_BAR || !gd_progress_due(p->progress, now)) return;
    p->shown.batch = batch;
    p->shown.seconds = now - began;
    p->shown.rate = (double)p->samples / (now - began);
    p->shown.left =
        (double)(p->shown.batches - batch) * (now - began) / (double)(batch ? batch : 1);
    gd_progress_draw(p->progress, &p->shown, now);
}

/* Runs all batches of an epoch. */
static gd_status run_batches(pass *p, bool *complete) {
    gd_batches *b = p->batches;
    const gd_batch_call call = {.fn = evaluate_batch, .user = b};
    const double began = gd_progress_clock();
    gd_status status = gd_batches_reset(b);
    *complete = true;
    p->shown.batches = gd_loader_batches(b->loader);
    for (int64_t n = 0; status == GD_OK; n++) {
        gd_tensors batch;
        gd_scope *scope = gd_scope_open();
        const bool more = gd_batches_next(b, &batch, &status);
        if (more) status = gd_batches_call(b, &call, batch, NULL);
        if (more) p->samples += gd_batch_samples(batch);
        gd_scope_close(&scope);
        if (!more) break;
        if (p->interrupt && gd_interrupted(p->interrupt)) {
            *complete = false;
            break;
        }
        show_progress(p, n + 1, began);
        if (p->progress->status != GD_OK) status = p->progress->status;
    }
    p->shown.seconds = gd_progress_clock() - began;
    return status;
}

/* Samples without a loss, or with weights that are all 0, have none. */
static bool has_nonfinite_loss(const gd_batches *b, double loss) {
    double weight = 0;
    if (isfinite(loss) || (!b->training->loss && !b->training->loss_function)) return false;
    return gd_copy_out(b->weight_sum, &weight, sizeof weight) == GD_OK && weight > 0;
}

/* --- validation ------------------------------------------------------------------------------- */

static gd_status read_values(gd_fit_run *r) {
    double *read = gd_malloc((size_t)r->n_val * sizeof *read);
    if (!read) return gd_no_memory(NULL, "for the values of a run");
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    const gd_status status = gd_batches_read(&r->validation, read);
    gd_scope_close(&scope);
    for (int i = 0; i < r->n_val && status == GD_OK; i++) r->values[r->n_train + i].value = read[i];
    if (status == GD_OK && !r->said_val_nan && has_nonfinite_loss(&r->validation, read[0])) {
        r->said_val_nan = true; /* once in a run */
        gd_notice(GD_LOG_WARNING, "%s: epoch %lld: the loss is %g", r->validation.what,
                  (long long)r->event.epoch + 1, gd_shown_number(read[0]));
    }
    gd_free(read);
    return gd_attempt_end(&attempt, status);
}

/* Starts at the first batch of an epoch, also after an interrupted pass. */
static gd_status rewind_loader(gd_loader *loader) {
    const gd_loader_position at = gd_loader_tell(loader);
    return at.batch == 0 ? GD_OK : gd_loader_seek(loader, ((gd_loader_position){at.epoch, 0}));
}

gd_status gd_run_compile_validation(gd_fit_run *r) {
    return gd_batches_compile(&r->validation, evaluate_batch, &r->validation);
}

gd_status gd_run_validate(gd_fit_run *r, bool *complete) {
    gd_saved_modes modes = {.count = 0};
    pass p = {.batches = &r->validation,
              .progress = &r->progress,
              .shown = {.what = "validate"},
              .interrupt = &r->interrupt};
    GD_TRY(rewind_loader(r->validation.loader));
    GD_TRY(gd_saved_modes_save(&modes, r->net));
    gd_saved_modes_set(&modes, 0);
    gd_status status = run_batches(&p, complete);
    gd_saved_modes_restore(&modes);
    if (status == GD_OK && *complete) status = read_values(r);
    if (status == GD_OK && !*complete) status = rewind_loader(r->validation.loader);
    if (status != GD_OK && !strstr(gd_latest_failure(), r->validation.what))
        gd_error_prefix("%s: ", r->validation.what);
    return status;
}

/* --- gd_evaluate ------------------------------------------------------------------------------ */

static gd_status fill_row(gd_batches *b, gd_history *h) {
    char text[GD_METRIC_UNIQUE];
    double *read = gd_malloc((size_t)(1 + b->n_metrics) * sizeof *read);
    if (!read) return gd_no_memory(NULL, "for the values of a run");
    gd_status status = gd_batches_read(b, read);
    if (status == GD_OK) status = gd_history_add_row(h);
    for (int i = 0; i <= b->n_scalars && status == GD_OK; i++) {
        const int column =
            gd_history_column(h, i ? gd_metric_unique_name(b->metrics, i - 1, text) : "loss");
        if (column < 0) status = GD_E_MEMORY;
        else gd_history_set(h, column, read[i]);
    }
    if (status == GD_OK && has_nonfinite_loss(b, read[0]))
        gd_notice(GD_LOG_WARNING, "%s: the loss is %g", b->what, gd_shown_number(read[0]));
    gd_free(read);
    return status;
}

static void finish_progress(pass *p, const gd_history *h) {
    gd_progress_value *values = gd_calloc((size_t)h->n_columns + 1, sizeof *values);
    if (!values) return;
    for (int i = 0; i < h->n_columns; i++)
        values[i] = (gd_progress_value){h->names[i], h->values[i]};
    p->shown.values = values;
    p->shown.n_values = h->n_columns;
    p->shown.rate = p->shown.seconds > 0 ? (double)p->samples / p->shown.seconds : (double)NAN;
    gd_progress_done(p->progress, &p->shown, gd_progress_clock());
    gd_free(values);
}

static gd_status evaluate_data(gd_batches *b, const gd_evaluate_options *o, gd_history *h) {
    gd_progress_writer writer;
    gd_saved_modes modes = {.count = 0};
    GD_TRY(gd_progress_check(o->progress_receiver, "gd_evaluate"));
    gd_progress_begin(&writer, o->progress, o->progress_receiver);
    pass p = {.batches = b, .progress = &writer, .shown = {.what = "evaluate"}};
    if (!b->training->loss && !b->training->loss_function && b->n_metrics == 0)
        return gd_fail(GD_E_STATE,
                       "gd_evaluate: the net was compiled without a loss and without metrics");
    if (b->n_weights) GD_TRY(gd_check_weights(b->training, "gd_evaluate", NULL));
    if (o->jit) GD_TRY(gd_batches_compile(b, evaluate_batch, b));
    GD_TRY(rewind_loader(b->loader));
    GD_TRY(gd_saved_modes_save(&modes, b->net));
    gd_saved_modes_set(&modes, 0);
    bool complete;
    gd_status status = run_batches(&p, &complete);
    gd_saved_modes_restore(&modes);
    if (status == GD_OK) status = fill_row(b, h);
    if (status == GD_OK) finish_progress(&p, h);
    gd_progress_end(&writer);
    return status == GD_OK ? writer.status : status;
}

static gd_status begin_evaluation(gd_module *net, gd_fit_data data, const gd_evaluate_options *o,
                                  gd_history **h) {
    gd_training *t;
    gd_loader *loader;
    const gd_batching loading = {
        .function = "gd_evaluate", .batch = o->batch, .workers = o->workers, .targets = 1};
    GD_TRY(gd_training_get(net, "gd_evaluate", &t));
    GD_TRY(gd_loader_for(data, &loading, &loader));
    gd_batches b;
    gd_status status = gd_batches_begin(&b, "gd_evaluate", net, t, loader, false);
    gd_release(loader);
    if (status == GD_OK && !(*h = gd_history_bare())) status = GD_E_MEMORY;
    if (status == GD_OK) status = evaluate_data(&b, o, *h);
    gd_batches_end(&b);
    return status;
}

gd_history *gd_evaluate_at(const char *site, gd_module *net, gd_fit_data data,
                           const gd_evaluate_options *options) {
    GD_LIVE_AT(site, net);
    options = options ? options : GD_EVALUATE_OPTIONS_();
    if (gd_failed()) return NULL;
    GD_CALLED_FROM(site);
    gd_history *h = NULL;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = begin_evaluation(net, data, options, &h);
    gd_scope_close(&scope);
    return gd_history_finish(site, h, gd_attempt_end(&attempt, status));
}
