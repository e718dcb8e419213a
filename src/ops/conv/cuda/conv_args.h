/* conv_args.h - parameters of the kernels in conv.cu. */
#ifndef GRADUS_OPS_CONV_CUDA_CONV_ARGS_H
#define GRADUS_OPS_CONV_CUDA_CONV_ARGS_H

#include "backend/cuda/view.h"

/* The tile of the product that a block computes: rows, columns, threads, and blocks that share a
 * multiprocessor. A thread computes (rows / 16 or rows / 8) x (columns / 16) elements. */
#define GD_CUDA_CONV_TILES(X) \
    X(few, 32, 64, 128, 4)    \
    X(middle, 64, 64, 256, 2) \
    X(wide, 64, 128, 256, 2)  \
    X(large, 128, 128, 256, 1)

enum {
    GD_CUDA_CONV_DEPTH = 16, /* products of each sum for which a block loads operands at a time */
    /* the kernels that add parts: a block has so many elements, and threads for each of them */
    GD_CUDA_CONV_PART_ELEMENTS = 32,
    GD_CUDA_CONV_PART_THREADS = 8,
    GD_CUDA_CONV_ELEMENT_THREADS = 256, /* of the kernels without tiles */
};

/* An index of the product, divided into a major index and three positions i[a] < size[a]. In the
 * gathered operand it has the offset major * stride, and adds first[a] + i[a] * step[a] to the
 * coordinate of axis a. */
typedef struct gd_cuda_conv_index {
    long long size[3], step[3], first[3], stride;
} gd_cuda_conv_index;

/* A convolution as a product of matrices for each group: out (m, n) = a (m, k) b (k, n). The
 * columns n and the summed index k are divided (gd_cuda_conv_index).
 *
 *               m           n                    k                    a    b (gathered)   out
 *     output    channel o   image, position      channel c, tap       w    x              y
 *     input     channel c   image, position      channel o, tap       w    y              x
 *     weight    channel o   channel c, tap       image, position      y    x              w
 */
typedef struct gd_cuda_conv {
    gd_cuda_call call;
    int dtype;
    int any; /* integers, or sizes and offsets of 64 bits: a kernel for any dtype runs */
    long long groups, m, n, k;
    gd_cuda_conv_index column, depth;

    const void *a;
    long long a_group, a_row, a_major, a_axis[3]; /* strides by group, m, and the indices of k */
    int a_by_depth; /* neighbours in memory have neighbouring k, not m */

    /* b is 0 where a coordinate is not in 0 .. size * divisor - 1, or is no multiple of divisor.
     * The coordinate divided by divisor is the position. */
    const void *b;
    long long b_group, b_axis[3];
    long long b_size[3], divisor[3];
    int shifts[3];      /* divisor == 1 << shift; -1: the divisor is no power of two */
    int has_depth_axis; /* axis 0 has more than one position or tap */

    void *out;
    long long out_group, out_row, out_major, out_axis[3]; /* by group, m, and the indices of n */
    const void *bias; /* a value for each row of all groups, or NULL */
    long long bias_stride;
    int relu;

    long long parts, chunk; /* k is divided into parts of `chunk`, a multiple of the depth */
    void *partials;         /* (parts, groups, m, n) in the compute type, if there are several */
} gd_cuda_conv;

/* Bias and relu on a result (batch, channels, positions), in place. It is dense; neighbouring
 * elements of a channel are `inner` apart: element e has channel e / inner % channels. */
typedef struct gd_cuda_conv_epilogue_args {
    gd_cuda_call call;
    void *y;
    long long count, inner, channels;
    const void *bias; /* or NULL */
    long long bias_stride;
    int relu;
} gd_cuda_conv_epilogue_args;

#endif
