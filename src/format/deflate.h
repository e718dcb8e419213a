/* deflate.h - compressing (RFC 1951): simple and quick, in one block with the fixed codes. */
#ifndef GRADUS_FORMAT_DEFLATE_H
#define GRADUS_FORMAT_DEFLATE_H

#include <stddef.h>
#include <stdint.h>

/* The most bytes that `bytes` bytes become. */
static inline size_t gd_deflate_bound(size_t bytes) { return bytes + bytes / 8 + 16; }

/* Compresses into `out`, which has room for gd_deflate_bound(bytes); returns how many bytes it wrote, or
 * 0 where there is no memory. */
size_t gd_deflate(uint8_t *out, const uint8_t *data, size_t bytes);

#endif
