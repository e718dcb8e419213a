/* conv.h - the problem of a convolution on CUDA, and its kernels for any problem.
 *
 * As in ops/conv/conv.h, one bilinear form has three directions, and every problem has three
 * spatial axes (depth, height, width), of which the first ones have size 1 if an op has fewer:
 *
 *     y[n, g co + o, p] = sum over c and taps k of  x[n, g ci + c, p stride - before + k dilation]
 *                                                   w[g co + o, c, k]
 */
#ifndef GRADUS_OPS_CONV_CUDA_CONV_H
#define GRADUS_OPS_CONV_CUDA_CONV_H

#include "backend/cuda/kernels.h"

enum { GD_CUDA_AXES = 3 };

/* The tensor that a call computes. */
typedef enum {
    GD_CUDA_CONV_OUTPUT,
    GD_CUDA_CONV_INPUT,
    GD_CUDA_CONV_WEIGHT,
} gd_cuda_conv_direction;

/* x, y or w with two dims before the spatial axes: batch and channels, or the channels of y and
 * those of x in a group. */
typedef struct gd_cuda_conv_operand {
    void *data;
    int64_t dims[2 + GD_CUDA_AXES], strides[2 + GD_CUDA_AXES];
} gd_cuda_conv_operand;

typedef struct gd_cuda_conv_problem {
    gd_cuda_conv_direction direction;
    gd_dtype dtype;
    int axes; /* spatial axes of the op */
    int64_t groups, ci, co;
    int64_t stride[GD_CUDA_AXES], dilation[GD_CUDA_AXES], before[GD_CUDA_AXES];
    gd_cuda_conv_operand x, w, y;
    const gd_view *bias; /* NULL: none */
    bool relu;
} gd_cuda_conv_problem;

/* The direction of an op: of conv2d, conv_transpose2d, conv_relu, conv_grad_input and so on. */
gd_cuda_conv_direction gd_cuda_conv_direction_of(const gd_op *op);

gd_cuda_conv_problem gd_cuda_conv_problem_of(const gd_kernel_call *call);

/* Whether a call computes with floats, and all its positions fit into 32 bits. */
bool gd_cuda_conv_is_common(const gd_kernel_call *call);

/* With tf32, cuDNN is faster for problems with at least this number of multiply-adds. */
static const int64_t GD_CUDA_CONV_MANY_PRODUCTS = 300000000;

/* The multiply-adds of a call, also those with padding. */
int64_t gd_cuda_conv_products(const gd_kernel_call *call);

/* The kernels of conv.c, which support every call. */
size_t gd_cuda_conv_workspace(const gd_kernel_call *call);
gd_status gd_cuda_conv_run(gd_kernel_call *call);

/* Adds the bias to a result, in place, and applies relu, as the problem demands. */
gd_status gd_cuda_conv_epilogue(const gd_kernel_call *call, const gd_cuda_conv_problem *problem,
                                const gd_cuda_conv_operand *result);

#endif
