/* filler.h - first values of parameters and of dummy data, as a FillerParameter describes them. */
#ifndef GRADUS_CAFFE_FILLER_H
#define GRADUS_CAFFE_FILLER_H

#include "format/protobuf.h"
#include "gradus/tensor.h"

/* A tensor of this shape. A NULL filler is constant 0. */
gd_status gd_caffe_filled(const gd_pb *filler, gd_shape shape, gd_tensor **out);

#endif
