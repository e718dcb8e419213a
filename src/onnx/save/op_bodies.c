/* op_bodies.c - bodies for saving: ops expressed in other ops, where ONNX has no operator for the
 * op, or one with fewer options. A body that sets no output does not apply to the call. */
#include <math.h>
#include <string.h>

#include "gradus/ops.h"
#include "onnx/save/save.h"
#include "dispatch/call.h"
#include "dispatch/infer.h"
#include "ops/windows/windows_spatial.h"

void gd_onnx_transpose_body(gd_expansion *e) {
    const gd_transpose_options *o = e->attrs;
    gd_shape axes = {.rank = e->x[0]->rank, .form = 1};
    for (int i = 0; i < axes.rank; i++) axes.at[i] = i;
    if (axes.rank > 0) {
        const int a = gd_onnx_nonnegative_axis(o->axis0, axes.rank),
                  b = gd_onnx_nonnegative_axis(o->axis1, axes.rank);
        axes.at[a] = b;
        axes.at[b] = a;
    }
    e->y[0] = gd_permute(e->x[0], axes);
}

void gd_onnx_movedim_body(gd_expansion *e) {
    const gd_movedim_options *o = e->attrs;
    const int rank = e->x[0]->rank;
    gd_shape axes = {.rank = rank, .form = 1};
    bool moved[GD_MAX_RANK] = {false}, filled[GD_MAX_RANK] = {false};
    for (int k = 0; k < o->source.rank; k++) {
        const int from = gd_onnx_nonnegative_axis(o->source.at[k], rank),
                  to = gd_onnx_nonnegative_axis(o->destination.at[k], rank);
        axes.at[to] = from;
        moved[from] = filled[to] = true;
    }
    for (int to = 0, from = 0; to < rank; to++) {
        if (filled[to]) continue;
        while (moved[from]) from++;
        axes.at[to] = from++;
    }
    e->y[0] = gd_permute(e->x[0], axes);
}

void gd_onnx_narrow_body(gd_expansion *e) {
    const gd_narrow_options *o = e->attrs;
    const int64_t stop = o->start < 0 && o->start + o->length == 0 ? GD_END : o->start + o->length;
    e->y[0] = gd_slice(e->x[0], .axis = o->axis, .start = o->start, .stop = stop);
}

void gd_onnx_unbind_body(gd_expansion *e) {
    const gd_unbind_options *o = e->attrs;
    const gd_tensors parts = gd_split(e->x[0], gd_dims(1), .axis = o->axis);
    for (int k = 0; k < e->n_out && k < parts.count; k++)
        e->y[k] = gd_squeeze(parts.at[k], .axis = gd_dims(o->axis));
}

/* The position of each row of x (..., R, C) along axis -2, from 1: (..., R, 1). A sum of ones, so
 * that the nodes do not depend on the size. */
static gd_tensor *row_numbers(gd_tensor *x) {
    return gd_cumsum(gd_full_like(gd_narrow(x, -1, 0, 1), 1, .dtype = GD_I64), -2);
}

/* Causal attention with the causal mask as a tensor. */
void gd_onnx_causal_body(gd_expansion *e) {
    const gd_attention_forward_options *o = e->attrs;
    gd_tensor *q = e->x[0], *k = e->x[1], *mask = gd_optional_input(e->x, e->n_in, 3);
    if (q->dims[q->rank - 1] < 1 || gd_optional_input(e->x, e->n_in, 4)) return;
    gd_tensor *shared = o->grouped && k->rank > 2 ? gd_narrow(k, -3, 0, 1) : k; /* fewer heads */
    gd_tensor *seen = gd_ge(row_numbers(q), gd_transpose(row_numbers(shared), -2, -1));
    if (mask && mask->dtype == GD_BOOL) seen = gd_logical_and(seen, mask);
    else if (mask) seen = gd_where(seen, mask, gd_scalar_of(-INFINITY, (gd_dtype)mask->dtype));
    e->y[0] =
        gd_attention_forward(q, k, e->x[2], .mask = seen, .scale = o->scale, .grouped = o->grouped);
}

/* Gathers all windows. */
void gd_onnx_windows_body(gd_expansion *e) {
    const gd_windows_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    const int axis = gd_onnx_nonnegative_axis(o->axis, x->rank);
    const int64_t span = (o->size - 1) * o->dilation + 1;
    const int64_t count = x->dims[axis] < span ? 0 : (x->dims[axis] - span) / o->step + 1;
    gd_tensor *at = gd_add(gd_mul(gd_positions(2, 0, 0, count, 1), gd_scalar_int(o->step)),
                           gd_mul(gd_positions(1, 0, 0, o->size, 1), gd_scalar_int(o->dilation)));
    gd_tensor *y = gd_index_select(x, axis, gd_reshape(at, gd_dims(count * o->size)));
    y = gd_split_axis(y, axis, count, o->size);
    e->y[0] = gd_movedim(y, gd_dims(axis + 1), gd_dims(-1));
}

void gd_onnx_stack_body(gd_expansion *e) {
    const gd_stack_options *o = e->attrs;
    gd_tensor *parts[GD_MAX_RANK * 16];
    const int max_parts = (int)(sizeof parts / sizeof *parts);
    for (int i = 0; i < e->n_in && i < max_parts; i++) parts[i] = gd_unsqueeze(e->x[i], o->axis);
    if (e->n_in <= max_parts) e->y[0] = gd_cat(((gd_tensors){parts, e->n_in}), .axis = o->axis);
}

void gd_onnx_flip_body(gd_expansion *e) {
    const gd_flip_options *o = e->attrs;
    e->y[0] = gd_clone(e->x[0]);
    for (int k = 0; k < o->axes.rank; k++)
        e->y[0] = gd_slice(e->y[0], .axis = o->axes.at[k], .step = -1);
}

void gd_onnx_flatten_body(gd_expansion *e) {
    const gd_flatten_options *o = e->attrs;
    const gd_tensor *x = e->x[0];
    const int rank = x->rank ? x->rank : 1, first = gd_onnx_nonnegative_axis(o->start_axis, rank),
              last = gd_onnx_nonnegative_axis(o->end_axis, rank);
    gd_shape dims = {.form = 1};
    for (int i = 0; i < first; i++) dims.at[dims.rank++] = x->dims[i];
    dims.at[dims.rank++] = -1;
    for (int i = last + 1; i < x->rank; i++) dims.at[dims.rank++] = x->dims[i];
    e->y[0] = gd_reshape(e->x[0], dims);
}

/* Only the axes of size 1: ONNX's Squeeze fails for others. */
void gd_onnx_squeeze_body(gd_expansion *e) {
    const gd_squeeze_options *o = e->attrs;
    const gd_tensor *x = e->x[0];
    gd_shape axes = {.form = 1};
    uint32_t mask;
    if (gd_axes_mask(&o->axis, x->rank, &mask) != GD_OK) return;
    for (int i = 0; i < x->rank; i++)
        if ((mask >> i & 1) && x->dims[i] == 1) axes.at[axes.rank++] = i;
    e->y[0] = axes.rank ? gd_squeeze(e->x[0], .axis = axes) : e->x[0];
}

void gd_onnx_argmax_body(gd_expansion *e) {
    const gd_argmax_options *o = e->attrs;
    if (o->axis == GD_UNSET && !o->keepdim)
        e->y[0] = gd_argmax(gd_reshape(e->x[0], gd_dims(-1)), .axis = 0);
}

void gd_onnx_argmin_body(gd_expansion *e) {
    const gd_argmin_options *o = e->attrs;
    if (o->axis == GD_UNSET && !o->keepdim)
        e->y[0] = gd_argmin(gd_reshape(e->x[0], gd_dims(-1)), .axis = 0);
}

/* Adaptive pooling along one axis of size `from`, with `to` windows as in PyTorch. Pooling one axis
 * after the other gives the same result, since all windows of an output have the same size. */
enum { MAX_WINDOWS = 64 };
static gd_tensor *pool_axis(gd_tensor *x, int axis, int64_t from, int64_t to, bool max) {
    gd_tensor *parts[MAX_WINDOWS];
    if (to == from) return x;
    for (int64_t i = 0; i < to && to <= MAX_WINDOWS; i++) {
        const int64_t start = i * from / to, end = ((i + 1) * from + to - 1) / to;
        gd_tensor *window = to == 1 ? x : gd_narrow(x, axis, start, end - start);
        parts[i] = max ? gd_max(window, .axis = axis, .keepdim = true)
                       : gd_mean(window, .axis = axis, .keepdim = true);
    }
    return to == 1 ? parts[0] : gd_cat(((gd_tensors){parts, to}), .axis = axis);
}

void gd_onnx_adaptive_body(gd_expansion *e) {
    gd_tensor *y = e->x[0];
    int64_t size[GD_MAX_RANK];
    const int n = gd_onnx_option_numbers(gd_onnx_find_option(e->op, "size"), e->attrs, size);
    const bool max = strstr(e->op->name, "max") != NULL;
    for (int d = 0; d < n; d++) {
        const int axis = e->x[0]->rank - n + d;
        if (size[d] > MAX_WINDOWS || size[d] == 0) return;
        if (size[d] > 0) y = pool_axis(y, axis, e->x[0]->dims[axis], size[d], max);
    }
    e->y[0] = y;
}

/* Whether a remainder r is not 0 and has another sign than b. */
static gd_tensor *has_other_sign(gd_tensor *r, gd_tensor *b) {
    gd_tensor *zero = gd_scalar_of(0, (gd_dtype)r->dtype);
    return gd_logical_and(gd_ne(r, zero), gd_ne(gd_lt(r, zero), gd_lt(b, zero)));
}

void gd_onnx_remainder_body(gd_expansion *e) {
    gd_tensor *b = e->x[1], *r = gd_fmod(e->x[0], b);
    e->y[0] = gd_where(has_other_sign(r, b), gd_add(r, b), r);
}

/* Not floor(a / b): the quotient may be rounded up to an integer. */
void gd_onnx_floor_divide_body(gd_expansion *e) {
    gd_tensor *a = e->x[0], *b = e->x[1], *r = gd_fmod(a, b), *q = gd_div(gd_sub(a, r), b);
    q = gd_where(has_other_sign(r, b), gd_sub(q, gd_scalar_of(1, (gd_dtype)q->dtype)), q);
    e->y[0] = gd_where(gd_eq(b, gd_scalar_of(0, (gd_dtype)b->dtype)), gd_div(a, b), gd_round(q));
}

/* Ignores empty tensors of another rank, as PyTorch does. */
void gd_onnx_cat_body(gd_expansion *e) {
    const gd_cat_options *o = e->attrs;
    gd_tensor *parts[GD_MAX_VARIADIC];
    int n = 0, rank = 1;
    for (int i = 0; i < e->n_in; i++)
        if (e->x[i]->rank > rank) rank = e->x[i]->rank;
    for (int i = 0; i < e->n_in && n < GD_MAX_VARIADIC; i++)
        if (e->x[i]->rank == rank) parts[n++] = e->x[i];
    e->y[0] = gd_cat(((gd_tensors){parts, n}), .axis = o->axis);
}

/* Broadcasts an index along an axis to the shape of src. */
static gd_tensor *broadcast_index(gd_tensor *index, gd_tensor *src, int axis) {
    gd_shape dims = {.rank = src->rank, .form = 1};
    for (int d = 0; d < dims.rank; d++) dims.at[d] = d == axis ? -1 : 1;
    return gd_add(gd_reshape(gd_cast(index, GD_I64), dims), gd_zeros_like(src, .dtype = GD_I64));
}

void gd_onnx_index_add_body(gd_expansion *e) {
    const gd_index_add_options *o = e->attrs;
    gd_tensor *x = e->x[0], *src = e->x[2];
    if (x->rank == 0 || src->rank != x->rank) return;
    const int axis = gd_onnx_nonnegative_axis(o->axis, x->rank);
    gd_tensor *index = broadcast_index(e->x[1], src, axis);
    if (o->alpha != 1) src = gd_mul(src, gd_scalar_of(o->alpha, (gd_dtype)src->dtype));
    e->y[0] = gd_scatter_add(x, axis, index, src);
}

/* The diagonal of matrices (R, C) is every (C + 1)-th element of the flattened matrices. */
void gd_onnx_diagonal_body(gd_expansion *e) {
    const gd_diagonal_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    const int a = gd_onnx_nonnegative_axis(o->axis1, x->rank),
              b = gd_onnx_nonnegative_axis(o->axis2, x->rank);
    const int64_t rows = x->dims[a], columns = x->dims[b];
    if (rows == GD_UNKNOWN || columns == GD_UNKNOWN) return;
    const int64_t row = o->offset < 0 ? -o->offset : 0, column = o->offset > 0 ? o->offset : 0;
    const int64_t down = rows - row, right = columns - column;
    const int64_t length = down < right ? down : right;
    gd_shape dims = {.form = 1};
    for (int d = 0; d < x->rank; d++)
        if (d != a && d != b) dims.at[dims.rank++] = x->dims[d];
    int unknown = 0;
    for (int d = 0; d < dims.rank; d++) unknown += dims.at[d] == GD_UNKNOWN;
    if (unknown > 1) return;
    dims.at[dims.rank++] = rows * columns;
    x = gd_reshape(gd_movedim(x, gd_dims(a, b), gd_dims(-2, -1)), dims);
    const int64_t start = row * columns + column, n = length > 0 ? length : 0;
    gd_tensor *indices = gd_add(gd_mul(gd_arange(0, (double)n, .dtype = GD_I64),
                                       gd_scalar_of((double)(columns + 1), GD_I64)),
                                gd_scalar_of((double)start, GD_I64));
    e->y[0] = gd_index_select(x, -1, indices);
}

/* Selects by the indices of the true elements of the mask. */
void gd_onnx_masked_select_body(gd_expansion *e) {
    gd_tensor *x = e->x[0], *mask = e->x[1];
    gd_tensor *values = gd_where(mask, x, x), /* both broadcast */
        *selected = gd_logical_and(mask, gd_ones_like(values, .dtype = GD_BOOL));
    gd_tensor *indices = gd_nonzero(gd_reshape(selected, gd_dims(-1)));
    e->y[0] = gd_index_select(gd_reshape(values, gd_dims(-1)), 0, gd_reshape(indices, gd_dims(-1)));
}
