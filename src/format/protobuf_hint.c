/* protobuf_hint.c - see protobuf_hint.h. */
#include "format/protobuf_hint.h"

#include <stdio.h>
#include <string.h>

#include "core/nearest.h"

static void append(char *text, size_t size, const char *separator, const char *more) {
    const size_t length = strlen(text);
    snprintf(text + length, size - length, "%s%s", separator, more);
}

static bool has_field(const gd_pb_schema *schema, const char *name) {
    return gd_pb_field_named(schema, name, strlen(name)) != NULL;
}

/* Whether a message around the innermost one has the field, so that a bracket may be missing. */
static bool is_outside(const gd_pb_path *path, const gd_pb *root, const char *name) {
    for (int i = path->depth - 1; i-- > 0;)
        if (path->at[i].message && has_field(path->at[i].message->schema, name)) return true;
    return path->depth > 0 && has_field(root->schema, name);
}

/* The fields whose messages have the field: "a field of convolution_param or pooling_param". */
static void list_inside(const gd_pb_schema *schema, const char *name, char *text, size_t size) {
    enum { MOST = 4 };
    const char *found[MOST];
    int n = 0, more = 0;
    for (int i = 0; i < schema->count; i++)
        if (schema->fields[i].message && has_field(schema->fields[i].message, name)) {
            if (n < MOST) found[n++] = schema->fields[i].name;
            else more++;
        }
    for (int i = 0; i < n; i++) {
        const bool last = i == n - 1 && more == 0;
        append(text, size, i == 0 ? "; it is a field of " : last ? " or " : ", ", found[i]);
    }
    if (more) append(text, size, ", ", "...");
}

void gd_pb_hint_field(const gd_pb_path *path, const gd_pb *root, const char *name, char *text,
                      size_t size) {
    const gd_pb *inner = path->depth ? path->at[path->depth - 1].message : root;
    text[0] = '\0';
    if (inner == NULL) return;
    if (is_outside(path, root, name)) {
        snprintf(text, size, "; is the closing bracket of line %d missing?", inner->line);
        return;
    }
    gd_nearest near = gd_nearest_to(name);
    for (int i = 0; i < inner->schema->count; i++)
        gd_nearest_try(&near, inner->schema->fields[i].name);
    if (!near.best || near.distance > 1) list_inside(inner->schema, name, text, size);
    if (near.best && *text == '\0') snprintf(text, size, "; did you mean %s?", near.best);
}

void gd_pb_hint_word(const gd_pb_enum *values, const char *word, char *expected, char *hint,
                     size_t size) {
    enum { MOST = 12 };
    gd_nearest near = gd_nearest_to(word);
    int count = 0;
    expected[0] = hint[0] = '\0';
    for (; values[count].name; count++) gd_nearest_try(&near, values[count].name);
    if (near.best) snprintf(hint, size, "; did you mean %s?", near.best);
    if (near.best && count > MOST) snprintf(expected, size, "one of %d words", count);
    for (int i = 0; i < count && (count <= MOST || !near.best); i++) {
        const bool last = i == count - 1, cut = i == MOST && !last;
        append(expected, size, i == 0 ? "" : last ? " or " : ", ", cut ? "..." : values[i].name);
        if (cut) break;
    }
}
