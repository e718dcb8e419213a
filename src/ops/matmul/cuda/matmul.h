/* matmul.h - the products of matmul.c, for all dtypes and strides. */
#ifndef GRADUS_OPS_MATMUL_CUDA_MATMUL_H
#define GRADUS_OPS_MATMUL_CUDA_MATMUL_H

#include "gradus/backend.h"

typedef struct gd_tiled_product {
    size_t (*workspace)(const gd_kernel_call *call);
    gd_status (*run)(gd_kernel_call *call);
} gd_tiled_product;

extern const gd_tiled_product gd_tiled_matmul, gd_tiled_linear;

#endif
