/* zip.c - the ZIP reader. See zip.h and zip_layout.h. */
#include "format/zip.h"

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "format/bytes.h"
#include "format/crc32.h"
#include "format/inflate.h"
#include "format/zip_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_COMMENT = 0xFFFF, /* after the end record */
    DEFLATE_RATIO = 1032, /* the best possible: 258 bytes from two bits */
};

struct gd_zip_reader {
    const gd_file_reader *file;
    uint64_t directory_offset; /* the entries end there, too */
    size_t count;
    gd_zip_entry *entries;
    char *names; /* each ends with a zero byte */
};

/* The position of the directory, from the end records. */
typedef struct directory {
    uint64_t offset, bytes, count;
} directory;

static gd_status fail_at(const gd_file_reader *file, uint64_t where, const char *what) {
    return gd_fail(GD_E_FORMAT, "%s: the ZIP archive is wrong at %" PRIu64 ": %s",
                   gd_file_reader_path(file), where, what);
}

/* --- the end records -------------------------------------------------------------------------- */

/* Finds the end record in the last bytes of the file; -1: there is none. Its comment must reach to
 * the end of the file, which excludes a signature inside a comment. */
static ptrdiff_t find_end_record(const uint8_t *tail, size_t bytes) {
    for (ptrdiff_t i = (ptrdiff_t)bytes - END_BYTES; i >= 0; i--)
        if (gd_get_u32(tail + i) == END_SIGNATURE &&
            gd_get_u16(tail + i + 20) == bytes - END_BYTES - (size_t)i)
            return i;
    return -1;
}

static gd_status read_end64(const gd_file_reader *file, uint64_t end_at, directory *d) {
    uint8_t locator[LOCATOR_BYTES], end[END64_BYTES];
    if (end_at < LOCATOR_BYTES) return fail_at(file, end_at, "no room for a Zip64 locator");
    uint64_t locator_at = end_at - LOCATOR_BYTES;
    GD_TRY(gd_file_reader_read_at(file, locator_at, locator, sizeof locator));
    if (gd_get_u32(locator) != LOCATOR_SIGNATURE)
        return fail_at(file, locator_at, "the Zip64 locator that its numbers need is missing");
    uint64_t end64_at = gd_get_u64(locator + 8);
    if (end64_at > locator_at || locator_at - end64_at < END64_BYTES)
        return fail_at(file, locator_at, "the Zip64 end is at the wrong position");
    GD_TRY(gd_file_reader_read_at(file, end64_at, end, sizeof end));
    if (gd_get_u32(end) != END64_SIGNATURE)
        return fail_at(file, end64_at, "there is no Zip64 end at the position of the locator");
    if (gd_get_u32(end + 16) != 0 || gd_get_u32(end + 20) != 0 ||
        gd_get_u64(end + 24) != gd_get_u64(end + 32))
        return fail_at(file, end64_at, "it is one of several parts");
    d->count = gd_get_u64(end + 32);
    d->bytes = gd_get_u64(end + 40);
    d->offset = gd_get_u64(end + 48);
    return GD_OK;
}

static gd_status parse_end(const gd_file_reader *file, const uint8_t *tail, size_t bytes,
                           directory *d) {
    ptrdiff_t at = find_end_record(tail, bytes);
    if (at < 0)
        return gd_fail(GD_E_FORMAT, "%s: is not a ZIP archive, or its end is missing",
                       gd_file_reader_path(file));
    const uint8_t *end = tail + at;
    uint64_t end_at = gd_file_reader_size(file) - bytes + (uint64_t)at;
    if (gd_get_u16(end + 4) != 0 || gd_get_u16(end + 6) != 0 ||
        gd_get_u16(end + 8) != gd_get_u16(end + 10))
        return fail_at(file, end_at, "it is one of several parts");
    d->count = gd_get_u16(end + 10);
    d->bytes = gd_get_u32(end + 12);
    d->offset = gd_get_u32(end + 16);
    if (d->count == UINT16_MAX || d->bytes == UINT32_MAX || d->offset == UINT32_MAX)
        GD_TRY(read_end64(file, end_at, d));
    if (d->offset > end_at || d->bytes > end_at - d->offset)
        return fail_at(file, end_at, "the directory is not before the end");
    if (d->count > d->bytes / DIRECTORY_BYTES)
        return fail_at(file, end_at, "more entries than the directory can hold");
    return GD_OK;
}

static gd_status find_directory(const gd_file_reader *file, directory *d) {
    uint64_t size = gd_file_reader_size(file);
    size_t bytes = size < END_BYTES + MAX_COMMENT ? (size_t)size : END_BYTES + MAX_COMMENT;
    uint8_t *tail = gd_malloc(bytes + 1);
    if (tail == NULL) return gd_file_no_memory(gd_file_reader_path(file));
    gd_status status = gd_file_reader_read_at(file, size - bytes, tail, bytes);
    if (status == GD_OK) status = parse_end(file, tail, bytes, d);
    gd_free(tail);
    return status;
}

/* --- the directory ---------------------------------------------------------------------------- */

/* Reads the numbers that did not fit from the Zip64 extra field, which has only those, in this
 * order. */
static bool read_extra64(const uint8_t *extra, size_t bytes, gd_zip_entry *e) {
    uint64_t *wanted[3];
    size_t n = 0;
    if (e->bytes == UINT32_MAX) wanted[n++] = &e->bytes;
    if (e->stored_bytes == UINT32_MAX) wanted[n++] = &e->stored_bytes;
    if (e->offset == UINT32_MAX) wanted[n++] = &e->offset;
    if (n == 0) return true;
    while (bytes >= 4) {
        size_t id = gd_get_u16(extra), size = gd_get_u16(extra + 2);
        extra += 4;
        bytes -= 4;
        if (size > bytes) return false;
        if (id == EXTRA_ZIP64) {
            if (size < 8 * n) return false;
            for (size_t i = 0; i < n; i++) *wanted[i] = gd_get_u64(extra + 8 * i);
            return true;
        }
        extra += size;
        bytes -= size;
    }
    return false;
}

/* Checks the sizes of an entry; returns the error, or NULL. */
static const char *check_entry(const gd_zip_entry *e, uint64_t directory_offset) {
    if (e->offset > directory_offset || directory_offset - e->offset < LOCAL_BYTES ||
        e->stored_bytes > directory_offset - e->offset - LOCAL_BYTES)
        return "an entry reaches into the directory";
    if (e->method == METHOD_STORED && e->bytes != e->stored_bytes)
        return "a stored entry with two sizes";
    if (e->method == METHOD_DEFLATED && e->bytes / DEFLATE_RATIO > e->stored_bytes)
        return "an entry that claims more bytes than it can hold";
    return NULL;
}

/* Reads one entry at `p`; *used is the length of its record. */
static gd_status parse_entry(gd_zip_reader *zip, const uint8_t *p, size_t left, uint64_t where,
                             char *name, gd_zip_entry *e, size_t *used) {
    const gd_file_reader *file = zip->file;
    if (left < DIRECTORY_BYTES || gd_get_u32(p) != DIRECTORY_SIGNATURE)
        return fail_at(file, where, "expected an entry of the directory");
    size_t name_bytes = gd_get_u16(p + 28), extra_bytes = gd_get_u16(p + 30);
    *used = DIRECTORY_BYTES + name_bytes + extra_bytes + gd_get_u16(p + 32);
    if (*used > left) return fail_at(file, where, "an entry runs out of the directory");
    *e = (gd_zip_entry){
        .name = name,
        .flags = gd_get_u16(p + 8),
        .method = gd_get_u16(p + 10),
        .crc = gd_get_u32(p + 16),
        .stored_bytes = gd_get_u32(p + 20),
        .bytes = gd_get_u32(p + 24),
        .offset = gd_get_u32(p + 42),
    };
    const uint8_t *text = p + DIRECTORY_BYTES;
    if (memchr(text, '\0', name_bytes) != NULL)
        return fail_at(file, where, "a zero byte in a name");
    memcpy(name, text, name_bytes);
    name[name_bytes] = '\0';
    if (gd_get_u16(p + 34) != 0 && gd_get_u16(p + 34) != UINT16_MAX)
        return fail_at(file, where, "an entry in another part");
    if (!read_extra64(text + name_bytes, extra_bytes, e))
        return fail_at(file, where, "an entry lacks the Zip64 numbers that it needs");
    const char *problem = check_entry(e, zip->directory_offset);
    return problem ? fail_at(file, where, problem) : GD_OK;
}

static gd_status parse_directory(gd_zip_reader *zip, const directory *d, const uint8_t *bytes) {
    size_t at = 0;
    char *name = zip->names;
    for (size_t i = 0; i < zip->count; i++) {
        size_t used = 0;
        gd_zip_entry *e = &zip->entries[i];
        GD_TRY(parse_entry(zip, bytes + at, (size_t)d->bytes - at, d->offset + at, name, e, &used));
        name += strlen(name) + 1;
        at += used;
    }
    return GD_OK;
}

/* The record of an entry is longer than its name and a zero byte, so the size of the directory is
 * enough for all names. The count was checked against the size, so memory is at most a small
 * multiple of the file. */
static gd_status read_directory(gd_zip_reader *zip, const directory *d) {
    size_t bytes = (size_t)d->bytes, entry_bytes;
    if (bytes != d->bytes || !gd_mul_size((size_t)d->count, sizeof *zip->entries, &entry_bytes))
        return gd_file_no_memory(gd_file_reader_path(zip->file));
    uint8_t *buffer = gd_malloc(bytes + 1);
    zip->names = gd_malloc(bytes + 1);
    zip->entries = gd_malloc(entry_bytes + 1);
    zip->count = (size_t)d->count;
    zip->directory_offset = d->offset;
    gd_status status = buffer && zip->names && zip->entries
                           ? GD_OK
                           : gd_file_no_memory(gd_file_reader_path(zip->file));
    if (status == GD_OK) status = gd_file_reader_read_at(zip->file, d->offset, buffer, bytes);
    if (status == GD_OK) status = parse_directory(zip, d, buffer);
    gd_free(buffer);
    return status;
}

gd_status gd_zip_reader_open(gd_zip_reader **out, const gd_file_reader *file) {
    *out = NULL;
    directory d = {0};
    GD_TRY(find_directory(file, &d));
    gd_zip_reader *zip = gd_calloc(1, sizeof *zip);
    if (zip == NULL) return gd_file_no_memory(gd_file_reader_path(file));
    zip->file = file;
    gd_status status = read_directory(zip, &d);
    if (status != GD_OK) {
        gd_zip_reader_close(zip);
        return status;
    }
    *out = zip;
    return GD_OK;
}

void gd_zip_reader_close(gd_zip_reader *zip) {
    if (zip == NULL) return;
    gd_free(zip->entries);
    gd_free(zip->names);
    gd_free(zip);
}

size_t gd_zip_reader_count(const gd_zip_reader *zip) { return zip->count; }

const gd_zip_entry *gd_zip_reader_at(const gd_zip_reader *zip, size_t i) {
    return i < zip->count ? &zip->entries[i] : NULL;
}

const gd_zip_entry *gd_zip_reader_find(const gd_zip_reader *zip, const char *name) {
    for (size_t i = zip->count; i-- > 0;)
        if (strcmp(zip->entries[i].name, name) == 0) return &zip->entries[i];
    return NULL;
}

/* --- contents --------------------------------------------------------------------------------- */

struct gd_zip_stream {
    const gd_file_reader *file;
    const gd_zip_entry *entry;
    uint64_t at, stored_left; /* the next byte in the file, and the bytes of the entry from there */
    uint64_t left;            /* bytes not yet read by the caller */
    uint32_t crc;
    gd_inflate *inflate; /* deflated entries only */
    char name[];
};

/* Checks that the local header agrees with the directory: readers may use either of them. */
static gd_status check_local_header(gd_zip_stream *s) {
    const gd_zip_entry *e = s->entry;
    uint8_t local[LOCAL_BYTES];
    GD_TRY(gd_file_reader_read_at(s->file, e->offset, local, sizeof local));
    if (gd_get_u32(local) != LOCAL_SIGNATURE)
        return fail_at(s->file, e->offset, "there is no entry at the position in the directory");
    size_t name_bytes = gd_get_u16(local + 26), extra_bytes = gd_get_u16(local + 28);
    if (gd_get_u16(local + 8) != e->method || name_bytes != strlen(e->name))
        return fail_at(s->file, e->offset, "an entry is not the one that the directory lists");
    char *name = gd_malloc(name_bytes + 1);
    if (name == NULL) return gd_file_no_memory(gd_file_reader_path(s->file));
    gd_status status = gd_file_reader_read_at(s->file, e->offset + LOCAL_BYTES, name, name_bytes);
    bool same = status == GD_OK && memcmp(name, e->name, name_bytes) == 0;
    gd_free(name);
    GD_TRY(status);
    if (!same)
        return fail_at(s->file, e->offset, "an entry has another name than in the directory");
    s->at = e->offset + LOCAL_BYTES + name_bytes + extra_bytes;
    return GD_OK;
}

static gd_status fetch_stored(void *source, uint8_t *buffer, size_t room, size_t *got) {
    gd_zip_stream *s = source;
    *got = room < s->stored_left ? room : (size_t)s->stored_left;
    GD_TRY(gd_file_reader_read_at(s->file, s->at, buffer, *got));
    s->at += *got;
    s->stored_left -= *got;
    return GD_OK;
}

static gd_status start_stream(gd_zip_stream *s, uint64_t directory_offset) {
    const gd_zip_entry *e = s->entry;
    if (e->flags & FLAG_ENCRYPTED) return gd_fail(GD_E_UNSUPPORTED, "%s: is encrypted", s->name);
    if (e->method != METHOD_STORED && e->method != METHOD_DEFLATED)
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: is compressed by method %d; only deflate is supported", s->name,
                       e->method);
    GD_TRY(check_local_header(s));
    if (s->at > directory_offset || e->stored_bytes > directory_offset - s->at)
        return fail_at(s->file, e->offset, "an entry reaches into the directory");
    if (e->method == METHOD_DEFLATED) {
        s->inflate = gd_inflate_new(s->name, fetch_stored, s);
        if (s->inflate == NULL) return gd_file_no_memory(gd_file_reader_path(s->file));
    }
    return GD_OK;
}

gd_status gd_zip_stream_open(gd_zip_stream **out, const gd_zip_reader *zip,
                             const gd_zip_entry *entry) {
    *out = NULL;
    const char *path = gd_file_reader_path(zip->file);
    size_t name_bytes = strlen(path) + 2 + strlen(entry->name) + 1;
    gd_zip_stream *s = gd_calloc(1, sizeof *s + name_bytes);
    if (s == NULL) return gd_file_no_memory(gd_file_reader_path(zip->file));
    snprintf(s->name, name_bytes, "%s: %s", path, entry->name);
    s->file = zip->file;
    s->entry = entry;
    s->left = entry->bytes;
    s->stored_left = entry->stored_bytes;
    gd_status status = start_stream(s, zip->directory_offset);
    if (status != GD_OK) {
        gd_zip_stream_close(s);
        return status;
    }
    *out = s;
    return GD_OK;
}

void gd_zip_stream_close(gd_zip_stream *s) {
    if (s == NULL) return;
    gd_inflate_free(s->inflate);
    gd_free(s);
}

const char *gd_zip_stream_name(const gd_zip_stream *s) { return s->name; }

uint64_t gd_zip_stream_offset(const gd_zip_stream *s) { return s->at; }

static gd_status inflate_exactly(gd_zip_stream *s, void *buffer, size_t bytes) {
    size_t got;
    GD_TRY(gd_inflate_read(s->inflate, buffer, bytes, &got));
    if (got < bytes)
        return gd_fail(GD_E_FORMAT, "%s: decompresses to fewer bytes than in the directory",
                       s->name);
    if (bytes < s->left) return GD_OK;
    uint8_t beyond;
    GD_TRY(gd_inflate_read(s->inflate, &beyond, 1, &got));
    if (got != 0)
        return gd_fail(GD_E_FORMAT, "%s: decompresses to more bytes than in the directory",
                       s->name);
    return GD_OK;
}

gd_status gd_zip_stream_read(gd_zip_stream *s, void *buffer, size_t bytes) {
    if (bytes > s->left)
        return gd_fail(GD_E_FORMAT, "%s: needs %zu bytes more, but has only %" PRIu64, s->name,
                       bytes, s->left);
    if (bytes == 0) return GD_OK;
    size_t got;
    if (s->inflate != NULL) GD_TRY(inflate_exactly(s, buffer, bytes));
    else GD_TRY(fetch_stored(s, buffer, bytes, &got));
    s->crc = gd_crc32(s->crc, buffer, bytes);
    s->left -= bytes;
    if (s->left == 0 && s->crc != s->entry->crc)
        return gd_fail(GD_E_FORMAT, "%s: is damaged: its checksum is %08x instead of %08x", s->name,
                       s->crc, s->entry->crc);
    return GD_OK;
}
