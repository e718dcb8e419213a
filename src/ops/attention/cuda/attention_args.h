/* attention_args.h - parameters of the kernels in attention.cu and attention_mma.cuh. */
#ifndef GRADUS_OPS_ATTENTION_CUDA_ATTENTION_ARGS_H
#define GRADUS_OPS_ATTENTION_CUDA_ATTENTION_ARGS_H

#include "backend/cuda/view.h"

enum {
    GD_CUDA_ATTENTION_THREADS = 128,     /* of a block: attention.cu */
    GD_CUDA_ATTENTION_MMA_THREADS = 128, /* attention_mma.cuh */
    GD_CUDA_ATTENTION_INNER_ROWS = 64,   /* of a block that sums gy y */
};

/* An operand: one matrix for each element of the batch. */
typedef struct gd_cuda_heads {
    void *data;                    /* NULL: absent */
    long long batch[GD_CUDA_RANK]; /* strides of the leading dimensions; 0: broadcast */
    long long row, column;         /* strides */
    int vectors;                   /* rows can be accessed 16 bytes at a time */
} gd_cuda_heads;

/* The names and sizes are those of the ops (ops/attention/attention.c): q (L, E), k (S, E), v (S, F), y
 * and gy (L, F), mask (L, S); lse has L rows. */
typedef struct gd_cuda_attention {
    gd_cuda_call call;
    gd_cuda_heads q, k, v, y, lse, mask, gy;
    gd_cuda_heads gq, gk, gv;
    int batch_rank;
    long long batch_dims[GD_CUDA_RANK];
    long long matrices;      /* the product of batch_dims */
    long long rows, columns; /* L, S */
    int width, value_width;  /* E, F */
    int groups;              /* heads of q that share one head of k and v */
    int causal;
    int mask_is_bool;
    double scale;
    const long long *key; /* the random key of dropout: two numbers; NULL: no dropout */
    long long key_stride;
    unsigned long long limit; /* a weight is kept if its random word is below */
    double kept_scale;
    void *inner; /* workspace (matrices, L): the sums of gy y; f64, otherwise f32 */
} gd_cuda_attention;

/* --- sizes of tiles --------------------------------------------------------------------------- */

/* attention.cu: tiles of GD_CUDA_ATTENTION_TILE rows of q and of k. Forward has tiles of q, k, v
 * and weights; backward of q, k, v, gy, weights and their gradients. Rows have 16 bytes of
 * padding. */
#define GD_CUDA_ATTENTION_BYTES(element, tile, head, matrices, weights) \
    ((matrices) * (tile) * ((head) * (element) + 16) +                  \
     (weights) * (tile) * ((tile) * (element) + 16))

/* attention_mma.cuh: 16-row tiles of q of a warp and rows of a tile of k and v in forward, and
 * rows of a tile that backward loops over. The others have 64 rows. */
#define GD_CUDA_MMA_ROW_TILES(head)    ((head) <= 64 ? 2 : 1)
#define GD_CUDA_MMA_COLUMNS(head)      ((head) <= 128 ? 64 : 32)
#define GD_CUDA_MMA_KEYS_STEP          32
#define GD_CUDA_MMA_QUERIES_STEP(head) ((head) <= 64 ? 64 : 32)
#define GD_CUDA_MMA_ROWS               64
/* Bytes of a block: its own rows, and two tiles of two matrices that are loaded in turn; the kernel
 * for gk and gv has two values for each row of the latter, too. */
#define GD_CUDA_MMA_ROWS_BYTES(rows, head) ((rows) * ((head) + 8) * 2)
#define GD_CUDA_MMA_FORWARD_BYTES(head)                                             \
    (GD_CUDA_MMA_ROWS_BYTES(GD_CUDA_MMA_ROWS * GD_CUDA_MMA_ROW_TILES(head), head) + \
     4 * GD_CUDA_MMA_ROWS_BYTES(GD_CUDA_MMA_COLUMNS(head), head))
#define GD_CUDA_MMA_BACKWARD_BYTES(step, head)                                                     \
    (2 * GD_CUDA_MMA_ROWS_BYTES(GD_CUDA_MMA_ROWS, head) + 4 * GD_CUDA_MMA_ROWS_BYTES(step, head) + \
     4 * 4 * (step))

#endif
