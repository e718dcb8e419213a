/* checksum.h - a checksum of a file, inside its own JSON.
 *
 * The JSON (the header of a safetensors file, an index of shards) has a member
 *
 *     "gradus.checksum": "xxh64:0123456789abcdef"
 *
 * with the XXH64 of all bytes of the file, computed with '0' in place of the 16 digits themselves.
 * A writer first writes GD_CHECKSUM_BLANK and overwrites the digits at the end. Other programs read
 * it as an ordinary string.
 */
#ifndef GRADUS_FORMAT_CHECKSUM_H
#define GRADUS_FORMAT_CHECKSUM_H

#include "format/file.h"
#include "format/xxh64.h"

#define GD_CHECKSUM_KEY   "gradus.checksum"
#define GD_CHECKSUM_BLANK "xxh64:0000000000000000"
enum { GD_CHECKSUM_DIGITS = 16 };

/* Finds the position of the digits in valid JSON; false: it has none. */
bool gd_checksum_find(const char *json, size_t bytes, size_t *digits_at);

void gd_checksum_print(uint64_t sum, char digits[GD_CHECKSUM_DIGITS]);

/* Reads the file and compares its checksum. GD_E_FORMAT: it is damaged. Uses pread: a disk error is
 * GD_E_IO, where a mapping would raise a signal. */
gd_status gd_checksum_check(const gd_file_reader *file, uint64_t digits_at);

#endif
