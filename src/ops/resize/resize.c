/* resize.c - resizes images by nearest-neighbour or linear interpolation. */
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/infer.h"
#include "ops/resize/resize.h"
#include "ops/windows/windows_spatial.h"

enum { AXES = GD_RESIZE_AXES };

/*op resize(x) -> y  fullp
 * Resizes the spatial axes of x (N,C,L), (N,C,H,W) or (N,C,D,H,W), as PyTorch's interpolate. Either
 * size or scale must be given. Mode linear is linear, bilinear or trilinear interpolation.
 *   size  int[] = none             sizes of the result: one number for all axes, or one each
 *   scale float = none             factor; the result's sizes are rounded down
 *   mode  {nearest, linear} = nearest
 *   align_corners bool = false     linear: the corner elements of x and y are aligned
 *   saves nothing
 *   onnx Resize
 */
static gd_status resize_infer(gd_infer *i) {
    const gd_resize_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    const bool sized = gd_shape_is_set(&o->size), scaled = !isnan(o->scale);
    const int n = x->rank - 2;
    if (n < 1 || n > AXES)
        return gd_op_fail(
            GD_E_SHAPE, "'x' must have 3 to 5 dimensions (batch, channels, axes), not %d", x->rank);
    if (sized == scaled) return gd_op_fail(GD_E_ARGUMENT, "either size or scale must be given");
    if (sized && o->size.rank != 1 && o->size.rank != n)
        return gd_op_fail(GD_E_ARGUMENT, "size has %d numbers; 'x' has %d spatial axes",
                          o->size.rank, n);
    if (scaled && !(o->scale > 0 && o->scale < 0x1p62))
        return gd_op_fail(GD_E_ARGUMENT, "scale is %g; it must be positive", o->scale);
    if (o->mode == GD_LINEAR) GD_TRY(gd_need_float(x, "x"));
    else if (o->align_corners) return gd_op_fail(GD_E_ARGUMENT, "align_corners needs mode linear");
    gd_meta_like(y, x);
    for (int d = 0; d < n; d++) {
        int64_t *size = &y->dims[2 + d];
        if (x->dims[2 + d] < 1) return gd_op_fail(GD_E_SHAPE, "axis %d of 'x' is empty", 2 + d);
        double want = (double)*size * o->scale;
        if (scaled && want >= 0x1p62) return gd_op_fail(GD_E_OVERFLOW, "sizes overflow");
        *size = scaled ? (int64_t)want : o->size.at[o->size.rank == 1 ? 0 : d];
        if (*size < 1)
            return gd_op_fail(GD_E_SHAPE,
                              "axis %d of the result has size %lld; it must be at least 1", 2 + d,
                              (long long)*size);
    }
    return GD_OK;
}
static void resize_vjp(gd_vjp *v) {
    const gd_resize_options *o = v->attrs;
    const gd_tensor *x = v->x[0];
    v->gx[0] = gd_resize_grad(v->gy[0], gd_shape_of(x->rank - 2, x->dims + 2), o->mode == GD_LINEAR,
                              o->align_corners, o->scale);
}

/*op resize_grad(gy, dims:int[], linear:bool, align_corners:bool, scale:float) -> gx  internal
 * The gradient of resize by its input, whose spatial sizes are dims.
 *   saves nothing
 */
static gd_status resize_grad_infer(gd_infer *i) {
    const gd_resize_grad_options *o = i->attrs;
    const gd_tensor *gy = i->in[0];
    GD_TRY(gd_need_float(gy, "gy"));
    if (o->dims.rank < 1 || o->dims.rank > AXES || gy->rank != o->dims.rank + 2)
        return gd_op_fail(GD_E_SHAPE, "dims has %d numbers; 'gy' has %d dimensions", o->dims.rank,
                          gy->rank);
    if (o->align_corners && !o->linear)
        return gd_op_fail(GD_E_ARGUMENT, "align_corners needs linear");
    gd_meta_like(&i->out[0], gy);
    for (int d = 0; d < o->dims.rank; d++) {
        if (o->dims.at[d] < 1 || gy->dims[2 + d] < 1)
            return gd_op_fail(GD_E_SHAPE, "an axis is empty");
        const double size = (double)o->dims.at[d] * o->scale; /* of the result, rounded down */
        if (!isnan(o->scale) &&
            !(size >= (double)gy->dims[2 + d] && size < (double)gy->dims[2 + d] + 1))
            return gd_op_fail(GD_E_SHAPE, "axis %d of 'gy' has size %lld, not %g times %lld", 2 + d,
                              (long long)gy->dims[2 + d], o->scale, (long long)o->dims.at[d]);
        i->out[0].dims[2 + d] = o->dims.at[d];
    }
    return GD_OK;
}
static void resize_grad_vjp(gd_vjp *v) {
    const gd_resize_grad_options *o = v->attrs;
    const gd_tensor *gy = v->x[0];
    const gd_word mode = o->linear ? GD_LINEAR : GD_NEAREST;
    if (isnan(o->scale))
        v->gx[0] = gd_resize(v->gy[0], .size = gd_shape_of(gy->rank - 2, gy->dims + 2),
                             .mode = mode, .align_corners = o->align_corners);
    else
        v->gx[0] =
            gd_resize(v->gy[0], .scale = o->scale, .mode = mode, .align_corners = o->align_corners);
}

/* --- bodies ----------------------------------------------------------------------------------- */

/* gd_resize_source_of for all elements of an axis of the result: `low` and `high` are i64 vectors;
 * `part` broadcasts against tensors that have `behind` more axes after this one. */
typedef struct {
    gd_tensor *low, *high, *part;
} axis_sources;

static axis_sources axis_sources_of(const gd_resize_form *r, int a, int behind, gd_dtype dtype) {
    const bool f64 = dtype == GD_F64;
    const double in = (double)r->in[a], out = (double)r->out[a];
    const double ratio = r->align_corners  ? (out > 1 ? (in - 1) / (out - 1) : 0)
                         : isnan(r->scale) ? in / out
                                           : 1 / r->scale;
    gd_tensor *at = gd_arange(0, r->out[a], .dtype = f64 ? GD_F64 : GD_F32);
    const bool centers = r->linear && !r->align_corners;
    const gd_dtype wide = gd_tensor_dtype(at);
    if (centers) at = gd_add(at, gd_scalar_of(0.5, wide));
    at = gd_mul(at, gd_scalar_of(f64 ? ratio : (double)(float)ratio, wide));
    if (centers) at = gd_maximum(gd_sub(at, gd_scalar_of(0.5, wide)), gd_scalar_of(0, wide));
    gd_tensor *last = gd_scalar_int(r->in[a] - 1);
    axis_sources s = {.low = gd_cast(gd_floor(gd_as_dtype(at, GD_F32)), GD_I64)};
    s.low = gd_minimum(s.low, last);
    if (!r->linear) return s;
    gd_shape dims = {.rank = behind + 1, .form = 1, .at = {r->out[a], 1, 1}};
    s.high = gd_minimum(gd_add(s.low, gd_scalar_int(1)), last);
    s.part = gd_clamp(gd_sub(at, gd_cast(s.low, wide)), .min = 0, .max = 1);
    s.part = gd_reshape(s.part, dims);
    return s;
}

/* Whether resizing leaves the axis unchanged. */
static bool axis_is_unchanged(const gd_resize_form *r, int a) {
    return r->in[a] == r->out[a] && (r->linear || isnan(r->scale));
}

/* Resizes one axis after the other. Where part is 0, the result is x[low] itself: a NaN or infinity
 * at x[high] must not change it. */
static void resize_expand(gd_expansion *e) {
    const gd_resize_options *o = e->attrs;
    gd_tensor *x = e->x[0], *y = o->mode == GD_LINEAR ? gd_widen(x) : x;
    const int n = x->rank - 2;
    gd_resize_form r = {
        .linear = o->mode == GD_LINEAR, .align_corners = o->align_corners, .scale = o->scale};
    for (int d = 0; d < n; d++) {
        const int a = AXES - n + d;
        r.in[a] = x->dims[2 + d];
        r.out[a] = !isnan(o->scale) ? (int64_t)((double)r.in[a] * o->scale)
                                    : o->size.at[o->size.rank == 1 ? 0 : d];
        if (axis_is_unchanged(&r, a)) continue;
        const axis_sources s = axis_sources_of(&r, a, n - 1 - d, (gd_dtype)x->dtype);
        gd_tensor *low = gd_index_select(y, 2 + d, s.low);
        if (r.linear) {
            gd_tensor *high = gd_index_select(y, 2 + d, s.high);
            y = gd_where(gd_eq(s.part, gd_scalar_int(0)), low, gd_lerp(low, high, s.part));
        } else y = low;
    }
    e->y[0] = y == x ? gd_clone(x) : gd_as_dtype(y, (gd_dtype)x->dtype);
}

static void resize_grad_expand(gd_expansion *e) {
    const gd_resize_grad_options *o = e->attrs;
    gd_tensor *gy = e->x[0], *g = gd_widen(gy);
    const int n = gy->rank - 2;
    gd_resize_form r = {.linear = o->linear, .align_corners = o->align_corners, .scale = o->scale};
    for (int d = 0; d < n; d++) {
        const int a = AXES - n + d;
        r.in[a] = o->dims.at[d];
        r.out[a] = gy->dims[2 + d];
        if (axis_is_unchanged(&r, a)) continue;
        const axis_sources s = axis_sources_of(&r, a, n - 1 - d, (gd_dtype)gy->dtype);
        if (!r.linear) {
            g = gd_scatter_sums(g, 2 + d, s.low, r.in[a]);
            continue;
        }
        gd_tensor *zero = gd_scalar_of(0, gd_tensor_dtype(g)),
                  *on = gd_eq(s.part, gd_scalar_int(0));
        gd_tensor *high = gd_where(on, zero, gd_mul(g, s.part));
        gd_tensor *low = gd_where(on, g, gd_sub(g, gd_mul(g, s.part)));
        g = gd_add(gd_scatter_sums(low, 2 + d, s.low, r.in[a]),
                   gd_scatter_sums(high, 2 + d, s.high, r.in[a]));
    }
    e->y[0] = g == gy ? gd_clone(gy) : gd_as_dtype(g, (gd_dtype)gy->dtype);
}

/* --- kernels ---------------------------------------------------------------------------------- */

gd_resize_form gd_resize_form_of(const gd_kernel_call *k, const gd_view *x, const gd_view *y) {
    gd_resize_form r = {.planes = x->dims[0] * x->dims[1]};
    for (int a = 0; a < AXES; a++) {
        int d = x->rank - AXES + a;
        r.in[a] = d < 2 ? 1 : x->dims[d];
        r.out[a] = d < 2 ? 1 : y->dims[d];
    }
    if (strcmp(k->op->name, "resize") == 0) {
        const gd_resize_options *o = k->attrs;
        r.linear = o->mode == GD_LINEAR;
        r.align_corners = o->align_corners;
        r.scale = o->scale;
    } else {
        const gd_resize_grad_options *o = k->attrs;
        r.linear = o->linear;
        r.align_corners = o->align_corners;
        r.scale = o->scale;
    }
    return r;
}

/* The address of element `index`, in row-major order, of plane number n * C + c. */
static char *plane_element(const gd_view *v, int64_t plane, int64_t index) {
    int64_t at = plane / v->dims[1] * v->strides[0] + plane % v->dims[1] * v->strides[1];
    for (int d = v->rank - 1; d >= 2; d--) {
        at += index % v->dims[d] * v->strides[d];
        index /= v->dims[d];
    }
    return (char *)v->data + at * (int64_t)gd_dtype_size(v->dtype);
}

/* The elements of x (at most eight) that element `index` of y is the weighted sum of. Returns their
 * number. */
static int weighted_sources(const gd_resize_form *r, int64_t index, bool f64, int64_t at[8],
                            double weight[8]) {
    int n = 1;
    int64_t step = 1;
    at[0] = 0;
    weight[0] = 1;
    for (int a = AXES - 1; a >= 0; a--) {
        const gd_resize_source s = gd_resize_source_of(r, a, index % r->out[a], f64);
        const bool two = r->linear && s.part != 0;
        for (int i = 0; i < n; i++) {
            if (two) {
                at[n + i] = at[i] + s.high * step;
                weight[n + i] = weight[i] * s.part;
                weight[i] *= 1 - s.part;
            }
            at[i] += s.low * step;
        }
        if (two) n *= 2;
        index /= r->out[a];
        step *= r->in[a];
    }
    return n;
}

static gd_status resize_raw(gd_kernel_call *k) {
    const gd_view *x = &k->in[0], *y = &k->out[0];
    const gd_resize_form r = gd_resize_form_of(k, x, y);
    const bool f64 = x->dtype == GD_F64;
    const int64_t out = r.out[0] * r.out[1] * r.out[2];
    int64_t at[8];
    double weight[8];
    for (int64_t p = 0; p < r.planes; p++)
        for (int64_t i = 0; i < out; i++) {
            const int n = weighted_sources(&r, i, f64, at, weight);
            char *to = plane_element(y, p, i);
            if (n == 1) { /* a copy, exact for all dtypes */
                memcpy(to, plane_element(x, p, at[0]), gd_dtype_size(x->dtype));
                continue;
            }
            double sum = 0;
            for (int s = 0; s < n; s++)
                sum += weight[s] * gd_load_f64(x->dtype, plane_element(x, p, at[s]));
            gd_store_f64(y->dtype, to, sum);
        }
    return GD_OK;
}

static size_t resize_grad_workspace(const gd_kernel_call *k) {
    const gd_resize_form r = gd_resize_form_of(k, &k->out[0], &k->in[0]);
    return (size_t)(r.in[0] * r.in[1] * r.in[2]) * sizeof(double);
}
static gd_status resize_grad_raw(gd_kernel_call *k) {
    const gd_view *gy = &k->in[0], *gx = &k->out[0];
    const gd_resize_form r = gd_resize_form_of(k, gx, gy);
    const bool f64 = gy->dtype == GD_F64;
    const int64_t in = r.in[0] * r.in[1] * r.in[2], out = r.out[0] * r.out[1] * r.out[2];
    double *sums = k->workspace; /* of one plane */
    int64_t at[8];
    double weight[8];
    for (int64_t p = 0; p < r.planes; p++) {
        memset(sums, 0, (size_t)in * sizeof *sums);
        for (int64_t i = 0; i < out; i++) {
            const int n = weighted_sources(&r, i, f64, at, weight);
            const double g = gd_load_f64(gy->dtype, plane_element(gy, p, i));
            for (int s = 0; s < n; s++) sums[at[s]] += weight[s] * g;
        }
        for (int64_t i = 0; i < in; i++) gd_store_f64(gx->dtype, plane_element(gx, p, i), sums[i]);
    }
    return GD_OK;
}

#include "ops/resize/resize.gen.h"
