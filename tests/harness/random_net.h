/* random_net.h - nets that are drawn from a seed: their tensors, their values, and the layers of
 * all forms. random_net_images.h, random_net_rows.h and random_net_step.h have the others.
 *
 * A net is a function that is called many times: eagerly, in traces, and for copies of its tensors
 * on other devices. Each call draws the same layers. The first call builds the net: it creates the
 * tensors that later calls use in the same order, and describes the layers in `text`.
 *
 * Layer i draws from a stream of its own, so a net without some of its layers keeps the others, with
 * other sizes: this is how a failing net is reduced.
 */
#ifndef GRADUS_TESTS_RANDOM_NET_H
#define GRADUS_TESTS_RANDOM_NET_H

#include <math.h>
#include <stdarg.h>

#include "draw.h"
#include "gradus/gradus.h"
#include "test.h"

enum { MOST_TENSORS = 160, MOST_VALUES = 64, MOST_LAYERS = 12, MOST_FETCHES = 6, NET_TEXT = 6000 };

typedef enum net_role {
    NET_PARAMETER,
    NET_FROZEN, /* a parameter without a gradient */
    NET_BUFFER, /* running statistics */
    NET_CONSTANT,
    NET_INPUT, /* an input of the step, with other values in each call */
} net_role;

/* The axes of a value: (N, C), (N, C, ...) with up to three more, (N, T, C). */
typedef enum net_form { NET_ROWS, NET_IMAGES, NET_SEQUENCE } net_form;

typedef struct net_value {
    gd_tensor *t;
    net_form form;
    bool trained; /* it depends on a parameter */
} net_value;

/* What reduces a net: options of the step that are left out, as bits. */
enum {
    NO_CLIPPING = 1,
    NO_ACCUMULATION = 2,
    NO_FETCHES = 4,
    NO_SECOND_LOSS = 8,
    NO_FREEZING = 16,
    PLAIN_OPTIMIZER = 32,
    SIMPLE_LOSS = 64,
    ONE_ROW_OF_OPTIONS = 128,
    NO_RECOMPUTATION = 256,
    NO_PENALTY = 512,
    NET_OPTIONS = 10 /* bits */
};

/* A layer that the backward pass computes again (gd_recompute). */
typedef struct net_repeat {
    struct net *net;
    int layer, next, n_values;
    int input; /* its number among the values; -1: it is none of them */
    net_form form;
} net_repeat;

typedef struct net {
    uint64_t seed;
    unsigned without, layers_off; /* bits: options, layers */
    gd_dtype autocast;            /* GD_DTYPE_NONE: off */
    bool exact;                   /* it is off although the net was drawn for it */

    /* tensors, in the order of their use */
    gd_tensor *tensors[MOST_TENSORS];
    net_role roles[MOST_TENSORS];
    int classes[MOST_TENSORS]; /* of an input: the number of classes; 0: it has floats */
    int n_tensors, n_inputs;

    /* one call */
    bool building, in_graph;
    bool evaluates;  /* the step has no gradients */
    bool repeats;    /* layers may run again in the backward pass: they write no buffers */
    int input;       /* of a repeated layer: see net_repeat */
    bool recomputes; /* it has a repeated layer */
    draws d;
    bool adds_affine;     /* the layers have no parameters */
    bool has_kinks;       /* a small difference may change the gradient of an element */
    int next, next_input; /* tensor, input */
    gd_tensors in;
    net_value values[MOST_VALUES]; /* results of layers, for connections that skip some */
    int n_values;
    gd_tensor *fetches[MOST_FETCHES];
    int n_fetches;

    gd_optimizer *optimizer;
    gd_loss_scale *loss_scale;
    net_repeat repeated[MOST_LAYERS];
    net_form repeat_form; /* of the result of the last one */
    char text[NET_TEXT];
    size_t text_end;
} net;

__attribute__((format(printf, 2, 3))) static void net_say(net *n, const char *format, ...) {
    if (!n->building || n->text_end >= NET_TEXT - 1) return;
    va_list args;
    va_start(args, format);
    n->text_end += (size_t)vsnprintf(n->text + n->text_end, NET_TEXT - n->text_end, format, args);
    va_end(args);
    if (n->text_end >= NET_TEXT) n->text_end = NET_TEXT - 1;
}

/* An error tensor has no dims; the test reports the failure later. */
static int64_t dim_of(gd_tensor *t, int axis) {
    return gd_tensor_is_error(t) ? 1 : gd_tensor_dim(t, axis);
}
static bool one_in(net *n, int k) { return draw_one_in(&n->d, k); }
static int below(net *n, int k) { return draw_below(&n->d, k); }

/* --- sizes ------------------------------------------------------------------------------------ */

/* Under autocast more of the sizes are multiples of 8, which tensor cores need. */
static int64_t draw_size(net *n, int64_t most) {
    static const int odd[] = {1, 2, 3, 5, 7, 8, 13, 16, 17, 32}, even[] = {8, 16, 24, 32};
    for (;;) {
        const bool aligned = one_in(n, n->autocast ? 2 : 4);
        const int64_t size = aligned ? even[below(n, 4)] : odd[below(n, 10)];
        if (size <= most) return size;
        if (most < 8) return 1 + below(n, (int)most);
    }
}

enum { MOST_ELEMENTS = 12000 };

/* The most channels for which a value of `positions` rows stays small. */
static int64_t most_channels(int64_t positions) {
    const int64_t most = MOST_ELEMENTS / (positions > 0 ? positions : 1);
    return most < 1 ? 1 : most > 32 ? 32 : most;
}

static gd_shape shape_without(gd_tensor *t, int axis) {
    gd_shape s = gd_tensor_shape(t);
    for (int i = axis; i + 1 < s.rank; i++) s.at[i] = s.at[i + 1];
    s.rank--;
    return s;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static gd_tensor *scaled_noise(gd_shape shape, double mean, double scale) {
    return gd_add(gd_mul(gd_randn(shape), gd_scalar(scale)), gd_scalar(mean));
}

static gd_tensor *net_add(net *n, net_role role, gd_tensor *made) {
    if (n->n_tensors == MOST_TENSORS) return NULL;
    n->roles[n->n_tensors] = role;
    n->classes[n->n_tensors] = 0;
    return n->tensors[n->n_tensors++] = made;
}

/* The next tensor, normally distributed; in the first call a new one. */
static gd_tensor *net_tensor(net *n, net_role role, gd_shape shape, double mean, double scale) {
    if (n->building) net_add(n, role, scaled_noise(shape, mean, scale));
    return n->tensors[n->next++];
}

static bool has_parameter(const net *n) {
    for (int i = 0; i < n->n_tensors; i++)
        if (n->roles[i] == NET_PARAMETER) return true;
    return false;
}

/* Some parameters are frozen, but never the first one. The stream of this draw is separate, so that
 * NO_FREEZING changes nothing else. */
static gd_tensor *parameter(net *n, gd_shape shape, double mean, double scale) {
    const bool frozen = draw_at(n->seed, 1000 + (uint64_t)n->next) % 9 == 0 && has_parameter(n) &&
                        !(n->without & NO_FREEZING);
    return net_tensor(n, frozen ? NET_FROZEN : NET_PARAMETER, shape, mean, scale);
}

/* A weight whose products with values of variance 1 have variance 1. */
static gd_tensor *weight(net *n, gd_shape shape, int64_t inputs) {
    return parameter(n, shape, 0, 1 / sqrt((double)inputs));
}

static gd_tensor *bias_or_none(net *n, int64_t size) {
    return one_in(n, 3) ? NULL : parameter(n, gd_dims(size), 0, 0.2);
}

static gd_tensor *constant(net *n, gd_shape shape, double mean, double scale) {
    return net_tensor(n, NET_CONSTANT, shape, mean, scale);
}

/* An input of floats, or of class numbers if `classes` is not 0. */
static gd_tensor *net_input(net *n, gd_shape shape, int classes) {
    if (n->building) {
        net_add(n, NET_INPUT, classes ? gd_randint(shape, 0, classes) : gd_randn(shape));
        n->classes[n->n_tensors - 1] = classes;
        n->n_inputs++;
        return n->tensors[n->next++];
    }
    n->next++;
    return n->in.at[n->next_input++];
}

/* --- values ----------------------------------------------------------------------------------- */

static net_value value_of(gd_tensor *t, net_form form) { return (net_value){t, form, false}; }
static net_value as_rows(gd_tensor *t) { return value_of(t, NET_ROWS); }

static void remember(net *n, net_value v) {
    for (int i = 0; i < n->next; i++) v.trained |= n->roles[i] == NET_PARAMETER;
    if (n->n_values < MOST_VALUES && !n->repeats) n->values[n->n_values++] = v;
}

static bool same_shape(gd_tensor *a, gd_tensor *b) {
    if (gd_tensor_rank(a) != gd_tensor_rank(b)) return false;
    for (int i = 0; i < gd_tensor_rank(a); i++)
        if (dim_of(a, i) != dim_of(b, i)) return false;
    return true;
}

/* An earlier value with the shape of x; NULL: none. In the backward pass a repeated layer gets its
 * input with another handle. */
static gd_tensor *find_alike(net *n, gd_tensor *x) {
    gd_tensor *found[MOST_VALUES];
    int count = 0;
    for (int i = 0; i < n->n_values; i++)
        if (n->values[i].t != x && !(n->repeats && i == n->input) && same_shape(n->values[i].t, x))
            found[count++] = n->values[i].t;
    return count ? found[below(n, count)] : NULL;
}

static int channel_axis(net_value x) { return x.form == NET_SEQUENCE ? 2 : 1; }

static gd_tensor *kinked(net *n, gd_tensor *x) {
    n->has_kinks = true;
    return x;
}

/* In halves an element near 0 may be rounded to the other side. Of few elements, a single one would
 * change the gradients a lot. */
static gd_tensor *relu_of(net *n, gd_tensor *x) {
    return n->autocast && gd_tensor_numel(x) < 300 ? gd_tanh(x) : kinked(n, gd_relu(x));
}

/* --- layers of all forms ---------------------------------------------------------------------- */

static gd_tensor *activate(net *n, gd_tensor *x) {
    switch (below(n, 9)) {
    case 0: net_say(n, " gelu"); return gd_gelu(x);
    case 1: net_say(n, " tanh"); return gd_tanh(x);
    case 2: net_say(n, " silu"); return gd_silu(x);
    case 3: net_say(n, " sigmoid*2"); return gd_mul(gd_sigmoid(x), gd_scalar(2));
    case 4: net_say(n, " leaky_relu"); return kinked(n, gd_leaky_relu(x, .slope = 0.1));
    default: net_say(n, " relu"); return relu_of(n, x);
    }
}

static net_value activation_layer(net *n, net_value x) {
    x.t = activate(n, x.t);
    return x;
}

static net_value dropout_layer(net *n, net_value x) {
    net_say(n, " dropout");
    x.t = gd_dropout(x.t, .p = 0.25);
    return x;
}

/* x + other, x * sigmoid(other), or both of x alone. */
static net_value skip_layer(net *n, net_value x) {
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

/* Scales and shifts each channel. */
static net_value affine_layer(net *n, net_value x) {
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

/* x beside itself, its transpose, an activation of it, or an earlier value. */
static net_value cat_layer(net *n, net_value x) {
    const int rank = gd_tensor_rank(x.t),
              axis = one_in(n, 3) ? 1 + below(n, rank - 1) : channel_axis(x);
    if (gd_tensor_numel(x.t) > MOST_ELEMENTS / 2 || dim_of(x.t, axis) > 17) return x;
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

/* A part of an axis, sometimes joined with the rest in another order. */
static net_value slice_layer(net *n, net_value x) {
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

/* Elements in another order. */
static net_value reorder_layer(net *n, net_value x) {
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

static net_value softmax_layer(net *n, net_value x) {
    const int axis = 1 + below(n, gd_tensor_rank(x.t) - 1);
    net_say(n, " softmax(axis %d)", axis);
    x.t = gd_mul(gd_softmax(x.t, .axis = axis), gd_scalar(sqrt((double)dim_of(x.t, axis))));
    return x;
}

/* Normalizes by hand: a group of steps that plans fuse over rows. */
static net_value center_layer(net *n, net_value x) {
    const int axis = 1 + below(n, gd_tensor_rank(x.t) - 1);
    gd_tensor *mean = gd_mean(x.t, .axis = axis, .keepdim = true);
    net_say(n, " center(axis %d)", axis);
    gd_tensor *c = gd_sub(x.t, mean);
    gd_tensor *v = gd_mean(gd_square(c), .axis = axis, .keepdim = true);
    x.t = gd_mul(c, gd_rsqrt(gd_add(v, gd_scalar(0.3))));
    return x;
}

/* Subtracts a running mean of the channels, which the step updates itself. */
static net_value running_mean_layer(net *n, net_value x) {
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

/* Ops of other kinds. */
static net_value odd_layer(net *n, net_value x) {
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

/* One of two functions, by a value that no input changes. */
static net_value branch_layer(net *n, net_value x) {
    gd_tensor *which = constant(n, gd_dims(), 0, 1), *scale = parameter(n, gd_dims(), 1, 0.2);
    net_say(n, " branch");
    gd_tensor *t = gd_cast(x.t, GD_F32);
    x.t = gd_cond(gd_gt(which, gd_scalar(0)), branch_up, branch_down, gd_list(t), scale).at[0];
    return x;
}

#endif
