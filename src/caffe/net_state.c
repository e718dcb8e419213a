/* net_state.c - which layers belong to a net: its phase, level and stages, and their rules. */
#include <string.h>

#include "caffe/net_build.h"

static bool has_stage(const gd_caffe_net_settings *s, const char *stage) {
    for (int i = 0; i < s->n_stages; i++)
        if (strcmp(s->stages[i], stage) == 0) return true;
    return false;
}

static bool has_all_stages(const gd_caffe_net_settings *s, const gd_pb *rule, const char *field,
                           bool wanted) {
    for (size_t i = 0; i < gd_pb_count(rule, field); i++)
        if (has_stage(s, gd_pb_string_at(rule, field, i)) != wanted) return false;
    return true;
}

static bool meets(const gd_caffe_net_settings *s, const gd_pb *rule) {
    if (gd_pb_has(rule, "phase") && gd_pb_int_of(rule, "phase") != (int)s->phase) return false;
    if (gd_pb_has(rule, "min_level") && s->level < gd_pb_int_of(rule, "min_level")) return false;
    if (gd_pb_has(rule, "max_level") && s->level > gd_pb_int_of(rule, "max_level")) return false;
    return has_all_stages(s, rule, "stage", true) && has_all_stages(s, rule, "not_stage", false);
}

gd_status gd_caffe_check_included(const gd_pb *layer, const gd_caffe_net_settings *s,
                                  bool *included) {
    const gd_pb_list *include = gd_pb_get(layer, "include"), *exclude = gd_pb_get(layer, "exclude");
    if (include && exclude && include->count > 0 && exclude->count > 0)
        return gd_pb_fail(layer,
                          "layer '%s' (%s): it has rules to include and to exclude it; only "
                          "one kind is allowed",
                          gd_pb_string(layer, "name"), gd_pb_string(layer, "type"));
    *included = !include || include->count == 0;
    for (size_t i = 0; include && i < include->count; i++)
        if (meets(s, include->messages[i])) *included = true;
    for (size_t i = 0; exclude && i < exclude->count; i++)
        if (meets(s, exclude->messages[i])) *included = false;
    return GD_OK;
}
