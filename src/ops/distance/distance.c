/* distance.c - cdist: distances between the rows of two matrices. */
#include "ops/distance/distance.h"

#include <math.h>
#include <string.h>

#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"

/* --- shapes ----------------------------------------------------------------------------------- */

static gd_status infer_shape(int rank_a, const int64_t *a, int rank_b, const int64_t *b,
                             gd_cdist_shape *s) {
    *s = (gd_cdist_shape){.rank = (rank_a > rank_b ? rank_a : rank_b) - 2,
                          .n = a[rank_a - 2],
                          .m = b[rank_b - 2],
                          .width = a[rank_a - 1]};
    for (int d = 0; d < s->rank; d++) {
        const int ka = d - (s->rank + 2 - rank_a), kb = d - (s->rank + 2 - rank_b);
        const int64_t na = ka < 0 ? 1 : a[ka], nb = kb < 0 ? 1 : b[kb];
        if (na != nb && na != 1 && nb != 1)
            return gd_op_fail(GD_E_SHAPE, "leading dimensions %lld and %lld do not broadcast",
                              (long long)na, (long long)nb);
        s->batch[d] = na == 1 ? nb : na;
    }
    s->count = gd_numel(s->rank, s->batch);
    return GD_OK;
}

gd_cdist_shape gd_cdist_shape_of(const gd_view *a, const gd_view *b) {
    gd_cdist_shape s;
    infer_shape(a->rank, a->dims, b->rank, b->dims, &s);
    return s;
}

int64_t gd_cdist_offset(const gd_cdist_shape *s, const gd_view *operand, int64_t index) {
    int64_t at = 0, step = operand->dims[operand->rank - 2] * operand->dims[operand->rank - 1];
    for (int d = s->rank, k = operand->rank - 3; d-- > 0 && k >= 0; k--) {
        if (operand->dims[k] > 1) at += index % s->batch[d] * step;
        step *= operand->dims[k];
        index /= s->batch[d];
    }
    return at;
}

static gd_status check_rows(const gd_tensor *a, const gd_tensor *b, double p, gd_cdist_shape *s) {
    GD_TRY(gd_need_float(a, "a"));
    GD_TRY(gd_need_same_dtype(a, b, "a", "b"));
    if (!(p >= 0)) return gd_op_fail(GD_E_ARGUMENT, "p is %g; it must be 0 or greater", p);
    if (a->rank < 2 || b->rank < 2)
        return gd_op_fail(GD_E_SHAPE, "'a' and 'b' must have at least 2 dimensions");
    const int64_t width_a = a->dims[a->rank - 1], width_b = b->dims[b->rank - 1];
    if (width_a != width_b)
        return gd_op_fail(
            GD_E_SHAPE, "the last dimensions of 'a' and 'b' are %lld and %lld; they must be equal",
            (long long)width_a, (long long)width_b);
    return infer_shape(a->rank, a->dims, b->rank, b->dims, s);
}

static void set_shape(gd_meta *y, const gd_cdist_shape *s, int64_t rows, int64_t columns) {
    memcpy(y->dims, s->batch, sizeof *y->dims * (size_t)s->rank);
    y->rank = s->rank + 2;
    y->dims[s->rank] = rows;
    y->dims[s->rank + 1] = columns;
}

/* --- cdist ------------------------------------------------------------------------------------ */

/*op cdist(a, b) -> y  heavy fullp
 * The distance between each row of a (..., N, D) and each row of b (..., M, D): y (..., N, M) is
 * the p-norm of a[n] - b[m]. Leading dimensions broadcast. p = 0 counts the coordinates that differ,
 * p = inf is the largest difference; NaN gives NaN. The gradient is 0 where the distance is 0, and
 * for p other than 2 also in coordinates that are equal; coordinates that tie for p = inf get the
 * full gradient each. The CPU kernel sums differences, never |a|^2 + |b|^2 - 2ab: the relative error
 * is about D/2 roundings at any distance, equal rows have distance 0, and no (N, M, D) temporary
 * exists. Gradients of second order for p = 2 use matrix products, whose relative error grows with
 * |a| / y.
 *   p float = 2   0 or greater
 *   saves a, b, y
 *   python (x1=a, x2=b, p)
 */
static gd_status cdist_infer(gd_infer *i) {
    const gd_cdist_options *o = i->attrs;
    gd_cdist_shape s;
    GD_TRY(check_rows(i->in[0], i->in[1], o->p, &s));
    i->out[0].dtype = i->in[0]->dtype;
    set_shape(&i->out[0], &s, s.n, s.m);
    return GD_OK;
}

static void cdist_vjp(gd_vjp *v) {
    const gd_cdist_options *o = v->attrs;
    gd_tensor *a = v->x[0], *b = v->x[1], *y = v->y[0], *gy = v->gy[0];
    if (o->p == 0) { /* a count: zeros, as in PyTorch, and not the error of a missing dependency */
        if (v->needs[0]) v->gx[0] = gd_zeros_like(a);
        if (v->needs[1]) v->gx[1] = gd_zeros_like(b);
        return;
    }
    const gd_dtype wide = gd_wide_dtype((gd_dtype)a->dtype);
    if (isinf(o->p) && a->dtype != wide) {
        /* the gradient compares differences with y, which must not be rounded */
        a = gd_cast(a, wide), b = gd_cast(b, wide), gy = gd_cast(gy, wide);
        y = gd_cdist(a, b, .p = o->p);
    }
    if (v->needs[0]) v->gx[0] = gd_cdist_grad(gy, a, b, y, .p = o->p);
    if (v->needs[1]) v->gx[1] = gd_cdist_grad(gy, a, b, y, .p = o->p, .of_b = true);
}

/*op nonzero_or_nan(x) -> y  elementwise internal
 * 1 where x is not 0, else 0; NaN for NaN.
 *   y  = isnan(x) ? x : x != 0
 *   gx = 0
 */

/*op largest_share(x, largest) -> y  elementwise internal
 * 0, or NaN for NaN, with the gradient of the largest absolute value: all of it to each x that has
 * that value.
 *   y  = min(abs(x), 0)
 *   gx = abs(x) == largest ? gy * sign(x) : 0
 *   glargest = 0
 */

/* a[n] - b[m]: (..., N, M, D). */
static gd_tensor *row_differences(gd_tensor *a, gd_tensor *b) {
    return gd_sub(gd_unsqueeze(a, -2), gd_unsqueeze(b, -3));
}

static void cdist_expand(gd_expansion *e) {
    const gd_cdist_options *o = e->attrs;
    const gd_dtype dtype = (gd_dtype)e->x[0]->dtype, wide = gd_wide_dtype(dtype);
    gd_tensor *d = row_differences(gd_as_dtype(e->x[0], wide), gd_as_dtype(e->x[1], wide)), *y;
    if (o->p == 0) y = gd_sum(gd_nonzero_or_nan(d), .axis = -1);
    else if (gd_tensor_dim(e->x[0], -1) == 0) y = gd_sum(d, .axis = -1);
    else if (isinf(o->p)) {
        gd_tensor *fixed = gd_stop_gradient(d);
        y = gd_max(gd_abs(fixed), .axis = -1, .keepdim = true);
        if (gd_body_differentiates(e))
            y = gd_add(y, gd_sum(gd_largest_share(d, y), .axis = -1, .keepdim = true));
        y = gd_squeeze(y, .axis = -1);
    } else y = gd_norm(d, .p = o->p, .axis = -1);
    e->y[0] = gd_as_dtype(y, dtype);
}

/* a (count, n, width), b (count, m, width), y (count, n, m), in f64. */
static gd_status cdist_reference(gd_kernel_call *k) {
    const double p = ((const gd_cdist_options *)k->attrs)->p;
    const gd_cdist_shape s = gd_cdist_shape_of(&k->in[0], &k->in[1]);
    double *y = k->out[0].data;
    for (int64_t e = 0; e < s.count; e++) {
        const double *a = (const double *)k->in[0].data + gd_cdist_offset(&s, &k->in[0], e);
        const double *b = (const double *)k->in[1].data + gd_cdist_offset(&s, &k->in[1], e);
        for (int64_t i = 0; i < s.n; i++)
            for (int64_t j = 0; j < s.m; j++) {
                double sum = 0;
                for (int64_t t = 0; t < s.width; t++) {
                    const double d = fabs(a[i * s.width + t] - b[j * s.width + t]);
                    if (isnan(d)) sum = d;
                    else if (isinf(p)) sum = d > sum ? d : sum;
                    else sum += p == 0 ? d != 0 : pow(d, p);
                }
                *y++ = p == 0 || isinf(p) ? sum : pow(sum, 1 / p);
            }
    }
    return GD_OK;
}

/* --- the gradient ----------------------------------------------------------------------------- */

/*op cdist_grad(gy, a, b, y) -> g  internal heavy
 * The gradient of cdist for a (batch..., N, D), or for b (batch..., M, D).
 *   p float = 2
 *   of_b bool = false
 */
static gd_status cdist_grad_infer(gd_infer *i) {
    const gd_cdist_grad_options *o = i->attrs;
    gd_cdist_shape s;
    GD_TRY(check_rows(i->in[1], i->in[2], o->p, &s));
    set_shape(&i->out[0], &s, s.n, s.m);
    char text[128];
    for (int k = 0; k < 4; k += 3) {
        const gd_tensor *t = i->in[k];
        GD_TRY(gd_need_same_dtype(i->in[1], t, "a", i->op->inputs[k].name));
        if (t->rank != s.rank + 2 ||
            memcmp(t->dims, i->out[0].dims, sizeof *t->dims * (size_t)t->rank) != 0)
            return gd_op_fail(GD_E_SHAPE, "'%s' must have shape %s", i->op->inputs[k].name,
                              gd_shape_text(s.rank + 2, i->out[0].dims, text, sizeof text));
    }
    i->out[0].dtype = i->in[1]->dtype;
    set_shape(&i->out[0], &s, o->of_b ? s.m : s.n, s.width);
    return GD_OK;
}

/*op quotient_or_zero(x, y) -> q  elementwise internal
 * x / y, and 0 where y is 0.
 *   q  = y == 0 ? 0 : x / y
 *   gx = y == 0 ? 0 : gq / y
 *   gy = y == 0 ? 0 : -gq * (q / y)
 */

/*op largest_grad(gy, x, largest) -> g  elementwise internal
 * gy times the sign of each x whose absolute value is the largest.
 *   g = abs(x) == largest ? gy * sign(x) : 0
 */

/* For p = 2 the sum of gy/y (a - b) is one matrix product and no (N, M, D) tensor. */
static void cdist_grad_expand(gd_expansion *e) {
    const gd_cdist_grad_options *o = e->attrs;
    const gd_dtype dtype = (gd_dtype)e->x[1]->dtype, wide = gd_wide_dtype(dtype);
    gd_tensor *gy = gd_as_dtype(e->x[0], wide), *y = gd_as_dtype(e->x[3], wide);
    gd_tensor *a = gd_as_dtype(e->x[o->of_b ? 2 : 1], wide);
    gd_tensor *b = gd_as_dtype(e->x[o->of_b ? 1 : 2], wide), *g;
    if (o->of_b) gy = gd_transpose(gy, -2, -1), y = gd_transpose(y, -2, -1);
    if (o->p == 2) {
        gd_tensor *w = gd_quotient_or_zero(gy, y);
        g = gd_sub(gd_mul(a, gd_sum(w, .axis = -1, .keepdim = true)), gd_matmul(w, b));
    } else {
        gd_tensor *d = row_differences(a, b);
        gy = gd_unsqueeze(gy, -1), y = gd_unsqueeze(y, -1);
        g = o->p == 0     ? gd_mul(gd_zeros_like(d), gy)
            : o->p == 1   ? gd_norm1_grad(gy, d)
            : isinf(o->p) ? gd_largest_grad(gy, d, y)
                          : gd_norm_grad(gy, d, y, o->p);
        g = gd_sum(g, .axis = -2);
    }
    e->y[0] = gd_as_dtype(g, dtype);
}

/* The derivative of the norm y by a coordinate whose difference is d. */
static double norm_slope(double d, double y, double p) {
    if (p == 0 || d == 0 || (y == 0 && p != 1)) return 0;
    const double sign = (double)((d > 0) - (d < 0));
    if (p == 1) return sign;
    if (p == 2) return d / y;
    if (isinf(p)) return fabs(d) == y ? sign : 0;
    return sign * pow(fabs(d) / y, p - 1);
}
static gd_status cdist_grad_reference(gd_kernel_call *k) {
    const gd_cdist_grad_options *o = k->attrs;
    const gd_cdist_shape s = gd_cdist_shape_of(&k->in[1], &k->in[2]);
    const double *gy = k->in[0].data, *y = k->in[3].data;
    double *g = k->out[0].data;
    memset(g, 0, sizeof *g * (size_t)gd_numel(k->out[0].rank, k->out[0].dims));
    for (int64_t e = 0; e < s.count; e++, g += (o->of_b ? s.m : s.n) * s.width) {
        const double *a = (const double *)k->in[1].data + gd_cdist_offset(&s, &k->in[1], e);
        const double *b = (const double *)k->in[2].data + gd_cdist_offset(&s, &k->in[2], e);
        for (int64_t i = 0; i < s.n; i++)
            for (int64_t j = 0; j < s.m; j++, gy++, y++)
                for (int64_t t = 0; t < s.width; t++) {
                    const double d = a[i * s.width + t] - b[j * s.width + t];
                    const double slope = *gy * norm_slope(d, *y, o->p);
                    if (o->of_b) g[j * s.width + t] -= slope;
                    else g[i * s.width + t] += slope;
                }
    }
    return GD_OK;
}

#include "ops/distance/distance.gen.h"
