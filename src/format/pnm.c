/* pnm.c - decodes PBM, PGM and PPM, as text (P1 to P3) and as bytes (P4 to P6); see image.h. */
#include "core/error.h"
#include "format/image.h"

#include "core/ascii.h"

typedef struct parser {
    const char *name;
    const uint8_t *data;
    size_t bytes, at;
} parser;

static gd_status fail_damaged(const parser *p, const char *what) {
    return gd_fail(GD_E_FORMAT, "%s: damaged PNM image at byte %zu: %s", p->name, p->at, what);
}

/* Skips space and comments, from # to the end of the line. */
static void skip_space(parser *p) {
    for (bool comment = false; p->at < p->bytes; p->at++) {
        const char c = (char)p->data[p->at];
        if (comment) comment = c != '\n' && c != '\r';
        else if (c == '#') comment = true;
        else if (!gd_is_space(c)) return;
    }
}

static gd_status read_number(parser *p, uint32_t most, uint32_t *value) {
    skip_space(p);
    if (p->at == p->bytes) return fail_damaged(p, "it ends too early");
    if (!gd_is_digit((char)p->data[p->at])) return fail_damaged(p, "a number was expected");
    for (*value = 0; p->at < p->bytes && gd_is_digit((char)p->data[p->at]); p->at++) {
        *value = *value * 10 + (uint32_t)(p->data[p->at] - '0');
        if (*value > most) return fail_damaged(p, "the number is too large");
    }
    return GD_OK;
}

static uint8_t scale_value(uint32_t v, uint32_t most) {
    if (v > most) v = most;
    return (uint8_t)(most == 255 ? v : (v * 255u + most / 2) / most);
}

/* P1 needs no space between its digits. 1 is black. */
static gd_status read_bit(parser *p, uint8_t *to) {
    skip_space(p);
    if (p->at == p->bytes) return fail_damaged(p, "it ends too early");
    if (p->data[p->at] != '0' && p->data[p->at] != '1')
        return fail_damaged(p, "a 0 or a 1 was expected");
    *to = p->data[p->at++] == '1' ? 0 : 255;
    return GD_OK;
}

static gd_status read_text(parser *p, gd_bitmap *image, bool bits, uint32_t most) {
    const size_t count = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    for (size_t i = 0; i < count; i++) {
        uint32_t v;
        if (bits) {
            GD_TRY(read_bit(p, image->pixels + i));
            continue;
        }
        GD_TRY(read_number(p, most, &v));
        image->pixels[i] = scale_value(v, most);
    }
    return GD_OK;
}

static void read_bits(parser *p, gd_bitmap *image) {
    const size_t row = ((size_t)image->width + 7) / 8;
    for (int y = 0; y < image->height; y++, p->at += row)
        for (int x = 0; x < image->width; x++)
            image->pixels[(size_t)y * (size_t)image->width + (size_t)x] =
                p->data[p->at + (size_t)x / 8] >> (7 - x % 8) & 1 ? 0 : 255;
}

static void read_bytes(parser *p, gd_bitmap *image, uint32_t most) {
    const size_t count = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    const uint8_t *from = p->data + p->at;
    for (size_t i = 0; i < count; i++)
        image->pixels[i] = most < 256
                               ? scale_value(from[i], most)
                               : scale_value((uint32_t)(from[2 * i] << 8 | from[2 * i + 1]), most);
}

/* A lower bound of the bytes of the pixels. The caller has checked the product of the sizes, so
 * nothing overflows. */
static uint64_t least_bytes(char kind, uint64_t width, uint64_t height, uint32_t most) {
    switch (kind) {
    case '1': return width * height;
    case '2': return 2 * width * height - 1;
    case '3': return 6 * width * height - 1;
    case '4': return (width + 7) / 8 * height;
    case '5': return (most < 256 ? 1u : 2u) * width * height;
    default: return (most < 256 ? 3u : 6u) * width * height;
    }
}

gd_status gd_pnm_decode(gd_bitmap *image, const char *name, const uint8_t *data, size_t bytes) {
    parser p = {.name = name, .data = data, .bytes = bytes, .at = 2};
    const char kind = (char)data[1];
    const bool bits = kind == '1' || kind == '4', text = kind <= '3';
    uint32_t width, height, most = 1;
    GD_TRY(read_number(&p, GD_BITMAP_MAX_PIXELS, &width));
    GD_TRY(read_number(&p, GD_BITMAP_MAX_PIXELS, &height));
    if (!bits) GD_TRY(read_number(&p, 65535, &most));
    if (most == 0) return fail_damaged(&p, "the largest value is 0");
    if (!text) { /* one byte of space, then the pixels */
        if (p.at == bytes || !gd_is_space((char)data[p.at]))
            return fail_damaged(&p, "a space was expected");
        p.at++;
    }
    if ((uint64_t)width * height <= GD_BITMAP_MAX_PIXELS && width && height &&
        least_bytes(kind, width, height, most) > bytes - p.at)
        return gd_fail(
            GD_E_FORMAT,
            "%s: damaged PNM image: %u x %u pixels do not fit into the %zu bytes from byte %zu",
            name, width, height, bytes - p.at, p.at);
    GD_TRY(gd_bitmap_new(image, name, "PNM", width, height, kind == '3' || kind == '6' ? 3 : 1));
    if (text) return read_text(&p, image, bits, most);
    if (bits) read_bits(&p, image);
    else read_bytes(&p, image, most);
    return GD_OK;
}
