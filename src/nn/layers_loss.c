/* layers_loss.c - losses that are single ops. Losses of several ops are in layers_loss_more.c. */
#include <math.h>

#include "gradus/layers.h"
#include "nn/layer.h"

/*layer mse_loss(x, target) -> loss  of mse_loss
 * The mean of (x - target)^2.
 *   options of mse_loss
 *   python MSELoss(size_average!None, reduce!None, reduction)
 */

/*layer l1_loss(x, target) -> loss  of l1_loss
 * The mean of |x - target|.
 *   options of l1_loss
 *   python (size_average!None, reduce!None, reduction)
 */

/*layer smooth_l1_loss(x, target) -> loss  of smooth_l1_loss
 * The mean of d^2 / (2 beta) where d = |x - target| is less than beta, of d - beta / 2 elsewhere.
 *   options of smooth_l1_loss
 *   python (size_average!None, reduce!None, reduction, beta)
 */
static gd_status smooth_l1_loss_check(const gd_module *m) {
    const gd_nn_smooth_l1_loss_options *o = m->options;
    return gd_layer_within(m, "beta", o->beta, 0, (double)INFINITY, false);
}

/*layer huber_loss(x, target) -> loss  of huber_loss
 * The mean of d^2 / 2 where d = |x - target| is at most delta, of delta (d - delta / 2) elsewhere.
 *   options of huber_loss
 *   python (reduction, delta)
 */
static gd_status huber_loss_check(const gd_module *m) {
    const gd_nn_huber_loss_options *o = m->options;
    if (o->delta == 0)
        return gd_fail(GD_E_ARGUMENT, "%s: delta is 0; it must be positive", m->type);
    return gd_layer_within(m, "delta", o->delta, 0, (double)INFINITY, false);
}

/*layer bce_loss(x, target, weight?) -> loss  of bce_loss
 * Binary cross-entropy of probabilities: the mean of -(target log x + (1 - target) log(1 - x)),
 * times the weight.
 *   options of bce_loss
 *   python BCELoss(reduction)
 */

/*layer bce_with_logits_loss(x, target, weight?, pos_weight?) -> loss  of bce_with_logits
 * Binary cross-entropy of sigmoid(x), computed without overflow. pos_weight is the weight of
 * positive targets.
 *   options of bce_with_logits
 *   python BCEWithLogitsLoss(reduction)
 */

/*layer kl_div_loss(x, target) -> loss  of kl_div
 * Kullback-Leibler divergence: the mean of target (log target - x), x being logarithms of
 * probabilities.
 *   options of kl_div
 *   python KLDivLoss(size_average!None, reduce!None, reduction, log_target)
 */

/*layer hinge_loss(x, target) -> loss  of hinge_loss
 * The mean of max(0, margin - target x) for targets 1 and -1.
 *   options of hinge_loss
 */

/*layer hinge_embedding_loss(x, target) -> loss  of hinge_embedding_loss
 * The mean of x where the target is 1, of max(0, margin - x) where it is -1: x is a distance.
 *   options of hinge_embedding_loss
 *   python (margin, size_average!None, reduce!None, reduction)
 */

/*layer margin_ranking_loss(a, b, target) -> loss  of margin_ranking_loss
 * The mean of max(0, margin - target (a - b)): a should be ranked above b where the target is 1,
 * below where it is -1.
 *   options of margin_ranking_loss
 *   python (margin, size_average!None, reduce!None, reduction)
 */

/*layer cosine_embedding_loss(a, b, target) -> loss  of cosine_embedding_loss
 * For rows a and b (N, D) and targets (N): the mean of 1 - cos(a, b) where the target is 1, of
 * max(0, cos(a, b) - margin) where it is -1.
 *   options of cosine_embedding_loss
 *   python (margin, size_average!None, reduce!None, reduction)
 */

/*layer nll_loss(x, target, weight?) -> loss  of nll_loss
 * Negative log likelihood: the mean of -x at the target class, x being logarithms of
 * probabilities (N, C) or (N, C, ...). weight (C) is that of each class.
 *   options of nll_loss
 *   python NLLLoss(ignore_index, reduction)
 */

/*layer cross_entropy_loss(x, target, weight?) -> loss  of cross_entropy
 * Cross-entropy of softmax(x) with class numbers or probabilities, for logits x (N, C) or (N, C,
 * ...); with axis=-1 for the (N, T, C) of text models. weight (C) is that of each class.
 *   options of cross_entropy
 *   python (ignore_index, reduction, label_smoothing)
 */
static gd_status cross_entropy_loss_check(const gd_module *m) {
    const gd_nn_cross_entropy_loss_options *o = m->options;
    return gd_layer_within(m, "label_smoothing", o->label_smoothing, 0, 1, true);
}

#include "nn/layers_loss.gen.h"
