/* event.c - functions with which callbacks read and stop the run that sent an event. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradus/ops.h"
#include "train/callback.h"
#include "train/fit.h"

static const gd_event_source *source_of(const gd_event *event) {
    return event && event->run ? *(const gd_event_source *const *)event->run : NULL;
}

double gd_event_value(gd_event *event, const char *name) {
    const gd_event_source *source = source_of(event);
    return source && name ? source->value(event, name) : NAN;
}

const char *gd_event_name_at(gd_event *event, int index) {
    const gd_event_source *source = source_of(event);
    return source && index >= 0 ? source->name_at(event, index) : NULL;
}

void gd_event_stop(gd_event *event, const char *reason) {
    const gd_event_source *source = source_of(event);
    if (source) source->stop(event, reason ? reason : "a callback stopped it");
}

gd_tensors gd_event_inputs(gd_event *event) {
    const gd_event_source *source = source_of(event);
    return source && source->inputs ? source->inputs(event) : (gd_tensors){NULL, 0};
}

static gd_status fail_unknown_value(gd_event *event, const char *name) {
    char known[600] = "";
    const char *other;
    for (int i = 0; (other = gd_event_name_at(event, i)); i++) {
        if (strlen(known) + strlen(other) + 8 > sizeof known) {
            strcat(known, " ...");
            break;
        }
        if (i) strcat(known, ", ");
        strcat(known, other);
    }
    if (!*known) strcpy(known, "none");
    return gd_fail(GD_E_ARGUMENT, "there is no value '%.60s'; there are %s", name, known);
}

gd_status gd_event_read(gd_event *event, const char *name, double *value) {
    const char *known;
    for (int i = 0; (known = gd_event_name_at(event, i)); i++) {
        if (strcmp(known, name) != 0) continue;
        *value = gd_event_value(event, name);
        return GD_OK;
    }
    return fail_unknown_value(event, name);
}

void gd_event_warn(gd_event *event, const char *text) {
    const gd_event_source *source = source_of(event);
    gd_notice(GD_LOG_WARNING, "%s", text);
    if (source && source->say) source->say(event, text);
}

/* --- better values ---------------------------------------------------------------------------- */

bool gd_value_small_is_good(const char *name, gd_word mode) {
    static const char *const words[] = {"loss", "error", "mae", "mse", "perplexity", "nll"};
    if (mode != GD_AUTO) return mode == GD_MIN;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i])) return true;
    return false;
}

bool gd_value_improves(const char *name, gd_word mode, double value, double best) {
    if (isnan(value)) return false;
    if (isnan(best)) return true;
    return gd_value_small_is_good(name, mode) ? value < best : value > best;
}

gd_status gd_event_warn_lost(gd_event *event, gd_status status, const char *what, bool *warned) {
    if (status != GD_E_IO) return status;
    if (!*warned) {
        char message[GD_MESSAGE_MAX + 80];
        snprintf(message, sizeof message, "%s are lost, and training continues: %s", what,
                 gd_latest_failure());
        gd_event_warn(event, message);
    }
    *warned = true;
    return GD_OK;
}
