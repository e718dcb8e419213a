/* reduce.c - reductions over axes: sum, mean, prod, max, min, argmax, argmin, any, all. */
#include "ops/reduce/reduce.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "ops/index/index.h"
#include "dispatch/infer.h"

/* --- shared helpers --------------------------------------------------------------------------- */

int64_t gd_reduced_count(const gd_tensor *x, uint32_t mask) {
    int64_t n = 1;
    for (int k = 0; k < x->rank; k++)
        if (mask >> k & 1) n *= x->dims[k];
    return n;
}

gd_shape gd_mask_axes(uint32_t mask) {
    gd_shape axes = {.form = 1};
    for (int k = 0; k < GD_MAX_RANK; k++)
        if (mask >> k & 1) axes.at[axes.rank++] = k;
    return axes;
}

gd_tensor *gd_restore_dims(gd_tensor *y, const gd_tensor *x, uint32_t mask) {
    gd_shape dims = gd_tensor_shape(x);
    for (int k = 0; k < dims.rank; k++)
        if (mask >> k & 1) dims.at[k] = 1;
    return gd_reshape(y, dims);
}

gd_status gd_need_elements(const gd_tensor *x, uint32_t mask) {
    int64_t results = 1;
    for (int k = 0; k < x->rank; k++)
        if (!(mask >> k & 1)) results *= x->dims[k];
    if (results == 0) return GD_OK; /* the result is empty, too */
    for (int k = 0; k < x->rank; k++)
        if ((mask >> k & 1) && x->dims[k] == 0)
            return gd_op_fail(GD_E_INDEX,
                              "axis %d is empty; this reduction needs at least one element", k);
    return GD_OK;
}

static int64_t offset_at(int64_t index, int rank, const int64_t *dims, const int64_t *strides) {
    int64_t at = 0;
    for (int k = rank; k-- > 0;) {
        at += index % dims[k] * strides[k];
        index /= dims[k];
    }
    return at;
}

size_t gd_group_bytes(const gd_kernel_call *k) {
    const int64_t results = gd_numel(k->out[0].rank, k->out[0].dims);
    return results > 0 ? (size_t)(gd_numel(k->in[0].rank, k->in[0].dims) / results) * 8 : 0;
}

gd_status gd_each_group(const gd_kernel_call *k, uint32_t mask, gd_group_fn body, void *context) {
    const gd_view *x = &k->in[0];
    int64_t dims[2][GD_MAX_RANK], strides[2][GD_MAX_RANK], counts[2] = {1, 1};
    int ranks[2] = {0, 0}; /* 0: kept, 1: reduced */
    for (int d = 0; d < x->rank; d++) {
        int side = mask >> d & 1;
        dims[side][ranks[side]] = x->dims[d];
        strides[side][ranks[side]++] = x->strides[d];
        counts[side] *= x->dims[d];
    }
    int64_t *elements = k->workspace;
    for (int64_t e = 0; e < counts[0]; e++) {
        const char *base = (const char *)x->data + 8 * offset_at(e, ranks[0], dims[0], strides[0]);
        for (int64_t n = 0; n < counts[1]; n++)
            memcpy(&elements[n], base + 8 * offset_at(n, ranks[1], dims[1], strides[1]), 8);
        body(context, elements, counts[1], e);
    }
    return GD_OK;
}

/* Sets the shape of the result, and *mask to the reduced axes. */
static gd_status infer_axes(gd_infer *i, const gd_shape *axis, bool keepdim, uint32_t *mask) {
    GD_TRY(gd_axes_mask(axis, i->in[0]->rank, mask));
    gd_reduced_dims(i->in[0], *mask, keepdim, &i->out[0]);
    return GD_OK;
}

/* The mask of the reduced axes of a call that infer has accepted. */
static uint32_t axes_of(const gd_shape *axis, int rank) {
    uint32_t mask = 0;
    gd_axes_mask(axis, rank, &mask);
    return mask;
}

/* The dtype of sums and products: option `dtype` if given, else i64 for integers. */
static gd_dtype sum_dtype(const gd_tensor *x, gd_dtype given) {
    if (given) return given;
    return gd_dtype_is_float((gd_dtype)x->dtype) ? (gd_dtype)x->dtype : GD_I64;
}

static gd_status check_dtype_option(gd_dtype dtype) {
    if (dtype == GD_DTYPE_NONE || gd_dtype_size(dtype) > 0) return GD_OK;
    return gd_op_fail(GD_E_DTYPE, "option dtype is %d, which is no dtype", (int)dtype);
}

/* Reference kernels of sum, prod and mean. Elements are converted to the option `dtype` first:
 * .dtype = GD_I64 drops the fraction of each element, not that of the sum. */
typedef struct {
    const gd_view *x, *y;
    bool product, mean;
    gd_dtype given; /* option dtype */
} sum_job;

/* An element (f64 or i64) converted to an integer dtype. */
static int64_t convert_element(gd_dtype dtype, gd_dtype from, const void *element) {
    char bytes[8];
    gd_convert(dtype, bytes, from, element, 1);
    return gd_load_i64(dtype, bytes);
}

static void sum_group(void *context, const void *elements, int64_t n, int64_t result) {
    const sum_job *f = context;
    double real = f->product ? 1 : 0;
    uint64_t integer = f->product ? 1 : 0; /* wraps */
    bool is_real = f->y->dtype == GD_F64;
    for (int64_t i = 0; i < n; i++) {
        const void *e = (const char *)elements + 8 * i;
        double r = gd_load_f64(f->x->dtype, e);
        uint64_t w = (uint64_t)gd_load_i64(f->x->dtype, e);
        if (f->given == GD_BOOL) r = w = r != 0;
        else if (f->given && !is_real) w = (uint64_t)convert_element(f->given, f->x->dtype, e);
        real = f->product ? real * r : real + r;
        integer = f->product ? integer * w : f->given == GD_BOOL ? integer | w : integer + w;
    }
    if (f->mean) real /= (double)n;
    void *to = (char *)f->y->data + 8 * result;
    if (is_real) gd_store_f64(GD_F64, to, real);
    else gd_store_i64(f->y->dtype, to, (int64_t)integer);
}

static gd_status run_sums(gd_kernel_call *k, const gd_shape *axis, gd_dtype given, bool product,
                          bool mean) {
    sum_job f = {&k->in[0], &k->out[0], product, mean, given};
    return gd_each_group(k, axes_of(axis, k->in[0].rank), sum_group, &f);
}

/* --- sum -------------------------------------------------------------------------------------- */

/*op sum(x) -> y  fullp
 * The sum over axes, or over all elements. Integers and bools are summed as i64.
 *   axis int[] = none     one axis or gd_dims(...); none: all
 *   keepdim bool = false  keep reduced dimensions with size 1
 *   dtype dtype = none    convert to this type first, and return it
 *   saves nothing
 *   reduces sum
 *   onnx ReduceSum
 *   python (x, axis, keepdim)
 */
static gd_status sum_infer(gd_infer *i) {
    const gd_sum_options *o = i->attrs;
    uint32_t mask;
    GD_TRY(check_dtype_option(o->dtype));
    GD_TRY(infer_axes(i, &o->axis, o->keepdim, &mask));
    i->out[0].dtype = sum_dtype(i->in[0], o->dtype);
    return GD_OK;
}
static void sum_vjp(gd_vjp *v) {
    const gd_sum_options *o = v->attrs;
    uint32_t mask = axes_of(&o->axis, v->x[0]->rank);
    v->gx[0] = gd_expand(gd_restore_dims(v->gy[0], v->x[0], mask), gd_tensor_shape(v->x[0]));
}
static size_t sum_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status sum_reference(gd_kernel_call *k) {
    const gd_sum_options *o = k->attrs;
    return run_sums(k, &o->axis, o->dtype, false, false);
}

/*op sum_to(x, dims:int[]) -> y  fullp
 * The sum over broadcast dimensions, so that the result has shape dims: the inverse of expand.
 * Integers and bools give i64 as in sum, even if there is no dimension to sum over.
 *   saves nothing
 *   python sum_to_size sum_to(x, *size=dims)
 */
static void sum_to_expand(gd_expansion *e) {
    const gd_sum_to_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    int extra = x->rank - o->dims.rank;
    gd_shape axes = {.form = 1};
    bool fits = extra >= 0;
    for (int k = 0; k < x->rank && fits; k++) {
        if (k < extra || (o->dims.at[k - extra] == 1 && x->dims[k] != 1)) axes.at[axes.rank++] = k;
        else fits = o->dims.at[k - extra] == x->dims[k];
    }
    if (!fits) {
        char text[128];
        gd_op_fail(GD_E_SHAPE, "x cannot be summed to %s; each dimension must be x's or 1",
                   gd_numbers_text(o->dims.rank, o->dims.at, text, sizeof text));
        e->y[0] = &gd_error_tensor;
        return;
    }
    const gd_dtype dtype = sum_dtype(x, GD_DTYPE_NONE);
    gd_tensor *y = axes.rank           ? gd_sum(x, .axis = axes, .keepdim = true)
                   : x->dtype == dtype ? x
                                       : gd_cast(x, dtype);
    e->y[0] = extra > 0 ? gd_reshape(y, o->dims) : y;
}

/* --- mean ------------------------------------------------------------------------------------- */

/*op divide_by(x, by:float) -> y  elementwise internal
 * x divided by a constant.
 *   y = x / by
 */

/*op mean(x) -> y  fullp
 * The mean over axes, or of all elements. For integers, .dtype must be given, a float type.
 *   axis int[] = none     one axis or gd_dims(...); none: all
 *   keepdim bool = false  keep reduced dimensions with size 1
 *   dtype dtype = none    convert to this type first, and return it
 *   saves nothing
 *   reduces mean
 *   onnx ReduceMean
 *   python (x, axis, keepdim)
 */
static gd_status mean_infer(gd_infer *i) {
    const gd_mean_options *o = i->attrs;
    uint32_t mask;
    GD_TRY(check_dtype_option(o->dtype));
    GD_TRY(infer_axes(i, &o->axis, o->keepdim, &mask));
    i->out[0].dtype = o->dtype ? o->dtype : (gd_dtype)i->in[0]->dtype;
    if (!gd_dtype_is_float(i->out[0].dtype))
        return gd_op_fail(GD_E_DTYPE,
                          "the mean of %s cannot be %s; give .dtype = GD_F32 or another float",
                          gd_dtype_name((gd_dtype)i->in[0]->dtype), gd_dtype_name(i->out[0].dtype));
    return GD_OK;
}
static void mean_vjp(gd_vjp *v) {
    const gd_mean_options *o = v->attrs;
    uint32_t mask = axes_of(&o->axis, v->x[0]->rank);
    int64_t n = gd_reduced_count(v->x[0], mask);
    gd_tensor *each = gd_divide_by(gd_restore_dims(v->gy[0], v->x[0], mask), n > 0 ? (double)n : 1);
    v->gx[0] = gd_expand(each, gd_tensor_shape(v->x[0]));
}
static void mean_expand(gd_expansion *e) {
    const gd_mean_options *o = e->attrs;
    const gd_tensor *x = e->x[0];
    const uint32_t mask = axes_of(&o->axis, x->rank);
    const gd_dtype dtype = o->dtype ? o->dtype : (gd_dtype)x->dtype;
    gd_tensor *sum = gd_sum(e->x[0], .axis = gd_mask_axes(mask), .keepdim = o->keepdim,
                            .dtype = gd_wide_dtype(dtype));
    const int64_t n = gd_reduced_count(x, mask); /* the mean of 0 elements is NaN */
    sum = n > 0 ? gd_divide_by(sum, (double)n) : gd_affine(sum, 1, NAN);
    e->y[0] = gd_as_dtype(sum, dtype);
}
static size_t mean_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status mean_reference(gd_kernel_call *k) {
    const gd_mean_options *o = k->attrs;
    return run_sums(k, &o->axis, o->dtype, false, true);
}

/* --- prod ------------------------------------------------------------------------------------- */

/*op prod(x) -> y  fullp
 * The product over axes, or of all elements. Integers and bools are multiplied as i64.
 *   axis int[] = none     one axis or gd_dims(...); none: all
 *   keepdim bool = false  keep reduced dimensions with size 1
 *   dtype dtype = none    convert to this type first, and return it
 *   onnx ReduceProd
 *   python (x, axis, keepdim)
 */
static gd_status prod_infer(gd_infer *i) {
    const gd_prod_options *o = i->attrs;
    uint32_t mask;
    GD_TRY(check_dtype_option(o->dtype));
    GD_TRY(infer_axes(i, &o->axis, o->keepdim, &mask));
    i->out[0].dtype = sum_dtype(i->in[0], o->dtype);
    return GD_OK;
}

/* Moves the reduced axes to the end and flattens them into one; *order is the permutation. */
static gd_tensor *flatten_reduced(gd_tensor *x, uint32_t mask, gd_shape *order) {
    gd_shape dims = {.form = 1};
    *order = (gd_shape){.form = 1};
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < x->rank; k++)
            if ((int)(mask >> k & 1) == side) order->at[order->rank++] = k;
    for (int k = 0; k < x->rank; k++)
        if (!(mask >> k & 1)) dims.at[dims.rank++] = x->dims[k];
    dims.at[dims.rank++] = gd_reduced_count(x, mask);
    return gd_reshape(gd_permute(x, *order), dims);
}

/* The inverse of flatten_reduced: gives y the shape of x. */
static gd_tensor *unflatten_reduced(gd_tensor *y, const gd_tensor *x, gd_shape order) {
    gd_shape dims = order, back = order;
    for (int k = 0; k < order.rank; k++) {
        dims.at[k] = x->dims[order.at[k]];
        back.at[order.at[k]] = k;
    }
    return gd_permute(gd_reshape(y, dims), back);
}

/* The gradient is gy times the product of all other elements. It is computed as the product of
 * those before times the product of those after: without division, so that zeros need no special
 * case. */
static void prod_vjp(gd_vjp *v) {
    const gd_prod_options *o = v->attrs;
    gd_tensor *x = v->x[0], *gy = v->gy[0];
    uint32_t mask = axes_of(&o->axis, x->rank);
    if (x->dtype != gy->dtype) x = gd_cast(x, (gd_dtype)gy->dtype);
    gy = gd_restore_dims(gy, x, mask);
    if (gd_reduced_count(v->x[0], mask) == 1) {
        v->gx[0] = gy;
        return;
    }
    gd_shape order;
    bool one = (mask & (mask - 1)) == 0;
    gd_tensor *rows = one ? x : flatten_reduced(x, mask, &order);
    int64_t axis = one ? __builtin_ctz(mask) : -1;
    gd_tensor *others = gd_mul(gd_cumprod(rows, axis, .exclusive = true),
                               gd_cumprod(rows, axis, .exclusive = true, .reverse = true));
    v->gx[0] = gd_mul(gy, one ? others : unflatten_reduced(others, x, order));
}
static size_t prod_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status prod_reference(gd_kernel_call *k) {
    const gd_prod_options *o = k->attrs;
    return run_sums(k, &o->axis, o->dtype, true, false);
}

/* --- max and min ------------------------------------------------------------------------------ */

/*op extreme_grad(gy, x, y, count) -> g  elementwise internal
 * The gradient of max and min: gy divided evenly among the elements equal to the result.
 *   g = gy * (x == y) / count
 */

/*op max(x) -> y
 * The largest element over axes, or of all; NaN if one is NaN. Elements that tie share the gradient
 * evenly (PyTorch's amax). See max_with_index for PyTorch's max over one axis.
 *   axis int[] = none     one axis or gd_dims(...); none: all
 *   keepdim bool = false  keep reduced dimensions with size 1
 *   saves x, y
 *   reduces max
 *   onnx ReduceMax
 *   python max amax(x, axis, keepdim)
 */
static gd_status max_infer(gd_infer *i) {
    const gd_max_options *o = i->attrs;
    uint32_t mask;
    GD_TRY(infer_axes(i, &o->axis, o->keepdim, &mask));
    return gd_need_elements(i->in[0], mask);
}
static void extreme_vjp(gd_vjp *v, const gd_shape *axis) {
    gd_tensor *x = v->x[0];
    uint32_t mask = axes_of(axis, x->rank);
    gd_tensor *y = gd_restore_dims(v->y[0], x, mask);
    gd_tensor *count = gd_sum(gd_eq(x, y), .axis = gd_mask_axes(mask), .keepdim = true);
    v->gx[0] = gd_extreme_grad(gd_restore_dims(v->gy[0], x, mask), x, y, count);
}
static void max_vjp(gd_vjp *v) {
    const gd_max_options *o = v->attrs;
    extreme_vjp(v, &o->axis);
}

/* Reference kernels of max and min, with the index of the first. */
typedef struct {
    gd_dtype dtype;
    bool largest;
    const gd_view *value, *index; /* outputs; NULL: not computed */
} extreme_job;

static void find_extreme(void *context, const void *elements, int64_t n, int64_t result) {
    const extreme_job *e = context;
    const double *real = elements;
    const int64_t *integer = elements;
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++) {
        bool over;
        if (e->dtype == GD_F64 && isnan(real[i])) over = !isnan(real[at]);
        else if (e->dtype == GD_F64) over = e->largest ? real[i] > real[at] : real[i] < real[at];
        else over = e->largest ? integer[i] > integer[at] : integer[i] < integer[at];
        if (over) at = i;
    }
    if (e->value) memcpy((char *)e->value->data + 8 * result, &integer[at], 8);
    if (e->index) ((int64_t *)e->index->data)[result] = at;
}

static gd_status run_extremes(gd_kernel_call *k, uint32_t mask, bool largest, const gd_view *value,
                              const gd_view *index) {
    extreme_job e = {k->in[0].dtype, largest, value, index};
    return gd_each_group(k, mask, find_extreme, &e);
}

static size_t max_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status max_reference(gd_kernel_call *k) {
    const gd_max_options *o = k->attrs;
    return run_extremes(k, axes_of(&o->axis, k->in[0].rank), true, &k->out[0], NULL);
}

/*op min(x) -> y
 * The smallest element over axes, or of all; NaN if one is NaN. Elements that tie share the
 * gradient evenly (PyTorch's amin). See min_with_index for PyTorch's min over one axis.
 *   axis int[] = none     one axis or gd_dims(...); none: all
 *   keepdim bool = false  keep reduced dimensions with size 1
 *   saves x, y
 *   reduces min
 *   onnx ReduceMin
 *   python min amin(x, axis, keepdim)
 */
static gd_status min_infer(gd_infer *i) {
    const gd_min_options *o = i->attrs;
    uint32_t mask;
    GD_TRY(infer_axes(i, &o->axis, o->keepdim, &mask));
    return gd_need_elements(i->in[0], mask);
}
static void min_vjp(gd_vjp *v) {
    const gd_min_options *o = v->attrs;
    extreme_vjp(v, &o->axis);
}
static size_t min_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status min_reference(gd_kernel_call *k) {
    const gd_min_options *o = k->attrs;
    return run_extremes(k, axes_of(&o->axis, k->in[0].rank), false, &k->out[0], NULL);
}

/* --- indices of extremes ---------------------------------------------------------------------- */

/* The mask of one axis, or of all axes if it is not given. */
static gd_status axis_mask(int64_t axis, int rank, uint32_t *mask) {
    int k;
    if (axis == GD_UNSET) {
        *mask = (1u << rank) - 1u;
        return GD_OK;
    }
    GD_TRY(gd_axis(axis, rank, &k));
    *mask = rank > 0 ? 1u << k : 0;
    return GD_OK;
}

static gd_status infer_index(gd_infer *i, int64_t axis, bool keepdim) {
    uint32_t mask;
    GD_TRY(axis_mask(axis, i->in[0]->rank, &mask));
    GD_TRY(gd_need_elements(i->in[0], mask));
    for (int k = 0; k < i->n_out; k++) gd_reduced_dims(i->in[0], mask, keepdim, &i->out[k]);
    i->out[i->n_out - 1].dtype = GD_I64;
    return GD_OK;
}

/* The same for a call that infer has accepted. */
static uint32_t accepted_axis_mask(int64_t axis, int rank) {
    uint32_t mask = 0;
    axis_mask(axis, rank, &mask);
    return mask;
}

/*op argmax(x) -> indices  nograd
 * The index of the first largest element along an axis, or of all elements in row-major order. NaN
 * is larger than any number.
 *   axis int = none       none: over all elements
 *   keepdim bool = false  keep the reduced dimension with size 1
 *   gives indices < x[axis]
 *   onnx ArgMax
 */
static gd_status argmax_infer(gd_infer *i) {
    const gd_argmax_options *o = i->attrs;
    return infer_index(i, o->axis, o->keepdim);
}
/* x, flattened if no axis is given; *axis is then 0. */
static gd_tensor *flatten_without_axis(gd_tensor *x, int64_t *axis) {
    if (*axis != GD_UNSET) return x;
    *axis = 0;
    return gd_reshape(x, gd_dims(gd_tensor_numel(x)));
}
/* The index of an extreme of all elements, with x's rank if keepdim. */
static gd_tensor *restore_index(gd_tensor *index, const gd_tensor *x, int64_t axis, bool keepdim) {
    return keepdim && axis == GD_UNSET
               ? gd_restore_dims(index, x, accepted_axis_mask(axis, x->rank))
               : index;
}
static void argmax_expand(gd_expansion *e) {
    const gd_argmax_options *o = e->attrs;
    int64_t axis = o->axis;
    gd_tensor *x = flatten_without_axis(e->x[0], &axis);
    e->y[0] = restore_index(
        gd_max_with_index(x, axis, .keepdim = o->keepdim && o->axis != GD_UNSET).indices, e->x[0],
        o->axis, o->keepdim);
}
static size_t argmax_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status argmax_reference(gd_kernel_call *k) {
    const gd_argmax_options *o = k->attrs;
    return run_extremes(k, accepted_axis_mask(o->axis, k->in[0].rank), true, NULL, &k->out[0]);
}

/*op argmin(x) -> indices  nograd
 * The index of the first smallest element along an axis, or of all elements in row-major order. NaN
 * is smaller than any number.
 *   axis int = none       none: over all elements
 *   keepdim bool = false  keep the reduced dimension with size 1
 *   gives indices < x[axis]
 *   onnx ArgMin
 */
static gd_status argmin_infer(gd_infer *i) {
    const gd_argmin_options *o = i->attrs;
    return infer_index(i, o->axis, o->keepdim);
}
static void argmin_expand(gd_expansion *e) {
    const gd_argmin_options *o = e->attrs;
    int64_t axis = o->axis;
    gd_tensor *x = flatten_without_axis(e->x[0], &axis);
    e->y[0] = restore_index(
        gd_min_with_index(x, axis, .keepdim = o->keepdim && o->axis != GD_UNSET).indices, e->x[0],
        o->axis, o->keepdim);
}
static size_t argmin_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status argmin_reference(gd_kernel_call *k) {
    const gd_argmin_options *o = k->attrs;
    return run_extremes(k, accepted_axis_mask(o->axis, k->in[0].rank), false, NULL, &k->out[0]);
}

/*op max_with_index(x, axis:int) -> values, indices
 * The largest element along an axis, and the index of the first of them, which alone receives the
 * gradient.
 *   keepdim bool = false  keep the reduced dimension with size 1
 *   saves indices
 *   gives indices < x[axis]
 */
static gd_status max_with_index_infer(gd_infer *i) {
    const gd_max_with_index_options *o = i->attrs;
    if (o->axis == GD_UNSET) return gd_op_fail(GD_E_ARGUMENT, "axis is not given");
    return infer_index(i, o->axis, o->keepdim);
}
static void with_index_vjp(gd_vjp *v, int64_t axis) {
    uint32_t mask = accepted_axis_mask(axis, v->x[0]->rank);
    if (mask == 0) { /* a single number */
        v->gx[0] = v->gy[0];
        return;
    }
    v->gx[0] = gd_place_at(gd_restore_dims(v->gy[0], v->x[0], mask),
                           gd_restore_dims(v->y[1], v->x[0], mask), axis,
                           gd_tensor_dim(v->x[0], (int)axis));
}
static void max_with_index_vjp(gd_vjp *v) {
    const gd_max_with_index_options *o = v->attrs;
    with_index_vjp(v, o->axis);
}
static size_t max_with_index_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status max_with_index_reference(gd_kernel_call *k) {
    const gd_max_with_index_options *o = k->attrs;
    return run_extremes(k, accepted_axis_mask(o->axis, k->in[0].rank), true, &k->out[0],
                        &k->out[1]);
}

/*op min_with_index(x, axis:int) -> values, indices
 * The smallest element along an axis, and the index of the first of them, which alone receives the
 * gradient.
 *   keepdim bool = false  keep the reduced dimension with size 1
 *   saves indices
 *   gives indices < x[axis]
 */
static gd_status min_with_index_infer(gd_infer *i) {
    const gd_min_with_index_options *o = i->attrs;
    if (o->axis == GD_UNSET) return gd_op_fail(GD_E_ARGUMENT, "axis is not given");
    return infer_index(i, o->axis, o->keepdim);
}
static void min_with_index_vjp(gd_vjp *v) {
    const gd_min_with_index_options *o = v->attrs;
    with_index_vjp(v, o->axis);
}
static size_t min_with_index_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status min_with_index_reference(gd_kernel_call *k) {
    const gd_min_with_index_options *o = k->attrs;
    return run_extremes(k, accepted_axis_mask(o->axis, k->in[0].rank), false, &k->out[0],
                        &k->out[1]);
}

/*op place_at(g, indices, axis:int, size:int) -> y  internal
 * Zeros of the given size along an axis, along which g has size 1, with g at the indices: the
 * gradient of pick_at.
 *   saves indices
 *   index indices < size
 */

/* Requires i64 indices with the shape of x, but size 1 along the axis. */
static gd_status check_indices(const gd_tensor *indices, const gd_tensor *x, int axis) {
    if (indices->dtype != GD_I64) return gd_op_fail(GD_E_DTYPE, "'indices' must be i64");
    bool fits = indices->rank == x->rank && x->rank > 0;
    for (int k = 0; fits && k < x->rank; k++)
        fits = indices->dims[k] == (k == axis ? 1 : x->dims[k]);
    return fits ? GD_OK
                : gd_op_fail(GD_E_SHAPE,
                             "'indices' must have the shape of the other input, but size 1 along "
                             "axis %d",
                             axis);
}
static gd_status place_at_infer(gd_infer *i) {
    const gd_place_at_options *o = i->attrs;
    int axis;
    GD_TRY(gd_axis(o->axis, i->in[0]->rank, &axis));
    GD_TRY(check_indices(i->in[1], i->in[0], axis));
    if (i->in[0]->dims[axis] != 1)
        return gd_op_fail(GD_E_SHAPE, "'g' must have size 1 along axis %d", axis);
    gd_meta_like(&i->out[0], i->in[0]);
    i->out[0].dims[axis] = o->size;
    return GD_OK;
}
static void place_at_vjp(gd_vjp *v) {
    const gd_place_at_options *o = v->attrs;
    v->gx[0] = gd_pick_at(v->gy[0], v->x[1], o->axis);
}

/* Copies between each element of `few`, which has size 1 along the axis, and the element of `many`
 * at its index: to `many` if place is true, else from it. */
static gd_status copy_at_indices(const gd_view *few, const gd_view *indices, const gd_view *many,
                                 int64_t axis, bool place) {
    int64_t n = gd_numel(few->rank, few->dims);
    int k = (int)(axis < 0 ? axis + few->rank : axis);
    size_t size = gd_dtype_size(few->dtype);
    for (int64_t e = 0; e < n; e++) {
        int64_t index = *((const int64_t *)indices->data +
                          offset_at(e, few->rank, few->dims, indices->strides));
        int64_t at = offset_at(e, few->rank, few->dims, many->strides);
        if (index < 0 || index >= many->dims[k])
            return gd_check_axis_indices(indices, many->dims[k], k);
        at += index * many->strides[k];
        char *one =
            (char *)few->data + offset_at(e, few->rank, few->dims, few->strides) * (int64_t)size;
        char *other = (char *)many->data + at * (int64_t)size;
        memcpy(place ? other : one, place ? one : other, size);
    }
    return GD_OK;
}
static void place_at_expand(gd_expansion *e) {
    const gd_place_at_options *o = e->attrs;
    gd_tensor *g = e->x[0];
    const int axis = (int)(o->axis < 0 ? o->axis + g->rank : o->axis);
    gd_shape dims = gd_tensor_shape(g);
    dims.at[axis] = o->size;
    e->y[0] = gd_scatter_add(gd_full(dims, 0, .dtype = (gd_dtype)g->dtype), axis,
                             gd_checked_axis_index(e->x[1], o->size, axis), g);
}
static gd_status place_at_raw(gd_kernel_call *k) {
    const gd_place_at_options *o = k->attrs;
    gd_view zero = k->out[0];
    int64_t nothing = 0;
    zero.data = &nothing;
    memset(zero.strides, 0, sizeof zero.strides);
    gd_copy_elements(&k->out[0], &zero);
    return copy_at_indices(&k->in[0], &k->in[1], &k->out[0], o->axis, true);
}

/*op pick_at(x, indices, axis:int) -> y  internal
 * The elements of x at the indices: one along the axis, which has size 1 in the result.
 *   saves indices
 *   index indices < x[axis]
 */
static gd_status pick_at_infer(gd_infer *i) {
    const gd_pick_at_options *o = i->attrs;
    int axis;
    GD_TRY(gd_axis(o->axis, i->in[0]->rank, &axis));
    GD_TRY(check_indices(i->in[1], i->in[0], axis));
    gd_meta_like(&i->out[0], i->in[0]);
    i->out[0].dims[axis] = 1;
    return GD_OK;
}
static void pick_at_vjp(gd_vjp *v) {
    const gd_pick_at_options *o = v->attrs;
    v->gx[0] = gd_place_at(v->gy[0], v->x[1], o->axis, gd_tensor_dim(v->x[0], (int)o->axis));
}
static void pick_at_expand(gd_expansion *e) {
    const gd_pick_at_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    const int axis = (int)(o->axis < 0 ? o->axis + x->rank : o->axis);
    e->y[0] = gd_gather(x, axis, gd_checked_axis_index(e->x[1], x->dims[axis], axis));
}
static gd_status pick_at_raw(gd_kernel_call *k) {
    const gd_pick_at_options *o = k->attrs;
    return copy_at_indices(&k->out[0], &k->in[1], &k->in[0], o->axis, false);
}

/* --- any and all ------------------------------------------------------------------------------ */

typedef struct {
    gd_dtype dtype;
    bool all;
    const gd_view *y;
} bool_job;

static void test_group(void *context, const void *elements, int64_t n, int64_t result) {
    const bool_job *t = context;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += t->dtype == GD_F64 ? ((const double *)elements)[i] != 0
                                    : ((const int64_t *)elements)[i] != 0;
    ((int64_t *)t->y->data)[result] = t->all ? count == n : count > 0;
}

/*op any(x) -> y  nograd
 * Whether any element over axes, or of all, is not zero (NaN counts as not zero). False if there
 * are no elements.
 *   axis int[] = none     one axis or gd_dims(...); none: all
 *   keepdim bool = false  keep reduced dimensions with size 1
 */
static gd_status any_infer(gd_infer *i) {
    const gd_any_options *o = i->attrs;
    uint32_t mask;
    i->out[0].dtype = GD_BOOL;
    return infer_axes(i, &o->axis, o->keepdim, &mask);
}
static void any_expand(gd_expansion *e) {
    const gd_any_options *o = e->attrs;
    const gd_shape axes = gd_mask_axes(axes_of(&o->axis, e->x[0]->rank));
    gd_tensor *count = gd_sum(gd_as_dtype(e->x[0], GD_BOOL), .axis = axes, .keepdim = o->keepdim);
    e->y[0] = gd_cast(count, GD_BOOL);
}
static size_t any_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status any_reference(gd_kernel_call *k) {
    const gd_any_options *o = k->attrs;
    bool_job t = {k->in[0].dtype, false, &k->out[0]};
    return gd_each_group(k, axes_of(&o->axis, k->in[0].rank), test_group, &t);
}

/*op all(x) -> y  nograd
 * Whether all elements over axes, or of x, are not zero. True if there are no elements.
 *   axis int[] = none     one axis or gd_dims(...); none: all
 *   keepdim bool = false  keep reduced dimensions with size 1
 */
static gd_status all_infer(gd_infer *i) {
    const gd_all_options *o = i->attrs;
    uint32_t mask;
    i->out[0].dtype = GD_BOOL;
    return infer_axes(i, &o->axis, o->keepdim, &mask);
}
static void all_expand(gd_expansion *e) {
    const gd_all_options *o = e->attrs;
    const gd_shape axes = gd_mask_axes(axes_of(&o->axis, e->x[0]->rank));
    e->y[0] = gd_logical_not(gd_sum(gd_logical_not(e->x[0]), .axis = axes, .keepdim = o->keepdim));
}
static size_t all_workspace(const gd_kernel_call *k) { return gd_group_bytes(k); }
static gd_status all_reference(gd_kernel_call *k) {
    const gd_all_options *o = k->attrs;
    bool_job t = {k->in[0].dtype, true, &k->out[0]};
    return gd_each_group(k, axes_of(&o->axis, k->in[0].rank), test_group, &t);
}

#include "ops/reduce/reduce.gen.h"
