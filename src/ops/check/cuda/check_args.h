/* check_args.h - parameters of the kernel in check.cu. */
#ifndef GRADUS_OPS_CHECK_CUDA_CHECK_ARGS_H
#define GRADUS_OPS_CHECK_CUDA_CHECK_ARGS_H

#include "backend/cuda/walk_args.h"

typedef struct gd_cuda_check_range {
    gd_cuda_call call;
    gd_cuda_walk walk; /* over x; views: x, y */
    const void *x;
    void *y; /* NULL: only checks */
    int dtype, bytes;
    double low, high;
    long long integer_low, integer_high;
    long long but; /* one more integer that is allowed, if has_but */
    int has_but;
    int problem; /* of the report, with the values 1 and 2 */
    long long values[2];
} gd_cuda_check_range;

#endif
