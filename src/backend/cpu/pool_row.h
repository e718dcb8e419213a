/* pool_row.h - maxima of a row of windows that have the same form, for each instruction set. */
#ifndef GRADUS_CPU_POOL_ROW_H
#define GRADUS_CPU_POOL_ROW_H

#include "backend/cpu/isa.h"
#include "ops/pooling.h"

/* `count` windows of a plane, each `stride` elements (1 or 2) right of the one before. */
typedef struct gd_max_row {
    const float *x; /* the plane: (.., height, width) */
    int64_t height, width;
    gd_pool_window depth, rows, columns; /* of the first of the windows; none is empty */
    int64_t stride, count;
    float *y;
    int32_t *short_places; /* where in the plane, as i32 ... */
    int64_t *places;       /* ... or i64; NULL: not wanted. A plane has less than 2^31 elements */
} gd_max_row;

/* Fewer windows are not worth a call. */
enum { GD_MAX_ROW_LEAST = 4 };

GD_ISA_DECLARE(void, gd_max_row_f32, (const gd_max_row *r));

#endif
