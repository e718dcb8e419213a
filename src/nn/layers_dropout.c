/* layers_dropout.c - dropout layers, which depend on the mode. */
#include <math.h>

#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

static gd_status check_p(const gd_module *m, double p) {
    return gd_layer_within(m, "p", p, 0, 1, true);
}

/*layer dropout(x) -> y  of dropout
 * In train mode, sets elements to 0 with probability p and divides the others by 1 - p; in eval
 * mode, y = x.
 *   p float = 0.5
 *   python (p, inplace~False)
 */
static gd_status dropout_check(const gd_module *m) {
    const gd_nn_dropout_options *o = m->options;
    return check_p(m, o->p);
}
static gd_tensors dropout_forward(gd_module *m, gd_tensors in) {
    const gd_nn_dropout_options *o = m->options;
    if (!gd_layer_is_training(m) || o->p == 0) return gd_listed(in.at[0]);
    return gd_listed(gd_dropout(in.at[0], .p = o->p));
}

/* --- entire channels -------------------------------------------------------------------------- */

/* Ones (N, C, 1, ...) for x (N, C, ...): one for each channel. `spatial` is the first axis after
 * the channels. */
static gd_tensor *channel_ones(gd_tensor *x, int spatial) {
    gd_tensor *one = x;
    for (int axis = spatial; axis < x->rank; axis++) one = gd_narrow(one, axis, 0, 1);
    return gd_ones_like(one);
}

/*layer dropout{1,2,3}d(x) -> y
 * dropout of entire channels: x is
 * {(N, C, L) or (C, L)|(N, C, H, W) or (N, C, L)|(N, C, D, H, W) or (C, D, H, W)}.
 *   p float = 0.5
 *   python Dropout{}d(p, inplace~False)
 */
static gd_status dropoutNd_check(const gd_module *m) {
    const gd_nn_dropout3d_options o = GD_LAYER_OPTIONS(gd_nn_dropout3d_options, m);
    return check_p(m, o.p);
}
static gd_tensors dropoutNd_forward(gd_module *m, gd_tensors in) {
    const gd_nn_dropout3d_options o = GD_LAYER_OPTIONS(gd_nn_dropout3d_options, m);
    const int axes = gd_layer_variant(m);
    gd_tensor *x = in.at[0];
    char text[160];
    if (x->rank != axes + 2 && x->rank != axes + 1)
        return gd_layer_fail(gd_fail(GD_E_SHAPE, "x must have %d or %d dimensions; it is %s",
                                     axes + 1, axes + 2, gd_describe(x, text, sizeof text)));
    if (!gd_layer_is_training(m) || o.p == 0) return gd_listed(x);
    /* As in PyTorch, x of three dimensions is (N, C, L) for dropout2d, not (C, H, W). */
    const bool batched = x->rank == axes + 2 || axes == 2;
    return gd_listed(gd_mul(x, gd_dropout(channel_ones(x, batched ? 2 : 1), .p = o.p)));
}

/* --- alpha dropout, for selu ------------------------------------------------------------------ */

/* The limit of selu for very negative numbers: -scale * alpha. */
static const double SELU_FLOOR = -1.7580993408473766;

/* Dropped elements become SELU_FLOOR. Then all are scaled and shifted so that mean 0 and variance 1
 * are preserved. `noise` is uniform in [0, 1) and broadcasts against x. */
static gd_tensor *drop_to_floor(gd_tensor *x, gd_tensor *noise, double p) {
    if (p == 1) return gd_mul(x, gd_scalar(0));
    const double scale = 1 / sqrt((1 - p) * (1 + p * SELU_FLOOR * SELU_FLOOR));
    gd_tensor *kept =
        gd_where(gd_ge(noise, gd_layer_scalar(noise, p)), x, gd_full_like(x, SELU_FLOOR));
    return gd_add(gd_mul(kept, gd_layer_scalar(x, scale)),
                  gd_layer_scalar(x, -scale * SELU_FLOOR * p));
}

/*layer alpha_dropout(x) -> y
 * dropout for networks with selu: in train mode, elements become the lowest value of selu with
 * probability p, and all are scaled and shifted so that mean 0 and variance 1 are preserved.
 *   p float = 0.5
 *   python (p, inplace~False)
 */
static gd_status alpha_dropout_check(const gd_module *m) {
    const gd_nn_alpha_dropout_options *o = m->options;
    return check_p(m, o->p);
}
static gd_tensors alpha_dropout_forward(gd_module *m, gd_tensors in) {
    const gd_nn_alpha_dropout_options *o = m->options;
    if (!gd_layer_is_training(m) || o->p == 0) return gd_listed(in.at[0]);
    return gd_listed(drop_to_floor(in.at[0], gd_rand_like(in.at[0]), o->p));
}

/*layer feature_alpha_dropout(x) -> y
 * alpha_dropout of entire channels: x is (N, C, ...).
 *   p float = 0.5
 *   python (p, inplace~False)
 */
static gd_status feature_alpha_dropout_check(const gd_module *m) {
    const gd_nn_feature_alpha_dropout_options *o = m->options;
    return check_p(m, o->p);
}
static gd_tensors feature_alpha_dropout_forward(gd_module *m, gd_tensors in) {
    const gd_nn_feature_alpha_dropout_options *o = m->options;
    char text[160];
    if (in.at[0]->rank < 2)
        return gd_layer_fail(gd_fail(GD_E_SHAPE, "x must be (N, C, ...); it is %s",
                                     gd_describe(in.at[0], text, sizeof text)));
    if (!gd_layer_is_training(m) || o->p == 0) return gd_listed(in.at[0]);
    return gd_listed(drop_to_floor(in.at[0], gd_rand_like(channel_ones(in.at[0], 2)), o->p));
}

#include "nn/layers_dropout.gen.h"
