/* metric.h - what is measured over many batches.
 *
 *     gd_metric *accuracy = gd_metric_accuracy();
 *     for (gd_tensors batch; gd_loader_next(test, &batch);)
 *         gd_metric_update(accuracy, gd_module_forward(net, batch.at[0]), batch.at[1]);
 *     printf("%.2f %%\n", 100 * gd_metric_number(accuracy));
 *
 * metrics.h has the constructors, written by the build from the records; gd_fit takes them by name
 * (train.h). A metric keeps sums in tensors, and an update is ordinary ops that add to them: in a
 * jit it is a part of the plan, and nothing is read until somebody asks for the value.
 *
 * Metrics belong to the current scope, are used by one thread at a time, and have state (state.h).
 */
#ifndef GRADUS_METRIC_H
#define GRADUS_METRIC_H

#include "gradus/options.h"
#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* By the name of its record, with options as text: gd_metric_new("top_k", "k=5"). */
#define gd_metric_new(name, options) gd_metric_new_at(GD_HERE, name, options)
GD_API gd_metric *gd_metric_new_at(const char *site, const char *name, const char *options);

typedef struct gd_metric_update_options {
    gd_tensor *weight GD_DEFAULT_(nullptr); /* of each sample, floats of rank 1; NULL: 1 */
} gd_metric_update_options;

/* Adds a batch: what the net gave and what it should have given. Does nothing, and returns it, while
 * a failure is recorded. */
#define gd_metric_update(metric, output, target, ...) \
    GD_WITH_OPTIONS_(gd_metric_update_at(             \
        GD_HERE, metric, output, target,              \
        GD_OPTIONS_(gd_metric_update_options, (.weight = NULL) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_status gd_metric_update_at(const char *site, gd_metric *metric, gd_tensor *output,
                                     gd_tensor *target, const gd_metric_update_options *options);

/* The value over all batches since it was made or reset: an f64 tensor of rank 0; of a confusion
 * matrix, a matrix. NaN before the first batch. The number is that of rank 0. */
#define gd_metric_value(metric) gd_metric_value_at(GD_HERE, metric)
GD_API gd_tensor *gd_metric_value_at(const char *site, gd_metric *metric);
#define gd_metric_number(metric) gd_metric_number_at(GD_HERE, metric)
GD_API double gd_metric_number_at(const char *site, gd_metric *metric);

/* Sets the sums to 0. */
#define gd_metric_reset(metric) gd_metric_reset_at(GD_HERE, metric)
GD_API gd_status gd_metric_reset_at(const char *site, gd_metric *metric);

/* What histories and progress call it: "accuracy", "top_5". */
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
 *     gd_metric_define("mean_error\nMean absolute error.\n", (gd_metric_rules){.update = update, .value = value});
 */
typedef struct gd_metric_rules {
    gd_status (*check)(const void *options); /* of options together; NULL: all are fine */
    /* Calls gd_metric_add. `weight` is NULL or floats of rank 1, one for each sample. */
    void (*update)(gd_metric *metric, gd_tensor *output, gd_tensor *target, gd_tensor *weight);
    gd_tensor *(*value)(gd_metric *metric);
} gd_metric_rules;

#define gd_metric_define(...) gd_metric_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_metric_define_at(const char *site, const char *record, gd_metric_rules rules);

/* In update: adds to the sum of that name, f64 of this shape, which is 0 at first. */
GD_API void gd_metric_add(gd_metric *metric, const char *name, gd_tensor *value);
/* In value: the sum. Before the first update it is 0, of rank 0. */
GD_API gd_tensor *gd_metric_sum(gd_metric *metric, const char *name);
/* The options struct: the fields in the order of the record. */
GD_API const void *gd_metric_options(const gd_metric *metric);

#ifdef __cplusplus
}
#endif
#endif
