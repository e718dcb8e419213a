/* normalization.c - BatchNormalization, LayerNormalization, RMSNormalization and
 * MeanVarianceNormalization. */
#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"

static bool is_variable(const gd_tensor *t) {
    return t->kind == GD_SYMBOL && t->node->origin->kind == GD_FROM_VARIABLE;
}

/* Reshapes t (C) to (C, 1, ...), so that it broadcasts over x (N, C, ...). */
static gd_tensor *broadcast_channels(gd_tensor *t, const gd_tensor *x) {
    gd_shape dims = {.rank = x->rank - 1, .form = 1, .at = {-1}};
    for (int d = 1; d < dims.rank; d++) dims.at[d] = 1;
    return gd_reshape(t, dims);
}

/* The op needs variables for the running statistics. Computed statistics use the formula. */
gd_status gd_onnx_load_batch_norm(gd_onnx_loader *l, const gd_pb *node) {
    int64_t training;
    double eps;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_ONNX_REQUIRE_INPUT(weight, 1);
    GD_ONNX_REQUIRE_INPUT(bias, 2);
    GD_ONNX_REQUIRE_INPUT(mean, 3);
    GD_ONNX_REQUIRE_INPUT(var, 4);
    GD_TRY(gd_onnx_float_attribute(node, "epsilon", 1e-5, &eps));
    GD_TRY(gd_onnx_int_attribute(node, "training_mode", 0, &training));
    for (size_t k = 1; k < gd_pb_count(node, "output"); k++)
        training |= *gd_pb_string_at(node, "output", k) != '\0';
    if (training)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "it is in training_mode, or has more than one output; only inference is supported");
    if (is_variable(mean) && is_variable(var))
        return gd_onnx_set_output(l, node, 0,
                                  gd_batch_norm(x, weight, bias, mean, var, .eps = eps));
    if (x->rank < 2)
        return gd_fail(GD_E_SHAPE, "its input has %d dimensions, and must have at least 2",
                       x->rank);
    gd_tensor *scale = gd_mul(weight, gd_rsqrt(gd_add(var, gd_onnx_scalar_like(var, eps))));
    gd_tensor *y = gd_mul(gd_sub(x, broadcast_channels(mean, x)), broadcast_channels(scale, x));
    return gd_onnx_set_output(l, node, 0, gd_add(y, broadcast_channels(bias, x)));
}

/* Outputs 1 and 2 of LayerNormalization: the mean and the inverse standard deviation, f32 or
 * f64. */
static gd_status set_statistics(gd_onnx_loader *l, const gd_pb *node, gd_tensor *x, int64_t axis,
                                double eps) {
    gd_shape axes = {.form = 1};
    if (!gd_onnx_has_output(node, 1) && !gd_onnx_has_output(node, 2)) return GD_OK;
    for (int d = (int)axis; d < x->rank; d++) axes.at[axes.rank++] = d;
    x = gd_cast(x, x->dtype == GD_F64 ? GD_F64 : GD_F32);
    if (gd_onnx_has_output(node, 1))
        GD_TRY(gd_onnx_set_output(l, node, 1, gd_mean(x, .axis = axes, .keepdim = true)));
    if (!gd_onnx_has_output(node, 2)) return GD_OK;
    gd_tensor *var = gd_var(x, .axis = axes, .correction = 0, .keepdim = true);
    return gd_onnx_set_output(l, node, 2, gd_rsqrt(gd_add(var, gd_onnx_scalar_like(var, eps))));
}

gd_status gd_onnx_load_layer_norm(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis, stash;
    double eps;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_ONNX_REQUIRE_INPUT(weight, 1);
    GD_ONNX_OPTIONAL_INPUT(bias, 2);
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_int_attribute(node, "stash_type", 1, &stash));
    GD_TRY(gd_onnx_float_attribute(node, "epsilon", 1e-5, &eps));
    GD_TRY(gd_onnx_normalize_axis(&axis, x->rank));
    if (weight->rank != x->rank - axis)
        return gd_fail(GD_E_SHAPE, "its scale has %d dimensions; there are %lld axes from %lld on",
                       weight->rank, (long long)(x->rank - axis), (long long)axis);
    GD_TRY(gd_onnx_set_output(l, node, 0, gd_layer_norm(x, weight, bias, .eps = eps)));
    return set_statistics(l, node, x, axis, eps);
}

/* x / sqrt(mean(x^2) + eps) * weight. The op needs a weight with the shape of the normalized
 * axes. */
gd_status gd_onnx_load_rms_norm(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis;
    double eps;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_ONNX_REQUIRE_INPUT(weight, 1);
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_float_attribute(node, "epsilon", 1e-5, &eps));
    GD_TRY(gd_onnx_normalize_axis(&axis, x->rank));
    bool has_shape = weight->rank == x->rank - axis && weight->dtype == x->dtype;
    for (int d = 0; d < weight->rank && has_shape; d++)
        has_shape = weight->dims[d] == x->dims[axis + d] && weight->dims[d] != GD_UNKNOWN;
    if (has_shape) return gd_onnx_set_output(l, node, 0, gd_rms_norm(x, weight, .eps = eps));
    gd_shape axes = {.rank = x->rank - (int)axis, .form = 1};
    for (int d = 0; d < axes.rank; d++) axes.at[d] = axis + d;
    gd_tensor *mean = gd_mean(gd_square(x), .axis = axes, .keepdim = true);
    gd_tensor *y = gd_mul(x, gd_rsqrt(gd_add(mean, gd_onnx_scalar_like(x, eps))));
    return gd_onnx_set_output(l, node, 0, gd_mul(gd_cast(y, (gd_dtype)weight->dtype), weight));
}

/* (x - mean) / standard deviation, along axes (0, 2 and 3 by default). */
gd_status gd_onnx_load_mean_variance(gd_onnx_loader *l, const gd_pb *node) {
    const gd_pb_list *list = gd_pb_get(gd_onnx_find_attribute(node, "axes"), "ints");
    gd_shape axes = gd_dims(0, 2, 3);
    GD_ONNX_REQUIRE_INPUT(x, 0);
    if (list && list->count > GD_MAX_RANK)
        return gd_fail(GD_E_FORMAT, "it has %zu axes", list->count);
    if (list) axes = gd_shape_of((int)list->count, list->ints);
    gd_tensor *centered = gd_sub(x, gd_mean(x, .axis = axes, .keepdim = true));
    gd_tensor *var = gd_mean(gd_square(centered), .axis = axes, .keepdim = true);
    return gd_onnx_set_output(l, node, 0,
                              gd_div(centered, gd_add(gd_sqrt(var), gd_onnx_scalar_like(x, 1e-9))));
}
