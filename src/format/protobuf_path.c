/* protobuf_path.c - access to fields by paths, with the defaults of the schema. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/number.h"
#include "format/protobuf_tree.h"

static bool has_name(const gd_pb_field *field, const char *name, size_t length) {
    return strncmp(field->name, name, length) == 0 && field->name[length] == '\0';
}

/* The field at the end of a path; NULL: there is none. *list: its values, or NULL. */
static const gd_pb_field *find_field(const gd_pb *m, const char *path, const gd_pb_list **list) {
    const gd_pb_schema *schema = m ? m->schema : NULL;
    *list = NULL;
    while (schema != NULL) {
        const size_t length = strcspn(path, ".");
        const gd_pb_list *values = NULL;
        for (int i = 0; m != NULL && i < m->count && values == NULL; i++)
            if (has_name(m->lists[i].field, path, length)) values = &m->lists[i];
        const gd_pb_field *field = values ? values->field : gd_pb_field_named(schema, path, length);
        if (values && values->count == 0) values = NULL;
        if (field == NULL) return NULL;
        if (path[length] == '\0') {
            *list = values;
            return field;
        }
        m = values && field->type == GD_PB_MESSAGE ? values->messages[0] : NULL;
        schema = field->message;
        path += length + 1;
    }
    return NULL;
}

/* --- values ----------------------------------------------------------------------------------- */

const gd_pb_list *gd_pb_list_of(const gd_pb *m, const char *path) {
    const gd_pb_list *list;
    find_field(m, path, &list);
    return list;
}

bool gd_pb_has(const gd_pb *m, const char *path) { return gd_pb_list_of(m, path) != NULL; }

static int64_t default_of_enum(const gd_pb_field *field) {
    for (const gd_pb_enum *e = field->values; field->by_default && e && e->name; e++)
        if (strcmp(e->name, field->by_default) == 0) return e->number;
    return field->values ? field->values[0].number : 0;
}

int64_t gd_pb_int_of(const gd_pb *m, const char *path) {
    const gd_pb_list *list;
    const gd_pb_field *field = find_field(m, path, &list);
    if (field == NULL || field->type > GD_PB_ENUM) return 0;
    if (list != NULL) return list->ints[0];
    if (field->type == GD_PB_ENUM) return default_of_enum(field);
    if (field->by_default == NULL) return 0;
    if (field->type == GD_PB_BOOL) return strcmp(field->by_default, "true") == 0;
    return strtoll(field->by_default, NULL, 10);
}

double gd_pb_float_of(const gd_pb *m, const char *path) {
    const gd_pb_list *list;
    const gd_pb_field *field = find_field(m, path, &list);
    if (field == NULL || (field->type != GD_PB_FLOAT && field->type != GD_PB_DOUBLE)) return 0;
    if (list == NULL) return field->by_default ? gd_double_parse(field->by_default, NULL) : 0;
    const double value = gd_pb_float_at(list, 0);
    return field->type == GD_PB_FLOAT ? gd_float_shortest((float)value) : value;
}

const char *gd_pb_string_of(const gd_pb *m, const char *path) {
    const gd_pb_list *list;
    const gd_pb_field *field = find_field(m, path, &list);
    if (field == NULL || field->type != GD_PB_STRING) return "";
    if (list != NULL) return list->bytes[0].data;
    return field->by_default ? field->by_default : "";
}

const char *gd_pb_word_of(const gd_pb *m, const char *path) {
    const gd_pb_list *list;
    const gd_pb_field *field = find_field(m, path, &list);
    if (field == NULL || field->type != GD_PB_ENUM) return "";
    const int64_t number = list ? list->ints[0] : default_of_enum(field);
    for (const gd_pb_enum *e = field->values; e != NULL && e->name != NULL; e++)
        if (e->number == number) return e->name;
    return "";
}

const gd_pb *gd_pb_message_of(const gd_pb *m, const char *path) {
    const gd_pb_list *list = gd_pb_list_of(m, path);
    return list && list->field->type == GD_PB_MESSAGE ? list->messages[0] : NULL;
}

/* --- failures --------------------------------------------------------------------------------- */

gd_status gd_pb_fail(const gd_pb *at, const char *format, ...) {
    char text[GD_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    gd_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *name = at ? at->doc->name : NULL;
    if (name == NULL) return gd_fail(GD_E_FORMAT, "%s", text);
    if (at->line > 0) return gd_fail(GD_E_FORMAT, "%s:%d:%d: %s", name, at->line, at->column, text);
    return gd_fail(GD_E_FORMAT, "%s: byte %zu: %s", name, at->offset, text);
}
