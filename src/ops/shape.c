/* shape.c - ops that rearrange: mostly views, which copy nothing. */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "ops/infer.h"

/* --- reshape ----------------------------------------------------------------------------------- */

/*op reshape(x, dims:int[]) -> y  view
 * The same elements in another shape; one dimension may be -1 and follows from the others. A view
 * where the strides allow it, else a copy.
 *   saves nothing
 *   onnx Reshape   caffe Reshape
 */

/* Strides that show x's memory in the new shape, if there are any. */
static bool reshape_strides(const gd_tensor *x, int rank, const int64_t *dims, int64_t *strides) {
    int from = 0; /* dims of x used up so far */
    for (int to = 0; to < rank;) {
        int64_t old_count = 1, new_count = dims[to];
        int first_old = from, first_new = to++;
        while (from < x->rank && (old_count < new_count || x->dims[from] == 1)) {
            if (old_count == new_count) break;
            old_count *= x->dims[from++];
        }
        while (new_count < old_count && to < rank) new_count *= dims[to++];
        if (old_count != new_count) return false;
        /* x's dims first_old..from must step evenly among themselves */
        int64_t step = 1; /* of dims of size 1; 0 is that of expanded ones */
        for (int k = from - 1, seen = 0; k >= first_old; k--) {
            if (x->dims[k] == 1) continue;
            if (!seen) step = x->strides[k], seen = 1;
            else {
                int64_t expected = step;
                for (int j = k + 1; j < from; j++) expected *= x->dims[j] > 0 ? x->dims[j] : 1;
                if (x->strides[k] != expected) return false;
            }
        }
        for (int k = to - 1; k >= first_new; k--) {
            strides[k] = step;
            step *= dims[k];
        }
    }
    return true;
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
            return gd_op_fail(GD_E_SHAPE, "%s: one dimension may be -1, others not be negative",
                              gd_shape_text(y->rank, o->dims.at, text, sizeof text));
        else if (__builtin_mul_overflow(known, y->dims[k], &known))
            return gd_op_fail(GD_E_OVERFLOW, "%s is too large", gd_shape_text(y->rank, o->dims.at, text, sizeof text));
    }
    if (unknown >= 0 && known > 0) y->dims[unknown] = total / known;
    if (unknown >= 0 && known == 0)
        return gd_op_fail(GD_E_SHAPE, "%s: -1 could be anything beside a 0", gd_shape_text(y->rank, o->dims.at, text, sizeof text));
    if (gd_numel(y->rank, y->dims) != total)
        return gd_op_fail(GD_E_SHAPE, "%lld elements do not fit the shape %s", (long long)total,
                          gd_shape_text(y->rank, o->dims.at, text, sizeof text));
    if (total == 0) return GD_OK;
    if (reshape_strides(x, y->rank, y->dims, y->strides)) {
        y->view_of = 0;
        y->offset = x->offset;
    }
    return GD_OK;
}
static void reshape_vjp(gd_vjp *v) { v->gx[0] = gd_reshape(v->gy[0], gd_tensor_shape(v->x[0])); }
static gd_status reshape_raw(gd_kernel_call *k) {
    gd_view y = k->out[0]; /* row-major: seen in x's shape */
    y.rank = k->in[0].rank;
    memcpy(y.dims, k->in[0].dims, sizeof y.dims);
    gd_row_major(y.rank, y.dims, y.strides);
    gd_copy_elements(&y, &k->in[0]);
    return GD_OK;
}

/* --- expand ------------------------------------------------------------------------------------ */

/*op expand(x, dims:int[]) -> y  view
 * x repeated along new dimensions and those of size 1, without copying; -1 keeps a size.
 *   saves nothing
 *   onnx Expand
 */
static gd_status expand_infer(gd_infer *i) {
    const gd_expand_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    int extra = o->dims.rank - x->rank;
    char text[128];
    gd_meta_view(y, x, 0);
    if (extra < 0)
        return gd_op_fail(GD_E_SHAPE, "%d dimensions cannot be expanded to %d", x->rank, o->dims.rank);
    y->rank = o->dims.rank;
    for (int k = 0; k < y->rank; k++) {
        int64_t want = o->dims.at[k], have = k < extra ? 1 : x->dims[k - extra];
        if (want == -1 && k >= extra) want = have;
        if (want < 0 || (have != 1 && have != want))
            return gd_op_fail(GD_E_SHAPE, "cannot be expanded to %s: dimension %d is %lld",
                              gd_shape_text(y->rank, o->dims.at, text, sizeof text), k, (long long)have);
        y->dims[k] = want;
        y->strides[k] = have == 1 && want != 1 ? 0 : k < extra ? 0 : x->strides[k - extra];
    }
    return GD_OK;
}
static void expand_vjp(gd_vjp *v) { v->gx[0] = gd_sum_to(v->gy[0], gd_tensor_shape(v->x[0])); }

/* --- permute ----------------------------------------------------------------------------------- */

/*op permute(x, axes:int[]) -> y  view
 * Dimension k of the result is dimension axes[k] of x.
 *   saves nothing
 *   onnx Transpose
 */
static gd_status permute_infer(gd_infer *i) {
    const gd_permute_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    uint32_t mask;
    gd_meta_view(y, x, 0);
    if (o->axes.rank != x->rank)
        return gd_op_fail(GD_E_SHAPE, "%d axes for %d dimensions", o->axes.rank, x->rank);
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

/* --- split and cat ----------------------------------------------------------------------------- */

/*op split(x, sizes:int[]) -> ys*  view
 * Cuts x along an axis into pieces: of the given sizes, which add up to the whole, or, for one
 * number, all of that size but the last.
 *   axis int = 0  where to cut
 *   saves nothing
 *   onnx Split   caffe Slice
 */
static gd_status split_infer(gd_infer *i) {
    const gd_split_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    int axis;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "a single number cannot be split");
    int64_t whole = x->dims[axis], n = o->sizes.rank, sum = 0;
    bool even = n == 1;
    if (even) {
        if (o->sizes.at[0] <= 0) return gd_op_fail(GD_E_ARGUMENT, "pieces of size %lld", (long long)o->sizes.at[0]);
        n = whole == 0 ? 1 : (whole + o->sizes.at[0] - 1) / o->sizes.at[0];
    } else {
        for (int k = 0; k < n; k++) {
            if (o->sizes.at[k] < 0) return gd_op_fail(GD_E_ARGUMENT, "a piece of size %lld", (long long)o->sizes.at[k]);
            if (__builtin_add_overflow(sum, o->sizes.at[k], &sum)) return gd_op_fail(GD_E_OVERFLOW, "sizes overflow");
        }
        if (sum != whole || n == 0)
            return gd_op_fail(GD_E_SHAPE, "the sizes add up to %lld, axis %d has %lld", (long long)sum, axis, (long long)whole);
    }
    if (n > 1 << 20) return gd_op_fail(GD_E_ARGUMENT, "%lld pieces are too many", (long long)n);
    GD_TRY(gd_infer_outputs(i, (int)n));
    int64_t at = 0;
    for (int k = 0; k < n; k++) {
        int64_t size = even ? o->sizes.at[0] : o->sizes.at[k];
        if (even && size > whole - at) size = whole - at;
        gd_meta_view(&i->out[k], x, 0);
        i->out[k].dims[axis] = size;
        i->out[k].offset = x->offset + at * x->strides[axis];
        at += size;
    }
    return GD_OK;
}
static void split_vjp(gd_vjp *v) {
    const gd_split_options *o = v->attrs;
    v->gx[0] = gd_cat(((gd_tensors){v->gy, v->n_out}), .axis = o->axis);
}

/*op cat(xs*) -> y
 * Joins tensors along an axis; their other dimensions are equal. dtypes promote.
 *   axis int = 0  where to join
 *   saves nothing
 *   onnx Concat   caffe Concat
 */
static bool cat_skips(const gd_tensor *t) { return t->rank == 1 && t->dims[0] == 0; }

static gd_status cat_infer(gd_infer *i) {
    const gd_cat_options *o = i->attrs;
    gd_meta *y = &i->out[0];
    const gd_tensor *first = i->in[0];
    int axis;
    for (int k = 0; k < i->n_in && cat_skips(first); k++) first = i->in[k]; /* an old habit of PyTorch's */
    GD_TRY(gd_axis(o->axis, first->rank, &axis));
    if (first->rank == 0) return gd_op_fail(GD_E_SHAPE, "single numbers cannot be joined; use gd_stack");
    gd_meta_like(y, first);
    y->dims[axis] = 0;
    for (int k = 0; k < i->n_in; k++) {
        const gd_tensor *t = i->in[k];
        y->dtype = gd_promote(y->dtype, (gd_dtype)t->dtype);
        if (cat_skips(t) && first->rank != 1) continue;
        if (t->rank != first->rank) return gd_op_fail(GD_E_SHAPE, "tensor %d has %d dimensions, others %d", k, t->rank, first->rank);
        for (int d = 0; d < t->rank; d++)
            if (d != axis && t->dims[d] != first->dims[d])
                return gd_op_fail(GD_E_SHAPE, "tensor %d has size %lld in dimension %d, others %lld", k,
                                  (long long)t->dims[d], d, (long long)first->dims[d]);
        if (__builtin_add_overflow(y->dims[axis], t->dims[axis], &y->dims[axis])) return gd_op_fail(GD_E_OVERFLOW, "sizes overflow");
    }
    return GD_OK;
}
static void cat_vjp(gd_vjp *v) {
    const gd_cat_options *o = v->attrs;
    int64_t at = 0;
    for (int i = 0; i < v->n_in; i++) {
        if (cat_skips(v->x[i]) && v->y[0]->rank != 1) continue;
        int64_t size = gd_tensor_dim(v->x[i], (int)o->axis);
        if (v->needs[i]) v->gx[i] = gd_narrow(v->gy[0], o->axis, at, size);
        at += size;
    }
}
static gd_status cat_raw(gd_kernel_call *k) {
    const gd_cat_options *o = k->attrs;
    gd_view part = k->out[0];
    int axis = (int)(o->axis < 0 ? o->axis + part.rank : o->axis);
    for (int i = 0; i < k->n_in; i++) {
        const gd_view *x = &k->in[i];
        if (x->rank != part.rank) continue;
        part.dims[axis] = x->dims[axis];
        gd_copy_elements(&part, x);
        part.data = (char *)part.data + x->dims[axis] * part.strides[axis] * (int64_t)gd_dtype_size(part.dtype);
    }
    return GD_OK;
}

/*op narrow(x, axis:int, start:int, length:int) -> y  view
 * A stretch of one axis, as a view.
 *   saves nothing
 */
static gd_status narrow_infer(gd_infer *i) {
    const gd_narrow_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    int axis;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "a single number has no axis to narrow");
    int64_t size = x->dims[axis], start = o->start < 0 ? o->start + size : o->start;
    if (start < 0 || start > size || o->length < 0 || o->length > size - start)
        return gd_op_fail(GD_E_INDEX, "start %lld and length %lld do not lie in axis %d of size %lld",
                          (long long)o->start, (long long)o->length, axis, (long long)size);
    gd_meta_view(&i->out[0], x, 0);
    i->out[0].dims[axis] = o->length;
    i->out[0].offset = x->offset + start * x->strides[axis];
    return GD_OK;
}
static void narrow_vjp(gd_vjp *v) {
    const gd_narrow_options *o = v->attrs;
    v->gx[0] = gd_narrow_grad(v->gy[0], gd_tensor_shape(v->x[0]), o->axis, o->start);
}

/*op narrow_grad(gy, dims:int[], axis:int, start:int) -> gx  internal
 * Zeros of shape dims with gy at its place: the gradient of narrow.
 *   saves nothing
 */
static gd_status narrow_grad_infer(gd_infer *i) {
    const gd_narrow_grad_options *o = i->attrs;
    i->out[0].rank = o->dims.rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof o->dims.at);
    return GD_OK;
}
static void narrow_grad_vjp(gd_vjp *v) {
    const gd_narrow_grad_options *o = v->attrs;
    v->gx[0] = gd_narrow(v->gy[0], o->axis, o->start, gd_tensor_dim(v->x[0], (int)o->axis));
}
static gd_status narrow_grad_raw(gd_kernel_call *k) {
    const gd_narrow_grad_options *o = k->attrs;
    gd_view part = k->out[0];
    int axis = (int)(o->axis < 0 ? o->axis + part.rank : o->axis);
    int64_t start = o->start < 0 ? o->start + part.dims[axis] : o->start;
    size_t size = gd_dtype_size(part.dtype);
    memset(part.data, 0, (size_t)gd_numel(part.rank, part.dims) * size);
    part.dims[axis] = k->in[0].dims[axis];
    part.data = (char *)part.data + start * part.strides[axis] * (int64_t)size;
    gd_copy_elements(&part, &k->in[0]);
    return GD_OK;
}

#include "shape.gen.h"
