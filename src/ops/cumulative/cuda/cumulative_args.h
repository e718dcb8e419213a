/* cumulative_args.h - parameters of the kernels in cumulative.cu. A line is all elements along the axis
 * of an op, with fixed indices in the other dimensions. */
#ifndef GRADUS_OPS_CUMULATIVE_CUDA_CUMULATIVE_ARGS_H
#define GRADUS_OPS_CUMULATIVE_CUDA_CUMULATIVE_ARGS_H

#include "backend/cuda/walk_args.h"

typedef enum gd_cuda_cumulative_kind {
    GD_CUDA_CUMULATIVE_SUM,
    GD_CUDA_CUMULATIVE_PRODUCT,
    GD_CUDA_CUMULATIVE_LINEAR, /* y[k] = a[k] y[k-1] + x[k] */
} gd_cuda_cumulative_kind;

/* The effect of some consecutive elements: they map the result before them to the last of theirs,
 * y -> scale y + offset. 16 bytes, f64 or u64. */
enum { GD_CUDA_CHUNK_BYTES = 16 };

/* A thread computes a line, or a chunk of a long line. Chunks need three kernels: the first
 * computes the map of each chunk, the second the result before each chunk, the third the
 * elements. */
typedef struct gd_cuda_cumulative {
    gd_cuda_call call;
    gd_cuda_walk lines; /* over x without the axis; views: x, y, a */
    const void *x, *a;  /* a: coefficients of LINEAR */
    void *y;
    int x_dtype, y_dtype, a_dtype;
    gd_cuda_cumulative_kind kind;
    int exclusive, reverse;
    int neighbour; /* LINEAR: the coefficient of the element before */
    int as_bool;   /* elements of x count as 0 or 1 */
    long long n;   /* elements of a line */
    long long x_step, y_step, a_step;
    long long chunk, chunks; /* elements of a chunk, chunks of a line */
    void *maps;              /* chunks > 1: (chunks, lines) */
} gd_cuda_cumulative;

#endif
