/* index_axes_kernels.c - several axes indexed by tensors, on all threads.
 *
 * The indices become places first, then runs of the axes behind the last indexed one are moved. Results
 * that are read are cut anywhere; what is written is cut along the axes that are not indexed, so that
 * no two pieces meet and each place gets its values in the order of the indices.
 */
#include <string.h>

#include "backend/cpu/indexing_rows.h"
#include "core/copy.h"
#include "core/pool.h"
#include "gradus/ops.h"
#include "ops/index_axes.h"

enum { PIECE = 16384, STRIP = 512 };

/* --- places ----------------------------------------------------------------------------------- */

typedef struct {
    const gd_axes_layout *l;
    const gd_view *indices;
    const int64_t *dims, *strides;
    int64_t *places, total;
    bool bad;
} places_job;

static void places_piece(void *arg, int64_t piece) {
    places_job *j = arg;
    int64_t first = piece * PIECE, last = j->total - first < PIECE ? j->total : first + PIECE;
    if (gd_axes_places(j->l, j->indices, j->dims, j->strides, first, last, j->places) != last)
        __atomic_store_n(&j->bad, true, __ATOMIC_RELAXED);
}

static gd_status find_places(const gd_axes_layout *l, const gd_view *indices, const gd_view *x,
                             const gd_shape *names, int64_t *places) {
    places_job j = {l, indices, x->dims, x->strides, places, gd_axes_count(l), false};
    gd_parallel_for((j.total + PIECE - 1) / PIECE, places_piece, &j);
    if (!j.bad) return GD_OK;
    return gd_axes_wrong(l, indices, x->dims, names,
                         gd_axes_places(l, indices, x->dims, x->strides, 0, j.total, places));
}

static gd_axes_layout layout_of(const gd_shape *axes, const gd_view *x, const gd_view *indices) {
    gd_axes_layout l;
    if (gd_axes_layout_of(axes, x->rank, &l) == GD_OK) gd_axes_broadcast(&l, indices);
    return l;
}

/* How many of the kept axes, from the last, lie behind all indexed ones. */
static int axes_behind(const gd_axes_layout *l) { return l->rank - 1 - l->axes[l->n - 1]; }

/* --- reading ---------------------------------------------------------------------------------- */

/* y is rows of `width` runs of `inner` elements. One of the dims in front of the runs counts places,
 * the others step in x. */
typedef struct {
    const int64_t *places;
    gd_dtype dtype;
    const char *x;
    char *y;
    int rank, listed; /* dims in front of the runs; the one that counts places */
    int64_t dims[GD_MAX_RANK], steps[GD_MAX_RANK]; /* of y; in x */
    int64_t inner, units, units_per_piece;
} take_job;

static void take_runs(const take_job *j, const int64_t *position, int64_t first, int64_t n,
                      char *y) {
    int last = j->rank - 1;
    int64_t size = (int64_t)gd_dtype_size(j->dtype), base = 0;
    for (int d = 0; d < last; d++)
        base += d == j->listed ? j->places[position[d]] : position[d] * j->steps[d];
    const char *x = j->x + base * size;
    bool listed = last == j->listed;
    if (j->inner == 1 && listed)
        GD_ISA_CALL(gd_take_row)((size_t)size, y, x, 0, j->places + first, n);
    else if (j->inner == 1)
        gd_convert_row(j->dtype, y, size, j->dtype, x + first * j->steps[last] * size,
                       j->steps[last] * size, n);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(y + i * j->inner * size,
                   x + (listed ? j->places[first + i] : (first + i) * j->steps[last]) * size,
                   (size_t)(j->inner * size));
}

static void take_piece(void *arg, int64_t piece) {
    const take_job *j = arg;
    int last = j->rank - 1;
    int64_t from = piece * j->units_per_piece, to = from + j->units_per_piece,
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
        take_runs(j, position, first, n, j->y + from * j->inner * size);
        from += n;
    }
}

/*kernel index_axes.runs  rank 10
 * The axes behind the last indexed one are a run in memory; y is row-major.
 */
static bool index_axes_runs_match(const gd_kernel_call *k) {
    const gd_index_axes_options *o = k->attrs;
    const gd_view *x = &k->in[0], *y = &k->out[0];
    gd_axes_layout l = layout_of(&o->axes, x, k->in + 1);
    int behind = axes_behind(&l), at = x->rank - behind;
    return gd_is_row_major(y->rank, y->dims, y->strides) &&
           gd_is_row_major(behind, x->dims + at, x->strides + at);
}
static size_t index_axes_runs_workspace(const gd_kernel_call *k) {
    gd_axes_layout l =
        layout_of(&((const gd_index_axes_options *)k->attrs)->axes, &k->in[0], k->in + 1);
    return (size_t)gd_axes_count(&l) * sizeof(int64_t);
}
static gd_status index_axes_runs_run(gd_kernel_call *k) {
    const gd_index_axes_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    gd_axes_layout l = layout_of(&o->axes, x, k->in + 1);
    GD_TRY(find_places(&l, k->in + 1, x, &o->names, k->workspace));
    take_job j = {.places = k->workspace,
                  .dtype = x->dtype,
                  .x = x->data,
                  .y = k->out[0].data,
                  .listed = l.front};
    int behind = axes_behind(&l), kept = l.rank - l.n - behind;
    j.dims[l.front] = gd_axes_count(&l);
    for (int d = 0; d < kept; d++) {
        int at = d < l.front ? d : d + 1;
        j.dims[at] = x->dims[l.kept[d]];
        j.steps[at] = x->strides[l.kept[d]];
    }
    j.rank = kept + 1;
    j.inner = gd_numel(behind, x->dims + x->rank - behind);
    j.units = gd_numel(j.rank, j.dims);
    if (j.inner == 0 || j.units == 0) return GD_OK;
    j.units_per_piece = j.inner < PIECE ? PIECE / j.inner : 1;
    gd_parallel_for((j.units + j.units_per_piece - 1) / j.units_per_piece, take_piece, &j);
    return GD_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* A unit is up to STRIP elements of a run, for all places in their order. */
typedef struct {
    const int64_t *places;
    gd_dtype dtype;
    bool add;
    const char *src;
    char *y;
    int rank; /* of the kept axes in front of the last indexed one */
    int64_t dims[GD_MAX_RANK], y_steps[GD_MAX_RANK], src_steps[GD_MAX_RANK];
    int64_t count, src_step; /* places, and how far apart their elements are in src */
    int64_t inner, blocks, units, units_per_piece;
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

static void put_piece(void *arg, int64_t piece) {
    const put_job *j = arg;
    int64_t from = piece * j->units_per_piece, to = from + j->units_per_piece,
            size = (int64_t)gd_dtype_size(j->dtype);
    if (to > j->units) to = j->units;
    for (int64_t u = from; u < to; u++) {
        int64_t rest = u / j->blocks, y_at = u % j->blocks * STRIP, src_at = y_at;
        int64_t n = j->inner - y_at < STRIP ? j->inner - y_at : STRIP;
        for (int d = j->rank; d-- > 0;) {
            int64_t i = rest % j->dims[d];
            rest /= j->dims[d];
            y_at += i * j->y_steps[d];
            src_at += i * j->src_steps[d];
        }
        char *y = j->y + y_at * size;
        const char *src = j->src + src_at * size;
        for (int64_t m = 0; m < j->count; m++, src += j->src_step * size)
            if (j->add) add_run(j->dtype, y + j->places[m] * size, src, n);
            else memcpy(y + j->places[m] * size, src, (size_t)(n * size));
    }
}

/*kernel index_axes_put.runs  rank 10  wide
 */
static size_t index_axes_put_runs_workspace(const gd_kernel_call *k) {
    gd_axes_layout l =
        layout_of(&((const gd_index_axes_put_options *)k->attrs)->axes, &k->in[0], k->in + 2);
    return (size_t)gd_axes_count(&l) * sizeof(int64_t);
}
static gd_status index_axes_put_runs_run(gd_kernel_call *k) {
    const gd_index_axes_put_options *o = k->attrs;
    const gd_view *src = &k->in[1], *y = &k->out[0];
    gd_axes_layout l = layout_of(&o->axes, y, k->in + 2);
    GD_TRY(find_places(&l, k->in + 2, y, &o->names, k->workspace));
    gd_copy_elements(y, &k->in[0]);
    int behind = axes_behind(&l), kept = l.rank - l.n;
    put_job j = {.places = k->workspace,
                 .dtype = y->dtype,
                 .add = o->accumulate,
                 .src = src->data,
                 .y = y->data,
                 .rank = kept - behind,
                 .count = gd_axes_count(&l),
                 .src_step = 1,
                 .inner = gd_numel(behind, y->dims + y->rank - behind)};
    for (int d = 0; d < kept; d++) {
        if (d >= l.front) j.src_step *= y->dims[l.kept[d]];
        if (d >= j.rank) continue;
        j.dims[d] = y->dims[l.kept[d]];
        j.y_steps[d] = y->strides[l.kept[d]];
        j.src_steps[d] = src->strides[d < l.front ? d : d + l.index_rank];
    }
    if (j.inner == 0 || j.count == 0) return GD_OK;
    j.blocks = (j.inner + STRIP - 1) / STRIP;
    j.units = gd_numel(j.rank, j.dims) * j.blocks;
    int64_t work = j.count * (j.inner < STRIP ? j.inner : STRIP);
    j.units_per_piece = work < PIECE ? PIECE / work : 1;
    gd_parallel_for((j.units + j.units_per_piece - 1) / j.units_per_piece, put_piece, &j);
    return GD_OK;
}

#include "index_axes_kernels.gen.h"
