/* checksum.h - a checksum of a file, inside its own JSON.
 *
 * The JSON (the header of a safetensors file, an index of shards) has a member
 *
 *     "gradus.checksum": "xxh64:0123456789abcdef"
 *
 * with the XXH64 of all bytes of the file, in which its own 16 digits count as '0'. A writer puts
 * GD_CHECKSUM_BLANK there, and overwrites the digits at the end. Readers that do not know it see an
 * ordinary string.
 */
#ifndef GRADUS_FORMAT_CHECKSUM_H
#define GRADUS_FORMAT_CHECKSUM_H

#include "format/file.h"
#include "format/xxh64.h"

#define GD_CHECKSUM_KEY   "gradus.checksum"
#define GD_CHECKSUM_BLANK "xxh64:0000000000000000"
enum { GD_CHECKSUM_DIGITS = 16 };

/* Where in the text of valid JSON the digits are; false: nowhere. */
bool gd_checksum_find(const char *json, size_t bytes, size_t *digits_at);

void gd_checksum_print(uint64_t sum, char digits[GD_CHECKSUM_DIGITS]);

/* Reads the file once and compares. GD_E_FORMAT: it is damaged. It reads with pread, so that a disk that fails
 * is GD_E_IO here and not a signal when a map is read. */
gd_status gd_checksum_check(const gd_file_reader *file, uint64_t digits_at);

#endif
