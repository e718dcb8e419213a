/* stream.c - see stream.h. */
#include "format/stream.h"

#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "format/gzip.h"

enum { BUFFER = 1 << 16 };

struct gd_stream {
    gd_file_reader *file;
    gd_gzip *gzip;   /* NULL: not compressed */
    uint64_t offset; /* of the next byte for the caller */
    size_t at, end;  /* the unread bytes of the buffer */
    uint8_t buffer[BUFFER];
};

/* Creates a stream, which owns the file, also if this fails. */
static gd_status open_stream(gd_stream **out, gd_file_reader *file) {
    gd_stream *s = gd_malloc(sizeof *s);
    *out = NULL;
    if (!s) {
        const gd_status status = gd_file_no_memory(gd_file_reader_path(file));
        gd_file_reader_close(file);
        return status;
    }
    memset(s, 0, offsetof(gd_stream, buffer));
    s->file = file;
    bool gzip;
    gd_status status = gd_gzip_is(file, &gzip);
    if (status == GD_OK && gzip) status = gd_gzip_open(&s->gzip, file);
    if (status == GD_OK) *out = s;
    else gd_stream_close(s);
    return status;
}

gd_status gd_stream_open(gd_stream **out, const char *path) {
    gd_file_reader *file;
    *out = NULL;
    GD_TRY(gd_file_reader_open(&file, path));
    return open_stream(out, file);
}

gd_status gd_stream_open_memory(gd_stream **out, const char *name, const void *data, size_t bytes) {
    gd_file_reader *file;
    *out = NULL;
    GD_TRY(gd_file_reader_open_memory(&file, name, data, bytes));
    return open_stream(out, file);
}

void gd_stream_close(gd_stream *s) {
    if (!s) return;
    gd_gzip_close(s->gzip);
    gd_file_reader_close(s->file);
    gd_free(s);
}

const char *gd_stream_path(const gd_stream *s) { return gd_file_reader_path(s->file); }
bool gd_stream_is_gzip(const gd_stream *s) { return s->gzip != NULL; }
uint64_t gd_stream_offset(const gd_stream *s) { return s->offset; }

uint64_t gd_stream_most(const gd_stream *s) {
    const uint64_t buffered = s->end - s->at;
    if (!s->gzip) return gd_file_reader_size(s->file) - s->offset;
    const uint64_t most = gd_gzip_most(s->gzip);
    return most > UINT64_MAX - buffered ? UINT64_MAX : most + buffered;
}

/* Reads without the buffer, which is empty. */
static gd_status read_source(gd_stream *s, void *to, size_t bytes, size_t *got) {
    if (s->gzip) return gd_gzip_read(s->gzip, to, bytes, got);
    const uint64_t left = gd_file_reader_size(s->file) - s->offset;
    *got = left < bytes ? (size_t)left : bytes;
    return gd_file_reader_read_at(s->file, s->offset, to, *got);
}

gd_status gd_stream_read(gd_stream *s, void *buffer, size_t bytes, size_t *got) {
    *got = 0;
    while (*got < bytes) {
        uint8_t *to = (uint8_t *)buffer + *got;
        size_t part = s->end - s->at;
        if (part > 0) {
            if (part > bytes - *got) part = bytes - *got;
            memcpy(to, s->buffer + s->at, part);
            s->at += part;
        } else if (bytes - *got >= BUFFER) {
            GD_TRY(read_source(s, to, bytes - *got, &part));
            if (part == 0) return GD_OK;
        } else {
            s->at = s->end = 0;
            GD_TRY(read_source(s, s->buffer, BUFFER, &s->end));
            if (s->end == 0) return GD_OK;
            continue;
        }
        *got += part;
        s->offset += part;
    }
    return GD_OK;
}

gd_status gd_stream_take(gd_stream *s, void *buffer, size_t bytes, const char *what) {
    size_t got;
    const uint64_t start = s->offset;
    GD_TRY(gd_stream_read(s, buffer, bytes, &got));
    if (got == bytes) return GD_OK;
    return gd_fail(GD_E_FORMAT,
                   "%s: ends at byte %llu, inside %s (%zu bytes from byte %llu); is it truncated?",
                   gd_stream_path(s), (unsigned long long)s->offset, what, bytes,
                   (unsigned long long)start);
}

gd_status gd_stream_finish(gd_stream *s) {
    uint8_t byte;
    size_t got;
    const uint64_t end = s->offset;
    GD_TRY(gd_stream_read(s, &byte, 1, &got));
    if (got == 0) return GD_OK;
    return gd_fail(GD_E_FORMAT, "%s: should end at byte %llu, but has more bytes",
                   gd_stream_path(s), (unsigned long long)end);
}

gd_status gd_stream_read_all(gd_stream *s, size_t limit, char **data, size_t *bytes) {
    /* the length of a gzip file is not known: start with a guess */
    uint64_t expected = s->gzip ? 4 * gd_file_reader_size(s->file) : gd_stream_most(s);
    if (expected > limit) expected = limit;
    size_t room = (size_t)expected + 2, have = 0, got;
    char *text = gd_malloc(room);
    gd_status status = text ? GD_OK : GD_E_MEMORY;
    while (status == GD_OK) {
        status = gd_stream_read(s, text + have, room - 1 - have, &got);
        have += got;
        if (status != GD_OK || have < room - 1) break;
        const size_t larger = room < SIZE_MAX / 2 ? room * 2 : room;
        char *grown = have <= limit ? gd_realloc(text, larger) : NULL;
        if (grown) text = grown, room = larger;
        else status = GD_E_MEMORY;
    }
    if (status == GD_E_MEMORY)
        status = have > limit
                     ? gd_fail(GD_E_FORMAT, "%s: has more than %zu bytes", gd_stream_path(s), limit)
                     : gd_fail(GD_E_MEMORY, "%s: no memory for its contents", gd_stream_path(s));
    if (status == GD_OK && have > limit)
        status = gd_fail(GD_E_FORMAT, "%s: has more than %zu bytes", gd_stream_path(s), limit);
    *data = NULL;
    *bytes = 0;
    if (status != GD_OK) {
        gd_free(text);
        return status;
    }
    text[have] = 0;
    *data = text;
    *bytes = have;
    return GD_OK;
}
