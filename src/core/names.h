/* names.h - a hash map from names to pointers. */
#ifndef GRADUS_CORE_NAMES_H
#define GRADUS_CORE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Initially {0}. Names are not copied. */
typedef struct gd_names {
    struct gd_name {
        const char *name;
        void *value;
    } * slots;
    size_t size, count;
} gd_names;

void *gd_names_find(const gd_names *names, const char *name);      /* NULL: no such name */
bool gd_names_add(gd_names *names, const char *name, void *value); /* false: out of memory */
void gd_names_remove(gd_names *names, const char *name);
void gd_names_free(gd_names *names);

#endif
