/* distance_kernels.c - CPU kernels of cdist and its gradient, which sum differences directly. */
#include "ops/distance/cpu/distance.h"

#include <math.h>
#include <string.h>

#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"
#include "ops/distance/distance.h"

enum { TASK_ROWS = 240, TASK_COLUMNS = 128 }; /* of y; rows are a multiple of the tile height */

static gd_cdist_norm norm_of(double p) {
    return p == 0     ? GD_CDIST_COUNT
           : p == 1   ? GD_CDIST_ABSOLUTE
           : p == 2   ? GD_CDIST_EUCLID
           : isinf(p) ? GD_CDIST_LARGEST
                      : GD_CDIST_POWER;
}

typedef struct {
    gd_cdist_shape s;
    double p;
    bool of_b; /* the gradient of b, not of a */
    const gd_view *a, *b;
    const char *gy, *saved_y; /* for the gradient */
    char *result;
    int64_t size; /* bytes of an element */
    int64_t row_tasks, column_tasks;
} cdist_job;

static const char *matrix_of(const cdist_job *j, const gd_view *t, int64_t index) {
    return (const char *)t->data + j->size * gd_cdist_offset(&j->s, t, index);
}

static void distance_task(void *arg, int64_t task) {
    const cdist_job *j = arg;
    const gd_cdist_shape *s = &j->s;
    const int64_t column = task % j->column_tasks * TASK_COLUMNS;
    const int64_t row = task / j->column_tasks % j->row_tasks * TASK_ROWS;
    const int64_t e = task / j->column_tasks / j->row_tasks;
    gd_cdist_block block = {.norm = norm_of(j->p),
                            .p = j->p,
                            .rows = s->n - row < TASK_ROWS ? s->n - row : TASK_ROWS,
                            .columns = s->m - column < TASK_COLUMNS ? s->m - column : TASK_COLUMNS,
                            .width = s->width,
                            .a = matrix_of(j, j->a, e) + j->size * row * s->width,
                            .b = matrix_of(j, j->b, e) + j->size * column * s->width,
                            .y = j->result + j->size * ((e * s->n + row) * s->m + column),
                            .y_row = s->m};
    if (j->size == 4) GD_ISA_CALL(gd_cdist_block_f32)(&block);
    else GD_ISA_CALL(gd_cdist_block_f64)(&block);
}

/*kernel cdist.direct  rank 10  wide
 * Sums differences in tiles; all p, no temporary of the size of a tensor.
 */
static gd_status cdist_direct_run(gd_kernel_call *k) {
    cdist_job j = {.s = gd_cdist_shape_of(&k->in[0], &k->in[1]),
                   .p = ((const gd_cdist_options *)k->attrs)->p,
                   .a = &k->in[0],
                   .b = &k->in[1],
                   .result = k->out[0].data,
                   .size = (int64_t)gd_dtype_size(k->out[0].dtype)};
    j.row_tasks = (j.s.n + TASK_ROWS - 1) / TASK_ROWS;
    j.column_tasks = (j.s.m + TASK_COLUMNS - 1) / TASK_COLUMNS;
    gd_parallel_for(j.s.count * j.row_tasks * j.column_tasks, distance_task, &j);
    return GD_OK;
}

static void gradient_task(void *arg, int64_t task) {
    const cdist_job *j = arg;
    const gd_cdist_shape *s = &j->s;
    const int64_t rows = j->of_b ? s->m : s->n, e = task / j->row_tasks;
    const int64_t row = task % j->row_tasks * GD_CDIST_GRAD_ROWS;
    const int64_t x_step = j->of_b ? 1 : s->m, at = j->size * (e * s->n * s->m + row * x_step);
    gd_cdist_grad_block block = {
        .norm = norm_of(j->p),
        .p = j->p,
        .rows = rows - row < GD_CDIST_GRAD_ROWS ? rows - row : GD_CDIST_GRAD_ROWS,
        .others = j->of_b ? s->n : s->m,
        .width = s->width,
        .x = matrix_of(j, j->of_b ? j->b : j->a, e) + j->size * row * s->width,
        .z = matrix_of(j, j->of_b ? j->a : j->b, e),
        .gy = j->gy + at,
        .y = j->saved_y + at,
        .x_step = x_step,
        .z_step = j->of_b ? s->m : 1,
        .g = j->result + j->size * (e * rows + row) * s->width};
    if (j->size == 4) GD_ISA_CALL(gd_cdist_grad_block_f32)(&block);
    else GD_ISA_CALL(gd_cdist_grad_block_f64)(&block);
}

/*kernel cdist_grad.direct  rank 10  wide
 * Sums weighted differences in tiles; all p, no temporary of the size of a tensor.
 */
static gd_status cdist_grad_direct_run(gd_kernel_call *k) {
    const gd_cdist_grad_options *o = k->attrs;
    cdist_job j = {.s = gd_cdist_shape_of(&k->in[1], &k->in[2]),
                   .p = o->p,
                   .of_b = o->of_b,
                   .a = &k->in[1],
                   .b = &k->in[2],
                   .gy = k->in[0].data,
                   .saved_y = k->in[3].data,
                   .result = k->out[0].data,
                   .size = (int64_t)gd_dtype_size(k->out[0].dtype)};
    const int64_t rows = o->of_b ? j.s.m : j.s.n, others = o->of_b ? j.s.n : j.s.m;
    if (o->p == 0 || others == 0) {
        memset(j.result, 0, (size_t)(j.size * j.s.count * rows * j.s.width));
        return GD_OK;
    }
    j.row_tasks = (rows + GD_CDIST_GRAD_ROWS - 1) / GD_CDIST_GRAD_ROWS;
    gd_parallel_for(j.s.count * j.row_tasks, gradient_task, &j);
    return GD_OK;
}

#include "ops/distance/cpu/distance_kernels.gen.h"
