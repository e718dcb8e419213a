/* checksum.c - see checksum.h. */
#include "format/checksum.h"

#include <string.h>

#include "core/alloc.h"
#include "core/error.h"

enum { PIECE = 1 << 18 };

static const char key[] = "\"" GD_CHECKSUM_KEY "\"", kind[] = "\"xxh64:";

static const char *skip_spaces(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
    return at;
}

/* The digits of the member whose key ends at `at`; NULL: its value has another form. */
static const char *find_digits(const char *at, const char *end) {
    at = skip_spaces(at, end);
    if (at == end || *at != ':') return NULL;
    at = skip_spaces(at + 1, end);
    if ((size_t)(end - at) < sizeof kind + GD_CHECKSUM_DIGITS ||
        memcmp(at, kind, sizeof kind - 1) != 0)
        return NULL;
    at += sizeof kind - 1;
    for (int i = 0; i < GD_CHECKSUM_DIGITS; i++)
        if (!at[i] || !strchr("0123456789abcdef", at[i])) return NULL;
    return at[GD_CHECKSUM_DIGITS] == '"' ? at : NULL;
}

bool gd_checksum_find(const char *json, size_t bytes, size_t *digits_at) {
    const char *end = json + bytes;
    for (const char *at = json; (at = memmem(at, (size_t)(end - at), key, sizeof key - 1)) != NULL;
         at++) {
        const bool escaped = at > json && at[-1] == '\\'; /* the end of a longer key */
        const char *digits = escaped ? NULL : find_digits(at + sizeof key - 1, end);
        if (!digits) continue;
        *digits_at = (size_t)(digits - json);
        return true;
    }
    return false;
}

void gd_checksum_print(uint64_t sum, char digits[GD_CHECKSUM_DIGITS]) {
    for (int i = GD_CHECKSUM_DIGITS; i-- > 0; sum >>= 4) digits[i] = "0123456789abcdef"[sum & 15];
}

/* Sets the digits to '0' in a piece of the file that starts at `offset`. */
static void blank_digits(char *piece, uint64_t offset, size_t bytes, uint64_t digits_at) {
    for (uint64_t at = digits_at; at < digits_at + GD_CHECKSUM_DIGITS; at++)
        if (at >= offset && at - offset < bytes) piece[at - offset] = '0';
}

static gd_status compute_checksum(const gd_file_reader *file, uint64_t digits_at, char *piece,
                                  uint64_t *sum) {
    const uint64_t size = gd_file_reader_size(file);
    gd_xxh64 hash = gd_xxh64_begin();
    for (uint64_t offset = 0; offset < size;) {
        const size_t bytes = size - offset < PIECE ? (size_t)(size - offset) : PIECE;
        GD_TRY(gd_file_reader_read_at(file, offset, piece, bytes));
        blank_digits(piece, offset, bytes, digits_at);
        gd_xxh64_add(&hash, piece, bytes);
        offset += bytes;
    }
    *sum = gd_xxh64_value(&hash);
    return GD_OK;
}

gd_status gd_checksum_check(const gd_file_reader *file, uint64_t digits_at) {
    char stored[GD_CHECKSUM_DIGITS], computed[GD_CHECKSUM_DIGITS];
    uint64_t sum;
    GD_TRY(gd_file_reader_read_at(file, digits_at, stored, sizeof stored));
    char *piece = gd_malloc(PIECE);
    if (!piece) return gd_file_no_memory(gd_file_reader_path(file));
    const gd_status status = compute_checksum(file, digits_at, piece, &sum);
    gd_free(piece);
    GD_TRY(status);
    gd_checksum_print(sum, computed);
    if (memcmp(stored, computed, sizeof stored) == 0) return GD_OK;
    return gd_fail(GD_E_FORMAT,
                   "%s: is damaged: its checksum is %.16s, but that of its bytes is %.16s",
                   gd_file_reader_path(file), stored, computed);
}
