/* conv.h - the problem of a convolution on CUDA, which all its kernels share: that of
 * ops/conv/conv_problem.h, with its operands.
 *
 * A call runs with the first of these kernels that matches:
 *
 *     cudnn    conv_cudnn.c   f16 and bf16, and large products in tf32, if cuDNN has an engine
 *     image    conv_image.c   f32, the gradient of x for small images
 *     tiled    conv_tiled.c   f32, one or two axes
 *     direct   conv.c         few channels of a group: a thread or a block computes an element
 *     gemm     conv.c         any problem
 */
#ifndef GRADUS_OPS_CONV_CUDA_CONV_H
#define GRADUS_OPS_CONV_CUDA_CONV_H

#include "backend/cuda/kernels.h"
#include "ops/conv/conv_problem.h"
#include "ops/conv/cuda/conv_args.h"

/* x, y or w with two dims before the spatial axes: batch and channels, or the channels of y and
 * those of x in a group. */
typedef struct gd_cuda_conv_operand {
    void *data;
    int64_t dims[2 + GD_CONV_AXES], strides[2 + GD_CONV_AXES];
} gd_cuda_conv_operand;

typedef struct gd_cuda_conv_problem {
    gd_conv_direction direction;
    gd_dtype dtype;
    int axes; /* spatial axes of the op */
    int64_t groups, ci, co;
    int64_t stride[GD_CONV_AXES], dilation[GD_CONV_AXES], before[GD_CONV_AXES];
    gd_cuda_conv_operand x, w, y;
    const gd_view *bias; /* NULL: none */
    bool relu;
} gd_cuda_conv_problem;

/* The direction of an op: of conv2d, conv_transpose2d, conv_relu, conv_grad_input and so on. */
gd_conv_direction gd_cuda_conv_direction_of(const gd_op *op);

gd_cuda_conv_problem gd_cuda_conv_problem_of(const gd_kernel_call *call);

/* The positions of an operand, or its taps. */
static inline int64_t gd_cuda_conv_positions(const gd_cuda_conv_operand *o) {
    return o->dims[2] * o->dims[3] * o->dims[4];
}

/* The multiply-adds of a problem, also those with padding. */
static inline int64_t gd_cuda_conv_products(const gd_cuda_conv_problem *q) {
    return q->y.dims[0] * q->y.dims[1] * gd_cuda_conv_positions(&q->y) * q->ci *
           gd_cuda_conv_positions(&q->w);
}

/* With tf32, cuDNN is faster for problems with at least this number of multiply-adds. */
static const int64_t GD_CUDA_CONV_MANY_PRODUCTS = 300000000;

/* Whether a problem computes with floats, and all its positions and offsets fit into 32 bits. */
bool gd_cuda_conv_is_common(const gd_cuda_conv_problem *problem);

/* The product of matrices that a problem is (conv_args.h): its sizes, which are cheap to compute, and
 * the product itself, whose k is not divided. */
typedef struct gd_cuda_conv_sizes {
    int64_t m, n, k;
    bool divides; /* the gradient of x with a stride: most taps of a position do not count */
} gd_cuda_conv_sizes;
gd_cuda_conv_sizes gd_cuda_conv_sizes_of(const gd_cuda_conv_problem *problem);
gd_cuda_conv gd_cuda_conv_product_of(const gd_cuda_conv_problem *problem);

/* Whether the direct kernel computes a common problem if no better one does. */
bool gd_cuda_conv_is_direct(const gd_cuda_conv_problem *problem, const gd_cuda_conv_sizes *sizes);

/* Adds the bias to a result, in place, and applies relu, as the problem demands. */
gd_status gd_cuda_conv_epilogue(const gd_kernel_call *call, const gd_cuda_conv_problem *problem,
                                const gd_cuda_conv_operand *result);

#endif
