/* protobuf_wire.c - reads and writes the wire format of protocol buffers.
 *
 * A message is a sequence of fields. Each has a key, number << 3 | wire type, and then a varint
 * (0), 8 bytes (1), a length and that many bytes (2), or 4 bytes (5).
 */
#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "core/error.h"
#include "format/bytes.h"
#include "format/protobuf_tree.h"
#include "format/utf8.h"

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

static int wire_type_of(gd_pb_type type) {
    switch (type) {
    case GD_PB_FLOAT: return FIXED32;
    case GD_PB_DOUBLE: return FIXED64;
    case GD_PB_STRING:
    case GD_PB_BYTES:
    case GD_PB_MESSAGE: return LENGTH;
    default: return VARINT;
    }
}

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct reader {
    const char *name;
    const uint8_t *start, *at, *end; /* `end` is that of the innermost open message */
    gd_pb_doc *doc;
    gd_pb_path path;
} reader;

static gd_status fail_at(const reader *r, const uint8_t *position, const char *what) {
    char path[300];
    gd_pb_path_text(&r->path, path, sizeof path);
    return gd_fail(GD_E_FORMAT, "%s: byte %zu: %s%s%s", r->name, (size_t)(position - r->start),
                   path, *path ? ": " : "", what);
}

static gd_status reader_no_memory(const reader *r) {
    return gd_fail(GD_E_MEMORY, "%s: byte %zu: no memory left for the message", r->name,
                   (size_t)(r->at - r->start));
}

static gd_status read_varint(reader *r, uint64_t *value) {
    const uint8_t *position = r->at;
    *value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (r->at == r->end) return fail_at(r, position, "a number is truncated");
        const uint8_t byte = *r->at++;
        if (shift == 63 && byte > 1) break;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return GD_OK;
    }
    return fail_at(r, position, "a number has more than 64 bits");
}

/* Reads a length and checks that the message has that many bytes. */
static gd_status read_length(reader *r, size_t *length) {
    const uint8_t *position = r->at;
    uint64_t value;
    char text[100];
    GD_TRY(read_varint(r, &value));
    *length = (size_t)value;
    if (value <= (uint64_t)(r->end - r->at)) return GD_OK;
    snprintf(text, sizeof text, "needs %llu bytes where %zu are left (truncated?)",
             (unsigned long long)value, (size_t)(r->end - r->at));
    return fail_at(r, position, text);
}

static gd_status skip_value(reader *r, unsigned wire_type) {
    const uint8_t *position = r->at;
    uint64_t value;
    size_t length = wire_type == FIXED64 ? 8 : 4;
    switch (wire_type) {
    case VARINT: return read_varint(r, &value);
    case LENGTH: GD_TRY(read_length(r, &length)); break;
    case FIXED64:
    case FIXED32: break;
    default: return fail_at(r, position, "a group, or a wire type that does not exist");
    }
    if (length > (size_t)(r->end - r->at)) return fail_at(r, position, "a number is truncated");
    r->at += length;
    return GD_OK;
}

/* Converts a varint to the type of the field, and drops extra bits as other implementations do. */
static int64_t convert_varint(gd_pb_type type, uint64_t value) {
    switch (type) {
    case GD_PB_INT32:
    case GD_PB_ENUM: return (int32_t)(uint32_t)value;
    case GD_PB_UINT32: return (uint32_t)value;
    case GD_PB_BOOL: return value != 0;
    default: return (int64_t)value;
    }
}

enum { SAME_BYTES = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ }; /* as in memory */

static void read_fixed(reader *r, size_t item, void *to, size_t count) {
    if (SAME_BYTES) memcpy(to, r->at, count * item);
    for (size_t i = 0; !SAME_BYTES && i < count; i++) {
        const uint64_t bits = item == 4 ? gd_get_u32(r->at + i * 4) : gd_get_u64(r->at + i * 8);
        if (item == 4) memcpy((float *)to + i, &(uint32_t){(uint32_t)bits}, 4);
        else memcpy((double *)to + i, &bits, 8);
    }
    r->at += count * item;
}

/* Reads `count` numbers. The caller has checked that those of fixed size are present. */
static gd_status read_numbers(reader *r, gd_pb_list *list, size_t count) {
    const gd_pb_type type = list->field->type;
    void *to = gd_pb_room(r->doc, list, count);
    if (to == NULL) return reader_no_memory(r);
    if (type == GD_PB_FLOAT || type == GD_PB_DOUBLE) {
        read_fixed(r, gd_pb_item_size(type), to, count);
        return GD_OK;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t value;
        ((int64_t *)to)[i] = 0; /* the count includes it, even if reading it fails */
        GD_TRY(read_varint(r, &value));
        ((int64_t *)to)[i] = convert_varint(type, value);
    }
    return GD_OK;
}

static void view_numbers(reader *r, gd_pb_list *list, size_t count) {
    list->items = (void *)(uintptr_t)r->at;
    list->count = count;
    r->at += count * gd_pb_item_size(list->field->type);
}

static gd_status read_packed(reader *r, gd_pb_list *list) {
    const uint8_t *position = r->at, *outer = r->end;
    const gd_pb_type type = list->field->type;
    size_t length, count = 0;
    GD_TRY(read_length(r, &length));
    const size_t item = type == GD_PB_FLOAT ? 4 : 8;
    if (wire_type_of(type) == VARINT)
        for (size_t i = 0; i < length; i++) count += r->at[i] < 0x80; /* the last byte of each */
    else if (length % item) return fail_at(r, position, "packed numbers do not fill their bytes");
    else count = length / item;
    r->end = r->at + length;
    gd_status status = GD_OK;
    if (SAME_BYTES && list->field->flags == GD_PB_VIEW && list->count == 0)
        view_numbers(r, list, count);
    else if (count > 0) status = read_numbers(r, list, count);
    if (status == GD_OK && r->at != r->end) status = fail_at(r, r->at, "a number is truncated");
    r->end = outer;
    return status;
}

static gd_status read_bytes(reader *r, gd_pb_list *list) {
    const uint8_t *position = r->at;
    size_t length;
    GD_TRY(read_length(r, &length));
    const char *data = (const char *)r->at;
    r->at += length;
    if (list->field->type == GD_PB_STRING) {
        for (const char *p = data, *end = data + length; p < end;) {
            const size_t step = *p == '\0' ? 0 : gd_utf8_length(p, end);
            if (step == 0)
                return fail_at(r, position, "a string is not UTF-8, or holds a zero byte");
            p += step;
        }
        char *copy = gd_pb_alloc(r->doc, length + 1);
        if (copy == NULL) return reader_no_memory(r);
        memcpy(copy, data, length);
        copy[length] = '\0';
        data = copy;
    }
    gd_pb_bytes *to = gd_pb_room(r->doc, list, 1);
    if (to == NULL) return reader_no_memory(r);
    *to = (gd_pb_bytes){data, length};
    return GD_OK;
}

static gd_status read_message(reader *r, gd_pb *message);

static gd_status read_child(reader *r, gd_pb *message, gd_pb_list *list) {
    const uint8_t *position = r->at, *outer = r->end;
    size_t length;
    GD_TRY(read_length(r, &length));
    if (r->path.depth >= GD_PB_MAX_DEPTH)
        return fail_at(r, position, "nested more than 100 levels deep");
    gd_pb *child = gd_pb_child(message, list);
    if (child == NULL) return reader_no_memory(r);
    child->offset = (size_t)(r->at - r->start);
    r->path.at[r->path.depth - 1].message = child;
    r->end = r->at + length;
    GD_TRY(read_message(r, child));
    r->end = outer;
    return GD_OK;
}

static gd_status read_field(reader *r, gd_pb *message, const gd_pb_field *field,
                            unsigned wire_type) {
    const unsigned wanted = (unsigned)wire_type_of(field->type);
    const bool packed = wire_type == LENGTH && wanted != LENGTH && (field->flags & GD_PB_REPEATED);
    if (wire_type != wanted && !packed) {
        char text[100];
        snprintf(text, sizeof text, "has wire type %u; in a %s it has %u", wire_type,
                 message->schema->name, wanted);
        return fail_at(r, r->at, text);
    }
    gd_pb_list *list = gd_pb_list_for(message, field);
    if (list == NULL) return reader_no_memory(r);
    r->path.at[r->path.depth - 1].index = list->count;
    if (field->type == GD_PB_MESSAGE) return read_child(r, message, list);
    if (packed) return read_packed(r, list);
    if (wanted == LENGTH) return read_bytes(r, list);
    if (wanted != VARINT && r->end - r->at < (wanted == FIXED64 ? 8 : 4))
        return fail_at(r, r->at, "a number is truncated");
    return read_numbers(r, list, 1);
}

static gd_status read_message(reader *r, gd_pb *message) {
    while (r->at < r->end) {
        const uint8_t *position = r->at;
        uint64_t key;
        GD_TRY(read_varint(r, &key));
        const uint64_t number = key >> 3;
        if (number == 0 || number > 0x1FFFFFFF)
            return fail_at(r, position, "a field number must be from 1 to 2^29 - 1");
        const gd_pb_field *field = gd_pb_field_numbered(message->schema, (uint32_t)number);
        if (field == NULL) {
            GD_TRY(skip_value(r, (unsigned)(key & 7)));
            continue;
        }
        r->path.at[r->path.depth].field = field;
        r->path.at[r->path.depth].message = NULL;
        r->path.at[r->path.depth++].index = 0;
        GD_TRY(read_field(r, message, field, (unsigned)(key & 7)));
        r->path.depth--;
    }
    return GD_OK;
}

gd_status gd_pb_read(gd_pb_doc **out, const gd_pb_schema *schema, const char *name,
                     const void *data, size_t bytes) {
    *out = NULL;
    if (bytes > GD_PB_MAX_BYTES)
        return gd_fail(GD_E_FORMAT, "%s: has %zu bytes; messages have at most 2^31 - 1", name,
                       bytes);
    reader r = {.name = name, .start = data, .at = data, .end = (const uint8_t *)data + bytes};
    r.doc = gd_pb_new_named(schema, name);
    if (r.doc == NULL) return GD_E_MEMORY;
    gd_status status = bytes > 0 ? read_message(&r, &r.doc->root) : GD_OK;
    if (status != GD_OK) {
        gd_pb_free(r.doc);
        return status;
    }
    *out = r.doc;
    return GD_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

static size_t varint_size(uint64_t value) {
    size_t bytes = 1;
    for (; value >= 0x80; value >>= 7) bytes++;
    return bytes;
}

static size_t key_size(const gd_pb_field *field) {
    return varint_size((uint64_t)field->number << 3);
}

/* The size of one value, without its key and length. */
static size_t value_size(const gd_pb_list *list, size_t i) {
    switch (wire_type_of(list->field->type)) {
    case FIXED32: return 4;
    case FIXED64: return 8;
    case VARINT: return varint_size((uint64_t)list->ints[i]);
    default:
        return list->field->type == GD_PB_MESSAGE ? list->messages[i]->size : list->bytes[i].length;
    }
}

static bool is_packed(const gd_pb_list *list) {
    return (list->field->flags & GD_PB_PACKED) == GD_PB_PACKED;
}

static size_t packed_size(const gd_pb_list *list) {
    size_t size = 0; /* no overflow: at most 10 bytes each, and each takes at least 4 in memory */
    if (wire_type_of(list->field->type) != VARINT)
        return list->count * gd_pb_item_size(list->field->type);
    for (size_t i = 0; i < list->count; i++) size += value_size(list, i);
    return size;
}

/* Computes the sizes of a message and of all messages in it, which are written before their
 * contents. Checks the limits of depth and size. */
static gd_status measure_message(gd_pb *m, int depth) {
    size_t total = 0;
    bool fits = depth <= GD_PB_MAX_DEPTH;
    for (int k = 0; k < m->count && fits; k++) {
        const gd_pb_list *list = &m->lists[k];
        if (list->count == 0 || list->field->number == 0) continue; /* 0: in text only */
        if (is_packed(list)) {
            const size_t size = packed_size(list);
            fits = gd_add_size(total, key_size(list->field) + varint_size(size), &total) &&
                   gd_add_size(total, size, &total);
            continue;
        }
        const bool has_length = wire_type_of(list->field->type) == LENGTH;
        for (size_t i = 0; i < list->count && fits; i++) {
            if (list->field->type == GD_PB_MESSAGE)
                GD_TRY(measure_message(list->messages[i], depth + 1));
            const size_t size = value_size(list, i);
            fits = gd_add_size(total, key_size(list->field) + (has_length ? varint_size(size) : 0),
                               &total) &&
                   gd_add_size(total, size, &total);
        }
    }
    m->size = total;
    if (fits && total <= GD_PB_MAX_BYTES) return GD_OK;
    return gd_fail(GD_E_OVERFLOW, "a %s is deeper than %d levels or larger than 2^31 - 1 bytes",
                   m->schema->name, GD_PB_MAX_DEPTH);
}

typedef struct writer {
    gd_pb_sink sink;
    void *to;
} writer;

static gd_status put_varint(writer *w, uint64_t value) {
    uint8_t bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) bytes[n++] = (uint8_t)(value | 0x80);
    bytes[n++] = (uint8_t)value;
    return w->sink(w->to, bytes, n);
}

static gd_status write_message(writer *w, const gd_pb *m);

static gd_status write_value(writer *w, const gd_pb_list *list, size_t i) {
    uint8_t bytes[8];
    uint32_t bits32;
    uint64_t bits64;
    switch (list->field->type) {
    case GD_PB_FLOAT:
        memcpy(&bits32, (const char *)list->items + i * 4, sizeof bits32);
        gd_put_u32(bytes, bits32);
        return w->sink(w->to, bytes, 4);
    case GD_PB_DOUBLE:
        memcpy(&bits64, (const char *)list->items + i * 8, sizeof bits64);
        gd_put_u64(bytes, bits64);
        return w->sink(w->to, bytes, 8);
    case GD_PB_STRING:
    case GD_PB_BYTES:
        if (list->bytes[i].length == 0) return GD_OK;
        return w->sink(w->to, list->bytes[i].data, list->bytes[i].length);
    case GD_PB_MESSAGE: return write_message(w, list->messages[i]);
    default: return put_varint(w, (uint64_t)list->ints[i]);
    }
}

static gd_status write_list(writer *w, const gd_pb_list *list) {
    const uint64_t key = (uint64_t)list->field->number << 3;
    const int wire_type = wire_type_of(list->field->type);
    if (is_packed(list)) {
        GD_TRY(put_varint(w, key | LENGTH));
        GD_TRY(put_varint(w, packed_size(list)));
        if (SAME_BYTES && wire_type_of(list->field->type) != VARINT)
            return w->sink(w->to, list->items, packed_size(list));
        for (size_t i = 0; i < list->count; i++) GD_TRY(write_value(w, list, i));
        return GD_OK;
    }
    for (size_t i = 0; i < list->count; i++) {
        GD_TRY(put_varint(w, key | (uint64_t)wire_type));
        if (wire_type == LENGTH) GD_TRY(put_varint(w, value_size(list, i)));
        GD_TRY(write_value(w, list, i));
    }
    return GD_OK;
}

static gd_status write_message(writer *w, const gd_pb *m) {
    for (int f = 0; f < m->schema->count; f++)
        for (int k = 0; k < m->count; k++)
            if (m->lists[k].field == &m->schema->fields[f] && m->lists[k].count > 0)
                GD_TRY(write_list(w, &m->lists[k]));
    return GD_OK;
}

gd_status gd_pb_write(gd_pb_doc *doc, gd_pb_sink sink, void *to) {
    GD_TRY(gd_pb_check(doc));
    GD_TRY(measure_message(&doc->root, 0));
    writer w = {sink, to};
    return write_message(&w, &doc->root);
}
