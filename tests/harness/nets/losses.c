/* losses.c - losses of random nets. */
#include "layers.h"

/* The classes are axis 1, or, of a sequence, the last axis. */
static gd_tensor *class_loss(net *n, net_value x) {
    const bool linear = x.form != NET_IMAGES;
    if (linear) {
        static const int counts[] = {2, 3, 5, 10, 17, 40};
        x.t = linear_to(n, x, counts[below(n, 6)]);
    }
    if (x.form == NET_SEQUENCE) {
        const int64_t rows = dim_of(x.t, 0) * dim_of(x.t, 1);
        if (one_in(n, 2)) x.t = gd_reshape(x.t, gd_dims(rows, -1));
        else x.t = gd_transpose(x.t, 1, 2);
    }
    const int64_t classes = dim_of(x.t, 1);
    const double smoothing = one_in(n, 3) ? 0.1 : 0;
    const int64_t ignored = one_in(n, 3) && classes > 2 ? 1 : -100;
    gd_tensor *w =
        one_in(n, 3) ? gd_add(gd_abs(constant(n, gd_dims(classes), 0, 1)), gd_scalar(0.3)) : NULL;
    net_say(n, " cross_entropy(%d classes%s%s%s)", (int)classes, smoothing > 0 ? ", smoothing" : "",
            ignored >= 0 ? ", ignored" : "", w ? ", weights" : "");
    if (one_in(n, 8)) {
        gd_tensor *t = gd_softmax(net_input(n, gd_tensor_shape(x.t), 0), .axis = 1);
        return gd_cross_entropy(x.t, t, .label_smoothing = smoothing, .weight = w);
    }
    gd_tensor *t = net_input(n, shape_without(x.t, 1), (int)classes);
    if (one_in(n, 8)) {
        gd_tensor *terms =
            gd_cross_entropy(x.t, t, .reduction = GD_NONE, .label_smoothing = smoothing,
                             .ignore_index = ignored, .weight = w);
        return gd_mean(terms);
    }
    if (one_in(n, 8)) return gd_nll_loss(gd_log_softmax(x.t, .axis = 1), t, .weight = w);
    return gd_cross_entropy(x.t, t, .label_smoothing = smoothing, .ignore_index = ignored,
                            .weight = w);
}

static gd_tensor *mean_loss(net *n, net_value x) {
    static const char *const names[] = {"mse",   "l1",      "bce",    "smooth_l1",
                                        "huber", "bce_pos", "square", "logits"};
    const int kind = n->without & SIMPLE_LOSS ? 6 : below(n, 8);
    if (kind != 6 && one_in(n, 2) && x.form != NET_IMAGES) x.t = linear_to(n, x, draw_width(n, x));
    net_say(n, " %s_loss", names[kind]);
    if (kind == 6) return gd_mean(gd_square(x.t));
    gd_tensor *t = net_input(n, gd_tensor_shape(x.t), 0);
    if (kind == 1 || kind == 3 || kind == 4) n->has_kinks = true;
    switch (kind) {
    case 0: return gd_mse_loss(x.t, t);
    case 1: return gd_l1_loss(x.t, t);
    case 2: return gd_bce_with_logits(x.t, gd_sigmoid(t));
    case 3: return gd_smooth_l1_loss(x.t, t, .beta = 0.5);
    case 4: return gd_huber_loss(x.t, t);
    case 5: {
        gd_tensor *w = gd_abs(constant(n, gd_dims(dim_of(x.t, -1)), 0.5, 1));
        return gd_bce_with_logits(x.t, gd_sigmoid(t), .pos_weight = w);
    }
    default:
        return gd_mean(
            gd_sub(gd_logsumexp(x.t, .axis = 1), gd_mean(gd_mul(x.t, gd_sigmoid(t)), .axis = 1)));
    }
}

gd_tensor *draw_loss(net *n, net_value x) {
    return one_in(n, 2) && !(n->without & SIMPLE_LOSS) ? class_loss(n, x) : mean_loss(n, x);
}
