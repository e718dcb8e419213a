/* strided.c - see strided.h. */
#include "backend/cuda/strided.h"

#include <stdlib.h>

#include "backend/cuda/strided_args.h"

static gd_cuda_kernel copy_strided = GD_CUDA_KERNEL("strided", "gd_copy_strided");
static gd_cuda_kernel copy_broadcast = GD_CUDA_KERNEL("strided", "gd_copy_broadcast");
static gd_cuda_kernel copy_transposed = GD_CUDA_KERNEL("strided", "gd_copy_transposed");

/* A dimension of a copy. */
typedef struct copy_axis {
    int64_t size, to, from; /* strides */
} copy_axis;

/* The dimensions of a copy, largest stride of `to` first; -1: not supported. */
static int list_axes(const gd_view *to, const gd_view *from, bool reshapes, copy_axis *axes) {
    const gd_view *shape = reshapes ? from : to;
    int64_t step = 1; /* stride of a contiguous `to` that has the shape of `from` */
    int rank = 0;
    if (reshapes && !gd_cuda_is_contiguous(to)) return -1;
    for (int d = shape->rank; d-- > 0; step *= shape->dims[d]) {
        const int k = d - (shape->rank - from->rank);
        if (shape->dims[d] == 1) continue;
        const copy_axis axis = {shape->dims[d], reshapes ? step : to->strides[d],
                                k >= 0 && from->dims[k] > 1 ? from->strides[k] : 0};
        int at = rank++;
        for (; at > 0 && llabs(axes[at - 1].to) < llabs(axis.to); at--) axes[at] = axes[at - 1];
        axes[at] = axis;
    }
    int merged = 0;
    for (int d = 0; d < rank; d++) {
        copy_axis *before = &axes[merged - 1];
        if (merged > 0 && before->to == axes[d].size * axes[d].to &&
            before->from == axes[d].size * axes[d].from) {
            before->size *= axes[d].size;
            before->to = axes[d].to;
            before->from = axes[d].from;
        } else axes[merged++] = axes[d];
    }
    return merged;
}

/* Whether 32 bits hold all offsets and numbers. */
static bool is_small(const copy_axis *axes, int rank) {
    const int64_t most = INT32_MAX;
    int64_t count = 1, to = 0, from = 0;
    for (int d = 0; d < rank; d++) {
        const copy_axis *a = &axes[d];
        if (a->size > most || llabs(a->to) > most || llabs(a->from) > most) return false;
        if ((count *= a->size) > most || (to += a->size * llabs(a->to)) > most ||
            (from += a->size * llabs(a->from)) > most)
            return false;
    }
    return true;
}

/* Copies 16 bytes at a time if both views are contiguous along the last axis and aligned. */
static int widen_units(const gd_view *to, const gd_view *from, copy_axis *axes, int rank) {
    const int size = (int)gd_cuda_element_size(to->dtype), per = 16 / size;
    if (rank == 0 || axes[rank - 1].to != 1 || axes[rank - 1].from != 1 ||
        axes[rank - 1].size % per != 0 || ((uintptr_t)to->data | (uintptr_t)from->data) % 16 != 0)
        return size;
    for (int d = 0; d < rank - 1; d++)
        if (axes[d].to % per != 0 || axes[d].from % per != 0) return size;
    for (int d = 0; d < rank - 1; d++) axes[d].to /= per, axes[d].from /= per;
    axes[rank - 1].size /= per;
    return 16;
}

/* Moves the axis along which `from` is contiguous before the last one, along which `to` is. */
static bool order_transpose(copy_axis *axes, int rank) {
    enum { MIN_SIZE = 8 };
    if (rank < 2 || axes[rank - 1].to != 1 || axes[rank - 1].size < MIN_SIZE) return false;
    for (int d = 0; d < rank - 1; d++) {
        const copy_axis a = axes[d];
        if (a.from != 1 || a.size < MIN_SIZE) continue;
        for (int k = d; k < rank - 2; k++) axes[k] = axes[k + 1];
        axes[rank - 2] = a;
        return true;
    }
    return false;
}

bool gd_cuda_queue_strided(const gd_kernel_call *call, const gd_view *to, const gd_view *from,
                           bool reshapes, gd_status *status) {
    copy_axis axes[GD_MAX_RANK];
    const int rank = list_axes(to, from, reshapes, axes);
    if (rank < 0 || !is_small(axes, rank)) return false;
    gd_cuda_strided_copy p = {.call = gd_cuda_call_of(call),
                              .to = to->data,
                              .from = from->data,
                              .unit = widen_units(to, from, axes, rank),
                              .rank = rank,
                              .count = 1};
    if (rank == 1 && axes[0].to == 1 && axes[0].from == 0 && axes[0].size * p.unit % 16 == 0 &&
        (uintptr_t)to->data % 16 == 0) {
        p.count = (int)(axes[0].size * p.unit / 16);
        *status = gd_cuda_launch_each(call->device, &copy_broadcast, p.count, &p);
        return true;
    }
    const bool transposes = p.unit < 16 && order_transpose(axes, rank);
    for (int d = 0; d < rank; d++) {
        p.dims[d] = (int)axes[d].size;
        p.to_strides[d] = (int)axes[d].to;
        p.from_strides[d] = (int)axes[d].from;
        int parts = p.dims[d];
        if (transposes && d >= rank - 2)
            parts = (parts + GD_CUDA_TRANSPOSE_TILE - 1) / GD_CUDA_TRANSPOSE_TILE;
        p.by[d] = gd_cuda_divisor_of(parts > 0 ? parts : 1);
        p.count *= parts;
    }
    const int64_t most = 32 * (int64_t)gd_cuda_state_of(call->device)->processors;
    *status = transposes
                  ? gd_cuda_launch(call->device, &copy_transposed, p.count < most ? p.count : most,
                                   GD_CUDA_TRANSPOSE_THREADS, &p)
                  : gd_cuda_launch_each(call->device, &copy_strided, p.count, &p);
    return true;
}
