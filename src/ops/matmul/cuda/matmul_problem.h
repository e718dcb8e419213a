/* matmul_problem.h - a call of matmul, linear or linear_relu as batches of matrix products. */
#ifndef GRADUS_OPS_MATMUL_CUDA_MATMUL_PROBLEM_H
#define GRADUS_OPS_MATMUL_CUDA_MATMUL_PROBLEM_H

#include "backend/cuda/kernels.h"

/* A matrix or a batch of them: element (n, i, j) is at n * batch + i * row + j * column. `outer` are
 * the strides of the outer batch dims. */
typedef struct gd_product_matrix {
    int64_t row, column, batch;
    int64_t outer[GD_MAX_RANK];
} gd_product_matrix;

/* y (m, n) = a (m, k) b (k, n), for each matrix of the batch. The innermost batch dims, along which
 * all operands are evenly spaced, are one dim of `batches`; the others are the outer dims. */
typedef struct gd_product_problem {
    gd_dtype dtype;
    int64_t m, n, k, batches;
    gd_product_matrix a, b, y;
    int n_outer;
    int64_t outer_dims[GD_MAX_RANK], outer_count;
} gd_product_problem;

/* y = a b. False: the operands have several dtypes, or there is nothing to compute. */
bool gd_cuda_product_problem(const gd_view *a, const gd_view *b, const gd_view *y,
                             gd_product_problem *p);
bool gd_cuda_matmul_problem(const gd_kernel_call *call, gd_product_problem *p);
/* For linear and linear_relu: a is x (..., k), b is the transpose of w (n, k). */
bool gd_cuda_linear_problem(const gd_kernel_call *call, gd_product_problem *p);

#endif
