/* index.c - gather, index_select, index_add, embedding and one_hot.
 *
 * A negative index, or one that is too large, is an error (GD_E_INDEX). Results are deterministic
 * where indices repeat: sums are formed in row-major order.
 */
#include "ops/index/index.h"

#include <stdio.h>
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"
#include "dispatch/problem.h"

/* --- shared ----------------------------------------------------------------------------------- */

gd_status gd_check_indices(const gd_view *index, int64_t size, const char *what) {
    int64_t total = gd_numel(index->rank, index->dims),
            width = (int64_t)gd_dtype_size(index->dtype);
    for (int64_t e = 0; e < total; e++) {
        int64_t at = 0, rest = e;
        for (int d = index->rank; d-- > 0; rest /= index->dims[d])
            at += rest % index->dims[d] * index->strides[d];
        int64_t i = gd_load_i64(index->dtype, (const char *)index->data + at * width);
        if (i >= 0 && i < size) continue;
        return gd_data_fail(
            &(gd_data_error){.problem = GD_DATA_INDEX, .element = e, .values = {i, size}},
            &(gd_data_operand){index->rank, index->dims, what});
    }
    return GD_OK;
}

gd_tensor *gd_scalar_on(const gd_tensor *like, double value, gd_dtype dtype) {
    gd_device *before = gd_this_thread.device;
    gd_this_thread.device = like->device;
    gd_tensor *scalar = gd_full(gd_dims(), value, .dtype = dtype);
    gd_this_thread.device = before;
    return scalar;
}

gd_tensor *gd_zeros_on(const gd_tensor *like, gd_dtype dtype, gd_shape dims) {
    return gd_expand(gd_scalar_on(like, 0, dtype), dims);
}

gd_tensor *gd_zeros_as(const gd_tensor *x) {
    return gd_zeros_on(x, (gd_dtype)x->dtype, gd_tensor_shape(x));
}

gd_status gd_check_index(const gd_tensor *x, const gd_tensor *index, int axis) {
    GD_TRY(gd_need_int(index, "index"));
    if (gd_numel(index->rank, index->dims) == 0) return GD_OK;
    if (gd_rank_1d(index) != gd_rank_1d(x))
        return gd_op_fail(GD_E_SHAPE, "'index' has %d dimensions, 'x' %d; they must be equal",
                          index->rank, x->rank);
    for (int d = 0; d < gd_rank_1d(x); d++)
        if (d != axis && gd_dim_1d(index, d) > gd_dim_1d(x, d))
            return gd_op_fail(GD_E_SHAPE, "'index' has size %lld in dimension %d, 'x' only %lld",
                              (long long)gd_dim_1d(index, d), d, (long long)gd_dim_1d(x, d));
    return GD_OK;
}

void gd_locate(int64_t number, const gd_view *index, int axis, int64_t *at, const gd_view *a,
               int64_t *at_a, const gd_view *b, int64_t *at_b) {
    *at = *at_a = 0;
    if (b) *at_b = 0;
    for (int d = index->rank; d-- > 0;) {
        int64_t i = number % index->dims[d];
        number /= index->dims[d];
        *at += i * index->strides[d];
        if (d != axis) *at_a += i * a->strides[d];
        if (b) *at_b += i * b->strides[d];
    }
}

gd_status gd_check_axis_indices(const gd_view *index, int64_t size, int axis) {
    char text[16];
    snprintf(text, sizeof text, "axis %d", axis);
    return gd_check_indices(index, size, text);
}

/* --- gather ----------------------------------------------------------------------------------- */

/*op gather(x, axis:int, index) -> y
 * Selects elements along an axis: y[i][j][k] = x[i][index[i][j][k]][k] for axis 1. y has the shape
 * of index.
 *   index index < x[axis]
 *   saves index
 *   onnx GatherElements
 */
static gd_status gather_infer(gd_infer *i) {
    const gd_gather_options *o = i->attrs;
    int axis;
    GD_TRY(gd_axis(o->axis, i->in[0]->rank, &axis));
    GD_TRY(gd_check_index(i->in[0], i->in[1], axis));
    gd_meta_like(&i->out[0], i->in[1]);
    i->out[0].dtype = (gd_dtype)i->in[0]->dtype;
    return GD_OK;
}
static void gather_vjp(gd_vjp *v) {
    const gd_gather_options *o = v->attrs;
    if (v->needs[0]) v->gx[0] = gd_scatter_add(gd_zeros_as(v->x[0]), o->axis, v->x[1], v->gy[0]);
}
static gd_status gather_raw(gd_kernel_call *k) {
    const gd_gather_options *o = k->attrs;
    gd_view x = gd_at_least_1d(k->in[0]), index = gd_at_least_1d(k->in[1]),
            y = gd_at_least_1d(k->out[0]);
    int axis = gd_wrap_axis(o->axis, x.rank);
    int64_t total = gd_numel(index.rank, index.dims), size = (int64_t)gd_dtype_size(x.dtype);
    int64_t width = (int64_t)gd_dtype_size(index.dtype);
    GD_TRY(gd_check_axis_indices(&k->in[1], x.dims[axis], axis));
    for (int64_t e = 0; e < total; e++) {
        int64_t at, from, to;
        gd_locate(e, &index, axis, &at, &x, &from, &y, &to);
        from += gd_load_i64(index.dtype, (const char *)index.data + at * width) * x.strides[axis];
        memcpy((char *)y.data + to * size, (const char *)x.data + from * size, (size_t)size);
    }
    return GD_OK;
}

/* --- slices by index -------------------------------------------------------------------------- */

static gd_status need_index_list(const gd_tensor *index) {
    GD_TRY(gd_need_int(index, "index"));
    if (index->rank > 1)
        return gd_op_fail(GD_E_SHAPE, "'index' must have 1 dimension, not %d", index->rank);
    return GD_OK;
}

/*op index_select(x, axis:int, index) -> y
 * The slices of x at the positions in index, which has rank 1, along the axis.
 *   index index < x[axis]
 *   saves index
 *   onnx Gather(x, index) axis=axis~0  when x:rank>0 index:rank=1 index:int saving  cast -i
 */
static gd_status index_select_infer(gd_infer *i) {
    const gd_index_select_options *o = i->attrs;
    const gd_tensor *x = i->in[0], *index = i->in[1];
    int axis;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    GD_TRY(need_index_list(index));
    int64_t n = gd_numel(index->rank, index->dims);
    if (x->rank == 0 && n != 1)
        return gd_op_fail(GD_E_SHAPE, "'x' of rank 0 takes one index, not %lld", (long long)n);
    gd_meta_like(&i->out[0], x);
    if (x->rank > 0) i->out[0].dims[axis] = n;
    return GD_OK;
}
static void index_select_vjp(gd_vjp *v) {
    const gd_index_select_options *o = v->attrs;
    if (v->needs[0]) v->gx[0] = gd_index_add(gd_zeros_as(v->x[0]), o->axis, v->x[1], v->gy[0]);
}
/* The indices, checked, along an axis of the rank of x, as gd_positions returns them. */
static gd_tensor *checked_slice_index(gd_tensor *index, const gd_tensor *x, int axis) {
    index = gd_checked_axis_index(index, gd_dim_1d(x, axis), axis);
    gd_shape dims = {.rank = gd_rank_1d(x), .form = 1};
    for (int d = 0; d < dims.rank; d++) dims.at[d] = d == axis ? gd_tensor_numel(index) : 1;
    return gd_reshape(index, dims);
}
static void index_select_expand(gd_expansion *e) {
    const gd_index_select_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    const int axis = gd_wrap_axis(o->axis, gd_rank_1d(x));
    gd_tensor *y = gd_take_positions(gd_as_list(x), axis, checked_slice_index(e->x[1], x, axis));
    e->y[0] = x->rank ? y : gd_reshape(y, gd_dims());
}
static gd_status index_select_raw(gd_kernel_call *k) {
    const gd_index_select_options *o = k->attrs;
    gd_view from = gd_at_least_1d(k->in[0]), to = gd_at_least_1d(k->out[0]),
            index = gd_at_least_1d(k->in[1]);
    int axis = gd_wrap_axis(o->axis, from.rank);
    int64_t size = (int64_t)gd_dtype_size(from.dtype), width = (int64_t)gd_dtype_size(index.dtype);
    char *x = from.data, *y = to.data;
    GD_TRY(gd_check_axis_indices(&k->in[1], from.dims[axis], axis));
    from.dims[axis] = to.dims[axis] = 1;
    for (int64_t n = 0; n < index.dims[0]; n++) {
        int64_t i =
            gd_load_i64(index.dtype, (const char *)index.data + n * index.strides[0] * width);
        from.data = x + i * from.strides[axis] * size;
        to.data = y + n * to.strides[axis] * size;
        gd_copy_elements(&to, &from);
    }
    return GD_OK;
}

/*op index_add(x, axis:int, index, src) -> y
 * x plus alpha * src, where slice i of src along the axis is added to slice index[i] of x.
 *   alpha float = 1
 *   index index < x[axis]
 *   saves index
 *   python (x, axis, index, source=src)
 */
static gd_status index_add_infer(gd_infer *i) {
    const gd_index_add_options *o = i->attrs;
    const gd_tensor *x = i->in[0], *index = i->in[1], *src = i->in[2];
    int axis;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    GD_TRY(need_index_list(index));
    GD_TRY(gd_need_same_dtype(x, src, "x", "src"));
    GD_TRY(gd_need_rank(src, "src", x->rank));
    for (int d = 0; d < x->rank; d++)
        if (d != axis && src->dims[d] != x->dims[d])
            return gd_op_fail(
                GD_E_SHAPE,
                "'src' has size %lld in dimension %d, 'x' %lld; only the axis may differ",
                (long long)src->dims[d], d, (long long)x->dims[d]);
    int64_t n = gd_numel(index->rank, index->dims);
    if (gd_dim_1d(src, axis) != n)
        return gd_op_fail(GD_E_SHAPE, "there are %lld indices for %lld slices of 'src'",
                          (long long)n, (long long)gd_dim_1d(src, axis));
    gd_meta_like(&i->out[0], x);
    return GD_OK;
}
static void index_add_vjp(gd_vjp *v) {
    const gd_index_add_options *o = v->attrs;
    if (v->needs[0]) v->gx[0] = v->gy[0];
    if (!v->needs[2]) return;
    v->gx[2] = gd_index_select(v->gy[0], o->axis, v->x[1]);
    if (o->alpha != 1)
        v->gx[2] = gd_mul(v->gx[2], gd_scalar_of(o->alpha, (gd_dtype)v->gy[0]->dtype));
}
static void index_add_expand(gd_expansion *e) {
    const gd_index_add_options *o = e->attrs;
    gd_tensor *x = gd_as_list(e->x[0]), *src = gd_as_list(e->x[2]);
    const gd_dtype dtype = (gd_dtype)x->dtype;
    const int axis = gd_wrap_axis(o->axis, x->rank);
    gd_tensor *index = gd_expand(checked_slice_index(e->x[1], x, axis), gd_tensor_shape(src));
    if (o->alpha != 1 && gd_dtype_is_float(dtype)) { /* round once, as the kernel does */
        x = gd_as_dtype(x, gd_wide_dtype(dtype));
        src = gd_affine(gd_as_dtype(src, gd_wide_dtype(dtype)), o->alpha, 0);
    } else if (o->alpha != 1) {
        src = gd_cast(gd_mul(src, gd_scalar_int((int64_t)o->alpha)), dtype);
    }
    gd_tensor *y = gd_as_dtype(gd_scatter_add(x, axis, index, src), dtype);
    e->y[0] = e->x[0]->rank ? y : gd_reshape(y, gd_dims());
}
static gd_status index_add_reference(gd_kernel_call *k) {
    const gd_index_add_options *o = k->attrs;
    gd_view x = gd_at_least_1d(k->in[0]), index = gd_at_least_1d(k->in[1]),
            src = gd_at_least_1d(k->in[2]);
    int axis = gd_wrap_axis(o->axis, x.rank);
    int64_t total = gd_numel(src.rank, src.dims);
    GD_TRY(gd_check_axis_indices(&k->in[1], x.dims[axis], axis));
    memcpy(k->out[0].data, x.data, (size_t)gd_numel(x.rank, x.dims) * 8);
    for (int64_t e = 0; e < total; e++) {
        int64_t to = 0, rest = e;
        for (int d = src.rank; d-- > 0;) {
            int64_t i = rest % src.dims[d];
            rest /= src.dims[d];
            to += (d == axis ? ((const int64_t *)index.data)[i] : i) * x.strides[d];
        }
        if (x.dtype == GD_F64)
            ((double *)k->out[0].data)[to] += o->alpha * ((const double *)src.data)[e];
        else
            ((uint64_t *)k->out[0].data)[to] +=
                (uint64_t)(int64_t)o->alpha * ((const uint64_t *)src.data)[e];
    }
    return GD_OK;
}

/*op embedding(x, weight) -> y
 * Rows of weight (rows, width) selected by x, indices of any shape: y has the shape of x, then
 * width.
 *   padding_idx int = none  the row that gets no gradient; a negative one counts from the end
 *   index x < weight[0]
 *   saves x
 *   onnx Gather
 *   python (x, weight, padding_idx)
 */
static gd_status embedding_infer(gd_infer *i) {
    const gd_embedding_options *o = i->attrs;
    const gd_tensor *x = i->in[0], *weight = i->in[1];
    GD_TRY(gd_need_int(x, "x"));
    GD_TRY(gd_need_rank(weight, "weight", 2));
    int64_t rows = weight->dims[0];
    if (o->padding_idx != GD_UNSET && (o->padding_idx < -rows || o->padding_idx >= rows))
        return gd_op_fail(GD_E_INDEX, "padding_idx %lld is out of range for %lld rows",
                          (long long)o->padding_idx, (long long)rows);
    if (x->rank == GD_MAX_RANK)
        return gd_op_fail(
            GD_E_SHAPE,
            "'x' has %d dimensions, and the result would have one more; at most %d are possible",
            x->rank, GD_MAX_RANK);
    gd_meta_like(&i->out[0], x);
    i->out[0].dtype = (gd_dtype)weight->dtype;
    i->out[0].dims[i->out[0].rank++] = weight->dims[1];
    return GD_OK;
}
static void embedding_vjp(gd_vjp *v) {
    const gd_embedding_options *o = v->attrs;
    if (!v->needs[1]) return;
    int64_t rows = v->x[1]->dims[0], width = v->x[1]->dims[1], n = gd_tensor_numel(v->x[0]);
    gd_tensor *index = gd_reshape(v->x[0], gd_dims(n)),
              *g = gd_reshape(v->gy[0], gd_dims(n, width));
    if (o->padding_idx != GD_UNSET) {
        int64_t row = o->padding_idx < 0 ? o->padding_idx + rows : o->padding_idx;
        g = gd_masked_fill(g, gd_reshape(gd_eq(index, gd_scalar_int(row)), gd_dims(n, 1)), 0);
    }
    v->gx[1] = gd_index_add(gd_zeros_as(v->x[1]), 0, index, g);
}
static void embedding_expand(gd_expansion *e) {
    const gd_embedding_options *o = e->attrs;
    gd_tensor *x = e->x[0], *weight = e->x[1];
    const int64_t rows = weight->dims[0];
    gd_shape dims = gd_tensor_shape(x);
    gd_tensor *index = gd_checked_index(x, rows, "a table");
    index = gd_reshape(index, gd_dims(gd_tensor_numel(x), 1));
    gd_tensor *y = gd_take_positions(weight, 0, index);
    if (o->padding_idx != GD_UNSET && gd_body_differentiates(e)) {
        const int64_t row = o->padding_idx < 0 ? o->padding_idx + rows : o->padding_idx;
        y = gd_where(gd_eq(index, gd_full_like(index, row)), gd_stop_gradient(y), y);
    }
    dims.at[dims.rank++] = weight->dims[1];
    e->y[0] = gd_reshape(y, dims);
}
static gd_status embedding_raw(gd_kernel_call *k) {
    const gd_view *x = &k->in[0], *weight = &k->in[1], *y = &k->out[0];
    int64_t n = gd_numel(x->rank, x->dims), width = (int64_t)gd_dtype_size(x->dtype),
            size = (int64_t)gd_dtype_size(y->dtype);
    GD_TRY(gd_check_indices(x, weight->dims[0], "a table"));
    for (int64_t e = 0; e < n; e++) {
        int64_t at, to, none;
        gd_locate(e, x, x->rank, &at, y, &to, x, &none);
        int64_t row = gd_load_i64(x->dtype, (const char *)x->data + at * width);
        gd_convert_row(y->dtype, (char *)y->data + to * size, y->strides[x->rank] * size,
                       weight->dtype, (const char *)weight->data + row * weight->strides[0] * size,
                       weight->strides[1] * size, weight->dims[1]);
    }
    return GD_OK;
}

/*op one_hot(x, classes:int) -> y  nograd
 * 1 at the index in x, 0 elsewhere: y has the shape of x, then classes. With classes = -1 the
 * number of classes is the largest element of x plus 1; then the size of y depends on the data, and
 * x may not be empty.
 *   dtype dtype = i64
 *   onnx OneHot
 *   python (x, num_classes=classes)
 */
static void one_hot_expand(gd_expansion *e) {
    const gd_one_hot_options *o = e->attrs;
    e->y[0] = o->classes == -1 ? gd_one_hot_found(e->x[0], .dtype = o->dtype)
                               : gd_one_hot_classes(e->x[0], o->classes, .dtype = o->dtype);
}

static gd_status check_one_hot(const gd_tensor *x, gd_dtype dtype) {
    GD_TRY(gd_need_int(x, "x"));
    if (gd_dtype_size(dtype) == 0) return gd_op_fail(GD_E_DTYPE, "there is no such dtype");
    if (x->rank == GD_MAX_RANK)
        return gd_op_fail(
            GD_E_SHAPE,
            "'x' has %d dimensions, and the result would have one more; at most %d are possible",
            x->rank, GD_MAX_RANK);
    return GD_OK;
}

/* Writes y, all of whose elements are 0 or 1. All elements of x are valid classes. */
static void write_one_hot(const gd_view *x, const gd_view *y) {
    int64_t n = gd_numel(x->rank, x->dims), width = (int64_t)gd_dtype_size(x->dtype),
            size = (int64_t)gd_dtype_size(y->dtype);
    static const int64_t zero;
    gd_view zeros = *y;
    zeros.data = (void *)(uintptr_t)&zero;
    memset(zeros.strides, 0, sizeof zeros.strides);
    gd_copy_elements(y, &zeros);
    for (int64_t e = 0; e < n; e++) {
        int64_t at, to, none;
        gd_locate(e, x, x->rank, &at, y, &to, x, &none);
        to += gd_load_i64(x->dtype, (const char *)x->data + at * width) * y->strides[x->rank];
        gd_store_i64(y->dtype, (char *)y->data + to * size, 1);
    }
}

/*op one_hot_classes(x, classes:int) -> y  nograd internal
 * one_hot with a given number of classes.
 *   dtype dtype = i64
 *   index x < classes
 */
static gd_status one_hot_classes_infer(gd_infer *i) {
    const gd_one_hot_classes_options *o = i->attrs;
    GD_TRY(check_one_hot(i->in[0], o->dtype));
    if (o->classes < 1)
        return gd_op_fail(GD_E_ARGUMENT,
                          "classes is %lld; it must be at least 1, or -1 for as many as x needs",
                          (long long)o->classes);
    gd_meta_like(&i->out[0], i->in[0]);
    i->out[0].dtype = o->dtype;
    i->out[0].dims[i->out[0].rank++] = o->classes;
    return GD_OK;
}
static void one_hot_classes_expand(gd_expansion *e) {
    const gd_one_hot_classes_options *o = e->attrs;
    gd_tensor *x = gd_checked_index(e->x[0], o->classes, "a list of classes");
    e->y[0] =
        gd_as_dtype(gd_eq(gd_unsqueeze(x, -1), gd_positions(1, 0, 0, o->classes, 1)), o->dtype);
}
static gd_status one_hot_classes_raw(gd_kernel_call *k) {
    const gd_one_hot_classes_options *o = k->attrs;
    GD_TRY(gd_check_indices(&k->in[0], o->classes, "a list of classes"));
    write_one_hot(&k->in[0], &k->out[0]);
    return GD_OK;
}

/*op one_hot_found(x) -> y  nograd dynamic internal
 * one_hot with as many classes as x needs.
 *   dtype dtype = i64
 */
static gd_status one_hot_found_infer(gd_infer *i) {
    const gd_one_hot_found_options *o = i->attrs;
    GD_TRY(check_one_hot(i->in[0], o->dtype));
    gd_meta_like(&i->out[0], i->in[0]);
    i->out[0].dtype = o->dtype;
    i->out[0].dims[i->out[0].rank++] = GD_UNKNOWN;
    return GD_OK;
}
static gd_status one_hot_found_raw(gd_kernel_call *k) {
    const gd_view *x = &k->in[0];
    int64_t n = gd_numel(x->rank, x->dims), width = (int64_t)gd_dtype_size(x->dtype),
            dims[GD_MAX_RANK], most = -1;
    if (n == 0) return gd_op_fail(GD_E_SHAPE, "'x' is empty, so the number of classes is unknown");
    for (int64_t e = 0; e < n; e++) {
        int64_t at, none;
        gd_locate(e, x, x->rank, &at, x, &none, NULL, NULL);
        int64_t i = gd_load_i64(x->dtype, (const char *)x->data + at * width);
        most = i > most ? i : most;
    }
    if (most == INT64_MAX)
        return gd_op_fail(GD_E_OVERFLOW, "class %lld in 'x' is too large", (long long)most);
    GD_TRY(gd_check_indices(x, most + 1, "a list of classes")); /* fails for negative ones */
    memcpy(dims, x->dims, sizeof dims);
    dims[x->rank] = most + 1;
    GD_TRY(gd_kernel_output(k, 0, x->rank + 1, dims));
    write_one_hot(x, &k->out[0]);
    return GD_OK;
}

#include "ops/index/index.gen.h"
