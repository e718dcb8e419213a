/* loss_class_args.h - parameters of the kernels in loss_class.cu. */
#ifndef GRADUS_OPS_LOSS_CUDA_LOSS_CLASS_ARGS_H
#define GRADUS_OPS_LOSS_CUDA_LOSS_CLASS_ARGS_H

#include "backend/cuda/view.h"

enum {
    GD_CUDA_LOSS_THREADS = 256,   /* of a block that reads one row of scores */
    GD_CUDA_TOTAL_THREADS = 1024, /* of the block that adds the terms of all positions */
    GD_CUDA_LINE_CLASSES = 16,    /* rows of at most so many scores are read by a thread */
    GD_CUDA_LINE_THREADS = 512,   /* of a block whose threads keep these scores in registers */
};

/* Scores x (outer, classes, inner), contiguous. Position p = n * inner + d has the scores (n, ., d)
 * and the target number p. */
typedef struct gd_cuda_class_loss {
    gd_cuda_call call;
    const void *x;
    int dtype, target_dtype;
    const void *target;
    const void *weight; /* NULL: none */
    int weight_dtype;   /* x's dtype, but in the gradient of nll_loss */
    long long outer, classes, inner, ignore;
    double smoothing;
    int mean, each; /* reductions `mean` and `none` */
    void *y;
    int y_dtype;
    void *shift, *scale; /* in f32, or f64 for f64; NULL: not needed */
    double *total;       /* NULL: not needed */
    /* Terms and weights of all positions, which a second kernel adds. NULL: one block computes
     * and adds all of them. */
    double *terms;
    /* of gradients */
    const void *gy;
    const void *total_of; /* the total as an input */
    int gy_dtype, total_dtype;
    int lines; /* a thread, not a warp, reads the scores of a position */
    void *gx;
} gd_cuda_class_loss;

#endif
