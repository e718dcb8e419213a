/* crc32.h - CRC-32, the checksum of ZIP, gzip and PNG, and CRC-32C, that of TFRecord files. */
#ifndef GRADUS_FORMAT_CRC32_H
#define GRADUS_FORMAT_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Extends the checksum `crc` of earlier bytes by these bytes; start with 0. */
uint32_t gd_crc32(uint32_t crc, const void *data, size_t bytes);
uint32_t gd_crc32c(uint32_t crc, const void *data, size_t bytes);

#endif
