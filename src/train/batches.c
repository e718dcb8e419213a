/* batches.c - runs the batches of training and evaluation: calls, loss, sums, metrics; see
 * batches.h. */
#include "train/batches.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/autocast.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "data/loader.h"
#include "graph/build/graph.h"
#include "graph/run/jit.h"
#include "train/loss.h"

/* --- beginning and end ------------------------------------------------------------------------ */

static gd_status device_of_tensor(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    gd_device **device = w->user;
    (void)holder;
    if (e->kind == GD_A_PARAMETER && !*device) *device = ((gd_tensor *)e->object)->device;
    return GD_OK;
}

static gd_status device_of_module(gd_tree_walk *w, gd_module *m) {
    gd_device **device = w->user;
    if (!*device) *device = m->device;
    return GD_OK;
}

/* The device of the first parameter, or of future parameters; NULL: the default device. */
static gd_status find_device(gd_module *net, gd_device **device) {
    *device = NULL;
    GD_TRY(gd_module_walk(net, &(gd_tree_walk){.tensor = device_of_tensor, .user = device}));
    return *device
               ? GD_OK
               : gd_module_walk(net, &(gd_tree_walk){.module = device_of_module, .user = device});
}

/* Metrics with scalar values come first. `own`: creates new metrics like those of the training. */
static gd_status take_metrics(gd_batches *b, const gd_training *t, bool own) {
    if (!t || t->n_metrics == 0) return GD_OK;
    b->metrics = gd_calloc((size_t)t->n_metrics, sizeof *b->metrics);
    if (!b->metrics) return gd_no_memory(NULL, "for metrics");
    for (int scalars = 1; scalars >= 0; scalars--)
        for (int i = 0; i < t->n_metrics; i++) {
            gd_metric *m = t->metrics[i];
            if (gd_metric_is_scalar(m) != (scalars == 1)) continue;
            b->metrics[b->n_metrics] = own ? gd_metric_like(m) : gd_retain(m);
            if (!b->metrics[b->n_metrics]) return gd_failure();
            b->n_metrics++;
            b->n_scalars += scalars;
        }
    return GD_OK;
}

static gd_tensor *scalar_zero(gd_device *device) {
    gd_scope *scope = gd_scope_open();
    gd_tensor *t = gd_metric_zeros(device, 0, NULL);
    if (t->kind == GD_FAILED) t = NULL;
    else gd_retain(t);
    gd_scope_close(&scope);
    return t;
}

gd_status gd_batches_begin(gd_batches *b, const char *what, gd_module *net, gd_training *training,
                           gd_loader *loader, bool own_metrics) {
    *b = (gd_batches){.net = gd_retain(net), .loader = gd_retain(loader), .what = what};
    if (training) gd_object_retain(&training->object);
    b->training = training;
    b->n_targets = gd_loader_targets(loader);
    b->n_weights = gd_loader_weights(loader);
    GD_TRY(take_metrics(b, training, own_metrics));
    gd_device *device;
    GD_TRY(find_device(net, &device));
    b->loss_sum = scalar_zero(device);
    if (b->loss_sum) {
        b->loader_device = gd_loader_set_device(loader, b->loss_sum->device);
        b->sets_device = true;
    }
    b->weight_sum = b->loss_sum ? scalar_zero(device) : NULL;
    return b->weight_sum ? GD_OK : gd_failure();
}

gd_status gd_batches_weigh_classes(gd_batches *b, gd_tensor *weights) {
    if (!weights) return GD_OK;
    gd_scope *scope = gd_scope_open();
    gd_tensor *own = weights->device == b->loss_sum->device
                         ? weights
                         : gd_to_device(weights, b->loss_sum->device);
    const gd_status status = own->kind == GD_FAILED ? gd_failure() : GD_OK;
    if (status == GD_OK) b->class_weights = gd_retain(own);
    gd_scope_close(&scope);
    return status;
}

void gd_batches_drop_metrics(gd_batches *b) {
    for (int i = 0; i < b->n_metrics; i++) gd_release(b->metrics[i]);
    gd_free(b->metrics);
    b->metrics = NULL;
    b->n_metrics = b->n_scalars = 0;
}

void gd_batches_end(gd_batches *b) {
    gd_release(b->jit); /* its plans retain the others */
    gd_batches_drop_metrics(b);
    gd_release(b->loss_sum);
    gd_release(b->weight_sum);
    gd_release(b->class_weights);
    if (b->sets_device) gd_loader_set_device(b->loader, b->loader_device);
    gd_release(b->loader);
    if (b->training) gd_object_release(&b->training->object);
    gd_release(b->net);
    *b = (gd_batches){.net = NULL};
}

gd_status gd_batches_compile(gd_batches *b, gd_body fn, void *user) {
    gd_scope *scope = gd_scope_open();
    b->jit = gd_retain(gd_jit_new(fn, user));
    if (b->jit) b->jit->caller = b->what;
    gd_scope_close(&scope);
    return b->jit ? GD_OK : gd_failure();
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Calls the jit in its own scope and attempt. */
static gd_status call_once(gd_jit *jit, const gd_batch_call *c, gd_tensors batch,
                           gd_tensors *results) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    const gd_tensors y = jit ? gd_jit_call(jit, batch, .key = c->key) : c->fn(batch, c->user);
    if (results && !gd_failed()) *results = gd_keep_list(y);
    gd_scope_close(&scope);
    return gd_attempt_end(&attempt, GD_OK);
}

static gd_status call_eager(const gd_batch_call *c, gd_tensors batch, gd_tensors *results) {
    if (c->save) GD_TRY(c->save(c->user));
    const gd_status status = call_once(NULL, c, batch, results);
    if (status != GD_OK && c->restore) c->restore(c->user);
    return status;
}

/* A failed trace has changed nothing, so the batch can run again eagerly. A wrong shape then fails
 * again, with a better message. */
static gd_status call_traced(gd_batches *b, const gd_batch_call *c, gd_tensors batch,
                             gd_tensors *results) {
    if (!b->jit) return call_eager(c, batch, results);
    const int traces = gd_jit_traces(b->jit);
    const gd_status status = call_once(b->jit, c, batch, results);
    if (status == GD_OK || status == GD_E_MEMORY || gd_jit_traces(b->jit) != traces) return status;
    char why[GD_MESSAGE_MAX];
    snprintf(why, sizeof why, "%s", gd_latest_failure());
    GD_TRY(call_eager(c, batch, results));
    gd_notice(GD_LOG_INFO, "%s: this net cannot be traced and runs eagerly: %s", b->what, why);
    gd_release(b->jit);
    b->jit = NULL;
    return GD_OK;
}

/* The number of the target in a message such as "target 5 is class 9"; -1: it has none. */
static int64_t find_target(const char *message) {
    static const char before[] = "target ", behind[] = " is class ";
    for (const char *at = message; (at = strstr(at, before));) {
        char *end;
        at += strlen(before);
        const int64_t number = strtoll(at, &end, 10);
        if (end > at && strncmp(end, behind, strlen(behind)) == 0) return number;
    }
    return -1;
}

/* The message about a wrong class counts the targets of the batch: puts the sample before it. */
static void name_sample(gd_batches *b, gd_tensors batch) {
    char text[GD_MESSAGE_MAX], name[300];
    const bool placed = gd_this_thread.latest_placed;
    snprintf(text, sizeof text, "%s", gd_latest_failure());
    const int64_t element = find_target(text), n = gd_batch_samples(batch),
                  first = batch.count - b->n_targets - b->n_weights;
    if (element < 0 || b->n_targets < 1 || first < 0 || n < 1) return;
    const int64_t each = gd_tensor_numel(batch.at[first]) / n;
    const bool found = each > 0 && gd_loader_row_name(b->loader, element / each, name, sizeof name);
    const size_t begin = strlen(b->what) + 2;
    const bool named = strncmp(text, b->what, begin - 2) == 0 && strlen(text) > begin;
    /* again: a sampler of the program may have failed meanwhile */
    if (!found) gd_fail(GD_E_INDEX, "%s", text);
    else
        gd_fail(GD_E_INDEX, "%s: %s, target %lld of its batch: %s", b->what, name,
                (long long)element, named ? text + begin : text);
    gd_this_thread.latest_placed = placed;
}

/* The message of a failure says which call of the program failed. Where a wrong index in the data
 * is known at once, an eager call fails, too, and names the layer. */
gd_status gd_batches_call(gd_batches *b, const gd_batch_call *c, gd_tensors batch,
                          gd_tensors *results) {
    const bool traced = b->jit != NULL;
    gd_status status = call_traced(b, c, batch, results);
    if (status == GD_E_INDEX && traced && b->jit && b->loss_sum->device->api->host_reads)
        status = call_eager(c, batch, results);
    if (status == GD_OK) return GD_OK;
    if (status == GD_E_INDEX) name_sample(b, batch);
    if (strncmp(gd_latest_failure(), b->what, strlen(b->what)) != 0)
        gd_error_prefix("%s: ", b->what);
    return status;
}

/* --- a batch ---------------------------------------------------------------------------------- */

int64_t gd_batch_samples(gd_tensors batch) {
    return batch.count > 0 && batch.at[0]->rank > 0 ? batch.at[0]->dims[0] : 1;
}

gd_status gd_batch_inputs(const gd_batches *b, gd_tensors batch, gd_tensors *inputs) {
    const int64_t n = batch.count - b->n_targets - b->n_weights;
    if (n < 1)
        return gd_fail(GD_E_ARGUMENT,
                       "%s: a batch has %lld tensors, of which %d are targets and %d weights; the "
                       "net gets no input",
                       b->what, (long long)batch.count, b->n_targets, b->n_weights);
    *inputs = (gd_tensors){batch.at, n};
    return GD_OK;
}

/* Moves a batch to the device; the batches of the loader are there already. */
static gd_status move_batch(gd_device *device, gd_tensors *batch) {
    bool there = true;
    for (int64_t i = 0; i < batch->count; i++) there &= batch->at[i]->device == device;
    if (there) return GD_OK;
    *batch = gd_list_copy(*batch);
    for (int64_t i = 0; i < batch->count; i++) {
        gd_tensor *t = gd_to_device(batch->at[i], device);
        if (t->kind == GD_FAILED) return gd_failure();
        ((gd_tensor **)(uintptr_t)batch->at)[i] = t;
    }
    return GD_OK;
}

bool gd_batches_next(gd_batches *b, gd_tensors *batch, gd_status *status) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    const bool found = gd_loader_next(b->loader, batch);
    *status = GD_OK;
    if (found) *status = move_batch(b->loss_sum->device, batch);
    *status = gd_attempt_end(&attempt, *status);
    return found && *status == GD_OK;
}

/* --- forward and loss ------------------------------------------------------------------------- */

gd_status gd_batches_mean_of(gd_batch_result *r, int64_t samples) {
    GD_NO_GRAD;
    gd_tensor *loss = gd_detach(r->loss);
    if (loss->kind != GD_FAILED && loss->dtype != GD_F64) loss = gd_cast(loss, GD_F64);
    if (loss->kind != GD_FAILED && loss->rank > 0) loss = gd_reshape(loss, gd_dims());
    r->count = gd_scalar_of((double)samples, GD_F64);
    if (r->count->kind != GD_FAILED && r->count->device != loss->device)
        r->count = gd_to_device(r->count, loss->device);
    r->sum = gd_mul(loss, r->count);
    return r->sum->kind == GD_FAILED ? gd_failure() : GD_OK;
}

gd_status gd_batches_call_net(gd_batches *b, gd_tensors inputs, gd_tensors *outputs) {
    const int others = b->n_targets + b->n_weights;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    *outputs = gd_module_call(b->net, inputs);
    gd_status status = outputs->count > 0
                           ? GD_OK
                           : gd_fail(GD_E_STATE, "%s: the net returned no outputs", b->what);
    status = gd_attempt_end(&attempt, status);
    if (status == GD_OK || inputs.count < 2) return status;
    /* a loss function of the program may need no targets: the net has them */
    if (others == 0 && b->training && b->training->loss_function) return status;
    if (others == 0)
        gd_error_prefix("%s: the net gets all %lld tensors of a batch, which has no targets: ",
                        b->what, (long long)inputs.count);
    else
        gd_error_prefix("%s: the net gets %lld of the %lld tensors of a batch, all but the "
                        "targets%s: ",
                        b->what, (long long)inputs.count, (long long)inputs.count + others,
                        b->n_weights ? " and weights" : "");
    return status;
}

gd_status gd_batches_forward(gd_batches *b, gd_tensors batch, gd_batch_result *r) {
    gd_tensors inputs;
    *r = (gd_batch_result){.loss = NULL};
    GD_TRY(gd_batch_inputs(b, batch, &inputs));
    r->targets = (gd_tensors){batch.at + inputs.count, b->n_targets};
    r->weight = b->n_weights ? batch.at[batch.count - 1] : NULL;
    GD_AUTOCAST(b->training->precision);
    GD_TRY(gd_batches_call_net(b, inputs, &r->outputs));
    return gd_batch_loss(b, batch, r);
}

static gd_status update_metrics(gd_batches *b, const gd_batch_result *r) {
    if (b->n_metrics == 0 || r->outputs.count == 0) return GD_OK;
    if (r->targets.count == 0)
        return gd_fail(
            GD_E_ARGUMENT,
            "%s: batches have no targets (.targets of the loader is 0), and metrics need one",
            b->what);
    for (int i = 0; i < b->n_metrics; i++)
        GD_TRY(gd_metric_update(b->metrics[i], r->outputs.at[0], r->targets.at[0],
                                .weight = r->weight));
    return GD_OK;
}

gd_status gd_batches_add(gd_batches *b, const gd_batch_result *r) {
    GD_NO_GRAD;
    GD_TRY(update_metrics(b, r));
    if (!r->sum) return GD_OK;
    gd_add_(b->loss_sum, r->sum);
    gd_add_(b->weight_sum, r->count);
    return gd_failed() ? gd_failure() : GD_OK;
}

/* --- sums ------------------------------------------------------------------------------------- */

gd_status gd_batches_reset(gd_batches *b) {
    static const double zero = 0;
    for (int i = 0; i < b->n_metrics; i++) GD_TRY(gd_metric_reset(b->metrics[i]));
    GD_TRY(gd_copy_in(b->loss_sum, &zero, sizeof zero));
    return gd_copy_in(b->weight_sum, &zero, sizeof zero);
}

gd_status gd_batches_read(gd_batches *b, double *values) {
    double sum = 0, weight = 0;
    GD_TRY(gd_copy_out(b->loss_sum, &sum, sizeof sum));
    GD_TRY(gd_copy_out(b->weight_sum, &weight, sizeof weight));
    values[0] = weight > 0 ? sum / weight : (double)NAN;
    for (int i = 0; i < b->n_scalars; i++) values[1 + i] = gd_metric_number(b->metrics[i]);
    return gd_failed() ? gd_failure() : GD_OK;
}
