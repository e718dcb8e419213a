/* matmul_small.h - f32 products of small matrices with epilogues, several in one launch. */
#ifndef GRADUS_OPS_MATMUL_CUDA_MATMUL_SMALL_H
#define GRADUS_OPS_MATMUL_CUDA_MATMUL_SMALL_H

#include "ops/matmul/cuda/matmul_small_args.h"
#include "ops/matmul/cuda/matmul_problem.h"

/* Products that one launch computes. Their operands have the same layouts. */
typedef struct gd_small_launch {
    gd_small_products parameters;
    bool deep_a, deep_b;
    int tile; /* a number of GD_SMALL_PRODUCT_TILES */
    int blocks;
    size_t workspace;
} gd_small_launch;

/* Adds a product; its epilogue is set in the entry that is returned. NULL: it is not a small f32
 * product, or does not fit to the others of the launch. */
gd_small_product *gd_small_launch_add(gd_small_launch *launch, const gd_product_problem *q,
                                      const gd_view *a, const gd_view *b, const gd_view *y);
/* How all products of a launch are divided into blocks. */
typedef struct gd_small_division {
    int tile;  /* a number of GD_SMALL_PRODUCT_TILES */
    int parts; /* of the depth, at most */
} gd_small_division;

/* The division that is probably the fastest, after all products are added; then sets it. */
gd_small_division gd_small_launch_choose(const gd_small_launch *launch);
void gd_small_launch_divide(gd_small_launch *launch, gd_small_division division);
gd_status gd_small_launch_queue(const gd_kernel_call *call, gd_small_launch *launch);

#endif
