/* conv_tiled_args.h - parameters of the kernels in conv_tiled.cu. */
#ifndef GRADUS_OPS_CONV_CUDA_CONV_TILED_ARGS_H
#define GRADUS_OPS_CONV_CUDA_CONV_TILED_ARGS_H

#include "backend/cuda/divisor.h"
#include "backend/cuda/view.h"

/* The tiles of a product that a block computes. A thread sums a part of `rows_each` x
 * `columns_each` elements; `slices` groups of threads share the sums. `depth` products of each sum
 * are loaded at a time. `blocks` share a multiprocessor. `folds`: a thread may sum many products
 * (SUM_LENGTH). `speed`: measured multiply-adds, in percent of the most that an H200 computes.
 *
 *    name, rows, columns, rows_each, columns_each, slices, depth, blocks, folds, speed */
#define GD_CUDA_CONV_FAST_TILES(X)                      \
    X(20x32, 20, 32, 5, 4, 8, 32, 2, false, 16)         \
    X(20x64, 20, 64, 5, 4, 4, 32, 2, false, 19)         \
    X(20x128, 20, 128, 5, 8, 2, 16, 3, false, 22)       \
    X(32x64, 32, 64, 8, 4, 4, 32, 2, false, 27)         \
    X(32x64_wide, 32, 64, 8, 4, 8, 64, 1, false, 28)    \
    X(64x32, 64, 32, 8, 4, 4, 32, 2, false, 25)         \
    X(64x64, 64, 64, 8, 8, 4, 32, 2, false, 34)         \
    X(64x64_wide, 64, 64, 8, 8, 8, 64, 1, false, 35)    \
    X(64x64_long, 64, 64, 8, 4, 2, 16, 2, true, 32)     \
    X(64x128, 64, 128, 8, 8, 1, 8, 3, false, 38)        \
    X(64x128_long, 64, 128, 8, 8, 1, 16, 2, true, 30)   \
    X(128x128, 128, 128, 8, 8, 1, 8, 2, false, 46)      \
    X(128x128_one, 128, 128, 8, 8, 1, 16, 1, false, 44) \
    X(128x128_long, 128, 128, 8, 8, 1, 16, 1, true, 42)

enum {
    GD_CUDA_CONV_STAGES = 2,  /* steps of `depth` products whose operands are in shared memory */
    GD_CUDA_CONV_ROW_PAD = 4, /* floats at the end of a row of the left operand there */
    GD_CUDA_CONV_PHASES = 4,
    GD_CUDA_CONV_GROUP = 12, /* parts that one block adds at most; more are added in groups */
    GD_CUDA_CONV_COUNTERS = 4096,
};

/* An index of the product, divided into a major index, a row i and a column j. In the gathered
 * operand it has the offset major * stride, and adds first[0] + i * step[0] and
 * first[1] + j * step[1] to the coordinates. */
typedef struct gd_cuda_conv_split {
    gd_cuda_divisor height, width;
    int first[2], step[2], stride;
} gd_cuda_conv_split;

/* A product for each group: out (m, n) = a (m, k) b (k, n), with b gathered, as in conv.h.
 * The gradient of x with stride s has s * s phases, one for the positions of x with the same
 * remainder: each is a product with its own n and k. Others have one phase. */
typedef struct gd_cuda_conv_phase {
    int n, k;
    int first_block;
    int a_first, out_first; /* offsets */
    gd_cuda_conv_split column, depth;
} gd_cuda_conv_phase;

typedef struct gd_cuda_conv_tiled {
    gd_cuda_call call;
    int groups, m, row_tiles;
    const float *a, *b;
    int a_group, a_row, a_major, a_axis[2]; /* strides by group, m, and the indices of k */
    int a_by_depth;                         /* neighbours in memory have neighbouring k, not m */
    int b_group, b_axis[2], b_size[2];
    int is_checked; /* some windows reach beyond the images of b */
    float *out;
    int out_group, out_row, out_major, out_axis[2]; /* by group, m, and the indices of n */
    const float *bias;                              /* for each row of all groups, or NULL */
    long long bias_stride;
    int relu;
    /* The sums of a over k for each row of all groups, if has_row_sums. They are the results of a
     * column n of the product, in which b is 1. */
    int has_row_sums;
    float *row_sums;
    long long row_sums_stride;
    int parts, chunk; /* k is divided into parts of `chunk`, a multiple of the tile's depth */
    int part_groups;
    float *partials; /* (tiles, parts, rows of a tile, columns) if there are several */
    int phases;
    gd_cuda_conv_phase phase[GD_CUDA_CONV_PHASES];
} gd_cuda_conv_tiled;

#endif
