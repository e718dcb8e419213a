/* cumulative.c - cumulative sums and products, and linear recurrences, along an axis. */
#include "ops/cumulative/cuda/cumulative_args.h"

#include <stdio.h>

#include "backend/cuda/walk.h"
#include "gradus/ops.h"

static gd_cuda_kernel cumulative_maps =
    GD_CUDA_KERNEL("cumulative/cumulative", "gd_cumulative_maps");
static gd_cuda_kernel cumulative_starts =
    GD_CUDA_KERNEL("cumulative/cumulative", "gd_cumulative_starts");
static gd_cuda_kernel cumulative_lines =
    GD_CUDA_KERNEL("cumulative/cumulative", "gd_cumulative_lines");

static long long line_length(const gd_view *x, int64_t axis) {
    return x->rank ? x->dims[gd_cuda_axis(axis, x->rank)] : 1;
}

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
    p.as_bool = o->dtype == GD_BOOL;
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
    p.as_bool = o->dtype == GD_BOOL;
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

static void describe_lines(const gd_view *x, int64_t axis, char *text, size_t size) {
    const long long n = line_length(x, axis), chunk = n > 0 ? chunk_length(x, axis) : n;
    if (chunk == n) snprintf(text, size, "a thread for each line");
    else snprintf(text, size, "chunks of %lld", chunk);
}
/* Lines of input `x`. */
#define DESCRIBE(name, x)                                                                    \
    static void describe_##name(const gd_kernel_call *call, char *text, size_t size) {       \
        describe_lines(&call->in[x], ((const gd_##name##_options *)call->attrs)->axis, text, \
                       size);                                                                \
    }
DESCRIBE(cumsum, 0)
DESCRIBE(cumprod, 0)
DESCRIBE(linear_recurrence, 1)

/*kernel cumsum.chunks, cumprod.chunks, linear_recurrence.chunks  checked  run run_OP
 *        workspace OP_workspace  describe describe_OP
 * A thread for each line; few long lines are divided into chunks, which are combined.
 */

#include "ops/cumulative/cuda/cumulative.gen.h"
