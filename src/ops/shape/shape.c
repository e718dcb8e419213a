/* shape.c - ops that rearrange elements: mostly views, which copy nothing. */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"
#include "dispatch/view_element.h"

/* --- reshape ---------------------------------------------------------------------------------- */

/*op reshape(x, dims:int[]) -> y  view
 * The same elements in another shape. One dimension may be -1; it is inferred from the others. A
 * view if the strides allow it, else a copy.
 *   saves nothing
 *   onnx Reshape
 *   python (x, *shape=dims)
 */

/* Strides with which x's memory has the new shape; false if there are none. Adjacent dims of x with
 * contiguous strides form a run, and each run must be the product of some adjacent new dims. */
static bool reshape_strides(const gd_tensor *x, int rank, const int64_t *dims, int64_t *strides) {
    int64_t left = 1, step = 1; /* elements of the current run not yet assigned, and their stride */
    int from = x->rank;         /* dims of x from here on are assigned */
    for (int to = rank; to-- > 0;) {
        if (dims[to] == 1) {
            strides[to] = step;
            continue;
        }
        if (left == 1) { /* the next run, from the back */
            while (from > 0 && x->dims[from - 1] == 1) from--;
            left = x->dims[--from];
            step = x->strides[from];
            int64_t next = step * left;
            for (; from > 0 && (x->dims[from - 1] == 1 || x->strides[from - 1] == next); from--) {
                left *= x->dims[from - 1];
                next *= x->dims[from - 1];
            }
        }
        if (left % dims[to] != 0) return false;
        strides[to] = step;
        step *= dims[to];
        left /= dims[to];
    }
    return true;
}

/* Makes y, whose shape is set, a view of x if possible; else it is a copy. */
static gd_status view_or_copy(gd_meta *y, const gd_tensor *x) {
    if (gd_numel(x->rank, x->dims) > 0 && reshape_strides(x, y->rank, y->dims, y->strides)) {
        y->view_of = 0;
        y->offset = x->offset;
    }
    return GD_OK;
}

static gd_status reshape_infer(gd_infer *i) {
    const gd_reshape_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    int64_t total = gd_numel(x->rank, x->dims), known = 1;
    int unknown = -1;
    char text[128];
    y->rank = o->dims.rank;
    for (int k = 0; k < y->rank; k++) {
        y->dims[k] = o->dims.at[k];
        if (y->dims[k] == -1 && unknown < 0) unknown = k;
        else if (y->dims[k] < 0)
            return gd_op_fail(GD_E_SHAPE,
                              "dims are %s; one of them may be -1, the others must be at least 0",
                              gd_numbers_text(y->rank, o->dims.at, text, sizeof text));
        else if (__builtin_mul_overflow(known, y->dims[k], &known))
            return gd_op_fail(GD_E_OVERFLOW, "%s is too large",
                              gd_numbers_text(y->rank, o->dims.at, text, sizeof text));
    }
    if (unknown >= 0 && known > 0) y->dims[unknown] = total / known;
    if (unknown >= 0 && known == 0)
        return gd_op_fail(GD_E_SHAPE, "dims are %s; -1 cannot be inferred beside a 0",
                          gd_numbers_text(y->rank, o->dims.at, text, sizeof text));
    if (gd_numel(y->rank, y->dims) != total)
        return gd_op_fail(GD_E_SHAPE, "%lld elements do not fit dims %s", (long long)total,
                          gd_numbers_text(y->rank, o->dims.at, text, sizeof text));
    return view_or_copy(y, x);
}
static void reshape_vjp(gd_vjp *v) { v->gx[0] = gd_reshape(v->gy[0], gd_tensor_shape(v->x[0])); }
/* Copies x to y in row-major order: y is row-major and gets x's shape for the copy. */
static gd_status copy_elements(gd_kernel_call *k) {
    gd_view y = k->out[0];
    y.rank = k->in[0].rank;
    memcpy(y.dims, k->in[0].dims, sizeof y.dims);
    gd_row_major(y.rank, y.dims, y.strides);
    gd_copy_elements(&y, &k->in[0]);
    return GD_OK;
}
static gd_status reshape_raw(gd_kernel_call *k) { return copy_elements(k); }

/*op flatten(x) -> y  view
 * Flattens the dimensions from start_axis to end_axis into one. A view if the strides allow it.
 *   start_axis int = 0
 *   end_axis int = -1
 *   saves nothing
 *   onnx Flatten   caffe Flatten axis=start_axis end_axis=end_axis
 *   python (x, start_dim=start_axis, end_dim=end_axis)
 */
static gd_status flatten_infer(gd_infer *i) {
    const gd_flatten_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    int start, end;
    GD_TRY(gd_axis(o->start_axis, x->rank, &start));
    GD_TRY(gd_axis(o->end_axis, x->rank, &end));
    if (start > end)
        return gd_op_fail(GD_E_ARGUMENT, "start_axis %d comes after end_axis %d", start, end);
    y->rank = 0;
    for (int k = 0; k < x->rank; k++)
        if (k > start && k <= end) y->dims[y->rank - 1] *= x->dims[k];
        else y->dims[y->rank++] = x->dims[k];
    if (x->rank == 0) y->dims[y->rank++] = 1;
    return view_or_copy(y, x);
}
static void flatten_vjp(gd_vjp *v) { v->gx[0] = gd_reshape(v->gy[0], gd_tensor_shape(v->x[0])); }
static gd_status flatten_raw(gd_kernel_call *k) { return copy_elements(k); }

/*op unflatten(x, axis:int, dims:int[]) -> y  view
 * Splits an axis into several, whose sizes are dims; one of them may be -1. The opposite of flatten.
 * In a graph, other sizes of x may be unknown: the heads of (N, T, C) are
 * gd_unflatten(x, -1, gd_dims(heads, C / heads)), whatever N and T are.
 *   saves nothing
 *   python (x, axis, sizes=dims)
 */
/* The sizes that the axis is split into, with -1 replaced. */
static gd_status unflatten_sizes(const gd_shape *dims, int axis, int64_t size, int64_t *sizes) {
    int64_t product = 1;
    int open = -1; /* position of -1 */
    char text[128];
    gd_numbers_text(dims->rank, dims->at, text, sizeof text);
    if (dims->rank == 0) return gd_op_fail(GD_E_ARGUMENT, "dims is empty");
    for (int k = 0; k < dims->rank; k++) {
        sizes[k] = dims->at[k];
        if (sizes[k] == -1 && open < 0) open = k;
        else if (sizes[k] < 0)
            return gd_op_fail(GD_E_SHAPE,
                              "dims are %s; one of them may be -1, the others must be at least 0",
                              text);
        else if (__builtin_mul_overflow(product, sizes[k], &product))
            return gd_op_fail(GD_E_OVERFLOW, "%s is too large", text);
    }
    if (open >= 0 && product == 0)
        return gd_op_fail(GD_E_SHAPE, "dims are %s; -1 cannot be inferred beside a 0", text);
    if (open >= 0 ? size % product != 0 : size != product)
        return gd_op_fail(GD_E_SHAPE, "axis %d of size %lld cannot be split into %s", axis,
                          (long long)size, text);
    if (open >= 0) sizes[open] = size / product;
    return GD_OK;
}
static gd_status unflatten_infer(gd_infer *i) {
    const gd_unflatten_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    int64_t sizes[GD_MAX_RANK];
    int axis;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "'x' has rank 0 and no axis to split");
    const int added = o->dims.rank - 1;
    if (x->rank + added > GD_MAX_RANK)
        return gd_op_fail(GD_E_SHAPE, "a tensor has at most %d dimensions", GD_MAX_RANK);
    GD_TRY(unflatten_sizes(&o->dims, axis, x->dims[axis], sizes));
    gd_meta_view(y, x, 0);
    y->rank = x->rank + added;
    for (int k = x->rank; --k > axis;) {
        y->dims[k + added] = x->dims[k];
        y->strides[k + added] = x->strides[k];
    }
    int64_t stride = x->strides[axis];
    for (int k = added; k >= 0; k--) { /* the last of the new axes has the stride of the old one */
        y->dims[axis + k] = sizes[k];
        y->strides[axis + k] = stride;
        stride *= sizes[k] > 0 ? sizes[k] : 1;
    }
    return GD_OK;
}
static void unflatten_vjp(gd_vjp *v) {
    const gd_unflatten_options *o = v->attrs;
    const int64_t axis = o->axis < 0 ? o->axis + v->x[0]->rank : o->axis;
    v->gx[0] = gd_flatten(v->gy[0], .start_axis = axis, .end_axis = axis + o->dims.rank - 1);
}

/*op squeeze(x) -> y  view
 * x without dimensions of size 1: all of them, or those among the given axes.
 *   axis int[] = none  one axis or gd_dims(...); none: all
 *   saves nothing
 *   onnx Squeeze
 */
static gd_status squeeze_infer(gd_infer *i) {
    const gd_squeeze_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    uint32_t mask;
    GD_TRY(gd_axes_mask(&o->axis, x->rank, &mask));
    gd_meta_view(y, x, 0);
    y->rank = 0;
    for (int k = 0; k < x->rank; k++) {
        if ((mask >> k & 1) && x->dims[k] == 1) continue;
        y->dims[y->rank] = x->dims[k];
        y->strides[y->rank++] = x->strides[k];
    }
    return GD_OK;
}
static void squeeze_vjp(gd_vjp *v) { v->gx[0] = gd_reshape(v->gy[0], gd_tensor_shape(v->x[0])); }

/*op unsqueeze(x, axis:int) -> y  view
 * x with a new dimension of size 1 at axis (0 to rank; -1 is after the last).
 *   saves nothing
 *   onnx Unsqueeze
 */
static gd_status unsqueeze_infer(gd_infer *i) {
    const gd_unsqueeze_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    int axis;
    if (x->rank == GD_MAX_RANK)
        return gd_op_fail(GD_E_SHAPE, "a tensor has at most %d dimensions", GD_MAX_RANK);
    GD_TRY(gd_axis(o->axis, x->rank + 1, &axis));
    gd_meta_view(y, x, 0);
    y->rank = x->rank + 1;
    for (int k = x->rank; k > axis; k--) {
        y->dims[k] = x->dims[k - 1];
        y->strides[k] = x->strides[k - 1];
    }
    y->strides[axis] = axis < x->rank ? x->dims[axis] * x->strides[axis] : 1;
    y->dims[axis] = 1;
    return GD_OK;
}
static void unsqueeze_vjp(gd_vjp *v) {
    const gd_unsqueeze_options *o = v->attrs;
    v->gx[0] = gd_squeeze(v->gy[0], .axis = gd_dims(o->axis));
}

/*op contiguous(x) -> y  view
 * The same elements, row-major in memory: a view of x if it is row-major, else a copy.
 *   saves nothing
 *   onnx Identity(x)
 */
static gd_status contiguous_infer(gd_infer *i) {
    if (gd_is_row_major(i->in[0]->rank, i->in[0]->dims, i->in[0]->strides))
        gd_meta_view(&i->out[0], i->in[0], 0);
    else gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}
static void contiguous_vjp(gd_vjp *v) { v->gx[0] = v->gy[0]; }
static gd_status contiguous_raw(gd_kernel_call *k) { return copy_elements(k); }

/*op stop_gradient(x) -> y  view nograd
 * x, but no gradient flows back to it: gd_detach in a graph.
 *   onnx Identity  when saving
 */
static gd_status stop_gradient_infer(gd_infer *i) {
    gd_meta_view(&i->out[0], i->in[0], 0);
    return GD_OK;
}

/* --- expand ----------------------------------------------------------------------------------- */

/*op expand(x, dims:int[]) -> y  view
 * x repeated along new dimensions and dimensions of size 1, without copying. -1 keeps a size.
 *   saves nothing
 *   onnx Expand
 *   python (x, *shape=dims)
 */
static gd_status expand_infer(gd_infer *i) {
    const gd_expand_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    int extra = o->dims.rank - x->rank;
    char text[128];
    gd_meta_view(y, x, 0);
    if (extra < 0)
        return gd_op_fail(GD_E_SHAPE, "'x' has %d dimensions, which cannot be expanded to %d",
                          x->rank, o->dims.rank);
    y->rank = o->dims.rank;
    for (int k = 0; k < y->rank; k++) {
        int64_t want = o->dims.at[k], have = k < extra ? 1 : x->dims[k - extra];
        if (want == -1 && k >= extra) want = have;
        if (want < 0 || (have != 1 && have != want))
            return gd_op_fail(GD_E_SHAPE, "'x' cannot be expanded to %s: dimension %d is %lld",
                              gd_numbers_text(y->rank, o->dims.at, text, sizeof text), k,
                              (long long)have);
        y->dims[k] = want;
        y->strides[k] = have == 1 && want != 1 ? 0 : k < extra ? 0 : x->strides[k - extra];
    }
    size_t bytes; /* a view needs no memory, but its size must not overflow */
    return gd_shape_bytes(gd_shape_of(y->rank, y->dims), y->dtype, &bytes);
}
static void expand_vjp(gd_vjp *v) { v->gx[0] = gd_sum_to(v->gy[0], gd_tensor_shape(v->x[0])); }

/* --- permute ---------------------------------------------------------------------------------- */

/*op permute(x, axes:int[]) -> y  view
 * Dimension k of the result is dimension axes[k] of x.
 *   saves nothing
 *   onnx Transpose
 *   python permute_dims permute(x, *axes)
 */
static gd_status permute_infer(gd_infer *i) {
    const gd_permute_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    uint32_t mask;
    gd_meta_view(y, x, 0);
    if (o->axes.rank != x->rank)
        return gd_op_fail(GD_E_SHAPE, "axes has %d numbers; 'x' has %d dimensions", o->axes.rank,
                          x->rank);
    GD_TRY(gd_axes_mask(&o->axes, x->rank, &mask));
    for (int k = 0; k < x->rank; k++) {
        int axis;
        GD_TRY(gd_axis(o->axes.at[k], x->rank, &axis));
        y->dims[k] = x->dims[axis];
        y->strides[k] = x->strides[axis];
    }
    return GD_OK;
}
static void permute_vjp(gd_vjp *v) {
    const gd_permute_options *o = v->attrs;
    gd_shape back = o->axes;
    for (int k = 0; k < back.rank; k++) {
        int axis = (int)(o->axes.at[k] < 0 ? o->axes.at[k] + back.rank : o->axes.at[k]);
        back.at[axis] = k;
    }
    v->gx[0] = gd_permute(v->gy[0], back);
}

/*op transpose(x, axis0:int, axis1:int) -> y  view
 * x with two dimensions transposed.
 *   saves nothing
 *   python transpose swapaxes swapdims(x, axis0, axis1)
 */
static gd_status transpose_infer(gd_infer *i) {
    const gd_transpose_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    int a, b;
    GD_TRY(gd_axis(o->axis0, x->rank, &a));
    GD_TRY(gd_axis(o->axis1, x->rank, &b));
    gd_meta_view(y, x, 0);
    if (x->rank == 0) return GD_OK;
    y->dims[a] = x->dims[b];
    y->dims[b] = x->dims[a];
    y->strides[a] = x->strides[b];
    y->strides[b] = x->strides[a];
    return GD_OK;
}
static void transpose_vjp(gd_vjp *v) {
    const gd_transpose_options *o = v->attrs;
    v->gx[0] = gd_transpose(v->gy[0], o->axis0, o->axis1);
}

/*op movedim(x, source:int[], destination:int[]) -> y  view
 * Moves dimension source[k] to position destination[k]. The others keep their order.
 *   saves nothing
 */
static gd_status movedim_order(const gd_movedim_options *o, int rank, int *from) {
    uint32_t sources, destinations;
    if (o->source.rank != o->destination.rank)
        return gd_op_fail(GD_E_ARGUMENT,
                          "source has %d numbers and destination %d; these must be equal",
                          o->source.rank, o->destination.rank);
    GD_TRY(gd_axes_mask(&o->source, rank, &sources));
    GD_TRY(gd_axes_mask(&o->destination, rank, &destinations));
    for (int k = 0, next = 0; k < rank; k++) { /* dimensions that do not move fill the gaps */
        if (destinations >> k & 1) continue;
        while (sources >> next & 1) next++;
        from[k] = next++;
    }
    for (int k = 0; k < o->source.rank && rank > 0; k++) {
        int s, d;
        GD_TRY(gd_axis(o->source.at[k], rank, &s));
        GD_TRY(gd_axis(o->destination.at[k], rank, &d));
        from[d] = s;
    }
    return GD_OK;
}
static gd_status movedim_infer(gd_infer *i) {
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    int from[GD_MAX_RANK];
    GD_TRY(movedim_order(i->attrs, x->rank, from));
    gd_meta_view(y, x, 0);
    for (int k = 0; k < x->rank; k++) {
        y->dims[k] = x->dims[from[k]];
        y->strides[k] = x->strides[from[k]];
    }
    return GD_OK;
}
static void movedim_vjp(gd_vjp *v) {
    const gd_movedim_options *o = v->attrs;
    v->gx[0] = gd_movedim(v->gy[0], o->destination, o->source);
}

/* --- flip and roll ---------------------------------------------------------------------------- */

/*op flip(x, axes:int[]) -> y
 * x with the order of elements reversed along each of the axes.
 *   saves nothing
 *   python (x, *axes)
 */
static gd_status flip_infer(gd_infer *i) {
    const gd_flip_options *o = i->attrs;
    uint32_t mask;
    GD_TRY(gd_axes_mask(&o->axes, i->in[0]->rank, &mask));
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}
static void flip_vjp(gd_vjp *v) {
    const gd_flip_options *o = v->attrs;
    v->gx[0] = gd_flip(v->gy[0], o->axes);
}
static void flip_expand(gd_expansion *e) {
    const gd_flip_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    uint32_t mask = 0;
    gd_axes_mask(&o->axes, x->rank, &mask);
    e->y[0] = mask ? x : gd_clone(x);
    for (int d = 0; d < x->rank; d++) {
        const int64_t n = x->dims[d];
        if (mask >> d & 1)
            e->y[0] = gd_take_positions(e->y[0], d, gd_positions(x->rank, d, n - 1, n, -1));
    }
}
static gd_status flip_raw(gd_kernel_call *k) {
    const gd_flip_options *o = k->attrs;
    gd_view x = k->in[0]; /* from its last element, with negative strides */
    uint32_t mask;
    GD_TRY(gd_axes_mask(&o->axes, x.rank, &mask));
    for (int d = 0; d < x.rank; d++) {
        if (!(mask >> d & 1)) continue;
        x.data = (char *)x.data + (x.dims[d] - 1) * x.strides[d] * (int64_t)gd_dtype_size(x.dtype);
        x.strides[d] = -x.strides[d];
    }
    gd_copy_elements(&k->out[0], &x);
    return GD_OK;
}

/*op roll(x, shifts:int[]) -> y
 * Shifts the elements along axes; elements shifted beyond the end come back at the start.
 *   axis int[] = none  an axis for each shift; none: x is flattened and reshaped back
 *   saves nothing
 *   python (x, shift=shifts, axis)
 */
static gd_status roll_infer(gd_infer *i) {
    const gd_roll_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    bool axes = gd_shape_is_set(&o->axis);
    int expected = axes ? o->axis.rank : 1, axis;
    if (o->shifts.rank != expected)
        return gd_op_fail(GD_E_ARGUMENT, "shifts has %d numbers; it must have %d%s", o->shifts.rank,
                          expected, axes ? ", one for each axis" : " if no axis is given");
    for (int k = 0; axes && k < o->axis.rank; k++) {
        if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "'x' has rank 0 and no axis to roll");
        GD_TRY(gd_axis(o->axis.at[k], x->rank, &axis));
    }
    gd_meta_like(&i->out[0], x);
    return GD_OK;
}

/* The shift modulo size: 0 <= shift < size. */
static int64_t roll_shift(int64_t shift, int64_t size) {
    if (size == 0) return 0;
    shift %= size;
    return shift < 0 ? shift + size : shift;
}

static void roll_vjp(gd_vjp *v) {
    const gd_roll_options *o = v->attrs;
    gd_shape back = o->shifts;
    for (int k = 0; k < back.rank; k++) { /* modulo the size: -INT64_MIN would overflow */
        int64_t size = gd_shape_is_set(&o->axis) ? gd_tensor_dim(v->x[0], (int)o->axis.at[k])
                                                 : gd_tensor_numel(v->x[0]);
        back.at[k] = -roll_shift(back.at[k], size);
    }
    v->gx[0] = gd_shape_is_set(&o->axis) ? gd_roll(v->gy[0], back, .axis = o->axis)
                                         : gd_roll(v->gy[0], back);
}

/* Copies x, rolled along the axes from `axis` on. Each rolled axis is copied in two parts. */
static void roll_axes(gd_view y, gd_view x, const int64_t *shift, int axis) {
    while (axis < x.rank && shift[axis] == 0) axis++;
    if (axis == x.rank) {
        gd_copy_elements(&y, &x);
        return;
    }
    int64_t size = (int64_t)gd_dtype_size(x.dtype), n = x.dims[axis], s = shift[axis];
    gd_view to = y, from = x;
    to.dims[axis] = from.dims[axis] = n - s; /* the front moves by s ... */
    to.data = (char *)y.data + s * y.strides[axis] * size;
    roll_axes(to, from, shift, axis + 1);
    to.dims[axis] = from.dims[axis] = s; /* ... and the end moves to the front */
    to.data = y.data;
    from.data = (char *)x.data + (n - s) * x.strides[axis] * size;
    roll_axes(to, from, shift, axis + 1);
}

/*op wrap_index(x, size:int) -> y  elementwise integral internal
 * x, and x + size where it is negative.
 *   y = x < 0 ? x + size : x
 */

/* Rolls x by 0 <= shift < n along an axis of n elements. */
static gd_tensor *roll_axis(gd_tensor *x, int axis, int64_t shift, int64_t n) {
    if (shift == 0) return x;
    return gd_take_positions(x, axis, gd_wrap_index(gd_positions(x->rank, axis, -shift, n, 1), n));
}
static void roll_expand(gd_expansion *e) {
    const gd_roll_options *o = e->attrs;
    gd_tensor *x = e->x[0], *y = x;
    if (!gd_shape_is_set(&o->axis)) {
        const int64_t n = gd_tensor_numel(x);
        const int64_t shift = roll_shift(o->shifts.at[0], n);
        y = shift ? roll_axis(gd_reshape(x, gd_dims(n)), 0, shift, n) : gd_clone(x);
        e->y[0] = gd_reshape(y, gd_tensor_shape(x));
        return;
    }
    for (int i = 0; i < o->axis.rank; i++) {
        const int axis = (int)(o->axis.at[i] < 0 ? o->axis.at[i] + x->rank : o->axis.at[i]);
        y = roll_axis(y, axis, roll_shift(o->shifts.at[i], x->dims[axis]), x->dims[axis]);
    }
    e->y[0] = y == x ? gd_clone(x) : y;
}

static gd_status roll_raw(gd_kernel_call *k) {
    const gd_roll_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    gd_view y = k->out[0];
    if (gd_shape_is_set(&o->axis)) {
        int64_t shift[GD_MAX_RANK] = {0};
        for (int i = 0; i < o->axis.rank; i++) { /* an axis may occur twice */
            int axis = (int)(o->axis.at[i] < 0 ? o->axis.at[i] + x->rank : o->axis.at[i]);
            shift[axis] =
                roll_shift(shift[axis] + roll_shift(o->shifts.at[i], x->dims[axis]), x->dims[axis]);
        }
        roll_axes(y, *x, shift, 0);
        return GD_OK;
    }
    int64_t n = gd_numel(x->rank, x->dims), shift = roll_shift(o->shifts.at[0], n);
    if (gd_is_row_major(x->rank, x->dims, x->strides) &&
        gd_is_row_major(y.rank, y.dims, y.strides)) {
        gd_view line = {.data = x->data, .dtype = x->dtype, .rank = 1, .dims = {n}, .strides = {1}};
        gd_view to = line;
        to.data = y.data;
        roll_axes(to, line, &shift, 0);
        return GD_OK;
    }
    for (int64_t e = 0; e < n; e++)
        memcpy(gd_view_element(&y, (e + shift) % n), gd_view_element(x, e),
               gd_dtype_size(x->dtype));
    return GD_OK;
}

#include "ops/shape/shape.gen.h"
