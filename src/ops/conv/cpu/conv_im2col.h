/* conv_im2col.h - im2col for implicit GEMM: packs panels of a convolution's patch matrix.
 *
 * The patch of x under one window is a column of ci * taps elements: row channel * taps + tap, as in
 * a row of w. The patches of a batch, column image * positions + position, form the im2col matrix
 * `columns` (ci * taps, batch * positions), with which
 *
 *     y = w * columns        grad w = grad y * columns^T
 *
 * The matrix is never materialized. The GEMM (gemm.h) requests panels of it, a few dozen columns
 * wide, and these functions pack them straight from x.
 */
#ifndef GRADUS_OPS_CONV_CPU_CONV_IM2COL_H
#define GRADUS_OPS_CONV_CPU_CONV_IM2COL_H

#include "backend/cpu/isa.h"
#include "ops/conv/conv.h"

/* The part of the im2col matrix of one group that starts at (row, column). x points to the first
 * channel of the group in image 0. */
typedef struct gd_conv_columns {
    const gd_conv *c;
    const void *x;
    int64_t row, column;
} gd_conv_columns;

/* Fill functions of gd_gemm (gd_gemm_fill): `context` is a gd_conv_columns. B is the im2col matrix
 * or its transpose. */
GD_ISA_DECLARE(void, gd_conv_im2col_f32,
               (const void *context, int64_t k, int64_t depth, int64_t j, int64_t n, void *panel,
                int64_t step));
GD_ISA_DECLARE(void, gd_conv_im2col_f64,
               (const void *context, int64_t k, int64_t depth, int64_t j, int64_t n, void *panel,
                int64_t step));
GD_ISA_DECLARE(void, gd_conv_im2col_transposed_f32,
               (const void *context, int64_t k, int64_t depth, int64_t j, int64_t n, void *panel,
                int64_t step));
GD_ISA_DECLARE(void, gd_conv_im2col_transposed_f64,
               (const void *context, int64_t k, int64_t depth, int64_t j, int64_t n, void *panel,
                int64_t step));

#endif
