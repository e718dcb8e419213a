/* inflate.h - decompresses deflated data (RFC 1951) in pieces. The caller's buffer bounds each
 * piece. */
#ifndef GRADUS_FORMAT_INFLATE_H
#define GRADUS_FORMAT_INFLATE_H

#include "gradus/status.h"

/* Fetches up to `room` compressed bytes; *got == 0 means that there are no more. */
typedef gd_status (*gd_inflate_fetch_fn)(void *source, uint8_t *buffer, size_t room, size_t *got);

typedef struct gd_inflate gd_inflate;

/* NULL: no memory. `name` is for messages and must outlive the decoder. */
gd_inflate *gd_inflate_new(const char *name, gd_inflate_fetch_fn fetch, void *source);
void gd_inflate_free(gd_inflate *z); /* NULL is fine */

/* Decodes the next `bytes` bytes; *got is less only at the end of the data. GD_E_FORMAT: the data
 * are damaged or truncated. */
gd_status gd_inflate_read(gd_inflate *z, void *buffer, size_t bytes, size_t *got);

/* The number of fetched bytes that follow the deflated data and were not decoded. */
size_t gd_inflate_unused(const gd_inflate *z);

#endif
