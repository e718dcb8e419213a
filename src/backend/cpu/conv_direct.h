/* conv_direct.h - convolution without matrices, where groups have so few channels that a matrix
 * product would have hardly any rows: depthwise convolution above all.
 *
 * A band of rows of an image is copied to scratch first, with its zeros around it and with columns
 * sorted by their place between strides, so that vectors of neighbouring results read neighbouring
 * numbers, whatever the padding, stride and dilation:
 *
 *     line[column % stride][column / stride]    column: from the beginning of the padding on
 *
 * The gradient of x is a convolution of stride 1 of the gradient of y, with `spread` - 1 zeros
 * between its elements, and with the taps turned.
 *
 * Everything here is f32 and has two axes, height and width.
 */
#ifndef GRADUS_CPU_CONV_DIRECT_H
#define GRADUS_CPU_CONV_DIRECT_H

#include "backend/cpu/isa.h"
#include "ops/convolution.h"

enum {
    GD_DIRECT_LANES =
        16, /* lines have room for whole vectors of this; a multiple of every vector */
    GD_DIRECT_WIDTH = 32, /* of a kernel, at most */
};

typedef struct gd_direct {
    int64_t in_h, in_w, out_h, out_w, kernel_h, kernel_w;
    int64_t stride_h, stride_w, dilation_h;
    int64_t before_h, before_w;   /* zeros before the first element; negative: elements left out */
    int64_t spread_h, spread_w;   /* elements of x lie so far apart */
    int64_t length;               /* of a line for one place between strides */
    int64_t line;                 /* of all of them: what a row of the image takes */
    int64_t tap[GD_DIRECT_WIDTH]; /* where in a line the first result's number for each tap is */
    bool relu;                    /* what is below 0 in the result is 0 */
} gd_direct;

/* Rows of the image that the rows [row, row_end) of the result read. */
static inline int64_t gd_direct_rows_read(const gd_direct *d, int64_t rows) {
    return (rows - 1) * d->stride_h + (d->kernel_h - 1) * d->dilation_h + 1;
}

/* Copies what the rows [row, row_end) of the result read of one plane to `band`:
 * gd_direct_rows_read lines. */
GD_ISA_DECLARE(void, gd_direct_pack,
               (const gd_direct *d, const float *plane, int64_t row, int64_t row_end, float *band));

/* Rows [row, row_end) of `count` planes of the result, GD_DIRECT_PLANES at most and `plane` numbers
 * apart, from `channels` packed bands, `band_step` apart. weights (count, channels, kernel_h,
 * kernel_w); bias: one number for each plane. */
enum { GD_DIRECT_PLANES = 4 };
GD_ISA_DECLARE(void, gd_direct_convolve,
               (const gd_direct *d, const float *bands, int64_t band_step, int64_t channels,
                const float *weights, const float *bias, int64_t count, int64_t row,
                int64_t row_end, float *y, int64_t plane));

/* Adds to sums (kernel_h, kernel_w, GD_DIRECT_LANES) the products of the rows [row, row_end) of a
 * plane of y with what lies under each tap; some of the lanes may stay as they are. */
GD_ISA_DECLARE(void, gd_direct_correlate,
               (const gd_direct *d, const float *band, const float *y, int64_t row, int64_t row_end,
                double *sums));

#endif
