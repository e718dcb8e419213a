/* gzip.h - reads gzip files (RFC 1952) with all members, and verifies checksums and sizes.
 *
 * A format must compare the sizes in its header with gd_gzip_most before it allocates memory: a
 * small damaged file may claim any size.
 */
#ifndef GRADUS_FORMAT_GZIP_H
#define GRADUS_FORMAT_GZIP_H

#include "format/file.h"

typedef struct gd_gzip gd_gzip;

/* Whether the file starts with the magic bytes of gzip. */
gd_status gd_gzip_is(const gd_file_reader *file, bool *is);

/* The file is borrowed and must outlive the decoder. */
gd_status gd_gzip_open(gd_gzip **out, const gd_file_reader *file);
void gd_gzip_close(gd_gzip *gzip); /* NULL is fine */

/* Reads the next `bytes` bytes; *got is less only at the end of the file, when the checksums of all
 * members have been compared. GD_E_FORMAT: damaged or truncated; the message has the byte
 * offset. */
gd_status gd_gzip_read(gd_gzip *gzip, void *buffer, size_t bytes, size_t *got);

/* An upper bound of the bytes that are still to be decoded. */
uint64_t gd_gzip_most(const gd_gzip *gzip);

#endif
