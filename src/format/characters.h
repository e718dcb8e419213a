/* characters.h - a text as numbers of its characters. */
#ifndef GRADUS_FORMAT_CHARACTERS_H
#define GRADUS_FORMAT_CHARACTERS_H

#include "gradus/status.h"

typedef struct gd_characters {
    uint32_t *vocabulary; /* the code points that occur, sorted */
    int64_t n_vocabulary;
    int64_t count; /* of characters in the text */
    int itemsize;  /* of `numbers`: 1 where the vocabulary has at most 256, 2 up to 65536, else 4 */
    uint8_t *numbers; /* of each character, in the vocabulary; little-endian */
} gd_characters;

/* UTF-8; a byte order mark at the beginning is left out. GD_E_FORMAT: not UTF-8, with line and offset. */
gd_status gd_characters_read(gd_characters *c, const char *name, const char *text, size_t bytes);
void gd_characters_free(gd_characters *c); /* one that is all zero is fine */

/* A code point as UTF-8, with a zero byte behind it. */
void gd_character_print(uint32_t code, char text[5]);

#endif
