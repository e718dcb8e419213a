/* matmul_input_cublaslt.h - the input's part of all steps of a recurrent layer as one product by cuBLASLt.
 *
 * A build without cublasLt.h lacks these functions: their addresses are NULL, and kernels compute the
 * input's part. */
#ifndef GRADUS_OPS_MATMUL_CUDA_MATMUL_INPUT_CUBLASLT_H
#define GRADUS_OPS_MATMUL_CUDA_MATMUL_INPUT_CUBLASLT_H

#include "backend/cuda/kernels.h"

typedef struct gd_input_product gd_input_product;

/* y (m, n), of the wide dtype, is x (m, k) times the transpose of w (n, k). NULL: there is no
 * library or no algorithm for it. *workspace is the size of the library's workspace. */
gd_input_product *gd_input_product_new(const gd_kernel_call *call, gd_dtype dtype, int64_t m,
                                       int64_t n, int64_t k, size_t *workspace)
    __attribute__((weak));
void gd_input_product_free(gd_input_product *p) __attribute__((weak)); /* NULL is fine */

gd_status gd_input_product_queue(const gd_kernel_call *call, const gd_input_product *p,
                                 const void *x, const void *w, void *y, void *workspace,
                                 size_t workspace_bytes) __attribute__((weak));

#endif
