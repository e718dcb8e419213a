/* layer_text.h - the text of a layer, kept with its module: a net is written back with all its fields. */
#ifndef GRADUS_CAFFE_LAYER_TEXT_H
#define GRADUS_CAFFE_LAYER_TEXT_H

#include "format/protobuf.h"
#include "gradus/module.h"

/* The texts of the layers of one net. */
typedef struct gd_caffe_texts gd_caffe_texts;

/* Keeps a copy of a layer's message with the module: its type, its options and its tops, without name,
 * bottoms, blobs and the rules for phases. Clones of the module share it. *texts, NULL at first, is for all
 * layers of a net; gd_caffe_texts_release it. */
gd_status gd_caffe_keep_text(gd_caffe_texts **texts, gd_module *module, const gd_pb *layer);
void gd_caffe_texts_release(gd_caffe_texts *texts); /* NULL is fine */

/* The text of a layer; NULL: the module is none of gd_caffe_net. */
const gd_pb *gd_caffe_text_of(const gd_module *module);

#endif
