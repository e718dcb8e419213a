/* layers_pool.c - pooling: over windows of a given size, over a given number of windows, over
 * entire channels; and max unpooling. */
#include <math.h>
#include <stdio.h>

#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/* --- windows of a given size ------------------------------------------------------------------ */

/* The default of stride is the kernel size. */
static gd_status check_stride(const gd_module *m, const int64_t *stride) {
    return stride[0] == GD_UNSET
               ? GD_OK
               : gd_layer_all_at_least(m, "stride", gd_layer_variant(m), stride, 1);
}

/* Padding of more than half a window would give windows that hold nothing but padding. */
static gd_status check_window(const gd_module *m, const int64_t *kernel, const int64_t *stride,
                              const int64_t *padding) {
    const int axes = gd_layer_variant(m);
    GD_TRY(gd_layer_all_at_least(m, "kernel", axes, kernel, 1));
    GD_TRY(check_stride(m, stride));
    GD_TRY(gd_layer_all_at_least(m, "padding", axes, padding, 0));
    for (int i = 0; i < axes; i++)
        if (padding[i] > kernel[i] / 2)
            return gd_fail(GD_E_ARGUMENT,
                           "%s: padding is %lld; it must be at most half of the kernel, %lld",
                           m->type, (long long)padding[i], (long long)kernel[i] / 2);
    return GD_OK;
}

static gd_tensors call_pool(gd_module *m, gd_tensors in, gd_word data_format) {
    if (data_format != GD_CHANNELS_LAST) return gd_layer_call_op(m, in);
    gd_tensor *x = gd_layer_channels_first(in.at[0], data_format);
    gd_tensor *y = gd_layer_call_op(m, gd_list(x)).at[0];
    return gd_listed(gd_layer_channels_restored(y, data_format));
}

/* Selects the op whose second output are the indices. */
static gd_status select_op_with_indices(gd_module *m) {
    char name[64];
    snprintf(name, sizeof name, "%s_with_indices", m->factory->of);
    return gd_layer_set_op(m, name);
}

/*layer max_pool{1,2,3}d(x, kernel:int[{}]) -> y  of max_pool{}d
 * The largest element of each window of x (N, C, {L|H, W|D, H, W}).
 *   options of max_pool{}d
 *   return_indices bool = false   a second output: the position in its plane of x of each result
 *   data_format {channels_first, channels_last} = channels_first   channels_last: x is (N, ..., C)
 *   python MaxPool{}d(kernel_size=kernel, stride, padding, dilation, return_indices, ceil_mode)
 */
static gd_status max_poolNd_check(const gd_module *m) {
    const gd_nn_max_pool3d_options o = GD_LAYER_OPTIONS(gd_nn_max_pool3d_options, m);
    GD_TRY(gd_layer_all_at_least(m, "dilation", gd_layer_variant(m), o.dilation.at, 1));
    if (o.return_indices && o.data_format == GD_CHANNELS_LAST)
        return gd_fail(GD_E_ARGUMENT,
                       "%s: return_indices gives positions in planes of x (N, C, ...); data_format "
                       "must be channels_first",
                       m->type);
    return check_window(m, o.kernel.at, o.stride.at, o.padding.at);
}
static gd_status max_poolNd_build(gd_module *m) {
    const gd_nn_max_pool3d_options o = GD_LAYER_OPTIONS(gd_nn_max_pool3d_options, m);
    return o.return_indices ? select_op_with_indices(m) : GD_OK;
}
static gd_tensors max_poolNd_forward(gd_module *m, gd_tensors in) {
    const gd_nn_max_pool3d_options o = GD_LAYER_OPTIONS(gd_nn_max_pool3d_options, m);
    return call_pool(m, in, o.data_format);
}

/*layer avg_pool{1,2,3}d(x, kernel:int[{}]) -> y  of avg_pool{}d
 * The average of each window of x (N, C, {L|H, W|D, H, W}).
 *   options of avg_pool{}d
 *   data_format {channels_first, channels_last} = channels_first   channels_last: x is (N, ..., C)
 *   python AvgPool{}d(kernel_size=kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
 */
static gd_status avg_poolNd_check(const gd_module *m) {
    const gd_nn_avg_pool3d_options o = GD_LAYER_OPTIONS(gd_nn_avg_pool3d_options, m);
    if (o.divisor_override == 0)
        return gd_fail(GD_E_ARGUMENT, "%s: divisor_override is 0", m->type);
    return check_window(m, o.kernel.at, o.stride.at, o.padding.at);
}
static gd_tensors avg_poolNd_forward(gd_module *m, gd_tensors in) {
    const gd_nn_avg_pool3d_options o = GD_LAYER_OPTIONS(gd_nn_avg_pool3d_options, m);
    return call_pool(m, in, o.data_format);
}

/* --- p-norms of windows ----------------------------------------------------------------------- */

/*layer lp_pool{1,2,3}d(x, norm_type:float, kernel:int[{}]) -> y  of avg_pool{}d
 * (sum of x^p)^(1/p) over each window of x (N, C, {L|H, W|D, H, W}), p being norm_type, which
 * must be finite; p = 1 gives the sum.
 *   stride    int[{}] = none     step between windows; none: the kernel size
 *   ceil_mode bool = false     adds a last window that is not full
 *   python LPPool{}d(norm_type, kernel_size=kernel, stride, ceil_mode)
 */
static gd_status lp_poolNd_check(const gd_module *m) {
    const gd_nn_lp_pool3d_options o = GD_LAYER_OPTIONS(gd_nn_lp_pool3d_options, m);
    if (!isfinite(o.norm_type) || o.norm_type == 0)
        return gd_fail(GD_E_ARGUMENT, "%s: norm_type is %g; it must be a number other than 0",
                       m->type, o.norm_type);
    GD_TRY(check_stride(m, o.stride.at));
    return gd_layer_all_at_least(m, "kernel", gd_layer_variant(m), o.kernel.at, 1);
}
/* The sum of a window is its average times its size. A negative sum gives 0. */
static gd_tensors lp_poolNd_forward(gd_module *m, gd_tensors in) {
    const gd_nn_lp_pool3d_options o = GD_LAYER_OPTIONS(gd_nn_lp_pool3d_options, m);
    double window = 1;
    for (int i = 0; i < gd_layer_variant(m); i++) window *= (double)o.kernel.at[i];
    gd_tensor *power = gd_pow(in.at[0], gd_layer_scalar(in.at[0], o.norm_type));
    gd_tensor *average = gd_layer_call_op(m, gd_list(power)).at[0];
    return gd_listed(gd_pow(gd_mul(gd_relu(average), gd_scalar(window)),
                            gd_layer_scalar(average, 1 / o.norm_type)));
}

/* --- a given number of windows ---------------------------------------------------------------- */

/* Sizes of y; -1 keeps that of x. */
static gd_status check_sizes(const gd_module *m, const int64_t *size) {
    for (int i = 0; i < gd_layer_variant(m); i++)
        if (size[i] == GD_UNSET || (size[i] < 1 && size[i] != -1))
            return gd_fail(GD_E_ARGUMENT,
                           "%s: size is %lld; it must be at least 1, or -1 to keep that of x",
                           m->type, (long long)size[i]);
    return GD_OK;
}

/*layer adaptive_avg_pool{1,2,3}d(x, size:int[{}]) -> y  of adaptive_avg_pool{}d
 * Averages over windows of nearly equal size of x (N, C, {L|H, W|D, H, W}); `size` is their number
 * along each axis, and so the size of y.
 *   python AdaptiveAvgPool{}d(output_size=size)
 */
static gd_status adaptive_avg_poolNd_check(const gd_module *m) {
    const gd_nn_adaptive_avg_pool3d_options o =
        GD_LAYER_OPTIONS(gd_nn_adaptive_avg_pool3d_options, m);
    return check_sizes(m, o.size.at);
}

/*layer adaptive_max_pool{1,2,3}d(x, size:int[{}]) -> y  of adaptive_max_pool{}d
 * The largest elements of windows of nearly equal size of x (N, C, {L|H, W|D, H, W}); `size` is
 * their number along each axis, and so the size of y.
 *   return_indices bool = false   a second output: the position in its plane of x of each result
 *   python AdaptiveMaxPool{}d(output_size=size, return_indices)
 */
static gd_status adaptive_max_poolNd_check(const gd_module *m) {
    const gd_nn_adaptive_max_pool3d_options o =
        GD_LAYER_OPTIONS(gd_nn_adaptive_max_pool3d_options, m);
    return check_sizes(m, o.size.at);
}
static gd_status adaptive_max_poolNd_build(gd_module *m) {
    const gd_nn_adaptive_max_pool3d_options o =
        GD_LAYER_OPTIONS(gd_nn_adaptive_max_pool3d_options, m);
    return o.return_indices ? select_op_with_indices(m) : GD_OK;
}

/* --- entire channels -------------------------------------------------------------------------- */

/* y (N, C, 1, ...), or (N, C) without its axes of size 1. */
static gd_tensors call_global(gd_module *m, gd_tensors in, bool keepdim, gd_word data_format) {
    const gd_tensor *x = in.at[0];
    char text[160];
    if (x->rank < 3)
        return gd_layer_fail(gd_fail(GD_E_SHAPE, "x must be (N, C, L) or more; it is %s",
                                     gd_describe(x, text, sizeof text)));
    const gd_tensors y = call_pool(m, in, data_format);
    if (keepdim) return y;
    gd_shape axes = {.rank = x->rank - 2, .form = 1}; /* between N and C, or after C */
    for (int i = 0; i < axes.rank; i++) axes.at[i] = i + (data_format == GD_CHANNELS_LAST ? 1 : 2);
    return gd_listed(gd_squeeze(y.at[0], .axis = axes));
}

/*layer global_avg_pool(x) -> y  of global_avg_pool
 * The average of each channel of x (N, C, ...).
 *   keepdim bool = true   y is (N, C, 1, ...); false: (N, C), as in Keras
 *   data_format {channels_first, channels_last} = channels_first   channels_last: x is (N, ..., C)
 */
static gd_tensors global_avg_pool_forward(gd_module *m, gd_tensors in) {
    const gd_nn_global_avg_pool_options *o = m->options;
    return call_global(m, in, o->keepdim, o->data_format);
}

/*layer global_max_pool(x) -> y  of global_max_pool
 * The largest element of each channel of x (N, C, ...).
 *   keepdim bool = true   y is (N, C, 1, ...); false: (N, C), as in Keras
 *   data_format {channels_first, channels_last} = channels_first   channels_last: x is (N, ..., C)
 */
static gd_tensors global_max_pool_forward(gd_module *m, gd_tensors in) {
    const gd_nn_global_max_pool_options *o = m->options;
    return call_global(m, in, o->keepdim, o->data_format);
}

/* --- max unpooling ---------------------------------------------------------------------------- */

/* The shape of y (N, C, H, W) for x of this shape, or without N. */
static gd_status unpooled_shape(const gd_module *m, const gd_tensor *x,
                                const gd_nn_max_unpool3d_options *o, gd_shape *dims) {
    const int axes = gd_layer_variant(m), first = x->rank - axes;
    char text[160];
    if (first < 1 || first > 2)
        return gd_fail(GD_E_SHAPE, "x must have %d or %d dimensions; it is %s", axes + 1, axes + 2,
                       gd_describe(x, text, sizeof text));
    *dims = gd_tensor_shape(x);
    for (int i = 0; i < axes; i++) {
        const int64_t n = x->dims[first + i], kernel = o->kernel.at[i];
        const int64_t stride = o->stride.at[0] == GD_UNSET ? kernel : o->stride.at[i];
        if (n < 0)
            return gd_fail(GD_E_SHAPE, "%s needs the sizes of x, which are not known before a run",
                           m->type);
        dims->at[first + i] =
            o->size.form == 1 ? o->size.at[i] : (n - 1) * stride - 2 * o->padding.at[i] + kernel;
    }
    return GD_OK;
}

/*layer max_unpool{1,2,3}d(x, indices, kernel:int[{}]) -> y
 * Writes the results of max_pool{}d with return_indices back to their positions, zeros elsewhere.
 *   stride  int[{}] = none   step between windows; none: the kernel size
 *   padding int[{}] = 0      that of the pooling
 *   size    int[] = none   of the last {} dimension{|s|s} of y; none: the smallest that the windows fit in
 *   python MaxUnpool{}d(kernel_size=kernel, stride, padding)
 */
static gd_status max_unpoolNd_check(const gd_module *m) {
    const gd_nn_max_unpool3d_options o = GD_LAYER_OPTIONS(gd_nn_max_unpool3d_options, m);
    if (o.size.form == 1) GD_TRY(gd_layer_all_at_least(m, "size", o.size.rank, o.size.at, 1));
    if (o.size.form == 1 && o.size.rank != gd_layer_variant(m))
        return gd_fail(GD_E_ARGUMENT, "%s: size has %d numbers, not %d", m->type, o.size.rank,
                       gd_layer_variant(m));
    return check_window(m, o.kernel.at, o.stride.at, o.padding.at);
}
static gd_tensors max_unpoolNd_forward(gd_module *m, gd_tensors in) {
    const gd_nn_max_unpool3d_options o = GD_LAYER_OPTIONS(gd_nn_max_unpool3d_options, m);
    gd_tensor *x = in.at[0];
    gd_shape dims, flat_dims; /* (N, C, H, W), (N, C, H*W) */
    const gd_status status = unpooled_shape(m, x, &o, &dims);
    if (status != GD_OK) return gd_layer_fail(status);
    const int first = x->rank - gd_layer_variant(m);
    flat_dims = dims;
    flat_dims.rank = first + 1;
    for (int i = first + 1; i < dims.rank; i++) flat_dims.at[first] *= dims.at[i];
    gd_tensor *values = gd_flatten(x, .start_axis = first),
              *positions = gd_flatten(in.at[1], .start_axis = first);
    gd_tensor *zeros = gd_zeros(flat_dims, .dtype = (gd_dtype)x->dtype);
    return gd_listed(gd_reshape(gd_scatter(zeros, -1, positions, values), dims));
}

#include "nn/layers_pool.gen.h"
