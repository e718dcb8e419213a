/* conv_body.c - the three directions of a convolution as windows and matrix products
 * (im2col).
 *
 * The windows of x become columns (N, G, C K, P): N images, G groups, C channels of a group, K
 * elements of a window, P positions of y. With w as (G, O, C K), y is the product (N, G, O, P).
 */
#include "gradus/ops.h"
#include "ops/conv/conv.h"

/* The product of n sizes. */
static int64_t axes_product(const int64_t *dims, int n) {
    int64_t product = 1;
    for (int d = 0; d < n; d++) product *= dims[d];
    return product;
}

/* A list of axes: for each part p, counts[p] axes from starts[p] on. */
static gd_shape axes_from(const int *starts, const int *counts, int parts) {
    gd_shape axes = {.form = 1};
    for (int p = 0; p < parts; p++)
        for (int d = 0; d < counts[p]; d++) axes.at[axes.rank++] = starts[p] + d;
    return axes;
}

/* x with a batch axis, in the dtype that sums accumulate in. */
static gd_tensor *as_batch(gd_tensor *x, int n) {
    return gd_widen(x->rank == n + 1 ? gd_unsqueeze(x, 0) : x);
}

/* The windows of x (N, G C, ...) as (N, G, C K, P). */
static gd_tensor *window_columns(gd_tensor *x, const gd_window_form *f, int64_t groups, int n) {
    const int64_t batch = gd_tensor_dim(x, 0), channels = gd_tensor_dim(x, 1);
    gd_tensor *t = gd_window_views(x, f, n); /* (N, G C, P..., K...) */
    if (gd_tensor_is_error(t)) return t;
    const int64_t places = axes_product(t->dims + 2, n), taps = axes_product(t->dims + 2 + n, n);
    t = gd_permute(t, axes_from((int[]){0, 2 + n, 2}, (int[]){2, n, n}, 3));
    return gd_reshape(t, gd_dims(batch, groups, channels / groups * taps, places));
}

/* y (N, G, O, P) as (N, G O, dims...), without N if `like` has no batch axis. */
static gd_tensor *as_planes(gd_tensor *y, const gd_tensor *like, gd_shape dims) {
    if (gd_tensor_is_error(y)) return y;
    gd_shape all = {.form = 1};
    if (like->rank == dims.rank + 2) all.at[all.rank++] = y->dims[0];
    all.at[all.rank++] = y->dims[1] * y->dims[2];
    for (int d = 0; d < dims.rank; d++) all.at[all.rank++] = dims.at[d];
    return gd_reshape(y, all);
}

gd_tensor *gd_conv_output_body(gd_tensor *x, gd_tensor *w, const gd_window_form *f,
                               int64_t groups) {
    const int n = w->rank - 2;
    const int64_t filters = w->dims[0] / groups;
    gd_tensor *rows = gd_reshape(
        gd_widen(w), gd_dims(groups, filters, w->dims[1] * axes_product(w->dims + 2, n)));
    gd_tensor *y = gd_matmul(rows, window_columns(as_batch(x, n), f, groups, n));
    return as_planes(y, x, gd_spatial_list(f->count, n));
}

/* The gradient by x is a convolution of gy, with step - 1 zeros inserted between its elements,
 * and the flipped kernel. */
gd_tensor *gd_conv_input_body(gd_tensor *gy, gd_tensor *w, const gd_window_form *f, int64_t groups,
                              gd_shape dims) {
    const int n = w->rank - 2;
    const int64_t filters = w->dims[0] / groups, channels = w->dims[1];
    gd_window_form back = *f;
    gd_tensor *g = as_batch(gy, n);
    gd_shape flipped = {.form = 1};
    for (int d = 0; d < n; d++) {
        const int a = GD_SPATIAL_AXES - n + d;
        if (f->step[a] > 1 && f->count[a] > 1)
            g = gd_windows_grad(gd_unsqueeze(g, -1), 2 + d, (f->count[a] - 1) * f->step[a] + 1,
                                f->step[a], 1);
        back.before[a] = (f->size[a] - 1) * f->dilation[a] - f->before[a];
        back.count[a] = dims.at[d];
        back.step[a] = 1;
        if (f->size[a] > 1) flipped.at[flipped.rank++] = 3 + d;
    }
    gd_tensor *rows = gd_split_axis(gd_widen(w), 0, groups, filters); /* (G, O, C, K...) */
    if (flipped.rank > 0) rows = gd_flip(rows, flipped);
    rows = gd_reshape(gd_transpose(rows, 1, 2),
                      gd_dims(groups, channels, filters * axes_product(w->dims + 2, n)));
    return as_planes(gd_matmul(rows, window_columns(g, &back, groups, n)), gy, dims);
}

/* One matrix product for all images: (G, O, N P) times (G, N P, C K). */
gd_tensor *gd_conv_weight_body(gd_tensor *x, gd_tensor *gy, const gd_window_form *f, int64_t groups,
                               int n) {
    gd_tensor *in = as_batch(x, n), *g = as_batch(gy, n);
    if (gd_tensor_is_error(in) || gd_tensor_is_error(g)) return in;
    const int64_t batch = g->dims[0], filters = g->dims[1] / groups,
                  channels = in->dims[1] / groups;
    const int64_t places = axes_product(g->dims + 2, n);
    gd_tensor *c = window_columns(in, f, groups, n); /* (N, G, C K, P) */
    if (gd_tensor_is_error(c)) return c;
    const int64_t taps = c->dims[2];
    g = gd_permute(gd_reshape(g, gd_dims(batch, groups, filters, places)), gd_dims(1, 2, 0, 3));
    g = gd_reshape(g, gd_dims(groups, filters, batch * places));
    c = gd_reshape(gd_permute(c, gd_dims(1, 0, 3, 2)), gd_dims(groups, batch * places, taps));
    gd_shape dims = {.rank = n + 2, .form = 1, .at = {groups * filters, channels}};
    for (int d = 0; d < n; d++) dims.at[2 + d] = f->size[GD_SPATIAL_AXES - n + d];
    return gd_reshape(gd_matmul(g, c), dims);
}
