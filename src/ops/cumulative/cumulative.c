/* cumulative.c - cumulative sums and products along an axis.
 *
 * The gradient of a cumulative product is a linear recurrence, y[k] = a[k] y[k-1] + b[k]. The
 * recurrence is an op, and its gradient is the same recurrence in the other direction. So zeros
 * among the factors are no special case, and gradients of any order take linear time.
 */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"

static gd_status cumulative_infer(gd_infer *i, int64_t axis, gd_dtype dtype) {
    const gd_tensor *x = i->in[0];
    int k;
    GD_TRY(gd_axis(axis, x->rank, &k));
    if (dtype != GD_DTYPE_NONE && gd_dtype_size(dtype) == 0)
        return gd_op_fail(GD_E_DTYPE, "there is no such dtype");
    gd_meta_like(&i->out[0], x);
    if (dtype) i->out[0].dtype = dtype;
    else if (!gd_dtype_is_float((gd_dtype)x->dtype)) i->out[0].dtype = GD_I64;
    return GD_OK;
}

/* A row-major view as [outer][n][inner], where n is the size of the axis. */
typedef struct {
    int64_t outer, n, inner;
} axis_split;

static axis_split split_at_axis(const gd_view *x, int64_t axis) {
    axis_split l = {1, 1, 1};
    int at = gd_wrap_axis(axis, x->rank);
    for (int k = 0; k < x->rank; k++) {
        if (k < at) l.outer *= x->dims[k];
        else if (k == at) l.n = x->dims[k];
        else l.inner *= x->dims[k];
    }
    return l;
}

/* The reference kernel. Elements are f64 or i64. `requested` is the dtype option: bools
 * are or-ed, not added. */
static void reference_cumulative(const gd_kernel_call *k, int64_t axis, bool product,
                                 bool exclusive, bool reverse, gd_dtype requested) {
    axis_split l = split_at_axis(&k->in[0], axis);
    for (int64_t o = 0; o < l.outer; o++)
        for (int64_t i = 0; i < l.inner; i++) {
            double real = product;
            uint64_t integer = product;
            for (int64_t t = 0; t < l.n; t++) {
                int64_t at = (o * l.n + (reverse ? l.n - 1 - t : t)) * l.inner + i;
                const char *x = (const char *)k->in[0].data + 8 * at;
                char *y = (char *)k->out[0].data + 8 * at;
                double r = gd_load_f64(k->in[0].dtype, x);
                uint64_t w = (uint64_t)gd_load_i64(k->in[0].dtype, x);
                if (requested == GD_BOOL) r = w = r != 0;
                double real_before = real;
                uint64_t integer_before = integer;
                real = product ? real * r : real + r;
                integer = product ? integer * w : requested == GD_BOOL ? integer | w : integer + w;
                if (k->out[0].dtype == GD_F64)
                    gd_store_f64(GD_F64, y, exclusive ? real_before : real);
                else
                    gd_store_i64(k->out[0].dtype, y,
                                 (int64_t)(exclusive ? integer_before : integer));
            }
        }
}

/*op cumsum(x, axis:int) -> y  fullp
 * The cumulative sum along an axis. Integers and bools are summed as i64.
 *   exclusive bool = false  without the element itself
 *   reverse bool = false    from the last element to the first
 *   dtype dtype = none      convert to this type first, and return it
 *   saves nothing
 *   onnx CumSum
 *   python (x, axis)
 */
static gd_status cumsum_infer(gd_infer *i) {
    const gd_cumsum_options *o = i->attrs;
    return cumulative_infer(i, o->axis, o->dtype);
}
static void cumsum_vjp(gd_vjp *v) {
    const gd_cumsum_options *o = v->attrs;
    v->gx[0] = gd_cumsum(v->gy[0], o->axis, .exclusive = o->exclusive, .reverse = !o->reverse);
}
static gd_status cumsum_reference(gd_kernel_call *k) {
    const gd_cumsum_options *o = k->attrs;
    reference_cumulative(k, o->axis, false, o->exclusive, o->reverse, o->dtype);
    return GD_OK;
}

/*op cumprod(x, axis:int) -> y  fullp
 * The cumulative product along an axis. Integers and bools are multiplied as i64.
 *   exclusive bool = false  without the element itself
 *   reverse bool = false    from the last element to the first
 *   dtype dtype = none      convert to this type first, and return it
 *   onnx CumProd
 *   python (x, axis)
 */
static gd_status cumprod_infer(gd_infer *i) {
    const gd_cumprod_options *o = i->attrs;
    return cumulative_infer(i, o->axis, o->dtype);
}

/* gx[k] = P[k] R[k]. P[k] is the product of the elements before k. R[k] sums the gradients of all
 * results that contain x[k], each times the factors after x[k]:
 *     R[k] = gy[k] + x[k+1] R[k+1]
 * The results of an exclusive product contain x[k] from k+1 on:
 *     R[k] = gy[k+1] + x[k+1] R[k+1] */
static void cumprod_vjp(gd_vjp *v) {
    const gd_cumprod_options *o = v->attrs;
    gd_tensor *x = v->x[0], *gy = v->gy[0];
    if (x->dtype != gy->dtype) x = gd_cast(x, (gd_dtype)gy->dtype);
    gd_tensor *product = gd_cumprod(x, o->axis, .exclusive = true, .reverse = o->reverse);
    gd_tensor *sums =
        gd_linear_recurrence(x, gy, o->axis, .reverse = !o->reverse, .neighbour = !o->exclusive);
    if (o->exclusive) sums = gd_shift(sums, o->axis, o->reverse ? 1 : -1);
    v->gx[0] = gd_mul(product, sums);
}
static gd_status cumprod_reference(gd_kernel_call *k) {
    const gd_cumprod_options *o = k->attrs;
    reference_cumulative(k, o->axis, true, o->exclusive, o->reverse, o->dtype);
    return GD_OK;
}

/* --- the linear recurrence -------------------------------------------------------------------- */

/*op linear_recurrence(a, b, axis:int) -> y  internal heavy
 * y[k] = c[k] y[k-1] + b[k] along an axis, with y[-1] = 0 and c[k] = a[k], or a[k-1] for
 * `neighbour`. In reverse, y[k] = c[k] y[k+1] + b[k], and the neighbour is a[k+1].
 *   reverse bool = false    from the last element to the first
 *   neighbour bool = false  use the coefficient of the element before
 *   saves a, y
 */
static gd_status linear_recurrence_infer(gd_infer *i) {
    const gd_linear_recurrence_options *o = i->attrs;
    const gd_tensor *a = i->in[0], *b = i->in[1];
    int k;
    GD_TRY(gd_need_float(a, "a"));
    GD_TRY(gd_need_same_dtype(a, b, "a", "b"));
    GD_TRY(gd_axis(o->axis, a->rank, &k));
    if (a->rank != b->rank || memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) != 0)
        return gd_op_fail(GD_E_SHAPE, "'a' and 'b' must have the same shape");
    gd_meta_like(&i->out[0], a);
    return GD_OK;
}

/* The gradient by b is the recurrence in the other direction: there a[k] multiplies the element
 * before, so `neighbour` is inverted too. */
static void linear_recurrence_vjp(gd_vjp *v) {
    const gd_linear_recurrence_options *o = v->attrs;
    gd_tensor *a = v->x[0], *y = v->y[0];
    gd_tensor *gb = gd_linear_recurrence(a, v->gy[0], o->axis, .reverse = !o->reverse,
                                         .neighbour = !o->neighbour);
    int64_t back = o->reverse ? -1 : 1;
    v->gx[1] = gb;
    if (v->needs[0])
        v->gx[0] = o->neighbour ? gd_mul(gd_shift(gb, o->axis, -back), y)
                                : gd_mul(gb, gd_shift(y, o->axis, back));
}
static gd_status linear_recurrence_reference(gd_kernel_call *k) {
    const gd_linear_recurrence_options *o = k->attrs;
    axis_split l = split_at_axis(&k->in[0], o->axis);
    const double *a = k->in[0].data, *b = k->in[1].data;
    double *y = k->out[0].data;
    for (int64_t p = 0; p < l.outer; p++)
        for (int64_t i = 0; i < l.inner; i++) {
            double last = 0;
            for (int64_t t = 0; t < l.n; t++) {
                int64_t at = (p * l.n + (o->reverse ? l.n - 1 - t : t)) * l.inner + i;
                int64_t from = !o->neighbour ? at : o->reverse ? at + l.inner : at - l.inner;
                last = (t > 0 ? a[from] * last : 0) + b[at];
                y[at] = last;
            }
        }
    return GD_OK;
}

/*op shift(x, axis:int, by:int) -> y  internal
 * x shifted along an axis, with zeros at the end that becomes free: y[k] = x[k - by].
 *   saves nothing
 */
static gd_status shift_infer(gd_infer *i) {
    const gd_shift_options *o = i->attrs;
    int k;
    GD_TRY(gd_axis(o->axis, i->in[0]->rank, &k));
    if (o->by == GD_UNSET) return gd_op_fail(GD_E_ARGUMENT, "the option 'by' is missing");
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}
static void shift_vjp(gd_vjp *v) {
    const gd_shift_options *o = v->attrs;
    v->gx[0] = gd_shift(v->gy[0], o->axis, -o->by);
}
static void shift_expand(gd_expansion *e) {
    const gd_shift_options *o = e->attrs;
    gd_tensor *x = gd_as_list(e->x[0]);
    const int axis = gd_wrap_axis(o->axis, x->rank);
    const int64_t n = gd_tensor_dim(x, axis), by = o->by > n ? n : o->by < -n ? -n : o->by;
    if (by == 0) {
        e->y[0] = gd_clone(e->x[0]);
        return;
    }
    gd_tensor *y = gd_take_window(x, axis, -by, n);
    e->y[0] = e->x[0]->rank ? y : gd_reshape(y, gd_dims());
}
static gd_status shift_raw(gd_kernel_call *k) {
    const gd_shift_options *o = k->attrs;
    gd_view x = k->in[0], y = k->out[0], zero = y;
    int64_t zero_element = 0;
    if (y.rank == 0) { /* rank 0 counts as an axis of size 1 */
        zero.data = &zero_element;
        gd_copy_elements(&y, o->by == 0 ? &x : &zero);
        return GD_OK;
    }
    int axis = gd_wrap_axis(o->axis, y.rank);
    int64_t n = y.dims[axis],
            by = o->by > n    ? n
                 : o->by < -n ? -n
                              : o->by,
            size = (int64_t)gd_dtype_size(y.dtype);
    int64_t moved = by < 0 ? -by : by;
    gd_view free_end = y; /* the part that becomes zero */
    free_end.dims[axis] = zero.dims[axis] = moved;
    if (by < 0) free_end.data = (char *)free_end.data + (n - moved) * y.strides[axis] * size;
    zero.data = &zero_element;
    memset(zero.strides, 0, sizeof zero.strides);
    gd_copy_elements(&free_end, &zero);
    x.dims[axis] = y.dims[axis] = n - moved;
    if (by > 0) y.data = (char *)y.data + by * y.strides[axis] * size;
    else x.data = (char *)x.data + moved * x.strides[axis] * size;
    gd_copy_elements(&y, &x);
    return GD_OK;
}

#include "ops/cumulative/cumulative.gen.h"
