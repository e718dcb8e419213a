/* layers_norm.c - normalization. */
#include "gradus/autograd.h"
#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/* --- batch norms --------------------------------------------------------------------------------- */

typedef struct batch_norm {
    int least, most; /* ranks of x */
    int64_t features;
    double momentum, eps;
    bool affine, track;
} batch_norm;

static gd_status check_batch(const gd_module *m, const batch_norm *b) {
    GD_TRY(gd_layer_size(m, "num_features", b->features));
    GD_TRY(gd_layer_within(m, "momentum", b->momentum, 0, 1, true));
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

static gd_tensors forward_batch(gd_module *m, gd_tensors in, const batch_norm *b) {
    gd_tensor *x = in.at[0];
    if (x->rank < b->least || x->rank > b->most) {
        char text[160];
        return gd_layer_fail(gd_fail(GD_E_SHAPE, "it takes %d%s dimensions (N, C, ...), not %s", b->most,
                                     b->least < b->most ? " or fewer" : "", gd_describe(x, text, sizeof text)));
    }
    const bool training = gd_layer_is_training(m);
    if (training && b->track) {
        GD_NO_GRAD;
        gd_add_(gd_layer_tensor_at(m, 4), gd_scalar_int(1));
    }
    return gd_listed(gd_batch_norm(x, gd_layer_tensor_at(m, 0), gd_layer_tensor_at(m, 1), b->track ? gd_layer_tensor_at(m, 2) : NULL,
                                   b->track ? gd_layer_tensor_at(m, 3) : NULL, .training = training || !b->track,
                                   .momentum = b->momentum, .eps = b->eps));
}

#define BATCH(LEAST, MOST, o)                                                                                       \
    ((batch_norm){(LEAST), (MOST), (o)->num_features, (o)->momentum, (o)->eps, (o)->affine, (o)->track_running_stats})

/*layer batch_norm1d(x, num_features:int) -> y
 * Normalizes each channel of x (N, C) or (N, C, L): in train mode with the mean and variance of the batch, which running_mean
 * and running_var follow; in eval mode with these.
 *   momentum float = 0.1   how fast the running statistics follow
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
 *   momentum float = 0.1   how fast the running statistics follow
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
 *   momentum float = 0.1   how fast the running statistics follow
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
