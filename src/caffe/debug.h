/* debug.h - the lines of debug_info: the mean absolute value of each top and bottom, of each blob, and of their
 * gradients. Nets with it run eagerly. */
#ifndef GRADUS_CAFFE_DEBUG_H
#define GRADUS_CAFFE_DEBUG_H

#include "caffe/log.h"
#include "caffe/net.h"

typedef struct gd_caffe_debug gd_caffe_debug;

/* Hooks the layers of a net, which must outlive it. *on says whether a call of the net is logged; `batches`:
 * of an iteration, whose gradients are added up. */
gd_status gd_caffe_debug_open(gd_caffe_debug **out, const gd_caffe_text_net *net,
                              const gd_caffe_log *log, const bool *on, int64_t batches);
void gd_caffe_debug_close(gd_caffe_debug *debug); /* NULL is fine */

/* Writes the lines of the gradients of a batch, from the last layer to the first. Those of parameters are sums
 * over the batches of the iteration so far, which `ends` or goes on. */
gd_status gd_caffe_debug_backward(gd_caffe_debug *debug, bool ends);

#endif
