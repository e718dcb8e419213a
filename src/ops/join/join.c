/* join.c - splitting and joining tensors: split, chunk, cat, stack, repeat, tile. */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"

/* --- split and cat ---------------------------------------------------------------------------- */

/*op split(x, sizes:int[]) -> ys*  view
 * Splits x along an axis into views. sizes are their sizes, which add up to that of the axis, or
 * one size for all of them; then the last may be smaller.
 *   axis int = 0  the axis to split
 *   saves nothing
 *   onnx Split
 *   python (x, split_size_or_sections=sizes, axis)
 */
/* n views of x along the axis, of the sizes in the list. If it is NULL, all have size `size`,
 * and the last one has the rest. */
static gd_status infer_pieces(gd_infer *i, int axis, int64_t n, int64_t size,
                              const int64_t *sizes) {
    const gd_tensor *x = i->in[0];
    if (n > 1 << 20) return gd_op_fail(GD_E_ARGUMENT, "%lld pieces are too many", (long long)n);
    GD_TRY(gd_infer_outputs(i, (int)n));
    int64_t at = 0;
    for (int k = 0; k < n; k++) {
        if (sizes) size = sizes[k];
        else if (size > x->dims[axis] - at) size = x->dims[axis] - at;
        gd_meta_view(&i->out[k], x, 0);
        i->out[k].dims[axis] = size;
        i->out[k].offset = x->offset + at * x->strides[axis];
        at += size;
    }
    return GD_OK;
}

static gd_status split_infer(gd_infer *i) {
    const gd_split_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    int axis;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "a tensor of rank 0 cannot be split");
    int64_t total = x->dims[axis], n = o->sizes.rank, sum = 0;
    if (n == 1) {
        int64_t size = o->sizes.at[0];
        if (size < 0 || (size == 0 && total > 0))
            return gd_op_fail(GD_E_ARGUMENT, "pieces cannot have size %lld", (long long)size);
        return infer_pieces(i, axis, total == 0 ? 1 : (total - 1) / size + 1, size, NULL);
    }
    for (int k = 0; k < n; k++) {
        if (o->sizes.at[k] < 0)
            return gd_op_fail(GD_E_ARGUMENT, "a piece cannot have size %lld",
                              (long long)o->sizes.at[k]);
        if (__builtin_add_overflow(sum, o->sizes.at[k], &sum))
            return gd_op_fail(GD_E_OVERFLOW, "sizes overflow");
    }
    if (sum != total || n == 0)
        return gd_op_fail(GD_E_SHAPE, "the sizes add up to %lld, but axis %d has size %lld",
                          (long long)sum, axis, (long long)total);
    return infer_pieces(i, axis, n, 0, o->sizes.at);
}
static void split_vjp(gd_vjp *v) {
    const gd_split_options *o = v->attrs;
    v->gx[0] = gd_cat(((gd_tensors){v->gy, v->n_out}), .axis = o->axis);
}

/*op chunk(x, chunks:int) -> ys*  view
 * Splits x along an axis into `chunks` views of equal size. If the size is not divisible, the last
 * one is smaller, and there may be fewer.
 *   axis int = 0  the axis to split
 *   saves nothing
 *   python (x, chunks, axis)
 */
static gd_status chunk_infer(gd_infer *i) {
    const gd_chunk_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    int axis;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "a tensor of rank 0 cannot be split");
    if (o->chunks < 1)
        return gd_op_fail(GD_E_ARGUMENT, "chunks is %lld; it must be at least 1",
                          (long long)o->chunks);
    int64_t total = x->dims[axis];
    if (total == 0) return infer_pieces(i, axis, o->chunks, 0, NULL);
    int64_t size = (total - 1) / o->chunks + 1;
    return infer_pieces(i, axis, (total - 1) / size + 1, size, NULL);
}
static void chunk_vjp(gd_vjp *v) {
    const gd_chunk_options *o = v->attrs;
    v->gx[0] = gd_cat(((gd_tensors){v->gy, v->n_out}), .axis = o->axis);
}

/*op cat(xs*) -> y
 * Concatenates tensors along an axis; their other dimensions must be equal. dtypes promote.
 *   axis int = 0  the axis to concatenate along
 *   saves nothing
 *   onnx Concat   caffe Concat axis=axis concat_dim=axis
 *   python concat cat concatenate(xs, axis)
 */
/* Tensors of shape (0) are skipped whatever the rank of the others, as in PyTorch. */
static bool cat_skips(const gd_tensor *t) { return t->rank == 1 && t->dims[0] == 0; }

static gd_status cat_infer(gd_infer *i) {
    const gd_cat_options *o = i->attrs;
    gd_meta *y = &i->out[0];
    const gd_tensor *first = i->in[0];
    int axis;
    for (int k = 0; k < i->n_in && cat_skips(first); k++) first = i->in[k];
    GD_TRY(gd_axis(o->axis, first->rank, &axis));
    if (first->rank == 0)
        return gd_op_fail(GD_E_SHAPE, "tensors of rank 0 cannot be concatenated; use gd_stack");
    gd_meta_like(y, first);
    y->dims[axis] = 0;
    for (int k = 0; k < i->n_in; k++) {
        const gd_tensor *t = i->in[k];
        y->dtype = gd_promote(y->dtype, (gd_dtype)t->dtype);
        if (cat_skips(t) && first->rank != 1) continue;
        if (t->rank != first->rank)
            return gd_op_fail(GD_E_SHAPE, "tensor %d has %d dimensions, the others have %d", k,
                              t->rank, first->rank);
        for (int d = 0; d < t->rank; d++)
            if (d != axis && t->dims[d] != first->dims[d])
                return gd_op_fail(GD_E_SHAPE,
                                  "tensor %d has size %lld in dimension %d, the others have %lld",
                                  k, (long long)t->dims[d], d, (long long)first->dims[d]);
        if (__builtin_add_overflow(y->dims[axis], t->dims[axis], &y->dims[axis]))
            return gd_op_fail(GD_E_OVERFLOW, "sizes overflow");
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
/* a and b concatenated: each position of the result selects an element of a or of b. */
static gd_tensor *cat_two(gd_tensor *a, gd_tensor *b, int axis) {
    const int64_t n_a = gd_tensor_dim(a, axis), n_b = gd_tensor_dim(b, axis);
    gd_tensor *in_a = gd_positions(a->rank, axis, 0, n_a + n_b, 1);
    gd_tensor *in_b = gd_positions(a->rank, axis, -n_a, n_a + n_b, 1);
    gd_tensor *at_a = gd_clamp(in_a, .max = gd_number_of(n_a - 1)), *at_b = gd_relu(in_b);
    return gd_where(gd_eq(in_a, at_a), gd_take_positions(a, axis, at_a),
                    gd_take_positions(b, axis, at_b));
}
/* Concatenates by halves, so that each element is copied log2(n) times. */
static gd_tensor *cat_list(gd_tensor **xs, int n, int axis) {
    if (n == 1) return xs[0];
    return cat_two(cat_list(xs, n / 2, axis), cat_list(xs + n / 2, n - n / 2, axis), axis);
}
static void cat_expand(gd_expansion *e) {
    const gd_cat_options *o = e->attrs;
    const gd_tensor *first = e->x[0];
    for (int i = 0; i < e->n_in && cat_skips(first); i++) first = e->x[i];
    const int axis = gd_wrap_axis(o->axis, first->rank);
    gd_dtype dtype = (gd_dtype)e->x[0]->dtype;
    for (int i = 1; i < e->n_in; i++) dtype = gd_promote(dtype, (gd_dtype)e->x[i]->dtype);
    gd_tensor **xs = gd_list_new(e->n_in), *y = NULL;
    int n = 0;
    for (int i = 0; i < e->n_in && xs; i++) {
        gd_tensor *x = e->x[i];
        if (x->rank != first->rank) continue;
        y = gd_as_dtype(x, dtype);
        if (x->dims[axis] > 0) xs[n++] = y;
    }
    if (!xs) e->y[0] = &gd_error_tensor;
    else if (n > 1) e->y[0] = cat_list(xs, n, axis);
    else e->y[0] = gd_clone(n == 1 ? xs[0] : y); /* a new tensor, also for a single input */
}
static gd_status cat_raw(gd_kernel_call *k) {
    const gd_cat_options *o = k->attrs;
    gd_view part = k->out[0];
    int axis = gd_wrap_axis(o->axis, part.rank);
    for (int i = 0; i < k->n_in; i++) {
        const gd_view *x = &k->in[i];
        if (x->rank != part.rank) continue;
        part.dims[axis] = x->dims[axis];
        gd_copy_elements(&part, x);
        part.data = (char *)part.data +
                    x->dims[axis] * part.strides[axis] * (int64_t)gd_dtype_size(part.dtype);
    }
    return GD_OK;
}

/*op stack(xs*) -> y
 * Joins tensors of the same shape along a new dimension. dtypes promote.
 *   axis int = 0  the position of the new dimension
 *   saves nothing
 */
static gd_status stack_infer(gd_infer *i) {
    const gd_stack_options *o = i->attrs;
    const gd_tensor *first = i->in[0];
    gd_meta *y = &i->out[0];
    int axis;
    if (first->rank == GD_MAX_RANK)
        return gd_op_fail(GD_E_SHAPE, "a tensor has at most %d dimensions", GD_MAX_RANK);
    GD_TRY(gd_axis(o->axis, first->rank + 1, &axis));
    y->rank = first->rank + 1;
    for (int d = 0; d < y->rank; d++)
        y->dims[d] = d < axis ? first->dims[d] : d == axis ? i->n_in : first->dims[d - 1];
    for (int k = 0; k < i->n_in; k++) {
        const gd_tensor *t = i->in[k];
        char a[128], b[128];
        y->dtype = gd_promote(y->dtype, (gd_dtype)t->dtype);
        if (t->rank != first->rank ||
            memcmp(t->dims, first->dims, sizeof(int64_t) * first->rank) != 0)
            return gd_op_fail(GD_E_SHAPE, "tensor %d has shape %s, the first has %s", k,
                              gd_shape_text(t->rank, t->dims, a, sizeof a),
                              gd_shape_text(first->rank, first->dims, b, sizeof b));
    }
    return GD_OK;
}
static void stack_vjp(gd_vjp *v) {
    const gd_stack_options *o = v->attrs;
    for (int i = 0; i < v->n_in; i++)
        if (v->needs[i]) v->gx[i] = gd_select(v->gy[0], o->axis, i);
}
static void stack_expand(gd_expansion *e) {
    const gd_stack_options *o = e->attrs;
    gd_tensor **xs = gd_list_new(e->n_in);
    const int64_t axis = o->axis < 0 ? o->axis + e->x[0]->rank + 1 : o->axis;
    for (int i = 0; i < e->n_in && xs; i++) xs[i] = gd_unsqueeze(e->x[i], axis);
    e->y[0] = xs ? gd_cat(((gd_tensors){xs, e->n_in}), .axis = axis) : &gd_error_tensor;
}
static gd_status stack_raw(gd_kernel_call *k) {
    const gd_stack_options *o = k->attrs;
    const gd_view *y = &k->out[0];
    int axis = gd_wrap_axis(o->axis, y->rank);
    gd_view part = *y; /* the slice for one tensor: y without the new axis */
    part.rank--;
    for (int d = axis; d < part.rank; d++) {
        part.dims[d] = y->dims[d + 1];
        part.strides[d] = y->strides[d + 1];
    }
    for (int i = 0; i < k->n_in; i++) {
        gd_copy_elements(&part, &k->in[i]);
        part.data = (char *)part.data + y->strides[axis] * (int64_t)gd_dtype_size(y->dtype);
    }
    return GD_OK;
}

/* --- repeat ----------------------------------------------------------------------------------- */

/*op repeat(x, repeats:int[]) -> y
 * x repeated repeats[d] times along dimension d. If there are more repeats than dimensions, x gets
 * new dimensions in front.
 *   saves nothing
 *   onnx Tile
 *   python (x, *repeats)
 */
static gd_status repeat_infer(gd_infer *i) {
    const gd_repeat_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    int extra = o->repeats.rank - x->rank;
    if (extra < 0)
        return gd_op_fail(GD_E_SHAPE,
                          "there are %d repeats for %d dimensions; gd_tile accepts fewer",
                          o->repeats.rank, x->rank);
    y->rank = o->repeats.rank;
    for (int d = 0; d < y->rank; d++) {
        int64_t n = o->repeats.at[d];
        if (n < 0)
            return gd_op_fail(GD_E_ARGUMENT,
                              "repeats is %lld for dimension %d; it must not be negative",
                              (long long)n, d);
        if (__builtin_mul_overflow(n, d < extra ? 1 : x->dims[d - extra], &y->dims[d]))
            return gd_op_fail(GD_E_OVERFLOW, "%lld repeats of dimension %d are too many",
                              (long long)n, d);
    }
    return GD_OK;
}
static void repeat_vjp(gd_vjp *v) {
    const gd_repeat_options *o = v->attrs;
    gd_shape dims = gd_tensor_shape(v->y[0]);
    gd_tensor *g = v->gy[0];
    if (gd_tensor_numel(v->x[0]) == 0) return; /* gradient is empty; repeats may be 0 or huge */
    int extra = o->repeats.rank - v->x[0]->rank;
    for (int d = 0; d < dims.rank; d++) { /* as (before, repeats, size, after): sum the repeats */
        if (o->repeats.at[d] == 1) continue;
        int64_t size = d < extra ? 1 : v->x[0]->dims[d - extra];
        int64_t before = gd_numel(d, dims.at), after = gd_numel(dims.rank - d - 1, dims.at + d + 1);
        dims.at[d] = size;
        g = gd_reshape(g, gd_dims(before, o->repeats.at[d], size, after));
        g = gd_reshape(gd_sum(g, .axis = 1), dims);
    }
    v->gx[0] = extra > 0 ? gd_reshape(g, gd_tensor_shape(v->x[0])) : g;
}
static void repeat_expand(gd_expansion *e) {
    const gd_repeat_options *o = e->attrs;
    const gd_tensor *x = e->x[0];
    const int extra = o->repeats.rank - x->rank;
    gd_shape dims = {.rank = o->repeats.rank, .form = 1};
    bool all_ones = true; /* all repeats are 1 */
    for (int d = 0; d < dims.rank; d++) {
        dims.at[d] = d < extra ? 1 : x->dims[d - extra];
        all_ones &= o->repeats.at[d] == 1;
    }
    gd_tensor *y = gd_reshape(e->x[0], dims);
    for (int d = dims.rank; d-- > 0;) { /* as (before, repeats, rest) */
        if (o->repeats.at[d] == 1) continue;
        const int64_t before = gd_numel(d, dims.at), rest = gd_numel(dims.rank - d, dims.at + d);
        dims.at[d] *= o->repeats.at[d];
        y = gd_expand(gd_reshape(y, gd_dims(before, 1, rest)),
                      gd_dims(before, o->repeats.at[d], rest));
        y = gd_reshape(y, dims);
    }
    e->y[0] = all_ones ? gd_clone(y) : gd_contiguous(y); /* must not be a view of x */
}
static gd_status repeat_raw(gd_kernel_call *k) {
    const gd_repeat_options *o = k->attrs;
    const gd_view *y = &k->out[0];
    gd_view x = k->in[0], done = *y; /* done: the filled corner of y */
    int extra = y->rank - x.rank;
    if (gd_numel(y->rank, y->dims) == 0) return GD_OK;
    for (int d = y->rank; d-- > 0;) { /* x with the new dimensions in front */
        x.dims[d] = d < extra ? 1 : x.dims[d - extra];
        x.strides[d] = d < extra ? 0 : x.strides[d - extra];
        done.dims[d] = x.dims[d];
    }
    x.rank = y->rank;
    gd_copy_elements(&done, &x);
    for (int d = y->rank; d-- > 0;)
        for (int64_t n = done.dims[d], total = n * o->repeats.at[d]; n < total; n = done.dims[d]) {
            gd_view next = done; /* a copy of the filled part, or of as much as fits */
            next.data = (char *)done.data + n * done.strides[d] * (int64_t)gd_dtype_size(y->dtype);
            next.dims[d] = total - n < n ? total - n : n;
            gd_copy_elements(&next, &done);
            done.dims[d] += next.dims[d];
        }
    return GD_OK;
}

/*op tile(x, repeats:int[]) -> y
 * As repeat, but there may be fewer repeats than dimensions; they apply to the last dimensions.
 *   python (x, *dims=repeats)
 */
static void tile_expand(gd_expansion *e) {
    const gd_tile_options *o = e->attrs;
    gd_shape repeats = o->repeats;
    int missing = e->x[0]->rank - repeats.rank;
    for (int d = repeats.rank; d-- > 0 && missing > 0;) repeats.at[d + missing] = repeats.at[d];
    for (int d = 0; d < missing; d++) repeats.at[d] = 1;
    if (missing > 0) repeats.rank += missing;
    e->y[0] = gd_repeat(e->x[0], repeats);
}

#include "ops/join/join.gen.h"
