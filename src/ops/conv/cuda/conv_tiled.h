/* conv_tiled.h - convolutions of f32 images with one or two axes, by tiles that fit the
 * problem (conv_tiled.cu). */
#ifndef GRADUS_OPS_CONV_CUDA_CONV_TILED_H
#define GRADUS_OPS_CONV_CUDA_CONV_TILED_H

#include "ops/conv/cuda/conv.h"
#include "ops/conv/cuda/conv_args.h"

/* Whether these kernels support a product, of which all positions fit into 32 bits. */
bool gd_cuda_conv_is_tiled(const gd_cuda_conv_problem *problem, const gd_cuda_conv *product);

/* `sums` of the next functions are the sums of the rows of a product's left operand, or NULL. The
 * kernels compute them as one more column. Whether that is faster than a kernel for the sums: */
bool gd_cuda_conv_joins_sums(const gd_device *d, const gd_cuda_conv_problem *problem,
                             const gd_cuda_conv *product, const gd_view *sums);
size_t gd_cuda_conv_tiled_workspace(const gd_device *d, const gd_cuda_conv_problem *problem,
                                    const gd_cuda_conv *product, const gd_view *sums);
gd_status gd_cuda_conv_run_tiled(const gd_kernel_call *call, const gd_cuda_conv_problem *problem,
                                 const gd_cuda_conv *product, const gd_view *sums);

#endif
