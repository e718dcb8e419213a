/* layers_pool.c - pooling: windows, windows of a number that is given, all of a channel, and
 * back. */
#include <math.h>

#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/* --- windows ---------------------------------------------------------------------------------- */

/* An option of a window that has a default of its own: the kernel's size. */
static gd_status check_stride(const gd_module *m, int rank, const int64_t *stride) {
    return stride[0] == GD_UNSET ? GD_OK : gd_layer_all_at_least(m, "stride", rank, stride, 1);
}

/* Padding of more than half a window would make windows of nothing but padding. */
static gd_status check_window(const gd_module *m, int rank, const int64_t *kernel,
                              const int64_t *stride, const int64_t *padding) {
    GD_TRY(gd_layer_all_at_least(m, "kernel", rank, kernel, 1));
    GD_TRY(check_stride(m, rank, stride));
    GD_TRY(gd_layer_all_at_least(m, "padding", rank, padding, 0));
    for (int i = 0; i < rank; i++)
        if (padding[i] > kernel[i] / 2)
            return gd_fail(GD_E_ARGUMENT,
                           "%s: padding is %lld; it must be at most half of the kernel, %lld",
                           m->type, (long long)padding[i], (long long)kernel[i] / 2);
    return GD_OK;
}

/* The op on x with its channels second, and back. */
static gd_tensors call(gd_module *m, gd_tensors in, gd_word data_format) {
    if (data_format != GD_CHANNELS_LAST) return gd_layer_call_op(m, in, m->op_options);
    gd_tensor *y =
        gd_layer_call_op(m, gd_list(gd_movedim(in.at[0], gd_dims(-1), gd_dims(1))), m->op_options)
            .at[0];
    return gd_listed(gd_movedim(y, gd_dims(1), gd_dims(-1)));
}

/*layer max_pool1d(x, kernel:int[1]) -> y  of max_pool1d
 * The largest element of each window of x (N, C, L).
 *   options of max_pool1d
 *   return_indices bool = false   a second output: where in its plane of x each result was found
 *   data_format {channels_first, channels_last} = channels_first   where the channels of x are
 */
static gd_status max_pool1d_check(const gd_module *m) {
    const gd_nn_max_pool1d_options *o = m->options;
    GD_TRY(gd_layer_all_at_least(m, "dilation", 1, o->dilation.at, 1));
    if (o->return_indices && o->data_format == GD_CHANNELS_LAST)
        return gd_fail(
            GD_E_ARGUMENT,
            "%s: return_indices counts places of x (N, C, L); data_format must be channels_first",
            m->type);
    return check_window(m, 1, o->kernel.at, o->stride.at, o->padding.at);
}
static gd_tensors max_pool1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_max_pool1d_options *o = m->options;
    if (!o->return_indices) return call(m, in, o->data_format);
    const gd_max_pool1d_with_indices_outputs r = gd_max_pool1d_with_indices(
        in.at[0], .kernel = o->kernel, .stride = o->stride, .padding = o->padding,
        .dilation = o->dilation, .ceil_mode = o->ceil_mode);
    return gd_listed(r.y, r.indices);
}

/*layer max_pool2d(x, kernel:int[2]) -> y  of max_pool2d
 * The largest element of each window of x (N, C, H, W).
 *   options of max_pool2d
 *   return_indices bool = false   a second output: where in its plane of x each result was found
 *   data_format {channels_first, channels_last} = channels_first   where the channels of x are
 */
static gd_status max_pool2d_check(const gd_module *m) {
    const gd_nn_max_pool2d_options *o = m->options;
    GD_TRY(gd_layer_all_at_least(m, "dilation", 2, o->dilation.at, 1));
    if (o->return_indices && o->data_format == GD_CHANNELS_LAST)
        return gd_fail(GD_E_ARGUMENT,
                       "%s: return_indices counts places of x (N, C, H, W); data_format must be "
                       "channels_first",
                       m->type);
    return check_window(m, 2, o->kernel.at, o->stride.at, o->padding.at);
}
static gd_tensors max_pool2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_max_pool2d_options *o = m->options;
    if (!o->return_indices) return call(m, in, o->data_format);
    const gd_max_pool2d_with_indices_outputs r = gd_max_pool2d_with_indices(
        in.at[0], .kernel = o->kernel, .stride = o->stride, .padding = o->padding,
        .dilation = o->dilation, .ceil_mode = o->ceil_mode);
    return gd_listed(r.y, r.indices);
}

/*layer max_pool3d(x, kernel:int[3]) -> y  of max_pool3d
 * The largest element of each window of x (N, C, D, H, W).
 *   options of max_pool3d
 *   return_indices bool = false   a second output: where in its plane of x each result was found
 *   data_format {channels_first, channels_last} = channels_first   where the channels of x are
 */
static gd_status max_pool3d_check(const gd_module *m) {
    const gd_nn_max_pool3d_options *o = m->options;
    GD_TRY(gd_layer_all_at_least(m, "dilation", 3, o->dilation.at, 1));
    if (o->return_indices && o->data_format == GD_CHANNELS_LAST)
        return gd_fail(GD_E_ARGUMENT,
                       "%s: return_indices counts places of x (N, C, D, H, W); data_format must be "
                       "channels_first",
                       m->type);
    return check_window(m, 3, o->kernel.at, o->stride.at, o->padding.at);
}
static gd_tensors max_pool3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_max_pool3d_options *o = m->options;
    if (!o->return_indices) return call(m, in, o->data_format);
    const gd_max_pool3d_with_indices_outputs r = gd_max_pool3d_with_indices(
        in.at[0], .kernel = o->kernel, .stride = o->stride, .padding = o->padding,
        .dilation = o->dilation, .ceil_mode = o->ceil_mode);
    return gd_listed(r.y, r.indices);
}

/*layer avg_pool1d(x, kernel:int[1]) -> y  of avg_pool1d
 * The average of each window of x (N, C, L).
 *   options of avg_pool1d
 *   data_format {channels_first, channels_last} = channels_first   where the channels of x are
 */
static gd_status avg_pool1d_check(const gd_module *m) {
    const gd_nn_avg_pool1d_options *o = m->options;
    if (o->divisor_override == 0)
        return gd_fail(GD_E_ARGUMENT, "%s: divisor_override is 0", m->type);
    return check_window(m, 1, o->kernel.at, o->stride.at, o->padding.at);
}
static gd_tensors avg_pool1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_avg_pool1d_options *o = m->options;
    return call(m, in, o->data_format);
}

/*layer avg_pool2d(x, kernel:int[2]) -> y  of avg_pool2d
 * The average of each window of x (N, C, H, W).
 *   options of avg_pool2d
 *   data_format {channels_first, channels_last} = channels_first   where the channels of x are
 */
static gd_status avg_pool2d_check(const gd_module *m) {
    const gd_nn_avg_pool2d_options *o = m->options;
    if (o->divisor_override == 0)
        return gd_fail(GD_E_ARGUMENT, "%s: divisor_override is 0", m->type);
    return check_window(m, 2, o->kernel.at, o->stride.at, o->padding.at);
}
static gd_tensors avg_pool2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_avg_pool2d_options *o = m->options;
    return call(m, in, o->data_format);
}

/*layer avg_pool3d(x, kernel:int[3]) -> y  of avg_pool3d
 * The average of each window of x (N, C, D, H, W).
 *   options of avg_pool3d
 *   data_format {channels_first, channels_last} = channels_first   where the channels of x are
 */
static gd_status avg_pool3d_check(const gd_module *m) {
    const gd_nn_avg_pool3d_options *o = m->options;
    if (o->divisor_override == 0)
        return gd_fail(GD_E_ARGUMENT, "%s: divisor_override is 0", m->type);
    return check_window(m, 3, o->kernel.at, o->stride.at, o->padding.at);
}
static gd_tensors avg_pool3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_avg_pool3d_options *o = m->options;
    return call(m, in, o->data_format);
}

/* --- p-norms of windows ----------------------------------------------------------------------- */

static gd_status check_lp(const gd_module *m, double norm_type) {
    if (isfinite(norm_type) && norm_type != 0) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s: norm_type is %g; it must be a number other than 0", m->type,
                   norm_type);
}

/* (sum of x^p over the window)^(1/p), where averages of x^p are given; a negative sum gives 0. */
static gd_tensors lp_finish(gd_tensor *average, double p, int rank, const int64_t *kernel) {
    double window = 1;
    for (int i = 0; i < rank; i++) window *= (double)kernel[i];
    return gd_listed(
        gd_pow(gd_mul(gd_relu(average), gd_scalar(window)), gd_layer_number(average, 1 / p)));
}

/*layer lp_pool1d(x, norm_type:float, kernel:int[1]) -> y
 * (sum of x^p)^(1/p) over each window of x (N, C, L), p being norm_type: 1 is the sum, inf would be
 * the largest.
 *   stride    int[1] = none     step between windows; none: their size
 *   ceil_mode bool = false     also a last window that is not full
 */
static gd_status lp_pool1d_check(const gd_module *m) {
    const gd_nn_lp_pool1d_options *o = m->options;
    GD_TRY(check_lp(m, o->norm_type));
    GD_TRY(check_stride(m, 1, o->stride.at));
    return gd_layer_all_at_least(m, "kernel", 1, o->kernel.at, 1);
}
static gd_tensors lp_pool1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_lp_pool1d_options *o = m->options;
    gd_tensor *power = gd_pow(in.at[0], gd_layer_number(in.at[0], o->norm_type));
    return lp_finish(
        gd_avg_pool1d(power, .kernel = o->kernel, .stride = o->stride, .ceil_mode = o->ceil_mode),
        o->norm_type, 1, o->kernel.at);
}

/*layer lp_pool2d(x, norm_type:float, kernel:int[2]) -> y
 * (sum of x^p)^(1/p) over each window of x (N, C, H, W), p being norm_type: 1 is the sum, inf would
 * be the largest.
 *   stride    int[2] = none     step between windows; none: their size
 *   ceil_mode bool = false     also a last window that is not full
 */
static gd_status lp_pool2d_check(const gd_module *m) {
    const gd_nn_lp_pool2d_options *o = m->options;
    GD_TRY(check_lp(m, o->norm_type));
    GD_TRY(check_stride(m, 2, o->stride.at));
    return gd_layer_all_at_least(m, "kernel", 2, o->kernel.at, 1);
}
static gd_tensors lp_pool2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_lp_pool2d_options *o = m->options;
    gd_tensor *power = gd_pow(in.at[0], gd_layer_number(in.at[0], o->norm_type));
    return lp_finish(
        gd_avg_pool2d(power, .kernel = o->kernel, .stride = o->stride, .ceil_mode = o->ceil_mode),
        o->norm_type, 2, o->kernel.at);
}

/*layer lp_pool3d(x, norm_type:float, kernel:int[3]) -> y
 * (sum of x^p)^(1/p) over each window of x (N, C, D, H, W), p being norm_type: 1 is the sum, inf
 * would be the largest.
 *   stride    int[3] = none     step between windows; none: their size
 *   ceil_mode bool = false     also a last window that is not full
 */
static gd_status lp_pool3d_check(const gd_module *m) {
    const gd_nn_lp_pool3d_options *o = m->options;
    GD_TRY(check_lp(m, o->norm_type));
    GD_TRY(check_stride(m, 3, o->stride.at));
    return gd_layer_all_at_least(m, "kernel", 3, o->kernel.at, 1);
}
static gd_tensors lp_pool3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_lp_pool3d_options *o = m->options;
    gd_tensor *power = gd_pow(in.at[0], gd_layer_number(in.at[0], o->norm_type));
    return lp_finish(
        gd_avg_pool3d(power, .kernel = o->kernel, .stride = o->stride, .ceil_mode = o->ceil_mode),
        o->norm_type, 3, o->kernel.at);
}

/* --- windows of a number that is given -------------------------------------------------------- */

/* Sizes, or -1 for that of x. */
static gd_status check_sizes(const gd_module *m, int rank, const int64_t *size) {
    for (int i = 0; i < rank; i++)
        if (size[i] == GD_UNSET || (size[i] < 1 && size[i] != -1))
            return gd_fail(GD_E_ARGUMENT,
                           "%s: size is %lld; it must be at least 1, or -1 to keep that of x",
                           m->type, (long long)size[i]);
    return GD_OK;
}

/*layer adaptive_avg_pool1d(x, size:int[1]) -> y  of adaptive_avg_pool1d
 * Averages over as many windows of nearly equal size as the result shall have; x is (N, C, L).
 */
static gd_status adaptive_avg_pool1d_check(const gd_module *m) {
    const gd_nn_adaptive_avg_pool1d_options *o = m->options;
    return check_sizes(m, 1, o->size.at);
}

/*layer adaptive_avg_pool2d(x, size:int[2]) -> y  of adaptive_avg_pool2d
 * Averages over as many windows of nearly equal size as the result shall have; x is (N, C, H, W).
 */
static gd_status adaptive_avg_pool2d_check(const gd_module *m) {
    const gd_nn_adaptive_avg_pool2d_options *o = m->options;
    return check_sizes(m, 2, o->size.at);
}

/*layer adaptive_avg_pool3d(x, size:int[3]) -> y  of adaptive_avg_pool3d
 * Averages over as many windows of nearly equal size as the result shall have; x is (N, C, D, H,
 * W).
 */
static gd_status adaptive_avg_pool3d_check(const gd_module *m) {
    const gd_nn_adaptive_avg_pool3d_options *o = m->options;
    return check_sizes(m, 3, o->size.at);
}

/*layer adaptive_max_pool1d(x, size:int[1]) -> y  of adaptive_max_pool1d
 * The largest elements of as many windows of nearly equal size as the result shall have; x is (N,
 * C, L).
 *   return_indices bool = false   a second output: where in its plane of x each result was found
 */
static gd_status adaptive_max_pool1d_check(const gd_module *m) {
    const gd_nn_adaptive_max_pool1d_options *o = m->options;
    return check_sizes(m, 1, o->size.at);
}
static gd_tensors adaptive_max_pool1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_adaptive_max_pool1d_options *o = m->options;
    if (!o->return_indices) return gd_layer_call_op(m, in, m->op_options);
    const gd_adaptive_max_pool1d_with_indices_outputs r =
        gd_adaptive_max_pool1d_with_indices(in.at[0], .size = o->size);
    return gd_listed(r.y, r.indices);
}

/*layer adaptive_max_pool2d(x, size:int[2]) -> y  of adaptive_max_pool2d
 * The largest elements of as many windows of nearly equal size as the result shall have; x is (N,
 * C, H, W).
 *   return_indices bool = false   a second output: where in its plane of x each result was found
 */
static gd_status adaptive_max_pool2d_check(const gd_module *m) {
    const gd_nn_adaptive_max_pool2d_options *o = m->options;
    return check_sizes(m, 2, o->size.at);
}
static gd_tensors adaptive_max_pool2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_adaptive_max_pool2d_options *o = m->options;
    if (!o->return_indices) return gd_layer_call_op(m, in, m->op_options);
    const gd_adaptive_max_pool2d_with_indices_outputs r =
        gd_adaptive_max_pool2d_with_indices(in.at[0], .size = o->size);
    return gd_listed(r.y, r.indices);
}

/*layer adaptive_max_pool3d(x, size:int[3]) -> y  of adaptive_max_pool3d
 * The largest elements of as many windows of nearly equal size as the result shall have; x is (N,
 * C, D, H, W).
 *   return_indices bool = false   a second output: where in its plane of x each result was found
 */
static gd_status adaptive_max_pool3d_check(const gd_module *m) {
    const gd_nn_adaptive_max_pool3d_options *o = m->options;
    return check_sizes(m, 3, o->size.at);
}
static gd_tensors adaptive_max_pool3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_adaptive_max_pool3d_options *o = m->options;
    if (!o->return_indices) return gd_layer_call_op(m, in, m->op_options);
    const gd_adaptive_max_pool3d_with_indices_outputs r =
        gd_adaptive_max_pool3d_with_indices(in.at[0], .size = o->size);
    return gd_listed(r.y, r.indices);
}

/* --- all of a channel ------------------------------------------------------------------------- */

/* y (N, C, 1, ...), or (N, C) without its axes of size 1. */
static gd_tensors call_global(gd_module *m, gd_tensors in, bool keepdim, gd_word data_format) {
    const gd_tensor *x = in.at[0];
    char text[160];
    if (x->rank < 3)
        return gd_layer_fail(gd_fail(GD_E_SHAPE, "x must be (N, C, L) or more; it is %s",
                                     gd_describe(x, text, sizeof text)));
    const gd_tensors y = call(m, in, data_format);
    if (keepdim) return y;
    gd_shape axes = {.rank = x->rank - 2, .form = 1}; /* between N and C, or behind them */
    for (int i = 0; i < axes.rank; i++) axes.at[i] = i + (data_format == GD_CHANNELS_LAST ? 1 : 2);
    return gd_listed(gd_squeeze(y.at[0], .axis = axes));
}

/*layer global_avg_pool(x) -> y  of global_avg_pool
 * The average of each channel of x (N, C, ...).
 *   keepdim bool = true   y is (N, C, 1, ...); false: (N, C), as Keras has it
 *   data_format {channels_first, channels_last} = channels_first   where the channels of x are
 */
static gd_tensors global_avg_pool_forward(gd_module *m, gd_tensors in) {
    const gd_nn_global_avg_pool_options *o = m->options;
    return call_global(m, in, o->keepdim, o->data_format);
}

/*layer global_max_pool(x) -> y  of global_max_pool
 * The largest element of each channel of x (N, C, ...).
 *   keepdim bool = true   y is (N, C, 1, ...); false: (N, C), as Keras has it
 *   data_format {channels_first, channels_last} = channels_first   where the channels of x are
 */
static gd_tensors global_max_pool_forward(gd_module *m, gd_tensors in) {
    const gd_nn_global_max_pool_options *o = m->options;
    return call_global(m, in, o->keepdim, o->data_format);
}

/* --- and back --------------------------------------------------------------------------------- */

/* x (N, C, ...) put to its places in planes of `size`, zeros elsewhere. */
static gd_tensors unpool_values(gd_module *m, gd_tensors in, int rank, const int64_t *kernel,
                                const int64_t *stride, const int64_t *padding, gd_shape size) {
    gd_tensor *x = in.at[0], *indices = in.at[1];
    char text[160];
    if (x->rank < rank + 1 || x->rank > rank + 2 || (size.form == 1 && size.rank != rank))
        return gd_layer_fail(
            gd_fail(GD_E_SHAPE, "x must have %d or %d dimensions, and size %d numbers; x is %s",
                    rank + 1, rank + 2, rank, gd_describe(x, text, sizeof text)));
    gd_shape planes = {.rank = x->rank - rank + 1, .form = 1},
             dims = gd_tensor_shape(x); /* (N, C, H*W), (N, C, H, W) */
    const int first = x->rank - rank;
    int64_t all = 1;
    for (int i = 0; i < rank; i++) {
        const int64_t step = stride[0] == GD_UNSET ? kernel[i] : stride[i], n = x->dims[first + i];
        if (n < 0)
            return gd_layer_fail(gd_fail(
                GD_E_SHAPE, "%s needs the sizes of x, which are not known before a run", m->type));
        dims.at[first + i] =
            size.form == 1 ? size.at[i] : (n - 1) * step - 2 * padding[i] + kernel[i];
        all *= dims.at[first + i];
    }
    for (int i = 0; i < first; i++) planes.at[i] = x->dims[i];
    planes.at[first] = all;
    gd_tensor *flat = gd_flatten(x, .start_axis = first),
              *where = gd_flatten(indices, .start_axis = first);
    return gd_listed(gd_reshape(
        gd_scatter(gd_zeros(planes, .dtype = (gd_dtype)x->dtype), -1, where, flat), dims));
}

/*layer max_unpool1d(x, indices, kernel:int[1]) -> y
 * Puts the results of max_pool1d with return_indices back to where they were found, zeros
 * elsewhere.
 *   stride  int[1] = none   step between windows; none: their size
 *   padding int[1] = 0      as that of the pooling
 *   size    int[] = none   of the last 1 dimension of y; none: the smallest that the windows fit in
 */
static gd_status max_unpool1d_check(const gd_module *m) {
    const gd_nn_max_unpool1d_options *o = m->options;
    if (o->size.form == 1) GD_TRY(gd_layer_all_at_least(m, "size", o->size.rank, o->size.at, 1));
    if (o->size.form == 1 && o->size.rank != 1)
        return gd_fail(GD_E_ARGUMENT, "%s: size has %d numbers, not 1", m->type, o->size.rank);
    return check_window(m, 1, o->kernel.at, o->stride.at, o->padding.at);
}
static gd_tensors max_unpool1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_max_unpool1d_options *o = m->options;
    return unpool_values(m, in, 1, o->kernel.at, o->stride.at, o->padding.at, o->size);
}

/*layer max_unpool2d(x, indices, kernel:int[2]) -> y
 * Puts the results of max_pool2d with return_indices back to where they were found, zeros
 * elsewhere.
 *   stride  int[2] = none   step between windows; none: their size
 *   padding int[2] = 0      as that of the pooling
 *   size    int[] = none   of the last 2 dimensions of y; none: the smallest that the windows fit in
 */
static gd_status max_unpool2d_check(const gd_module *m) {
    const gd_nn_max_unpool2d_options *o = m->options;
    if (o->size.form == 1) GD_TRY(gd_layer_all_at_least(m, "size", o->size.rank, o->size.at, 1));
    if (o->size.form == 1 && o->size.rank != 2)
        return gd_fail(GD_E_ARGUMENT, "%s: size has %d numbers, not 2", m->type, o->size.rank);
    return check_window(m, 2, o->kernel.at, o->stride.at, o->padding.at);
}
static gd_tensors max_unpool2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_max_unpool2d_options *o = m->options;
    return unpool_values(m, in, 2, o->kernel.at, o->stride.at, o->padding.at, o->size);
}

/*layer max_unpool3d(x, indices, kernel:int[3]) -> y
 * Puts the results of max_pool3d with return_indices back to where they were found, zeros
 * elsewhere.
 *   stride  int[3] = none   step between windows; none: their size
 *   padding int[3] = 0      as that of the pooling
 *   size    int[] = none   of the last 3 dimensions of y; none: the smallest that the windows fit in
 */
static gd_status max_unpool3d_check(const gd_module *m) {
    const gd_nn_max_unpool3d_options *o = m->options;
    if (o->size.form == 1) GD_TRY(gd_layer_all_at_least(m, "size", o->size.rank, o->size.at, 1));
    if (o->size.form == 1 && o->size.rank != 3)
        return gd_fail(GD_E_ARGUMENT, "%s: size has %d numbers, not 3", m->type, o->size.rank);
    return check_window(m, 3, o->kernel.at, o->stride.at, o->padding.at);
}
static gd_tensors max_unpool3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_max_unpool3d_options *o = m->options;
    return unpool_values(m, in, 3, o->kernel.at, o->stride.at, o->padding.at, o->size);
}

#include "layers_pool.gen.h"
