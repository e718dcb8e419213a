/* index_embedding_args.h - parameters of the kernels in index_embedding.cu. */
#ifndef GRADUS_OPS_INDEX_CUDA_INDEX_EMBEDDING_ARGS_H
#define GRADUS_OPS_INDEX_CUDA_INDEX_EMBEDDING_ARGS_H

#include "backend/cuda/view.h"

/* y[o][i] = x[o][index[i]] for rows of `row` units of `unit` bytes: x (outer, size, row),
 * y (outer, count, row). */
typedef struct gd_cuda_take_rows {
    gd_cuda_call call;
    const void *x;
    void *y; /* NULL: only checks the indices */
    gd_cuda_view index;
    int problem, axis; /* of the report */
    int unit;
    long long outer, size, count, row;
} gd_cuda_take_rows;

enum {
    GD_CUDA_SHORT_SEGMENT = 32, /* rows of a segment that one warp adds */
    GD_CUDA_ADD_THREADS = 256,
    GD_CUDA_ADD_WARPS = GD_CUDA_ADD_THREADS / 32,
    GD_CUDA_LONG_THREADS = 512, /* of a block that adds a long segment */
    GD_CUDA_LONG_WARPS = GD_CUDA_LONG_THREADS / 32,
    GD_CUDA_ADD_WINDOW = 1 << 16, /* numbers of rows that are put in order at a time */
};

/* The rows of src with one index: order[start .. start + length). */
typedef struct gd_cuda_segment {
    unsigned row, start, length;
} gd_cuda_segment;

/* y[o][index[i]] += alpha * src[o][i], in the order of i, for y (outer, size, width) and
 * src (outer, count, width). Kernels count the rows of src for each index, reserve a segment for
 * each index that occurs, place the numbers of its rows there, and add the rows. */
typedef struct gd_cuda_index_add {
    gd_cuda_call call;
    gd_cuda_view index;
    int axis; /* of the report */
    const void *src;
    void *y;
    double alpha;
    long long outer, size, count, width;
    unsigned *totals;          /* [0]: short segments, [1]: rows of src in segments, [2]: long
                                * segments; 0 at first */
    unsigned *counts;          /* (size): 0 at first */
    unsigned *starts;          /* (size) */
    gd_cuda_segment *segments; /* (max_segments) */
    long long max_segments;    /* the smaller of size and count */
    unsigned *order;           /* (count): numbers of rows of src */
} gd_cuda_index_add;

#endif
