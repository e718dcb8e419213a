/* permute.h - a pseudorandom permutation that needs no table.
 *
 * gd_shuffled(key, position, n) is a permutation of [0, n): a pure function of the key and n, which
 * any thread can evaluate for any position. A Feistel network with Philox as its round function
 * permutes the smallest 2^bits >= n. A result beyond n goes through the network again until it is
 * below n (cycle walking): since 2^bits < 2n, twice on average at most.
 */
#ifndef GRADUS_DATA_PERMUTE_H
#define GRADUS_DATA_PERMUTE_H

#include "core/random.h"

/* The purpose of a random number. Different purposes give unrelated numbers for one seed. */
typedef enum gd_draw {
    GD_DRAW_ORDER = 1, /* of samples in an epoch */
    GD_DRAW_SPLIT,     /* gd_dataset_random_split */
    GD_DRAW_SAMPLE,    /* weighted, with replacement */
    GD_DRAW_KEY,       /* weighted, without replacement */
    GD_DRAW_CLASS,     /* the order of classes in a round of the stratified sampler */
    GD_DRAW_MEMBER,    /* the order of the samples of a class */
    GD_DRAW_START,     /* the first due time of a group */
    GD_DRAW_BATCH,     /* the order of batches of the bucketed sampler */
    GD_DRAW_PLACE,     /* the place of its batch that is not full, in the last pool */
} gd_draw;

static inline gd_rng gd_draw_key(gd_draw what, uint64_t seed, uint64_t epoch) {
    return (gd_rng){.seed = seed ^ (uint64_t)what * 0xD1342543DE82EF95u, .call = epoch};
}

/* Few bits need more rounds, as a round mixes little. */
static inline int gd_shuffle_rounds(int bits) { return bits < 16 ? 16 : 8; }

/* position < n. */
static inline int64_t gd_shuffled(gd_rng key, int64_t position, int64_t n) {
    if (n < 2) return 0;
    int bits = 64 - __builtin_clzll((uint64_t)n - 1);
    if (bits < 2) bits = 2;
    const int low_bits = bits / 2, high_bits = bits - low_bits;
    const uint64_t low_mask = (UINT64_C(1) << low_bits) - 1,
                   high_mask = (UINT64_C(1) << high_bits) - 1;
    uint64_t x = (uint64_t)position;
    do {
        uint64_t low = x & low_mask, high = x >> low_bits;
        for (int round = 0; round < gd_shuffle_rounds(bits); round++) {
            uint32_t words[4];
            gd_philox(key, (uint64_t)round << 32 | (round & 1 ? high : low), words);
            if (round & 1) low ^= words[0] & low_mask;
            else high ^= words[0] & high_mask;
        }
        x = high << low_bits | low;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

#endif
