/* reduce_statistics.c - variance, standard deviation, norms and log-sum-exp over axes. */
#include <math.h>

#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"
#include "ops/reduce/reduce.h"

static gd_status infer_floats(gd_infer *i, const gd_shape *axis, bool keepdim, uint32_t *mask) {
    GD_TRY(gd_need_float(i->in[0], "x"));
    GD_TRY(gd_axes_mask(axis, i->in[0]->rank, mask));
    gd_reduced_dims(i->in[0], *mask, keepdim, &i->out[0]);
    return GD_OK;
}

static uint32_t axes_of(const gd_shape *axis, int rank) {
    uint32_t mask = 0;
    gd_axes_mask(axis, rank, &mask);
    return mask;
}

/* The job of a reference kernel, which sees f64. */
typedef struct {
    double *y;
    double p;  /* the correction of a variance, or the p of a norm */
    bool root; /* standard deviation */
} statistic_job;

/* --- variance --------------------------------------------------------------------------------- */

/*op var(x) -> y  fullp
 * The variance over axes, or of all elements: the sum of squared distances from the mean, divided
 * by the number of elements minus the correction (1: unbiased, as in PyTorch; 0: population
 * variance).
 *   axis int[] = none     one axis or gd_dims(...); none: all
 *   correction float = 1  subtracted from the number of elements
 *   keepdim bool = false  keep reduced dimensions with size 1
 *   python (x, axis)
 */
static gd_status var_infer(gd_infer *i) {
    const gd_var_options *o = i->attrs;
    uint32_t mask;
    return infer_floats(i, &o->axis, o->keepdim, &mask);
}

/*op var_grad(gy, x, mean, by:float) -> g  elementwise internal
 * The gradient of var.
 *   g = by * gy * (x - mean)
 */
static void var_vjp(gd_vjp *v) {
    const gd_var_options *o = v->attrs;
    gd_tensor *x = v->x[0];
    uint32_t mask = axes_of(&o->axis, x->rank);
    double by = 2 / ((double)gd_reduced_count(x, mask) - o->correction);
    gd_tensor *mean = gd_mean(x, .axis = gd_mask_axes(mask), .keepdim = true);
    v->gx[0] = gd_var_grad(gd_restore_dims(v->gy[0], x, mask), x, mean, by);
}

/*op spread(squares, sum, n:float, freedom:float) -> y  elementwise internal
 * The variance of n numbers, from the sum of their squared distances from a point near the mean,
 * and the sum of their distances, which corrects for the distance of the point from the mean.
 *   y  = isinf(squares) ? squares : max(squares - sum * sum / n, 0) / freedom
 *   gsquares = gy / freedom
 *   gsum = -2 * gy * (sum / n) / freedom
 */

/*op root_or_zero(x) -> y  elementwise internal
 * The square root, whose gradient is 0 at 0.
 *   y  = sqrt(x)
 *   gx = y == 0 ? 0 : 0.5 * gy / y
 */

/* The variance in the wide dtype, in which kernels compute. It does not depend on the point that
 * distances are measured from, so no gradient flows through the point. */
static gd_tensor *variance_of(gd_tensor *x, const gd_shape *axis, double correction, bool keepdim) {
    const uint32_t mask = axes_of(axis, x->rank);
    const gd_shape axes = gd_mask_axes(mask);
    const double n = (double)gd_reduced_count(x, mask), freedom = n - correction;
    x = gd_as_dtype(x, gd_wide_dtype((gd_dtype)x->dtype));
    if (n == 0)
        return gd_affine(gd_sum(x, .axis = axes, .keepdim = keepdim), 1, freedom > 0 ? 0 : NAN);
    gd_tensor *point = gd_stop_gradient(gd_mean(x, .axis = axes, .keepdim = true));
    gd_tensor *distance = gd_sub(x, point);
    return gd_spread(gd_sum(gd_square(distance), .axis = axes, .keepdim = keepdim),
                     gd_sum(distance, .axis = axes, .keepdim = keepdim), n,
                     freedom > 0 ? freedom : 0);
}
static void var_expand(gd_expansion *e) {
    const gd_var_options *o = e->attrs;
    e->y[0] = gd_as_dtype(variance_of(e->x[0], &o->axis, o->correction, o->keepdim),
                          (gd_dtype)e->x[0]->dtype);
}

static void variance_of_group(void *context, const void *elements, int64_t n, int64_t result) {
    const statistic_job *f = context;
    const double *x = elements;
    double mean = 0, squares = 0, freedom = (double)n - f->p;
    for (int64_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    double y = squares / (freedom > 0 ? freedom : 0);
    f->y[result] = f->root ? sqrt(y) : y;
}
static size_t var_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status var_reference(gd_kernel_call *k) {
    const gd_var_options *o = k->attrs;
    statistic_job f = {k->out[0].data, o->correction, false};
    return gd_each_group(k, axes_of(&o->axis, k->in[0].rank), variance_of_group, &f);
}

/*op std(x) -> y  fullp
 * The standard deviation over axes, or of all elements: the root of the variance. Its gradient is 0
 * where all elements are equal.
 *   axis int[] = none     one axis or gd_dims(...); none: all
 *   correction float = 1  subtracted from the number of elements
 *   keepdim bool = false  keep reduced dimensions with size 1
 *   saves x, y
 *   python (x, axis)
 */
static gd_status std_infer(gd_infer *i) {
    const gd_std_options *o = i->attrs;
    uint32_t mask;
    return infer_floats(i, &o->axis, o->keepdim, &mask);
}

/*op std_grad(gy, x, mean, y, by:float) -> g  elementwise internal
 * The gradient of std.
 *   g = y == 0 ? 0 : by * gy / y * (x - mean)
 */
static void std_vjp(gd_vjp *v) {
    const gd_std_options *o = v->attrs;
    gd_tensor *x = v->x[0];
    uint32_t mask = axes_of(&o->axis, x->rank);
    double by = 1 / ((double)gd_reduced_count(x, mask) - o->correction);
    gd_tensor *mean = gd_mean(x, .axis = gd_mask_axes(mask), .keepdim = true);
    v->gx[0] = gd_std_grad(gd_restore_dims(v->gy[0], x, mask), x, mean,
                           gd_restore_dims(v->y[0], x, mask), by);
}
static void std_expand(gd_expansion *e) {
    const gd_std_options *o = e->attrs;
    gd_tensor *variance = variance_of(e->x[0], &o->axis, o->correction, o->keepdim);
    e->y[0] = gd_as_dtype(gd_root_or_zero(variance), (gd_dtype)e->x[0]->dtype);
}
static size_t std_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status std_reference(gd_kernel_call *k) {
    const gd_std_options *o = k->attrs;
    statistic_job f = {k->out[0].data, o->correction, true};
    return gd_each_group(k, axes_of(&o->axis, k->in[0].rank), variance_of_group, &f);
}

/* --- log-sum-exp ------------------------------------------------------------------------------ */

/*op logsumexp(x) -> y  fullp
 * log(sum(exp(x))) over axes, or of all elements, computed without overflow.
 *   axis int[] = none     one axis or gd_dims(...); none: all
 *   keepdim bool = false  keep reduced dimensions with size 1
 *   saves x, y
 *   onnx ReduceLogSumExp
 */
static gd_status logsumexp_infer(gd_infer *i) {
    const gd_logsumexp_options *o = i->attrs;
    uint32_t mask;
    return infer_floats(i, &o->axis, o->keepdim, &mask);
}

/*op logsumexp_grad(gy, x, y) -> g  elementwise internal
 * The gradient of logsumexp: softmax, which is exp(x - y), times gy.
 *   g = gy * exp(x - y)
 */
static void logsumexp_vjp(gd_vjp *v) {
    const gd_logsumexp_options *o = v->attrs;
    gd_tensor *x = v->x[0];
    uint32_t mask = axes_of(&o->axis, x->rank);
    v->gx[0] =
        gd_logsumexp_grad(gd_restore_dims(v->gy[0], x, mask), x, gd_restore_dims(v->y[0], x, mask));
}

/*op zero_if_infinite(x) -> y  elementwise internal
 * x, or 0 where x is infinite.
 *   y = isinf(x) ? 0 : x
 */

/*op exp_below(x, most) -> y  elementwise internal
 * exp(x - most) for x <= most. If most is -inf, exp(x). If most is inf, inf for x = inf and 0 for
 * all other x, because exp(x) might overflow and does not change the sum.
 *   y  = most == inf ? (x == most ? inf : 0) : exp(x - (isinf(most) ? 0 : most))
 *   gx = gy * y
 *   gmost = 0
 */
static void logsumexp_expand(gd_expansion *e) {
    const gd_logsumexp_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    const gd_dtype dtype = (gd_dtype)x->dtype;
    const uint32_t mask = axes_of(&o->axis, x->rank);
    const gd_shape axes = gd_mask_axes(mask);
    x = gd_as_dtype(x, gd_wide_dtype(dtype));
    if (gd_tensor_numel(x) == 0) { /* no largest element; the sum is 0 and its logarithm -inf */
        gd_tensor *sum = gd_sum(x, .axis = axes, .keepdim = o->keepdim);
        e->y[0] = gd_as_dtype(gd_affine(sum, 1, -INFINITY), dtype);
        return;
    }
    gd_tensor *most = gd_max(gd_stop_gradient(x), .axis = axes, .keepdim = true);
    gd_tensor *sum = gd_sum(gd_exp_below(x, most), .axis = axes, .keepdim = true);
    gd_tensor *y = gd_as_dtype(gd_add(gd_zero_if_infinite(most), gd_log(sum)), dtype);
    e->y[0] = o->keepdim ? y : gd_squeeze(y, .axis = axes);
}

static void logsumexp_of_group(void *context, const void *elements, int64_t n, int64_t result) {
    const statistic_job *f = context;
    const double *x = elements;
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = isnan(x[i]) || x[i] > most ? x[i] : most;
    if (isinf(most)) most = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - most);
    f->y[result] = most + log(sum);
}
static size_t logsumexp_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status logsumexp_reference(gd_kernel_call *k) {
    const gd_logsumexp_options *o = k->attrs;
    statistic_job f = {.y = k->out[0].data};
    return gd_each_group(k, axes_of(&o->axis, k->in[0].rank), logsumexp_of_group, &f);
}

/* --- norms ------------------------------------------------------------------------------------ */

/*op norm(x) -> y  fullp
 * The p-norm of the elements over axes, or of all: (sum of |x|^p)^(1/p). p = inf gives the largest
 * absolute value, -inf the smallest, 0 the number of elements that are not 0. The gradient is 0
 * where the norm is 0. For inf and -inf, elements that tie share the gradient evenly.
 *   p float = 2
 *   axis int[] = none     one axis or gd_dims(...); none: all
 *   keepdim bool = false  keep reduced dimensions with size 1
 *   saves x, y
 *   onnx ReduceL2
 */
static gd_status norm_infer(gd_infer *i) {
    const gd_norm_options *o = i->attrs;
    uint32_t mask;
    if (isnan(o->p)) return gd_op_fail(GD_E_ARGUMENT, "p is NaN; it must be a number, inf or -inf");
    GD_TRY(infer_floats(i, &o->axis, o->keepdim, &mask));
    return isinf(o->p) || o->p < 0 ? gd_need_elements(i->in[0], mask) : GD_OK;
}

/*op norm1_grad(gy, x) -> g  elementwise internal
 * The gradient of the 1-norm.
 *   g = gy * sign(x)
 */

/*op norm2_grad(gy, x, y) -> g  elementwise internal
 * The gradient of the 2-norm.
 *   g = y == 0 ? 0 : gy * (x / y)
 */

/*op norm_grad(gy, x, y, p:float) -> g  elementwise internal
 * The gradient of a p-norm, computed from the quotient |x| / y so that powers do not overflow or
 * underflow.
 *   g = x == 0 || y == 0 ? 0 : gy * sign(x) * pow(abs(x) / y, p - 1)
 */

/*op norm_inf_place(x, y) -> on  elementwise predicate internal
 * Whether |x| equals y, the inf- or -inf-norm, or both are NaN.
 *   on = abs(x) == y || (x != x && y != y)
 */

/*op norm_inf_grad(gy, x, on, count) -> g  elementwise internal
 * The gradient of the inf- and -inf-norm: divided among the `count` elements equal to the norm.
 *   g = on ? gy * sign(x) / count : 0
 */
static void norm_vjp(gd_vjp *v) {
    const gd_norm_options *o = v->attrs;
    if (o->p == 0) return; /* a count has gradient 0 */
    gd_tensor *x = v->x[0];
    uint32_t mask = axes_of(&o->axis, x->rank);
    gd_tensor *gy = gd_restore_dims(v->gy[0], x, mask), *y = gd_restore_dims(v->y[0], x, mask);
    if (o->p == 1) v->gx[0] = gd_norm1_grad(gy, x);
    else if (o->p == 2) v->gx[0] = gd_norm2_grad(gy, x, y);
    else if (isinf(o->p)) {
        gd_tensor *on = gd_norm_inf_place(x, y);
        gd_tensor *count = gd_sum(on, .axis = gd_mask_axes(mask), .keepdim = true);
        v->gx[0] = gd_norm_inf_grad(gy, x, on, count);
    } else v->gx[0] = gd_norm_grad(gy, x, y, o->p);
}

/*op abs_power(x, p:float) -> y  elementwise internal
 * |x| to the power p, whose gradient is 0 at 0.
 *   y  = pow(abs(x), p)
 *   gx = x == 0 ? 0 : gy * p * sign(x) * pow(abs(x), p - 1)
 */

/*op power_root(x, p:float) -> y  elementwise internal
 * The p-th root of x >= 0, whose gradient is 0 at 0.
 *   y  = pow(x, 1 / p)
 *   gx = x == 0 || y == 0 ? 0 : gy * (y / x) / p
 */

/*op norm_inf_share(x, on, count) -> y  elementwise internal
 * 0 (NaN for NaN), with the gradient of the inf- and -inf-norm: added to the norm it provides the
 * gradient.
 *   y  = min(abs(x), 0)
 *   gx = on ? gy * sign(x) / count : 0
 *   gon = 0
 *   gcount = 0
 */

/* The largest or smallest absolute value. */
static gd_tensor *extreme_norm(const gd_expansion *e, gd_tensor *x, gd_shape axes) {
    const gd_norm_options *o = e->attrs;
    gd_tensor *size = gd_abs(gd_stop_gradient(x));
    gd_tensor *y = o->p > 0 ? gd_max(size, .axis = axes, .keepdim = true)
                            : gd_min(size, .axis = axes, .keepdim = true);
    if (gd_body_differentiates(e)) {
        gd_tensor *on = gd_norm_inf_place(gd_stop_gradient(x), y);
        gd_tensor *count = gd_sum(on, .axis = axes, .keepdim = true);
        gd_tensor *share = gd_norm_inf_share(x, on, count);
        y = gd_add(y, gd_sum(share, .axis = axes, .keepdim = true));
    }
    return o->keepdim ? y : gd_squeeze(y, .axis = axes);
}
static void norm_expand(gd_expansion *e) {
    const gd_norm_options *o = e->attrs;
    const gd_dtype dtype = (gd_dtype)e->x[0]->dtype, wide = gd_wide_dtype(dtype);
    const gd_shape axes = gd_mask_axes(axes_of(&o->axis, e->x[0]->rank));
    gd_tensor *x = gd_as_dtype(e->x[0], wide), *y;
    if (isinf(o->p)) y = extreme_norm(e, x, axes);
    else {
        gd_tensor *terms = o->p == 0   ? gd_cast(gd_cast(x, GD_BOOL), wide)
                           : o->p == 1 ? gd_abs(x)
                           : o->p == 2 ? gd_square(x)
                                       : gd_abs_power(x, o->p);
        y = gd_sum(terms, .axis = axes, .keepdim = o->keepdim);
        if (o->p == 2) y = gd_root_or_zero(y);
        else if (o->p != 0 && o->p != 1) y = gd_power_root(y, o->p);
    }
    e->y[0] = gd_as_dtype(y, dtype);
}

static void norm_of_group(void *context, const void *elements, int64_t n, int64_t result) {
    const statistic_job *f = context;
    const double *x = elements;
    double y = f->p == -INFINITY ? INFINITY : 0;
    for (int64_t i = 0; i < n; i++) {
        double a = fabs(x[i]);
        if (f->p == INFINITY) y = isnan(a) || a > y ? a : y;
        else if (f->p == -INFINITY) y = isnan(a) || a < y ? a : y;
        else y += f->p == 0 ? a != 0 : pow(a, f->p);
        if (isnan(y)) break;
    }
    f->y[result] = isinf(f->p) || f->p == 0 ? y : pow(y, 1 / f->p);
}
static size_t norm_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status norm_reference(gd_kernel_call *k) {
    const gd_norm_options *o = k->attrs;
    statistic_job f = {.y = k->out[0].data, .p = o->p};
    return gd_each_group(k, axes_of(&o->axis, k->in[0].rank), norm_of_group, &f);
}

/* --- norms of matrices ------------------------------------------------------------------------ */

/*op matrix_norm(x) -> y  fullp
 * A norm of each matrix in two axes of x. Without ord, the Frobenius norm: the root of the sum of
 * squares. ord 1: the largest sum of absolute values of a column; inf: of a row; -1 and -inf: the
 * smallest. 2, -2 and the nuclear norm are not supported: they need singular values.
 *   ord float = none      1, -1, inf, -inf; none: Frobenius
 *   axis int[] = none     axes of rows and columns, gd_dims(rows, columns); none: the last two
 *   keepdim bool = false  keep the two dimensions with size 1
 */
static gd_status matrix_axes(const gd_matrix_norm_options *o, int rank, int *rows, int *cols) {
    const bool given = gd_shape_is_set(&o->axis);
    if (rank < 2 || (given && o->axis.rank != 2))
        return rank < 2
                   ? gd_op_fail(GD_E_SHAPE, "'x' must have at least 2 dimensions, not %d", rank)
                   : gd_op_fail(GD_E_SHAPE, "axis has %d numbers; it must have 2", o->axis.rank);
    GD_TRY(gd_axis(given ? o->axis.at[0] : -2, rank, rows));
    GD_TRY(gd_axis(given ? o->axis.at[1] : -1, rank, cols));
    return *rows != *cols ? GD_OK : gd_op_fail(GD_E_INDEX, "axis %d is named twice", *rows);
}
static gd_status matrix_norm_infer(gd_infer *i) {
    const gd_matrix_norm_options *o = i->attrs;
    int rows, cols;
    GD_TRY(gd_need_float(i->in[0], "x"));
    GD_TRY(matrix_axes(o, i->in[0]->rank, &rows, &cols));
    const uint32_t mask = 1u << rows | 1u << cols;
    gd_reduced_dims(i->in[0], mask, o->keepdim, &i->out[0]);
    if (isnan(o->ord)) return GD_OK;
    if (fabs(o->ord) == 2)
        return gd_op_fail(
            GD_E_UNSUPPORTED,
            "ord %g needs singular values and is not supported; 1, -1, inf, -inf and the Frobenius "
            "norm (no ord) are",
            o->ord);
    if (fabs(o->ord) != 1 && !isinf(o->ord))
        return gd_op_fail(GD_E_ARGUMENT, "ord is %g; it must be 1, -1, inf or -inf, or not given",
                          o->ord);
    return gd_need_elements(i->in[0], 1u << (fabs(o->ord) == 1 ? cols : rows));
}
static void matrix_norm_expand(gd_expansion *e) {
    const gd_matrix_norm_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    int rows = 0, cols = 1;
    if (matrix_axes(o, x->rank, &rows, &cols) != GD_OK) {
        e->y[0] = gd_tensor_fail(gd_this_thread.latest);
        return;
    }
    gd_shape both = gd_dims(rows < cols ? rows : cols, rows < cols ? cols : rows);
    if (isnan(o->ord)) {
        e->y[0] = gd_norm(x, .axis = both, .keepdim = o->keepdim);
        return;
    }
    const bool by_columns = fabs(o->ord) == 1; /* one sum for each column, over its rows */
    gd_tensor *sums = gd_norm(x, .p = 1, .axis = by_columns ? rows : cols, .keepdim = true);
    const int rest = by_columns ? cols : rows;
    gd_tensor *y = o->ord > 0 ? gd_max(sums, .axis = rest, .keepdim = true)
                              : gd_min(sums, .axis = rest, .keepdim = true);
    e->y[0] = o->keepdim ? y : gd_squeeze(y, .axis = both);
}

#include "ops/reduce/reduce_statistics.gen.h"
