/* sort_args.h - parameters of the kernels in sort.cu. A line is all elements along the axis of an op,
 * with fixed indices in the other dimensions. */
#ifndef GRADUS_OPS_SORT_CUDA_SORT_ARGS_H
#define GRADUS_OPS_SORT_CUDA_SORT_ARGS_H

#include "backend/cuda/walk_args.h"

/* An element to be sorted: a key whose unsigned order is the order of the elements, and the index
 * in the line. */
typedef struct gd_cuda_sort_entry {
    unsigned long long key;
    long long index;
} gd_cuda_sort_entry;

enum { GD_CUDA_SORTED_RUN = 32 }; /* elements of the runs that gd_sort_runs sorts */

/* A merge sort: gd_sort_runs sorts short runs, gd_merge_runs merges pairs of them. */
typedef struct gd_cuda_sort {
    gd_cuda_call call;
    gd_cuda_walk lines; /* over x without the axis; views: x, values, indices */
    const void *x;
    void *values;       /* or NULL */
    long long *indices; /* or NULL */
    int dtype, bytes;   /* of x and values */
    int descending;
    long long n; /* elements of a line */
    long long x_step, values_step, indices_step;
    const gd_cuda_sort_entry *from; /* (lines, n) */
    gd_cuda_sort_entry *to;         /* (lines, n) */
    long long width;                /* elements of a run of `from` */
} gd_cuda_sort;

#endif
