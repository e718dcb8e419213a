/* damage.h - runs fuzz targets on truncated and randomly damaged files, for their short form in the
 * unit tests. */
#ifndef GRADUS_TESTS_FUZZ_DAMAGE_H
#define GRADUS_TESTS_FUZZ_DAMAGE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"

static draws damage = {1};

/* A damaged copy, allocated with its exact size so that sanitizers find reads beyond it. free()
 * it. */
static uint8_t *damaged_copy(const void *original, size_t bytes, size_t *size) {
    uint8_t *data = malloc(bytes + 8);
    memcpy(data, original, bytes);
    memset(data + bytes, 0, 8);
    *size = bytes;
    for (int n = 1 + draw_below(&damage, 4); n-- > 0 && *size > 1;) {
        const size_t at = draw_bits(&damage) % *size;
        const size_t left = *size - at;
        switch (draw_below(&damage, 5)) {
        case 0: data[at] = (uint8_t)draw_below(&damage, 256); break;
        case 1: data[at] ^= (uint8_t)(1 << draw_below(&damage, 8)); break;
        case 2: memmove(data + at, data + at + 1, --*size - at); break;
        case 3:
            memmove(data + at, data + draw_bits(&damage) % *size, draw_bits(&damage) % 8 % left);
            break;
        default:
            if (draw_below(&damage, 8) == 0) *size = at + 1; /* truncate */
            break;
        }
    }
    uint8_t *exact = malloc(*size);
    memcpy(exact, data, *size);
    free(data);
    return exact;
}

typedef int (*fuzz_target)(const uint8_t *data, size_t size);

/* Runs the target on the file truncated at each byte, each copy allocated with its exact size. */
static inline void run_cut(fuzz_target run, const void *original, size_t bytes) {
    for (size_t n = 0; n <= bytes; n++) {
        uint8_t *part = malloc(n ? n : 1);
        memcpy(part, original, n);
        run(part, n);
        free(part);
    }
}

/* Runs the target on this number of damaged copies. */
static inline void run_damaged(fuzz_target run, const void *original, size_t bytes, int rounds) {
    for (int i = 0; i < rounds; i++) {
        size_t size;
        uint8_t *data = damaged_copy(original, bytes, &size);
        run(data, size);
        free(data);
    }
}

#endif
