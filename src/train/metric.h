/* metric.h - the inside of a metric, and what records of the kind "metric" are.
 *
 * Rules of a record are functions of its file, named after it: NAME_check, NAME_update, NAME_value
 * (gradus/metric.h). A record may have an option `label string = top_{k}`, the metric's name in
 * histories, in which {k} stands for the option k. Without one the name is the record's.
 */
#ifndef GRADUS_TRAIN_METRIC_H
#define GRADUS_TRAIN_METRIC_H

#include "core/error.h"
#include "core/object.h"
#include "core/state.h"
#include "gradus/metric.h"
#include "ops/maker.h"

enum { GD_METRIC_NAME = 80 };

typedef struct gd_metric_total {
    char name[GD_METRIC_NAME];
    gd_tensor *sum;  /* f64, held */
    gd_tensor *next; /* in an update: its new value; NULL: it stays */
} gd_metric_total;

struct gd_metric {
    gd_object object;
    const gd_maker *maker;
    void *options;
    char label[GD_METRIC_NAME];
    gd_metric_total *totals; /* in the order in which they were first added to */
    int n_totals, totals_room;
    int replaced; /* counts loads that replaced the sums: a jit traces again */
    gd_tensor
        *reset_mark; /* written where a traced function resets a metric without sums; or NULL */
    bool updating;   /* gd_metric_add may be called */
    gd_status added; /* the first failure of gd_metric_add in this update */
};

/* Behind the typed constructors. */
gd_metric *gd_metric_make(const char *site, const gd_maker *maker, const void *options);

/* The name of metric number `index` of a list in a history: the second one of a name gets "_2" and so
 * on. Returns `text`. */
enum { GD_METRIC_UNIQUE = GD_METRIC_NAME + 16 };
const char *gd_metric_unique_name(gd_metric *const *list, int64_t index,
                                  char text[GD_METRIC_UNIQUE]);

/* f64 zeros of this shape, also in a trace. `device` NULL: the default one. */
gd_tensor *gd_metric_zeros(gd_device *device, int rank, const int64_t *dims);

/* Whether its value is a number, as histories have it. The record of another says so: "-> matrix". */
static inline bool gd_metric_is_number(const gd_metric *metric) {
    return metric->maker->record.n_outputs == 0;
}

extern const gd_state_rules gd_metric_state_rules; /* metric_state.c */

#endif
