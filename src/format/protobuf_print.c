/* protobuf_print.c - writes the text format of protocol buffers: two spaces a level, one field a
 * line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/number.h"
#include "format/protobuf_tree.h"
#include "format/utf8.h"

typedef struct printer {
    gd_pb_sink sink;
    void *to;
} printer;

static gd_status put_text(printer *p, const char *text) {
    return p->sink(p->to, text, strlen(text));
}

static gd_status put_indent(printer *p, int depth) {
    for (int i = 0; i < depth; i++) GD_TRY(put_text(p, "  "));
    return GD_OK;
}

static void print_float(char text[GD_DOUBLE_TEXT], const gd_pb_list *list, size_t i) {
    const double value = gd_pb_float_at(list, i);
    if (isnan(value)) snprintf(text, GD_DOUBLE_TEXT, "nan");
    else if (isinf(value)) snprintf(text, GD_DOUBLE_TEXT, value < 0 ? "-inf" : "inf");
    else if (list->field->type == GD_PB_FLOAT)
        gd_double_print(text, gd_float_shortest((float)value));
    else gd_double_print(text, value);
}

static void print_integer(char *text, size_t size, const gd_pb_list *list, size_t i) {
    const int64_t value = list->ints[i];
    if (list->field->type == GD_PB_BOOL) snprintf(text, size, value ? "true" : "false");
    else if (list->field->type == GD_PB_UINT64)
        snprintf(text, size, "%llu", (unsigned long long)value);
    else snprintf(text, size, "%lld", (long long)value);
}

/* Writes bytes that are not UTF-8, and control characters, as three octal digits. */
static gd_status put_quoted(printer *p, const gd_pb_bytes *bytes) {
    const char *end = bytes->data + bytes->length;
    GD_TRY(put_text(p, "\""));
    for (const char *s = bytes->data; s < end;) {
        char text[8];
        const size_t length = gd_utf8_length(s, end);
        if (length > 1) {
            GD_TRY(p->sink(p->to, s, length));
            s += length;
            continue;
        }
        const char c = *s++;
        if (c == '\n') snprintf(text, sizeof text, "\\n");
        else if (c == '"' || c == '\\') snprintf(text, sizeof text, "\\%c", c);
        else if (length == 1 && c >= ' ' && c != 0x7F) snprintf(text, sizeof text, "%c", c);
        else snprintf(text, sizeof text, "\\%03o", (unsigned)(unsigned char)c);
        GD_TRY(put_text(p, text));
    }
    return put_text(p, "\"");
}

static const char *enum_name(const gd_pb_field *field, int64_t value) {
    for (const gd_pb_enum *e = field->values; e != NULL && e->name != NULL; e++)
        if (e->number == value) return e->name;
    return NULL;
}

static gd_status print_message(printer *p, const gd_pb *m, int depth);

static gd_status print_value(printer *p, const gd_pb_list *list, size_t i, int depth) {
    const gd_pb_field *field = list->field;
    char text[64];
    GD_TRY(put_indent(p, depth));
    GD_TRY(put_text(p, field->name));
    if (field->type == GD_PB_MESSAGE) {
        GD_TRY(put_text(p, " {\n"));
        GD_TRY(print_message(p, list->messages[i], depth + 1));
        GD_TRY(put_indent(p, depth));
        return put_text(p, "}\n");
    }
    GD_TRY(put_text(p, ": "));
    if (field->type == GD_PB_STRING || field->type == GD_PB_BYTES) {
        GD_TRY(put_quoted(p, &list->bytes[i]));
    } else {
        const char *name = field->type == GD_PB_ENUM ? enum_name(field, list->ints[i]) : NULL;
        if (field->type == GD_PB_FLOAT || field->type == GD_PB_DOUBLE) print_float(text, list, i);
        else print_integer(text, sizeof text, list, i);
        GD_TRY(put_text(p, name ? name : text));
    }
    return put_text(p, "\n");
}

static bool is_listed(const gd_pb *m, const gd_pb_field *field) {
    const uintptr_t first = (uintptr_t)m->schema->fields, at = (uintptr_t)field;
    return at >= first && at < first + (size_t)m->schema->count * sizeof *field;
}

static gd_status print_message(printer *p, const gd_pb *m, int depth) {
    if (depth > GD_PB_MAX_DEPTH)
        return gd_fail(GD_E_OVERFLOW, "a %s is deeper than %d levels", m->schema->name,
                       GD_PB_MAX_DEPTH);
    const int count = m->schema->count;
    for (int f = 0; f <= count; f++) /* the last turn: fields that the table does not have */
        for (int k = 0; k < m->count; k++)
            if (f == count ? !is_listed(m, m->lists[k].field)
                           : m->lists[k].field == &m->schema->fields[f])
                for (size_t i = 0; i < m->lists[k].count; i++)
                    GD_TRY(print_value(p, &m->lists[k], i, depth));
    return GD_OK;
}

gd_status gd_pb_write_text(gd_pb_doc *doc, gd_pb_sink sink, void *to) {
    GD_TRY(gd_pb_check(doc));
    printer p = {sink, to};
    return print_message(&p, &doc->root, 0);
}
