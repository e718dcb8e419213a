/* conv.h - what the files of this folder share. conv_problem.h has the problem of a convolution, as
 * its kernels see it. */
#ifndef GRADUS_OPS_CONV_CONV_H
#define GRADUS_OPS_CONV_CONV_H

#include "ops/conv/conv_problem.h"
#include "ops/windows/windows_spatial.h"

/* The problem of a call of any op in conv.c: sizes from its three tensors, the rest from its
 * options. The op's infer rule has checked them. */
gd_conv gd_conv_of(const gd_kernel_call *k, const gd_view *x, const gd_view *w, const gd_view *y);

/* The number of positions in all three axes. */
static inline int64_t gd_conv_positions(const int64_t size[GD_CONV_AXES]) {
    return size[0] * size[1] * size[2];
}

/* The reference kernel of all three directions. */
gd_status gd_conv_reference(gd_kernel_call *k, gd_conv_direction to);

/* The three directions as windows and matrix products, without bias. f describes the windows of
 * x, dims are the spatial sizes of x. The result is f32 for f16 and bf16. */
gd_tensor *gd_conv_output_body(gd_tensor *x, gd_tensor *w, const gd_window_form *f, int64_t groups);
gd_tensor *gd_conv_input_body(gd_tensor *gy, gd_tensor *w, const gd_window_form *f, int64_t groups,
                              gd_shape dims);
gd_tensor *gd_conv_weight_body(gd_tensor *x, gd_tensor *gy, const gd_window_form *f, int64_t groups,
                               int n);

#endif
