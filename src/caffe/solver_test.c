/* solver_test.c - tests of a solver: the mean of each output of a net over test_iter batches. */
#include <stdio.h>
#include <string.h>

#include "caffe/solver.h"
#include "core/alloc.h"
#include "core/number.h"
#include "core/thread.h"
#include "dispatch/call.h"
#include "gradus/autograd.h"
#include "train/progress.h"
#include "nn/module.h"

bool gd_caffe_test_is_due(const gd_caffe_solver *s, int64_t iteration) {
    return s->n_tests > 0 && iteration % s->test_interval == 0 &&
           (iteration > 0 || gd_pb_int_of(s->message, "test_initialization"));
}

/* --- a net ------------------------------------------------------------------------------------ */

static gd_status add_output(gd_tensor *sum, gd_tensor *output) {
    gd_tensor *flat = gd_reshape(gd_cast(output, GD_F64), gd_dims(GD_ANY));
    return gd_add_(sum, flat)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* The traced function: adds the outputs for a batch to the sums. */
static gd_tensors test_batch(gd_tensors in, void *user) {
    gd_caffe_tested *t = user;
    GD_NO_GRAD;
    const gd_tensors out = gd_module_run(t->net->module, in);
    gd_status status = gd_failed() ? gd_failure() : GD_OK;
    for (int i = 0; i < t->net->n_outputs && status == GD_OK; i++)
        if (!t->net->outputs[i].hidden) status = add_output(t->sums[i], out.at[i]);
    if (status == GD_OK) status = add_output(t->loss, gd_caffe_net_loss(t->net, out));
    if (status != GD_OK) gd_report(NULL, status);
    return (gd_tensors){NULL, 0};
}

static gd_tensor *new_sum(const gd_caffe_solver *s, int64_t count) {
    gd_tensor *t = gd_to_device(gd_zeros(gd_dims(count), .dtype = GD_F64), s->device);
    return t->kind == GD_FAILED ? NULL : gd_retain(t);
}

/* Before the first test: creates the sums and the jit. */
static gd_status compile_test(const gd_caffe_solver *s, gd_caffe_tested *t) {
    GD_SCOPE;
    if (t->compiled) return GD_OK;
    t->sums = gd_calloc((size_t)t->net->n_outputs + 1, sizeof *t->sums);
    if (!t->sums) return gd_no_memory(s->path, "for a test");
    for (int i = 0; i < t->net->n_outputs; i++) {
        const gd_shape *shape = &t->net->outputs[i].shape;
        if (!(t->sums[i] = new_sum(s, gd_numel(shape->rank, shape->at)))) return gd_failure();
    }
    if (!(t->loss = new_sum(s, 1))) return gd_failure();
    static const bool always = true;
    if (s->debug_info) GD_TRY(gd_caffe_debug_open(&t->debug, t->net, &s->log, &always, 1));
    else if (s->options->jit && !(t->jit = gd_retain(gd_jit_new(test_batch, t))))
        return gd_failure();
    t->compiled = true;
    return GD_OK;
}

void gd_caffe_test_close(gd_caffe_tested *t) {
    for (int i = 0; t->sums && i < t->net->n_outputs; i++) gd_release(t->sums[i]);
    gd_free(t->sums);
    gd_release(t->loss);
    gd_release(t->jit);
    gd_caffe_debug_close(t->debug);
    gd_caffe_net_free(t->net);
}

/* --- a test ----------------------------------------------------------------------------------- */

static gd_status reset_sums(gd_caffe_tested *t) {
    GD_NO_GRAD;
    for (int i = 0; i < t->net->n_outputs; i++) gd_assign(t->sums[i], gd_zeros_like(t->sums[i]));
    gd_assign(t->loss, gd_zeros_like(t->loss));
    return gd_failed() ? gd_failure() : GD_OK;
}

/* A net that cannot be traced runs eagerly from then on. */
static gd_status run_batch(gd_caffe_tested *t, gd_tensors batch) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    const int traces = t->jit ? gd_jit_traces(t->jit) : 0;
    if (t->jit) gd_jit_call(t->jit, batch);
    else test_batch(batch, t);
    const gd_status status = gd_attempt_end(&attempt, GD_OK);
    if (status == GD_OK || !t->jit || status == GD_E_MEMORY || gd_jit_traces(t->jit) != traces)
        return status;
    gd_release(t->jit);
    t->jit = NULL;
    return run_batch(t, batch);
}

/* Runs the batches. *done is false after an interrupt. */
static gd_status run_batches(const gd_caffe_solver *s, gd_caffe_tested *t, bool *done) {
    gd_loader *loader = gd_caffe_data_loader(t->net->data);
    gd_status status = GD_OK;
    *done = false;
    for (int64_t n = 0; n < t->iterations && status == GD_OK; n++) {
        GD_SCOPE;
        gd_tensors batch;
        if (s->event && gd_fit_is_interrupted(s->event)) return GD_OK;
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        const bool more = gd_loader_next_at(NULL, loader, &batch);
        status = gd_attempt_end(&attempt, GD_OK);
        if (status == GD_OK && more) status = run_batch(t, batch);
        if (status == GD_OK && !more) n--; /* the next call begins the next epoch */
    }
    *done = true;
    return status;
}

/* --- results ---------------------------------------------------------------------------------- */

static void set_value(gd_history *h, int test, const char *name, double value) {
    char column[200];
    if (!h || gd_history_rows(h) == 0) return;
    if (test == 0) snprintf(column, sizeof column, "test_%.180s", name);
    else snprintf(column, sizeof column, "test%d_%.180s", test, name);
    const int i = gd_history_column(h, column);
    if (i >= 0) gd_history_set(h, i, value);
}

/* Shows a result beside the progress of the run. */
static void show(const gd_caffe_solver *s, const gd_caffe_tested *t, const char *name,
                 double mean) {
    char text[300], net[20] = "";
    gd_progress_writer writer;
    if (s->options->progress == GD_PROGRESS_NONE) return;
    if (t > s->tests) snprintf(net, sizeof net, " #%d", (int)(t - s->tests));
    gd_snprintf(text, sizeof text, "iteration %lld, test%s: %.200s = %g", (long long)s->iter, net,
                name, mean);
    if (s->event) {
        const gd_event_source *const *source = (const void *)s->event->run;
        (*source)->say(s->event, text);
        return;
    }
    gd_progress_begin(&writer, s->options->progress, s->options->progress_receiver);
    gd_progress_say(&writer, text);
    gd_progress_end(&writer);
}

static gd_status say_output(const gd_caffe_solver *s, gd_caffe_tested *t, int i, int *number,
                            gd_history *h) {
    const gd_caffe_net_output *o = &t->net->outputs[i];
    const int test = (int)(t - s->tests);
    const size_t count = (size_t)gd_tensor_numel(t->sums[i]);
    double *sums = gd_malloc(count * sizeof *sums + 1);
    if (!sums) return gd_no_memory(s->path, "for a line of the log");
    const gd_status status = gd_copy_out(t->sums[i], sums, count * sizeof *sums);
    for (size_t k = 0; k < count && status == GD_OK; k++) {
        const double mean = sums[k] / (double)t->iterations;
        char line[400];
        if (o->loss_weight != 0)
            gd_snprintf(line, sizeof line, "    Test net output #%d: %.200s = %g (* %g = %g loss)",
                        (*number)++, o->name, mean, o->loss_weight, o->loss_weight * mean);
        else
            gd_snprintf(line, sizeof line, "    Test net output #%d: %.200s = %g", (*number)++,
                        o->name, mean);
        gd_caffe_say(&s->log, "%s", line);
        show(s, t, o->name, mean);
        if (count == 1) set_value(h, test, o->name, mean);
    }
    gd_free(sums);
    return status;
}

static gd_status test_one(gd_caffe_solver *s, gd_caffe_tested *t, gd_history *h, bool *done) {
    int number = 0;
    double loss;
    gd_caffe_say(&s->log, "Iteration %lld, Testing net (#%d)", (long long)s->iter,
                 (int)(t - s->tests));
    GD_TRY(compile_test(s, t));
    GD_TRY(reset_sums(t));
    GD_TRY(run_batches(s, t, done));
    if (!*done) {
        gd_caffe_say(&s->log, "Test interrupted.");
        return GD_OK;
    }
    if (s->test_compute_loss) {
        GD_TRY(gd_copy_out(t->loss, &loss, sizeof loss));
        gd_caffe_say(&s->log, "Test loss: %g", loss / (double)t->iterations);
    }
    for (int i = 0; i < t->net->n_outputs; i++)
        if (!t->net->outputs[i].hidden) GD_TRY(say_output(s, t, i, &number, h));
    return GD_OK;
}

gd_status gd_caffe_test_all(gd_caffe_solver *s, gd_history *h) {
    bool done = true;
    for (int i = 0; i < s->n_tests && done; i++) {
        GD_SCOPE;
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        gd_status status = test_one(s, &s->tests[i], h, &done);
        status = gd_attempt_end(&attempt, status);
        if (status != GD_OK) {
            gd_error_prefix("testing net (#%d): ", i);
            return status;
        }
    }
    if (done) s->tested = s->iter;
    return GD_OK;
}
