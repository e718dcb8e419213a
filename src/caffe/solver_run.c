/* solver_run.c - what a solver does between iterations: lines of the log, snapshots, tests.
 *
 * The function of the loss, which is a part of the plan of a step, also copies what the log shows to tensors
 * of the solver: the outputs, and the loss. The host reads them only after iterations that a line is about,
 * or whose loss is a part of the mean in one.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "caffe/solver.h"
#include "core/alloc.h"
#include "core/thread.h"
#include "dispatch/call.h"
#include "gradus/autograd.h"
#include "optim/schedule.h"
#include "train/progress.h"

static _Atomic int requests;

void gd_caffe_request_snapshot(void) { atomic_fetch_add(&requests, 1); }

/* --- losses ----------------------------------------------------------------------------------- */

void gd_caffe_note_loss(gd_caffe_solver *s, int64_t iteration, double loss) {
    const int64_t at = iteration % s->average_loss;
    s->losses.iteration[at] = iteration;
    s->losses.value[at] = loss;
}

/* Of the last average_loss iterations. */
double gd_caffe_mean_loss(const gd_caffe_solver *s) {
    double sum = 0;
    int64_t count = 0, latest = -1;
    for (int64_t i = 0; i < s->average_loss; i++)
        if (s->losses.iteration[i] > latest) latest = s->losses.iteration[i];
    for (int64_t i = 0; i < s->average_loss; i++)
        if (s->losses.iteration[i] > latest - s->average_loss && s->losses.iteration[i] >= 0) {
            sum += s->losses.value[i];
            count++;
        }
    return count ? sum / (double)count : (double)NAN;
}

/* Whether a line after this iteration, or after one of the next, has its loss. */
static bool needs_loss(const gd_caffe_solver *s, int64_t iteration) {
    if (s->end - iteration <= s->average_loss) return true;
    if (s->display < 1) return false;
    const int64_t next = (iteration + s->display - 1) / s->display * s->display;
    return next - iteration < s->average_loss;
}

/* --- the loss --------------------------------------------------------------------------------- */

static bool same_shape(const gd_tensor *a, const gd_tensor *b) {
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

/* Copies what the log shows. An output whose shape changes from batch to batch (images of different sizes)
 * is not shown then. */
static void note_outputs(gd_caffe_solver *s, gd_tensors outputs, gd_tensor *loss) {
    GD_NO_GRAD;
    gd_tensor *detached = gd_detach(loss);
    gd_assign(s->loss_sum, s->iter_size > 1 ? gd_add(s->loss_sum, detached) : detached);
    for (int i = 0; s->shown && i < s->net->n_outputs && i < outputs.count; i++)
        if (s->shown[i] && same_shape(s->shown[i], outputs.at[i]))
            gd_assign(s->shown[i], gd_detach(outputs.at[i]));
    for (int i = 0; s->before && i < s->net->n_parameters; i++)
        gd_assign(s->before[i], gd_detach(s->net->parameters[i].tensor));
}

gd_tensor *gd_caffe_run_loss(gd_tensors outputs, gd_tensors targets, void *user) {
    gd_caffe_solver *s = user;
    (void)targets;
    gd_tensor *loss = gd_caffe_net_loss(s->net, outputs);
    if (loss->kind == GD_FAILED) return loss;
    note_outputs(s, outputs, loss);
    return gd_caffe_reach_all(s, loss);
}

/* The mean loss of the batches of the iteration that has ended, and a sum of 0 for the next one. */
static gd_status read_loss(gd_caffe_solver *s, double *loss) {
    static const float zero = 0;
    float sum;
    GD_TRY(gd_copy_out(s->loss_sum, &sum, sizeof sum));
    *loss = (double)sum / (double)s->iter_size;
    return s->iter_size > 1 ? gd_copy_in(s->loss_sum, &zero, sizeof zero) : GD_OK;
}

/* --- lines ------------------------------------------------------------------------------------ */

static gd_status say_output(const gd_caffe_solver *s, int i, int *number) {
    const gd_caffe_net_output *o = &s->net->outputs[i];
    const gd_tensor *t = s->shown[i];
    const size_t count = (size_t)gd_numel(t->rank, t->dims);
    float *values = gd_malloc(count * sizeof *values + 1);
    if (!values) return gd_no_memory(s->path, "for a line of the log");
    const gd_status status = gd_copy_out(s->shown[i], values, count * sizeof *values);
    for (size_t k = 0; k < count && status == GD_OK; k++) {
        const double v = (double)values[k];
        if (o->loss_weight != 0)
            gd_caffe_say(&s->log, "    Train net output #%d: %s = %g (* %g = %g loss)", (*number)++,
                         o->name, v, o->loss_weight, o->loss_weight * v);
        else gd_caffe_say(&s->log, "    Train net output #%d: %s = %g", (*number)++, o->name, v);
    }
    gd_free(values);
    return status;
}

/* The rate of an iteration, by the formula of the schedule. */
static gd_status rate_of(const gd_caffe_solver *s, int64_t iteration, double *rate) {
    GD_SCOPE;
    GD_ON_CPU;
    const gd_schedule_rules *rules = s->schedule->factory->rules;
    gd_tensor *step = gd_scalar_of((double)iteration, GD_F64),
              *base = gd_scalar_of(gd_pb_float_of(s->message, "base_lr"), GD_F64);
    *rate = gd_item(rules->rate(s->schedule->options, step, base));
    return gd_failed() ? gd_failure() : GD_OK;
}

static gd_status show(gd_caffe_solver *s, int64_t iteration) {
    const double now = gd_progress_clock(), seconds = now - s->displayed;
    double rate;
    int number = 0;
    gd_caffe_say(&s->log, "Iteration %lld (%g iter/s, %gs/%lld iters), loss = %g",
                 (long long)iteration,
                 seconds > 0 ? (double)(iteration - s->displayed_at) / seconds : 0, seconds,
                 (long long)s->display, gd_caffe_mean_loss(s));
    s->displayed = now;
    s->displayed_at = iteration;
    for (int i = 0; i < s->net->n_outputs; i++)
        if (!s->net->outputs[i].hidden) GD_TRY(say_output(s, i, &number));
    GD_TRY(rate_of(s, iteration, &rate));
    gd_caffe_say(&s->log, "Iteration %lld, lr = %g", (long long)iteration, rate);
    return GD_OK;
}

/* --- events ----------------------------------------------------------------------------------- */

/* The functions of a callback record their failures, with the messages. */
static gd_status recorded(gd_status status) { return gd_report(NULL, status); }

/* Caffe tests before the first iteration, also after a restore. A run that continues from a checkpoint has
 * tested before. */
static gd_status begin_run(gd_event *event, void *user) {
    gd_caffe_solver *s = user;
    if (event->step == 0 && s->start > 0) gd_fit_begin_at(event, s->start * s->iter_size);
    s->iter = event->step / s->iter_size;
    s->displayed = gd_progress_clock();
    s->displayed_at = s->iter;
    s->debugs = s->display > 0 && s->iter % s->display == 0;
    s->snapshot_requests = atomic_load(&requests);
    if (s->tested == s->iter || s->iter >= s->end || !gd_caffe_test_is_due(s, s->iter))
        return GD_OK;
    s->event = event;
    const gd_status status = gd_caffe_test_all(s, NULL);
    s->event = NULL;
    return recorded(status);
}

static gd_status end_iteration(gd_caffe_solver *s) {
    const int64_t ended = s->iter - 1;
    double loss;
    if (s->iter_size > 1 || needs_loss(s, ended)) {
        GD_TRY(read_loss(s, &loss));
        gd_caffe_note_loss(s, ended, loss);
    }
    if (s->display > 0 && ended % s->display == 0) GD_TRY(show(s, ended));
    s->debugs = s->display > 0 && s->iter % s->display == 0;
    const int requested = atomic_load(&requests);
    if ((s->snapshot > 0 && s->iter % s->snapshot == 0) || requested != s->snapshot_requests)
        GD_TRY(gd_caffe_snapshot_write(s));
    s->snapshot_requests = requested;
    return GD_OK;
}

static gd_status end_batch(gd_event *event, void *user) {
    gd_caffe_solver *s = user;
    const bool ends = event->step % s->iter_size == 0;
    if (s->debug && s->debugs) GD_TRY(recorded(gd_caffe_debug_backward(s->debug, ends)));
    if (!ends) return GD_OK;
    s->iter = event->step / s->iter_size;
    s->event = event;
    const gd_status status = end_iteration(s);
    s->event = NULL;
    return recorded(status);
}

static void set_value(gd_history *h, const char *name, double value) {
    const int column = gd_history_column(h, name);
    if (column >= 0 && gd_history_rows(h) > 0) gd_history_set(h, column, value);
}

/* An epoch is a test_interval. The last tests come after the run. */
static gd_status end_epoch(gd_event *event, void *user) {
    gd_caffe_solver *s = user;
    set_value(event->history, "iteration", (double)s->iter);
    if (s->iter >= s->end || !gd_caffe_test_is_due(s, s->iter)) return GD_OK;
    s->event = event;
    const gd_status status = gd_caffe_test_all(s, event->history);
    s->event = NULL;
    return recorded(status);
}

/* --- state ------------------------------------------------------------------------------------ */

/* What checkpoints keep: numbers, then the losses, then the places in the data of the tests. */
typedef struct kept {
    int64_t tested, average_loss, n_tests;
    float loss_sum;
} kept;

static size_t state_size(const gd_caffe_solver *s) {
    return sizeof(kept) + (size_t)s->average_loss * (sizeof(int64_t) + sizeof(double)) +
           (size_t)s->n_tests * sizeof(gd_loader_position);
}

static gd_tensor *save_state(void *user) {
    gd_caffe_solver *s = user;
    GD_ON_CPU;
    kept k = {s->tested, s->average_loss, s->n_tests, 0};
    char *bytes = gd_calloc(1, state_size(s)), *at = bytes;
    if (!bytes) return gd_tensor_fail(gd_no_memory(s->path, "for a checkpoint"));
    gd_status status = gd_copy_out(s->loss_sum, &k.loss_sum, sizeof k.loss_sum);
    memcpy(at, &k, sizeof k), at += sizeof k;
    const size_t n = (size_t)s->average_loss;
    memcpy(at, s->losses.iteration, n * sizeof(int64_t)), at += n * sizeof(int64_t);
    memcpy(at, s->losses.value, n * sizeof(double)), at += n * sizeof(double);
    for (int i = 0; i < s->n_tests; i++) {
        const gd_loader_position p = gd_loader_tell(gd_caffe_data_loader(s->tests[i].net->data));
        memcpy(at, &p, sizeof p), at += sizeof p;
    }
    gd_tensor *t = status == GD_OK ? gd_from_array(gd_dims((int64_t)state_size(s)), GD_U8, bytes)
                                   : gd_tensor_fail(status);
    gd_free(bytes);
    return t;
}

/* A checkpoint of a solver with other numbers keeps only what fits. */
static void load_state(const gd_tensor *bytes, void *user) {
    gd_caffe_solver *s = user;
    const char *at = gd_data(bytes);
    kept k;
    if (!at || (size_t)gd_tensor_numel(bytes) != state_size(s)) return;
    memcpy(&k, at, sizeof k), at += sizeof k;
    if (k.average_loss != s->average_loss || k.n_tests != s->n_tests) return;
    const size_t n = (size_t)s->average_loss;
    s->tested = k.tested;
    gd_copy_in(s->loss_sum, &k.loss_sum, sizeof k.loss_sum);
    memcpy(s->losses.iteration, at, n * sizeof(int64_t)), at += n * sizeof(int64_t);
    memcpy(s->losses.value, at, n * sizeof(double)), at += n * sizeof(double);
    for (int i = 0; i < s->n_tests; i++) {
        gd_loader_position p;
        memcpy(&p, at, sizeof p), at += sizeof p;
        gd_loader_seek_at(NULL, gd_caffe_data_loader(s->tests[i].net->data), p);
    }
}

gd_callback *gd_caffe_run_callback(gd_caffe_solver *s) {
    return gd_callback_from(s, .fit_begin = begin_run, .batch_end = end_batch,
                            .epoch_end = end_epoch, .save = save_state, .load = load_state,
                            .name = "solver");
}

/* --- opening ---------------------------------------------------------------------------------- */

static gd_tensor *zeros_of(const gd_caffe_solver *s, gd_shape shape) {
    gd_tensor *t = gd_to_device(gd_zeros(shape, .dtype = GD_F32), s->device);
    return t->kind == GD_FAILED ? NULL : gd_retain(t);
}

static gd_status make_tensors(gd_caffe_solver *s) {
    const gd_caffe_text_net *net = s->net;
    if (!(s->loss_sum = zeros_of(s, gd_dims()))) return gd_failure();
    s->shown = s->display > 0 ? gd_calloc((size_t)net->n_outputs + 1, sizeof *s->shown) : NULL;
    for (int i = 0; s->shown && i < net->n_outputs; i++)
        if (!net->outputs[i].hidden && !(s->shown[i] = zeros_of(s, net->outputs[i].shape)))
            return gd_failure();
    if (!gd_pb_int_of(s->message, "snapshot_diff")) return GD_OK;
    s->before = gd_calloc((size_t)net->n_parameters + 1, sizeof *s->before);
    for (int i = 0; s->before && i < net->n_parameters; i++) {
        const gd_tensor *p = net->parameters[i].tensor;
        if (!(s->before[i] = zeros_of(s, gd_shape_of(p->rank, p->dims)))) return gd_failure();
        GD_NO_GRAD;
        gd_assign(s->before[i], gd_detach(net->parameters[i].tensor));
    }
    return s->before && !gd_failed() ? GD_OK : gd_no_memory(s->path, "for a solver");
}

gd_status gd_caffe_run_open(gd_caffe_solver *s) {
    GD_SCOPE;
    const size_t n = (size_t)s->average_loss;
    s->losses.iteration = gd_calloc(n, sizeof *s->losses.iteration);
    s->losses.value = gd_calloc(n, sizeof *s->losses.value);
    if (!s->losses.iteration || !s->losses.value) return gd_no_memory(s->path, "for a solver");
    for (size_t i = 0; i < n; i++) s->losses.iteration[i] = -1;
    s->tested = -1;
    GD_TRY(gd_caffe_find_unreached(s));
    if (s->debug_info)
        GD_TRY(gd_caffe_debug_open(&s->debug, s->net, &s->log, &s->debugs, s->iter_size));
    return make_tensors(s);
}

void gd_caffe_run_close(gd_caffe_solver *s) {
    gd_caffe_debug_close(s->debug);
    gd_release(s->loss_sum);
    for (int i = 0; s->shown && i < s->net->n_outputs; i++) gd_release(s->shown[i]);
    for (int i = 0; s->before && i < s->net->n_parameters; i++) gd_release(s->before[i]);
    gd_free(s->shown);
    gd_free(s->before);
    gd_free(s->unreached);
    gd_free(s->losses.iteration);
    gd_free(s->losses.value);
}
