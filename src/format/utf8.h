/* utf8.h - checks and writes one character in UTF-8. */
#ifndef GRADUS_FORMAT_UTF8_H
#define GRADUS_FORMAT_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length of the character at `p`, before `end`; 0: not UTF-8 (truncated, overlong, a surrogate,
 * or beyond U+10FFFF). */
static inline size_t gd_utf8_length(const char *p, const char *end) {
    const uint8_t *s = (const uint8_t *)p;
    size_t left = (size_t)(end - p);
    if (left == 0) return 0;
    if (s[0] < 0x80) return 1;
    size_t length = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || left < length) return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return length;
}

/* Writes a code point; returns the position after it. */
static inline char *gd_utf8_put(char *to, uint32_t code) {
    static const uint8_t lead[] = {0, 0xC0, 0xE0, 0xF0};
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *to++ = (char)(lead[more] | code >> (6 * more));
    for (int i = more; i-- > 0;) *to++ = (char)(0x80 | (code >> (6 * i) & 0x3F));
    return to;
}

#endif
