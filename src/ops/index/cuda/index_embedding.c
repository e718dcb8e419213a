/* index_embedding.c - rows that are selected by index (embedding, index_select), and index_add, the
 * gradient of both. */
#include "ops/index/cuda/index_embedding_args.h"

#include <stdio.h>

#include "backend/cuda/walk.h"
#include "gradus/ops.h"

static gd_cuda_kernel take_rows = GD_CUDA_KERNEL("index/index_embedding", "gd_take_rows");
static gd_cuda_kernel add_count = GD_CUDA_KERNEL("index/index_embedding", "gd_index_add_count");
static gd_cuda_kernel add_reserve = GD_CUDA_KERNEL("index/index_embedding", "gd_index_add_reserve");
static gd_cuda_kernel add_place = GD_CUDA_KERNEL("index/index_embedding", "gd_index_add_place");

#define KERNELS(before, after) \
    GD_CUDA_FLOAT_KERNELS("index/index_embedding", "gd_index_add_" before, after, 0)
static gd_cuda_kernel add_short[2][GD_CUDA_FLOATS] = {KERNELS("short", ""),
                                                      KERNELS("short", "_vector")};
static gd_cuda_kernel add_long[2][GD_CUDA_FLOATS] = {KERNELS("long", ""),
                                                     KERNELS("long", "_vector")};

/* --- selection -------------------------------------------------------------------------------- */

/* Outputs that existed before the call must not change if it fails: the indices are checked
 * first. */
static gd_status queue_take(const gd_kernel_call *call, gd_cuda_take_rows *p) {
    gd_status status = GD_OK;
    if (call->overwrites) {
        gd_cuda_take_rows check = *p;
        check.y = NULL;
        status = gd_cuda_launch_each(call->device, &take_rows, p->count, &check);
    }
    if (status != GD_OK) return status;
    return gd_cuda_launch_each(call->device, &take_rows, p->outer * p->count * p->row, p);
}

static gd_status take_rows_of(const gd_kernel_call *call, const gd_view *x, const gd_view *index,
                              const gd_view *y, int axis, gd_data_problem problem) {
    gd_cuda_take_rows p = {.call = gd_cuda_call_of(call),
                           .x = x->data,
                           .y = y->data,
                           .index = gd_cuda_view_of(index),
                           .problem = (int)problem,
                           .axis = axis,
                           .outer = 1,
                           .size = x->dims[axis],
                           .count = gd_cuda_count(index)};
    long long bytes = (long long)gd_cuda_element_size(x->dtype);
    for (int d = 0; d < axis; d++) p.outer *= x->dims[d];
    for (int d = axis + 1; d < x->rank; d++) bytes *= x->dims[d];
    if (bytes == 0 || p.outer == 0) { /* the indices are still checked */
        p.y = NULL;
        return gd_cuda_launch_each(call->device, &take_rows, p.count, &p);
    }
    p.unit = gd_cuda_copy_unit(bytes | (long long)((uintptr_t)x->data | (uintptr_t)y->data));
    p.row = bytes / p.unit;
    return queue_take(call, &p);
}

static gd_status run_embedding(gd_kernel_call *call) {
    return take_rows_of(call, &call->in[1], &call->in[0], &call->out[0], 0, GD_DATA_INDEX);
}
static bool match_embedding(const gd_kernel_call *call) {
    return gd_cuda_is_contiguous(&call->in[1]) && gd_cuda_is_contiguous(&call->out[0]);
}

static gd_status run_index_select(gd_kernel_call *call) {
    const gd_index_select_options *o = call->attrs;
    const gd_view x = gd_cuda_at_least_1d(call->in[0]), index = gd_cuda_at_least_1d(call->in[1]);
    return take_rows_of(call, &x, &index, &call->out[0], gd_cuda_axis(o->axis, x.rank),
                        GD_DATA_AXIS_INDEX);
}
static bool match_index_select(const gd_kernel_call *call) {
    return gd_cuda_is_contiguous(&call->in[0]) && gd_cuda_is_contiguous(&call->out[0]);
}

/* --- index_add -------------------------------------------------------------------------------- */

/* Offsets into the workspace. */
typedef struct add_layout {
    size_t totals, counts, cleared, starts, segments, order, bytes;
} add_layout;

static add_layout layout_add(const gd_kernel_call *call) {
    const gd_index_add_options *o = call->attrs;
    const gd_view y = gd_cuda_at_least_1d(call->out[0]);
    const size_t size = (size_t)y.dims[gd_cuda_axis(o->axis, y.rank)],
                 count = (size_t)gd_cuda_count(&call->in[1]), word = sizeof(unsigned);
    add_layout w = {0};
#define RESERVE(field, count) w.field = w.bytes, w.bytes += ((count) + 15) / 16 * 16
    RESERVE(totals, 3 * word);
    RESERVE(counts, size * word);
    w.cleared = w.bytes;
    RESERVE(starts, size * word);
    RESERVE(segments, (size < count ? size : count) * sizeof(gd_cuda_segment));
    RESERVE(order, count * word);
#undef RESERVE
    return w;
}
static size_t add_bytes(const gd_kernel_call *call) { return layout_add(call).bytes; }

static bool match_index_add(const gd_kernel_call *call) {
    const gd_index_add_options *o = call->attrs;
    const gd_view y = gd_cuda_at_least_1d(call->out[0]);
    return gd_cuda_is_contiguous(&call->out[0]) && gd_cuda_is_contiguous(&call->in[2]) &&
           y.dims[gd_cuda_axis(o->axis, y.rank)] < UINT32_MAX &&
           gd_cuda_count(&call->in[1]) < UINT32_MAX;
}

/* Whether an index may occur so often that a block adds its rows. */
static bool has_long_segments(int64_t count) { return count > GD_CUDA_SHORT_SEGMENT; }

static gd_status queue_sums(const gd_kernel_call *call, const gd_cuda_index_add *p) {
    const gd_dtype dtype = call->out[0].dtype;
    const int vector = 16 / (int)gd_cuda_element_size(dtype);
    const bool wide = p->width % vector == 0 && ((uintptr_t)p->src | (uintptr_t)p->y) % 16 == 0;
    const int64_t parts = (p->width + 32 * (wide ? vector : 1) - 1) / (32 * (wide ? vector : 1));
    const int64_t work = p->max_segments * p->outer * parts,
                  most = 16 * (int64_t)gd_cuda_state_of(call->device)->processors,
                  warps = (work + GD_CUDA_ADD_WARPS - 1) / GD_CUDA_ADD_WARPS;
    gd_status status = gd_cuda_launch(call->device, &add_short[wide][gd_cuda_float_number(dtype)],
                                      warps < most ? warps : most, GD_CUDA_ADD_THREADS, p);
    if (status != GD_OK || !has_long_segments(p->count)) return status;
    return gd_cuda_launch(call->device, &add_long[wide][gd_cuda_float_number(dtype)],
                          work < most ? work : most, GD_CUDA_LONG_THREADS, p);
}

static gd_status run_index_add(gd_kernel_call *call) {
    const gd_index_add_options *o = call->attrs;
    const add_layout w = layout_add(call);
    const gd_view y = gd_cuda_at_least_1d(call->out[0]), index = gd_cuda_at_least_1d(call->in[1]);
    const int axis = gd_cuda_axis(o->axis, y.rank);
    char *work = call->workspace;
    gd_cuda_index_add p = {.call = gd_cuda_call_of(call),
                           .index = gd_cuda_view_of(&index),
                           .axis = axis,
                           .src = call->in[2].data,
                           .y = y.data,
                           .alpha = o->alpha,
                           .outer = 1,
                           .size = y.dims[axis],
                           .count = gd_cuda_count(&index),
                           .width = 1,
                           .totals = (unsigned *)(work + w.totals),
                           .counts = (unsigned *)(work + w.counts),
                           .starts = (unsigned *)(work + w.starts),
                           .segments = (gd_cuda_segment *)(work + w.segments),
                           .order = (unsigned *)(work + w.order)};
    p.max_segments = p.size < p.count ? p.size : p.count;
    for (int d = 0; d < axis; d++) p.outer *= y.dims[d];
    for (int d = axis + 1; d < y.rank; d++) p.width *= y.dims[d];
    gd_status status = gd_cuda_enter_context(call->device);
    if (status == GD_OK)
        status = GD_CUDA_CALL(
            call->device,
            cuMemsetD8Async((CUdeviceptr)(uintptr_t)p.totals, 0, w.cleared,
                            gd_cuda_state_of(call->device)->streams[GD_QUEUE_COMPUTE]));
    if (status == GD_OK) status = gd_cuda_launch_each(call->device, &add_count, p.count, &p);
    if (status == GD_OK && gd_cuda_count(&y) > 0)
        status = gd_cuda_queue_copy(call, &call->out[0], &call->in[0]);
    if (status != GD_OK || p.count == 0 || p.width == 0 || p.outer == 0 || p.size == 0)
        return status;
    status = gd_cuda_launch_each(call->device, &add_reserve, p.size, &p);
    if (status == GD_OK) status = gd_cuda_launch_each(call->device, &add_place, p.count, &p);
    return status == GD_OK ? queue_sums(call, &p) : status;
}

static void describe_index_add(const gd_kernel_call *call, char *text, size_t size) {
    snprintf(text, size, "a warp for each index%s",
             has_long_segments(gd_cuda_count(&call->in[1])) ? ", a block for frequent ones" : "");
}

/*kernel embedding.rows, index_select.rows  checked  run run_OP  match match_OP
 * Rows of the table, copied as vectors of 16 bytes.
 */
/*kernel index_add.segments  dtypes f16 bf16 f32 f64  checked  run run_OP  match match_OP
 *        workspace add_bytes  describe describe_index_add
 * A warp or a block adds all rows of one index, in the order of the indices.
 */

#include "ops/index/cuda/index_embedding.gen.h"
