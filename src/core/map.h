/* map.h - a hash map from pointers to numbers, for example from nodes to their positions. */
#ifndef GRADUS_CORE_MAP_H
#define GRADUS_CORE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/alloc.h"

typedef struct gd_map_entry {
    const void *key; /* NULL: free */
    int value;
} gd_map_entry;

/* Initially {NULL, 0, 0}. Open addressing; at most half of the entries are used. */
typedef struct gd_map {
    gd_map_entry *entries;
    size_t size, count; /* size: a power of two, or 0 */
} gd_map;

/* The entry of the key, or the free entry where it would be added. */
static inline gd_map_entry *gd_map_entry_of(const gd_map *map, const void *key) {
    size_t at = (size_t)((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u;
    while (map->entries[at & (map->size - 1)].key && map->entries[at & (map->size - 1)].key != key)
        at++;
    return &map->entries[at & (map->size - 1)];
}

/* The number of the key, or -1. */
static inline int gd_map_find(const gd_map *map, const void *key) {
    if (map->size == 0) return -1;
    const gd_map_entry *e = gd_map_entry_of(map, key);
    return e->key ? e->value : -1;
}

/* Adds a key or changes its number. False if out of memory. */
static inline bool gd_map_put(gd_map *map, const void *key, int value) {
    if (2 * (map->count + 1) > map->size) {
        gd_map larger = {.size = map->size ? 4 * map->size : 64, .count = map->count};
        larger.entries = gd_calloc(larger.size, sizeof *larger.entries);
        if (!larger.entries) return false;
        for (size_t i = 0; i < map->size; i++)
            if (map->entries[i].key)
                *gd_map_entry_of(&larger, map->entries[i].key) = map->entries[i];
        gd_free(map->entries);
        *map = larger;
    }
    gd_map_entry *e = gd_map_entry_of(map, key);
    map->count += e->key == NULL;
    *e = (gd_map_entry){key, value};
    return true;
}

static inline void gd_map_free(gd_map *map) { gd_free(map->entries); }

#endif
