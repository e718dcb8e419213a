/* names.h - a table from names to pointers. */
#ifndef GRADUS_CORE_NAMES_H
#define GRADUS_CORE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Starts as {0}. Names are not copied. */
typedef struct gd_names {
    struct gd_name {
        const char *name;
        void *value;
    } * slots;
    size_t size, count;
} gd_names;

void *gd_names_find(const gd_names *names, const char *name);      /* NULL: not there */
bool gd_names_add(gd_names *names, const char *name, void *value); /* false: no memory */
void gd_names_remove(gd_names *names, const char *name);
void gd_names_free(gd_names *names);

#endif
