/* name_map.c - a hash map from names to pointers (name_map.h): open addressing, at most half full. */
#include "core/name_map.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"

static size_t find_slot(const struct gd_name *slots, size_t size, const char *name) {
    uint64_t hash = 14695981039346656037u;
    for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    size_t at = (size_t)(hash ^ hash >> 32) & (size - 1);
    while (slots[at].name != NULL && strcmp(slots[at].name, name) != 0) at = (at + 1) & (size - 1);
    return at;
}

void *gd_name_map_find(const gd_name_map *names, const char *name) {
    if (names->size == 0) return NULL;
    return names->slots[find_slot(names->slots, names->size, name)].value;
}

static bool grow_names(gd_name_map *names) {
    const size_t size = names->size ? 2 * names->size : 8;
    struct gd_name *slots = gd_calloc(size, sizeof *slots);
    if (slots == NULL) return false;
    for (size_t i = 0; i < names->size; i++)
        if (names->slots[i].name != NULL)
            slots[find_slot(slots, size, names->slots[i].name)] = names->slots[i];
    gd_free(names->slots);
    names->slots = slots;
    names->size = size;
    return true;
}

bool gd_name_map_add(gd_name_map *names, const char *name, void *value) {
    if (2 * (names->count + 1) > names->size && !grow_names(names)) return false;
    struct gd_name *slot = &names->slots[find_slot(names->slots, names->size, name)];
    names->count += slot->name == NULL;
    *slot = (struct gd_name){name, value};
    return true;
}

/* The entries after the removed one, up to the next free slot, are inserted again, because
 * collisions may have moved them there. */
void gd_name_map_remove(gd_name_map *names, const char *name) {
    if (names->size == 0) return;
    size_t at = find_slot(names->slots, names->size, name);
    if (names->slots[at].name == NULL) return;
    names->slots[at].name = NULL;
    names->slots[at].value = NULL;
    names->count--;
    for (at = (at + 1) & (names->size - 1); names->slots[at].name != NULL;
         at = (at + 1) & (names->size - 1)) {
        const struct gd_name moved = names->slots[at];
        names->slots[at] = (struct gd_name){NULL, NULL};
        names->slots[find_slot(names->slots, names->size, moved.name)] = moved;
    }
}

void gd_number_name(gd_name_map *names, char *text, size_t length, size_t size) {
    if (names->size == 0) return;
    struct gd_name *base = &names->slots[find_slot(names->slots, names->size, text)];
    if (!base->name) return;
    int number = (int)(intptr_t)base->value - 1;
    do snprintf(text + length, size - length, "_%d", ++number);
    while (gd_name_map_find(names, text));
    base->value = (void *)(intptr_t)(number + 1);
}

void gd_name_map_free(gd_name_map *names) {
    gd_free(names->slots);
    *names = (gd_name_map){0};
}
