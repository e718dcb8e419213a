/* resize_kernels.c - resizing of f32 and f64 (f16 and bf16 come as f32), plane by plane on all
 * threads: rows are blended first, then the elements of the blend.
 */
#include <string.h>

#include "core/pool.h"
#include "core/tensor.h"
#include "ops/op.h"
#include "ops/resize.h"

enum { AXES = GD_RESIZE_AXES, MOST_PIECES = 64 };

/* One call. x has the planes that are resampled, y the results; one of them is written. */
typedef struct {
    gd_resize_form form;
    bool wide; /* f64 */
    const void *x;
    void *y;
    int64_t in, out;                       /* elements of a plane of x and of y */
    const gd_resize_source *sources[AXES]; /* one for each element of y along an axis */
    char *lines;                           /* a row of x for each piece */
    size_t line;                           /* its bytes */
    int64_t pieces;
} resizing;

#define real    float
#define NAME(x) x##_f32
#include "backend/cpu/resize_template.h"

#define real    double
#define NAME(x) x##_f64
#include "backend/cpu/resize_template.h"

/* --- setting up ------------------------------------------------------------------------------- */

static bool is_float(const gd_kernel_call *k) { return gd_dtype_is_float(k->in[0].dtype); }

static int64_t pieces_of(const gd_resize_form *f) {
    return f->planes < MOST_PIECES ? f->planes : MOST_PIECES;
}

static size_t table_bytes(const gd_resize_form *f) {
    return (size_t)(f->out[0] + f->out[1] + f->out[2]) * sizeof(gd_resize_source);
}

static size_t bytes_for(const gd_kernel_call *k, const gd_view *x, const gd_view *y) {
    const gd_resize_form f = gd_resize_form_of(k, x, y);
    return table_bytes(&f) + (size_t)(pieces_of(&f) * f.in[2]) * sizeof(double);
}
static size_t forward_bytes(const gd_kernel_call *k) { return bytes_for(k, &k->in[0], &k->out[0]); }
static size_t back_bytes(const gd_kernel_call *k) { return bytes_for(k, &k->out[0], &k->in[0]); }

static void run_planes(const gd_kernel_call *k, const gd_view *x, const gd_view *y,
                       void (*body)(void *arg, int64_t piece)) {
    resizing r = {
        .form = gd_resize_form_of(k, x, y), .wide = x->dtype == GD_F64, .x = x->data, .y = y->data};
    gd_resize_source *table = k->workspace;
    r.in = r.form.in[0] * r.form.in[1] * r.form.in[2];
    r.out = r.form.out[0] * r.form.out[1] * r.form.out[2];
    for (int a = 0; a < AXES; a++) {
        r.sources[a] = table;
        for (int64_t o = 0; o < r.form.out[a]; o++)
            *table++ = gd_resize_source_of(&r.form, a, o, r.wide);
    }
    r.lines = (char *)table;
    r.line = (size_t)r.form.in[2] * sizeof(double);
    r.pieces = pieces_of(&r.form);
    gd_parallel_for(r.pieces, body, &r);
}

/* --- kernels ---------------------------------------------------------------------------------- */

/*kernel resize.planes  rank 10  wide  run resize_run  match is_float  workspace forward_bytes
 */
static void resize_piece(void *arg, int64_t piece) {
    const resizing *r = arg;
    const int64_t end = r->form.planes * (piece + 1) / r->pieces;
    for (int64_t plane = r->form.planes * piece / r->pieces; plane < end; plane++)
        if (r->wide) resize_plane_f64(r, plane, r->lines + (size_t)piece * r->line);
        else resize_plane_f32(r, plane, r->lines + (size_t)piece * r->line);
}
static gd_status resize_run(gd_kernel_call *k) {
    run_planes(k, &k->in[0], &k->out[0], resize_piece);
    return GD_OK;
}

/*kernel resize_grad.planes  rank 10  wide  run gradient_run  match is_float  workspace back_bytes
 */
static void gradient_piece(void *arg, int64_t piece) {
    const resizing *r = arg;
    const int64_t end = r->form.planes * (piece + 1) / r->pieces;
    for (int64_t plane = r->form.planes * piece / r->pieces; plane < end; plane++)
        if (r->wide) gradient_plane_f64(r, plane, r->lines + (size_t)piece * r->line);
        else gradient_plane_f32(r, plane, r->lines + (size_t)piece * r->line);
}
static gd_status gradient_run(gd_kernel_call *k) {
    run_planes(k, &k->out[0], &k->in[0], gradient_piece);
    return GD_OK;
}

#include "resize_kernels.gen.h"
