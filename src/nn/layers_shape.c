/* layers_shape.c - layers that change shapes: reshaping, shuffling, resizing. Padding is in
 * layers_pad.c. */
#include <math.h>

#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/* --- shapes ----------------------------------------------------------------------------------- */

/*layer identity(x) -> y
 * y = x.
 */
static gd_tensors identity_forward(gd_module *m, gd_tensors in) {
    (void)m;
    return gd_listed(in.at[0]);
}

/*layer flatten(x) -> y
 * Joins the dimensions from start_axis to end_axis into one: x (N, C, H, W) gives y (N, C*H*W).
 *   start_axis int = 1
 *   end_axis int = -1
 *   python (start_dim=start_axis, end_dim=end_axis)
 */
static gd_status check_axis(const gd_tensor *x, const char *option, int64_t axis) {
    char text[160];
    if (axis >= -x->rank && axis < x->rank) return GD_OK;
    return gd_fail(GD_E_SHAPE, "%s is %lld, which is out of range; x is %s", option,
                   (long long)axis, gd_describe(x, text, sizeof text));
}
static gd_tensors flatten_forward(gd_module *m, gd_tensors in) {
    const gd_nn_flatten_options *o = m->options;
    gd_status status = check_axis(in.at[0], "start_axis", o->start_axis);
    if (status == GD_OK) status = check_axis(in.at[0], "end_axis", o->end_axis);
    if (status != GD_OK) return gd_layer_fail(status);
    return gd_listed(gd_flatten(in.at[0], .start_axis = o->start_axis, .end_axis = o->end_axis));
}

/*layer unflatten(x, axis:int, dims:int[]) -> y
 * Splits one dimension into several, whose sizes are dims; one of them may be -1.
 *   python (dim=axis, unflattened_size=dims)
 */
static gd_status unflatten_check(const gd_module *m) {
    const gd_nn_unflatten_options *o = m->options;
    for (int i = 0; i < o->dims.rank; i++)
        if (o->dims.at[i] < 1 && o->dims.at[i] != -1)
            return gd_fail(GD_E_ARGUMENT, "%s: dims has %lld; sizes must be at least 1, or -1",
                           m->type, (long long)o->dims.at[i]);
    return o->dims.rank ? GD_OK : gd_fail(GD_E_ARGUMENT, "%s: dims is empty", m->type);
}
static gd_tensors unflatten_forward(gd_module *m, gd_tensors in) {
    const gd_nn_unflatten_options *o = m->options;
    const gd_tensor *x = in.at[0];
    gd_status status = check_axis(x, "axis", o->axis);
    if (status == GD_OK && x->rank - 1 + o->dims.rank > GD_MAX_RANK)
        status = gd_fail(GD_E_SHAPE, "dims has %d numbers: y would have more than %d dimensions",
                         o->dims.rank, GD_MAX_RANK);
    if (status != GD_OK) return gd_layer_fail(status);
    const int axis = (int)(o->axis < 0 ? o->axis + x->rank : o->axis);
    int64_t product = 1;
    bool open = false; /* one of dims is -1 */
    for (int i = 0; i < o->dims.rank; i++) open |= o->dims.at[i] == -1, product *= o->dims.at[i];
    if (x->dims[axis] >= 0 &&
        (open ? product == 0 || x->dims[axis] % -product : x->dims[axis] != product))
        return gd_layer_fail(gd_fail(GD_E_SHAPE,
                                     "dims must multiply to %lld, the size along axis %lld",
                                     (long long)x->dims[axis], (long long)o->axis));
    return gd_listed(gd_unflatten(in.at[0], axis, o->dims));
}

/*layer reshape(x, dims:int[]) -> y  of reshape
 * x with other dims, one of which may be -1. Let the first be -1 for batches of any size.
 */

/*layer permute(x, axes:int[]) -> y  of permute
 * x with its axes in another order.
 */

/* --- pixels and channels ---------------------------------------------------------------------- */

/* Checks that x is (..., C, H, W) and has room for two more axes. */
static gd_status check_image(const gd_tensor *x) {
    char text[160];
    if (x->rank >= 3 && x->rank <= GD_MAX_RANK - 2) return GD_OK;
    return gd_fail(GD_E_SHAPE, "x must be (..., C, H, W); it is %s",
                   gd_describe(x, text, sizeof text));
}

/* Reshapes x to (..., sizes): the first `before` axes stay. */
static gd_tensor *reshape_last(gd_tensor *x, int before, gd_shape sizes) {
    gd_shape dims = gd_tensor_shape(x);
    dims.rank = before;
    for (int i = 0; i < sizes.rank; i++) dims.at[dims.rank++] = sizes.at[i];
    return gd_reshape(x, dims);
}

/* Permutes the axes after the first `before` ones; `order` counts from there. */
static gd_tensor *permute_last(gd_tensor *x, int before, gd_shape order) {
    gd_shape axes = {.rank = before + order.rank, .form = 1};
    for (int i = 0; i < before; i++) axes.at[i] = i;
    for (int i = 0; i < order.rank; i++) axes.at[before + i] = before + order.at[i];
    return gd_permute(x, axes);
}

/*layer pixel_shuffle(x, upscale_factor:int) -> y
 * Moves channels to pixels: x (..., C*r*r, H, W) gives y (..., C, H*r, W*r), r being
 * upscale_factor.
 */
static gd_status pixel_shuffle_check(const gd_module *m) {
    const gd_nn_pixel_shuffle_options *o = m->options;
    return gd_layer_at_least(m, "upscale_factor", o->upscale_factor, 1);
}
static gd_tensors pixel_shuffle_forward(gd_module *m, gd_tensors in) {
    const gd_nn_pixel_shuffle_options *o = m->options;
    const int64_t r = o->upscale_factor;
    gd_tensor *x = in.at[0];
    const gd_status status = check_image(x);
    if (status != GD_OK) return gd_layer_fail(status);
    const int before = x->rank - 3;
    const int64_t c = x->dims[before], h = x->dims[before + 1], w = x->dims[before + 2];
    if (c % (r * r))
        return gd_layer_fail(gd_fail(
            GD_E_SHAPE, "upscale_factor is %lld; its square must divide the channels of x, %lld",
            (long long)r, (long long)c));
    x = permute_last(reshape_last(x, before, gd_dims(c / (r * r), r, r, h, w)), before,
                     gd_dims(0, 3, 1, 4, 2));
    return gd_listed(reshape_last(x, before, gd_dims(c / (r * r), h * r, w * r)));
}

/*layer pixel_unshuffle(x, downscale_factor:int) -> y
 * Moves pixels to channels: x (..., C, H*r, W*r) gives y (..., C*r*r, H, W), r being
 * downscale_factor.
 */
static gd_status pixel_unshuffle_check(const gd_module *m) {
    const gd_nn_pixel_unshuffle_options *o = m->options;
    return gd_layer_at_least(m, "downscale_factor", o->downscale_factor, 1);
}
static gd_tensors pixel_unshuffle_forward(gd_module *m, gd_tensors in) {
    const gd_nn_pixel_unshuffle_options *o = m->options;
    const int64_t r = o->downscale_factor;
    gd_tensor *x = in.at[0];
    const gd_status status = check_image(x);
    if (status != GD_OK) return gd_layer_fail(status);
    const int before = x->rank - 3;
    const int64_t c = x->dims[before], h = x->dims[before + 1], w = x->dims[before + 2];
    if (h % r || w % r)
        return gd_layer_fail(gd_fail(
            GD_E_SHAPE,
            "downscale_factor is %lld; it must divide the height and width of x, %lld and %lld",
            (long long)r, (long long)h, (long long)w));
    x = permute_last(reshape_last(x, before, gd_dims(c, h / r, r, w / r, r)), before,
                     gd_dims(0, 2, 4, 1, 3));
    return gd_listed(reshape_last(x, before, gd_dims(c * r * r, h / r, w / r)));
}

/*layer channel_shuffle(x, groups:int) -> y
 * Mixes groups of channels of x (N, C, ...): channel k of group g becomes channel g of group k.
 */
static gd_status channel_shuffle_check(const gd_module *m) {
    const gd_nn_channel_shuffle_options *o = m->options;
    return gd_layer_at_least(m, "groups", o->groups, 1);
}
static gd_tensors channel_shuffle_forward(gd_module *m, gd_tensors in) {
    const gd_nn_channel_shuffle_options *o = m->options;
    gd_tensor *x = in.at[0];
    char text[160];
    if (x->rank < 2 || x->rank == GD_MAX_RANK || x->dims[1] < 0 || x->dims[1] % o->groups)
        return gd_layer_fail(gd_fail(GD_E_SHAPE,
                                     "x must be (N, C, ...), and groups (%lld) divide C; x is %s",
                                     (long long)o->groups, gd_describe(x, text, sizeof text)));
    gd_shape split = {.rank = x->rank + 1, .form = 1}, dims = gd_tensor_shape(x);
    for (int i = 0; i < x->rank; i++) split.at[i < 2 ? i : i + 1] = x->dims[i];
    split.at[1] = o->groups;
    split.at[2] = x->dims[1] / o->groups;
    return gd_listed(gd_reshape(gd_transpose(gd_reshape(x, split), 1, 2), dims));
}

/*layer upsample(x) -> y  of resize
 * Resizes the spatial axes of x (N, C, L), (N, C, H, W) or (N, C, D, H, W).
 *   options of resize
 *   python (size, scale_factor=scale, mode, align_corners)
 */
static gd_status upsample_check(const gd_module *m) {
    const gd_nn_upsample_options *o = m->options;
    if (o->size.form == 1) GD_TRY(gd_layer_all_at_least(m, "size", o->size.rank, o->size.at, 1));
    if ((o->size.form == 1) == !isnan(o->scale))
        return gd_fail(GD_E_ARGUMENT, "%s: give either size or scale", m->type);
    if (!isnan(o->scale) && !(o->scale > 0 && isfinite(o->scale)))
        return gd_fail(GD_E_ARGUMENT, "%s: scale is %g; it must be positive", m->type, o->scale);
    return GD_OK;
}

#include "nn/layers_shape.gen.h"
