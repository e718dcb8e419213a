/* characters.h - reads a text as indices into the list of its distinct characters. */
#ifndef GRADUS_FORMAT_CHARACTERS_H
#define GRADUS_FORMAT_CHARACTERS_H

#include "gradus/status.h"

typedef struct gd_characters {
    uint32_t *vocabulary; /* the code points that occur, sorted */
    int64_t n_vocabulary;
    int64_t count;    /* of characters in the text */
    int itemsize;     /* of `numbers`: 1 for a vocabulary of up to 256, 2 for up to 65536, else 4 */
    uint8_t *numbers; /* the index of each character in the vocabulary, little-endian */
} gd_characters;

/* Reads UTF-8 and skips a byte order mark. GD_E_FORMAT: not UTF-8; the message has line and
 * offset. */
gd_status gd_characters_read(gd_characters *c, const char *name, const char *text, size_t bytes);
void gd_characters_free(gd_characters *c); /* {0} is fine */

/* A code point as UTF-8, with a zero byte after it. */
void gd_character_print(uint32_t code, char text[5]);

#endif
