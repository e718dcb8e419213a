/* pool.c - max and average pooling over one, two or three axes, also adaptive and global.
 *
 * Max pooling also returns the index of each maximum in its plane, which is all that its gradients
 * need: pool_scatter and pool_gather (pool_indices.c) use it. Average pooling is linear, so the
 * gradient of its gradient is average pooling.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "gradus/ops.h"
#include "ops/index/index.h"
#include "dispatch/infer.h"
#include "ops/pool/pool.h"

enum { AXES = GD_POOL_AXES };

/* --- options ---------------------------------------------------------------------------------- */

/* The options of any op in this file, by axis. */
typedef struct {
    int64_t kernel[AXES], stride[AXES], padding[AXES], dilation[AXES];
    int64_t size[AXES]; /* of an adaptive op's result */
    int64_t dims[AXES]; /* of a gradient's result */
    bool ceil_mode, count_include_pad;
    int64_t divisor; /* 0: none */
} pool_options;

/* The field of that name; NULL if it is no list. */
static int64_t *list_field(pool_options *o, const char *name) {
    return strcmp(name, "kernel") == 0     ? o->kernel
           : strcmp(name, "stride") == 0   ? o->stride
           : strcmp(name, "padding") == 0  ? o->padding
           : strcmp(name, "dilation") == 0 ? o->dilation
           : strcmp(name, "size") == 0     ? o->size
           : strcmp(name, "dims") == 0     ? o->dims
                                           : NULL;
}

static const pool_options unset_options = {.kernel = {1, 1, 1},
                                           .stride = {1, 1, 1},
                                           .dilation = {1, 1, 1},
                                           .size = {1, 1, 1},
                                           .dims = {1, 1, 1}};

/* Reads an op's options struct by the names in its record. */
static gd_status read_options(const gd_op *op, const void *attrs, int n, pool_options *o) {
    *o = unset_options;
    for (int i = 0; i < op->n_attrs; i++) {
        const gd_op_attr *a = &op->attrs[i];
        const void *field = (const char *)attrs + a->offset;
        int64_t *list = list_field(o, a->name);
        if (list) GD_TRY(gd_spatial_read(a, attrs, n, list));
        else if (strcmp(a->name, "ceil_mode") == 0) o->ceil_mode = *(const bool *)field;
        else if (strcmp(a->name, "count_include_pad") == 0)
            o->count_include_pad = *(const bool *)field;
        else if (strcmp(a->name, "divisor_override") == 0) {
            o->divisor = *(const int64_t *)field;
            if (o->divisor == 0) return gd_op_fail(GD_E_ARGUMENT, "divisor_override is 0");
            if (o->divisor == GD_UNSET) o->divisor = 0;
        }
    }
    for (int a = AXES - n; a < AXES; a++)
        if (o->stride[a] == GD_UNSET) o->stride[a] = o->kernel[a];
    return GD_OK;
}

/* Calls the op of this kind for n axes, such as avg_pool2d, with the options that it has. */
static gd_tensor *call_pool(const char *kind, int n, gd_tensor *x, pool_options *o) {
    union { /* as large as the options of any of these ops */
        gd_avg_pool3d_options windows;
        gd_adaptive_avg_pool3d_options adaptive;
    } attrs;
    char name[40];
    snprintf(name, sizeof name, "%s%dd", kind, n);
    const gd_op *op = gd_op_find(name);
    memcpy(&attrs, op->defaults, op->attrs_size);
    for (int i = 0; i < op->n_attrs; i++) {
        const gd_op_attr *a = &op->attrs[i];
        void *field = (char *)&attrs + a->offset;
        const int64_t *list = list_field(o, a->name);
        if (list) gd_spatial_write(a, &attrs, n, list);
        else if (strcmp(a->name, "ceil_mode") == 0) *(bool *)field = o->ceil_mode;
        else if (strcmp(a->name, "count_include_pad") == 0) *(bool *)field = o->count_include_pad;
        else if (strcmp(a->name, "divisor_override") == 0 && o->divisor)
            *(int64_t *)field = o->divisor;
    }
    return gd_dispatch_one(op, NULL, &x, 1, &attrs);
}

static gd_status check_options(const pool_options *o, int n) {
    for (int a = AXES - n; a < AXES; a++) {
        int64_t span;
        if (o->kernel[a] == GD_UNSET)
            return gd_op_fail(GD_E_ARGUMENT, "kernel, the size of the window, is not given");
        if (o->kernel[a] < 1 || o->stride[a] < 1 || o->dilation[a] < 1)
            return gd_op_fail(GD_E_ARGUMENT,
                              "kernel (%lld), stride (%lld) and dilation (%lld) must be at least 1",
                              (long long)o->kernel[a], (long long)o->stride[a],
                              (long long)o->dilation[a]);
        if (!gd_mul_i64(o->kernel[a] - 1, o->dilation[a], &span) || span > INT64_MAX / 4 ||
            o->stride[a] > INT64_MAX / 4)
            return gd_op_fail(GD_E_OVERFLOW, "sizes overflow");
        if (o->padding[a] < 0 || o->padding[a] > (span + 1) / 2)
            return gd_op_fail(
                GD_E_ARGUMENT,
                "padding is %lld; it must be at most half of the window, which spans %lld",
                (long long)o->padding[a], (long long)(span + 1));
    }
    return GD_OK;
}

/* The number of windows along an axis. */
static gd_status output_size(const pool_options *o, int a, int64_t in, int64_t *out) {
    int64_t span = (o->kernel[a] - 1) * o->dilation[a] + 1, room;
    if (in < 1) return gd_op_fail(GD_E_SHAPE, "a spatial axis is empty");
    if (!gd_add_i64(in, 2 * o->padding[a], &room) || room > INT64_MAX / 2)
        return gd_op_fail(GD_E_OVERFLOW, "sizes overflow");
    room -= span;
    if (o->ceil_mode) room += o->stride[a] - 1;
    *out = room < 0 ? 0 : room / o->stride[a] + 1;
    /* with ceil_mode, the last window must begin inside x or in the padding before it */
    if (o->ceil_mode && *out > 0 && (*out - 1) * o->stride[a] >= in + o->padding[a]) --*out;
    if (*out < 1)
        return gd_op_fail(GD_E_SHAPE,
                          "a window that spans %lld does not fit into %lld elements and padding "
                          "%lld on each side",
                          (long long)span, (long long)in, (long long)o->padding[a]);
    return GD_OK;
}

/* The parameters of a call on a tensor of these dims, whose last n are pooled into sizes `out`. */
static gd_pool pool_form(const gd_op *op, const void *attrs, int rank, const int64_t *dims, int n,
                         const int64_t *out) {
    gd_pool p = {.planes = 1, .adaptive = strncmp(op->name, "adaptive_", 9) == 0};
    pool_options o;
    read_options(op, attrs, n, &o);
    for (int d = 0; d < rank - n; d++) p.planes *= dims[d];
    for (int a = 0; a < AXES; a++) {
        int d = a - AXES + n;
        p.in[a] = d < 0 ? 1 : dims[rank - n + d];
        p.out[a] = d < 0 ? 1 : out[d];
        p.kernel[a] = o.kernel[a];
        p.stride[a] = o.stride[a];
        p.dilation[a] = o.dilation[a];
        p.padding[a] = o.padding[a];
    }
    p.count_padding = o.count_include_pad;
    p.divisor = o.divisor;
    return p;
}

gd_pool gd_pool_of(const gd_kernel_call *k, const gd_view *x, const gd_view *y) {
    const int n = gd_spatial_axes(k->op, k->attrs);
    return pool_form(k->op, k->attrs, x->rank, x->dims, n, y->dims + y->rank - n);
}

static int64_t plane_size(const int64_t size[AXES]) { return size[0] * size[1] * size[2]; }

/* The dtype of indices that only the gradient reads: i32 takes half the memory if the plane allows
 * it. */
static gd_dtype index_dtype(const gd_tensor *x, int n) {
    int64_t plane = 1;
    for (int d = x->rank - n; d < x->rank; d++)
        if (!gd_mul_i64(plane, x->dims[d], &plane)) return GD_I64;
    return plane <= INT32_MAX ? GD_I32 : GD_I64;
}

/* --- maxima ----------------------------------------------------------------------------------- */

static gd_status infer_pool(gd_infer *i) {
    const int n = gd_spatial_axes(i->op, i->attrs);
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    pool_options o;
    GD_TRY(read_options(i->op, i->attrs, n, &o));
    GD_TRY(check_options(&o, n));
    GD_TRY(gd_need_spatial(x, "x", n));
    gd_meta_like(y, x);
    for (int d = 0; d < n; d++)
        GD_TRY(output_size(&o, AXES - n + d, x->dims[x->rank - n + d], &y->dims[x->rank - n + d]));
    if (i->n_out > 1) {
        i->out[1] = *y;
        i->out[1].dtype = i->op->outputs[1].hidden ? index_dtype(x, n) : GD_I64;
    }
    return GD_OK;
}

static void max_vjp(gd_vjp *v) {
    const int n = gd_spatial_axes(v->op, v->attrs);
    const gd_shape dims = gd_spatial_dims(v->x[0], n);
    pool_options o;
    read_options(v->op, v->attrs, n, &o);
    if (strncmp(v->op->name, "adaptive_", 9) == 0)
        v->gx[0] = gd_pool_scatter(v->gy[0], v->y[1], dims, .adaptive = true);
    else
        v->gx[0] = gd_pool_scatter(v->gy[0], v->y[1], dims, .kernel = gd_spatial_list(o.kernel, n),
                                   .stride = gd_spatial_list(o.stride, n),
                                   .padding = gd_spatial_list(o.padding, n),
                                   .dilation = gd_spatial_list(o.dilation, n));
}

/* The first of the largest elements of each window; a NaN replaces all elements before it, as in
 * PyTorch. An empty window gives index -1 and the smallest number of the type. */
#define DEFINE_MAX(name, type, smallest, is_nan)                                                   \
    static void name(const gd_pool *p, const type *x, type *y, int64_t *indices) {                 \
        const int64_t in = plane_size(p->in), out = plane_size(p->out);                            \
        for (int64_t i = 0; i < p->planes * out; i++) {                                            \
            const type *plane = x + i / out * in;                                                  \
            const gd_pool_window d = gd_pool_window_at(p, 0, i % out / (p->out[1] * p->out[2]));   \
            const gd_pool_window h = gd_pool_window_at(p, 1, i % out / p->out[2] % p->out[1]);     \
            const gd_pool_window w = gd_pool_window_at(p, 2, i % p->out[2]);                       \
            type best = smallest;                                                                  \
            int64_t best_at = -1;                                                                  \
            for (int64_t t = 0; t < d.count * h.count * w.count; t++) {                            \
                const int64_t z = d.first + t / (h.count * w.count) * d.step;                      \
                const int64_t r = h.first + t / w.count % h.count * h.step;                        \
                const int64_t at = (z * p->in[1] + r) * p->in[2] + w.first + t % w.count * w.step; \
                if (best_at >= 0 && !(plane[at] > best) && !(is_nan)) continue;                    \
                best = plane[at];                                                                  \
                best_at = at;                                                                      \
            }                                                                                      \
            y[i] = best;                                                                           \
            if (indices) indices[i] = best_at;                                                     \
        }                                                                                          \
    }
DEFINE_MAX(max_f64, double, -(double)INFINITY, isnan(plane[at]))
DEFINE_MAX(max_i64, int64_t, INT64_MIN, false)

static gd_status run_max(gd_kernel_call *k) {
    const gd_pool p = gd_pool_of(k, &k->in[0], &k->out[0]);
    if (k->in[0].dtype == GD_F64) max_f64(&p, k->in[0].data, k->out[0].data, k->out[1].data);
    else max_i64(&p, k->in[0].data, k->out[0].data, k->out[1].data);
    return GD_OK;
}

/* The parameters of a call that runs as its body. The infer rule has checked the options. */
static gd_pool body_form(const gd_expansion *e, int n) {
    const gd_tensor *x = e->x[0];
    const int64_t *in = x->dims + x->rank - n;
    int64_t out[AXES];
    pool_options o;
    read_options(e->op, e->attrs, n, &o);
    gd_pool p = pool_form(e->op, e->attrs, x->rank, x->dims, n, in);
    for (int d = 0; d < n; d++)
        if (!p.adaptive) output_size(&o, AXES - n + d, in[d], &out[d]);
        else out[d] = o.size[AXES - n + d] < 0 ? in[d] : o.size[AXES - n + d];
    memcpy(p.out + AXES - n, out, (size_t)n * sizeof *out);
    return p;
}

static void max_body(gd_expansion *e) {
    const int n = gd_spatial_axes(e->op, e->attrs);
    const gd_pool p = body_form(e, n);
    e->y[0] = gd_max_pool_body(e->x[0], &p, n, e->op->outputs[1].hidden ? NULL : &e->y[1]);
}

/*op max_pool{1,2,3}d(x) -> y, indices~
 * The largest element of each window of x (N,C,{L|H,W|D,H,W}) or (C,{L|H,W|D,H,W}).
 *   kernel    int[{}] = none      size of the window
 *   stride    int[{}] = none      step between windows; none: the kernel size
 *   padding   int[{}] = 0         elements of -inf added on each side
 *   dilation  int[{}] = 1         step between the elements of a window
 *   ceil_mode bool = false       include a last window that is only partly inside
 *   saves indices
 *   gives indices < x[-{}:] or -1
 *   onnx MaxPool
 *   python (x, kernel_size=kernel, stride, padding, dilation, ceil_mode)
 */
static gd_status max_poolNd_infer(gd_infer *i) { return infer_pool(i); }
static void max_poolNd_vjp(gd_vjp *v) { max_vjp(v); }
static gd_status max_poolNd_reference(gd_kernel_call *k) { return run_max(k); }
static void max_poolNd_expand(gd_expansion *e) { max_body(e); }

/*op max_pool{1,2,3}d_with_indices(x) -> y, indices
 * max_pool{}d, and the index of each maximum in its {line|plane|volume} of x in row-major order (-1
 * for an empty window).
 *   kernel    int[{}] = none      size of the window
 *   stride    int[{}] = none      step between windows; none: the kernel size
 *   padding   int[{}] = 0         elements of -inf added on each side
 *   dilation  int[{}] = 1         step between the elements of a window
 *   ceil_mode bool = false       include a last window that is only partly inside
 *   saves indices
 *   gives indices < x[-{}:] or -1
 *   python (x, kernel_size=kernel, stride, padding, dilation, ceil_mode)
 */
static gd_status max_poolNd_with_indices_infer(gd_infer *i) { return infer_pool(i); }
static void max_poolNd_with_indices_vjp(gd_vjp *v) { max_vjp(v); }
static gd_status max_poolNd_with_indices_reference(gd_kernel_call *k) { return run_max(k); }
static void max_poolNd_with_indices_expand(gd_expansion *e) { max_body(e); }

/* --- averages --------------------------------------------------------------------------------- */

/* The divisor of the sum of a window. */
static int64_t divisor_of(const gd_pool *p, const gd_pool_window *d, const gd_pool_window *h,
                          const gd_pool_window *w) {
    return p->divisor ? p->divisor : d->size * h->size * w->size;
}

static double divide_f64(double sum, double divisor) { return sum / divisor; }
static int64_t divide_i64(int64_t sum, int64_t divisor) { /* INT64_MIN / -1 would overflow */
    return divisor == -1 ? (int64_t)(0 - (uint64_t)sum) : sum / divisor;
}

/* Writes the averages of x to y. With `back`, it adds y / divisor to each element of the window in
 * x instead. Averages of integers are truncated towards zero, and sums wrap. */
#define DEFINE_AVERAGE(name, type, sum_type, divide)                                             \
    static void name(const gd_pool *p, bool back, type *x, type *y) {                            \
        const int64_t in = plane_size(p->in), out = plane_size(p->out);                          \
        if (back) memset(x, 0, (size_t)(p->planes * in) * sizeof *x);                            \
        for (int64_t i = 0; i < p->planes * out; i++) {                                          \
            type *plane = x + i / out * in;                                                      \
            const gd_pool_window d = gd_pool_window_at(p, 0, i % out / (p->out[1] * p->out[2])); \
            const gd_pool_window h = gd_pool_window_at(p, 1, i % out / p->out[2] % p->out[1]);   \
            const gd_pool_window w = gd_pool_window_at(p, 2, i % p->out[2]);                     \
            const int64_t count = d.count * h.count * w.count;                                   \
            const type divisor = (type)divisor_of(p, &d, &h, &w);                                \
            sum_type sum = 0;                                                                    \
            for (int64_t t = 0; t < count; t++) {                                                \
                const int64_t z = d.first + t / (h.count * w.count);                             \
                const int64_t r = h.first + t / w.count % h.count;                               \
                const int64_t at = (z * p->in[1] + r) * p->in[2] + w.first + t % w.count;        \
                if (back) plane[at] += divide(y[i], divisor);                                    \
                else sum += (sum_type)plane[at];                                                 \
            }                                                                                    \
            if (!back) y[i] = count ? divide((type)sum, divisor) : 0;                            \
        }                                                                                        \
    }
DEFINE_AVERAGE(average_f64, double, double, divide_f64)
DEFINE_AVERAGE(average_i64, int64_t, uint64_t, divide_i64)

static gd_status run_average(gd_kernel_call *k, bool back) {
    gd_view *x = back ? &k->out[0] : (gd_view *)(uintptr_t)&k->in[0];
    gd_view *y = back ? (gd_view *)(uintptr_t)&k->in[0] : &k->out[0];
    const gd_pool p = gd_pool_of(k, x, y);
    if (x->dtype == GD_F64) average_f64(&p, back, x->data, y->data);
    else average_i64(&p, back, x->data, y->data);
    return GD_OK;
}

/*op avg_pool{1,2,3}d(x) -> y
 * The average of each window of x (N,C,{L|H,W|D,H,W}) or (C,{L|H,W|D,H,W}).
 *   kernel    int[{}] = none          size of the window
 *   stride    int[{}] = none          step between windows; none: the kernel size
 *   padding   int[{}] = 0             zeros added on each side
 *   ceil_mode bool = false           include a last window that is only partly inside
 *   count_include_pad bool = true    the divisor counts zeros of the padding, too
 *   divisor_override int = none      divisor instead of the window's size
 *   saves nothing
 *   onnx AveragePool
 *   python (x, kernel_size=kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
 */
static gd_status avg_poolNd_infer(gd_infer *i) { return infer_pool(i); }
static void avg_poolNd_vjp(gd_vjp *v) {
    const int n = gd_spatial_axes(v->op, v->attrs);
    pool_options o;
    read_options(v->op, v->attrs, n, &o);
    v->gx[0] = gd_avg_pool_grad(v->gy[0], gd_spatial_dims(v->x[0], n), gd_spatial_list(o.kernel, n),
                                gd_spatial_list(o.stride, n), gd_spatial_list(o.padding, n),
                                o.ceil_mode, o.count_include_pad, o.divisor ? o.divisor : GD_UNSET);
}
static gd_status avg_poolNd_reference(gd_kernel_call *k) { return run_average(k, false); }
static void avg_poolNd_expand(gd_expansion *e) {
    const int n = gd_spatial_axes(e->op, e->attrs);
    const gd_pool p = body_form(e, n);
    e->y[0] = gd_avg_pool_body(e->x[0], &p, n);
}

/* --- adaptive --------------------------------------------------------------------------------- */

static gd_status infer_adaptive(gd_infer *i) {
    const int n = gd_spatial_axes(i->op, i->attrs);
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    pool_options o;
    GD_TRY(read_options(i->op, i->attrs, n, &o));
    GD_TRY(gd_need_spatial(x, "x", n));
    GD_TRY(gd_need_float(x, "x"));
    gd_meta_like(y, x);
    for (int d = 0; d < n; d++) {
        int64_t size = o.size[AXES - n + d], *out = &y->dims[x->rank - n + d], unused;
        if (size == GD_UNSET) return gd_op_fail(GD_E_ARGUMENT, "size of the result is not given");
        if (size < -1)
            return gd_op_fail(GD_E_ARGUMENT, "size is %lld; it must be at least 0, or -1",
                              (long long)size);
        if (*out < 1) return gd_op_fail(GD_E_SHAPE, "axis %d of 'x' is empty", x->rank - n + d);
        if (size >= 0) {
            if (!gd_add_i64(size, 1, &unused) || !gd_mul_i64(unused, *out, &unused))
                return gd_op_fail(GD_E_OVERFLOW, "sizes overflow");
            *out = size;
        }
    }
    if (i->n_out > 1) {
        i->out[1] = *y;
        i->out[1].dtype = i->op->outputs[1].hidden ? index_dtype(x, n) : GD_I64;
    }
    return GD_OK;
}

/*op adaptive_avg_pool{1,2,3}d(x) -> y
 * Divides x (N,C,{L|H,W|D,H,W}) or (C,{L|H,W|D,H,W}) into windows of nearly equal size, one for
 * each element of the result, and averages them.
 *   size int[{}] = none  size of the result; -1 keeps that of x
 *   saves nothing
 *   python (x, output_size=size)
 */
static gd_status adaptive_avg_poolNd_infer(gd_infer *i) { return infer_adaptive(i); }
static void adaptive_avg_poolNd_vjp(gd_vjp *v) {
    v->gx[0] = gd_adaptive_avg_pool_grad(
        v->gy[0], gd_spatial_dims(v->x[0], gd_spatial_axes(v->op, v->attrs)));
}
static gd_status adaptive_avg_poolNd_reference(gd_kernel_call *k) { return run_average(k, false); }
static void adaptive_avg_poolNd_expand(gd_expansion *e) {
    const int n = gd_spatial_axes(e->op, e->attrs);
    const gd_pool p = body_form(e, n);
    e->y[0] = gd_avg_pool_body(e->x[0], &p, n);
}

/*op adaptive_max_pool{1,2,3}d(x) -> y, indices~
 * Divides x (N,C,{L|H,W|D,H,W}) or (C,{L|H,W|D,H,W}) into windows of nearly equal size, one for
 * each element of the result, and gives the largest element of each.
 *   size int[{}] = none  size of the result; -1 keeps that of x
 *   saves indices
 *   gives indices < x[-{}:] or -1
 *   python (x, output_size=size)
 */
static gd_status adaptive_max_poolNd_infer(gd_infer *i) { return infer_adaptive(i); }
static void adaptive_max_poolNd_vjp(gd_vjp *v) { max_vjp(v); }
static gd_status adaptive_max_poolNd_reference(gd_kernel_call *k) { return run_max(k); }
static void adaptive_max_poolNd_expand(gd_expansion *e) { max_body(e); }

/*op adaptive_max_pool{1,2,3}d_with_indices(x) -> y, indices
 * adaptive_max_pool{}d, and the index of each maximum in its {line|plane|volume} of x in row-major
 * order.
 *   size int[{}] = none  size of the result; -1 keeps that of x
 *   saves indices
 *   gives indices < x[-{}:] or -1
 *   python (x, output_size=size)
 */
static gd_status adaptive_max_poolNd_with_indices_infer(gd_infer *i) { return infer_adaptive(i); }
static void adaptive_max_poolNd_with_indices_vjp(gd_vjp *v) { max_vjp(v); }
static gd_status adaptive_max_poolNd_with_indices_reference(gd_kernel_call *k) {
    return run_max(k);
}
static void adaptive_max_poolNd_with_indices_expand(gd_expansion *e) { max_body(e); }

/* --- global ----------------------------------------------------------------------------------- */

/* The number of axes after batch and channels. The pooling op fails if x has fewer or more. */
static int global_axes(const gd_tensor *x) { return x->rank <= 3 ? 1 : x->rank == 4 ? 2 : AXES; }

/*op global_avg_pool(x) -> y
 * The average of each channel of x (N,C,L), (N,C,H,W) or (N,C,D,H,W). Spatial axes stay with size
 * 1.
 *   onnx GlobalAveragePool  cast w
 */
static void global_avg_pool_expand(gd_expansion *e) {
    pool_options o = unset_options; /* size 1 on all axes */
    e->y[0] = call_pool("adaptive_avg_pool", global_axes(e->x[0]), e->x[0], &o);
}

/*op global_max_pool(x) -> y
 * The largest element of each channel of x (N,C,L), (N,C,H,W) or (N,C,D,H,W). Spatial axes stay
 * with size 1.
 *   onnx GlobalMaxPool  cast w
 */
static void global_max_pool_expand(gd_expansion *e) {
    pool_options o = unset_options; /* size 1 on all axes */
    e->y[0] = call_pool("adaptive_max_pool", global_axes(e->x[0]), e->x[0], &o);
}

/* --- gradients -------------------------------------------------------------------------------- */

/*op avg_pool_grad(gy, dims:int[], kernel:int[], stride:int[], padding:int[], ceil_mode:bool, count_include_pad:bool, divisor_override:int) -> gx  internal
 * The gradient of average pooling by its input, whose spatial sizes are dims.
 *   saves nothing
 */
static gd_status avg_pool_grad_infer(gd_infer *i) {
    const gd_avg_pool_grad_options *a = i->attrs;
    const gd_tensor *gy = i->in[0];
    pool_options o;
    int n;
    GD_TRY(gd_pool_axes(&a->dims, &n));
    GD_TRY(read_options(i->op, i->attrs, n, &o));
    GD_TRY(check_options(&o, n));
    GD_TRY(gd_need_spatial(gy, "gy", n));
    GD_TRY(gd_need_float(gy, "gy"));
    gd_meta_like(&i->out[0], gy);
    for (int d = 0; d < n; d++) {
        int64_t size;
        GD_TRY(output_size(&o, AXES - n + d, a->dims.at[d], &size));
        if (size != gy->dims[gy->rank - n + d])
            return gd_op_fail(GD_E_SHAPE, "'gy' does not have the sizes of the pooled tensor");
        i->out[0].dims[gy->rank - n + d] = a->dims.at[d];
    }
    return GD_OK;
}
static gd_status avg_pool_grad_reference(gd_kernel_call *k) { return run_average(k, true); }
static void avg_pool_grad_vjp(gd_vjp *v) {
    const int n = gd_spatial_axes(v->op, v->attrs);
    pool_options o;
    if (read_options(v->op, v->attrs, n, &o) == GD_OK)
        v->gx[0] = call_pool("avg_pool", n, v->gy[0], &o);
}

/* The body of both gradients: gy has the sizes of the pooled tensor, dims those of its input. */
static void average_grad_body(gd_expansion *e) {
    const gd_shape *dims = e->attrs; /* the first attribute of both */
    const gd_tensor *gy = e->x[0];
    const int n = dims->rank;
    const gd_pool p = pool_form(e->op, e->attrs, n, dims->at, n, gy->dims + gy->rank - n);
    e->y[0] = gd_avg_pool_grad_body(e->x[0], &p, n);
}
static void avg_pool_grad_expand(gd_expansion *e) { average_grad_body(e); }

/*op adaptive_avg_pool_grad(gy, dims:int[]) -> gx  internal
 * The gradient of adaptive average pooling by its input, whose spatial sizes are dims.
 *   saves nothing
 */
static gd_status adaptive_avg_pool_grad_infer(gd_infer *i) {
    const gd_adaptive_avg_pool_grad_options *a = i->attrs;
    const gd_tensor *gy = i->in[0];
    int n;
    GD_TRY(gd_pool_axes(&a->dims, &n));
    GD_TRY(gd_need_spatial(gy, "gy", n));
    GD_TRY(gd_need_float(gy, "gy"));
    gd_meta_like(&i->out[0], gy);
    for (int d = 0; d < n; d++) {
        int64_t unused, at = a->dims.at[d];
        if (at < 1 || !gd_mul_i64(gy->dims[gy->rank - n + d] + 1, at, &unused))
            return gd_op_fail(GD_E_ARGUMENT, "dims has the size %lld; it must be at least 1%s",
                              (long long)at, at < 1 ? "" : " and not overflow");
        i->out[0].dims[gy->rank - n + d] = at;
    }
    return GD_OK;
}
static gd_status adaptive_avg_pool_grad_reference(gd_kernel_call *k) {
    return run_average(k, true);
}
static void adaptive_avg_pool_grad_vjp(gd_vjp *v) {
    const int n = gd_spatial_axes(v->op, v->attrs);
    pool_options o = unset_options;
    memcpy(o.size + AXES - n, v->x[0]->dims + v->x[0]->rank - n, (size_t)n * sizeof *o.size);
    v->gx[0] = call_pool("adaptive_avg_pool", n, v->gy[0], &o);
}
static void adaptive_avg_pool_grad_expand(gd_expansion *e) { average_grad_body(e); }

#include "ops/pool/pool.gen.h"
