/* checksum.h - a checksum of a file, inside its own JSON.
 *
 * The JSON (the header of a safetensors file, an index of shards) has a member
 *
 *     "gradus.checksum": "xxh64:0123456789abcdef"
 *
 * with the XXH64 of all bytes of the file, where the 16 digits themselves count as '0'. A writer
 * first writes GD_CHECKSUM_BLANK and overwrites the digits at the end. To other readers it is an
 * ordinary string.
 */
#ifndef GRADUS_FORMAT_CHECKSUM_H
#define GRADUS_FORMAT_CHECKSUM_H

#include "format/file.h"
#include "format/xxh64.h"

#define GD_CHECKSUM_KEY   "gradus.checksum"
#define GD_CHECKSUM_BLANK "xxh64:0000000000000000"
enum { GD_CHECKSUM_DIGITS = 16 };

/* Finds the digits in the text of valid JSON; false: there are none. */
bool gd_checksum_find(const char *json, size_t bytes, size_t *digits_at);

void gd_checksum_print(uint64_t sum, char digits[GD_CHECKSUM_DIGITS]);

/* Reads the file and compares its checksum. GD_E_FORMAT: it is damaged. Uses pread, so that a disk
 * error is GD_E_IO here and not a signal when a mapping is read. */
gd_status gd_checksum_check(const gd_file_reader *file, uint64_t digits_at);

#endif
