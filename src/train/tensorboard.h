/* tensorboard.h - a net and its parameters in the formats of TensorBoard: graphs and histograms. */
#ifndef GRADUS_TRAIN_TENSORBOARD_H
#define GRADUS_TRAIN_TENSORBOARD_H

#include "format/event_file.h"
#include "gradus/module.h"

/* The net as a serialized GraphDef, from gd_malloc: the ops of a forward pass with such inputs, its
 * parameters, and the edges between them. An op is named after the module that calls it,
 * "layer1/0/conv1/conv2d". Only shapes are computed. */
gd_status gd_tensorboard_graph(gd_module *net, gd_tensors inputs, char **data, size_t *bytes);

/* Adds the histogram of the finite elements of a tensor to an event; nothing if there are none. The
 * buckets are TensorFlow's: each limit is 1.1 times the previous one. */
gd_status gd_tensorboard_histogram(gd_pb_doc *event, const char *tag, gd_tensor *tensor);

#endif
