/* elementwise.c - elementwise operators with attributes or dtypes that the op does not support.
 * Each becomes a few ops. */
#include <math.h>
#include <string.h>

#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"

/* Constant bounds are options of clamp; others are operands of maximum and minimum. If the lower
 * bound is above the upper one, the result is the upper one. */
gd_status gd_onnx_load_clip(gd_onnx_loader *l, const gd_pb *node) {
    static const char *const options[] = {"min", "max"};
    gd_attrs *attrs = gd_attrs_new(gd_op_find("clamp"));
    gd_tensor *bounds[2] = {NULL};
    bool given[2], constant = true;
    if (!attrs) return GD_E_MEMORY;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    for (size_t i = 0; i < 2; i++) {
        const char *name = gd_pb_string_at(node, "input", i + 1);
        given[i] = *name != '\0';
        if (given[i]) GD_TRY(gd_onnx_constant_value(l, name, &bounds[i]));
        constant = constant && (bounds[i] || !given[i]);
    }
    gd_tensor *y = x;
    for (size_t i = 0; i < 2; i++) {
        if (!given[i]) continue;
        if (constant) GD_TRY(gd_onnx_set_number(l, node, i + 1, attrs, options[i]));
        if (constant) continue;
        GD_ONNX_REQUIRE_INPUT(bound, i + 1);
        if (bound->rank) bound = gd_reshape(bound, gd_dims());
        y = i == 0 ? gd_maximum(y, bound) : gd_minimum(y, bound);
    }
    if (constant && given[0] && given[1] && gd_item(bounds[0]) > gd_item(bounds[1]))
        GD_TRY(gd_onnx_set_number(l, node, 2, attrs, options[0]));
    if (constant) {
        gd_tensors r = gd_op_call(gd_op_find("clamp"), gd_list(y), attrs);
        y = r.count ? r.at[0] : &gd_error_tensor;
    }
    return gd_onnx_set_output(l, node, 0, y);
}

/* The result has the dtype of the first input. If an integer is raised to a float, a result that is
 * an integer up to rounding errors is rounded, since the cast truncates. */
gd_status gd_onnx_load_pow(gd_onnx_loader *l, const gd_pb *node) {
    GD_ONNX_REQUIRE_INPUT(a, 0);
    GD_ONNX_REQUIRE_INPUT(b, 1);
    const gd_dtype dtype = (gd_dtype)a->dtype;
    if (gd_dtype_is_float(dtype) || !gd_dtype_is_float((gd_dtype)b->dtype))
        return gd_onnx_set_output(l, node, 0, gd_cast(gd_pow(a, b), dtype));
    gd_tensor *y = gd_pow(gd_cast(a, GD_F64), gd_cast(b, GD_F64)), *rounded = gd_round(y);
    gd_tensor *error = gd_abs(gd_sub(y, rounded)),
              *tolerance = gd_mul(gd_abs(y), gd_scalar_of(1e-14, GD_F64));
    return gd_onnx_set_output(l, node, 0,
                              gd_cast(gd_where(gd_le(error, tolerance), rounded, y), dtype));
}

/* Div of integers: ONNX truncates. (A row loads Div of floats.) */
gd_status gd_onnx_load_div(gd_onnx_loader *l, const gd_pb *node) {
    GD_ONNX_REQUIRE_INPUT(a, 0);
    GD_ONNX_REQUIRE_INPUT(b, 1);
    return gd_onnx_set_output(l, node, 0, gd_floor_divide(gd_sub(a, gd_fmod(a, b)), b));
}

/* Sum, Mean, Max and Min of any number of tensors. */
static gd_status load_variadic(gd_onnx_loader *l, const gd_pb *node,
                               gd_tensor *(*join)(gd_tensor *, gd_tensor *), bool mean) {
    const size_t n = gd_onnx_input_count(node);
    GD_ONNX_REQUIRE_INPUT(y, 0);
    for (size_t i = 1; i < n; i++) {
        GD_ONNX_REQUIRE_INPUT(x, i);
        y = join(y, x);
    }
    if (mean) y = gd_div(y, gd_onnx_scalar_like(y, (double)n));
    return gd_onnx_set_output(l, node, 0, n > 1 ? y : gd_clone(y));
}
static gd_tensor *sum_of(gd_tensor *a, gd_tensor *b) { return gd_add(a, b); }
static gd_tensor *larger_of(gd_tensor *a, gd_tensor *b) { return gd_maximum(a, b); }
static gd_tensor *smaller_of(gd_tensor *a, gd_tensor *b) { return gd_minimum(a, b); }
gd_status gd_onnx_load_sum(gd_onnx_loader *l, const gd_pb *node) {
    return load_variadic(l, node, sum_of, false);
}
gd_status gd_onnx_load_mean(gd_onnx_loader *l, const gd_pb *node) {
    return load_variadic(l, node, sum_of, true);
}
gd_status gd_onnx_load_max(gd_onnx_loader *l, const gd_pb *node) {
    return load_variadic(l, node, larger_of, false);
}
gd_status gd_onnx_load_min(gd_onnx_loader *l, const gd_pb *node) {
    return load_variadic(l, node, smaller_of, false);
}

gd_status gd_onnx_load_cast_like(gd_onnx_loader *l, const gd_pb *node) {
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_ONNX_REQUIRE_INPUT(like, 1);
    return gd_onnx_set_output(l, node, 0, gd_cast(x, (gd_dtype)like->dtype));
}

/* max(0, min(1, alpha x + beta)) */
gd_status gd_onnx_load_hard_sigmoid(gd_onnx_loader *l, const gd_pb *node) {
    double alpha, beta;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_float_attribute(node, "alpha", 0.2, &alpha));
    GD_TRY(gd_onnx_float_attribute(node, "beta", 0.5, &beta));
    x = gd_add(gd_mul(x, gd_onnx_scalar_like(x, alpha)), gd_onnx_scalar_like(x, beta));
    return gd_onnx_set_output(l, node, 0, gd_clamp(x, .min = 0, .max = 1));
}

/* gamma (x > 0 ? x : alpha (e^x - 1)) */
gd_status gd_onnx_load_selu(gd_onnx_loader *l, const gd_pb *node) {
    double alpha, gamma;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_float_attribute(node, "alpha", 1.6732632423543772, &alpha));
    GD_TRY(gd_onnx_float_attribute(node, "gamma", 1.0507009873554805, &gamma));
    return gd_onnx_set_output(l, node, 0,
                              gd_mul(gd_elu(x, .alpha = alpha), gd_onnx_scalar_like(x, gamma)));
}

gd_status gd_onnx_load_thresholded_relu(gd_onnx_loader *l, const gd_pb *node) {
    double alpha;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_float_attribute(node, "alpha", 1, &alpha));
    return gd_onnx_set_output(l, node, 0, gd_threshold(x, alpha, 0));
}

/* x - bias above lambd, x + bias below -lambd, 0 between. */
gd_status gd_onnx_load_shrink(gd_onnx_loader *l, const gd_pb *node) {
    double bias, lambd;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_float_attribute(node, "bias", 0, &bias));
    GD_TRY(gd_onnx_float_attribute(node, "lambd", 0.5, &lambd));
    gd_tensor *y = gd_where(gd_gt(x, gd_onnx_scalar_like(x, lambd)),
                            gd_sub(x, gd_onnx_scalar_like(x, bias)), gd_onnx_scalar_like(x, 0));
    y = gd_where(gd_lt(x, gd_onnx_scalar_like(x, -lambd)), gd_add(x, gd_onnx_scalar_like(x, bias)),
                 y);
    return gd_onnx_set_output(l, node, 0, y);
}

/* x sigmoid(alpha x) */
gd_status gd_onnx_load_swish(gd_onnx_loader *l, const gd_pb *node) {
    double alpha;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_float_attribute(node, "alpha", 1, &alpha));
    gd_tensor *y =
        alpha == 1 ? gd_silu(x) : gd_mul(x, gd_sigmoid(gd_mul(x, gd_onnx_scalar_like(x, alpha))));
    return gd_onnx_set_output(l, node, 0, y);
}

gd_status gd_onnx_load_bit_shift(gd_onnx_loader *l, const gd_pb *node) {
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_ONNX_REQUIRE_INPUT(by, 1);
    const bool left = gd_onnx_attribute_is(node, "direction", "", "LEFT");
    if (!left && !gd_onnx_attribute_is(node, "direction", "", "RIGHT"))
        return gd_fail(GD_E_FORMAT, "its direction must be LEFT or RIGHT");
    return gd_onnx_set_output(l, node, 0,
                              left ? gd_bitwise_left_shift(x, by) : gd_bitwise_right_shift(x, by));
}

/* Detects one of the infinities, or none. (A row loads the IsInf of both.) */
gd_status gd_onnx_load_isinf(gd_onnx_loader *l, const gd_pb *node) {
    int64_t negative, positive;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "detect_negative", 1, &negative));
    GD_TRY(gd_onnx_int_attribute(node, "detect_positive", 1, &positive));
    if (!negative && !positive)
        return gd_onnx_set_output(l, node, 0, gd_zeros_like(x, .dtype = GD_BOOL));
    return gd_onnx_set_output(l, node, 0,
                              gd_eq(x, gd_onnx_scalar_like(x, positive ? INFINITY : -INFINITY)));
}
