/* random.h - the Philox 4x32-10 generator, and the state of the process. */
#ifndef GRADUS_CORE_RANDOM_H
#define GRADUS_CORE_RANDOM_H

#include "gradus/random.h"

/* Takes the next call number, or `count` call numbers, of which it returns the first. */
gd_rng gd_rng_take(void);
gd_rng gd_rng_take_many(uint64_t count);

/* gd_rng_set_state for the library itself, which may use it while a function is traced. */
void gd_rng_restore(gd_rng state);

/* A generator for the calls of this thread, in place of the process's, from begin to end: what other
 * threads draw does not change its numbers. gd_seed, gd_rng_state and gd_generator() on this thread
 * mean it, too. Without a seed (0) it continues the process's generator, to which the end returns
 * the new state; if other threads have drawn meanwhile, that with the higher call number is kept. */
typedef struct gd_own_rng {
    gd_rng state, started;
    gd_rng *before; /* that of an outer run; NULL: the process's */
    bool seeded;
} gd_own_rng;
void gd_own_rng_begin(gd_own_rng *own, uint64_t seed);
void gd_own_rng_end(gd_own_rng *own);

/* Four words for block `block` of call `rng.call`: element i of a call uses word i % 4 of block
 * i / 4, on every device. */
static inline void gd_philox(gd_rng rng, uint64_t block, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)rng.call, c3 = (uint32_t)(rng.call >> 32);
    uint32_t k0 = (uint32_t)rng.seed, k1 = (uint32_t)(rng.seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* [0, 1) with 24 bits. */
static inline float gd_unit_f32(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

#endif
