/* layers_loss_more.c - losses that are expressed in several ops. */
#include <math.h>

#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

static gd_tensors reduce_loss(gd_tensor *loss, gd_word reduction) {
    return gd_listed(reduction == GD_MEAN  ? gd_mean(loss)
                     : reduction == GD_SUM ? gd_sum(loss)
                                           : loss);
}

/* --- targets 1 and -1, or 0 and 1 ------------------------------------------------------------- */

/*layer soft_margin_loss(x, target) -> loss
 * The mean of log(1 + exp(-target x)) for targets 1 and -1.
 *   reduction {none, mean, sum} = mean
 *   python (size_average!None, reduce!None, reduction)
 */
static gd_tensors soft_margin_loss_forward(gd_module *m, gd_tensors in) {
    const gd_nn_soft_margin_loss_options *o = m->options;
    return reduce_loss(gd_neg(gd_logsigmoid(gd_mul(in.at[0], in.at[1]))), o->reduction);
}

/*layer multi_label_soft_margin_loss(x, target, weight?) -> loss
 * Binary cross-entropy of sigmoid(x) (N, C) with targets 0 and 1, averaged over the classes.
 *   reduction {none, mean, sum} = mean
 *   python (reduction)
 */
static gd_tensors multi_label_soft_margin_loss_forward(gd_module *m, gd_tensors in) {
    const gd_nn_multi_label_soft_margin_loss_options *o = m->options;
    gd_tensor *x = in.at[0], *target = in.at[1], *weight = gd_layer_input(in, 2);
    gd_tensor *yes = gd_mul(target, gd_logsigmoid(x));
    gd_tensor *no = gd_mul(gd_sub(gd_scalar(1), target), gd_logsigmoid(gd_neg(x)));
    gd_tensor *loss = gd_neg(gd_add(yes, no));
    if (weight) loss = gd_mul(loss, weight);
    return reduce_loss(gd_mean(loss, .axis = gd_dims(-1)), o->reduction);
}

/* --- margins between classes ------------------------------------------------------------------ */

/* x (N, C) and a target of class indices, (N) or with `many` (N, C); a single sample has no N. */
static gd_status check_classes(const gd_tensor *x, const gd_tensor *target, bool many) {
    char a[120], b[120];
    const bool fits =
        (x->rank == 1 || x->rank == 2) && target->rank == (many ? x->rank : x->rank - 1);
    if (fits) return GD_OK;
    return gd_fail(
        GD_E_SHAPE, "x must be (N, C) and target (N%s), or both without N; they are %s and %s",
        many ? ", C" : "", gd_describe(x, a, sizeof a), gd_describe(target, b, sizeof b));
}

/* Reduces the loss (N); without a batch the axis is removed first. */
static gd_tensors finish_classes(gd_tensor *loss, bool unbatched, gd_word reduction) {
    return reduce_loss(unbatched ? gd_squeeze(loss, .axis = gd_dims(0)) : loss, reduction);
}

/*layer multi_margin_loss(x, target, weight?) -> loss
 * For class indices, the mean over classes k other than the target t of max(0, margin - x[t] +
 * x[k])^p, times the weight of the class t.
 *   p int = 1   1 or 2
 *   margin float = 1
 *   reduction {none, mean, sum} = mean
 *   python (p, margin, reduction)
 */
static gd_status multi_margin_loss_check(const gd_module *m) {
    const gd_nn_multi_margin_loss_options *o = m->options;
    if (o->p == 1 || o->p == 2) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s: p is %lld; it must be 1 or 2", m->type, (long long)o->p);
}
static gd_tensors multi_margin_loss_forward(gd_module *m, gd_tensors in) {
    const gd_nn_multi_margin_loss_options *o = m->options;
    gd_tensor *x = in.at[0], *target = in.at[1], *weight = gd_layer_input(in, 2);
    const gd_status fits = check_classes(x, target, false);
    if (fits != GD_OK) return gd_layer_fail(fits);
    const bool unbatched = x->rank == 1;
    if (unbatched) x = gd_unsqueeze(x, 0), target = gd_unsqueeze(target, 0);
    gd_tensor *index = gd_unsqueeze(target, 1); /* (N, 1) */
    gd_tensor *terms =
        gd_relu(gd_add(gd_sub(x, gd_gather(x, 1, index)), gd_layer_scalar(x, o->margin)));
    if (o->p == 2) terms = gd_square(terms);
    if (weight) terms = gd_mul(terms, gd_unsqueeze(gd_index_select(weight, 0, target), 1));
    terms = gd_scatter(terms, 1, index,
                       gd_zeros_like(gd_gather(x, 1, index))); /* the target has no term */
    return finish_classes(gd_mean(terms, .axis = gd_dims(1)), unbatched, o->reduction);
}

/*layer multi_label_margin_loss(x, target) -> loss
 * Several target classes for each sample, as indices up to the first -1: the sum over targets t and
 * other classes k of max(0, 1 - x[t] + x[k]), divided by the number of classes.
 *   reduction {none, mean, sum} = mean
 *   python (size_average!None, reduce!None, reduction)
 */
static gd_tensors multi_label_margin_loss_forward(gd_module *m, gd_tensors in) {
    const gd_nn_multi_label_margin_loss_options *o = m->options;
    gd_tensor *x = in.at[0], *target = in.at[1];
    const gd_status fits = check_classes(x, target, true);
    if (fits != GD_OK) return gd_layer_fail(fits);
    const bool unbatched = x->rank == 1;
    const gd_dtype dtype = (gd_dtype)x->dtype;
    if (unbatched) x = gd_unsqueeze(x, 0), target = gd_unsqueeze(target, 0);
    gd_tensor *counts = gd_cumprod(gd_cast(gd_ge(target, gd_scalar_int(0)), GD_I64),
                                   1); /* (N, C): before the first -1 */
    gd_tensor *index = gd_mul(target, counts), *named = gd_cast(counts, dtype);
    gd_tensor *hits = gd_scatter_add(gd_zeros_like(named), 1, index,
                                     named); /* (N, C): how often each class is a target */
    gd_tensor *others = gd_cast(gd_eq(hits, gd_scalar(0)), dtype);
    /* (N, t, k): t a target, k another class */
    gd_tensor *terms = gd_relu(
        gd_add(gd_sub(gd_unsqueeze(x, 1), gd_unsqueeze(gd_gather(x, 1, index), 2)), gd_scalar(1)));
    terms = gd_mul(gd_mul(terms, gd_unsqueeze(named, 2)), gd_unsqueeze(others, 1));
    return finish_classes(gd_mean(gd_sum(terms, .axis = gd_dims(1)), .axis = gd_dims(1)), unbatched,
                          o->reduction);
}

/* --- distances -------------------------------------------------------------------------------- */

/*layer triplet_margin_loss(anchor, positive, negative) -> loss
 * The mean of max(0, d(anchor, positive) - d(anchor, negative) + margin), d being the p-norm along
 * the last axis.
 *   margin float = 1
 *   p float = 2
 *   eps float = 1e-6    added to differences
 *   swap bool = false   uses the distance from positive to negative where it is smaller
 *   reduction {none, mean, sum} = mean
 *   python (margin, p, eps, swap, size_average!None, reduce!None, reduction)
 */
static gd_status triplet_margin_loss_check(const gd_module *m) {
    const gd_nn_triplet_margin_loss_options *o = m->options;
    if (o->margin > 0) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s: margin is %g; it must be positive", m->type, o->margin);
}
static gd_tensor *p_distance(gd_tensor *a, gd_tensor *b, double p, double eps) {
    gd_tensor *difference = gd_sub(a, b);
    return gd_norm(gd_add(difference, gd_layer_scalar(difference, eps)), .p = p,
                   .axis = gd_dims(-1));
}
static gd_tensors triplet_margin_loss_forward(gd_module *m, gd_tensors in) {
    const gd_nn_triplet_margin_loss_options *o = m->options;
    gd_tensor *near = p_distance(in.at[0], in.at[1], o->p, o->eps),
              *far = p_distance(in.at[0], in.at[2], o->p, o->eps);
    if (o->swap) far = gd_minimum(far, p_distance(in.at[1], in.at[2], o->p, o->eps));
    return reduce_loss(gd_relu(gd_add(gd_sub(near, far), gd_layer_scalar(near, o->margin))),
                       o->reduction);
}

/* --- likelihoods ------------------------------------------------------------------------------ */

/*layer poisson_nll_loss(x, target) -> loss
 * Negative log likelihood of a Poisson distribution: the mean of exp(x) - target x, or, without
 * log_input, of x - target log(x + eps).
 *   log_input bool = true   x is the logarithm of the rate
 *   full bool = false       adds Stirling's approximation of log(target!), for targets above 1
 *   eps float = 1e-8
 *   reduction {none, mean, sum} = mean
 *   python PoissonNLLLoss(log_input, full, size_average!None, eps, reduce!None, reduction)
 */
static gd_status poisson_nll_loss_check(const gd_module *m) {
    const gd_nn_poisson_nll_loss_options *o = m->options;
    return gd_layer_within(m, "eps", o->eps, 0, (double)INFINITY, false);
}
static gd_tensors poisson_nll_loss_forward(gd_module *m, gd_tensors in) {
    const gd_nn_poisson_nll_loss_options *o = m->options;
    gd_tensor *x = in.at[0], *target = in.at[1];
    gd_tensor *loss =
        o->log_input ? gd_sub(gd_exp(x), gd_mul(target, x))
                     : gd_sub(x, gd_mul(target, gd_log(gd_add(x, gd_layer_scalar(x, o->eps)))));
    if (o->full) {
        /* t log t - t + log(2 pi t) / 2 for t > 1, and 0 elsewhere */
        gd_tensor *above = gd_gt(target, gd_scalar(1)),
                  *t = gd_where(above, target, gd_ones_like(target));
        gd_tensor *stirling =
            gd_add(gd_sub(gd_mul(t, gd_log(t)), t),
                   gd_mul(gd_log(gd_mul(t, gd_layer_scalar(t, 2 * M_PI))), gd_scalar(0.5)));
        loss = gd_add(loss, gd_where(above, stirling, gd_zeros_like(stirling)));
    }
    return reduce_loss(loss, o->reduction);
}

/*layer gaussian_nll_loss(x, target, var) -> loss
 * Negative log likelihood of normal distributions with mean x and variance var: the mean of
 * (log var + (x - target)^2 / var) / 2. var has the shape of x, or 1 in its last dimension.
 *   full bool = false   adds the constant log(2 pi) / 2
 *   eps float = 1e-6    variances are at least this
 *   reduction {none, mean, sum} = mean
 *   python GaussianNLLLoss(full, eps, reduction)
 */
static gd_status gaussian_nll_loss_check(const gd_module *m) {
    const gd_nn_gaussian_nll_loss_options *o = m->options;
    return gd_layer_within(m, "eps", o->eps, 0, (double)INFINITY, false);
}
static gd_tensors gaussian_nll_loss_forward(gd_module *m, gd_tensors in) {
    const gd_nn_gaussian_nll_loss_options *o = m->options;
    /* As in PyTorch, the clamp passes the gradient on, also below eps. */
    gd_tensor *var = in.at[2];
    gd_tensor *clamped = gd_add(var, gd_stop_gradient(gd_sub(gd_clamp(var, .min = o->eps), var)));
    gd_tensor *loss =
        gd_mul(gd_add(gd_log(clamped), gd_div(gd_square(gd_sub(in.at[0], in.at[1])), clamped)),
               gd_scalar(0.5));
    if (o->full) loss = gd_add(loss, gd_layer_scalar(loss, 0.5 * log(2 * M_PI)));
    return reduce_loss(loss, o->reduction);
}

#include "nn/layers_loss_more.gen.h"
