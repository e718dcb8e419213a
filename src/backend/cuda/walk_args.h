/* walk_args.h - parameters of loops over the elements of several views at once. Host and kernels include
 * it. */
#ifndef GRADUS_BACKEND_CUDA_WALK_ARGS_H
#define GRADUS_BACKEND_CUDA_WALK_ARGS_H

#include "backend/cuda/view.h"

enum { GD_CUDA_WALK_VIEWS = 3 };

/* A shape, and the strides of up to three views along its dimensions. The host drops dimensions of
 * size 1 and merges those that are contiguous in all views (gd_cuda_walk_over). Element numbers
 * stay row-major, so merging does not change them. */
typedef struct gd_cuda_walk {
    int rank;
    long long count; /* of elements */
    long long dims[GD_CUDA_RANK];
    long long strides[GD_CUDA_WALK_VIEWS][GD_CUDA_RANK]; /* in elements */
} gd_cuda_walk;

#endif
