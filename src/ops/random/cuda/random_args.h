/* random_args.h - parameters of the kernels in random.cu. */
#ifndef GRADUS_OPS_RANDOM_CUDA_RANDOM_ARGS_H
#define GRADUS_OPS_RANDOM_CUDA_RANDOM_ARGS_H

#include "backend/cuda/view.h"

enum { GD_CUDA_ROW_THREADS = 256 }; /* of a block that works on a row of multinomial */

/* Seed and call number of a random call. */
typedef struct gd_cuda_rng {
    unsigned long long seed, call;
    const unsigned long long *rng_offset; /* a seed and call number to combine with them, or NULL */
    const unsigned long long *key;        /* or a key, which has both; NULL: none */
    long long key_stride;
} gd_cuda_rng;

/* A call that draws numbers for each element of y. Contiguous views have rank 1. */
typedef struct gd_cuda_draw {
    gd_cuda_call call;
    gd_cuda_rng rng;
    gd_cuda_view y;
    gd_cuda_view x;           /* probabilities of bernoulli, input of dropout */
    gd_cuda_view mask;        /* of dropout; data NULL: not needed */
    double low, range, below; /* uniform: gd_uniform_params */
    int shift;
    float unit;
    double mean, std;               /* normal */
    unsigned long long limit;       /* words below it are true: dropout and masks */
    double scale;                   /* of elements that dropout keeps */
    unsigned long long first, span; /* integers: first + a number below span */
} gd_cuda_draw;

/* weights (rows, classes) give y (rows, draws). */
typedef struct gd_cuda_multinomial {
    gd_cuda_call call;
    gd_cuda_rng rng;
    gd_cuda_view weights, y; /* rank 2 */
    long long rows, classes, draws;
    int replacement;
    double *sums; /* (rows, classes): cumulative sums of the weights */
    double
        *arrivals; /* the same memory, without replacement: when each class arrives; NaN: never */
} gd_cuda_multinomial;

#endif
