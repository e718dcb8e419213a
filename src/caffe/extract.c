/* extract.c - gd_caffe_extract: the values of blobs over batches of a net's data, in a .npz file. */
#include <string.h>

#include "caffe/net.h"
#include "caffe/stages.h"
#include "caffe/weights.h"
#include "core/alloc.h"
#include "core/tensor.h"
#include "core/tensor_list.h"
#include "core/thread.h"
#include "gradus/caffe.h"
#include "gradus/npy.h"
#include "gradus/ops.h"

/* The values of each output, batch by batch: n_outputs lists of `count` tensors, retained. */
typedef struct extraction {
    gd_caffe_text_net *net;
    gd_tensor **values;
    int64_t iterations, count;
} extraction;

static gd_status run_batch(extraction *e) {
    GD_SCOPE;
    GD_NO_GRAD;
    gd_tensors batch;
    GD_TRY(gd_caffe_next_batch(e->net, &batch));
    const gd_tensors y = gd_module_call_at(NULL, e->net->module, batch);
    if (gd_failed()) return gd_failure();
    for (int i = 0; i < e->net->n_outputs; i++) {
        gd_tensor *value = gd_to_device(y.at[i], gd_device_get("cpu"));
        if (gd_tensor_rank(value) == 0) value = gd_reshape(value, gd_dims(1)); /* one for a batch */
        if (value->kind == GD_FAILED) return gd_failure();
        gd_retain(e->values[i * e->iterations + e->count] = value);
    }
    e->count++;
    return GD_OK;
}

static gd_status write(const extraction *e, const char *file) {
    const int n = e->net->n_outputs;
    const char **names = gd_calloc((size_t)n + 1, sizeof *names);
    gd_tensor **all = gd_list_new(n);
    gd_status status = names && all ? GD_OK : gd_no_memory(file, "for features");
    for (int i = 0; i < n && status == GD_OK; i++) {
        names[i] = e->net->outputs[i].name;
        const gd_tensors batches = {&e->values[i * e->iterations], e->iterations};
        all[i] = gd_cat(batches);
        if (all[i]->kind == GD_FAILED) status = gd_failure();
    }
    if (status == GD_OK) status = gd_save_npz_at(NULL, file, names, (gd_tensors){all, n});
    gd_free(names);
    return status;
}

static gd_status run(extraction *e, const char *file) {
    GD_TRY(gd_caffe_check_fed(e->net, "an extraction"));
    e->values = gd_calloc((size_t)e->iterations, (size_t)e->net->n_outputs * sizeof *e->values);
    if (!e->values) return gd_no_memory(file, "for features");
    for (int64_t i = 0; i < e->iterations; i++) GD_TRY(run_batch(e));
    return write(e, file);
}

static gd_status extract(const char *path, const char *blobs, const char *file,
                         const gd_caffe_extract_options *o) {
    extraction e = {.iterations = o->iterations};
    const char *stages[GD_CAFFE_MAX_STAGES];
    const gd_caffe_data_options data = {
        .workers = o->workers, .dummy = o->dummy, .device = gd_default_device()};
    gd_caffe_net_settings settings = {.phase = GD_CAFFE_TEST,
                                      .level = o->level,
                                      .stages = stages,
                                      .outputs = blobs,
                                      .data = &data,
                                      .no_fill = o->weights != NULL};
    if (!path || !blobs || !file)
        return gd_fail(GD_E_ARGUMENT, "gd_caffe_extract: the %s is NULL",
                       !path    ? "path of the net"
                       : !blobs ? "list of blobs"
                                : "path of the file");
    if (o->iterations < 1 || o->iterations > 1000000000)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_caffe_extract: iterations is %lld; it must be in [1, 1000000000]",
                       (long long)o->iterations);
    GD_TRY(gd_caffe_read_stages(o->stages, stages, &settings.n_stages));
    GD_TRY(gd_caffe_net_read(&e.net, path, &settings));
    gd_status status = o->weights ? gd_caffe_load_weights(o->weights, e.net->module) : GD_OK;
    if (status == GD_OK) status = run(&e, file);
    for (int64_t i = 0; e.values && i < e.iterations * e.net->n_outputs; i++)
        if (e.values[i]) gd_release(e.values[i]);
    gd_free(e.values);
    gd_caffe_net_free(e.net);
    return status;
}

gd_status gd_caffe_extract_at(const char *site, const char *path, const char *blobs,
                              const char *file, const gd_caffe_extract_options *o) {
    static const gd_caffe_extract_options by_default = {.iterations = 1};
    GD_CALLED_FROM(site);
    GD_SCOPE;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    const gd_status status = extract(path, blobs, file, o ? o : &by_default);
    return gd_report(site, gd_attempt_end(&attempt, status));
}
