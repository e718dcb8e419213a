/* index_args.h - parameters of the kernels in index.cu. */
#ifndef GRADUS_OPS_INDEX_CUDA_INDEX_ARGS_H
#define GRADUS_OPS_INDEX_CUDA_INDEX_ARGS_H

#include "backend/cuda/walk_args.h"

/* y[i][j][k] = x[i][index[i][j][k]][k] for axis 1. */
typedef struct gd_cuda_gather {
    gd_cuda_call call;
    gd_cuda_walk walk; /* over the index; views: index, y, and x without its axis */
    const void *index, *x;
    void *y; /* NULL: only checks the indices */
    int index_dtype;
    int bytes;        /* of an element of x */
    int axis;         /* for the report */
    long long size;   /* of x along the axis */
    long long x_step; /* stride of x along the axis */
} gd_cuda_gather;

typedef enum gd_cuda_scatter_mode {
    GD_CUDA_SCATTER_SET,
    GD_CUDA_SCATTER_ADD,
    GD_CUDA_SCATTER_MULTIPLY,
    GD_CUDA_SCATTER_LARGEST,
    GD_CUDA_SCATTER_SMALLEST,
} gd_cuda_scatter_mode;

/* Combines src into y, which holds x: y[i][index[i][j][k]][k] = src[i][j][k] for axis 1. */
typedef struct gd_cuda_scatter {
    gd_cuda_call call;
    gd_cuda_walk lines; /* over the index without its axis; views: index, src, y */
    const void *index, *src;
    void *y;
    int index_dtype, src_dtype, y_dtype;
    int bytes; /* of an element of y */
    int axis;  /* for the report */
    gd_cuda_scatter_mode mode;
    int forgets; /* extremes without the elements of x */
    int parts;   /* threads for each line, a power of two: thread p writes the targets t with
                    t modulo parts = p */
    long long index_step, src_step, y_step; /* strides along the axis */
    long long length;                       /* of the index along the axis */
    long long size;                         /* of y along the axis */
    long long inner;                        /* elements of the index after the axis */
    double real_identity;                   /* of LARGEST or SMALLEST */
    long long integer_identity;
} gd_cuda_scatter;

/* The positions of elements that are not 0. The elements are divided into chunks, one thread each:
 * they are counted, the starts of the chunks are summed up, and the positions are written. */
typedef struct gd_cuda_nonzero {
    gd_cuda_call call;
    gd_cuda_walk walk; /* over x; views: x */
    const void *x;
    int dtype, rank;
    long long dims[GD_CUDA_RANK]; /* of x */
    long long chunk, chunks;      /* elements of a chunk, number of chunks */
    long long *starts;            /* (chunks + 1): rows of y before each chunk; the last is all */
    long long *y;                 /* (found, rank), row-major */
} gd_cuda_nonzero;

typedef struct gd_cuda_one_hot {
    gd_cuda_call call;
    gd_cuda_walk walk; /* over x; views: x */
    const void *x;
    int dtype, y_dtype;
    long long *largest; /* the largest class in x, at least 0 */
    long long classes;
    void *y; /* (elements of x, classes), row-major */
} gd_cuda_one_hot;

#endif
