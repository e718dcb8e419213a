/* norm_rows_args.h - parameters of the kernels in norm_rows.cu. */
#ifndef GRADUS_OPS_NORM_CUDA_NORM_ROWS_ARGS_H
#define GRADUS_OPS_NORM_CUDA_NORM_ROWS_ARGS_H

#include "backend/cuda/view.h"

enum {
    GD_CUDA_ROW_NORM_THREADS = 256,
    GD_CUDA_PARAMETER_COLUMNS = 32, /* channels of a block that adds partial sums */
    GD_CUDA_PARAMETER_LANES = 16,   /* and threads for each of them */
};

/* Normalization of rows: x (n, c, s) has n * groups rows, each of `length` = c / groups * s
 * elements. All tensors are contiguous. A channel has a weight and a bias; data NULL: absent. */
typedef struct gd_cuda_row_norm {
    gd_cuda_call call;
    int dtype;       /* of x, y, gy and gx */
    int mixed_dtype; /* f16 or bf16: of y, or of gy in gradients, and `dtype` is f32; -1: neither */
    int eights;      /* of rows that are kept in vectors: elements of a thread / 8, 1 to 4 */
    long long n, c, s, groups, rows, length;
    const void *x, *gy;
    void *y; /* or gx */
    const void *weight, *bias;
    int weight_dtype, bias_dtype, statistics_dtype;
    void *mean, *rstd; /* one value for each row */
    int centered;      /* the mean is subtracted */
    double eps;
    /* of gradients */
    void *gweight, *gbias; /* in the wide dtype */
    double *partials;      /* (parts, 2, c): sums of gy * hat and of gy */
    long long parts;
    double *planes; /* (n * c, 2), then (rows, 2): sums over planes and rows, if s > 1 */
    /* of instance norm: running statistics */
    void *running_mean, *running_var;
    int running_mean_dtype, running_var_dtype;
    double momentum;
    double *moments; /* (rows, 2): mean and variance; NULL: not needed */
} gd_cuda_row_norm;

#endif
