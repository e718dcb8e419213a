/* windows.h - the windows of Convolution, Deconvolution and Im2col, as convolution_param describes them. */
#ifndef GRADUS_CAFFE_LAYERS_WINDOWS_H
#define GRADUS_CAFFE_LAYERS_WINDOWS_H

#include "caffe/layer.h"

enum { GD_CAFFE_WINDOW_AXES = 3 };

typedef struct gd_caffe_windows {
    int axis; /* of the channels */
    int axes; /* spatial axes after it; 0: kernel and the others count as those of one axis of size 1 */
    int64_t kernel[GD_CAFFE_WINDOW_AXES], stride[GD_CAFFE_WINDOW_AXES], pad[GD_CAFFE_WINDOW_AXES],
        dilation[GD_CAFFE_WINDOW_AXES];
} gd_caffe_windows;

/* Reads and checks the fields. All bottoms must have one shape. */
gd_status gd_caffe_read_windows(const gd_caffe_layer *l, gd_caffe_windows *w);

/* x as (N, C, spatial axes): the axes before the channels become one, and there is at least one spatial
 * axis. Windows that reach beyond the end of x, of which Caffe counts one if the stride is large, get zeros
 * there. */
gd_tensor *gd_caffe_windows_in(const gd_caffe_windows *w, gd_tensor *x, bool pads_end);
/* A result (N, C, spatial axes) with the axes of x before its channels. */
gd_tensor *gd_caffe_windows_out(const gd_caffe_windows *w, gd_tensor *y, gd_tensor *x);

#endif
