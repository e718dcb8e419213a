/* weights.h - the blobs of a net in a .caffemodel. */
#ifndef GRADUS_CAFFE_WEIGHTS_H
#define GRADUS_CAFFE_WEIGHTS_H

#include "format/protobuf.h"
#include "gradus/module.h"

/* gd_caffe_load and gd_caffe_save, which do not record a failure. */
gd_status gd_caffe_load_weights(const char *paths, gd_module *net);
gd_status gd_caffe_save_weights(const char *path, gd_module *net);

/* Adds the layers of a net, with their blobs, to a NetParameter: those of the file of gd_caffe_save_net, or
 * else the children of the module. The message must not outlive the net and the current scope. */
gd_status gd_caffe_put_layers(gd_pb *message, gd_module *net);

#endif
