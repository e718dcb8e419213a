/* matmul_small_args.h - parameters of the kernels in matmul_small.cu. */
#ifndef GRADUS_OPS_MATMUL_CUDA_MATMUL_SMALL_ARGS_H
#define GRADUS_OPS_MATMUL_CUDA_MATMUL_SMALL_ARGS_H

#include "backend/cuda/view.h"

enum {
    GD_SMALL_PRODUCT_ENTRIES = 16,    /* products of one launch */
    GD_SMALL_PRODUCT_COUNTERS = 4096, /* tiles of one launch whose depth is divided into parts */
};

/* The tiles of y that a block computes. GD_SMALL_PRODUCT_TILES(X) calls X(number, rows, columns,
 * depth of a stage, threads of a block). */
#define GD_SMALL_PRODUCT_TILES(X) \
    X(0, 64, 64, 32, 256)         \
    X(1, 32, 64, 64, 256)         \
    X(2, 32, 32, 64, 128)         \
    X(3, 32, 16, 128, 128)
enum { GD_SMALL_PRODUCT_TILE_COUNT = 4, GD_SMALL_PRODUCT_STAGES = 3 };

/* Floats between the rows of an operand's stage in shared memory: a multiple of 4 that spreads them
 * over the banks. An operand with contiguous depth is stored as (rows, depth), another one as
 * (depth, rows). */
#define GD_SMALL_PRODUCT_PAD 4
/* Bytes of the stages, at most. */
#define GD_SMALL_PRODUCT_STAGED(rows, columns, depth) \
    (GD_SMALL_PRODUCT_STAGES * 4 *                    \
     ((rows) * (depth) + (columns) * (depth) +        \
      GD_SMALL_PRODUCT_PAD *                          \
          (((rows) > (depth) ? (rows) : (depth)) + ((columns) > (depth) ? (columns) : (depth)))))
/* A thread has 8 x 8 elements, so that a tile has several slices. Bytes of the slices, whose rows
 * have 4 more floats and which are up to 8 floats apart, and of a float for each thread. */
#define GD_SMALL_PRODUCT_SLICED(rows, columns, threads) \
    (4 * ((threads)*64 / ((rows) * (columns)) * ((rows) * ((columns) + 4) + 8) + (threads)))
/* The dynamic shared memory of a block. */
#define GD_SMALL_PRODUCT_SHARED(rows, columns, depth, threads) \
    (GD_SMALL_PRODUCT_STAGED(rows, columns, depth) >           \
             GD_SMALL_PRODUCT_SLICED(rows, columns, threads)   \
         ? GD_SMALL_PRODUCT_STAGED(rows, columns, depth)       \
         : GD_SMALL_PRODUCT_SLICED(rows, columns, threads))

/* y (m, n) = a (m, k) times b (k, n), in f32. `deep_a`: element (i, l) of a is at i * a_stride + l,
 * otherwise at i + l * a_stride. `deep_b`: element (l, j) of b is at j * b_stride + l, otherwise at
 * j + l * b_stride. Rows of y, and of the mask, are contiguous. */
typedef struct gd_small_product {
    const float *a, *b;
    float *y;
    const float *bias; /* (n), added to each row; NULL: none */
    const float *mask; /* (m, n): the product is 0 where it is <= 0; NULL: none; not with rate */
    const void *rate;  /* y minus rate times the product is stored; NULL: the product */
    float *sums;       /* (m): sums of the rows of a, stored as y is; NULL: not computed */
    int m, n, k;
    int a_stride, b_stride, y_stride, mask_stride, bias_stride, sums_stride;
    int rate_dtype;
    int relu;               /* negative results are 0 */
    int vector_a, vector_b; /* 16 bytes can be copied at once */
    /* The depth is divided into `parts` parts of `chunk` columns of a. */
    int parts, chunk;
    int columns;       /* tiles in a row of tiles */
    int first_block;   /* a block for each part of each tile, the parts of a tile together */
    int first_counter; /* a counter for each tile */
} gd_small_product;

typedef struct gd_small_products {
    gd_cuda_call call;
    int count;
    float *partials; /* with several parts: for each block a tile, and the sums of its rows */
    gd_small_product at[GD_SMALL_PRODUCT_ENTRIES];
} gd_small_products;

#endif
