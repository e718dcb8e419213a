/* conv_direct.h - direct convolution, without a matrix product. It is for groups of few channels,
 * above all depthwise convolution, where the matrices of a GEMM would have too few rows.
 *
 * A band of image rows is first packed into scratch memory: padded with zeros, and with its columns
 * grouped by their phase (column modulo stride). Vectors of neighbouring outputs then load
 * neighbouring elements, for any padding, stride and dilation:
 *
 *     line[column % stride][column / stride]    column: counted from the start of the padding
 *
 * The gradient of x is a convolution with stride 1 of the gradient of y, into which `spread` - 1
 * zeros are inserted between elements, by the flipped kernel.
 *
 * Everything is f32 and has two spatial axes, height and width.
 */
#ifndef GRADUS_OPS_CONV_CPU_CONV_DIRECT_H
#define GRADUS_OPS_CONV_CPU_CONV_DIRECT_H

#include "backend/cpu/isa.h"
#include "ops/conv/conv.h"

enum {
    GD_DIRECT_LANES = 16, /* lines are padded to this: a multiple of every vector length */
    GD_DIRECT_WIDTH = 32, /* the largest kernel width */
};

typedef struct gd_direct {
    int64_t in_h, in_w, out_h, out_w, kernel_h, kernel_w;
    int64_t stride_h, stride_w, dilation_h;
    int64_t before_h, before_w;   /* padding before the first element; negative: cropping */
    int64_t spread_h, spread_w;   /* the distance of elements of x; zeros are between them */
    int64_t length;               /* elements per phase in a line */
    int64_t line;                 /* elements in a packed row: all phases */
    int64_t tap[GD_DIRECT_WIDTH]; /* for each tap: the offset in a line of output 0's element */
    bool relu;                    /* apply relu to the output */
} gd_direct;

/* The number of image rows that `rows` rows of the output read. */
static inline int64_t gd_direct_rows_read(const gd_direct *d, int64_t rows) {
    return (rows - 1) * d->stride_h + (d->kernel_h - 1) * d->dilation_h + 1;
}

/* Packs the image rows of one plane that output rows [row, row_end) read into `band`:
 * gd_direct_rows_read lines. */
GD_ISA_DECLARE(void, gd_direct_pack,
               (const gd_direct *d, const float *plane, int64_t row, int64_t row_end, float *band));

/* Computes output rows [row, row_end) of `count` planes (at most GD_DIRECT_PLANES) that are `plane`
 * elements apart, from `channels` packed bands that are `band_step` apart. weights is (count,
 * channels, kernel_h, kernel_w), bias (count). */
enum { GD_DIRECT_PLANES = 4 };
GD_ISA_DECLARE(void, gd_direct_convolve,
               (const gd_direct *d, const float *bands, int64_t band_step, int64_t channels,
                const float *weights, const float *bias, int64_t count, int64_t row,
                int64_t row_end, float *y, int64_t plane));

/* For the gradient of w: correlates output rows [row, row_end) of a plane of y with the band under
 * each tap, and adds the products to sums (kernel_h, kernel_w, GD_DIRECT_LANES). Shorter vectors
 * use only the first lanes. */
GD_ISA_DECLARE(void, gd_direct_correlate,
               (const gd_direct *d, const float *band, const float *y, int64_t row, int64_t row_end,
                double *sums));

#endif
