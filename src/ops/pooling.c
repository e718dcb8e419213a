/* pooling.c - the largest element or the average of each window, over one, two or three axes.
 *
 * The maximum comes with the place of each winner in its plane, which is all that its gradients
 * need: pool_scatter puts numbers there, pool_gather takes them. An average is linear, and its
 * gradient's gradient is an average again.
 */
#include <math.h>
#include <string.h>

#include "core/checked.h"
#include "gradus/ops.h"
#include "ops/infer.h"
#include "ops/pooling.h"

enum { AXES = GD_POOL_AXES };

/* --- options ---------------------------------------------------------------------------------- */

/* The options of any op in this file, by axis. */
typedef struct {
    int64_t kernel[AXES], stride[AXES], padding[AXES], dilation[AXES];
    int64_t size[AXES]; /* of an adaptive op's result */
    int64_t dims[AXES]; /* of a gradient's result */
    bool ceil_mode, count_include_pad;
    int64_t divisor; /* 0: none */
} options;

/* Reads an op's options struct by the names in its record. */
static gd_status read_options(const gd_op *op, const void *attrs, int n, options *o) {
    *o = (options){.kernel = {1, 1, 1},
                   .stride = {1, 1, 1},
                   .dilation = {1, 1, 1},
                   .size = {1, 1, 1},
                   .dims = {1, 1, 1}};
    for (int i = 0; i < op->n_attrs; i++) {
        const gd_op_attr *a = &op->attrs[i];
        const void *field = (const char *)attrs + a->offset;
        int64_t *to = NULL;
        if (strcmp(a->name, "kernel") == 0) to = o->kernel;
        else if (strcmp(a->name, "stride") == 0) to = o->stride;
        else if (strcmp(a->name, "padding") == 0) to = o->padding;
        else if (strcmp(a->name, "dilation") == 0) to = o->dilation;
        else if (strcmp(a->name, "size") == 0) to = o->size;
        else if (strcmp(a->name, "dims") == 0) to = o->dims;
        else if (strcmp(a->name, "ceil_mode") == 0) o->ceil_mode = *(const bool *)field;
        else if (strcmp(a->name, "count_include_pad") == 0)
            o->count_include_pad = *(const bool *)field;
        else if (strcmp(a->name, "divisor_override") == 0) {
            o->divisor = *(const int64_t *)field;
            if (o->divisor == 0) return gd_op_fail(GD_E_ARGUMENT, "divisor_override is 0");
            if (o->divisor == GD_UNSET) o->divisor = 0;
        }
        if (!to) continue;
        /* gd_int1, gd_int2, gd_int3 and gd_shape all begin with their numbers */
        int count = a->type == GD_ATTR_SHAPE ? ((const gd_shape *)field)->rank : a->count;
        if (count != n)
            return gd_op_fail(GD_E_ARGUMENT, "%s has %d numbers for %d axes", a->name, count, n);
        memcpy(to + AXES - n, field, (size_t)n * sizeof *to);
    }
    for (int a = AXES - n; a < AXES; a++)
        if (o->stride[a] == GD_UNSET) o->stride[a] = o->kernel[a];
    return GD_OK;
}

static gd_status check_options(const options *o, int n) {
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

/* How many windows there are along an axis. */
static gd_status output_size(const options *o, int a, int64_t in, int64_t *out) {
    int64_t span = (o->kernel[a] - 1) * o->dilation[a] + 1, room;
    if (in < 1) return gd_op_fail(GD_E_SHAPE, "there is nothing to pool: an axis is empty");
    if (!gd_add_i64(in, 2 * o->padding[a], &room) || room > INT64_MAX / 2)
        return gd_op_fail(GD_E_OVERFLOW, "sizes overflow");
    room -= span;
    if (o->ceil_mode) room += o->stride[a] - 1;
    *out = room < 0 ? 0 : room / o->stride[a] + 1;
    /* with ceil_mode, the last window must still begin inside, or in the padding before */
    if (o->ceil_mode && *out > 0 && (*out - 1) * o->stride[a] >= in + o->padding[a]) --*out;
    if (*out < 1)
        return gd_op_fail(GD_E_SHAPE,
                          "a window that spans %lld does not fit into %lld elements and padding "
                          "%lld on each side",
                          (long long)span, (long long)in, (long long)o->padding[a]);
    return GD_OK;
}

static gd_status need_planes(const gd_tensor *x, const char *name, int n) {
    if (x->dtype == GD_BOOL) return gd_op_fail(GD_E_DTYPE, "'%s' must be numbers, not bool", name);
    if (x->rank == n + 1 || x->rank == n + 2) return GD_OK;
    return gd_op_fail(
        GD_E_SHAPE,
        "'%s' must have %d dimensions (batch, channels and %d axes), or %d without the batch; "
        "it has %d",
        name, n + 2, n, n + 1, x->rank);
}

gd_pool gd_pool_of(const gd_kernel_call *k, const gd_view *x, const gd_view *y) {
    gd_pool p = {.planes = 1, .adaptive = strncmp(k->op->name, "adaptive_", 9) == 0};
    int n = AXES;
    for (int i = 0; i < k->op->n_attrs;
         i++) { /* how many axes: as many as the sizes have numbers */
        const gd_op_attr *a = &k->op->attrs[i];
        if (a->type == GD_ATTR_INTS) n = a->count;
        else if (a->type == GD_ATTR_SHAPE)
            n = ((const gd_shape *)((const char *)k->attrs + a->offset))->rank;
        else continue;
        break;
    }
    options o;
    read_options(k->op, k->attrs, n, &o);
    for (int d = 0; d < x->rank - n; d++) p.planes *= x->dims[d];
    for (int a = 0; a < AXES; a++) {
        int d = a - AXES + n;
        p.in[a] = d < 0 ? 1 : x->dims[x->rank - n + d];
        p.out[a] = d < 0 ? 1 : y->dims[y->rank - n + d];
        p.kernel[a] = o.kernel[a];
        p.stride[a] = o.stride[a];
        p.dilation[a] = o.dilation[a];
        p.padding[a] = o.padding[a];
    }
    p.count_padding = o.count_include_pad;
    p.divisor = o.divisor;
    return p;
}

static int64_t places(const int64_t size[AXES]) { return size[0] * size[1] * size[2]; }

static gd_shape spatial(const gd_tensor *t, int n) { return gd_shape_of(n, t->dims + t->rank - n); }

static gd_shape list_of(const int64_t *numbers, int n) {
    return gd_shape_of(n, numbers + AXES - n);
}

/* The type of the places of maxima that only the gradient sees: half the memory where it will do. */
static gd_dtype index_dtype(const gd_tensor *x, int n) {
    int64_t plane = 1;
    for (int d = x->rank - n; d < x->rank; d++)
        if (!gd_mul_i64(plane, x->dims[d], &plane)) return GD_I64;
    return plane <= INT32_MAX ? GD_I32 : GD_I64;
}

/* --- maxima ----------------------------------------------------------------------------------- */

static gd_status infer_pool(gd_infer *i, int n) {
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    options o;
    GD_TRY(read_options(i->op, i->attrs, n, &o));
    GD_TRY(check_options(&o, n));
    GD_TRY(need_planes(x, "x", n));
    gd_meta_like(y, x);
    for (int d = 0; d < n; d++)
        GD_TRY(output_size(&o, AXES - n + d, x->dims[x->rank - n + d], &y->dims[x->rank - n + d]));
    if (i->n_out > 1) {
        i->out[1] = *y;
        i->out[1].dtype = i->op->outputs[1].hidden ? index_dtype(x, n) : GD_I64;
    }
    return GD_OK;
}

static void max_vjp(gd_vjp *v, int n) {
    v->gx[0] = gd_pool_scatter(v->gy[0], v->y[1], spatial(v->x[0], n));
}

/* The first of the largest elements of each window, but a NaN wins over all before it, as in
 * PyTorch; -1, and the smallest number, where a window has no elements. */
#define DEFINE_MAX(name, type, smallest, is_nan)                                                   \
    static void name(const gd_pool *p, const type *x, type *y, int64_t *places_of) {               \
        const int64_t in = places(p->in), out = places(p->out);                                    \
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
            if (places_of) places_of[i] = best_at;                                                 \
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

/*op max_pool1d(x) -> y, indices~
 * The largest element of each window of x (N,C,L) or (C,L).
 *   kernel    int[1] = none      size of the window
 *   stride    int[1] = none      step between windows; none: their size
 *   padding   int[1] = 0         elements on each side that never win
 *   dilation  int[1] = 1         step between the elements of a window
 *   ceil_mode bool = false       also a last window that is not full
 *   saves indices
 *   gives indices < x[-1:] or -1
 *   onnx MaxPool
 */
static gd_status max_pool1d_infer(gd_infer *i) { return infer_pool(i, 1); }
static void max_pool1d_vjp(gd_vjp *v) { max_vjp(v, 1); }
static gd_status max_pool1d_reference(gd_kernel_call *k) { return run_max(k); }

/*op max_pool2d(x) -> y, indices~
 * The largest element of each window of x (N,C,H,W) or (C,H,W).
 *   kernel    int[2] = none      size of the window
 *   stride    int[2] = none      step between windows; none: their size
 *   padding   int[2] = 0         elements on each side that never win
 *   dilation  int[2] = 1         step between the elements of a window
 *   ceil_mode bool = false       also a last window that is not full
 *   saves indices
 *   gives indices < x[-2:] or -1
 *   onnx MaxPool   caffe Pooling
 */
static gd_status max_pool2d_infer(gd_infer *i) { return infer_pool(i, 2); }
static void max_pool2d_vjp(gd_vjp *v) { max_vjp(v, 2); }
static gd_status max_pool2d_reference(gd_kernel_call *k) { return run_max(k); }

/*op max_pool3d(x) -> y, indices~
 * The largest element of each window of x (N,C,D,H,W) or (C,D,H,W).
 *   kernel    int[3] = none      size of the window
 *   stride    int[3] = none      step between windows; none: their size
 *   padding   int[3] = 0         elements on each side that never win
 *   dilation  int[3] = 1         step between the elements of a window
 *   ceil_mode bool = false       also a last window that is not full
 *   saves indices
 *   gives indices < x[-3:] or -1
 *   onnx MaxPool
 */
static gd_status max_pool3d_infer(gd_infer *i) { return infer_pool(i, 3); }
static void max_pool3d_vjp(gd_vjp *v) { max_vjp(v, 3); }
static gd_status max_pool3d_reference(gd_kernel_call *k) { return run_max(k); }

/*op max_pool1d_with_indices(x) -> y, indices
 * max_pool1d, and where in its plane of x each result was found (-1: in an empty window).
 *   kernel    int[1] = none      size of the window
 *   stride    int[1] = none      step between windows; none: their size
 *   padding   int[1] = 0         elements on each side that never win
 *   dilation  int[1] = 1         step between the elements of a window
 *   ceil_mode bool = false       also a last window that is not full
 *   saves indices
 *   gives indices < x[-1:] or -1
 */
static gd_status max_pool1d_with_indices_infer(gd_infer *i) { return infer_pool(i, 1); }
static void max_pool1d_with_indices_vjp(gd_vjp *v) { max_vjp(v, 1); }
static gd_status max_pool1d_with_indices_reference(gd_kernel_call *k) { return run_max(k); }

/*op max_pool2d_with_indices(x) -> y, indices
 * max_pool2d, and where in its plane of x each result was found: row times width plus column (-1:
 * in an empty window).
 *   kernel    int[2] = none      size of the window
 *   stride    int[2] = none      step between windows; none: their size
 *   padding   int[2] = 0         elements on each side that never win
 *   dilation  int[2] = 1         step between the elements of a window
 *   ceil_mode bool = false       also a last window that is not full
 *   saves indices
 *   gives indices < x[-2:] or -1
 */
static gd_status max_pool2d_with_indices_infer(gd_infer *i) { return infer_pool(i, 2); }
static void max_pool2d_with_indices_vjp(gd_vjp *v) { max_vjp(v, 2); }
static gd_status max_pool2d_with_indices_reference(gd_kernel_call *k) { return run_max(k); }

/*op max_pool3d_with_indices(x) -> y, indices
 * max_pool3d, and where in its volume of x each result was found (-1: in an empty window).
 *   kernel    int[3] = none      size of the window
 *   stride    int[3] = none      step between windows; none: their size
 *   padding   int[3] = 0         elements on each side that never win
 *   dilation  int[3] = 1         step between the elements of a window
 *   ceil_mode bool = false       also a last window that is not full
 *   saves indices
 *   gives indices < x[-3:] or -1
 */
static gd_status max_pool3d_with_indices_infer(gd_infer *i) { return infer_pool(i, 3); }
static void max_pool3d_with_indices_vjp(gd_vjp *v) { max_vjp(v, 3); }
static gd_status max_pool3d_with_indices_reference(gd_kernel_call *k) { return run_max(k); }

/* --- averages --------------------------------------------------------------------------------- */

/* What the sum of a window is divided by. */
static int64_t divisor_of(const gd_pool *p, const gd_pool_window *d, const gd_pool_window *h,
                          const gd_pool_window *w) {
    return p->divisor ? p->divisor : d->size * h->size * w->size;
}

static double divide_f64(double sum, double divisor) { return sum / divisor; }
static int64_t divide_i64(int64_t sum, int64_t divisor) { /* the smallest number has no negative */
    return divisor == -1 ? (int64_t)(0 - (uint64_t)sum) : sum / divisor;
}

/* Averages of x into y; or, the other way round, y / divisor added to each element of x. Averages
 * of whole numbers are cut towards zero, and sums wrap. */
#define DEFINE_AVERAGE(name, type, sum_type, divide)                                             \
    static void name(const gd_pool *p, bool back, type *x, type *y) {                            \
        const int64_t in = places(p->in), out = places(p->out);                                  \
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

static void average_vjp(gd_vjp *v, int n) {
    options o;
    read_options(v->op, v->attrs, n, &o);
    v->gx[0] = gd_avg_pool_grad(v->gy[0], spatial(v->x[0], n), list_of(o.kernel, n),
                                list_of(o.stride, n), list_of(o.padding, n), o.ceil_mode,
                                o.count_include_pad, o.divisor ? o.divisor : GD_UNSET);
}

/*op avg_pool1d(x) -> y
 * The average of each window of x (N,C,L) or (C,L).
 *   kernel    int[1] = none          size of the window
 *   stride    int[1] = none          step between windows; none: their size
 *   padding   int[1] = 0             zeros on each side
 *   ceil_mode bool = false           also a last window that is not full
 *   count_include_pad bool = true    zeros of the padding count
 *   divisor_override int = none      what sums are divided by, instead of the window's size
 *   saves nothing
 *   onnx AveragePool
 */
static gd_status avg_pool1d_infer(gd_infer *i) { return infer_pool(i, 1); }
static void avg_pool1d_vjp(gd_vjp *v) { average_vjp(v, 1); }
static gd_status avg_pool1d_reference(gd_kernel_call *k) { return run_average(k, false); }

/*op avg_pool2d(x) -> y
 * The average of each window of x (N,C,H,W) or (C,H,W).
 *   kernel    int[2] = none          size of the window
 *   stride    int[2] = none          step between windows; none: their size
 *   padding   int[2] = 0             zeros on each side
 *   ceil_mode bool = false           also a last window that is not full
 *   count_include_pad bool = true    zeros of the padding count
 *   divisor_override int = none      what sums are divided by, instead of the window's size
 *   saves nothing
 *   onnx AveragePool   caffe Pooling
 */
static gd_status avg_pool2d_infer(gd_infer *i) { return infer_pool(i, 2); }
static void avg_pool2d_vjp(gd_vjp *v) { average_vjp(v, 2); }
static gd_status avg_pool2d_reference(gd_kernel_call *k) { return run_average(k, false); }

/*op avg_pool3d(x) -> y
 * The average of each window of x (N,C,D,H,W) or (C,D,H,W).
 *   kernel    int[3] = none          size of the window
 *   stride    int[3] = none          step between windows; none: their size
 *   padding   int[3] = 0             zeros on each side
 *   ceil_mode bool = false           also a last window that is not full
 *   count_include_pad bool = true    zeros of the padding count
 *   divisor_override int = none      what sums are divided by, instead of the window's size
 *   saves nothing
 *   onnx AveragePool
 */
static gd_status avg_pool3d_infer(gd_infer *i) { return infer_pool(i, 3); }
static void avg_pool3d_vjp(gd_vjp *v) { average_vjp(v, 3); }
static gd_status avg_pool3d_reference(gd_kernel_call *k) { return run_average(k, false); }

/* --- adaptive --------------------------------------------------------------------------------- */

static gd_status infer_adaptive(gd_infer *i, int n) {
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    options o;
    GD_TRY(read_options(i->op, i->attrs, n, &o));
    GD_TRY(need_planes(x, "x", n));
    GD_TRY(gd_need_float(x, "x"));
    gd_meta_like(y, x);
    for (int d = 0; d < n; d++) {
        int64_t size = o.size[AXES - n + d], *out = &y->dims[x->rank - n + d], unused;
        if (size == GD_UNSET) return gd_op_fail(GD_E_ARGUMENT, "size, of the result, is not given");
        if (size < -1)
            return gd_op_fail(GD_E_ARGUMENT, "size is %lld; it must not be negative, but for -1",
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

/*op adaptive_avg_pool1d(x) -> y
 * Averages over as many windows of nearly equal size as the result shall have: x (N,C,L) or (C,L).
 *   size int[1] = none  of the result; -1 keeps that of x
 *   saves nothing
 */
static gd_status adaptive_avg_pool1d_infer(gd_infer *i) { return infer_adaptive(i, 1); }
static void adaptive_avg_pool1d_vjp(gd_vjp *v) {
    v->gx[0] = gd_adaptive_avg_pool_grad(v->gy[0], spatial(v->x[0], 1));
}
static gd_status adaptive_avg_pool1d_reference(gd_kernel_call *k) { return run_average(k, false); }

/*op adaptive_avg_pool2d(x) -> y
 * Averages over as many windows of nearly equal size as the result shall have: x (N,C,H,W) or
 * (C,H,W).
 *   size int[2] = none  of the result; -1 keeps that of x
 *   saves nothing
 */
static gd_status adaptive_avg_pool2d_infer(gd_infer *i) { return infer_adaptive(i, 2); }
static void adaptive_avg_pool2d_vjp(gd_vjp *v) {
    v->gx[0] = gd_adaptive_avg_pool_grad(v->gy[0], spatial(v->x[0], 2));
}
static gd_status adaptive_avg_pool2d_reference(gd_kernel_call *k) { return run_average(k, false); }

/*op adaptive_avg_pool3d(x) -> y
 * Averages over as many windows of nearly equal size as the result shall have: x (N,C,D,H,W) or
 * (C,D,H,W).
 *   size int[3] = none  of the result; -1 keeps that of x
 *   saves nothing
 */
static gd_status adaptive_avg_pool3d_infer(gd_infer *i) { return infer_adaptive(i, 3); }
static void adaptive_avg_pool3d_vjp(gd_vjp *v) {
    v->gx[0] = gd_adaptive_avg_pool_grad(v->gy[0], spatial(v->x[0], 3));
}
static gd_status adaptive_avg_pool3d_reference(gd_kernel_call *k) { return run_average(k, false); }

/*op adaptive_max_pool1d(x) -> y, indices~
 * The largest elements of as many windows of nearly equal size as the result shall have: x (N,C,L)
 * or (C,L).
 *   size int[1] = none  of the result; -1 keeps that of x
 *   saves indices
 *   gives indices < x[-1:] or -1
 */
static gd_status adaptive_max_pool1d_infer(gd_infer *i) { return infer_adaptive(i, 1); }
static void adaptive_max_pool1d_vjp(gd_vjp *v) { max_vjp(v, 1); }
static gd_status adaptive_max_pool1d_reference(gd_kernel_call *k) { return run_max(k); }

/*op adaptive_max_pool2d(x) -> y, indices~
 * The largest elements of as many windows of nearly equal size as the result shall have:
 * x (N,C,H,W) or (C,H,W).
 *   size int[2] = none  of the result; -1 keeps that of x
 *   saves indices
 *   gives indices < x[-2:] or -1
 */
static gd_status adaptive_max_pool2d_infer(gd_infer *i) { return infer_adaptive(i, 2); }
static void adaptive_max_pool2d_vjp(gd_vjp *v) { max_vjp(v, 2); }
static gd_status adaptive_max_pool2d_reference(gd_kernel_call *k) { return run_max(k); }

/*op adaptive_max_pool3d(x) -> y, indices~
 * The largest elements of as many windows of nearly equal size as the result shall have:
 * x (N,C,D,H,W) or (C,D,H,W).
 *   size int[3] = none  of the result; -1 keeps that of x
 *   saves indices
 *   gives indices < x[-3:] or -1
 */
static gd_status adaptive_max_pool3d_infer(gd_infer *i) { return infer_adaptive(i, 3); }
static void adaptive_max_pool3d_vjp(gd_vjp *v) { max_vjp(v, 3); }
static gd_status adaptive_max_pool3d_reference(gd_kernel_call *k) { return run_max(k); }

/*op adaptive_max_pool1d_with_indices(x) -> y, indices
 * adaptive_max_pool1d, and where in its plane of x each result was found.
 *   size int[1] = none  of the result; -1 keeps that of x
 *   saves indices
 *   gives indices < x[-1:] or -1
 */
static gd_status adaptive_max_pool1d_with_indices_infer(gd_infer *i) {
    return infer_adaptive(i, 1);
}
static void adaptive_max_pool1d_with_indices_vjp(gd_vjp *v) { max_vjp(v, 1); }
static gd_status adaptive_max_pool1d_with_indices_reference(gd_kernel_call *k) {
    return run_max(k);
}

/*op adaptive_max_pool2d_with_indices(x) -> y, indices
 * adaptive_max_pool2d, and where in its plane of x each result was found: row times width plus column.
 *   size int[2] = none  of the result; -1 keeps that of x
 *   saves indices
 *   gives indices < x[-2:] or -1
 */
static gd_status adaptive_max_pool2d_with_indices_infer(gd_infer *i) {
    return infer_adaptive(i, 2);
}
static void adaptive_max_pool2d_with_indices_vjp(gd_vjp *v) { max_vjp(v, 2); }
static gd_status adaptive_max_pool2d_with_indices_reference(gd_kernel_call *k) {
    return run_max(k);
}

/*op adaptive_max_pool3d_with_indices(x) -> y, indices
 * adaptive_max_pool3d, and where in its volume of x each result was found.
 *   size int[3] = none  of the result; -1 keeps that of x
 *   saves indices
 *   gives indices < x[-3:] or -1
 */
static gd_status adaptive_max_pool3d_with_indices_infer(gd_infer *i) {
    return infer_adaptive(i, 3);
}
static void adaptive_max_pool3d_with_indices_vjp(gd_vjp *v) { max_vjp(v, 3); }
static gd_status adaptive_max_pool3d_with_indices_reference(gd_kernel_call *k) {
    return run_max(k);
}

/* --- global ----------------------------------------------------------------------------------- */

/*op global_avg_pool(x) -> y
 * The average of each channel of x (N,C,L), (N,C,H,W) or (N,C,D,H,W); its axes stay, with size 1.
 *   onnx GlobalAveragePool
 */
static void global_avg_pool_expand(gd_expand *e) {
    gd_tensor *x = e->x[0];
    e->y[0] = x->rank <= 3   ? gd_adaptive_avg_pool1d(x, .size = 1)
              : x->rank == 4 ? gd_adaptive_avg_pool2d(x, .size = 1)
                             : gd_adaptive_avg_pool3d(x, .size = 1);
}

/*op global_max_pool(x) -> y
 * The largest element of each channel of x (N,C,L), (N,C,H,W) or (N,C,D,H,W); its axes stay, with
 * size 1.
 *   onnx GlobalMaxPool
 */
static void global_max_pool_expand(gd_expand *e) {
    gd_tensor *x = e->x[0];
    e->y[0] = x->rank <= 3   ? gd_adaptive_max_pool1d(x, .size = 1)
              : x->rank == 4 ? gd_adaptive_max_pool2d(x, .size = 1)
                             : gd_adaptive_max_pool3d(x, .size = 1);
}

/* --- gradients -------------------------------------------------------------------------------- */

/* The rank of the planes of an internal op, from its attribute `dims`. */
static gd_status read_dims(const gd_shape *dims, int *n) {
    *n = dims->rank;
    if (*n < 1 || *n > AXES)
        return gd_op_fail(GD_E_ARGUMENT, "dims has %d numbers; one to three axes are known", *n);
    for (int d = 0; d < *n; d++)
        if (dims->at[d] < 1)
            return gd_op_fail(GD_E_ARGUMENT, "dims has the size %lld; it must be at least 1",
                              (long long)dims->at[d]);
    return GD_OK;
}

/*op avg_pool_grad(gy, dims:int[], kernel:int[], stride:int[], padding:int[], ceil_mode:bool, count_include_pad:bool, divisor_override:int) -> gx  internal
 * The gradient of an average pooling by its input, which has the spatial sizes dims.
 *   saves nothing
 */
static gd_status avg_pool_grad_infer(gd_infer *i) {
    const gd_avg_pool_grad_options *a = i->attrs;
    const gd_tensor *gy = i->in[0];
    options o;
    int n;
    GD_TRY(read_dims(&a->dims, &n));
    GD_TRY(read_options(i->op, i->attrs, n, &o));
    GD_TRY(check_options(&o, n));
    GD_TRY(need_planes(gy, "gy", n));
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
    const gd_avg_pool_grad_options *a = v->attrs;
    const int64_t *k = a->kernel.at, *s = a->stride.at, *p = a->padding.at;
    gd_tensor *g = v->gy[0];
    if (a->dims.rank == 1)
        v->gx[0] =
            gd_avg_pool1d(g, .kernel = {{k[0]}}, .stride = {{s[0]}}, .padding = {{p[0]}},
                          .ceil_mode = a->ceil_mode, .count_include_pad = a->count_include_pad,
                          .divisor_override = a->divisor_override);
    else if (a->dims.rank == 2)
        v->gx[0] = gd_avg_pool2d(g, .kernel = {{k[0], k[1]}}, .stride = {{s[0], s[1]}},
                                 .padding = {{p[0], p[1]}}, .ceil_mode = a->ceil_mode,
                                 .count_include_pad = a->count_include_pad,
                                 .divisor_override = a->divisor_override);
    else
        v->gx[0] = gd_avg_pool3d(g, .kernel = {{k[0], k[1], k[2]}}, .stride = {{s[0], s[1], s[2]}},
                                 .padding = {{p[0], p[1], p[2]}}, .ceil_mode = a->ceil_mode,
                                 .count_include_pad = a->count_include_pad,
                                 .divisor_override = a->divisor_override);
}

/*op adaptive_avg_pool_grad(gy, dims:int[]) -> gx  internal
 * The gradient of an adaptive average pooling by its input, which has the spatial sizes dims.
 *   saves nothing
 */
static gd_status adaptive_avg_pool_grad_infer(gd_infer *i) {
    const gd_adaptive_avg_pool_grad_options *a = i->attrs;
    const gd_tensor *gy = i->in[0];
    int n;
    GD_TRY(read_dims(&a->dims, &n));
    GD_TRY(need_planes(gy, "gy", n));
    GD_TRY(gd_need_float(gy, "gy"));
    gd_meta_like(&i->out[0], gy);
    for (int d = 0; d < n; d++) {
        int64_t unused, at = a->dims.at[d];
        if (at < 1 || !gd_mul_i64(gy->dims[gy->rank - n + d] + 1, at, &unused))
            return gd_op_fail(GD_E_ARGUMENT, "dims has the size %lld", (long long)at);
        i->out[0].dims[gy->rank - n + d] = at;
    }
    return GD_OK;
}
static gd_status adaptive_avg_pool_grad_reference(gd_kernel_call *k) {
    return run_average(k, true);
}
static void adaptive_avg_pool_grad_vjp(gd_vjp *v) {
    const gd_adaptive_avg_pool_grad_options *a = v->attrs;
    int n = a->dims.rank;
    const int64_t *s = v->x[0]->dims + v->x[0]->rank - n;
    gd_tensor *g = v->gy[0];
    v->gx[0] = n == 1   ? gd_adaptive_avg_pool1d(g, .size = {{s[0]}})
               : n == 2 ? gd_adaptive_avg_pool2d(g, .size = {{s[0], s[1]}})
                        : gd_adaptive_avg_pool3d(g, .size = {{s[0], s[1], s[2]}});
}

/* The places must belong to the planes: the same leading dimensions on both sides. */
static gd_status need_places(const gd_tensor *x, const gd_tensor *indices, int n) {
    GD_TRY(gd_need_int(indices, "indices"));
    bool fits = indices->rank == x->rank && x->rank > n;
    for (int d = 0; fits && d < x->rank - n; d++) fits = indices->dims[d] == x->dims[d];
    return fits
               ? GD_OK
               : gd_op_fail(GD_E_SHAPE, "'indices' must have the batch and channels of the planes");
}

static gd_status bad_place(int64_t at, int64_t plane) {
    return gd_fail(GD_E_INDEX, "place %lld in a plane of %lld elements", (long long)at,
                   (long long)plane);
}

static int64_t plane_size(const gd_view *x, int n) {
    int64_t size = 1;
    for (int d = x->rank - n; d < x->rank; d++) size *= x->dims[d];
    return size;
}

/*op pool_scatter(gy, indices, dims:int[]) -> gx  internal
 * Zeros with the spatial sizes dims, to which each element of gy is added at its place: the
 * gradient of a maximum. Place -1 is nowhere.
 *   saves indices
 *   index indices < dims[0:] or -1
 */
static gd_status pool_scatter_infer(gd_infer *i) {
    const gd_pool_scatter_options *a = i->attrs;
    const gd_tensor *gy = i->in[0], *indices = i->in[1];
    int n;
    GD_TRY(read_dims(&a->dims, &n));
    GD_TRY(need_places(gy, indices, 0));
    if (gy->rank <= n)
        return gd_op_fail(GD_E_SHAPE, "'gy' has %d dimensions, dims %d", gy->rank, n);
    gd_meta_like(&i->out[0], gy);
    memcpy(i->out[0].dims + gy->rank - n, a->dims.at, (size_t)n * sizeof *a->dims.at);
    return GD_OK;
}
static void pool_scatter_vjp(gd_vjp *v) {
    const gd_pool_scatter_options *a = v->attrs;
    if (v->needs[0]) v->gx[0] = gd_pool_gather(v->gy[0], v->x[1], a->dims.rank);
}
static gd_status pool_scatter_reference(gd_kernel_call *k) {
    const gd_pool_scatter_options *a = k->attrs;
    const gd_view *gy = &k->in[0], *gx = &k->out[0];
    const int64_t *at = k->in[1].data, n = gd_numel(gy->rank, gy->dims),
                  total = gd_numel(gx->rank, gx->dims);
    const int64_t from = plane_size(gy, a->dims.rank), to = plane_size(gx, a->dims.rank);
    memset(gx->data, 0, (size_t)total * 8);
    for (int64_t i = 0; i < n; i++) {
        if (at[i] == -1) continue;
        if (at[i] < 0 || at[i] >= to) return bad_place(at[i], to);
        int64_t place = i / from * to + at[i];
        if (gy->dtype == GD_F64) ((double *)gx->data)[place] += ((const double *)gy->data)[i];
        else ((uint64_t *)gx->data)[place] += ((const uint64_t *)gy->data)[i];
    }
    return GD_OK;
}

/*op pool_gather(x, indices, axes:int) -> y  internal
 * The elements of x at their places in planes of so many axes: what max pooling does, once it is
 * known who wins. Place -1 gives 0.
 *   saves indices
 */
static gd_status pool_gather_infer(gd_infer *i) {
    const gd_pool_gather_options *a = i->attrs;
    if (a->axes < 1 || a->axes > AXES)
        return gd_op_fail(GD_E_ARGUMENT, "axes is %lld; one to three are known",
                          (long long)a->axes);
    GD_TRY(need_places(i->in[0], i->in[1], (int)a->axes));
    for (int d = i->in[0]->rank - (int)a->axes; d < i->in[0]->rank; d++)
        if (i->in[0]->dims[d] < 1) return gd_op_fail(GD_E_SHAPE, "axis %d of 'x' is empty", d);
    gd_meta_like(&i->out[0], i->in[1]);
    i->out[0].dtype = (gd_dtype)i->in[0]->dtype;
    return GD_OK;
}
static void pool_gather_vjp(gd_vjp *v) {
    const gd_pool_gather_options *a = v->attrs;
    if (v->needs[0]) v->gx[0] = gd_pool_scatter(v->gy[0], v->x[1], spatial(v->x[0], (int)a->axes));
}
static gd_status pool_gather_reference(gd_kernel_call *k) {
    const gd_pool_gather_options *a = k->attrs;
    const gd_view *x = &k->in[0], *y = &k->out[0];
    const int64_t *at = k->in[1].data, n = gd_numel(y->rank, y->dims);
    const int64_t from = plane_size(x, (int)a->axes), to = plane_size(y, (int)a->axes);
    for (int64_t i = 0; i < n; i++) {
        if (at[i] < -1 || at[i] >= from) return bad_place(at[i], from);
        /* 8 bytes whatever the type */
        ((uint64_t *)y->data)[i] =
            at[i] < 0 ? 0 : ((const uint64_t *)x->data)[i / to * from + at[i]];
    }
    return GD_OK;
}

#include "pooling.gen.h"
