/* index_mask.c - ops that select or replace elements by a mask, a bool tensor; and nonzero. */
#include <math.h>
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "ops/index/index.h"
#include "dispatch/infer.h"
#include "dispatch/problem.h"

static gd_status need_mask(const gd_tensor *mask) {
    if (mask->dtype == GD_BOOL) return GD_OK;
    return gd_op_fail(GD_E_DTYPE, "'mask' must be bool, not %s",
                      gd_dtype_name((gd_dtype)mask->dtype));
}

/* An iterator over the elements of a shape in row-major order. walk_offset gives the offset of the
 * current element in a tensor that broadcasts to the shape. */
typedef struct {
    int rank;
    int64_t dims[GD_MAX_RANK], index[GD_MAX_RANK];
} shape_walk;

static shape_walk walk_over(int rank, const int64_t *dims) {
    shape_walk w = {.rank = rank};
    memcpy(w.dims, dims, sizeof(int64_t) * (size_t)rank);
    return w;
}

static int64_t walk_offset(const shape_walk *w, const gd_view *v) {
    int64_t at = 0;
    for (int d = 0; d < v->rank; d++)
        if (v->dims[d] != 1) at += w->index[w->rank - v->rank + d] * v->strides[d];
    return at;
}

static void walk_next(shape_walk *w) {
    for (int d = w->rank; d-- > 0;) {
        if (++w->index[d] < w->dims[d]) return;
        w->index[d] = 0;
    }
}

static void broadcast_views(const gd_view *a, const gd_view *b, int *rank, int64_t *dims) {
    *rank = a->rank > b->rank ? a->rank : b->rank;
    for (int d = 0; d < *rank; d++) {
        int i = d - (*rank - a->rank), j = d - (*rank - b->rank);
        dims[d] = i >= 0 && a->dims[i] != 1 ? a->dims[i] : j >= 0 ? b->dims[j] : 1;
    }
}

static bool is_set(const gd_view *mask, int64_t at) {
    return ((const uint8_t *)mask->data)[at] != 0;
}

/* --- masked_fill ------------------------------------------------------------------------------ */

/*op masked_fill(x, mask, value:number) -> y  elementwise inplace
 * value where the mask is true, x elsewhere. For an integer x the fraction of value is dropped. A
 * value outside the range of x's dtype is an error.
 *   y  = mask ? value : x
 *   gx = mask ? 0 : gy
 *   gmask = 0
 */
static gd_status masked_fill_infer(gd_infer *i) {
    const gd_masked_fill_options *o = i->attrs;
    gd_dtype dtype = (gd_dtype)i->in[0]->dtype;
    GD_TRY(need_mask(i->in[1]));
    GD_TRY(gd_infer_elementwise(i));
    if (!gd_dtype_is_float(dtype)) i->out[0].dtype = dtype; /* even if value has a fraction */
    if (dtype == GD_BOOL && o->value.value != 0 && !(fabs(o->value.value) >= 1))
        return gd_op_fail(GD_E_ARGUMENT, "the value %g is neither true nor false; give 1 or 0",
                          o->value.value);
    return gd_need_fits(o->value, dtype);
}

/* --- masked_select ---------------------------------------------------------------------------- */

/*op masked_select(x, mask) -> y  dynamic
 * The elements of x where the mask is true, in row-major order, as a vector. x and mask broadcast.
 *   saves mask
 */
static gd_status masked_select_infer(gd_infer *i) {
    int rank;
    int64_t dims[GD_MAX_RANK];
    GD_TRY(need_mask(i->in[1]));
    GD_TRY(gd_broadcast_dims(i->in, 2, &rank, dims));
    i->out[0].rank = 1;
    i->out[0].dims[0] = GD_UNKNOWN;
    return GD_OK;
}
static void masked_select_vjp(gd_vjp *v) {
    gd_shape dims = {.form = 1};
    if (!v->needs[0] || gd_broadcast_dims(v->x, 2, &dims.rank, dims.at) != GD_OK) return;
    v->gx[0] = gd_masked_scatter(gd_zeros_on(v->gy[0], (gd_dtype)v->gy[0]->dtype, dims), v->x[1],
                                 v->gy[0]);
}
/* x broadcast to dims, then flattened to a vector. */
static gd_tensor *expand_flat(gd_tensor *x, gd_shape dims) {
    return gd_reshape(gd_expand(x, dims), gd_dims(gd_numel(dims.rank, dims.at)));
}
static void masked_select_expand(gd_expansion *e) {
    gd_shape dims = {.form = 1};
    if (gd_broadcast_dims(e->x, 2, &dims.rank, dims.at) != GD_OK) return;
    gd_tensor *index = gd_squeeze(gd_nonzero(expand_flat(e->x[1], dims)), .axis = gd_dims(1));
    e->y[0] = gd_gather(expand_flat(e->x[0], dims), 0, index);
}
static gd_status masked_select_raw(gd_kernel_call *k) {
    const gd_view *x = &k->in[0], *mask = &k->in[1];
    int rank;
    int64_t dims[GD_MAX_RANK], n = 0, size = (int64_t)gd_dtype_size(x->dtype);
    broadcast_views(x, mask, &rank, dims);
    shape_walk w = walk_over(rank, dims);
    for (int64_t e = gd_numel(rank, dims); e-- > 0; walk_next(&w))
        n += is_set(mask, walk_offset(&w, mask));
    GD_TRY(gd_kernel_output(k, 0, 1, &n));
    char *y = k->out[0].data;
    w = walk_over(rank, dims);
    for (int64_t e = gd_numel(rank, dims); e-- > 0; walk_next(&w)) {
        if (!is_set(mask, walk_offset(&w, mask))) continue;
        memcpy(y, (const char *)x->data + walk_offset(&w, x) * size, (size_t)size);
        y += size;
    }
    return GD_OK;
}

/* --- masked_scatter --------------------------------------------------------------------------- */

/*op masked_scatter(x, mask, src) -> y  fallible
 * x, with its elements where the mask is true replaced by those of src in row-major order. x and
 * mask broadcast. src needs at least as many elements as the mask has true ones.
 *   saves mask
 *   python (x, mask, source=src)
 */
static gd_status masked_scatter_infer(gd_infer *i) {
    gd_meta *y = &i->out[0];
    GD_TRY(need_mask(i->in[1]));
    GD_TRY(gd_need_same_dtype(i->in[0], i->in[2], "x", "src"));
    return gd_broadcast_dims(i->in, 2, &y->rank, y->dims);
}
static void masked_scatter_vjp(gd_vjp *v) {
    if (v->needs[0]) v->gx[0] = gd_masked_fill(v->gy[0], v->x[1], 0);
    if (v->needs[2]) v->gx[2] = gd_masked_scatter_grad(v->gy[0], v->x[1], gd_tensor_shape(v->x[2]));
}
/* The number of true elements of a flat mask up to and including each element; *total of all. */
static gd_tensor *true_counts(gd_tensor *mask, gd_tensor **total) {
    *total = gd_sum(mask);
    return gd_cumsum(mask, 0);
}
/*op nth_element(count, total) -> y  elementwise integral internal
 * The index of the count-th of `total` elements, clamped to 0 .. total - 1; 0 if total is 0.
 *   y = max(min(count, total) - 1, 0)
 */
static void masked_scatter_expand(gd_expansion *e) {
    gd_tensor *x = e->x[0], *mask = e->x[1], *total;
    const int64_t given = gd_tensor_numel(e->x[2]);
    gd_shape dims = {.form = 1};
    if (gd_broadcast_dims(e->x, 2, &dims.rank, dims.at) != GD_OK) return;
    gd_tensor *count = true_counts(expand_flat(mask, dims), &total);
    total = gd_check_range(total, 0, given, .what = "mask");
    if (given == 0) { /* the mask is false everywhere */
        e->y[0] = gd_masked_fill(gd_expand(x, dims), gd_cast(total, GD_BOOL), 0);
        return;
    }
    gd_tensor *src = gd_reshape(e->x[2], gd_dims(given));
    gd_tensor *placed = gd_reshape(gd_gather(src, 0, gd_nth_element(count, total)), dims);
    e->y[0] = gd_where(mask, placed, x);
}
static gd_status masked_scatter_raw(gd_kernel_call *k) {
    const gd_view *x = &k->in[0], *mask = &k->in[1], *src = &k->in[2], *y = &k->out[0];
    int64_t size = (int64_t)gd_dtype_size(y->dtype), total = gd_numel(y->rank, y->dims);
    int64_t given = gd_numel(src->rank, src->dims), taken = 0;
    shape_walk w = walk_over(y->rank, y->dims), s = walk_over(src->rank, src->dims);
    gd_view wide = *y; /* x broadcast to the shape of y */
    wide.data = x->data;
    for (int d = 0; d < y->rank; d++) {
        int i = d - (y->rank - x->rank);
        wide.strides[d] = i < 0 || x->dims[i] == 1 ? 0 : x->strides[i];
    }
    gd_copy_elements(y, &wide);
    for (int64_t e = 0; e < total; e++, walk_next(&w)) {
        if (!is_set(mask, walk_offset(&w, mask))) continue;
        if (taken++ < given) {
            memcpy((char *)y->data + walk_offset(&w, y) * size,
                   (const char *)src->data + walk_offset(&s, src) * size, (size_t)size);
            walk_next(&s);
        }
    }
    if (taken > given)
        return gd_data_fail(&(gd_data_error){.problem = GD_DATA_TOO_FEW, .values = {taken, given}},
                            &(gd_data_operand){mask->rank, mask->dims, NULL});
    return GD_OK;
}

/*op masked_scatter_grad(gy, mask, dims:int[]) -> gsrc  internal
 * The elements of gy where the mask is true, in row-major order, in a tensor of shape dims with
 * zeros after them: the gradient of masked_scatter by src.
 *   saves mask
 */
static gd_status masked_scatter_grad_infer(gd_infer *i) {
    const gd_masked_scatter_grad_options *o = i->attrs;
    int rank;
    int64_t dims[GD_MAX_RANK];
    GD_TRY(need_mask(i->in[1]));
    GD_TRY(gd_broadcast_dims(i->in, 2, &rank, dims));
    if (rank != i->in[0]->rank || memcmp(dims, i->in[0]->dims, (size_t)rank * sizeof *dims) != 0)
        return gd_op_fail(GD_E_SHAPE, "'mask' must broadcast to the shape of 'gy'");
    for (int d = 0; d < o->dims.rank; d++)
        if (o->dims.at[d] < 0)
            return gd_op_fail(GD_E_ARGUMENT, "dims has a negative size, %lld",
                              (long long)o->dims.at[d]);
    i->out[0].rank = o->dims.rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof o->dims.at);
    return GD_OK;
}
static void masked_scatter_grad_vjp(gd_vjp *v) {
    gd_tensor *zeros = gd_zeros_on(v->gy[0], (gd_dtype)v->gy[0]->dtype, gd_tensor_shape(v->x[0]));
    v->gx[0] = gd_masked_scatter(zeros, v->x[1], v->gy[0]);
}
/*op nth_or_size(count, mask, room:int) -> y  elementwise integral internal
 * The index of the count-th true element, if the mask is true and it is below `room`; else `room`.
 *   y = mask && count <= room ? count - 1 : room
 */
static void masked_scatter_grad_expand(gd_expansion *e) {
    const gd_masked_scatter_grad_options *o = e->attrs;
    const int64_t room = gd_numel(o->dims.rank, o->dims.at);
    gd_shape dims = gd_tensor_shape(e->x[0]);
    gd_tensor *gy = expand_flat(e->x[0], dims), *mask = expand_flat(e->x[1], dims);
    gd_tensor *index = gd_nth_or_size(gd_cumsum(mask, 0), mask, room);
    /* one element more than the result: all elements that are not selected are added there */
    gd_tensor *flat = gd_full(gd_dims(room + 1), 0, .dtype = (gd_dtype)gy->dtype);
    flat = gd_scatter_add(flat, 0, index, gd_masked_fill(gy, gd_logical_not(mask), 0));
    e->y[0] = gd_reshape(gd_narrow(flat, 0, 0, room), o->dims);
}
static gd_status masked_scatter_grad_raw(gd_kernel_call *k) {
    const gd_view *gy = &k->in[0], *mask = &k->in[1], *gsrc = &k->out[0];
    int64_t size = (int64_t)gd_dtype_size(gsrc->dtype), total = gd_numel(gy->rank, gy->dims);
    int64_t room = gd_numel(gsrc->rank, gsrc->dims), at = 0;
    shape_walk w = walk_over(gy->rank, gy->dims), s = walk_over(gsrc->rank, gsrc->dims);
    for (int64_t e = 0; e < total && at < room; e++, walk_next(&w)) {
        if (!is_set(mask, walk_offset(&w, mask))) continue;
        memcpy((char *)gsrc->data + walk_offset(&s, gsrc) * size,
               (const char *)gy->data + walk_offset(&w, gy) * size, (size_t)size);
        walk_next(&s);
        at++;
    }
    for (; at < room; at++, walk_next(&s))
        memset((char *)gsrc->data + walk_offset(&s, gsrc) * size, 0, (size_t)size);
    return GD_OK;
}

/* --- nonzero ---------------------------------------------------------------------------------- */

/*op nonzero(x) -> y  dynamic nograd
 * The indices of the elements that are not zero, in row-major order: y (count, rank of x), i64.
 *   onnx NonZero
 */
static gd_status nonzero_infer(gd_infer *i) {
    i->out[0].dtype = GD_I64;
    i->out[0].rank = 2;
    i->out[0].dims[0] = GD_UNKNOWN;
    i->out[0].dims[1] = i->in[0]->rank;
    return GD_OK;
}
static bool is_nonzero(const gd_view *x, int64_t at) {
    const char *p = (const char *)x->data + at * (int64_t)gd_dtype_size(x->dtype);
    return gd_dtype_is_float(x->dtype) ? gd_load_f64(x->dtype, p) != 0
                                       : gd_load_i64(x->dtype, p) != 0;
}
static gd_status nonzero_raw(gd_kernel_call *k) {
    const gd_view *x = &k->in[0];
    int64_t total = gd_numel(x->rank, x->dims), n = 0;
    shape_walk w = walk_over(x->rank, x->dims);
    for (int64_t e = 0; e < total; e++, walk_next(&w)) n += is_nonzero(x, walk_offset(&w, x));
    GD_TRY(gd_kernel_output(k, 0, 2, (int64_t[]){n, x->rank}));
    int64_t *y = k->out[0].data;
    w = walk_over(x->rank, x->dims);
    for (int64_t e = 0; e < total; e++, walk_next(&w)) {
        if (!is_nonzero(x, walk_offset(&w, x))) continue;
        memcpy(y, w.index, sizeof(int64_t) * (size_t)x->rank);
        y += x->rank;
    }
    return GD_OK;
}

#include "ops/index/index_mask.gen.h"
