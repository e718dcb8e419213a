/* constant.c - Constant, ConstantOfShape, Shape, Size, Range and EyeLike. */
#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"

gd_status gd_onnx_load_constant(gd_onnx_loader *l, const gd_pb *node) {
    const gd_pb *value = gd_onnx_find_attribute(node, "value"), *a;
    gd_tensor *t = NULL;
    if (value && gd_pb_message(value, "t")) {
        GD_TRY(gd_onnx_read_tensor(gd_pb_message(value, "t"), l->folder, &t));
    } else if ((a = gd_onnx_find_attribute(node, "value_int")) != NULL) {
        const int64_t number = gd_pb_int(a, "i", 0);
        t = gd_from_array(gd_dims(), GD_I64, &number);
    } else if ((a = gd_onnx_find_attribute(node, "value_float")) != NULL) {
        const float number = (float)gd_pb_float(a, "f", 0);
        t = gd_from_array(gd_dims(), GD_F32, &number);
    } else if ((a = gd_onnx_find_attribute(node, "value_ints")) != NULL) {
        const gd_pb_list *list = gd_pb_get(a, "ints");
        t = gd_from_array(gd_dims(list ? (int64_t)list->count : 0), GD_I64,
                          list ? list->ints : NULL);
    } else if ((a = gd_onnx_find_attribute(node, "value_floats")) != NULL) {
        const gd_pb_list *list = gd_pb_get(a, "floats");
        t = gd_from_array(gd_dims(list ? (int64_t)list->count : 0), GD_F32,
                          list ? list->floats : NULL);
    } else {
        return gd_fail(GD_E_UNSUPPORTED, "it has no value that is a tensor or numbers");
    }
    return gd_onnx_set_output(l, node, 0, t);
}

gd_status gd_onnx_load_constant_of_shape(gd_onnx_loader *l, const gd_pb *node) {
    int64_t dims[GD_ONNX_MAX_NUMBERS];
    int rank;
    const gd_pb *value = gd_pb_message(gd_onnx_find_attribute(node, "value"), "t");
    const float zero = 0;
    gd_tensor *one = NULL, *list;
    if (value) GD_TRY(gd_onnx_read_tensor(value, l->folder, &one));
    else one = gd_from_array(gd_dims(1), GD_F32, &zero);
    if (one->kind == GD_FAILED) return gd_failure();
    if (gd_tensor_numel(one) != 1) return gd_fail(GD_E_FORMAT, "its value must have one element");
    GD_TRY(gd_onnx_get_list(l, node, 0, &list));
    if (gd_onnx_is_symbolic(list))
        return gd_onnx_set_deferred_output(l, node,
                                           (gd_deferred_call_options){.kind = GD_DEFERRED_EXPAND},
                                           gd_reshape(one, gd_dims()), &list, 1);
    GD_TRY(gd_onnx_get_numbers(l, node, 0, "", &rank, dims));
    if (rank < 0 || rank > GD_MAX_RANK) return gd_onnx_fail_too_long("its shape", rank);
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0)
            return gd_fail(GD_E_FORMAT, "its shape has a negative size, %lld", (long long)dims[i]);
    return gd_onnx_set_output(l, node, 0,
                              gd_expand(gd_reshape(one, gd_dims()), gd_shape_of(rank, dims)));
}

gd_status gd_onnx_load_shape(gd_onnx_loader *l, const gd_pb *node) {
    int64_t start, end, dims[GD_MAX_RANK], n = 0;
    bool known = true;
    GD_ONNX_REQUIRE_INPUT(x, 0);
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
    GD_TRY(
        gd_onnx_set_size_output(l, node, 0, n == x->rank ? sizes : gd_narrow(sizes, 0, start, n)));
    return GD_OK;
}

/* Its inputs are integers, or floats that are constant. */
gd_status gd_onnx_load_range(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *lists[3];
    bool symbolic = false;
    for (size_t k = 0; k < 3; k++) {
        GD_TRY(gd_onnx_get_list(l, node, k, &lists[k]));
        if (!lists[k]) return gd_fail(GD_E_FORMAT, "its input %zu is missing", k);
        if (gd_numel(lists[k]->rank, lists[k]->dims) != 1)
            return gd_fail(GD_E_FORMAT, "its input %zu must be one number", k);
        symbolic = symbolic || gd_onnx_is_symbolic(lists[k]);
    }
    const gd_dtype dtype = (gd_dtype)lists[0]->dtype;
    if (symbolic)
        return gd_onnx_set_deferred_output(
            l, node, (gd_deferred_call_options){.kind = GD_DEFERRED_RANGE, .dtype = dtype}, NULL,
            lists, 3);
    gd_number numbers[3];
    for (int k = 0; k < 3; k++)
        numbers[k] = gd_dtype_is_float(dtype) ? gd_number_of(gd_item(lists[k]))
                                              : gd_number_of(gd_item_int(lists[k]));
    return gd_onnx_set_output(
        l, node, 0, gd_arange(numbers[0], numbers[1], .step = numbers[2], .dtype = dtype));
}

/* The number of elements. */
gd_status gd_onnx_load_size(gd_onnx_loader *l, const gd_pb *node) {
    gd_onnx_size elements = gd_onnx_known_size(1), size;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    for (int i = 0; i < x->rank; i++) {
        GD_TRY(gd_onnx_size_of(x, i, &size));
        GD_TRY(gd_onnx_size_multiply(elements, size, &elements));
    }
    gd_tensor *number = gd_onnx_size_tensor(elements);
    return elements.known == GD_UNKNOWN ? gd_onnx_set_size_output(l, node, 0, number)
                                        : gd_onnx_set_output(l, node, 0, number);
}

/* Ones on a diagonal. */
gd_status gd_onnx_load_eye_like(gd_onnx_loader *l, const gd_pb *node) {
    int64_t k, type;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "k", 0, &k));
    GD_TRY(gd_onnx_int_attribute(node, "dtype", gd_onnx_type_of((gd_dtype)x->dtype), &type));
    const gd_dtype dtype = gd_onnx_dtype(type);
    if (x->rank != 2 || dtype == GD_DTYPE_NONE)
        return gd_fail(GD_E_UNSUPPORTED,
                       "it needs a matrix and a supported dtype, not %d dimensions and %s", x->rank,
                       gd_onnx_type_name(type));
    gd_tensor *ones = gd_ones_like(x, .dtype = GD_I64);
    gd_tensor *row = gd_cumsum(ones, 0), *column = gd_cumsum(ones, 1);
    gd_tensor *is_diagonal = gd_eq(gd_sub(column, row), gd_from_array(gd_dims(), GD_I64, &k));
    return gd_onnx_set_output(l, node, 0, gd_cast(is_diagonal, dtype));
}
