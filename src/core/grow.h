/* grow.h - arrays that double when they are full. */
#ifndef GRADUS_CORE_GROW_H
#define GRADUS_CORE_GROW_H

#include <stdbool.h>

#include "core/alloc.h"

/* The array with room for more than `count` elements; NULL if out of memory, and the array is
 * unchanged. */
static inline void *gd_grown(void *array, int count, int *capacity, size_t size) {
    if (count < *capacity) return array;
    const int larger = *capacity ? 2 * *capacity : 32;
    void *grown = gd_realloc(array, (size_t)larger * size);
    if (grown) *capacity = larger;
    return grown;
}

/* Makes room for one more element after `count`; false if out of memory. Updates `array` and
 * `capacity`, an int:
 *
 *     if (!gd_grow(p->roots, p->n_roots, p->roots_room)) return gd_no_memory(NULL, "for a root");
 *     p->roots[p->n_roots++] = root;
 */
#define gd_grow(array, count, capacity)                                         \
    __extension__({                                                             \
        void *gd_grown_ = gd_grown(array, count, &(capacity), sizeof *(array)); \
        if (gd_grown_) (array) = gd_grown_;                                     \
        gd_grown_ != NULL;                                                      \
    })

#endif
