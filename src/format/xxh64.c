/* xxh64.c - see xxh64.h. The algorithm is that of the public specification of xxHash, with seed 0.
 *
 * Each of four lanes hashes eight bytes of every 32, so that four multiplications run in parallel.
 * A step of a lane is a bijection of its eight bytes: data that differ in only one lane never have
 * the same hash.
 */
#include "format/xxh64.h"

#include <string.h>

#include "format/bytes.h"

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u,
                      P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;
enum { STRIPE = 32 };

static inline uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static inline uint64_t mix_lane(uint64_t lane, uint64_t input) {
    return rotate(lane + input * P2, 31) * P1;
}

gd_xxh64 gd_xxh64_begin(void) { return (gd_xxh64){.lane = {P1 + P2, P2, 0, 0 - P1}}; }

/* `bytes` is a multiple of 32. */
static void add_stripes(gd_xxh64 *h, const uint8_t *p, size_t bytes) {
    uint64_t a = h->lane[0], b = h->lane[1], c = h->lane[2], d = h->lane[3];
    for (const uint8_t *end = p + bytes; p != end; p += STRIPE) {
        a = mix_lane(a, gd_get_u64(p));
        b = mix_lane(b, gd_get_u64(p + 8));
        c = mix_lane(c, gd_get_u64(p + 16));
        d = mix_lane(d, gd_get_u64(p + 24));
    }
    h->lane[0] = a, h->lane[1] = b, h->lane[2] = c, h->lane[3] = d;
}

void gd_xxh64_add(gd_xxh64 *h, const void *data, size_t bytes) {
    const uint8_t *p = data;
    const size_t waiting = (size_t)(h->bytes % STRIPE);
    if (bytes == 0) return;
    h->bytes += bytes;
    if (waiting) {
        const size_t wanted = STRIPE - waiting, taken = bytes < wanted ? bytes : wanted;
        memcpy(h->waiting + waiting, p, taken);
        if (taken < wanted) return;
        add_stripes(h, h->waiting, STRIPE);
        p += taken;
        bytes -= taken;
    }
    const size_t rest = bytes % STRIPE;
    add_stripes(h, p, bytes - rest);
    memcpy(h->waiting, p + (bytes - rest), rest);
}

static uint64_t merge_lanes(const gd_xxh64 *h) {
    if (h->bytes < STRIPE) return P5; /* the third lane is the seed, 0 */
    uint64_t sum = rotate(h->lane[0], 1) + rotate(h->lane[1], 7) + rotate(h->lane[2], 12) +
                   rotate(h->lane[3], 18);
    for (int i = 0; i < 4; i++) sum = (sum ^ mix_lane(0, h->lane[i])) * P1 + P4;
    return sum;
}

uint64_t gd_xxh64_value(const gd_xxh64 *h) {
    uint64_t sum = merge_lanes(h) + h->bytes;
    const uint8_t *p = h->waiting;
    size_t left = (size_t)(h->bytes % STRIPE);
    for (; left >= 8; left -= 8, p += 8)
        sum = rotate(sum ^ mix_lane(0, gd_get_u64(p)), 27) * P1 + P4;
    for (; left >= 4; left -= 4, p += 4) sum = rotate(sum ^ gd_get_u32(p) * P1, 23) * P2 + P3;
    for (; left > 0; left--, p++) sum = rotate(sum ^ *p * P5, 11) * P1;
    sum = (sum ^ sum >> 33) * P2;
    sum = (sum ^ sum >> 29) * P3;
    return sum ^ sum >> 32;
}
