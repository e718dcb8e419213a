/* reduce_sum_args.h - parameters of the kernels in reduce_sum.cu. */
#ifndef GRADUS_OPS_REDUCE_CUDA_REDUCE_SUM_ARGS_H
#define GRADUS_OPS_REDUCE_CUDA_REDUCE_SUM_ARGS_H

#include "backend/cuda/view.h"

enum {
    GD_CUDA_SUM_THREADS = 256,
    GD_CUDA_SUM_FINISH_THREADS = 512,
    GD_CUDA_SUM_COUNTERS = 2048, /* most outputs of runs with several parts */
};

/* Sums of floats, each divided by `divisor`, in one of two forms:
 *
 * columns: x is a matrix (size, outputs) with rows `stride` elements apart. The threads of a block
 * form rows of `columns` threads, each with one vector of outputs; `tiles` blocks cover a row.
 *
 * runs: output o is the sum of `runs` runs, `stride` elements apart, of `length` neighbouring
 * elements, which begin at o * output_stride. It is added by a warp or, with `block`, by a block.
 *
 * With several parts, blocks store the sums of their parts. The last block of an output of runs adds
 * them, for columns a second kernel does. */
typedef struct gd_cuda_sum {
    gd_cuda_call call;
    const void *x;
    int dtype;
    int vector; /* elements are read in vectors of 16 bytes */
    int columns, tiles, block;
    long long outputs, size, stride;
    long long runs, length, output_stride;
    long long parts;
    double *partials; /* (parts, outputs) */
    double divisor;
    void *y; /* contiguous */
    int y_dtype;
    int finish_columns; /* outputs of a block that adds parts; a power of two */
} gd_cuda_sum;

#endif
