/* tensorboard.h - what the TensorBoard log writes of a net. */
#ifndef GRADUS_TRAIN_TENSORBOARD_H
#define GRADUS_TRAIN_TENSORBOARD_H

#include "format/event_file.h"
#include "gradus/module.h"

/* The net as a GraphDef, from gd_malloc: the ops of a forward pass with such inputs, under names of
 * the modules that call them ("layer1/0/conv1/conv2d"), its parameters, and the edges between them.
 * Nothing is computed. */
gd_status gd_tensorboard_graph(gd_module *net, gd_tensors inputs, char **data, size_t *bytes);

/* Adds the histogram of the finite elements of a tensor to an event; a tensor without any adds
 * none. The buckets are TensorFlow's: each limit is 1.1 times the one before. */
gd_status gd_tensorboard_histogram(gd_pb_doc *event, const char *tag, gd_tensor *tensor);

#endif
