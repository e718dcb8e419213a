/* rows.c - layers of random nets for rows (N, C). */
#include "layers.h"

#include <math.h>

int64_t channels_of(net_value x) { return dim_of(x.t, channel_axis(x)); }

int64_t draw_width(net *n, net_value x) {
    return draw_size(n, most_channels(gd_tensor_numel(x.t) / channels_of(x)));
}

/* --- linear layers ---------------------------------------------------------------------------- */

gd_tensor *linear_to(net *n, net_value x, int64_t out) {
    const int64_t in = channels_of(x);
    const int kind = below(n, 9);
    gd_tensor *w, *b;
    switch (kind) {
    case 0: /* the weight is stored transposed */
        w = weight(n, gd_dims(in, out), in);
        b = bias_or_none(n, out);
        net_say(n, " linear_t(%d->%d%s)", (int)in, (int)out, b ? " bias" : "");
        return gd_linear(x.t, gd_transpose(w, 0, 1), b);
    case 1:
        w = weight(n, gd_dims(in, out), in);
        b = bias_or_none(n, out);
        net_say(n, " matmul(%d->%d%s)", (int)in, (int)out, b ? " bias" : "");
        return b ? gd_add(gd_matmul(x.t, w), b) : gd_matmul(x.t, w);
    case 2: /* a part of a larger weight */
        w = weight(n, gd_dims(out + 3, in), in);
        b = bias_or_none(n, out + 3);
        net_say(n, " linear_part(%d->%d%s)", (int)in, (int)out, b ? " bias" : "");
        return gd_linear(x.t, gd_narrow(w, 0, 2, out), b ? gd_narrow(b, 0, 1, out) : NULL);
    case 3: /* a weight that is computed */
        w = weight(n, gd_dims(out, in), in);
        w = gd_mul(w, parameter(n, gd_dims(out, 1), 1, 0.2));
        b = bias_or_none(n, out);
        net_say(n, " linear_scaled(%d->%d%s)", (int)in, (int)out, b ? " bias" : "");
        return gd_linear(x.t, w, b);
    default:
        w = weight(n, gd_dims(out, in), in);
        b = bias_or_none(n, out);
        net_say(n, " linear(%d->%d%s)", (int)in, (int)out, b ? " bias" : "");
        return gd_linear(x.t, w, b);
    }
}

net_value linear_layer(net *n, net_value x) {
    const bool square = one_in(n, 4);
    x.t = linear_to(n, x, square ? channels_of(x) : draw_width(n, x));
    return x;
}

net_value linear_block(net *n, net_value x) {
    x = linear_layer(n, x);
    if (one_in(n, 4)) remember(n, x);
    x.t = one_in(n, 3) ? activate(n, x.t) : relu_of(n, x.t);
    net_say(n, " (block)");
    return x;
}

net_value tied_layer(net *n, net_value x) {
    const int64_t in = channels_of(x), out = one_in(n, 2) ? in : draw_width(n, x);
    const bool transposed = in != out || one_in(n, 2);
    gd_tensor *w = weight(n, gd_dims(out, in), in), *b = bias_or_none(n, out);
    net_say(n, " tied(%d->%d%s%s)", (int)in, (int)out, transposed ? " transposed" : "",
            b ? " bias" : "");
    gd_tensor *y = activate(n, gd_linear(x.t, w, b));
    x.t = gd_linear(y, transposed ? gd_transpose(w, 0, 1) : w, transposed ? NULL : b);
    return x;
}

/* --- norms ------------------------------------------------------------------------------------ */

gd_tensor *row_normed(net *n, net_value x) {
    const int64_t channels = channels_of(x);
    if (channels < 5) return x.t;
    if (one_in(n, 3)) {
        net_say(n, " rms_norm");
        return gd_rms_norm(x.t, parameter(n, gd_dims(channels), 1, 0.2), .eps = NORM_EPS);
    }
    const bool affine = !one_in(n, 5);
    net_say(n, " layer_norm%s", affine ? "" : "(plain)");
    gd_tensor *w = affine ? parameter(n, gd_dims(channels), 1, 0.2) : NULL;
    gd_tensor *b = affine ? parameter(n, gd_dims(channels), 0, 0.2) : NULL;
    return gd_layer_norm(x.t, w, b, .eps = NORM_EPS);
}

net_value row_norm_layer(net *n, net_value x) {
    if (x.form == NET_ROWS && one_in(n, 2)) x.t = batch_normed(n, x.t);
    else x.t = row_normed(n, x);
    return x;
}

/* --- rows ------------------------------------------------------------------------------------- */

/* Products of rows with rows: (N, N), and back to (N, C). */
static net_value gram_layer(net *n, net_value x) {
    const double scale = 1 / sqrt((double)channels_of(x));
    net_say(n, " gram");
    gd_tensor *g = gd_tanh(gd_mul(gd_matmul(x.t, gd_transpose(x.t, 0, 1)), gd_scalar(scale)));
    if (one_in(n, 2)) remember(n, value_of(g, NET_ROWS));
    x.t = gd_mul(gd_matmul(g, x.t), gd_scalar(1 / sqrt((double)dim_of(x.t, 0))));
    return x;
}

net_value select_layer(net *n, net_value x) {
    const int axis = channel_axis(x);
    gd_tensor *index = constant(n, gd_dims(1 + below(n, 12)), 0, 1000);
    net_say(n, " index_select");
    index = gd_remainder(gd_cast(index, GD_I64), gd_scalar_of(dim_of(x.t, axis), GD_I64));
    x.t = gd_index_select(x.t, axis, index);
    return x;
}

static net_value rows_to_images(net *n, net_value x) {
    const int64_t batch = dim_of(x.t, 0), channels = dim_of(x.t, 1);
    for (int64_t side = 4; side > 1; side--)
        if (channels % (side * side) == 0) {
            net_say(n, " to_images(%d)", (int)side);
            gd_shape s = gd_dims(batch, channels / (side * side), side, side);
            if (!one_in(n, 3)) return value_of(gd_reshape(x.t, s), NET_IMAGES);
            s = gd_dims(batch, side, side, channels / (side * side));
            return value_of(gd_permute(gd_reshape(x.t, s), gd_dims(0, 3, 1, 2)), NET_IMAGES);
        }
    return x;
}

net_value row_layer(net *n, net_value x) {
    switch (below(n, 27)) {
    case 0:
    case 1:
    case 2:
    case 3: return linear_layer(n, x);
    case 4:
    case 5:
    case 6:
    case 7:
    case 8: return linear_block(n, x);
    case 9:
    case 10: return tied_layer(n, x);
    case 11:
    case 12: return row_norm_layer(n, x);
    case 13: return activation_layer(n, x);
    case 14: return dropout_layer(n, x);
    case 15: return skip_layer(n, x);
    case 16: return affine_layer(n, x);
    case 17: return cat_layer(n, x);
    case 18: return slice_layer(n, x);
    case 19: return gram_layer(n, x);
    case 20: return select_layer(n, x);
    case 21: return one_in(n, 2) ? softmax_layer(n, x) : center_layer(n, x);
    case 22: return reorder_layer(n, x);
    case 23: return odd_layer(n, x);
    case 24: return running_mean_layer(n, x);
    case 25: return branch_layer(n, x);
    default: return rows_to_images(n, x);
    }
}
