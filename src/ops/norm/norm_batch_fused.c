/* norm_batch_fused.c - batch norm followed by an addition and ReLU, as plans fuse them. */
#include <string.h>

#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"

/* --- forward ---------------------------------------------------------------------------------- */

/* Infers the results of batch_norm with these inputs: x, weight, bias and running statistics. */
static gd_status infer_batch_norm(const gd_infer *i, gd_tensor *const in[5], bool training,
                                  double momentum, double eps) {
    const gd_op *op = gd_op_find("batch_norm");
    const gd_batch_norm_options o = {.training = training, .momentum = momentum, .eps = eps};
    gd_infer of_norm = {op, &o, in, 5, i->out, i->n_out};
    return op->infer(&of_norm);
}

/* Input k, or NULL if it is absent. */
static gd_tensor *input_at(gd_tensor *const *in, int n, int k) { return k < n ? in[k] : NULL; }

/* x's inputs of batch_norm, without input `but` (-1: none). */
static void norm_inputs(gd_tensor *const *in, int n, int but, gd_tensor *to[5]) {
    for (int k = 0; k < 5; k++) to[k] = input_at(in, n, but >= 0 && k >= but ? k + 1 : k);
}

static gd_status need_shape_of_x(const gd_tensor *t, const gd_tensor *x, const char *name) {
    GD_TRY(gd_need_same_dtype(x, t, "x", name));
    if (t->rank != x->rank || memcmp(t->dims, x->dims, sizeof(int64_t) * x->rank) != 0)
        return gd_op_fail(GD_E_SHAPE, "'%s' must have the shape of 'x'", name);
    return GD_OK;
}

/*op batch_norm_relu(x, weight?, bias?, running_mean!?, running_var!?) -> y, mean~, rstd~  nograd internal
 * relu(batch_norm(x)).
 *   training bool = false
 *   momentum float = 0.1
 *   eps float = 1e-5
 *   fuses relu(batch_norm(x, weight, bias, running_mean, running_var))
 */
static gd_status batch_norm_relu_infer(gd_infer *i) {
    const gd_batch_norm_relu_options *o = i->attrs;
    gd_tensor *in[5];
    norm_inputs(i->in, i->n_in, -1, in);
    return infer_batch_norm(i, in, o->training, o->momentum, o->eps);
}
static void batch_norm_relu_expand(gd_expansion *e) {
    const gd_batch_norm_relu_options *o = e->attrs;
    gd_tensor *in[5];
    norm_inputs(e->x, e->n_in, -1, in);
    e->y[0] = gd_relu(gd_batch_norm(in[0], in[1], in[2], in[3], in[4], .training = o->training,
                                    .momentum = o->momentum, .eps = o->eps));
}

/*op batch_norm_add(x, z, weight?, bias?, running_mean!?, running_var!?) -> y, mean~, rstd~  nograd internal
 * batch_norm(x) + z.
 *   training bool = false
 *   momentum float = 0.1
 *   eps float = 1e-5
 *   fuses add(batch_norm(x, weight, bias, running_mean, running_var), z)
 */
static gd_status batch_norm_add_infer(gd_infer *i) {
    const gd_batch_norm_add_options *o = i->attrs;
    gd_tensor *in[5];
    norm_inputs(i->in, i->n_in, 1, in);
    GD_TRY(infer_batch_norm(i, in, o->training, o->momentum, o->eps));
    return need_shape_of_x(i->in[1], i->in[0], "z");
}
static void batch_norm_add_expand(gd_expansion *e) {
    const gd_batch_norm_add_options *o = e->attrs;
    gd_tensor *in[5];
    norm_inputs(e->x, e->n_in, 1, in);
    e->y[0] = gd_add(gd_batch_norm(in[0], in[1], in[2], in[3], in[4], .training = o->training,
                                   .momentum = o->momentum, .eps = o->eps),
                     e->x[1]);
}

/*op batch_norm_add_relu(x, z, weight?, bias?, running_mean!?, running_var!?) -> y, mean~, rstd~  nograd internal
 * relu(batch_norm(x) + z).
 *   training bool = false
 *   momentum float = 0.1
 *   eps float = 1e-5
 *   fuses relu(batch_norm_add(x, z, weight, bias, running_mean, running_var))
 */
static gd_status batch_norm_add_relu_infer(gd_infer *i) {
    const gd_batch_norm_add_relu_options *o = i->attrs;
    gd_tensor *in[5];
    norm_inputs(i->in, i->n_in, 1, in);
    GD_TRY(infer_batch_norm(i, in, o->training, o->momentum, o->eps));
    return need_shape_of_x(i->in[1], i->in[0], "z");
}
static void batch_norm_add_relu_expand(gd_expansion *e) {
    const gd_batch_norm_add_relu_options *o = e->attrs;
    gd_tensor *in[5];
    norm_inputs(e->x, e->n_in, 1, in);
    e->y[0] =
        gd_relu(gd_add(gd_batch_norm(in[0], in[1], in[2], in[3], in[4], .training = o->training,
                                     .momentum = o->momentum, .eps = o->eps),
                       e->x[1]));
}

/* --- gradients -------------------------------------------------------------------------------- */

/* Infers the results of batch_norm_grad from the first five inputs. */
static gd_status infer_batch_norm_grad(const gd_infer *i, bool training, double eps) {
    const gd_op *op = gd_op_find("batch_norm_grad");
    const gd_batch_norm_grad_options o = {.training = training, .eps = eps};
    gd_infer of_norm = {op, &o, i->in, 5, i->out, 3};
    return op->infer(&of_norm);
}

/* gy where y is above 0 or NaN, and 0 elsewhere: the gradient of relu. */
static gd_tensor *mask_gradient(gd_tensor *gy, gd_tensor *y) {
    return gd_where(gd_le(y, gd_zeros_like(y)), gd_zeros_like(gy), gy);
}

/*op batch_norm_relu_grad(gy, x, weight?, mean, rstd, y, training:bool, eps:float) -> gx, gweight, gbias  nograd internal
 * The gradient of y = relu(batch_norm(x)).
 *   fuses batch_norm_grad(relu.gx(gy, y), x, weight, mean, rstd)
 */
static gd_status batch_norm_relu_grad_infer(gd_infer *i) {
    const gd_batch_norm_relu_grad_options *o = i->attrs;
    GD_TRY(infer_batch_norm_grad(i, o->training, o->eps));
    return need_shape_of_x(i->in[5], i->in[1], "y");
}
static void batch_norm_relu_grad_expand(gd_expansion *e) {
    const gd_batch_norm_relu_grad_options *o = e->attrs;
    gd_batch_norm_grad_outputs g = gd_batch_norm_grad(
        mask_gradient(e->x[0], e->x[5]), e->x[1], e->x[2], e->x[3], e->x[4], o->training, o->eps);
    e->y[0] = g.gx;
    e->y[1] = g.gweight;
    e->y[2] = g.gbias;
}

/*op batch_norm_relu_grad_from_x(gy, x, weight?, mean, rstd, bias?, training:bool, eps:float) -> gx, gweight, gbias  nograd internal
 * batch_norm_relu_grad, with the mask of ReLU computed again from x.
 *   fuses batch_norm_relu_grad(gy, x, weight, mean, rstd, batch_norm_relu(x, weight, bias))
 */
static gd_status batch_norm_relu_grad_from_x_infer(gd_infer *i) {
    const gd_batch_norm_relu_grad_from_x_options *o = i->attrs;
    const gd_tensor *x = i->in[1], *bias = input_at(i->in, i->n_in, 5);
    GD_TRY(infer_batch_norm_grad(i, o->training, o->eps));
    if (bias && (bias->rank != 1 || bias->dims[0] != x->dims[1] ||
                 !gd_dtype_is_float((gd_dtype)bias->dtype)))
        return gd_op_fail(GD_E_SHAPE, "'bias' must have one number for each channel");
    return GD_OK;
}
static void batch_norm_relu_grad_from_x_expand(gd_expansion *e) {
    const gd_batch_norm_relu_grad_from_x_options *o = e->attrs;
    const gd_dtype dtype = (gd_dtype)e->x[1]->dtype, wide = gd_wide_dtype(dtype);
    gd_tensor *x = e->x[1], *weight = e->x[2], *bias = input_at(e->x, e->n_in, 5);
    gd_shape dims = {.rank = x->rank, .form = 1};
    for (int k = 0; k < x->rank; k++) dims.at[k] = k == 1 ? x->dims[1] : 1;
    gd_tensor *y = gd_sub(gd_as_dtype(x, wide), gd_reshape(gd_as_dtype(e->x[3], wide), dims));
    y = gd_mul(y, gd_reshape(gd_as_dtype(e->x[4], wide), dims));
    if (weight) y = gd_mul(y, gd_reshape(gd_as_dtype(weight, wide), dims));
    if (bias) y = gd_add(y, gd_reshape(gd_as_dtype(bias, wide), dims));
    gd_batch_norm_grad_outputs g =
        gd_batch_norm_grad(mask_gradient(e->x[0], gd_as_dtype(y, dtype)), x, weight, e->x[3],
                           e->x[4], o->training, o->eps);
    e->y[0] = g.gx;
    e->y[1] = g.gweight;
    e->y[2] = g.gbias;
}

/*op batch_norm_add_relu_grad(gy, x, weight?, mean, rstd, y, training:bool, eps:float) -> gx, gweight, gbias, gz  nograd internal
 * The gradient of y = relu(batch_norm(x) + z).
 *   fuses batch_norm_grad(relu.gx(gy, y), x, weight, mean, rstd)
 */
static gd_status batch_norm_add_relu_grad_infer(gd_infer *i) {
    const gd_batch_norm_add_relu_grad_options *o = i->attrs;
    GD_TRY(infer_batch_norm_grad(i, o->training, o->eps));
    GD_TRY(need_shape_of_x(i->in[5], i->in[1], "y"));
    gd_meta_like(&i->out[3], i->in[1]);
    return GD_OK;
}
static void batch_norm_add_relu_grad_expand(gd_expansion *e) {
    const gd_batch_norm_add_relu_grad_options *o = e->attrs;
    gd_tensor *gz = mask_gradient(e->x[0], e->x[5]);
    gd_batch_norm_grad_outputs g =
        gd_batch_norm_grad(gz, e->x[1], e->x[2], e->x[3], e->x[4], o->training, o->eps);
    e->y[0] = g.gx;
    e->y[1] = g.gweight;
    e->y[2] = g.gbias;
    e->y[3] = gz;
}

/*op batch_norm_add_relu_sum_grad(gy, x, weight?, mean, rstd, y, gy2, training:bool, eps:float) -> gx, gweight, gbias, gz  nograd internal
 * batch_norm_add_relu_grad of gy + gy2: the result of a residual block has two readers.
 *   fuses batch_norm_add_relu_grad(add(gy, gy2), x, weight, mean, rstd, y)
 */
static gd_status batch_norm_add_relu_sum_grad_infer(gd_infer *i) {
    const gd_batch_norm_add_relu_sum_grad_options *o = i->attrs;
    GD_TRY(infer_batch_norm_grad(i, o->training, o->eps));
    GD_TRY(need_shape_of_x(i->in[5], i->in[1], "y"));
    GD_TRY(need_shape_of_x(i->in[6], i->in[1], "gy2"));
    gd_meta_like(&i->out[3], i->in[1]);
    return GD_OK;
}
static void batch_norm_add_relu_sum_grad_expand(gd_expansion *e) {
    const gd_batch_norm_add_relu_sum_grad_options *o = e->attrs;
    gd_batch_norm_add_relu_grad_outputs g = gd_batch_norm_add_relu_grad(
        gd_add(e->x[0], e->x[6]), e->x[1], e->x[2], e->x[3], e->x[4], e->x[5], o->training, o->eps);
    e->y[0] = g.gx;
    e->y[1] = g.gweight;
    e->y[2] = g.gbias;
    e->y[3] = g.gz;
}

#include "ops/norm/norm_batch_fused.gen.h"
