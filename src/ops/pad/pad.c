/* pad.c - pad and its gradient: elements added or cut off at the ends of axes. */
#include "ops/pad/pad.h"

#include <string.h>

#include "core/copy.h"
#include "dispatch/infer.h"
#include "ops/windows/windows_spatial.h"

/*op pad(x, padding:int[]) -> y
 * x padded on both sides of its last axes. padding is (left, right) of the last axis, then of the
 * axis before it, and so on; negative numbers cut elements off. New elements are `value`, x
 * mirrored at its edge (reflect; the edge itself is not repeated), its edge (replicate), or
 * elements from its other end (circular).
 *   mode {constant, reflect, replicate, circular} = constant
 *   value float = 0  the new elements in mode constant
 *   saves nothing
 *   onnx Pad
 *   python (x, pad=padding, mode, value)
 */

static gd_status check_axis(const gd_pad_axis *a, gd_word mode, int axis, int64_t right) {
    int64_t uncut = a->n + (a->left < 0 ? a->left : 0) + (right < 0 ? right : 0);
    bool edges = mode == GD_REFLECT || mode == GD_REPLICATE; /* these also read elements cut off */
    if (a->out < 0 || (uncut < 0 && !edges))
        return gd_op_fail(GD_E_SHAPE,
                          "padding cuts %lld and %lld elements off axis %d, which has only %lld",
                          (long long)-a->left, (long long)-right, axis, (long long)a->n);
    if (mode == GD_CONSTANT || (a->left <= 0 && right <= 0 && uncut >= 0)) return GD_OK;
    int64_t most = mode == GD_REFLECT ? a->n - 1 : mode == GD_CIRCULAR ? a->n : INT64_MAX;
    if (a->n == 0 || (uncut == 0 && !edges))
        return gd_op_fail(GD_E_SHAPE, "axis %d is empty; this mode needs elements to repeat", axis);
    if (a->left > most || right > most)
        return gd_op_fail(
            GD_E_SHAPE,
            "axis %d has size %lld; padding in this mode is at most %lld on a side, not %lld", axis,
            (long long)a->n, (long long)most, (long long)(a->left > most ? a->left : right));
    return GD_OK;
}

static gd_status pad_infer(gd_infer *i) {
    const gd_pad_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_pad_axis axes[GD_MAX_RANK];
    if (o->padding.rank % 2 != 0)
        return gd_op_fail(GD_E_ARGUMENT, "padding has %d numbers; it must be pairs (left, right)",
                          o->padding.rank);
    if (o->padding.rank > 2 * x->rank)
        return gd_op_fail(GD_E_SHAPE, "padding has %d numbers; %d dimensions take %d at most",
                          o->padding.rank, x->rank, 2 * x->rank);
    for (int k = 0; k < o->padding.rank; k++) { /* so that sums cannot overflow */
        int64_t n = o->padding.at[k];
        if (n > INT64_MAX / 4 || n < -(INT64_MAX / 4))
            return gd_op_fail(GD_E_OVERFLOW, "padding of %lld is too large", (long long)n);
    }
    gd_pad_axes(x->rank, x->dims, &o->padding, axes);
    i->out[0].rank = x->rank;
    for (int d = 0; d < x->rank; d++) {
        int64_t right = axes[d].out - axes[d].n - axes[d].left;
        GD_TRY(check_axis(&axes[d], o->mode, d, right));
        i->out[0].dims[d] = axes[d].out;
    }
    return GD_OK;
}

/* Padding with the opposite sign cuts the new elements off and gives zeros for those that
 * were cut. */
static void pad_vjp(gd_vjp *v) {
    const gd_pad_options *o = v->attrs;
    gd_shape back = o->padding;
    for (int k = 0; k < back.rank; k++) back.at[k] = -back.at[k];
    v->gx[0] = o->mode == GD_CONSTANT
                   ? gd_pad(v->gy[0], back)
                   : gd_pad_grad(v->gy[0], gd_tensor_shape(v->x[0]), o->padding, o->mode);
}

static gd_status pad_raw(gd_kernel_call *k) {
    const gd_pad_options *o = k->attrs;
    const gd_view *x = &k->in[0], *y = &k->out[0];
    size_t size = gd_dtype_size(y->dtype);
    int64_t total = gd_numel(y->rank, y->dims);
    gd_pad_axis axes[GD_MAX_RANK];
    char value[8];
    gd_pad_axes(x->rank, x->dims, &o->padding, axes);
    gd_store_f64(y->dtype, value, o->value);
    for (int64_t e = 0; e < total; e++) {
        int64_t to = 0, from = 0, rest = e;
        bool inside = true;
        for (int d = y->rank; d-- > 0;) {
            int64_t i = rest % y->dims[d], j = gd_pad_source(&axes[d], o->mode, i);
            rest /= y->dims[d];
            to += i * y->strides[d];
            from += j * x->strides[d];
            inside &= j >= 0;
        }
        memcpy((char *)y->data + to * (int64_t)size,
               inside ? (const char *)x->data + from * (int64_t)size : value, size);
    }
    return GD_OK;
}

/* gd_pad_source for all indices of a result's axis, for modes other than constant. */
static gd_tensor *pad_sources(const gd_pad_axis *a, gd_word mode) {
    gd_tensor *i = gd_positions(1, 0, 0, a->out, 1), *last = gd_scalar_int(a->n - 1);
    if (mode == GD_CIRCULAR) {
        i = gd_remainder(gd_sub(i, gd_scalar_int(a->front)), gd_scalar_int(a->kept));
        return gd_add(i, gd_scalar_int(a->first));
    }
    i = gd_sub(i, gd_scalar_int(a->left));
    if (mode == GD_REPLICATE) return gd_minimum(gd_maximum(i, gd_scalar_int(0)), last);
    return gd_sub(last, gd_abs(gd_sub(last, gd_abs(i)))); /* mirrored at both ends */
}

/* Reshapes a vector so that it broadcasts along axis d of tensors of this rank. */
static gd_tensor *along_axis(gd_tensor *vector, int d, int rank) {
    gd_shape dims = {.rank = rank - d, .form = 1, .at = {gd_tensor_dim(vector, 0)}};
    for (int k = 1; k < dims.rank; k++) dims.at[k] = 1;
    return gd_reshape(vector, dims);
}

/* Replicates the edge into the new elements, then replaces them by the value. */
static gd_tensor *pad_constant(gd_tensor *x, const gd_pad_axis *axes, double value) {
    const gd_dtype dtype = (gd_dtype)x->dtype;
    const int rank = x->rank;
    gd_tensor *inside = NULL, *number = gd_as_dtype(gd_scalar_of(value, GD_F64), dtype);
    gd_shape dims = {.rank = rank, .form = 1};
    int cut = -1; /* an axis of which no element is kept */
    for (int d = 0; d < rank; d++) {
        dims.at[d] = axes[d].out;
        if (axes[d].kept == 0) cut = d;
    }
    if (cut >= 0) { /* all elements are the value; an empty sum keeps the dependency on x */
        gd_tensor *zero = gd_as_dtype(gd_sum(gd_narrow(x, cut, 0, 0)), dtype);
        return gd_where(gd_scalar_of(0, GD_BOOL), gd_expand(zero, dims), number);
    }
    for (int d = 0; d < rank; d++) {
        const gd_pad_axis *a = &axes[d];
        if (a->kept != a->n) x = gd_narrow(x, d, a->first, a->kept);
        if (a->kept == a->out) continue;
        gd_tensor *i = gd_sub(gd_positions(1, 0, 0, a->out, 1), gd_scalar_int(a->front));
        gd_tensor *low = gd_scalar_int(0), *high = gd_scalar_int(a->kept - 1);
        gd_tensor *in = gd_logical_and(gd_ge(i, low), gd_le(i, high));
        x = gd_index_select(x, d, gd_minimum(gd_maximum(i, low), high));
        in = along_axis(in, d, rank);
        inside = inside ? gd_logical_and(inside, in) : in;
    }
    return inside ? gd_where(inside, x, number) : gd_clone(x);
}

static void pad_expand(gd_expansion *e) {
    const gd_pad_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    gd_pad_axis axes[GD_MAX_RANK];
    gd_pad_axes(x->rank, x->dims, &o->padding, axes);
    const int rank = x->rank;
    if (o->mode == GD_CONSTANT) {
        e->y[0] = pad_constant(x, axes, o->value);
        return;
    }
    bool same = true;
    for (int d = 0; d < rank; d++) {
        if (axes[d].left == 0 && axes[d].out == axes[d].n) continue;
        x = gd_index_select(x, d, pad_sources(&axes[d], o->mode));
        same = false;
    }
    e->y[0] = same ? gd_clone(x) : x;
}

/*op pad_grad(gy, dims:int[], padding:int[], mode:{reflect, replicate, circular}) -> gx  internal
 * The gradient of pad: adds each element of gy to the element of a tensor of shape dims that pad
 * copied.
 *   saves nothing
 */
static gd_status pad_grad_infer(gd_infer *i) {
    const gd_pad_grad_options *o = i->attrs;
    const gd_tensor *gy = i->in[0];
    gd_pad_axis axes[GD_MAX_RANK];
    GD_TRY(gd_need_float(gy, "gy"));
    GD_TRY(gd_need_rank(gy, "gy", o->dims.rank));
    if (o->padding.rank % 2 != 0 || o->padding.rank > 2 * gy->rank)
        return gd_op_fail(GD_E_ARGUMENT,
                          "padding has %d numbers; it must be at most %d pairs (left, right)",
                          o->padding.rank, gy->rank);
    gd_pad_axes(gy->rank, o->dims.at, &o->padding, axes);
    for (int d = 0; d < gy->rank; d++) {
        GD_TRY(check_axis(&axes[d], o->mode, d, axes[d].out - axes[d].n - axes[d].left));
        if (axes[d].out != gy->dims[d])
            return gd_op_fail(GD_E_SHAPE,
                              "dimension %d of 'gy' is %lld; dims and padding give %lld", d,
                              (long long)gy->dims[d], (long long)axes[d].out);
    }
    i->out[0].rank = gy->rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof o->dims.at);
    return GD_OK;
}
static void pad_grad_vjp(gd_vjp *v) {
    const gd_pad_grad_options *o = v->attrs;
    v->gx[0] = gd_pad(v->gy[0], o->padding, .mode = o->mode);
}
static gd_status pad_grad_reference(gd_kernel_call *k) {
    const gd_pad_grad_options *o = k->attrs;
    const gd_view *gy = &k->in[0], *gx = &k->out[0];
    int64_t total = gd_numel(gy->rank, gy->dims);
    gd_pad_axis axes[GD_MAX_RANK];
    gd_pad_axes(gx->rank, gx->dims, &o->padding, axes);
    memset(gx->data, 0, (size_t)gd_numel(gx->rank, gx->dims) * sizeof(double));
    for (int64_t e = 0; e < total; e++) {
        int64_t to = 0, rest = e;
        for (int d = gy->rank; d-- > 0;) {
            to += gd_pad_source(&axes[d], o->mode, rest % gy->dims[d]) * gx->strides[d];
            rest /= gy->dims[d];
        }
        ((double *)gx->data)[to] += ((const double *)gy->data)[e];
    }
    return GD_OK;
}
static void pad_grad_expand(gd_expansion *e) {
    const gd_pad_grad_options *o = e->attrs;
    gd_tensor *gy = e->x[0], *g = gd_widen(gy);
    gd_pad_axis axes[GD_MAX_RANK];
    gd_pad_axes(gy->rank, o->dims.at, &o->padding, axes);
    for (int d = 0; d < gy->rank; d++)
        if (axes[d].left != 0 || axes[d].out != axes[d].n)
            g = gd_scatter_sums(g, d, pad_sources(&axes[d], o->mode), axes[d].n);
    e->y[0] = g == gy ? gd_clone(gy) : gd_as_dtype(g, (gd_dtype)gy->dtype);
}

#include "ops/pad/pad.gen.h"
