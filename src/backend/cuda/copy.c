/* copy.c - copies, reshapes and assignments. */
#include "backend/cuda/kernels/copy.h"

#include "backend/cuda/kernels.h"

static gd_cuda_kernel copy_views = GD_CUDA_KERNEL("copy", "gd_copy_views");
static gd_cuda_kernel copy_bytes = GD_CUDA_KERNEL("copy", "gd_copy_bytes");
static gd_cuda_kernel copy_units = GD_CUDA_KERNEL("copy", "gd_copy_units");
static gd_cuda_kernel transpose_units = GD_CUDA_KERNEL("copy", "gd_transpose_units");

static bool same_dims(const gd_view *a, const gd_view *b) {
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->dims[i] == b->dims[i];
    return same;
}

/* --- copies without conversion ---------------------------------------------------------------- */

/* Appends a dim, or merges it with the one before if it continues that in both views. */
static void add_dim(gd_cuda_copy_units *p, long long dim, long long to, long long from) {
    const int last = p->rank - 1;
    if (dim == 1) return;
    if (last >= 0 && p->to_strides[last] == to * dim && p->from_strides[last] == from * dim) {
        p->dims[last] *= dim;
    } else {
        p->rank++;
        p->dims[last + 1] = dim;
    }
    p->to_strides[p->rank - 1] = to;
    p->from_strides[p->rank - 1] = from;
}

/* Describes the copy with merged dims. A reshape writes `to`, which is contiguous, in the order of
 * the elements of `from`. False: dtypes differ, or there are too many elements. */
static bool describe_units(const gd_view *to, const gd_view *from, bool reshapes,
                           gd_cuda_copy_units *p) {
    if (to->dtype != from->dtype || (reshapes && !gd_cuda_is_contiguous(to))) return false;
    const gd_view *shape = reshapes ? from : to;
    p->count = gd_cuda_count(to);
    if (p->count == 0 || p->count >= INT32_MAX) return false;
    long long left = p->count;
    for (int d = 0; d < shape->rank; d++) {
        const int k = d - shape->rank + from->rank;
        left /= shape->dims[d];
        add_dim(p, shape->dims[d], reshapes ? left : to->strides[d],
                k >= 0 && from->dims[k] > 1 ? from->strides[k] : 0);
    }
    p->to = to->data;
    p->from = from->data;
    p->size = (int)gd_cuda_element_size(to->dtype);
    return true;
}

/* Joins elements that are adjacent in both views to units of up to 16 bytes. */
static void widen_units(gd_cuda_copy_units *p) {
    const int last = p->rank - 1;
    if (last < 0 || p->to_strides[last] != 1 || p->from_strides[last] != 1) return;
    while (p->size < 16) {
        const uintptr_t mask = 2 * (uintptr_t)p->size - 1;
        bool even = p->dims[last] % 2 == 0 && (((uintptr_t)p->to | (uintptr_t)p->from) & mask) == 0;
        for (int d = 0; d < last && even; d++)
            even = p->to_strides[d] % 2 == 0 && p->from_strides[d] % 2 == 0;
        if (!even) return;
        p->size *= 2;
        p->dims[last] /= 2;
        p->count /= 2;
        for (int d = 0; d < last; d++) p->to_strides[d] /= 2, p->from_strides[d] /= 2;
    }
}

static void move_dim(long long *list, int from, int to) {
    const long long moved = list[from];
    for (int d = from; d < to; d++) list[d] = list[d + 1];
    list[to] = moved;
}

/* Whether the copy is a transpose: brings the dim that is adjacent in `from` next to the last one,
 * which is adjacent in `to`. */
static bool is_transpose(gd_cuda_copy_units *p) {
    enum { SMALLEST = 8 };
    const int last = p->rank - 1;
    if (p->rank < 2 || p->size > 8 || p->to_strides[last] != 1 || p->from_strides[last] == 1 ||
        p->dims[last] < SMALLEST)
        return false;
    for (int d = 0; d < last; d++) {
        if (p->from_strides[d] != 1 || p->dims[d] < SMALLEST) continue;
        move_dim(p->dims, d, last - 1);
        move_dim(p->to_strides, d, last - 1);
        move_dim(p->from_strides, d, last - 1);
        return true;
    }
    return false;
}

static gd_status queue_units(gd_device *d, gd_cuda_copy_units *p) {
    widen_units(p);
    if (!is_transpose(p)) return gd_cuda_launch_each(d, &copy_units, p->count, p);
    long long tiles = 1;
    for (int i = 0; i < p->rank; i++)
        tiles *= i < p->rank - 2 ? p->dims[i] : (p->dims[i] + GD_CUDA_TILE - 1) / GD_CUDA_TILE;
    return gd_cuda_launch(d, &transpose_units, tiles, GD_CUDA_TILE * GD_CUDA_TILE_ROWS, p);
}

/* --- copies ----------------------------------------------------------------------------------- */

static gd_status queue_copy(const gd_kernel_call *call, const gd_view *to, const gd_view *from,
                            bool reshapes) {
    const gd_cuda_call c = gd_cuda_call_of(call);
    if (to->dtype == from->dtype && (reshapes || same_dims(to, from)) &&
        gd_cuda_is_contiguous(to) && gd_cuda_is_contiguous(from)) {
        const gd_cuda_copy_bytes p = {c, to->data, from->data,
                                      gd_cuda_count(to) *
                                          (long long)gd_cuda_element_size(to->dtype)};
        return gd_cuda_launch_each(call->device, &copy_bytes, (p.bytes + 15) / 16, &p);
    }
    gd_cuda_copy_units units = {.call = c};
    if (describe_units(to, from, reshapes, &units)) return queue_units(call->device, &units);
    const gd_cuda_copy p = {c, gd_cuda_view_of(to), gd_cuda_view_of(from), reshapes};
    return gd_cuda_launch_each(call->device, &copy_views, p.to.count, &p);
}

gd_status gd_cuda_queue_copy(const gd_kernel_call *call, const gd_view *to, const gd_view *from) {
    return queue_copy(call, to, from, false);
}

static gd_status run_copy(gd_kernel_call *call) {
    return queue_copy(call, &call->out[0], &call->in[0], false);
}

/* The same elements in row-major order: a reshape that cannot be a view. */
static gd_status run_reshape(gd_kernel_call *call) {
    return queue_copy(call, &call->out[0], &call->in[0], true);
}

/* The inputs are x and the value, the outputs the new value and x. The value may be a view of x, so
 * it is copied to the first output before x is written. */
static gd_status run_assign(gd_kernel_call *call) {
    const gd_view *value = &call->in[1];
    if (call->out[0].data) {
        gd_status status = queue_copy(call, &call->out[0], value, false);
        if (status != GD_OK) return status;
        value = &call->out[0];
    }
    return queue_copy(call, &call->out[1], value, false);
}

GD_CUDA_OP(clone, run_copy)
GD_CUDA_OP(contiguous, run_reshape)
GD_CUDA_OP(flatten, run_reshape)
GD_CUDA_OP(reshape, run_reshape)
GD_CUDA_OP(assign, run_assign)
