/* norm_fold_kernels.c - folds a batch norm into the weight and bias of the convolution before
 * it. */
#include <math.h>

#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/extend.h"
#include "gradus/ops.h"

enum { TASK_ELEMENTS = 16384 }; /* roughly */

typedef struct fold_job {
    const gd_kernel_call *k;
    int64_t channels, n, per_task; /* n: weights of a channel; channels per task */
} fold_job;

static double load_float(const gd_view *v, int64_t i, double fallback) {
    if (!v->data) return fallback;
    return v->dtype == GD_F64 ? ((const double *)v->data)[i] : (double)((const float *)v->data)[i];
}

static void fold_channel(const fold_job *j, int64_t c) {
    const gd_kernel_call *k = j->k;
    const gd_norm_fold_options *o = k->attrs;
    const double s = load_float(&k->in[2], c, 1) / sqrt(load_float(&k->in[5], c, 0) + o->eps);
    const double b = (load_float(&k->in[1], c, 0) - load_float(&k->in[4], c, 0)) * s +
                     load_float(&k->in[3], c, 0);
    if (k->in[0].dtype == GD_F64) {
        const double *w = (const double *)k->in[0].data + c * j->n;
        double *w2 = (double *)k->out[0].data + c * j->n;
        for (int64_t i = 0; i < j->n; i++) w2[i] = w[i] * s;
        ((double *)k->out[1].data)[c] = b;
    } else {
        const float *w = (const float *)k->in[0].data + c * j->n, scale = (float)s;
        float *w2 = (float *)k->out[0].data + c * j->n;
        for (int64_t i = 0; i < j->n; i++) w2[i] = w[i] * scale;
        ((float *)k->out[1].data)[c] = (float)b;
    }
}

static void fold_task(void *arg, int64_t task) {
    const fold_job *j = arg;
    const int64_t from = task * j->per_task,
                  to = from + j->per_task < j->channels ? from + j->per_task : j->channels;
    for (int64_t c = from; c < to; c++) fold_channel(j, c);
}

/*kernel norm_fold.channels  rank 10  contiguous  dtypes f32 f64
 * A task scales the weights of some channels.
 */

static gd_status norm_fold_channels_run(gd_kernel_call *k) {
    fold_job j = {
        .k = k, .channels = k->in[0].dims[0], .n = gd_numel(k->in[0].rank - 1, k->in[0].dims + 1)};
    j.per_task = j.n < TASK_ELEMENTS ? TASK_ELEMENTS / (j.n > 0 ? j.n : 1) : 1;
    gd_parallel_for((j.channels + j.per_task - 1) / j.per_task, fold_task, &j);
    return GD_OK;
}

#include "ops/norm/cpu/norm_fold_kernels.gen.h"
