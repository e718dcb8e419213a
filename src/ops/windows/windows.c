/* windows.c - windows of a tensor as a view, and the helpers of windows_spatial.h. */
#include <string.h>

#include "core/checked.h"
#include "gradus/ops.h"
#include "ops/index/index.h"
#include "dispatch/infer.h"
#include "ops/windows/windows_spatial.h"

enum { AXES = GD_SPATIAL_AXES };

/* --- options and shapes ----------------------------------------------------------------------- */

/* The length of a list option. gd_int1, gd_int2, gd_int3 and gd_shape all begin with
 * the numbers. */
static int list_length(const gd_op_attr *attr, const void *attrs) {
    const void *field = (const char *)attrs + attr->offset;
    return attr->type == GD_ATTR_INTS    ? attr->count
           : attr->type == GD_ATTR_SHAPE ? ((const gd_shape *)field)->rank
                                         : 0;
}

int gd_spatial_axes(const gd_op *op, const void *attrs) {
    for (int i = 0; i < op->n_attrs; i++)
        if (op->attrs[i].type == GD_ATTR_INTS || op->attrs[i].type == GD_ATTR_SHAPE)
            return list_length(&op->attrs[i], attrs);
    return 0;
}

gd_status gd_spatial_read(const gd_op_attr *attr, const void *attrs, int n, int64_t *to) {
    const int count = list_length(attr, attrs);
    if (count != n)
        return gd_op_fail(GD_E_ARGUMENT, "%s has %d numbers; it must have %d, one for each axis",
                          attr->name, count, n);
    memcpy(to + AXES - n, (const char *)attrs + attr->offset, (size_t)n * sizeof *to);
    return GD_OK;
}

void gd_spatial_write(const gd_op_attr *attr, void *attrs, int n, const int64_t *from) {
    memcpy((char *)attrs + attr->offset, from + AXES - n, (size_t)n * sizeof *from);
}

gd_status gd_need_spatial(const gd_tensor *x, const char *name, int n) {
    if (x->dtype == GD_BOOL) return gd_op_fail(GD_E_DTYPE, "'%s' must be numbers, not bool", name);
    if (x->rank == n + 1 || x->rank == n + 2) return GD_OK;
    return gd_op_fail(
        GD_E_SHAPE,
        "'%s' must have %d dimensions (batch, channels and %d axes), or %d without the batch; "
        "it has %d",
        name, n + 2, n, n + 1, x->rank);
}

gd_shape gd_spatial_dims(const gd_tensor *t, int n) {
    return gd_shape_of(n, t->dims + t->rank - n);
}
gd_shape gd_spatial_list(const int64_t *numbers, int n) {
    return gd_shape_of(n, numbers + AXES - n);
}

/* --- parts of bodies -------------------------------------------------------------------------- */

gd_tensor *gd_split_axis(gd_tensor *x, int axis, int64_t a, int64_t b) {
    return gd_unflatten(x, axis, gd_dims(a, b));
}

gd_tensor *gd_merge_axes(gd_tensor *x, int axis) {
    if (gd_tensor_is_error(x)) return x;
    gd_shape dims = {.rank = x->rank - 1, .form = 1};
    for (int d = 0; d < x->rank; d++) dims.at[d <= axis ? d : d - 1] = x->dims[d];
    dims.at[axis] = x->dims[axis] * x->dims[axis + 1];
    return gd_reshape(x, dims);
}

gd_tensor *gd_scatter_sums(gd_tensor *x, int axis, gd_tensor *index, int64_t length) {
    if (gd_tensor_is_error(x)) return x;
    gd_shape dims = gd_tensor_shape(x), line = {.rank = x->rank, .form = 1};
    for (int d = 0; d < x->rank; d++) line.at[d] = d == axis ? x->dims[d] : 1;
    index = gd_expand(gd_reshape(index, line), dims);
    dims.at[axis] = length;
    return gd_scatter_add(gd_zeros_on(x, (gd_dtype)x->dtype, dims), axis, index, x);
}

/* --- ops -------------------------------------------------------------------------------------- */

/*op windows(x, axis:int, size:int, step:int, dilation:int) -> y  view internal
 * All windows of `size` elements along an axis, as a view with a new last axis: along the axis and
 * the last axis, y[o][k] is x[o * step + k * dilation].
 *   saves nothing
 */

/* *span is the number of elements that a window spans: dilation * (size - 1) + 1. */
static gd_status window_span(int64_t size, int64_t step, int64_t dilation, int64_t *span) {
    if (size < 1 || step < 1 || dilation < 1)
        return gd_op_fail(GD_E_ARGUMENT,
                          "size is %lld, step %lld and dilation %lld; all must be at least 1",
                          (long long)size, (long long)step, (long long)dilation);
    if (!gd_mul_i64(dilation, size - 1, span) || !gd_add_i64(*span, 1, span))
        return gd_op_fail(GD_E_OVERFLOW, "sizes overflow");
    return GD_OK;
}

static gd_status windows_infer(gd_infer *i) {
    const gd_windows_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    int axis;
    int64_t span = 0;
    size_t bytes;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    if (x->rank == 0 || x->rank == GD_MAX_RANK)
        return gd_op_fail(GD_E_SHAPE, "'x' must have 1 to %d dimensions", GD_MAX_RANK - 1);
    GD_TRY(window_span(o->size, o->step, o->dilation, &span));
    gd_meta_view(y, x, 0);
    y->rank = x->rank + 1;
    y->dims[axis] = x->dims[axis] < span ? 0 : (x->dims[axis] - span) / o->step + 1;
    y->dims[x->rank] = o->size;
    if (y->dims[axis] > 1) y->strides[axis] = x->strides[axis] * o->step;
    y->strides[x->rank] = o->size > 1 ? x->strides[axis] * o->dilation : 1;
    return gd_shape_bytes(gd_shape_of(y->rank, y->dims), y->dtype, &bytes);
}
static void windows_vjp(gd_vjp *v) {
    const gd_windows_options *o = v->attrs;
    v->gx[0] = gd_windows_grad(v->gy[0], o->axis, gd_tensor_dim(v->x[0], (int)o->axis), o->step,
                               o->dilation);
}

/*op windows_grad(gy, axis:int, length:int, step:int, dilation:int) -> gx  internal
 * The gradient of windows by its input, which has size `length` along the axis: adds each element
 * of a window to the element of the input that it was.
 *   saves nothing
 */

/* *extent is the number of elements along the axis that windows cover. */
static gd_status windows_extent(const gd_windows_grad_options *o, int64_t count, int64_t size,
                                int64_t *extent) {
    int64_t span = 0;
    GD_TRY(window_span(size, o->step, o->dilation, &span));
    *extent = 0;
    if (count < 1) return GD_OK;
    if (!gd_mul_i64(count - 1, o->step, extent) || !gd_add_i64(*extent, span, extent))
        return gd_op_fail(GD_E_OVERFLOW, "sizes overflow");
    return GD_OK;
}

static gd_status windows_grad_infer(gd_infer *i) {
    const gd_windows_grad_options *o = i->attrs;
    const gd_tensor *gy = i->in[0];
    gd_meta *gx = &i->out[0];
    int axis;
    int64_t extent;
    if (gy->rank < 2) return gd_op_fail(GD_E_SHAPE, "'gy' must have 2 dimensions or more");
    GD_TRY(gd_axis(o->axis, gy->rank - 1, &axis));
    GD_TRY(windows_extent(o, gy->dims[axis], gy->dims[gy->rank - 1], &extent));
    if (o->length < extent)
        return gd_op_fail(GD_E_SHAPE, "length is %lld; the windows cover %lld elements",
                          (long long)o->length, (long long)extent);
    gd_meta_like(gx, gy);
    gx->rank = gy->rank - 1;
    gx->dims[axis] = o->length;
    return GD_OK;
}
static void windows_grad_vjp(gd_vjp *v) {
    const gd_windows_grad_options *o = v->attrs;
    const gd_tensor *gy = v->x[0];
    const int axis = (int)(o->axis < 0 ? o->axis + gy->rank - 1 : o->axis);
    const int64_t size = gy->dims[gy->rank - 1];
    int64_t extent;
    if (windows_extent(o, gy->dims[axis], size, &extent) != GD_OK) return;
    v->gx[0] = gd_windows(gd_narrow(v->gy[0], axis, 0, extent), axis, size, o->step, o->dilation);
}
static void windows_grad_expand(gd_expansion *e) {
    const gd_windows_grad_options *o = e->attrs;
    gd_tensor *gy = e->x[0];
    const int rank = gy->rank, axis = (int)(o->axis < 0 ? o->axis + rank - 1 : o->axis);
    const int64_t count = gy->dims[axis], size = gy->dims[rank - 1];
    gd_tensor *index = gd_add(gd_mul(gd_positions(2, 0, 0, count, 1), gd_scalar_int(o->step)),
                              gd_mul(gd_positions(1, 0, 0, size, 1), gd_scalar_int(o->dilation)));
    gd_tensor *g = gd_widen(gy);
    g = gd_merge_axes(gd_movedim(g, gd_dims(rank - 1), gd_dims(axis + 1)), axis);
    g = gd_scatter_sums(g, axis, gd_reshape(index, gd_dims(count * size)), o->length);
    e->y[0] = gd_as_dtype(g, (gd_dtype)gy->dtype);
}

/* --- windows of all spatial axes -------------------------------------------------------------- */

/* The number of elements along an axis that its windows cover, padding included. */
static int64_t window_extent(const gd_window_form *f, int a) {
    return f->count[a] < 1 ? 0
                           : (f->count[a] - 1) * f->step[a] + (f->size[a] - 1) * f->dilation[a] + 1;
}

gd_tensor *gd_window_views(gd_tensor *x, const gd_window_form *f, int n) {
    if (gd_tensor_is_error(x)) return x;
    const int first = x->rank - n;
    int64_t begin[AXES] = {0}, extent[AXES] = {0};
    for (int d = 0; d < n; d++) {
        begin[d] = -f->before[AXES - n + d];
        extent[d] = window_extent(f, AXES - n + d);
    }
    x = gd_take_region(x, n, begin, extent);
    for (int d = 0; d < n; d++) {
        const int a = AXES - n + d;
        x = gd_windows(x, first + d, f->size[a], f->step[a], f->dilation[a]);
    }
    return x;
}

gd_tensor *gd_window_sums(gd_tensor *windows, const gd_window_form *f, gd_shape dims) {
    if (gd_tensor_is_error(windows)) return windows;
    const int n = dims.rank, first = windows->rank - 2 * n;
    for (int d = n; d-- > 0;) {
        const int a = AXES - n + d;
        windows =
            gd_windows_grad(windows, first + d, window_extent(f, a), f->step[a], f->dilation[a]);
    }
    return gd_take_region(windows, n, f->before + AXES - n, dims.at);
}

#include "ops/windows/windows.gen.h"
