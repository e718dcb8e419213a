/* pooling.h - pooling as Caffe does it, for Pooling and SPP. */
#ifndef GRADUS_CAFFE_LAYERS_POOLING_H
#define GRADUS_CAFFE_LAYERS_POOLING_H

#include "caffe/layer.h"

/* The numbers are those of PoolMethod in Caffe's files. */
typedef enum gd_caffe_pool_kind {
    GD_CAFFE_POOL_MAX,
    GD_CAFFE_POOL_AVERAGE,
    GD_CAFFE_POOL_STOCHASTIC
} gd_caffe_pool_kind;

/* Of the two spatial axes. */
typedef struct gd_caffe_pool {
    gd_caffe_pool_kind kind;
    bool rounds_down; /* the number of windows; else up */
    int64_t kernel[2], stride[2], pad[2];
} gd_caffe_pool;

/* The windows of x (N, C, H, W), with as many as Caffe has. `mask`, unless NULL, gets the index of each
 * maximum in its plane as floats, -1 for a window without elements. */
gd_tensor *gd_caffe_pooled(const gd_caffe_pool *p, gd_tensor *x, gd_tensor **mask);

#endif
