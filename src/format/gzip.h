/* gzip.h - reading gzip files (RFC 1952): all members, checksums and sizes verified.
 *
 * The decoder fills the buffer it is given and no more. What a format allocates on the word of its
 * own header it compares with gd_gzip_most first, so a small file cannot claim much memory.
 */
#ifndef GRADUS_FORMAT_GZIP_H
#define GRADUS_FORMAT_GZIP_H

#include "format/file.h"

typedef struct gd_gzip gd_gzip;

/* Whether the file begins as a gzip file does. */
gd_status gd_gzip_is(const gd_file_reader *file, bool *is);

/* The file is borrowed and must outlive the decoder. */
gd_status gd_gzip_open(gd_gzip **out, const gd_file_reader *file);
void gd_gzip_close(gd_gzip *gzip); /* NULL is fine */

/* The next `bytes` bytes; *got is less only at the end of the file, when the checksums of all members
 * have been compared. GD_E_FORMAT: damaged or truncated; the message has the byte offset. */
gd_status gd_gzip_read(gd_gzip *gzip, void *buffer, size_t bytes, size_t *got);

/* No more bytes than this can come out of what has not been decoded yet. */
uint64_t gd_gzip_most(const gd_gzip *gzip);

#endif
