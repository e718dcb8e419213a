/* join.c - concatenation, and copies that select elements by index: pad, flip, roll and the
 * gradient of slices. */
#include "ops/join/cuda/join_args.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/walk.h"
#include "gradus/ops.h"
#include "ops/pad/pad.h"

static gd_cuda_kernel join_pieces = GD_CUDA_KERNEL("join/join", "gd_join_pieces");
static gd_cuda_kernel copy_mapped = GD_CUDA_KERNEL("join/join", "gd_copy_mapped");

/* The largest power of two up to 16 that divides the number. */
static int common_unit(long long number) {
    int unit = 16;
    while (number % unit != 0) unit /= 2;
    return unit;
}

/* --- cat and stack ---------------------------------------------------------------------------- */

/* The bytes of x in a row of y: its dimensions from `axis` on. */
static long long row_bytes(const gd_view *x, int axis) {
    long long bytes = (long long)gd_cuda_element_size(x->dtype);
    for (int d = axis; d < x->rank; d++) bytes *= x->dims[d];
    return bytes;
}

/* Whether the inputs can be copied as rows of bytes: contiguous and of the dtype of y. */
static bool are_rows(const gd_kernel_call *call, int rank) {
    const gd_view *y = &call->out[0];
    bool rows = gd_cuda_is_contiguous(y);
    for (int i = 0; i < call->n_in && rows; i++)
        rows = call->in[i].rank != rank ||
               (call->in[i].dtype == y->dtype && gd_cuda_is_contiguous(&call->in[i]));
    return rows;
}

/* Copies inputs of this rank to adjacent columns of y. The rows are the dimensions before `axis`.
 */
static gd_status queue_rows(const gd_kernel_call *call, int rank, int axis) {
    const gd_view *y = &call->out[0];
    long long rows = 1, total = 0, mixed = (long long)(uintptr_t)y->data;
    for (int d = 0; d < axis; d++) rows *= y->dims[d];
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i].rank != rank) continue;
        const long long bytes = row_bytes(&call->in[i], axis);
        if (bytes > 0) mixed |= (long long)(uintptr_t)call->in[i].data | bytes;
        total += bytes;
    }
    if (rows == 0 || total == 0) return GD_OK;
    gd_cuda_join p = {.call = gd_cuda_call_of(call), .y = y->data, .rows = rows};
    p.unit = common_unit(mixed);
    p.row = total / p.unit;
    long long start = 0, largest = 0; /* units of the largest piece */
    gd_status status = GD_OK;
    for (int i = 0; i < call->n_in && status == GD_OK; i++) {
        const long long units =
            call->in[i].rank == rank ? row_bytes(&call->in[i], axis) / p.unit : 0;
        if (units > 0) {
            p.pieces[p.count].x = call->in[i].data;
            p.pieces[p.count].start = start;
            p.pieces[p.count].small = rows * units < INT32_MAX;
            if (p.pieces[p.count].small) p.pieces[p.count].by = gd_cuda_divisor_of(units);
            p.pieces[p.count++].end = start += units;
            if (rows * units > largest) largest = rows * units;
        }
        if (p.count == 0 || (p.count < GD_CUDA_PIECES && i + 1 < call->n_in)) continue;
        status = gd_cuda_launch_each(call->device, &join_pieces, largest, &p);
        p.count = 0;
        largest = 0;
    }
    return status;
}

static gd_status run_cat(gd_kernel_call *call) {
    const gd_view *y = &call->out[0];
    const gd_cat_options *o = call->attrs;
    const int axis = gd_cuda_axis(o->axis, y->rank);
    if (are_rows(call, y->rank)) return queue_rows(call, y->rank, axis);
    gd_view part = *y;
    gd_status status = GD_OK;
    for (int i = 0; i < call->n_in && status == GD_OK; i++) {
        const gd_view *x = &call->in[i];
        if (x->rank != y->rank) continue; /* an empty tensor */
        part.dims[axis] = x->dims[axis];
        if (gd_cuda_count(x) > 0) status = gd_cuda_queue_copy(call, &part, x);
        part.data = (char *)part.data +
                    x->dims[axis] * part.strides[axis] * (int64_t)gd_cuda_element_size(y->dtype);
    }
    return status;
}

static gd_status run_stack(gd_kernel_call *call) {
    const gd_view *y = &call->out[0];
    const gd_stack_options *o = call->attrs;
    const int axis = gd_cuda_axis(o->axis, y->rank);
    if (are_rows(call, y->rank - 1)) return queue_rows(call, y->rank - 1, axis);
    gd_view part = *y; /* y without the new axis */
    gd_status status = GD_OK;
    part.rank--;
    for (int d = axis; d < part.rank; d++) {
        part.dims[d] = y->dims[d + 1];
        part.strides[d] = y->strides[d + 1];
    }
    for (int i = 0; i < call->n_in && status == GD_OK; i++) {
        if (gd_cuda_count(&part) > 0) status = gd_cuda_queue_copy(call, &part, &call->in[i]);
        part.data = (char *)part.data + y->strides[axis] * (int64_t)gd_cuda_element_size(y->dtype);
    }
    return status;
}

/* --- mapped copies ---------------------------------------------------------------------------- */

/* One axis of a mapped copy. */
typedef struct axis_map {
    gd_cuda_axis_map map;
    long long first, period, base;
} axis_map;

/* Adds an axis to p. Axes that are copied as they are merge if they are contiguous. */
static void add_axis(gd_cuda_mapped_copy *p, const gd_view *x, const gd_view *y, int d,
                     const axis_map *m) {
    const int before = p->rank - 1;
    const bool same = m->map == GD_CUDA_MAP_SAME;
    if (same && y->dims[d] == 1) return;
    if (same && before >= 0 && p->maps[before] == GD_CUDA_MAP_SAME &&
        p->x_strides[before] == x->dims[d] * x->strides[d] &&
        p->y_strides[before] == y->dims[d] * y->strides[d]) {
        p->dims[before] *= y->dims[d];
        p->sizes[before] *= x->dims[d];
        p->x_strides[before] = x->strides[d];
        p->y_strides[before] = y->strides[d];
        return;
    }
    const int k = p->rank++;
    p->dims[k] = y->dims[d];
    p->sizes[k] = x->dims[d];
    p->x_strides[k] = x->strides[d];
    p->y_strides[k] = y->strides[d];
    p->maps[k] = (int)m->map;
    p->first[k] = m->first;
    p->period[k] = m->period;
    p->base[k] = m->base;
}

/* Copies 16 bytes at a time if the last axis is copied as it is and everything is aligned. */
static void widen_units(gd_cuda_mapped_copy *p) {
    const int last = p->rank - 1, per = 16 / p->unit;
    if (last < 0 || p->maps[last] != GD_CUDA_MAP_SAME || p->x_strides[last] != 1 ||
        p->y_strides[last] != 1 || p->dims[last] % per != 0 ||
        ((uintptr_t)p->x | (uintptr_t)p->y) % 16 != 0)
        return;
    for (int d = 0; d < last; d++)
        if (p->x_strides[d] % per != 0 || p->y_strides[d] % per != 0) return;
    for (int d = 0; d < last; d++) p->x_strides[d] /= per, p->y_strides[d] /= per;
    p->dims[last] /= per;
    p->sizes[last] /= per;
    p->unit = 16;
}

/* Whether 32 bits hold all numbers of a copy. */
static bool is_small(const gd_cuda_mapped_copy *p) {
    const long long most = INT32_MAX;
    long long x = 0, y = 0;
    bool small = p->count < most;
    for (int d = 0; d < p->rank && small; d++) {
        const long long first = llabs(p->first[d]), x_stride = llabs(p->x_strides[d]),
                        y_stride = llabs(p->y_strides[d]);
        small = p->sizes[d] < most / 4 && p->dims[d] < most / 4 && first < most / 4 &&
                llabs(p->period[d]) < most && p->base[d] < most / 4 && x_stride < most &&
                y_stride < most && (x += p->sizes[d] * x_stride) < most &&
                (y += p->dims[d] * y_stride) < most;
    }
    return small;
}

static gd_status queue_mapped(const gd_kernel_call *call, const gd_view *x, const gd_view *y,
                              const axis_map *maps, double value) {
    gd_cuda_mapped_copy p = {.call = gd_cuda_call_of(call),
                             .y = y->data,
                             .x = x->data,
                             .dtype = (int)y->dtype,
                             .unit = (int)gd_cuda_element_size(y->dtype),
                             .value = value,
                             .count = 1};
    for (int d = 0; d < y->rank; d++) add_axis(&p, x, y, d, &maps[d]);
    widen_units(&p);
    for (int d = 0; d < p.rank; d++) p.count *= p.dims[d];
    p.small = is_small(&p);
    for (int d = 0; d < p.rank && p.small; d++)
        p.by[d] = gd_cuda_divisor_of(p.dims[d] > 0 ? p.dims[d] : 1);
    return gd_cuda_launch_each(call->device, &copy_mapped, p.count, &p);
}

static gd_status run_pad(gd_kernel_call *call) {
    const gd_pad_options *o = call->attrs;
    const gd_view *x = &call->in[0], *y = &call->out[0];
    gd_pad_axis axes[GD_MAX_RANK];
    axis_map maps[GD_MAX_RANK] = {{GD_CUDA_MAP_SAME, 0, 0, 0}};
    gd_pad_axes(x->rank, x->dims, &o->padding, axes);
    for (int d = 0; d < x->rank; d++) {
        const gd_pad_axis *a = &axes[d];
        maps[d] = (axis_map){GD_CUDA_MAP_SAME, 0, 0, 0};
        if (a->left == 0 && a->out == a->n) continue;
        if (o->mode == GD_CIRCULAR)
            maps[d] = (axis_map){GD_CUDA_MAP_CIRCULAR, a->front, a->kept, a->first};
        else
            maps[d] = (axis_map){o->mode == GD_REFLECT     ? GD_CUDA_MAP_REFLECT
                                 : o->mode == GD_REPLICATE ? GD_CUDA_MAP_REPLICATE
                                                           : GD_CUDA_MAP_SHIFT,
                                 a->left, 0, 0};
    }
    return queue_mapped(call, x, y, maps, o->value);
}

static gd_status run_slice_grad(gd_kernel_call *call) {
    const gd_slice_grad_options *o = call->attrs;
    const gd_view *gy = &call->in[0], *gx = &call->out[0];
    const int axis = gd_cuda_axis(o->axis, gx->rank);
    axis_map maps[GD_MAX_RANK];
    for (int d = 0; d < gx->rank; d++) maps[d] = (axis_map){GD_CUDA_MAP_SAME, 0, 0, 0};
    if (gx->rank > 0)
        maps[axis] = o->step == 1 ? (axis_map){GD_CUDA_MAP_SHIFT, o->start, 0, 0}
                                  : (axis_map){GD_CUDA_MAP_STRIDED, o->start, o->step, 0};
    return queue_mapped(call, gy, gx, maps, 0);
}

/* A copy from the last element, with negative strides. */
static gd_status run_flip(gd_kernel_call *call) {
    const gd_flip_options *o = call->attrs;
    gd_view x = call->in[0];
    if (gd_cuda_count(&x) == 0) return GD_OK;
    for (int k = 0; k < o->axes.rank && x.rank > 0; k++) {
        const int d = gd_cuda_axis(o->axes.at[k], x.rank);
        x.data = (char *)x.data +
                 (x.dims[d] - 1) * x.strides[d] * (int64_t)gd_cuda_element_size(x.dtype);
        x.strides[d] = -x.strides[d];
    }
    return gd_cuda_queue_copy(call, &call->out[0], &x);
}

/* A roll of the flattened tensor runs as its body. */
static bool match_roll(const gd_kernel_call *call) {
    const gd_roll_options *o = call->attrs;
    return o->axis.form > 0;
}
static gd_status run_roll(gd_kernel_call *call) {
    const gd_roll_options *o = call->attrs;
    const gd_view *x = &call->in[0];
    axis_map maps[GD_MAX_RANK];
    for (int d = 0; d < x->rank; d++) maps[d] = (axis_map){GD_CUDA_MAP_SAME, 0, 0, 0};
    for (int k = 0; k < o->axis.rank; k++) {
        const int d = gd_cuda_axis(o->axis.at[k], x->rank);
        const int64_t size = x->dims[d] > 0 ? x->dims[d] : 1, shift = o->shifts.at[k] % size;
        maps[d] = (axis_map){GD_CUDA_MAP_CIRCULAR, (maps[d].first + shift) % size, size, 0};
    }
    return queue_mapped(call, x, &call->out[0], maps, 0);
}

/*kernel cat.rows  checked  strided  run run_OP
 */
/*kernel stack.rows  checked  run run_OP
 */
/*kernel pad.mapped, slice_grad.mapped  checked  run run_OP
 */
/*kernel flip.copy  checked  run run_OP
 */
/*kernel roll.mapped  checked  run run_OP  match match_OP
 */

#include "ops/join/cuda/join.gen.h"
