/* deflate.h - compresses data (RFC 1951), fast and simply: one block with the fixed codes. */
#ifndef GRADUS_FORMAT_DEFLATE_H
#define GRADUS_FORMAT_DEFLATE_H

#include <stddef.h>
#include <stdint.h>

/* An upper bound of the compressed size. */
static inline size_t gd_deflate_bound(size_t bytes) { return bytes + bytes / 8 + 16; }

/* Compresses into `out`, which has room for gd_deflate_bound(bytes); returns the compressed size,
 * or 0 if memory runs out. */
size_t gd_deflate(uint8_t *out, const uint8_t *data, size_t bytes);

#endif
