/* state_path.c - prefixes, parts and values, for saving and loading (state_path.h). */
#include "core/state_path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/freed.h"
#include "core/grow.h"
#include "core/number.h"

/* --- prefixes --------------------------------------------------------------------------------- */

gd_status gd_path_begin(gd_state_path *path, const char *name, size_t *before) {
    const size_t length = strlen(name);
    *before = path->length;
    if (length == 0) return GD_OK;
    if (path->length + length + 2 > path->room) {
        const size_t room = 2 * (path->length + length + 2);
        char *grown = gd_realloc(path->prefix, room);
        if (!grown) return gd_no_memory(NULL, "for a state");
        path->prefix = grown;
        path->room = room;
    }
    memcpy(path->prefix + path->length, name, length);
    path->length += length;
    path->prefix[path->length++] = '.';
    path->prefix[path->length] = 0;
    return GD_OK;
}

gd_status gd_path_begin_part(gd_state_path *path, const char *name, size_t *before) {
    GD_TRY(gd_path_begin(path, name ? name : "", before));
    path->part = path->length;
    return GD_OK;
}

void gd_path_end(gd_state_path *path, size_t before) {
    path->length = before;
    if (path->prefix) path->prefix[before] = 0;
    if (path->part > before) path->part = before;
}

char *gd_path_join(const gd_state_path *path, const char *name) {
    const size_t length = strlen(name);
    size_t before = path->length;
    char *text = gd_malloc(before + length + 1);
    if (!text) return NULL;
    if (before > 0 && length == 0) before--; /* the dot */
    if (before > 0) memcpy(text, path->prefix, before);
    memcpy(text + before, name, length);
    text[before + length] = 0;
    return text;
}

const char *gd_path_text(gd_state_path *path, const char *first, const char *second) {
    const size_t a = strlen(first), b = strlen(second);
    char *text = gd_malloc(a + b + 2);
    if (!text || !gd_grow(path->texts, path->n_texts, path->texts_room)) {
        gd_free(text);
        gd_no_memory(NULL, "for a state");
        return NULL;
    }
    memcpy(text, first, a);
    text[a] = '.';
    memcpy(text + a + 1, second, b + 1);
    return path->texts[path->n_texts++] = text;
}

/* --- callbacks -------------------------------------------------------------------------------- */

gd_status gd_path_when_done(gd_state_path *path, gd_state_done done, void *user) {
    if (!gd_grow(path->ends, path->n_ends, path->ends_room)) {
        done(user, false);
        return gd_no_memory(NULL, "for a state");
    }
    path->ends[path->n_ends++] = (struct gd_state_end){done, user};
    return GD_OK;
}

void gd_path_finish(gd_state_path *path, bool loaded) {
    while (path->n_ends > 0) {
        const struct gd_state_end end = path->ends[--path->n_ends];
        end.done(end.user, loaded);
    }
}

void gd_path_free(gd_state_path *path) {
    gd_path_finish(path, false);
    for (int i = 0; i < path->n_texts; i++) gd_free(path->texts[i]);
    gd_free(path->texts);
    gd_free(path->ends);
    gd_free(path->prefix);
    *path = (gd_state_path){0};
}

/* --- parts ------------------------------------------------------------------------------------ */

const gd_state_rules *gd_state_rules_of(const void *object, const char *name) {
    const gd_object *o = object;
    char part[160] = "the object";
    if (name) snprintf(part, sizeof part, "part '%.120s'", name);
    if (!o) gd_fail(GD_E_ARGUMENT, "%s is NULL", part);
    else if (gd_check_freed_object(o, part) != GD_OK) return NULL;
    else if (!o->class->state)
        gd_fail(GD_E_ARGUMENT, "%s is of the kind '%s', which has no state", part, o->class->name);
    else return o->class->state;
    return NULL;
}

static const char *name_of(const gd_state_part *part) { return part->name ? part->name : ""; }

gd_status gd_check_parts(gd_state_parts parts) {
    if (parts.count < 1 || !parts.at)
        return gd_fail(GD_E_ARGUMENT, "there are no parts; write gd_part(\"net\", net)");
    for (int64_t i = 0; i < parts.count; i++) {
        const char *name = name_of(&parts.at[i]);
        if (!gd_state_rules_of(parts.at[i].object, name)) return GD_E_ARGUMENT;
        if (strchr(name, '\n'))
            return gd_fail(GD_E_ARGUMENT, "the name of part %lld has a line break", (long long)i);
        for (int64_t k = 0; k < i; k++) {
            if (strcmp(name, name_of(&parts.at[k])) == 0)
                return gd_fail(GD_E_ARGUMENT, "two parts have the name '%s'", name);
            if (parts.at[i].object == parts.at[k].object)
                return gd_fail(GD_E_ARGUMENT, "parts '%s' and '%s' are the same object",
                               name_of(&parts.at[k]), name);
        }
    }
    return GD_OK;
}

/* --- values as text --------------------------------------------------------------------------- */

bool gd_value_float(const char *text, double *value) {
    char *end;
    if (*text == 0 || *text == ' ') return false;
    *value = gd_double_parse(text, &end);
    return *end == 0 && end != text;
}

bool gd_value_integer(const char *text, int64_t *value) {
    char *end;
    if (*text != '-' && (*text < '0' || *text > '9')) return false;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && *end == 0 && end[-1] != '-';
}

bool gd_value_unsigned(const char *text, uint64_t *value) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == 0;
}
