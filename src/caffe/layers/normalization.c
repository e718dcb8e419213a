/* normalization.c - LRN, and BatchNorm with Caffe's statistics: sums, and the sum of their weights. */
#include <string.h>

#include "caffe/layer.h"
#include "caffe/save/save.h"
#include "gradus/autograd.h"
#include "gradus/module.h"
#include "graph/build/graph.h"
#include "nn/layer.h"

/* --- LRN -------------------------------------------------------------------------------------- */

typedef struct lrn_module {
    int64_t size;
    double alpha, beta, k;
    bool within;
} lrn_module;

static gd_tensors lrn_forward(gd_tensors in, void *self) {
    const lrn_module *m = self;
    return gd_listed(gd_local_response_norm(in.at[0], m->size, .alpha = m->alpha, .beta = m->beta,
                                            .k = m->k,
                                            .region = m->within ? GD_WITHIN : GD_ACROSS));
}

gd_status gd_caffe_make_LRN(gd_caffe_layer *l) {
    const int64_t size = gd_pb_int_of(l->message, "lrn_param.local_size");
    if (l->bottoms[0].rank != 4)
        return gd_caffe_fail(l, "its bottom has %d axes; it must have 4", l->bottoms[0].rank);
    if (size % 2 == 0)
        return gd_caffe_fail(l, "local_size is %lld; it must be odd", (long long)size);
    lrn_module *m = gd_caffe_module(l, lrn_forward, sizeof *m);
    if (!m) return gd_failure();
    m->size = size;
    m->within = gd_pb_int_of(l->message, "lrn_param.norm_region") == 1;
    m->alpha = gd_pb_float_of(l->message, "lrn_param.alpha");
    m->beta = gd_pb_float_of(l->message, "lrn_param.beta");
    m->k = m->within ? 1 : gd_pb_float_of(l->message, "lrn_param.k"); /* within: k is not used */
    return GD_OK;
}

/* --- BatchNorm -------------------------------------------------------------------------------- */

typedef struct batch_norm_module {
    gd_tensor *mean, *variance,
        *weight; /* sums (channels), and of the weights of their batches (1) */
    double fraction, eps;
    enum { BY_MODE, BATCH, GLOBAL } statistics;
} batch_norm_module;

/* A number of each channel so that it broadcasts against x. */
static gd_tensor *along_channels(gd_tensor *t, const gd_tensor *x) {
    gd_shape dims = {.at = {gd_tensor_numel(t)}, .rank = gd_tensor_rank(x) - 1, .form = 1};
    for (int i = 1; i < dims.rank; i++) dims.at[i] = 1;
    return dims.rank > 1 ? gd_reshape(t, dims) : t;
}

/* By the averages so far; they are 0 if there were no batches. */
static gd_tensor *norm_by_averages(const batch_norm_module *m, gd_tensor *x) {
    gd_tensor *mean, *rstd;
    {
        GD_NO_GRAD;
        gd_tensor *zero = gd_scalar(0), *one = gd_scalar(1), *none = gd_eq(m->weight, zero);
        gd_tensor *share = gd_where(none, zero, gd_div(one, gd_where(none, one, m->weight)));
        mean = gd_mul(m->mean, share);
        rstd = gd_rsqrt_plus(gd_mul(m->variance, share), m->eps);
    }
    return gd_mul(gd_sub(x, along_channels(mean, x)), along_channels(rstd, x));
}

/* Writes scale t + plus to a sum, and returns the write. */
static gd_tensor *write_sum(gd_tensor *t, double scale, gd_tensor *plus) {
    GD_NO_GRAD;
    gd_tensor *value = gd_mul(t, gd_scalar(scale));
    return gd_layer_write(t, plus ? gd_add(value, gd_reshape(plus, gd_tensor_shape(t))) : value);
}

/* All axes but the channels. */
static gd_shape other_axes(const gd_tensor *x) {
    gd_shape axes = {.rank = gd_tensor_rank(x) - 1, .form = 1};
    for (int i = 0; i < axes.rank; i++) axes.at[i] = i ? i + 1 : 0;
    return axes;
}

/* The sums are updated first, so that a run of a graph has to run the updates. */
static gd_tensor *norm_after_updates(const batch_norm_module *m, gd_tensor *x, bool single) {
    gd_tensor *mean, *variance;
    {
        GD_NO_GRAD;
        mean = gd_mean(x, .axis = other_axes(x));
        variance = single ? NULL : gd_var(x, .axis = other_axes(x));
    }
    gd_tensor *first = write_sum(m->mean, m->fraction, mean),
              *second = write_sum(m->variance, m->fraction, variance);
    GD_LAYER_AFTER(gd_tensor_is_symbol(first) ? gd_group(gd_list(first, second)) : second);
    /* a batch with one value for each channel has variance 0 */
    return single ? gd_mul(x, gd_scalar(0))
                  : gd_batch_norm(x, NULL, NULL, NULL, NULL, .training = true, .eps = m->eps);
}

/* The op updates running = (1 - momentum) running + momentum new. With momentum 1 / (1 + fraction) that
 * is Caffe's sum, fraction sum + new, times the momentum, and needs no second pass over x. */
static gd_tensor *norm_by_batch(const batch_norm_module *m, gd_tensor *x) {
    const gd_graph *graph = gd_graph_building();
    const bool single = gd_tensor_numel(x) == gd_tensor_dim(x, 1),
               shows_writes = !gd_tensor_is_symbol(x) || (graph && graph->traces_writes);
    GD_LAYER_AFTER(write_sum(m->weight, m->fraction, gd_scalar(1)));
    if (single || !shows_writes) return norm_after_updates(m, x, single);
    gd_tensor *y = gd_batch_norm(x, NULL, NULL, m->mean, m->variance, .training = true,
                                 .momentum = 1 / (1 + m->fraction), .eps = m->eps);
    write_sum(m->mean, 1 + m->fraction, NULL);
    write_sum(m->variance, 1 + m->fraction, NULL);
    return y;
}

static gd_tensors batch_norm_forward(gd_tensors in, void *self) {
    const batch_norm_module *m = self;
    gd_tensor *x = in.at[0], *y;
    const gd_shape dims = gd_tensor_shape(x);
    if (dims.rank == 1) x = gd_reshape(x, gd_dims(dims.at[0], 1));
    if (m->statistics == BATCH || (m->statistics == BY_MODE && gd_module_is_training(NULL)))
        y = norm_by_batch(m, x);
    else y = norm_by_averages(m, x);
    return gd_listed(dims.rank == 1 ? gd_reshape(y, dims) : y);
}

/* Caffe trains no blob of a BatchNorm. */
static gd_status check_rates(const gd_caffe_layer *l) {
    for (size_t i = 0; i < gd_pb_count(l->message, "param"); i++)
        if (gd_pb_float_of(gd_pb_message_at(l->message, "param", i), "lr_mult") != 0)
            return gd_caffe_fail(l,
                                 "its param %zu has a lr_mult that is not 0, but its blobs are "
                                 "statistics, which are not trained; write param { lr_mult: 0 }",
                                 i);
    return GD_OK;
}

gd_status gd_caffe_make_BatchNorm(gd_caffe_layer *l) {
    const gd_shape *x = &l->bottoms[0];
    const gd_shape channels = gd_dims(x->rank > 1 ? x->at[1] : 1);
    if (x->rank < 1) return gd_caffe_fail(l, "its bottom has no axes; it must have at least one");
    GD_TRY(check_rates(l));
    batch_norm_module *m = gd_caffe_module(l, batch_norm_forward, sizeof *m);
    if (!m) return gd_failure();
    m->fraction = gd_pb_float_of(l->message, "batch_norm_param.moving_average_fraction");
    m->eps = gd_pb_float_of(l->message, "batch_norm_param.eps");
    if (gd_pb_has(l->message, "batch_norm_param.use_global_stats"))
        m->statistics =
            gd_pb_int_of(l->message, "batch_norm_param.use_global_stats") ? GLOBAL : BATCH;
    GD_TRY(gd_caffe_add_buffer(l, &m->mean, "mean", channels, 0));
    GD_TRY(gd_caffe_add_buffer(l, &m->variance, "variance", channels, 0));
    return gd_caffe_add_buffer(l, &m->weight, "weight", gd_dims(1), 0);
}

/* --- saving ----------------------------------------------------------------------------------- */

/* The op has become x / (k + scale sum)^beta with sum = window_sum(square(x)): over channels, or over the two
 * spatial axes one after the other. False: the sum is another one. */
static bool read_sum(const gd_caffe_call *c, int64_t *size, bool *within) {
    const gd_slot *sum = &c->in[1];
    int64_t axis[2];
    int n = 0;
    for (; sum->symbol && sum->node->op && strcmp(sum->node->op->name, "window_sum") == 0; n++) {
        gd_caffe_call window = {.op = sum->node->op, .attrs = sum->node->attrs};
        const int64_t own = (int64_t)gd_caffe_option(&window, "size");
        if (n == 2 || (n > 0 && own != *size)) return false;
        axis[n] = (int64_t)gd_caffe_option(&window, "axis");
        *size = own;
        sum = &sum->node->slots[0];
    }
    *within = n == 2;
    const bool axes = *within ? axis[0] == 3 && axis[1] == 2 : n == 1 && axis[0] == 1;
    const gd_node *square = sum->symbol ? sum->node : NULL;
    return axes && square && square->op && strcmp(square->op->name, "square") == 0 &&
           square->slots[0].node == c->in[0].node && square->slots[0].index == c->in[0].index;
}

gd_status gd_caffe_save_lrn(gd_caffe_call *c) {
    const double k = gd_caffe_option(c, "k");
    int64_t size = 0;
    bool within;
    if (c->in[0].rank != 4 || !read_sum(c, &size, &within) || size % 2 == 0 || (within && k != 1))
        return gd_caffe_cannot(c,
                               "Caffe's LRN takes (N, C, H, W), has an odd size, and within "
                               "channels k = 1; this one has %d axes, size %lld and k = %g",
                               c->in[0].rank, (long long)size, k);
    const double count = (double)(within ? size * size : size);
    gd_caffe_out(c, "LRN", gd_caffe_bottom(c, 0), gd_caffe_top(c, 0));
    gd_caffe_put_int(c, "local_size", size);
    gd_caffe_put_float(c, "alpha", gd_caffe_option(c, "scale") * count);
    gd_caffe_put_float(c, "beta", gd_caffe_option(c, "beta"));
    gd_caffe_put_float(c, "k", k);
    gd_caffe_put_int(c, "norm_region", within);
    return c->saver->status;
}

/* BatchNorm normalizes, Scale has the weight and the bias. */
gd_status gd_caffe_save_batch_norm(gd_caffe_call *c) {
    const bool scales = c->in[1].present, adds = c->in[2].present;
    const bool by_batch = gd_caffe_option(c, "training") != 0;
    const gd_shape channels = gd_dims(c->in[0].rank > 1 ? c->in[0].dims[1] : 1);
    const int top = gd_caffe_top(c, 0);
    const int middle = scales || adds ? gd_caffe_between(c, gd_caffe_slot_shape(c->in)) : top;
    gd_caffe_out(c, "BatchNorm", gd_caffe_bottom(c, 0), middle);
    gd_caffe_put_float(c, "eps", gd_caffe_option(c, "eps"));
    gd_caffe_put_float(c, "moving_average_fraction", 1 - gd_caffe_option(c, "momentum"));
    if (by_batch) gd_caffe_put_always(c, "use_global_stats", false);
    for (int i = 3; i < 5; i++)
        GD_TRY(gd_caffe_put_weight(c, by_batch ? gd_caffe_full(channels, i == 4)
                                               : gd_caffe_constant(c, i)));
    GD_TRY(gd_caffe_put_weight(c, gd_caffe_full(gd_dims(1), 1)));
    if (!scales && !adds) return c->saver->status;
    gd_caffe_out(c, "Scale", middle, top);
    gd_caffe_put_int(c, "bias_term", adds);
    GD_TRY(gd_caffe_put_weight(c, scales ? gd_caffe_constant(c, 1) : gd_caffe_full(channels, 1)));
    return adds ? gd_caffe_put_weight(c, gd_caffe_constant(c, 2)) : GD_OK;
}
