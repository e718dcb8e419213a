/* pooling.h - pooling as its kernels see it: planes (one for each image and channel) with three
 * spatial axes; where an op has fewer, the first ones have size 1.
 */
#ifndef GRADUS_OPS_POOLING_H
#define GRADUS_OPS_POOLING_H

#include "gradus/extend.h"
#include "ops/spatial.h"

enum { GD_POOL_AXES = GD_SPATIAL_AXES };

typedef struct gd_pool {
    int64_t planes;
    int64_t in[GD_POOL_AXES], out[GD_POOL_AXES];
    bool adaptive; /* windows of equal share, from in and out alone: the four below are not used */
    int64_t kernel[GD_POOL_AXES], stride[GD_POOL_AXES], dilation[GD_POOL_AXES],
        padding[GD_POOL_AXES];
    bool count_padding; /* averages divide by the window's size with its padding ... */
    int64_t divisor;    /* ... or by this, unless it is 0 */
} gd_pool;

/* The form of a call of any op in pooling.c; x is the tensor with the planes that are pooled, y
 * the one with the results. */
gd_pool gd_pool_of(const gd_kernel_call *k, const gd_view *x, const gd_view *y);

/* One axis of one window: elements first, first + step, ... of x, `count` of them, none outside;
 * `size` is what an average counts along this axis. */
typedef struct gd_pool_window {
    int64_t first, count, step, size;
} gd_pool_window;

static inline gd_pool_window gd_pool_window_at(const gd_pool *p, int axis, int64_t o) {
    const int64_t in = p->in[axis];
    if (p->adaptive) {
        const int64_t first = o * in / p->out[axis], end = ((o + 1) * in - 1) / p->out[axis] + 1;
        return (gd_pool_window){first, end - first, 1, end - first};
    }
    const int64_t step = p->dilation[axis], kernel = p->kernel[axis];
    const int64_t begin = o * p->stride[axis] - p->padding[axis];
    const int64_t skip =
        begin < 0 ? (-begin + step - 1) / step : 0; /* taps before the first element */
    const int64_t reach = in - begin;               /* taps at less than this are inside */
    const int64_t taps = reach <= 0 ? 0 : (reach - 1) / step + 1;
    const int64_t end = taps < kernel ? taps : kernel;
    const int64_t padded =
        begin + kernel < in + p->padding[axis] ? kernel : in + p->padding[axis] - begin;
    const int64_t count = end > skip ? end - skip : 0;
    return (gd_pool_window){begin + skip * step, count, step, p->count_padding ? padded : count};
}

/* The number of axes of the planes of an internal op, from its attribute `dims`; GD_OK if the sizes
 * are right. */
gd_status gd_pool_axes(const gd_shape *dims, int *n);

/* Pooling over the last n axes of x, as other ops; planes of the form is not used. The places of
 * maxima, as i64, where they are wanted (not NULL). */
gd_tensor *gd_max_pool_body(gd_tensor *x, const gd_pool *p, int n, gd_tensor **places);
gd_tensor *gd_avg_pool_body(gd_tensor *x, const gd_pool *p, int n);
gd_tensor *gd_avg_pool_grad_body(gd_tensor *gy, const gd_pool *p, int n);

#endif
