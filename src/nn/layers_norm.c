/* layers_norm.c - normalization. */
#include <math.h>

#include "gradus/autograd.h"
#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/* --- batch norms --------------------------------------------------------------------------------- */

typedef struct batch_norm {
    int least, most; /* ranks of x */
    int64_t features;
    double momentum, eps; /* momentum NaN: the average of all batches */
    bool affine, track;
} batch_norm;
enum { WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR, NUM_BATCHES };

static gd_status check_batch(const gd_module *m, const batch_norm *b) {
    GD_TRY(gd_layer_size(m, "num_features", b->features));
    if (!isnan(b->momentum)) GD_TRY(gd_layer_within(m, "momentum", b->momentum, 0, 1, true));
    return gd_layer_within(m, "eps", b->eps, 0, (double)INFINITY, false);
}

/* weight and bias (features); running_mean and running_var (features), num_batches_tracked. */
static gd_status build_batch(gd_module *m, const batch_norm *b) {
    const gd_shape dims = gd_dims(b->features);
    GD_TRY(b->affine ? gd_layer_fill(m, "weight", dims, 1) : gd_layer_absent(m, "weight"));
    GD_TRY(b->affine ? gd_layer_fill(m, "bias", dims, 0) : gd_layer_absent(m, "bias"));
    if (!b->track) return GD_OK;
    GD_TRY(gd_layer_buffer(m, "running_mean", dims, GD_DTYPE_NONE, 0));
    GD_TRY(gd_layer_buffer(m, "running_var", dims, GD_DTYPE_NONE, 1));
    return gd_layer_buffer(m, "num_batches_tracked", gd_dims(), GD_I64, 0);
}

static gd_status check_rank(const gd_tensor *x, int least, int most) {
    char text[160];
    if (x->rank >= least && x->rank <= most) return GD_OK;
    if (least == most)
        return gd_fail(GD_E_SHAPE, "x must have %d dimensions (N, C, ...); it is %s", most, gd_describe(x, text, sizeof text));
    return gd_fail(GD_E_SHAPE, "x must have %d or %d dimensions; it is %s", least, most, gd_describe(x, text, sizeof text));
}

/* The running statistics as the average of all batches so far: with the n-th, they move by 1/n of the difference.
 * n is a tensor, so that a plan stays valid. */
static gd_tensor *follow_all(gd_module *m, gd_tensor *x, gd_tensor *count) {
    GD_NO_GRAD;
    gd_shape axes = {.rank = x->rank - 1, .form = 1}; /* all but the channels */
    for (int i = 0; i < axes.rank; i++) axes.at[i] = i ? i + 1 : 0;
    gd_tensor *mean = gd_layer_tensor_at(m, RUNNING_MEAN), *var = gd_layer_tensor_at(m, RUNNING_VAR);
    gd_tensor *share = gd_reciprocal(gd_cast(count, (gd_dtype)mean->dtype));
    gd_tensor *first = gd_layer_write(mean, gd_lerp(mean, gd_mean(x, .axis = axes), share));
    gd_tensor *second = gd_layer_write(var, gd_lerp(var, gd_var(x, .axis = axes), share));
    return first->kind == GD_SYMBOL ? gd_group(gd_list(first, second)) : second;
}

static gd_tensors forward_batch(gd_module *m, gd_tensors in, const batch_norm *b) {
    gd_tensor *x = in.at[0];
    const gd_status fits = check_rank(x, b->least, b->most);
    if (fits != GD_OK) return gd_layer_fail(fits);
    const bool training = gd_layer_is_training(m), follows = training && b->track;
    gd_tensor *after = NULL;
    if (follows) {
        gd_tensor *count = gd_layer_tensor_at(m, NUM_BATCHES);
        after = gd_layer_write(count, gd_add(count, gd_scalar_int(1)));
        if (isnan(b->momentum)) after = follow_all(m, x, after);
    }
    GD_LAYER_AFTER(after);
    const bool passes = b->track && !(follows && isnan(b->momentum)); /* the op reads or writes them itself */
    gd_tensor *mean = passes ? gd_layer_tensor_at(m, RUNNING_MEAN) : NULL, *var = passes ? gd_layer_tensor_at(m, RUNNING_VAR) : NULL;
    return gd_listed(gd_batch_norm(x, gd_layer_tensor_at(m, WEIGHT), gd_layer_tensor_at(m, BIAS), mean, var,
                                   .training = training || !b->track, .momentum = isnan(b->momentum) ? 0.1 : b->momentum,
                                   .eps = b->eps));
}

#define BATCH(LEAST, MOST, o)                                                                                       \
    ((batch_norm){(LEAST), (MOST), (o)->num_features, (o)->momentum, (o)->eps, (o)->affine, (o)->track_running_stats})

/*layer batch_norm1d(x, num_features:int) -> y
 * Normalizes each channel of x (N, C) or (N, C, L): in train mode with the mean and variance of the batch, which running_mean
 * and running_var follow; in eval mode with these.
 *   momentum float = 0.1   how fast the running statistics follow; NAN (none): they are the average of all batches
 *   eps float = 1e-5       added to the variance
 *   affine bool = true     has a weight and a bias
 *   track_running_stats bool = true   else every mode uses those of the batch
 *   finds num_features x[1]
 */
static gd_status batch_norm1d_check(const gd_module *m) {
    const gd_nn_batch_norm1d_options *o = m->options;
    return check_batch(m, &BATCH(2, 3, o));
}
static gd_status batch_norm1d_build(gd_module *m) {
    const gd_nn_batch_norm1d_options *o = m->options;
    return build_batch(m, &BATCH(2, 3, o));
}
static gd_tensors batch_norm1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_batch_norm1d_options *o = m->options;
    return forward_batch(m, in, &BATCH(2, 3, o));
}

/*layer batch_norm2d(x, num_features:int) -> y
 * Normalizes each channel of x (N, C, H, W): in train mode with the mean and variance of the batch, which running_mean
 * and running_var follow; in eval mode with these.
 *   momentum float = 0.1   how fast the running statistics follow; NAN (none): they are the average of all batches
 *   eps float = 1e-5       added to the variance
 *   affine bool = true     has a weight and a bias
 *   track_running_stats bool = true   else every mode uses those of the batch
 *   finds num_features x[1]
 */
static gd_status batch_norm2d_check(const gd_module *m) {
    const gd_nn_batch_norm2d_options *o = m->options;
    return check_batch(m, &BATCH(4, 4, o));
}
static gd_status batch_norm2d_build(gd_module *m) {
    const gd_nn_batch_norm2d_options *o = m->options;
    return build_batch(m, &BATCH(4, 4, o));
}
static gd_tensors batch_norm2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_batch_norm2d_options *o = m->options;
    return forward_batch(m, in, &BATCH(4, 4, o));
}

/*layer batch_norm3d(x, num_features:int) -> y
 * Normalizes each channel of x (N, C, D, H, W): in train mode with the mean and variance of the batch, which running_mean
 * and running_var follow; in eval mode with these.
 *   momentum float = 0.1   how fast the running statistics follow; NAN (none): they are the average of all batches
 *   eps float = 1e-5       added to the variance
 *   affine bool = true     has a weight and a bias
 *   track_running_stats bool = true   else every mode uses those of the batch
 *   finds num_features x[1]
 */
static gd_status batch_norm3d_check(const gd_module *m) {
    const gd_nn_batch_norm3d_options *o = m->options;
    return check_batch(m, &BATCH(5, 5, o));
}
static gd_status batch_norm3d_build(gd_module *m) {
    const gd_nn_batch_norm3d_options *o = m->options;
    return build_batch(m, &BATCH(5, 5, o));
}
static gd_tensors batch_norm3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_batch_norm3d_options *o = m->options;
    return forward_batch(m, in, &BATCH(5, 5, o));
}

#include "layers_norm.gen.h"
