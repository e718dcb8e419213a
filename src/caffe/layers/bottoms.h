/* bottoms.h - checks of the shapes of bottoms, and of labels. */
#ifndef GRADUS_CAFFE_LAYERS_BOTTOMS_H
#define GRADUS_CAFFE_LAYERS_BOTTOMS_H

#include "caffe/layer.h"
#include "gradus/graph.h"

/* The shape of a bottom as text. */
const char *gd_caffe_bottom_text(const gd_caffe_layer *l, int i, char text[128]);

/* Requires bottom i to have the shape of bottom 0, */
gd_status gd_caffe_need_shape_of_first(const gd_caffe_layer *l, int i);
/* or as many elements, in any shape with the same first size. */
gd_status gd_caffe_need_count_of_first(const gd_caffe_layer *l, int i);

/* Requires bottom i to have one number for each position of bottom 0: for all its axes but `axis`. */
gd_status gd_caffe_need_labels(const gd_caffe_layer *l, int i, int axis);

/* From here to the end of the block, a run of a graph that fails names the layer. */
#define GD_CAFFE_NAME_LAYER GD_BLOCK_(gd_name_scope_end, gd_caffe_name_layer())
gd_block gd_caffe_name_layer(void);

/* x; a failure if one of its sizes from axis `first` on is unknown, as it may be in a graph. */
gd_tensor *gd_caffe_known(gd_tensor *x, int first);

/* Blob x as (outer, classes, inner): the axes before `axis`, that axis, and those behind it. */
gd_tensor *gd_caffe_by_class(gd_tensor *x, int axis);
/* Labels for such a blob, as class numbers (outer, inner). Labels that are neither a class nor `ignored`
 * are a failure that names them. */
gd_tensor *gd_caffe_class_numbers(gd_tensor *labels, gd_tensor *by_class, int64_t ignored);

#endif
