/* layers_pad.c - borders around x. */
#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/* One number for all sides, or (left, right) of the last axis, then of the one before it. */
static gd_status check_padding(const gd_module *m, int rank, const gd_shape *padding) {
    if (padding->form == 1 && (padding->rank == 1 || padding->rank == 2 * rank)) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s: padding has %d numbers; it takes 1, or %d", m->type,
                   padding->rank, 2 * rank);
}

static gd_tensors pad(gd_module *m, gd_tensors in, int rank, const gd_shape *padding, gd_word mode,
                      double value) {
    gd_shape all = {.rank = 2 * rank, .form = 1};
    const gd_tensor *x = in.at[0];
    char text[160];
    for (int i = 0; i < all.rank; i++) all.at[i] = padding->at[padding->rank == 1 ? 0 : i];
    if (x->rank < rank + 1 || x->rank > rank + 2)
        return gd_layer_fail(gd_fail(GD_E_SHAPE, "%s takes x of %d or %d dimensions; it is %s",
                                     m->type, rank + 1, rank + 2,
                                     gd_describe(x, text, sizeof text)));
    return gd_listed(gd_pad(in.at[0], all, .mode = mode, .value = value));
}

/*layer zero_pad1d(x, padding:int[]) -> y
 * x (N, C, L), or without N, with a border of zeros.
 */
static gd_status zero_pad1d_check(const gd_module *m) {
    const gd_nn_zero_pad1d_options *o = m->options;
    return check_padding(m, 1, &o->padding);
}
static gd_tensors zero_pad1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_zero_pad1d_options *o = m->options;
    return pad(m, in, 1, &o->padding, GD_CONSTANT, 0);
}

/*layer zero_pad2d(x, padding:int[]) -> y
 * x (N, C, H, W), or without N, with a border of zeros.
 */
static gd_status zero_pad2d_check(const gd_module *m) {
    const gd_nn_zero_pad2d_options *o = m->options;
    return check_padding(m, 2, &o->padding);
}
static gd_tensors zero_pad2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_zero_pad2d_options *o = m->options;
    return pad(m, in, 2, &o->padding, GD_CONSTANT, 0);
}

/*layer zero_pad3d(x, padding:int[]) -> y
 * x (N, C, D, H, W), or without N, with a border of zeros.
 */
static gd_status zero_pad3d_check(const gd_module *m) {
    const gd_nn_zero_pad3d_options *o = m->options;
    return check_padding(m, 3, &o->padding);
}
static gd_tensors zero_pad3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_zero_pad3d_options *o = m->options;
    return pad(m, in, 3, &o->padding, GD_CONSTANT, 0);
}

/*layer constant_pad1d(x, padding:int[], value:float) -> y
 * x (N, C, L), or without N, with a border of one number.
 */
static gd_status constant_pad1d_check(const gd_module *m) {
    const gd_nn_constant_pad1d_options *o = m->options;
    return check_padding(m, 1, &o->padding);
}
static gd_tensors constant_pad1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_constant_pad1d_options *o = m->options;
    return pad(m, in, 1, &o->padding, GD_CONSTANT, o->value);
}

/*layer constant_pad2d(x, padding:int[], value:float) -> y
 * x (N, C, H, W), or without N, with a border of one number.
 */
static gd_status constant_pad2d_check(const gd_module *m) {
    const gd_nn_constant_pad2d_options *o = m->options;
    return check_padding(m, 2, &o->padding);
}
static gd_tensors constant_pad2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_constant_pad2d_options *o = m->options;
    return pad(m, in, 2, &o->padding, GD_CONSTANT, o->value);
}

/*layer constant_pad3d(x, padding:int[], value:float) -> y
 * x (N, C, D, H, W), or without N, with a border of one number.
 */
static gd_status constant_pad3d_check(const gd_module *m) {
    const gd_nn_constant_pad3d_options *o = m->options;
    return check_padding(m, 3, &o->padding);
}
static gd_tensors constant_pad3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_constant_pad3d_options *o = m->options;
    return pad(m, in, 3, &o->padding, GD_CONSTANT, o->value);
}

/*layer reflection_pad1d(x, padding:int[]) -> y
 * x (N, C, L), or without N, with a border of x mirrored at its edge, which is not repeated.
 */
static gd_status reflection_pad1d_check(const gd_module *m) {
    const gd_nn_reflection_pad1d_options *o = m->options;
    return check_padding(m, 1, &o->padding);
}
static gd_tensors reflection_pad1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_reflection_pad1d_options *o = m->options;
    return pad(m, in, 1, &o->padding, GD_REFLECT, 0);
}

/*layer reflection_pad2d(x, padding:int[]) -> y
 * x (N, C, H, W), or without N, with a border of x mirrored at its edge, which is not repeated.
 */
static gd_status reflection_pad2d_check(const gd_module *m) {
    const gd_nn_reflection_pad2d_options *o = m->options;
    return check_padding(m, 2, &o->padding);
}
static gd_tensors reflection_pad2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_reflection_pad2d_options *o = m->options;
    return pad(m, in, 2, &o->padding, GD_REFLECT, 0);
}

/*layer reflection_pad3d(x, padding:int[]) -> y
 * x (N, C, D, H, W), or without N, with a border of x mirrored at its edge, which is not repeated.
 */
static gd_status reflection_pad3d_check(const gd_module *m) {
    const gd_nn_reflection_pad3d_options *o = m->options;
    return check_padding(m, 3, &o->padding);
}
static gd_tensors reflection_pad3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_reflection_pad3d_options *o = m->options;
    return pad(m, in, 3, &o->padding, GD_REFLECT, 0);
}

/*layer replication_pad1d(x, padding:int[]) -> y
 * x (N, C, L), or without N, with a border of its edge.
 */
static gd_status replication_pad1d_check(const gd_module *m) {
    const gd_nn_replication_pad1d_options *o = m->options;
    return check_padding(m, 1, &o->padding);
}
static gd_tensors replication_pad1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_replication_pad1d_options *o = m->options;
    return pad(m, in, 1, &o->padding, GD_REPLICATE, 0);
}

/*layer replication_pad2d(x, padding:int[]) -> y
 * x (N, C, H, W), or without N, with a border of its edge.
 */
static gd_status replication_pad2d_check(const gd_module *m) {
    const gd_nn_replication_pad2d_options *o = m->options;
    return check_padding(m, 2, &o->padding);
}
static gd_tensors replication_pad2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_replication_pad2d_options *o = m->options;
    return pad(m, in, 2, &o->padding, GD_REPLICATE, 0);
}

/*layer replication_pad3d(x, padding:int[]) -> y
 * x (N, C, D, H, W), or without N, with a border of its edge.
 */
static gd_status replication_pad3d_check(const gd_module *m) {
    const gd_nn_replication_pad3d_options *o = m->options;
    return check_padding(m, 3, &o->padding);
}
static gd_tensors replication_pad3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_replication_pad3d_options *o = m->options;
    return pad(m, in, 3, &o->padding, GD_REPLICATE, 0);
}

/*layer circular_pad1d(x, padding:int[]) -> y
 * x (N, C, L), or without N, with a border of its other end.
 */
static gd_status circular_pad1d_check(const gd_module *m) {
    const gd_nn_circular_pad1d_options *o = m->options;
    return check_padding(m, 1, &o->padding);
}
static gd_tensors circular_pad1d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_circular_pad1d_options *o = m->options;
    return pad(m, in, 1, &o->padding, GD_CIRCULAR, 0);
}

/*layer circular_pad2d(x, padding:int[]) -> y
 * x (N, C, H, W), or without N, with a border of its other end.
 */
static gd_status circular_pad2d_check(const gd_module *m) {
    const gd_nn_circular_pad2d_options *o = m->options;
    return check_padding(m, 2, &o->padding);
}
static gd_tensors circular_pad2d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_circular_pad2d_options *o = m->options;
    return pad(m, in, 2, &o->padding, GD_CIRCULAR, 0);
}

/*layer circular_pad3d(x, padding:int[]) -> y
 * x (N, C, D, H, W), or without N, with a border of its other end.
 */
static gd_status circular_pad3d_check(const gd_module *m) {
    const gd_nn_circular_pad3d_options *o = m->options;
    return check_padding(m, 3, &o->padding);
}
static gd_tensors circular_pad3d_forward(gd_module *m, gd_tensors in) {
    const gd_nn_circular_pad3d_options *o = m->options;
    return pad(m, in, 3, &o->padding, GD_CIRCULAR, 0);
}

#include "layers_pad.gen.h"
