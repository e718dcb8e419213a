/* index.c - gather and scatter, nonzero and one_hot_found. */
#include "ops/index/cuda/index_args.h"

#include <math.h>

#include "backend/cuda/walk.h"
#include "core/integer.h"
#include "gradus/ops.h"
#include "dispatch/problem.h"

static gd_cuda_kernel gather_elements = GD_CUDA_KERNEL("index/index", "gd_gather_elements");
static gd_cuda_kernel scatter_lines = GD_CUDA_KERNEL("index/index", "gd_scatter_lines");
static gd_cuda_kernel nonzero_counts = GD_CUDA_KERNEL("index/index", "gd_nonzero_counts");
static gd_cuda_kernel nonzero_starts = GD_CUDA_KERNEL("index/index", "gd_nonzero_starts");
static gd_cuda_kernel nonzero_positions = GD_CUDA_KERNEL("index/index", "gd_nonzero_positions");
static gd_cuda_kernel one_hot_largest = GD_CUDA_KERNEL("index/index", "gd_one_hot_largest");
static gd_cuda_kernel one_hot_write = GD_CUDA_KERNEL("index/index", "gd_one_hot_write");

/* --- gather ----------------------------------------------------------------------------------- */

/* y NULL: only checks the indices. */
static gd_status queue_gather(const gd_kernel_call *call, const gd_view *x, const gd_view *index,
                              const gd_view *y, int axis) {
    gd_view lines = *x;
    if (gd_cuda_count(index) == 0) return GD_OK; /* its shape may be any */
    lines.strides[axis] = 0;
    const gd_cuda_gather p = {
        .call = gd_cuda_call_of(call),
        .walk = gd_cuda_walk_over(index->rank, index->dims, -1,
                                  (const gd_view *[]){index, y, y ? &lines : NULL}),
        .index = index->data,
        .x = x->data,
        .y = y ? y->data : NULL,
        .index_dtype = (int)index->dtype,
        .bytes = (int)gd_cuda_element_size(x->dtype),
        .axis = axis,
        .size = x->dims[axis],
        .x_step = x->strides[axis],
    };
    return gd_cuda_launch_each(call->device, &gather_elements, p.walk.count, &p);
}

static gd_status run_gather(gd_kernel_call *call) {
    const gd_gather_options *o = call->attrs;
    const gd_view x = gd_cuda_at_least_1d(call->in[0]), index = gd_cuda_at_least_1d(call->in[1]),
                  y = gd_cuda_at_least_1d(call->out[0]);
    const int axis = gd_cuda_axis(o->axis, x.rank);
    gd_status status =
        gd_cuda_checks_first(call) ? queue_gather(call, &x, &index, NULL, axis) : GD_OK;
    return status == GD_OK ? queue_gather(call, &x, &index, &y, axis) : status;
}

/* --- scatter ---------------------------------------------------------------------------------- */

/* Threads for each line: enough to fill a device, but each of them reads the entire index. */
static int count_parts(long long lines, long long size) {
    enum { MAX_PARTS = 128, MIN_THREADS = 16384 };
    int parts = 1;
    while (parts < MAX_PARTS && 2 * parts <= size && lines * parts < MIN_THREADS) parts *= 2;
    return parts;
}

/* The smallest number of a dtype for the largest element, and the other way round. */
static void set_identity(gd_cuda_scatter *p, gd_dtype dtype) {
    const bool largest = p->mode == GD_CUDA_SCATTER_LARGEST;
    p->real_identity = largest ? -INFINITY : INFINITY;
    switch (dtype) {
    case GD_I32: p->integer_identity = largest ? INT32_MIN : INT32_MAX; break;
    case GD_I8: p->integer_identity = largest ? INT8_MIN : INT8_MAX; break;
    case GD_U8: p->integer_identity = largest ? 0 : UINT8_MAX; break;
    case GD_BOOL: p->integer_identity = !largest; break;
    default: p->integer_identity = largest ? INT64_MIN : INT64_MAX; break;
    }
}

/* Combines src into y, which holds x. */
static gd_status queue_scatter(const gd_kernel_call *call, const gd_view *y, int axis,
                               gd_cuda_scatter_mode mode, bool forgets) {
    const gd_view index = gd_cuda_at_least_1d(call->in[1]), src = gd_cuda_at_least_1d(call->in[2]);
    gd_cuda_scatter p = {
        .call = gd_cuda_call_of(call),
        .lines =
            gd_cuda_walk_over(index.rank, index.dims, axis, (const gd_view *[]){&index, &src, y}),
        .index = index.data,
        .src = src.data,
        .y = y->data,
        .index_dtype = (int)index.dtype,
        .src_dtype = (int)src.dtype,
        .y_dtype = (int)y->dtype,
        .bytes = (int)gd_cuda_element_size(y->dtype),
        .axis = axis,
        .mode = mode,
        .forgets = forgets,
        .index_step = index.strides[axis],
        .src_step = src.strides[axis],
        .y_step = y->strides[axis],
        .length = index.dims[axis],
        .size = y->dims[axis],
        .inner = 1,
    };
    for (int d = axis + 1; d < index.rank; d++) p.inner *= index.dims[d];
    p.parts = count_parts(p.lines.count, p.size);
    set_identity(&p, y->dtype);
    return gd_cuda_launch_each(call->device, &scatter_lines, p.lines.count * p.parts, &p);
}

/* Sums and products of f16 and bf16 are computed in a copy of x in f32, and rounded once. */
static size_t sums_bytes(const gd_kernel_call *call) {
    const gd_view *y = &call->out[0];
    if ((y->dtype != GD_F16 && y->dtype != GD_BF16) || gd_cuda_count(&call->in[1]) == 0) return 0;
    return (size_t)gd_cuda_count(y) * sizeof(float);
}

/* y = x with the elements of src at the indices. */
static gd_status run_scatter(gd_kernel_call *call, int64_t given_axis, gd_cuda_scatter_mode mode,
                             bool forgets) {
    const gd_view x = gd_cuda_at_least_1d(call->in[0]), index = gd_cuda_at_least_1d(call->in[1]),
                  y = gd_cuda_at_least_1d(call->out[0]);
    const int axis = gd_cuda_axis(given_axis, x.rank);
    if (gd_cuda_count(&index) == 0) return gd_cuda_queue_copy(call, &y, &x);
    gd_view sums = y;
    const bool widens =
        (mode == GD_CUDA_SCATTER_ADD || mode == GD_CUDA_SCATTER_MULTIPLY) && sums_bytes(call) > 0;
    if (widens) {
        int64_t stride = 1;
        sums.data = call->workspace;
        sums.dtype = GD_F32;
        for (int d = sums.rank; d-- > 0; stride *= sums.dims[d]) sums.strides[d] = stride;
    }
    gd_status status =
        gd_cuda_checks_first(call) ? queue_gather(call, &x, &index, NULL, axis) : GD_OK;
    if (status == GD_OK) status = gd_cuda_queue_copy(call, &sums, &x);
    if (status == GD_OK) status = queue_scatter(call, &sums, axis, mode, forgets);
    if (status == GD_OK && widens) status = gd_cuda_queue_copy(call, &y, &sums);
    return status;
}

static gd_status run_scatter_set(gd_kernel_call *call) {
    const gd_scatter_options *o = call->attrs;
    return run_scatter(call, o->axis, GD_CUDA_SCATTER_SET, false);
}

static gd_status run_scatter_add(gd_kernel_call *call) {
    const gd_scatter_add_options *o = call->attrs;
    return run_scatter(call, o->axis, GD_CUDA_SCATTER_ADD, false);
}

static gd_status run_scatter_mul(gd_kernel_call *call) {
    const gd_scatter_mul_options *o = call->attrs;
    return run_scatter(call, o->axis, GD_CUDA_SCATTER_MULTIPLY, false);
}

static gd_status run_scatter_extreme(gd_kernel_call *call) {
    const gd_scatter_extreme_options *o = call->attrs;
    return run_scatter(call, o->axis,
                       o->largest ? GD_CUDA_SCATTER_LARGEST : GD_CUDA_SCATTER_SMALLEST,
                       !o->include_self);
}

/* --- results of unknown size ------------------------------------------------------------------ */

/* These kernels wait for a number that the device computes. Other threads may do so at the same
 * time, so it is copied to memory of this thread. */

static gd_status clear_number(gd_device *d, long long *number) {
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(d, cuMemsetD8Async((CUdeviceptr)(uintptr_t)number, 0, sizeof *number,
                                   gd_cuda_state_of(d)->streams[GD_QUEUE_COMPUTE]));
    return GD_OK;
}

static gd_status read_number(gd_device *d, const long long *number, long long *value) {
    gd_status status = gd_cuda_download(d, GD_QUEUE_COMPUTE, value, number, sizeof *value);
    return status == GD_OK ? gd_cuda_host->wait(d) : status;
}

/* About the square root of the number of elements: one thread sums up the chunks. */
static long long nonzero_chunk(long long count) {
    long long chunk = 32;
    while (chunk * chunk < count) chunk *= 2;
    return chunk;
}

static size_t nonzero_workspace(const gd_kernel_call *call) {
    const long long count = gd_cuda_count(&call->in[0]), chunk = nonzero_chunk(count);
    return (size_t)((count + chunk - 1) / chunk + 1) * sizeof(long long);
}

/* If an earlier call has failed, the kernels do nothing, and the number stays 0. */
static gd_status run_nonzero(gd_kernel_call *call) {
    gd_device *d = call->device;
    const gd_view *x = &call->in[0];
    gd_cuda_nonzero p = {
        .call = gd_cuda_call_of(call),
        .walk = gd_cuda_walk_over(x->rank, x->dims, -1, (const gd_view *[]){x, NULL, NULL}),
        .x = x->data,
        .dtype = (int)x->dtype,
        .rank = x->rank,
        .starts = call->workspace,
    };
    for (int i = 0; i < x->rank; i++) p.dims[i] = x->dims[i];
    p.chunk = nonzero_chunk(p.walk.count);
    p.chunks = (p.walk.count + p.chunk - 1) / p.chunk;
    long long found = 0;
    gd_status status = clear_number(d, &p.starts[p.chunks]);
    if (status == GD_OK) status = gd_cuda_launch_each(d, &nonzero_counts, p.chunks, &p);
    if (status == GD_OK) status = gd_cuda_launch_each(d, &nonzero_starts, 1, &p);
    if (status == GD_OK) status = read_number(d, &p.starts[p.chunks], &found);
    if (status == GD_OK)
        status = gd_cuda_host->kernel_output(call, 0, 2, (int64_t[]){found, x->rank});
    if (status != GD_OK || found == 0 || x->rank == 0) return status;
    p.y = call->out[0].data;
    return gd_cuda_launch_each(d, &nonzero_positions, p.chunks, &p);
}

static size_t one_hot_workspace(const gd_kernel_call *call) {
    (void)call;
    return sizeof(long long);
}

static gd_status run_one_hot_found(gd_kernel_call *call) {
    gd_device *d = call->device;
    const gd_view *x = &call->in[0];
    gd_cuda_one_hot p = {
        .call = gd_cuda_call_of(call),
        .walk = gd_cuda_walk_over(x->rank, x->dims, -1, (const gd_view *[]){x, NULL, NULL}),
        .x = x->data,
        .dtype = (int)x->dtype,
        .largest = call->workspace,
    };
    long long largest = 0;
    int64_t dims[GD_MAX_RANK];
    if (p.walk.count == 0)
        return gd_cuda_host->fail(GD_E_SHAPE, "'x' is empty, so the number of classes is unknown");
    gd_status status = clear_number(d, p.largest);
    if (status == GD_OK) status = gd_cuda_launch_each(d, &one_hot_largest, p.walk.count, &p);
    if (status == GD_OK) status = read_number(d, p.largest, &largest);
    if (status != GD_OK) return status;
    if (largest == INT64_MAX)
        return gd_cuda_host->fail(GD_E_OVERFLOW, "class %lld in 'x' is too large", largest);
    for (int i = 0; i < x->rank; i++) dims[i] = x->dims[i];
    dims[x->rank] = p.classes = largest + 1;
    status = gd_cuda_host->kernel_output(call, 0, x->rank + 1, dims);
    if (status != GD_OK) return status;
    p.y = call->out[0].data;
    p.y_dtype = (int)call->out[0].dtype;
    return gd_cuda_launch_each(d, &one_hot_write, p.walk.count * p.classes, &p);
}

/*kernel gather.elements  checked  run run_OP
 * A thread reads each element.
 */
/*kernel scatter.lines  checked  run run_scatter_set
 * A thread writes a line of the axis in the order of the indices.
 */
/*kernel scatter_extreme.lines  checked  run run_OP
 * A thread compares the values of a line in the order of the indices.
 */
/*kernel scatter_add.lines, scatter_mul.lines  checked  run run_OP  workspace sums_bytes
 * A thread adds or multiplies the values of a line in the order of the indices.
 */
/*kernel nonzero.blocks  checked  run run_OP  workspace nonzero_workspace
 * Counts in chunks, waits for the sum, and writes the positions.
 */
/*kernel one_hot_found.elements  checked  run run_OP  workspace one_hot_workspace
 * Finds the number of classes, waits for it, and writes the rows.
 */

#include "ops/index/cuda/index.gen.h"
