/* inflate.c - see inflate.h.
 *
 * Deflated data are blocks: stored, or coded with two Huffman codes (literals and lengths,
 * distances) that are fixed or defined at the start of the block. A symbol is a literal byte, the
 * end of the block, or a length, which a distance follows: a copy of earlier output.
 *
 * The decoder can stop between any two output bytes: it keeps the rest of a copy or of a stored
 * block, and the last 32 KiB of output in a window.
 */
#include "format/inflate.h"

#include "core/alloc.h"
#include "core/error.h"

#include <string.h>

enum {
    WINDOW = 32768,
    INPUT = 8192,
    MAX_BITS = 15,
    FAST_BITS = 10, /* codes up to this length are decoded by one lookup */
    MAX_LITERALS = 288,
    MAX_DISTANCES = 32,
    END_OF_BLOCK = 256,
};

/* A canonical Huffman code. fast[next FAST_BITS bits] is symbol << 4 | length, or 0 for a longer
 * code; those are found by counting: codes of one length are consecutive numbers, and `symbols`
 * lists the symbols by length, then value. */
typedef struct code {
    uint16_t fast[1 << FAST_BITS];
    uint16_t count[MAX_BITS + 1];
    uint16_t symbols[MAX_LITERALS];
} code;

struct gd_inflate {
    const char *name;
    gd_inflate_fetch_fn fetch;
    void *source;

    uint64_t bits; /* read but not used, the next one lowest */
    int bit_count;
    size_t input_at, input_end;

    enum { BETWEEN_BLOCKS, IN_STORED, IN_CODED, AT_END } state;
    bool last_block;
    uint32_t stored_left;
    uint32_t copy_left, copy_distance;
    uint64_t total; /* bytes of output */

    code literals, distances;
    uint8_t input[INPUT];
    uint8_t window[WINDOW];
};

static gd_status fail_damaged(const gd_inflate *z, const char *what) {
    return gd_fail(GD_E_FORMAT, "%s: the deflated data are damaged after %llu bytes: %s", z->name,
                   (unsigned long long)z->total, what);
}

/* --- bits ------------------------------------------------------------------------------------- */

/* Fetches until at least `want` bits are available, or the input ends. Decoding may look at bits
 * beyond the end, which are 0. It may not consume them: drop_bits() detects truncated data. */
static gd_status fill_bits(gd_inflate *z, int want) {
    while (z->bit_count < want) {
        if (z->input_at == z->input_end) {
            z->input_at = z->input_end = 0;
            GD_TRY(z->fetch(z->source, z->input, INPUT, &z->input_end));
            if (z->input_end == 0) return GD_OK;
        }
        while (z->bit_count <= 56 && z->input_at < z->input_end) {
            z->bits |= (uint64_t)z->input[z->input_at++] << z->bit_count;
            z->bit_count += 8;
        }
    }
    return GD_OK;
}

static gd_status drop_bits(gd_inflate *z, int n) {
    if (n > z->bit_count) return fail_damaged(z, "they end too early");
    z->bits >>= n;
    z->bit_count -= n;
    return GD_OK;
}

static gd_status take_bits(gd_inflate *z, int n, uint32_t *value) {
    if (z->bit_count < n) GD_TRY(fill_bits(z, n));
    *value = (uint32_t)(z->bits & ((1u << n) - 1));
    return drop_bits(z, n);
}

/* --- codes ------------------------------------------------------------------------------------ */

static uint32_t reverse_bits(uint32_t value, int bits) {
    uint32_t reversed = 0;
    for (; bits > 0; bits--, value >>= 1) reversed = reversed << 1 | (value & 1);
    return reversed;
}

/* Builds a code from the length of each symbol's code (0: not used). Returns false if the lengths
 * do not form a complete code. Two incomplete ones are valid: a single code of one bit, for a block
 * with one distance, and no codes at all, for a block without copies. */
static bool build_code(code *c, const uint8_t *lengths, int n) {
    memset(c->fast, 0, sizeof c->fast);
    memset(c->count, 0, sizeof c->count);
    for (int i = 0; i < n; i++) c->count[lengths[i]]++;
    int used = n - c->count[0];
    c->count[0] = 0;
    int left = 1;
    uint16_t first[MAX_BITS + 2] = {0}; /* the first code of each length */
    uint16_t at[MAX_BITS + 2] = {0};    /* and the index of its symbol in `symbols` */
    for (int bits = 1; bits <= MAX_BITS; bits++) {
        left = left * 2 - c->count[bits];
        if (left < 0) return false;
        first[bits + 1] = (uint16_t)((first[bits] + c->count[bits]) << 1);
        at[bits + 1] = (uint16_t)(at[bits] + c->count[bits]);
    }
    if (left > 0 && used > 0 && !(used == 1 && c->count[1] == 1)) return false;

    for (int i = 0; i < n; i++) {
        int bits = lengths[i];
        if (bits == 0) continue;
        c->symbols[at[bits]++] = (uint16_t)i;
        uint32_t value = reverse_bits(first[bits]++, bits); /* codes have their highest bit first */
        if (bits > FAST_BITS) continue;
        for (; value < 1 << FAST_BITS; value += 1u << bits)
            c->fast[value] = (uint16_t)(i << 4 | bits);
    }
    return true;
}

static gd_status decode_symbol(gd_inflate *z, const code *c, uint32_t *symbol) {
    if (z->bit_count < MAX_BITS) GD_TRY(fill_bits(z, MAX_BITS));
    uint32_t entry = c->fast[z->bits & ((1 << FAST_BITS) - 1)];
    if (entry != 0) {
        *symbol = entry >> 4;
        return drop_bits(z, (int)(entry & 15));
    }
    uint32_t value = 0, first = 0, index = 0;
    for (int bits = 1; bits <= MAX_BITS; bits++) {
        value |= (uint32_t)(z->bits >> (bits - 1)) & 1;
        uint32_t count = c->count[bits];
        if (value - first < count) {
            *symbol = c->symbols[index + value - first];
            return drop_bits(z, bits);
        }
        index += count;
        first = (first + count) << 1;
        value <<= 1;
    }
    return fail_damaged(z, "a code that has no symbol");
}

/* --- blocks ----------------------------------------------------------------------------------- */

static void build_fixed_codes(gd_inflate *z) {
    uint8_t lengths[MAX_LITERALS];
    memset(lengths, 8, 144);
    memset(lengths + 144, 9, 112);
    memset(lengths + 256, 7, 24);
    memset(lengths + 280, 8, 8);
    build_code(&z->literals, lengths, MAX_LITERALS);
    memset(lengths, 5, MAX_DISTANCES);
    build_code(&z->distances, lengths, MAX_DISTANCES);
}

/* Reads the lengths of both codes, which are coded themselves: 0..15 a length, 16 repeats the
 * previous one 3..6 times, 17 and 18 repeat zero 3..10 and 11..138 times. */
static gd_status read_lengths(gd_inflate *z, uint8_t *lengths, uint32_t n) {
    for (uint32_t i = 0; i < n;) {
        uint32_t symbol, times, value = 0;
        GD_TRY(decode_symbol(z, &z->literals, &symbol));
        if (symbol < 16) {
            lengths[i++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 16) {
            if (i == 0) return fail_damaged(z, "a repeated length with none before it");
            value = lengths[i - 1];
        }
        GD_TRY(take_bits(z, symbol == 16 ? 2 : symbol == 17 ? 3 : 7, &times));
        times += symbol == 18 ? 11 : 3;
        if (times > n - i) return fail_damaged(z, "more code lengths than codes");
        memset(lengths + i, (int)value, times);
        i += times;
    }
    return GD_OK;
}

static gd_status read_codes(gd_inflate *z) {
    static const uint8_t order[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                      11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint32_t literals, distances, lengths_coded, length;
    GD_TRY(take_bits(z, 5, &literals));
    GD_TRY(take_bits(z, 5, &distances));
    GD_TRY(take_bits(z, 4, &lengths_coded));
    literals += 257;
    distances += 1;
    lengths_coded += 4;
    if (literals > 286 || distances > 30) return fail_damaged(z, "too many codes");
    uint8_t lengths[286 + 30] = {0};
    for (uint32_t i = 0; i < lengths_coded; i++) {
        GD_TRY(take_bits(z, 3, &length));
        lengths[order[i]] = (uint8_t)length;
    }
    if (!build_code(&z->literals, lengths, 19)) return fail_damaged(z, "impossible code lengths");
    GD_TRY(read_lengths(z, lengths, literals + distances));
    if (lengths[END_OF_BLOCK] == 0) return fail_damaged(z, "a block that cannot end");
    if (!build_code(&z->literals, lengths, (int)literals) ||
        !build_code(&z->distances, lengths + literals, (int)distances))
        return fail_damaged(z, "impossible code lengths");
    return GD_OK;
}

static gd_status begin_block(gd_inflate *z) {
    if (z->last_block) {
        z->state = AT_END;
        return GD_OK;
    }
    uint32_t last, type, size, check;
    GD_TRY(take_bits(z, 1, &last));
    GD_TRY(take_bits(z, 2, &type));
    z->last_block = last;
    z->state = IN_CODED;
    if (type == 1) {
        build_fixed_codes(z);
        return GD_OK;
    }
    if (type == 2) return read_codes(z);
    if (type == 3) return fail_damaged(z, "a block of an unknown type");
    GD_TRY(drop_bits(z, z->bit_count & 7)); /* stored blocks start at a byte */
    GD_TRY(take_bits(z, 16, &size));
    GD_TRY(take_bits(z, 16, &check));
    if (size != (~check & 0xFFFF))
        return fail_damaged(z, "a stored block whose two lengths differ");
    z->stored_left = size;
    z->state = IN_STORED;
    return GD_OK;
}

/* --- output ----------------------------------------------------------------------------------- */

static inline void emit_byte(gd_inflate *z, uint8_t *out, uint8_t byte) {
    z->window[z->total++ & (WINDOW - 1)] = byte;
    *out = byte;
}

/* Reads the length and the distance of a copy; the symbol determines a base and extra bits of
 * each. */
static gd_status begin_copy(gd_inflate *z, uint32_t symbol) {
    static const uint16_t length_base[29] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                             15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                             67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t length_extra[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                             2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    uint32_t extra;
    symbol -= END_OF_BLOCK + 1;
    if (symbol >= 29) return fail_damaged(z, "an undefined length symbol");
    GD_TRY(take_bits(z, length_extra[symbol], &extra));
    uint32_t length = length_base[symbol] + extra;

    GD_TRY(decode_symbol(z, &z->distances, &symbol));
    if (symbol >= 30) return fail_damaged(z, "an undefined distance symbol");
    int extra_bits = symbol < 4 ? 0 : (int)symbol / 2 - 1;
    uint32_t base = symbol < 4 ? symbol + 1 : ((2 + (symbol & 1)) << extra_bits) + 1;
    GD_TRY(take_bits(z, extra_bits, &extra));
    z->copy_distance = base + extra;
    if (z->copy_distance > z->total) return fail_damaged(z, "a copy from before the beginning");
    z->copy_left = length;
    return GD_OK;
}

gd_status gd_inflate_read(gd_inflate *z, void *buffer, size_t bytes, size_t *got) {
    uint8_t *out = buffer, *end = out + bytes;
    *got = 0;
    while (out < end && z->state != AT_END) {
        uint32_t value;
        if (z->copy_left > 0) {
            for (; z->copy_left > 0 && out < end; z->copy_left--)
                emit_byte(z, out++, z->window[(z->total - z->copy_distance) & (WINDOW - 1)]);
        } else if (z->state == BETWEEN_BLOCKS) {
            GD_TRY(begin_block(z));
        } else if (z->state == IN_STORED) {
            for (; z->stored_left > 0 && out < end; z->stored_left--) {
                GD_TRY(take_bits(z, 8, &value));
                emit_byte(z, out++, (uint8_t)value);
            }
            if (z->stored_left == 0) z->state = BETWEEN_BLOCKS;
        } else {
            GD_TRY(decode_symbol(z, &z->literals, &value));
            if (value < END_OF_BLOCK) emit_byte(z, out++, (uint8_t)value);
            else if (value == END_OF_BLOCK) z->state = BETWEEN_BLOCKS;
            else GD_TRY(begin_copy(z, value));
        }
    }
    *got = bytes - (size_t)(end - out);
    return GD_OK;
}

size_t gd_inflate_unused(const gd_inflate *z) {
    return (size_t)z->bit_count / 8 + (z->input_end - z->input_at);
}

gd_inflate *gd_inflate_new(const char *name, gd_inflate_fetch_fn fetch, void *source) {
    gd_inflate *z = gd_calloc(1, sizeof *z);
    if (z == NULL) return NULL;
    z->name = name;
    z->fetch = fetch;
    z->source = source;
    return z;
}

void gd_inflate_free(gd_inflate *z) { gd_free(z); }
