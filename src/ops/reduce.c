/* reduce.c - sums and other reductions over axes. */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "ops/infer.h"

/* --- walking over the axes of a reduction ------------------------------------------------------ */

/* For a row-major x and a mask of axes: calls body for each output element with the offsets of the
 * elements that make it up, one inner offset list shared by all. */
typedef struct {
    int64_t outer, inner;        /* how many output elements, how many elements make one */
    int rank_out, rank_in;
    int64_t out_dims[GD_MAX_RANK], out_strides[GD_MAX_RANK];
    int64_t in_dims[GD_MAX_RANK], in_strides[GD_MAX_RANK];
} reduction;

static reduction plan_reduction(const gd_view *x, uint32_t mask) {
    reduction r = {.outer = 1, .inner = 1};
    for (int k = 0; k < x->rank; k++) {
        if (mask >> k & 1) {
            r.in_dims[r.rank_in] = x->dims[k];
            r.in_strides[r.rank_in++] = x->strides[k];
            r.inner *= x->dims[k];
        } else {
            r.out_dims[r.rank_out] = x->dims[k];
            r.out_strides[r.rank_out++] = x->strides[k];
            r.outer *= x->dims[k];
        }
    }
    return r;
}

static int64_t offset_at(int64_t index, int rank, const int64_t *dims, const int64_t *strides) {
    int64_t at = 0;
    for (int k = rank; k-- > 0;) {
        at += index % dims[k] * strides[k];
        index /= dims[k];
    }
    return at;
}

/* --- sum --------------------------------------------------------------------------------------- */

/*op sum(x) -> y
 * The sum over axes, or over all elements. Integers and bools are summed as i64.
 *   axis int[] = none     one axis or gd_dims(...); none: all
 *   keepdim bool = false  keep reduced dimensions with size 1
 *   dtype dtype = none    compute and return this type
 *   saves nothing
 *   onnx ReduceSum
 */
static gd_status sum_infer(gd_infer *i) {
    const gd_sum_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    uint32_t mask;
    GD_TRY(gd_axes_mask(&o->axis, x->rank, &mask));
    gd_reduced_dims(x, mask, o->keepdim, &i->out[0]);
    i->out[0].dtype = o->dtype ? o->dtype : gd_dtype_is_float((gd_dtype)x->dtype) ? (gd_dtype)x->dtype : GD_I64;
    return GD_OK;
}

/* gy with the reduced dimensions back at size 1. */
static gd_tensor *restore_dims(gd_tensor *gy, const gd_tensor *x, uint32_t mask) {
    gd_shape dims = gd_tensor_shape(x);
    for (int k = 0; k < dims.rank; k++)
        if (mask >> k & 1) dims.at[k] = 1;
    return gd_reshape(gy, dims);
}

static void sum_vjp(gd_vjp *v) {
    const gd_sum_options *o = v->attrs;
    uint32_t mask;
    gd_axes_mask(&o->axis, v->x[0]->rank, &mask);
    v->gx[0] = gd_expand(restore_dims(v->gy[0], v->x[0], mask), gd_tensor_shape(v->x[0]));
}

static gd_status sum_reference(gd_kernel_call *k) {
    const gd_sum_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    uint32_t mask;
    GD_TRY(gd_axes_mask(&o->axis, x->rank, &mask));
    reduction r = plan_reduction(x, mask);
    for (int64_t e = 0; e < r.outer; e++) {
        int64_t base = offset_at(e, r.rank_out, r.out_dims, r.out_strides);
        double real = 0;
        uint64_t whole = 0; /* wraps */
        for (int64_t n = 0; n < r.inner; n++) {
            int64_t at = base + offset_at(n, r.rank_in, r.in_dims, r.in_strides);
            if (x->dtype == GD_F64) real += ((const double *)x->data)[at];
            else whole += (uint64_t)((const int64_t *)x->data)[at];
        }
        void *to = (char *)k->out[0].data + 8 * e;
        if (x->dtype == GD_F64) gd_store_f64(k->out[0].dtype, to, real);
        else gd_store_i64(k->out[0].dtype, to, (int64_t)whole);
    }
    return GD_OK;
}

/*op sum_to(x, dims:int[]) -> y
 * The sum over broadcast dimensions, so that the result has shape dims: the opposite of expand.
 *   saves nothing
 */
static void sum_to_expand(gd_expand *e) {
    const gd_sum_to_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    int extra = x->rank - o->dims.rank;
    gd_shape axes = {.form = 1};
    for (int k = 0; k < x->rank; k++)
        if (k < extra || (o->dims.at[k - extra] == 1 && x->dims[k] != 1)) axes.at[axes.rank++] = k;
    gd_tensor *y = axes.rank ? gd_sum(x, .axis = axes, .keepdim = true, .dtype = (gd_dtype)x->dtype) : x;
    e->y[0] = extra > 0 ? gd_reshape(y, o->dims) : y;
}

#include "reduce.gen.h"
