/* predict.c - gd_predict: runs a net over a dataset and returns all outputs in one tensor. */
#include <string.h>

#include "core/freed.h"
#include "gradus/autocast.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "train/batches.h"

typedef struct prediction {
    gd_batches batches;
    gd_tensor *all; /* (samples, ...), retained; NULL before the first batch */
    int64_t filled; /* samples so far */
} prediction;

static gd_tensors predict_batch(gd_tensors inputs, void *user) {
    gd_batches *b = user;
    GD_NO_GRAD;
    GD_AUTOCAST(b->training ? b->training->precision : GD_DTYPE_NONE);
    gd_tensors y;
    if (gd_batches_call_net(b, inputs, &y) == GD_OK) return gd_listed(y.at[0]);
    gd_report(NULL, gd_failure());
    return (gd_tensors){NULL, 0};
}

/* The total number of samples if every batch has `in_batch` of them. */
static int64_t expected_samples(const gd_batches *b, int64_t in_batch) {
    const int64_t samples = gd_dataset_count(gd_loader_dataset(b->loader)),
                  full = gd_loader_batches(b->loader) * in_batch;
    return samples < full ? samples : full;
}

/* Appends outputs (n, ...). The first batch allocates the tensor for all samples; it grows if a
 * sampler draws more samples than the dataset has. */
static gd_status append_outputs(prediction *p, gd_tensor *y) {
    char text[128];
    if (y->rank == 0 ||
        (p->all && (y->rank != p->all->rank ||
                    memcmp(y->dims + 1, p->all->dims + 1, sizeof(int64_t) * (y->rank - 1u)) != 0)))
        return gd_fail(
            GD_E_SHAPE,
            "gd_predict: the net returned %s for a batch; all batches need outputs of the same "
            "shape after the first axis",
            gd_describe(y, text, sizeof text));
    const int64_t n = y->dims[0], need = p->filled + n;
    if (!p->all || p->all->dims[0] < need) {
        gd_shape shape = gd_shape_of(y->rank, y->dims);
        const int64_t most = expected_samples(&p->batches, n);
        shape.at[0] = most > need ? most : p->all && 2 * p->filled > need ? 2 * p->filled : need;
        gd_tensor *larger = gd_tensor_new(y->device, (gd_dtype)y->dtype, shape.rank, shape.at);
        if (!larger) return gd_failure();
        if (p->filled)
            gd_assign(gd_narrow(larger, 0, 0, p->filled), gd_narrow(p->all, 0, 0, p->filled));
        gd_release(p->all);
        p->all = gd_retain(larger);
    }
    if (n) gd_assign(gd_narrow(p->all, 0, p->filled, n), y);
    p->filled = need;
    return gd_failed() ? gd_failure() : GD_OK;
}

static gd_status run_batches(prediction *p) {
    gd_batches *b = &p->batches;
    const gd_batch_call call = {.fn = predict_batch, .user = b};
    gd_status status = GD_OK;
    for (bool more = true; more && status == GD_OK;) {
        gd_tensors batch, inputs, y;
        gd_scope *scope = gd_scope_open();
        more = gd_batches_next(b, &batch, &status);
        if (more) status = gd_batch_inputs(b, batch, &inputs);
        if (more && status == GD_OK) status = gd_batches_call(b, &call, inputs, &y);
        if (more && status == GD_OK)
            status = y.count > 0 ? append_outputs(p, y.at[0])
                                 : gd_fail(GD_E_STATE, "gd_predict: the net returned no outputs");
        gd_scope_close(&scope);
    }
    return status;
}

static gd_status predict_loader(prediction *p, const gd_evaluate_options *o, gd_tensor **y) {
    gd_batches *b = &p->batches;
    gd_saved_modes modes = {.count = 0};
    if (o->jit) GD_TRY(gd_batches_compile(b, predict_batch, b));
    const gd_loader_position start = gd_loader_tell(b->loader);
    if (start.batch != 0) GD_TRY(gd_loader_seek(b->loader, ((gd_loader_position){start.epoch, 0})));
    GD_TRY(gd_saved_modes_save(&modes, b->net));
    gd_saved_modes_set(&modes, 0);
    const gd_status status = run_batches(p);
    gd_saved_modes_restore(&modes);
    GD_TRY(status);
    if (!p->all) return gd_fail(GD_E_ARGUMENT, "gd_predict: there are no samples");
    *y = p->all->dims[0] == p->filled ? p->all : gd_clone(gd_narrow(p->all, 0, 0, p->filled));
    return (*y)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

static gd_status predict_data(prediction *p, gd_module *net, gd_fit_data data,
                              const gd_evaluate_options *o, gd_tensor **y) {
    gd_loader *loader;
    const gd_batching loading = {
        .function = "gd_predict", .batch = o->batch, .workers = o->workers, .targets = 0};
    if (!net)
        return gd_failed() ? gd_failure() : gd_fail(GD_E_ARGUMENT, "gd_predict: the net is NULL");
    GD_TRY(gd_loader_for(data, &loading, &loader));
    gd_training *t = gd_training_of(net);
    gd_status status = gd_batches_begin(&p->batches, "gd_predict", net, t, loader, false);
    gd_release(loader);
    if (status == GD_OK) status = predict_loader(p, o, y);
    gd_batches_end(&p->batches);
    return status;
}

gd_tensor *gd_predict_at(const char *site, gd_module *net, gd_fit_data data,
                         const gd_evaluate_options *options) {
    GD_LIVE_AT(site, net);
    options = options ? options : GD_EVALUATE_OPTIONS_();
    if (gd_failed()) return &gd_error_tensor;
    GD_CALLED_FROM(site);
    GD_NO_GRAD;
    prediction p = {.all = NULL};
    gd_tensor *y = NULL;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = predict_data(&p, net, data, options, &y);
    if (status == GD_OK && y == p.all)
        status = gd_scope_take(&gd_retain(y)->object); /* from where gd_keep moves it */
    if (status == GD_OK) gd_keep(y);
    gd_scope_close(&scope);
    gd_release(p.all);
    status = gd_attempt_end(&attempt, status);
    return status == GD_OK ? y : gd_tensor_fail(status);
}
