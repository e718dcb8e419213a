/* ascii.h - character classes, the same in every locale.
 *
 * <ctype.h> follows the program's locale: in ISO 8859-1 isalpha() is true of 0xE9. Names and
 * numbers in records, expressions and options are ASCII.
 */
#ifndef GRADUS_CORE_ASCII_H
#define GRADUS_CORE_ASCII_H

#include <stdbool.h>
#include <stddef.h>

static inline bool gd_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool gd_is_lower(char c) { return c >= 'a' && c <= 'z'; }
static inline bool gd_is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static inline bool gd_is_alpha(char c) { return gd_is_lower(c) || gd_is_upper(c); }
static inline bool gd_is_alnum(char c) { return gd_is_alpha(c) || gd_is_digit(c); }
static inline bool gd_is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static inline char gd_to_upper(char c) { return gd_is_lower(c) ? (char)(c - 'a' + 'A') : c; }

/* Whether two texts of this length are equal if case is ignored. */
static inline char gd_to_lower(char c) { return gd_is_upper(c) ? (char)(c - 'A' + 'a') : c; }
static inline bool gd_is_same_word(const char *a, const char *b, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (gd_to_upper(a[i]) != gd_to_upper(b[i])) return false;
    return true;
}

#endif
