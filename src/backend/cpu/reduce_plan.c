/* reduce_plan.c - plans reductions (reduce_plan.h). */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/reduce_plan.h"

static int64_t magnitude(int64_t step) { return step < 0 ? -step : step; }

/* Whether `a` is outside of `b`: stride 0 first, then by decreasing stride. */
static bool is_outside(const reduce_axis *a, const reduce_axis *b) {
    const int64_t p = magnitude(a->x), q = magnitude(b->x);
    return (p == 0) != (q == 0) ? p == 0 : p > q;
}

/* Orders axes from the outermost; equal ones stay in order. There are few. */
static void sort_axes(reduce_axis *axes, int n) {
    for (int i = 1; i < n; i++) {
        const reduce_axis a = axes[i];
        int at = i;
        for (; at > 0 && is_outside(&a, &axes[at - 1]); at--) axes[at] = axes[at - 1];
        axes[at] = a;
    }
}

/* Merges adjacent axes that can be traversed as one axis with a constant stride. */
static int merge_axes(reduce_axis *axes, int n) {
    int joined = 0;
    for (int i = 0; i < n; i++) {
        reduce_axis *last = joined ? &axes[joined - 1] : NULL, *a = &axes[i];
        if (a->dim == 1) continue;
        if (last && last->x == a->x * a->dim && last->y == a->y * a->dim &&
            last->y1 == a->y1 * a->dim) {
            int64_t dim = last->dim * a->dim;
            *last = *a;
            last->dim = dim;
        } else axes[joined++] = *a;
    }
    return joined;
}

static reduce_axis take_innermost(reduce_axis *axes, int *n, int64_t x_size) {
    if (*n > 0) return axes[--*n];
    return (reduce_axis){.dim = 1, .x = x_size};
}

static int64_t axes_product(const reduce_axis *axes, int n) {
    int64_t count = 1;
    for (int i = 0; i < n; i++) count *= axes[i].dim;
    return count;
}

static int64_t segment_elements(const reduce_job *j) {
    return j->r.source ? SOURCE_SEGMENT : SEGMENT;
}

/* Divides a long run into several leaves, and puts several short runs with a constant stride into
 * one leaf. */
static void plan_by_rows(reduce_job *j) {
    j->direct = j->run.x == j->size && j->x->dtype == j->r.type;
    j->leaf = LEAF;
    j->leaves = divide_up(j->total, LEAF);
    if (j->direct && j->total > 0) {
        int64_t runs = j->total / j->run.dim, leaves_per_run = divide_up(j->run.dim, LEAF);
        j->line = leaves_per_run == 1 && j->n_reduced > 0 ? j->reduced[j->n_reduced - 1].dim : 1;
        j->leaf_runs = j->line > 1 ? LEAF / j->run.dim : 1;
        j->leaf = leaves_per_run > 1 ? divide_up(divide_up(j->run.dim, leaves_per_run), 128) * 128
                                     : j->run.dim;
        j->leaves_per_line = leaves_per_run > 1 ? leaves_per_run : divide_up(j->line, j->leaf_runs);
        j->leaves = runs / j->line * j->leaves_per_line;
    }
    int64_t elements = j->leaf * (j->leaf_runs > 1 ? j->leaf_runs : 1);
    j->results_interleaved = j->line > 1 && j->inner.dim > 1 &&
                             magnitude(j->inner.x) < magnitude(j->reduced[j->n_reduced - 1].x);
    if (j->results_interleaved) elements *= j->inner.dim < ROWS_BATCH ? j->inner.dim : ROWS_BATCH;
    j->leaves_per_segment = divide_up(segment_elements(j), elements > 0 ? elements : 1);
    j->segments = divide_up(j->leaves, j->leaves_per_segment);
    j->chunk = j->segments > 1 && !j->results_interleaved ? 1 : ROWS_BATCH;
    /* A chunk is at most the work of one task. */
    if (j->segments == 1 && !j->results_interleaved && j->chunk * j->total > segment_elements(j))
        j->chunk = j->total < segment_elements(j) ? segment_elements(j) / j->total : 1;
}

static void plan_by_columns(reduce_job *j) {
    j->direct = j->inner.x == j->size && j->x->dtype == j->r.type;
    j->leaf = LEAF_ROWS;
    j->leaves = divide_up(j->total, LEAF_ROWS);
    j->chunk = CHUNK_BYTES / j->size;
    if (j->chunk > j->inner.dim) j->chunk = j->inner.dim;
    j->row_group = 1;
    bool dense = j->direct && j->n_reduced == 0 && j->run.x == j->inner.dim * j->size;
    if (dense && j->inner.dim > 0 && j->inner.dim <= NARROW_COLUMNS && !j->r.in_order) {
        while (2 * j->row_group * j->inner.dim <= WIDE_COLUMNS) j->row_group *= 2;
        j->grouped_leaves = j->total / (LEAF_ROWS * j->row_group);
        j->leaves = j->grouped_leaves +
                    divide_up(j->total - j->grouped_leaves * LEAF_ROWS * j->row_group, LEAF_ROWS);
    }
    j->leaves_per_segment =
        divide_up(segment_elements(j), LEAF_ROWS * j->row_group * (j->chunk > 0 ? j->chunk : 1));
    j->segments = divide_up(j->leaves, j->leaves_per_segment);
}

void gd_reduce_plan(reduce_job *j, const gd_view *x, const gd_reduction *r) {
    memset(j, 0, sizeof *j);
    j->r = *r;
    j->x = x;
    j->x_size = (int64_t)gd_dtype_size(x->dtype);
    j->size = (int64_t)gd_dtype_size(r->type);
    j->state = r->fold == GD_FOLD_MOMENTS ? GD_F64 : r->type;
    j->state_size = (int64_t)gd_dtype_size(j->state);
    j->second_size = !r->two_values ? 0 : r->in_order ? (int64_t)sizeof(int64_t) : j->state_size;
    const gd_view *y = r->y ? r->y : r->y1, *y1 = r->y1 ? r->y1 : r->y;
    int64_t y_size = (int64_t)gd_dtype_size(y->dtype), y1_size = (int64_t)gd_dtype_size(y1->dtype);
    bool keepdim = y->rank == x->rank;
    for (int k = 0, at = 0; k < x->rank; k++) {
        bool reduces = r->mask >> k & 1;
        reduce_axis a = {.dim = x->dims[k], .x = x->strides[k] * j->x_size};
        if (reduces) {
            at += keepdim;
            j->reduced[j->n_reduced++] = a;
        } else {
            a.y = y->strides[at] * y_size;
            a.y1 = y1->strides[at++] * y1_size;
            j->kept[j->n_kept++] = a;
        }
    }
    j->groups = axes_product(j->kept, j->n_kept);
    j->total = axes_product(j->reduced, j->n_reduced);
    if (!r->in_order) sort_axes(j->reduced, j->n_reduced);
    sort_axes(j->kept, j->n_kept);
    j->n_reduced = merge_axes(j->reduced, j->n_reduced);
    j->n_kept = merge_axes(j->kept, j->n_kept);
    j->run = take_innermost(j->reduced, &j->n_reduced, j->x_size);
    j->inner = take_innermost(j->kept, &j->n_kept, j->x_size);
    if (j->inner.dim > 0) j->groups /= j->inner.dim;
    int64_t run = magnitude(j->run.x), inner = magnitude(j->inner.x);
    j->by_columns = j->inner.dim > 1 && inner > 0 && (run == 0 || inner < run || j->run.dim == 1);
    if (j->total <= FEW_ELEMENTS && j->inner.dim >= 2 * FEW_ELEMENTS && !r->source)
        j->by_columns = true;
    if (j->by_columns) plan_by_columns(j);
    else plan_by_rows(j);
    if (j->segments < 1) j->segments = 1; /* results without elements */
    j->chunks = divide_up(j->inner.dim, j->chunk > 0 ? j->chunk : 1);
    int64_t work =
        (j->chunk < j->inner.dim ? j->chunk : j->inner.dim) * (j->total > 0 ? j->total : 1);
    j->chunks_per_task = j->segments > 1 || work >= segment_elements(j)
                             ? 1
                             : segment_elements(j) / (work > 0 ? work : 1);
    j->tasks = divide_up(j->groups * j->chunks, j->chunks_per_task) * j->segments;
}
