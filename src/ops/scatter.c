/* scatter.c - elements placed along an axis by tensors of indices.
 *
 * Where indices repeat, results are always the same: of values written to one place the last in
 * row-major order stays, and sums and products are formed in row-major order. An index out of range
 * is GD_E_INDEX.
 */
#include <math.h>
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "ops/body.h"
#include "ops/indexing.h"
#include "ops/infer.h"

static int axis_of(int64_t axis, int rank) { return (int)(axis < 0 ? axis + rank : axis); }

/* --- shared ----------------------------------------------------------------------------------- */

static gd_status scatter_rule(gd_infer *i, int64_t given_axis) {
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
            return gd_op_fail(GD_E_SHAPE, "'src' has size %lld in dimension %d, 'index' %lld",
                              (long long)gd_dim_1d(src, d), d, (long long)gd_dim_1d(index, d));
    return GD_OK;
}

typedef enum { SET, ADD, MULTIPLY, LARGEST, SMALLEST } scatter_how;

/* NaN wins. */
static double larger(double a, double b) { return a > b || isnan(a) ? a : b; }
static double smaller(double a, double b) { return a < b || isnan(a) ? a : b; }

static double put_real(scatter_how how, double there, double value) {
    switch (how) {
    case ADD: return there + value;
    case MULTIPLY: return there * value;
    case LARGEST: return larger(there, value);
    case SMALLEST: return smaller(there, value);
    default: return value;
    }
}

/* Sums and products wrap. */
static int64_t put_int(scatter_how how, int64_t there, int64_t value) {
    switch (how) {
    case ADD: return (int64_t)((uint64_t)there + (uint64_t)value);
    case MULTIPLY: return (int64_t)((uint64_t)there * (uint64_t)value);
    case LARGEST: return there > value ? there : value;
    case SMALLEST: return there < value ? there : value;
    default: return value;
    }
}

/* All operands are f64 or i64, row-major. y holds x already. */
static void scatter_into(gd_view y, gd_view index, gd_view src, int axis, scatter_how how) {
    int64_t total = gd_numel(index.rank, index.dims);
    for (int64_t e = 0; e < total; e++) {
        int64_t at, from, to;
        gd_locate(e, &index, axis, &at, &y, &to, &src, &from);
        to += ((const int64_t *)index.data)[at] * y.strides[axis];
        if (y.dtype == GD_F64) {
            double *place = (double *)y.data + to;
            *place = put_real(how, *place, ((const double *)src.data)[from]);
        } else {
            int64_t *place = (int64_t *)y.data + to;
            *place = put_int(how, *place, ((const int64_t *)src.data)[from]);
        }
    }
}

static gd_status scatter_plain(gd_kernel_call *k, int64_t given_axis, scatter_how how) {
    gd_view x = gd_at_least_1d(k->in[0]), y = gd_at_least_1d(k->out[0]);
    int axis = axis_of(given_axis, x.rank);
    GD_TRY(gd_check_axis_indices(&k->in[1], x.dims[axis], axis));
    memcpy(y.data, x.data, (size_t)gd_numel(x.rank, x.dims) * 8);
    scatter_into(y, gd_at_least_1d(k->in[1]), gd_at_least_1d(k->in[2]), axis, how);
    return GD_OK;
}

/* g, which has the shape of index, as a gradient of src: zeros where index does not reach. */
static gd_tensor *reach(gd_tensor *g, const gd_tensor *src) {
    if (gd_tensor_numel(g) == 0 && gd_tensor_numel(src) > 0) return gd_zeros_as(src);
    if (g->kind == GD_FAILED) return g;
    if (g->rank < src->rank) g = gd_reshape(g, gd_dims(1)); /* a single number is a list of one */
    else if (g->rank > src->rank) return gd_reshape(g, gd_tensor_shape(src));
    gd_shape dims = gd_tensor_shape(g);
    for (int d = 0; d < src->rank; d++) {
        if (dims.at[d] == src->dims[d]) continue;
        dims.at[d] = src->dims[d];
        g = gd_slice_grad(g, dims, d, 0, 1);
    }
    return g;
}

/* The part of src that index reaches. */
static gd_tensor *reached(gd_tensor *src, const gd_tensor *index) {
    for (int d = 0; d < src->rank && d < index->rank; d++)
        if (src->dims[d] != index->dims[d]) src = gd_narrow(src, d, 0, index->dims[d]);
    return src;
}

/* --- placing and adding ----------------------------------------------------------------------- */

/*op scatter(x, axis:int, index, src) -> y
 * x with elements of src put in along an axis, place by place: y[i][index[i][j][k]][k] =
 * src[i][j][k] for axis 1. Where indices repeat, the last one in row-major order stays.
 *   index index < x[axis]
 *   saves index
 *   onnx ScatterElements
 */
static gd_status scatter_infer(gd_infer *i) {
    return scatter_rule(i, ((const gd_scatter_options *)i->attrs)->axis);
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
    gd_tensor *g = gd_gather(gy, o->axis, index); /* what was overwritten has none */
    v->gx[2] = reach(gd_masked_fill(g, gd_scatter_lost(index, o->axis, size), 0), v->x[2]);
}
static gd_status scatter_reference(gd_kernel_call *k) {
    return scatter_plain(k, ((const gd_scatter_options *)k->attrs)->axis, SET);
}

/*op scatter_lost(index, axis:int, size:int) -> lost  internal nograd
 * True where an element that scatter puts along the axis is overwritten by a later one. size is
 * that of the axis it is put into.
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
/* Each element writes its own position; those that do not find it again are lost. */
static void scatter_lost_expand(gd_expand *e) {
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
    int64_t *line = k->workspace; /* for each place of the axis, 1 + who wrote it last, counted
                                     through all lines */
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
 * As scatter, but elements of src are added to what is there.
 *   index index < x[axis]
 *   saves index
 */
static gd_status scatter_add_infer(gd_infer *i) {
    return scatter_rule(i, ((const gd_scatter_add_options *)i->attrs)->axis);
}
static void scatter_add_vjp(gd_vjp *v) {
    const gd_scatter_add_options *o = v->attrs;
    if (v->needs[0]) v->gx[0] = v->gy[0];
    if (v->needs[2] && gd_tensor_numel(v->x[1]) > 0)
        v->gx[2] = reach(gd_gather(v->gy[0], o->axis, v->x[1]), v->x[2]);
}
static gd_status scatter_add_reference(gd_kernel_call *k) {
    return scatter_plain(k, ((const gd_scatter_add_options *)k->attrs)->axis, ADD);
}

/* --- products --------------------------------------------------------------------------------- */

/*op scatter_mul(x, axis:int, index, src) -> y
 * As scatter, but what is there is multiplied by the elements of src.
 *   index index < x[axis]
 */
static gd_status scatter_mul_infer(gd_infer *i) {
    return scatter_rule(i, ((const gd_scatter_mul_options *)i->attrs)->axis);
}
static void scatter_mul_vjp(gd_vjp *v) {
    const gd_scatter_mul_options *o = v->attrs;
    gd_tensor *index = v->x[1], *gy = v->gy[0];
    if (gd_tensor_numel(index) == 0) {
        v->gx[0] = gy;
        return;
    }
    gd_scatter_others_outputs others =
        gd_scatter_others(v->x[0], o->axis, index, reached(v->x[2], index));
    if (v->needs[0]) v->gx[0] = gd_mul(gy, others.ox);
    if (v->needs[2]) v->gx[2] = reach(gd_mul(gd_gather(gy, o->axis, index), others.osrc), v->x[2]);
}
static gd_status scatter_mul_reference(gd_kernel_call *k) {
    return scatter_plain(k, ((const gd_scatter_mul_options *)k->attrs)->axis, MULTIPLY);
}

/*op scatter_others(x, axis:int, index, src) -> ox, osrc  internal heavy
 * For each factor of scatter_mul, elements of x and of src, the product of the other factors that
 * meet at the same place. index and src have the same shape. No division, so zeros are like other
 * factors.
 *   index index < x[axis]
 */
static gd_status scatter_others_infer(gd_infer *i) {
    const gd_scatter_others_options *o = i->attrs;
    const gd_tensor *index = i->in[1], *src = i->in[2];
    GD_TRY(gd_need_float(i->in[0], "x"));
    GD_TRY(scatter_rule(i, o->axis));
    if (gd_numel(index->rank, index->dims) != gd_numel(src->rank, src->dims))
        return gd_op_fail(GD_E_SHAPE, "'index' and 'src' must have the same shape");
    gd_meta_like(&i->out[1], src);
    return GD_OK;
}
/* Products of what came before and after, for each place. */
static size_t scatter_others_workspace(const gd_kernel_call *k) {
    return 2 * (size_t)gd_numel(k->in[0].rank, k->in[0].dims) * sizeof(double);
}
/* Forwards each factor gets the product of those before it, backwards that of those after it. */
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
        double *place =
            (t < total ? before : after) + to + ((const int64_t *)index.data)[at] * x.strides[axis];
        if (osrc) osrc[e] = t < total ? *place : osrc[e] * *place;
        *place *= ((const double *)src.data)[from];
    }
    if (k->out[0].data && n > 0) memcpy(k->out[0].data, after, (size_t)n * sizeof(double));
    return GD_OK;
}

/* The other elements of each group of neighbours with the same place, multiplied: those before it
 * times those after it, which are linear recurrences that start anew with each group. */
static gd_tensor *group_others(gd_tensor *factors, gd_tensor *places, int64_t axis) {
    gd_tensor *p =
        gd_add(places, gd_scalar_int(1)); /* shift brings in zeros, which are no place then */
    gd_tensor *first = gd_ne(p, gd_shift(p, axis, 1)), *last = gd_ne(p, gd_shift(p, axis, -1));
    gd_dtype dtype = gd_tensor_dtype(factors);
    gd_tensor *before = gd_linear_recurrence(gd_masked_fill(factors, last, 0),
                                             gd_cast(first, dtype), axis, .neighbour = true);
    gd_tensor *after = gd_linear_recurrence(gd_masked_fill(factors, first, 0), gd_cast(last, dtype),
                                            axis, .reverse = true, .neighbour = true);
    return gd_mul(before, after);
}

/* As ops that can be differentiated: the factors of a line, x's and src's, are sorted by their
 * place, multiplied group by group, and put back in order. */
static void scatter_others_expand(gd_expand *e) {
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
    gd_shape part = gd_tensor_shape(index),
             padding = {.rank = 2 * rank, .form = 1}; /* the part of x that is reached */
    part.at[axis] = n;
    gd_tensor *near = x;
    for (int d = 0; d < rank; d++) {
        int64_t size = gd_tensor_dim(x, d), extent = d == axis ? n : gd_tensor_dim(index, d);
        if (extent != size) near = gd_narrow(near, d, 0, extent);
        padding.at[2 * (rank - 1 - d) + 1] = size - extent;
    }
    gd_tensor *places = gd_cat(
        gd_list(gd_expand(gd_positions(rank, (int)axis, 0, n, 1), part), gd_cast(index, GD_I64)),
        .axis = axis);
    gd_tensor *order = gd_argsort(places, .axis = axis);
    gd_tensor *factors = gd_gather(gd_cat(gd_list(near, src), .axis = axis), axis, order);
    gd_tensor *others = group_others(factors, gd_gather(places, axis, order), axis);
    others = gd_gather(others, axis, gd_argsort(order, .axis = axis));
    e->y[0] = gd_reshape(gd_pad(gd_narrow(others, axis, 0, n), padding, .value = 1), own);
    e->y[1] = gd_reshape(gd_narrow(others, axis, n, m), given);
}

/* --- extremes --------------------------------------------------------------------------------- */

/*op scatter_extreme(x, axis:int, index, src, largest:bool, include_self:bool) -> y  internal
 * The largest or smallest of the elements of src that go to a place, and of what is there
 * (include_self). NaN wins.
 *   index index < x[axis]
 *   saves x, index, src, y
 */
static gd_status scatter_extreme_infer(gd_infer *i) {
    return scatter_rule(i, ((const gd_scatter_extreme_options *)i->attrs)->axis);
}

/* x with one value at all places of index. */
static gd_tensor *filled_at(gd_tensor *x, int64_t axis, gd_tensor *index, gd_tensor *value) {
    return gd_scatter(x, axis, index, gd_expand(value, gd_tensor_shape(index)));
}

/* Those that are equal to the result share its gradient evenly. */
static void scatter_extreme_vjp(gd_vjp *v) {
    const gd_scatter_extreme_options *o = v->attrs;
    gd_tensor *x = v->x[0], *index = v->x[1], *y = v->y[0], *gy = v->gy[0];
    gd_dtype dtype = (gd_dtype)gy->dtype;
    if (gd_tensor_numel(index) == 0) {
        v->gx[0] = gy;
        return;
    }
    gd_tensor *zero = gd_scalar_of(0, dtype), *x_is = gd_eq(x, y);
    if (!o->include_self) x_is = filled_at(x_is, o->axis, index, gd_scalar_on(x, 0, GD_BOOL));
    gd_tensor *src_is = gd_eq(reached(v->x[2], index), gd_gather(y, o->axis, index));
    gd_dtype count = dtype == GD_F64 ? GD_F64 : GD_F32;
    gd_tensor *shares =
        gd_scatter_add(gd_cast(x_is, count), o->axis, index, gd_cast(src_is, count));
    gd_tensor *share = gd_div(gy, gd_cast(shares, dtype));
    if (v->needs[0]) v->gx[0] = gd_where(x_is, share, zero);
    if (v->needs[2])
        v->gx[2] = reach(gd_where(src_is, gd_gather(share, o->axis, index), zero), v->x[2]);
}
static gd_status scatter_extreme_reference(gd_kernel_call *k) {
    const gd_scatter_extreme_options *o = k->attrs;
    gd_view index = gd_at_least_1d(k->in[1]), y = gd_at_least_1d(k->out[0]), none = index;
    double real = o->largest ? -INFINITY : INFINITY;
    int64_t integer = o->largest ? INT64_MIN : INT64_MAX;
    GD_TRY(scatter_plain(k, o->axis, o->largest ? LARGEST : SMALLEST));
    if (o->include_self) return GD_OK;
    /* again, from a value that is no larger, or no smaller, than any */
    none.data = y.dtype == GD_F64 ? (void *)&real : (void *)&integer;
    memset(none.strides, 0, sizeof none.strides);
    scatter_into(y, index, none, axis_of(o->axis, y.rank), SET);
    scatter_into(y, index, gd_at_least_1d(k->in[2]), axis_of(o->axis, y.rank),
                 o->largest ? LARGEST : SMALLEST);
    return GD_OK;
}

/* --- all reductions --------------------------------------------------------------------------- */

/*op scatter_reduce(x, axis:int, index, src) -> y
 * As scatter, but the elements of src that go to one place are reduced with what is there, or,
 * without include_self, among themselves; where none go, x stays. The mean of integers is rounded
 * down. Of equal extremes each gets the same share of the gradient.
 *   reduce {sum, prod, mean, amax, amin} = sum
 *   include_self bool = true  what is there takes part
 */
static void scatter_reduce_expand(gd_expand *e) {
    const gd_scatter_reduce_options *o = e->attrs;
    gd_tensor *x = e->x[0], *index = e->x[1], *src = e->x[2];
    gd_dtype dtype = (gd_dtype)x->dtype;
    if (o->reduce == GD_AMAX || o->reduce == GD_AMIN) {
        e->y[0] = gd_scatter_extreme(x, o->axis, index, src, o->reduce == GD_AMAX, o->include_self);
        return;
    }
    if (!o->include_self && gd_tensor_numel(index) > 0)
        x = filled_at(x, o->axis, index, gd_scalar_on(x, o->reduce == GD_PROD, dtype));
    e->y[0] = o->reduce == GD_PROD ? gd_scatter_mul(x, o->axis, index, src)
                                   : gd_scatter_add(x, o->axis, index, src);
    if (o->reduce != GD_MEAN || gd_tensor_numel(index) == 0) return;
    /* how many were added, in a type that counts far */
    gd_dtype count = dtype == GD_F64 || !gd_dtype_is_float(dtype) ? GD_I64 : GD_F32;
    gd_tensor *one = gd_scalar_on(x, 1, count), *n = gd_expand(one, gd_tensor_shape(x));
    if (!o->include_self) n = filled_at(n, o->axis, index, gd_scalar_on(x, 0, count));
    n = gd_scatter_add(n, o->axis, index, gd_expand(one, gd_tensor_shape(index)));
    e->y[0] = gd_dtype_is_float(dtype) ? gd_div(e->y[0], gd_cast(n, dtype))
                                       : gd_cast(gd_floor_divide(e->y[0], n), dtype);
}

#include "scatter.gen.h"
