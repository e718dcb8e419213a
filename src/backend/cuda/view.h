/* view.h - the parameters that kernels share: operands, and what a call needs to report bad data.
 * Host and kernels include it. */
#ifndef GRADUS_BACKEND_CUDA_VIEW_H
#define GRADUS_BACKEND_CUDA_VIEW_H

#include "backend/cuda/error_word.h"

enum { GD_CUDA_RANK = 8 }; /* GD_MAX_RANK */

/* A gd_view (gradus/extend.h) with its number of elements. */
typedef struct gd_cuda_view {
    void *data;
    int dtype; /* gd_dtype */
    int rank;
    long long count;
    long long dims[GD_CUDA_RANK];
    long long strides[GD_CUDA_RANK]; /* in elements */
} gd_cuda_view;

/* The error word, and the number of the call if it may find bad data. */
typedef struct gd_cuda_call {
    gd_cuda_word *word;
    unsigned long long number;
} gd_cuda_call;

#endif
