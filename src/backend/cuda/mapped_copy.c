/* mapped_copy.c - see mapped_copy.h. */
#include "backend/cuda/mapped_copy.h"

#include <stdlib.h>

static gd_cuda_kernel copy_mapped = GD_CUDA_KERNEL("mapped_copy", "gd_copy_mapped");

/* Adds an axis to p. Axes that are copied as they are merge if they are contiguous. */
static void add_axis(gd_cuda_mapped_copy *p, const gd_view *x, const gd_view *y, int d,
                     const gd_cuda_mapped_axis *m) {
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

gd_status gd_cuda_queue_mapped(const gd_kernel_call *call, const gd_view *x, const gd_view *y,
                               const gd_cuda_mapped_axis *maps, double value) {
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
