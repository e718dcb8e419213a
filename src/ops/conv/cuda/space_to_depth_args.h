/* space_to_depth_args.h - parameters of the kernels in space_to_depth.cu. */
#ifndef GRADUS_OPS_CONV_CUDA_SPACE_TO_DEPTH_ARGS_H
#define GRADUS_OPS_CONV_CUDA_SPACE_TO_DEPTH_ARGS_H

#include "backend/cuda/view.h"

/* A plane (n, channels, height, width) of 16-bit elements with any strides, and its blocks
 * (n, blocks_y, blocks_x, depth), which are dense. Channel (dy * block + dx) * channels + c of block
 * (i, j) is element (n, c, i * block + dy - shift_y, j * block + dx - shift_x) of the plane, or 0
 * where there is none. Depth is a multiple of 8. */
typedef struct gd_cuda_space_to_depth {
    gd_cuda_call call;
    void *plane, *blocks;
    long long n, n_stride, channel_stride, y_stride, x_stride;
    int channels, height, width;
    int block, shift_y, shift_x, blocks_y, blocks_x, depth;
} gd_cuda_space_to_depth;

#endif
