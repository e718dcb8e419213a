/* metrics_score.c - precision, recall, F1 and the confusion matrix.
 *
 * The first three keep sums of weights for each class: of samples of the class ("actual"), of
 * samples predicted as the class ("predicted"), and of those that are both ("right").
 */
#include <math.h>

#include "gradus/metrics.h"
#include "gradus/ops.h"
#include "train/metric_inputs.h"

static void add_counts(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight,
                       gd_class_form form, gd_word average) {
    gd_class_batch b;
    if (!gd_class_batch_read(&b, output, target, weight, form)) return;
    if (average == GD_BINARY && b.classes != 2) {
        gd_tensor_fail(gd_fail(GD_E_SHAPE,
                               "average is binary and the output has %lld classes; macro, "
                               "micro and weighted take any number",
                               (long long)b.classes));
        return;
    }
    gd_tensor *right = gd_cast(gd_eq(b.predicted, b.actual), GD_F64);
    gd_metric_add(m, "actual", gd_class_sum(&b, b.actual, b.weight));
    gd_metric_add(m, "predicted", gd_class_sum(&b, b.predicted, b.weight));
    gd_metric_add(m, "right", gd_class_sum(&b, b.actual, gd_mul(right, b.weight)));
    /* positive after outputs with one column: average=auto is binary for them */
    gd_metric_add(m, "binary", gd_scalar_of(b.binary, GD_F64));
}

static gd_tensor *scalar(double value) { return gd_scalar_of(value, GD_F64); }

/* The mean over classes that occur or are predicted. */
static gd_tensor *mean_of_present(gd_tensor *each, gd_tensor *actual, gd_tensor *predicted) {
    gd_tensor *present = gd_cast(gd_gt(gd_add(actual, predicted), scalar(0)), GD_F64);
    return gd_div(gd_sum(gd_mul(each, present)), gd_sum(present));
}

/* The score part / total of each class, averaged; both are (classes). 0 / 0 counts as 0. */
static gd_tensor *average_score(gd_metric *m, gd_tensor *part, gd_tensor *total, gd_word average) {
    gd_tensor *actual = gd_metric_sum(m, "actual"), *predicted = gd_metric_sum(m, "predicted");
    if (actual->rank == 0) return scalar(NAN); /* before the first batch */
    gd_tensor *each = gd_divide_or(part, total, 0), *all = gd_sum(actual), *value;
    gd_tensor *binary = gd_select(each, 0, 1);
    if (average == GD_BINARY) value = binary;
    else if (average == GD_MICRO) value = gd_divide_or(gd_sum(part), gd_sum(total), 0);
    else if (average == GD_WEIGHTED) value = gd_div(gd_sum(gd_mul(each, actual)), all);
    else value = mean_of_present(each, actual, predicted);
    if (average == GD_AUTO)
        value = gd_where(gd_gt(gd_metric_sum(m, "binary"), scalar(0)), binary, value);
    return gd_where(gd_eq(all, scalar(0)), scalar(NAN), value);
}

/*metric precision
 * The fraction of the samples predicted as a class that are of that class. 0 for a class that is
 * never predicted. `average` combines the classes: binary is the value of class 1 of two; macro is
 * the mean over the classes that occur or are predicted; weighted is the mean over the classes,
 * weighted by their number of samples; micro counts all classes together, which is the accuracy;
 * auto is binary for an output with one column, else macro.
 *   average {auto, binary, macro, micro, weighted} = auto
 *   axis int = 1                the axis of the classes in the output; -1: the last one
 *   ignore_index int = -100     targets with this class number do not count
 *   logits bool = true          an output with one column is logits; false: probabilities
 *   threshold float = 0.5       in [0, 1]: the probability above which such an output is class 1
 *   label string = none         its name in histories; none: "precision"
 */
static void precision_update(gd_metric *m, gd_tensor *output, gd_tensor *target,
                             gd_tensor *weight) {
    const gd_metric_precision_options *o = gd_metric_options(m);
    add_counts(m, output, target, weight, GD_CLASS_FORM(o), o->average);
}
static gd_tensor *precision_value(gd_metric *m) {
    const gd_metric_precision_options *o = gd_metric_options(m);
    return average_score(m, gd_metric_sum(m, "right"), gd_metric_sum(m, "predicted"), o->average);
}

/*metric recall
 * The fraction of the samples of a class that are predicted as that class. 0 for a class without
 * samples. `average` is as for precision.
 *   average {auto, binary, macro, micro, weighted} = auto
 *   axis int = 1                the axis of the classes in the output; -1: the last one
 *   ignore_index int = -100     targets with this class number do not count
 *   logits bool = true          an output with one column is logits; false: probabilities
 *   threshold float = 0.5       in [0, 1]: the probability above which such an output is class 1
 *   label string = none         its name in histories; none: "recall"
 */
static void recall_update(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    const gd_metric_recall_options *o = gd_metric_options(m);
    add_counts(m, output, target, weight, GD_CLASS_FORM(o), o->average);
}
static gd_tensor *recall_value(gd_metric *m) {
    const gd_metric_recall_options *o = gd_metric_options(m);
    return average_score(m, gd_metric_sum(m, "right"), gd_metric_sum(m, "actual"), o->average);
}

/*metric f1
 * The harmonic mean of precision and recall of each class: 2 right / (predicted + actual), in
 * numbers of samples. 0 for a class that neither occurs nor is predicted. `average` is as for
 * precision.
 *   average {auto, binary, macro, micro, weighted} = auto
 *   axis int = 1                the axis of the classes in the output; -1: the last one
 *   ignore_index int = -100     targets with this class number do not count
 *   logits bool = true          an output with one column is logits; false: probabilities
 *   threshold float = 0.5       in [0, 1]: the probability above which such an output is class 1
 *   label string = none         its name in histories; none: "f1"
 */
static void f1_update(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    const gd_metric_f1_options *o = gd_metric_options(m);
    add_counts(m, output, target, weight, GD_CLASS_FORM(o), o->average);
}
static gd_tensor *f1_value(gd_metric *m) {
    const gd_metric_f1_options *o = gd_metric_options(m);
    gd_tensor *twice = gd_mul(gd_metric_sum(m, "right"), scalar(2));
    gd_tensor *both = gd_add(gd_metric_sum(m, "predicted"), gd_metric_sum(m, "actual"));
    return average_score(m, twice, both, o->average);
}

/*metric confusion -> matrix
 * The confusion matrix, (C,C): element [i,j] is the number of samples of class i that are predicted
 * as class j. For an output with one column it is (2,2). Histories hold only numbers and leave it
 * out: read it with gd_metric_value. NaN, of rank 0, before the first batch; zeros after a reset.
 *   axis int = 1                the axis of the classes in the output; -1: the last one
 *   ignore_index int = -100     targets with this class number do not count
 *   logits bool = true          an output with one column is logits; false: probabilities
 *   threshold float = 0.5       in [0, 1]: the probability above which such an output is class 1
 *   label string = none         its name; none: "confusion"
 */
static void confusion_update(gd_metric *m, gd_tensor *output, gd_tensor *target,
                             gd_tensor *weight) {
    const gd_metric_confusion_options *o = gd_metric_options(m);
    gd_class_batch b;
    if (!gd_class_batch_read(&b, output, target, weight, GD_CLASS_FORM(o))) return;
    gd_tensor *cell = gd_add(gd_mul(b.actual, gd_scalar_int(b.classes)), b.predicted);
    gd_tensor *zeros = gd_zeros(gd_dims(b.classes * b.classes), .dtype = GD_F64);
    gd_tensor *counts = gd_index_add(zeros, 0, gd_flatten(cell), gd_flatten(b.weight));
    gd_metric_add(m, "matrix", gd_reshape(counts, gd_dims(b.classes, b.classes)));
}
static gd_tensor *confusion_value(gd_metric *m) {
    gd_tensor *matrix = gd_metric_sum(m, "matrix");
    return matrix->rank == 0 ? scalar(NAN) : gd_clone(matrix);
}

#include "train/metrics_score.gen.h"
