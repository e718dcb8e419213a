/* sequence.c - networks for sequences, which predict the next character or word. */
#include <math.h>

#include "core/number.h"
#include "dispatch/deferred_call.h"
#include "gradus/layers.h"
#include "gradus/ops.h"
#include "gradus/zoo.h"
#include "nn/layer.h"
#include "zoo/zoo.h"

enum { MAX_LAYERS = 1024 };

static gd_status check_layers(int64_t layers) {
    GD_TRY(gd_net_at_least("layers", layers, 1));
    return layers <= MAX_LAYERS ? GD_OK
                                : gd_fail(GD_E_ARGUMENT, "layers is %lld; it must be at most %d",
                                          (long long)layers, MAX_LAYERS);
}

static gd_status check_dropout(double p) {
    return p >= 0 && p <= 1 ? GD_OK
                            : gd_fail(GD_E_ARGUMENT, "dropout is %g; it must be in [0, 1]", p);
}

/* --- char-LSTM -------------------------------------------------------------------------------- */

/*net char_lstm(vocabulary:int)
 * An LSTM that predicts the next character: x (N, T) of integers, and optionally the states h0 and
 * c0 (layers, N, hidden), give scores (N, T, vocabulary) and the last states h and c. Pass these
 * to the next call to continue the text.
 *   embedding int = 256
 *   hidden int = 256
 *   layers int = 2
 *   dropout float = 0   between the layers, and before the scores
 */
typedef struct {
    gd_module *embedding, *lstm, *drop, *head;
} char_lstm;

/* The LSTM takes time first. Transposing the integers and the scores is cheapest. */
static gd_tensors char_lstm_forward(gd_tensors in, void *self) {
    char_lstm *m = self;
    char text[160];
    if (in.count < 1 || !in.at[0] || gd_tensor_rank(in.at[0]) != 2)
        return gd_layer_fail(gd_fail(
            GD_E_SHAPE, "it takes x (N, T), not %s",
            in.count > 0 && in.at[0] ? gd_describe(in.at[0], text, sizeof text) : "nothing"));
    gd_tensor *x = gd_module_forward(m->embedding, gd_transpose(in.at[0], 0, 1));
    const gd_tensors r =
        gd_module_call(m->lstm, gd_list(x, gd_layer_input(in, 1), gd_layer_input(in, 2)));
    gd_tensor *y = gd_module_forward(m->head, gd_module_forward(m->drop, r.at[0]));
    return gd_listed(gd_transpose(y, 0, 1), r.at[1], r.at[2]);
}
static gd_status char_lstm_check(const void *options) {
    const gd_zoo_char_lstm_options *o = options;
    GD_TRY(gd_net_at_least("vocabulary", o->vocabulary, 1));
    GD_TRY(gd_net_at_least("embedding", o->embedding, 1));
    GD_TRY(gd_net_at_least("hidden", o->hidden, 1));
    GD_TRY(check_layers(o->layers));
    return check_dropout(o->dropout);
}
static gd_module *char_lstm_make(const void *options) {
    const gd_zoo_char_lstm_options *o = options;
    gd_module *net = gd_module_new(char_lstm_forward, sizeof(char_lstm), .type = "char_lstm");
    char_lstm *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->embedding, gd_nn_embedding(o->vocabulary, o->embedding));
    GD_CHILD(net, m->lstm,
             gd_nn_lstm(o->embedding, o->hidden, .layers = o->layers, .dropout = o->dropout));
    GD_CHILD(net, m->drop, gd_nn_dropout(.p = o->dropout));
    GD_CHILD(net, m->head, gd_nn_linear(o->hidden, o->vocabulary));
    return net;
}

/* --- GPT -------------------------------------------------------------------------------------- */

/*net gpt(vocabulary:int)
 * A GPT (Radford et al. 2019) with the names and initial weights of nanoGPT: x (N, T) of integers,
 * T up to context, gives scores (N, T, vocabulary). N and T may be unknown before a run. A position
 * attends to positions up to itself only.
 *   context int = 128    the longest sequence
 *   layers int = 6
 *   heads int = 6        must divide width
 *   width int = 192
 *   dropout float = 0
 *   bias bool = true     of linear layers and layer norms
 *   tied bool = true     the last linear layer has the weight of the embedding
 */
typedef gd_zoo_gpt_options gpt_options;

/* A linear layer with a normal weight and a zero bias. */
static gd_module *make_linear(int64_t in, int64_t out, bool bias, double std) {
    gd_module *m = gd_nn_linear(in, out, .bias = bias);
    char init[64];
    gd_snprintf(init, sizeof init, "normal std=%.17g", std);
    if (m) gd_module_init(m, "weight", init);
    if (m && bias) gd_module_init(m, "bias", "zeros");
    return m;
}
static gd_module *make_embedding(int64_t rows, int64_t width) {
    gd_module *m = gd_nn_embedding(rows, width);
    if (m) gd_module_init(m, "weight", "normal std=0.02");
    return m;
}
/* Residual projections start smaller, so that the sum over all layers does not grow with the
 * number of layers. */
static double residual_std(const gpt_options *o) { return 0.02 / sqrt(2 * (double)o->layers); }

/* Causal self-attention. */
typedef struct {
    gd_module *c_attn, *c_proj, *resid_dropout;
    int64_t heads;
    double dropout;
} attention;

static gd_tensors attention_forward(gd_tensors in, void *self) {
    attention *m = self;
    gd_tensor *x = in.at[0], *parts[3];
    const int64_t c = gd_tensor_dim(x, 2); /* N and T may be unknown before a run */
    const gd_tensors qkv = gd_split(gd_module_forward(m->c_attn, x), gd_dims(c), .axis = -1);
    for (int i = 0; i < 3; i++) /* views (N, heads, T, C / heads) */
        parts[i] = gd_permute(gd_unflatten(qkv.at[i], -1, gd_dims(m->heads, c / m->heads)),
                              gd_dims(0, 2, 1, 3));
    const bool drops = m->dropout > 0 && gd_module_is_training(NULL);
    gd_tensor *y = gd_scaled_dot_product_attention(parts[0], parts[1], parts[2], .causal = true,
                                                   .dropout = m->dropout, .training = drops);
    y = gd_flatten(gd_permute(y, gd_dims(0, 2, 1, 3)), .start_axis = 2);
    return gd_listed(gd_module_forward(m->resid_dropout, gd_module_forward(m->c_proj, y)));
}
static gd_module *make_attention(const gpt_options *o) {
    gd_module *net = gd_module_new(attention_forward, sizeof(attention), .type = "gpt_attention");
    attention *m = gd_module_self(net);
    if (!net) return NULL;
    m->heads = o->heads;
    m->dropout = o->dropout;
    GD_CHILD(net, m->c_attn, make_linear(o->width, 3 * o->width, o->bias, 0.02));
    GD_CHILD(net, m->c_proj, make_linear(o->width, o->width, o->bias, residual_std(o)));
    GD_CHILD(net, m->resid_dropout, gd_nn_dropout(.p = o->dropout));
    return net;
}

typedef struct {
    gd_module *c_fc, *c_proj, *dropout;
} mlp;

static gd_tensors mlp_forward(gd_tensors in, void *self) {
    mlp *m = self;
    gd_tensor *x = gd_gelu(gd_module_forward(m->c_fc, in.at[0]));
    return gd_listed(gd_module_forward(m->dropout, gd_module_forward(m->c_proj, x)));
}
static gd_module *make_mlp(const gpt_options *o) {
    gd_module *net = gd_module_new(mlp_forward, sizeof(mlp), .type = "gpt_mlp");
    mlp *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->c_fc, make_linear(o->width, 4 * o->width, o->bias, 0.02));
    GD_CHILD(net, m->c_proj, make_linear(4 * o->width, o->width, o->bias, residual_std(o)));
    GD_CHILD(net, m->dropout, gd_nn_dropout(.p = o->dropout));
    return net;
}

typedef struct {
    gd_module *ln_1, *attn, *ln_2, *mlp;
} gpt_block;

static gd_tensors gpt_block_forward(gd_tensors in, void *self) {
    gpt_block *m = self;
    gd_tensor *x = in.at[0];
    x = gd_add(x, gd_module_forward(m->attn, gd_module_forward(m->ln_1, x)));
    return gd_listed(gd_add(x, gd_module_forward(m->mlp, gd_module_forward(m->ln_2, x))));
}
static gd_module *make_norm(const gpt_options *o) {
    return gd_nn_layer_norm(gd_dims(o->width), .bias = o->bias);
}

static gd_module *make_gpt_block(const gpt_options *o) {
    gd_module *net = gd_module_new(gpt_block_forward, sizeof(gpt_block), .type = "gpt_block");
    gpt_block *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->ln_1, make_norm(o));
    GD_CHILD(net, m->attn, make_attention(o));
    GD_CHILD(net, m->ln_2, make_norm(o));
    GD_CHILD(net, m->mlp, make_mlp(o));
    return net;
}

/* Maps x (N, T) of integers to features (N, T, C). */
typedef struct {
    gd_module *wte, *wpe, *drop, *h, *ln_f;
    int64_t context;
} trunk;

static gd_tensors trunk_forward(gd_tensors in, void *self) {
    trunk *m = self;
    char text[160];
    const bool fits = in.count > 0 && in.at[0] && gd_tensor_rank(in.at[0]) == 2;
    if (!fits || gd_tensor_dim(in.at[0], 1) > m->context)
        return gd_layer_fail(gd_fail(
            GD_E_SHAPE, "it takes x (N, T), T at most %lld, not %s", (long long)m->context,
            in.count > 0 && in.at[0] ? gd_describe(in.at[0], text, sizeof text) : "nothing"));
    gd_tensor *positions = gd_module_forward(m->wpe, gd_axis_positions(in.at[0], 1));
    gd_tensor *x =
        gd_module_forward(m->drop, gd_add(gd_module_forward(m->wte, in.at[0]), positions));
    for (int i = 0; i < gd_module_count(m->h); i++) x = gd_module_forward(gd_module_at(m->h, i), x);
    return gd_listed(gd_module_forward(m->ln_f, x));
}
static gd_module *make_trunk(const gpt_options *o) {
    gd_module *net = gd_module_new(trunk_forward, sizeof(trunk), .type = "gpt_transformer"),
              *blocks = gd_nn_list();
    trunk *m = gd_module_self(net);
    if (!m || !blocks) return NULL;
    m->context = o->context;
    GD_CHILD(net, m->wte, make_embedding(o->vocabulary, o->width));
    GD_CHILD(net, m->wpe, make_embedding(o->context, o->width));
    GD_CHILD(net, m->drop, gd_nn_dropout(.p = o->dropout));
    for (int64_t i = 0; i < o->layers; i++) gd_module_append(blocks, make_gpt_block(o));
    GD_CHILD(net, m->h, blocks);
    GD_CHILD(net, m->ln_f, make_norm(o));
    return net;
}

/* A linear layer without bias that shares its weight with another module. */
typedef struct {
    gd_tensor *weight;
} tied_head;

static gd_tensors tied_head_forward(gd_tensors in, void *self) {
    return gd_listed(gd_linear(in.at[0], ((tied_head *)self)->weight, NULL));
}
static gd_module *make_tied_head(gd_tensor *weight) {
    gd_module *net = gd_module_new(tied_head_forward, sizeof(tied_head), .type = "tied_linear");
    tied_head *m = gd_module_self(net);
    if (m && weight) GD_PARAMETER(net, m->weight, weight);
    return net;
}

typedef struct {
    gd_module *transformer, *lm_head;
} gpt;

static gd_tensors gpt_forward(gd_tensors in, void *self) {
    gpt *m = self;
    return gd_listed(gd_module_forward(m->lm_head, gd_module_call(m->transformer, in).at[0]));
}
static gd_status gpt_check(const void *options) {
    const gpt_options *o = options;
    GD_TRY(gd_net_at_least("vocabulary", o->vocabulary, 1));
    GD_TRY(gd_net_at_least("context", o->context, 1));
    GD_TRY(check_layers(o->layers));
    GD_TRY(gd_net_at_least("heads", o->heads, 1));
    GD_TRY(gd_net_at_least("width", o->width, 1));
    if (o->width > INT64_MAX / 4)
        return gd_fail(GD_E_ARGUMENT, "width is %lld, which is too large", (long long)o->width);
    if (o->width % o->heads != 0)
        return gd_fail(GD_E_ARGUMENT, "heads is %lld; it must divide width (%lld)",
                       (long long)o->heads, (long long)o->width);
    return check_dropout(o->dropout);
}
static gd_module *gpt_make(const void *options) {
    const gpt_options *o = options;
    gd_module *net = gd_module_new(gpt_forward, sizeof(gpt), .type = "gpt");
    gpt *m = gd_module_self(net);
    if (!net) return NULL;
    GD_CHILD(net, m->transformer, make_trunk(o));
    if (!m->transformer) return NULL;
    gd_tensor *table = o->tied ? gd_module_tensor(m->transformer, "wte.weight") : NULL;
    GD_CHILD(net, m->lm_head,
             o->tied ? make_tied_head(table) : make_linear(o->width, o->vocabulary, false, 0.02));
    return net;
}

#include "zoo/sequence.gen.h"
