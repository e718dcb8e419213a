/* images.c - layers of random nets for images: (N, C, ...) with one to three axes. */
#include "layers.h"

typedef struct conv_sizes {
    int64_t kernel[3], stride[3], padding[3], dilation[3], groups;
} conv_sizes;

static int64_t positions_of(gd_tensor *x) {
    return gd_tensor_numel(x) / (dim_of(x, 1) > 0 ? dim_of(x, 1) : 1);
}

static gd_tensor *convolve(gd_tensor *x, gd_tensor *w, gd_tensor *b, const conv_sizes *c) {
    const int64_t *s = c->stride, *p = c->padding, *d = c->dilation;
    switch (gd_tensor_rank(x)) {
    case 3:
        return gd_conv1d(x, w, b, .stride = s[0], .padding = p[0], .dilation = d[0],
                         .groups = c->groups);
    case 4:
        return gd_conv2d(x, w, b, .stride = {s[0], s[1]}, .padding = {p[0], p[1]},
                         .dilation = {d[0], d[1]}, .groups = c->groups);
    default:
        return gd_conv3d(x, w, b, .stride = {s[0], s[1], s[2]}, .padding = {p[0], p[1], p[2]},
                         .dilation = {d[0], d[1], d[2]}, .groups = c->groups);
    }
}

static gd_shape weight_shape(int axes, int64_t out, int64_t in, const conv_sizes *c) {
    gd_shape s = gd_dims(out, in);
    for (int i = 0; i < axes; i++) s.at[s.rank++] = c->kernel[i];
    return s;
}

static int64_t draw_groups(net *n, int64_t channels) {
    if (!one_in(n, 4)) return 1;
    if (one_in(n, 2)) return channels;
    for (int64_t g = 2 + below(n, 3); g > 1; g--)
        if (channels % g == 0) return g;
    return 1;
}

static conv_sizes draw_conv(net *n, gd_tensor *x, bool keeps_size) {
    static const int kernels[] = {1, 2, 3, 3, 3, 5};
    conv_sizes c = {.groups = draw_groups(n, dim_of(x, 1))};
    const bool square = one_in(n, 2);
    for (int i = 0; i < gd_tensor_rank(x) - 2; i++) {
        const int64_t size = dim_of(x, 2 + i);
        c.kernel[i] = square && i ? c.kernel[0] : kernels[below(n, 6)];
        c.stride[i] = keeps_size || one_in(n, 2) ? 1 : square && i ? c.stride[0] : 1 + below(n, 3);
        c.dilation[i] = one_in(n, 5) ? 2 : 1;
        if (keeps_size && c.kernel[i] % 2 == 0) c.kernel[i]++;
        const int64_t span = c.dilation[i] * (c.kernel[i] - 1) + 1;
        c.padding[i] = keeps_size ? span / 2 : below(n, (int)span / 2 + 1);
        if (size + 2 * c.padding[i] < span) c.kernel[i] = c.dilation[i] = 1, c.padding[i] = 0;
    }
    return c;
}

static void say_conv(net *n, const char *name, int64_t in, int64_t out, int axes,
                     const conv_sizes *c, const gd_tensor *b) {
    net_say(n, " %s%dd(%d->%d", name, axes, (int)in, (int)out);
    for (int i = 0; i < axes; i++)
        net_say(n, " k%ds%dp%dd%d", (int)c->kernel[i], (int)c->stride[i], (int)c->padding[i],
                (int)c->dilation[i]);
    net_say(n, " g%d%s)", (int)c->groups, b ? " bias" : "");
}

/* The weight of a convolution: a parameter, one with its axes in another order, or one that is
 * computed. */
static gd_tensor *conv_weight(net *n, gd_shape shape, int64_t inputs) {
    gd_shape axes = gd_dims(0), stored = gd_dims(shape.at[0]);
    switch (below(n, 10)) {
    case 0: /* (O, ..., I) */
        for (int i = 2; i < shape.rank; i++) stored.at[stored.rank++] = shape.at[i];
        stored.at[stored.rank++] = shape.at[1];
        axes.at[axes.rank++] = shape.rank - 1;
        for (int i = 1; i < shape.rank - 1; i++) axes.at[axes.rank++] = i;
        net_say(n, " last:");
        return gd_permute(weight(n, stored, inputs), axes);
    case 1: {
        net_say(n, " scaled:");
        for (int i = 1; i < shape.rank; i++) stored.at[stored.rank++] = 1;
        gd_tensor *w = weight(n, shape, inputs);
        return gd_mul(w, parameter(n, stored, 1, 0.2));
    }
    default: return weight(n, shape, inputs);
    }
}

gd_tensor *conv_to(net *n, gd_tensor *x, int64_t out, bool keeps_size) {
    conv_sizes c = draw_conv(n, x, keeps_size);
    const int64_t in = dim_of(x, 1);
    const int axes = gd_tensor_rank(x) - 2;
    if (!out) out = draw_size(n, most_channels(positions_of(x)));
    if (out % c.groups) {
        if (keeps_size) c.groups = 1;
        else out = (out + c.groups - 1) / c.groups * c.groups;
    }
    int64_t window = in / c.groups;
    for (int i = 0; i < axes; i++) window *= c.kernel[i];
    gd_tensor *w = conv_weight(n, weight_shape(axes, out, in / c.groups, &c), window);
    gd_tensor *b = bias_or_none(n, out);
    say_conv(n, "conv", in, out, axes, &c, b);
    return convolve(x, w, b, &c);
}

static net_value conv_layer(net *n, net_value x) {
    x.t = conv_to(n, x.t, 0, false);
    return x;
}

/* The same weight twice: on x, and on x shifted or on its own result. */
static net_value shared_conv_layer(net *n, net_value x) {
    const int64_t channels = dim_of(x.t, 1);
    const int axes = gd_tensor_rank(x.t) - 2;
    conv_sizes c = draw_conv(n, x.t, true);
    int64_t window = channels / c.groups;
    for (int i = 0; i < axes; i++) window *= c.kernel[i];
    gd_tensor *w = weight(n, weight_shape(axes, channels, channels / c.groups, &c), window);
    gd_tensor *b = bias_or_none(n, channels);
    say_conv(n, "shared_conv", channels, channels, axes, &c, b);
    gd_tensor *y = convolve(x.t, w, b, &c);
    x.t = one_in(n, 2) ? convolve(relu_of(n, y), w, b, &c)
                       : gd_add(y, convolve(gd_tanh(x.t), w, one_in(n, 2) ? b : NULL, &c));
    return x;
}

static net_value conv_transpose_layer(net *n, net_value x) {
    conv_sizes c = draw_conv(n, x.t, false);
    const int64_t in = dim_of(x.t, 1);
    const int axes = gd_tensor_rank(x.t) - 2;
    int64_t positions = positions_of(x.t), window = in / c.groups, more[3] = {0};
    for (int i = 0; i < axes; i++) {
        if (positions * c.stride[i] > 3000) c.stride[i] = 1;
        positions *= c.stride[i];
        window *= c.kernel[i];
        const int64_t size =
            (dim_of(x.t, 2 + i) - 1) * c.stride[i] + c.dilation[i] * (c.kernel[i] - 1) + 1;
        if (size <= 2 * c.padding[i]) c.padding[i] = 0;
        if (c.stride[i] > 1 || c.dilation[i] > 1) more[i] = below(n, 2);
    }
    int64_t each = draw_size(n, most_channels(positions)) / c.groups;
    if (each < 1) each = 1;
    gd_tensor *w = weight(n, weight_shape(axes, in, each, &c), window);
    gd_tensor *b = bias_or_none(n, each * c.groups);
    say_conv(n, "conv_transpose", in, each * c.groups, axes, &c, b);
    const int64_t *s = c.stride, *p = c.padding, *d = c.dilation;
    if (axes == 1)
        x.t = gd_conv_transpose1d(x.t, w, b, .stride = s[0], .padding = p[0], .dilation = d[0],
                                  .output_padding = more[0], .groups = c.groups);
    else if (axes == 2)
        x.t = gd_conv_transpose2d(x.t, w, b, .stride = {s[0], s[1]}, .padding = {p[0], p[1]},
                                  .dilation = {d[0], d[1]}, .output_padding = {more[0], more[1]},
                                  .groups = c.groups);
    else
        x.t =
            gd_conv_transpose3d(x.t, w, b, .stride = {s[0], s[1], s[2]},
                                .padding = {p[0], p[1], p[2]}, .dilation = {d[0], d[1], d[2]},
                                .output_padding = {more[0], more[1], more[2]}, .groups = c.groups);
    return x;
}

/* --- norms ------------------------------------------------------------------------------------ */

gd_tensor *batch_normed(net *n, gd_tensor *x) {
    const int64_t channels = dim_of(x, 1);
    if (positions_of(x) < 4) return x;
    const bool affine = !one_in(n, 4), keeps = !one_in(n, 4) && !n->repeats,
               trains = !one_in(n, n->evaluates ? 2 : 8) || n->repeats;
    gd_tensor *w = NULL, *b = NULL, *mean = NULL, *var = NULL;
    if (affine) w = parameter(n, gd_dims(channels), 1, 0.2);
    if (affine) b = parameter(n, gd_dims(channels), 0, 0.2);
    if (keeps || !trains) {
        mean = net_tensor(n, NET_BUFFER, gd_dims(channels), 0, 0.2);
        var = net_tensor(n, NET_BUFFER, gd_dims(channels), 1, 0.1);
    }
    net_say(n, " batch_norm(%s%s%s)", affine ? "affine " : "", keeps ? "stats " : "",
            trains ? "" : "eval");
    return gd_batch_norm(x, w, b, mean, var, .training = trains, .eps = NORM_EPS);
}

static gd_tensor *normed(net *n, gd_tensor *x) {
    const int64_t channels = dim_of(x, 1), each = gd_tensor_numel(x) / dim_of(x, 0);
    const int kind = below(n, 7);
    const int64_t groups = kind == 1 && channels % 2 == 0 ? 2 : 1;
    if (kind == 0 && each / channels >= 8) {
        net_say(n, " instance_norm");
        gd_tensor *w = parameter(n, gd_dims(channels), 1, 0.2),
                  *b = parameter(n, gd_dims(channels), 0, 0.2);
        return gd_instance_norm(x, w, b, .eps = NORM_EPS);
    }
    if (kind == 1 && each / groups >= 8) {
        net_say(n, " group_norm(%d)", (int)groups);
        gd_tensor *w = parameter(n, gd_dims(channels), 1, 0.2),
                  *b = parameter(n, gd_dims(channels), 0, 0.2);
        return gd_group_norm(x, groups, w, b, .eps = NORM_EPS);
    }
    if (kind == 2 && each >= 8) {
        const gd_shape s = shape_without(x, 0);
        net_say(n, " layer_norm(all)");
        gd_tensor *w = parameter(n, s, 1, 0.2), *b = parameter(n, s, 0, 0.2);
        return gd_layer_norm(x, w, b, .eps = NORM_EPS);
    }
    return batch_normed(n, x);
}

static net_value norm_layer(net *n, net_value x) {
    x.t = normed(n, x.t);
    return x;
}

/* --- pooling ---------------------------------------------------------------------------------- */

static net_value pool_layer(net *n, net_value x) {
    const int rank = gd_tensor_rank(x.t), kind = below(n, 4);
    int64_t smallest = dim_of(x.t, 2);
    for (int i = 3; i < rank; i++)
        if (dim_of(x.t, i) < smallest) smallest = dim_of(x.t, i);
    const int64_t k = smallest < 2 ? 1 : 2 + below(n, smallest > 2 ? 2 : 1),
                  s = 1 + below(n, (int)k), p = below(n, (int)k / 2 + 1), size = 1 + below(n, 3);
    const bool ceils = one_in(n, 4);
    if (kind == 0 || kind == 3) n->has_kinks = true;
    if (kind >= 2) {
        net_say(n, " adaptive_%s_pool(%d)", kind == 2 ? "avg" : "max", (int)size);
        x.t = rank == 3   ? kind == 2 ? gd_adaptive_avg_pool1d(x.t, .size = size)
                                      : gd_adaptive_max_pool1d(x.t, .size = size)
                : rank == 4 ? kind == 2 ? gd_adaptive_avg_pool2d(x.t, .size = size)
                                        : gd_adaptive_max_pool2d(x.t, .size = size)
                : kind == 2 ? gd_adaptive_avg_pool3d(x.t, .size = size)
                          : gd_adaptive_max_pool3d(x.t, .size = size);
        return x;
    }
    net_say(n, " %s_pool(k%d s%d p%d%s)", kind ? "avg" : "max", (int)k, (int)s, (int)p,
            ceils ? " ceil" : "");
#define POOL(op) op(x.t, .kernel = k, .stride = s, .padding = p, .ceil_mode = ceils)
    x.t = rank == 3   ? kind ? POOL(gd_avg_pool1d) : POOL(gd_max_pool1d)
            : rank == 4 ? kind ? POOL(gd_avg_pool2d) : POOL(gd_max_pool2d)
            : kind ? POOL(gd_avg_pool3d)
                      : POOL(gd_max_pool3d);
#undef POOL
    return x;
}

/* --- blocks ----------------------------------------------------------------------------------- */

static net_value conv_block(net *n, net_value x) {
    x.t = conv_to(n, x.t, 0, one_in(n, 2));
    x.t = normed(n, x.t);
    if (one_in(n, 4)) remember(n, x);
    x.t = one_in(n, 3) ? activate(n, x.t) : relu_of(n, x.t);
    net_say(n, " (block)");
    return x;
}

/* relu(x + f(x)), where f ends with a norm. */
static net_value residual_block(net *n, net_value x) {
    const int64_t channels = dim_of(x.t, 1);
    net_say(n, " residual{");
    gd_tensor *y = x.t;
    if (one_in(n, 2)) y = relu_of(n, normed(n, conv_to(n, y, 0, true)));
    y = normed(n, conv_to(n, y, channels, true));
    x.t = one_in(n, 2) ? gd_add(x.t, y) : gd_add(y, x.t);
    if (one_in(n, 4)) remember(n, x);
    if (!one_in(n, 4)) x.t = relu_of(n, x.t);
    net_say(n, "}");
    return x;
}

/* Branches of x side by side. */
static net_value branch_block(net *n, net_value x) {
    const int64_t most = most_channels(positions_of(x.t));
    if (dim_of(x.t, 1) + 4 > most) return x;
    const int64_t width = draw_size(n, most - dim_of(x.t, 1) > 16 ? 16 : most - dim_of(x.t, 1));
    net_say(n, " branches{");
    gd_tensor *a = conv_to(n, x.t, width, true), *b = x.t;
    if (one_in(n, 2)) a = relu_of(n, normed(n, a));
    if (one_in(n, 2)) b = activate(n, conv_to(n, x.t, 0, true));
    net_say(n, "}");
    x.t = one_in(n, 4) ? gd_cat(gd_list(a, b, a), .axis = 1) : gd_cat(gd_list(a, b), .axis = 1);
    return x;
}

/* Multiplies channels by a function of their means. */
static net_value gate_block(net *n, net_value x) {
    const int64_t channels = dim_of(x.t, 1), hidden = draw_size(n, 16);
    const int rank = gd_tensor_rank(x.t);
    gd_shape s = gd_dims(dim_of(x.t, 0), channels), axes = gd_dims(2);
    for (int i = 2; i < rank; i++) s.at[s.rank++] = 1;
    for (int i = 3; i < rank; i++) axes.at[axes.rank++] = i;
    net_say(n, " gate(%d)", (int)hidden);
    gd_tensor *w1 = weight(n, gd_dims(hidden, channels), channels), *b1 = bias_or_none(n, hidden);
    gd_tensor *w2 = weight(n, gd_dims(channels, hidden), hidden), *b2 = bias_or_none(n, channels);
    gd_tensor *m = gd_mean(x.t, .axis = axes);
    m = gd_sigmoid(gd_linear(relu_of(n, gd_linear(m, w1, b1)), w2, b2));
    x.t = gd_mul(x.t, gd_reshape(m, s));
    return x;
}

/* --- other axes ------------------------------------------------------------------------------- */

static net_value swap_spatial_layer(net *n, net_value x) {
    const int rank = gd_tensor_rank(x.t);
    if (rank < 4) return x;
    net_say(n, " transpose");
    x.t = gd_transpose(x.t, rank - 2, rank - 1);
    return x;
}

/* Channels as (2, C/2), transposed. */
static net_value shuffle_layer(net *n, net_value x) {
    const int64_t channels = dim_of(x.t, 1), batch = dim_of(x.t, 0);
    const gd_shape whole = gd_tensor_shape(x.t);
    if (channels % 2) return x;
    net_say(n, " shuffle");
    gd_tensor *y = gd_reshape(x.t, gd_dims(batch, 2, channels / 2, -1));
    x.t = gd_reshape(gd_transpose(y, 1, 2), whole);
    return x;
}

static net_value resize_layer(net *n, net_value x) {
    const int rank = gd_tensor_rank(x.t);
    if (gd_tensor_numel(x.t) > MAX_ELEMENTS / 8) return x;
    switch (below(n, 4)) {
    case 0:
        net_say(n, " resize");
        x.t = gd_resize(x.t, .scale = 2);
        break;
    case 1:
        net_say(n, " resize_linear");
        x.t = gd_resize(x.t, .size = 5, .mode = GD_LINEAR);
        break;
    case 2:
        net_say(n, " pad");
        x.t = gd_pad(x.t, gd_dims(1, 2));
        break;
    default:
        if (rank != 4) break;
        net_say(n, " local_response_norm");
        x.t = gd_local_response_norm(x.t, 3, .alpha = 0.5);
    }
    return x;
}

static net_value images_to_rows(net *n, net_value x) {
    const int rank = gd_tensor_rank(x.t);
    const int64_t batch = dim_of(x.t, 0);
    if (gd_tensor_numel(x.t) / batch <= 200 && !one_in(n, 3)) {
        net_say(n, " flatten");
        return as_rows(gd_reshape(x.t, gd_dims(batch, -1)));
    }
    gd_shape axes = gd_dims(2);
    for (int i = 3; i < rank; i++) axes.at[axes.rank++] = i;
    net_say(n, " global_pool");
    if (one_in(n, 3)) return as_rows(kinked(n, gd_max(x.t, .axis = axes)));
    if (one_in(n, 2)) return as_rows(gd_mean(x.t, .axis = axes));
    return as_rows(gd_flatten(gd_global_avg_pool(x.t), .start_axis = 1));
}

/* Positions become steps. */
static net_value images_to_sequence(net *n, net_value x) {
    net_say(n, " to_sequence");
    gd_tensor *flat = gd_reshape(x.t, gd_dims(dim_of(x.t, 0), dim_of(x.t, 1), -1));
    return value_of(gd_transpose(flat, 1, 2), NET_SEQUENCE);
}

net_value image_layer(net *n, net_value x) {
    switch (below(n, 44)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4: return conv_layer(n, x);
    case 5:
    case 6:
    case 7:
    case 8:
    case 9:
    case 10: return conv_block(n, x);
    case 11:
    case 12:
    case 13:
    case 14: return residual_block(n, x);
    case 15:
    case 16: return branch_block(n, x);
    case 17: return shared_conv_layer(n, x);
    case 18:
    case 19: return conv_transpose_layer(n, x);
    case 20: return norm_layer(n, x);
    case 21:
    case 22:
    case 23: return pool_layer(n, x);
    case 24:
    case 25: return activation_layer(n, x);
    case 26: return gate_block(n, x);
    case 27: return dropout_layer(n, x);
    case 28:
    case 29: return skip_layer(n, x);
    case 30: return affine_layer(n, x);
    case 31: return cat_layer(n, x);
    case 32: return slice_layer(n, x);
    case 33: return reorder_layer(n, x);
    case 34: return swap_spatial_layer(n, x);
    case 35: return shuffle_layer(n, x);
    case 36: return resize_layer(n, x);
    case 37: return one_in(n, 2) ? softmax_layer(n, x) : center_layer(n, x);
    case 38: return images_to_sequence(n, x);
    case 40: return running_mean_layer(n, x);
    case 43: return branch_layer(n, x);
    case 41:
    case 42: return odd_layer(n, x);
    default: return images_to_rows(n, x);
    }
}
