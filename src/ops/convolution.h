/* convolution.h - a convolution as its kernels see it.
 *
 * Every convolution has three spatial axes here (depth, height, width); where an op has fewer, the
 * first ones have size 1. One form is behind all ops: for each image n, group g and output place p,
 *
 *     y[n, g co + o, p] = sum over c and taps k of  x[n, g ci + c, p stride - before + k dilation]
 *                                                   w[g co + o, c, k]
 *
 * where x is 0 outside. Convolution makes y from x and w; its gradients make x from y and w (which
 * is transposed convolution too), and w from x and y.
 */
#ifndef GRADUS_OPS_CONVOLUTION_H
#define GRADUS_OPS_CONVOLUTION_H

#include "gradus/extend.h"
#include "ops/spatial.h"

enum { GD_CONV_AXES = GD_SPATIAL_AXES };

typedef struct gd_conv {
    int64_t batch, groups;
    int64_t ci, co; /* channels of x and of y in one group */
    int64_t in[GD_CONV_AXES], out[GD_CONV_AXES], kernel[GD_CONV_AXES]; /* sizes of x, y and w */
    int64_t stride[GD_CONV_AXES], dilation[GD_CONV_AXES];
    int64_t before[GD_CONV_AXES]; /* zeros before the first element of x */
} gd_conv;

/* The form of a call of any op in convolution.c: sizes from its three tensors, the rest from its
 * options. The call has passed the op's infer rule. */
gd_conv gd_conv_of(const gd_kernel_call *k, const gd_view *x, const gd_view *w, const gd_view *y);

static inline int64_t gd_conv_places(const int64_t size[GD_CONV_AXES]) {
    return size[0] * size[1] * size[2];
}

/* The reference kernel: the tensor that is made, of the three. */
typedef enum { GD_CONV_TO_OUTPUT, GD_CONV_TO_INPUT, GD_CONV_TO_WEIGHT } gd_conv_direction;
gd_status gd_conv_reference(gd_kernel_call *k, gd_conv_direction to);

/* The three directions as windows and products, for a form with the windows of x: f32 for f16 and
 * bf16, without bias. dims are the spatial sizes of x. */
gd_tensor *gd_conv_output_body(gd_tensor *x, gd_tensor *w, const gd_window_form *f, int64_t groups);
gd_tensor *gd_conv_input_body(gd_tensor *gy, gd_tensor *w, const gd_window_form *f, int64_t groups,
                              gd_shape dims);
gd_tensor *gd_conv_weight_body(gd_tensor *x, gd_tensor *gy, const gd_window_form *f, int64_t groups,
                               int n);

#endif
