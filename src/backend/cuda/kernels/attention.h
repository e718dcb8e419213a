/* attention.h - parameters of the kernels in attention.cu and attention_mma.cu. */
#ifndef GRADUS_CUDA_ATTENTION_H
#define GRADUS_CUDA_ATTENTION_H

#include "backend/cuda/kernels/view.h"

enum {
    GD_CUDA_ATTENTION_THREADS = 256,     /* of a block: attention.cu */
    GD_CUDA_ATTENTION_MMA_THREADS = 128, /* attention_mma.cu */
    GD_CUDA_ATTENTION_HEAD = 256,        /* the largest head size */
};

/* An operand: one matrix for each element of the batch. */
typedef struct gd_cuda_heads {
    void *data;                    /* NULL: absent */
    long long batch[GD_CUDA_RANK]; /* strides of the leading dimensions; 0: broadcast */
    long long row, column;         /* strides */
    int vectors;                   /* rows can be accessed 16 bytes at a time */
} gd_cuda_heads;

/* The names and sizes are those of the ops (ops/attention.c): q (L, E), k (S, E), v (S, F), y and gy
 * (L, F), mask (L, S); lse has L rows. */
typedef struct gd_cuda_attention {
    gd_cuda_call call;
    gd_cuda_heads q, k, v, y, lse, mask, gy;
    gd_cuda_heads gq, gk, gv;
    int batch_rank;
    long long batch_dims[GD_CUDA_RANK];
    long long matrices;          /* the product of batch_dims */
    long long rows, columns;     /* L, S */
    int width, value_width;      /* E, F */
    int groups;                  /* heads of q that share one head of k and v */
    int causal;
    int mask_is_bool;
    double scale;
    const long long *key;        /* the random key of dropout: two numbers; NULL: no dropout */
    long long key_stride;
    unsigned long long limit;    /* a weight is kept if its random word is below */
    double kept_scale;
    void *inner;                 /* workspace (matrices, L): the sums of gy y; f64, otherwise f32 */
} gd_cuda_attention;

/* --- sizes of tiles --------------------------------------------------------------------------- */

/* attention.cu: tiles of GD_CUDA_ATTENTION_TILE rows of q and of k. Forward has tiles of q, k, v and
 * weights; backward of q, k, v, gy, weights and their gradients. Rows have 16 bytes of padding. */
#define GD_CUDA_ATTENTION_BYTES(element, tile, head, matrices, weights) \
    ((matrices) * (tile) * ((head) * (element) + 16) + (weights) * (tile) * ((tile) * (element) + 16))

/* attention_mma.cu, in 16-bit elements: tiles of `rows` rows. */
#define GD_CUDA_ATTENTION_ROWS_BYTES(rows, head) ((rows) * ((head) + 8) * 2)

#endif
