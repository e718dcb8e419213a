/* onnx_load_special.c - nodes of ONNX files that are more than one call, or need sizes to be
 * understood. */
#include <stdlib.h>
#include <string.h>

#include "gradus/ops.h"
#include "io/onnx.h"

/* The input of number `i`, which must be there. */
#define NEED(t, i)                                                                                 \
    gd_tensor *t;                                                                                  \
    do {                                                                                           \
        gd_status need_status_;                                                                    \
        t = gd_onnx_get_input(l, node, i, &need_status_);                                          \
        if (need_status_ != GD_OK) return need_status_;                                            \
        if (!t) return gd_fail(GD_E_FORMAT, "its input %d is missing", (int)(i));                  \
    } while (0)

static gd_status fix_axis(int64_t *axis, int rank) {
    if (*axis < -rank || *axis >= rank)
        return gd_fail(GD_E_INDEX, "its axis is %lld, and its input has %d dimensions",
                       (long long)*axis, rank);
    if (*axis < 0) *axis += rank;
    return GD_OK;
}

static gd_status too_long(const char *what, int count) {
    return gd_fail(GD_E_UNSUPPORTED, "%s has %d numbers; at most %d are possible here", what, count,
                   GD_MAX_RANK);
}

/* --- constants
 * ------------------------------------------------------------------------------------ */

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
    gd_tensor *one = NULL;
    GD_TRY(gd_onnx_get_numbers(l, node, 0, "", &rank, dims));
    if (rank < 0 || rank > GD_MAX_RANK) return too_long("its shape", rank);
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0)
            return gd_fail(GD_E_FORMAT, "its shape has a negative size, %lld", (long long)dims[i]);
    if (value)
        GD_TRY(gd_onnx_read_tensor(value, gd_onnx_folder(l), &one));
    else
        one = gd_from_array(gd_dims(1), GD_F32, &zero);
    if (gd_tensor_numel(one) != 1) return gd_fail(GD_E_FORMAT, "its value must have one element");
    return gd_onnx_set_output(l, node, 0,
                              gd_expand(gd_reshape(one, gd_dims()), gd_shape_of(rank, dims)));
}

gd_status gd_onnx_load_shape(gd_onnx_loader *l, const gd_pb *node) {
    int64_t start, end, dims[GD_MAX_RANK], n = 0;
    NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "start", 0, &start));
    GD_TRY(gd_onnx_int_attribute(node, "end", x->rank, &end));
    if (start < 0) start += x->rank;
    if (end < 0) end += x->rank;
    for (int64_t i = start < 0 ? 0 : start; i < end && i < x->rank; i++) {
        if (x->dims[i] == GD_UNKNOWN)
            return gd_fail(GD_E_UNSUPPORTED,
                           "dimension %lld of its input is known only when the graph runs",
                           (long long)i);
        dims[n++] = x->dims[i];
    }
    return gd_onnx_set_output(l, node, 0, gd_from_array(gd_dims(n), GD_I64, dims));
}

/* --- shapes
 * --------------------------------------------------------------------------------------- */

/* A size that is not known is kept (dims[kept] is -1 for it) and another is to follow from the
 * rest: it does from the sizes that are known, since the one that is not stands on both sides. */
static gd_status settle_reshape(const gd_tensor *x, int rank, int64_t *dims, int kept) {
    int64_t have = 1, made = 1;
    int open = -1, unknown = 0;
    for (int i = 0; i < x->rank; i++) {
        if (x->dims[i] == GD_UNKNOWN)
            unknown++;
        else if (__builtin_mul_overflow(have, x->dims[i], &have))
            return gd_fail(GD_E_OVERFLOW, "its size overflows");
    }
    for (int i = 0; i < rank; i++) {
        if (i == kept) continue;
        if (dims[i] == -1)
            open = i;
        else if (__builtin_mul_overflow(made, dims[i], &made))
            return gd_fail(GD_E_OVERFLOW, "its size overflows");
    }
    if (open < 0) return GD_OK;
    if (unknown != 1 || made <= 0 || have % made)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "its dimension %d follows from sizes that are known only when the graph runs", open);
    dims[open] = have / made;
    return GD_OK;
}

gd_status gd_onnx_load_reshape(gd_onnx_loader *l, const gd_pb *node) {
    int64_t dims[GD_ONNX_MOST_NUMBERS];
    int rank, kept = -1;
    NEED(x, 0);
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "shape", &rank, dims));
    if (rank < 0 || rank > GD_MAX_RANK) return too_long("its shape", rank);
    for (int i = 0; i < rank; i++) { /* 0: as that of x */
        if (dims[i] != 0) continue;
        if (i >= x->rank)
            return gd_fail(GD_E_SHAPE,
                           "dimension %d is to be that of its input, which has %d dimensions", i,
                           x->rank);
        dims[i] = x->dims[i];
        if (dims[i] == GD_UNKNOWN) kept = i; /* -1: follows from the others */
    }
    if (kept >= 0) GD_TRY(settle_reshape(x, rank, dims, kept));
    return gd_onnx_set_output(l, node, 0, gd_reshape(x, gd_shape_of(rank, dims)));
}

/* Always a matrix: the axes before `axis`, and the others. */
gd_status gd_onnx_load_flatten(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis, rows = 1, columns = 1;
    bool rows_known = true, columns_known = true;
    NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 1, &axis));
    if (axis < 0) axis += x->rank;
    if (axis < 0 || axis > x->rank)
        return gd_fail(GD_E_INDEX, "its axis is %lld, and its input has %d dimensions",
                       (long long)axis, x->rank);
    for (int i = 0; i < x->rank; i++) {
        int64_t *side = i < axis ? &rows : &columns;
        if (x->dims[i] == GD_UNKNOWN)
            *(i < axis ? &rows_known : &columns_known) = false;
        else if (__builtin_mul_overflow(*side, x->dims[i], side))
            return gd_fail(GD_E_OVERFLOW, "its size overflows");
    }
    if (!rows_known && !columns_known)
        return gd_fail(GD_E_UNSUPPORTED, "sizes on both sides of the axis are not known");
    return gd_onnx_set_output(
        l, node, 0, gd_reshape(x, gd_dims(rows_known ? rows : -1, columns_known ? columns : -1)));
}

static int ascending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

gd_status gd_onnx_load_unsqueeze(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axes[GD_ONNX_MOST_NUMBERS];
    int count;
    NEED(x, 0);
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "axes", &count, axes));
    if (count < 1 || x->rank + count > GD_MAX_RANK) return too_long("the list of its axes", count);
    for (int i = 0; i < count; i++) GD_TRY(fix_axis(&axes[i], x->rank + count));
    qsort(axes, (size_t)count, sizeof *axes, ascending);
    gd_tensor *y = x;
    for (int i = 0; i < count; i++) y = gd_unsqueeze(y, axes[i]);
    return gd_onnx_set_output(l, node, 0, y);
}

/* The shapes broadcast: 1 keeps a size. */
gd_status gd_onnx_load_expand(gd_onnx_loader *l, const gd_pb *node) {
    int64_t dims[GD_ONNX_MOST_NUMBERS];
    int count;
    NEED(x, 0);
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
    NEED(x, 0);
    gd_shape axes = {.rank = x->rank, .form = 1};
    if (perm && perm->count != (size_t)x->rank)
        return gd_fail(GD_E_SHAPE, "its perm has %zu axes, and its input %d dimensions",
                       perm->count, x->rank);
    for (int i = 0; i < x->rank; i++) axes.at[i] = perm ? perm->ints[i] : x->rank - 1 - i;
    return gd_onnx_set_output(l, node, 0, gd_permute(x, axes));
}

gd_status gd_onnx_load_slice(gd_onnx_loader *l, const gd_pb *node) {
    int64_t starts[GD_ONNX_MOST_NUMBERS], ends[GD_ONNX_MOST_NUMBERS], axes[GD_ONNX_MOST_NUMBERS],
        steps[GD_ONNX_MOST_NUMBERS];
    int n, n_ends, n_axes, n_steps;
    NEED(x, 0);
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "starts", &n, starts));
    GD_TRY(gd_onnx_get_numbers(l, node, 2, "ends", &n_ends, ends));
    GD_TRY(gd_onnx_get_numbers(l, node, 3, "axes", &n_axes, axes));
    GD_TRY(gd_onnx_get_numbers(l, node, 4, "steps", &n_steps, steps));
    if (n < 0 || n != n_ends || (n_axes >= 0 && n_axes != n) || (n_steps >= 0 && n_steps != n))
        return gd_fail(GD_E_FORMAT, "its starts, ends, axes and steps are %d, %d, %d and %d", n,
                       n_ends, n_axes, n_steps);
    gd_tensor *y = x;
    for (int i = 0; i < n; i++) {
        const int64_t step = n_steps < 0 ? 1 : steps[i];
        if (step == 0) return gd_fail(GD_E_FORMAT, "its step is 0");
        /* beyond the end, where a slice that runs back begins: ours has no such start */
        const int64_t start = step < 0 && starts[i] > INT64_MAX - GD_MAX_RANK ? GD_UNSET
                              : starts[i] == GD_UNSET                         ? GD_UNSET + 1
                                                                              : starts[i];
        y = gd_slice(y, .axis = n_axes < 0 ? i : axes[i], .start = start, .stop = ends[i],
                     .step = step);
    }
    return gd_onnx_set_output(l, node, 0, y);
}

gd_status gd_onnx_load_split(gd_onnx_loader *l, const gd_pb *node) {
    int64_t sizes[GD_ONNX_MOST_NUMBERS], axis;
    int count;
    const int64_t pieces = (int64_t)gd_pb_count(node, "output");
    NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(fix_axis(&axis, x->rank));
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "split", &count, sizes));
    gd_tensor *parts[GD_ONNX_MOST_NUMBERS];
    if (pieces < 1 || pieces > GD_ONNX_MOST_NUMBERS)
        return gd_fail(GD_E_UNSUPPORTED, "it has %lld outputs", (long long)pieces);
    if (count >= 0 && count != pieces)
        return gd_fail(GD_E_FORMAT, "it has %lld outputs and %d sizes", (long long)pieces, count);
    if (count > 1 && count <= GD_MAX_RANK) { /* ours, whether the size is known or not */
        gd_tensors y = gd_split(x, gd_shape_of(count, sizes), .axis = axis);
        if (y.count != pieces) return gd_failure();
        for (int64_t k = 0; k < pieces; k++)
            GD_TRY(gd_onnx_set_output(l, node, (size_t)k, y.at[k]));
        return GD_OK;
    }
    const int64_t whole = x->dims[axis];
    if (whole == GD_UNKNOWN)
        return gd_fail(GD_E_UNSUPPORTED, "the size that it splits is not known");
    const int64_t each = (whole + pieces - 1) / pieces;
    int64_t at = 0;
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

gd_status gd_onnx_load_pad(gd_onnx_loader *l, const gd_pb *node) {
    int64_t pads[GD_ONNX_MOST_NUMBERS], axes[GD_ONNX_MOST_NUMBERS], sides[2 * GD_MAX_RANK] = {0};
    int count, n_axes;
    NEED(x, 0);
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "pads", &count, pads));
    GD_TRY(gd_onnx_get_numbers(l, node, 3, "", &n_axes, axes));
    if (n_axes < 0)
        for (n_axes = 0; n_axes < x->rank; n_axes++) axes[n_axes] = n_axes;
    if (count != 2 * n_axes || n_axes > x->rank)
        return gd_fail(GD_E_FORMAT, "it has %d pads for %d axes", count, n_axes);
    int first = x->rank; /* the first axis with a border */
    for (int i = 0; i < n_axes; i++) {
        GD_TRY(fix_axis(&axes[i], x->rank));
        const int64_t back = x->rank - 1 - axes[i]; /* ours begin with the last axis */
        sides[2 * back] = pads[i];
        sides[2 * back + 1] = pads[n_axes + i];
        if ((pads[i] || pads[n_axes + i]) && axes[i] < first) first = (int)axes[i];
    }
    if (2 * (x->rank - first) > GD_MAX_RANK)
        return gd_fail(GD_E_UNSUPPORTED, "more than %d axes get a border", GD_MAX_RANK / 2);
    gd_attrs *attrs = gd_attrs_new(gd_op_find("pad"));
    if (!attrs) return GD_E_MEMORY;
    if (*gd_pb_string_at(node, "input", 2)) GD_TRY(gd_onnx_set_number(l, node, 2, attrs, "value"));
    if (first == x->rank) return gd_onnx_set_output(l, node, 0, gd_clone(x));
    GD_TRY(gd_attrs_set_ints(attrs, "padding", 2 * (x->rank - first), sides));
    GD_TRY(gd_onnx_row_options(node, "pad", attrs));
    gd_tensors y = gd_op_call(gd_op_find("pad"), gd_list(x), attrs);
    return gd_onnx_set_output(l, node, 0, y.count ? y.at[0] : &gd_error_tensor);
}

/* --- layers
 * --------------------------------------------------------------------------------------- */

static gd_tensor *scaled(gd_tensor *x, double by) {
    return by == 1 ? x : gd_mul(x, gd_scalar_of(by, (gd_dtype)x->dtype));
}

/* alpha a b + beta c, a and b perhaps transposed. */
gd_status gd_onnx_load_gemm(gd_onnx_loader *l, const gd_pb *node) {
    double alpha, beta;
    int64_t trans_a, trans_b;
    gd_status status;
    NEED(a, 0);
    NEED(b, 1);
    gd_tensor *c = gd_onnx_get_input(l, node, 2, &status);
    GD_TRY(status);
    GD_TRY(gd_onnx_float_attribute(node, "alpha", 1, &alpha));
    GD_TRY(gd_onnx_float_attribute(node, "beta", 1, &beta));
    GD_TRY(gd_onnx_int_attribute(node, "transA", 0, &trans_a));
    GD_TRY(gd_onnx_int_attribute(node, "transB", 0, &trans_b));
    if (a->rank != 2 || b->rank != 2)
        return gd_fail(GD_E_SHAPE, "its inputs have %d and %d dimensions, and must have 2", a->rank,
                       b->rank);
    gd_tensor *y =
        gd_matmul(trans_a ? gd_transpose(a, 0, 1) : a, trans_b ? gd_transpose(b, 0, 1) : b);
    y = scaled(y, alpha);
    if (c) y = gd_add(y, scaled(c, beta));
    return gd_onnx_set_output(l, node, 0, y);
}

gd_status gd_onnx_load_layer_norm(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis, stash;
    double eps;
    gd_status status;
    NEED(x, 0);
    NEED(weight, 1);
    gd_tensor *bias = gd_onnx_get_input(l, node, 2, &status);
    GD_TRY(status);
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_int_attribute(node, "stash_type", 1, &stash));
    GD_TRY(gd_onnx_float_attribute(node, "epsilon", 1e-5, &eps));
    GD_TRY(fix_axis(&axis, x->rank));
    if (gd_pb_count(node, "output") > 1 && *gd_pb_string_at(node, "output", 1))
        return gd_fail(GD_E_UNSUPPORTED, "its outputs behind the first are not known here");
    if (weight->rank != x->rank - axis)
        return gd_fail(GD_E_SHAPE, "its scale has %d dimensions; there are %lld axes from %lld on",
                       weight->rank, (long long)(x->rank - axis), (long long)axis);
    return gd_onnx_set_output(l, node, 0, gd_layer_norm(x, weight, bias, .eps = eps));
}

/* One position, or indices of any shape. */
gd_status gd_onnx_load_gather(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis, index[GD_ONNX_MOST_NUMBERS];
    int count;
    NEED(x, 0);
    NEED(at, 1);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(fix_axis(&axis, x->rank));
    if (at->rank == 0) {
        GD_TRY(gd_onnx_get_numbers(l, node, 1, "", &count, index));
        if (count != 1) return gd_fail(GD_E_FORMAT, "its index must be one number");
        return gd_onnx_set_output(l, node, 0, gd_select(x, axis, index[0]));
    }
    return gd_fail(GD_E_UNSUPPORTED,
                   "indices of %d dimensions for an input of %d are not possible here", at->rank,
                   x->rank);
}
