/* indices.h - long lists of sample indices, of 4 bytes each if all are below 2^31. */
#ifndef GRADUS_DATA_INDICES_H
#define GRADUS_DATA_INDICES_H

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"

typedef struct gd_indices {
    void *at;
    bool wide; /* int64_t, otherwise int32_t */
} gd_indices;

/* Allocates `count` indices below `limit`. */
static inline gd_status gd_indices_make(gd_indices *list, int64_t count, int64_t limit) {
    size_t bytes;
    list->wide = limit > INT32_MAX;
    list->at = gd_mul_size((size_t)count, list->wide ? 8 : 4, &bytes) ? gd_malloc(bytes) : NULL;
    return list->at
               ? GD_OK
               : gd_fail(GD_E_MEMORY, "no memory for a list of %lld samples", (long long)count);
}

static inline int64_t gd_indices_get(const gd_indices *list, int64_t i) {
    return list->wide ? ((const int64_t *)list->at)[i] : ((const int32_t *)list->at)[i];
}

static inline void gd_indices_set(gd_indices *list, int64_t i, int64_t index) {
    if (list->wide) ((int64_t *)list->at)[i] = index;
    else ((int32_t *)list->at)[i] = (int32_t)index;
}

#endif
