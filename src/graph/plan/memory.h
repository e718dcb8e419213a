/* memory.h - where in one slab things lie that live at different times. */
#ifndef GRADUS_GRAPH_MEMORY_H
#define GRADUS_GRAPH_MEMORY_H

#include "gradus/status.h"

#include <stddef.h>

enum { GD_SLAB_ALIGNMENT = 64 };

/* Something that is in memory from step `begin` to step `end`, both included. */
typedef struct gd_span {
    size_t bytes;
    int begin, end;
    size_t offset; /* the answer */
} gd_span;

/* Places all spans so that no two that live at the same time overlap. Sizes are rounded up to the
 * alignment. `*slab` is the bytes needed, `*live` the most that is alive at one time: no placing
 * can need less. */
gd_status gd_place_spans(gd_span *spans, int count, size_t *slab, size_t *live);

#endif
