/* random_sequence.c - gd_random: random numbers one by one. */
#include <math.h>

#include "core/random.h"

gd_random gd_random_of(uint64_t seed, uint64_t stream) {
    return (gd_random){.rng = {.seed = seed, .call = stream}};
}

uint32_t gd_random_word(gd_random *r) {
    if (!r) return 0;
    if (r->left <= 0 || r->left > 4) {
        gd_philox(r->rng, r->block++, r->words);
        r->left = 4;
    }
    return r->words[4 - r->left--];
}

static uint64_t two_words(gd_random *r) {
    const uint64_t high = gd_random_word(r);
    return high << 32 | gd_random_word(r);
}

double gd_random_uniform(gd_random *r) { return (double)(two_words(r) >> 11) * 0x1p-53; }

double gd_random_between(gd_random *r, double low, double high) {
    return low + (high - low) * gd_random_uniform(r);
}

/* 2^64 is not a multiple of `count` in general: the last incomplete range of words would make small
 * results more likely, so such words are drawn again. */
int64_t gd_random_below(gd_random *r, int64_t count) {
    if (count < 2 || !r) return 0;
    const uint64_t n = (uint64_t)count, rest = (UINT64_MAX % n + 1) % n;
    uint64_t x;
    do x = two_words(r);
    while (x > UINT64_MAX - rest);
    return (int64_t)(x % n);
}

double gd_random_normal(gd_random *r) {
    const double u = 1 - gd_random_uniform(r), v = gd_random_uniform(r);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
