/* metric.h - the internals of metrics, and records of the kind "metric".
 *
 * Rules of a record are functions of its file, named after it: NAME_check, NAME_update, NAME_value
 * (gradus/metric.h). A record may have an option `label string = top_{k}`, the metric's name in
 * histories, in which {k} is replaced by the option k. Without it the record's name is used.
 */
#ifndef GRADUS_TRAIN_METRIC_H
#define GRADUS_TRAIN_METRIC_H

#include "core/error.h"
#include "core/object.h"
#include "core/state.h"
#include "gradus/metric.h"
#include "dispatch/factory.h"

enum { GD_METRIC_NAME = 80 };

typedef struct gd_metric_total {
    char name[GD_METRIC_NAME];
    gd_tensor *sum;  /* f64, retained */
    gd_tensor *next; /* in an update: the new value; NULL: unchanged */
} gd_metric_total;

struct gd_metric {
    gd_object object;
    const gd_factory *factory;
    void *options;
    char label[GD_METRIC_NAME];
    gd_metric_total *totals; /* in the order of their first addition */
    int n_totals, totals_room;
    int replaced;          /* counts loads that replaced the sums: a jit traces again */
    gd_tensor *reset_mark; /* written if a traced function resets a metric without sums; or NULL */
    bool updating;         /* gd_metric_add may be called */
    gd_status added;       /* the first failure of gd_metric_add in this update */
};

/* The typed constructors call it. */
gd_metric *gd_metric_make(const char *site, const gd_factory *factory, const void *options);

/* The name of metric `index` of a list in a history: a second one of the same name gets "_2" and so
 * on. Returns `text`. */
enum { GD_METRIC_UNIQUE = GD_METRIC_NAME + 16 };
const char *gd_metric_unique_name(gd_metric *const *list, int64_t index,
                                  char text[GD_METRIC_UNIQUE]);

/* f64 zeros of this shape, also in a trace. `device` NULL: the default one. */
gd_tensor *gd_metric_zeros(gd_device *device, int rank, const int64_t *dims);

/* Whether its value is a scalar, for histories. Otherwise the record has "-> matrix". */
static inline bool gd_metric_is_scalar(const gd_metric *metric) {
    return metric->factory->record.n_outputs == 0;
}

extern const gd_state_rules gd_metric_state_rules; /* metric_state.c */

#endif
