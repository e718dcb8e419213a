/* metric_inputs.h - outputs and targets in the forms that metrics compare: class numbers or f64. */
#ifndef GRADUS_TRAIN_METRIC_INPUTS_H
#define GRADUS_TRAIN_METRIC_INPUTS_H

#include "train/metric.h"

/* Options common to the metrics of classifiers. */
typedef struct gd_class_form {
    int64_t axis;         /* of the classes in the output */
    int64_t ignore_index; /* targets of this class do not count */
    bool logits;          /* outputs with one column are logits, else probabilities */
    double threshold;     /* the probability above which such an output is class 1 */
} gd_class_form;
#define GD_CLASS_FORM(o) \
    ((gd_class_form){(o)->axis, (o)->ignore_index, (o)->logits, (o)->threshold})

/* A batch of classes. Shapes are (N, ...): those of the output without its axis of classes. */
typedef struct gd_class_batch {
    int64_t classes;   /* of the output; 2 if it has one column */
    bool binary;       /* it has one column */
    gd_tensor *scores; /* the output, with its classes at axis 1; or (N, ...) if binary */
    gd_tensor *predicted, *actual; /* i64; 0 for a target that is ignored */
    gd_tensor *weight;             /* f64; 0 for a target that is ignored */
} gd_class_batch;

/* Records a failure and returns false if the shapes of output and target do not match. */
bool gd_class_batch_read(gd_class_batch *batch, gd_tensor *output, gd_tensor *target,
                         gd_tensor *weight, gd_class_form form);
/* The logits of binary scores. */
gd_tensor *gd_class_logits(const gd_class_batch *batch, gd_class_form form);
/* f64 (classes): the sum of weights of each class in `index`. */
gd_tensor *gd_class_sum(const gd_class_batch *batch, gd_tensor *index, gd_tensor *weight);

/* A batch of values: all f64 in the shape of the output. */
typedef struct gd_f64_batch {
    gd_tensor *output, *target, *weight;
} gd_f64_batch;
bool gd_f64_batch_read(gd_f64_batch *batch, gd_tensor *output, gd_tensor *target,
                       gd_tensor *weight);

/* The sum of x * weight over axis 0 or over all elements; an x of NaN counts only if its weight is
 * not 0. */
gd_tensor *gd_weighted_sum(gd_tensor *x, gd_tensor *weight, bool columns);

/* a / b; `otherwise` where b is 0. */
gd_tensor *gd_divide_or(gd_tensor *a, gd_tensor *b, double otherwise);

#endif
