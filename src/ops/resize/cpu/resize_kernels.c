/* resize_kernels.c - nearest and linear resizing in f32 and f64 (f16 and bf16 are widened to f32);
 * planes are partitioned over the threads. A row of y is interpolated along depth and height first,
 * from up to four rows of x, and then along the width.
 */
#include <string.h>

#include "core/pool.h"
#include "core/tensor.h"
#include "dispatch/op.h"
#include "ops/resize/resize.h"

enum { AXES = GD_RESIZE_AXES, MAX_TASKS = 64 };

/* One call. x are the planes that are resampled, y the results; the direction decides which is
 * written. */
typedef struct {
    gd_resize_form form;
    bool wide; /* f64 */
    const void *x;
    void *y;
    int64_t in, out;                       /* elements of a plane of x and of y */
    const gd_resize_source *sources[AXES]; /* per axis, one source for each element of y */
    char *lines;                           /* a row of x for each task */
    size_t line;                           /* its bytes */
    int64_t tasks;
} resize_job;

#define real    float
#define NAME(x) x##_f32
#include "ops/resize/cpu/resize_template.h"

#define real    double
#define NAME(x) x##_f64
#include "ops/resize/cpu/resize_template.h"

/* --- setup ------------------------------------------------------------------------------------ */

static int64_t task_count(const gd_resize_form *f) {
    return f->planes < MAX_TASKS ? f->planes : MAX_TASKS;
}

static size_t table_bytes(const gd_resize_form *f) {
    return (size_t)(f->out[0] + f->out[1] + f->out[2]) * sizeof(gd_resize_source);
}

static size_t resize_bytes(const gd_kernel_call *k, const gd_view *x, const gd_view *y) {
    const gd_resize_form f = gd_resize_form_of(k, x, y);
    return table_bytes(&f) + (size_t)(task_count(&f) * f.in[2]) * sizeof(double);
}
static size_t forward_bytes(const gd_kernel_call *k) {
    return resize_bytes(k, &k->in[0], &k->out[0]);
}
static size_t backward_bytes(const gd_kernel_call *k) {
    return resize_bytes(k, &k->out[0], &k->in[0]);
}

static void run_planes(const gd_kernel_call *k, const gd_view *x, const gd_view *y,
                       void (*body)(void *arg, int64_t task)) {
    resize_job r = {
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
    r.tasks = task_count(&r.form);
    gd_parallel_for(r.tasks, body, &r);
}

/* --- kernels ---------------------------------------------------------------------------------- */

/*kernel resize.planes  rank 10  wide  run resize_run  dtypes f16 bf16 f32 f64
 *        workspace forward_bytes
 * A task interpolates planes row by row: first along depth and height, then along the width.
 */
static void resize_task(void *arg, int64_t task) {
    const resize_job *r = arg;
    const int64_t end = r->form.planes * (task + 1) / r->tasks;
    for (int64_t plane = r->form.planes * task / r->tasks; plane < end; plane++)
        if (r->wide) resize_plane_f64(r, plane, r->lines + (size_t)task * r->line);
        else resize_plane_f32(r, plane, r->lines + (size_t)task * r->line);
}
static gd_status resize_run(gd_kernel_call *k) {
    run_planes(k, &k->in[0], &k->out[0], resize_task);
    return GD_OK;
}

/*kernel resize_grad.planes  rank 10  wide  run gradient_run  dtypes f16 bf16 f32 f64
 *        workspace backward_bytes
 * A task adds the gradients of its planes.
 */
static void gradient_task(void *arg, int64_t task) {
    const resize_job *r = arg;
    const int64_t end = r->form.planes * (task + 1) / r->tasks;
    for (int64_t plane = r->form.planes * task / r->tasks; plane < end; plane++)
        if (r->wide) gradient_plane_f64(r, plane, r->lines + (size_t)task * r->line);
        else gradient_plane_f32(r, plane, r->lines + (size_t)task * r->line);
}
static gd_status gradient_run(gd_kernel_call *k) {
    run_planes(k, &k->out[0], &k->in[0], gradient_task);
    return GD_OK;
}

#include "ops/resize/cpu/resize_kernels.gen.h"
