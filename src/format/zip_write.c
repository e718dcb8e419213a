/* zip_write.c - the ZIP writer: stored entries. See zip.h and zip_layout.h.
 *
 * An entry's size is known when it ends, so its local header is written with room for Zip64
 * numbers and patched then. (NumPy does the same.)
 */
#include "format/zip.h"

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "format/bytes.h"
#include "format/crc32.h"
#include "format/utf8.h"
#include "format/zip_layout.h"

#include <stdlib.h>
#include <string.h>

enum {
    DATE = 1 << 5 | 1,         /* 1 January 1980, the earliest date */
    LOCAL_EXTRA = 4 + 8 + 8,   /* both sizes */
    MAX_EXTRA = 4 + 8 + 8 + 8, /* in the directory, with the offset */
    LOCAL_CRC_AT = 14,
};

typedef struct written_entry {
    char *name;
    uint64_t offset, bytes;
    uint32_t crc;
    uint16_t flags;
} written_entry;

struct gd_zip_writer {
    gd_file_writer *file;
    written_entry *entries;
    size_t count, capacity;
    bool open; /* the last entry is not finished */
};

gd_status gd_zip_writer_begin(gd_zip_writer **out, const char *path) {
    *out = NULL;
    gd_zip_writer *zip = gd_calloc(1, sizeof *zip);
    if (zip == NULL) return gd_fail(GD_E_MEMORY, "%s: no memory left to write it", path);
    gd_status status = gd_file_writer_begin(&zip->file, path);
    if (status != GD_OK) {
        gd_free(zip);
        return status;
    }
    *out = zip;
    return GD_OK;
}

static void writer_free(gd_zip_writer *zip) {
    for (size_t i = 0; i < zip->count; i++) gd_free(zip->entries[i].name);
    gd_free(zip->entries);
    gd_free(zip);
}

void gd_zip_writer_cancel(gd_zip_writer *zip) {
    if (zip == NULL) return;
    gd_file_writer_cancel(zip->file);
    writer_free(zip);
}

/* --- entries ---------------------------------------------------------------------------------- */

/* Overwrites the zeros in the local header of the open entry with its checksum and sizes. */
static gd_status end_entry(gd_zip_writer *zip) {
    if (!zip->open) return GD_OK;
    zip->open = false;
    const written_entry *e = &zip->entries[zip->count - 1];
    uint8_t crc[4], sizes[16];
    gd_put_u32(crc, e->crc);
    gd_put_u64(gd_put_u64(sizes, e->bytes), e->bytes);
    uint64_t sizes_at = e->offset + LOCAL_BYTES + strlen(e->name) + 4;
    GD_TRY(gd_file_writer_write_at(zip->file, e->offset + LOCAL_CRC_AT, crc, sizeof crc));
    return gd_file_writer_write_at(zip->file, sizes_at, sizes, sizeof sizes);
}

static gd_status check_name(const gd_zip_writer *zip, const char *name, uint16_t *flags) {
    const char *path = gd_file_writer_path(zip->file);
    size_t length = strlen(name);
    if (length == 0 || length > UINT16_MAX)
        return gd_fail(GD_E_ARGUMENT, "%s: an entry's name cannot have %zu bytes", path, length);
    *flags = 0;
    for (const char *p = name, *end = name + length; p < end;) {
        size_t bytes = gd_utf8_length(p, end);
        if (bytes == 0)
            return gd_fail(GD_E_ARGUMENT, "%s: an entry's name is not UTF-8: %.100s", path, name);
        if (bytes > 1) *flags = FLAG_UTF8;
        p += bytes;
    }
    return GD_OK;
}

static gd_status add_entry(gd_zip_writer *zip, const char *name, uint16_t flags) {
    if (zip->count == zip->capacity) {
        size_t capacity, bytes;
        if (!gd_mul_size(zip->capacity, 2, &capacity))
            return gd_file_no_memory(gd_file_writer_path(zip->file));
        if (capacity == 0) capacity = 16;
        if (!gd_mul_size(capacity, sizeof *zip->entries, &bytes))
            return gd_file_no_memory(gd_file_writer_path(zip->file));
        written_entry *larger = gd_realloc(zip->entries, bytes);
        if (larger == NULL) return gd_file_no_memory(gd_file_writer_path(zip->file));
        zip->entries = larger;
        zip->capacity = capacity;
    }
    size_t bytes = strlen(name) + 1;
    char *copy = gd_malloc(bytes);
    if (copy == NULL) return gd_file_no_memory(gd_file_writer_path(zip->file));
    memcpy(copy, name, bytes);
    zip->entries[zip->count++] =
        (written_entry){.name = copy, .offset = gd_file_writer_position(zip->file), .flags = flags};
    return GD_OK;
}

gd_status gd_zip_writer_entry(gd_zip_writer *zip, const char *name) {
    uint16_t flags = 0;
    GD_TRY(end_entry(zip));
    GD_TRY(check_name(zip, name, &flags));
    GD_TRY(add_entry(zip, name, flags));

    uint8_t local[LOCAL_BYTES], extra[LOCAL_EXTRA] = {0}, *p = local;
    p = gd_put_u32(p, LOCAL_SIGNATURE);
    p = gd_put_u16(p, VERSION_ZIP64);
    p = gd_put_u16(p, flags);
    p = gd_put_u16(p, METHOD_STORED);
    p = gd_put_u16(p, 0); /* midnight */
    p = gd_put_u16(p, DATE);
    p = gd_put_u32(p, 0); /* the checksum, until end_entry */
    p = gd_put_u32(p, UINT32_MAX);
    p = gd_put_u32(p, UINT32_MAX);
    p = gd_put_u16(p, (uint16_t)strlen(name));
    gd_put_u16(p, LOCAL_EXTRA);
    gd_put_u16(gd_put_u16(extra, EXTRA_ZIP64), LOCAL_EXTRA - 4);
    GD_TRY(gd_file_writer_write(zip->file, local, sizeof local));
    GD_TRY(gd_file_writer_write(zip->file, name, strlen(name)));
    GD_TRY(gd_file_writer_write(zip->file, extra, sizeof extra));
    zip->open = true;
    return GD_OK;
}

gd_status gd_zip_writer_write(gd_zip_writer *zip, const void *data, size_t bytes) {
    if (!zip->open)
        return gd_fail(GD_E_STATE, "%s: contents without an open entry",
                       gd_file_writer_path(zip->file));
    written_entry *e = &zip->entries[zip->count - 1];
    GD_TRY(gd_file_writer_write(zip->file, data, bytes));
    e->crc = gd_crc32(e->crc, data, bytes);
    e->bytes += bytes;
    return GD_OK;
}

/* --- the directory ---------------------------------------------------------------------------- */

/* A 32-bit field: all ones if the value is in a Zip64 field. */
static uint32_t low_or_ones(uint64_t value) {
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

static gd_status write_directory_entry(gd_zip_writer *zip, const written_entry *e) {
    uint8_t extra[MAX_EXTRA], *x = extra + 4;
    if (e->bytes >= UINT32_MAX) x = gd_put_u64(gd_put_u64(x, e->bytes), e->bytes);
    if (e->offset >= UINT32_MAX) x = gd_put_u64(x, e->offset);
    uint16_t extra_bytes = (uint16_t)(x - extra);
    if (extra_bytes == 4) extra_bytes = 0; /* all numbers fit: no extra field */
    gd_put_u16(gd_put_u16(extra, EXTRA_ZIP64), (uint16_t)(x - extra - 4));

    uint16_t version = extra_bytes ? VERSION_ZIP64 : VERSION_PLAIN;
    uint8_t record[DIRECTORY_BYTES], *p = record;
    p = gd_put_u32(p, DIRECTORY_SIGNATURE);
    p = gd_put_u16(p, version); /* of the writer */
    p = gd_put_u16(p, version); /* needed to read */
    p = gd_put_u16(p, e->flags);
    p = gd_put_u16(p, METHOD_STORED);
    p = gd_put_u16(p, 0);
    p = gd_put_u16(p, DATE);
    p = gd_put_u32(p, e->crc);
    p = gd_put_u32(p, low_or_ones(e->bytes));
    p = gd_put_u32(p, low_or_ones(e->bytes));
    p = gd_put_u16(p, (uint16_t)strlen(e->name));
    p = gd_put_u16(p, extra_bytes);
    p = gd_put_u16(p, 0); /* no comment */
    p = gd_put_u16(p, 0); /* part 0 */
    p = gd_put_u16(p, 0); /* attributes */
    p = gd_put_u32(p, 0);
    gd_put_u32(p, low_or_ones(e->offset));
    GD_TRY(gd_file_writer_write(zip->file, record, sizeof record));
    GD_TRY(gd_file_writer_write(zip->file, e->name, strlen(e->name)));
    return gd_file_writer_write(zip->file, extra, extra_bytes);
}

static gd_status write_end64(gd_zip_writer *zip, uint64_t offset, uint64_t bytes) {
    uint64_t end64_at = gd_file_writer_position(zip->file);
    uint8_t record[END64_BYTES + LOCATOR_BYTES], *p = record;
    p = gd_put_u32(p, END64_SIGNATURE);
    p = gd_put_u64(p, END64_BYTES - 12); /* the size of the rest */
    p = gd_put_u16(p, VERSION_ZIP64);
    p = gd_put_u16(p, VERSION_ZIP64);
    p = gd_put_u32(p, 0);
    p = gd_put_u32(p, 0);
    p = gd_put_u64(p, zip->count);
    p = gd_put_u64(p, zip->count);
    p = gd_put_u64(p, bytes);
    p = gd_put_u64(p, offset);
    p = gd_put_u32(p, LOCATOR_SIGNATURE);
    p = gd_put_u32(p, 0);
    p = gd_put_u64(p, end64_at);
    gd_put_u32(p, 1); /* the number of parts */
    return gd_file_writer_write(zip->file, record, sizeof record);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks all names at the end: sorting once is cheaper than a search before each entry. */
static gd_status check_names_differ(const gd_zip_writer *zip) {
    if (zip->count < 2) return GD_OK;
    const char **names = gd_calloc(zip->count, sizeof *names);
    if (names == NULL) return gd_file_no_memory(gd_file_writer_path(zip->file));
    for (size_t i = 0; i < zip->count; i++) names[i] = zip->entries[i].name;
    qsort(names, zip->count, sizeof *names, compare_names);
    gd_status status = GD_OK;
    for (size_t i = 1; i < zip->count && status == GD_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = gd_fail(GD_E_ARGUMENT, "%s: two entries of the name %.100s",
                             gd_file_writer_path(zip->file), names[i]);
    gd_free(names);
    return status;
}

static gd_status write_directory(gd_zip_writer *zip) {
    GD_TRY(end_entry(zip));
    GD_TRY(check_names_differ(zip));
    uint64_t offset = gd_file_writer_position(zip->file);
    for (size_t i = 0; i < zip->count; i++) GD_TRY(write_directory_entry(zip, &zip->entries[i]));
    uint64_t bytes = gd_file_writer_position(zip->file) - offset;
    if (zip->count >= UINT16_MAX || offset >= UINT32_MAX || bytes >= UINT32_MAX)
        GD_TRY(write_end64(zip, offset, bytes));

    uint16_t count = zip->count < UINT16_MAX ? (uint16_t)zip->count : UINT16_MAX;
    uint8_t end[END_BYTES], *p = end;
    p = gd_put_u32(p, END_SIGNATURE);
    p = gd_put_u16(p, 0);
    p = gd_put_u16(p, 0);
    p = gd_put_u16(p, count);
    p = gd_put_u16(p, count);
    p = gd_put_u32(p, low_or_ones(bytes));
    p = gd_put_u32(p, low_or_ones(offset));
    gd_put_u16(p, 0); /* no comment */
    return gd_file_writer_write(zip->file, end, sizeof end);
}

gd_status gd_zip_writer_commit(gd_zip_writer *zip) {
    gd_status status = write_directory(zip);
    if (status == GD_OK) status = gd_file_writer_commit(zip->file);
    else gd_file_writer_cancel(zip->file);
    writer_free(zip);
    return status;
}
