/* index_axes.c - ops that index several axes by tensors at once. gd_index and gd_index_put
 * (gradus/index.h) call these ops and slices.
 */
#include "ops/index/index_axes.h"

#include <stdio.h>
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "ops/index/index.h"
#include "dispatch/infer.h"
#include "dispatch/intern.h"
#include "dispatch/problem.h"

/* --- shared ----------------------------------------------------------------------------------- */

gd_status gd_axes_layout_of(const gd_shape *axes, int rank, gd_axes_layout *l) {
    *l = (gd_axes_layout){.rank = rank, .n = axes->rank};
    if (axes->rank < 1) return gd_op_fail(GD_E_ARGUMENT, "'axes' is empty; name at least one axis");
    for (int k = 0; k < axes->rank; k++) {
        GD_TRY(gd_axis(axes->at[k], rank, &l->axes[k]));
        if (k > 0 && l->axes[k] <= l->axes[k - 1])
            return gd_op_fail(GD_E_ARGUMENT, "'axes' must ascend, but axis %d comes after %d",
                              l->axes[k], l->axes[k - 1]);
    }
    int kept = 0;
    for (int d = 0, k = 0; d < rank; d++)
        if (k < l->n && l->axes[k] == d) k++;
        else l->kept[kept++] = d;
    l->front = l->axes[l->n - 1] - l->axes[0] == l->n - 1 ? l->axes[0] : 0;
    return GD_OK;
}

void gd_axes_broadcast(gd_axes_layout *l, const gd_view *indices) {
    l->index_rank = 0;
    for (int k = 0; k < l->n; k++)
        if (indices[k].rank > l->index_rank) l->index_rank = indices[k].rank;
    for (int d = 0; d < l->index_rank; d++) {
        l->index_dims[d] = 1;
        for (int k = 0; k < l->n; k++) {
            int at = d - (l->index_rank - indices[k].rank);
            if (at >= 0 && indices[k].dims[at] != 1) l->index_dims[d] = indices[k].dims[at];
        }
    }
}

/* The element of a tensor of indices at a position of B. */
static int64_t index_at(const gd_axes_layout *l, const gd_view *v, const int64_t *position) {
    int64_t at = 0;
    for (int d = 0; d < v->rank; d++)
        if (v->dims[d] != 1) at += position[l->index_rank - v->rank + d] * v->strides[d];
    return gd_load_i64(v->dtype, (const char *)v->data + at * (int64_t)gd_dtype_size(v->dtype));
}

static void position_of(const gd_axes_layout *l, int64_t element, int64_t *position) {
    for (int d = l->index_rank; d-- > 0;) {
        position[d] = element % l->index_dims[d];
        element /= l->index_dims[d];
    }
}

int64_t gd_axes_places(const gd_axes_layout *l, const gd_view *indices, const int64_t *dims,
                       const int64_t *strides, int64_t first, int64_t last, int64_t *places) {
    int64_t position[GD_MAX_RANK] = {0};
    if (first < last) position_of(l, first, position);
    for (int64_t e = first; e < last; e++) {
        places[e] = 0;
        for (int k = 0; k < l->n; k++) {
            int64_t i = index_at(l, &indices[k], position), size = dims[l->axes[k]];
            if (i < -size || i >= size) return e;
            places[e] += (i < 0 ? i + size : i) * strides[l->axes[k]];
        }
        for (int d = l->index_rank; d-- > 0;) {
            if (++position[d] < l->index_dims[d]) break;
            position[d] = 0;
        }
    }
    return last;
}

/* The axis of the k-th tensor of indices, in the form of gd_data_operand.what. */
static const char *name_axis(const gd_axes_layout *l, const gd_shape *names, int k, char *text,
                             size_t size) {
    const long long axis = names->rank == l->n ? (long long)names->at[k] : l->axes[k];
    snprintf(text, size, "signed axis %lld", axis);
    return text;
}

gd_status gd_axes_wrong(const gd_axes_layout *l, const gd_view *indices, const int64_t *dims,
                        const gd_shape *names, int64_t element) {
    int64_t position[GD_MAX_RANK], index = 0, size = 0;
    int k = 0;
    position_of(l, element, position);
    for (; k < l->n; k++) {
        index = index_at(l, &indices[k], position);
        size = dims[l->axes[k]];
        if (index < -size || index >= size) break;
    }
    char what[32];
    return gd_data_fail(
        &(gd_data_error){.problem = GD_DATA_INDEX, .element = element, .values = {index, size}},
        &(gd_data_operand){l->index_rank, l->index_dims,
                           name_axis(l, names, k < l->n ? k : 0, what, sizeof what)});
}

/* The offsets of all elements of B. Fails if an index is out of range. */
static gd_status compute_places(const gd_axes_layout *l, const gd_view *indices, const gd_view *x,
                                const gd_shape *names, int64_t *places) {
    int64_t total = gd_axes_count(l),
            done = gd_axes_places(l, indices, x->dims, x->strides, 0, total, places);
    return done == total ? GD_OK : gd_axes_wrong(l, indices, x->dims, names, done);
}

gd_status gd_axes_shape(const gd_shape *axes, const gd_tensor *x, gd_tensor *const *indices, int n,
                        gd_meta *y) {
    gd_axes_layout l;
    GD_TRY(gd_axes_layout_of(axes, x->rank, &l));
    if (n != l.n)
        return gd_op_fail(GD_E_ARGUMENT, "there are %d tensors of indices for %d axes", n, l.n);
    if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "a tensor of rank 0 has no axis to index");
    for (int k = 0; k < n; k++) GD_TRY(gd_need_int(indices[k], "indices"));
    GD_TRY(gd_broadcast_dims(indices, n, &l.index_rank, l.index_dims));
    int rest = x->rank - l.n;
    if (rest + l.index_rank > GD_MAX_RANK)
        return gd_op_fail(GD_E_SHAPE,
                          "the result would have %d dimensions; at most %d are possible",
                          rest + l.index_rank, GD_MAX_RANK);
    y->dtype = (gd_dtype)x->dtype;
    y->rank = 0;
    for (int d = 0; d < l.front; d++) y->dims[y->rank++] = x->dims[l.kept[d]];
    for (int d = 0; d < l.index_rank; d++) y->dims[y->rank++] = l.index_dims[d];
    for (int d = l.front; d < rest; d++) y->dims[y->rank++] = x->dims[l.kept[d]];
    return GD_OK;
}

/* The strides of the kept axes in y, the result of x[indices]. */
static void kept_strides(const gd_axes_layout *l, const gd_view *y, int64_t *strides) {
    for (int d = 0; d < l->rank - l->n; d++)
        strides[d] = y->strides[d < l->front ? d : d + l->index_rank];
}

/* A view of the kept axes at one element of B, which is at offset `at`. */
static gd_view part_at(const gd_axes_layout *l, const gd_view *v, int64_t at, const int64_t *dims,
                       const int64_t *strides) {
    gd_view part = *v;
    part.rank = l->rank - l->n;
    part.data = (char *)v->data + at * (int64_t)gd_dtype_size(v->dtype);
    memcpy(part.dims, dims, sizeof part.dims);
    memcpy(part.strides, strides, sizeof part.strides);
    return part;
}

/* --- helpers of the bodies -------------------------------------------------------------------- */

/* x as a matrix: the indexed axes, merged, are its rows, and the kept axes, merged, its columns. */
static gd_tensor *as_table(gd_tensor *x, const gd_axes_layout *l) {
    gd_shape order = {.rank = l->rank, .form = 1};
    int64_t rows = 1, columns = 1;
    for (int k = 0; k < l->n; k++) {
        order.at[k] = l->axes[k];
        rows *= x->dims[l->axes[k]];
    }
    for (int d = 0; d < l->rank - l->n; d++) {
        order.at[l->n + d] = l->kept[d];
        columns *= x->dims[l->kept[d]];
    }
    return gd_reshape(gd_permute(x, order), gd_dims(rows, columns));
}

/* For each element of B the row of that matrix, as a tensor of rank 1. */
static gd_tensor *row_numbers(gd_tensor *const *indices, const gd_tensor *x,
                              const gd_axes_layout *l, const gd_shape *names) {
    gd_tensor *row = NULL;
    gd_shape dims = {.rank = l->index_rank, .form = 1};
    memcpy(dims.at, l->index_dims, sizeof dims.at);
    for (int k = 0; k < l->n; k++) {
        char what[32];
        int64_t size = x->dims[l->axes[k]];
        gd_tensor *i = gd_expand(gd_cast(indices[k], GD_I64), dims);
        i = gd_check_range(i, gd_number_of(-size), gd_number_of(size - 1),
                           .what = gd_intern(name_axis(l, names, k, what, sizeof what)));
        i = gd_where(gd_lt(i, gd_scalar_int(0)), gd_add(i, gd_scalar_int(size)), i);
        row = row ? gd_add(gd_mul(row, gd_scalar_int(size)), i) : i;
    }
    return gd_reshape(row, gd_dims(-1));
}

/* Moves the dimensions B, which come first in y, to their position in the result; `back`: the
 * inverse. */
static gd_tensor *move_indices(gd_tensor *y, const gd_axes_layout *l, bool back) {
    if (l->front == 0) return y;
    gd_shape from = {.rank = l->index_rank, .form = 1}, to = from;
    for (int d = 0; d < l->index_rank; d++) {
        from.at[d] = d;
        to.at[d] = l->front + d;
    }
    return back ? gd_movedim(y, to, from) : gd_movedim(y, from, to);
}

/* The layout of a call whose infer rule has passed. */
static gd_axes_layout layout_of_call(const gd_shape *axes, const gd_tensor *x,
                                     gd_tensor *const *indices) {
    gd_axes_layout l;
    if (gd_axes_layout_of(axes, x->rank, &l) == GD_OK)
        gd_broadcast_dims(indices, l.n, &l.index_rank, l.index_dims);
    return l;
}

/* --- reading ---------------------------------------------------------------------------------- */

/*op index_axes(x, axes:int[], indices*) -> y  fallible
 * x[..., i, ..., j, ...] for tensors of integers i, j, one for each of the axes, which ascend. The
 * indices broadcast. Their dimensions replace the axes if these are neighbours, and come first
 * otherwise. Negative indices count from the end. Programs call gd_index (gradus/index.h) instead.
 *   names int[] = none  the numbers of the axes for messages
 *   saves indices
 *   python -
 */
static gd_status index_axes_infer(gd_infer *i) {
    const gd_index_axes_options *o = i->attrs;
    return gd_axes_shape(&o->axes, i->in[0], i->in + 1, i->n_in - 1, &i->out[0]);
}
static void index_axes_vjp(gd_vjp *v) {
    const gd_index_axes_options *o = v->attrs;
    gd_tensors indices = {v->x + 1, v->n_in - 1};
    if (v->needs[0])
        v->gx[0] = gd_index_axes_put(gd_zeros_as(v->x[0]), v->gy[0], o->axes, indices,
                                     .accumulate = true, .names = o->names);
}
static size_t index_axes_workspace(const gd_kernel_call *k) {
    const gd_index_axes_options *o = k->attrs;
    gd_axes_layout l;
    if (gd_axes_layout_of(&o->axes, k->in[0].rank, &l) != GD_OK) return 0;
    gd_axes_broadcast(&l, k->in + 1);
    return (size_t)gd_axes_count(&l) * sizeof(int64_t);
}
static gd_status index_axes_raw(gd_kernel_call *k) {
    const gd_index_axes_options *o = k->attrs;
    const gd_view *x = &k->in[0], *y = &k->out[0];
    gd_axes_layout l;
    int64_t dims[GD_MAX_RANK], x_strides[GD_MAX_RANK], y_strides[GD_MAX_RANK],
        *places = k->workspace;
    GD_TRY(gd_axes_layout_of(&o->axes, x->rank, &l));
    gd_axes_broadcast(&l, k->in + 1);
    GD_TRY(compute_places(&l, k->in + 1, x, &o->names, places));
    for (int d = 0; d < l.rank - l.n; d++) {
        dims[d] = x->dims[l.kept[d]];
        x_strides[d] = x->strides[l.kept[d]];
    }
    kept_strides(&l, y, y_strides);
    gd_view indices = {.rank = l.index_rank}; /* the dimensions B of the result */
    memcpy(indices.dims, l.index_dims, sizeof l.index_dims);
    memcpy(indices.strides, y->strides + l.front, sizeof(int64_t) * (size_t)l.index_rank);
    int64_t total = gd_axes_count(&l);
    for (int64_t e = 0; e < total; e++) {
        int64_t at, none;
        gd_locate(e, &indices, l.index_rank, &at, &indices, &none, NULL, NULL);
        gd_view to = part_at(&l, y, at, dims, y_strides),
                from = part_at(&l, x, places[e], dims, x_strides);
        gd_copy_elements(&to, &from);
    }
    return GD_OK;
}
static void index_axes_expand(gd_expansion *e) {
    const gd_index_axes_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    gd_axes_layout l = layout_of_call(&o->axes, x, e->x + 1);
    gd_shape dims = {.rank = l.index_rank, .form = 1};
    memcpy(dims.at, l.index_dims, sizeof dims.at);
    for (int d = 0; d < l.rank - l.n; d++) dims.at[dims.rank++] = x->dims[l.kept[d]];
    gd_tensor *rows = gd_index_select(as_table(x, &l), 0, row_numbers(e->x + 1, x, &l, &o->names));
    e->y[0] = move_indices(gd_reshape(rows, dims), &l, false);
}

/* --- writing ---------------------------------------------------------------------------------- */

/*op index_axes_put(x, src, axes:int[], indices*) -> y  fallible
 * x with src written to the positions that index_axes reads. src has the shape of that result.
 * Where indices repeat, the last element in row-major order is kept, or all are added. Programs
 * call gd_index_put (gradus/index.h) instead.
 *   accumulate bool = false  add src to the elements of x
 *   names int[] = none       the numbers of the axes for messages
 *   saves indices
 *   python -
 */
static gd_status index_axes_put_infer(gd_infer *i) {
    const gd_index_axes_put_options *o = i->attrs;
    const gd_tensor *x = i->in[0], *src = i->in[1];
    gd_meta part = {.rank = 0};
    char text[128];
    GD_TRY(gd_need_same_dtype(x, src, "x", "src"));
    GD_TRY(gd_axes_shape(&o->axes, x, i->in + 2, i->n_in - 2, &part));
    if (src->rank != part.rank ||
        memcmp(src->dims, part.dims, sizeof *part.dims * (size_t)part.rank) != 0)
        return gd_op_fail(GD_E_SHAPE, "'src' must have the shape of the indexed part, %s",
                          gd_shape_text(part.rank, part.dims, text, sizeof text));
    gd_meta_like(&i->out[0], x);
    return GD_OK;
}

/* True where a later element of src overwrites an element. Writes the number of each element to its
 * position, and compares the numbers that are read back. */
static gd_tensor *overwritten(const gd_tensor *x, const gd_tensor *src, gd_shape axes,
                              gd_tensors indices) {
    gd_device *before = gd_this_thread.device;
    gd_this_thread.device = x->device;
    gd_tensor *numbers = gd_reshape(gd_arange(0, (double)gd_tensor_numel(src), .dtype = GD_I64),
                                    gd_tensor_shape(src));
    gd_this_thread.device = before;
    gd_tensor *put =
        gd_index_axes_put(gd_zeros_on(x, GD_I64, gd_tensor_shape(x)), numbers, axes, indices);
    return gd_ne(gd_index_axes(put, axes, indices), numbers);
}
static void index_axes_put_vjp(gd_vjp *v) {
    const gd_index_axes_put_options *o = v->attrs;
    gd_tensors indices = {v->x + 2, v->n_in - 2};
    gd_tensor *gy = v->gy[0];
    if (v->needs[0])
        v->gx[0] =
            o->accumulate ? gy : gd_index_axes_put(gy, gd_zeros_as(v->x[1]), o->axes, indices);
    if (!v->needs[1]) return;
    v->gx[1] = gd_index_axes(gy, o->axes, indices);
    if (!o->accumulate)
        v->gx[1] = gd_masked_fill(v->gx[1], overwritten(v->x[0], v->x[1], o->axes, indices), 0);
}
static size_t index_axes_put_workspace(const gd_kernel_call *k) {
    const gd_index_axes_put_options *o = k->attrs;
    gd_axes_layout l;
    if (gd_axes_layout_of(&o->axes, k->in[0].rank, &l) != GD_OK) return 0;
    gd_axes_broadcast(&l, k->in + 2);
    return (size_t)gd_axes_count(&l) * sizeof(int64_t);
}
static gd_status index_axes_put_reference(gd_kernel_call *k) {
    const gd_index_axes_put_options *o = k->attrs;
    const gd_view *src = &k->in[1], *y = &k->out[0];
    gd_axes_layout l;
    int64_t *places = k->workspace, src_strides[GD_MAX_RANK], step = 1, kept = 1;
    GD_TRY(gd_axes_layout_of(&o->axes, y->rank, &l));
    gd_axes_broadcast(&l, k->in + 2);
    GD_TRY(compute_places(&l, k->in + 2, y, &o->names, places));
    if (y->data != k->in[0].data) /* gd_index_put_ */
        memcpy(y->data, k->in[0].data, (size_t)gd_numel(y->rank, y->dims) * 8);
    kept_strides(&l, src, src_strides);
    for (int d = 0; d < l.rank - l.n; d++) kept *= y->dims[l.kept[d]];
    for (int d = l.front; d < l.rank - l.n; d++) step *= y->dims[l.kept[d]];
    int64_t total = gd_axes_count(&l);
    for (int64_t e = 0; e < total; e++)
        for (int64_t i = 0; i < kept; i++) {
            int64_t rest = i, to = places[e], from = e * step;
            for (int d = l.rank - l.n; d-- > 0;) {
                int64_t size = y->dims[l.kept[d]], at = rest % size;
                rest /= size;
                to += at * y->strides[l.kept[d]];
                from += at * src_strides[d];
            }
            if (y->dtype == GD_F64) {
                double *place = (double *)y->data + to, value = ((const double *)src->data)[from];
                *place = o->accumulate ? *place + value : value;
            } else {
                uint64_t *place = (uint64_t *)y->data + to,
                         value = ((const uint64_t *)src->data)[from];
                *place = o->accumulate ? *place + value : value;
            }
        }
    return GD_OK;
}
static void index_axes_put_expand(gd_expansion *e) {
    const gd_index_axes_put_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    gd_axes_layout l = layout_of_call(&o->axes, x, e->x + 2);
    gd_shape order = {.rank = l.rank, .form = 1}, dims = order,
             matrix = {.rank = 2, .form = 1}; /* (rows, columns) of src */
    int64_t rows = gd_axes_count(&l);
    matrix.at[0] = rows;
    matrix.at[1] = 1;
    for (int k = 0; k < l.n; k++) {
        order.at[l.axes[k]] = k;
        dims.at[k] = x->dims[l.axes[k]];
    }
    for (int d = 0; d < l.rank - l.n; d++) {
        order.at[l.kept[d]] = l.n + d;
        dims.at[l.n + d] = x->dims[l.kept[d]];
        matrix.at[1] *= x->dims[l.kept[d]];
    }
    gd_tensor *src = gd_reshape(move_indices(e->x[1], &l, true), matrix);
    gd_tensor *row =
        gd_expand(gd_reshape(row_numbers(e->x + 2, x, &l, &o->names), gd_dims(rows, 1)), matrix);
    gd_tensor *table = as_table(x, &l);
    table = o->accumulate ? gd_scatter_add(table, 0, row, src) : gd_scatter(table, 0, row, src);
    e->y[0] = gd_permute(gd_reshape(table, dims), order);
}

#include "ops/index/index_axes.gen.h"
