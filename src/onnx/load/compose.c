/* compose.c - small nodes of ONNX files that are said in a few of our ops. */
#include <math.h>
#include <string.h>

#include "gradus/ops.h"
#include "onnx/load/load.h"

/* --- elementwise ------------------------------------------------------------------------------ */

/* Bounds that are all known are options; else they are tensors like any. Where the lower one is
 * above the upper one, the upper one counts. */
gd_status gd_onnx_load_clip(gd_onnx_loader *l, const gd_pb *node) {
    static const char *const options[] = {"min", "max"};
    gd_attrs *attrs = gd_attrs_new(gd_op_find("clamp"));
    gd_tensor *known[2] = {NULL};
    bool given[2], plain = true;
    if (!attrs) return GD_E_MEMORY;
    GD_ONNX_NEED(x, 0);
    for (size_t i = 0; i < 2; i++) {
        const char *name = gd_pb_string_at(node, "input", i + 1);
        given[i] = *name != '\0';
        if (given[i]) GD_TRY(gd_onnx_known(l, name, &known[i]));
        plain = plain && (known[i] || !given[i]);
    }
    gd_tensor *y = x;
    for (size_t i = 0; i < 2; i++) {
        if (!given[i]) continue;
        if (plain) GD_TRY(gd_onnx_set_number(l, node, i + 1, attrs, options[i]));
        if (plain) continue;
        GD_ONNX_NEED(bound, i + 1);
        if (bound->rank) bound = gd_reshape(bound, gd_dims());
        y = i == 0 ? gd_maximum(y, bound) : gd_minimum(y, bound);
    }
    if (plain && given[0] && given[1] && gd_item(known[0]) > gd_item(known[1]))
        GD_TRY(gd_onnx_set_number(l, node, 2, attrs, options[0]));
    if (plain) {
        gd_tensors r = gd_op_call(gd_op_find("clamp"), gd_list(y), attrs);
        y = r.count ? r.at[0] : &gd_error_tensor;
    }
    return gd_onnx_set_output(l, node, 0, y);
}

/* The result has the dtype of the first input. An integer power of an integer is
 * found exactly, also where the exponent is a float: a little less would be cut off. */
gd_status gd_onnx_load_pow(gd_onnx_loader *l, const gd_pb *node) {
    GD_ONNX_NEED(a, 0);
    GD_ONNX_NEED(b, 1);
    const gd_dtype dtype = (gd_dtype)a->dtype;
    if (gd_dtype_is_float(dtype) || !gd_dtype_is_float((gd_dtype)b->dtype))
        return gd_onnx_set_output(l, node, 0, gd_cast(gd_pow(a, b), dtype));
    gd_tensor *y = gd_pow(gd_cast(a, GD_F64), gd_cast(b, GD_F64)), *whole = gd_round(y);
    gd_tensor *off = gd_abs(gd_sub(y, whole)),
              *most = gd_mul(gd_abs(y), gd_scalar_of(1e-14, GD_F64));
    return gd_onnx_set_output(l, node, 0, gd_cast(gd_where(gd_le(off, most), whole, y), dtype));
}

/* Sum, Mean, Max and Min of any number of tensors. */
static gd_status load_many(gd_onnx_loader *l, const gd_pb *node,
                           gd_tensor *(*join)(gd_tensor *, gd_tensor *), bool mean) {
    const size_t n = gd_onnx_input_count(node);
    GD_ONNX_NEED(y, 0);
    for (size_t i = 1; i < n; i++) {
        GD_ONNX_NEED(x, i);
        y = join(y, x);
    }
    if (mean) y = gd_div(y, gd_onnx_number_like(y, (double)n));
    return gd_onnx_set_output(l, node, 0, n > 1 ? y : gd_clone(y));
}
static gd_tensor *sum_of(gd_tensor *a, gd_tensor *b) { return gd_add(a, b); }
static gd_tensor *larger_of(gd_tensor *a, gd_tensor *b) { return gd_maximum(a, b); }
static gd_tensor *smaller_of(gd_tensor *a, gd_tensor *b) { return gd_minimum(a, b); }
gd_status gd_onnx_load_sum(gd_onnx_loader *l, const gd_pb *node) {
    return load_many(l, node, sum_of, false);
}
gd_status gd_onnx_load_mean(gd_onnx_loader *l, const gd_pb *node) {
    return load_many(l, node, sum_of, true);
}
gd_status gd_onnx_load_max(gd_onnx_loader *l, const gd_pb *node) {
    return load_many(l, node, larger_of, false);
}
gd_status gd_onnx_load_min(gd_onnx_loader *l, const gd_pb *node) {
    return load_many(l, node, smaller_of, false);
}

gd_status gd_onnx_load_cast_like(gd_onnx_loader *l, const gd_pb *node) {
    GD_ONNX_NEED(x, 0);
    GD_ONNX_NEED(like, 1);
    return gd_onnx_set_output(l, node, 0, gd_cast(x, (gd_dtype)like->dtype));
}

/* max(0, min(1, alpha x + beta)) */
gd_status gd_onnx_load_hard_sigmoid(gd_onnx_loader *l, const gd_pb *node) {
    double alpha, beta;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_float_attribute(node, "alpha", 0.2, &alpha));
    GD_TRY(gd_onnx_float_attribute(node, "beta", 0.5, &beta));
    x = gd_add(gd_mul(x, gd_onnx_number_like(x, alpha)), gd_onnx_number_like(x, beta));
    return gd_onnx_set_output(l, node, 0, gd_clamp(x, .min = 0, .max = 1));
}

/* gamma (x > 0 ? x : alpha (e^x - 1)) */
gd_status gd_onnx_load_selu(gd_onnx_loader *l, const gd_pb *node) {
    double alpha, gamma;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_float_attribute(node, "alpha", 1.6732632423543772, &alpha));
    GD_TRY(gd_onnx_float_attribute(node, "gamma", 1.0507009873554805, &gamma));
    return gd_onnx_set_output(l, node, 0,
                              gd_mul(gd_elu(x, .alpha = alpha), gd_onnx_number_like(x, gamma)));
}

gd_status gd_onnx_load_thresholded_relu(gd_onnx_loader *l, const gd_pb *node) {
    double alpha;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_float_attribute(node, "alpha", 1, &alpha));
    return gd_onnx_set_output(l, node, 0, gd_threshold(x, alpha, 0));
}

/* x moved towards 0 by `bias`, and 0 where it is at most `lambd` away from it. */
gd_status gd_onnx_load_shrink(gd_onnx_loader *l, const gd_pb *node) {
    double bias, most;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_float_attribute(node, "bias", 0, &bias));
    GD_TRY(gd_onnx_float_attribute(node, "lambd", 0.5, &most));
    gd_tensor *y = gd_where(gd_gt(x, gd_onnx_number_like(x, most)),
                            gd_sub(x, gd_onnx_number_like(x, bias)), gd_onnx_number_like(x, 0));
    y = gd_where(gd_lt(x, gd_onnx_number_like(x, -most)), gd_add(x, gd_onnx_number_like(x, bias)),
                 y);
    return gd_onnx_set_output(l, node, 0, y);
}

/* x sigmoid(alpha x) */
gd_status gd_onnx_load_swish(gd_onnx_loader *l, const gd_pb *node) {
    double alpha;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_float_attribute(node, "alpha", 1, &alpha));
    gd_tensor *y =
        alpha == 1 ? gd_silu(x) : gd_mul(x, gd_sigmoid(gd_mul(x, gd_onnx_number_like(x, alpha))));
    return gd_onnx_set_output(l, node, 0, y);
}

gd_status gd_onnx_load_bit_shift(gd_onnx_loader *l, const gd_pb *node) {
    GD_ONNX_NEED(x, 0);
    GD_ONNX_NEED(by, 1);
    const bool left = gd_onnx_word_is(node, "direction", "", "LEFT");
    if (!left && !gd_onnx_word_is(node, "direction", "", "RIGHT"))
        return gd_fail(GD_E_FORMAT, "its direction must be LEFT or RIGHT");
    return gd_onnx_set_output(l, node, 0,
                              left ? gd_bitwise_left_shift(x, by) : gd_bitwise_right_shift(x, by));
}

/* Only one of both infinities. */
gd_status gd_onnx_load_isinf(gd_onnx_loader *l, const gd_pb *node) {
    int64_t negative, positive;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "detect_negative", 1, &negative));
    GD_TRY(gd_onnx_int_attribute(node, "detect_positive", 1, &positive));
    if (!negative && !positive)
        return gd_onnx_set_output(l, node, 0, gd_zeros_like(x, .dtype = GD_BOOL));
    return gd_onnx_set_output(l, node, 0,
                              gd_eq(x, gd_onnx_number_like(x, positive ? INFINITY : -INFINITY)));
}

/* --- reductions ------------------------------------------------------------------------------- */

/* The axes of a reduction; *none true where there are none, and that means: leave x as it is. */
static gd_status read_axes(gd_onnx_loader *l, const gd_pb *node, int rank, gd_shape *axes,
                           bool *keep, bool *none) {
    int64_t numbers[GD_ONNX_MOST_NUMBERS], keepdims, noop;
    int count;
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "axes", &count, numbers));
    GD_TRY(gd_onnx_int_attribute(node, "keepdims", 1, &keepdims));
    GD_TRY(gd_onnx_int_attribute(node, "noop_with_empty_axes", 0, &noop));
    if (count > GD_MAX_RANK) return gd_fail(GD_E_FORMAT, "it has %d axes", count);
    *keep = keepdims != 0;
    *none = count <= 0 && noop;
    if (count <= 0) /* all */
        for (count = 0; count < rank; count++) numbers[count] = count;
    *axes = gd_shape_of(count, numbers);
    return GD_OK;
}

gd_status gd_onnx_load_sum_square(gd_onnx_loader *l, const gd_pb *node) {
    gd_shape axes;
    bool keep, none;
    GD_ONNX_NEED(x, 0);
    GD_TRY(read_axes(l, node, x->rank, &axes, &keep, &none));
    gd_tensor *y = gd_square(x);
    return gd_onnx_set_output(
        l, node, 0,
        none ? y : gd_sum(y, .axis = axes, .keepdim = keep, .dtype = (gd_dtype)x->dtype));
}

gd_status gd_onnx_load_log_sum(gd_onnx_loader *l, const gd_pb *node) {
    gd_shape axes;
    bool keep, none;
    GD_ONNX_NEED(x, 0);
    GD_TRY(read_axes(l, node, x->rank, &axes, &keep, &none));
    gd_tensor *y = gd_log(none ? x : gd_sum(x, .axis = axes, .keepdim = keep));
    return gd_onnx_set_output(l, node, 0, gd_cast(y, (gd_dtype)x->dtype));
}

/* The last of the largest is the first from the end. */
static gd_status load_arg(gd_onnx_loader *l, const gd_pb *node, bool max) {
    int64_t axis, keep, last;
    gd_onnx_size size;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(gd_onnx_int_attribute(node, "keepdims", 1, &keep));
    GD_TRY(gd_onnx_int_attribute(node, "select_last_index", 0, &last));
    GD_TRY(gd_onnx_fix_axis(&axis, x->rank));
    GD_TRY(gd_onnx_size_of(x, (int)axis, &size));
    if (last) x = gd_flip(x, gd_dims(axis));
    gd_tensor *y = max ? gd_argmax(x, .axis = axis, .keepdim = keep != 0)
                       : gd_argmin(x, .axis = axis, .keepdim = keep != 0);
    if (last) y = gd_sub(gd_sub(gd_onnx_size_number(size), gd_scalar_of(1, GD_I64)), y);
    return gd_onnx_set_output(l, node, 0, y);
}
gd_status gd_onnx_load_argmax(gd_onnx_loader *l, const gd_pb *node) {
    return load_arg(l, node, true);
}
gd_status gd_onnx_load_argmin(gd_onnx_loader *l, const gd_pb *node) {
    return load_arg(l, node, false);
}

/* 1 at the first of the largest, 0 elsewhere. */
gd_status gd_onnx_load_hardmax(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_fix_axis(&axis, x->rank));
    gd_tensor *at = gd_argmax(x, .axis = axis, .keepdim = true);
    gd_tensor *ones = gd_ones_like(x, .dtype = GD_I64);
    gd_tensor *place = gd_sub(gd_cumsum(ones, axis), ones);
    return gd_onnx_set_output(l, node, 0, gd_cast(gd_eq(place, at), (gd_dtype)x->dtype));
}

/* x over its norm along an axis; 0 where that is 0. */
gd_status gd_onnx_load_lp_normalization(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis, p;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_int_attribute(node, "p", 2, &p));
    GD_TRY(gd_onnx_fix_axis(&axis, x->rank));
    gd_tensor *norm = gd_norm(x, .p = (double)p, .axis = axis, .keepdim = true);
    norm = gd_where(gd_eq(norm, gd_onnx_number_like(x, 0)), gd_onnx_number_like(x, 1), norm);
    return gd_onnx_set_output(l, node, 0, gd_div(x, norm));
}

/* --- shapes ----------------------------------------------------------------------------------- */

/* How many elements there are. */
gd_status gd_onnx_load_size(gd_onnx_loader *l, const gd_pb *node) {
    gd_onnx_size all = gd_onnx_size_is(1), size;
    GD_ONNX_NEED(x, 0);
    for (int i = 0; i < x->rank; i++) {
        GD_TRY(gd_onnx_size_of(x, i, &size));
        GD_TRY(gd_onnx_size_times(all, size, &all));
    }
    gd_tensor *number = gd_onnx_size_number(all);
    return all.known == GD_UNKNOWN ? gd_onnx_set_sized(l, node, 0, number)
                                   : gd_onnx_set_output(l, node, 0, number);
}

/* Ones on a diagonal. */
gd_status gd_onnx_load_eye_like(gd_onnx_loader *l, const gd_pb *node) {
    int64_t k, type;
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "k", 0, &k));
    GD_TRY(gd_onnx_int_attribute(node, "dtype", gd_onnx_type_of((gd_dtype)x->dtype), &type));
    const gd_dtype dtype = gd_onnx_dtype(type);
    if (x->rank != 2 || dtype == GD_DTYPE_NONE)
        return gd_fail(GD_E_UNSUPPORTED,
                       "it makes matrices, of %s here; its input has %d dimensions",
                       gd_onnx_type_name(type), x->rank);
    gd_tensor *ones = gd_ones_like(x, .dtype = GD_I64);
    gd_tensor *row = gd_cumsum(ones, 0), *column = gd_cumsum(ones, 1);
    gd_tensor *on = gd_eq(gd_sub(column, row), gd_from_array(gd_dims(), GD_I64, &k));
    return gd_onnx_set_output(l, node, 0, gd_cast(on, dtype));
}

/* x (N, C, H, W): b*b channels are a square of b*b elements, or the other way round. */
static gd_status squares(gd_onnx_loader *l, const gd_pb *node, bool to_space) {
    static const int64_t out[3][6] = {{0, 3, 4, 1, 5, 2}, /* (N, b, b, C, H, W), DepthToSpace DCR */
                                      {0, 1, 4, 2, 5, 3}, /* (N, C, b, b, H, W), CRD */
                                      {0, 3, 5, 1, 2, 4}}; /* (N, C, H, b, W, b), SpaceToDepth */
    int64_t b;
    gd_onnx_size s[4], block, cut[6], made[4];
    GD_ONNX_NEED(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "blocksize", 0, &b));
    if (x->rank != 4 || b < 1 || b > INT16_MAX)
        return gd_fail(GD_E_FORMAT, "it needs 4 dimensions and a blocksize, not %d and %lld",
                       x->rank, (long long)b);
    const bool crd = gd_onnx_word_is(node, "mode", "DCR", "CRD");
    for (int i = 0; i < 4; i++) GD_TRY(gd_onnx_size_of(x, i, &s[i]));
    block = gd_onnx_size_is(b);
    if (to_space) {
        gd_onnx_size c;
        GD_TRY(gd_onnx_size_over(s[1], b * b, &c));
        const gd_onnx_size dcr_cut[] = {s[0], block, block, c, s[2], s[3]},
                           crd_cut[] = {s[0], c, block, block, s[2], s[3]};
        memcpy(cut, crd ? crd_cut : dcr_cut, sizeof cut);
        made[1] = c;
        for (int i = 2; i < 4; i++) GD_TRY(gd_onnx_size_times(s[i], block, &made[i]));
    } else {
        GD_TRY(gd_onnx_size_times(s[1], gd_onnx_size_is(b * b), &made[1]));
        for (int i = 2; i < 4; i++) GD_TRY(gd_onnx_size_over(s[i], b, &made[i]));
        const gd_onnx_size tiles[] = {s[0], s[1], made[2], block, made[3], block};
        memcpy(cut, tiles, sizeof cut);
    }
    made[0] = s[0];
    gd_tensor *y;
    GD_TRY(gd_onnx_reshape_to(l, x, 6, cut, &y));
    y = gd_permute(y, gd_shape_of(6, out[!to_space ? 2 : crd]));
    GD_TRY(gd_onnx_reshape_to(l, y, 4, made, &y));
    return gd_onnx_set_output(l, node, 0, y);
}
gd_status gd_onnx_load_depth_to_space(gd_onnx_loader *l, const gd_pb *node) {
    return squares(l, node, true);
}
gd_status gd_onnx_load_space_to_depth(gd_onnx_loader *l, const gd_pb *node) {
    return squares(l, node, false);
}
