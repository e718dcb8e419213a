/* pool_row.h - maxima and averages of a row of windows that have the same form, for each instruction
 * set. */
#ifndef GRADUS_CPU_POOL_ROW_H
#define GRADUS_CPU_POOL_ROW_H

#include "backend/cpu/isa.h"
#include "ops/pooling.h"

/* `count` windows of a plane, each `stride` elements (1 or 2) right of the one before. */
typedef struct gd_pool_row {
    const float *x; /* the plane: (.., height, width) */
    int64_t height, width;
    gd_pool_window depth, rows, columns; /* of the first of the windows; none is empty */
    int64_t stride, count;
    float *y;
    double divisor;        /* of averages */
    int32_t *short_places; /* of maxima: where in the plane, as i32 ... */
    int64_t *places;       /* ... or i64; NULL: not wanted. A plane has less than 2^31 elements */
} gd_pool_row;

/* Fewer windows are not worth a call. */
enum { GD_POOL_ROW_LEAST = 4 };

GD_ISA_DECLARE(void, gd_max_row_f32, (const gd_pool_row *r));
/* Each row of a window is summed up by itself. */
GD_ISA_DECLARE(void, gd_average_row_f32, (const gd_pool_row *r));

/* The sum of n numbers: the same bits on every instruction set. */
GD_ISA_DECLARE(double, gd_pool_sum_f32, (const float *x, int64_t n));

#endif
