/* layers_pad.c - padding of one, two or three dimensions: borders of zeros, of a constant, or of
 * values of x. */
#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/* One number for all sides, or (before, after) of the last axis, then of the one before it. */
static const gd_shape *padding_option(const gd_module *m) {
    return gd_factory_option(m->factory, m->options, "padding", NULL);
}

static gd_status check_padding(const gd_module *m) {
    const int sides = 2 * gd_layer_variant(m);
    const gd_shape *padding = padding_option(m);
    if (padding->form == 1 && (padding->rank == 1 || padding->rank == sides)) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s: padding has %d numbers; it takes 1, or %d", m->type,
                   padding->rank, sides);
}

static gd_tensors pad_input(gd_module *m, gd_tensors in, gd_word mode, double value) {
    const int axes = gd_layer_variant(m);
    const gd_shape *padding = padding_option(m);
    const gd_tensor *x = in.at[0];
    gd_shape sides = {.rank = 2 * axes, .form = 1};
    char text[160];
    for (int i = 0; i < sides.rank; i++) sides.at[i] = padding->at[padding->rank == 1 ? 0 : i];
    if (x->rank < axes + 1 || x->rank > axes + 2)
        return gd_layer_fail(gd_fail(GD_E_SHAPE, "%s takes x of %d or %d dimensions; it is %s",
                                     m->type, axes + 1, axes + 2,
                                     gd_describe(x, text, sizeof text)));
    return gd_listed(gd_pad(in.at[0], sides, .mode = mode, .value = value));
}

/*layer zero_pad{1,2,3}d(x, padding:int[]) -> y
 * x (N, C, {L|H, W|D, H, W}), or without N, with a border of zeros.
 */
static gd_status zero_padNd_check(const gd_module *m) { return check_padding(m); }
static gd_tensors zero_padNd_forward(gd_module *m, gd_tensors in) {
    return pad_input(m, in, GD_CONSTANT, 0);
}

/*layer constant_pad{1,2,3}d(x, padding:int[], value:float) -> y
 * x (N, C, {L|H, W|D, H, W}), or without N, with a border of the number `value`.
 */
static gd_status constant_padNd_check(const gd_module *m) { return check_padding(m); }
static gd_tensors constant_padNd_forward(gd_module *m, gd_tensors in) {
    const gd_nn_constant_pad3d_options o = GD_LAYER_OPTIONS(gd_nn_constant_pad3d_options, m);
    return pad_input(m, in, GD_CONSTANT, o.value);
}

/*layer reflection_pad{1,2,3}d(x, padding:int[]) -> y
 * x (N, C, {L|H, W|D, H, W}), or without N, with a border of x mirrored at its edge; the edge
 * itself is not repeated.
 */
static gd_status reflection_padNd_check(const gd_module *m) { return check_padding(m); }
static gd_tensors reflection_padNd_forward(gd_module *m, gd_tensors in) {
    return pad_input(m, in, GD_REFLECT, 0);
}

/*layer replication_pad{1,2,3}d(x, padding:int[]) -> y
 * x (N, C, {L|H, W|D, H, W}), or without N, with a border that repeats its edge.
 */
static gd_status replication_padNd_check(const gd_module *m) { return check_padding(m); }
static gd_tensors replication_padNd_forward(gd_module *m, gd_tensors in) {
    return pad_input(m, in, GD_REPLICATE, 0);
}

/*layer circular_pad{1,2,3}d(x, padding:int[]) -> y
 * x (N, C, {L|H, W|D, H, W}), or without N, with a border of values from its opposite side.
 */
static gd_status circular_padNd_check(const gd_module *m) { return check_padding(m); }
static gd_tensors circular_padNd_forward(gd_module *m, gd_tensors in) {
    return pad_input(m, in, GD_CIRCULAR, 0);
}

#include "nn/layers_pad.gen.h"
