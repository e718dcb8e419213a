/* norm.c - batch, layer, group, instance and RMS normalization.
 *
 * Kernels and bodies treat x as (n, c, s): n samples, c channels, s elements in each. For layer and
 * RMS norm s = 1, and the normalized dims are the channels. Batch norm has one mean for each
 * channel, taken over n and s. The others have one mean for each sample and group of adjacent
 * channels, taken over the group's channels and s.
 */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/thread.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"

/* --- shared helpers --------------------------------------------------------------------------- */

/* The dtype of statistics and of computation: f32 for f16 and bf16. */
static gd_dtype wide_dtype(const gd_tensor *x) { return gd_wide_dtype((gd_dtype)x->dtype); }

static void meta_vector(gd_meta *y, gd_dtype dtype, int64_t n) {
    y->dtype = dtype;
    y->rank = 1;
    y->dims[0] = n;
}

/* Checks an optional parameter: these dims, and x's dtype or the wide one. */
static gd_status check_parameter(const gd_tensor *t, const char *name, const gd_tensor *x, int rank,
                                 const int64_t *dims) {
    char a[128], b[128];
    if (!t) return GD_OK;
    if (t->dtype != x->dtype && t->dtype != wide_dtype(x))
        return gd_op_fail(GD_E_DTYPE, "'%s' is %s and 'x' %s; it must be the same%s", name,
                          gd_dtype_name((gd_dtype)t->dtype), gd_dtype_name((gd_dtype)x->dtype),
                          wide_dtype(x) != x->dtype ? ", or f32" : "");
    if (t->rank != rank || memcmp(t->dims, dims, sizeof(int64_t) * (size_t)rank) != 0)
        return gd_op_fail(GD_E_SHAPE, "'%s' must have shape %s, not %s", name,
                          gd_shape_text(rank, dims, a, sizeof a),
                          gd_shape_text(t->rank, t->dims, b, sizeof b));
    return GD_OK;
}

/* Channels are axis 1. An empty vector counts as having 0 channels. */
static int64_t channel_count(int rank, const int64_t *dims) { return rank > 1 ? dims[1] : 0; }

static gd_status check_rank(const gd_tensor *x) {
    if (x->rank > 1 || (x->rank == 1 && x->dims[0] == 0)) return GD_OK;
    return gd_op_fail(GD_E_SHAPE,
                      "'x' must have at least 2 dimensions (N,C,...), not %d; gd_unsqueeze(x, 0) "
                      "adds the dimension N",
                      x->rank);
}

/* (n, c, s) of a tensor whose channels are axis 1. */
static gd_shape channels_of(const gd_tensor *x) {
    gd_shape dims = gd_dims(x->dims[0], channel_count(x->rank, x->dims), 1);
    for (int k = 2; k < x->rank; k++) dims.at[2] *= x->dims[k];
    return dims;
}

/* The reference kernels of all norms share these functions, which compute in f64. norm_shape says
 * over which elements each mean and variance is taken. */
typedef struct {
    int64_t n, c, s, groups; /* groups 0: batch norm */
    bool centered;           /* the mean is subtracted; false for RMS norm */
} norm_shape;

static int64_t statistic_count(const norm_shape *p) { return p->groups ? p->n * p->groups : p->c; }
static double elements_per_statistic(const norm_shape *p) {
    return p->groups ? (double)(p->c / p->groups * p->s) : (double)(p->n * p->s);
}
static int64_t channel_of(const norm_shape *p, int64_t e) { return e / p->s % p->c; }
static int64_t statistic_of(const norm_shape *p, int64_t e) {
    int64_t channel = channel_of(p, e);
    return p->groups ? e / (p->c * p->s) * p->groups + channel / (p->c / p->groups) : channel;
}

static void compute_statistics(const norm_shape *p, const double *x, double eps, double *mean,
                               double *variance, double *rstd) {
    int64_t total = p->n * p->c * p->s, count = statistic_count(p);
    double share = elements_per_statistic(p);
    memset(mean, 0, sizeof(double) * (size_t)count);
    memset(variance, 0, sizeof(double) * (size_t)count);
    for (int64_t e = 0; e < total && p->centered; e++) mean[statistic_of(p, e)] += x[e] / share;
    for (int64_t e = 0; e < total; e++) {
        double d = x[e] - mean[statistic_of(p, e)];
        variance[statistic_of(p, e)] += d * d / share;
    }
    for (int64_t g = 0; g < count; g++) rstd[g] = 1 / sqrt(variance[g] + eps);
}

static void apply_norm(const norm_shape *p, const double *x, const double *weight,
                       const double *bias, const double *mean, const double *rstd, double *y) {
    int64_t total = p->n * p->c * p->s;
    for (int64_t e = 0; e < total; e++) {
        int64_t g = statistic_of(p, e), c = channel_of(p, e);
        y[e] = (x[e] - mean[g]) * rstd[g] * (weight ? weight[c] : 1) + (bias ? bias[c] : 0);
    }
}

/* Forward needs mean, variance and rstd of each statistic; backward only two sums. */
static size_t norm_workspace_bytes(const norm_shape *p) {
    return sizeof(double) * (size_t)(3 * statistic_count(p) + 1);
}

static gd_status norm_forward(const norm_shape *p, gd_kernel_call *k, const double *weight,
                              const double *bias, double eps, gd_view *mean_out,
                              gd_view *rstd_out) {
    int64_t count = statistic_count(p);
    double *mean = k->workspace, *variance = mean + count, *rstd = variance + count;
    compute_statistics(p, k->in[0].data, eps, mean, variance, rstd);
    apply_norm(p, k->in[0].data, weight, bias, mean, rstd, k->out[0].data);
    if (mean_out && mean_out->data) memcpy(mean_out->data, mean, sizeof *mean * (size_t)count);
    if (rstd_out && rstd_out->data) memcpy(rstd_out->data, rstd, sizeof *mean * (size_t)count);
    return GD_OK;
}

/* Computes gx, gweight and gbias. With `fixed`, mean and rstd do not depend on x. */
static gd_status norm_backward(const norm_shape *p, gd_kernel_call *k, const double *mean,
                               const double *rstd, bool fixed) {
    const double *gy = k->in[0].data, *x = k->in[1].data, *weight = k->in[2].data;
    double *gx = k->out[0].data, *gweight = k->out[1].data, *gbias = k->out[2].data;
    int64_t total = p->n * p->c * p->s, count = statistic_count(p);
    double *sum = k->workspace, *dot = sum + count, share = elements_per_statistic(p);
    memset(sum, 0, 2 * sizeof *sum * (size_t)count);
    memset(gweight, 0, sizeof *gweight * (size_t)p->c);
    memset(gbias, 0, sizeof *gbias * (size_t)p->c);
    for (int64_t e = 0; e < total; e++) {
        int64_t g = statistic_of(p, e), c = channel_of(p, e);
        double hat = (x[e] - (mean ? mean[g] : 0)) * rstd[g], w = weight ? weight[c] : 1;
        sum[g] += gy[e] * w / share;
        dot[g] += gy[e] * w * hat / share;
        gweight[c] += gy[e] * hat;
        gbias[c] += gy[e];
    }
    for (int64_t e = 0; e < total; e++) {
        int64_t g = statistic_of(p, e);
        double hat = (x[e] - (mean ? mean[g] : 0)) * rstd[g],
               w = weight ? weight[channel_of(p, e)] : 1;
        gx[e] = rstd[g] * (gy[e] * w - (fixed ? 0 : (p->centered ? sum[g] : 0) + hat * dot[g]));
    }
    return GD_OK;
}

/*op rsqrt_plus(x, eps:float) -> y  elementwise internal
 * 1 / sqrt(x + eps).
 *   y = rsqrt(x + eps)
 */

/* A vector (c) as (1, c, 1); NULL stays NULL. */
static gd_tensor *as_channels(gd_tensor *t) { return t ? gd_reshape(t, gd_dims(1, -1, 1)) : NULL; }

static gd_tensor *mean_over(gd_tensor *x, gd_shape axes) {
    return gd_mean(x, .axis = axes, .keepdim = true);
}

/* --- batch norm ------------------------------------------------------------------------------- */

/*op batch_norm(x, weight?, bias?, running_mean!?, running_var!?) -> y, mean~, rstd~
 * Normalizes each channel of x (N,C,...) to mean 0 and variance 1, then multiplies by its weight
 * and adds its bias. In training, it uses the mean and variance of the batch and updates the
 * running statistics: running = (1 - momentum) running + momentum new (with the unbiased variance).
 * Otherwise it uses the running statistics.
 *   training bool = false
 *   momentum float = 0.1
 *   eps float = 1e-5       added to the variance
 *   saves x, weight, mean, rstd
 *   onnx BatchNormalization
 *   python (x, running_mean, running_var, weight, bias, training, momentum, eps)
 */
static gd_status batch_norm_infer(gd_infer *i) {
    const gd_batch_norm_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    GD_TRY(gd_need_float(x, "x"));
    GD_TRY(check_rank(x));
    const int64_t channels = channel_count(x->rank, x->dims);
    const char *names[] = {"x", "weight", "bias", "running_mean", "running_var"};
    for (int k = 1; k < 5; k++) GD_TRY(check_parameter(i->in[k], names[k], x, 1, &channels));
    if (!i->in[3] != !i->in[4])
        return gd_op_fail(GD_E_ARGUMENT,
                          "'running_mean' and 'running_var' must both be given, or neither");
    if (!o->training && !i->in[3])
        return gd_op_fail(GD_E_ARGUMENT,
                          "without training, 'running_mean' and 'running_var' are needed");
    gd_shape dims = channels_of(x);
    if (o->training && dims.at[0] * dims.at[2] == 1)
        return gd_op_fail(GD_E_SHAPE, "training needs more than one value for each channel");
    gd_meta_like(&i->out[0], x);
    meta_vector(&i->out[1], wide_dtype(x), channels);
    meta_vector(&i->out[2], wide_dtype(x), channels);
    return GD_OK;
}
static void batch_norm_vjp(gd_vjp *v) {
    const gd_batch_norm_options *o = v->attrs;
    gd_batch_norm_grad_outputs g =
        gd_batch_norm_grad(v->gy[0], v->x[0], v->x[1], v->y[1], v->y[2], o->training, o->eps);
    v->gx[0] = g.gx;
    if (v->needs[1]) v->gx[1] = g.gweight;
    if (v->needs[2]) v->gx[2] = g.gbias;
}

/* running = (1 - momentum) running + momentum latest, without recording it on the tape. Returns the
 * new value. */
static gd_tensor *update_running(gd_tensor *running, gd_tensor *latest, double momentum) {
    gd_this_thread.no_grad++;
    gd_tensor *old = gd_as_dtype(running, (gd_dtype)latest->dtype);
    gd_tensor *share = gd_affine(gd_reshape(latest, gd_tensor_shape(running)), momentum, 0);
    gd_tensor *now = gd_assign(running, gd_add(gd_affine(old, 1 - momentum, 0), share));
    gd_this_thread.no_grad--;
    return now;
}

/*op after_write(x, written) -> y  elementwise internal
 * x. In a graph the dependency on `written` makes the write run before the result is used.
 *   y  = x
 *   gx = gy
 *   gwritten = 0
 */

/* y, with a dependency on both writes so that a graph runs them; nothing else uses them. One
 * element of each is enough. */
static gd_tensor *after_writes(gd_tensor *y, gd_tensor **written) {
    if (!written[0] || written[0]->kind != GD_SYMBOL || gd_tensor_numel(written[0]) == 0) return y;
    for (int i = 0; i < 2; i++)
        y = gd_after_write(y, gd_as_dtype(gd_select(written[i], 0, 0), (gd_dtype)y->dtype));
    return y;
}

static void batch_norm_expand(gd_expansion *e) {
    const gd_batch_norm_options *o = e->attrs;
    gd_dtype dtype = wide_dtype(e->x[0]);
    gd_shape dims = channels_of(e->x[0]), axes = gd_dims(0, 2);
    gd_tensor *x = gd_reshape(gd_as_dtype(e->x[0], dtype), dims), *mean, *var;
    gd_tensor *written[2] = {NULL, NULL};
    int64_t n = dims.at[0] * dims.at[2];
    if (o->training && n > 0) {
        mean = mean_over(x, axes);
        var = gd_var(x, .axis = axes, .correction = 0, .keepdim = true);
        if (e->x[3]) {
            written[0] = update_running(e->x[3], mean, o->momentum);
            written[1] =
                update_running(e->x[4], gd_var(x, .axis = axes, .keepdim = true), o->momentum);
        }
    } else if (o->training) {
        e->y[0] = gd_clone(e->x[0]);
        return;
    } else {
        mean = as_channels(gd_as_dtype(gd_stop_gradient(e->x[3]), dtype));
        var = as_channels(gd_as_dtype(gd_stop_gradient(e->x[4]), dtype));
    }
    gd_tensor *y = gd_mul(gd_sub(x, mean), gd_rsqrt_plus(var, o->eps));
    if (e->x[1]) y = gd_mul(y, as_channels(gd_as_dtype(e->x[1], dtype)));
    if (e->x[2]) y = gd_add(y, as_channels(gd_as_dtype(e->x[2], dtype)));
    y = gd_reshape(gd_as_dtype(y, (gd_dtype)e->x[0]->dtype), gd_tensor_shape(e->x[0]));
    e->y[0] = after_writes(y, written);
}

static norm_shape channel_norm_shape(const gd_view *x, int64_t groups) {
    norm_shape p = {x->dims[0], channel_count(x->rank, x->dims), 1, groups, true};
    for (int k = 2; k < x->rank; k++) p.s *= x->dims[k];
    return p;
}

static size_t batch_norm_workspace(const gd_kernel_call *k) {
    const norm_shape p = channel_norm_shape(&k->in[0], 0);
    return norm_workspace_bytes(&p);
}
static gd_status batch_norm_reference(gd_kernel_call *k) {
    const gd_batch_norm_options *o = k->attrs;
    norm_shape p = channel_norm_shape(&k->in[0], 0);
    const double *x = k->in[0].data;
    double *running_mean = k->out[3].data, *running_var = k->out[4].data, n = (double)(p.n * p.s);
    double *mean = k->workspace, *variance = mean + p.c, *rstd = variance + p.c;
    if (o->training) compute_statistics(&p, x, o->eps, mean, variance, rstd);
    for (int64_t c = 0; c < p.c; c++) {
        if (!o->training) {
            mean[c] = running_mean[c];
            rstd[c] = 1 / sqrt(running_var[c] + o->eps);
        } else if (running_mean && n > 0) {
            running_mean[c] += o->momentum * (mean[c] - running_mean[c]);
            running_var[c] += o->momentum * (variance[c] * n / (n - 1) - running_var[c]);
        }
    }
    apply_norm(&p, x, k->in[1].data, k->in[2].data, mean, rstd, k->out[0].data);
    if (k->out[1].data) memcpy(k->out[1].data, mean, sizeof *mean * (size_t)p.c);
    if (k->out[2].data) memcpy(k->out[2].data, rstd, sizeof *mean * (size_t)p.c);
    return GD_OK;
}

/* Checks the inputs (gy, x, weight?, mean?, rstd) of a gradient op: gy has x's shape, the
 * statistics `count` elements, the weight one for each channel. */
static gd_status check_norm_grad(const gd_infer *i, int64_t channels, int64_t count) {
    const gd_tensor *gy = i->in[0], *x = i->in[1];
    GD_TRY(gd_need_float(x, "x"));
    GD_TRY(gd_need_same_dtype(x, gy, "x", "gy"));
    if (gy->rank != x->rank || memcmp(gy->dims, x->dims, sizeof(int64_t) * x->rank) != 0)
        return gd_op_fail(GD_E_SHAPE, "'gy' must have the shape of 'x'");
    if (i->in[2]) {
        GD_TRY(gd_need_float(i->in[2], "weight"));
        if (gd_numel(i->in[2]->rank, i->in[2]->dims) != channels)
            return gd_op_fail(GD_E_SHAPE, "'weight' must have %lld elements", (long long)channels);
    }
    for (int k = 3; k < 5; k++) {
        const gd_tensor *t = k < i->n_in ? i->in[k] : NULL;
        if (!t && k == 3) continue;
        bool fits = t && (t->dtype == wide_dtype(x) || t->dtype == x->dtype) &&
                    gd_numel(t->rank, t->dims) == count;
        if (!fits)
            return gd_op_fail(GD_E_SHAPE, "'%s' must have %lld elements of type %s",
                              i->op->inputs[k].name, (long long)count,
                              gd_dtype_name(wide_dtype(x)));
    }
    return GD_OK;
}

/*op batch_norm_grad(gy, x, weight?, mean, rstd, training:bool, eps:float) -> gx, gweight, gbias  internal
 * The gradient of batch_norm.
 */
static gd_status batch_norm_grad_infer(gd_infer *i) {
    const gd_tensor *x = i->in[1];
    GD_TRY(check_rank(x));
    const int64_t channels = channel_count(x->rank, x->dims);
    GD_TRY(check_norm_grad(i, channels, channels));
    gd_meta_like(&i->out[0], x);
    meta_vector(&i->out[1], wide_dtype(x), channels);
    meta_vector(&i->out[2], wide_dtype(x), channels);
    return GD_OK;
}
/* A saved statistic with the gradient of the same statistic computed again from x: the saved one is
 * a constant, so gradients of gradients need the recomputed one. */
static gd_tensor *as_function(gd_tensor *value, gd_tensor *again) {
    return gd_add(value, gd_sub(again, gd_stop_gradient(again)));
}
static void batch_norm_grad_expand(gd_expansion *e) {
    const gd_batch_norm_grad_options *o = e->attrs;
    gd_dtype dtype = wide_dtype(e->x[1]);
    gd_shape dims = channels_of(e->x[1]), axes = gd_dims(0, 2);
    gd_tensor *gy = gd_reshape(gd_as_dtype(e->x[0], dtype), dims),
              *x = gd_reshape(gd_as_dtype(e->x[1], dtype), dims);
    gd_tensor *rstd = as_channels(e->x[4]), *from;
    if (o->training && gd_body_differentiates(e)) {
        from = gd_sub(x, as_function(as_channels(e->x[3]), mean_over(x, axes)));
        rstd = as_function(rstd, gd_rsqrt_plus(mean_over(gd_square(from), axes), o->eps));
    } else from = gd_sub(x, as_channels(e->x[3]));
    gd_tensor *hat = gd_mul(from, rstd), *sum = gd_sum(gy, .axis = axes),
              *dot = gd_sum(gd_mul(gy, hat), .axis = axes);
    gd_tensor *g = gy;
    if (o->training)
        g = gd_sub(gd_sub(gy, mean_over(gy, axes)), gd_mul(hat, mean_over(gd_mul(gy, hat), axes)));
    g = gd_mul(g, rstd);
    if (e->x[2]) g = gd_mul(g, as_channels(gd_as_dtype(e->x[2], dtype)));
    e->y[0] = gd_reshape(gd_as_dtype(g, (gd_dtype)e->x[1]->dtype), gd_tensor_shape(e->x[1]));
    e->y[1] = dot;
    e->y[2] = sum;
}
static size_t batch_norm_grad_workspace(const gd_kernel_call *k) {
    const norm_shape p = channel_norm_shape(&k->in[1], 0);
    return norm_workspace_bytes(&p);
}
static gd_status batch_norm_grad_reference(gd_kernel_call *k) {
    const gd_batch_norm_grad_options *o = k->attrs;
    norm_shape p = channel_norm_shape(&k->in[1], 0);
    return norm_backward(&p, k, k->in[3].data, k->in[4].data, !o->training);
}

/* --- layer norm ------------------------------------------------------------------------------- */

/* Sets *rank to the number of trailing dims that are normalized, and checks the parameters. */
static gd_status normalized_rank(const gd_infer *i, const gd_shape *given, int n_parameters,
                                 int *rank) {
    const gd_tensor *x = i->in[0];
    char a[128], b[128];
    gd_shape dims = *given;
    for (int k = 1; k <= n_parameters && !gd_shape_is_set(&dims); k++)
        if (i->in[k]) dims = gd_tensor_shape(i->in[k]);
    if (!gd_shape_is_set(&dims)) dims = gd_dims(x->rank > 0 ? x->dims[x->rank - 1] : 1);
    if (dims.rank < 1 || dims.rank > x->rank ||
        memcmp(dims.at, x->dims + x->rank - dims.rank, sizeof(int64_t) * (size_t)dims.rank) != 0)
        return gd_op_fail(GD_E_SHAPE, "normalized_dims %s are not the last dimensions of 'x' %s",
                          gd_shape_text(dims.rank, dims.at, a, sizeof a),
                          gd_shape_text(x->rank, x->dims, b, sizeof b));
    *rank = dims.rank;
    for (int k = 1; k <= n_parameters; k++)
        GD_TRY(check_parameter(i->in[k], k == 1 ? "weight" : "bias", x, dims.rank, dims.at));
    return GD_OK;
}

static int64_t leading_count(const gd_tensor *x, int rank) {
    return gd_numel(x->rank - rank, x->dims);
}

/* t as (rows, n, 1), where n is the number of normalized elements. */
static gd_tensor *as_rows(gd_tensor *t, int64_t rows, int64_t n) {
    return gd_reshape(t, gd_dims(rows, n, 1));
}

/*op layer_norm(x, weight?, bias?) -> y, mean~, rstd~  fullp
 * Normalizes x over its last dimensions to mean 0 and variance 1, then multiplies by weight and
 * adds bias, which have the shape of those dimensions.
 *   normalized_dims int[] = none  sizes of the last dimensions; none: weight's shape, or the last one
 *   eps float = 1e-5              added to the variance
 *   saves x, weight, mean, rstd
 *   onnx LayerNormalization
 *   python (x, normalized_shape=normalized_dims, weight, bias, eps)
 */
static gd_status layer_norm_infer(gd_infer *i) {
    const gd_layer_norm_options *o = i->attrs;
    int rank;
    GD_TRY(gd_need_float(i->in[0], "x"));
    GD_TRY(normalized_rank(i, &o->normalized_dims, 2, &rank));
    gd_meta_like(&i->out[0], i->in[0]);
    meta_vector(&i->out[1], wide_dtype(i->in[0]), leading_count(i->in[0], rank));
    meta_vector(&i->out[2], wide_dtype(i->in[0]), leading_count(i->in[0], rank));
    return GD_OK;
}

/* The gradient rule of layer and RMS norm. rstd has one element for each row. */
static void rows_vjp(gd_vjp *v, gd_tensor *mean, gd_tensor *rstd, double eps, int n_parameters) {
    gd_tensor *x = v->x[0], *weight = v->x[1];
    int64_t rows = gd_tensor_numel(rstd), n = 1;
    if (rows > 0) n = gd_tensor_numel(x) / rows;
    for (int k = 1; k <= n_parameters; k++)
        if (v->x[k]) n = gd_tensor_numel(v->x[k]);
    gd_row_norm_grad_outputs g =
        gd_row_norm_grad(as_rows(v->gy[0], rows, n), as_rows(x, rows, n),
                         weight ? gd_reshape(weight, gd_dims(n)) : NULL, mean, rstd, 1, eps);
    v->gx[0] = gd_reshape(g.gx, gd_tensor_shape(x));
    for (int k = 1; k <= n_parameters; k++)
        if (v->needs[k])
            v->gx[k] = gd_reshape(k == 1 ? g.gweight : g.gbias, gd_tensor_shape(v->x[k]));
}
static void layer_norm_vjp(gd_vjp *v) {
    const gd_layer_norm_options *o = v->attrs;
    rows_vjp(v, v->y[1], v->y[2], o->eps, 2);
}

/* The normalized axes: as many as normalized_dims, weight or bias has, or the last one. */
static gd_shape normalized_axes(const gd_tensor *x, const gd_shape *given, const gd_tensor *weight,
                                const gd_tensor *bias) {
    int rank = gd_shape_is_set(given) ? given->rank : weight ? weight->rank : bias ? bias->rank : 1;
    gd_shape axes = {.rank = rank, .form = 1};
    for (int k = 0; k < rank; k++) axes.at[k] = x->rank - rank + k;
    return axes;
}
static void layer_norm_expand(gd_expansion *e) {
    const gd_layer_norm_options *o = e->attrs;
    gd_dtype dtype = wide_dtype(e->x[0]);
    gd_tensor *x = gd_as_dtype(e->x[0], dtype);
    gd_shape axes = normalized_axes(x, &o->normalized_dims, e->x[1], e->x[2]);
    gd_tensor *var = gd_var(x, .axis = axes, .correction = 0, .keepdim = true);
    gd_tensor *y = gd_mul(gd_sub(x, mean_over(x, axes)), gd_rsqrt_plus(var, o->eps));
    if (e->x[1]) y = gd_mul(y, gd_as_dtype(e->x[1], dtype));
    if (e->x[2]) y = gd_add(y, gd_as_dtype(e->x[2], dtype));
    e->y[0] = gd_as_dtype(y, (gd_dtype)e->x[0]->dtype);
}

/* x as `rows` rows, with one mean for each. */
static norm_shape row_norm_shape(const gd_view *x, int64_t rows, bool centered) {
    return (norm_shape){rows, rows > 0 ? gd_numel(x->rank, x->dims) / rows : 1, 1, 1, centered};
}
static size_t layer_norm_workspace(const gd_kernel_call *k) {
    const norm_shape p = row_norm_shape(&k->in[0], k->out[1].dims[0], true);
    return norm_workspace_bytes(&p);
}
static gd_status layer_norm_reference(gd_kernel_call *k) {
    const gd_layer_norm_options *o = k->attrs;
    norm_shape p = row_norm_shape(&k->in[0], k->out[1].dims[0], true);
    return norm_forward(&p, k, k->in[1].data, k->in[2].data, o->eps, &k->out[1], &k->out[2]);
}

/*op row_norm_grad(gy, x, weight?, mean?, rstd, groups:int, eps:float) -> gx, gweight, gbias  internal
 * The gradient of layer norm, group norm and, without mean, RMS norm: x (n, c, s), in groups of
 * channels.
 */
static gd_status row_norm_grad_infer(gd_infer *i) {
    const gd_tensor *x = i->in[1];
    int64_t groups = ((const gd_row_norm_grad_options *)i->attrs)->groups;
    GD_TRY(gd_need_rank(x, "x", 3));
    if (groups < 1 || x->dims[1] % groups != 0)
        return gd_op_fail(GD_E_ARGUMENT, "%lld channels cannot be divided into %lld groups",
                          (long long)x->dims[1], (long long)groups);
    GD_TRY(check_norm_grad(i, x->dims[1], x->dims[0] * groups));
    gd_meta_like(&i->out[0], x);
    meta_vector(&i->out[1], wide_dtype(x), x->dims[1]);
    meta_vector(&i->out[2], wide_dtype(x), x->dims[1]);
    return GD_OK;
}
static void row_norm_grad_expand(gd_expansion *e) {
    const gd_row_norm_grad_options *o = e->attrs;
    gd_dtype dtype = wide_dtype(e->x[1]);
    gd_tensor *gy = gd_as_dtype(e->x[0], dtype), *x = gd_as_dtype(e->x[1], dtype), *g = gy;
    int64_t n = x->dims[0], c = x->dims[1], s = x->dims[2];
    gd_shape rows = gd_dims(n, o->groups, c / o->groups * s), axes = gd_dims(0, 2),
             last = gd_dims(2);
    const gd_shape groups = gd_dims(n, o->groups, 1);
    const bool differentiates = gd_body_differentiates(e);
    gd_tensor *from = gd_reshape(x, rows), *rstd = gd_reshape(e->x[4], groups);
    if (e->x[3]) {
        gd_tensor *mean = gd_reshape(e->x[3], groups);
        from = gd_sub(from, differentiates ? as_function(mean, mean_over(from, last)) : mean);
    }
    if (differentiates)
        rstd = as_function(rstd, gd_rsqrt_plus(mean_over(gd_square(from), last), o->eps));
    gd_tensor *hat = gd_mul(from, rstd);
    if (e->x[2]) g = gd_mul(g, as_channels(gd_as_dtype(e->x[2], dtype)));
    g = gd_reshape(g, rows);
    gd_tensor *pull = gd_mul(hat, mean_over(gd_mul(g, hat), last));
    if (e->x[3]) g = gd_sub(g, mean_over(g, last));
    g = gd_mul(gd_sub(g, pull), rstd);
    e->y[0] = gd_reshape(gd_as_dtype(g, (gd_dtype)e->x[1]->dtype), gd_tensor_shape(e->x[1]));
    e->y[1] = gd_sum(gd_mul(gy, gd_reshape(hat, gd_tensor_shape(x))), .axis = axes);
    e->y[2] = gd_sum(gy, .axis = axes);
}
static size_t row_norm_grad_workspace(const gd_kernel_call *k) {
    const norm_shape p =
        channel_norm_shape(&k->in[1], ((const gd_row_norm_grad_options *)k->attrs)->groups);
    return norm_workspace_bytes(&p);
}
static gd_status row_norm_grad_reference(gd_kernel_call *k) {
    const gd_row_norm_grad_options *o = k->attrs;
    norm_shape p = channel_norm_shape(&k->in[1], o->groups);
    p.centered = k->in[3].data != NULL;
    return norm_backward(&p, k, k->in[3].data, k->in[4].data, false);
}

/* --- RMS norm --------------------------------------------------------------------------------- */

/*op rms_norm(x, weight?) -> y, rstd~  fullp
 * Divides x by the root mean square over its last dimensions, then multiplies by weight, which has
 * the shape of those dimensions.
 *   normalized_dims int[] = none  sizes of the last dimensions; none: weight's shape, or the last one
 *   eps float = none              added to the mean; none: machine epsilon of f32 (f64 for an f64 x)
 *   saves x, weight, rstd
 *   onnx RMSNormalization
 *   python (x, normalized_shape=normalized_dims, weight, eps)
 */
static double rms_eps(double eps, gd_dtype dtype) {
    return !isnan(eps) ? eps : dtype == GD_F64 ? 0x1p-52 : 0x1p-23;
}

static gd_status rms_norm_infer(gd_infer *i) {
    const gd_rms_norm_options *o = i->attrs;
    int rank;
    GD_TRY(gd_need_float(i->in[0], "x"));
    GD_TRY(normalized_rank(i, &o->normalized_dims, 1, &rank));
    gd_meta_like(&i->out[0], i->in[0]);
    meta_vector(&i->out[1], wide_dtype(i->in[0]), leading_count(i->in[0], rank));
    return GD_OK;
}
static void rms_norm_vjp(gd_vjp *v) {
    const gd_rms_norm_options *o = v->attrs;
    rows_vjp(v, NULL, v->y[1], rms_eps(o->eps, (gd_dtype)v->x[0]->dtype), 1);
}
static void rms_norm_expand(gd_expansion *e) {
    const gd_rms_norm_options *o = e->attrs;
    gd_dtype dtype = wide_dtype(e->x[0]);
    gd_tensor *x = gd_as_dtype(e->x[0], dtype);
    gd_shape axes = normalized_axes(x, &o->normalized_dims, e->x[1], NULL);
    gd_tensor *y = gd_mul(x, gd_rsqrt_plus(mean_over(gd_square(x), axes), rms_eps(o->eps, dtype)));
    if (e->x[1]) y = gd_mul(y, gd_as_dtype(e->x[1], dtype));
    e->y[0] = gd_as_dtype(y, (gd_dtype)e->x[0]->dtype);
}

static size_t rms_norm_workspace(const gd_kernel_call *k) {
    const norm_shape p = row_norm_shape(&k->in[0], k->out[1].dims[0], false);
    return norm_workspace_bytes(&p);
}
static gd_status rms_norm_reference(gd_kernel_call *k) {
    const gd_rms_norm_options *o = k->attrs;
    norm_shape p = row_norm_shape(&k->in[0], k->out[1].dims[0], false);
    return norm_forward(&p, k, k->in[1].data, NULL, rms_eps(o->eps, k->in[0].dtype), NULL,
                        &k->out[1]);
}

/* --- group and instance norm ------------------------------------------------------------------ */

/*op group_norm(x, groups:int, weight?, bias?) -> y, mean~, rstd~  fullp
 * Normalizes each sample of x (N,C,...) over groups of C/groups channels to mean 0 and variance 1,
 * then multiplies each channel by its weight and adds its bias.
 *   eps float = 1e-5  added to the variance
 *   saves x, weight, mean, rstd
 *   onnx GroupNormalization
 *   python (x, num_groups=groups, weight, bias, eps)
 */
static gd_status group_norm_infer(gd_infer *i) {
    const gd_group_norm_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    GD_TRY(gd_need_float(x, "x"));
    if (x->rank < 2)
        return gd_op_fail(GD_E_SHAPE, "'x' must have at least 2 dimensions (N,C,...), not %d",
                          x->rank);
    if (o->groups < 1 || x->dims[1] % o->groups != 0)
        return gd_op_fail(GD_E_ARGUMENT, "%lld channels cannot be divided into %lld groups",
                          (long long)x->dims[1], (long long)o->groups);
    GD_TRY(check_parameter(i->in[1], "weight", x, 1, &x->dims[1]));
    GD_TRY(check_parameter(i->in[2], "bias", x, 1, &x->dims[1]));
    gd_meta_like(&i->out[0], x);
    meta_vector(&i->out[1], wide_dtype(x), x->dims[0] * o->groups);
    meta_vector(&i->out[2], wide_dtype(x), x->dims[0] * o->groups);
    return GD_OK;
}
static void grouped_vjp(gd_vjp *v, int64_t groups, double eps) {
    gd_shape dims = channels_of(v->x[0]);
    gd_row_norm_grad_outputs g =
        gd_row_norm_grad(gd_reshape(v->gy[0], dims), gd_reshape(v->x[0], dims), v->x[1], v->y[1],
                         v->y[2], groups, eps);
    v->gx[0] = gd_reshape(g.gx, gd_tensor_shape(v->x[0]));
    if (v->needs[1]) v->gx[1] = g.gweight;
    if (v->needs[2]) v->gx[2] = g.gbias;
}
static void group_norm_vjp(gd_vjp *v) {
    const gd_group_norm_options *o = v->attrs;
    grouped_vjp(v, o->groups, o->eps);
}
static void group_norm_expand(gd_expansion *e) {
    const gd_group_norm_options *o = e->attrs;
    gd_dtype dtype = wide_dtype(e->x[0]);
    gd_shape dims = channels_of(e->x[0]), last = gd_dims(2);
    int64_t share = o->groups > 0 ? dims.at[1] / o->groups * dims.at[2] : 0;
    gd_tensor *x = gd_reshape(gd_as_dtype(e->x[0], dtype), gd_dims(dims.at[0], o->groups, share));
    gd_tensor *var = gd_var(x, .axis = last, .correction = 0, .keepdim = true);
    gd_tensor *y =
        gd_reshape(gd_mul(gd_sub(x, mean_over(x, last)), gd_rsqrt_plus(var, o->eps)), dims);
    if (e->x[1]) y = gd_mul(y, as_channels(gd_as_dtype(e->x[1], dtype)));
    if (e->x[2]) y = gd_add(y, as_channels(gd_as_dtype(e->x[2], dtype)));
    e->y[0] = gd_reshape(gd_as_dtype(y, (gd_dtype)e->x[0]->dtype), gd_tensor_shape(e->x[0]));
}
static size_t group_norm_workspace(const gd_kernel_call *k) {
    const norm_shape p =
        channel_norm_shape(&k->in[0], ((const gd_group_norm_options *)k->attrs)->groups);
    return norm_workspace_bytes(&p);
}
static gd_status group_norm_reference(gd_kernel_call *k) {
    const gd_group_norm_options *o = k->attrs;
    norm_shape p = channel_norm_shape(&k->in[0], o->groups);
    return norm_forward(&p, k, k->in[1].data, k->in[2].data, o->eps, &k->out[1], &k->out[2]);
}

/*op instance_norm(x, weight?, bias?) -> y  fullp
 * group_norm with one channel in each group. Running statistics, if given, are updated with the
 * mean and the unbiased variance of each channel, averaged over the batch: running = (1 - momentum)
 * running + momentum new. Without use_input_stats, x is normalized by the running statistics, which
 * stay unchanged.
 *   running_mean tensor!?
 *   running_var tensor!?
 *   use_input_stats bool = true  false: normalize by the running statistics
 *   momentum float = 0.1         weight of the new value in the running statistics
 *   eps float = 1e-5             added to the variance
 *   onnx InstanceNormalization
 *   python (x, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
 */
static gd_status instance_norm_infer(gd_infer *i) {
    const gd_instance_norm_options *o = i->attrs;
    const gd_tensor *x = i->in[0], *mean = i->n_in > 3 ? i->in[3] : NULL,
                    *var = i->n_in > 4 ? i->in[4] : NULL;
    GD_TRY(gd_need_float(x, "x"));
    if (x->rank < 2)
        return gd_op_fail(GD_E_SHAPE, "'x' must have at least 2 dimensions (N,C,...), not %d",
                          x->rank);
    GD_TRY(check_parameter(i->in[1], "weight", x, 1, &x->dims[1]));
    GD_TRY(check_parameter(i->in[2], "bias", x, 1, &x->dims[1]));
    GD_TRY(check_parameter(mean, "running_mean", x, 1, &x->dims[1]));
    GD_TRY(check_parameter(var, "running_var", x, 1, &x->dims[1]));
    if (!mean != !var)
        return gd_op_fail(GD_E_ARGUMENT,
                          "'running_mean' and 'running_var' must both be given, or neither");
    if (!o->use_input_stats && !mean)
        return gd_op_fail(GD_E_ARGUMENT,
                          "without use_input_stats, 'running_mean' and 'running_var' are needed");
    if (o->use_input_stats && mean && channels_of(x).at[2] == 1)
        return gd_op_fail(
            GD_E_SHAPE, "running statistics need more than one value for each channel of a sample");
    gd_meta_like(&i->out[0], x);
    return GD_OK;
}
static void instance_norm_expand(gd_expansion *e) {
    const gd_instance_norm_options *o = e->attrs;
    gd_tensor *x = e->x[0], *mean = e->n_in > 3 ? e->x[3] : NULL,
              *var = e->n_in > 4 ? e->x[4] : NULL;
    if (!o->use_input_stats) e->y[0] = gd_batch_norm(x, e->x[1], e->x[2], mean, var, .eps = o->eps);
    else if (mean && gd_tensor_numel(x) > 0)
        e->y[0] = gd_instance_norm_train(x, e->x[1], e->x[2], mean, var, o->momentum, o->eps);
    else
        e->y[0] =
            gd_group_norm(x, x->dims[1] > 0 ? x->dims[1] : 1, e->x[1], e->x[2], .eps = o->eps);
}

/*op instance_norm_train(x, weight?, bias?, running_mean!, running_var!, momentum:float, eps:float) -> y, mean~, rstd~  internal
 * instance_norm by the statistics of x, with an update of the running statistics.
 *   saves x, weight, mean, rstd
 */
static gd_status instance_norm_train_infer(gd_infer *i) {
    const gd_tensor *x = i->in[0];
    const char *names[] = {"x", "weight", "bias", "running_mean", "running_var"};
    GD_TRY(gd_need_float(x, "x"));
    if (x->rank < 2)
        return gd_op_fail(GD_E_SHAPE, "'x' must have at least 2 dimensions (N,C,...), not %d",
                          x->rank);
    for (int k = 1; k < 5; k++) GD_TRY(check_parameter(i->in[k], names[k], x, 1, &x->dims[1]));
    if (channels_of(x).at[2] < 2)
        return gd_op_fail(
            GD_E_SHAPE, "running statistics need more than one value for each channel of a sample");
    gd_meta_like(&i->out[0], x);
    meta_vector(&i->out[1], wide_dtype(x), x->dims[0] * x->dims[1]);
    meta_vector(&i->out[2], wide_dtype(x), x->dims[0] * x->dims[1]);
    return GD_OK;
}
static void instance_norm_train_vjp(gd_vjp *v) {
    const gd_instance_norm_train_options *o = v->attrs;
    grouped_vjp(v, v->x[0]->dims[1], o->eps);
}
static void instance_norm_train_expand(gd_expansion *e) {
    const gd_instance_norm_train_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    e->y[0] = gd_group_norm(x, x->dims[1], e->x[1], e->x[2], .eps = o->eps);
    gd_tensor *flat = gd_reshape(gd_as_dtype(gd_stop_gradient(x), wide_dtype(x)), channels_of(x));
    gd_shape first = gd_dims(0);
    gd_tensor *written[2] = {
        update_running(e->x[3], gd_mean(gd_mean(flat, .axis = 2), .axis = first), o->momentum),
        update_running(e->x[4], gd_mean(gd_var(flat, .axis = 2), .axis = first), o->momentum)};
    e->y[0] = after_writes(e->y[0], written);
}
static size_t instance_norm_train_workspace(const gd_kernel_call *k) {
    const norm_shape p = channel_norm_shape(&k->in[0], k->in[0].dims[1]);
    return norm_workspace_bytes(&p);
}
static gd_status instance_norm_train_reference(gd_kernel_call *k) {
    const gd_instance_norm_train_options *o = k->attrs;
    norm_shape p = channel_norm_shape(&k->in[0], k->in[0].dims[1]);
    GD_TRY(norm_forward(&p, k, k->in[1].data, k->in[2].data, o->eps, &k->out[1], &k->out[2]));
    double *mean = k->workspace, *variance = mean + p.n * p.c, *running_mean = k->out[3].data,
           *running_var = k->out[4].data;
    double unbiased = (double)p.s / (double)(p.s - 1);
    for (int64_t c = 0; c < p.c && p.n > 0; c++) {
        double new_mean = 0, new_var = 0;
        for (int64_t n = 0; n < p.n; n++) {
            new_mean += mean[n * p.c + c] / (double)p.n;
            new_var += variance[n * p.c + c] * unbiased / (double)p.n;
        }
        running_mean[c] += o->momentum * (new_mean - running_mean[c]);
        running_var[c] += o->momentum * (new_var - running_var[c]);
    }
    return GD_OK;
}

#include "ops/norm/norm.gen.h"
