/* deflate.c - see deflate.h.
 *
 * Only one candidate for a match is compared: the last position with the same three bytes. In
 * images with areas of one colour that finds most matches.
 */
#include "format/deflate.h"

#include <string.h>

#include "core/alloc.h"

enum { WINDOW = 32768, HASH_BITS = 14, MIN_MATCH = 3, MAX_MATCH = 258 };

typedef struct writer {
    uint8_t *at;
    uint64_t bits; /* not written yet, the first one lowest */
    int count;
} writer;

static void put_bits(writer *w, uint32_t value, int count) {
    w->bits |= (uint64_t)value << w->count;
    for (w->count += count; w->count >= 8; w->count -= 8, w->bits >>= 8)
        *w->at++ = (uint8_t)w->bits;
}

/* Huffman codes are written with their highest bit first. */
static void put_code(writer *w, uint32_t code, int count) {
    uint32_t reversed = 0;
    for (int i = 0; i < count; i++) reversed |= (code >> i & 1) << (count - 1 - i);
    put_bits(w, reversed, count);
}

static void put_symbol(writer *w, uint32_t symbol) {
    if (symbol < 144) put_code(w, 0x30 + symbol, 8);
    else if (symbol < 256) put_code(w, 0x190 + symbol - 144, 9);
    else if (symbol < 280) put_code(w, symbol - 256, 7);
    else put_code(w, 0xC0 + symbol - 280, 8);
}

/* Lengths 3 to 10 and distances 1 to 4 have a symbol each; after that each power of two is divided
 * into 4 (2) symbols of equal width, and extra bits select the value. */
static void put_length(writer *w, uint32_t length) {
    uint32_t rest = length - MIN_MATCH, extra = 0;
    if (length == MAX_MATCH) {
        put_symbol(w, 285);
        return;
    }
    while (rest >> extra >= 8) extra++;
    put_symbol(w, 257 + 4 * extra + (rest >> extra));
    put_bits(w, rest & ((1u << extra) - 1), (int)extra);
}

static void put_distance(writer *w, uint32_t distance) {
    uint32_t rest = distance - 1, extra = 0;
    while (rest >> extra >= 4) extra++;
    put_code(w, 2 * extra + (rest >> extra), 5);
    put_bits(w, rest & ((1u << extra) - 1), (int)extra);
}

static uint32_t hash_bytes(const uint8_t *p) {
    return (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16) * 0x9E3779B1u >> (32 - HASH_BITS);
}

size_t gd_deflate(uint8_t *out, const uint8_t *data, size_t bytes) {
    /* for each hash of three bytes: their last position plus 1; 0: none */
    size_t *seen = gd_calloc(1 << HASH_BITS, sizeof *seen);
    if (!seen) return 0;
    writer w = {.at = out};
    put_bits(&w, 1 | 1 << 1, 3); /* the last block, with fixed codes */
    for (size_t i = 0; i < bytes;) {
        const size_t left = bytes - i, most = left < MAX_MATCH ? left : MAX_MATCH;
        size_t length = 0, from = 0;
        if (left >= MIN_MATCH) {
            size_t *slot = &seen[hash_bytes(data + i)];
            from = *slot;
            *slot = i + 1;
            if (from && i + 1 - from <= WINDOW)
                while (length < most && data[from - 1 + length] == data[i + length]) length++;
        }
        if (length >= MIN_MATCH) {
            put_length(&w, (uint32_t)length);
            put_distance(&w, (uint32_t)(i + 1 - from));
            i += length;
        } else {
            put_symbol(&w, data[i++]);
        }
    }
    put_symbol(&w, 256);
    put_bits(&w, 0, 7); /* pads the last byte */
    gd_free(seen);
    return (size_t)(w.at - out);
}
