/* safetensors.c - see safetensors.h. */
#include "format/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "core/number.h"
#include "format/bytes.h"
#include "format/checksum.h"
#include "format/json.h"

enum { LENGTH_BYTES = 8, ALIGNMENT = 64 };

int gd_safetensors_bits(const char *dtype) {
    static const struct {
        const char *name;
        int bits;
    } known[] = {
        {"BOOL", 8},    {"U8", 8},      {"I8", 8},      {"I16", 16},    {"U16", 16},
        {"I32", 32},    {"U32", 32},    {"I64", 64},    {"U64", 64},    {"F16", 16},
        {"BF16", 16},   {"F32", 32},    {"F64", 64},    {"C64", 64},    {"F4", 4},
        {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(dtype, known[i].name) == 0) return known[i].bits;
    return 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct header_reader {
    gd_safetensors *out;
    const char *path;
    uint64_t data_bytes; /* after the header */
    int64_t *next_dim;
} header_reader;

/* Names the file and the tensor: "net.safetensors: tensor 'fc1.weight': ...". */
static gd_status GD_PRINTF(3, 4)
    fail_header(const header_reader *r, const char *name, const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    gd_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return gd_fail(GD_E_FORMAT, "%s: tensor '%.200s': %s", r->path, name, text);
}

/* Checks a member that is a list of `count` nonnegative integers (-1: any count). */
static gd_status check_list(const header_reader *r, const gd_json *entry, const char *member,
                            long count, const gd_json **list) {
    const gd_json *found = gd_json_get(entry, member);
    if (!found) return fail_header(r, entry->key, "has no \"%s\"", member);
    if (found->type != GD_JSON_ARRAY)
        return fail_header(r, entry->key, "\"%s\" is %s, not a list", member,
                           gd_json_type_name(found->type));
    if (count >= 0 && found->count != (size_t)count)
        return fail_header(r, entry->key, "\"%s\" has %zu numbers, not %ld", member, found->count,
                           count);
    for (size_t i = 0; i < found->count; i++) {
        const gd_json *number = gd_json_at(found, i);
        if (number->type != GD_JSON_NUMBER)
            return fail_header(r, entry->key, "\"%s\" has %s among its numbers", member,
                               gd_json_type_name(number->type));
        if (!number->is_integer || number->integer < 0)
            return fail_header(r, entry->key, "\"%s\" has a number that is %s", member,
                               !number->is_integer ? "not an integer, or too large" : "negative");
    }
    *list = found;
    return GD_OK;
}

static gd_status check_size(const header_reader *r, const gd_safetensors_entry *e) {
    const int bits = gd_safetensors_bits(e->dtype);
    uint64_t size = bits ? (uint64_t)bits : 1;
    for (int i = 0; i < e->rank; i++)
        if (!gd_mul_u64(size, (uint64_t)e->dims[i], &size))
            return fail_header(r, e->name, "its shape is too large");
    if (!bits) return GD_OK;
    if (size % 8 != 0) return fail_header(r, e->name, "its elements do not fill complete bytes");
    if (size / 8 == e->bytes) return GD_OK;
    return fail_header(r, e->name,
                       "has %" PRIu64 " bytes, but its shape and dtype %s need %" PRIu64, e->bytes,
                       e->dtype, size / 8);
}

static gd_status read_entry(header_reader *r, const gd_json *json) {
    gd_safetensors_entry *e = &r->out->entries[r->out->count];
    const gd_json *dims, *offsets;
    if (strlen(json->key) != json->key_length)
        return gd_fail(GD_E_FORMAT, "%s: the name '%.200s...' has a zero byte", r->path, json->key);
    if (json->key_length == 0)
        return gd_fail(GD_E_FORMAT, "%s: a tensor has an empty name", r->path);
    if (json->type != GD_JSON_OBJECT)
        return fail_header(r, json->key, "is described by %s, not an object",
                           gd_json_type_name(json->type));
    const gd_json *dtype = gd_json_get(json, "dtype");
    if (!dtype || dtype->type != GD_JSON_STRING)
        return fail_header(r, json->key, "has no \"dtype\" that is a string");
    GD_TRY(check_list(r, json, "shape", -1, &dims));
    GD_TRY(check_list(r, json, "data_offsets", 2, &offsets));
    const uint64_t begin = (uint64_t)gd_json_at(offsets, 0)->integer,
                   end = (uint64_t)gd_json_at(offsets, 1)->integer;
    if (begin > end)
        return fail_header(r, json->key, "ends (%" PRIu64 ") before it starts (%" PRIu64 ")", end,
                           begin);
    if (end > r->data_bytes)
        return fail_header(r, json->key,
                           "ends at %" PRIu64 ", but the file has %" PRIu64
                           " bytes of data (truncated?)",
                           end, r->data_bytes);
    *e = (gd_safetensors_entry){.name = json->key,
                                .dtype = dtype->text,
                                .rank = (int)dims->count,
                                .dims = r->next_dim,
                                .begin = begin,
                                .bytes = end - begin};
    for (size_t i = 0; i < dims->count; i++) *r->next_dim++ = gd_json_at(dims, i)->integer;
    r->out->count++;
    return check_size(r, e);
}

static gd_status read_metadata(header_reader *r, const gd_json *json) {
    if (json->type != GD_JSON_OBJECT)
        return gd_fail(GD_E_FORMAT, "%s: __metadata__ is %s, not an object", r->path,
                       gd_json_type_name(json->type));
    r->out->values = gd_calloc(json->count + 1, sizeof *r->out->values);
    if (!r->out->values) return gd_file_no_memory(r->path);
    for (size_t i = 0; i < json->count; i++) {
        const gd_json *value = gd_json_at(json, i);
        if (value->type != GD_JSON_STRING)
            return gd_fail(GD_E_FORMAT, "%s: \"%.200s\" of __metadata__ is %s, not a string",
                           r->path, value->key, gd_json_type_name(value->type));
        if (strlen(value->key) != value->key_length || strlen(value->text) != value->length)
            return gd_fail(GD_E_FORMAT, "%s: \"%.200s\" of __metadata__ has a zero byte", r->path,
                           value->key);
        r->out->values[r->out->n_values++] = (gd_safetensors_value){value->key, value->text};
    }
    return GD_OK;
}

static int compare_begin(const void *a, const void *b) {
    const gd_safetensors_entry *x = *(gd_safetensors_entry *const *)a,
                               *y = *(gd_safetensors_entry *const *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty tensors first */
}

/* Checks that every byte of the data belongs to exactly one tensor. */
static gd_status check_cover(const header_reader *r, const gd_safetensors_entry **sorted) {
    const gd_safetensors *h = r->out;
    uint64_t at = 0;
    for (size_t i = 0; i < h->count; i++) sorted[i] = &h->entries[i];
    qsort(sorted, h->count, sizeof *sorted, compare_begin);
    for (size_t i = 0; i < h->count; i++) {
        const gd_safetensors_entry *e = sorted[i];
        if (e->begin < at)
            return fail_header(
                r, e->name, "overlaps '%.100s': it begins at %" PRIu64 ", which ends at %" PRIu64,
                sorted[i - 1]->name, e->begin, at);
        if (e->begin > at)
            return fail_header(r, e->name,
                               "begins at %" PRIu64 ", after a hole from %" PRIu64 " on", e->begin,
                               at);
        at += e->bytes;
    }
    if (at == r->data_bytes) return GD_OK;
    return gd_fail(GD_E_FORMAT, "%s: has %" PRIu64 " bytes after its last tensor", r->path,
                   r->data_bytes - at);
}

static gd_status read_tensors(header_reader *r, const gd_json *root) {
    gd_safetensors *h = r->out;
    size_t dims = 0;
    if (root->type != GD_JSON_OBJECT)
        return gd_fail(GD_E_FORMAT, "%s: the header is %s, not an object", r->path,
                       gd_json_type_name(root->type));
    for (size_t i = 0; i < root->count; i++) {
        const gd_json *shape = gd_json_get(gd_json_at(root, i), "shape");
        if (shape && shape->type == GD_JSON_ARRAY) dims += shape->count;
    }
    h->entries = gd_calloc(root->count + 1, sizeof *h->entries);
    h->all_dims = gd_calloc(dims + 1, sizeof *h->all_dims);
    const gd_safetensors_entry **sorted = gd_calloc(root->count + 1, sizeof *sorted);
    gd_status status = h->entries && h->all_dims && sorted ? GD_OK : gd_file_no_memory(r->path);
    r->next_dim = h->all_dims;
    for (size_t i = 0; i < root->count && status == GD_OK; i++) {
        const gd_json *member = gd_json_at(root, i);
        status = strcmp(member->key, "__metadata__") == 0 ? read_metadata(r, member)
                                                          : read_entry(r, member);
    }
    if (status == GD_OK) status = check_cover(r, sorted);
    gd_free(sorted);
    for (size_t i = 0; i < h->count; i++) h->entries[i].begin += h->data_begin;
    return status;
}

static gd_status read_header(gd_safetensors *out, const gd_file_reader *file, char **text) {
    uint8_t length[LENGTH_BYTES];
    const char *path = gd_file_reader_path(file);
    const uint64_t size = gd_file_reader_size(file);
    if (size < LENGTH_BYTES)
        return gd_fail(GD_E_FORMAT, "%s: is not a safetensors file: it has %" PRIu64 " bytes", path,
                       size);
    GD_TRY(gd_file_reader_read_at(file, 0, length, sizeof length));
    const uint64_t bytes = gd_get_u64(length);
    if (bytes > GD_SAFETENSORS_MAX_HEADER)
        return gd_fail(
            GD_E_FORMAT,
            "%s: is not a safetensors file, or is damaged: its header would have %" PRIu64
            " bytes, and at most %d are allowed",
            path, bytes, GD_SAFETENSORS_MAX_HEADER);
    if (bytes > size - LENGTH_BYTES)
        return gd_fail(GD_E_FORMAT,
                       "%s: its header would have %" PRIu64 " bytes, but the file ends at %" PRIu64
                       " (truncated?)",
                       path, bytes, size);
    out->data_begin = LENGTH_BYTES + bytes;
    *text = gd_malloc((size_t)bytes + 1);
    if (!*text) return gd_file_no_memory(path);
    GD_TRY(gd_file_reader_read_at(file, LENGTH_BYTES, *text, (size_t)bytes));
    if (bytes == 0 || (*text)[0] != '{')
        return gd_fail(GD_E_FORMAT,
                       "%s: is not a safetensors file: its header does not begin with '{'", path);
    return gd_json_parse(&out->doc, path, *text, (size_t)bytes);
}

/* Finds the digits of the checksum in the header's text. */
static gd_status find_checksum(gd_safetensors *h, const char *path, const char *text) {
    const char *value = NULL;
    size_t at;
    for (size_t i = 0; i < h->n_values; i++)
        if (strcmp(h->values[i].key, GD_CHECKSUM_KEY) == 0) value = h->values[i].text;
    if (!value) return GD_OK;
    if (strlen(value) != sizeof GD_CHECKSUM_BLANK - 1 ||
        !gd_checksum_find(text, (size_t)h->data_begin - LENGTH_BYTES, &at) ||
        memcmp(text + at, value + strlen(value) - GD_CHECKSUM_DIGITS, GD_CHECKSUM_DIGITS) != 0)
        return gd_fail(GD_E_FORMAT, "%s: \"%s\" is '%.40s', which is not a checksum", path,
                       GD_CHECKSUM_KEY, value);
    h->checksum_at = LENGTH_BYTES + at;
    return GD_OK;
}

gd_status gd_safetensors_read(gd_safetensors *out, const gd_file_reader *file) {
    char *text = NULL;
    *out = (gd_safetensors){0};
    gd_status status = read_header(out, file, &text);
    header_reader r = {.out = out,
                       .path = gd_file_reader_path(file),
                       .data_bytes = gd_file_reader_size(file) - out->data_begin};
    if (status == GD_OK) status = read_tensors(&r, gd_json_root(out->doc));
    if (status == GD_OK) status = find_checksum(out, r.path, text);
    gd_free(text);
    if (status != GD_OK) gd_safetensors_free(out);
    return status;
}

gd_status gd_safetensors_check(const gd_safetensors *h, const gd_file_reader *file) {
    return h->checksum_at ? gd_checksum_check(file, h->checksum_at) : GD_OK;
}

void gd_safetensors_free(gd_safetensors *h) {
    gd_free(h->entries);
    gd_free(h->values);
    gd_free(h->all_dims);
    gd_json_free(h->doc);
    *h = (gd_safetensors){0};
}

/* --- writing ---------------------------------------------------------------------------------- */

static void put_entry(gd_json_writer *w, const gd_safetensors_entry *e) {
    gd_json_put_key(w, e->name);
    gd_json_put_begin_object(w);
    gd_json_put_key(w, "dtype");
    gd_json_put_string(w, e->dtype);
    gd_json_put_key(w, "shape");
    gd_json_put_begin_array(w);
    for (int i = 0; i < e->rank; i++) gd_json_put_int(w, e->dims[i]);
    gd_json_put_end_array(w);
    gd_json_put_key(w, "data_offsets");
    gd_json_put_begin_array(w);
    gd_json_put_int(w, (int64_t)e->begin);
    gd_json_put_int(w, (int64_t)(e->begin + e->bytes));
    gd_json_put_end_array(w);
    gd_json_put_end_object(w);
}

static gd_status make_header_json(const char *path, const gd_safetensors_entry *entries,
                                  size_t count, const gd_safetensors_value *values, size_t n_values,
                                  char **text, size_t *bytes) {
    gd_json_writer *w = gd_malloc(sizeof *w);
    if (!w) return gd_file_no_memory(path);
    gd_json_writer_begin(w, 0);
    gd_json_put_begin_object(w);
    if (n_values > 0) {
        gd_json_put_key(w, "__metadata__");
        gd_json_put_begin_object(w);
        for (size_t i = 0; i < n_values; i++) {
            gd_json_put_key(w, values[i].key);
            gd_json_put_string(w, values[i].text);
        }
        gd_json_put_end_object(w);
    }
    for (size_t i = 0; i < count; i++) put_entry(w, &entries[i]);
    gd_json_put_end_object(w);
    const gd_status status = gd_json_writer_end(w, text, bytes);
    gd_free(w);
    if (status != GD_OK) gd_error_prefix("%s: a name or value cannot be written: ", path);
    return status;
}

gd_status gd_safetensors_make_header(const char *path, gd_safetensors_entry *entries, size_t count,
                                     const gd_safetensors_value *values, size_t n_values,
                                     char **header, size_t *bytes) {
    uint64_t at = 0;
    char *json = NULL;
    size_t length;
    *header = NULL;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(entries[i].name, "__metadata__") == 0)
            return gd_fail(GD_E_ARGUMENT, "%s: no tensor can have the name '__metadata__'", path);
        entries[i].begin = at;
        if (!gd_add_u64(at, entries[i].bytes, &at) || at > INT64_MAX)
            return gd_fail(GD_E_OVERFLOW, "%s: the tensors are too large for one file", path);
    }
    GD_TRY(make_header_json(path, entries, count, values, n_values, &json, &length));
    const size_t padded = (LENGTH_BYTES + length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    gd_status status = GD_OK;
    if (padded - LENGTH_BYTES > GD_SAFETENSORS_MAX_HEADER)
        status = gd_fail(
            GD_E_UNSUPPORTED,
            "%s: the names and values need a header of %zu bytes, and at most %d are allowed", path,
            padded, GD_SAFETENSORS_MAX_HEADER);
    else if (!(*header = gd_malloc(padded))) status = gd_file_no_memory(path);
    if (status == GD_OK) {
        gd_put_u64((uint8_t *)*header, padded - LENGTH_BYTES);
        memcpy(*header + LENGTH_BYTES, json, length);
        memset(*header + LENGTH_BYTES + length, ' ', padded - LENGTH_BYTES - length);
        *bytes = padded;
        for (size_t i = 0; i < count; i++) entries[i].begin += padded;
    }
    gd_free(json);
    return status;
}
