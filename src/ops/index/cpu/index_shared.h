/* index_shared.h - what the gather and scatter kernels share: checked indices as element
 * offsets, and the partition into tasks.
 */
#ifndef GRADUS_OPS_INDEX_CPU_INDEX_SHARED_H
#define GRADUS_OPS_INDEX_CPU_INDEX_SHARED_H

#include <stdio.h>

#include "ops/index/cpu/index_rows.h"
#include "ops/index/index.h"

enum {
    TASK_ELEMENTS = 16384, /* roughly */
    BLOCK = 512,           /* indices whose offsets are computed at once */
};

static inline bool is_row_major_view(const gd_view *v) {
    return gd_is_row_major(v->rank, v->dims, v->strides);
}

/* The reference kernels handle other integer dtypes. */
static inline bool is_fast_index(const gd_view *index) {
    return index->dtype == GD_I64 || index->dtype == GD_I32;
}

static inline int resolve_axis(int64_t axis, int rank) {
    return (int)(axis < 0 ? axis + rank : axis);
}

/* Contiguous indices into an axis of `size` elements with stride `step`. */
typedef struct {
    const void *data;
    bool is_i32; /* else i64 */
    int64_t size, step;
} index_list;

/* Loads indices [first, first + n) as element offsets (index * step); false if one is not in [0,
 * size). */
static inline bool load_offsets(const index_list *l, int64_t first, int64_t n, int64_t *offsets) {
    if (l->is_i32)
        return GD_ISA_CALL(gd_index_offsets_i32)((const int32_t *)l->data + first, n, l->size,
                                                 l->step, offsets);
    return GD_ISA_CALL(gd_index_offsets_i64)((const int64_t *)l->data + first, n, l->size, l->step,
                                             offsets);
}

static inline gd_status fail_out_of_range(const gd_view *index, int64_t size, int axis) {
    char text[16];
    snprintf(text, sizeof text, "axis %d", axis);
    return gd_check_indices(index, size, text);
}

/* The number of tasks for `units` of `elements` each, and the units of a task. */
static inline int64_t task_count(int64_t units, int64_t elements, int64_t *units_per_task) {
    *units_per_task = elements < 1               ? TASK_ELEMENTS
                      : elements < TASK_ELEMENTS ? TASK_ELEMENTS / elements
                                                 : 1;
    return (units + *units_per_task - 1) / *units_per_task;
}

/* The offsets of all indices; false if one is out of range. */
static inline bool load_all_offsets(const gd_view *index, int64_t size, int64_t step,
                                    int64_t *offsets) {
    return load_offsets(&(index_list){index->data, index->dtype == GD_I32, size, step}, 0,
                        gd_numel(index->rank, index->dims), offsets);
}

static inline size_t offsets_bytes(const gd_view *index) {
    return (size_t)gd_numel(index->rank, index->dims) * sizeof(int64_t);
}

#endif
