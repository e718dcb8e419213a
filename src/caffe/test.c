/* test.c - gd_caffe_test: the means of a net's outputs over batches of its data. */
#include <stdio.h>
#include <string.h>

#include "caffe/log.h"
#include "caffe/net.h"
#include "caffe/stages.h"
#include "caffe/weights.h"
#include "core/alloc.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "gradus/caffe.h"
#include "gradus/ops.h"
#include "train/history.h"

typedef struct test_run {
    gd_caffe_text_net *net;
    gd_caffe_log log;
    double **sums; /* of each output that is not hidden, by element */
    int64_t *counts;
    double loss;
} test_run;

static gd_status open_sums(test_run *r) {
    const size_t n = (size_t)r->net->n_outputs + 1;
    r->sums = gd_calloc(n, sizeof *r->sums);
    r->counts = gd_calloc(n, sizeof *r->counts);
    return r->sums && r->counts ? GD_OK : gd_no_memory(r->net->file, "for a test");
}

static void close_run(test_run *r) {
    for (int i = 0; r->sums && i < r->net->n_outputs; i++) gd_free(r->sums[i]);
    gd_free(r->sums);
    gd_free(r->counts);
    gd_caffe_net_free(r->net);
}

/* Adds an output to its sums and says it. */
static gd_status add_output(test_run *r, int i, int64_t batch, gd_tensor *y) {
    const int64_t count = gd_tensor_numel(y);
    if (!r->sums[i]) {
        r->counts[i] = count;
        r->sums[i] = gd_calloc((size_t)count + 1, sizeof **r->sums);
    }
    float *values = gd_malloc((size_t)count * sizeof *values + 1);
    gd_status status = values && r->sums[i] ? gd_copy_out(y, values, (size_t)count * sizeof *values)
                                            : gd_no_memory(r->net->file, "for a test");
    if (status == GD_OK && count != r->counts[i])
        status =
            gd_fail(GD_E_SHAPE, "%s: the output '%s' has %lld elements in batch %lld, but had %lld",
                    r->net->file, r->net->outputs[i].name, (long long)count, (long long)batch,
                    (long long)r->counts[i]);
    for (int64_t k = 0; k < count && status == GD_OK; k++) {
        r->sums[i][k] += (double)values[k];
        gd_caffe_say(&r->log, "Batch %lld, %s = %g", (long long)batch, r->net->outputs[i].name,
                     (double)values[k]);
    }
    gd_free(values);
    return status;
}

static gd_status run_batch(test_run *r, int64_t batch, gd_tensors in) {
    GD_NO_GRAD;
    float loss;
    const gd_tensors y = gd_module_call_at(NULL, r->net->module, in);
    if (gd_failed()) return gd_failure();
    for (int i = 0; i < r->net->n_outputs; i++)
        if (!r->net->outputs[i].hidden) GD_TRY(add_output(r, i, batch, y.at[i]));
    gd_tensor *sum = gd_caffe_net_loss(r->net, y);
    GD_TRY(sum->kind == GD_FAILED ? gd_failure() : gd_copy_out(sum, &loss, sizeof loss));
    r->loss += (double)loss;
    return GD_OK;
}

static gd_status run(test_run *r, int64_t iterations) {
    GD_TRY(gd_caffe_check_fed(r->net, "a test"));
    gd_caffe_say(&r->log, "Running for %lld iterations.", (long long)iterations);
    for (int64_t i = 0; i < iterations; i++) {
        GD_SCOPE;
        gd_tensors batch;
        GD_TRY(gd_caffe_next_batch(r->net, &batch));
        GD_TRY(run_batch(r, i, batch));
    }
    return GD_OK;
}

/* "accuracy = 0.99", "loss = 0.03 (* 1 = 0.03 loss)" */
static gd_status say_results(const test_run *r, int64_t iterations, gd_history *h) {
    GD_TRY(gd_history_add_row(h));
    int column = gd_history_column(h, "loss");
    if (column >= 0) gd_history_set(h, column, r->loss / (double)iterations);
    gd_caffe_say(&r->log, "Loss: %g", r->loss / (double)iterations);
    for (int i = 0; i < r->net->n_outputs; i++) {
        const gd_caffe_net_output *o = &r->net->outputs[i];
        for (int64_t k = 0; !o->hidden && k < r->counts[i]; k++) {
            const double mean = r->sums[i][k] / (double)iterations;
            if (o->loss_weight != 0)
                gd_caffe_say(&r->log, "%s = %g (* %g = %g loss)", o->name, mean, o->loss_weight,
                             o->loss_weight * mean);
            else gd_caffe_say(&r->log, "%s = %g", o->name, mean);
            column = r->counts[i] == 1 ? gd_history_column(h, o->name) : -1;
            if (column >= 0) gd_history_set(h, column, mean);
        }
    }
    return GD_OK;
}

static gd_status test(const char *path, const gd_caffe_test_options *o, gd_history *h) {
    test_run r = {.log = {o->line, o->line_user}};
    const char *stages[GD_CAFFE_MAX_STAGES];
    gd_device *device = gd_default_device();
    const gd_caffe_data_options data = {
        .workers = o->workers, .dummy = o->dummy, .arrays = o->arrays, .device = device};
    gd_caffe_net_settings settings = {.phase = GD_CAFFE_TEST,
                                      .level = o->level,
                                      .stages = stages,
                                      .data = &data,
                                      .no_fill = o->weights != NULL};
    if (!path) return gd_fail(GD_E_ARGUMENT, "gd_caffe_test: the path is NULL");
    if (o->iterations < 1)
        return gd_fail(GD_E_ARGUMENT, "gd_caffe_test: iterations is %lld; it must be at least 1",
                       (long long)o->iterations);
    GD_TRY(gd_caffe_read_stages(o->stages, stages, &settings.n_stages));
    GD_TRY(gd_caffe_net_read(&r.net, path, &settings));
    gd_status status = o->weights ? gd_caffe_load_weights(o->weights, r.net->module) : GD_OK;
    if (status == GD_OK) status = open_sums(&r);
    if (status == GD_OK) status = run(&r, o->iterations);
    if (status == GD_OK) status = say_results(&r, o->iterations, h);
    close_run(&r);
    return status;
}

gd_history *gd_caffe_test_at(const char *site, const char *path, const gd_caffe_test_options *o) {
    static const gd_caffe_test_options by_default = {.iterations = 50};
    GD_CALLED_FROM(site);
    gd_history *h = gd_history_bare();
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open_at(NULL);
    gd_status status = h ? test(path, o ? o : &by_default, h) : gd_no_memory(path, "for a test");
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    return gd_history_finish(site, h, status);
}
