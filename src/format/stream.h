/* stream.h - a file read from its first byte to its last, decompressed on the way where it is gzip.
 *
 * Whether it is, the content says and not the name. Offsets, in messages and here, count the bytes
 * that come out.
 */
#ifndef GRADUS_FORMAT_STREAM_H
#define GRADUS_FORMAT_STREAM_H

#include "format/file.h"

typedef struct gd_stream gd_stream;

gd_status gd_stream_open(gd_stream **out, const char *path);
/* Reads from memory, which is not copied; `name` is what messages call it. */
gd_status gd_stream_open_memory(gd_stream **out, const char *name, const void *data, size_t bytes);
void gd_stream_close(gd_stream *stream); /* NULL is fine */

const char *gd_stream_path(const gd_stream *stream);
bool gd_stream_is_gzip(const gd_stream *stream);
uint64_t gd_stream_offset(const gd_stream *stream); /* bytes read so far */

/* No more bytes than this can follow: a file's header that claims more is wrong. */
uint64_t gd_stream_most(const gd_stream *stream);

/* The next `bytes` bytes; *got is less at the end only. */
gd_status gd_stream_read(gd_stream *stream, void *buffer, size_t bytes, size_t *got);
/* Exactly as many; `what` is for the message of a truncated file: "the pixels". */
gd_status gd_stream_take(gd_stream *stream, void *buffer, size_t bytes, const char *what);
/* Fails where bytes are left, and where the checksum of a gzip file is wrong. */
gd_status gd_stream_finish(gd_stream *stream);

/* All that is left, in memory from gd_malloc with a zero byte behind it; at most `limit` bytes. */
gd_status gd_stream_read_all(gd_stream *stream, size_t limit, char **data, size_t *bytes);

#endif
