/* pool.h - the parameters of a pooling call as kernels use them.
 *
 * x is a number of planes, one for each image and channel, with three spatial axes. For an op with
 * fewer spatial axes the first ones have size 1.
 */
#ifndef GRADUS_OPS_POOL_POOL_H
#define GRADUS_OPS_POOL_POOL_H

#include "gradus/extend.h"
#include "ops/windows/windows_spatial.h"

enum { GD_POOL_AXES = GD_SPATIAL_AXES };

typedef struct gd_pool {
    int64_t planes;
    int64_t in[GD_POOL_AXES], out[GD_POOL_AXES];
    bool adaptive; /* windows follow from `in` and `out`; kernel ... padding are not used */
    int64_t kernel[GD_POOL_AXES], stride[GD_POOL_AXES], dilation[GD_POOL_AXES],
        padding[GD_POOL_AXES];
    bool count_padding; /* averages divide by the size of the window including padding */
    int64_t divisor;    /* if not 0, averages divide by this instead */
} gd_pool;

/* The parameters of a call of any op in pool.c. x has the planes that are pooled, y the results;
 * for a gradient op x is its output. */
gd_pool gd_pool_of(const gd_kernel_call *k, const gd_view *x, const gd_view *y);

/* One axis of one window: the `count` elements first, first + step, ... of x, all inside. An
 * average divides by `size` along this axis. */
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
    const int64_t reach = in - begin;               /* taps at offsets below this are inside */
    const int64_t taps = reach <= 0 ? 0 : (reach - 1) / step + 1;
    const int64_t end = taps < kernel ? taps : kernel;
    const int64_t padded =
        begin + kernel < in + p->padding[axis] ? kernel : in + p->padding[axis] - begin;
    const int64_t count = end > skip ? end - skip : 0;
    return (gd_pool_window){begin + skip * step, count, step, p->count_padding ? padded : count};
}

/* Checks the option `dims` of an internal op; *n is its length, the number of spatial axes. */
gd_status gd_pool_axes(const gd_shape *dims, int *n);

/* Pooling over the last n axes of x expressed in other ops (pool_body.c); p->planes is not used.
 * If `indices` is not NULL, it gets the indices of the maxima as i64. */
gd_tensor *gd_max_pool_body(gd_tensor *x, const gd_pool *p, int n, gd_tensor **indices);
gd_tensor *gd_avg_pool_body(gd_tensor *x, const gd_pool *p, int n);
gd_tensor *gd_avg_pool_grad_body(gd_tensor *gy, const gd_pool *p, int n);

#endif
