/* conv_image_args.h - parameters of the kernels in conv_image.cu. */
#ifndef GRADUS_OPS_CONV_CUDA_CONV_IMAGE_ARGS_H
#define GRADUS_OPS_CONV_CUDA_CONV_IMAGE_ARGS_H

#include "backend/cuda/divisor.h"
#include "backend/cuda/view.h"

enum {
    GD_CUDA_CONV_IMAGE_ROWS = 128,   /* channels of x and taps that a block computes at most */
    GD_CUDA_CONV_IMAGE_COLUMNS = 64, /* positions of y in an image at most */
    GD_CUDA_CONV_IMAGE_DEPTH = 64,   /* channels of y that are in shared memory at a time */
    GD_CUDA_CONV_IMAGE_THREADS = 256,
};

/* The gradient of x of a convolution with few positions y in an image. A block computes, for one
 * image and some channels of x, the products of each tap and position, and then adds those that
 * belong to the same element of x. */
typedef struct gd_cuda_conv_image {
    gd_cuda_call call;
    const float *y; /* positions of a channel are contiguous */
    int y_image, y_channel;
    const float *w; /* channels of x and taps are contiguous */
    int w_row;
    float *x;
    int x_strides[4]; /* image, channel, row, column */
    const float *bias;
    long long bias_stride;
    int channels, y_channels;        /* of x and y */
    int block_channels, blocks_each; /* channels of x in a block; blocks of an image */
    int taps[2], y_size[2], x_size[2], stride[2], dilation[2], before[2];
    int aligned; /* y can be loaded 16 bytes at a time */
    gd_cuda_divisor by_width, by_height;
} gd_cuda_conv_image;

#endif
