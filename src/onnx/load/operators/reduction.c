/* reduction.c - ReduceSumSquare, ReduceLogSum, ArgMax and ArgMin of the last index, Hardmax,
 * LpNormalization and TopK. */
#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"

/* The axes of a reduction. *none: there are no axes, and x is not reduced. */
static gd_status read_axes(gd_onnx_loader *l, const gd_pb *node, int rank, gd_shape *axes,
                           bool *keep, bool *none) {
    int64_t numbers[GD_ONNX_MAX_NUMBERS], keepdims, noop;
    int count;
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "axes", &count, numbers));
    GD_TRY(gd_onnx_int_attribute(node, "keepdims", 1, &keepdims));
    GD_TRY(gd_onnx_int_attribute(node, "noop_with_empty_axes", 0, &noop));
    if (count > GD_MAX_RANK) return gd_fail(GD_E_FORMAT, "it has %d axes", count);
    *keep = keepdims != 0;
    *none = count <= 0 && noop;
    if (count <= 0) /* all axes */
        for (count = 0; count < rank; count++) numbers[count] = count;
    *axes = gd_shape_of(count, numbers);
    return GD_OK;
}

gd_status gd_onnx_load_sum_square(gd_onnx_loader *l, const gd_pb *node) {
    gd_shape axes;
    bool keep, none;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(read_axes(l, node, x->rank, &axes, &keep, &none));
    gd_tensor *y = gd_square(x);
    return gd_onnx_set_output(
        l, node, 0,
        none ? y : gd_sum(y, .axis = axes, .keepdim = keep, .dtype = (gd_dtype)x->dtype));
}

gd_status gd_onnx_load_log_sum(gd_onnx_loader *l, const gd_pb *node) {
    gd_shape axes;
    bool keep, none;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(read_axes(l, node, x->rank, &axes, &keep, &none));
    gd_tensor *y = gd_log(none ? x : gd_sum(x, .axis = axes, .keepdim = keep));
    return gd_onnx_set_output(l, node, 0, gd_cast(y, (gd_dtype)x->dtype));
}

/* With select_last_index: finds the first index in x flipped along the axis, and counts it from the
 * end. */
static gd_status load_arg_reduction(gd_onnx_loader *l, const gd_pb *node, bool max) {
    int64_t axis, keep, last;
    gd_onnx_size size;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(gd_onnx_int_attribute(node, "keepdims", 1, &keep));
    GD_TRY(gd_onnx_int_attribute(node, "select_last_index", 0, &last));
    GD_TRY(gd_onnx_normalize_axis(&axis, x->rank));
    GD_TRY(gd_onnx_size_of(x, (int)axis, &size));
    if (last) x = gd_flip(x, gd_dims(axis));
    gd_tensor *y = max ? gd_argmax(x, .axis = axis, .keepdim = keep != 0)
                       : gd_argmin(x, .axis = axis, .keepdim = keep != 0);
    if (last) y = gd_sub(gd_sub(gd_onnx_size_tensor(size), gd_scalar_of(1, GD_I64)), y);
    return gd_onnx_set_output(l, node, 0, y);
}
gd_status gd_onnx_load_argmax(gd_onnx_loader *l, const gd_pb *node) {
    return load_arg_reduction(l, node, true);
}
gd_status gd_onnx_load_argmin(gd_onnx_loader *l, const gd_pb *node) {
    return load_arg_reduction(l, node, false);
}

/* 1 at the first maximum, 0 elsewhere. */
gd_status gd_onnx_load_hardmax(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_normalize_axis(&axis, x->rank));
    gd_tensor *argmax = gd_argmax(x, .axis = axis, .keepdim = true);
    gd_tensor *ones = gd_ones_like(x, .dtype = GD_I64);
    gd_tensor *index = gd_sub(gd_cumsum(ones, axis), ones); /* 0, 1, ... along the axis */
    return gd_onnx_set_output(l, node, 0, gd_cast(gd_eq(index, argmax), (gd_dtype)x->dtype));
}

/* x divided by its norm along an axis; 0 where the norm is 0. */
gd_status gd_onnx_load_lp_normalization(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis, p;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_int_attribute(node, "p", 2, &p));
    GD_TRY(gd_onnx_normalize_axis(&axis, x->rank));
    gd_tensor *norm = gd_norm(x, .p = (double)p, .axis = axis, .keepdim = true);
    norm = gd_where(gd_eq(norm, gd_onnx_scalar_like(x, 0)), gd_onnx_scalar_like(x, 1), norm);
    return gd_onnx_set_output(l, node, 0, gd_div(x, norm));
}

/* --- TopK ------------------------------------------------------------------------------------- */

/* Whether a symbolic number is the size of an axis. Probes several values of the unknown sizes. */
static gd_status is_axis_size(gd_onnx_loader *l, gd_tensor *list, int64_t size, bool *is) {
    gd_tensor *value;
    for (int64_t probe = 3; probe < 8 && *is; probe++) {
        GD_TRY(gd_onnx_evaluate(l, list, probe, &value));
        *is = gd_tensor_numel(value) == 1 &&
              gd_item(value) == (double)(size == GD_UNKNOWN ? probe : size);
    }
    return GD_OK;
}

/* If k is known only at run time, it must be the size of the axis: then TopK is a sort. */
gd_status gd_onnx_load_topk(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *k, *values, *indices;
    gd_numbers count;
    int64_t axis, largest;
    bool sorts_all = true;
    GD_ONNX_OPTIONAL_INPUT(x, 0);
    GD_TRY(gd_onnx_get_list(l, node, 1, &k));
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_int_attribute(node, "largest", 1, &largest));
    if (!x || !k || x->rank == 0) return gd_fail(GD_E_FORMAT, "it needs an input with axes, and k");
    GD_TRY(gd_onnx_normalize_axis(&axis, x->rank));
    const int64_t size = x->dims[axis];
    if (k->kind == GD_SYMBOL) {
        GD_TRY(is_axis_size(l, k, size, &sorts_all));
        if (!sorts_all)
            return gd_fail(
                GD_E_UNSUPPORTED,
                "its k is known only when the graph runs, and is not the size of its axis");
        gd_sort_outputs s = gd_sort(x, .axis = axis, .descending = largest != 0);
        values = s.values, indices = s.indices;
    } else {
        GD_TRY(gd_deferred_numbers(k, &count));
        if (count.count != 1) return gd_fail(GD_E_FORMAT, "its k must be one number");
        gd_topk_outputs t = gd_topk(x, count.at[0], .axis = axis, .largest = largest != 0);
        values = t.values, indices = t.indices;
    }
    GD_TRY(gd_onnx_set_output(l, node, 0, values));
    return gd_pb_count(node, "output") > 1 ? gd_onnx_set_output(l, node, 1, indices) : GD_OK;
}
