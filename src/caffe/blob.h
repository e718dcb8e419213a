/* blob.h - the tensors of Caffe's files. */
#ifndef GRADUS_CAFFE_BLOB_H
#define GRADUS_CAFFE_BLOB_H

#include "format/protobuf.h"
#include "gradus/tensor.h"

/* The shape of a BlobProto, which its data fit. */
gd_status gd_caffe_blob_shape(const gd_pb *blob, gd_shape *shape);
/* Its data: f32, or f64. The tensor is on the CPU. */
gd_status gd_caffe_blob_tensor(const gd_pb *blob, gd_tensor **out);
/* Fills a BlobProto. The tensor may be on any device. */
gd_status gd_caffe_put_blob(gd_pb *blob, gd_tensor *t);

#endif
