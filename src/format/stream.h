/* stream.h - reads a file sequentially, and decompresses gzip.
 *
 * gzip is recognized by the content, not by the name. Offsets, in messages and here, count
 * decompressed bytes.
 */
#ifndef GRADUS_FORMAT_STREAM_H
#define GRADUS_FORMAT_STREAM_H

#include "format/file.h"

typedef struct gd_stream gd_stream;

gd_status gd_stream_open(gd_stream **out, const char *path);
/* Reads from memory, which is not copied; messages call it `name`. */
gd_status gd_stream_open_memory(gd_stream **out, const char *name, const void *data, size_t bytes);
void gd_stream_close(gd_stream *stream); /* NULL is fine */

const char *gd_stream_path(const gd_stream *stream);
bool gd_stream_is_gzip(const gd_stream *stream);
uint64_t gd_stream_offset(const gd_stream *stream); /* bytes read so far */

/* An upper bound of the bytes that follow: a header that claims more is wrong. */
uint64_t gd_stream_most(const gd_stream *stream);

/* Reads the next `bytes` bytes; *got is less only at the end. */
gd_status gd_stream_read(gd_stream *stream, void *buffer, size_t bytes, size_t *got);
/* Reads exactly `bytes` bytes; `what` is for the message of a truncated file: "the pixels". */
gd_status gd_stream_take(gd_stream *stream, void *buffer, size_t bytes, const char *what);
/* Fails if bytes are left, or if the checksum of a gzip file is wrong. */
gd_status gd_stream_finish(gd_stream *stream);

/* Reads the rest into memory from gd_malloc, with a zero byte after it; at most `limit` bytes. */
gd_status gd_stream_read_all(gd_stream *stream, size_t limit, char **data, size_t *bytes);

#endif
