/* blob.h - blobs of files as tensors: weights, states of solvers, mean images. */
#ifndef GRADUS_CAFFE_BLOB_H
#define GRADUS_CAFFE_BLOB_H

#include "caffe/schema.h"
#include "gradus/tensor.h"

/* The shape of a BlobProto: the field `shape`, or the four sizes of older files (num, channels, height and
 * width). */
gd_status gd_caffe_blob_shape(const gd_pb *blob, gd_shape *shape);

/* Its values in a new tensor of the CPU: f32 or f64, or f16 from files of OpenCV and NVIDIA. */
gd_status gd_caffe_blob_tensor(const gd_pb *blob, gd_tensor **out);

/* Sets shape and values of an empty BlobProto. f64 is written as doubles, all other dtypes as floats. The
 * values of a contiguous f32 or f64 tensor of the CPU are not copied: it must stay unchanged until the
 * document is written. */
gd_status gd_caffe_put_blob(gd_pb *blob, gd_tensor *t);

#endif
