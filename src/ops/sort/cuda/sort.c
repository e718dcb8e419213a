/* sort.c - cumulative sums and products, linear recurrences, and sorts along an axis. */
#include "ops/sort/cuda/sort_args.h"

#include "backend/cuda/walk.h"
#include "gradus/ops.h"

static gd_cuda_kernel cumulative_maps = GD_CUDA_KERNEL("sort/sort", "gd_cumulative_maps");
static gd_cuda_kernel cumulative_starts = GD_CUDA_KERNEL("sort/sort", "gd_cumulative_starts");
static gd_cuda_kernel cumulative_lines = GD_CUDA_KERNEL("sort/sort", "gd_cumulative_lines");
static gd_cuda_kernel sort_runs = GD_CUDA_KERNEL("sort/sort", "gd_sort_runs");
static gd_cuda_kernel merge_runs = GD_CUDA_KERNEL("sort/sort", "gd_merge_runs");
static gd_cuda_kernel sort_results = GD_CUDA_KERNEL("sort/sort", "gd_sort_results");

static long long line_length(const gd_view *x, int64_t axis) {
    return x->rank ? x->dims[gd_cuda_axis(axis, x->rank)] : 1;
}

/* --- cumulative ops --------------------------------------------------------------------------- */

/* Few long lines are divided into chunks of about the square root of their length: a thread handles
 * the elements of a chunk, and one the chunks of a line. It depends on the shape alone, so that all
 * devices give the same bits. */
static long long chunk_length(const gd_view *x, int64_t axis) {
    enum { MIN_LENGTH = 256, MAX_LINES = 32768, MIN_CHUNK = 32 };
    const long long n = line_length(x, axis), count = gd_cuda_count(x);
    if (n < MIN_LENGTH || count / n >= MAX_LINES) return n;
    long long chunk = MIN_CHUNK;
    while (chunk * chunk < n) chunk *= 2;
    return chunk;
}

static size_t maps_bytes(const gd_view *x, int64_t axis) {
    const long long n = line_length(x, axis), chunk = chunk_length(x, axis);
    if (chunk == n) return 0;
    return (size_t)(gd_cuda_count(x) / n * ((n + chunk - 1) / chunk)) * GD_CUDA_CHUNK_BYTES;
}

/* The parameters without those of the options; a: coefficients of a linear recurrence, or NULL. */
static gd_cuda_cumulative cumulative_of(const gd_kernel_call *call, const gd_view *given_x,
                                        const gd_view *given_a, int64_t given_axis) {
    const gd_view x = gd_cuda_at_least_1d(*given_x), y = gd_cuda_at_least_1d(call->out[0]),
                  a = gd_cuda_at_least_1d(given_a ? *given_a : *given_x);
    const int axis = gd_cuda_axis(given_axis, x.rank);
    gd_cuda_cumulative p = {
        .call = gd_cuda_call_of(call),
        .lines = gd_cuda_walk_over(x.rank, x.dims, axis, (const gd_view *[]){&x, &y, &a}),
        .x = x.data,
        .a = a.data,
        .y = y.data,
        .x_dtype = (int)x.dtype,
        .y_dtype = (int)y.dtype,
        .a_dtype = (int)a.dtype,
        .n = x.dims[axis],
        .x_step = x.strides[axis],
        .y_step = y.strides[axis],
        .a_step = a.strides[axis],
        .chunk = chunk_length(&x, axis),
        .maps = call->workspace,
    };
    p.chunks = p.n > 0 ? (p.n + p.chunk - 1) / p.chunk : 0;
    return p;
}

static gd_status queue_cumulative(gd_device *d, const gd_cuda_cumulative *p) {
    const long long chunks = p->lines.count * p->chunks;
    gd_status status = GD_OK;
    if (p->chunks > 1) {
        status = gd_cuda_launch_each(d, &cumulative_maps, chunks, p);
        if (status == GD_OK) status = gd_cuda_launch_each(d, &cumulative_starts, p->lines.count, p);
    }
    return status == GD_OK ? gd_cuda_launch_each(d, &cumulative_lines, chunks, p) : status;
}

static gd_status run_cumsum(gd_kernel_call *call) {
    const gd_cumsum_options *o = call->attrs;
    gd_cuda_cumulative p = cumulative_of(call, &call->in[0], NULL, o->axis);
    p.kind = GD_CUDA_CUMULATIVE_SUM;
    p.exclusive = o->exclusive;
    p.reverse = o->reverse;
    p.truth = o->dtype == GD_BOOL;
    return queue_cumulative(call->device, &p);
}
static size_t cumsum_workspace(const gd_kernel_call *call) {
    return maps_bytes(&call->in[0], ((const gd_cumsum_options *)call->attrs)->axis);
}

static gd_status run_cumprod(gd_kernel_call *call) {
    const gd_cumprod_options *o = call->attrs;
    gd_cuda_cumulative p = cumulative_of(call, &call->in[0], NULL, o->axis);
    p.kind = GD_CUDA_CUMULATIVE_PRODUCT;
    p.exclusive = o->exclusive;
    p.reverse = o->reverse;
    p.truth = o->dtype == GD_BOOL;
    return queue_cumulative(call->device, &p);
}
static size_t cumprod_workspace(const gd_kernel_call *call) {
    return maps_bytes(&call->in[0], ((const gd_cumprod_options *)call->attrs)->axis);
}

static gd_status run_linear_recurrence(gd_kernel_call *call) {
    const gd_linear_recurrence_options *o = call->attrs;
    gd_cuda_cumulative p = cumulative_of(call, &call->in[1], &call->in[0], o->axis);
    p.kind = GD_CUDA_CUMULATIVE_LINEAR;
    p.reverse = o->reverse;
    p.neighbour = o->neighbour;
    return queue_cumulative(call->device, &p);
}
static size_t linear_recurrence_workspace(const gd_kernel_call *call) {
    return maps_bytes(&call->in[1], ((const gd_linear_recurrence_options *)call->attrs)->axis);
}

/* --- sort ------------------------------------------------------------------------------------- */

/* Two lists of entries: each merge reads one and writes the other. */
static size_t sort_workspace(const gd_kernel_call *call) {
    return 2 * (size_t)gd_cuda_count(&call->in[0]) * sizeof(gd_cuda_sort_entry);
}

static gd_status run_sort(gd_kernel_call *call) {
    const gd_sort_options *o = call->attrs;
    const gd_view x = gd_cuda_at_least_1d(call->in[0]), values = gd_cuda_at_least_1d(call->out[0]),
                  indices = gd_cuda_at_least_1d(call->out[1]);
    const int axis = gd_cuda_axis(o->axis, x.rank);
    const long long count = gd_cuda_count(&x);
    gd_cuda_sort_entry *lists = call->workspace;
    gd_cuda_sort p = {
        .call = gd_cuda_call_of(call),
        .lines =
            gd_cuda_walk_over(x.rank, x.dims, axis, (const gd_view *[]){&x, &values, &indices}),
        .x = x.data,
        .values = values.data,
        .indices = indices.data,
        .dtype = (int)x.dtype,
        .bytes = (int)gd_cuda_element_size(x.dtype),
        .descending = o->descending,
        .n = x.dims[axis],
        .x_step = x.strides[axis],
        .values_step = values.strides[axis],
        .indices_step = indices.strides[axis],
        .to = lists,
        .width = GD_CUDA_SORTED_RUN,
    };
    if (count == 0 || (!p.values && !p.indices)) return GD_OK;
    gd_status status = gd_cuda_launch_each(call->device, &sort_runs, count, &p);
    p.from = p.to;
    for (; p.width < p.n && status == GD_OK; p.width *= 2) {
        p.to = p.from == lists ? lists + count : lists;
        status = gd_cuda_launch_each(call->device, &merge_runs, count, &p);
        p.from = p.to;
    }
    return status == GD_OK ? gd_cuda_launch_each(call->device, &sort_results, count, &p) : status;
}

/*kernel cumsum.blocks, cumprod.blocks, linear_recurrence.blocks  checked  run run_OP  workspace OP_workspace
 */
/*kernel sort.merge  checked  run run_sort  workspace sort_workspace
 */

#include "ops/sort/cuda/sort.gen.h"
