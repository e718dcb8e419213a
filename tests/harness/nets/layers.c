/* layers.c - layers of random nets for values of all forms. */
#include "layers.h"

#include <math.h>

gd_tensor *activate(net *n, gd_tensor *x) {
    switch (below(n, 9)) {
    case 0: net_say(n, " gelu"); return gd_gelu(x);
    case 1: net_say(n, " tanh"); return gd_tanh(x);
    case 2: net_say(n, " silu"); return gd_silu(x);
    case 3: net_say(n, " sigmoid*2"); return gd_mul(gd_sigmoid(x), gd_scalar(2));
    case 4: net_say(n, " leaky_relu"); return kinked(n, gd_leaky_relu(x, .slope = 0.1));
    default: net_say(n, " relu"); return relu_of(n, x);
    }
}

net_value activation_layer(net *n, net_value x) {
    x.t = activate(n, x.t);
    return x;
}

net_value dropout_layer(net *n, net_value x) {
    net_say(n, " dropout");
    x.t = gd_dropout(x.t, .p = 0.25);
    return x;
}

net_value skip_layer(net *n, net_value x) {
    gd_tensor *other = find_alike(n, x.t);
    if (!other) other = x.t;
    net_say(n, other == x.t ? " add_self" : " skip");
    switch (below(n, 4)) {
    case 0: x.t = gd_mul(x.t, gd_sigmoid(other)); break;
    case 1: x.t = relu_of(n, gd_add(other, x.t)); break;
    case 2: x.t = gd_sub(gd_mul(x.t, gd_scalar(0.5)), other); break;
    default: x.t = gd_add(x.t, other); break;
    }
    return x;
}

net_value affine_layer(net *n, net_value x) {
    const int axis = channel_axis(x), rank = gd_tensor_rank(x.t);
    gd_shape s = gd_dims(dim_of(x.t, axis));
    for (int i = axis + 1; i < rank; i++) s.at[s.rank++] = 1;
    const bool scalar = one_in(n, 4);
    net_say(n, scalar ? " scalar_affine" : " affine");
    gd_tensor *scale = parameter(n, scalar ? gd_dims() : s, 1, 0.2),
              *shift = parameter(n, one_in(n, 6) ? gd_dims() : s, 0, 0.2);
    x.t = one_in(n, 2) ? gd_add(gd_mul(x.t, scale), shift) : gd_mul(gd_sub(x.t, shift), scale);
    return x;
}

net_value cat_layer(net *n, net_value x) {
    const int rank = gd_tensor_rank(x.t),
              axis = one_in(n, 3) ? 1 + below(n, rank - 1) : channel_axis(x);
    if (gd_tensor_numel(x.t) > MAX_ELEMENTS / 2 || dim_of(x.t, axis) > 17) return x;
    gd_tensor *other = find_alike(n, x.t);
    const int kind = below(n, 4), last = rank - 1, before = rank - 2;
    if (kind == 0 || !other) other = x.t;
    if (kind == 1 && dim_of(x.t, last) == dim_of(x.t, before))
        other = gd_transpose(x.t, last, before);
    if (kind == 2) other = gd_tanh(other);
    net_say(n, " cat(axis %d%s)", axis, other == x.t ? ", itself" : kind == 1 ? ", transpose" : "");
    x.t = one_in(n, 5)   ? gd_cat(gd_list(other, x.t, other), .axis = axis)
          : one_in(n, 2) ? gd_cat(gd_list(other, x.t), .axis = axis)
                         : gd_cat(gd_list(x.t, other), .axis = axis);
    return x;
}

net_value slice_layer(net *n, net_value x) {
    const int axis = 1 + below(n, gd_tensor_rank(x.t) - 1);
    const int64_t size = dim_of(x.t, axis);
    if (size < 2) return x;
    const int64_t at = 1 + below(n, (int)size - 1);
    net_say(n, " slice(axis %d, %d of %d)", axis, (int)at, (int)size);
    switch (below(n, 5)) {
    case 0: x.t = gd_narrow(x.t, axis, size - at, at); break;
    case 1: x.t = gd_slice(x.t, .axis = axis, .start = below(n, 2), .step = 2); break;
    case 2: {
        gd_tensor *a = gd_narrow(x.t, axis, 0, at), *b = gd_narrow(x.t, axis, at, size - at);
        x.t = gd_cat(gd_list(b, gd_tanh(a)), .axis = axis);
        break;
    }
    case 3:
        if (size % 2 == 0) {
            gd_tensors half = gd_chunk(x.t, 2, .axis = axis);
            x.t = gd_mul(half.at[0], gd_sigmoid(half.at[1]));
            break;
        }
        /* fallthrough */
    default: x.t = gd_slice(x.t, .axis = axis, .stop = at); break;
    }
    return x;
}

net_value reorder_layer(net *n, net_value x) {
    const int axis = 1 + below(n, gd_tensor_rank(x.t) - 1);
    net_say(n, " reorder(axis %d)", axis);
    switch (below(n, 4)) {
    case 0: x.t = gd_flip(x.t, gd_dims(axis)); break;
    case 1: x.t = gd_roll(x.t, gd_dims(1), .axis = axis); break;
    case 2: x.t = gd_cumsum(gd_mul(x.t, gd_scalar(0.3)), axis); break;
    default:
        x.t = gd_contiguous(gd_transpose(gd_contiguous(gd_transpose(x.t, 0, axis)), 0, axis));
        break;
    }
    return x;
}

net_value softmax_layer(net *n, net_value x) {
    const int axis = 1 + below(n, gd_tensor_rank(x.t) - 1);
    net_say(n, " softmax(axis %d)", axis);
    x.t = gd_mul(gd_softmax(x.t, .axis = axis), gd_scalar(sqrt((double)dim_of(x.t, axis))));
    return x;
}

net_value center_layer(net *n, net_value x) {
    const int axis = 1 + below(n, gd_tensor_rank(x.t) - 1);
    gd_tensor *mean = gd_mean(x.t, .axis = axis, .keepdim = true);
    net_say(n, " center(axis %d)", axis);
    gd_tensor *c = gd_sub(x.t, mean);
    gd_tensor *v = gd_mean(gd_square(c), .axis = axis, .keepdim = true);
    x.t = gd_mul(c, gd_rsqrt(gd_add(v, gd_scalar(0.3))));
    return x;
}

net_value running_mean_layer(net *n, net_value x) {
    const int axis = channel_axis(x), rank = gd_tensor_rank(x.t);
    gd_shape others = gd_dims(0), s = gd_dims(dim_of(x.t, axis));
    for (int i = 1; i < rank; i++)
        if (i != axis) others.at[others.rank++] = i;
    for (int i = axis + 1; i < rank; i++) s.at[s.rank++] = 1;
    gd_tensor *mean = net_tensor(n, NET_BUFFER, gd_dims(dim_of(x.t, axis)), 0, 0.2);
    const bool after = one_in(n, 2);
    net_say(n, " running_mean%s", after ? "(after)" : "");
    if (n->in_graph || n->repeats) return x; /* a graph does not write tensors outside of it */
    gd_tensor *y = after ? NULL : gd_sub(x.t, gd_reshape(gd_clone(mean), s));
    {
        GD_NO_GRAD;
        gd_tensor *now = gd_cast(gd_mean(gd_detach(x.t), .axis = others), GD_F32);
        gd_mul_(mean, gd_scalar(0.9));
        gd_add_(mean, gd_mul(now, gd_scalar(0.1)));
    }
    x.t = y ? y : gd_sub(x.t, gd_reshape(gd_clone(mean), s));
    return x;
}

net_value odd_layer(net *n, net_value x) {
    const int kind = below(n, 14), axis = 1 + below(n, gd_tensor_rank(x.t) - 1),
              rank = gd_tensor_rank(x.t);
    gd_tensor *t = x.t;
    net_say(n, " odd(%d, axis %d)", kind, axis);
    if (kind < 3 || (kind > 5 && kind < 11 && kind != 8)) n->has_kinks = true;
    switch (kind) {
    case 0: x.t = gd_where(gd_gt(t, gd_scalar(0.1)), gd_mul(t, gd_tanh(t)), gd_neg(t)); break;
    case 1: x.t = gd_masked_fill(t, gd_lt(t, gd_scalar(-0.5)), -0.3); break;
    case 2: x.t = gd_sub(t, gd_max(t, .axis = axis, .keepdim = true)); break;
    case 3:
        x.t = gd_div(t, gd_add(gd_norm(t, .axis = axis, .keepdim = true), gd_scalar(0.5)));
        break;
    case 4:
        x.t = gd_mul(t, gd_std(t, .axis = gd_dims(0, axis), .correction = 0, .keepdim = true));
        break;
    case 5: x.t = gd_sub(t, gd_logsumexp(t, .axis = axis, .keepdim = true)); break;
    case 6: x.t = gd_prelu(t, parameter(n, gd_dims(dim_of(t, -1)), 0.2, 0.1)); break;
    case 7: x.t = gd_sort(t, .axis = axis).values; break;
    case 8: x.t = gd_mul(t, gd_detach(gd_sigmoid(t))); break;
    case 9: x.t = gd_clamp(t, .min = -1, .max = 0.8); break;
    case 10: x.t = gd_maximum(t, gd_mul(t, gd_scalar(0.3))); break;
    case 11: x.t = gd_tril(t); break;
    case 12: x.t = gd_mul(t, gd_sigmoid(gd_sum(t, .axis = axis, .keepdim = true))); break;
    default: /* copies between layouts */
        t = gd_contiguous(gd_transpose(t, rank - 1, rank - 2));
        x.t = gd_transpose(gd_tanh(t), rank - 1, rank - 2);
        break;
    }
    return x;
}

/* --- branches --------------------------------------------------------------------------------- */

static gd_tensors branch_up(gd_tensors in, void *user) {
    return gd_listed(gd_tanh(gd_mul(in.at[0], user)));
}
static gd_tensors branch_down(gd_tensors in, void *user) {
    return gd_listed(gd_mul(gd_sigmoid(in.at[0]), user));
}

net_value branch_layer(net *n, net_value x) {
    gd_tensor *which = constant(n, gd_dims(), 0, 1), *scale = parameter(n, gd_dims(), 1, 0.2);
    net_say(n, " branch");
    gd_tensor *t = gd_cast(x.t, GD_F32);
    x.t = gd_cond(gd_gt(which, gd_scalar(0)), branch_up, branch_down, gd_list(t), scale).at[0];
    return x;
}
