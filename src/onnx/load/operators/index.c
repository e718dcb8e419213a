/* index.c - operators with indices: Gather, GatherElements, GatherND, ScatterElements, ScatterND,
 * OneHot, NonZero, and MaxPool with its second output.
 *
 * In ONNX a negative index counts from the end; ops take no negative indices.
 */
#include <string.h>

#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"

/* --- indices ---------------------------------------------------------------------------------- */

/* Adds the size to negative indices. */
static gd_tensor *wrap_indices(gd_tensor *index, gd_onnx_size size) {
    const gd_dtype dtype = (gd_dtype)index->dtype;
    gd_tensor *number = gd_cast(gd_onnx_size_tensor(size), dtype);
    return gd_where(gd_lt(index, gd_scalar_of(0, dtype)), gd_add(index, number), index);
}

/* *nonnegative: input i certainly has no negative number, since it is a constant without one or
 * Gradus saved the file. */
static gd_status is_nonnegative(gd_onnx_loader *l, const gd_pb *node, size_t i, bool *nonnegative) {
    gd_tensor *value;
    *nonnegative = l->saved_by_gradus;
    if (l->saved_by_gradus) return GD_OK;
    GD_TRY(gd_onnx_constant_value(l, gd_pb_string_at(node, "input", i), &value));
    if (!value) return GD_OK;
    const gd_tracing tracing = gd_tracing_off();
    *nonnegative = gd_tensor_numel(value) == 0 || gd_item(gd_min(value)) >= 0;
    gd_tracing_on(tracing);
    return GD_OK;
}

static gd_status check_integers(const gd_tensor *index) {
    if (gd_dtype_is_int((gd_dtype)index->dtype)) return GD_OK;
    return gd_fail(GD_E_DTYPE, "its indices are %s, and must be integers",
                   gd_dtype_name((gd_dtype)index->dtype));
}

/* Input i as nonnegative indices of an axis of x. */
static gd_status get_index(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_tensor *x, int axis,
                           gd_tensor **index) {
    gd_onnx_size size;
    bool nonnegative;
    GD_ONNX_REQUIRE_INPUT(given, i);
    GD_TRY(check_integers(given));
    GD_TRY(is_nonnegative(l, node, i, &nonnegative));
    *index = given;
    if (nonnegative) return GD_OK;
    GD_TRY(gd_onnx_size_of(x, axis, &size));
    *index = wrap_indices(given, size);
    return GD_OK;
}

/* A Gather of one index that is constant, or depends on sizes. */
static gd_status load_select(gd_onnx_loader *l, const gd_pb *node, gd_tensor *x, int64_t axis) {
    gd_tensor *list;
    gd_numbers number;
    const gd_deferred_call_options o = {
        .kind = GD_DEFERRED_SELECT, .axis = axis, .dtype = (gd_dtype)x->dtype};
    GD_TRY(gd_onnx_get_list(l, node, 1, &list));
    if (gd_onnx_is_symbolic(list)) return gd_onnx_set_deferred_output(l, node, o, x, &list, 1);
    GD_TRY(gd_deferred_numbers(list, &number));
    return gd_onnx_set_output(l, node, 0, gd_deferred_now(&o, x, &number, 1));
}

/* The axes of the indices replace the axis of x. */
gd_status gd_onnx_load_gather(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis;
    int rank = 0;
    gd_tensor *index, *y;
    gd_onnx_size sizes[2 * GD_MAX_RANK];
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_ONNX_REQUIRE_INPUT(at, 1);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(gd_onnx_normalize_axis(&axis, x->rank));
    if (at->rank == 0 && gd_onnx_is_data_independent(l, gd_pb_string_at(node, "input", 1)))
        return load_select(l, node, x, axis);
    GD_TRY(get_index(l, node, 1, x, (int)axis, &index));
    if (x->rank == 2 && axis == 0 && at->rank > 0)
        return gd_onnx_set_output(l, node, 0, gd_embedding(index, x));
    if (at->rank == 1) return gd_onnx_set_output(l, node, 0, gd_index_select(x, axis, index));
    for (int i = 0; i < axis; i++) GD_TRY(gd_onnx_size_of(x, i, &sizes[rank++]));
    for (int i = 0; i < at->rank; i++) GD_TRY(gd_onnx_size_of(at, i, &sizes[rank++]));
    for (int i = (int)axis + 1; i < x->rank; i++) GD_TRY(gd_onnx_size_of(x, i, &sizes[rank++]));
    y = gd_index_select(x, axis, gd_reshape(index, gd_dims(at->rank ? -1 : 1)));
    GD_TRY(gd_onnx_reshape_to(l, y, rank, sizes, &y));
    return gd_onnx_set_output(l, node, 0, y);
}

gd_status gd_onnx_load_gather_elements(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis;
    gd_tensor *index;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(gd_onnx_normalize_axis(&axis, x->rank));
    GD_TRY(get_index(l, node, 1, x, (int)axis, &index));
    return gd_onnx_set_output(l, node, 0, gd_gather(x, axis, index));
}

/* --- scatter ---------------------------------------------------------------------------------- */

typedef enum reduction { NONE, ADD, MUL, MAX, MIN } reduction;

static gd_status read_reduction(const gd_pb *node, reduction *how) {
    static const char *const words[] = {"none", "add", "mul", "max", "min"};
    int which;
    GD_TRY(gd_onnx_word_attribute(node, "reduction", words, 5, &which));
    *how = (reduction)which;
    return GD_OK;
}

static gd_tensor *scatter_by(gd_tensor *x, int64_t axis, gd_tensor *index, gd_tensor *src,
                             reduction how) {
    switch (how) {
    case ADD: return gd_scatter_add(x, axis, index, src);
    case MUL: return gd_scatter_mul(x, axis, index, src);
    case MAX: return gd_scatter_extreme(x, axis, index, src, true, true);
    case MIN: return gd_scatter_extreme(x, axis, index, src, false, true);
    default: return gd_scatter(x, axis, index, src);
    }
}

gd_status gd_onnx_load_scatter_elements(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis;
    gd_tensor *index;
    reduction how;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_ONNX_REQUIRE_INPUT(src, 2);
    GD_TRY(read_reduction(node, &how));
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(gd_onnx_normalize_axis(&axis, x->rank));
    GD_TRY(get_index(l, node, 1, x, (int)axis, &index));
    return gd_onnx_set_output(l, node, 0, scatter_by(x, axis, index, src, how));
}

/* --- GatherND and ScatterND ------------------------------------------------------------------- */

/* The last axis of the index (..., n) holds a position along n axes of x, after `batch` axes that x
 * and the index share. These batch + n axes of x are flattened to one, and each position becomes a
 * flat index. */
typedef struct flat_index {
    gd_tensor *x;                                          /* (P, ...) with flattened axes */
    gd_tensor *indices;                                    /* (M) */
    gd_onnx_size count;                                    /* P */
    gd_onnx_size before[GD_MAX_RANK], behind[GD_MAX_RANK]; /* sizes of the index; of a slice */
    int n_before, n_behind;
} flat_index;

/* Computes the flat indices axis by axis: flat * size + index. */
static gd_status flatten_indices(gd_onnx_loader *l, const gd_pb *node, gd_tensor *x,
                                 gd_tensor *index, int batch, int n, flat_index *p) {
    const int last = index->rank - 1;
    bool nonnegative;
    gd_onnx_size size;
    gd_tensor *at;
    GD_TRY(is_nonnegative(l, node, 1, &nonnegative));
    p->indices = NULL;
    p->count = gd_onnx_known_size(1);
    for (int k = 0; k < batch + n; k++) {
        GD_TRY(gd_onnx_size_of(x, k, &size));
        GD_TRY(gd_onnx_size_multiply(p->count, size, &p->count));
        if (k < batch) { /* 0, 1, ... along axis k */
            gd_shape dims = {.rank = last, .form = 1};
            if (size.known == GD_UNKNOWN)
                return gd_fail(GD_E_UNSUPPORTED,
                               "its batch_dims are supported only for known sizes");
            for (int d = 0; d < last; d++) dims.at[d] = d == k ? size.known : 1;
            at = gd_reshape(gd_arange(0, (double)size.known, .dtype = GD_I64), dims);
        } else {
            at = gd_cast(gd_select(index, last, k - batch), GD_I64);
            if (!nonnegative) at = wrap_indices(at, size);
        }
        p->indices = !p->indices ? at : gd_add(gd_mul(p->indices, gd_onnx_size_tensor(size)), at);
    }
    p->indices = gd_reshape(p->indices, gd_dims(last ? -1 : 1));
    return p->indices->kind == GD_FAILED ? gd_failure() : GD_OK;
}

static gd_status read_flat_index(gd_onnx_loader *l, const gd_pb *node, int64_t batch,
                                 flat_index *p) {
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_ONNX_REQUIRE_INPUT(index, 1);
    const int64_t n = index->rank ? index->dims[index->rank - 1] : GD_UNKNOWN;
    GD_TRY(check_integers(index));
    if (n < 1 || n > x->rank - batch || batch < 0 || batch >= index->rank)
        return gd_fail(GD_E_UNSUPPORTED,
                       "the last size of its indices is %lld, and must be known and from 1 to %lld",
                       (long long)n, (long long)(x->rank - batch));
    GD_TRY(flatten_indices(l, node, x, index, (int)batch, (int)n, p));
    p->n_before = p->n_behind = 0;
    for (int i = 0; i < index->rank - 1; i++)
        GD_TRY(gd_onnx_size_of(index, i, &p->before[p->n_before++]));
    gd_onnx_size sizes[GD_MAX_RANK] = {p->count};
    for (int i = (int)(batch + n); i < x->rank; i++) {
        GD_TRY(gd_onnx_size_of(x, i, &p->behind[p->n_behind]));
        sizes[1 + p->n_behind] = p->behind[p->n_behind];
        p->n_behind++;
    }
    p->x = x;
    return batch + n == 1 ? GD_OK : gd_onnx_reshape_to(l, x, 1 + p->n_behind, sizes, &p->x);
}

gd_status gd_onnx_load_gather_nd(gd_onnx_loader *l, const gd_pb *node) {
    int64_t batch;
    flat_index p;
    gd_onnx_size sizes[2 * GD_MAX_RANK];
    gd_tensor *y;
    GD_TRY(gd_onnx_int_attribute(node, "batch_dims", 0, &batch));
    GD_TRY(read_flat_index(l, node, batch, &p));
    memcpy(sizes, p.before, (size_t)p.n_before * sizeof *sizes);
    memcpy(sizes + p.n_before, p.behind, (size_t)p.n_behind * sizeof *sizes);
    y = gd_index_select(p.x, 0, p.indices);
    GD_TRY(gd_onnx_reshape_to(l, y, p.n_before + p.n_behind, sizes, &y));
    return gd_onnx_set_output(l, node, 0, y);
}

/* Replaces slices of x by those of the updates, or reduces both. */
gd_status gd_onnx_load_scatter_nd(gd_onnx_loader *l, const gd_pb *node) {
    flat_index p;
    gd_tensor *src, *y;
    reduction how;
    gd_onnx_size sizes[GD_MAX_RANK];
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_ONNX_REQUIRE_INPUT(updates, 2);
    GD_TRY(read_reduction(node, &how));
    GD_TRY(read_flat_index(l, node, 0, &p));
    if (updates->rank != p.n_before + p.n_behind)
        return gd_fail(GD_E_SHAPE, "its updates have %d dimensions, and should have %d",
                       updates->rank, p.n_before + p.n_behind);
    GD_TRY(gd_onnx_size_of(p.indices, 0, &sizes[0]));
    memcpy(sizes + 1, p.behind, (size_t)p.n_behind * sizeof *sizes);
    GD_TRY(gd_onnx_reshape_to(l, updates, 1 + p.n_behind, sizes, &src)); /* (M, ...) */
    if (how == ADD) {
        y = gd_index_add(p.x, 0, p.indices, src);
    } else { /* scatter needs an index for each element of a slice */
        gd_shape column = {.rank = src->rank, .form = 1, .at = {-1}};
        for (int d = 1; d < column.rank; d++) column.at[d] = 1;
        gd_tensor *each =
            gd_add(gd_reshape(p.indices, column), gd_zeros_like(src, .dtype = GD_I64));
        y = scatter_by(p.x, 0, each, src, how);
    }
    if (p.x != x) {
        for (int i = 0; i < x->rank; i++) GD_TRY(gd_onnx_size_of(x, i, &sizes[i]));
        GD_TRY(gd_onnx_reshape_to(l, y, x->rank, sizes, &y));
    }
    return gd_onnx_set_output(l, node, 0, y);
}

/* --- NonZero and MaxPool ---------------------------------------------------------------------- */

/* The op returns a row for each element, ONNX a column. */
gd_status gd_onnx_load_nonzero(gd_onnx_loader *l, const gd_pb *node) {
    GD_ONNX_REQUIRE_INPUT(x, 0);
    return gd_onnx_set_output(l, node, 0, gd_transpose(gd_nonzero(x), 0, 1));
}

/* The flat index of the first element of each plane of x (N, C, ...), as (N, C, 1, ...). */
static gd_status plane_starts(gd_tensor *x, gd_tensor **starts) {
    gd_onnx_size plane = gd_onnx_known_size(1), size;
    gd_tensor *ones = x;
    for (int d = 2; d < x->rank; d++) {
        GD_TRY(gd_onnx_size_of(x, d, &size));
        GD_TRY(gd_onnx_size_multiply(plane, size, &plane));
        ones = gd_narrow(ones, d, 0, 1);
    }
    GD_TRY(gd_onnx_size_of(x, 1, &size));
    ones = gd_ones_like(ones, .dtype = GD_I64); /* (N, C, 1, ...) */
    gd_tensor *row = gd_sub(gd_cumsum(ones, 0), ones), *column = gd_sub(gd_cumsum(ones, 1), ones);
    *starts =
        gd_mul(gd_add(gd_mul(row, gd_onnx_size_tensor(size)), column), gd_onnx_size_tensor(plane));
    return GD_OK;
}

/* The op's indices are relative to a plane; ONNX's are flat indices of x. */
gd_status gd_onnx_load_max_pool_indices(gd_onnx_loader *l, const gd_pb *node) {
    static const char *const names[] = {"max_pool1d", "max_pool2d", "max_pool3d"};
    static const char *const with_indices[] = {"max_pool1d_with_indices", "max_pool2d_with_indices",
                                               "max_pool3d_with_indices"};
    int64_t order;
    gd_tensor *padded, *starts;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "storage_order", 0, &order));
    GD_TRY(gd_onnx_pad_input(l, node, &padded));
    if (padded || order || x->rank < 3 || x->rank > 5)
        return gd_fail(GD_E_UNSUPPORTED,
                       "its indices are supported only for 3 to 5 dimensions, storage_order 0, and "
                       "equal padding on both sides");
    const gd_op *op = gd_op_find(with_indices[x->rank - 3]);
    gd_attrs *attrs = gd_attrs_new(op);
    if (!attrs) return GD_E_MEMORY;
    GD_TRY(gd_onnx_read_row_options(node, names[x->rank - 3], attrs, true));
    gd_tensors y = gd_op_call(op, gd_list(x), attrs);
    if (y.count != 2) return gd_failure();
    GD_TRY(plane_starts(x, &starts));
    GD_TRY(gd_onnx_set_output(l, node, 0, y.at[0]));
    return gd_onnx_set_output(l, node, 1, gd_add(y.at[1], starts));
}

/* --- OneHot ----------------------------------------------------------------------------------- */

gd_status gd_onnx_load_one_hot(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *depth;
    int64_t axis;
    GD_ONNX_REQUIRE_INPUT(index, 0);
    GD_ONNX_REQUIRE_INPUT(values, 2);
    if (!*gd_pb_string_at(node, "input", 1)) return gd_fail(GD_E_FORMAT, "its input 1 is missing");
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_constant_value(l, gd_pb_string_at(node, "input", 1), &depth));
    if (!depth || gd_tensor_numel(depth) != 1 || !(gd_item(depth) >= 1 && gd_item(depth) < 0x1p31))
        return gd_fail(GD_E_UNSUPPORTED, "its depth must be a constant, one positive number");
    const int64_t classes = (int64_t)gd_item(depth);
    const int rank = index->rank;
    if (values->rank != 1 || values->dims[0] != 2 || rank >= GD_MAX_RANK || axis < -rank - 1 ||
        axis > rank)
        return gd_fail(GD_E_FORMAT, "its values must be two numbers, and its axis one of %d",
                       rank + 1);
    gd_tensor *x = gd_cast(index, GD_I64),
              *numbers = gd_arange(0, (double)classes, .dtype = GD_I64);
    x = wrap_indices(x, gd_onnx_known_size(classes));
    gd_tensor *y = gd_where(gd_eq(gd_unsqueeze(x, -1), numbers), gd_select(values, 0, 1),
                            gd_select(values, 0, 0));
    if (axis != -1 && axis != rank) y = gd_movedim(y, gd_dims(-1), gd_dims(axis));
    return gd_onnx_set_output(l, node, 0, y);
}
