/* name_map.h - a hash map from names to pointers. */
#ifndef GRADUS_CORE_NAME_MAP_H
#define GRADUS_CORE_NAME_MAP_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
