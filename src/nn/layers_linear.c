/* layers_linear.c - linear and bilinear layers, and embeddings. */
#include <math.h>

#include "gradus/autograd.h"
#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/*layer linear(x, in_features:int, out_features:int) -> y  of linear
 * y = x weight^T + bias: x (..., in_features) gives y (..., out_features).
 *   bias bool = true
 *   finds in_features x[-1]
 *   python (in_features, out_features, bias)
 */
static gd_status linear_check(const gd_module *m) {
    const gd_nn_linear_options *o = m->options;
    GD_TRY(gd_layer_size(m, "in_features", o->in_features));
    return gd_layer_at_least(m, "out_features", o->out_features, 1);
}
static gd_status linear_build(gd_module *m) {
    const gd_nn_linear_options *o = m->options;
    const double bound = 1 / sqrt((double)o->in_features);
    GD_TRY(gd_layer_uniform(m, "weight", gd_dims(o->out_features, o->in_features), bound));
    return o->bias ? gd_layer_uniform(m, "bias", gd_dims(o->out_features), bound)
                   : gd_layer_absent(m, "bias");
}

/*layer bilinear(a, b, in1_features:int, in2_features:int, out_features:int) -> y
 * y[o] = a^T weight[o] b + bias[o]: a (..., in1_features) and b (..., in2_features) give
 * y (..., out_features).
 *   bias bool = true
 *   finds in1_features a[-1]
 *   finds in2_features b[-1]
 *   python (in1_features, in2_features, out_features, bias)
 */
static gd_status bilinear_check(const gd_module *m) {
    const gd_nn_bilinear_options *o = m->options;
    GD_TRY(gd_layer_size(m, "in1_features", o->in1_features));
    GD_TRY(gd_layer_size(m, "in2_features", o->in2_features));
    return gd_layer_at_least(m, "out_features", o->out_features, 1);
}
static gd_status bilinear_build(gd_module *m) {
    const gd_nn_bilinear_options *o = m->options;
    const double bound = 1 / sqrt((double)o->in1_features);
    GD_TRY(gd_layer_uniform(m, "weight", gd_dims(o->out_features, o->in1_features, o->in2_features),
                            bound));
    return o->bias ? gd_layer_uniform(m, "bias", gd_dims(o->out_features), bound)
                   : gd_layer_absent(m, "bias");
}
static gd_tensors bilinear_forward(gd_module *m, gd_tensors in) {
    gd_tensor *bias = gd_layer_tensor_at(m, 1);
    gd_tensor *y =
        gd_einsum("...i,oij,...j->...o", gd_list(in.at[0], gd_layer_tensor_at(m, 0), in.at[1]));
    return gd_listed(bias ? gd_add(y, bias) : y);
}

/* --- embeddings ------------------------------------------------------------------------------- */

/* The table (rows, width): normal numbers, and zeros in the row padding_idx. */
static gd_status build_table(gd_module *m, int64_t rows, int64_t width, int64_t padding_idx) {
    GD_TRY(gd_layer_normal(m, "weight", gd_dims(rows, width), 1));
    if (padding_idx == GD_UNSET) return GD_OK;
    GD_NO_GRAD;
    gd_tensor *weight = gd_layer_tensor_at(m, 0), *row = gd_select(weight, 0, padding_idx);
    return gd_assign(row, gd_scalar(0))->kind == GD_FAILED ? gd_failure() : GD_OK;
}

static gd_status check_table(const gd_module *m, int64_t rows, int64_t width, int64_t padding_idx) {
    GD_TRY(gd_layer_at_least(m, "num_embeddings", rows, 1));
    GD_TRY(gd_layer_at_least(m, "embedding_dim", width, 1));
    if (padding_idx == GD_UNSET || (padding_idx >= -rows && padding_idx < rows)) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s: padding_idx is %lld; it must be a row, from %lld to %lld",
                   m->type, (long long)padding_idx, (long long)-rows, (long long)rows - 1);
}

/*layer embedding(x, num_embeddings:int, embedding_dim:int) -> y  of embedding
 * Rows of a table: indices x of any shape give y (..., embedding_dim).
 *   options of embedding
 *   python (num_embeddings, embedding_dim, padding_idx, max_norm!None, norm_type~2.0, scale_grad_by_freq!False, sparse~False)
 */
static gd_status embedding_check(const gd_module *m) {
    const gd_nn_embedding_options *o = m->options;
    return check_table(m, o->num_embeddings, o->embedding_dim, o->padding_idx);
}
static gd_status embedding_build(gd_module *m) {
    const gd_nn_embedding_options *o = m->options;
    return build_table(m, o->num_embeddings, o->embedding_dim, o->padding_idx);
}

/*layer embedding_bag(x, per_sample_weights?, num_embeddings:int, embedding_dim:int) -> y
 * The mean, the sum or the maximum of the rows of each bag: indices x (bags, n) give
 * y (bags, embedding_dim). Weights, for mode sum, have the shape of x.
 *   mode {sum, mean, max} = mean
 *   padding_idx int = none   the row that is ignored and gets no gradient
 *   python (num_embeddings, embedding_dim, max_norm!None, norm_type~2.0, scale_grad_by_freq!False, mode, sparse~False, _weight!None, include_last_offset!False, padding_idx)
 */
static gd_status embedding_bag_check(const gd_module *m) {
    const gd_nn_embedding_bag_options *o = m->options;
    return check_table(m, o->num_embeddings, o->embedding_dim, o->padding_idx);
}
static gd_status embedding_bag_build(gd_module *m) {
    const gd_nn_embedding_bag_options *o = m->options;
    return build_table(m, o->num_embeddings, o->embedding_dim, o->padding_idx);
}

/* (bags, n): 1 for each index, and 0 for the padding. */
static gd_tensor *padding_weights(gd_tensor *x, int64_t rows, int64_t padding_idx, gd_dtype dtype) {
    const int64_t row = padding_idx < 0 ? padding_idx + rows : padding_idx;
    return gd_cast(gd_ne(x, gd_scalar_int(row)), dtype);
}

static gd_tensors embedding_bag_forward(gd_module *m, gd_tensors in) {
    const gd_nn_embedding_bag_options *o = m->options;
    gd_tensor *x = in.at[0], *weights = gd_layer_input(in, 1), *table = gd_layer_tensor_at(m, 0);
    const bool padded = o->padding_idx != GD_UNSET;
    char text[160];
    if (x->rank != 2)
        return gd_layer_fail(gd_fail(GD_E_SHAPE, "x must be (bags, n); it is %s",
                                     gd_describe(x, text, sizeof text)));
    if (weights && o->mode != GD_SUM)
        return gd_layer_fail(
            gd_fail(GD_E_ARGUMENT, "per_sample_weights require mode sum, not mean or max"));
    gd_tensor *rows = gd_embedding(x, table, .padding_idx = o->padding_idx),
              *counts = NULL; /* (bags, n, width) */
    if (padded)
        counts = gd_unsqueeze(
            padding_weights(x, o->num_embeddings, o->padding_idx, (gd_dtype)table->dtype), 2);
    if (o->mode == GD_MAX) {
        if (!padded) return gd_listed(gd_max_with_index(rows, 1).values);
        /* a bag that holds only padding gives 0 */
        gd_tensor *y =
            gd_max_with_index(
                gd_where(gd_ne(counts, gd_scalar(0)), rows, gd_scalar(-(double)INFINITY)), 1)
                .values;
        return gd_listed(gd_where(gd_isinf(y), gd_zeros_like(y), y));
    }
    if (weights) rows = gd_mul(rows, gd_unsqueeze(weights, 2));
    if (!padded)
        return gd_listed(o->mode == GD_SUM ? gd_sum(rows, .axis = gd_dims(1))
                                           : gd_mean(rows, .axis = gd_dims(1)));
    gd_tensor *sum = gd_sum(gd_mul(rows, counts), .axis = gd_dims(1));
    if (o->mode == GD_SUM) return gd_listed(sum);
    return gd_listed(gd_div(sum, gd_clamp(gd_sum(counts, .axis = gd_dims(1)), .min = 1)));
}

#include "nn/layers_linear.gen.h"
