/* name_map.h - a hash map from names to pointers. */
#ifndef GRADUS_CORE_NAME_MAP_H
#define GRADUS_CORE_NAME_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Initially {0}. Names are not copied. */
typedef struct gd_name_map {
    struct gd_name {
        const char *name;
        void *value;
    } * slots;
    size_t size, count;
} gd_name_map;

void *gd_name_map_find(const gd_name_map *names, const char *name);      /* NULL: no such name */
bool gd_name_map_add(gd_name_map *names, const char *name, void *value); /* false: out of memory */
void gd_name_map_remove(gd_name_map *names, const char *name);
void gd_name_map_free(gd_name_map *names);

/* Maps from names to entry numbers; -1: no such name. gd_name_map holds pointers, of which NULL means
 * absent, so numbers are stored plus 1. */
static inline int gd_entry_number(const gd_name_map *names, const char *name) {
    return (int)(intptr_t)gd_name_map_find(names, name) - 1;
}
static inline bool gd_set_entry_number(gd_name_map *names, const char *name, int number) {
    return gd_name_map_add(names, name, (void *)(intptr_t)(number + 1));
}

/* Makes a text of `length` bytes a name that the map does not have: appends "_1", "_2" and so on.
 * The numbers in `names` are the last ones that were appended to each name, from 0. */
void gd_number_name(gd_name_map *names, char *text, size_t length, size_t size);

#endif
