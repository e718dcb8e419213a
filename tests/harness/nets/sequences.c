/* sequences.c - layers of random nets for sequences (N, T, C). */
#include "layers.h"

#include <math.h>

/* --- attention -------------------------------------------------------------------------------- */

/* (N, T, H * D) as (N, H, T, D). */
static gd_tensor *heads_of(gd_tensor *x, int64_t heads) {
    const int64_t batch = dim_of(x, 0), steps = dim_of(x, 1), channels = dim_of(x, 2);
    return gd_transpose(gd_reshape(x, gd_dims(batch, steps, heads, channels / heads)), 1, 2);
}

static gd_tensor *joined_heads(gd_tensor *y, int64_t channels) {
    const int64_t batch = dim_of(y, 0), steps = dim_of(y, 2);
    return gd_reshape(gd_transpose(y, 1, 2), gd_dims(batch, steps, channels));
}

/* Softmax of products, written by hand. */
static gd_tensor *attend_by_hand(gd_tensor *q, gd_tensor *k, gd_tensor *v) {
    const double scale = 1 / sqrt((double)dim_of(q, 3));
    gd_tensor *s = gd_mul(gd_matmul(q, gd_transpose(k, 2, 3)), gd_scalar(scale));
    return gd_matmul(gd_softmax(s), v);
}

static gd_tensor *self_attention(net *n, net_value x) {
    static const int head_counts[] = {1, 2, 3, 4}, widths[] = {1, 3, 4, 8, 8, 16};
    const int64_t heads = head_counts[below(n, 4)], width = widths[below(n, 6)],
                  all = heads * width, in = channels_of(x);
    const bool together = one_in(n, 2), causal = one_in(n, 3), by_hand = one_in(n, 5),
               drops = one_in(n, 6), one_kv = heads > 1 && one_in(n, 6);
    const int64_t kv = one_kv ? width : all;
    net_say(n, " attention(%d heads of %d%s%s%s%s%s)", (int)heads, (int)width,
            together ? " together" : "", causal ? " causal" : "", by_hand ? " by_hand" : "",
            drops ? " dropout" : "", one_kv ? " grouped" : "");
    gd_tensor *q, *k, *v;
    if (together) {
        gd_tensor *y = linear_to(n, x, all + 2 * kv);
        gd_tensors parts = gd_split(y, gd_dims(all, kv, kv), .axis = 2);
        q = parts.at[0], k = parts.at[1], v = parts.at[2];
    } else {
        q = linear_to(n, x, all);
        k = linear_to(n, x, kv);
        v = one_in(n, 4) ? k : linear_to(n, x, kv);
    }
    q = heads_of(q, heads), k = heads_of(k, one_kv ? 1 : heads),
    v = heads_of(v, one_kv ? 1 : heads);
    gd_tensor *y = by_hand && !one_kv ? attend_by_hand(q, k, v)
                                      : gd_scaled_dot_product_attention(q, k, v, .causal = causal,
                                                                        .grouped = one_kv,
                                                                        .dropout = drops ? 0.2 : 0);
    return linear_to(n, value_of(joined_heads(y, all), NET_SEQUENCE), in);
}

static net_value attention_layer(net *n, net_value x) {
    x.t = self_attention(n, x);
    return x;
}

/* A block of a transformer. */
static net_value transformer_block(net *n, net_value x) {
    const int64_t in = channels_of(x);
    const bool norm_first = one_in(n, 2);
    net_say(n, " transformer{");
    net_value y = x;
    if (norm_first) y.t = row_normed(n, y);
    x.t = gd_add(x.t, self_attention(n, y));
    if (!norm_first) x.t = row_normed(n, x);
    y = x;
    if (norm_first) y.t = row_normed(n, y);
    y.t = activate(n, linear_to(n, y, draw_width(n, y)));
    y.t = linear_to(n, y, in);
    if (one_in(n, 3)) y.t = gd_dropout(y.t, .p = 0.2);
    x.t = gd_add(y.t, x.t);
    if (!norm_first) x.t = row_normed(n, x);
    net_say(n, "}");
    return x;
}

/* --- recurrent layers ------------------------------------------------------------------------- */

static net_value recurrent_layer(net *n, net_value x) {
    static const char *const names[] = {"rnn", "gru", "lstm"};
    static const int gates[] = {1, 3, 4};
    const int kind = below(n, 3), layers = 1 + one_in(n, 3), directions = 1 + one_in(n, 3);
    const bool biases = !one_in(n, 4), first = one_in(n, 2), starts = one_in(n, 3),
               limited = one_in(n, 4);
    const int64_t hidden = draw_size(n, 16), in = channels_of(x), batch = dim_of(x.t, 0),
                  steps = dim_of(x.t, 1), rows = gates[kind] * hidden;
    if (steps > 40) return x;
    gd_tensor *weights[16];
    int count = 0;
    for (int i = 0; i < layers * directions; i++) {
        const int64_t width = i < directions ? in : directions * hidden;
        weights[count++] = weight(n, gd_dims(rows, width), width);
        weights[count++] = weight(n, gd_dims(rows, hidden), hidden);
        for (int k = 0; k < 2 && biases; k++)
            weights[count++] = parameter(n, gd_dims(rows), 0, 0.2);
    }
    gd_tensor *h0 = NULL, *c0 = NULL, *lengths = NULL;
    const gd_shape state = gd_dims(layers * directions, batch, hidden);
    if (starts) h0 = gd_tanh(parameter(n, state, 0, 0.5));
    if (starts && kind == 2) c0 = parameter(n, state, 0, 0.5);
    if (limited) {
        lengths = gd_cast(gd_abs(constant(n, gd_dims(batch), 0, 1000)), GD_I64);
        lengths =
            gd_add(gd_remainder(lengths, gd_scalar_of(steps, GD_I64)), gd_scalar_of(1, GD_I64));
    }
    net_say(n, " %s(%d->%d, %d layers%s%s%s%s%s)", names[kind], (int)in, (int)hidden, layers,
            directions > 1 ? ", both ways" : "", biases ? ", biases" : "",
            first ? ", batch first" : "", starts ? ", h0" : "", limited ? ", lengths" : "");
    gd_tensor *t = first ? x.t : gd_transpose(x.t, 0, 1), *y, *h;
#define OPTIONS \
    .layers = layers, .bidirectional = directions > 1, .batch_first = first, .biases = biases
    const gd_tensors all = {weights, count};
    if (kind == 0) {
        gd_rnn_outputs r = gd_rnn(t, h0, lengths, all, OPTIONS);
        y = r.y, h = r.h;
    } else if (kind == 1) {
        gd_gru_outputs r = gd_gru(t, h0, lengths, all, OPTIONS);
        y = r.y, h = r.h;
    } else {
        gd_lstm_outputs r = gd_lstm(t, h0, c0, lengths, all, OPTIONS);
        y = r.y, h = one_in(n, 2) ? r.h : r.c;
    }
#undef OPTIONS
    if (one_in(n, 4)) return as_rows(gd_select(h, 0, -1));
    return value_of(first ? y : gd_transpose(y, 0, 1), NET_SEQUENCE);
}

/* --- sequences -------------------------------------------------------------------------------- */

/* A convolution along the steps. */
static net_value step_conv_layer(net *n, net_value x) {
    net_value y = value_of(gd_transpose(x.t, 1, 2), NET_IMAGES);
    y.t = conv_to(n, y.t, 0, one_in(n, 2));
    if (one_in(n, 2)) y.t = activate(n, y.t);
    return one_in(n, 4) ? y : value_of(gd_transpose(y.t, 1, 2), NET_SEQUENCE);
}

/* A loop over the steps. */
static gd_tensors scan_step(gd_tensors in, void *user) {
    gd_tensor *next = gd_tanh(gd_add(gd_linear(in.at[0], user, NULL), in.at[1]));
    return gd_listed(next, gd_mul(next, in.at[1]));
}

static net_value scan_layer(net *n, net_value x) {
    const int64_t channels = channels_of(x);
    gd_tensor *w = weight(n, gd_dims(channels, channels), channels),
              *start = constant(n, gd_dims(dim_of(x.t, 0), channels), 0, 0.5);
    net_say(n, " scan");
    gd_tensor *steps = gd_transpose(gd_cast(x.t, GD_F32), 0, 1);
    GD_AUTOCAST(GD_DTYPE_NONE);
    const gd_scanned s = gd_scan(scan_step, gd_list(start), gd_list(steps), w);
    if (one_in(n, 3)) return as_rows(s.state.at[0]);
    x.t = gd_transpose(s.ys.at[0], 0, 1);
    return x;
}

static net_value einsum_layer(net *n, net_value x) {
    const int64_t channels = channels_of(x), steps = dim_of(x.t, 1);
    net_say(n, " einsum");
    if (one_in(n, 2)) {
        gd_tensor *w = weight(n, gd_dims(steps, channels), channels);
        gd_tensor *y = gd_einsum("ntc,sc->nts", gd_list(x.t, w));
        x.t = gd_einsum("nts,nsc->ntc", gd_list(gd_tanh(y), x.t));
        x.t = gd_mul(x.t, gd_scalar(1 / sqrt((double)steps)));
        return x;
    }
    return as_rows(
        gd_einsum("ntc,tc->nc", gd_list(x.t, weight(n, gd_dims(steps, channels), steps))));
}

static net_value sequence_to_rows(net *n, net_value x) {
    const int64_t batch = dim_of(x.t, 0), steps = dim_of(x.t, 1);
    net_say(n, " to_rows");
    switch (below(n, 4)) {
    case 0: return as_rows(gd_mean(x.t, .axis = 1));
    case 1: return as_rows(gd_select(x.t, 1, -1));
    case 2:
        if (steps * channels_of(x) <= 200) return as_rows(gd_reshape(x.t, gd_dims(batch, -1)));
        return as_rows(kinked(n, gd_max(x.t, .axis = 1)));
    default: /* each step is a row */
        return as_rows(gd_reshape(x.t, gd_dims(batch * steps, channels_of(x))));
    }
}

static net_value sequence_to_images(net *n, net_value x) {
    net_say(n, " to_images");
    return value_of(gd_transpose(x.t, 1, 2), NET_IMAGES);
}

net_value sequence_layer(net *n, net_value x) {
    switch (below(n, 35)) {
    case 0:
    case 1:
    case 2: return linear_layer(n, x);
    case 3:
    case 4:
    case 5: return linear_block(n, x);
    case 6:
    case 7:
    case 8: return attention_layer(n, x);
    case 9:
    case 10:
    case 11: return transformer_block(n, x);
    case 12:
    case 13:
    case 14: return recurrent_layer(n, x);
    case 15: return tied_layer(n, x);
    case 16:
    case 17: return row_norm_layer(n, x);
    case 18: return activation_layer(n, x);
    case 19: return dropout_layer(n, x);
    case 20: return skip_layer(n, x);
    case 21: return affine_layer(n, x);
    case 22: return cat_layer(n, x);
    case 23: return slice_layer(n, x);
    case 24: return reorder_layer(n, x);
    case 25: return one_in(n, 2) ? softmax_layer(n, x) : center_layer(n, x);
    case 26: return step_conv_layer(n, x);
    case 27: return select_layer(n, x);
    case 28: return sequence_to_images(n, x);
    case 29: return odd_layer(n, x);
    case 30: return running_mean_layer(n, x);
    case 31: return scan_layer(n, x);
    case 32: return einsum_layer(n, x);
    case 33: return branch_layer(n, x);
    default: return sequence_to_rows(n, x);
    }
}
