/* layers_norm.c - normalization layers: batch, instance, layer, RMS, group, local response. */
#include <math.h>

#include "gradus/autograd.h"
#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/* --- batch norms ------------------------------------------------------------------------------ */

/* The options of batch norms and instance norms. */
typedef struct norm_options {
    int min_rank, max_rank; /* of x */
    int64_t num_features;
    double momentum, eps; /* momentum NaN: the average of all batches */
    bool affine, track;
} norm_options;
enum { WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR, NUM_BATCHES };

static norm_options read_batch_norm_options(const gd_module *m) {
    const gd_nn_batch_norm3d_options o = GD_LAYER_OPTIONS(gd_nn_batch_norm3d_options, m);
    const int axes = gd_layer_variant(m);
    return (norm_options){.min_rank = axes == 1 ? 2 : axes + 2, /* (N, C), (N, C, ...) */
                          .max_rank = axes + 2,
                          .num_features = o.num_features,
                          .momentum = o.momentum,
                          .eps = o.eps,
                          .affine = o.affine,
                          .track = o.track_running_stats};
}

/* weight, bias, running_mean and running_var (num_features); num_batches_tracked (). */
static gd_status build_norm(gd_module *m, const norm_options *o) {
    const gd_shape dims = gd_dims(o->num_features);
    GD_TRY(o->affine ? gd_layer_fill(m, "weight", dims, 1) : gd_layer_absent(m, "weight"));
    GD_TRY(o->affine ? gd_layer_fill(m, "bias", dims, 0) : gd_layer_absent(m, "bias"));
    if (!o->track) return GD_OK;
    GD_TRY(gd_layer_buffer(m, "running_mean", dims, GD_DTYPE_NONE, 0));
    GD_TRY(gd_layer_buffer(m, "running_var", dims, GD_DTYPE_NONE, 1));
    return gd_layer_buffer(m, "num_batches_tracked", gd_dims(), GD_I64, 0);
}

static gd_status check_rank(const gd_tensor *x, int least, int most) {
    char text[160];
    if (x->rank >= least && x->rank <= most) return GD_OK;
    if (least == most)
        return gd_fail(GD_E_SHAPE, "x must have %d dimensions (N, C, ...); it is %s", most,
                       gd_describe(x, text, sizeof text));
    return gd_fail(GD_E_SHAPE, "x must have %d or %d dimensions; it is %s", least, most,
                   gd_describe(x, text, sizeof text));
}

/* Updates the running statistics to the average of all batches so far: the n-th batch moves them by
 * 1/n of the difference. n is a tensor, so that a plan stays valid. */
static gd_tensor *average_all_batches(gd_module *m, gd_tensor *x, gd_tensor *count) {
    GD_NO_GRAD;
    gd_shape axes = {.rank = x->rank - 1, .form = 1}; /* all but the channels */
    for (int i = 0; i < axes.rank; i++) axes.at[i] = i ? i + 1 : 0;
    gd_tensor *mean = gd_layer_tensor_at(m, RUNNING_MEAN),
              *var = gd_layer_tensor_at(m, RUNNING_VAR);
    gd_tensor *share = gd_reciprocal(gd_cast(count, (gd_dtype)mean->dtype));
    gd_tensor *first = gd_layer_write(mean, gd_lerp(mean, gd_mean(x, .axis = axes), share));
    gd_tensor *second = gd_layer_write(var, gd_lerp(var, gd_var(x, .axis = axes), share));
    return first->kind == GD_SYMBOL ? gd_group(gd_list(first, second)) : second;
}

/*layer batch_norm{1,2,3}d(x, num_features:int) -> y
 * Normalizes each channel of x {(N, C) or (N, C, L)|(N, C, H, W)|(N, C, D, H, W)}: in train mode
 * with the mean and variance of the batch, by which it updates running_mean and running_var; in
 * eval mode with these.
 *   momentum float = 0.1   weight of a new batch in the running statistics; NAN: they average all batches
 *   eps float = 1e-5       added to the variance
 *   affine bool = true     has a weight and a bias
 *   track_running_stats bool = true   false: every mode uses the statistics of the batch
 *   finds num_features x[1]
 *   python BatchNorm{}d(num_features, eps, momentum?, affine, track_running_stats, bias!True)
 */
static gd_status batch_normNd_check(const gd_module *m) {
    const norm_options o = read_batch_norm_options(m);
    GD_TRY(gd_layer_size(m, "num_features", o.num_features));
    if (!isnan(o.momentum)) GD_TRY(gd_layer_within(m, "momentum", o.momentum, 0, 1, true));
    return gd_layer_within(m, "eps", o.eps, 0, (double)INFINITY, false);
}
static gd_status batch_normNd_build(gd_module *m) {
    const norm_options o = read_batch_norm_options(m);
    return build_norm(m, &o);
}
static gd_tensors batch_normNd_forward(gd_module *m, gd_tensors in) {
    const norm_options o = read_batch_norm_options(m);
    gd_tensor *x = in.at[0];
    const gd_status status = check_rank(x, o.min_rank, o.max_rank);
    if (status != GD_OK) return gd_layer_fail(status);
    const bool training = gd_layer_is_training(m), updates = training && o.track;
    const bool averages_all = updates && isnan(o.momentum);
    gd_tensor *write = NULL;
    if (updates) {
        gd_tensor *count = gd_layer_tensor_at(m, NUM_BATCHES);
        write = gd_layer_write(count, gd_add(count, gd_scalar_int(1)));
        if (averages_all) write = average_all_batches(m, x, write);
    }
    GD_LAYER_AFTER(write);
    const bool passes_statistics = o.track && !averages_all; /* the op reads or updates them */
    gd_tensor *mean = passes_statistics ? gd_layer_tensor_at(m, RUNNING_MEAN) : NULL,
              *var = passes_statistics ? gd_layer_tensor_at(m, RUNNING_VAR) : NULL;
    return gd_listed(gd_batch_norm(x, gd_layer_tensor_at(m, WEIGHT), gd_layer_tensor_at(m, BIAS),
                                   mean, var, .training = training || !o.track,
                                   .momentum = isnan(o.momentum) ? 0.1 : o.momentum, .eps = o.eps));
}

/* --- instance norms --------------------------------------------------------------------------- */

static norm_options read_instance_norm_options(const gd_module *m) {
    const gd_nn_instance_norm3d_options o = GD_LAYER_OPTIONS(gd_nn_instance_norm3d_options, m);
    const int axes = gd_layer_variant(m);
    return (norm_options){.min_rank = axes + 1, /* (C, ...) */
                          .max_rank = axes + 2,
                          .num_features = o.num_features,
                          .momentum = o.momentum,
                          .eps = o.eps,
                          .affine = o.affine,
                          .track = o.track_running_stats};
}

/*layer instance_norm{1,2,3}d(x, num_features:int) -> y
 * Normalizes each channel of each sample of x (N, C, {L|H, W|D, H, W}), with or without N.
 *   momentum float = 0.1   weight of a new batch in the running statistics
 *   eps float = 1e-5       added to the variance
 *   affine bool = false    has a weight and a bias
 *   track_running_stats bool = false   keeps running statistics for eval mode
 *   finds num_features x[1]
 *   python InstanceNorm{}d(num_features, eps, momentum, affine, track_running_stats, bias!True)
 */
static gd_status instance_normNd_check(const gd_module *m) {
    const norm_options o = read_instance_norm_options(m);
    GD_TRY(gd_layer_size(m, "num_features", o.num_features));
    GD_TRY(gd_layer_within(m, "momentum", o.momentum, 0, 1, true));
    return gd_layer_within(m, "eps", o.eps, 0, (double)INFINITY, false);
}
static gd_status instance_normNd_build(gd_module *m) {
    const norm_options o = read_instance_norm_options(m);
    return build_norm(m, &o);
}
/* In train mode: uses the statistics of x and updates the running ones. In eval mode: uses the
 * running statistics if the layer tracks them, otherwise those of x. */
static gd_tensors instance_normNd_forward(gd_module *m, gd_tensors in) {
    const norm_options o = read_instance_norm_options(m);
    gd_tensor *x = in.at[0];
    const gd_status status = check_rank(x, o.min_rank, o.max_rank);
    if (status != GD_OK) return gd_layer_fail(status);
    const bool training = gd_layer_is_training(m), unbatched = x->rank == o.min_rank;
    if (unbatched) x = gd_unsqueeze(x, 0);
    gd_tensor *mean = o.track ? gd_layer_tensor_at(m, RUNNING_MEAN) : NULL,
              *var = o.track ? gd_layer_tensor_at(m, RUNNING_VAR) : NULL;
    gd_tensor *y = gd_instance_norm(x, gd_layer_tensor_at(m, WEIGHT), gd_layer_tensor_at(m, BIAS),
                                    .running_mean = mean, .running_var = var,
                                    .use_input_stats = training || !o.track, .momentum = o.momentum,
                                    .eps = o.eps);
    return gd_listed(unbatched ? gd_squeeze(y, .axis = gd_dims(0)) : y);
}

/* --- layer, RMS, group and local response norms ----------------------------------------------- */

/* Sizes of the last dimensions. If there is only one, it may be GD_ANY. */
static gd_status check_normalized(const gd_module *m, const gd_shape *dims) {
    if (dims->form != 1 || dims->rank < 1)
        return gd_fail(GD_E_ARGUMENT, "%s: normalized_dims has no numbers", m->type);
    for (int i = 0; i < dims->rank; i++)
        if (dims->at[i] < 1 && !(dims->rank == 1 && dims->at[0] == GD_ANY))
            return gd_fail(GD_E_ARGUMENT,
                           "%s: normalized_dims has %lld; sizes must be at least 1; a single "
                           "size may be GD_ANY",
                           m->type, (long long)dims->at[i]);
    return GD_OK;
}

/*layer layer_norm(x, normalized_dims:int[]) -> y  of layer_norm
 * Normalizes the last dimensions of x, whose sizes are normalized_dims; weight and bias have that
 * shape.
 *   eps float = 1e-5                 added to the variance
 *   elementwise_affine bool = true   has a weight and a bias
 *   bias bool = true                 false: has only a weight
 *   finds normalized_dims x[-1]
 *   python (normalized_shape=normalized_dims, eps, elementwise_affine, bias)
 */
static gd_status layer_norm_check(const gd_module *m) {
    const gd_nn_layer_norm_options *o = m->options;
    GD_TRY(check_normalized(m, &o->normalized_dims));
    return gd_layer_within(m, "eps", o->eps, 0, (double)INFINITY, false);
}
static gd_status layer_norm_build(gd_module *m) {
    const gd_nn_layer_norm_options *o = m->options;
    if (!o->elementwise_affine) return GD_OK;
    GD_TRY(gd_layer_fill(m, "weight", o->normalized_dims, 1));
    return o->bias ? gd_layer_fill(m, "bias", o->normalized_dims, 0) : gd_layer_absent(m, "bias");
}

/*layer rms_norm(x, normalized_dims:int[]) -> y  of rms_norm
 * Divides the last dimensions of x by the root of the mean of their squares; the weight has their
 * shape.
 *   eps float = none                 added to the mean; none: machine epsilon of f32 (f64)
 *   elementwise_affine bool = true   has a weight
 *   finds normalized_dims x[-1]
 *   python RMSNorm(normalized_shape=normalized_dims, eps, elementwise_affine)
 */
static gd_status rms_norm_check(const gd_module *m) {
    const gd_nn_rms_norm_options *o = m->options;
    GD_TRY(check_normalized(m, &o->normalized_dims));
    return isnan(o->eps) ? GD_OK : gd_layer_within(m, "eps", o->eps, 0, (double)INFINITY, false);
}
static gd_status rms_norm_build(gd_module *m) {
    const gd_nn_rms_norm_options *o = m->options;
    return o->elementwise_affine ? gd_layer_fill(m, "weight", o->normalized_dims, 1) : GD_OK;
}

/*layer group_norm(x, groups:int, num_channels:int) -> y  of group_norm
 * Normalizes each group of num_channels / groups channels of x (N, C, ...).
 *   eps float = 1e-5     added to the variance
 *   affine bool = true   has a weight and a bias for each channel
 *   finds num_channels x[1]
 *   python (num_groups=groups, num_channels, eps, affine, bias!True)
 */
static gd_status group_norm_check(const gd_module *m) {
    const gd_nn_group_norm_options *o = m->options;
    GD_TRY(gd_layer_at_least(m, "groups", o->groups, 1));
    GD_TRY(gd_layer_size(m, "num_channels", o->num_channels));
    if (o->num_channels != GD_ANY && o->num_channels % o->groups)
        return gd_fail(GD_E_ARGUMENT,
                       "%s: groups is %lld; it must divide num_channels, which is %lld", m->type,
                       (long long)o->groups, (long long)o->num_channels);
    return gd_layer_within(m, "eps", o->eps, 0, (double)INFINITY, false);
}
static gd_status group_norm_build(gd_module *m) {
    const gd_nn_group_norm_options *o = m->options;
    if (!o->affine) return GD_OK;
    GD_TRY(gd_layer_fill(m, "weight", gd_dims(o->num_channels), 1));
    return gd_layer_fill(m, "bias", gd_dims(o->num_channels), 0);
}

/*layer local_response_norm(x, size:int) -> y  of local_response_norm
 * Divides each element of x (N, C, ...) by (k + alpha m)^beta, m being the mean of the squares of
 * `size` neighboring channels.
 *   options of local_response_norm
 *   python (size, alpha, beta, k)
 */
static gd_status local_response_norm_check(const gd_module *m) {
    const gd_nn_local_response_norm_options *o = m->options;
    return gd_layer_at_least(m, "size", o->size, 1);
}

#include "nn/layers_norm.gen.h"
