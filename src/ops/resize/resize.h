/* resize.h - the parameters of a resize call as kernels use them.
 *
 * x is a number of planes with three spatial axes. For tensors with fewer the first ones have size
 * 1.
 */
#ifndef GRADUS_OPS_RESIZE_RESIZE_H
#define GRADUS_OPS_RESIZE_RESIZE_H

#include <math.h>

#include "gradus/extend.h"

enum { GD_RESIZE_AXES = 3 };

typedef struct gd_resize_form {
    int64_t planes;
    int64_t in[GD_RESIZE_AXES], out[GD_RESIZE_AXES];
    bool linear, align_corners;
    double scale; /* option scale; NaN: option size was given */
} gd_resize_form;

/* The parameters of a call of resize or resize_grad. x has the planes to be resampled, y the
 * results; for resize_grad x is its output. */
gd_resize_form gd_resize_form_of(const gd_kernel_call *k, const gd_view *x, const gd_view *y);

/* Element o of the result is (1 - part) * x[low] + part * x[high] along an axis.
 * Nearest: x[low]. */
typedef struct gd_resize_source {
    int64_t low, high;
    double part;
} gd_resize_source;

/* The source of element o. Positions are computed in f32 for all dtypes but f64, and with fmaf, as
 * in PyTorch: so the same element is picked if a position is halfway between two. */
static inline gd_resize_source gd_resize_source_of(const gd_resize_form *r, int axis, int64_t o,
                                                   bool f64) {
    const int64_t in = r->in[axis], out = r->out[axis];
    if (r->linear && in == out) return (gd_resize_source){o, o, 0}; /* even if scale is not 1 */
    double at;
    if (f64) {
        double ratio = !isnan(r->scale) ? 1 / r->scale : (double)in / (double)out;
        if (r->align_corners) at = out > 1 ? (double)(in - 1) / (double)(out - 1) * (double)o : 0;
        else at = r->linear ? ratio * ((double)o + 0.5) - 0.5 : ratio * (double)o;
    } else {
        float ratio = !isnan(r->scale) ? (float)(1 / r->scale) : (float)in / (float)out, at32;
        if (r->align_corners) at32 = out > 1 ? (float)(in - 1) / (float)(out - 1) * (float)o : 0;
        else at32 = r->linear ? fmaf(ratio, (float)o + 0.5f, -0.5f) : ratio * (float)o;
        at = (double)at32;
    }
    if (at < 0) at = 0;
    const float low = floorf((float)at);
    gd_resize_source s = {.low = low < (float)in ? (int64_t)low : in - 1};
    if (s.low > in - 1) s.low = in - 1;
    s.high = s.low < in - 1 ? s.low + 1 : s.low;
    s.part = at - (double)s.low;
    if (s.part < 0) s.part = 0;
    if (s.part > 1) s.part = 1;
    return s;
}

#endif
