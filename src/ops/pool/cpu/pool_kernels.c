/* pool_kernels.c - max and average pooling and their gradients in f32 and f64 (f16 and bf16 are
 * widened to f32); planes are partitioned over the threads. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "ops/pool/cpu/pool_row.h"
#include "core/error.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"
#include "dispatch/op.h"
#include "ops/pool/pool.h"
#include "dispatch/problem.h"

enum { AXES = GD_POOL_AXES, TASK_ELEMENTS = 16384 };

/* One call. x are the planes that are pooled, y the results; the direction decides which is
 * written. */
typedef struct {
    gd_pool form;
    bool wide; /* f64 */
    const void *x;
    void *y;
    int64_t in, out;                     /* elements of a plane of x and of y */
    const gd_pool_window *windows[AXES]; /* per axis, one window for each element of y */
    int32_t *indices_i32;                /* indices of maxima in their plane, as i32 ... */
    int64_t *indices;                    /* ... or i64; NULL: not stored */
    /* windows [from, to) of the last axis have the same size and a constant stride */
    int64_t uniform_from, uniform_to;
    int64_t planes_per_task;
    _Atomic int64_t bad_index; /* an index that is out of range; -1: none */
} pool_job;

static double average_divisor(const pool_job *p, const gd_pool_window *d, const gd_pool_window *h,
                              const gd_pool_window *w) {
    return p->form.divisor ? (double)p->form.divisor : (double)(d->size * h->size * w->size);
}

/* Computes the uniform windows of a row of y with pool_row.h, if there are enough of them. */
static bool uniform_windows_f32(const pool_job *p, const float *x, int64_t at,
                                const gd_pool_window *d, const gd_pool_window *h, bool maxima) {
    const int64_t from = p->uniform_from, count = p->uniform_to - from;
    if (count < GD_POOL_ROW_MIN || d->count == 0 || h->count == 0) return false;
    const gd_pool_window *columns = &p->windows[2][from];
    const gd_pool_row row = {.x = x,
                             .height = p->form.in[1],
                             .width = p->form.in[2],
                             .depth = *d,
                             .rows = *h,
                             .columns = *columns,
                             .stride = columns[1].first - columns[0].first,
                             .count = count,
                             .y = (float *)p->y + at + from,
                             .divisor = average_divisor(p, d, h, columns),
                             .indices_i32 = p->indices_i32 ? p->indices_i32 + at + from : NULL,
                             .indices = p->indices ? p->indices + at + from : NULL};
    if (maxima) GD_ISA_CALL(gd_max_row_f32)(&row);
    else GD_ISA_CALL(gd_average_row_f32)(&row);
    return true;
}
static bool uniform_windows_f64(const pool_job *p, const double *x, int64_t at,
                                const gd_pool_window *d, const gd_pool_window *h, bool maxima) {
    (void)p, (void)x, (void)at, (void)d, (void)h, (void)maxima;
    return false;
}

/* The sum of a long row. */
static double long_sum_f32(const float *x, int64_t n) { return GD_ISA_CALL(gd_pool_sum_f32)(x, n); }
static double long_sum_f64(const double *x, int64_t n) {
    double part[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) part[k] += x[i + k];
    double sum = (part[0] + part[1]) + (part[2] + part[3]);
    for (; i < n; i++) sum += x[i];
    return sum;
}

#define real    float
#define NAME(x) x##_f32
#include "ops/pool/cpu/pool_template.h"

#define real    double
#define NAME(x) x##_f64
#include "ops/pool/cpu/pool_template.h"

/* --- setup ------------------------------------------------------------------------------------ */

static int64_t axes_product(const int64_t size[AXES]) { return size[0] * size[1] * size[2]; }

/* Bytes of the tables of windows. */
static size_t window_table_bytes(const gd_view *x, const gd_view *y, const gd_kernel_call *k) {
    const gd_pool form = gd_pool_of(k, x, y);
    return (size_t)(form.out[0] + form.out[1] + form.out[2]) * sizeof(gd_pool_window);
}
static size_t forward_bytes(const gd_kernel_call *k) {
    return window_table_bytes(&k->in[0], &k->out[0], k);
}
static size_t backward_bytes(const gd_kernel_call *k) {
    return window_table_bytes(&k->out[0], &k->in[0], k);
}

static void set_indices(pool_job *p, const gd_view *indices) {
    if (indices->dtype == GD_I32) p->indices_i32 = indices->data;
    else p->indices = indices->data;
}

static void init_pool(pool_job *p, const gd_kernel_call *k, const gd_view *x, const gd_view *y) {
    *p = (pool_job){.form = gd_pool_of(k, x, y),
                    .wide = x->dtype == GD_F64,
                    .x = x->data,
                    .y = y->data,
                    .bad_index = -1};
    gd_pool_window *table = k->workspace;
    p->in = axes_product(p->form.in);
    p->out = axes_product(p->form.out);
    for (int a = 0; a < AXES; a++) {
        p->windows[a] = table;
        for (int64_t o = 0; o < p->form.out[a]; o++) *table++ = gd_pool_window_at(&p->form, a, o);
    }
}

/* Finds the windows that pool_row.h can compute: the longest run of windows of the largest size at
 * a distance of one or two. */
static void find_uniform_windows(pool_job *p) {
    const gd_pool_window *w = p->windows[2];
    const int64_t n = p->form.out[2];
    int64_t widest = 1;
    if (p->wide || p->in > INT32_MAX) return;
    for (int64_t i = 0; i < n; i++)
        if (w[i].count > widest) widest = w[i].count;
    for (int64_t from = 0, to; from < n; from = to) {
        const int64_t stride = from + 1 < n ? w[from + 1].first - w[from].first : 0;
        to = from + 1;
        if (w[from].count != widest || stride < 1 || stride > 2) continue;
        while (to < n && w[to].count == widest && w[to].size == w[from].size &&
               w[to].first - w[to - 1].first == stride)
            to++;
        if (to - from > p->uniform_to - p->uniform_from) p->uniform_from = from, p->uniform_to = to;
    }
}

static void run_planes(pool_job *p, void (*body)(void *arg, int64_t task)) {
    const int64_t larger = p->in > p->out ? p->in : p->out;
    p->planes_per_task = larger > 0 && larger < TASK_ELEMENTS ? TASK_ELEMENTS / larger : 1;
    gd_parallel_for((p->form.planes + p->planes_per_task - 1) / p->planes_per_task, body, p);
}

/* Calls function_f32 or function_f64 for each plane of a task. */
#define EACH_PLANE(p, task, function)                                                       \
    for (int64_t plane_ = (task) * (p)->planes_per_task, i_ = 0; i_ < (p)->planes_per_task; \
         i_++, plane_++) {                                                                  \
        if (plane_ >= (p)->form.planes) break;                                              \
        if ((p)->wide) function##_f64(p, plane_);                                           \
        else function##_f32(p, plane_);                                                     \
    }

/* --- max pooling ------------------------------------------------------------------------------ */

/*kernel max_pool{1,2,3}d.planes, max_pool{1,2,3}d_with_indices.planes,
 *        adaptive_max_pool{1,2,3}d.planes, adaptive_max_pool{1,2,3}d_with_indices.planes  rank 10
 *        wide  run max_run  dtypes f16 bf16 f32 f64  workspace forward_bytes
 * A task computes planes; windows that lie inside the image run as vectors.
 */
static void max_task(void *arg, int64_t task) {
    const pool_job *p = arg;
    EACH_PLANE(p, task, max_plane)
}
static gd_status max_run(gd_kernel_call *k) {
    pool_job p;
    init_pool(&p, k, &k->in[0], &k->out[0]);
    set_indices(&p, &k->out[1]);
    find_uniform_windows(&p);
    run_planes(&p, max_task);
    return GD_OK;
}

/* --- average pooling -------------------------------------------------------------------------- */

/*kernel avg_pool{1,2,3}d.planes, adaptive_avg_pool{1,2,3}d.planes  rank 10  wide  run average_run
 *        dtypes f16 bf16 f32 f64  workspace forward_bytes
 * A task computes planes; windows that lie inside the image run as vectors.
 */
static void average_task(void *arg, int64_t task) {
    const pool_job *p = arg;
    EACH_PLANE(p, task, average_plane)
}
static gd_status average_run(gd_kernel_call *k) {
    pool_job p;
    init_pool(&p, k, &k->in[0], &k->out[0]);
    find_uniform_windows(&p);
    run_planes(&p, average_task);
    return GD_OK;
}

/*kernel avg_pool_grad.planes, adaptive_avg_pool_grad.planes  rank 10  wide  run average_grad_run
 *        dtypes f16 bf16 f32 f64  workspace backward_bytes
 * A task adds the gradients of the windows of its planes.
 */
static void average_grad_task(void *arg, int64_t task) {
    const pool_job *p = arg;
    EACH_PLANE(p, task, average_grad_plane)
}
static gd_status average_grad_run(gd_kernel_call *k) {
    pool_job p;
    init_pool(&p, k, &k->out[0], &k->in[0]);
    run_planes(&p, average_grad_task);
    return GD_OK;
}

/* --- gradients of max pooling: scatter and gather by index ------------------------------------ */

/* x are the planes, y has one number for each index; the last n axes are spatial. */
static void init_pool_indices(pool_job *p, const gd_view *x, const gd_view *y,
                              const gd_view *indices, int n) {
    *p = (pool_job){
        .wide = x->dtype == GD_F64, .x = x->data, .y = y->data, .in = 1, .out = 1, .bad_index = -1};
    p->form.planes = 1;
    for (int d = 0; d < x->rank - n; d++) p->form.planes *= x->dims[d];
    for (int d = x->rank - n; d < x->rank; d++) {
        p->in *= x->dims[d];
        p->out *= y->dims[d];
    }
    set_indices(p, indices);
}

static gd_status check_pool_indices(const pool_job *p) {
    const int64_t bad = atomic_load(&p->bad_index);
    if (bad == -1) return GD_OK;
    return gd_data_fail(&(gd_data_error){.problem = GD_DATA_PLANE_INDEX, .values = {bad, p->in}},
                        &(gd_data_operand){.rank = 0});
}

static bool has_fast_indices(const gd_kernel_call *k) {
    return k->in[1].dtype == GD_I32 || k->in[1].dtype == GD_I64;
}

#define DEFINE_INDEX_TASK(name, function)                                                      \
    static void name(void *arg, int64_t task) {                                                \
        pool_job *p = arg;                                                                     \
        for (int64_t i = 0, plane = task * p->planes_per_task; i < p->planes_per_task;         \
             i++, plane++) {                                                                   \
            if (plane >= p->form.planes) return;                                               \
            const int64_t bad = p->wide ? function##_f64(p, plane) : function##_f32(p, plane); \
            if (bad != -1) atomic_store(&p->bad_index, bad);                                   \
        }                                                                                      \
    }
DEFINE_INDEX_TASK(scatter_task, scatter_plane)
DEFINE_INDEX_TASK(gather_task, gather_plane)

/*kernel pool_scatter.planes  rank 10  wide  run scatter_run  dtypes f16 bf16 f32 f64
 *        match has_fast_indices
 * A task adds the gradients of its planes where the indices say.
 */
static gd_status scatter_run(gd_kernel_call *k) {
    pool_job p;
    const gd_pool_scatter_options *a = k->attrs;
    init_pool_indices(&p, &k->out[0], &k->in[0], &k->in[1], a->dims.rank);
    run_planes(&p, scatter_task);
    return check_pool_indices(&p);
}

/*kernel pool_gather.planes  rank 10  wide  run gather_run  dtypes f16 bf16 f32 f64
 *        match has_fast_indices
 * A task reads its planes where the indices say.
 */
static gd_status gather_run(gd_kernel_call *k) {
    pool_job p;
    const gd_pool_gather_options *a = k->attrs;
    init_pool_indices(&p, &k->in[0], &k->out[0], &k->in[1], (int)a->axes);
    run_planes(&p, gather_task);
    return check_pool_indices(&p);
}

#include "ops/pool/cpu/pool_kernels.gen.h"
