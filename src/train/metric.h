/* metric.h - the inside of a metric. Rules of a record are functions of its file, named after it:
 * NAME_check, NAME_update, NAME_value (gradus/metric.h). Each record may have a rule for its name in
 * histories: an option `label string = "top_{k}"`, in which {k} stands for the option k. */
#ifndef GRADUS_TRAIN_METRIC_H
#define GRADUS_TRAIN_METRIC_H

#include "core/error.h"
#include "core/object.h"
#include "gradus/metric.h"
#include "ops/maker.h"

/* Behind the typed constructors. */
gd_metric *gd_metric_make(const char *site, const gd_maker *maker, const void *options);

#endif
