/* silence.c - a layer that reads blobs, so that they are no outputs of the net. */
#include "caffe/layer.h"

gd_status gd_caffe_make_Silence(gd_caffe_layer *l) {
    (void)l;
    return GD_OK; /* it needs no module */
}
