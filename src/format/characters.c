/* characters.c - see characters.h. */
#include "format/characters.h"

#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "format/bytes.h"
#include "format/file.h"
#include "format/utf8.h"

enum { CODES = 0x110000 };

static uint32_t decode_character(const char *p, size_t length) {
    const uint8_t *s = (const uint8_t *)p;
    if (length == 1) return s[0];
    uint32_t code = s[0] & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) code = code << 6 | (s[i] & 0x3F);
    return code;
}

static gd_status fail_utf8(const char *name, const char *text, const char *at) {
    int64_t line = 1;
    for (const char *p = text; p < at; p++) line += *p == '\n';
    return gd_fail(
        GD_E_FORMAT,
        "%s: byte 0x%02x at byte %lld (line %lld) is not UTF-8; unit=byte takes any file", name,
        (uint8_t)*at, (long long)(at - text), (long long)line);
}

/* Sets numbers[code] to 1 for each character of the text. */
static gd_status mark_characters(gd_characters *c, const char *name, const char *text,
                                 const char *end, uint32_t *numbers) {
    size_t length;
    for (const char *p = text; p < end; p += length) {
        length = gd_utf8_length(p, end);
        if (length == 0) return fail_utf8(name, text, p);
        numbers[decode_character(p, length)] = 1;
        c->count++;
    }
    return GD_OK;
}

/* Lists the marked characters; numbers[code] becomes the index. */
static gd_status build_vocabulary(gd_characters *c, const char *name, uint32_t *numbers) {
    for (uint32_t code = 0; code < CODES; code++) c->n_vocabulary += numbers[code];
    c->itemsize = c->n_vocabulary <= 256 ? 1 : c->n_vocabulary <= 65536 ? 2 : 4;
    c->vocabulary = gd_malloc((size_t)(c->n_vocabulary + 1) * sizeof *c->vocabulary);
    c->numbers = gd_malloc((size_t)c->count * (size_t)c->itemsize + 1);
    if (!c->vocabulary || !c->numbers) return gd_file_no_memory(name);
    for (uint32_t code = 0, n = 0; code < CODES; code++)
        if (numbers[code]) {
            c->vocabulary[n] = code;
            numbers[code] = n++;
        }
    return GD_OK;
}

static gd_status read_text(gd_characters *c, const char *name, const char *text, const char *end,
                           uint32_t *numbers) {
    if (end - text >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3;
    GD_TRY(mark_characters(c, name, text, end, numbers));
    GD_TRY(build_vocabulary(c, name, numbers));
    uint8_t *to = c->numbers;
    for (const char *p = text; p < end; to += c->itemsize) {
        const size_t length = gd_utf8_length(p, end);
        const uint32_t n = numbers[decode_character(p, length)];
        p += length;
        if (c->itemsize == 1) *to = (uint8_t)n;
        else if (c->itemsize == 2) gd_put_u16(to, (uint16_t)n);
        else gd_put_u32(to, n);
    }
    return GD_OK;
}

gd_status gd_characters_read(gd_characters *c, const char *name, const char *text, size_t bytes) {
    *c = (gd_characters){.count = 0};
    uint32_t *numbers = gd_calloc(CODES, sizeof *numbers);
    const gd_status status =
        numbers ? read_text(c, name, text, text + bytes, numbers) : gd_file_no_memory(name);
    gd_free(numbers);
    if (status != GD_OK) gd_characters_free(c);
    return status;
}

void gd_characters_free(gd_characters *c) {
    gd_free(c->vocabulary);
    gd_free(c->numbers);
    *c = (gd_characters){.count = 0};
}

void gd_character_print(uint32_t code, char text[5]) { *gd_utf8_put(text, code) = 0; }
