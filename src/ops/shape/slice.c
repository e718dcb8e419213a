/* slice.c - parts of a tensor by position. All are views, except slices with a negative step. */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "ops/index/index.h"
#include "dispatch/infer.h"

/*op narrow(x, axis:int, start:int, length:int) -> y  view
 * The elements start to start + length - 1 of an axis, as a view. A negative start counts from the
 * end.
 *   saves nothing
 */
static gd_status narrow_infer(gd_infer *i) {
    const gd_narrow_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    int axis;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "'x' has rank 0 and no axis to narrow");
    int64_t size = x->dims[axis], start = o->start < 0 ? o->start + size : o->start;
    if (start < 0 || start > size || o->length < 0 || o->length > size - start)
        return gd_op_fail(GD_E_INDEX,
                          "start %lld and length %lld do not lie in axis %d of size %lld",
                          (long long)o->start, (long long)o->length, axis, (long long)size);
    gd_meta_view(&i->out[0], x, 0);
    i->out[0].dims[axis] = o->length;
    i->out[0].offset = x->offset + start * x->strides[axis];
    return GD_OK;
}
static void narrow_vjp(gd_vjp *v) {
    const gd_narrow_options *o = v->attrs;
    int64_t start = o->start < 0 ? o->start + gd_tensor_dim(v->x[0], (int)o->axis) : o->start;
    v->gx[0] = gd_slice_grad(v->gy[0], gd_tensor_shape(v->x[0]), o->axis, start, 1);
}

/*op select(x, axis:int, index:int) -> y  view
 * One position of an axis; the result has one dimension less. A negative index counts from the
 * end.
 *   saves nothing
 *   onnx Gather(x, indices=index) axis=axis~0  when saving
 */
/* Makes y the view of x at one position of an axis. */
static void view_at(gd_meta *y, const gd_tensor *x, int axis, int64_t index) {
    gd_meta_view(y, x, 0);
    y->rank--;
    for (int k = axis; k < y->rank; k++) {
        y->dims[k] = x->dims[k + 1];
        y->strides[k] = x->strides[k + 1];
    }
    y->offset = x->offset + index * x->strides[axis];
}
static gd_status select_infer(gd_infer *i) {
    const gd_select_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    int axis;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "'x' has rank 0 and no axis to select from");
    int64_t size = x->dims[axis], index = o->index < 0 ? o->index + size : o->index;
    if (index < 0 || index >= size)
        return gd_op_fail(
            GD_E_INDEX, "index %lld is out of range for axis %d of size %lld (%lld to %lld)",
            (long long)o->index, axis, (long long)size, (long long)-size, (long long)size - 1);
    view_at(&i->out[0], x, axis, index);
    return GD_OK;
}
static void select_vjp(gd_vjp *v) {
    const gd_select_options *o = v->attrs;
    int rank = v->x[0]->rank;
    int64_t axis = o->axis < 0 ? o->axis + rank : o->axis, size = v->x[0]->dims[axis];
    v->gx[0] = gd_slice_grad(gd_unsqueeze(v->gy[0], axis), gd_tensor_shape(v->x[0]), axis,
                             o->index < 0 ? o->index + size : o->index, 1);
}

/*op unbind(x) -> ys*  view
 * All positions of an axis, each as a view with one dimension less: as many results as the size of
 * the axis, which must be known and at least 1.
 *   axis int = 0  the axis that the results do not have
 *   saves nothing
 */
static gd_status unbind_infer(gd_infer *i) {
    const gd_unbind_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    int axis;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "'x' has rank 0 and no axis to unbind");
    const int64_t n = x->dims[axis];
    if (n == 0) return gd_op_fail(GD_E_SHAPE, "axis %d has size 0: there are no results", axis);
    if (n > 1 << 20)
        return gd_op_fail(GD_E_ARGUMENT, "axis %d has size %lld: that are too many results", axis,
                          (long long)n);
    GD_TRY(gd_infer_outputs(i, (int)n));
    for (int k = 0; k < n; k++) view_at(&i->out[k], x, axis, k);
    return GD_OK;
}
static void unbind_vjp(gd_vjp *v) {
    const gd_unbind_options *o = v->attrs;
    v->gx[0] = gd_stack(((gd_tensors){v->gy, v->n_out}), .axis = o->axis);
}

/*op subtensor(x, index:int[]) -> y
 * The part of x at these indices of its first axes, as a view: gd_at(x, i, j) is x[i][j].
 */
static void subtensor_expand(gd_expansion *e) {
    const gd_subtensor_options *o = e->attrs;
    e->y[0] = e->x[0];
    for (int k = 0; k < o->index.rank; k++) e->y[0] = gd_select(e->y[0], 0, o->index.at[k]);
}

/* --- slices ----------------------------------------------------------------------------------- */

/*op slice(x) -> y  view
 * Every step-th element of an axis from start to before stop, as Python's x[start:stop:step]:
 * negative positions count from the end, and positions outside are clamped. A view if step is
 * positive, a copy if it is negative.
 *   axis int = 0
 *   start int = none  none: the beginning, or the end for a negative step
 *   stop int = none   none or GD_END: to the end, or to the beginning for a negative step
 *   step int = 1
 *   saves nothing
 *   onnx Slice
 */

/* The slice as `length` positions start, start + step, ... of an axis of this size. */
static gd_status slice_range(const gd_slice_options *o, int64_t size, int64_t *start,
                             int64_t *length) {
    int64_t step = o->step;
    if (step == 0) return gd_op_fail(GD_E_ARGUMENT, "step is 0; it must be positive or negative");
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1; /* bounds for clamping */
    int64_t from = o->start, to = o->stop;
    if (from == GD_UNSET) from = step > 0 ? low : high;
    else {
        if (from < 0) from += size;
        from = from < low ? low : from > high ? high : from;
    }
    if (to == GD_UNSET || to == GD_END) to = step > 0 ? high : low;
    else {
        if (to < 0) to += size;
        to = to < low ? low : to > high ? high : to;
    }
    uint64_t distance = step > 0    ? (to > from ? (uint64_t)(to - from) : 0)
                        : from > to ? (uint64_t)(from - to)
                                    : 0;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    *length = distance ? (int64_t)((distance - 1) / stride + 1) : 0;
    *start = *length ? from : 0;
    return GD_OK;
}

static gd_status slice_infer(gd_infer *i) {
    const gd_slice_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    int axis;
    int64_t start, length;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "'x' has rank 0 and no axis to slice");
    GD_TRY(slice_range(o, x->dims[axis], &start, &length));
    if (o->step < 0) gd_meta_like(y, x);
    else {
        gd_meta_view(y, x, 0);
        y->offset = x->offset + start * x->strides[axis];
        if (length > 1) y->strides[axis] = x->strides[axis] * o->step;
    }
    y->dims[axis] = length;
    return GD_OK;
}
static void slice_vjp(gd_vjp *v) {
    const gd_slice_options *o = v->attrs;
    int64_t start, length;
    if (slice_range(o, gd_tensor_dim(v->x[0], (int)o->axis), &start, &length) != GD_OK) return;
    v->gx[0] =
        gd_slice_grad(v->gy[0], gd_tensor_shape(v->x[0]), o->axis, start, length > 1 ? o->step : 1);
}

/* The view of these positions of an axis of t. */
static gd_view slice_view(const gd_view *t, int axis, int64_t start, int64_t length, int64_t step) {
    gd_view part = *t;
    part.data = (char *)part.data + start * part.strides[axis] * (int64_t)gd_dtype_size(part.dtype);
    part.dims[axis] = length;
    if (length > 1) part.strides[axis] *= step;
    return part;
}
static void slice_expand(gd_expansion *e) {
    const gd_slice_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    const int axis = (int)(o->axis < 0 ? o->axis + x->rank : o->axis);
    int64_t start, length;
    if (slice_range(o, x->dims[axis], &start, &length) != GD_OK) return;
    e->y[0] = gd_take_positions(
        x, axis, gd_positions(x->rank, axis, start, length, length > 1 ? o->step : 1));
}
static gd_status slice_raw(gd_kernel_call *k) {
    const gd_slice_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    int axis = (int)(o->axis < 0 ? o->axis + x->rank : o->axis);
    int64_t start, length;
    GD_TRY(slice_range(o, x->dims[axis], &start, &length));
    gd_view part = slice_view(x, axis, start, length, o->step);
    gd_copy_elements(&k->out[0], &part);
    return GD_OK;
}

/*op slice_scatter(x, src) -> y
 * x with the elements that slice selects replaced by src, which has the shape of that slice.
 *   axis int = 0
 *   start int = none  start, stop and step are those of slice
 *   stop int = none
 *   step int = 1
 *   saves nothing
 *   python (x, src, axis, start, end=stop, step)
 */
static gd_slice_options as_slice(const gd_slice_scatter_options *o) {
    return (gd_slice_options){.axis = o->axis, .start = o->start, .stop = o->stop, .step = o->step};
}
static gd_status slice_scatter_infer(gd_infer *i) {
    const gd_slice_scatter_options *o = i->attrs;
    const gd_slice_options slice = as_slice(o);
    const gd_tensor *x = i->in[0], *src = i->in[1];
    int axis;
    int64_t start, length;
    GD_TRY(gd_need_same_dtype(x, src, "x", "src"));
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "'x' has rank 0 and no axis to slice");
    GD_TRY(slice_range(&slice, x->dims[axis], &start, &length));
    GD_TRY(gd_need_rank(src, "src", x->rank));
    for (int d = 0; d < x->rank; d++) {
        int64_t want = d == axis ? length : x->dims[d];
        if (src->dims[d] != want)
            return gd_op_fail(GD_E_SHAPE, "'src' has size %lld in dimension %d; the slice has %lld",
                              (long long)src->dims[d], d, (long long)want);
    }
    gd_meta_like(&i->out[0], x);
    return GD_OK;
}
static void slice_scatter_vjp(gd_vjp *v) {
    const gd_slice_scatter_options *o = v->attrs;
    if (v->needs[0])
        v->gx[0] = gd_slice_scatter(v->gy[0], gd_zeros_as(v->x[1]), .axis = o->axis,
                                    .start = o->start, .stop = o->stop, .step = o->step);
    if (v->needs[1])
        v->gx[1] = gd_slice(v->gy[0], .axis = o->axis, .start = o->start, .stop = o->stop,
                            .step = o->step);
}
static gd_status slice_scatter_raw(gd_kernel_call *k) {
    const gd_slice_scatter_options *o = k->attrs;
    const gd_slice_options slice = as_slice(o);
    const gd_view *y = &k->out[0];
    int axis = (int)(o->axis < 0 ? o->axis + y->rank : o->axis);
    int64_t start, length;
    GD_TRY(slice_range(&slice, y->dims[axis], &start, &length));
    gd_copy_elements(y, &k->in[0]);
    gd_view part = slice_view(y, axis, start, length, o->step);
    gd_copy_elements(&part, &k->in[1]);
    return GD_OK;
}
/* Expressed in ops that ONNX has: the concatenation of the part before, src and the part after for
 * step 1, else a scatter. */
static void slice_scatter_expand(gd_expansion *e) {
    const gd_slice_scatter_options *o = e->attrs;
    const gd_slice_options slice = as_slice(o);
    gd_tensor *x = e->x[0], *src = e->x[1];
    int64_t axis = o->axis < 0 ? o->axis + x->rank : o->axis, size = x->dims[axis], start, length;
    if (slice_range(&slice, size, &start, &length) != GD_OK) return;
    if (length == 0) {
        e->y[0] = gd_clone(x);
        return;
    }
    if (o->step == 1) {
        e->y[0] = gd_cat(gd_list(gd_narrow(x, axis, 0, start), src,
                                 gd_narrow(x, axis, start + length, size - start - length)),
                         .axis = axis);
        return;
    }
    gd_shape one = {.rank = x->rank, .form = 1};
    for (int d = 0; d < x->rank; d++) one.at[d] = d == axis ? length : 1;
    gd_device *before = gd_this_thread.device;
    gd_this_thread.device = x->device;
    gd_tensor *positions = gd_arange(0, (double)length, .dtype = GD_I64);
    gd_this_thread.device = before;
    positions = gd_add(gd_mul(positions, gd_scalar_int(o->step)), gd_scalar_int(start));
    e->y[0] = gd_scatter(x, axis, gd_expand(gd_reshape(positions, one), gd_tensor_shape(src)), src);
}

/*op slice_grad(gy, dims:int[], axis:int, start:int, step:int) -> gx  internal
 * Zeros of shape dims with gy at the positions start, start + step, ... of the axis: the gradient
 * of narrow, select and slice.
 *   saves nothing
 */
static gd_status slice_grad_infer(gd_infer *i) {
    const gd_slice_grad_options *o = i->attrs;
    const gd_tensor *gy = i->in[0];
    int axis;
    GD_TRY(gd_need_rank(gy, "gy", o->dims.rank));
    GD_TRY(gd_axis(o->axis, gy->rank, &axis));
    for (int d = 0; d < gy->rank; d++)
        if (d != axis && gy->dims[d] != o->dims.at[d])
            return gd_op_fail(GD_E_SHAPE, "dimension %d of 'gy' is %lld; that of dims is %lld", d,
                              (long long)gy->dims[d], (long long)o->dims.at[d]);
    if (o->step == 0)
        return gd_op_fail(GD_E_ARGUMENT, "step is 0; it must be positive or negative");
    int64_t size = gy->rank ? o->dims.at[axis] : 0, length = gy->rank ? gy->dims[axis] : 0;
    __int128 end = (__int128)o->start + (__int128)(length - 1) * o->step;
    if (length > 0 && (o->start < 0 || o->start >= size || end < 0 || end >= size))
        return gd_op_fail(
            GD_E_INDEX, "start %lld, step %lld and %lld elements exceed the axis of size %lld",
            (long long)o->start, (long long)o->step, (long long)length, (long long)size);
    i->out[0].rank = o->dims.rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof o->dims.at);
    return GD_OK;
}
static void slice_grad_vjp(gd_vjp *v) {
    const gd_slice_grad_options *o = v->attrs;
    int64_t length = gd_tensor_dim(v->x[0], (int)o->axis), last = o->start + (length - 1) * o->step;
    if (length == 0 || o->step == 1) v->gx[0] = gd_narrow(v->gy[0], o->axis, o->start, length);
    else {
        int64_t stop = o->step > 0 ? last + 1 : last > 0 ? last - 1 : GD_END;
        v->gx[0] =
            gd_slice(v->gy[0], .axis = o->axis, .start = o->start, .stop = stop, .step = o->step);
    }
}
static void slice_grad_expand(gd_expansion *e) {
    const gd_slice_grad_options *o = e->attrs;
    gd_tensor *gy = e->x[0];
    const int axis = (int)(o->axis < 0 ? o->axis + gy->rank : o->axis);
    const int64_t n = gy->dims[axis];
    if (o->step == 1) {
        const int64_t size = o->dims.at[axis];
        e->y[0] = size == n ? gd_clone(gy) : gd_take_window(gy, axis, -o->start, size);
        return;
    }
    gd_tensor *positions = gd_positions(gy->rank, axis, o->start, n, n > 1 ? o->step : 1);
    e->y[0] = gd_scatter_add(gd_full(o->dims, 0, .dtype = (gd_dtype)gy->dtype), axis,
                             gd_expand(positions, gd_tensor_shape(gy)), gy);
}
static gd_status slice_grad_raw(gd_kernel_call *k) {
    const gd_slice_grad_options *o = k->attrs;
    const gd_view *gx = &k->out[0];
    int axis = (int)(o->axis < 0 ? o->axis + gx->rank : o->axis);
    if (gx->rank > 0 &&
        k->in[0].dims[axis] == gx->dims[axis]) { /* gy covers gx: nothing to clear */
        gd_view all = slice_view(gx, axis, o->start, gx->dims[axis], o->step);
        gd_copy_elements(&all, &k->in[0]);
        return GD_OK;
    }
    static const int64_t zero;
    gd_view zeros = *gx; /* one zero in the shape of gx: all strides are 0 */
    zeros.data = (void *)(uintptr_t)&zero;
    memset(zeros.strides, 0, sizeof zeros.strides);
    gd_copy_elements(gx, &zeros);
    gd_view part = slice_view(gx, axis, o->start, k->in[0].dims[axis], o->step);
    gd_copy_elements(&part, &k->in[0]);
    return GD_OK;
}

#include "ops/shape/slice.gen.h"
