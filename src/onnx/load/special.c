/* special.c - nodes of ONNX files that are more than one call, or need sizes to be
 * understood. */
#include <stdlib.h>
#include <string.h>

#include "gradus/ops.h"
#include "onnx/load/load.h"
#include "ops/call.h"

static gd_status too_long(const char *what, int count) {
    return gd_fail(GD_E_UNSUPPORTED, "%s has %d numbers; at most %d are possible here", what, count,
                   GD_MAX_RANK);
}

/* Whether a list is a symbol: its numbers come late. */
static bool is_late(const gd_tensor *list) { return list && list->kind == GD_SYMBOL; }

static gd_status set_late(gd_onnx_loader *l, const gd_pb *node, gd_late_options o, gd_tensor *x,
                          gd_tensor *const *lists, int n_lists) {
    gd_tensor *y;
    if (x) o.dtype = (gd_dtype)x->dtype;
    GD_TRY(gd_onnx_late(l, o, x, lists, n_lists, &y));
    return gd_onnx_set_output(l, node, 0, y);
}

/* --- constants -------------------------------------------------------------------------------- */

gd_status gd_onnx_load_constant(gd_onnx_loader *l, const gd_pb *node) {
    const gd_pb *value = gd_onnx_attribute_of(node, "value"), *a;
    gd_tensor *t = NULL;
    if (value && gd_pb_message(value, "t")) {
        GD_TRY(gd_onnx_read_tensor(gd_pb_message(value, "t"), gd_onnx_folder(l), &t));
    } else if ((a = gd_onnx_attribute_of(node, "value_int")) != NULL) {
        const int64_t number = gd_pb_int(a, "i", 0);
        t = gd_from_array(gd_dims(), GD_I64, &number);
    } else if ((a = gd_onnx_attribute_of(node, "value_float")) != NULL) {
        const float number = (float)gd_pb_float(a, "f", 0);
        t = gd_from_array(gd_dims(), GD_F32, &number);
    } else if ((a = gd_onnx_attribute_of(node, "value_ints")) != NULL) {
        const gd_pb_list *list = gd_pb_get(a, "ints");
        t = gd_from_array(gd_dims(list ? (int64_t)list->count : 0), GD_I64,
                          list ? list->ints : NULL);
    } else if ((a = gd_onnx_attribute_of(node, "value_floats")) != NULL) {
        const gd_pb_list *list = gd_pb_get(a, "floats");
        t = gd_from_array(gd_dims(list ? (int64_t)list->count : 0), GD_F32,
                          list ? list->floats : NULL);
    } else {
        return gd_fail(GD_E_UNSUPPORTED, "it has no value that is a tensor or numbers");
    }
    return gd_onnx_set_output(l, node, 0, t);
}

gd_status gd_onnx_load_constant_of_shape(gd_onnx_loader *l, const gd_pb *node) {
    int64_t dims[GD_ONNX_MOST_NUMBERS];
    int rank;
    const gd_pb *value = gd_pb_message(gd_onnx_attribute_of(node, "value"), "t");
    const float zero = 0;
    gd_tensor *one = NULL, *list;
    if (value) GD_TRY(gd_onnx_read_tensor(value, gd_onnx_folder(l), &one));
    else one = gd_from_array(gd_dims(1), GD_F32, &zero);
    if (one->kind == GD_FAILED) return gd_failure();
    if (gd_tensor_numel(one) != 1) return gd_fail(GD_E_FORMAT, "its value must have one element");
    GD_TRY(gd_onnx_get_list(l, node, 0, &list));
    if (is_late(list))
        return set_late(l, node, (gd_late_options){.kind = GD_LATE_EXPAND},
                        gd_reshape(one, gd_dims()), &list, 1);
    GD_TRY(gd_onnx_get_numbers(l, node, 0, "", &rank, dims));
    if (rank < 0 || rank > GD_MAX_RANK) return too_long("its shape", rank);
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0)
            return gd_fail(GD_E_FORMAT, "its shape has a negative size, %lld", (long long)dims[i]);
    return gd_onnx_set_output(l, node, 0,
                              gd_expand(gd_reshape(one, gd_dims()), gd_shape_of(rank, dims)));
}

gd_status gd_onnx_load_shape(gd_onnx_loader *l, const gd_pb *node) {
    int64_t start, end, dims[GD_MAX_RANK], n = 0;
    bool known = true;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "start", 0, &start));
    GD_TRY(gd_onnx_int_attribute(node, "end", x->rank, &end));
    if (start < 0) start += x->rank;
    if (end < 0) end += x->rank;
    if (start < 0) start = 0;
    for (int64_t i = start; i < end && i < x->rank; i++) {
        known = known && x->dims[i] != GD_UNKNOWN;
        dims[n++] = x->dims[i];
    }
    if (known) return gd_onnx_set_output(l, node, 0, gd_from_array(gd_dims(n), GD_I64, dims));
    gd_tensor *sizes;
    GD_TRY(gd_onnx_sizes_of(x, &sizes));
    GD_TRY(gd_onnx_set_sized(l, node, 0, n == x->rank ? sizes : gd_narrow(sizes, 0, start, n)));
    return GD_OK;
}

/* --- shapes ----------------------------------------------------------------------------------- */

/* A size that is not known is kept (dims[kept] is -1 for it) and another is to follow from the
 * rest: it does from the sizes that are known, if the one that is not stands on both sides. */
static bool settle_reshape(const gd_tensor *x, int rank, int64_t *dims, int kept) {
    int64_t have = 1, made = 1;
    int open = -1, unknown = 0;
    for (int i = 0; i < x->rank; i++) {
        if (x->dims[i] == GD_UNKNOWN) unknown++;
        else if (__builtin_mul_overflow(have, x->dims[i], &have)) return false;
    }
    for (int i = 0; i < rank; i++) {
        if (i == kept) continue;
        if (dims[i] == -1) open = i;
        else if (__builtin_mul_overflow(made, dims[i], &made)) return false;
    }
    if (open < 0) return true;
    if (unknown != 1 || made <= 0 || have % made) return false;
    dims[open] = have / made;
    return true;
}

gd_status gd_onnx_load_reshape(gd_onnx_loader *l, const gd_pb *node) {
    int64_t dims[GD_ONNX_MOST_NUMBERS], zero;
    int rank, kept = -1, open = 0;
    gd_tensor *list;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "allowzero", 0, &zero));
    GD_TRY(gd_onnx_get_list(l, node, 1, &list));
    const gd_late_options late = {.kind = GD_LATE_RESHAPE, .zero = zero != 0};
    if (is_late(list)) return set_late(l, node, late, x, &list, 1);
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "shape", &rank, dims));
    if (rank < 0 || rank > GD_MAX_RANK) return too_long("its shape", rank);
    for (int i = 0; i < rank; i++) { /* 0: as that of x */
        if (dims[i] == 0 && !zero) {
            if (i >= x->rank)
                return gd_fail(GD_E_SHAPE,
                               "dimension %d is to be that of its input, which has %d dimensions",
                               i, x->rank);
            dims[i] = x->dims[i];
            if (dims[i] == GD_UNKNOWN) kept = i; /* -1: follows from the others */
        }
        open += dims[i] == -1;
    }
    if (kept >= 0 && open > 1 && !settle_reshape(x, rank, dims, kept))
        return list ? set_late(l, node, late, x, &list, 1)
                    : gd_fail(GD_E_UNSUPPORTED, "two of its sizes are not known");
    return gd_onnx_set_output(l, node, 0, gd_reshape(x, gd_shape_of(rank, dims)));
}

/* Always a matrix: the axes before `axis`, and the others. */
gd_status gd_onnx_load_flatten(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis;
    gd_onnx_size sides[2] = {gd_onnx_size_is(1), gd_onnx_size_is(1)}, size;
    gd_tensor *y;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 1, &axis));
    if (axis < 0) axis += x->rank;
    if (axis < 0 || axis > x->rank)
        return gd_fail(GD_E_INDEX, "its axis is %lld, and its input has %d dimensions",
                       (long long)axis, x->rank);
    for (int i = 0; i < x->rank; i++) {
        GD_TRY(gd_onnx_size_of(x, i, &size));
        GD_TRY(gd_onnx_size_times(sides[i >= axis], size, &sides[i >= axis]));
    }
    GD_TRY(gd_onnx_reshape_to(l, x, 2, sides, &y));
    return gd_onnx_set_output(l, node, 0, y);
}

static int ascending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

gd_status gd_onnx_load_unsqueeze(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axes[GD_ONNX_MOST_NUMBERS];
    int count;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "axes", &count, axes));
    if (count < 1 || x->rank + count > GD_MAX_RANK) return too_long("the list of its axes", count);
    for (int i = 0; i < count; i++) GD_TRY(gd_onnx_fix_axis(&axes[i], x->rank + count));
    qsort(axes, (size_t)count, sizeof *axes, ascending);
    gd_tensor *y = x;
    for (int i = 0; i < count; i++) y = gd_unsqueeze(y, axes[i]);
    return gd_onnx_set_output(l, node, 0, y);
}

/* The shapes broadcast: 1 keeps a size. */
gd_status gd_onnx_load_expand(gd_onnx_loader *l, const gd_pb *node) {
    int64_t dims[GD_ONNX_MOST_NUMBERS];
    int count;
    gd_tensor *list;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_get_list(l, node, 1, &list));
    if (is_late(list))
        return set_late(l, node, (gd_late_options){.kind = GD_LATE_EXPAND}, x, &list, 1);
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "shape", &count, dims));
    if (count < 0 || count > GD_MAX_RANK) return too_long("its shape", count);
    gd_shape to = {.rank = count > x->rank ? count : x->rank, .form = 1};
    for (int i = 0; i < to.rank; i++) {
        const int from = i - (to.rank - count), old = i - (to.rank - x->rank);
        const int64_t size = from >= 0 ? dims[from] : 1;
        to.at[i] = size == 1 && old >= 0 ? -1 : size;
    }
    return gd_onnx_set_output(l, node, 0, gd_expand(x, to));
}

gd_status gd_onnx_load_transpose(gd_onnx_loader *l, const gd_pb *node) {
    const gd_pb_list *perm = gd_pb_get(gd_onnx_attribute_of(node, "perm"), "ints");
    GD_ONNX_NEED(x, 0);
    gd_shape axes = {.rank = x->rank, .form = 1};
    if (perm && perm->count != (size_t)x->rank)
        return gd_fail(GD_E_SHAPE, "its perm has %zu axes, and its input %d dimensions",
                       perm->count, x->rank);
    for (int i = 0; i < x->rank; i++) axes.at[i] = perm ? perm->ints[i] : x->rank - 1 - i;
    return gd_onnx_set_output(l, node, 0, gd_permute(x, axes));
}

/* 0, 1, 2, ... or 1, 1, 1, ...: the axes and the steps that are not given. */
static gd_tensor *usual(int count, bool ones) {
    int64_t numbers[GD_ONNX_MOST_NUMBERS];
    for (int i = 0; i < count; i++) numbers[i] = ones ? 1 : i;
    return gd_from_array(gd_dims(count), GD_I64, numbers);
}

gd_status gd_onnx_load_slice(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *lists[4] = {NULL};
    gd_numbers numbers[4];
    bool late = false;
    GD_ONNX_NEED(x, 0);
    for (size_t k = 0; k < 4; k++) {
        GD_TRY(gd_onnx_get_list(l, node, k + 1, &lists[k]));
        late = late || is_late(lists[k]);
    }
    if (!lists[0] || !lists[1]) return gd_fail(GD_E_FORMAT, "its starts or ends are missing");
    const int64_t count = gd_numel(lists[0]->rank, lists[0]->dims);
    if (count > GD_ONNX_MOST_NUMBERS) return too_long("the list of its starts", (int)count);
    if (!lists[2]) lists[2] = usual((int)count, false);
    if (!lists[3]) lists[3] = usual((int)count, true);
    const gd_late_options o = {.kind = GD_LATE_SLICE};
    if (late) return set_late(l, node, o, x, lists, 4);
    for (int k = 0; k < 4; k++) GD_TRY(gd_late_numbers(lists[k], &numbers[k]));
    return gd_onnx_set_output(l, node, 0, gd_late_now(&o, x, numbers, 4));
}

/* Whole numbers, or others that are known now. */
gd_status gd_onnx_load_range(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *lists[3];
    bool late = false;
    for (size_t k = 0; k < 3; k++) {
        GD_TRY(gd_onnx_get_list(l, node, k, &lists[k]));
        if (!lists[k]) return gd_fail(GD_E_FORMAT, "its input %zu is missing", k);
        if (gd_numel(lists[k]->rank, lists[k]->dims) != 1)
            return gd_fail(GD_E_FORMAT, "its input %zu must be one number", k);
        late = late || is_late(lists[k]);
    }
    const gd_dtype dtype = (gd_dtype)lists[0]->dtype;
    if (late) {
        gd_tensor *y;
        GD_TRY(gd_onnx_late(l, (gd_late_options){.kind = GD_LATE_RANGE, .dtype = dtype}, NULL,
                            lists, 3, &y));
        return gd_onnx_set_output(l, node, 0, y);
    }
    gd_number numbers[3];
    for (int k = 0; k < 3; k++)
        numbers[k] = gd_dtype_is_float(dtype) ? gd_number_of(gd_item(lists[k]))
                                              : gd_number_of(gd_item_int(lists[k]));
    return gd_onnx_set_output(
        l, node, 0, gd_arange(numbers[0], numbers[1], .step = numbers[2], .dtype = dtype));
}

gd_status gd_onnx_load_tile(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *list;
    gd_numbers numbers;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_get_list(l, node, 1, &list));
    if (!list) return gd_fail(GD_E_FORMAT, "its repeats are missing");
    const gd_late_options o = {.kind = GD_LATE_REPEAT};
    if (is_late(list)) return set_late(l, node, o, x, &list, 1);
    GD_TRY(gd_late_numbers(list, &numbers));
    return gd_onnx_set_output(l, node, 0, gd_late_now(&o, x, &numbers, 1));
}

/* Sizes that follow from those of a run: each piece is a slice, from the sum of those before it. */
static gd_status split_late(gd_onnx_loader *l, const gd_pb *node, gd_tensor *x, int64_t axis,
                            gd_tensor *sizes, int64_t pieces) {
    gd_tensor *ends, *axes, *steps, *y;
    if (sizes->rank != 1 || sizes->dims[0] != pieces)
        return gd_fail(GD_E_FORMAT, "it has %lld outputs, and not as many sizes",
                       (long long)pieces);
    ends = gd_cumsum(gd_cast(sizes, GD_I64), 0);
    gd_tensor *starts = gd_sub(ends, gd_cast(sizes, GD_I64));
    axes = gd_from_array(gd_dims(1), GD_I64, &axis);
    steps = usual(1, true);
    for (int64_t k = 0; k < pieces; k++) {
        gd_tensor *lists[4] = {gd_narrow(starts, 0, k, 1), gd_narrow(ends, 0, k, 1), axes, steps};
        if (lists[1]->kind == GD_FAILED || lists[0]->kind == GD_FAILED) return gd_failure();
        GD_TRY(gd_onnx_late(l,
                            (gd_late_options){.kind = GD_LATE_SLICE, .dtype = (gd_dtype)x->dtype},
                            x, lists, 4, &y));
        GD_TRY(gd_onnx_set_output(l, node, (size_t)k, y));
    }
    return GD_OK;
}

/* Pieces of equal size, the last one smaller where it does not come out even. */
static gd_status even_sizes(gd_tensor *x, int64_t axis, int64_t pieces, gd_tensor **sizes) {
    gd_onnx_size whole;
    gd_tensor *parts[GD_ONNX_MOST_NUMBERS];
    GD_TRY(gd_onnx_size_of(x, (int)axis, &whole));
    gd_tensor *all = gd_reshape(gd_onnx_size_number(whole), gd_dims(1)),
              *n = gd_scalar_of((double)pieces, GD_I64), *one = gd_scalar_of(1, GD_I64);
    gd_tensor *each = gd_floor_divide(gd_sub(gd_add(all, n), one), n), *left = all;
    for (int64_t k = 0; k < pieces; k++) {
        parts[k] = gd_minimum(each, left);
        left = gd_sub(left, parts[k]);
    }
    *sizes = gd_cat(((gd_tensors){parts, pieces}), .axis = 0);
    return (*sizes)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

gd_status gd_onnx_load_split(gd_onnx_loader *l, const gd_pb *node) {
    int64_t sizes[GD_ONNX_MOST_NUMBERS], axis;
    int count;
    const int64_t pieces = (int64_t)gd_pb_count(node, "output");
    gd_tensor *list;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(gd_onnx_fix_axis(&axis, x->rank));
    if (pieces < 1 || pieces > GD_ONNX_MOST_NUMBERS)
        return gd_fail(GD_E_UNSUPPORTED, "it has %lld outputs; possible are 1 to %d",
                       (long long)pieces, GD_ONNX_MOST_NUMBERS);
    GD_TRY(gd_onnx_get_list(l, node, 1, &list));
    if (is_late(list)) return split_late(l, node, x, axis, list, pieces);
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "split", &count, sizes));
    gd_tensor *parts[GD_ONNX_MOST_NUMBERS];
    if (count >= 0 && count != pieces)
        return gd_fail(GD_E_FORMAT, "it has %lld outputs and %d sizes", (long long)pieces, count);
    if (count > 1 && count <= GD_MAX_RANK) { /* ours, whether the size is known or not */
        gd_tensors y = gd_split(x, gd_shape_of(count, sizes), .axis = axis);
        if (y.count != pieces) return gd_failure();
        for (int64_t k = 0; k < pieces; k++)
            GD_TRY(gd_onnx_set_output(l, node, (size_t)k, y.at[k]));
        return GD_OK;
    }
    int64_t whole = x->dims[axis], at = 0;
    if (whole == GD_UNKNOWN && count < 0) {
        GD_TRY(even_sizes(x, axis, pieces, &list));
        return split_late(l, node, x, axis, list, pieces);
    }
    if (whole == GD_UNKNOWN) /* it is what the pieces are */
        for (whole = 0; at < count; at++)
            if (sizes[at] < 0 || __builtin_add_overflow(whole, sizes[at], &whole))
                return gd_fail(GD_E_SHAPE, "a size of its pieces is %lld", (long long)sizes[at]);
    at = 0;
    const int64_t each = (whole + pieces - 1) / pieces;
    for (int64_t k = 0; k < pieces; k++) {
        int64_t size = count >= 0 ? sizes[k] : each < whole - at ? each : whole - at;
        if (size < 0 || size > whole - at)
            return gd_fail(GD_E_SHAPE, "its pieces do not fit the size %lld", (long long)whole);
        parts[k] = gd_narrow(x, axis, at, size);
        at += size;
    }
    if (at != whole)
        return gd_fail(GD_E_SHAPE, "its pieces add up to %lld, and the size is %lld", (long long)at,
                       (long long)whole);
    for (int64_t k = 0; k < pieces; k++) GD_TRY(gd_onnx_set_output(l, node, (size_t)k, parts[k]));
    return GD_OK;
}

/* The list of pads as one for all axes: before each, then behind each. */
static gd_status all_pads(gd_tensor *pads, const int64_t *axes, int n_axes, int rank,
                          gd_tensor **all) {
    gd_tensor *parts[2 * GD_MAX_RANK], *zero = gd_zeros(gd_dims(1), .dtype = GD_I64);
    if (pads->rank != 1 || pads->dims[0] != 2 * n_axes || n_axes > rank)
        return gd_fail(GD_E_FORMAT, "it has %lld pads for %d axes",
                       (long long)gd_numel(pads->rank, pads->dims), n_axes);
    pads = gd_cast(pads, GD_I64);
    for (int i = 0; i < 2 * rank; i++) parts[i] = zero;
    for (int i = 0; i < 2 * n_axes; i++)
        parts[axes[i % n_axes] + (i < n_axes ? 0 : rank)] = gd_narrow(pads, 0, i, 1);
    *all = rank ? gd_cat(((gd_tensors){parts, 2 * rank}), .axis = 0) : pads;
    return (*all)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* What stands in the new places, and how they are filled. */
static gd_status read_pad(gd_onnx_loader *l, const gd_pb *node, gd_late_options *o) {
    gd_attrs *attrs = gd_attrs_new(gd_op_find("pad"));
    if (!attrs) return GD_E_MEMORY;
    if (*gd_pb_string_at(node, "input", 2)) GD_TRY(gd_onnx_set_number(l, node, 2, attrs, "value"));
    GD_TRY(gd_onnx_row_options(node, "pad", attrs, true));
    const gd_pad_options *given = gd_attrs_data(attrs);
    o->mode = given->mode;
    o->value = given->value;
    return GD_OK;
}

gd_status gd_onnx_load_pad(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axes[GD_ONNX_MOST_NUMBERS];
    int n_axes;
    gd_tensor *pads, *all;
    gd_numbers numbers;
    gd_late_options o = {.kind = GD_LATE_PAD};
    GD_ONNX_NEED(x, 0);
    GD_TRY(read_pad(l, node, &o));
    GD_TRY(gd_onnx_get_numbers(l, node, 3, "", &n_axes, axes));
    if (n_axes < 0)
        for (n_axes = 0; n_axes < x->rank; n_axes++) axes[n_axes] = n_axes;
    for (int i = 0; i < n_axes; i++) GD_TRY(gd_onnx_fix_axis(&axes[i], x->rank));
    GD_TRY(gd_onnx_get_list(l, node, 1, &pads));
    if (!pads) return gd_fail(GD_E_FORMAT, "its pads are missing");
    if (is_late(pads)) {
        GD_TRY(all_pads(pads, axes, n_axes, x->rank, &all));
        return set_late(l, node, o, x, &all, 1);
    }
    const gd_tracing tracing = gd_tracing_off();
    gd_status status = all_pads(pads, axes, n_axes, x->rank, &all);
    if (status == GD_OK) status = gd_late_numbers(all, &numbers);
    gd_tracing_on(tracing);
    GD_TRY(status);
    return gd_onnx_set_output(l, node, 0, gd_late_now(&o, x, &numbers, 1));
}

/* Of whole numbers, towards 0. (That of others is a row.) */
gd_status gd_onnx_load_div(gd_onnx_loader *l, const gd_pb *node) {
    GD_ONNX_NEED(a, 0);
    GD_ONNX_NEED(b, 1);
    return gd_onnx_set_output(l, node, 0, gd_floor_divide(gd_sub(a, gd_fmod(a, b)), b));
}

/* --- layers ----------------------------------------------------------------------------------- */

static gd_tensor *scaled(gd_tensor *x, double by) {
    return by == 1 ? x : gd_mul(x, gd_scalar_of(by, (gd_dtype)x->dtype));
}

/* alpha a b + beta c, a and b perhaps transposed. */
gd_status gd_onnx_load_gemm(gd_onnx_loader *l, const gd_pb *node) {
    double alpha, beta;
    int64_t trans_a, trans_b;
    gd_status status;
    GD_ONNX_NEED(a, 0);
    GD_ONNX_NEED(b, 1);
    gd_tensor *c = gd_onnx_get_input(l, node, 2, &status);
    GD_TRY(status);
    GD_TRY(gd_onnx_float_attribute(node, "alpha", 1, &alpha));
    GD_TRY(gd_onnx_float_attribute(node, "beta", 1, &beta));
    GD_TRY(gd_onnx_int_attribute(node, "transA", 0, &trans_a));
    GD_TRY(gd_onnx_int_attribute(node, "transB", 0, &trans_b));
    if (a->rank != 2 || b->rank != 2)
        return gd_fail(GD_E_SHAPE, "its inputs have %d and %d dimensions, and must have 2", a->rank,
                       b->rank);
    const bool bias = !c || (c->rank == 1 && c->dims[0] == b->dims[0] && c->dims[0] != GD_UNKNOWN);
    if (alpha == 1 && beta == 1 && !trans_a && trans_b && bias)
        return gd_onnx_set_output(l, node, 0, gd_linear(a, b, c));
    gd_tensor *y =
        gd_matmul(trans_a ? gd_transpose(a, 0, 1) : a, trans_b ? gd_transpose(b, 0, 1) : b);
    y = scaled(y, alpha);
    if (c) y = gd_add(y, scaled(c, beta));
    return gd_onnx_set_output(l, node, 0, y);
}
