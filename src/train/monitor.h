/* monitor.h - watches whether a value of the run improves from epoch to epoch. */
#ifndef GRADUS_TRAIN_MONITOR_H
#define GRADUS_TRAIN_MONITOR_H

#include "train/callback.h"

typedef struct gd_monitor {
    double best;        /* NaN: no value yet */
    int64_t best_epoch; /* from 0 */
    int64_t waited;     /* epochs since then */
} gd_monitor;

/* Reads the value after an epoch. *better: it exceeds the best so far by more than min_delta; NaN
 * never does. */
gd_status gd_monitor_look(gd_monitor *monitor, gd_event *event, const char *name, gd_word mode,
                          double min_delta, bool *better);

gd_status gd_monitor_save(const gd_monitor *monitor, gd_state *state);
gd_status gd_monitor_load(gd_monitor *monitor, gd_loading *in);

#endif
