/* norm_batch_args.h - parameters of the kernels in norm_batch.cu. */
#ifndef GRADUS_OPS_NORM_CUDA_NORM_BATCH_ARGS_H
#define GRADUS_OPS_NORM_CUDA_NORM_BATCH_ARGS_H

#include "backend/cuda/view.h"

enum {
    GD_CUDA_NORM_THREADS = 512, /* of a block that reads x */
    GD_CUDA_FINISH_CHANNELS = 32,
    GD_CUDA_FINISH_LANES = 16, /* threads that add the partial sums of a channel */
    GD_CUDA_NORM_FACTORS = 5,  /* values of the table for each channel */
};

/* A vector with one value for each channel; data NULL: absent. */
typedef struct gd_cuda_channel_vector {
    void *data;
    int dtype;
} gd_cuda_channel_vector;

/* Batch norm of x (n, c, s), or its gradient. All tensors of this shape lie alike in memory: as
 * (n, c, s), or, with channels_last, as (n, s, c).
 *
 * The threads of a block form rows of `columns` threads. Channels last: a thread reads one vector
 * of channels in some of the n * s rows of the matrix (n * s, c); there are `tiles` blocks for the
 * vectors of a row. Channels first: a block reads one channel (tiles = c); a row is a plane of s
 * elements or, if it is long, a piece of it. `parts` blocks share the rows of a tile. */
typedef struct gd_cuda_batch_norm {
    gd_cuda_call call;
    int dtype;                 /* of x, y, gy, gx and z */
    int channels_last, vector; /* vector: elements are read in vectors of 16 bytes */
    long long n, c, s;
    const void *x;
    void *y;       /* or gx */
    const void *z; /* is added before ReLU; NULL: none */
    /* of gradients */
    const void *gy, *gy2; /* gy2 is added to gy; NULL: none */
    const void *relu;     /* the result of ReLU: where it is 0, gy counts as 0 */
    void *gz;             /* gy after that */
    gd_cuda_channel_vector weight, bias, running_mean, running_var, mean, rstd, gweight, gbias;
    double momentum, eps;
    int training;
    double *partials; /* (parts, 2, c): two sums for each channel */
    void *table;      /* (GD_CUDA_NORM_FACTORS, c), in the wide dtype */
    int columns, tiles;
    long long parts, rows, pieces, piece; /* pieces of a plane, and vectors of one */
} gd_cuda_batch_norm;

#endif
