/* conv.h - the problem of a convolution, as its kernels see it.
 *
 * Every convolution has three spatial axes here (depth, height, width); if an op has fewer, the
 * first ones have size 1. All ops are based on one bilinear form: for image n, group g, output
 * position p,
 *
 *     y[n, g co + o, p] = sum over c and taps k of  x[n, g ci + c, p stride - before + k dilation]
 *                                                   w[g co + o, c, k]
 *
 * where x is 0 outside of its bounds. Convolution computes y from x and w. Its gradients compute x
 * from y and w (as transposed convolution does), and w from x and y.
 */
#ifndef GRADUS_OPS_CONV_CONV_H
#define GRADUS_OPS_CONV_CONV_H

#include "gradus/extend.h"
#include "ops/windows/windows_spatial.h"

enum { GD_CONV_AXES = GD_SPATIAL_AXES };

typedef struct gd_conv {
    int64_t batch, groups;
    int64_t ci, co; /* channels of x and of y in one group */
    int64_t in[GD_CONV_AXES], out[GD_CONV_AXES], kernel[GD_CONV_AXES]; /* sizes of x, y and w */
    int64_t stride[GD_CONV_AXES], dilation[GD_CONV_AXES];
    int64_t before[GD_CONV_AXES]; /* zeros before the first element of x */
} gd_conv;

/* The problem of a call of any op in conv.c: sizes from its three tensors, the rest from its
 * options. The op's infer rule has checked them. */
gd_conv gd_conv_of(const gd_kernel_call *k, const gd_view *x, const gd_view *w, const gd_view *y);

/* The number of positions in all three axes. */
static inline int64_t gd_conv_positions(const int64_t size[GD_CONV_AXES]) {
    return size[0] * size[1] * size[2];
}

/* The reference kernel of all three directions: the enum names the tensor that it computes. */
typedef enum { GD_CONV_TO_OUTPUT, GD_CONV_TO_INPUT, GD_CONV_TO_WEIGHT } gd_conv_direction;
gd_status gd_conv_reference(gd_kernel_call *k, gd_conv_direction to);

/* The three directions as windows and matrix products, without bias. f describes the windows of
 * x, dims are the spatial sizes of x. The result is f32 for f16 and bf16. */
gd_tensor *gd_conv_output_body(gd_tensor *x, gd_tensor *w, const gd_window_form *f, int64_t groups);
gd_tensor *gd_conv_input_body(gd_tensor *gy, gd_tensor *w, const gd_window_form *f, int64_t groups,
                              gd_shape dims);
gd_tensor *gd_conv_weight_body(gd_tensor *x, gd_tensor *gy, const gd_window_form *f, int64_t groups,
                               int n);

#endif
