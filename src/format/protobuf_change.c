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

gd_status gd_pb_check(const gd_pb_doc *doc) {
    return doc->status == GD_OK ? GD_OK : gd_fail(doc->status, "%s", doc->failure);
}
