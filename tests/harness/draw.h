/* draw.h - random numbers for tests: the same in every run and on every machine.
 *
 *     draws d = {seed};
 *     int64_t rows = draw_between(&d, 1, 40);
 *     double x = draw_real(&d);
 *
 * Golden results depend on draw_at (harness/data.c, zoo_rule.c and test_metrics.c of unit/); the Python
 * programs in tests/golden/ have the same formula.
 */
#ifndef GRADUS_TESTS_HARNESS_DRAW_H
#define GRADUS_TESTS_HARNESS_DRAW_H

#include <stdbool.h>
#include <stdint.h>

/* A stream of numbers. It starts as {seed}. */
typedef struct draws {
    uint64_t state;
} draws;

/* Number i of the stream that starts as {seed}: splitmix64 of a counter. */
static inline uint64_t draw_at(uint64_t seed, uint64_t i) {
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* The next number of a stream, all 64 bits. */
static inline uint64_t draw_bits(draws *d) {
    const uint64_t bits = draw_at(d->state, 0);
    d->state += 0x9e3779b97f4a7c15;
    return bits;
}

/* From 0 to n - 1. */
static inline int draw_below(draws *d, int n) { return (int)(draw_bits(d) % (unsigned)n); }

/* From low to high, both included. */
static inline int64_t draw_between(draws *d, int64_t low, int64_t high) {
    return low + (int64_t)(draw_bits(d) % (uint64_t)(high - low + 1));
}

/* In [-1, 1). */
static inline double draw_real(draws *d) { return (double)(draw_bits(d) >> 11) * 0x1p-52 - 1; }

/* True once in n draws. */
static inline bool draw_one_in(draws *d, int n) { return draw_below(d, n) == 0; }

#endif
