/* layer.c - layers of ONNX files that rows cannot say: normalization and attention. */
#include <math.h>

#include "gradus/ops.h"
#include "onnx/load/load.h"

/* --- normalization ---------------------------------------------------------------------------- */

static bool is_variable(const gd_tensor *t) {
    return t->kind == GD_SYMBOL && t->node->origin->kind == GD_FROM_VARIABLE;
}

/* t (C) as (C, 1, ...): for the channels of x. */
static gd_tensor *for_channels(gd_tensor *t, const gd_tensor *x) {
    gd_shape dims = {.rank = x->rank - 1, .form = 1, .at = {-1}};
    for (int d = 1; d < dims.rank; d++) dims.at[d] = 1;
    return gd_reshape(t, dims);
}

/* Ours keeps its running statistics in variables; those that are computed are used as they are. */
gd_status gd_onnx_load_batch_norm(gd_onnx_loader *l, const gd_pb *node) {
    int64_t training;
    double eps;
    GD_ONNX_NEED(x, 0);
    GD_ONNX_NEED(weight, 1);
    GD_ONNX_NEED(bias, 2);
    GD_ONNX_NEED(mean, 3);
    GD_ONNX_NEED(var, 4);
    GD_TRY(gd_onnx_float_attribute(node, "epsilon", 1e-5, &eps));
    GD_TRY(gd_onnx_int_attribute(node, "training_mode", 0, &training));
    for (size_t k = 1; k < gd_pb_count(node, "output"); k++)
        training |= *gd_pb_string_at(node, "output", k) != '\0';
    if (training)
        return gd_fail(GD_E_UNSUPPORTED,
                       "it is in training_mode, or has more than one output: possible here is what "
                       "it does after training");
    if (is_variable(mean) && is_variable(var))
        return gd_onnx_set_output(l, node, 0,
                                  gd_batch_norm(x, weight, bias, mean, var, .eps = eps));
    if (x->rank < 2)
        return gd_fail(GD_E_SHAPE, "its input has %d dimensions, and must have at least 2",
                       x->rank);
    gd_tensor *scale = gd_mul(weight, gd_rsqrt(gd_add(var, gd_onnx_number_like(var, eps))));
    gd_tensor *y = gd_mul(gd_sub(x, for_channels(mean, x)), for_channels(scale, x));
    return gd_onnx_set_output(l, node, 0, gd_add(y, for_channels(bias, x)));
}

/* Whether somebody may read output i. */
static bool is_read(const gd_pb *node, size_t i) { return *gd_pb_string_at(node, "output", i); }

/* The mean and the inverse deviation of layer norm, further outputs of the node: f32 at least. */
static gd_status set_statistics(gd_onnx_loader *l, const gd_pb *node, gd_tensor *x, int64_t axis,
                                double eps) {
    gd_shape axes = {.form = 1};
    if (!is_read(node, 1) && !is_read(node, 2)) return GD_OK;
    for (int d = (int)axis; d < x->rank; d++) axes.at[axes.rank++] = d;
    x = gd_cast(x, x->dtype == GD_F64 ? GD_F64 : GD_F32);
    if (is_read(node, 1))
        GD_TRY(gd_onnx_set_output(l, node, 1, gd_mean(x, .axis = axes, .keepdim = true)));
    if (!is_read(node, 2)) return GD_OK;
    gd_tensor *var = gd_var(x, .axis = axes, .correction = 0, .keepdim = true);
    return gd_onnx_set_output(l, node, 2, gd_rsqrt(gd_add(var, gd_onnx_number_like(var, eps))));
}

gd_status gd_onnx_load_layer_norm(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis, stash;
    double eps;
    gd_status status;
    GD_ONNX_NEED(x, 0);
    GD_ONNX_NEED(weight, 1);
    gd_tensor *bias = gd_onnx_get_input(l, node, 2, &status);
    GD_TRY(status);
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_int_attribute(node, "stash_type", 1, &stash));
    GD_TRY(gd_onnx_float_attribute(node, "epsilon", 1e-5, &eps));
    GD_TRY(gd_onnx_fix_axis(&axis, x->rank));
    if (weight->rank != x->rank - axis)
        return gd_fail(GD_E_SHAPE, "its scale has %d dimensions; there are %lld axes from %lld on",
                       weight->rank, (long long)(x->rank - axis), (long long)axis);
    GD_TRY(gd_onnx_set_output(l, node, 0, gd_layer_norm(x, weight, bias, .eps = eps)));
    return set_statistics(l, node, x, axis, eps);
}

/* As layer norm, by the mean of squares. The weight broadcasts. */
gd_status gd_onnx_load_rms_norm(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis;
    double eps;
    GD_ONNX_NEED(x, 0);
    GD_ONNX_NEED(weight, 1);
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_float_attribute(node, "epsilon", 1e-5, &eps));
    GD_TRY(gd_onnx_fix_axis(&axis, x->rank));
    bool whole = weight->rank == x->rank - axis && weight->dtype == x->dtype;
    for (int d = 0; d < weight->rank && whole; d++)
        whole = weight->dims[d] == x->dims[axis + d] && weight->dims[d] != GD_UNKNOWN;
    if (whole) return gd_onnx_set_output(l, node, 0, gd_rms_norm(x, weight, .eps = eps));
    gd_shape axes = {.rank = x->rank - (int)axis, .form = 1};
    for (int d = 0; d < axes.rank; d++) axes.at[d] = axis + d;
    gd_tensor *mean = gd_mean(gd_square(x), .axis = axes, .keepdim = true);
    gd_tensor *y = gd_mul(x, gd_rsqrt(gd_add(mean, gd_onnx_number_like(x, eps))));
    return gd_onnx_set_output(l, node, 0, gd_mul(gd_cast(y, (gd_dtype)weight->dtype), weight));
}

/* x less its mean, over its standard deviation, along axes (0, 2, 3 if none are given). */
gd_status gd_onnx_load_mean_variance(gd_onnx_loader *l, const gd_pb *node) {
    const gd_pb_list *list = gd_pb_get(gd_onnx_attribute_of(node, "axes"), "ints");
    gd_shape axes = gd_dims(0, 2, 3);
    GD_ONNX_NEED(x, 0);
    if (list && list->count > GD_MAX_RANK)
        return gd_fail(GD_E_FORMAT, "it has %zu axes", list->count);
    if (list) axes = gd_shape_of((int)list->count, list->ints);
    gd_tensor *from = gd_sub(x, gd_mean(x, .axis = axes, .keepdim = true));
    gd_tensor *var = gd_mean(gd_square(from), .axis = axes, .keepdim = true);
    return gd_onnx_set_output(l, node, 0,
                              gd_div(from, gd_add(gd_sqrt(var), gd_onnx_number_like(x, 1e-9))));
}

/* --- attention -------------------------------------------------------------------------------- */

/* (N, T, H D) as (N, H, T, D). */
static gd_status split_heads(gd_onnx_loader *l, gd_tensor *x, int64_t heads, gd_tensor **y) {
    gd_onnx_size s[4], all;
    if (x->rank != 3) {
        *y = x;
        return GD_OK;
    }
    GD_TRY(gd_onnx_size_of(x, 0, &s[0]));
    GD_TRY(gd_onnx_size_of(x, 1, &s[1]));
    GD_TRY(gd_onnx_size_of(x, 2, &all));
    s[2] = gd_onnx_size_is(heads);
    GD_TRY(gd_onnx_size_over(all, heads, &s[3]));
    GD_TRY(gd_onnx_reshape_to(l, x, 4, s, y));
    *y = gd_permute(*y, gd_dims(0, 2, 1, 3));
    return GD_OK;
}

/* And back. */
static gd_status join_heads(gd_onnx_loader *l, gd_tensor *x, gd_tensor **y) {
    gd_onnx_size s[3], heads, width;
    GD_TRY(gd_onnx_size_of(x, 0, &s[0]));
    GD_TRY(gd_onnx_size_of(x, 1, &heads));
    GD_TRY(gd_onnx_size_of(x, 2, &s[1]));
    GD_TRY(gd_onnx_size_of(x, 3, &width));
    GD_TRY(gd_onnx_size_times(heads, width, &s[2]));
    return gd_onnx_reshape_to(l, gd_permute(x, gd_dims(0, 2, 1, 3)), 3, s, y);
}

/* Q, K, V, a mask, and keys and values of before, which come first. */
gd_status gd_onnx_load_attention(gd_onnx_loader *l, const gd_pb *node) {
    static const char *const heads_of[] = {"q_num_heads", "kv_num_heads", "kv_num_heads"};
    gd_tensor *in[3], *past[2], *mask, *y, *counts;
    gd_status status;
    int64_t causal, heads[3];
    double scale, softcap;
    bool flat = false;
    GD_TRY(gd_onnx_int_attribute(node, "is_causal", 0, &causal));
    GD_TRY(gd_onnx_float_attribute(node, "scale", NAN, &scale));
    GD_TRY(gd_onnx_float_attribute(node, "softcap", 0, &softcap));
    for (size_t i = 0; i < 3; i++) {
        GD_ONNX_NEED(x, i);
        GD_TRY(gd_onnx_int_attribute(node, heads_of[i], 0, &heads[i]));
        if (x->rank != 4 && (x->rank != 3 || heads[i] < 1))
            return gd_fail(GD_E_FORMAT,
                           "its input %zu has %d dimensions; possible are 4, or 3 and %s", i,
                           x->rank, heads_of[i]);
        flat = flat || x->rank == 3;
        GD_TRY(split_heads(l, x, heads[i], &in[i]));
    }
    mask = gd_onnx_get_input(l, node, 3, &status);
    GD_TRY(status);
    for (size_t i = 0; i < 2; i++) {
        past[i] = gd_onnx_get_input(l, node, 4 + i, &status);
        GD_TRY(status);
        if (past[i]) in[1 + i] = gd_cat(gd_list(past[i], in[1 + i]), .axis = 2);
    }
    counts = gd_onnx_get_input(l, node, 6, &status);
    GD_TRY(status);
    if (softcap != 0 || counts || (causal && past[0]) ||
        (gd_pb_count(node, "output") > 3 && *gd_pb_string_at(node, "output", 3)))
        return gd_fail(GD_E_UNSUPPORTED,
                       "possible here is attention without softcap, nonpad_kv_seqlen, the products "
                       "as an output, and is_causal together with keys of before");
    const bool grouped =
        in[0]->dims[1] != in[1]->dims[1] || in[0]->dims[1] == GD_UNKNOWN; /* heads share */
    y = gd_scaled_dot_product_attention(in[0], in[1], in[2], .mask = mask, .causal = causal != 0,
                                        .scale = scale, .grouped = grouped);
    if (y->kind == GD_FAILED) return gd_failure();
    if (flat) GD_TRY(join_heads(l, y, &y));
    GD_TRY(gd_onnx_set_output(l, node, 0, y));
    for (size_t i = 0; i < 2; i++)
        if (gd_pb_count(node, "output") > 1 + i)
            GD_TRY(gd_onnx_set_output(l, node, 1 + i, in[1 + i]));
    return GD_OK;
}

/* --- what training needs ---------------------------------------------------------------------- */

/* As it is after training: x, and a mask that keeps everything. */
gd_status gd_onnx_load_dropout(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *training = NULL;
    gd_attrs *attrs = gd_attrs_new(gd_op_find("dropout"));
    GD_ONNX_NEED(x, 0);
    if (!attrs) return GD_E_MEMORY;
    if (*gd_pb_string_at(node, "input", 2)) {
        GD_TRY(gd_onnx_known(l, gd_pb_string_at(node, "input", 2), &training));
        if (!training || gd_tensor_numel(training) != 1 || gd_item(training) != 0)
            return gd_fail(GD_E_UNSUPPORTED, "its training_mode must be false, and known");
    }
    if (gd_onnx_follows(l, gd_pb_string_at(node, "input", 1)))
        GD_TRY(gd_onnx_set_number(l, node, 1, attrs, "p"));
    GD_TRY(gd_attrs_set_text(attrs, "training", "false"));
    gd_tensors y = gd_op_call(gd_op_find("dropout"), gd_list(x), attrs);
    if (y.count < 1) return gd_failure();
    GD_TRY(gd_onnx_set_output(l, node, 0, y.at[0]));
    if (!is_read(node, 1)) return GD_OK;
    return gd_onnx_set_output(l, node, 1, gd_ones_like(x, .dtype = GD_BOOL));
}

/* The loss, and the logarithms of the probabilities, of x (N, C, ...). */
gd_status gd_onnx_load_softmax_loss(gd_onnx_loader *l, const gd_pb *node) {
    gd_cross_entropy_options o = gd_cross_entropy_defaults();
    gd_status status;
    GD_ONNX_NEED(x, 0);
    GD_ONNX_NEED(target, 1);
    o.weight = gd_onnx_get_input(l, node, 2, &status);
    GD_TRY(status);
    GD_TRY(gd_onnx_int_attribute(node, "ignore_index", o.ignore_index, &o.ignore_index));
    o.reduction = gd_onnx_word_is(node, "reduction", "mean", "none")  ? GD_NONE
                  : gd_onnx_word_is(node, "reduction", "mean", "sum") ? GD_SUM
                                                                      : GD_MEAN;
    if (x->rank < 2 || !gd_dtype_is_int((gd_dtype)target->dtype))
        return gd_fail(
            GD_E_UNSUPPORTED,
            "it needs scores of at least 2 dimensions and whole numbers for the classes");
    GD_TRY(gd_onnx_set_output(l, node, 0, gd_cross_entropy_at(NULL, x, target, &o)));
    return is_read(node, 1) ? gd_onnx_set_output(l, node, 1, gd_log_softmax(x, .axis = 1)) : GD_OK;
}
