/* xxh64.h - the 64-bit hash XXH64, as `xxhsum -H1` computes it, the same on every machine.
 *
 *     gd_xxh64 h = gd_xxh64_begin();
 *     gd_xxh64_add(&h, header, 100);
 *     gd_xxh64_add(&h, data, bytes);
 *     uint64_t sum = gd_xxh64_value(&h);
 *
 * It detects accidental changes (a flipped bit, a lost block); it is not a signature.
 */
#ifndef GRADUS_FORMAT_XXH64_H
#define GRADUS_FORMAT_XXH64_H

#include <stddef.h>
#include <stdint.h>

typedef struct gd_xxh64 {
    uint64_t lane[4];
    uint64_t bytes;      /* so far */
    uint8_t waiting[32]; /* the last bytes % 32 bytes */
} gd_xxh64;

gd_xxh64 gd_xxh64_begin(void);
void gd_xxh64_add(gd_xxh64 *hash, const void *data, size_t bytes);
uint64_t gd_xxh64_value(const gd_xxh64 *hash);

#endif
