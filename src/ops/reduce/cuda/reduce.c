/* reduce.c - reductions over axes: sums, products, means, extremes, any and all. */
#include "ops/reduce/cuda/reduce.h"

#include <stdio.h>
#include <stdlib.h>

#include "gradus/ops.h"

/* A fold: the kernel that reduces, and the one that joins parts. */
typedef struct fold_kernels {
    gd_cuda_kernel reduce, join;
} fold_kernels;
#define FOLD(name)                                           \
    {                                                        \
        GD_CUDA_KERNEL("reduce/reduce", "gd_reduce_" name),  \
            GD_CUDA_KERNEL("reduce/reduce", "gd_join_" name) \
    }

static fold_kernels real_sum = FOLD("real_sum"), real_product = FOLD("real_product"),
                    integer_sum = FOLD("integer_sum"), integer_product = FOLD("integer_product"),
                    any_true = FOLD("any"), all_true = FOLD("all"), largest_value = FOLD("max"),
                    smallest_value = FOLD("min"), largest_index = FOLD("argmax"),
                    smallest_index = FOLD("argmin");

/* --- axes ------------------------------------------------------------------------------------- */

uint32_t gd_cuda_reduced_axes(const gd_view *x, const gd_shape *axis) {
    uint32_t mask = 0;
    if (axis->form == -1) return ~0u;
    for (int i = 0; i < axis->rank && x->rank > 0; i++)
        mask |= 1u << (axis->at[i] < 0 ? axis->at[i] + x->rank : axis->at[i]);
    return mask;
}

/* One axis, or all if it is not given. */
static uint32_t reduced_axis(const gd_view *x, int64_t axis) {
    if (axis == GD_UNSET || x->rank == 0) return ~0u;
    return 1u << (axis < 0 ? axis + x->rank : axis);
}

/* Adds an axis as the innermost one. Axes of size 1 are left out, and an axis whose elements follow
 * those of the one before is merged with it, which keeps the row-major order. */
static void append_axis(gd_cuda_axes *axes, long long dim, long long stride) {
    if (dim == 1) return;
    if (axes->rank > 0 && axes->strides[axes->rank - 1] == dim * stride) {
        axes->dims[axes->rank - 1] *= dim;
        axes->strides[axes->rank - 1] = stride;
        return;
    }
    axes->dims[axes->rank] = dim;
    axes->strides[axes->rank++] = stride;
}

gd_cuda_reduce gd_cuda_reduction_of(const gd_kernel_call *call, uint32_t mask) {
    const gd_view *x = &call->in[0];
    gd_cuda_reduce p = {
        .x = x->data, .dtype = (int)x->dtype, .outputs = 1, .size = 1, .divisor = 1};
    for (int d = 0; d < x->rank; d++) {
        const bool reduced = mask >> d & 1;
        *(reduced ? &p.size : &p.outputs) *= x->dims[d];
        append_axis(reduced ? &p.reduced : &p.kept, x->dims[d], x->strides[d]);
    }
    return p;
}

static long long inner_stride(const gd_cuda_axes *axes) {
    return axes->rank ? llabs(axes->strides[axes->rank - 1]) : 0;
}

/* --- the work of blocks ----------------------------------------------------------------------- */

enum {
    THREADS = GD_CUDA_REDUCE_THREADS,
    ENOUGH_THREADS = 1 << 16,   /* of a grid that keeps a device busy */
    ENOUGH_BLOCKS = 1024,       /* of a grid, before groups are divided into parts */
    LEAST_THREAD_ELEMENTS = 64, /* of a part */
};

/* At most the threads of a block. */
static int power_of_two_below(long long n) {
    int power = 1;
    while (power < THREADS && 2LL * power <= n) power *= 2;
    return power;
}

/* Neighbouring threads read neighbouring elements: those of one group, or the same element of
 * neighbouring groups. The choice depends on the shape alone, not on the device, so that all
 * devices add in the same order. */
static void divide_work(gd_cuda_reduce *p) {
    const bool across_groups =
        p->outputs >= 32 && p->kept.rank > 0 &&
        (p->reduced.rank == 0 || inner_stride(&p->kept) < inner_stride(&p->reduced));
    const long long least = p->outputs < ENOUGH_THREADS ? 1 : 4; /* elements of a thread */
    p->lanes = power_of_two_below(p->size / least);
    if (across_groups) { /* a warp reads 32 groups */
        const int most = p->outputs >= ENOUGH_THREADS ? 1 : THREADS / 32;
        if (p->lanes > most) p->lanes = most;
    }
    p->lane_stride = across_groups ? THREADS / p->lanes : 1;
    const long long outputs = THREADS / p->lanes, blocks = (p->outputs + outputs - 1) / outputs,
                    most = p->size / ((long long)p->lanes * LEAST_THREAD_ELEMENTS);
    p->parts = 1;
    if (blocks > 0 && blocks < ENOUGH_BLOCKS) {
        p->parts = (ENOUGH_BLOCKS + blocks - 1) / blocks;
        if (p->parts > most) p->parts = most > 1 ? most : 1;
    }
    p->chunk = (p->size + p->parts - 1) / p->parts;
}

static gd_cuda_reduce plan_reduction(const gd_kernel_call *call, uint32_t mask) {
    gd_cuda_reduce p = gd_cuda_reduction_of(call, mask);
    divide_work(&p);
    return p;
}

static size_t partials_bytes(const gd_kernel_call *call, uint32_t mask) {
    const gd_cuda_reduce p = plan_reduction(call, mask);
    return p.parts > 1 ? (size_t)(p.parts * p.outputs) * GD_CUDA_PARTIAL_BYTES : 0;
}

static void describe_reduction(const gd_kernel_call *call, uint32_t mask, char *text, size_t size) {
    const gd_cuda_reduce p = plan_reduction(call, mask);
    snprintf(text, size, "%d thread%s for each result, %lld part%s", p.lanes,
             p.lanes == 1 ? "" : "s", p.parts, p.parts == 1 ? "" : "s");
}

static gd_status queue_reduction(const gd_kernel_call *call, fold_kernels *fold,
                                 gd_cuda_reduce *p) {
    enum { MAX_BLOCKS = 1 << 20 }; /* blocks loop over the rest */
    const long long outputs = THREADS / p->lanes,
                    blocks = (p->outputs + outputs - 1) / outputs * p->parts;
    p->call = gd_cuda_call_of(call);
    p->partials = call->workspace;
    gd_status status = gd_cuda_launch(call->device, &fold->reduce,
                                      blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS, THREADS, p);
    if (status == GD_OK && p->parts > 1)
        status = gd_cuda_launch(call->device, &fold->join, p->outputs, THREADS, p);
    return status;
}

/* --- sums, products, any and all -------------------------------------------------------------- */

/* Reduces into the first output, with the fold for its kind of dtype: the option `dtype` of sums
 * and products is the output's dtype. */
static gd_status run_fold(const gd_kernel_call *call, uint32_t mask, fold_kernels *of_reals,
                          fold_kernels *of_integers, fold_kernels *of_bools, bool mean) {
    const gd_view *y = &call->out[0];
    gd_cuda_reduce p = plan_reduction(call, mask);
    p.y = gd_cuda_view_of(y);
    if (mean) p.divisor = (double)p.size;
    return queue_reduction(call,
                           gd_cuda_is_float(y->dtype) ? of_reals
                           : y->dtype == GD_BOOL      ? of_bools
                                                      : of_integers,
                           &p);
}

static gd_status run_sum(gd_kernel_call *call) {
    const gd_sum_options *o = call->attrs;
    return run_fold(call, gd_cuda_reduced_axes(&call->in[0], &o->axis), &real_sum, &integer_sum,
                    &any_true, false);
}

static gd_status run_mean(gd_kernel_call *call) {
    const gd_mean_options *o = call->attrs;
    return run_fold(call, gd_cuda_reduced_axes(&call->in[0], &o->axis), &real_sum, &integer_sum,
                    &any_true, true);
}

static gd_status run_prod(gd_kernel_call *call) {
    const gd_prod_options *o = call->attrs;
    return run_fold(call, gd_cuda_reduced_axes(&call->in[0], &o->axis), &real_product,
                    &integer_product, &all_true, false);
}

static gd_status run_any(gd_kernel_call *call) {
    const gd_any_options *o = call->attrs;
    return run_fold(call, gd_cuda_reduced_axes(&call->in[0], &o->axis), &any_true, &any_true,
                    &any_true, false);
}

static gd_status run_all(gd_kernel_call *call) {
    const gd_all_options *o = call->attrs;
    return run_fold(call, gd_cuda_reduced_axes(&call->in[0], &o->axis), &all_true, &all_true,
                    &all_true, false);
}

/* --- extremes --------------------------------------------------------------------------------- */

static gd_status run_max(gd_kernel_call *call) {
    const gd_max_options *o = call->attrs;
    return run_fold(call, gd_cuda_reduced_axes(&call->in[0], &o->axis), &largest_value,
                    &largest_value, &largest_value, false);
}

static gd_status run_min(gd_kernel_call *call) {
    const gd_min_options *o = call->attrs;
    return run_fold(call, gd_cuda_reduced_axes(&call->in[0], &o->axis), &smallest_value,
                    &smallest_value, &smallest_value, false);
}

/* `values` may be NULL. */
static gd_status run_extreme_index(const gd_kernel_call *call, int64_t axis, fold_kernels *fold,
                                   const gd_view *values, const gd_view *indices) {
    gd_cuda_reduce p = plan_reduction(call, reduced_axis(&call->in[0], axis));
    if (values) p.y = gd_cuda_view_of(values);
    p.indices = gd_cuda_view_of(indices);
    return queue_reduction(call, fold, &p);
}

static gd_status run_argmax(gd_kernel_call *call) {
    const gd_argmax_options *o = call->attrs;
    return run_extreme_index(call, o->axis, &largest_index, NULL, &call->out[0]);
}

static gd_status run_argmin(gd_kernel_call *call) {
    const gd_argmin_options *o = call->attrs;
    return run_extreme_index(call, o->axis, &smallest_index, NULL, &call->out[0]);
}

static gd_status run_max_with_index(gd_kernel_call *call) {
    const gd_max_with_index_options *o = call->attrs;
    return run_extreme_index(call, o->axis, &largest_index, &call->out[0], &call->out[1]);
}

static gd_status run_min_with_index(gd_kernel_call *call) {
    const gd_min_with_index_options *o = call->attrs;
    return run_extreme_index(call, o->axis, &smallest_index, &call->out[0], &call->out[1]);
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* The kernel of op `name`; `mask` computes the reduced axes from the options o. */
#define REDUCTION(name, mask)                                                          \
    static size_t name##_workspace(const gd_kernel_call *call) {                       \
        const gd_##name##_options *o = call->attrs;                                    \
        return partials_bytes(call, mask);                                             \
    }                                                                                  \
    static void describe_##name(const gd_kernel_call *call, char *text, size_t size) { \
        const gd_##name##_options *o = call->attrs;                                    \
        describe_reduction(call, mask, text, size);                                    \
    }
#define REDUCTION_OVER_AXES(name) REDUCTION(name, gd_cuda_reduced_axes(&call->in[0], &o->axis))
#define REDUCTION_OVER_AXIS(name) REDUCTION(name, reduced_axis(&call->in[0], o->axis))

REDUCTION_OVER_AXES(sum)
REDUCTION_OVER_AXES(mean)
REDUCTION_OVER_AXES(prod)
REDUCTION_OVER_AXES(any)
REDUCTION_OVER_AXES(all)
REDUCTION_OVER_AXES(max)
REDUCTION_OVER_AXES(min)
REDUCTION_OVER_AXIS(argmax)
REDUCTION_OVER_AXIS(argmin)
REDUCTION_OVER_AXIS(max_with_index)
REDUCTION_OVER_AXIS(min_with_index)

/*kernel sum.blocks, mean.blocks, prod.blocks, any.blocks, all.blocks, max.blocks, min.blocks,
 *        argmax.blocks, argmin.blocks, max_with_index.blocks, min_with_index.blocks  rank 10
 *        checked  run run_OP  workspace OP_workspace  describe describe_OP
 * Some threads, a block or several parts for each result; the order depends on the shape alone.
 */

#include "ops/reduce/cuda/reduce.gen.h"
