/* metrics_class.c - accuracy, top_k and perplexity of classifiers.
 *
 * Outputs are (N,C) or (N,C,...), PyTorch's layout; `axis` says where the classes are. Targets are
 * class numbers, (N) or (N,...), or one-hot vectors or probabilities of the output's shape.
 */
#include "gradus/metrics.h"
#include "gradus/ops.h"
#include "train/metric_inputs.h"

/* Adds the weights of correct samples, and those of all samples. */
static void add_correct(gd_metric *m, const gd_class_batch *b, gd_tensor *right) {
    gd_metric_add(m, "right", gd_sum(gd_mul(gd_cast(right, GD_F64), b->weight)));
    gd_metric_add(m, "count", gd_sum(b->weight));
}

static gd_tensor *correct_fraction(gd_metric *m) {
    return gd_div(gd_metric_sum(m, "right"), gd_metric_sum(m, "count"));
}

/*metric accuracy
 * The fraction of samples whose predicted class is correct. The predicted class has the largest
 * output, the first one if several are equal; an output with one column, (N,1) or (N), is class 1
 * above the threshold, else class 0. Targets are class numbers, or one-hot vectors or probabilities
 * of the output's shape.
 *   axis int = 1                the axis of the classes in the output; -1: the last one
 *   ignore_index int = -100     targets with this class number do not count
 *   logits bool = true          an output with one column is logits; false: probabilities
 *   threshold float = 0.5       in [0, 1]: the probability above which such an output is class 1
 *   label string = none         its name in histories; none: "accuracy"
 */
static void accuracy_update(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    const gd_metric_accuracy_options *o = gd_metric_options(m);
    gd_class_batch b;
    if (!gd_class_batch_read(&b, output, target, weight, GD_CLASS_FORM(o))) return;
    add_correct(m, &b, gd_eq(b.predicted, b.actual));
}
static gd_tensor *accuracy_value(gd_metric *m) { return correct_fraction(m); }

/* Reads a batch for metrics that need a column for each class. */
static bool read_columns(gd_class_batch *b, gd_tensor *output, gd_tensor *target, gd_tensor *weight,
                         gd_class_form form, const char *metric) {
    if (!gd_class_batch_read(b, output, target, weight, form)) return false;
    if (b->binary)
        gd_tensor_fail(
            gd_fail(GD_E_SHAPE, "the output has one column; %s needs one for each class", metric));
    return !b->binary;
}

/*metric top_k
 * The fraction of samples whose class is among the k largest outputs. Of equal outputs, the lower
 * class number is ranked first, so top_k with k = 1 is the accuracy.
 *   k int = 5                   in [1, inf): the number of classes that count as a prediction
 *   axis int = 1                the axis of the classes in the output; -1: the last one
 *   ignore_index int = -100     targets with this class number do not count
 *   label string = top_{k}      its name in histories
 */
static void top_k_update(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    const gd_metric_top_k_options *o = gd_metric_options(m);
    gd_class_batch b;
    const gd_class_form form = {o->axis, o->ignore_index, true, 0.5};
    if (!read_columns(&b, output, target, weight, form, "top_k")) return;
    /* The rank of the target is the number of classes before it: (N,C,...) summed over classes. A
     * NaN is larger than any number, as for argmax. */
    gd_tensor *at = gd_unsqueeze(b.actual, 1), *own = gd_gather(b.scores, 1, at);
    gd_tensor *number = gd_arange(0, b.classes, .dtype = GD_I64);
    for (int i = 2; i < b.scores->rank; i++) number = gd_unsqueeze(number, -1);
    gd_tensor *before = gd_logical_or(gd_logical_not(gd_le(b.scores, own)),
                                      gd_logical_and(gd_eq(b.scores, own), gd_lt(number, at)));
    gd_tensor *rank = gd_sum(before, .axis = gd_dims(1));
    add_correct(m, &b, gd_lt(rank, gd_scalar_int(o->k)));
}
static gd_tensor *top_k_value(gd_metric *m) { return correct_fraction(m); }

/*metric perplexity
 * exp of the mean cross-entropy: a model that chooses among n classes (tokens) at random has
 * perplexity n. Outputs are logits.
 *   axis int = 1                the axis of the classes in the output; -1: the last one
 *   ignore_index int = -100     targets with this class number do not count
 *   label string = none         its name in histories; none: "perplexity"
 */
static void perplexity_update(gd_metric *m, gd_tensor *output, gd_tensor *target,
                              gd_tensor *weight) {
    const gd_metric_perplexity_options *o = gd_metric_options(m);
    gd_class_batch b;
    const gd_class_form form = {o->axis, o->ignore_index, true, 0.5};
    if (!read_columns(&b, output, target, weight, form, "perplexity")) return;
    gd_tensor *classes = b.actual;
    if (target->rank == output->rank && gd_is_float(target->dtype))
        classes = gd_cast(gd_movedim(target, gd_dims(o->axis), gd_dims(1)), GD_F64);
    gd_tensor *loss = gd_cross_entropy(gd_cast(b.scores, GD_F64), classes, .reduction = GD_NONE);
    gd_metric_add(m, "loss", gd_weighted_sum(loss, b.weight, false));
    gd_metric_add(m, "count", gd_sum(b.weight));
}
static gd_tensor *perplexity_value(gd_metric *m) {
    return gd_exp(gd_div(gd_metric_sum(m, "loss"), gd_metric_sum(m, "count")));
}

#include "train/metrics_class.gen.h"
