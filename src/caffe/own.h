/* own.h - ops of the program (gd_op_define) as types of layers: an op swish(x) with the option beta is
 *
 *     layer { type: "swish" bottom: "a" top: "b" swish_param { beta: 2 } }
 */
#ifndef GRADUS_CAFFE_OWN_H
#define GRADUS_CAFFE_OWN_H

#include "dispatch/op.h"
#include "format/protobuf.h"

/* The op of the program that has this name; NULL: there is none. */
const gd_op *gd_caffe_own_op(const char *name, size_t length);

/* The field NAME_param of a layer: its message has a field for each option of the op. It lives as long as
 * the library. NULL: there is no such op. */
const gd_pb_field *gd_caffe_own_field(const char *name, size_t length);

/* The options of the op that the layer sets: "beta=2". */
gd_status gd_caffe_own_options(const gd_pb *layer, const gd_op *op, char *text, size_t size);

#endif
