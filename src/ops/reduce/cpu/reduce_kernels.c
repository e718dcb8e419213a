/* reduce_kernels.c - the reduction ops on the CPU: each describes itself as a gd_reduction for the
 * engine (reduce.h). */
#include "backend/cpu/reduce.h"
#include "gradus/ops.h"
#include "dispatch/infer.h"

static uint32_t reduced_axes_mask(const gd_shape *list, int rank) {
    uint32_t mask = 0;
    gd_axes_mask(list, rank, &mask);
    return mask;
}

static gd_dtype accumulator_dtype(gd_dtype dtype) {
    if (dtype == GD_F64) return GD_F64;
    return gd_dtype_is_float(dtype) ? GD_F32 : GD_I64;
}

static gd_reduction reduction_of(const gd_kernel_call *k, gd_fold fold, const gd_shape *list,
                                 gd_dtype dtype) {
    return (gd_reduction){.fold = fold,
                          .mask = reduced_axes_mask(list, k->in[0].rank),
                          .type = accumulator_dtype(dtype),
                          .y = &k->out[0]};
}

/* Defines the kernel functions of an op from its op##_request. */
#define REDUCTION(op)                                               \
    static size_t op##_blocked_workspace(const gd_kernel_call *k) { \
        gd_reduction r = op##_request(k);                           \
        return gd_reduce_bytes(&k->in[0], &r);                      \
    }                                                               \
    static gd_status op##_blocked_run(gd_kernel_call *k) {          \
        gd_reduction r = op##_request(k);                           \
        gd_reduce(&k->in[0], &r, k->workspace);                     \
        return GD_OK;                                               \
    }

/* The engine converts floats to i64 if it sums integers. A narrower output dtype requires a
 * conversion to that dtype before the sum, which only the reference kernels do. */
static bool converts_exactly(const gd_kernel_call *k) {
    const gd_dtype to = k->out[0].dtype;
    return !(gd_dtype_is_float(k->in[0].dtype) && (to == GD_U8 || to == GD_I8 || to == GD_I32));
}

/*kernel sum.blocked  rank 10  run sum_blocked_run  workspace sum_blocked_workspace
 * Any strides and dtypes, in blocks whose order depends on the shape alone.
 */
static bool sum_blocked_match(const gd_kernel_call *k) { return converts_exactly(k); }
static gd_reduction sum_request(const gd_kernel_call *k) {
    const gd_sum_options *o = k->attrs;
    gd_dtype dtype = k->out[0].dtype;
    if (dtype == GD_BOOL) return reduction_of(k, GD_FOLD_ANY, &o->axis, k->in[0].dtype);
    return reduction_of(k, GD_FOLD_SUM, &o->axis, dtype);
}
REDUCTION(sum)

/*kernel mean.blocked  rank 10  run mean_blocked_run  workspace mean_blocked_workspace
 * Any strides and dtypes, in blocks whose order depends on the shape alone.
 */
static gd_reduction mean_request(const gd_kernel_call *k) {
    const gd_mean_options *o = k->attrs;
    gd_reduction r = reduction_of(k, GD_FOLD_SUM, &o->axis, k->out[0].dtype);
    r.finish = GD_FINISH_MEAN;
    return r;
}
REDUCTION(mean)

/*kernel prod.blocked  rank 10  run prod_blocked_run  workspace prod_blocked_workspace
 * Any strides and dtypes, in blocks whose order depends on the shape alone.
 */
static bool prod_blocked_match(const gd_kernel_call *k) { return converts_exactly(k); }
static gd_reduction prod_request(const gd_kernel_call *k) {
    const gd_prod_options *o = k->attrs;
    gd_dtype dtype = k->out[0].dtype;
    if (dtype == GD_BOOL) return reduction_of(k, GD_FOLD_ALL, &o->axis, k->in[0].dtype);
    return reduction_of(k, GD_FOLD_PROD, &o->axis, dtype);
}
REDUCTION(prod)

/*kernel max.blocked  rank 10  run max_blocked_run  workspace max_blocked_workspace
 * Any strides and dtypes, in blocks whose order depends on the shape alone.
 */
static gd_reduction max_request(const gd_kernel_call *k) {
    const gd_max_options *o = k->attrs;
    return reduction_of(k, GD_FOLD_MAX, &o->axis, k->in[0].dtype);
}
REDUCTION(max)

/*kernel min.blocked  rank 10  run min_blocked_run  workspace min_blocked_workspace
 * Any strides and dtypes, in blocks whose order depends on the shape alone.
 */
static gd_reduction min_request(const gd_kernel_call *k) {
    const gd_min_options *o = k->attrs;
    return reduction_of(k, GD_FOLD_MIN, &o->axis, k->in[0].dtype);
}
REDUCTION(min)

/*kernel any.blocked  rank 10  run any_blocked_run  workspace any_blocked_workspace
 * Any strides and dtypes, in blocks whose order depends on the shape alone.
 */
static gd_reduction any_request(const gd_kernel_call *k) {
    const gd_any_options *o = k->attrs;
    return reduction_of(k, GD_FOLD_ANY, &o->axis, k->in[0].dtype);
}
REDUCTION(any)

/*kernel all.blocked  rank 10  run all_blocked_run  workspace all_blocked_workspace
 * Any strides and dtypes, in blocks whose order depends on the shape alone.
 */
static gd_reduction all_request(const gd_kernel_call *k) {
    const gd_all_options *o = k->attrs;
    return reduction_of(k, GD_FOLD_ALL, &o->axis, k->in[0].dtype);
}
REDUCTION(all)

/* An argmax or argmin over one axis, or over all if `axis_number` is GD_UNSET. */
static gd_reduction index_reduction_of(const gd_kernel_call *k, gd_fold fold, int64_t axis_number,
                                       gd_view *y, gd_view *y1) {
    int rank = k->in[0].rank;
    uint32_t mask = (1u << rank) - 1u;
    if (axis_number != GD_UNSET && rank > 0)
        mask = 1u << (axis_number < 0 ? axis_number + rank : axis_number);
    return (gd_reduction){.fold = fold,
                          .mask = mask,
                          .type = accumulator_dtype(k->in[0].dtype),
                          .in_order = true,
                          .two_values = true,
                          .y = y,
                          .y1 = y1};
}

/*kernel argmax.blocked  rank 10  run argmax_blocked_run  workspace argmax_blocked_workspace
 * Any strides and dtypes, in blocks whose order depends on the shape alone.
 */
static gd_reduction argmax_request(const gd_kernel_call *k) {
    const gd_argmax_options *o = k->attrs;
    return index_reduction_of(k, GD_FOLD_ARGMAX, o->axis, NULL, &k->out[0]);
}
REDUCTION(argmax)

/*kernel argmin.blocked  rank 10  run argmin_blocked_run  workspace argmin_blocked_workspace
 * Any strides and dtypes, in blocks whose order depends on the shape alone.
 */
static gd_reduction argmin_request(const gd_kernel_call *k) {
    const gd_argmin_options *o = k->attrs;
    return index_reduction_of(k, GD_FOLD_ARGMIN, o->axis, NULL, &k->out[0]);
}
REDUCTION(argmin)

/*kernel max_with_index.blocked  rank 10  run max_with_index_blocked_run
 *        workspace max_with_index_blocked_workspace
 * Any strides and dtypes, in blocks whose order depends on the shape alone.
 */
static gd_reduction max_with_index_request(const gd_kernel_call *k) {
    const gd_max_with_index_options *o = k->attrs;
    return index_reduction_of(k, GD_FOLD_ARGMAX, o->axis, &k->out[0], &k->out[1]);
}
REDUCTION(max_with_index)

/*kernel min_with_index.blocked  rank 10  run min_with_index_blocked_run
 *        workspace min_with_index_blocked_workspace
 * Any strides and dtypes, in blocks whose order depends on the shape alone.
 */
static gd_reduction min_with_index_request(const gd_kernel_call *k) {
    const gd_min_with_index_options *o = k->attrs;
    return index_reduction_of(k, GD_FOLD_ARGMIN, o->axis, &k->out[0], &k->out[1]);
}
REDUCTION(min_with_index)

/*kernel var.blocked  rank 10  run var_blocked_run  workspace var_blocked_workspace
 * Any strides and all floats, in blocks whose order depends on the shape alone.
 */
static gd_reduction var_request(const gd_kernel_call *k) {
    const gd_var_options *o = k->attrs;
    gd_reduction r = reduction_of(k, GD_FOLD_MOMENTS, &o->axis, k->out[0].dtype);
    r.two_values = true;
    r.finish = GD_FINISH_VARIANCE;
    r.p = o->correction;
    return r;
}
REDUCTION(var)

/*kernel std.blocked  rank 10  run std_blocked_run  workspace std_blocked_workspace
 * Any strides and all floats, in blocks whose order depends on the shape alone.
 */
static gd_reduction std_request(const gd_kernel_call *k) {
    const gd_std_options *o = k->attrs;
    gd_reduction r = reduction_of(k, GD_FOLD_MOMENTS, &o->axis, k->out[0].dtype);
    r.two_values = true;
    r.finish = GD_FINISH_DEVIATION;
    r.p = o->correction;
    return r;
}
REDUCTION(std)

/*kernel logsumexp.blocked  rank 10  run logsumexp_blocked_run
 *        workspace logsumexp_blocked_workspace
 * Any strides and all floats, in blocks whose order depends on the shape alone.
 */
static gd_reduction logsumexp_request(const gd_kernel_call *k) {
    const gd_logsumexp_options *o = k->attrs;
    gd_reduction r = reduction_of(k, GD_FOLD_EXP, &o->axis, k->out[0].dtype);
    r.two_values = true;
    r.finish = GD_FINISH_LOG_EXP;
    return r;
}
REDUCTION(logsumexp)

/*kernel norm.blocked  rank 10  run norm_blocked_run  workspace norm_blocked_workspace
 * Any strides and all floats, in blocks whose order depends on the shape alone.
 */
static gd_reduction norm_request(const gd_kernel_call *k) {
    const gd_norm_options *o = k->attrs;
    double inf = __builtin_inf();
    gd_fold fold = o->p == 1      ? GD_FOLD_SUM_ABS
                   : o->p == 2    ? GD_FOLD_SUM_SQUARE
                   : o->p == 0    ? GD_FOLD_COUNT
                   : o->p == inf  ? GD_FOLD_MAX_ABS
                   : o->p == -inf ? GD_FOLD_MIN_ABS
                                  : GD_FOLD_SUM_POWER;
    gd_reduction r = reduction_of(k, fold, &o->axis, k->out[0].dtype);
    r.finish = fold == GD_FOLD_SUM_SQUARE  ? GD_FINISH_SQRT
               : fold == GD_FOLD_SUM_POWER ? GD_FINISH_ROOT
                                           : GD_FINISH_NONE;
    r.p = o->p;
    return r;
}
REDUCTION(norm)

#include "ops/reduce/cpu/reduce_kernels.gen.h"
