/* cdist.h - blocks of distances between rows, and of their gradients, for one instruction set. */
#ifndef GRADUS_CPU_CDIST_H
#define GRADUS_CPU_CDIST_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/isa.h"

/* p = 0, 1, 2, inf, and all others. */
typedef enum gd_cdist_norm {
    GD_CDIST_COUNT,
    GD_CDIST_ABSOLUTE,
    GD_CDIST_EUCLID,
    GD_CDIST_LARGEST,
    GD_CDIST_POWER
} gd_cdist_norm;

/* y (rows, columns) from a (rows, width) and b (columns, width); rows of y are y_row apart. */
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

/* g (rows, width): the gradient of x (rows, width) from its distances to z (others, width).
 * gy and y of x[i] and z[j] are at i * x_step + j * z_step; one of the steps is 1. At most
 * GD_CDIST_GRAD_ROWS rows. */
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
