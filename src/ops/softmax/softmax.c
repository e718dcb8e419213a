/* softmax.c - softmax and log_softmax along an axis. */
#include <math.h>
#include <string.h>

#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"

static gd_status infer_axis(gd_infer *i, int64_t axis) {
    int k;
    GD_TRY(gd_need_float(i->in[0], "x"));
    GD_TRY(gd_axis(axis, i->in[0]->rank, &k));
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}

static gd_status infer_grad(gd_infer *i, int64_t axis) {
    const gd_tensor *gy = i->in[0], *y = i->in[1];
    GD_TRY(infer_axis(i, axis));
    GD_TRY(gd_need_same_dtype(gy, y, "gy", "y"));
    if (gy->rank != y->rank || memcmp(gy->dims, y->dims, sizeof(int64_t) * gy->rank) != 0)
        return gd_op_fail(GD_E_SHAPE, "'gy' and 'y' must have the same shape");
    return GD_OK;
}

/* The sum along an axis, which stays with size 1. */
static gd_tensor *sum_along(gd_tensor *x, int64_t axis) {
    return gd_sum(x, .axis = gd_dims(axis), .keepdim = true);
}

/* Reference kernels: body(x, other, y, n, step) for each line along the axis. `other` is the second
 * input, or NULL. */
typedef void (*line_fn)(const double *x, const double *other, double *y, int64_t n, int64_t step);

static gd_status each_line(gd_kernel_call *k, int64_t axis, line_fn body) {
    const gd_view *x = &k->in[0];
    int at = (int)(axis < 0 ? axis + x->rank : axis);
    int64_t outer = 1, n = 1, inner = 1;
    for (int d = 0; d < x->rank; d++) {
        if (d < at) outer *= x->dims[d];
        else if (d == at) n = x->dims[d];
        else inner *= x->dims[d];
    }
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            int64_t first = o * n * inner + i;
            const double *other = k->n_in > 1 ? (const double *)k->in[1].data + first : NULL;
            body((const double *)x->data + first, other, (double *)k->out[0].data + first, n,
                 inner);
        }
    return GD_OK;
}

static double largest_of(const double *x, int64_t n, int64_t step) {
    double m = x[0];
    for (int64_t t = 1; t < n; t++) m = isnan(x[t * step]) || x[t * step] > m ? x[t * step] : m;
    return m;
}

static double exp_sum(const double *x, double m, int64_t n, int64_t step) {
    double sum = 0;
    for (int64_t t = 0; t < n; t++) sum += exp(x[t * step] - m);
    return sum;
}

/* --- softmax ---------------------------------------------------------------------------------- */

/*op softmax(x) -> y  fullp
 * exp(x) divided by its sum along an axis.
 *   axis int = -1
 *   saves y
 *   onnx Softmax axis=axis  when x:rank>0   caffe Softmax
 */
static gd_status softmax_infer(gd_infer *i) {
    const gd_softmax_options *o = i->attrs;
    return infer_axis(i, o->axis);
}
static void softmax_vjp(gd_vjp *v) {
    const gd_softmax_options *o = v->attrs;
    v->gx[0] = gd_softmax_grad(v->gy[0], v->y[0], o->axis);
}
/* x minus its largest element along the axis, so that exp does not overflow. Softmax does not
 * depend on the subtracted number, so no gradient flows through it. */
static gd_tensor *subtract_largest(gd_tensor *x, int64_t axis) {
    x = gd_as_dtype(x, gd_wide_dtype((gd_dtype)x->dtype));
    return gd_sub(x, gd_stop_gradient(gd_max(x, .axis = gd_dims(axis), .keepdim = true)));
}
static void softmax_expand(gd_expansion *e) {
    const gd_softmax_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    if (gd_tensor_numel(x) == 0) {
        e->y[0] = gd_clone(x);
        return;
    }
    gd_tensor *p = gd_exp(subtract_largest(x, o->axis));
    e->y[0] = gd_as_dtype(gd_div(p, sum_along(p, o->axis)), (gd_dtype)x->dtype);
}
static void softmax_line(const double *x, const double *other, double *y, int64_t n, int64_t step) {
    (void)other;
    double m = n > 0 ? largest_of(x, n, step) : 0, sum = exp_sum(x, m, n, step);
    for (int64_t t = 0; t < n; t++) y[t * step] = exp(x[t * step] - m) / sum;
}
static gd_status softmax_reference(gd_kernel_call *k) {
    const gd_softmax_options *o = k->attrs;
    return each_line(k, o->axis, softmax_line);
}

/*op softmax_grad(gy, y, axis:int) -> gx  internal
 * The gradient of softmax: y * (gy - sum(gy * y)).
 */
static gd_status softmax_grad_infer(gd_infer *i) {
    const gd_softmax_grad_options *o = i->attrs;
    return infer_grad(i, o->axis);
}

/* The gradient by gy is softmax_grad again, because the Jacobian of softmax is symmetric. */
static void softmax_grad_vjp(gd_vjp *v) {
    const gd_softmax_grad_options *o = v->attrs;
    gd_tensor *gy = v->x[0], *y = v->x[1], *h = v->gy[0];
    if (v->needs[0]) v->gx[0] = gd_softmax_grad(h, y, o->axis);
    if (v->needs[1])
        v->gx[1] = gd_sub(gd_mul(h, gd_sub(gy, sum_along(gd_mul(gy, y), o->axis))),
                          gd_mul(gy, sum_along(gd_mul(h, y), o->axis)));
}
static void softmax_grad_expand(gd_expansion *e) {
    const gd_softmax_grad_options *o = e->attrs;
    const gd_dtype dtype = (gd_dtype)e->x[0]->dtype, wide = gd_wide_dtype(dtype);
    gd_tensor *gy = gd_as_dtype(e->x[0], wide), *y = gd_as_dtype(e->x[1], wide);
    e->y[0] = gd_as_dtype(gd_mul(y, gd_sub(gy, sum_along(gd_mul(gy, y), o->axis))), dtype);
}
static void softmax_grad_line(const double *gy, const double *y, double *gx, int64_t n,
                              int64_t step) {
    double dot = 0;
    for (int64_t t = 0; t < n; t++) dot += gy[t * step] * y[t * step];
    for (int64_t t = 0; t < n; t++) gx[t * step] = y[t * step] * (gy[t * step] - dot);
}
static gd_status softmax_grad_reference(gd_kernel_call *k) {
    const gd_softmax_grad_options *o = k->attrs;
    return each_line(k, o->axis, softmax_grad_line);
}

/* --- log_softmax ------------------------------------------------------------------------------ */

/*op log_softmax(x) -> y  fullp
 * The logarithm of softmax, computed without overflow: x - log(sum(exp(x))) along an axis.
 *   axis int = -1
 *   saves y
 *   onnx LogSoftmax axis=axis  when x:rank>0
 */
static gd_status log_softmax_infer(gd_infer *i) {
    const gd_log_softmax_options *o = i->attrs;
    return infer_axis(i, o->axis);
}
static void log_softmax_vjp(gd_vjp *v) {
    const gd_log_softmax_options *o = v->attrs;
    v->gx[0] = gd_log_softmax_grad(v->gy[0], v->y[0], o->axis);
}
static void log_softmax_expand(gd_expansion *e) {
    const gd_log_softmax_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    if (gd_tensor_numel(x) == 0) {
        e->y[0] = gd_clone(x);
        return;
    }
    gd_tensor *d = subtract_largest(x, o->axis);
    e->y[0] = gd_as_dtype(gd_sub(d, gd_log(sum_along(gd_exp(d), o->axis))), (gd_dtype)x->dtype);
}
static void log_softmax_line(const double *x, const double *other, double *y, int64_t n,
                             int64_t step) {
    (void)other;
    double m = n > 0 ? largest_of(x, n, step) : 0, sum = exp_sum(x, m, n, step);
    for (int64_t t = 0; t < n; t++) y[t * step] = (x[t * step] - m) - log(sum);
}
static gd_status log_softmax_reference(gd_kernel_call *k) {
    const gd_log_softmax_options *o = k->attrs;
    return each_line(k, o->axis, log_softmax_line);
}

/*op log_softmax_grad(gy, y, axis:int) -> gx  internal
 * The gradient of log_softmax: gy - exp(y) * sum(gy).
 */
static gd_status log_softmax_grad_infer(gd_infer *i) {
    const gd_log_softmax_grad_options *o = i->attrs;
    return infer_grad(i, o->axis);
}
static void log_softmax_grad_vjp(gd_vjp *v) {
    const gd_log_softmax_grad_options *o = v->attrs;
    gd_tensor *gy = v->x[0], *h = v->gy[0], *hp = gd_mul(h, gd_exp(v->x[1]));
    if (v->needs[0]) v->gx[0] = gd_sub(h, sum_along(hp, o->axis));
    if (v->needs[1]) v->gx[1] = gd_neg(gd_mul(hp, sum_along(gy, o->axis)));
}
static void log_softmax_grad_expand(gd_expansion *e) {
    const gd_log_softmax_grad_options *o = e->attrs;
    const gd_dtype dtype = (gd_dtype)e->x[0]->dtype, wide = gd_wide_dtype(dtype);
    gd_tensor *gy = gd_as_dtype(e->x[0], wide), *y = gd_as_dtype(e->x[1], wide);
    e->y[0] = gd_as_dtype(gd_sub(gy, gd_mul(gd_exp(y), sum_along(gy, o->axis))), dtype);
}
static void log_softmax_grad_line(const double *gy, const double *y, double *gx, int64_t n,
                                  int64_t step) {
    double sum = 0;
    for (int64_t t = 0; t < n; t++) sum += gy[t * step];
    for (int64_t t = 0; t < n; t++) gx[t * step] = gy[t * step] - exp(y[t * step]) * sum;
}
static gd_status log_softmax_grad_reference(gd_kernel_call *k) {
    const gd_log_softmax_grad_options *o = k->attrs;
    return each_line(k, o->axis, log_softmax_grad_line);
}

#include "ops/softmax/softmax.gen.h"
