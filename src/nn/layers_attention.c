/* layers_attention.c - multi-head attention and positional encoding.
 *
 * N is the batch, L the length of the query, S that of key and value, E embed_dim, H num_heads, D =
 * E / H. Heads are views: (N, L, E) is reshaped to (N, L, H, D) and permuted to (N, H, L, D), and
 * (L, N, E) likewise, so neither layout is transposed in memory before the fused op reads it.
 */
#include <math.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "dispatch/deferred_call.h"
#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/initializer.h"
#include "nn/layer.h"

/* --- multi-head attention --------------------------------------------------------------------- */

/*layer multihead_attention(query, key?, value?, key_padding_mask?, attn_mask?, embed_dim:int, num_heads:int) -> y, weights
 * Attention with several heads: query (L, N, embed_dim), key (S, N, kdim) and value (S, N, vdim)
 * give y (L, N, embed_dim); a single sequence has no N. Without key it is self-attention; without
 * value, the key is the value. key_padding_mask is (N, S), attn_mask (L, S) or
 * (N * num_heads, L, S). As in PyTorch, true in the masks of this layer hides a position, and a
 * float is added to the score; in the mask of the op gd_scaled_dot_product_attention, true lets a
 * query attend to the position. A query whose positions are all hidden gives zeros. With
 * need_weights there is a second output, the weights (N, L, S).
 *   dropout float = 0           of the weights, in train mode
 *   bias bool = true            of the projections
 *   add_bias_kv bool = false    appends a position whose key and value are parameters
 *   add_zero_attn bool = false  appends a position of zeros
 *   kdim int = none             features of key; none: embed_dim
 *   vdim int = none             features of value; none: embed_dim
 *   batch_first bool = false    (N, L, E) instead of (L, N, E)
 *   causal bool = false         position i of the query attends to positions up to i only
 *   need_weights bool = false   also returns the weights, which the fused op does not materialize
 *   average_attn_weights bool = true   false: the weights of each head, (N, num_heads, L, S)
 *   python (embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first)
 */
enum { IN_Q, IN_K, IN_V, IN_PADDING, IN_MASK };

/* Entries, in the order of PyTorch. If one projection serves all three, its weight is at
 * Q_WEIGHT. */
enum { Q_WEIGHT, K_WEIGHT, V_WEIGHT, IN_BIAS, BIAS_K, BIAS_V, OUT_PROJ };

static bool same_widths(const gd_nn_multihead_attention_options *o) {
    return (o->kdim == GD_UNSET || o->kdim == o->embed_dim) &&
           (o->vdim == GD_UNSET || o->vdim == o->embed_dim);
}

static gd_status multihead_attention_check(const gd_module *m) {
    const gd_nn_multihead_attention_options *o = m->options;
    int64_t three;
    GD_TRY(gd_layer_at_least(m, "embed_dim", o->embed_dim, 1));
    GD_TRY(gd_layer_at_least(m, "num_heads", o->num_heads, 1));
    if (o->embed_dim % o->num_heads != 0)
        return gd_fail(GD_E_ARGUMENT, "%s: num_heads is %lld; it must divide embed_dim (%lld)",
                       m->type, (long long)o->num_heads, (long long)o->embed_dim);
    if (!gd_mul_i64(3, o->embed_dim, &three))
        return gd_fail(GD_E_ARGUMENT, "%s: embed_dim is %lld, which is too large", m->type,
                       (long long)o->embed_dim);
    if (o->kdim != GD_UNSET) GD_TRY(gd_layer_at_least(m, "kdim", o->kdim, 1));
    if (o->vdim != GD_UNSET) GD_TRY(gd_layer_at_least(m, "vdim", o->vdim, 1));
    return gd_layer_within(m, "dropout", o->dropout, 0, 1, true);
}

static gd_status add_xavier(gd_module *m, const char *name, int64_t rows, int64_t columns) {
    return gd_layer_uniform(m, name, gd_dims(rows, columns),
                            sqrt(6 / ((double)rows + (double)columns)));
}

static gd_status add_projections(gd_module *m, const gd_nn_multihead_attention_options *o) {
    const int64_t e = o->embed_dim;
    if (same_widths(o)) {
        GD_TRY(add_xavier(m, "in_proj_weight", 3 * e, e));
        GD_TRY(gd_layer_absent(m, "k_proj_weight"));
        return gd_layer_absent(m, "v_proj_weight");
    }
    GD_TRY(add_xavier(m, "q_proj_weight", e, e));
    GD_TRY(add_xavier(m, "k_proj_weight", e, o->kdim == GD_UNSET ? e : o->kdim));
    return add_xavier(m, "v_proj_weight", e, o->vdim == GD_UNSET ? e : o->vdim);
}

static gd_status multihead_attention_build(gd_module *m) {
    const gd_nn_multihead_attention_options *o = m->options;
    const int64_t e = o->embed_dim;
    GD_TRY(add_projections(m, o));
    GD_TRY(o->bias ? gd_layer_fill(m, "in_proj_bias", gd_dims(3 * e), 0)
                   : gd_layer_absent(m, "in_proj_bias"));
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "bias_v" : "bias_k";
        GD_TRY(o->add_bias_kv ? gd_layer_normal(m, name, gd_dims(1, 1, e), 1 / sqrt((double)e))
                              : gd_layer_absent(m, name));
    }
    GD_TRY(gd_layer_child(m, "out_proj", gd_nn_linear(e, e, .bias = o->bias)));
    gd_tensor *bias = gd_layer_tensor(gd_layer_child_at(m, OUT_PROJ), "bias");
    return bias ? gd_init_fill(bias, "zeros") : GD_OK;
}

typedef struct qkv {
    gd_tensor *q, *k, *v;
} qkv;

/* Self-attention is one product with (3E, E). If key and value are the same tensor, they are one
 * product with the last 2E rows. */
static qkv project_at_once(gd_module *m, qkv in, int64_t e) {
    gd_tensor *w = gd_layer_tensor_at(m, Q_WEIGHT), *b = gd_layer_tensor_at(m, IN_BIAS);
    if (in.k == in.q && in.v == in.q) {
        const gd_tensors all = gd_split(gd_linear(in.q, w, b), gd_dims(e), .axis = -1);
        return (qkv){all.at[0], all.at[1], all.at[2]};
    }
    const bool pair = in.k == in.v;
    const gd_shape sizes = pair ? gd_dims(e, 2 * e) : gd_dims(e, e, e);
    const gd_tensors ws = gd_split(w, sizes), bs = b ? gd_split(b, sizes) : ws;
    gd_tensor *q = gd_linear(in.q, ws.at[0], b ? bs.at[0] : NULL),
              *k = gd_linear(in.k, ws.at[1], b ? bs.at[1] : NULL);
    if (!pair) return (qkv){q, k, gd_linear(in.v, ws.at[2], b ? bs.at[2] : NULL)};
    const gd_tensors kv = gd_split(k, gd_dims(e), .axis = -1);
    return (qkv){q, kv.at[0], kv.at[1]};
}

static qkv project_inputs(gd_module *m, qkv in, int64_t e) {
    if (!gd_layer_tensor_at(m, K_WEIGHT)) return project_at_once(m, in, e);
    gd_tensor *b = gd_layer_tensor_at(m, IN_BIAS), *parts[3] = {NULL};
    for (int i = 0; b && i < 3; i++) parts[i] = gd_narrow(b, 0, i * e, e);
    return (qkv){gd_linear(in.q, gd_layer_tensor_at(m, Q_WEIGHT), parts[0]),
                 gd_linear(in.k, gd_layer_tensor_at(m, K_WEIGHT), parts[1]),
                 gd_linear(in.v, gd_layer_tensor_at(m, V_WEIGHT), parts[2])};
}

/* Appends a position with the values `row` (1, 1, E) to x (N, S, E) or (S, N, E). */
static gd_tensor *append_position(gd_tensor *x, gd_tensor *row, int axis) {
    return gd_cat(gd_list(x, gd_add(gd_zeros_like(gd_narrow(x, axis, 0, 1)), row)), .axis = axis);
}
static gd_tensor *append_zeros(gd_tensor *x, int axis) {
    return gd_pad(x, axis == 1 ? gd_dims(0, 0, 0, 1) : gd_dims(0, 0, 0, 0, 0, 1));
}

/* (N, L, E) or (L, N, E) as (N, H, L, D), and back. L and N may be unknown before a run. */
static gd_tensor *split_heads(const gd_nn_multihead_attention_options *o, gd_tensor *x) {
    x = gd_unflatten(x, -1, gd_dims(o->num_heads, o->embed_dim / o->num_heads));
    return gd_permute(x, o->batch_first ? gd_dims(0, 2, 1, 3) : gd_dims(1, 2, 0, 3));
}
static gd_tensor *join_heads(const gd_nn_multihead_attention_options *o, gd_tensor *y) {
    y = gd_permute(y, o->batch_first ? gd_dims(0, 2, 1, 3) : gd_dims(2, 0, 1, 3));
    return gd_flatten(y, .start_axis = 2);
}

/* --- masks: true hides, a float is added ------------------------------------------------------ */

/* The mask as numbers to be added to the scores. */
static gd_tensor *additive_mask(gd_tensor *mask, gd_dtype dtype) {
    if (gd_tensor_dtype(mask) != GD_BOOL) return gd_cast(mask, dtype);
    return gd_where(mask, gd_scalar_of(-INFINITY, dtype), gd_scalar_of(0, dtype));
}

/* Combines two masks, either of which may be NULL, to one that broadcasts to (N, H, L, S). */
static gd_tensor *combine_masks(gd_tensor *a, gd_tensor *b, gd_dtype dtype) {
    if (!a || !b) return a ? a : b;
    if (gd_tensor_dtype(a) == GD_BOOL && gd_tensor_dtype(b) == GD_BOOL) return gd_logical_or(a, b);
    return gd_add(additive_mask(a, dtype), additive_mask(b, dtype));
}

/* Extends the mask to appended positions, which are visible. */
static gd_tensor *extend_mask(gd_tensor *mask, int64_t positions) {
    return mask && positions ? gd_pad(mask, gd_dims(0, positions)) : mask;
}

/* Zeros and ones of an integer would be added to the scores. */
static gd_status check_mask(const gd_tensor *mask, const char *name) {
    const gd_dtype dtype = mask ? gd_tensor_dtype(mask) : GD_BOOL;
    if (dtype == GD_BOOL || gd_dtype_is_float(dtype)) return GD_OK;
    return gd_fail(GD_E_DTYPE,
                   "%s is %s; it must be bool, where true is \"hide\" (gd_ne(mask, 0) makes it "
                   "so), or a float, which is added to the scores",
                   name, gd_dtype_name(dtype));
}

static gd_tensor *make_mask(const gd_nn_multihead_attention_options *o, gd_tensors in,
                            gd_dtype dtype) {
    gd_tensor *padding = gd_layer_input(in, IN_PADDING), *mask = gd_layer_input(in, IN_MASK);
    const int64_t appended = o->add_bias_kv + o->add_zero_attn;
    /* (N, S), or (S) of a single sequence, as (N, 1, 1, S) */
    if (padding) padding = gd_unsqueeze(gd_unsqueeze(extend_mask(padding, appended), -2), -2);
    if (mask) {
        mask = extend_mask(mask, appended);
        if (gd_tensor_rank(mask) == 3) mask = gd_unflatten(mask, 0, gd_dims(-1, o->num_heads));
    }
    return combine_masks(padding, mask, dtype);
}

/* --- forward ---------------------------------------------------------------------------------- */

/* (L, S): true where position j of the key k (N, H, S, D) is after position i of the query q. */
static gd_tensor *causal_mask(gd_tensor *q, gd_tensor *k) {
    return gd_lt(gd_unsqueeze(gd_axis_positions(q, 2), 1), gd_axis_positions(k, 2));
}

/* Materializes the weights (N, H, L, S). Rows that are masked entirely are zeros, as in the fused
 * op. */
static gd_tensor *compute_weights(const gd_nn_multihead_attention_options *o, const qkv *heads,
                                  gd_tensor *mask) {
    const gd_dtype dtype = gd_tensor_dtype(heads->q);
    const double scale = 1 / sqrt((double)(o->embed_dim / o->num_heads));
    gd_tensor *scores =
        gd_matmul(gd_mul(heads->q, gd_scalar_of(scale, dtype)), gd_transpose(heads->k, -1, -2));
    if (o->causal) mask = combine_masks(mask, causal_mask(heads->q, heads->k), dtype);
    if (!mask) return gd_softmax(scores, .axis = -1);
    mask = additive_mask(mask, dtype);
    gd_tensor *masked =
                  gd_eq(gd_max(mask, .axis = -1, .keepdim = true), gd_scalar_of(-INFINITY, dtype)),
              *zero = gd_scalar_of(0, dtype);
    return gd_where(masked, zero,
                    gd_softmax(gd_where(masked, zero, gd_add(scores, mask)), .axis = -1));
}

/* y (N, H, L, D); with need_weights also the weights. */
static gd_tensor *compute_attention(gd_module *m, const qkv *heads, gd_tensor *mask,
                                    gd_tensor **weights) {
    const gd_nn_multihead_attention_options *o = m->options;
    const bool drops = o->dropout > 0 && gd_layer_is_training(m);
    if (o->need_weights) {
        *weights = compute_weights(o, heads, mask);
        if (drops) *weights = gd_dropout(*weights, .p = o->dropout);
        return gd_matmul(*weights, heads->v);
    }
    if (mask && gd_tensor_dtype(mask) == GD_BOOL)
        mask = gd_logical_not(mask); /* in the mask of the op, true means visible */
    else if (mask) mask = gd_cast(mask, gd_tensor_dtype(heads->q));
    return gd_scaled_dot_product_attention(heads->q, heads->k, heads->v, .mask = mask,
                                           .causal = o->causal, .dropout = o->dropout,
                                           .training = drops);
}

static gd_status check_ranks(const gd_nn_multihead_attention_options *o, const qkv *in) {
    const int rank = gd_tensor_rank(in->q);
    char text[160];
    if (rank != 2 && rank != 3)
        return gd_fail(GD_E_SHAPE, "the query must be %s, or (L, E) for a single sequence, not %s",
                       o->batch_first ? "(N, L, E)" : "(L, N, E)",
                       gd_describe(in->q, text, sizeof text));
    if (gd_tensor_rank(in->k) != rank || gd_tensor_rank(in->v) != rank)
        return gd_fail(
            GD_E_SHAPE,
            "query, key and value must have the same number of dimensions, not %d, %d and %d", rank,
            gd_tensor_rank(in->k), gd_tensor_rank(in->v));
    return GD_OK;
}

/* Inputs that are one tensor stay one tensor, so that self-attention is recognized. */
static qkv add_batch_axis(const qkv *in, int axis) {
    gd_tensor *q = gd_unsqueeze(in->q, axis), *k = in->k == in->q ? q : gd_unsqueeze(in->k, axis);
    return (qkv){q, k, in->v == in->k ? k : in->v == in->q ? q : gd_unsqueeze(in->v, axis)};
}

static gd_tensors multihead_attention_forward(gd_module *m, gd_tensors in) {
    const gd_nn_multihead_attention_options *o = m->options;
    qkv x = {in.at[IN_Q], gd_layer_input(in, IN_K), gd_layer_input(in, IN_V)};
    if (!x.k) x.k = x.q;
    if (!x.v) x.v = x.k;
    gd_status status = check_ranks(o, &x);
    if (status == GD_OK) status = check_mask(gd_layer_input(in, IN_PADDING), "key_padding_mask");
    if (status == GD_OK) status = check_mask(gd_layer_input(in, IN_MASK), "attn_mask");
    if (status != GD_OK) return gd_layer_fail(status);
    const bool single = gd_tensor_rank(x.q) == 2;
    const int batch = o->batch_first ? 0 : 1, length = 1 - batch;
    if (single) x = add_batch_axis(&x, batch);
    qkv p = project_inputs(m, x, o->embed_dim);
    if (o->add_bias_kv) {
        p.k = append_position(p.k, gd_layer_tensor_at(m, BIAS_K), length);
        p.v = append_position(p.v, gd_layer_tensor_at(m, BIAS_V), length);
    }
    if (o->add_zero_attn) p.k = append_zeros(p.k, length), p.v = append_zeros(p.v, length);
    const qkv heads = {split_heads(o, p.q), split_heads(o, p.k), split_heads(o, p.v)};
    gd_tensor *weights = NULL,
              *y = compute_attention(m, &heads, make_mask(o, in, gd_tensor_dtype(x.q)), &weights);
    y = gd_module_run(gd_layer_child_at(m, OUT_PROJ), gd_list(join_heads(o, y))).at[0];
    if (single) y = gd_squeeze(y, .axis = batch);
    if (!weights) return gd_listed(y);
    if (o->average_attn_weights) weights = gd_mean(weights, .axis = 1);
    return gd_listed(y, single ? gd_squeeze(weights, .axis = 0) : weights);
}

/* --- positional encoding ---------------------------------------------------------------------- */

/*layer positional_encoding(x, embed_dim:int) -> y
 * Adds sines and cosines of the position to x (T, N, embed_dim), with wavelengths from 2 pi to
 * 10000 * 2 pi (Vaswani et al. 2017): feature 2i is sin(t / 10000^(2i / embed_dim)),
 * feature 2i + 1 the cosine. A single sequence has no N.
 *   max_len int = 5000         the longest sequence
 *   dropout float = 0          of the sum, in train mode
 *   batch_first bool = false   x is (N, T, embed_dim)
 */
static gd_status positional_encoding_check(const gd_module *m) {
    const gd_nn_positional_encoding_options *o = m->options;
    GD_TRY(gd_layer_at_least(m, "embed_dim", o->embed_dim, 1));
    GD_TRY(gd_layer_at_least(m, "max_len", o->max_len, 1));
    return gd_layer_within(m, "dropout", o->dropout, 0, 1, true);
}

/* The buffer pe (max_len, embed_dim). */
static gd_status positional_encoding_build(gd_module *m) {
    const gd_nn_positional_encoding_options *o = m->options;
    const int64_t e = o->embed_dim;
    int64_t count, bytes;
    double *table = gd_mul_i64(o->max_len, e, &count) && gd_mul_i64(count, sizeof *table, &bytes)
                        ? gd_malloc((size_t)bytes)
                        : NULL;
    if (!table)
        return gd_fail(GD_E_MEMORY, "%s: no memory for a table of max_len %lld and embed_dim %lld",
                       m->type, (long long)o->max_len, (long long)e);
    for (int64_t t = 0; t < o->max_len; t++)
        for (int64_t i = 0; i < e; i++) {
            const double angle = (double)t * exp(-log(10000) * (double)(i - i % 2) / (double)e);
            table[t * e + i] = i % 2 ? cos(angle) : sin(angle);
        }
    gd_tensor *pe = gd_cast(gd_from_array(gd_dims(o->max_len, e), GD_F64, table),
                            m->dtype == GD_DTYPE_NONE ? GD_F32 : m->dtype);
    gd_free(table);
    return pe->kind == GD_FAILED ? gd_failure() : gd_module_put(m, GD_A_BUFFER, "pe", pe, NULL);
}

static gd_tensors positional_encoding_forward(gd_module *m, gd_tensors in) {
    const gd_nn_positional_encoding_options *o = m->options;
    gd_tensor *x = in.at[0];
    const int rank = gd_tensor_rank(x), axis = rank == 3 && o->batch_first ? 1 : 0;
    char text[160];
    if (rank != 2 && rank != 3)
        return gd_layer_fail(
            gd_fail(GD_E_SHAPE, "it takes %s, or (T, E) for a single sequence, not %s",
                    o->batch_first ? "(N, T, E)" : "(T, N, E)", gd_describe(x, text, sizeof text)));
    const int64_t steps = gd_tensor_dim(x, axis);
    if (steps > o->max_len)
        return gd_layer_fail(gd_fail(GD_E_SHAPE,
                                     "x is %s; its length must be at most max_len (%lld)",
                                     gd_describe(x, text, sizeof text), (long long)o->max_len));
    gd_tensor *pe = gd_layer_tensor_at(m, 0);
    pe = steps < 0 ? gd_index_select(pe, 0, gd_axis_positions(x, axis)) /* unknown before a run */
                   : gd_narrow(pe, 0, 0, steps);
    gd_tensor *y = gd_add(x, rank == 3 && !o->batch_first ? gd_unsqueeze(pe, 1) : pe);
    return gd_listed(o->dropout > 0 && gd_layer_is_training(m) ? gd_dropout(y, .p = o->dropout)
                                                               : y);
}

#include "nn/layers_attention.gen.h"
