/* conv_image.h - the gradient of x of f32 convolutions of small images
 * (conv_image.cu). */
#ifndef GRADUS_OPS_CONV_CUDA_CONV_IMAGE_H
#define GRADUS_OPS_CONV_CUDA_CONV_IMAGE_H

#include "ops/conv/cuda/conv.h"

/* Whether the kernel supports a problem, whose positions fit into 32 bits, and is fast. */
bool gd_cuda_conv_is_of_images(const gd_cuda_conv_problem *problem);
gd_status gd_cuda_conv_run_images(const gd_kernel_call *call, const gd_cuda_conv_problem *problem);

#endif
