/* index_set.h - a hash set of items that the caller keeps in an array and identifies by index.
 *
 * The set stores a hash and an index for each item. The caller computes hashes and compares items:
 *
 *     int found;
 *     for (size_t probe = 0; (found = gd_index_set_next(&set, hash, &probe)) >= 0;)
 *         if (is_same(&items[found], item)) break;
 *     if (found < 0 && !gd_index_set_add(&set, hash, index)) ... no memory
 */
#ifndef GRADUS_CORE_INDEX_SET_H
#define GRADUS_CORE_INDEX_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/alloc.h"

typedef struct gd_index_entry {
    uint64_t hash;
    int item; /* its index + 1; 0: the entry is free */
} gd_index_entry;

/* Starts as {0}. Open addressing; at most half of the entries are used. */
typedef struct gd_index_set {
    gd_index_entry *entries;
    size_t size, count; /* size: a power of two, or 0 */
} gd_index_set;

/* The hash of a sequence of numbers: start with 0, and mix in one after the other. */
static inline uint64_t gd_hash_mix(uint64_t hash, uint64_t number) {
    hash = (hash ^ number) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

/* The next item with this hash; -1: there are no more. `*probe` starts as 0. */
static inline int gd_index_set_next(const gd_index_set *set, uint64_t hash, size_t *probe) {
    while (set->size > 0) {
        const gd_index_entry *e = &set->entries[(hash + (*probe)++) & (set->size - 1)];
        if (e->item == 0) return -1;
        if (e->hash == hash) return e->item - 1;
    }
    return -1;
}

static inline void gd_index_set_insert(gd_index_set *set, gd_index_entry entry) {
    size_t at = (size_t)entry.hash;
    while (set->entries[at & (set->size - 1)].item != 0) at++;
    set->entries[at & (set->size - 1)] = entry;
    set->count++;
}

/* Adds an item, whether or not the set has an equal one. False: no memory. */
static inline bool gd_index_set_add(gd_index_set *set, uint64_t hash, int index) {
    if (2 * (set->count + 1) > set->size) {
        gd_index_set larger = {.size = set->size ? 4 * set->size : 64};
        larger.entries = gd_calloc(larger.size, sizeof *larger.entries);
        if (!larger.entries) return false;
        for (size_t i = 0; i < set->size; i++)
            if (set->entries[i].item) gd_index_set_insert(&larger, set->entries[i]);
        gd_free(set->entries);
        *set = larger;
    }
    gd_index_set_insert(set, (gd_index_entry){hash, index + 1});
    return true;
}

static inline void gd_index_set_free(gd_index_set *set) { gd_free(set->entries); }

#endif
