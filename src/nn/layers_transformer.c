/* layers_transformer.c - transformer layers (Vaswani et al. 2017), and stacks of them. */
#include <math.h>
#include <stdio.h>

#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

enum { MAX_LAYERS = 1024 };

/* The options that encoder and decoder layers share. */
typedef struct block_options {
    int64_t embed_dim, num_heads, feedforward;
    double dropout, eps;
    gd_word activation;
    bool batch_first, norm_first, bias, causal;
} block_options;

#define BLOCK_OPTIONS(o)                                  \
    ((block_options){.embed_dim = (o)->embed_dim,         \
                     .num_heads = (o)->num_heads,         \
                     .feedforward = (o)->dim_feedforward, \
                     .dropout = (o)->dropout,             \
                     .eps = (o)->layer_norm_eps,          \
                     .activation = (o)->activation,       \
                     .batch_first = (o)->batch_first,     \
                     .norm_first = (o)->norm_first,       \
                     .bias = (o)->bias,                   \
                     .causal = (o)->causal})

static gd_status check_block(const gd_module *m, const block_options *b) {
    GD_TRY(gd_layer_at_least(m, "embed_dim", b->embed_dim, 1));
    GD_TRY(gd_layer_at_least(m, "num_heads", b->num_heads, 1));
    if (b->embed_dim % b->num_heads != 0)
        return gd_fail(GD_E_ARGUMENT, "%s: num_heads is %lld; it must divide embed_dim (%lld)",
                       m->type, (long long)b->num_heads, (long long)b->embed_dim);
    GD_TRY(gd_layer_at_least(m, "dim_feedforward", b->feedforward, 1));
    GD_TRY(gd_layer_within(m, "dropout", b->dropout, 0, 1, true));
    return gd_layer_within(m, "layer_norm_eps", b->eps, 0, (double)INFINITY, false);
}

static gd_status check_stack(const gd_module *m, const block_options *b, int64_t layers) {
    GD_TRY(gd_layer_at_least(m, "layers", layers, 1));
    if (layers <= MAX_LAYERS) return check_block(m, b);
    return gd_fail(GD_E_ARGUMENT, "%s: layers is %lld; it must be at most %d", m->type,
                   (long long)layers, MAX_LAYERS);
}

/* --- parts of a layer ------------------------------------------------------------------------- */

static gd_status add_attention(gd_module *m, const char *name, const block_options *b,
                               bool causal) {
    return gd_layer_child(m, name,
                          gd_nn_multihead_attention(
                              b->embed_dim, b->num_heads, .dropout = b->dropout, .bias = b->bias,
                              .batch_first = b->batch_first, .causal = causal));
}

static gd_status add_feedforward(gd_module *m, const block_options *b) {
    GD_TRY(
        gd_layer_child(m, "linear1", gd_nn_linear(b->embed_dim, b->feedforward, .bias = b->bias)));
    GD_TRY(gd_layer_child(m, "dropout", gd_nn_dropout(.p = b->dropout)));
    return gd_layer_child(m, "linear2",
                          gd_nn_linear(b->feedforward, b->embed_dim, .bias = b->bias));
}

/* norm1, norm2 ..., then dropout1, dropout2 ... */
static gd_status add_norms(gd_module *m, const block_options *b, int count) {
    char name[32];
    for (int i = 1; i <= count; i++) {
        snprintf(name, sizeof name, "norm%d", i);
        GD_TRY(gd_layer_child(
            m, name, gd_nn_layer_norm(gd_dims(b->embed_dim), .eps = b->eps, .bias = b->bias)));
    }
    for (int i = 1; i <= count; i++) {
        snprintf(name, sizeof name, "dropout%d", i);
        GD_TRY(gd_layer_child(m, name, gd_nn_dropout(.p = b->dropout)));
    }
    return GD_OK;
}

static gd_tensor *call_child(gd_module *m, int child, gd_tensor *x) {
    return gd_module_run(gd_layer_child_at(m, child), gd_list(x)).at[0];
}

/* Attention of x to memory; to x itself if memory is NULL. */
static gd_tensor *call_attention(gd_module *m, int child, gd_tensor *x, gd_tensor *memory,
                                 gd_tensor *mask, gd_tensor *padding) {
    return gd_module_run(gd_layer_child_at(m, child), gd_list(x, memory, NULL, padding, mask))
        .at[0];
}

/* linear2(dropout(activation(linear1(x)))), children `first` to first + 2. */
static gd_tensor *feed_forward(gd_module *m, int first, const block_options *b, gd_tensor *x) {
    x = call_child(m, first, x);
    x = b->activation == GD_GELU ? gd_gelu(x) : gd_relu(x);
    return call_child(m, first + 2, call_child(m, first + 1, x));
}

/* --- encoder layer ---------------------------------------------------------------------------- */

/*layer transformer_encoder_layer(x, mask?, key_padding_mask?, embed_dim:int, num_heads:int) -> y
 * Self-attention and a feed-forward network, each with a residual connection and a layer norm: x
 * (T, N, embed_dim) gives y of that shape. Masks are those of gd_nn_multihead_attention: true hides.
 *   dim_feedforward int = 2048
 *   dropout float = 0.1
 *   activation {relu, gelu} = relu
 *   layer_norm_eps float = 1e-5
 *   batch_first bool = false   x is (N, T, embed_dim)
 *   norm_first bool = false    normalizes before attention and feed-forward, not after the sums
 *   bias bool = true
 *   causal bool = false        a position attends to positions up to itself only
 *   python (d_model=embed_dim, nhead=num_heads, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
 */
enum { E_SELF, E_LINEAR, E_NORM1 = E_LINEAR + 3, E_NORM2, E_DROP1, E_DROP2 };

static gd_status transformer_encoder_layer_check(const gd_module *m) {
    const gd_nn_transformer_encoder_layer_options *o = m->options;
    return check_block(m, &BLOCK_OPTIONS(o));
}
static gd_status transformer_encoder_layer_build(gd_module *m) {
    const gd_nn_transformer_encoder_layer_options *o = m->options;
    const block_options b = BLOCK_OPTIONS(o);
    GD_TRY(add_attention(m, "self_attn", &b, b.causal));
    GD_TRY(add_feedforward(m, &b));
    return add_norms(m, &b, 2);
}
static gd_tensors transformer_encoder_layer_forward(gd_module *m, gd_tensors in) {
    const gd_nn_transformer_encoder_layer_options *o = m->options;
    const block_options b = BLOCK_OPTIONS(o);
    gd_tensor *x = in.at[0], *mask = gd_layer_input(in, 1), *padding = gd_layer_input(in, 2);
    gd_tensor *y = call_attention(m, E_SELF, b.norm_first ? call_child(m, E_NORM1, x) : x, NULL,
                                  mask, padding);
    x = gd_add(x, call_child(m, E_DROP1, y));
    if (!b.norm_first) x = call_child(m, E_NORM1, x);
    y = feed_forward(m, E_LINEAR, &b, b.norm_first ? call_child(m, E_NORM2, x) : x);
    x = gd_add(x, call_child(m, E_DROP2, y));
    return gd_listed(b.norm_first ? x : call_child(m, E_NORM2, x));
}

/* --- decoder layer ---------------------------------------------------------------------------- */

/*layer transformer_decoder_layer(x, memory, mask?, memory_mask?, key_padding_mask?, memory_key_padding_mask?, embed_dim:int, num_heads:int) -> y
 * Self-attention, attention to memory (S, N, embed_dim), the output of an encoder, and a
 * feed-forward network, each with a residual connection and a layer norm: x (T, N, embed_dim) gives
 * y of that shape. Masks are those of gd_nn_multihead_attention: true hides.
 *   dim_feedforward int = 2048
 *   dropout float = 0.1
 *   activation {relu, gelu} = relu
 *   layer_norm_eps float = 1e-5
 *   batch_first bool = false   x is (N, T, embed_dim), memory (N, S, embed_dim)
 *   norm_first bool = false    normalizes before attention and feed-forward, not after the sums
 *   bias bool = true
 *   causal bool = false        a position of x attends to positions up to itself only
 *   python (d_model=embed_dim, nhead=num_heads, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
 */
enum {
    D_SELF,
    D_CROSS,
    D_LINEAR,
    D_NORM1 = D_LINEAR + 3,
    D_NORM2,
    D_NORM3,
    D_DROP1,
    D_DROP2,
    D_DROP3
};
enum { IN_X, IN_MEMORY, IN_MASK, IN_MEMORY_MASK, IN_PADDING, IN_MEMORY_PADDING };

static gd_status transformer_decoder_layer_check(const gd_module *m) {
    const gd_nn_transformer_decoder_layer_options *o = m->options;
    return check_block(m, &BLOCK_OPTIONS(o));
}
static gd_status transformer_decoder_layer_build(gd_module *m) {
    const gd_nn_transformer_decoder_layer_options *o = m->options;
    const block_options b = BLOCK_OPTIONS(o);
    GD_TRY(add_attention(m, "self_attn", &b, b.causal));
    GD_TRY(add_attention(m, "multihead_attn", &b, false));
    GD_TRY(add_feedforward(m, &b));
    return add_norms(m, &b, 3);
}
static gd_tensors transformer_decoder_layer_forward(gd_module *m, gd_tensors in) {
    const gd_nn_transformer_decoder_layer_options *o = m->options;
    const block_options b = BLOCK_OPTIONS(o);
    gd_tensor *x = in.at[IN_X], *memory = in.at[IN_MEMORY];
    gd_tensor *y = call_attention(m, D_SELF, b.norm_first ? call_child(m, D_NORM1, x) : x, NULL,
                                  gd_layer_input(in, IN_MASK), gd_layer_input(in, IN_PADDING));
    x = gd_add(x, call_child(m, D_DROP1, y));
    if (!b.norm_first) x = call_child(m, D_NORM1, x);
    y = call_attention(m, D_CROSS, b.norm_first ? call_child(m, D_NORM2, x) : x, memory,
                       gd_layer_input(in, IN_MEMORY_MASK), gd_layer_input(in, IN_MEMORY_PADDING));
    x = gd_add(x, call_child(m, D_DROP2, y));
    if (!b.norm_first) x = call_child(m, D_NORM2, x);
    y = feed_forward(m, D_LINEAR, &b, b.norm_first ? call_child(m, D_NORM3, x) : x);
    x = gd_add(x, call_child(m, D_DROP3, y));
    return gd_listed(b.norm_first ? x : call_child(m, D_NORM3, x));
}

/* --- stacks ----------------------------------------------------------------------------------- */

enum { S_LAYERS, S_NORM };

static gd_status add_final_norm(gd_module *m, const block_options *b, bool norm) {
    if (!norm) return GD_OK;
    return gd_layer_child(m, "norm",
                          gd_nn_layer_norm(gd_dims(b->embed_dim), .eps = b->eps, .bias = b->bias));
}

/* Passes in.at[0] through all layers, each with the same other inputs, and then the norm. */
static gd_tensors run_stack(gd_module *m, gd_tensors in) {
    gd_tensor *inputs[GD_RECORD_MAX];
    gd_module *layers = gd_layer_child_at(m, S_LAYERS);
    for (int64_t i = 0; i < in.count; i++) inputs[i] = in.at[i];
    for (int i = 0; i < gd_module_count(layers); i++)
        inputs[0] = gd_module_run(gd_module_at(layers, i), (gd_tensors){inputs, in.count}).at[0];
    return gd_listed(m->count > S_NORM ? call_child(m, S_NORM, inputs[0]) : inputs[0]);
}

/*layer transformer_encoder(x, mask?, key_padding_mask?, embed_dim:int, num_heads:int, layers:int) -> y
 * A stack of transformer_encoder_layer, all with the same masks.
 *   norm bool = false          a layer norm after the last layer
 *   dim_feedforward int = 2048
 *   dropout float = 0.1
 *   activation {relu, gelu} = relu
 *   layer_norm_eps float = 1e-5
 *   batch_first bool = false   x is (N, T, embed_dim)
 *   norm_first bool = false    normalizes before attention and feed-forward, not after the sums
 *   bias bool = true
 *   causal bool = false        a position attends to positions up to itself only
 *   python -
 */
static gd_status transformer_encoder_check(const gd_module *m) {
    const gd_nn_transformer_encoder_options *o = m->options;
    return check_stack(m, &BLOCK_OPTIONS(o), o->layers);
}
static gd_status transformer_encoder_build(gd_module *m) {
    const gd_nn_transformer_encoder_options *o = m->options;
    gd_module *list = gd_nn_list();
    for (int64_t i = 0; i < o->layers; i++)
        GD_TRY(gd_module_append(
            list, gd_nn_transformer_encoder_layer(
                      o->embed_dim, o->num_heads, .dim_feedforward = o->dim_feedforward,
                      .dropout = o->dropout, .activation = o->activation,
                      .layer_norm_eps = o->layer_norm_eps, .batch_first = o->batch_first,
                      .norm_first = o->norm_first, .bias = o->bias, .causal = o->causal)));
    GD_TRY(gd_layer_child(m, "layers", list));
    return add_final_norm(m, &BLOCK_OPTIONS(o), o->norm);
}
static gd_tensors transformer_encoder_forward(gd_module *m, gd_tensors in) {
    return run_stack(m, in);
}

/*layer transformer_decoder(x, memory, mask?, memory_mask?, key_padding_mask?, memory_key_padding_mask?, embed_dim:int, num_heads:int, layers:int) -> y
 * A stack of transformer_decoder_layer, all with the same memory and masks.
 *   norm bool = false          a layer norm after the last layer
 *   dim_feedforward int = 2048
 *   dropout float = 0.1
 *   activation {relu, gelu} = relu
 *   layer_norm_eps float = 1e-5
 *   batch_first bool = false   x is (N, T, embed_dim), memory (N, S, embed_dim)
 *   norm_first bool = false    normalizes before attention and feed-forward, not after the sums
 *   bias bool = true
 *   causal bool = false        a position of x attends to positions up to itself only
 *   python -
 */
static gd_status transformer_decoder_check(const gd_module *m) {
    const gd_nn_transformer_decoder_options *o = m->options;
    return check_stack(m, &BLOCK_OPTIONS(o), o->layers);
}
static gd_status transformer_decoder_build(gd_module *m) {
    const gd_nn_transformer_decoder_options *o = m->options;
    gd_module *list = gd_nn_list();
    for (int64_t i = 0; i < o->layers; i++)
        GD_TRY(gd_module_append(
            list, gd_nn_transformer_decoder_layer(
                      o->embed_dim, o->num_heads, .dim_feedforward = o->dim_feedforward,
                      .dropout = o->dropout, .activation = o->activation,
                      .layer_norm_eps = o->layer_norm_eps, .batch_first = o->batch_first,
                      .norm_first = o->norm_first, .bias = o->bias, .causal = o->causal)));
    GD_TRY(gd_layer_child(m, "layers", list));
    return add_final_norm(m, &BLOCK_OPTIONS(o), o->norm);
}
static gd_tensors transformer_decoder_forward(gd_module *m, gd_tensors in) {
    return run_stack(m, in);
}

#include "nn/layers_transformer.gen.h"
