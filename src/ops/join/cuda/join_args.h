/* join_args.h - parameters of the kernels in join.cu. */
#ifndef GRADUS_OPS_JOIN_CUDA_JOIN_ARGS_H
#define GRADUS_OPS_JOIN_CUDA_JOIN_ARGS_H

#include "backend/cuda/divisor.h"
#include "backend/cuda/view.h"

enum { GD_CUDA_PIECES = 16 }; /* that one kernel copies */

/* Columns of y (rows, row_bytes): piece i is a contiguous (rows, end - start) that is copied to the
 * columns from `start` on. Pieces are adjacent. All numbers are in units of `unit` bytes. */
typedef struct gd_cuda_join {
    gd_cuda_call call;
    void *y;
    int unit;
    long long rows, row; /* units of a row of y */
    int count;
    struct {
        const void *x;
        long long start, end;
        gd_cuda_divisor by; /* end - start, if the piece has less than 2^31 units */
        int small;
    } pieces[GD_CUDA_PIECES];
} gd_cuda_join;

#endif
