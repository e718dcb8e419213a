/* layer.c - Gemm, Attention, Dropout and SoftmaxCrossEntropyLoss. */
#include <math.h>

#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"

/* --- Gemm ------------------------------------------------------------------------------------- */

static gd_tensor *scale_tensor(gd_tensor *x, double by) {
    return by == 1 ? x : gd_mul(x, gd_scalar_of(by, (gd_dtype)x->dtype));
}

/* alpha a b + beta c; a and b may be transposed. */
gd_status gd_onnx_load_gemm(gd_onnx_loader *l, const gd_pb *node) {
    double alpha, beta;
    int64_t trans_a, trans_b;
    GD_ONNX_REQUIRE_INPUT(a, 0);
    GD_ONNX_REQUIRE_INPUT(b, 1);
    GD_ONNX_OPTIONAL_INPUT(c, 2);
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
    y = scale_tensor(y, alpha);
    if (c) y = gd_add(y, scale_tensor(c, beta));
    return gd_onnx_set_output(l, node, 0, y);
}

/* --- Attention -------------------------------------------------------------------------------- */

/* (N, T, H D) as (N, H, T, D). */
static gd_status split_heads(gd_onnx_loader *l, gd_tensor *x, int64_t heads, gd_tensor **y) {
    gd_onnx_size s[4], width;
    if (x->rank != 3) {
        *y = x;
        return GD_OK;
    }
    GD_TRY(gd_onnx_size_of(x, 0, &s[0]));
    GD_TRY(gd_onnx_size_of(x, 1, &s[1]));
    GD_TRY(gd_onnx_size_of(x, 2, &width));
    s[2] = gd_onnx_known_size(heads);
    GD_TRY(gd_onnx_size_divide(width, heads, &s[3]));
    GD_TRY(gd_onnx_reshape_to(l, x, 4, s, y));
    *y = gd_permute(*y, gd_dims(0, 2, 1, 3));
    return GD_OK;
}

/* (N, H, T, D) as (N, T, H D). */
static gd_status join_heads(gd_onnx_loader *l, gd_tensor *x, gd_tensor **y) {
    gd_onnx_size s[3], heads, width;
    GD_TRY(gd_onnx_size_of(x, 0, &s[0]));
    GD_TRY(gd_onnx_size_of(x, 1, &heads));
    GD_TRY(gd_onnx_size_of(x, 2, &s[1]));
    GD_TRY(gd_onnx_size_of(x, 3, &width));
    GD_TRY(gd_onnx_size_multiply(heads, width, &s[2]));
    return gd_onnx_reshape_to(l, gd_permute(x, gd_dims(0, 2, 1, 3)), 3, s, y);
}

/* Inputs: Q, K, V, a mask, and past keys and values, which are put before K and V. */
gd_status gd_onnx_load_attention(gd_onnx_loader *l, const gd_pb *node) {
    static const char *const heads_of[] = {"q_num_heads", "kv_num_heads", "kv_num_heads"};
    gd_tensor *in[3], *y;
    bool has_past = false;
    int64_t causal, heads[3];
    double scale, softcap;
    bool flat = false;
    GD_TRY(gd_onnx_int_attribute(node, "is_causal", 0, &causal));
    GD_TRY(gd_onnx_float_attribute(node, "scale", NAN, &scale));
    GD_TRY(gd_onnx_float_attribute(node, "softcap", 0, &softcap));
    for (size_t i = 0; i < 3; i++) {
        GD_ONNX_REQUIRE_INPUT(x, i);
        GD_TRY(gd_onnx_int_attribute(node, heads_of[i], 0, &heads[i]));
        if (x->rank != 4 && (x->rank != 3 || heads[i] < 1))
            return gd_fail(
                GD_E_FORMAT,
                "its input %zu has %d dimensions; it must have 4, or 3 and the attribute %s", i,
                x->rank, heads_of[i]);
        flat = flat || x->rank == 3;
        GD_TRY(split_heads(l, x, heads[i], &in[i]));
    }
    GD_ONNX_OPTIONAL_INPUT(mask, 3);
    for (size_t i = 0; i < 2; i++) {
        GD_ONNX_OPTIONAL_INPUT(past, 4 + i);
        if (past) in[1 + i] = gd_cat(gd_list(past, in[1 + i]), .axis = 2);
        if (i == 0) has_past = past != NULL;
    }
    GD_ONNX_OPTIONAL_INPUT(lengths, 6);
    if (softcap != 0 || lengths || (causal && has_past) ||
        (gd_pb_count(node, "output") > 3 && *gd_pb_string_at(node, "output", 3)))
        return gd_fail(
            GD_E_UNSUPPORTED,
            "attention is supported without softcap, nonpad_kv_seqlen, the products as an "
            "output, and is_causal together with past keys");
    const bool grouped = /* heads of Q share heads of K and V */
        in[0]->dims[1] != in[1]->dims[1] || in[0]->dims[1] == GD_UNKNOWN;
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

/* --- Dropout and the loss --------------------------------------------------------------------- */

/* In inference mode: x, and a mask that is true everywhere. */
gd_status gd_onnx_load_dropout(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *training = NULL;
    gd_attrs *attrs = gd_attrs_new(gd_op_find("dropout"));
    GD_ONNX_REQUIRE_INPUT(x, 0);
    if (!attrs) return GD_E_MEMORY;
    if (*gd_pb_string_at(node, "input", 2)) {
        GD_TRY(gd_onnx_constant_value(l, gd_pb_string_at(node, "input", 2), &training));
        if (!training || gd_tensor_numel(training) != 1 || gd_item(training) != 0)
            return gd_fail(GD_E_UNSUPPORTED, "its training_mode must be a constant, false");
    }
    if (gd_onnx_is_data_independent(l, gd_pb_string_at(node, "input", 1)))
        GD_TRY(gd_onnx_set_number(l, node, 1, attrs, "p"));
    GD_TRY(gd_attrs_set_text(attrs, "training", "false"));
    gd_tensors y = gd_op_call(gd_op_find("dropout"), gd_list(x), attrs);
    if (y.count < 1) return gd_failure();
    GD_TRY(gd_onnx_set_output(l, node, 0, y.at[0]));
    if (!gd_onnx_has_output(node, 1)) return GD_OK;
    return gd_onnx_set_output(l, node, 1, gd_ones_like(x, .dtype = GD_BOOL));
}

/* The loss of x (N, C, ...), and the log-probabilities. */
gd_status gd_onnx_load_softmax_loss(gd_onnx_loader *l, const gd_pb *node) {
    gd_cross_entropy_options o = gd_cross_entropy_defaults();
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_ONNX_REQUIRE_INPUT(target, 1);
    GD_ONNX_OPTIONAL_INPUT(weight, 2);
    o.weight = weight;
    GD_TRY(gd_onnx_int_attribute(node, "ignore_index", o.ignore_index, &o.ignore_index));
    o.reduction = gd_onnx_attribute_is(node, "reduction", "mean", "none")  ? GD_NONE
                  : gd_onnx_attribute_is(node, "reduction", "mean", "sum") ? GD_SUM
                                                                           : GD_MEAN;
    if (x->rank < 2 || !gd_dtype_is_int((gd_dtype)target->dtype))
        return gd_fail(GD_E_UNSUPPORTED,
                       "it needs scores of at least 2 dimensions and integers for the classes");
    GD_TRY(gd_onnx_set_output(l, node, 0, gd_cross_entropy_at(NULL, x, target, &o)));
    if (!gd_onnx_has_output(node, 1)) return GD_OK;
    return gd_onnx_set_output(l, node, 1, gd_log_softmax(x, .axis = 1));
}
