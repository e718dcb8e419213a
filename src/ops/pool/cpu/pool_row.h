/* pool_row.h - vectorized max and average pooling of a row of windows of the same size at a
 * constant stride. */
#ifndef GRADUS_OPS_POOL_CPU_POOL_ROW_H
#define GRADUS_OPS_POOL_CPU_POOL_ROW_H

#include "backend/cpu/isa.h"
#include "ops/pool/pool.h"

/* `count` windows of a plane, each `stride` elements (1 or 2) right of the previous one. */
typedef struct gd_pool_row {
    const float *x; /* the plane: (.., height, width) */
    int64_t height, width;
    gd_pool_window depth, rows, columns; /* of the first window; none is empty */
    int64_t stride, count;
    float *y;
    double divisor;       /* for averages */
    int32_t *indices_i32; /* for maxima: index in the plane, as i32 ... */
    int64_t *indices;     /* ... or i64; NULL: not stored. A plane has less than 2^31 elements */
} gd_pool_row;

/* The smallest number of windows in a row. */
enum { GD_POOL_ROW_MIN = 4 };

GD_ISA_DECLARE(void, gd_max_row_f32, (const gd_pool_row *r));
/* Sums each row of a window separately, as the scalar code does. */
GD_ISA_DECLARE(void, gd_average_row_f32, (const gd_pool_row *r));

/* The sum of n values: the same bits on every instruction set. */
GD_ISA_DECLARE(double, gd_pool_sum_f32, (const float *x, int64_t n));

#endif
