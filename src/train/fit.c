/* fit.c - gd_fit: the loop over epochs and batches. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/number.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "optim/schedule.h"
#include "train/loss.h"
#include "train/run.h"

/* --- events ----------------------------------------------------------------------------------- */

/* A callback may have replaced a layer: the optimizer must still be that of the net. */
static gd_status check_optimizer(gd_fit_run *r) {
    const unsigned now = gd_module_changes();
    if (now == r->seen || !r->training->optimizer) return GD_OK;
    r->seen = now;
    const gd_status status = gd_optimizer_check_within(r->training->optimizer, r->net);
    if (status != GD_OK) gd_error_prefix("gd_fit: after a callback: ");
    return status;
}

static gd_status call_callbacks(gd_fit_run *r, gd_event_kind kind) {
    gd_event *e = &r->event;
    e->kind = kind;
    e->optimizer = r->training->optimizer;
    e->history = r->history;
    e->batches = gd_run_epoch_batches(r);
    e->step = r->step;
    e->stopping = r->interrupted || *r->stopped;
    GD_TRY(gd_callbacks_call(r->options->callbacks, e));
    return check_optimizer(r);
}

/* --- progress --------------------------------------------------------------------------------- */

static void fill_progress(gd_fit_run *r, gd_progress_numbers *n, double now) {
    *n = (gd_progress_numbers){.what = "epoch",
                               .epoch = r->event.epoch + 1,
                               .epochs = r->epochs,
                               .batch = r->batch,
                               .batches = gd_run_epoch_batches(r),
                               .rate = (double)NAN,
                               .left = (double)NAN,
                               .seconds = r->seconds + now - r->began};
    const double since = now - r->first_done;
    const int64_t batches = r->batch - r->first_batch, samples = r->samples - r->first_samples;
    if (batches > 0 && since > 0) n->rate = (double)samples / since;
    if (batches > 0 && n->batches > 0)
        n->left = (double)(n->batches - r->batch) * since / (double)batches;
    if (batches == 0 && now > r->began && r->samples > 0)
        n->rate = (double)r->samples / (now - r->began);
}

/* Shows the values of training, and after an epoch those of validation. */
static gd_status show_values(gd_fit_run *r, bool done, double now) {
    gd_progress_numbers n;
    gd_progress_value values[64];
    const int most = done ? r->n_train + r->n_val : r->n_train;
    fill_progress(r, &n, now);
    for (int i = 0; i < most && n.n_values < 64; i++)
        if (!(done && isnan(r->values[i].value) && i >= r->n_train)) /* not validated */
            values[n.n_values++] = (gd_progress_value){r->values[i].name, r->values[i].value};
    n.values = values;
    if (done) gd_progress_done(&r->progress, &n, now);
    else gd_progress_draw(&r->progress, &n, now);
    return r->progress.status;
}

static gd_status show_batch(gd_fit_run *r) {
    const double now = gd_progress_clock();
    if (r->first_batch < 0) { /* the first batch is traced; rates are measured after it */
        r->first_batch = r->batch;
        r->first_samples = r->samples;
        r->first_done = now;
    }
    if (!gd_progress_due(&r->progress, now)) return r->progress.status; /* of a callback's text */
    GD_TRY(gd_run_read(r));
    return show_values(r, false, now);
}

/* --- an epoch --------------------------------------------------------------------------------- */

static bool has_reached_max_steps(const gd_fit_run *r) {
    return r->options->max_steps > 0 && r->step >= r->options->max_steps;
}

/* Whether the run stops before the next batch. */
static bool must_stop(gd_fit_run *r) {
    if (!r->interrupted) r->interrupted = gd_interrupted(&r->interrupt);
    return r->interrupted || *r->stopped || has_reached_max_steps(r);
}

static gd_status run_batch(gd_fit_run *r, bool *more) {
    gd_tensors batch;
    gd_status status;
    gd_scope *scope = gd_scope_open();
    *more = gd_batches_next(&r->train, &batch, &status);
    if (*more) status = gd_run_step(r, batch);
    if (*more && status == GD_OK) {
        r->event.batch = r->batch++;
        r->step++;
        r->samples += gd_batch_samples(batch);
        r->fresh = false;
        r->current = batch;
        status = call_callbacks(r, GD_ON_BATCH_END);
        r->current.count = 0;
    }
    gd_scope_close(&scope);
    return status;
}

/* With .steps_per_epoch the end of the loader's epoch does not end one of the run: *more is false
 * only if the next one of the loader has no batches, either. */
static gd_status run_next_batch(gd_fit_run *r, bool *more) {
    GD_TRY(run_batch(r, more));
    return *more || r->options->steps_per_epoch == 0 ? GD_OK : run_batch(r, more);
}

static gd_status run_batches(gd_fit_run *r) {
    const int64_t batches = gd_run_epoch_batches(r), steps = r->options->steps_per_epoch;
    for (bool more = true; !r->ended;) {
        if (!(batches > 0 && r->batch >= batches) && must_stop(r)) return GD_OK;
        if (steps > 0 && r->batch >= steps) more = false;
        else GD_TRY(run_next_batch(r, &more));
        if (!more) {
            r->ended = 1;
            break;
        }
        GD_TRY(show_batch(r));
    }
    if (r->batch == 0) return gd_fail(GD_E_ARGUMENT, "gd_fit: there are no batches in an epoch");
    return gd_run_finish_group(r);
}

/* Adds a row to the history, with the values of validation if it ran. */
static gd_status add_row(gd_fit_run *r, bool validated) {
    GD_TRY(gd_run_read(r));
    GD_TRY(gd_history_add_row(r->history));
    for (int i = 0; i < r->n_values; i++) {
        const bool validation = i >= r->n_train && i < r->n_train + r->n_val;
        gd_history_set(r->history, gd_history_find(r->history, r->values[i].name),
                       validation && !validated ? (double)NAN : r->values[i].value);
    }
    return GD_OK;
}

/* Ends an epoch: validation, history, callbacks. An interrupted epoch has a row without validation;
 * one that max_steps ended counts as complete. */
static gd_status end_epoch(gd_fit_run *r) {
    const bool planned = r->ended || (has_reached_max_steps(r) && !r->interrupted && !*r->stopped);
    bool complete = false;
    if (r->batch == 0 && !r->ended) return GD_OK;
    GD_TRY(gd_run_read(r)); /* before validation, so that its time does not count */
    if (!r->interrupted) r->interrupted = gd_interrupted(&r->interrupt);
    if (planned && r->validates && !r->interrupted) {
        GD_TRY(gd_run_validate(r, &complete));
        if (!complete) r->interrupted = gd_interrupted(&r->interrupt);
    } else if (planned && !r->validates) {
        complete = true;
    }
    for (int i = 0; !complete && i < r->n_val; i++) r->values[r->n_train + i].value = (double)NAN;
    GD_TRY(add_row(r, complete));
    GD_TRY(show_values(r, true, gd_progress_clock()));
    r->partial = !(r->ended && complete);
    if (!r->partial) { /* a checkpoint of this event continues with the next epoch */
        r->epoch++;
        r->batch = r->ended = 0;
        r->seconds = 0;
        r->began = gd_progress_clock();
    }
    return planned && complete ? call_callbacks(r, GD_ON_EPOCH_END) : GD_OK;
}

static gd_status begin_epoch(gd_fit_run *r) {
    r->event.epoch = r->epoch;
    r->event.batch = r->batch;
    r->began = gd_progress_clock();
    r->samples = 0;
    r->first_batch = -1;
    r->fresh = false;
    if (r->batch > 0 || r->ended) return GD_OK; /* resumed inside the epoch */
    r->seconds = 0;
    GD_TRY(gd_batches_reset(&r->train));
    return call_callbacks(r, GD_ON_EPOCH_BEGIN);
}

/* A callback may unfreeze layers at the beginning; a .step, at any time. */
static gd_status check_frozen(const gd_fit_run *r) {
    const gd_optimizer *o = r->training->optimizer;
    if (!o || r->options->step || !gd_optimizer_is_frozen(o)) return GD_OK;
    return gd_fail(GD_E_STATE,
                   "gd_fit: all parameters of the optimizer are frozen, so nothing would "
                   "be trained; see gd_module_unfreeze");
}

static gd_status run_epochs(gd_fit_run *r) {
    for (bool first = true; (r->epochs == 0 || r->epoch < r->epochs) && (r->ended || !must_stop(r));
         first = false) {
        GD_TRY(begin_epoch(r));
        if (first) GD_TRY(check_frozen(r));
        GD_TRY(run_batches(r));
        GD_TRY(end_epoch(r));
        if (r->partial) break;
    }
    return GD_OK;
}

/* --- beginning -------------------------------------------------------------------------------- */

static gd_status check_options(const gd_fit_options *o) {
    GD_TRY(gd_progress_check(o->progress_receiver, "gd_fit"));
    if (o->epochs < 0)
        return gd_fail(GD_E_ARGUMENT, "gd_fit: epochs is %lld; it must not be negative",
                       (long long)o->epochs);
    if (o->max_steps < 0)
        return gd_fail(GD_E_ARGUMENT, "gd_fit: max_steps is %lld; it must not be negative",
                       (long long)o->max_steps);
    if (o->steps_per_epoch < 0)
        return gd_fail(GD_E_ARGUMENT, "gd_fit: steps_per_epoch is %lld; it must not be negative",
                       (long long)o->steps_per_epoch);
    if (!(o->validation_split >= 0 && o->validation_split < 1))
        return gd_fail(GD_E_ARGUMENT, "gd_fit: validation_split is %g; it must be in [0, 1)",
                       o->validation_split);
    GD_TRY(gd_check_list_option(o->validation_tensors.at, o->validation_tensors.count,
                                "gd_fit: .validation_tensors",
                                "gd_list(x, y), or gd_list_of(array, 2)"));
    GD_TRY(gd_check_list_option(o->callbacks.at, o->callbacks.count, "gd_fit: .callbacks",
                                "gd_callbacks(a, b), or ((gd_callback_list){array, 2})"));
    const int validations =
        !!o->validation + (o->validation_tensors.count > 0) + (o->validation_split > 0);
    if (validations > 1)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_fit: there are %d sources of validation; set one of .validation, "
                       ".validation_tensors, .validation_split",
                       validations);
    for (int64_t i = 0; i < o->callbacks.count; i++) {
        GD_TRY_LIVE(o->callbacks.at[i], "gd_fit");
        if (!o->callbacks.at[i])
            return gd_failed()
                       ? gd_failure()
                       : gd_fail(GD_E_ARGUMENT, "gd_fit: callback %lld is NULL", (long long)i);
    }
    return GD_OK;
}

/* .validation is a loader or a dataset. */
static gd_status find_validation(const void *object, gd_fit_data *data) {
    if (!object) return GD_OK;
    if (!gd_is_object(object))
        return gd_fail(GD_E_ARGUMENT,
                       "gd_fit: .validation is neither a loader nor a dataset, but perhaps an "
                       "array or a text; tensors are .validation_tensors = gd_list(x, y)");
    GD_TRY_LIVE(object, "gd_fit");
    if (gd_is_loader(object)) data->loader = (gd_loader *)(uintptr_t)object;
    else if (gd_is_dataset(object)) data->dataset = (gd_dataset *)(uintptr_t)object;
    else {
        char name[60];
        return gd_fail(GD_E_ARGUMENT,
                       "gd_fit: .validation is %s; it takes a loader or a dataset, and "
                       ".validation_tensors a list of tensors, gd_list(x, y)",
                       gd_class_text(((const gd_object *)object)->class, name, sizeof name));
    }
    return GD_OK;
}

/* Holds out a part of the samples for validation. */
static gd_status split_data(gd_fit_data *data, const gd_fit_options *o, gd_fit_data *kept) {
    gd_dataset *all = data->dataset, *train = NULL, *rest = NULL;
    if (data->loader)
        return gd_fail(
            GD_E_ARGUMENT,
            "gd_fit: validation_split needs tensors or a dataset; split the dataset of a loader "
            "with gd_dataset_random_split");
    if (!all && !(all = gd_dataset_tensors_at(NULL, data->tensors))) return gd_failure();
    GD_TRY(gd_dataset_random_split(all, 1 - o->validation_split, &train, &rest, .seed = o->seed));
    if (gd_dataset_count(train) == 0 || gd_dataset_count(rest) == 0)
        return gd_fail(
            GD_E_ARGUMENT,
            "gd_fit: validation_split = %g of %lld samples leaves %lld to train with and %lld to "
            "validate",
            o->validation_split, (long long)gd_dataset_count(all),
            (long long)gd_dataset_count(train), (long long)gd_dataset_count(rest));
    *data = (gd_fit_data){.dataset = train};
    *kept = (gd_fit_data){.dataset = rest};
    return GD_OK;
}

static gd_status open_loaders(gd_fit_run *r, gd_fit_data data, gd_loader **train,
                              gd_loader **validation) {
    const gd_fit_options *o = r->options;
    const int targets = data.loader || data.dataset || data.tensors.count > 1 ? 1 : 0;
    gd_fit_data kept = {.loader = NULL};
    if (o->validation_tensors.count > 0) kept.tensors = o->validation_tensors;
    GD_TRY(find_validation(o->validation, &kept));
    gd_batching loading = {.function = "gd_fit",
                           .batch = o->batch,
                           .shuffle = o->shuffle,
                           .workers = o->workers,
                           .seed = o->seed,
                           .targets = targets};
    if (o->validation_split > 0) GD_TRY(split_data(&data, o, &kept));
    GD_TRY(gd_loader_for(data, &loading, train));
    if (!kept.loader && !kept.dataset && kept.tensors.count == 0) return GD_OK;
    loading.shuffle = false;
    r->validates = true;
    return gd_loader_for(kept, &loading, validation);
}

static gd_status check_loss(gd_fit_run *r) {
    const gd_training *t = r->training;
    const gd_fit_options *o = r->options;
    const bool loss = t->loss || t->loss_function, weights = r->train.n_weights || o->class_weights;
    if (!loss && !o->step)
        return gd_fail(GD_E_STATE, "gd_fit: the net was compiled without a loss; pass gd_compile a "
                                   ".loss or a .loss_function, or gd_fit a .step");
    if (r->validates && !loss && t->n_metrics == 0)
        return gd_fail(GD_E_STATE, "gd_fit: validation needs a loss or metrics of gd_compile; a "
                                   ".step is only for training");
    if (!t->optimizer && !t->optimizer_recipe.factory && !o->step)
        return gd_fail(GD_E_STATE,
                       "gd_fit: the net was compiled with .optimizer = NULL; that needs "
                       "a .step that updates the parameters");
    if (o->step && o->class_weights)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_fit: .class_weights are for the .loss of gd_compile; the .step computes "
                       "its own loss: multiply it there (.weight of gd_cross_entropy)");
    if (weights && !o->step) GD_TRY(gd_check_weights(t, "gd_fit", o->class_weights));
    if (r->validates && r->validation.n_weights && loss)
        GD_TRY(gd_check_weights(t, "gd_fit", NULL));
    return GD_OK;
}

/* The steps of the optimizer, if the run does not end early. */
static int64_t planned_steps(const gd_fit_run *r) {
    const int64_t batches = gd_run_epoch_batches(r), group = r->training->accumulate;
    const int64_t of_epoch = (batches + group - 1) / group, most = r->options->max_steps;
    int64_t steps = r->epochs * of_epoch;
    if (most > 0 && batches > 0) { /* complete epochs, and a partial one */
        const int64_t limit = most / batches * of_epoch + (most % batches + group - 1) / group;
        if (r->epochs == 0 || limit < steps) steps = limit;
    }
    return steps > 0 ? steps : 1;
}

/* Builds the net from the first batch, which the loader returns again. */
static gd_status prepare_net(gd_fit_run *r) {
    gd_tensors batch, inputs = {NULL, 0};
    gd_status status = GD_OK;
    gd_loader *loader = r->train.loader;
    gd_loader_position at = gd_loader_tell(loader);
    if (at.batch != 0) { /* the program has read part of this epoch */
        at = (gd_loader_position){at.epoch + 1, 0};
        GD_TRY(gd_loader_seek(loader, at));
    }
    bool built;
    GD_TRY(gd_module_is_built(r->net, &built));
    if (!built) {
        if (!gd_batches_next(&r->train, &batch, &status))
            return status != GD_OK
                       ? status
                       : gd_fail(GD_E_ARGUMENT, "gd_fit: there are no batches in an epoch");
        GD_TRY(gd_batch_inputs(&r->train, batch, &inputs));
        GD_TRY(gd_training_prepare(r->training, r->net, inputs, planned_steps(r)));
        GD_TRY(gd_loader_seek(loader, at));
    } else {
        GD_TRY(gd_training_prepare(r->training, r->net, inputs, planned_steps(r)));
    }
    r->seen = gd_module_changes();
    r->parameters = gd_module_parameters_so_far(r->net);
    gd_module_zero_grad(r->net);
    return gd_failed() ? gd_failure() : GD_OK;
}

static gd_status resume_run(gd_fit_run *r) {
    gd_state_part parts[GD_FIT_PARTS];
    gd_restored *restored;
    int count = 0;
    if (!r->options->resume) return GD_OK;
    GD_TRY(gd_fit_parts(&r->event, parts, &count));
    if (!(restored = gd_calloc(1, sizeof *restored))) return gd_no_memory(NULL, "to resume a run");
    const gd_status status =
        gd_checkpoint_restore(r->options->resume, (gd_state_parts){parts, count}, restored);
    if (status == GD_OK && restored->found) {
        char text[GD_MESSAGE_MAX];
        const int damaged = restored->damaged;
        const int length = snprintf(text, sizeof text, "resuming from step %lld of %.900s",
                                    (long long)restored->step, restored->path);
        if (damaged)
            snprintf(text + length, sizeof text - (size_t)length,
                     "; skipped %d newer ones, which are damaged", damaged);
        gd_progress_say(&r->progress, text);
        gd_run_resumed(r);
    }
    gd_free(restored);
    return status;
}

static gd_status begin_run(gd_fit_run *r, gd_fit_data data) {
    gd_loader *train = NULL, *validation = NULL;
    const gd_fit_options *o = r->options;
    GD_TRY(check_options(o));
    gd_status status = open_loaders(r, data, &train, &validation);
    if (status == GD_OK)
        status = gd_batches_begin(&r->train, "gd_fit", r->net, r->training, train, true);
    if (status == GD_OK && validation)
        status = gd_batches_begin(&r->validation, "gd_fit: validation", r->net, r->training,
                                  validation, false);
    gd_release(train);
    gd_release(validation);
    GD_TRY(status);
    if (o->step) gd_batches_drop_metrics(&r->train); /* a step function returns no outputs */
    GD_TRY(check_loss(r));
    GD_TRY(gd_batches_weigh_classes(&r->train, o->class_weights));
    GD_TRY(prepare_net(r));
    GD_TRY(gd_saved_modes_save(&r->modes, r->net));
    if (!r->net->training) gd_saved_modes_set(&r->modes, 1);
    if (o->jit) GD_TRY(gd_batches_compile(&r->train, gd_run_traced, r));
    if (o->jit && r->validates) GD_TRY(gd_run_compile_validation(r));
    if (!(r->history = gd_history_bare())) return GD_E_MEMORY;
    return gd_run_name_values(r);
}

/* --- gd_fit ----------------------------------------------------------------------------------- */

static void show_stop_reason(gd_fit_run *r) {
    char text[GD_MESSAGE_MAX];
    if (!r->interrupted && !*r->stopped) return;
    r->history->interrupted = r->interrupted != NULL;
    snprintf(r->history->stopped, sizeof r->history->stopped, "%s",
             r->interrupted ? r->interrupted : r->stopped);
    snprintf(text, sizeof text, "stopped after step %lld: %.900s", (long long)r->step,
             r->interrupted ? r->interrupted : r->stopped);
    gd_notice(GD_LOG_INFO, "gd_fit: %s", text);
    gd_progress_say(&r->progress, text);
}

/* A run after the end of its schedule trains with a constant rate, which may be 0, or with rates
 * behind the given steps, which may rise again: says so. */
static gd_status show_ended_schedule(gd_fit_run *r) {
    const gd_schedule *s = r->training->schedule;
    char text[300];
    if (!s || r->step > 0) return GD_OK;
    const bool ended = gd_schedule_has_ended(s);
    bool stays = false;
    const double passed = gd_schedule_passed(s, &stays);
    if (gd_failed() || (!ended && passed == 0)) return gd_failed() ? gd_failure() : GD_OK;
    const char *name = s->factory->record.name;
    const double lr = gd_item(gd_optimizer_lr(r->training->optimizer));
    if (ended)
        gd_snprintf(text, sizeof text,
                    "the schedule %s has ended with an earlier run: the learning rate stays %g; "
                    "gd_compile starts anew",
                    name, lr);
    else
        gd_snprintf(text, sizeof text,
                    "the schedule %s is past its %.0f steps: the learning rate %s %g%s; gd_compile "
                    "starts anew",
                    name, passed, stays ? "stays" : "is", lr,
                    stays ? "" : " and follows its formula beyond them");
    gd_notice(GD_LOG_WARNING, "gd_fit: %s", text);
    gd_progress_say(&r->progress, text);
    return gd_failed() ? gd_failure() : GD_OK;
}

static gd_status run_training(gd_fit_run *r, gd_fit_data data) {
    GD_TRY(begin_run(r, data));
    r->began = gd_progress_clock();
    GD_TRY(resume_run(r));
    GD_TRY(show_ended_schedule(r));
    GD_TRY(call_callbacks(r, GD_ON_FIT_BEGIN));
    GD_TRY(run_epochs(r));
    show_stop_reason(r);
    GD_TRY(call_callbacks(r, GD_ON_FIT_END));
    return r->progress.status;
}

static void end_run(gd_fit_run *r) {
    gd_progress_end(&r->progress);
    if (r->train.net) gd_loader_stop(r->train.loader);
    if (r->validation.net) gd_loader_stop(r->validation.loader);
    gd_saved_modes_restore(&r->modes);
    if (r->training && r->training->optimizer) gd_module_zero_grad(r->net);
    gd_batches_end(&r->validation); /* before `train`, which may have the same loader */
    gd_batches_end(&r->train);
    gd_undo_free(&r->undo);
    gd_free(r->values);
    gd_free(r->stopped);
}

/* A run changes the modes and the gradients of its net, so another one must not begin. */
static gd_status begin_alone(gd_module *net) {
    if (!atomic_exchange(&net->fits, true)) return GD_OK;
    return gd_fail(GD_E_STATE,
                   "gd_fit: a gd_fit of this net is running, in a callback of which or in another "
                   "thread this one was called; wait for its end (gd_event_stop ends it), or train "
                   "a gd_module_clone");
}

/* Runs the training; the run retains its objects until the end. */
static gd_status fit_net(gd_module *net, gd_fit_data data, const gd_fit_options *o,
                         gd_history **history) {
    gd_training *t;
    GD_TRY(gd_training_get(net, "gd_fit", &t));
    GD_TRY(begin_alone(net));
    gd_fit_run *r = gd_calloc(1, sizeof *r);
    if (!r || !(r->stopped = gd_calloc(1, 1))) {
        gd_free(r);
        atomic_store(&net->fits, false);
        return gd_no_memory(NULL, "for a run");
    }
    r->source = &gd_run_source;
    r->options = o;
    r->net = gd_retain(net);
    r->training = t;
    gd_object_retain(&t->object);
    r->epochs = o->epochs ? o->epochs : o->max_steps ? 0 : 1;
    r->event = (gd_event){.net = net, .epochs = r->epochs, .run = r};
    gd_run_state_init(r);
    gd_progress_begin(&r->progress, o->progress, o->progress_receiver);
    gd_interrupt_begin(&r->interrupt, o->interrupt);
    gd_own_rng_begin(&r->rng, o->seed);
    const gd_status status = run_training(r, data);
    gd_own_rng_end(&r->rng);
    gd_interrupt_end(&r->interrupt);
    end_run(r);
    atomic_store(&net->fits, false);
    *history = r->history;
    gd_free(r);
    gd_object_release(&t->object);
    gd_release(net);
    return status;
}

gd_history *gd_fit_at(const char *site, gd_module *net, gd_fit_data data,
                      const gd_fit_options *options) {
    GD_LIVE_AT(site, net);
    options = options ? options : GD_FIT_OPTIONS_();
    if (gd_failed()) return NULL;
    GD_CALLED_FROM(site);
    gd_history *h = NULL;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status =
        gd_this_thread.tracer
            ? gd_fail(GD_E_STATE, "gd_fit: called while a function is traced or a graph is built")
            : fit_net(net, data, options, &h);
    gd_scope_close(&scope);
    return gd_history_finish(site, h, gd_attempt_end(&attempt, status));
}
