/* monitor.c - watches whether a value of the run improves; see monitor.h. */
#include "train/monitor.h"

#include <math.h>

#include "gradus/ops.h"

gd_status gd_monitor_look(gd_monitor *m, gd_event *event, const char *name, gd_word mode,
                          double min_delta, bool *better) {
    double value;
    GD_TRY(gd_event_read(event, name, &value));
    const double margin = gd_value_small_is_good(name, mode) ? -min_delta : min_delta;
    *better = gd_value_improves(name, mode, value, m->best + margin);
    m->waited++;
    if (*better) *m = (gd_monitor){.best = value, .best_epoch = event->epoch, .waited = 0};
    return GD_OK;
}

gd_status gd_monitor_save(const gd_monitor *m, gd_state *state) {
    GD_TRY(gd_state_put_float(state, "best_value", m->best));
    GD_TRY(gd_state_put_integer(state, "best_epoch", m->best_epoch));
    return gd_state_put_integer(state, "waited", m->waited);
}

gd_status gd_monitor_load(gd_monitor *m, gd_loading *in) {
    GD_TRY(gd_loading_float(in, "best_value", &m->best));
    GD_TRY(gd_loading_integer(in, "best_epoch", &m->best_epoch));
    return gd_loading_integer(in, "waited", &m->waited);
}
