/* index_kernels.c - gather, index_select and embedding, partitioned over the elements of y. */
#include <string.h>

#include "ops/index/cpu/index_shared.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"

/* --- gather ----------------------------------------------------------------------------------- */

typedef struct {
    index_list index;
    const char *x;
    char *y;
    size_t size;                                   /* bytes of an element */
    int rank;                                      /* of the dims before the last */
    int64_t dims[GD_MAX_RANK], steps[GD_MAX_RANK]; /* dims of index; strides of x, 0 for the axis */
    int64_t row, step; /* y[j] = x[base + j * step + offset of index[j]] for the j of a row */
    int64_t blocks_per_row, blocks, blocks_per_task;
    bool has_bad_index;
} gather_job;

static void gather_task(void *arg, int64_t task) {
    gather_job *j = arg;
    int64_t offsets[BLOCK], from = task * j->blocks_per_task, to = from + j->blocks_per_task;
    if (to > j->blocks) to = j->blocks;
    for (int64_t b = from; b < to; b++) {
        int64_t row = b / j->blocks_per_row, column = b % j->blocks_per_row * BLOCK,
                base = column * j->step;
        int64_t n = j->row - column < BLOCK ? j->row - column : BLOCK,
                first = row * j->row + column;
        for (int d = j->rank; d-- > 0;) {
            base += row % j->dims[d] * j->steps[d];
            row /= j->dims[d];
        }
        if (!load_offsets(&j->index, first, n, offsets)) {
            __atomic_store_n(&j->has_bad_index, true, __ATOMIC_RELAXED);
            return;
        }
        int64_t size = (int64_t)j->size;
        GD_ISA_CALL(gd_gather_row)
        (j->size, j->y + first * size, j->x + base * size, j->step, offsets, n);
    }
}

/*kernel gather.rows  rank 10
 * x with any strides; index (i64 or i32) and y row-major.
 */
static bool gather_rows_match(const gd_kernel_call *k) {
    return is_fast_index(&k->in[1]) && is_row_major_view(&k->in[1]) &&
           is_row_major_view(&k->out[0]);
}
static gd_status gather_rows_run(gd_kernel_call *k) {
    const gd_gather_options *o = k->attrs;
    gd_view x = gd_at_least_1d(k->in[0]), index = gd_at_least_1d(k->in[1]);
    int last = x.rank - 1, axis = resolve_axis(o->axis, x.rank);
    gather_job j = {.index = {index.data, index.dtype == GD_I32, x.dims[axis], x.strides[axis]},
                    .x = x.data,
                    .y = k->out[0].data,
                    .size = gd_dtype_size(x.dtype),
                    .rank = last,
                    .row = index.dims[last],
                    .step = axis == last ? 0 : x.strides[last]};
    for (int d = 0; d < last; d++) {
        j.dims[d] = index.dims[d];
        j.steps[d] = d == axis ? 0 : x.strides[d];
    }
    j.blocks_per_row = (j.row + BLOCK - 1) / BLOCK;
    j.blocks = gd_numel(last, j.dims) * j.blocks_per_row;
    gd_parallel_for(task_count(j.blocks, j.row < BLOCK ? j.row : BLOCK, &j.blocks_per_task),
                    gather_task, &j);
    return j.has_bad_index ? fail_out_of_range(&k->in[1], x.dims[axis], axis) : GD_OK;
}

/* --- index_select and embedding --------------------------------------------------------------- */

/* y (outer, count, inner) = slices of x (outer, size, inner); inner is contiguous in both. */
typedef struct {
    const int64_t *offsets; /* of the slices in x, in elements */
    const char *x;
    char *y;
    int64_t size; /* bytes of an element */
    int rank;     /* of outer */
    int64_t dims[GD_MAX_RANK], x_steps[GD_MAX_RANK];
    int64_t count, inner;
    int64_t chunk, chunks; /* long slices are divided into chunks, so that threads share them */
    int64_t units, units_per_task;
} select_job;

static void select_task(void *arg, int64_t task) {
    const select_job *j = arg;
    int64_t size = j->size, from = task * j->units_per_task, to = from + j->units_per_task;
    if (to > j->units) to = j->units;
    for (int64_t u = from; u < to;) {
        /* as many slices as this task has at one outer position */
        int64_t slice = u / j->chunks, first = slice % j->count, rest = slice / j->count, base = 0,
                n = 1;
        for (int d = j->rank; d-- > 0;) {
            base += rest % j->dims[d] * j->x_steps[d];
            rest /= j->dims[d];
        }
        if (j->chunks == 1) n = to - u < j->count - first ? to - u : j->count - first;
        const int64_t *offsets = j->offsets + first;
        const char *x = j->x + base * size;
        char *y = j->y + slice * j->inner * size;
        u += n;
        if (j->inner == 1) {
            GD_ISA_CALL(gd_gather_row)((size_t)size, y, x, 0, offsets, n);
            continue;
        }
        int64_t at = (u - n) % j->chunks * j->chunk,
                length = j->inner - at < j->chunk ? j->inner - at : j->chunk;
        for (int64_t i = 0; i < n; i++)
            memcpy(y + (i * j->inner + at) * size, x + (offsets[i] + at) * size,
                   (size_t)(length * size));
    }
}

static void select_slices(const gd_view *x, const int64_t *offsets, int64_t count, const gd_view *y,
                          int axis) {
    select_job j = {.offsets = offsets,
                    .x = x->data,
                    .y = y->data,
                    .size = (int64_t)gd_dtype_size(x->dtype),
                    .rank = axis,
                    .count = count};
    for (int d = 0; d < axis; d++) {
        j.dims[d] = x->dims[d];
        j.x_steps[d] = x->strides[d];
    }
    j.inner = gd_numel(x->rank - axis - 1, x->dims + axis + 1);
    j.chunk = j.inner < TASK_ELEMENTS ? j.inner : TASK_ELEMENTS;
    j.chunks = (j.inner + j.chunk - 1) / j.chunk;
    j.units = gd_numel(axis, j.dims) * j.count * j.chunks;
    gd_parallel_for(task_count(j.units, j.chunk, &j.units_per_task), select_task, &j);
}

/* Whether the dims after the axis are contiguous. */
static bool is_contiguous_after(const gd_view *x, int axis) {
    return gd_is_row_major(x->rank - axis - 1, x->dims + axis + 1, x->strides + axis + 1);
}

/*kernel index_select.runs  rank 10
 * Dims after the axis contiguous; index (i64 or i32) and y row-major.
 */
static bool index_select_runs_match(const gd_kernel_call *k) {
    const gd_view *x = &k->in[0];
    return x->rank > 0 && is_fast_index(&k->in[1]) && is_row_major_view(&k->in[1]) &&
           is_row_major_view(&k->out[0]) &&
           is_contiguous_after(
               x, resolve_axis(((const gd_index_select_options *)k->attrs)->axis, x->rank));
}
static size_t index_select_runs_workspace(const gd_kernel_call *k) {
    return offsets_bytes(&k->in[1]);
}
static gd_status index_select_runs_run(gd_kernel_call *k) {
    const gd_view *x = &k->in[0], *index = &k->in[1];
    int axis = resolve_axis(((const gd_index_select_options *)k->attrs)->axis, x->rank);
    if (!load_all_offsets(index, x->dims[axis], x->strides[axis], k->workspace))
        return fail_out_of_range(index, x->dims[axis], axis);
    select_slices(x, k->workspace, gd_numel(index->rank, index->dims), &k->out[0], axis);
    return GD_OK;
}

/*kernel embedding.runs  rank 10
 * Rows of the table contiguous; indices (i64 or i32) and y row-major.
 */
static bool embedding_runs_match(const gd_kernel_call *k) {
    return is_fast_index(&k->in[0]) && is_row_major_view(&k->in[0]) &&
           is_row_major_view(&k->out[0]) && is_contiguous_after(&k->in[1], 0);
}
static size_t embedding_runs_workspace(const gd_kernel_call *k) { return offsets_bytes(&k->in[0]); }
static gd_status embedding_runs_run(gd_kernel_call *k) {
    const gd_view *index = &k->in[0], *table = &k->in[1];
    if (!load_all_offsets(index, table->dims[0], table->strides[0], k->workspace))
        return gd_check_indices(index, table->dims[0], "a table");
    select_slices(table, k->workspace, gd_numel(index->rank, index->dims), &k->out[0], 0);
    return GD_OK;
}

#include "ops/index/cpu/index_kernels.gen.h"
