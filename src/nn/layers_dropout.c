/* layers_dropout.c - dropout and its variants, which depend on the mode. */
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

/* --- whole channels --------------------------------------------------------------------------- */

/* Ones, (N, C, 1, ...) for x (N, C, ...): one for each channel. `first` is the first axis that is
 * not counted. */
static gd_tensor *channel_ones(gd_tensor *x, int first) {
    gd_tensor *one = x;
    for (int axis = first; axis < x->rank; axis++) one = gd_narrow(one, axis, 0, 1);
    return gd_ones_like(one);
}

/* The first axis behind the channels, or a failure: x has rank + 2 dimensions, or one fewer. With
 * `batched` that is (N, C, L), else (C, ...). */
static gd_status find_channels(const gd_tensor *x, int rank, bool batched, int *first) {
    char text[160];
    *first = x->rank == rank + 2 || batched ? 2 : 1;
    if (x->rank == rank + 2 || x->rank == rank + 1) return GD_OK;
    return gd_fail(GD_E_SHAPE, "x must have %d or %d dimensions; it is %s", rank + 1, rank + 2,
                   gd_describe(x, text, sizeof text));
}

static gd_tensors drop_channels(gd_module *m, gd_tensors in, int rank, bool batched, double p) {
    int first;
    const gd_status fits = find_channels(in.at[0], rank, batched, &first);
    if (fits != GD_OK) return gd_layer_fail(fits);
    if (!gd_layer_is_training(m) || p == 0) return gd_listed(in.at[0]);
    return gd_listed(gd_mul(in.at[0], gd_dropout(channel_ones(in.at[0], first), .p = p)));
}

/*layer dropout1d(x) -> y
 * dropout of entire channels: x is (N, C, L) or (C, L).
 *   p float = 0.5
 */
static gd_status dropout1d_check(const gd_module *m) {
    const gd_nn_dropout1d_options *o = m->options;
    return check_p(m, o->p);
}
static gd_tensors dropout1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_dropout1d_options *o = m->options;
    return drop_channels(m, in, 1, false, o->p);
}

/*layer dropout2d(x) -> y
 * dropout of entire channels: x is (N, C, H, W) or (N, C, L).
 *   p float = 0.5
 */
static gd_status dropout2d_check(const gd_module *m) {
    const gd_nn_dropout2d_options *o = m->options;
    return check_p(m, o->p);
}
static gd_tensors dropout2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_dropout2d_options *o = m->options;
    return drop_channels(m, in, 2, true, o->p);
}

/*layer dropout3d(x) -> y
 * dropout of entire channels: x is (N, C, D, H, W) or (C, D, H, W).
 *   p float = 0.5
 */
static gd_status dropout3d_check(const gd_module *m) {
    const gd_nn_dropout3d_options *o = m->options;
    return check_p(m, o->p);
}
static gd_tensors dropout3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_dropout3d_options *o = m->options;
    return drop_channels(m, in, 3, false, o->p);
}

/* --- for selu --------------------------------------------------------------------------------- */

/* The limit of selu for very negative numbers: -scale * alpha. */
static const double SELU_FLOOR = -1.7580993408473766;

/* Dropped elements become SELU_FLOOR; then all are scaled and moved so that numbers of mean 0 and
 * variance 1 keep these. `noise` is uniform in [0, 1) and broadcasts against x. */
static gd_tensor *drop_to_floor(gd_tensor *x, gd_tensor *noise, double p) {
    if (p == 1) return gd_mul(x, gd_scalar(0));
    const double scale = 1 / sqrt((1 - p) * (1 + p * SELU_FLOOR * SELU_FLOOR));
    gd_tensor *kept =
        gd_where(gd_ge(noise, gd_layer_number(noise, p)), x, gd_full_like(x, SELU_FLOOR));
    return gd_add(gd_mul(kept, gd_layer_number(x, scale)),
                  gd_layer_number(x, -scale * SELU_FLOOR * p));
}

/*layer alpha_dropout(x) -> y
 * dropout for nets of selu: in train mode, elements become its lowest value with probability p, and
 * all are scaled and moved so that mean 0 and variance 1 stay.
 *   p float = 0.5
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

#include "layers_dropout.gen.h"
