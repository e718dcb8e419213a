/* pooling.c - Pooling, and how its windows map to those of the ops.
 *
 * Caffe rounds the number of windows up. If there is padding, a last window that would begin after the plane
 * is left out; without, it stays, and lies outside: its maximum is -FLT_MAX, its average 0. The ops leave it
 * out, and pad at most half a window. What goes beyond that runs on a plane that is padded first.
 */
#include "caffe/layers/pooling.h"
#include "caffe/save/save.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "gradus/autograd.h"
#include "nn/layer.h"

/* --- windows ---------------------------------------------------------------------------------- */

typedef struct pool_axes {
    int64_t size[2], out[2]; /* of the plane, and windows along it */
    bool plain;              /* the windows are those of the ops, */
    bool up;                 /* with their ceil_mode */
} pool_axes;

static pool_axes find_windows(const gd_caffe_pool *p, gd_tensor *x) {
    pool_axes a = {.plain = true};
    bool clipped = false;
    for (int i = 0; i < 2; i++) {
        a.size[i] = gd_tensor_dim(x, 2 + i);
        if (p->kernel[i] < 1 || p->stride[i] < 1) continue; /* SPP of an empty plane: no windows */
        const int64_t room = a.size[i] + 2 * p->pad[i] - p->kernel[i];
        const int64_t up = p->rounds_down ? 0 : p->stride[i] - 1;
        a.out[i] = room + up < 0 ? 0 : (room + up) / p->stride[i] + 1;
        if ((a.out[i] - 1) * p->stride[i] >= a.size[i] + p->pad[i]) {
            if (p->pad[0] > 0 || p->pad[1] > 0) a.out[i]--, clipped = true;
            else a.plain = false;
        }
        if (p->pad[i] > p->kernel[i] / 2) a.plain = false;
        if (a.out[i] > (room < 0 ? 0 : room / p->stride[i] + 1)) a.up = true;
    }
    /* ONNX leaves out no window if it rounds up */
    if (a.up && clipped) a.plain = false;
    return a;
}

/* x with elements of this value around it, so that each window lies inside. */
static gd_tensor *pad_plane(const gd_caffe_pool *p, const pool_axes *a, gd_tensor *x,
                            double value) {
    gd_shape sides = {.rank = 4, .form = 1}; /* (before, after) of W, then of H */
    for (int i = 0; i < 2; i++) {
        const int64_t end = (a->out[i] - 1) * p->stride[i] + p->kernel[i];
        sides.at[2 - 2 * i] = p->pad[i];
        sides.at[3 - 2 * i] = end - p->pad[i] - a->size[i]; /* negative: cuts */
    }
    return gd_pad(x, sides, .value = value);
}

static gd_tensor *no_windows(const gd_caffe_pool *p, const pool_axes *a) {
    const gd_status status = gd_fail(
        GD_E_SHAPE,
        "a window of %lld x %lld does not fit into a plane of %lld x %lld with padding %lld x %lld",
        (long long)p->kernel[0], (long long)p->kernel[1], (long long)a->size[0],
        (long long)a->size[1], (long long)p->pad[0], (long long)p->pad[1]);
    return gd_layer_fail(status).at[0];
}

/* --- maxima ----------------------------------------------------------------------------------- */

/* Indices in the padded plane as indices in the plane; -1 for the padding. */
static gd_tensor *move_indices(const gd_caffe_pool *p, const pool_axes *a, gd_tensor *index) {
    const int64_t width = (a->out[1] - 1) * p->stride[1] + p->kernel[1];
    gd_tensor *row = gd_sub(gd_floor_divide(index, gd_scalar_int(width)), gd_scalar_int(p->pad[0]));
    gd_tensor *column = gd_sub(gd_remainder(index, gd_scalar_int(width)), gd_scalar_int(p->pad[1]));
    gd_tensor *moved = gd_add(gd_mul(row, gd_scalar_int(a->size[1])), column);
    gd_tensor *least = gd_minimum(row, column);
    gd_tensor *inside = gd_logical_and(
        gd_logical_and(gd_ge(least, gd_scalar_int(0)), gd_lt(row, gd_scalar_int(a->size[0]))),
        gd_lt(column, gd_scalar_int(a->size[1])));
    return gd_where(inside, moved, gd_scalar_int(-1));
}

static gd_tensor *max_pooled(const gd_caffe_pool *p, const pool_axes *a, gd_tensor *x,
                             gd_tensor **mask) {
    const gd_int2 kernel = {{p->kernel[0], p->kernel[1]}}, stride = {{p->stride[0], p->stride[1]}};
    const gd_int2 pad = {{a->plain ? p->pad[0] : 0, a->plain ? p->pad[1] : 0}};
    const bool up = a->plain && a->up;
    if (!a->plain) x = pad_plane(p, a, x, -FLT_MAX);
    if (!mask)
        return gd_max_pool2d(x, .kernel = kernel, .stride = stride, .padding = pad,
                             .ceil_mode = up);
    const gd_max_pool2d_with_indices_outputs y = gd_max_pool2d_with_indices(
        x, .kernel = kernel, .stride = stride, .padding = pad, .ceil_mode = up);
    *mask = gd_cast(a->plain ? y.indices : move_indices(p, a, y.indices), GD_F32);
    return y.y;
}

/* --- averages --------------------------------------------------------------------------------- */

/* The number of elements that Caffe divides by along an axis: those of the window in the padded plane. */
static gd_tensor *window_sizes(const gd_caffe_pool *p, const pool_axes *a, int i) {
    gd_tensor *begin =
        gd_arange(0, (double)(a->out[i] * p->stride[i]), .step = (double)p->stride[i]);
    gd_tensor *room = gd_sub(gd_scalar((double)(a->size[i] + 2 * p->pad[i])), begin);
    return gd_maximum(gd_minimum(room, gd_scalar((double)p->kernel[i])), gd_scalar(1));
}

static gd_tensor *average_pooled(const gd_caffe_pool *p, const pool_axes *a, gd_tensor *x) {
    const gd_int2 kernel = {{p->kernel[0], p->kernel[1]}}, stride = {{p->stride[0], p->stride[1]}};
    if (a->plain)
        return gd_avg_pool2d(x, .kernel = kernel, .stride = stride,
                             .padding = {{p->pad[0], p->pad[1]}}, .ceil_mode = a->up);
    gd_tensor *y = gd_avg_pool2d(pad_plane(p, a, x, 0), .kernel = kernel, .stride = stride);
    gd_tensor *sizes =
        gd_mul(gd_reshape(window_sizes(p, a, 0), gd_dims(a->out[0], 1)), window_sizes(p, a, 1));
    return gd_mul(y, gd_div(gd_scalar((double)(p->kernel[0] * p->kernel[1])), sizes));
}

/* --- stochastic pooling ----------------------------------------------------------------------- */

/* In evaluation the elements are weighted by themselves: the mean of squares by the mean; 0 if that is
 * not positive. */
static gd_tensor *expected_pooled(const gd_caffe_pool *p, gd_tensor *x) {
    const gd_int2 kernel = {{p->kernel[0], p->kernel[1]}}, stride = {{p->stride[0], p->stride[1]}};
    gd_tensor *squares = gd_avg_pool2d(gd_square(x), .kernel = kernel, .stride = stride);
    gd_tensor *mean = gd_avg_pool2d(x, .kernel = kernel, .stride = stride);
    gd_tensor *zero = gd_scalar(0), *positive = gd_gt(mean, zero);
    return gd_where(positive, gd_div(squares, gd_where(positive, mean, gd_scalar(1))), zero);
}

/* One element of each window, with a probability in proportion to its value: the first at which the running
 * sum reaches a random part of the sum. Elements must not be negative. */
static gd_tensor *sampled_pooled(const gd_caffe_pool *p, gd_tensor *x) {
    const int64_t taps = p->kernel[0] * p->kernel[1];
    gd_tensor *w = gd_windows(gd_windows(x, 2, p->kernel[0], p->stride[0], 1), 3, p->kernel[1],
                              p->stride[1], 1); /* (N, C, OH, OW, KH, KW) */
    w = gd_flatten(w, .start_axis = 4);
    gd_tensor *tap;
    {
        GD_NO_GRAD;
        gd_tensor *running = gd_cumsum(w, -1);
        gd_tensor *sum = gd_narrow(running, -1, taps - 1, 1);
        gd_tensor *limit = gd_mul(gd_rand_like(sum), sum);
        tap = gd_sum(gd_cast(gd_lt(running, limit), GD_I64), .axis = gd_dims(-1), .keepdim = true);
        tap = gd_minimum(tap, gd_scalar_int(taps - 1));
    }
    return gd_squeeze(gd_gather(w, -1, tap), .axis = gd_dims(-1));
}

gd_tensor *gd_caffe_pooled(const gd_caffe_pool *p, gd_tensor *x, gd_tensor **mask) {
    if (gd_tensor_is_error(x)) return x;
    const pool_axes a = find_windows(p, x);
    if (a.out[0] < 1 || a.out[1] < 1) return no_windows(p, &a);
    if (p->kind == GD_CAFFE_POOL_MAX) return max_pooled(p, &a, x, mask);
    if (p->kind == GD_CAFFE_POOL_AVERAGE) return average_pooled(p, &a, x);
    x = pad_plane(p, &a, x, 0);
    return gd_module_is_training(NULL) ? sampled_pooled(p, x) : expected_pooled(p, x);
}

/* --- the layer -------------------------------------------------------------------------------- */

typedef struct pooling_module {
    gd_caffe_pool pool;
    bool global; /* the window is the plane */
    bool gives_mask;
} pooling_module;

static gd_tensors pooling_forward(gd_tensors in, void *self) {
    const pooling_module *m = self;
    gd_caffe_pool p = m->pool;
    gd_tensor *mask = NULL;
    for (int i = 0; i < 2 && m->global; i++) p.kernel[i] = gd_tensor_dim(in.at[0], 2 + i);
    gd_tensor *y = gd_caffe_pooled(&p, in.at[0], m->gives_mask ? &mask : NULL);
    return mask ? gd_listed(y, mask) : gd_listed(y);
}

/* A field for both axes, or one for each: kernel_size, or kernel_h and kernel_w. Beside a kernel_size Caffe
 * ignores a single kernel_h (`lone`). */
static gd_status read_pair(const gd_caffe_layer *l, const char *both, const char *stem, bool lone,
                           int64_t to[2]) {
    char field[60], h[60], w[60];
    snprintf(field, sizeof field, "pooling_param.%s", both);
    snprintf(h, sizeof h, "pooling_param.%s_h", stem);
    snprintf(w, sizeof w, "pooling_param.%s_w", stem);
    const bool has_both = gd_pb_has(l->message, field), has_h = gd_pb_has(l->message, h),
               has_w = gd_pb_has(l->message, w);
    if (has_both ? (has_h && has_w) || (!lone && (has_h || has_w)) : has_h != has_w)
        return gd_caffe_fail(l, "it needs %s, or both of %s_h and %s_w", both, stem, stem);
    to[0] = gd_pb_int_of(l->message, has_both || !has_h ? field : h);
    to[1] = gd_pb_int_of(l->message, has_both || !has_w ? field : w);
    return GD_OK;
}

static gd_status read_windows(const gd_caffe_layer *l, pooling_module *m) {
    gd_caffe_pool *p = &m->pool;
    GD_TRY(read_pair(l, "kernel_size", "kernel", true, p->kernel));
    GD_TRY(read_pair(l, "stride", "stride", false, p->stride));
    GD_TRY(read_pair(l, "pad", "pad", false, p->pad));
    m->global = gd_pb_int_of(l->message, "pooling_param.global_pooling");
    p->rounds_down = gd_pb_int_of(l->message, "pooling_param.round_mode") == 1;
    p->kind = (gd_caffe_pool_kind)gd_pb_int_of(l->message, "pooling_param.pool");
    return GD_OK;
}

static gd_status check_windows(const gd_caffe_layer *l, const pooling_module *m) {
    const gd_caffe_pool *p = &m->pool;
    if (m->global && (p->kernel[0] > 0 || p->kernel[1] > 0))
        return gd_caffe_fail(
            l, "it has a kernel size, but with global_pooling the window is the plane");
    for (int i = 0; i < 2; i++) {
        if (m->global && (p->pad[i] != 0 || p->stride[i] != 1))
            return gd_caffe_fail(l, "with global_pooling it has neither pad nor stride");
        if (!m->global && p->kernel[i] < 1)
            return gd_caffe_fail(l, "it has no kernel_size, or a kernel of size 0");
        if (p->stride[i] < 1) return gd_caffe_fail(l, "stride must be at least 1");
        if (p->kernel[i] > INT32_MAX || p->stride[i] > INT32_MAX || p->pad[i] > INT32_MAX)
            return gd_caffe_fail(l, "kernel, stride and pad must be at most %d", INT32_MAX);
        if (p->pad[i] > 0 && p->kind == GD_CAFFE_POOL_STOCHASTIC)
            return gd_caffe_fail(l, "STOCHASTIC pooling has no pad");
        if (p->pad[i] > 0 && p->pad[i] >= p->kernel[i])
            return gd_caffe_fail(l, "pad is %lld; it must be less than the kernel, %lld",
                                 (long long)p->pad[i], (long long)p->kernel[i]);
    }
    return GD_OK;
}

gd_status gd_caffe_make_Pooling(gd_caffe_layer *l) {
    pooling_module of = {.gives_mask = l->n_tops > 1};
    if (l->bottoms[0].rank != 4)
        return gd_caffe_fail(l, "its bottom has %d axes; it must have 4", l->bottoms[0].rank);
    GD_TRY(read_windows(l, &of));
    GD_TRY(check_windows(l, &of));
    if (of.gives_mask && of.pool.kind != GD_CAFFE_POOL_MAX)
        return gd_caffe_fail(l, "it has 2 tops; only MAX pooling has a second one");
    pooling_module *m = gd_caffe_module(l, pooling_forward, sizeof *m);
    if (!m) return gd_failure();
    *m = of;
    return GD_OK;
}

/* --- saving ----------------------------------------------------------------------------------- */

/* The windows of a call of an op, or the plane for each channel. */
typedef struct saved_windows {
    int64_t kernel[2], stride[2], padding[2];
    bool global;
} saved_windows;

/* The number of windows that Caffe has along an axis. */
static int64_t windows_in_caffe(const gd_caffe_call *c, const saved_windows *w, int i) {
    const int64_t size = c->in[0].dims[2 + i], step = w->stride[i];
    int64_t count = (size + 2 * w->padding[i] - w->kernel[i] + step - 1) / step + 1;
    if ((w->padding[0] > 0 || w->padding[1] > 0) && (count - 1) * step >= size + w->padding[i])
        count--;
    return w->global ? 1 : count;
}

static void put_pair(gd_caffe_call *c, const char *both, const char *high, const char *wide,
                     const int64_t *sizes, int64_t by_default) {
    if (sizes[0] == sizes[1]) gd_caffe_put_sizes(c, both, 2, sizes, by_default);
    else {
        gd_caffe_put_always(c, high, sizes[0]);
        gd_caffe_put_always(c, wide, sizes[1]);
    }
}

/* Caffe rounds the number of windows up: what is more than that of the op is cut off. */
static gd_status save_pool(gd_caffe_call *c, gd_caffe_pool_kind kind, const saved_windows *w) {
    const int top = gd_caffe_top(c, 0);
    gd_shape shape = gd_caffe_slot_shape(c->out);
    bool more[2];
    for (int i = 0; i < 2; i++) {
        const int64_t count = windows_in_caffe(c, w, i);
        if (count < shape.at[2 + i])
            return gd_caffe_cannot(c, "axis %d has %lld windows, and Caffe's Pooling %lld", 2 + i,
                                   (long long)shape.at[2 + i], (long long)count);
        more[i] = count > shape.at[2 + i];
        shape.at[2 + i] = count;
    }
    int to = more[0] || more[1] ? gd_caffe_between(c, shape) : top;
    gd_caffe_out(c, "Pooling", gd_caffe_bottom(c, 0), to);
    gd_caffe_put_always(c, "pool", kind); /* OpenCV needs it beside global_pooling */
    gd_caffe_put_int(c, "global_pooling", w->global);
    if (!w->global) {
        put_pair(c, "kernel_size", "kernel_h", "kernel_w", w->kernel, 0);
        put_pair(c, "stride", "stride_h", "stride_w", w->stride, 1);
        put_pair(c, "pad", "pad_h", "pad_w", w->padding, 0);
    }
    for (int i = 0; i < 2; i++) {
        if (!more[i]) continue;
        const int64_t size = c->out[0].dims[2 + i];
        shape.at[2 + i] = size;
        const int cut = i == 1 || !more[1] ? top : gd_caffe_between(c, shape);
        gd_caffe_cut(c, to, 2 + i, 0, size, cut);
        to = cut;
    }
    return c->saver->status;
}

static gd_status need_plane(const gd_caffe_call *c) {
    if (c->in[0].rank == 4) return GD_OK;
    return gd_caffe_cannot(c, "its input has %d axes, and Caffe's Pooling takes (N, C, H, W)",
                           c->in[0].rank);
}

static gd_status read_saved(const gd_caffe_call *c, saved_windows *w) {
    *w = (saved_windows){.global = false};
    GD_TRY(need_plane(c));
    gd_caffe_option_list(c, "kernel", w->kernel);
    if (gd_caffe_option_list(c, "stride", w->stride) < 0)
        memcpy(w->stride, w->kernel, sizeof w->stride);
    gd_caffe_option_list(c, "padding", w->padding);
    return GD_OK;
}

gd_status gd_caffe_save_max_pool(gd_caffe_call *c) {
    saved_windows w;
    int64_t dilation[2];
    GD_TRY(read_saved(c, &w));
    gd_caffe_option_list(c, "dilation", dilation);
    if (dilation[0] != 1 || dilation[1] != 1)
        return gd_caffe_cannot(c, "its windows have a dilation, and Caffe's Pooling has none");
    return save_pool(c, GD_CAFFE_POOL_MAX, &w);
}

gd_status gd_caffe_save_avg_pool(gd_caffe_call *c) {
    saved_windows w;
    int64_t divisor;
    GD_TRY(read_saved(c, &w));
    const bool pads = w.padding[0] > 0 || w.padding[1] > 0;
    if (gd_caffe_option_list(c, "divisor_override", &divisor) > 0)
        return gd_caffe_cannot(c,
                               "it has divisor_override, and Caffe divides by the window's size");
    if (pads && gd_caffe_option(c, "count_include_pad") == 0)
        return gd_caffe_cannot(c,
                               "it has count_include_pad = false, and Caffe's averages count the "
                               "zeros of the padding");
    return save_pool(c, GD_CAFFE_POOL_AVERAGE, &w);
}

/* Windows of equal size, or the plane. */
static gd_status save_adaptive(gd_caffe_call *c, gd_caffe_pool_kind kind) {
    saved_windows w = {.global = true};
    bool same = true;
    GD_TRY(need_plane(c));
    for (int i = 0; i < 2; i++) {
        const int64_t from = c->in[0].dims[2 + i], to = c->out[0].dims[2 + i];
        if (to < 1 || from % to != 0)
            return gd_caffe_cannot(c,
                                   "it makes %lld windows of %lld elements, and Caffe's windows "
                                   "have one size: that of the input must be a multiple",
                                   (long long)to, (long long)from);
        w.kernel[i] = w.stride[i] = from / to;
        w.global &= to == 1;
        same &= from == to;
    }
    return same ? gd_caffe_save_same(c) : save_pool(c, kind, &w);
}

gd_status gd_caffe_save_adaptive_max_pool(gd_caffe_call *c) {
    return save_adaptive(c, GD_CAFFE_POOL_MAX);
}
gd_status gd_caffe_save_adaptive_avg_pool(gd_caffe_call *c) {
    return save_adaptive(c, GD_CAFFE_POOL_AVERAGE);
}

/* The mean of each channel, (N, C) or (N, C, 1, 1). False: the axes are others. */
bool gd_caffe_save_mean_of_planes(gd_caffe_call *c, const bool axes[GD_MAX_RANK]) {
    if (c->in[0].rank != 4 || axes[0] || axes[1] || !axes[2] || !axes[3]) return false;
    const int top = gd_caffe_top(c, 0);
    const gd_shape s = gd_dims(c->in[0].dims[0], c->in[0].dims[1], 1, 1);
    const bool flattens = c->out[0].rank == 2;
    const int middle = flattens ? gd_caffe_between(c, s) : top;
    gd_caffe_out(c, "Pooling", gd_caffe_bottom(c, 0), middle);
    gd_caffe_put_int(c, "pool", GD_CAFFE_POOL_AVERAGE);
    gd_caffe_put_int(c, "global_pooling", true);
    if (flattens) gd_caffe_out(c, "Flatten", middle, top);
    return true;
}
