/* metrics_value.c - errors of regression: mae, mse, rmse and r2.
 *
 * Output and target have the same shape, except for dimensions of size 1: (N,1) and (N) are
 * compared element by element.
 */
#include <math.h>

#include "gradus/metrics.h"
#include "gradus/ops.h"
#include "train/metric_inputs.h"

/* Adds the weighted sum of squared or absolute errors, and the sum of weights. */
static void add_error(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight,
                      bool squared) {
    gd_f64_batch b;
    if (!gd_f64_batch_read(&b, output, target, weight)) return;
    gd_tensor *d = gd_sub(b.output, b.target);
    gd_metric_add(m, "error", gd_weighted_sum(squared ? gd_square(d) : gd_abs(d), b.weight, false));
    gd_metric_add(m, "count", gd_sum(b.weight));
}

static gd_tensor *mean_error(gd_metric *m) {
    return gd_div(gd_metric_sum(m, "error"), gd_metric_sum(m, "count"));
}

/*metric mae
 * The mean absolute error of all elements.
 *   label string = none   its name in histories; none: "mae"
 *   python MAE
 */
static void mae_update(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    add_error(m, output, target, weight, false);
}
static gd_tensor *mae_value(gd_metric *m) { return mean_error(m); }

/*metric mse
 * The mean squared error of all elements.
 *   label string = none   its name in histories; none: "mse"
 *   python MSE
 */
static void mse_update(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    add_error(m, output, target, weight, true);
}
static gd_tensor *mse_value(gd_metric *m) { return mean_error(m); }

/*metric rmse
 * The root of the mean squared error of all elements.
 *   label string = none   its name in histories; none: "rmse"
 *   python RMSE
 */
static void rmse_update(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    add_error(m, output, target, weight, true);
}
static gd_tensor *rmse_value(gd_metric *m) { return gd_sqrt(mean_error(m)); }

/*metric r2
 * The coefficient of determination: 1 - (sum of squared errors) / (sum of squared differences
 * between the targets and their mean). It is computed for each column of (N,...) and averaged over
 * the columns, as in scikit-learn. A column whose targets are all equal counts 1 if it has no
 * error, else 0.
 *   label string = none   its name in histories; none: "r2"
 */
static void r2_update(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    gd_f64_batch b;
    if (!gd_f64_batch_read(&b, output, target, weight)) return;
    gd_tensor *error = gd_square(gd_sub(b.output, b.target));
    gd_metric_add(m, "error", gd_weighted_sum(error, b.weight, true));
    gd_metric_add(m, "count", gd_sum(b.weight, .axis = gd_dims(0)));
    gd_metric_add(m, "target", gd_weighted_sum(b.target, b.weight, true));
    gd_metric_add(m, "square", gd_weighted_sum(gd_square(b.target), b.weight, true));
}
static gd_tensor *r2_value(gd_metric *m) {
    gd_tensor *count = gd_metric_sum(m, "count"), *sum = gd_metric_sum(m, "target"),
              *error = gd_metric_sum(m, "error"), *zero = gd_scalar_of(0, GD_F64),
              *one = gd_scalar_of(1, GD_F64);
    /* rounding may give slightly less than 0 if all targets are equal */
    gd_tensor *total = gd_sub(gd_metric_sum(m, "square"), gd_div(gd_square(sum), count));
    gd_tensor *exact = gd_where(gd_eq(error, zero), one, zero);
    gd_tensor *each = gd_where(gd_le(total, zero), exact, gd_sub(one, gd_div(error, total)));
    return gd_mean(gd_where(gd_eq(count, zero), gd_scalar_of(NAN, GD_F64), each));
}

#include "train/metrics_value.gen.h"
