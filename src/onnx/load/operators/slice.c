/* slice.c - Slice, Split and Pad. */
#include <string.h>

#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"
#include "dispatch/call.h"

/* The defaults of a Slice: axes 0, 1, 2, ... or steps 1, 1, 1, ... */
static gd_tensor *default_list(int count, bool ones) {
    int64_t numbers[GD_ONNX_MAX_NUMBERS];
    for (int i = 0; i < count; i++) numbers[i] = ones ? 1 : i;
    return gd_from_array(gd_dims(count), GD_I64, numbers);
}

gd_status gd_onnx_load_slice(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *lists[4] = {NULL};
    gd_numbers numbers[4];
    bool symbolic = false;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    for (size_t k = 0; k < 4; k++) {
        GD_TRY(gd_onnx_get_list(l, node, k + 1, &lists[k]));
        symbolic = symbolic || gd_onnx_is_symbolic(lists[k]);
    }
    if (!lists[0] || !lists[1]) return gd_fail(GD_E_FORMAT, "its starts or ends are missing");
    const int64_t count = gd_numel(lists[0]->rank, lists[0]->dims);
    if (count > GD_ONNX_MAX_NUMBERS)
        return gd_onnx_fail_too_long("the list of its starts", (int)count);
    if (!lists[2]) lists[2] = default_list((int)count, false);
    if (!lists[3]) lists[3] = default_list((int)count, true);
    const gd_deferred_call_options o = {.kind = GD_DEFERRED_SLICE};
    if (symbolic) return gd_onnx_set_deferred_output(l, node, o, x, lists, 4);
    for (int k = 0; k < 4; k++) GD_TRY(gd_deferred_numbers(lists[k], &numbers[k]));
    return gd_onnx_set_output(l, node, 0, gd_deferred_now(&o, x, numbers, 4));
}

/* Splits by sizes that are known only at run time: each piece is a slice that starts at the sum of
 * the sizes before it. */
static gd_status split_symbolic(gd_onnx_loader *l, const gd_pb *node, gd_tensor *x, int64_t axis,
                                gd_tensor *sizes, int64_t pieces) {
    gd_tensor *ends, *axes, *steps, *y;
    if (sizes->rank != 1 || sizes->dims[0] != pieces)
        return gd_fail(GD_E_FORMAT, "it has %lld outputs and another number of sizes",
                       (long long)pieces);
    ends = gd_cumsum(gd_cast(sizes, GD_I64), 0);
    gd_tensor *starts = gd_sub(ends, gd_cast(sizes, GD_I64));
    axes = gd_from_array(gd_dims(1), GD_I64, &axis);
    steps = default_list(1, true);
    for (int64_t k = 0; k < pieces; k++) {
        gd_tensor *lists[4] = {gd_narrow(starts, 0, k, 1), gd_narrow(ends, 0, k, 1), axes, steps};
        if (lists[1]->kind == GD_FAILED || lists[0]->kind == GD_FAILED) return gd_failure();
        GD_TRY(gd_onnx_add_deferred_node(
            l, (gd_deferred_call_options){.kind = GD_DEFERRED_SLICE, .dtype = (gd_dtype)x->dtype},
            x, lists, 4, &y));
        GD_TRY(gd_onnx_set_output(l, node, (size_t)k, y));
    }
    return GD_OK;
}

/* The sizes of equal pieces; the last ones are smaller if the axis is not a multiple. */
static gd_status even_sizes(gd_tensor *x, int64_t axis, int64_t pieces, gd_tensor **sizes) {
    gd_onnx_size size;
    gd_tensor *parts[GD_ONNX_MAX_NUMBERS];
    GD_TRY(gd_onnx_size_of(x, (int)axis, &size));
    gd_tensor *total = gd_reshape(gd_onnx_size_tensor(size), gd_dims(1)),
              *n = gd_scalar_of((double)pieces, GD_I64), *one = gd_scalar_of(1, GD_I64);
    gd_tensor *each = gd_floor_divide(gd_sub(gd_add(total, n), one), n), *rest = total;
    for (int64_t k = 0; k < pieces; k++) {
        parts[k] = gd_minimum(each, rest);
        rest = gd_sub(rest, parts[k]);
    }
    *sizes = gd_cat(((gd_tensors){parts, pieces}), .axis = 0);
    return (*sizes)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

gd_status gd_onnx_load_split(gd_onnx_loader *l, const gd_pb *node) {
    int64_t sizes[GD_ONNX_MAX_NUMBERS], axis;
    int count;
    const int64_t pieces = (int64_t)gd_pb_count(node, "output");
    gd_tensor *list;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(gd_onnx_normalize_axis(&axis, x->rank));
    if (pieces < 1 || pieces > GD_ONNX_MAX_NUMBERS)
        return gd_fail(GD_E_UNSUPPORTED, "it has %lld outputs; from 1 to %d are supported",
                       (long long)pieces, GD_ONNX_MAX_NUMBERS);
    GD_TRY(gd_onnx_get_list(l, node, 1, &list));
    if (gd_onnx_is_symbolic(list)) return split_symbolic(l, node, x, axis, list, pieces);
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "split", &count, sizes));
    gd_tensor *parts[GD_ONNX_MAX_NUMBERS];
    if (count >= 0 && count != pieces)
        return gd_fail(GD_E_FORMAT, "it has %lld outputs and %d sizes", (long long)pieces, count);
    if (count > 1 && count <= GD_MAX_RANK) { /* the op does not need the size of the axis */
        gd_tensors y = gd_split(x, gd_shape_of(count, sizes), .axis = axis);
        if (y.count != pieces) return gd_failure();
        for (int64_t k = 0; k < pieces; k++)
            GD_TRY(gd_onnx_set_output(l, node, (size_t)k, y.at[k]));
        return GD_OK;
    }
    int64_t total = x->dims[axis], at = 0;
    if (total == GD_UNKNOWN && count < 0) {
        GD_TRY(even_sizes(x, axis, pieces, &list));
        return split_symbolic(l, node, x, axis, list, pieces);
    }
    if (total == GD_UNKNOWN) /* the sum of the pieces */
        for (total = 0; at < count; at++)
            if (sizes[at] < 0 || __builtin_add_overflow(total, sizes[at], &total))
                return gd_fail(GD_E_SHAPE, "a size of its pieces is %lld", (long long)sizes[at]);
    at = 0;
    const int64_t each = (total + pieces - 1) / pieces;
    for (int64_t k = 0; k < pieces; k++) {
        int64_t size = count >= 0 ? sizes[k] : each < total - at ? each : total - at;
        if (size < 0 || size > total - at)
            return gd_fail(GD_E_SHAPE, "its pieces do not fit the size %lld", (long long)total);
        parts[k] = gd_narrow(x, axis, at, size);
        at += size;
    }
    if (at != total)
        return gd_fail(GD_E_SHAPE, "its pieces add up to %lld, and the size is %lld", (long long)at,
                       (long long)total);
    for (int64_t k = 0; k < pieces; k++) GD_TRY(gd_onnx_set_output(l, node, (size_t)k, parts[k]));
    return GD_OK;
}

/* Extends a list of pads for some axes to all axes: those before each axis, then those behind. */
static gd_status extend_pads(gd_tensor *pads, const int64_t *axes, int n_axes, int rank,
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

/* Reads the mode and the value of a Pad. */
static gd_status read_pad_options(gd_onnx_loader *l, const gd_pb *node,
                                  gd_deferred_call_options *o) {
    gd_attrs *attrs = gd_attrs_new(gd_op_find("pad"));
    if (!attrs) return GD_E_MEMORY;
    if (*gd_pb_string_at(node, "input", 2)) GD_TRY(gd_onnx_set_number(l, node, 2, attrs, "value"));
    GD_TRY(gd_onnx_read_row_options(node, "pad", attrs, true));
    const gd_pad_options *given = gd_attrs_data(attrs);
    o->mode = given->mode;
    o->value = given->value;
    return GD_OK;
}

gd_status gd_onnx_load_pad(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axes[GD_ONNX_MAX_NUMBERS];
    int n_axes;
    gd_tensor *pads, *all;
    gd_numbers numbers;
    gd_deferred_call_options o = {.kind = GD_DEFERRED_PAD};
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(read_pad_options(l, node, &o));
    GD_TRY(gd_onnx_get_numbers(l, node, 3, "", &n_axes, axes));
    if (n_axes < 0)
        for (n_axes = 0; n_axes < x->rank; n_axes++) axes[n_axes] = n_axes;
    for (int i = 0; i < n_axes; i++) GD_TRY(gd_onnx_normalize_axis(&axes[i], x->rank));
    GD_TRY(gd_onnx_get_list(l, node, 1, &pads));
    if (!pads) return gd_fail(GD_E_FORMAT, "its pads are missing");
    if (gd_onnx_is_symbolic(pads)) {
        GD_TRY(extend_pads(pads, axes, n_axes, x->rank, &all));
        return gd_onnx_set_deferred_output(l, node, o, x, &all, 1);
    }
    const gd_tracing tracing = gd_tracing_off();
    gd_status status = extend_pads(pads, axes, n_axes, x->rank, &all);
    if (status == GD_OK) status = gd_deferred_numbers(all, &numbers);
    gd_tracing_on(tracing);
    GD_TRY(status);
    return gd_onnx_set_output(l, node, 0, gd_deferred_now(&o, x, &numbers, 1));
}
