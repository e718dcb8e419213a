/* conv_panel.h - the patches of a convolution, in the order in which a matrix product reads them.
 *
 * The patch of x under one window is a column of ci * taps numbers, in the order of a row of w:
 * number channel * taps + tap. All columns of a batch side by side, column image * places + place,
 * make a matrix `columns` (ci * taps, batch * places) with which
 *
 *     y = w * columns        w = y * columns^T
 *
 * It never exists as a whole. The matrix product (gemm.h) asks for panels of it, a few dozen
 * columns wide, and these functions write them.
 */
#ifndef GRADUS_CPU_CONV_PANEL_H
#define GRADUS_CPU_CONV_PANEL_H

#include "backend/cpu/isa.h"
#include "ops/convolution.h"

/* A part of the matrix that begins at (row, column). x is the first channel of the group in
 * image 0. */
typedef struct gd_conv_columns {
    const gd_conv *c;
    const void *x;
    int64_t row, column;
} gd_conv_columns;

/* Fill functions of gd_gemm: `self` is a gd_conv_columns. B is columns, or its transpose. */
GD_ISA_DECLARE(void, gd_conv_fill_f32,
               (const void *self, int64_t k, int64_t depth, int64_t j, int64_t n, void *panel,
                int64_t step));
GD_ISA_DECLARE(void, gd_conv_fill_f64,
               (const void *self, int64_t k, int64_t depth, int64_t j, int64_t n, void *panel,
                int64_t step));
GD_ISA_DECLARE(void, gd_conv_fill_turned_f32,
               (const void *self, int64_t k, int64_t depth, int64_t j, int64_t n, void *panel,
                int64_t step));
GD_ISA_DECLARE(void, gd_conv_fill_turned_f64,
               (const void *self, int64_t k, int64_t depth, int64_t j, int64_t n, void *panel,
                int64_t step));

#endif
