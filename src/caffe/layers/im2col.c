/* im2col.c - Im2col: the elements of each window of a convolution as channels. */
#include "caffe/layers/windows.h"

typedef struct im2col_module {
    gd_caffe_windows windows;
} im2col_module;

/* (N, C, spatial axes) gives (N, C window, spatial axes): the channels are in the order of a weight. */
static gd_tensors im2col_forward(gd_tensors in, void *self) {
    const gd_caffe_windows *w = &((im2col_module *)self)->windows;
    const int n = w->axes > 0 ? w->axes : 1;
    gd_tensor *x = gd_caffe_windows_in(w, in.at[0], true);
    gd_shape sides = {.rank = 2 * n, .form = 1}, order = {.at = {0, 1}, .rank = 2, .form = 1};
    bool pads = false;
    for (int i = 0; i < n; i++) { /* the last axis comes first */
        sides.at[2 * (n - 1 - i)] = sides.at[2 * (n - 1 - i) + 1] = w->pad[i];
        pads |= w->pad[i] > 0;
    }
    if (pads) x = gd_pad(x, sides);
    for (int i = 0; i < n; i++)
        x = gd_windows(x, 2 + i, w->kernel[i], w->stride[i], w->dilation[i]);
    for (int i = 0; i < n; i++) order.at[order.rank++] = 2 + n + i; /* windows, then positions */
    for (int i = 0; i < n; i++) order.at[order.rank++] = 2 + i;
    x = gd_flatten(gd_permute(x, order), .start_axis = 1, .end_axis = 1 + n);
    return gd_listed(gd_caffe_windows_out(w, x, in.at[0]));
}

gd_status gd_caffe_make_Im2col(gd_caffe_layer *l) {
    gd_caffe_windows windows;
    GD_TRY(gd_caffe_read_windows(l, &windows));
    im2col_module *m = gd_caffe_module(l, im2col_forward, sizeof *m);
    if (!m) return gd_failure();
    m->windows = windows;
    return GD_OK;
}
