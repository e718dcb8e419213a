/* distance.h - computes blocks of the distances of cdist, and of its gradient. */
#ifndef GRADUS_OPS_DISTANCE_CPU_DISTANCE_H
#define GRADUS_OPS_DISTANCE_CPU_DISTANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/isa.h"

typedef enum gd_cdist_norm {
    GD_CDIST_COUNT,    /* p = 0: the number of differences that are not 0 */
    GD_CDIST_ABSOLUTE, /* p = 1 */
    GD_CDIST_EUCLID,   /* p = 2 */
    GD_CDIST_LARGEST,  /* p = inf */
    GD_CDIST_POWER     /* any other p */
} gd_cdist_norm;

/* y[i, j] (rows, columns) = the distance of a[i] (rows, width) and b[j] (columns, width). The rows
 * of y are y_row elements apart. */
typedef struct gd_cdist_block {
    gd_cdist_norm norm;
    double p;
    int64_t rows, columns, width;
    const void *a, *b;
    void *y;
    int64_t y_row;
} gd_cdist_block;
GD_ISA_DECLARE(void, gd_cdist_block_f32, (const gd_cdist_block *block));
GD_ISA_DECLARE(void, gd_cdist_block_f64, (const gd_cdist_block *block));

/* g (rows, width): the gradient of x (rows, width) for its distances y to z (others, width). x is a
 * and z is b, or the other way round. y and its gradient gy have the pair (x[i], z[j]) at
 * i * x_step + j * z_step; one of the steps is 1. There are at most GD_CDIST_GRAD_ROWS rows. */
enum { GD_CDIST_GRAD_ROWS = 32 };
typedef struct gd_cdist_grad_block {
    gd_cdist_norm norm;
    double p;
    int64_t rows, others, width;
    const void *x, *z, *gy, *y;
    int64_t x_step, z_step;
    void *g;
} gd_cdist_grad_block;
GD_ISA_DECLARE(void, gd_cdist_grad_block_f32, (const gd_cdist_grad_block *block));
GD_ISA_DECLARE(void, gd_cdist_grad_block_f64, (const gd_cdist_grad_block *block));

#endif
