/* protobuf.c - trees of messages: memory, access, filling, and files. See protobuf.h. */
#include "format/protobuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "core/number.h"
#include "format/file.h"
#include "format/protobuf_tree.h"

/* --- memory ----------------------------------------------------------------------------------- */

typedef struct gd_pb_block {
    struct gd_pb_block *next;
    _Alignas(16) char data[];
} gd_pb_block;

enum { BLOCK_BYTES = 1 << 14 };

static void *new_block(gd_pb_doc *doc, size_t bytes) {
    size_t block_bytes;
    gd_pb_block *block =
        gd_add_size(sizeof *block, bytes, &block_bytes) ? gd_malloc(block_bytes) : NULL;
    if (block == NULL) return NULL;
    block->next = doc->blocks;
    doc->blocks = block;
    return block->data;
}

void *gd_pb_alloc(gd_pb_doc *doc, size_t bytes) {
    size_t rounded;
    if (!gd_add_size(bytes, 15, &rounded)) return NULL;
    rounded &= ~(size_t)15;
    /* a large allocation gets a separate block; the current block keeps its free bytes */
    if (rounded > BLOCK_BYTES / 4) return new_block(doc, rounded);
    if (rounded > doc->free_bytes) {
        char *data = new_block(doc, BLOCK_BYTES);
        if (data == NULL) return NULL;
        doc->free_at = data;
        doc->free_bytes = BLOCK_BYTES;
    }
    void *result = doc->free_at;
    doc->free_at += rounded;
    doc->free_bytes -= rounded;
    return result;
}

gd_pb_doc *gd_pb_new(const gd_pb_schema *schema) {
    gd_pb_doc *doc = gd_calloc(1, sizeof *doc);
    if (doc == NULL) {
        gd_fail(GD_E_MEMORY, "no memory for a %s", schema->name);
        return NULL;
    }
    doc->root = (gd_pb){.schema = schema, .doc = doc};
    doc->spare = (gd_pb){.schema = schema, .doc = doc};
    return doc;
}

void gd_pb_free(gd_pb_doc *doc) {
    if (doc == NULL) return;
    for (gd_pb_block *block = doc->blocks, *next; block != NULL; block = next) {
        next = block->next;
        gd_free(block);
    }
    gd_free(doc->data);
    gd_free(doc);
}

gd_pb_doc *gd_pb_new_named(const gd_pb_schema *schema, const char *name) {
    gd_pb_doc *doc = gd_pb_new(schema);
    const size_t bytes = strlen(name) + 1;
    char *copy = doc ? gd_pb_alloc(doc, bytes) : NULL;
    if (copy == NULL) {
        gd_pb_free(doc);
        gd_fail(GD_E_MEMORY, "no memory for a %s", schema->name);
        return NULL;
    }
    doc->name = memcpy(copy, name, bytes);
    return doc;
}

gd_pb *gd_pb_root(gd_pb_doc *doc) { return &doc->root; }

/* --- values ----------------------------------------------------------------------------------- */

size_t gd_pb_item_size(gd_pb_type type) {
    switch (type) {
    case GD_PB_FLOAT: return sizeof(float);
    case GD_PB_DOUBLE: return sizeof(double);
    case GD_PB_STRING:
    case GD_PB_BYTES: return sizeof(gd_pb_bytes);
    case GD_PB_MESSAGE: return sizeof(gd_pb *);
    default: return sizeof(int64_t);
    }
}

const gd_pb_field *gd_pb_field_named(const gd_pb_schema *schema, const char *name, size_t length) {
    for (int i = 0; i < schema->count; i++)
        if (strncmp(schema->fields[i].name, name, length) == 0 &&
            schema->fields[i].name[length] == '\0')
            return &schema->fields[i];
    return schema->more ? schema->more(name, length) : NULL;
}

const gd_pb_field *gd_pb_field_numbered(const gd_pb_schema *schema, uint32_t number) {
    for (int i = 0; i < schema->count; i++)
        if (schema->fields[i].number == number) return &schema->fields[i];
    return NULL;
}

/* Doubles an array of `count` items. The old one stays in the memory of the document: all old ones
 * together are no larger than the new one. */
static bool grow_array(gd_pb_doc *doc, void **items, size_t count, size_t *capacity, size_t need,
                       size_t item) {
    size_t larger = *capacity > count ? *capacity : count, bytes;
    if (need <= *capacity) return true;
    while (larger < need)
        if (larger == 0) larger = need < 2 ? 1 : need;
        else if (!gd_mul_size(larger, 2, &larger)) return false;
    void *grown = gd_mul_size(larger, item, &bytes) ? gd_pb_alloc(doc, bytes) : NULL;
    if (grown == NULL) return false;
    if (count > 0) memcpy(grown, *items, count * item);
    *items = grown;
    *capacity = larger;
    return true;
}

gd_pb_list *gd_pb_list_for(gd_pb *m, const gd_pb_field *field) {
    for (int i = m->count; i-- > 0;)
        if (m->lists[i].field == field) return &m->lists[i];
    size_t capacity = (size_t)m->capacity;
    void *lists = m->lists;
    if (!grow_array(m->doc, &lists, (size_t)m->count, &capacity, (size_t)m->count + 1,
                    sizeof *m->lists))
        return NULL;
    m->lists = lists;
    m->capacity = (int)capacity;
    m->lists[m->count] = (gd_pb_list){.field = field};
    return &m->lists[m->count++];
}

void *gd_pb_room(gd_pb_doc *doc, gd_pb_list *list, size_t more) {
    const size_t item = gd_pb_item_size(list->field->type);
    const bool repeated = list->field->flags & GD_PB_REPEATED;
    size_t first = repeated ? list->count : 0, need;
    if (!gd_add_size(first, repeated ? more : 1, &need)) return NULL;
    if (!grow_array(doc, &list->items, list->count, &list->capacity, need, item)) return NULL;
    list->count = need;
    return (char *)list->items + first * item;
}

gd_pb *gd_pb_child(gd_pb *m, gd_pb_list *list) {
    if (!(list->field->flags & GD_PB_REPEATED) && list->count > 0) return list->messages[0];
    gd_pb *child = gd_pb_alloc(m->doc, sizeof *child);
    gd_pb **slot = child ? gd_pb_room(m->doc, list, 1) : NULL;
    if (slot == NULL) return NULL;
    *child = (gd_pb){.schema = list->field->message, .doc = m->doc};
    return *slot = child;
}

/* "layer 'conv2' (Convolution): "; false: the message has no name so far. */
static bool print_noun(const gd_pb *m, char *text, size_t size) {
    const char *noun = m ? m->schema->noun : NULL, *name = noun ? gd_pb_string(m, "name") : "";
    if (*name == '\0') return false;
    const gd_pb_list *list = gd_pb_get(m, "type");
    const char *type = !list                               ? ""
                       : list->field->type == GD_PB_STRING ? gd_pb_string(m, "type")
                                                           : gd_pb_word_of(m, "type");
    snprintf(text, size, *type ? "%s '%.80s' (%.60s): " : "%s '%.80s': ", noun, name, type);
    return true;
}

const char *gd_pb_path_text(const gd_pb_path *path, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < path->depth; i++) {
        if (path->depth > 12 && i == 6) { /* deep nesting: only both ends are printed */
            i = path->depth - 6;
            if (used < size) used += (size_t)snprintf(text + used, size - used, "...");
        }
        if (print_noun(path->at[i].message, text, size)) { /* instead of the path to it */
            used = strlen(text);
            continue;
        }
        const gd_pb_field *field = path->at[i].field;
        const bool first = used == 0 || text[used - 1] == ' ';
        if (used < size)
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s", first ? "" : ".", field->name);
        if ((field->flags & GD_PB_REPEATED) && used < size)
            used += (size_t)snprintf(text + used, size - used, "[%zu]", path->at[i].index);
    }
    used = strlen(text);
    if (used > 0 && text[used - 1] == ' ') text[used - 2] = '\0'; /* ends with a noun */
    return text;
}

/* --- access ----------------------------------------------------------------------------------- */

const gd_pb_list *gd_pb_get(const gd_pb *m, const char *field) {
    for (int i = 0; m != NULL && i < m->count; i++)
        if (strcmp(m->lists[i].field->name, field) == 0)
            return m->lists[i].count > 0 ? &m->lists[i] : NULL;
    return NULL;
}

size_t gd_pb_count(const gd_pb *m, const char *field) {
    const gd_pb_list *list = gd_pb_get(m, field);
    return list ? list->count : 0;
}

int64_t gd_pb_int(const gd_pb *m, const char *field, int64_t by_default) {
    const gd_pb_list *list = gd_pb_get(m, field);
    return list && list->field->type <= GD_PB_ENUM ? list->ints[0] : by_default;
}

double gd_pb_float_at(const gd_pb_list *list, size_t i) {
    float f;
    double d;
    if (list->field->type == GD_PB_FLOAT) {
        memcpy(&f, (const char *)list->items + i * sizeof f, sizeof f);
        return (double)f;
    }
    memcpy(&d, (const char *)list->items + i * sizeof d, sizeof d);
    return d;
}

static bool has_floats(const gd_pb_list *list) {
    return list && (list->field->type == GD_PB_FLOAT || list->field->type == GD_PB_DOUBLE);
}

double gd_pb_float(const gd_pb *m, const char *field, double by_default) {
    const gd_pb_list *list = gd_pb_get(m, field);
    return has_floats(list) ? gd_pb_float_at(list, 0) : by_default;
}

const char *gd_pb_string_at(const gd_pb *m, const char *field, size_t i) {
    const gd_pb_list *list = gd_pb_get(m, field);
    return list && list->field->type == GD_PB_STRING && i < list->count ? list->bytes[i].data : "";
}

const char *gd_pb_string(const gd_pb *m, const char *field) { return gd_pb_string_at(m, field, 0); }

const gd_pb *gd_pb_message_at(const gd_pb *m, const char *field, size_t i) {
    const gd_pb_list *list = gd_pb_get(m, field);
    return list && list->field->type == GD_PB_MESSAGE && i < list->count ? list->messages[i] : NULL;
}

const gd_pb *gd_pb_message(const gd_pb *m, const char *field) {
    return gd_pb_message_at(m, field, 0);
}

/* --- filling ---------------------------------------------------------------------------------- */

void gd_pb_fail_document(gd_pb_doc *doc, gd_status status, const char *format, ...) {
    if (doc->status != GD_OK) return;
    doc->status = status;
    va_list args;
    va_start(args, format);
    gd_vsnprintf(doc->failure, sizeof doc->failure, format, args);
    va_end(args);
}

/* Adds a value to a field whose type is from `first` to `last`, and returns its address. NULL: the
 * document has failed. */
static void *add_value(gd_pb *m, const char *name, gd_pb_type first, gd_pb_type last,
                       const gd_pb_field **field) {
    if (m->doc->status != GD_OK) return NULL;
    *field = gd_pb_field_named(m->schema, name, strlen(name));
    if (*field == NULL || (*field)->type < first || (*field)->type > last) {
        gd_pb_fail_document(m->doc, GD_E_ARGUMENT, "%s has no field '%s' for a value of this type",
                            m->schema->name, name);
        return NULL;
    }
    gd_pb_list *list = gd_pb_list_for(m, *field);
    void *slot = list ? gd_pb_room(m->doc, list, 1) : NULL;
    if (slot == NULL)
        gd_pb_fail_document(m->doc, GD_E_MEMORY, "no memory for a %s", m->schema->name);
    return slot;
}

void gd_pb_put_int(gd_pb *m, const char *name, int64_t value) {
    const gd_pb_field *field;
    int64_t *slot = add_value(m, name, GD_PB_INT32, GD_PB_ENUM, &field);
    if (slot != NULL) *slot = value;
}

void gd_pb_put_float(gd_pb *m, const char *name, double value) {
    const gd_pb_field *field;
    void *slot = add_value(m, name, GD_PB_FLOAT, GD_PB_DOUBLE, &field);
    if (slot == NULL) return;
    if (field->type == GD_PB_FLOAT) *(float *)slot = (float)value;
    else *(double *)slot = value;
}

void gd_pb_put_bytes(gd_pb *m, const char *name, const void *data, size_t bytes) {
    const gd_pb_field *field;
    gd_pb_bytes *slot = add_value(m, name, GD_PB_STRING, GD_PB_BYTES, &field);
    if (slot != NULL) *slot = (gd_pb_bytes){data, bytes};
}

void gd_pb_put_string(gd_pb *m, const char *name, const char *text) {
    const size_t length = strlen(text);
    char *copy = gd_pb_alloc(m->doc, length + 1);
    if (copy == NULL) {
        gd_pb_fail_document(m->doc, GD_E_MEMORY, "no memory for a %s", m->schema->name);
        return;
    }
    memcpy(copy, text, length + 1);
    gd_pb_put_bytes(m, name, copy, length);
}

void gd_pb_put_numbers(gd_pb *m, const char *name, const void *numbers, size_t count) {
    const gd_pb_field *field;
    if (count == 0) return;
    gd_pb_clear(m, name);
    if (add_value(m, name, GD_PB_FLOAT, GD_PB_DOUBLE, &field) == NULL) return;
    gd_pb_list *list = gd_pb_list_for(m, field); /* it exists */
    list->items = (void *)(uintptr_t)numbers;
    list->count = count;
    list->capacity = 0;
}

gd_pb *gd_pb_put_message(gd_pb *m, const char *name) {
    gd_pb_doc *doc = m->doc;
    const gd_pb_field *field = gd_pb_field_named(m->schema, name, strlen(name));
    if (doc->status == GD_OK && (field == NULL || field->type != GD_PB_MESSAGE))
        gd_pb_fail_document(doc, GD_E_ARGUMENT, "%s has no message '%s'", m->schema->name, name);
    gd_pb_list *list = doc->status == GD_OK ? gd_pb_list_for(m, field) : NULL;
    gd_pb *child = list ? gd_pb_child(m, list) : NULL;
    if (child == NULL) gd_pb_fail_document(doc, GD_E_MEMORY, "no memory for a %s", m->schema->name);
    return child ? child : &doc->spare;
}

/* --- files and memory ------------------------------------------------------------------------- */

typedef gd_status (*read_fn)(gd_pb_doc **, const gd_pb_schema *, const char *, const char *,
                             size_t);

static gd_status read_wire(gd_pb_doc **out, const gd_pb_schema *schema, const char *name,
                           const char *data, size_t bytes) {
    return gd_pb_read(out, schema, name, data, bytes);
}

static gd_status load_file(gd_pb_doc **out, const gd_pb_schema *schema, const char *path,
                           read_fn read) {
    char *data;
    size_t bytes;
    *out = NULL;
    GD_TRY(gd_file_read_all(path, &data, &bytes));
    gd_status status = read(out, schema, path, data, bytes);
    if (status == GD_OK) (*out)->data = data;
    else gd_free(data);
    return status;
}

gd_status gd_pb_load(gd_pb_doc **out, const gd_pb_schema *schema, const char *path) {
    return load_file(out, schema, path, read_wire);
}

gd_status gd_pb_load_text(gd_pb_doc **out, const gd_pb_schema *schema, const char *path) {
    return load_file(out, schema, path, gd_pb_read_text);
}

bool gd_pb_is_text(const char *data, size_t bytes) {
    const bool has_mark = bytes >= 3 && memcmp(data, "\xEF\xBB\xBF", 3) == 0;
    const char first = bytes > 0 ? *data : '#';
    if (has_mark || first == '#' || first == '_' || (first >= 'a' && first <= 'z') ||
        (first >= 'A' && first <= 'Z'))
        return true;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)data[i];
        if (c < ' ' && (c < '\t' || c > '\r')) return false;
    }
    return true;
}

static gd_status read_either(gd_pb_doc **out, const gd_pb_schema *schema, const char *name,
                             const char *data, size_t bytes) {
    if (bytes >= 2 && (memcmp(data, "\xFF\xFE", 2) == 0 || memcmp(data, "\xFE\xFF", 2) == 0))
        return gd_fail(GD_E_FORMAT, "%s: the text is UTF-16; it must be saved as UTF-8", name);
    if (gd_pb_is_text(data, bytes)) return gd_pb_read_text(out, schema, name, data, bytes);
    return gd_pb_read(out, schema, name, data, bytes);
}

gd_status gd_pb_load_either(gd_pb_doc **out, const gd_pb_schema *schema, const char *path) {
    return load_file(out, schema, path, read_either);
}

static gd_status write_to_file(void *to, const void *data, size_t bytes) {
    return gd_file_writer_write(to, data, bytes);
}

gd_status gd_pb_save(gd_pb_doc *doc, const char *path) {
    gd_file_writer *writer;
    GD_TRY(gd_file_writer_begin(&writer, path));
    const gd_status status = gd_pb_write(doc, write_to_file, writer);
    if (status == GD_OK) return gd_file_writer_commit(writer);
    gd_file_writer_cancel(writer);
    return status;
}

typedef struct buffer {
    char *data;
    size_t length, capacity;
} buffer;

static gd_status append_bytes(void *to, const void *data, size_t bytes) {
    buffer *b = to;
    size_t need;
    if (!gd_add_size(b->length, bytes, &need) || !gd_add_size(need, 1, &need))
        return gd_fail(GD_E_OVERFLOW, "a message is too large");
    if (need > b->capacity) {
        size_t larger = need < b->capacity * 2 ? b->capacity * 2 : need + 256;
        char *grown = gd_realloc(b->data, larger);
        if (grown == NULL)
            return gd_fail(GD_E_MEMORY, "no memory for %zu bytes of a message", need);
        b->data = grown;
        b->capacity = larger;
    }
    if (bytes > 0) memcpy(b->data + b->length, data, bytes);
    b->length += bytes;
    b->data[b->length] = '\0';
    return GD_OK;
}

static gd_status print_document(gd_pb_doc *doc, gd_status (*write)(gd_pb_doc *, gd_pb_sink, void *),
                                char **data, size_t *bytes) {
    buffer b = {0};
    *data = NULL;
    gd_status status = append_bytes(&b, "", 0);
    if (status == GD_OK) status = write(doc, append_bytes, &b);
    if (status != GD_OK) {
        gd_free(b.data);
        return status;
    }
    *data = b.data;
    *bytes = b.length;
    return GD_OK;
}

gd_status gd_pb_print(gd_pb_doc *doc, char **data, size_t *bytes) {
    return print_document(doc, gd_pb_write, data, bytes);
}

gd_status gd_pb_print_text(gd_pb_doc *doc, char **text, size_t *bytes) {
    return print_document(doc, gd_pb_write_text, text, bytes);
}
