/* random.h - random numbers of a test's own: the same in every run and on every machine. */
#ifndef GRADUS_TESTS_RANDOM_H
#define GRADUS_TESTS_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

static uint64_t random_state = 1;

static inline uint64_t random_bits(void) { /* splitmix64 */
    uint64_t z = random_state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* From low to high, both included. */
static inline int64_t random_int(int64_t low, int64_t high) {
    return low + (int64_t)(random_bits() % (uint64_t)(high - low + 1));
}

/* In [-1, 1). */
static inline double random_value(void) { return (double)(random_bits() >> 11) * 0x1p-52 - 1; }

static inline bool one_in(int64_t n) { return random_int(1, n) == 1; }

#endif
