/* reduce_sum.c - sums and means of floats over rows or contiguous elements, the common reductions. */
#include "ops/reduce/cuda/reduce_sum_args.h"

#include <stdio.h>

#include "gradus/ops.h"
#include "ops/reduce/cuda/reduce.h"

static gd_cuda_kernel sum_columns = GD_CUDA_KERNEL("reduce/reduce_sum", "gd_sum_columns"),
                      sum_runs = GD_CUDA_KERNEL("reduce/reduce_sum", "gd_sum_runs"),
                      sum_parts = GD_CUDA_KERNEL("reduce/reduce_sum", "gd_sum_parts");

enum {
    THREADS = GD_CUDA_SUM_THREADS,
    BLOCKS = 4 * GD_CUDA_PROCESSORS,
    TILE_COLUMNS = 32,    /* vectors of a row that a block reads */
    LEAST_ROWS = 16,      /* of a thread */
    WARP_ELEMENTS = 4096, /* longer sums are added by a block */
    PART_ELEMENTS = 8192, /* of a part, at least */
    MAX_BLOCKS = 1 << 20,
};

_Static_assert(2 * BLOCKS <= GD_CUDA_SUM_COUNTERS && PART_ELEMENTS > WARP_ELEMENTS,
               "runs with several parts have a counter for each output, and are added by blocks");

static long long at_most(long long a, long long b) { return a < b ? a : b; }
static long long at_least(long long a, long long b) { return a > b ? a : b; }
static long long divide_up(long long a, long long b) { return (a + b - 1) / b; }

static bool is_columns(const gd_cuda_reduce *r) {
    return r->kept.rank == 1 && r->kept.strides[0] == 1 && r->reduced.rank == 1;
}

/* Contiguous elements, or several runs of them at the same distance. */
static bool is_runs(const gd_cuda_reduce *r) {
    const int rank = r->reduced.rank;
    return r->kept.rank <= 1 && (rank == 1 || rank == 2) && r->reduced.strides[rank - 1] == 1;
}

static bool is_dense(const gd_cuda_reduce *r, const gd_view *y) {
    return gd_cuda_is_float((gd_dtype)r->dtype) && gd_cuda_is_contiguous(y) && r->outputs > 0 &&
           r->size > 1 && (is_columns(r) || is_runs(r));
}

/* Whether all vectors are aligned: their length and the strides, in elements. */
static bool has_vectors(const gd_cuda_sum *p, long long length, long long a, long long b) {
    const int width = 16 / (int)gd_cuda_element_size((gd_dtype)p->dtype);
    return ((uintptr_t)p->x & 15) == 0 && length % width == 0 && a % width == 0 && b % width == 0;
}

/* The parts depend on the shape alone, so that all devices add in the same order. */
static gd_cuda_sum divide_columns(const gd_cuda_reduce *r) {
    gd_cuda_sum p = {.x = r->x,
                     .dtype = r->dtype,
                     .outputs = r->outputs,
                     .size = r->size,
                     .stride = r->reduced.strides[0]};
    p.vector = has_vectors(&p, p.outputs, p.stride, 0);
    const int width = p.vector ? 16 / (int)gd_cuda_element_size((gd_dtype)p.dtype) : 1;
    p.columns = (int)at_most(p.outputs / width, TILE_COLUMNS);
    p.tiles = (int)divide_up(p.outputs / width, p.columns);
    const long long depth = THREADS / p.columns;
    p.parts = at_least(1, at_most(divide_up(BLOCKS, p.tiles), p.size / (depth * LEAST_ROWS)));
    return p;
}

static gd_cuda_sum divide_runs(const gd_cuda_reduce *r) {
    const bool several = r->reduced.rank == 2;
    gd_cuda_sum p = {.x = r->x,
                     .dtype = r->dtype,
                     .outputs = r->outputs,
                     .size = r->size,
                     .runs = several ? r->reduced.dims[0] : 1,
                     .stride = several ? r->reduced.strides[0] : 0,
                     .length = r->reduced.dims[several],
                     .output_stride = r->kept.rank ? r->kept.strides[0] : 0};
    p.vector = has_vectors(&p, p.length, p.stride, p.output_stride);
    p.block = p.size > WARP_ELEMENTS;
    p.parts = at_least(1, at_most(divide_up(2 * BLOCKS, p.outputs), p.size / PART_ELEMENTS));
    return p;
}

static gd_cuda_sum divide_sum(const gd_cuda_reduce *r) {
    return is_columns(r) ? divide_columns(r) : divide_runs(r);
}

/* The number of parts depends on the alignment of x, which the workspace must not. */
static size_t partials_bytes(const gd_cuda_reduce *r) {
    gd_cuda_reduce aligned = *r;
    aligned.x = NULL;
    const gd_cuda_sum vectors = divide_sum(&aligned);
    aligned.x = (const void *)1;
    const gd_cuda_sum elements = divide_sum(&aligned);
    const long long parts = at_least(vectors.parts, elements.parts);
    return parts > 1 ? (size_t)(parts * r->outputs) * sizeof(double) : 0;
}

static gd_status queue_sum(const gd_kernel_call *call, const gd_cuda_reduce *r) {
    const gd_view *y = &call->out[0];
    gd_cuda_sum p = divide_sum(r);
    p.call = gd_cuda_call_of(call);
    p.partials = call->workspace;
    p.divisor = r->divisor;
    p.y = y->data;
    p.y_dtype = (int)y->dtype;
    gd_status status;
    if (is_columns(r))
        status = gd_cuda_launch(call->device, &sum_columns, p.tiles * p.parts, THREADS, &p);
    else
        status = gd_cuda_launch(
            call->device, &sum_runs,
            at_most(divide_up(p.outputs * p.parts, p.block ? 1 : THREADS / 32), MAX_BLOCKS),
            THREADS, &p);
    if (status != GD_OK || p.parts == 1 || !is_columns(r)) return status;
    p.finish_columns = 1;
    while (p.finish_columns < 32 && p.finish_columns < p.outputs) p.finish_columns *= 2;
    return gd_cuda_launch(call->device, &sum_parts, divide_up(p.outputs, p.finish_columns),
                          GD_CUDA_SUM_FINISH_THREADS, &p);
}

static void describe_dense(const gd_cuda_reduce *r, char *text, size_t size) {
    const gd_cuda_sum p = divide_sum(r);
    snprintf(text, size, "%s, %lld part%s",
             is_columns(r) ? "columns"
             : p.block     ? "a block for each result"
                           : "a warp for each result",
             p.parts, p.parts == 1 ? "" : "s");
}

/* --- kernels ---------------------------------------------------------------------------------- */

#define DENSE_SUM(name, divisor_of)                                                    \
    static gd_cuda_reduce name##_of(const gd_kernel_call *call) {                      \
        const gd_##name##_options *o = call->attrs;                                    \
        gd_cuda_reduce r =                                                             \
            gd_cuda_reduction_of(call, gd_cuda_reduced_axes(&call->in[0], &o->axis));  \
        r.divisor = divisor_of;                                                        \
        return r;                                                                      \
    }                                                                                  \
    static bool match_##name(const gd_kernel_call *call) {                             \
        const gd_cuda_reduce r = name##_of(call);                                      \
        return is_dense(&r, &call->out[0]);                                            \
    }                                                                                  \
    static size_t name##_workspace(const gd_kernel_call *call) {                       \
        const gd_cuda_reduce r = name##_of(call);                                      \
        return partials_bytes(&r);                                                     \
    }                                                                                  \
    static gd_status run_##name(gd_kernel_call *call) {                                \
        const gd_cuda_reduce r = name##_of(call);                                      \
        return queue_sum(call, &r);                                                    \
    }                                                                                  \
    static void describe_##name(const gd_kernel_call *call, char *text, size_t size) { \
        const gd_cuda_reduce r = name##_of(call);                                      \
        describe_dense(&r, text, size);                                                \
    }
DENSE_SUM(sum, 1)
DENSE_SUM(mean, (double)r.size)

/*kernel sum.dense, mean.dense  rank 20  dtypes f16 bf16 f32 f64  checked  run run_OP  match match_OP
 *        workspace OP_workspace  describe describe_OP
 * Floats whose summands or results lie next to each other: vectors of 16 bytes, and columns, or a
 * warp or a block for each result.
 */

#include "ops/reduce/cuda/reduce_sum.gen.h"
