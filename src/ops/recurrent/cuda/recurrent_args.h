/* recurrent_args.h - parameters of the kernels in recurrent.cu and recurrent_resident*.cu. */
#ifndef GRADUS_OPS_RECURRENT_CUDA_RECURRENT_ARGS_H
#define GRADUS_OPS_RECURRENT_CUDA_RECURRENT_ARGS_H

#include "backend/cuda/view.h"

/* A thread computes 8 x 4 sums: 8 columns of packed weights times 4 sequences of the batch. A tile
 * is the work of a block in one step. Several threads compute each sum, over slices of the depth. */
enum {
    GD_CUDA_RECURRENT_THREADS = 512,

    GD_CUDA_FORWARD_COLUMNS = 32, /* of a tile: gates of 8 units, or 32 units of an rnn */
    GD_CUDA_FORWARD_BATCH = 32,
    GD_CUDA_BACKWARD_COLUMNS = 16, /* of a tile: units */
    GD_CUDA_BACKWARD_BATCH = 16,
    GD_CUDA_RECURRENT_PAD = 4, /* elements after a row of partial sums, against bank conflicts */

    /* recurrent_resident.cuh */
    GD_CUDA_RESIDENT_THREADS = 256,
    GD_CUDA_RESIDENT_SHARED = 32 << 10, /* of partial sums, in two buffers */
    GD_CUDA_RESIDENT_PAIR = 64, /* bytes of a row of the exchange that two k-tiles multiply */
};

typedef enum gd_cuda_cell {
    GD_CUDA_CELL_TANH,
    GD_CUDA_CELL_RELU,
    GD_CUDA_CELL_LSTM,
    GD_CUDA_CELL_GRU,
} gd_cuda_cell;

/* One direction of a layer over all steps (ops/recurrent/recurrent_layer.c). T steps, N sequences, I inputs,
 * H units. All tensors are contiguous. "Wide" is f32, or f64 for f64.
 *
 * All blocks run at the same time and stay for all steps. They exchange states, or gradients of
 * gates, in `exchange`, of which there are two: one is read and one written. counters[b] counts the
 * tiles of batch tile b that are complete: a tile waits until all tiles of the step before are. */
typedef struct gd_cuda_recurrent {
    gd_cuda_call call;
    int cell; /* gd_cuda_cell */
    int reverse;
    int dtype;
    long long steps, batch, inputs, hidden;
    long long depth;                                     /* rows of w_hh: G*H */
    const void *x, *h0, *c0, *w_ih, *w_hh, *b_ih, *b_hh; /* h0, c0, biases: or NULL */
    const long long *lengths;                            /* or NULL */
    const void *input_sums; /* wide (T, N, G*H): x w_ih^T; NULL: the kernel computes it */

    void *y, *h, *c;
    void *gates; /* wide (T, N, 4H) after the activations; or (T, N, H): y; or NULL */
    void *cells; /* wide (T, N, H), or NULL */

    const void *gy, *gh, *gc, *saved, *saved_y, *saved_c;
    int wide_y;      /* saved_y is wide */
    void *gradients; /* (T, N, parts * H) */
    int parts;
    void *gh0, *gc0;

    int unit_tiles, batch_tiles;
    long long padded;   /* N, rounded up to full tiles */
    void *exchange;     /* wide (2, H or G*H, padded) */
    void *state;        /* wide (N, H): c, or the gradient of c */
    void *carry;        /* wide (N, H): the gradient of h without that through the gates */
    void *packed;       /* wide (unit_tiles, depth, columns): weights; NULL: shared memory */
    unsigned *counters; /* (batch_tiles, 32); 0 at first */

    /* recurrent_resident.cuh; there, `exchange` is (slots, padded, row_bytes) and EMPTY at first. */
    int groups;          /* of warps with the same rows of weights */
    int sequence_groups; /* of 8 sequences, that a block computes one after the other */
    int row_bytes;
    int slots; /* a power of 2, at least 8 */
} gd_cuda_recurrent;

#endif
