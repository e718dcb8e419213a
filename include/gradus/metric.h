/* metric.h - metrics, which are accumulated over many batches.
 *
 *     gd_metric *accuracy = gd_metric_accuracy();
 *     for (gd_tensors batch; gd_loader_next(test, &batch);)
 *         gd_metric_update(accuracy, gd_module_forward(net, batch.at[0]), batch.at[1]);
 *     printf("%.2f %%\n", 100 * gd_metric_number(accuracy));
 *
 * The build generates metrics.h, the constructors, from the records; gd_compile takes metrics by
 * name (train.h). A metric accumulates sums in tensors with ordinary ops. In a jit an update is
 * part of the plan, and the host reads nothing until gd_metric_number.
 *
 * Metrics belong to the current scope, are used by one thread at a time, and have state (state.h).
 */
#ifndef GRADUS_METRIC_H
#define GRADUS_METRIC_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/options.h"
#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A metric by the name of its record, with options as text: gd_metric_new("top_k", "k=5"). */
#define gd_metric_new(name, options) gd_metric_new_at(GD_HERE, name, options)
GD_API gd_metric *gd_metric_new_at(const char *site, const char *name, const char *options);

typedef struct gd_metric_update_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    gd_tensor *weight GD_DEFAULT_(nullptr); /* of each sample, floats of rank 1; NULL: 1 */
} GD_GIVEN_BY_NAME_ gd_metric_update_options;
#define GD_METRIC_UPDATE_OPTIONS_(...) \
    GD_OPTIONS_(gd_metric_update_options, (.weight = NULL), __VA_ARGS__)

/* Adds a batch: the outputs of the net and the targets. While a failure is recorded, it does
 * nothing and returns that failure. */
#define gd_metric_update(metric, output, target, ...)                     \
    GD_WITH_OPTIONS_(gd_metric_update_at(GD_HERE, metric, output, target, \
                                         GD_METRIC_UPDATE_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_metric_update_at(const char *site, gd_metric *metric, gd_tensor *output,
                                     gd_tensor *target, const gd_metric_update_options *options);

/* The value over all batches since creation or the last reset: an f64 tensor of rank 0, or a matrix
 * for a confusion matrix. NaN before the first batch. gd_metric_number reads a value of rank 0. */
#define gd_metric_value(metric) gd_metric_value_at(GD_HERE, metric)
GD_API gd_tensor *gd_metric_value_at(const char *site, gd_metric *metric);
#define gd_metric_number(metric) gd_metric_number_at(GD_HERE, metric)
GD_API double gd_metric_number_at(const char *site, gd_metric *metric);

/* Sets the sums to 0. */
#define gd_metric_reset(metric) gd_metric_reset_at(GD_HERE, metric)
GD_API gd_status gd_metric_reset_at(const char *site, gd_metric *metric);

/* The name in histories and progress output: "accuracy", "top_5". */
GD_API const char *gd_metric_name(const gd_metric *metric);

/* --- user-defined metrics --------------------------------------------------------------------- */

/* A metric is a record (CONTRIBUTING.md has the form) and two functions of ordinary ops:
 *
 *     static void update(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
 *         gd_metric_add(m, "error", gd_sum(gd_abs(gd_sub(output, target))));
 *         gd_metric_add(m, "count", gd_scalar_of(gd_tensor_numel(output), GD_F64));
 *     }
 *     static gd_tensor *value(gd_metric *m) {
 *         return gd_div(gd_metric_sum(m, "error"), gd_metric_sum(m, "count"));
 *     }
 *     gd_metric_define("mean_error\nMean absolute error.\n",
 *                      (gd_metric_rules){.update = update, .value = value});
 */
typedef struct gd_metric_rules {
    gd_status (*check)(const void *options); /* checks combinations of options; may be NULL */
    /* Calls gd_metric_add. `weight` is NULL or floats of rank 1, one for each sample. */
    void (*update)(gd_metric *metric, gd_tensor *output, gd_tensor *target, gd_tensor *weight);
    gd_tensor *(*value)(gd_metric *metric);
} gd_metric_rules;

#define gd_metric_define(...) gd_metric_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_metric_define_at(const char *site, const char *record, gd_metric_rules rules);

/* In update: adds to the sum of that name, an f64 tensor of this shape, which starts at 0. */
GD_API void gd_metric_add(gd_metric *metric, const char *name, gd_tensor *value);
/* In value: the sum. Before the first update it is 0, of rank 0. */
GD_API gd_tensor *gd_metric_sum(gd_metric *metric, const char *name);
/* The options struct, with the fields in the order of the record. */
GD_API const void *gd_metric_options(const gd_metric *metric);

#ifdef __cplusplus
}
#endif
#endif
