/* pool_indices.c - scatter and gather by indices into planes: the gradients of max pooling.
 *
 * A plane is all spatial axes of one channel. An index counts its elements in row-major order; -1
 * is the index of an empty window.
 */
#include <string.h>

#include "gradus/ops.h"
#include "ops/index/index.h"
#include "dispatch/infer.h"
#include "ops/pool/pool.h"
#include "dispatch/problem.h"

enum { AXES = GD_POOL_AXES };

gd_status gd_pool_axes(const gd_shape *dims, int *n) {
    *n = dims->rank;
    if (*n < 1 || *n > AXES)
        return gd_op_fail(GD_E_ARGUMENT, "dims has %d numbers; it must have 1 to 3", *n);
    for (int d = 0; d < *n; d++)
        if (dims->at[d] < 1)
            return gd_op_fail(GD_E_ARGUMENT, "dims has the size %lld; it must be at least 1",
                              (long long)dims->at[d]);
    return GD_OK;
}

/* Requires the indices to have the leading dimensions (batch and channels) of x. */
static gd_status need_indices(const gd_tensor *x, const gd_tensor *indices, int n) {
    GD_TRY(gd_need_int(indices, "indices"));
    bool fits = indices->rank == x->rank && x->rank > n;
    for (int d = 0; fits && d < x->rank - n; d++) fits = indices->dims[d] == x->dims[d];
    return fits ? GD_OK
                : gd_op_fail(GD_E_SHAPE,
                             "'indices' must have the same batch and channels as the other input");
}

static gd_status fail_index(int64_t at, int64_t plane) {
    return gd_data_fail(&(gd_data_error){.problem = GD_DATA_PLANE_INDEX, .values = {at, plane}},
                        &(gd_data_operand){.rank = 0});
}

static int64_t plane_size(const gd_view *x, int n) {
    int64_t size = 1;
    for (int d = x->rank - n; d < x->rank; d++) size *= x->dims[d];
    return size;
}

/*op pool_scatter(gy, indices, dims:int[]) -> gx  internal
 * Adds each element of gy to the element of a zero plane with sizes dims that its index names: the
 * gradient of max pooling. Elements with index -1 are ignored. If the options describe the windows
 * of the max pooling, an index must be in the window of its element; kernels can then compute each
 * element of gx alone.
 *   kernel   int[] = none     size of the windows; none: not known
 *   stride   int[] = none     step between windows
 *   padding  int[] = none     elements added on each side
 *   dilation int[] = none     step between the elements of a window
 *   adaptive bool = false     windows of nearly equal size, one for each element of gy
 *   saves indices
 *   index indices < dims[0:] or -1
 */
static gd_status pool_scatter_infer(gd_infer *i) {
    const gd_pool_scatter_options *a = i->attrs;
    const gd_tensor *gy = i->in[0], *indices = i->in[1];
    int n;
    GD_TRY(gd_pool_axes(&a->dims, &n));
    GD_TRY(need_indices(gy, indices, 0));
    if (gy->rank <= n)
        return gd_op_fail(GD_E_SHAPE,
                          "'gy' has %d dimensions; it must have more than the %d of dims", gy->rank,
                          n);
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
        if (at[i] < 0 || at[i] >= to) return fail_index(at[i], to);
        int64_t offset = i / from * to + at[i];
        if (gy->dtype == GD_F64) ((double *)gx->data)[offset] += ((const double *)gy->data)[i];
        else ((uint64_t *)gx->data)[offset] += ((const uint64_t *)gy->data)[i];
    }
    return GD_OK;
}

/* Flattens the last n axes. */
static gd_tensor *flatten_planes(gd_tensor *x, int n) {
    return n > 1 ? gd_flatten(x, .start_axis = -n) : x;
}

/* Flat indices, checked to be in the plane. Indices of -1 become 0, and *none is true there. */
static gd_tensor *checked_indices(gd_tensor *indices, int n, int64_t plane, gd_tensor **none) {
    indices = gd_check_range(gd_as_dtype(indices, GD_I64), 0, gd_number_of(plane - 1), .but = -1,
                             .what = "place");
    indices = flatten_planes(indices, n);
    *none = gd_eq(indices, gd_scalar_int(-1));
    return gd_where(*none, gd_scalar_int(0), indices);
}

static void pool_scatter_expand(gd_expansion *e) {
    const gd_pool_scatter_options *a = e->attrs;
    gd_tensor *gy = e->x[0], *none;
    gd_shape dims = {.form = 1};
    int64_t plane = 1;
    const int n = a->dims.rank;
    for (int d = 0; d < n; d++) plane *= a->dims.at[d];
    for (int d = 0; d < gy->rank - n; d++) dims.at[dims.rank++] = gy->dims[d];
    dims.at[dims.rank++] = plane;
    gd_tensor *g = gd_widen(gy), *index = checked_indices(e->x[1], n, plane, &none);
    g = gd_where(none, gd_scalar_of(0, (gd_dtype)g->dtype), flatten_planes(g, n));
    g = gd_scatter_add(gd_zeros_on(gy, (gd_dtype)g->dtype, dims), -1, index, g);
    dims.rank--;
    for (int d = 0; d < n; d++) dims.at[dims.rank++] = a->dims.at[d];
    e->y[0] = gd_as_dtype(gd_reshape(g, dims), (gd_dtype)gy->dtype);
}

/*op pool_scatter_relu(gy, indices, y, dims:int[]) -> gx  nograd internal
 * pool_scatter where y is above 0 or NaN, and 0 elsewhere: the gradient of max pooling of
 * y = relu(...). Plans fuse pool_scatter and the gradient of relu into it.
 *   kernel   int[] = none     the options of pool_scatter
 *   stride   int[] = none
 *   padding  int[] = none
 *   dilation int[] = none
 *   adaptive bool = false
 *   index indices < dims[0:] or -1
 *   fuses relu.gx(pool_scatter(gy, indices), y)
 */
static gd_pool_scatter_options scatter_options(const gd_pool_scatter_relu_options *o) {
    return (gd_pool_scatter_options){.dims = o->dims,
                                     .kernel = o->kernel,
                                     .stride = o->stride,
                                     .padding = o->padding,
                                     .dilation = o->dilation,
                                     .adaptive = o->adaptive};
}
static gd_status pool_scatter_relu_infer(gd_infer *i) {
    const gd_pool_scatter_options o = scatter_options(i->attrs);
    const gd_tensor *gy = i->in[0], *y = i->in[2];
    gd_infer of_scatter = {gd_op_find("pool_scatter"), &o, i->in, 2, i->out, 1};
    GD_TRY(pool_scatter_infer(&of_scatter));
    GD_TRY(gd_need_float(gy, "gy"));
    GD_TRY(gd_need_same_dtype(gy, y, "gy", "y"));
    if (y->rank != gy->rank || memcmp(y->dims, i->out[0].dims, sizeof(int64_t) * y->rank) != 0)
        return gd_op_fail(GD_E_SHAPE, "'y' must have the shape of 'gy', with the sizes dims last");
    return GD_OK;
}
static void pool_scatter_relu_expand(gd_expansion *e) {
    const gd_pool_scatter_options o = scatter_options(e->attrs);
    gd_tensor *gx =
        gd_pool_scatter(e->x[0], e->x[1], o.dims, .kernel = o.kernel, .stride = o.stride,
                        .padding = o.padding, .dilation = o.dilation, .adaptive = o.adaptive);
    e->y[0] = gd_where(gd_le(e->x[2], gd_zeros_like(e->x[2])), gd_zeros_like(gx), gx);
}

/*op pool_gather(x, indices, axes:int) -> y  internal
 * The elements of x at indices into planes of the last `axes` axes: max pooling with known indices.
 * Index -1 gives 0.
 *   saves indices
 */
static gd_status pool_gather_infer(gd_infer *i) {
    const gd_pool_gather_options *a = i->attrs;
    if (a->axes < 1 || a->axes > AXES)
        return gd_op_fail(GD_E_ARGUMENT, "axes is %lld; it must be 1 to 3", (long long)a->axes);
    GD_TRY(need_indices(i->in[0], i->in[1], (int)a->axes));
    for (int d = i->in[0]->rank - (int)a->axes; d < i->in[0]->rank; d++)
        if (i->in[0]->dims[d] < 1) return gd_op_fail(GD_E_SHAPE, "axis %d of 'x' is empty", d);
    gd_meta_like(&i->out[0], i->in[1]);
    i->out[0].dtype = (gd_dtype)i->in[0]->dtype;
    return GD_OK;
}
static void pool_gather_vjp(gd_vjp *v) {
    const gd_pool_gather_options *a = v->attrs;
    if (v->needs[0])
        v->gx[0] = gd_pool_scatter(v->gy[0], v->x[1], gd_spatial_dims(v->x[0], (int)a->axes));
}
static gd_status pool_gather_reference(gd_kernel_call *k) {
    const gd_pool_gather_options *a = k->attrs;
    const gd_view *x = &k->in[0], *y = &k->out[0];
    const int64_t *at = k->in[1].data, n = gd_numel(y->rank, y->dims);
    const int64_t from = plane_size(x, (int)a->axes), to = plane_size(y, (int)a->axes);
    for (int64_t i = 0; i < n; i++) {
        if (at[i] < -1 || at[i] >= from) return fail_index(at[i], from);
        /* copies 8 bytes: reference kernels see f64 and i64 only */
        ((uint64_t *)y->data)[i] =
            at[i] < 0 ? 0 : ((const uint64_t *)x->data)[i / to * from + at[i]];
    }
    return GD_OK;
}
static void pool_gather_expand(gd_expansion *e) {
    const int n = (int)((const gd_pool_gather_options *)e->attrs)->axes;
    gd_tensor *x = e->x[0], *none;
    gd_tensor *planes = flatten_planes(x, n);
    gd_tensor *index = checked_indices(e->x[1], n, gd_tensor_dim(planes, -1), &none);
    gd_tensor *y = gd_gather(planes, -1, index);
    y = gd_where(none, gd_scalar_of(0, (gd_dtype)x->dtype), y);
    e->y[0] = gd_reshape(y, gd_tensor_shape(e->x[1]));
}

#include "ops/pool/pool_indices.gen.h"
