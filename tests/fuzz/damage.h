/* damage.h - seeded damage to a file, for the short form of the fuzz targets that the tests run. */
#ifndef TESTS_FUZZ_DAMAGE_H
#define TESTS_FUZZ_DAMAGE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t damage_state = 1;
static uint32_t damage_roll(size_t below) {
    damage_state = damage_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((damage_state >> 33) % below);
}

/* A damaged copy, in memory of exactly its size so that a read beyond it shows. free() it. */
static uint8_t *damaged_copy(const void *original, size_t bytes, size_t *size) {
    uint8_t *data = malloc(bytes + 8);
    memcpy(data, original, bytes);
    memset(data + bytes, 0, 8);
    *size = bytes;
    for (uint32_t n = 1 + damage_roll(4); n-- > 0 && *size > 1;) {
        const uint32_t at = damage_roll(*size);
        const size_t left = *size - at;
        switch (damage_roll(5)) {
        case 0: data[at] = (uint8_t)damage_roll(256); break;
        case 1: data[at] ^= (uint8_t)(1 << damage_roll(8)); break;
        case 2: memmove(data + at, data + at + 1, --*size - at); break;
        case 3: memmove(data + at, data + damage_roll(*size), damage_roll(8) % left); break;
        default:
            if (damage_roll(8) == 0) *size = at + 1; /* cut off */
            break;
        }
    }
    uint8_t *exact = malloc(*size);
    memcpy(exact, data, *size);
    free(data);
    return exact;
}

typedef int (*fuzz_target)(const uint8_t *data, size_t size);

/* The target with the file cut at each byte, also in memory of exactly its size. */
static inline void run_cut(fuzz_target run, const void *whole, size_t bytes) {
    for (size_t n = 0; n <= bytes; n++) {
        uint8_t *part = malloc(n ? n : 1);
        memcpy(part, whole, n);
        run(part, n);
        free(part);
    }
}

/* And with so many damaged copies. */
static inline void run_damaged(fuzz_target run, const void *whole, size_t bytes, int rounds) {
    for (int i = 0; i < rounds; i++) {
        size_t size;
        uint8_t *data = damaged_copy(whole, bytes, &size);
        run(data, size);
        free(data);
    }
}

#endif
