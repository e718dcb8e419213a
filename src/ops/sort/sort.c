/* sort.c - sort, argsort and topk along an axis.
 *
 * Sorting is always stable: equal elements, also 0 and -0, keep their order. NaN counts as larger
 * than all numbers.
 */
#include <math.h>
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "ops/index/index.h"
#include "dispatch/infer.h"

/* --- reference kernels ------------------------------------------------------------------------ */

/* The elements of one line along the axis. */
typedef struct {
    gd_dtype dtype;
    const char *data;
    int64_t step; /* bytes between elements */
    bool descending;
} sort_line;

/* Whether element a must come before element b. */
static bool comes_before(const sort_line *l, int64_t a, int64_t b) {
    const char *p = l->data + (l->descending ? b : a) * l->step,
               *q = l->data + (l->descending ? a : b) * l->step;
    if (!gd_dtype_is_float(l->dtype)) return gd_load_i64(l->dtype, p) < gd_load_i64(l->dtype, q);
    double x = gd_load_f64(l->dtype, p), y = gd_load_f64(l->dtype, q);
    return x < y || (!isnan(x) && isnan(y));
}

/* The positions 0 to n - 1 sorted by their elements, with a merge sort. `order` and `spare` have
 * room for n; the result is one of them. */
static int64_t *merge_sort(const sort_line *l, int64_t n, int64_t *order, int64_t *spare) {
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t start = 0; start < n; start += 2 * width) {
            int64_t middle = start + width < n ? start + width : n,
                    end = start + 2 * width < n ? start + 2 * width : n;
            for (int64_t i = start, j = middle, to = start; to < end; to++)
                spare[to] = j == end || (i < middle && !comes_before(l, order[j], order[i]))
                                ? order[i++]
                                : order[j++];
        }
        int64_t *t = order;
        order = spare;
        spare = t;
    }
    return order;
}

/* The workspace of merge_sort: two lists of positions. */
static size_t order_bytes(const gd_view *x, int64_t axis) {
    const int64_t n = x->rank ? x->dims[axis < 0 ? axis + x->rank : axis] : 1;
    return 2 * (size_t)n * sizeof(int64_t);
}

/* Writes the first `count` elements of each sorted line of x, as values and positions. */
static gd_status sort_lines(gd_kernel_call *k, int64_t given_axis, int64_t count, bool descending) {
    gd_view x = gd_at_least_1d(k->in[0]), values = gd_at_least_1d(k->out[0]),
            indices = gd_at_least_1d(k->out[1]);
    int axis = (int)(given_axis < 0 ? given_axis + x.rank : given_axis);
    int64_t n = x.dims[axis], size = (int64_t)gd_dtype_size(x.dtype);
    int64_t *order = k->workspace;
    sort_line l = {.dtype = x.dtype, .step = x.strides[axis] * size, .descending = descending};
    x.dims[axis] = 1;
    int64_t lines = gd_numel(x.rank, x.dims);
    for (int64_t e = 0; e < lines; e++) {
        int64_t from = 0, to = 0, to_index = 0, rest = e;
        for (int d = x.rank; d-- > 0;) {
            int64_t i = rest % x.dims[d];
            rest /= x.dims[d];
            from += i * x.strides[d];
            to += i * values.strides[d];
            to_index += i * indices.strides[d];
        }
        l.data = (const char *)x.data + from * size;
        const int64_t *sorted = merge_sort(&l, n, order, order + n);
        for (int64_t i = 0; i < count; i++) {
            memcpy((char *)values.data + (to + i * values.strides[axis]) * size,
                   l.data + sorted[i] * l.step, (size_t)size);
            ((int64_t *)indices.data)[to_index + i * indices.strides[axis]] = sorted[i];
        }
    }
    return GD_OK;
}

/* Adds the gradient of each result to the element of x that it was. */
static gd_tensor *unsort_gradient(gd_vjp *v, int64_t axis) {
    const gd_tensor *x = v->x[0];
    return gd_scatter_add(gd_zeros_on(x, (gd_dtype)x->dtype, gd_tensor_shape(x)), axis, v->y[1],
                          v->gy[0]);
}

/* --- sort ------------------------------------------------------------------------------------- */

/*op sort(x) -> values, indices  heavy
 * The elements sorted along an axis, and the index that each had in x.
 *   axis int = -1
 *   descending bool = false  largest first
 *   stable bool = true       no effect: sorting is always stable
 *   saves indices
 *   gives indices < x[axis]
 */
static gd_status sort_infer(gd_infer *i) {
    const gd_sort_options *o = i->attrs;
    int axis;
    GD_TRY(gd_axis(o->axis, i->in[0]->rank, &axis));
    gd_meta_like(&i->out[0], i->in[0]);
    gd_meta_like(&i->out[1], i->in[0]);
    i->out[1].dtype = GD_I64;
    return GD_OK;
}
static void sort_vjp(gd_vjp *v) {
    v->gx[0] = unsort_gradient(v, ((const gd_sort_options *)v->attrs)->axis);
}
static size_t sort_workspace(const gd_kernel_call *k) {
    return order_bytes(&k->in[0], ((const gd_sort_options *)k->attrs)->axis);
}
static gd_status sort_raw(gd_kernel_call *k) {
    const gd_sort_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    int64_t n = x->rank ? x->dims[o->axis < 0 ? o->axis + x->rank : o->axis] : 1;
    return sort_lines(k, o->axis, n, o->descending);
}

/*op argsort(x) -> indices  nograd heavy
 * The indices that sort x along an axis.
 *   axis int = -1
 *   descending bool = false  largest first
 *   stable bool = true       no effect: sorting is always stable
 */
static void argsort_expand(gd_expansion *e) {
    const gd_argsort_options *o = e->attrs;
    e->y[0] =
        gd_sort(e->x[0], .axis = o->axis, .descending = o->descending, .stable = o->stable).indices;
}

/* --- topk ------------------------------------------------------------------------------------- */

/*op topk(x, k:int) -> values, indices  heavy
 * The k largest (or smallest) elements along an axis, sorted, and their indices in x. Among equal
 * elements the first are taken.
 *   axis int = -1
 *   largest bool = true
 *   sorted bool = true  no effect: results are always sorted
 *   saves indices
 *   gives indices < x[axis]
 *   onnx TopK
 */
static gd_status topk_infer(gd_infer *i) {
    const gd_topk_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    int axis;
    GD_TRY(gd_axis(o->axis, x->rank, &axis));
    int64_t n = x->rank ? x->dims[axis] : 1;
    if (o->k < 0 || o->k > n)
        return gd_op_fail(GD_E_ARGUMENT,
                          "k is %lld; it must be from 0 to %lld, the size of axis %d",
                          (long long)o->k, (long long)n, axis);
    gd_meta_like(&i->out[0], x);
    gd_meta_like(&i->out[1], x);
    if (x->rank) i->out[0].dims[axis] = i->out[1].dims[axis] = o->k;
    i->out[1].dtype = GD_I64;
    return GD_OK;
}
static void topk_vjp(gd_vjp *v) {
    v->gx[0] = unsort_gradient(v, ((const gd_topk_options *)v->attrs)->axis);
}
static void topk_expand(gd_expansion *e) {
    const gd_topk_options *o = e->attrs;
    gd_sort_outputs sorted = gd_sort(e->x[0], .axis = o->axis, .descending = o->largest);
    const bool single = e->x[0]->rank == 0;
    e->y[0] = single ? sorted.values : gd_narrow(sorted.values, o->axis, 0, o->k);
    e->y[1] = single ? sorted.indices : gd_narrow(sorted.indices, o->axis, 0, o->k);
}
static size_t topk_workspace(const gd_kernel_call *k) {
    return order_bytes(&k->in[0], ((const gd_topk_options *)k->attrs)->axis);
}
static gd_status topk_raw(gd_kernel_call *k) {
    const gd_topk_options *o = k->attrs;
    return sort_lines(k, o->axis, k->in[0].rank ? o->k : 1, o->largest);
}

#include "ops/sort/sort.gen.h"
