/* matmul_args.h - parameters of the kernels in matmul.cu. */
#ifndef GRADUS_OPS_MATMUL_CUDA_MATMUL_ARGS_H
#define GRADUS_OPS_MATMUL_CUDA_MATMUL_ARGS_H

#include "backend/cuda/view.h"

enum {
    GD_CUDA_MATMUL_TILE = 64,     /* rows and columns of y that a block computes */
    GD_CUDA_MATMUL_DEPTH = 16,    /* columns of a that it loads at a time */
    GD_CUDA_MATMUL_THREADS = 256, /* each computes 4 x 4 elements */
};

/* A batch of matrices: element (i, j) of matrix number n over the dims of the batch. */
typedef struct gd_cuda_matrix {
    void *data;
    int dtype;
    long long row, column;         /* strides */
    long long batch[GD_CUDA_RANK]; /* strides; 0 where it is broadcast */
} gd_cuda_matrix;

/* y (m, n) = a (m, k) times b (k, n), plus a bias (n) or none, for each matrix of the batch.
 * If y has few tiles, k is divided into parts of `chunk`, a multiple of the depth, and a second
 * kernel adds the parts. */
typedef struct gd_cuda_matmul {
    gd_cuda_call call;
    long long m, n, k, batches;
    int batch_rank;
    long long batch_dims[GD_CUDA_RANK];
    gd_cuda_matrix a, b, y;
    const void *bias; /* NULL: none */
    long long bias_stride;
    int bias_dtype;
    long long parts, chunk;
    void *partials; /* (parts, batches, m, n) in the compute type, if there are several parts */
} gd_cuda_matmul;

#endif
