/* scatter.c - scatter along an axis by a tensor of indices, and its variants that reduce.
 *
 * Repeated indices give deterministic results: the last value in row-major order is kept, and sums
 * and products are formed in row-major order. An index out of range fails with GD_E_INDEX.
 */
#include <math.h>
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "ops/index/index.h"
#include "dispatch/infer.h"

static int axis_of(int64_t axis, int rank) { return (int)(axis < 0 ? axis + rank : axis); }

/* --- shared helpers --------------------------------------------------------------------------- */

static gd_status infer_scatter(gd_infer *i, int64_t given_axis) {
    const gd_tensor *x = i->in[0], *index = i->in[1], *src = i->in[2];
    int axis;
    GD_TRY(gd_axis(given_axis, x->rank, &axis));
    GD_TRY(gd_check_index(x, index, axis));
    GD_TRY(gd_need_same_dtype(x, src, "x", "src"));
    gd_meta_like(&i->out[0], x);
    if (gd_numel(index->rank, index->dims) == 0) return GD_OK;
    if (gd_rank_1d(src) != gd_rank_1d(index))
        return gd_op_fail(GD_E_SHAPE, "'src' has %d dimensions, 'index' %d; they must be equal",
                          src->rank, index->rank);
    for (int d = 0; d < gd_rank_1d(index); d++)
        if (gd_dim_1d(src, d) < gd_dim_1d(index, d))
            return gd_op_fail(GD_E_SHAPE,
                              "'src' has size %lld in dimension %d; it must have at least %lld, as "
                              "'index' has",
                              (long long)gd_dim_1d(src, d), d, (long long)gd_dim_1d(index, d));
    return GD_OK;
}

typedef enum { SET, ADD, MULTIPLY, LARGEST, SMALLEST } scatter_mode;

/* NaN if one of them is NaN. */
static double larger_f64(double a, double b) { return a > b || isnan(a) ? a : b; }
static double smaller_f64(double a, double b) { return a < b || isnan(a) ? a : b; }

static double combine_f64(scatter_mode mode, double old, double value) {
    switch (mode) {
    case ADD: return old + value;
    case MULTIPLY: return old * value;
    case LARGEST: return larger_f64(old, value);
    case SMALLEST: return smaller_f64(old, value);
    default: return value;
    }
}

/* Sums and products wrap. */
static int64_t combine_i64(scatter_mode mode, int64_t old, int64_t value) {
    switch (mode) {
    case ADD: return (int64_t)((uint64_t)old + (uint64_t)value);
    case MULTIPLY: return (int64_t)((uint64_t)old * (uint64_t)value);
    case LARGEST: return old > value ? old : value;
    case SMALLEST: return old < value ? old : value;
    default: return value;
    }
}

/* Combines the elements of src with those of y, which holds x already. All operands are row-major
 * f64 or i64. */
static void scatter_into(gd_view y, gd_view index, gd_view src, int axis, scatter_mode mode) {
    int64_t total = gd_numel(index.rank, index.dims);
    for (int64_t e = 0; e < total; e++) {
        int64_t at, from, to;
        gd_locate(e, &index, axis, &at, &y, &to, &src, &from);
        to += ((const int64_t *)index.data)[at] * y.strides[axis];
        if (y.dtype == GD_F64) {
            double *element = (double *)y.data + to;
            *element = combine_f64(mode, *element, ((const double *)src.data)[from]);
        } else {
            int64_t *element = (int64_t *)y.data + to;
            *element = combine_i64(mode, *element, ((const int64_t *)src.data)[from]);
        }
    }
}

static gd_status run_scatter(gd_kernel_call *k, int64_t given_axis, scatter_mode mode) {
    gd_view x = gd_at_least_1d(k->in[0]), y = gd_at_least_1d(k->out[0]);
    int axis = axis_of(given_axis, x.rank);
    GD_TRY(gd_check_axis_indices(&k->in[1], x.dims[axis], axis));
    memcpy(y.data, x.data, (size_t)gd_numel(x.rank, x.dims) * 8);
    scatter_into(y, gd_at_least_1d(k->in[1]), gd_at_least_1d(k->in[2]), axis, mode);
    return GD_OK;
}

/* Extends g, which has the shape of index, to the shape of src: elements of src that no index uses
 * get gradient 0. */
static gd_tensor *extend_to_src(gd_tensor *g, const gd_tensor *src) {
    if (gd_tensor_numel(g) == 0 && gd_tensor_numel(src) > 0) return gd_zeros_as(src);
    if (g->kind == GD_FAILED) return g;
    if (g->rank < src->rank) g = gd_reshape(g, gd_dims(1)); /* rank 0 and (1) are equivalent */
    else if (g->rank > src->rank) return gd_reshape(g, gd_tensor_shape(src));
    gd_shape dims = gd_tensor_shape(g);
    for (int d = 0; d < src->rank; d++) {
        if (dims.at[d] == src->dims[d]) continue;
        dims.at[d] = src->dims[d];
        g = gd_slice_grad(g, dims, d, 0, 1);
    }
    return g;
}

/* The part of src that is used: that within the shape of index. */
static gd_tensor *used_src(gd_tensor *src, const gd_tensor *index) {
    for (int d = 0; d < src->rank && d < index->rank; d++)
        if (src->dims[d] != index->dims[d]) src = gd_narrow(src, d, 0, index->dims[d]);
    return src;
}

/* --- scatter and scatter_add ------------------------------------------------------------------ */

/*op scatter(x, axis:int, index, src) -> y
 * x with elements of src written along an axis: for axis 1, y[i][index[i][j][k]][k] = src[i][j][k].
 * If indices repeat, the last element in row-major order is kept.
 *   index index < x[axis]
 *   saves index
 *   onnx ScatterElements
 */
static gd_status scatter_infer(gd_infer *i) {
    return infer_scatter(i, ((const gd_scatter_options *)i->attrs)->axis);
}
static void scatter_vjp(gd_vjp *v) {
    const gd_scatter_options *o = v->attrs;
    gd_tensor *index = v->x[1], *gy = v->gy[0];
    bool nothing = gd_tensor_numel(index) == 0;
    if (v->needs[0])
        v->gx[0] = nothing
                       ? gy
                       : gd_scatter(gy, o->axis, index,
                                    gd_zeros_on(gy, (gd_dtype)gy->dtype, gd_tensor_shape(index)));
    if (!v->needs[2] || nothing) return;
    int64_t size = v->x[0]->rank ? gd_tensor_dim(v->x[0], (int)o->axis) : 1;
    gd_tensor *g = gd_gather(gy, o->axis, index); /* overwritten elements get 0 */
    v->gx[2] = extend_to_src(gd_masked_fill(g, gd_scatter_lost(index, o->axis, size), 0), v->x[2]);
}
static gd_status scatter_reference(gd_kernel_call *k) {
    return run_scatter(k, ((const gd_scatter_options *)k->attrs)->axis, SET);
}

/*op scatter_lost(index, axis:int, size:int) -> lost  internal nograd
 * True where an element that scatter writes is overwritten by a later one. size is that of the axis
 * of x.
 *   index index < size
 */
static gd_status scatter_lost_infer(gd_infer *i) {
    const gd_scatter_lost_options *o = i->attrs;
    int axis;
    GD_TRY(gd_need_int(i->in[0], "index"));
    GD_TRY(gd_axis(o->axis, i->in[0]->rank, &axis));
    gd_meta_like(&i->out[0], i->in[0]);
    i->out[0].dtype = GD_BOOL;
    return GD_OK;
}
/* Each element writes its own position. If it does not find it there afterwards, it was
 * overwritten. */
static void scatter_lost_expand(gd_expansion *e) {
    const gd_scatter_lost_options *o = e->attrs;
    gd_tensor *index = gd_as_list(e->x[0]);
    const int axis = axis_of(o->axis, index->rank);
    gd_shape given = gd_tensor_shape(index), line = given;
    line.at[axis] = o->size;
    index = gd_checked_axis_index(index, o->size, axis);
    gd_tensor *own = gd_expand(gd_positions(given.rank, axis, 0, given.at[axis], 1), given);
    gd_tensor *last = gd_scatter(gd_full(line, 0, .dtype = GD_I64), axis, index, own);
    e->y[0] = gd_reshape(gd_ne(gd_gather(last, axis, index), own), gd_tensor_shape(e->x[0]));
}
static size_t scatter_lost_workspace(const gd_kernel_call *k) {
    const int64_t size = ((const gd_scatter_lost_options *)k->attrs)->size;
    return size > 0 ? (size_t)size * sizeof(int64_t) : 0;
}
static gd_status scatter_lost_raw(gd_kernel_call *k) {
    const gd_scatter_lost_options *o = k->attrs;
    gd_view index = gd_at_least_1d(k->in[0]), lost = gd_at_least_1d(k->out[0]);
    int axis = axis_of(o->axis, index.rank);
    int64_t width = (int64_t)gd_dtype_size(index.dtype), length = index.dims[axis];
    GD_TRY(gd_check_axis_indices(&k->in[0], o->size, axis));
    /* for each index of the axis: 1 + the number of the element that wrote it last; elements are
     * numbered through all lines, so that a new line need not clear it */
    int64_t *line = k->workspace;
    if (line) memset(line, 0, k->workspace_bytes);
    gd_view lines = index;
    lines.dims[axis] = 1;
    int64_t count = gd_numel(lines.rank, lines.dims);
    for (int64_t n = 0; n < count; n++) {
        int64_t from, to, none;
        gd_locate(n, &lines, axis, &from, &lost, &to, &lines, &none);
        for (int pass = 0; pass < 2; pass++)
            for (int64_t m = 0; m < length; m++) {
                int64_t at = (from + m * index.strides[axis]) * width;
                int64_t *writer = &line[gd_load_i64(index.dtype, (const char *)index.data + at)];
                int64_t me = n * length + m + 1;
                if (pass == 0) *writer = me;
                else ((uint8_t *)lost.data)[to + m * lost.strides[axis]] = *writer != me;
            }
    }
    return GD_OK;
}

/*op scatter_add(x, axis:int, index, src) -> y
 * As scatter, but elements of src are added to those of x.
 *   index index < x[axis]
 *   saves index
 */
static gd_status scatter_add_infer(gd_infer *i) {
    return infer_scatter(i, ((const gd_scatter_add_options *)i->attrs)->axis);
}
static void scatter_add_vjp(gd_vjp *v) {
    const gd_scatter_add_options *o = v->attrs;
    if (v->needs[0]) v->gx[0] = v->gy[0];
    if (v->needs[2] && gd_tensor_numel(v->x[1]) > 0)
        v->gx[2] = extend_to_src(gd_gather(v->gy[0], o->axis, v->x[1]), v->x[2]);
}
static gd_status scatter_add_reference(gd_kernel_call *k) {
    return run_scatter(k, ((const gd_scatter_add_options *)k->attrs)->axis, ADD);
}

/* --- scatter_mul ------------------------------------------------------------------------------ */

/*op scatter_mul(x, axis:int, index, src) -> y
 * As scatter, but elements of x are multiplied by those of src.
 *   index index < x[axis]
 */
static gd_status scatter_mul_infer(gd_infer *i) {
    return infer_scatter(i, ((const gd_scatter_mul_options *)i->attrs)->axis);
}
static void scatter_mul_vjp(gd_vjp *v) {
    const gd_scatter_mul_options *o = v->attrs;
    gd_tensor *index = v->x[1], *gy = v->gy[0];
    if (gd_tensor_numel(index) == 0) {
        v->gx[0] = gy;
        return;
    }
    gd_scatter_others_outputs others =
        gd_scatter_others(v->x[0], o->axis, index, used_src(v->x[2], index));
    if (v->needs[0]) v->gx[0] = gd_mul(gy, others.ox);
    if (v->needs[2])
        v->gx[2] = extend_to_src(gd_mul(gd_gather(gy, o->axis, index), others.osrc), v->x[2]);
}
static gd_status scatter_mul_reference(gd_kernel_call *k) {
    return run_scatter(k, ((const gd_scatter_mul_options *)k->attrs)->axis, MULTIPLY);
}

/*op scatter_others(x, axis:int, index, src) -> ox, osrc  internal heavy
 * For each factor of scatter_mul (elements of x and of src), the product of all other factors of
 * the same result. index and src have the same shape. It does not divide, so zeros need no special
 * case.
 *   index index < x[axis]
 */
static gd_status scatter_others_infer(gd_infer *i) {
    const gd_scatter_others_options *o = i->attrs;
    const gd_tensor *index = i->in[1], *src = i->in[2];
    GD_TRY(gd_need_float(i->in[0], "x"));
    GD_TRY(infer_scatter(i, o->axis));
    if (gd_numel(index->rank, index->dims) != gd_numel(src->rank, src->dims))
        return gd_op_fail(GD_E_SHAPE, "'index' and 'src' must have the same shape");
    gd_meta_like(&i->out[1], src);
    return GD_OK;
}
/* For each result, the product of the factors before and of those after. */
static size_t scatter_others_workspace(const gd_kernel_call *k) {
    return 2 * (size_t)gd_numel(k->in[0].rank, k->in[0].dims) * sizeof(double);
}
/* The forward pass gives each factor the product of those before it; the backward pass multiplies
 * it by the product of those after it. */
static gd_status scatter_others_reference(gd_kernel_call *k) {
    const gd_scatter_others_options *o = k->attrs;
    gd_view x = gd_at_least_1d(k->in[0]), index = gd_at_least_1d(k->in[1]),
            src = gd_at_least_1d(k->in[2]);
    int axis = axis_of(o->axis, x.rank);
    int64_t total = gd_numel(index.rank, index.dims), n = gd_numel(x.rank, x.dims);
    double *before = k->workspace, *after = before + n, *osrc = k->out[1].data;
    GD_TRY(gd_check_axis_indices(&k->in[1], x.dims[axis], axis));
    if (n > 0) memcpy(before, x.data, (size_t)n * sizeof(double));
    for (int64_t e = 0; e < n; e++) after[e] = 1;
    for (int64_t t = 0; t < 2 * total; t++) {
        int64_t e = t < total ? t : 2 * total - 1 - t, at, from, to;
        gd_locate(e, &index, axis, &at, &x, &to, &src, &from);
        double *product =
            (t < total ? before : after) + to + ((const int64_t *)index.data)[at] * x.strides[axis];
        if (osrc) osrc[e] = t < total ? *product : osrc[e] * *product;
        *product *= ((const double *)src.data)[from];
    }
    if (k->out[0].data && n > 0) memcpy(k->out[0].data, after, (size_t)n * sizeof(double));
    return GD_OK;
}

/* For sorted factors: the product of the other factors with the same target index. It is the
 * product of those before times that of those after; both are linear recurrences that restart with
 * each group of equal targets. */
static gd_tensor *group_others(gd_tensor *factors, gd_tensor *targets, int64_t axis) {
    gd_tensor *p = gd_add(targets, gd_scalar_int(1)); /* so that the zeros of shift are no target */
    gd_tensor *first = gd_ne(p, gd_shift(p, axis, 1)), *last = gd_ne(p, gd_shift(p, axis, -1));
    gd_dtype dtype = gd_tensor_dtype(factors);
    gd_tensor *before = gd_linear_recurrence(gd_masked_fill(factors, last, 0),
                                             gd_cast(first, dtype), axis, .neighbour = true);
    gd_tensor *after = gd_linear_recurrence(gd_masked_fill(factors, first, 0), gd_cast(last, dtype),
                                            axis, .reverse = true, .neighbour = true);
    return gd_mul(before, after);
}

/* In ops that can be differentiated: sorts the factors of x and src along the axis by their target
 * index, multiplies within groups, and restores the order. */
static void scatter_others_expand(gd_expansion *e) {
    const gd_scatter_others_options *o = e->attrs;
    gd_tensor *x = e->x[0], *index = e->x[1], *src = e->x[2];
    gd_shape own = gd_tensor_shape(x), given = gd_tensor_shape(src);
    if (gd_tensor_numel(index) == 0) {
        e->y[0] = gd_ones_like(x);
        e->y[1] = src;
        return;
    }
    int rank = gd_rank_1d(x);
    int64_t axis = axis_of(o->axis, rank), n = gd_dim_1d(x, (int)axis),
            m = gd_dim_1d(index, (int)axis);
    if (x->rank == 0) x = gd_reshape(x, gd_dims(1));
    if (index->rank == 0) index = gd_reshape(index, gd_dims(1));
    if (src->rank == 0) src = gd_reshape(src, gd_dims(1));
    gd_shape part = gd_tensor_shape(index), /* of x that is within the shape of index */
        padding = {.rank = 2 * rank, .form = 1};
    part.at[axis] = n;
    gd_tensor *near = x;
    for (int d = 0; d < rank; d++) {
        int64_t size = gd_tensor_dim(x, d), extent = d == axis ? n : gd_tensor_dim(index, d);
        if (extent != size) near = gd_narrow(near, d, 0, extent);
        padding.at[2 * (rank - 1 - d) + 1] = size - extent;
    }
    gd_tensor *targets = gd_cat(
        gd_list(gd_expand(gd_positions(rank, (int)axis, 0, n, 1), part), gd_cast(index, GD_I64)),
        .axis = axis);
    gd_tensor *order = gd_argsort(targets, .axis = axis);
    gd_tensor *factors = gd_gather(gd_cat(gd_list(near, src), .axis = axis), axis, order);
    gd_tensor *others = group_others(factors, gd_gather(targets, axis, order), axis);
    others = gd_gather(others, axis, gd_argsort(order, .axis = axis));
    e->y[0] = gd_reshape(gd_pad(gd_narrow(others, axis, 0, n), padding, .value = 1), own);
    e->y[1] = gd_reshape(gd_narrow(others, axis, n, m), given);
}

/* --- extremes --------------------------------------------------------------------------------- */

/*op scatter_extreme(x, axis:int, index, src, largest:bool, include_self:bool) -> y  internal
 * The largest or smallest of the elements of src with the same target and, with include_self, of
 * the element of x there. NaN if one is NaN.
 *   index index < x[axis]
 *   saves x, index, src, y
 */
static gd_status scatter_extreme_infer(gd_infer *i) {
    return infer_scatter(i, ((const gd_scatter_extreme_options *)i->attrs)->axis);
}

/* x with one value at all targets of index. */
static gd_tensor *fill_targets(gd_tensor *x, int64_t axis, gd_tensor *index, gd_tensor *value) {
    return gd_scatter(x, axis, index, gd_expand(value, gd_tensor_shape(index)));
}

/* Elements equal to the result share its gradient evenly. */
static void scatter_extreme_vjp(gd_vjp *v) {
    const gd_scatter_extreme_options *o = v->attrs;
    gd_tensor *x = v->x[0], *index = v->x[1], *y = v->y[0], *gy = v->gy[0];
    gd_dtype dtype = (gd_dtype)gy->dtype;
    if (gd_tensor_numel(index) == 0) {
        v->gx[0] = gy;
        return;
    }
    gd_tensor *zero = gd_scalar_of(0, dtype), *x_is = gd_eq(x, y);
    if (!o->include_self) x_is = fill_targets(x_is, o->axis, index, gd_scalar_on(x, 0, GD_BOOL));
    gd_tensor *src_is = gd_eq(used_src(v->x[2], index), gd_gather(y, o->axis, index));
    gd_dtype count = dtype == GD_F64 ? GD_F64 : GD_F32;
    gd_tensor *shares =
        gd_scatter_add(gd_cast(x_is, count), o->axis, index, gd_cast(src_is, count));
    gd_tensor *share = gd_div(gy, gd_cast(shares, dtype));
    if (v->needs[0]) v->gx[0] = gd_where(x_is, share, zero);
    if (v->needs[2])
        v->gx[2] = extend_to_src(gd_where(src_is, gd_gather(share, o->axis, index), zero), v->x[2]);
}
static gd_status scatter_extreme_reference(gd_kernel_call *k) {
    const gd_scatter_extreme_options *o = k->attrs;
    gd_view index = gd_at_least_1d(k->in[1]), y = gd_at_least_1d(k->out[0]), none = index;
    double real = o->largest ? -INFINITY : INFINITY;
    int64_t integer = o->largest ? INT64_MIN : INT64_MAX;
    GD_TRY(run_scatter(k, o->axis, o->largest ? LARGEST : SMALLEST));
    if (o->include_self) return GD_OK;
    /* again without x: start from the smallest, or largest, number */
    none.data = y.dtype == GD_F64 ? (void *)&real : (void *)&integer;
    memset(none.strides, 0, sizeof none.strides);
    scatter_into(y, index, none, axis_of(o->axis, y.rank), SET);
    scatter_into(y, index, gd_at_least_1d(k->in[2]), axis_of(o->axis, y.rank),
                 o->largest ? LARGEST : SMALLEST);
    return GD_OK;
}

/* --- all reductions --------------------------------------------------------------------------- */

/*op scatter_reduce(x, axis:int, index, src) -> y
 * As scatter, but all elements of src with the same target are reduced, together with the element
 * of x if include_self. Elements of x that are no target stay. The mean of integers is rounded
 * down. Equal extremes share the gradient evenly.
 *   reduce {sum, prod, mean, amax, amin} = sum
 *   include_self bool = true  include the element of x
 *   python (x, axis, index, src, reduce)
 */
static void scatter_reduce_expand(gd_expansion *e) {
    const gd_scatter_reduce_options *o = e->attrs;
    gd_tensor *x = e->x[0], *index = e->x[1], *src = e->x[2];
    gd_dtype dtype = (gd_dtype)x->dtype;
    if (o->reduce == GD_AMAX || o->reduce == GD_AMIN) {
        e->y[0] = gd_scatter_extreme(x, o->axis, index, src, o->reduce == GD_AMAX, o->include_self);
        return;
    }
    if (!o->include_self && gd_tensor_numel(index) > 0)
        x = fill_targets(x, o->axis, index, gd_scalar_on(x, o->reduce == GD_PROD, dtype));
    e->y[0] = o->reduce == GD_PROD ? gd_scatter_mul(x, o->axis, index, src)
                                   : gd_scatter_add(x, o->axis, index, src);
    if (o->reduce != GD_MEAN || gd_tensor_numel(index) == 0) return;
    /* the number of summands, in a dtype that can count them */
    gd_dtype count = dtype == GD_F64 || !gd_dtype_is_float(dtype) ? GD_I64 : GD_F32;
    gd_tensor *one = gd_scalar_on(x, 1, count), *n = gd_expand(one, gd_tensor_shape(x));
    if (!o->include_self) n = fill_targets(n, o->axis, index, gd_scalar_on(x, 0, count));
    n = gd_scatter_add(n, o->axis, index, gd_expand(one, gd_tensor_shape(index)));
    e->y[0] = gd_dtype_is_float(dtype) ? gd_div(e->y[0], gd_cast(n, dtype))
                                       : gd_cast(gd_floor_divide(e->y[0], n), dtype);
}

#include "ops/index/scatter.gen.h"
