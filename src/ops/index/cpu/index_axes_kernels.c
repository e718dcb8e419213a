/* index_axes_kernels.c - advanced indexing (several axes indexed by tensors) on all threads.
 *
 * The indices are converted to element offsets first; then contiguous runs (the axes after the last
 * indexed one) are copied. Reads are partitioned over the elements of y. Writes are partitioned
 * along the axes that are not indexed, so that no two tasks write the same element and each element
 * gets its values in the order of the indices.
 */
#include <string.h>

#include "ops/index/cpu/index_rows.h"
#include "core/copy.h"
#include "core/pool.h"
#include "gradus/ops.h"
#include "ops/index/index_axes.h"

enum {
    TASK_ELEMENTS = 16384, /* roughly */
    STRIP_ELEMENTS = 512,  /* elements of a run that a task writes */
};

/* --- offsets ---------------------------------------------------------------------------------- */

typedef struct {
    const gd_axes_layout *l;
    const gd_view *indices;
    const int64_t *dims, *strides;
    int64_t *offsets, total;
    bool has_bad_index;
} offsets_job;

static void offsets_task(void *arg, int64_t task) {
    offsets_job *j = arg;
    int64_t first = task * TASK_ELEMENTS,
            last = j->total - first < TASK_ELEMENTS ? j->total : first + TASK_ELEMENTS;
    if (gd_axes_places(j->l, j->indices, j->dims, j->strides, first, last, j->offsets) != last)
        __atomic_store_n(&j->has_bad_index, true, __ATOMIC_RELAXED);
}

static gd_status compute_offsets(const gd_axes_layout *l, const gd_view *indices, const gd_view *x,
                                 const gd_shape *names, int64_t *offsets) {
    offsets_job j = {l, indices, x->dims, x->strides, offsets, gd_axes_count(l), false};
    gd_parallel_for((j.total + TASK_ELEMENTS - 1) / TASK_ELEMENTS, offsets_task, &j);
    if (!j.has_bad_index) return GD_OK;
    return gd_axes_wrong(l, indices, x->dims, names,
                         gd_axes_places(l, indices, x->dims, x->strides, 0, j.total, offsets));
}

static gd_axes_layout broadcast_layout(const gd_shape *axes, const gd_view *x,
                                       const gd_view *indices) {
    gd_axes_layout l;
    if (gd_axes_layout_of(axes, x->rank, &l) == GD_OK) gd_axes_broadcast(&l, indices);
    return l;
}

/* The number of axes after the last indexed one. */
static int trailing_axes(const gd_axes_layout *l) { return l->rank - 1 - l->axes[l->n - 1]; }

/* --- gather ----------------------------------------------------------------------------------- */

/* y consists of runs of `inner` elements. One of the dims before the runs counts offsets, the
 * others have strides in x. */
typedef struct {
    const int64_t *offsets;
    gd_dtype dtype;
    const char *x;
    char *y;
    int rank, offsets_dim; /* dims before the runs; the one that counts offsets */
    int64_t dims[GD_MAX_RANK], steps[GD_MAX_RANK]; /* dims of y, strides in x */
    int64_t inner, units, units_per_task;
} gather_job;

static void gather_runs(const gather_job *j, const int64_t *position, int64_t first, int64_t n,
                        char *y) {
    int last = j->rank - 1;
    int64_t size = (int64_t)gd_dtype_size(j->dtype), base = 0;
    for (int d = 0; d < last; d++)
        base += d == j->offsets_dim ? j->offsets[position[d]] : position[d] * j->steps[d];
    const char *x = j->x + base * size;
    bool by_offset = last == j->offsets_dim;
    if (j->inner == 1 && by_offset)
        GD_ISA_CALL(gd_gather_row)((size_t)size, y, x, 0, j->offsets + first, n);
    else if (j->inner == 1)
        gd_convert_row(j->dtype, y, size, j->dtype, x + first * j->steps[last] * size,
                       j->steps[last] * size, n);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(y + i * j->inner * size,
                   x + (by_offset ? j->offsets[first + i] : (first + i) * j->steps[last]) * size,
                   (size_t)(j->inner * size));
}

static void gather_task(void *arg, int64_t task) {
    const gather_job *j = arg;
    int last = j->rank - 1;
    int64_t from = task * j->units_per_task, to = from + j->units_per_task,
            size = (int64_t)gd_dtype_size(j->dtype);
    if (to > j->units) to = j->units;
    while (from < to) {
        int64_t position[GD_MAX_RANK + 1], rest = from / j->dims[last],
                                           first = from % j->dims[last];
        int64_t n = j->dims[last] - first < to - from ? j->dims[last] - first : to - from;
        for (int d = last; d-- > 0;) {
            position[d] = rest % j->dims[d];
            rest /= j->dims[d];
        }
        gather_runs(j, position, first, n, j->y + from * j->inner * size);
        from += n;
    }
}

/*kernel index_axes.runs  rank 10
 * Copies runs of the axes after the last indexed one, which are contiguous; y is row-major.
 */
static bool index_axes_runs_match(const gd_kernel_call *k) {
    const gd_index_axes_options *o = k->attrs;
    const gd_view *x = &k->in[0], *y = &k->out[0];
    gd_axes_layout l = broadcast_layout(&o->axes, x, k->in + 1);
    int trailing = trailing_axes(&l), at = x->rank - trailing;
    return gd_is_row_major(y->rank, y->dims, y->strides) &&
           gd_is_row_major(trailing, x->dims + at, x->strides + at);
}
static size_t index_axes_runs_workspace(const gd_kernel_call *k) {
    gd_axes_layout l =
        broadcast_layout(&((const gd_index_axes_options *)k->attrs)->axes, &k->in[0], k->in + 1);
    return (size_t)gd_axes_count(&l) * sizeof(int64_t);
}
static gd_status index_axes_runs_run(gd_kernel_call *k) {
    const gd_index_axes_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    gd_axes_layout l = broadcast_layout(&o->axes, x, k->in + 1);
    GD_TRY(compute_offsets(&l, k->in + 1, x, &o->names, k->workspace));
    gather_job j = {.offsets = k->workspace,
                    .dtype = x->dtype,
                    .x = x->data,
                    .y = k->out[0].data,
                    .offsets_dim = l.front};
    int trailing = trailing_axes(&l), kept = l.rank - l.n - trailing;
    j.dims[l.front] = gd_axes_count(&l);
    for (int d = 0; d < kept; d++) {
        int at = d < l.front ? d : d + 1;
        j.dims[at] = x->dims[l.kept[d]];
        j.steps[at] = x->strides[l.kept[d]];
    }
    j.rank = kept + 1;
    j.inner = gd_numel(trailing, x->dims + x->rank - trailing);
    j.units = gd_numel(j.rank, j.dims);
    if (j.inner == 0 || j.units == 0) return GD_OK;
    j.units_per_task = j.inner < TASK_ELEMENTS ? TASK_ELEMENTS / j.inner : 1;
    gd_parallel_for((j.units + j.units_per_task - 1) / j.units_per_task, gather_task, &j);
    return GD_OK;
}

/* --- put -------------------------------------------------------------------------------------- */

/* A unit is up to STRIP_ELEMENTS of a run, for all offsets in order. */
typedef struct {
    const int64_t *offsets;
    gd_dtype dtype;
    bool add;
    const char *src;
    char *y;
    int rank; /* of the kept axes before the last indexed one */
    int64_t dims[GD_MAX_RANK], y_steps[GD_MAX_RANK], src_steps[GD_MAX_RANK];
    int64_t count, src_step; /* offsets, and the distance of their elements in src */
    int64_t inner, blocks, units, units_per_task;
} put_job;

static void add_run(gd_dtype dtype, char *y, const char *src, int64_t n) {
#define SUM(T, value)                                   \
    for (int64_t i = 0; i < n; i++) {                   \
        T *to = (T *)y + i, from = ((const T *)src)[i]; \
        *to = (T)(value);                               \
    }                                                   \
    break
    switch (dtype) {
    case GD_BOOL: SUM(uint8_t, *to || from);
    case GD_U8:
    case GD_I8: SUM(uint8_t, *to + from);
    case GD_I32: SUM(uint32_t, *to + from);
    case GD_I64: SUM(uint64_t, *to + from);
    case GD_F32:
        if (n == 1) *(float *)y += *(const float *)src;
        else GD_ISA_CALL(gd_add_row_f32)((float *)y, (const float *)src, n);
        break;
    default: GD_ISA_CALL(gd_add_row_f64)((double *)y, (const double *)src, n);
    }
#undef SUM
}

static void put_task(void *arg, int64_t task) {
    const put_job *j = arg;
    int64_t from = task * j->units_per_task, to = from + j->units_per_task,
            size = (int64_t)gd_dtype_size(j->dtype);
    if (to > j->units) to = j->units;
    for (int64_t u = from; u < to; u++) {
        int64_t rest = u / j->blocks, y_at = u % j->blocks * STRIP_ELEMENTS, src_at = y_at;
        int64_t n = j->inner - y_at < STRIP_ELEMENTS ? j->inner - y_at : STRIP_ELEMENTS;
        for (int d = j->rank; d-- > 0;) {
            int64_t i = rest % j->dims[d];
            rest /= j->dims[d];
            y_at += i * j->y_steps[d];
            src_at += i * j->src_steps[d];
        }
        char *y = j->y + y_at * size;
        const char *src = j->src + src_at * size;
        for (int64_t m = 0; m < j->count; m++, src += j->src_step * size)
            if (j->add) add_run(j->dtype, y + j->offsets[m] * size, src, n);
            else memcpy(y + j->offsets[m] * size, src, (size_t)(n * size));
    }
}

/*kernel index_axes_put.runs  rank 10  wide
 * Partitioned along the axes that are not indexed; runs of the axes after them are added or
 * written.
 */
static size_t index_axes_put_runs_workspace(const gd_kernel_call *k) {
    gd_axes_layout l = broadcast_layout(&((const gd_index_axes_put_options *)k->attrs)->axes,
                                        &k->in[0], k->in + 2);
    return (size_t)gd_axes_count(&l) * sizeof(int64_t);
}
static gd_status index_axes_put_runs_run(gd_kernel_call *k) {
    const gd_index_axes_put_options *o = k->attrs;
    const gd_view *src = &k->in[1], *y = &k->out[0];
    gd_axes_layout l = broadcast_layout(&o->axes, y, k->in + 2);
    GD_TRY(compute_offsets(&l, k->in + 2, y, &o->names, k->workspace));
    if (y->data != k->in[0].data) gd_copy_elements(y, &k->in[0]); /* else gd_index_put_ */
    int trailing = trailing_axes(&l), kept = l.rank - l.n;
    put_job j = {.offsets = k->workspace,
                 .dtype = y->dtype,
                 .add = o->accumulate,
                 .src = src->data,
                 .y = y->data,
                 .rank = kept - trailing,
                 .count = gd_axes_count(&l),
                 .src_step = 1,
                 .inner = gd_numel(trailing, y->dims + y->rank - trailing)};
    for (int d = 0; d < kept; d++) {
        if (d >= l.front) j.src_step *= y->dims[l.kept[d]];
        if (d >= j.rank) continue;
        j.dims[d] = y->dims[l.kept[d]];
        j.y_steps[d] = y->strides[l.kept[d]];
        j.src_steps[d] = src->strides[d < l.front ? d : d + l.index_rank];
    }
    if (j.inner == 0 || j.count == 0) return GD_OK;
    j.blocks = (j.inner + STRIP_ELEMENTS - 1) / STRIP_ELEMENTS;
    j.units = gd_numel(j.rank, j.dims) * j.blocks;
    int64_t work = j.count * (j.inner < STRIP_ELEMENTS ? j.inner : STRIP_ELEMENTS);
    j.units_per_task = work < TASK_ELEMENTS ? TASK_ELEMENTS / work : 1;
    gd_parallel_for((j.units + j.units_per_task - 1) / j.units_per_task, put_task, &j);
    return GD_OK;
}

#include "ops/index/cpu/index_axes_kernels.gen.h"
