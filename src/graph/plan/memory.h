/* memory.h - places buffers with known lifetimes in one slab. */
#ifndef GRADUS_GRAPH_PLAN_MEMORY_H
#define GRADUS_GRAPH_PLAN_MEMORY_H

#include "graph/lower/program.h"

/* A buffer that is live from call `begin` to call `end`, both included. */
typedef struct gd_span {
    size_t bytes;
    int begin, end;
    size_t offset; /* the result */
} gd_span;

/* Places all spans so that no two with overlapping lifetimes overlap in memory. Sizes are rounded
 * up to GD_SLAB_ALIGNMENT. `*slab` is the number of bytes needed, `*live` the most that are live at a
 * time, which is a lower bound. */
gd_status gd_place_spans(gd_span *spans, int count, size_t *slab, size_t *live);

#endif
