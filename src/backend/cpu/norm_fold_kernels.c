/* norm_fold_kernels.c - weights with a batch norm in them, on the CPU. */
#include <math.h>

#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/extend.h"
#include "gradus/ops.h"

enum { PIECE = 16384 /* elements of a piece of work for one thread, roughly */ };

typedef struct job {
    const gd_kernel_call *k;
    int64_t channels, n, per_piece; /* weights of a channel; channels of a piece */
} job;

static double at(const gd_view *v, int64_t i, double otherwise) {
    if (!v->data) return otherwise;
    return v->dtype == GD_F64 ? ((const double *)v->data)[i] : (double)((const float *)v->data)[i];
}

static void run_channel(const job *j, int64_t c) {
    const gd_kernel_call *k = j->k;
    const gd_norm_fold_options *o = k->attrs;
    const double s = at(&k->in[2], c, 1) / sqrt(at(&k->in[5], c, 0) + o->eps);
    const double b = (at(&k->in[1], c, 0) - at(&k->in[4], c, 0)) * s + at(&k->in[3], c, 0);
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

static void run_piece(void *arg, int64_t piece) {
    const job *j = arg;
    const int64_t from = piece * j->per_piece,
                  to = from + j->per_piece < j->channels ? from + j->per_piece : j->channels;
    for (int64_t c = from; c < to; c++) run_channel(j, c);
}

/*kernel norm_fold.channels  rank 10  contiguous
 * f32 and f64.
 */
static bool norm_fold_channels_match(const gd_kernel_call *k) {
    return k->in[0].dtype == GD_F32 || k->in[0].dtype == GD_F64;
}

static gd_status norm_fold_channels_run(gd_kernel_call *k) {
    job j = {
        .k = k, .channels = k->in[0].dims[0], .n = gd_numel(k->in[0].rank - 1, k->in[0].dims + 1)};
    j.per_piece = j.n < PIECE ? PIECE / (j.n > 0 ? j.n : 1) : 1;
    gd_parallel_for((j.channels + j.per_piece - 1) / j.per_piece, run_piece, &j);
    return GD_OK;
}

#include "norm_fold_kernels.gen.h"
