/* norm_local_response.c - local response normalization, by neighbouring channels or positions. */
#include <string.h>

#include "core/copy.h"
#include "core/error.h"
#include "core/thread.h"
#include "gradus/ops.h"
#include "dispatch/infer.h"
#include "ops/windows/windows_spatial.h"

/*op response_norm(x, sum, scale:float, beta:float, k:float) -> y  elementwise internal
 * x / (k + scale * sum)^beta.
 *   y = x / pow(k + scale * sum, beta)
 */

/* The mean of the window around each element, in its own channel; the size is odd. */
static gd_tensor *plane_means(gd_tensor *x, int64_t size) {
    const int64_t pad = size / 2;
    if (x->rank == 3)
        return gd_avg_pool1d(x, .kernel = {{size}}, .stride = {{1}}, .padding = {{pad}});
    if (x->rank == 4)
        return gd_avg_pool2d(x, .kernel = {{size, size}}, .stride = {{1, 1}},
                             .padding = {{pad, pad}});
    return gd_avg_pool3d(x, .kernel = {{size, size, size}}, .stride = {{1, 1, 1}},
                         .padding = {{pad, pad, pad}});
}

/*op local_response_norm(x, size:int) -> y  fullp
 * Divides each element of x (N,C,...) by (k + alpha m)^beta, where m is the mean of the squares in
 * a window around it: `size` neighbouring channels, or with region `within`, a window of that size
 * in each spatial dimension of its own channel. Elements outside x count as 0.
 *   alpha float = 1e-4
 *   beta float = 0.75
 *   k float = 1
 *   region {across, within} = across  the window covers channels, or spatial dimensions
 *   onnx LRN size=size alpha=alpha beta=beta bias=k  when region=across
 *   python (x, size, alpha, beta, k)
 */
static void local_response_norm_expand(gd_expansion *e) {
    const gd_local_response_norm_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    if (!gd_dtype_is_float((gd_dtype)x->dtype) || x->rank < (o->region == GD_WITHIN ? 3 : 2) ||
        o->size < 1) {
        if (o->size < 1)
            gd_op_fail(GD_E_ARGUMENT, "size is %lld, and must be at least 1", (long long)o->size);
        else if (gd_need_float(x, "x") == GD_OK) gd_op_fail(GD_E_SHAPE, "'x' must be (N,C,...)");
        e->y[0] = &gd_error_tensor;
        return;
    }
    gd_tensor *sum = gd_square(x);
    if (o->region == GD_WITHIN && o->size % 2 == 1 && x->rank <= 5 && gd_tensor_numel(x) > 0) {
        e->y[0] = gd_response_norm(x, plane_means(sum, o->size), o->alpha, o->beta, o->k);
        return;
    }
    double count = (double)o->size;
    if (o->region == GD_ACROSS) sum = gd_window_sum(sum, 1, o->size, o->size / 2);
    else {
        count = 1;
        for (int k = 2; k < x->rank; k++) {
            sum = gd_window_sum(sum, k, o->size, o->size / 2);
            count *= (double)o->size;
        }
    }
    e->y[0] = gd_response_norm(x, sum, o->alpha / count, o->beta, o->k);
}

/*op window_sum(x, axis:int, size:int, before:int) -> y  internal
 * The sum of a window of `size` elements along an axis. The window of element e begins at e -
 * before; elements outside x count as 0.
 *   saves nothing
 */
static gd_status window_sum_infer(gd_infer *i) {
    const gd_window_sum_options *o = i->attrs;
    int k;
    GD_TRY(gd_axis(o->axis, i->in[0]->rank, &k));
    if (o->size < 0 || o->size > INT32_MAX || o->before < -INT32_MAX || o->before > INT32_MAX)
        return gd_op_fail(GD_E_ARGUMENT,
                          "size is %lld and before is %lld; size must be at least 0, and both at "
                          "most %d",
                          (long long)o->size, (long long)o->before, INT32_MAX);
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}
static void window_sum_vjp(gd_vjp *v) {
    const gd_window_sum_options *o = v->attrs;
    v->gx[0] = gd_window_sum(v->gy[0], o->axis, o->size, o->size - 1 - o->before);
}
static gd_status window_sum_reference(gd_kernel_call *k) {
    const gd_window_sum_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    int64_t n = 1, inner = 1, total = gd_numel(x->rank, x->dims);
    int axis = (int)(o->axis < 0 ? o->axis + x->rank : o->axis);
    for (int d = axis; d < x->rank; d++) (d == axis ? (n = x->dims[d]) : (inner *= x->dims[d]));
    for (int64_t e = 0; e < total; e++) {
        int64_t at = e / inner % n, first = at - o->before, end = first + o->size;
        double sum = 0;
        for (int64_t t = first < 0 ? 0 : first; t < end && t < n; t++)
            sum += gd_load_f64(x->dtype, (const char *)x->data + 8 * (e + (t - at) * inner));
        gd_store_f64(k->out[0].dtype, (char *)k->out[0].data + 8 * e, sum);
    }
    return GD_OK;
}
/* Leaves out the taps of the window that lie outside x for every element. At most 2n - 1 taps
 * remain, however large the window is. */
static void window_sum_expand(gd_expansion *e) {
    const gd_window_sum_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    const int axis = (int)(o->axis < 0 ? o->axis + x->rank : o->axis);
    const int64_t n = x->rank ? x->dims[axis] : 1;
    const int64_t first = o->before > n - 1 ? o->before - (n - 1) : 0;
    const int64_t end = o->size < o->before + n ? o->size : o->before + n;
    const gd_window_form f = {.before = {[2] = o->before - first},
                              .count = {[2] = n},
                              .size = {[2] = end - first},
                              .step = {[2] = 1},
                              .dilation = {[2] = 1}};
    if (end <= first || n == 0) {
        e->y[0] = gd_zeros_like(x);
        return;
    }
    gd_tensor *y = x->rank ? gd_movedim(gd_widen(x), gd_dims(axis), gd_dims(-1))
                           : gd_reshape(gd_widen(x), gd_dims(1));
    y = gd_sum(gd_window_views(y, &f, 1), .axis = gd_dims(-1));
    y = x->rank ? gd_movedim(y, gd_dims(-1), gd_dims(axis)) : gd_reshape(y, gd_dims());
    e->y[0] = gd_as_dtype(y, (gd_dtype)x->dtype);
}

#include "ops/norm/norm_local_response.gen.h"
