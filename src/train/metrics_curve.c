/* metrics_curve.c - the area under the ROC curve, from histograms of scores.
 *
 * A ROC curve needs the order of all scores. The metric keeps only histograms of them, so that its
 * memory does not grow with the number of samples. The bins divide
 *
 *     asinh(logit) / asinh(RANGE)
 *
 * evenly from -1 to 1. Their width is (2 asinh(RANGE) / bins) sqrt(1 + logit^2): fine around 0, and
 * in proportion to large logits, for which a sigmoid would always be 1.
 */
#include <math.h>

#include "gradus/metrics.h"
#include "gradus/ops.h"
#include "train/metric_inputs.h"

#define RANGE 1e4

/*metric auc
 * The area under the ROC curve of a binary classifier: the probability that a sample of class 1 has
 * a larger output than one of class 0; equal outputs count half. Outputs are (N), (N,1) or (N,2);
 * the score of (N,2) is the difference of its columns. Outputs in the same bin count as equal: with
 * 4000 bins, logits up to 10000 are distinguished if they differ by 0.005 sqrt(1 + x*x). NaN while
 * one of the classes has no samples, or after an output of NaN.
 *   bins int = 4000             in [2, 10000000]: number of bins of the histograms of scores
 *   axis int = 1                the axis of the columns in the output; -1: the last one
 *   ignore_index int = -100     targets with this class number do not count
 *   logits bool = true          outputs are logits; false: probabilities
 *   label string = none         its name in histories; none: "auc"
 *   python AUC
 */
static void auc_update(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    const gd_metric_auc_options *o = gd_metric_options(m);
    const gd_class_form form = {o->axis, o->ignore_index, o->logits, 0.5};
    gd_class_batch b;
    if (!gd_class_batch_read(&b, output, target, weight, form)) return;
    if (b.classes != 2) {
        gd_tensor_fail(gd_fail(GD_E_SHAPE, "the output has %lld classes; auc is for two",
                               (long long)b.classes));
        return;
    }
    gd_tensor *x = b.binary ? gd_class_logits(&b, form)
                            : gd_cast(o->logits ? b.scores : gd_log(b.scores), GD_F64);
    if (!b.binary) x = gd_sub(gd_select(x, 1, 1), gd_select(x, 1, 0));
    gd_tensor *position = gd_mul(gd_asinh(x), gd_scalar_of(0.5 / asinh(RANGE), GD_F64));
    gd_tensor *scaled =
        gd_mul(gd_add(position, gd_scalar_of(0.5, GD_F64)), gd_scalar_of((double)o->bins, GD_F64));
    gd_tensor *nan = gd_isnan(x), *zero = gd_scalar_of(0, GD_F64);
    scaled =
        gd_where(nan, zero, gd_clamp(gd_floor(scaled), .min = 0, .max = (double)(o->bins - 1)));
    gd_tensor *w =
        gd_where(gd_logical_and(nan, gd_ne(b.weight, zero)), gd_scalar_of(NAN, GD_F64), b.weight);
    gd_tensor *one = gd_gt(b.actual, gd_scalar_int(0)),
              *index = gd_flatten(gd_cast(scaled, GD_I64));
    gd_tensor *empty = gd_zeros(gd_dims(o->bins), .dtype = GD_F64);
    gd_metric_add(m, "ones", gd_index_add(empty, 0, index, gd_flatten(gd_where(one, w, zero))));
    gd_metric_add(m, "zeros", gd_index_add(empty, 0, index, gd_flatten(gd_where(one, zero, w))));
}

/* For each sample of class 1: the samples of class 0 in lower bins, and half of those in its bin.
 * */
static gd_tensor *auc_value(gd_metric *m) {
    gd_tensor *ones = gd_metric_sum(m, "ones"), *zeros = gd_metric_sum(m, "zeros");
    if (ones->rank == 0) return gd_scalar_of(NAN, GD_F64);
    gd_tensor *below = gd_sub(gd_cumsum(zeros, 0), gd_mul(zeros, gd_scalar_of(0.5, GD_F64)));
    return gd_div(gd_sum(gd_mul(ones, below)), gd_mul(gd_sum(ones), gd_sum(zeros)));
}

#include "train/metrics_curve.gen.h"
