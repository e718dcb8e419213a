/* space_to_depth.h - a strided convolution over few channels as one with stride 1 over many.
 *
 * Tensor cores multiply 8 or more channels at a time, so the first layer of an image network, a
 * convolution of 3 channels with stride 2, leaves most of them idle. The blocks of 2 x 2 pixels of x
 * become pixels with 12 channels, and 4 zeros; the taps of w are grouped in the same way. The
 * products are the same, so the result differs only in the order of its sums.
 */
#ifndef GRADUS_OPS_CONV_CUDA_SPACE_TO_DEPTH_H
#define GRADUS_OPS_CONV_CUDA_SPACE_TO_DEPTH_H

#include "ops/conv/cuda/conv.h"

/* Whether that pays for a problem whose images have channels last. */
bool gd_cuda_blocks_pay(const gd_cuda_conv_problem *problem);

/* The problem with stride 1. Its x and w are dense with channels last, and have no data. */
gd_cuda_conv_problem gd_cuda_blocks_of(const gd_cuda_conv_problem *problem);

/* Queues a copy of x to its blocks, of w to its blocks, or of these to w. */
gd_status gd_cuda_queue_x_blocks(const gd_kernel_call *call, const gd_cuda_conv_problem *problem,
                                 const gd_cuda_conv_operand *blocks);
gd_status gd_cuda_queue_w_blocks(const gd_kernel_call *call, const gd_cuda_conv_problem *problem,
                                 const gd_cuda_conv_operand *blocks, bool back);

#endif
