/* index.c - nodes of ONNX files that find elements by their indices: Gather,
 * GatherElements, GatherND, ScatterElements, ScatterND, NonZero, and MaxPool where it says what it
 * found.
 *
 * Indices of ONNX may be negative: then they count from the end. Ours may not. */
#include <string.h>

#include "gradus/ops.h"
#include "onnx/load/load.h"

/* --- indices ---------------------------------------------------------------------------------- */

/* Indices into a size: those below 0 count from the end. */
static gd_tensor *from_the_start(gd_tensor *index, gd_onnx_size size) {
    const gd_dtype dtype = (gd_dtype)index->dtype;
    gd_tensor *number = gd_cast(gd_onnx_size_number(size), dtype);
    return gd_where(gd_lt(index, gd_scalar_of(0, dtype)), gd_add(index, number), index);
}

/* Whether input i has no negative number: it is known, or this library saved it. */
static gd_status never_negative(gd_onnx_loader *l, const gd_pb *node, size_t i, bool *never) {
    gd_tensor *known;
    *never = l->own;
    if (l->own) return GD_OK;
    GD_TRY(gd_onnx_known(l, gd_pb_string_at(node, "input", i), &known));
    if (!known) return GD_OK;
    const gd_tracing tracing = gd_tracing_off();
    *never = gd_tensor_numel(known) == 0 || gd_item(gd_min(known)) >= 0;
    gd_tracing_on(tracing);
    return GD_OK;
}

static gd_status need_whole(const gd_tensor *index) {
    if (gd_dtype_is_int((gd_dtype)index->dtype)) return GD_OK;
    return gd_fail(GD_E_DTYPE, "its indices are %s, and must be whole numbers",
                   gd_dtype_name((gd_dtype)index->dtype));
}

/* Input i as indices of an axis of x, as our ops take them. */
static gd_status get_index(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_tensor *x, int axis,
                           gd_tensor **index) {
    gd_onnx_size size;
    bool never;
    GD_ONNX_NEED(at, i);
    GD_TRY(need_whole(at));
    GD_TRY(never_negative(l, node, i, &never));
    *index = at;
    if (never) return GD_OK;
    GD_TRY(gd_onnx_size_of(x, axis, &size));
    *index = from_the_start(at, size);
    return GD_OK;
}

/* A position that is known now, or when sizes are. */
static gd_status gather_one(gd_onnx_loader *l, const gd_pb *node, gd_tensor *x, int64_t axis) {
    gd_tensor *list, *y;
    gd_numbers number;
    const gd_late_options o = {.kind = GD_LATE_SELECT, .axis = axis, .dtype = (gd_dtype)x->dtype};
    GD_TRY(gd_onnx_get_list(l, node, 1, &list));
    if (list->kind == GD_SYMBOL) {
        GD_TRY(gd_onnx_late(l, o, x, &list, 1, &y));
    } else {
        GD_TRY(gd_late_numbers(list, &number));
        y = gd_late_now(&o, x, &number, 1);
    }
    return gd_onnx_set_output(l, node, 0, y);
}

/* y has the axes of the indices where x has the one that they are of. */
gd_status gd_onnx_load_gather(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis;
    int rank = 0;
    gd_tensor *index, *y;
    gd_onnx_size sizes[2 * GD_MAX_RANK];
    GD_ONNX_NEED(x, 0);
    GD_ONNX_NEED(at, 1);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(gd_onnx_fix_axis(&axis, x->rank));
    if (at->rank == 0 && gd_onnx_follows(l, gd_pb_string_at(node, "input", 1)))
        return gather_one(l, node, x, axis);
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
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(gd_onnx_fix_axis(&axis, x->rank));
    GD_TRY(get_index(l, node, 1, x, (int)axis, &index));
    return gd_onnx_set_output(l, node, 0, gd_gather(x, axis, index));
}

/* --- putting ---------------------------------------------------------------------------------- */

typedef enum reduction { NONE, ADD, MUL, MAX, MIN } reduction;

static gd_status read_reduction(const gd_pb *node, reduction *how) {
    static const char *const words[] = {"none", "add", "mul", "max", "min"};
    const gd_pb_list *s = gd_pb_get(gd_onnx_attribute_of(node, "reduction"), "s");
    *how = NONE;
    if (!s) return GD_OK;
    for (int i = 0; i < 5; i++)
        if (s->bytes[0].length == strlen(words[i]) &&
            memcmp(s->bytes[0].data, words[i], strlen(words[i])) == 0) {
            *how = (reduction)i;
            return GD_OK;
        }
    return gd_fail(GD_E_UNSUPPORTED, "its reduction must be none, add, mul, max or min");
}

static gd_tensor *put(gd_tensor *x, int64_t axis, gd_tensor *index, gd_tensor *src, reduction how) {
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
    GD_ONNX_NEED(x, 0);
    GD_ONNX_NEED(src, 2);
    GD_TRY(read_reduction(node, &how));
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(gd_onnx_fix_axis(&axis, x->rank));
    GD_TRY(get_index(l, node, 1, x, (int)axis, &index));
    return gd_onnx_set_output(l, node, 0, put(x, axis, index, src, how));
}

/* --- several axes at once --------------------------------------------------------------------- */

/* GatherND and ScatterND: index (..., n) finds places in n axes of x, behind `batch` axes that both
 * have. All that is needed of it is which number each place has, along those axes together. */
typedef struct places {
    gd_tensor *x;      /* (P, ...): those axes are one */
    gd_tensor *number; /* (M): of each place */
    gd_onnx_size count;
    gd_onnx_size before[GD_MAX_RANK], behind[GD_MAX_RANK]; /* of the index, of x */
    int n_before, n_behind;
} places;

/* The place's number, axis by axis: number * size + index. */
static gd_status number_places(gd_onnx_loader *l, const gd_pb *node, gd_tensor *x, gd_tensor *index,
                               int batch, int n, places *p) {
    const int last = index->rank - 1;
    bool never;
    gd_onnx_size size;
    gd_tensor *at;
    GD_TRY(never_negative(l, node, 1, &never));
    p->number = NULL;
    p->count = gd_onnx_size_is(1);
    for (int k = 0; k < batch + n; k++) {
        GD_TRY(gd_onnx_size_of(x, k, &size));
        GD_TRY(gd_onnx_size_times(p->count, size, &p->count));
        if (k < batch) { /* 0, 1, ... along axis k */
            gd_shape dims = {.rank = last, .form = 1};
            if (size.known == GD_UNKNOWN)
                return gd_fail(GD_E_UNSUPPORTED,
                               "its batch_dims are possible where their sizes are known");
            for (int d = 0; d < last; d++) dims.at[d] = d == k ? size.known : 1;
            at = gd_reshape(gd_arange(0, (double)size.known, .dtype = GD_I64), dims);
        } else {
            at = gd_cast(gd_select(index, last, k - batch), GD_I64);
            if (!never) at = from_the_start(at, size);
        }
        p->number = !p->number ? at : gd_add(gd_mul(p->number, gd_onnx_size_number(size)), at);
    }
    p->number = gd_reshape(p->number, gd_dims(last ? -1 : 1));
    return p->number->kind == GD_FAILED ? gd_failure() : GD_OK;
}

static gd_status find_places(gd_onnx_loader *l, const gd_pb *node, int64_t batch, places *p) {
    GD_ONNX_NEED(x, 0);
    GD_ONNX_NEED(index, 1);
    const int64_t n = index->rank ? index->dims[index->rank - 1] : GD_UNKNOWN;
    GD_TRY(need_whole(index));
    if (n < 1 || n > x->rank - batch || batch < 0 || batch >= index->rank)
        return gd_fail(GD_E_UNSUPPORTED,
                       "the last size of its indices is %lld, and must be known and from 1 to %lld",
                       (long long)n, (long long)(x->rank - batch));
    GD_TRY(number_places(l, node, x, index, (int)batch, (int)n, p));
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
    places p;
    gd_onnx_size sizes[2 * GD_MAX_RANK];
    gd_tensor *y;
    GD_TRY(gd_onnx_int_attribute(node, "batch_dims", 0, &batch));
    GD_TRY(find_places(l, node, batch, &p));
    memcpy(sizes, p.before, (size_t)p.n_before * sizeof *sizes);
    memcpy(sizes + p.n_before, p.behind, (size_t)p.n_behind * sizeof *sizes);
    y = gd_index_select(p.x, 0, p.number);
    GD_TRY(gd_onnx_reshape_to(l, y, p.n_before + p.n_behind, sizes, &y));
    return gd_onnx_set_output(l, node, 0, y);
}

/* The slices of x at those places become those of the updates, or are put together with them. */
gd_status gd_onnx_load_scatter_nd(gd_onnx_loader *l, const gd_pb *node) {
    places p;
    gd_tensor *src, *y;
    reduction how;
    gd_onnx_size sizes[GD_MAX_RANK];
    GD_ONNX_NEED(x, 0);
    GD_ONNX_NEED(updates, 2);
    GD_TRY(read_reduction(node, &how));
    GD_TRY(find_places(l, node, 0, &p));
    if (updates->rank != p.n_before + p.n_behind)
        return gd_fail(GD_E_SHAPE, "its updates have %d dimensions, and should have %d",
                       updates->rank, p.n_before + p.n_behind);
    GD_TRY(gd_onnx_size_of(p.number, 0, &sizes[0]));
    memcpy(sizes + 1, p.behind, (size_t)p.n_behind * sizeof *sizes);
    GD_TRY(gd_onnx_reshape_to(l, updates, 1 + p.n_behind, sizes, &src)); /* (M, ...) */
    if (how == ADD) {
        y = gd_index_add(p.x, 0, p.number, src);
    } else { /* the number of a place for each element of its slice */
        gd_shape column = {.rank = src->rank, .form = 1, .at = {-1}};
        for (int d = 1; d < column.rank; d++) column.at[d] = 1;
        gd_tensor *each = gd_add(gd_reshape(p.number, column), gd_zeros_like(src, .dtype = GD_I64));
        y = put(p.x, 0, each, src, how);
    }
    if (p.x != x) {
        for (int i = 0; i < x->rank; i++) GD_TRY(gd_onnx_size_of(x, i, &sizes[i]));
        GD_TRY(gd_onnx_reshape_to(l, y, x->rank, sizes, &y));
    }
    return gd_onnx_set_output(l, node, 0, y);
}

/* --- what is found ---------------------------------------------------------------------------- */

/* Ours is a row for each; ONNX's a column. */
gd_status gd_onnx_load_nonzero(gd_onnx_loader *l, const gd_pb *node) {
    GD_ONNX_NEED(x, 0);
    return gd_onnx_set_output(l, node, 0, gd_transpose(gd_nonzero(x), 0, 1));
}

/* The numbers of the planes of x (N, C, ...), and how many elements each has: what ONNX's positions
 * are beyond ours. */
static gd_status plane_starts(gd_tensor *x, gd_tensor **starts) {
    gd_onnx_size plane = gd_onnx_size_is(1), size;
    gd_tensor *ones = x;
    for (int d = 2; d < x->rank; d++) {
        GD_TRY(gd_onnx_size_of(x, d, &size));
        GD_TRY(gd_onnx_size_times(plane, size, &plane));
        ones = gd_narrow(ones, d, 0, 1);
    }
    GD_TRY(gd_onnx_size_of(x, 1, &size));
    ones = gd_ones_like(ones, .dtype = GD_I64); /* (N, C, 1, ...) */
    gd_tensor *row = gd_sub(gd_cumsum(ones, 0), ones), *column = gd_sub(gd_cumsum(ones, 1), ones);
    *starts =
        gd_mul(gd_add(gd_mul(row, gd_onnx_size_number(size)), column), gd_onnx_size_number(plane));
    return GD_OK;
}

/* Ours are positions in a plane; ONNX's count all elements of x. */
gd_status gd_onnx_load_max_pool_indices(gd_onnx_loader *l, const gd_pb *node) {
    static const char *const names[] = {"max_pool1d", "max_pool2d", "max_pool3d"};
    static const char *const with[] = {"max_pool1d_with_indices", "max_pool2d_with_indices",
                                       "max_pool3d_with_indices"};
    int64_t order;
    gd_tensor *padded, *starts;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "storage_order", 0, &order));
    GD_TRY(gd_onnx_pad_windows(l, node, &padded));
    if (padded || order || x->rank < 3 || x->rank > 5)
        return gd_fail(GD_E_UNSUPPORTED,
                       "its indices are possible for 3 to 5 dimensions, storage_order 0, and a "
                       "border that is the same on both sides");
    const gd_op *op = gd_op_find(with[x->rank - 3]);
    gd_attrs *attrs = gd_attrs_new(op);
    if (!attrs) return GD_E_MEMORY;
    GD_TRY(gd_onnx_row_options(node, names[x->rank - 3], attrs, true));
    gd_tensors y = gd_op_call(op, gd_list(x), attrs);
    if (y.count != 2) return gd_failure();
    GD_TRY(plane_starts(x, &starts));
    GD_TRY(gd_onnx_set_output(l, node, 0, y.at[0]));
    return gd_onnx_set_output(l, node, 1, gd_add(y.at[1], starts));
}
