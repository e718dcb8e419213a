/* product_tiled.h - the products of matmul.c, for all dtypes and strides. */
#ifndef GRADUS_CUDA_PRODUCT_TILED_H
#define GRADUS_CUDA_PRODUCT_TILED_H

#include "gradus/backend.h"

typedef struct gd_tiled_product {
    size_t (*workspace)(const gd_kernel_call *call);
    gd_status (*run)(gd_kernel_call *call);
} gd_tiled_product;

extern const gd_tiled_product gd_tiled_matmul, gd_tiled_linear;

#endif
