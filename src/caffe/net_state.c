/* net_state.c - which layers belong to a net: its phase, level and stages, and their rules; outputs that
 * are named. */
#include <stdio.h>
#include <string.h>

#include "caffe/net_build.h"
#include "dispatch/intern.h"
#include "nn/net.h"

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

/* --- named outputs ---------------------------------------------------------------------------- */

enum { NOT_NEEDED, NEEDED }; /* of a blob: does an output or a later layer that is kept read it? */

static gd_status mark(net_builder *b, gd_name_map *blobs, const char *name, int need) {
    return gd_set_entry_number(blobs, name, need) ? GD_OK : gd_no_memory(b->net->file, "for a net");
}

static gd_status mark_all(net_builder *b, gd_name_map *blobs, const gd_pb *layer, const char *field,
                          int need) {
    for (size_t i = 0; i < gd_pb_count(layer, field); i++)
        GD_TRY(mark(b, blobs, gd_pb_string_at(layer, field, i), need));
    return GD_OK;
}

static gd_status mark_outputs(net_builder *b, gd_name_map *blobs) {
    char name[GD_MAX_NAME + 1];
    for (const char *s = b->settings->outputs; *(s += strspn(s, " "));) {
        const size_t n = strcspn(s, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, s);
        const char *kept = gd_intern(name);
        if (!kept) return gd_no_memory(b->net->file, "for a net");
        GD_TRY(mark(b, blobs, kept, NEEDED));
        s += n;
    }
    return GD_OK;
}

/* Walks back from the outputs. A layer's tops are its own from here on: an earlier top of the same name is
 * another value, which is needed if the layer reads it. */
static gd_status drop_layers(net_builder *b, gd_name_map *blobs) {
    gd_caffe_text_net *net = b->net;
    int first = net->n_layers; /* of those that are kept, at the end of the list */
    for (int i = net->n_layers - 1; i >= 0; i--) {
        const gd_pb *layer = net->layers[i];
        bool needed = gd_caffe_is_data(gd_pb_string(layer, "type"));
        for (size_t k = 0; k < gd_pb_count(layer, "top"); k++)
            needed |= gd_entry_number(blobs, gd_pb_string_at(layer, "top", k)) == NEEDED;
        if (!needed) continue;
        GD_TRY(mark_all(b, blobs, layer, "top", NOT_NEEDED));
        GD_TRY(mark_all(b, blobs, layer, "bottom", NEEDED));
        net->layers[--first] = layer;
    }
    net->n_layers -= first;
    memmove(net->layers, net->layers + first, (size_t)net->n_layers * sizeof *net->layers);
    return GD_OK;
}

gd_status gd_caffe_drop_unneeded(net_builder *b) {
    gd_name_map blobs = {0};
    if (!b->settings->outputs) return GD_OK;
    gd_status status = mark_outputs(b, &blobs);
    if (status == GD_OK) status = drop_layers(b, &blobs);
    gd_name_map_free(&blobs);
    return status;
}
