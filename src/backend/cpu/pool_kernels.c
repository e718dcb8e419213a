/* pool_kernels.c - pooling of f32 and f64 (f16 and bf16 come as f32), plane by plane on all
 * threads. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/cpu/pool_row.h"
#include "core/error.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"
#include "ops/op.h"
#include "ops/pooling.h"
#include "ops/problem.h"

enum { AXES = GD_POOL_AXES, PIECE = 16384 /* elements of a piece of work */ };

/* One call. x has the planes that are pooled, y the results; one of them is written. */
typedef struct {
    gd_pool form;
    bool wide; /* f64 */
    const void *x;
    void *y;
    int64_t in, out;                     /* elements of a plane of x and of y */
    const gd_pool_window *windows[AXES]; /* one for each element of y along an axis */
    int32_t *short_places;               /* of maxima, as i32 ... */
    int64_t *places;                     /* ... or i64; NULL: not wanted */
    int64_t alike_from,
        alike_to; /* elements of y along the last axis whose windows have one form */
    int64_t planes_per_piece;
    _Atomic int64_t bad_place; /* -1: none */
} pooling;

static double divisor_of(const pooling *p, const gd_pool_window *d, const gd_pool_window *h,
                         const gd_pool_window *w) {
    return p->form.divisor ? (double)p->form.divisor : (double)(d->size * h->size * w->size);
}

/* Does the windows of a row of y that have one form, if there are enough; see pool_row.h. */
static bool alike_f32(const pooling *p, const float *x, int64_t at, const gd_pool_window *d,
                      const gd_pool_window *h, bool maxima) {
    const int64_t from = p->alike_from, count = p->alike_to - from;
    if (count < GD_POOL_ROW_LEAST || d->count == 0 || h->count == 0) return false;
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
                             .divisor = divisor_of(p, d, h, columns),
                             .short_places = p->short_places ? p->short_places + at + from : NULL,
                             .places = p->places ? p->places + at + from : NULL};
    if (maxima) GD_ISA_CALL(gd_max_row_f32)(&row);
    else GD_ISA_CALL(gd_average_row_f32)(&row);
    return true;
}
static bool alike_f64(const pooling *p, const double *x, int64_t at, const gd_pool_window *d,
                      const gd_pool_window *h, bool maxima) {
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
#include "backend/cpu/pool_template.h"

#define real    double
#define NAME(x) x##_f64
#include "backend/cpu/pool_template.h"

/* --- setting up ------------------------------------------------------------------------------- */

static int64_t numbers(const int64_t size[AXES]) { return size[0] * size[1] * size[2]; }

static bool is_float(const gd_kernel_call *k) { return gd_dtype_is_float(k->in[0].dtype); }

/* Room for the tables of windows. */
static size_t windows_of(const gd_view *x, const gd_view *y, const gd_kernel_call *k) {
    const gd_pool form = gd_pool_of(k, x, y);
    return (size_t)(form.out[0] + form.out[1] + form.out[2]) * sizeof(gd_pool_window);
}
static size_t forward_bytes(const gd_kernel_call *k) {
    return windows_of(&k->in[0], &k->out[0], k);
}
static size_t back_bytes(const gd_kernel_call *k) { return windows_of(&k->out[0], &k->in[0], k); }

static void set_places(pooling *p, const gd_view *places) {
    if (places->dtype == GD_I32) p->short_places = places->data;
    else p->places = places->data;
}

static void set_up(pooling *p, const gd_kernel_call *k, const gd_view *x, const gd_view *y) {
    *p = (pooling){.form = gd_pool_of(k, x, y),
                   .wide = x->dtype == GD_F64,
                   .x = x->data,
                   .y = y->data,
                   .bad_place = -1};
    gd_pool_window *table = k->workspace;
    p->in = numbers(p->form.in);
    p->out = numbers(p->form.out);
    for (int a = 0; a < AXES; a++) {
        p->windows[a] = table;
        for (int64_t o = 0; o < p->form.out[a]; o++) *table++ = gd_pool_window_at(&p->form, a, o);
    }
}

/* Finds the windows that pool_row.h can do: the longest run of those as wide as the widest, one or two
 * apart. */
static void find_alike(pooling *p) {
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
        if (to - from > p->alike_to - p->alike_from) p->alike_from = from, p->alike_to = to;
    }
}

static void run_planes(pooling *p, void (*body)(void *arg, int64_t piece)) {
    const int64_t most = p->in > p->out ? p->in : p->out;
    p->planes_per_piece = most > 0 && most < PIECE ? PIECE / most : 1;
    gd_parallel_for((p->form.planes + p->planes_per_piece - 1) / p->planes_per_piece, body, p);
}

/* Calls the function of the right type for the planes of a piece. */
#define EACH_PLANE(p, piece, function)                                                         \
    for (int64_t plane_ = (piece) * (p)->planes_per_piece, i_ = 0; i_ < (p)->planes_per_piece; \
         i_++, plane_++) {                                                                     \
        if (plane_ >= (p)->form.planes) break;                                                 \
        if ((p)->wide) function##_f64(p, plane_);                                              \
        else function##_f32(p, plane_);                                                        \
    }

/* --- maxima ----------------------------------------------------------------------------------- */

/*kernel max_pool1d.planes  rank 10  wide  run max_run  match is_float  workspace forward_bytes
 */
/*kernel max_pool2d.planes  rank 10  wide  run max_run  match is_float  workspace forward_bytes
 */
/*kernel max_pool3d.planes  rank 10  wide  run max_run  match is_float  workspace forward_bytes
 */
/*kernel max_pool1d_with_indices.planes  rank 10  wide  run max_run  match is_float  workspace forward_bytes
 */
/*kernel max_pool2d_with_indices.planes  rank 10  wide  run max_run  match is_float  workspace forward_bytes
 */
/*kernel max_pool3d_with_indices.planes  rank 10  wide  run max_run  match is_float  workspace forward_bytes
 */
/*kernel adaptive_max_pool1d.planes  rank 10  wide  run max_run  match is_float  workspace forward_bytes
 */
/*kernel adaptive_max_pool2d.planes  rank 10  wide  run max_run  match is_float  workspace forward_bytes
 */
/*kernel adaptive_max_pool3d.planes  rank 10  wide  run max_run  match is_float  workspace forward_bytes
 */
/*kernel adaptive_max_pool1d_with_indices.planes  rank 10  wide  run max_run  match is_float  workspace forward_bytes
 */
/*kernel adaptive_max_pool2d_with_indices.planes  rank 10  wide  run max_run  match is_float  workspace forward_bytes
 */
/*kernel adaptive_max_pool3d_with_indices.planes  rank 10  wide  run max_run  match is_float  workspace forward_bytes
 */
static void max_piece(void *arg, int64_t piece) {
    const pooling *p = arg;
    EACH_PLANE(p, piece, max_plane)
}
static gd_status max_run(gd_kernel_call *k) {
    pooling p;
    set_up(&p, k, &k->in[0], &k->out[0]);
    set_places(&p, &k->out[1]);
    find_alike(&p);
    run_planes(&p, max_piece);
    return GD_OK;
}

/* --- averages --------------------------------------------------------------------------------- */

/*kernel avg_pool1d.planes  rank 10  wide  run average_run  match is_float  workspace forward_bytes
 */
/*kernel avg_pool2d.planes  rank 10  wide  run average_run  match is_float  workspace forward_bytes
 */
/*kernel avg_pool3d.planes  rank 10  wide  run average_run  match is_float  workspace forward_bytes
 */
/*kernel adaptive_avg_pool1d.planes  rank 10  wide  run average_run  match is_float  workspace forward_bytes
 */
/*kernel adaptive_avg_pool2d.planes  rank 10  wide  run average_run  match is_float  workspace forward_bytes
 */
/*kernel adaptive_avg_pool3d.planes  rank 10  wide  run average_run  match is_float  workspace forward_bytes
 */
static void average_piece(void *arg, int64_t piece) {
    const pooling *p = arg;
    EACH_PLANE(p, piece, average_plane)
}
static gd_status average_run(gd_kernel_call *k) {
    pooling p;
    set_up(&p, k, &k->in[0], &k->out[0]);
    find_alike(&p);
    run_planes(&p, average_piece);
    return GD_OK;
}

/*kernel avg_pool_grad.planes  rank 10  wide  run spread_run  match is_float  workspace back_bytes
 */
/*kernel adaptive_avg_pool_grad.planes  rank 10  wide  run spread_run  match is_float  workspace back_bytes
 */
static void spread_piece(void *arg, int64_t piece) {
    const pooling *p = arg;
    EACH_PLANE(p, piece, spread_plane)
}
static gd_status spread_run(gd_kernel_call *k) {
    pooling p;
    set_up(&p, k, &k->out[0], &k->in[0]);
    run_planes(&p, spread_piece);
    return GD_OK;
}

/* --- gradients of maxima ---------------------------------------------------------------------- */

/* x has the planes, y one number for each place; n axes of them are spatial. */
static void set_up_places(pooling *p, const gd_view *x, const gd_view *y, const gd_view *places,
                          int n) {
    *p = (pooling){
        .wide = x->dtype == GD_F64, .x = x->data, .y = y->data, .in = 1, .out = 1, .bad_place = -1};
    p->form.planes = 1;
    for (int d = 0; d < x->rank - n; d++) p->form.planes *= x->dims[d];
    for (int d = x->rank - n; d < x->rank; d++) {
        p->in *= x->dims[d];
        p->out *= y->dims[d];
    }
    set_places(p, places);
}

static gd_status finish_places(const pooling *p) {
    const int64_t bad = atomic_load(&p->bad_place);
    if (bad == -1) return GD_OK;
    return gd_data_fail(&(gd_data_error){.problem = GD_DATA_PLACE, .values = {bad, p->in}},
                        &(gd_data_operand){.rank = 0});
}

static bool has_places(const gd_kernel_call *k) {
    return is_float(k) && (k->in[1].dtype == GD_I32 || k->in[1].dtype == GD_I64);
}

#define DEFINE_PLACES_PIECE(name, function)                                                    \
    static void name(void *arg, int64_t piece) {                                               \
        pooling *p = arg;                                                                      \
        for (int64_t i = 0, plane = piece * p->planes_per_piece; i < p->planes_per_piece;      \
             i++, plane++) {                                                                   \
            if (plane >= p->form.planes) return;                                               \
            const int64_t bad = p->wide ? function##_f64(p, plane) : function##_f32(p, plane); \
            if (bad != -1) atomic_store(&p->bad_place, bad);                                   \
        }                                                                                      \
    }
DEFINE_PLACES_PIECE(scatter_piece, scatter_plane)
DEFINE_PLACES_PIECE(gather_piece, gather_plane)

/*kernel pool_scatter.planes  rank 10  wide  run scatter_run  match has_places
 */
static gd_status scatter_run(gd_kernel_call *k) {
    pooling p;
    const gd_pool_scatter_options *a = k->attrs;
    set_up_places(&p, &k->out[0], &k->in[0], &k->in[1], a->dims.rank);
    run_planes(&p, scatter_piece);
    return finish_places(&p);
}

/*kernel pool_gather.planes  rank 10  wide  run gather_run  match has_places
 */
static gd_status gather_run(gd_kernel_call *k) {
    pooling p;
    const gd_pool_gather_options *a = k->attrs;
    set_up_places(&p, &k->in[0], &k->out[0], &k->in[1], (int)a->axes);
    run_planes(&p, gather_piece);
    return finish_places(&p);
}

#include "pool_kernels.gen.h"
