/* protobuf_change.c - changes the fields of messages that were read. */
#include <string.h>

#include "core/error.h"
#include "format/protobuf_tree.h"

static void remove_list(gd_pb *m, int at) {
    m->count--;
    memmove(m->lists + at, m->lists + at + 1, (size_t)(m->count - at) * sizeof *m->lists);
}

static int find_list(const gd_pb *m, const char *name) {
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->lists[i].field->name, name) == 0) return i;
    return -1;
}

void gd_pb_clear(gd_pb *m, const char *name) {
    const int at = find_list(m, name);
    if (at >= 0) remove_list(m, at);
}

/* Whether the values of a list can be those of the field. */
static bool takes_values(const gd_pb_field *field, const gd_pb_list *list) {
    if (field == NULL || field->type != list->field->type) return false;
    if (!(field->flags & GD_PB_REPEATED) && list->count > 1) return false;
    for (size_t i = 0; field->type == GD_PB_MESSAGE && i < list->count; i++)
        if (list->messages[i]->schema != field->message) return false;
    return true;
}

void gd_pb_move(gd_pb *to, const char *to_name, gd_pb *from, const char *name) {
    int at = find_list(from, name);
    if (at < 0 || to->doc->status != GD_OK) return;
    const gd_pb_field *field = gd_pb_field_named(to->schema, to_name, strlen(to_name));
    if (!takes_values(field, &from->lists[at])) {
        gd_pb_fail_document(to->doc, GD_E_ARGUMENT, "%s has no field '%s' for the values of %s.%s",
                            to->schema->name, to_name, from->schema->name, name);
        return;
    }
    gd_pb_list values = from->lists[at];
    values.field = field;
    remove_list(from, at);
    gd_pb_list *list = gd_pb_list_for(to, field);
    if (list == NULL)
        gd_pb_fail_document(to->doc, GD_E_MEMORY, "no memory for a %s", to->schema->name);
    else *list = values;
}

void gd_pb_convert(gd_pb *m, const gd_pb_schema *to) {
    int kept = 0;
    for (int i = 0; i < m->count; i++) {
        const char *name = m->lists[i].field->name;
        const gd_pb_field *field = gd_pb_field_named(to, name, strlen(name));
        if (!takes_values(field, &m->lists[i])) continue;
        m->lists[kept] = m->lists[i];
        m->lists[kept++].field = field;
    }
    m->count = kept;
    m->schema = to;
}

/* A copy of bytes, with a zero byte after them; NULL: no memory. */
static const char *copy_bytes(gd_pb_doc *doc, gd_pb_bytes bytes) {
    char *copy = gd_pb_alloc(doc, bytes.length + 1);
    if (!copy) return NULL;
    if (bytes.length > 0) memcpy(copy, bytes.data, bytes.length);
    copy[bytes.length] = '\0';
    return copy;
}

/* False: no memory. */
static bool copy_list(gd_pb *to, const gd_pb_list *from) {
    const gd_pb_field *field = from->field;
    gd_pb_list *list = from->count > 0 ? gd_pb_list_for(to, field) : NULL;
    if (!list) return from->count == 0;
    if (field->type == GD_PB_MESSAGE) {
        for (size_t i = 0; i < from->count; i++) {
            list = gd_pb_list_for(to, field); /* copying may have moved it */
            gd_pb *child = list ? gd_pb_child(to, list) : NULL;
            if (!child) return false;
            gd_pb_copy(child, from->messages[i]);
        }
        return true;
    }
    if ((field->flags & GD_PB_VIEW) == GD_PB_VIEW) {
        *list = *from;
        list->capacity = 0;
        return true;
    }
    void *room = gd_pb_room(to->doc, list, from->count);
    if (!room) return false;
    memcpy(room, from->items, from->count * gd_pb_item_size(field->type));
    gd_pb_bytes *bytes = room;
    for (size_t i = 0; field->type == GD_PB_STRING && i < from->count; i++)
        if (!(bytes[i].data = copy_bytes(to->doc, bytes[i]))) return false;
    return true;
}

void gd_pb_copy(gd_pb *to, const gd_pb *from) {
    for (int i = 0; i < from->count && to->doc->status == GD_OK; i++)
        if (!copy_list(to, &from->lists[i]))
            gd_pb_fail_document(to->doc, GD_E_MEMORY, "no memory for a %s", to->schema->name);
}

gd_status gd_pb_check(const gd_pb_doc *doc) {
    return doc->status == GD_OK ? GD_OK : gd_fail(doc->status, "%s", doc->failure);
}
