/* softmax_kernels.c - softmax and log_softmax on the CPU. The tensor is seen as (outer, n, inner)
 * around the softmax axis; inner == 1 is computed along rows, everything else along columns. */
#include "ops/softmax/cpu/softmax.h"

#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"

enum {
    TASK_ELEMENTS = 32768, /* roughly */
    MIN_TASK_COLUMNS = 512,
};

typedef struct {
    const gd_softmax_isa *isa;
    bool logs;
    const char *x, *y; /* gradient: gy and y */
    char *result;
    int64_t size, outer, n, inner;
    int64_t per_task; /* rows, or columns */
    bool grad;
} softmax_job;

static void softmax_rows_task(void *arg, int64_t task) {
    const softmax_job *j = arg;
    int64_t first = task * j->per_task,
            rows = j->outer - first < j->per_task ? j->outer - first : j->per_task;
    int64_t at = first * j->n * j->size;
    if (j->grad) j->isa->grad_rows(j->logs, rows, j->n, j->x + at, j->y + at, j->result + at);
    else j->isa->rows(j->logs, rows, j->n, j->x + at, j->result + at);
}

static void softmax_columns_task(void *arg, int64_t task) {
    const softmax_job *j = arg;
    int64_t chunks = (j->inner + j->per_task - 1) / j->per_task, col = task % chunks * j->per_task;
    int64_t cols = j->inner - col < j->per_task ? j->inner - col : j->per_task;
    int64_t at = (task / chunks * j->n * j->inner + col) * j->size;
    if (j->grad)
        j->isa->grad_columns(j->logs, cols, j->n, j->inner, j->x + at, j->y + at, j->result + at);
    else j->isa->columns(j->logs, cols, j->n, j->inner, j->x + at, j->result + at);
}

static gd_status run_softmax(const gd_kernel_call *k, int64_t axis, bool logs, bool grad) {
    const gd_view *x = &k->in[0];
    softmax_job j = {.logs = logs,
                     .grad = grad,
                     .x = x->data,
                     .y = grad ? k->in[1].data : NULL,
                     .result = k->out[0].data,
                     .size = (int64_t)gd_dtype_size(x->dtype),
                     .outer = 1,
                     .n = 1,
                     .inner = 1};
    j.isa = x->dtype == GD_F32 ? GD_ISA_CALL(gd_softmax_f32) : GD_ISA_CALL(gd_softmax_f64);
    int at = (int)(axis < 0 ? axis + x->rank : axis);
    for (int d = 0; d < x->rank; d++) {
        if (d < at) j.outer *= x->dims[d];
        else if (d == at) j.n = x->dims[d];
        else j.inner *= x->dims[d];
    }
    if (j.inner == 1) {
        j.per_task = j.n < TASK_ELEMENTS ? TASK_ELEMENTS / j.n : 1;
        gd_parallel_for((j.outer + j.per_task - 1) / j.per_task, softmax_rows_task, &j);
    } else {
        j.per_task = TASK_ELEMENTS / j.n > MIN_TASK_COLUMNS
                         ? TASK_ELEMENTS / j.n / MIN_TASK_COLUMNS * MIN_TASK_COLUMNS
                         : MIN_TASK_COLUMNS;
        gd_parallel_for(j.outer * ((j.inner + j.per_task - 1) / j.per_task), softmax_columns_task,
                        &j);
    }
    return GD_OK;
}

/*kernel softmax.rows  rank 10  wide
 * All floats; a task computes rows, or columns if the axis is not the last.
 */
static gd_status softmax_rows_run(gd_kernel_call *k) {
    const gd_softmax_options *o = k->attrs;
    return run_softmax(k, o->axis, false, false);
}

/*kernel log_softmax.rows  rank 10  wide
 * All floats; a task computes rows, or columns if the axis is not the last.
 */
static gd_status log_softmax_rows_run(gd_kernel_call *k) {
    const gd_log_softmax_options *o = k->attrs;
    return run_softmax(k, o->axis, true, false);
}

/*kernel softmax_grad.rows  rank 10  wide
 * All floats; a task computes rows, or columns if the axis is not the last.
 */
static gd_status softmax_grad_rows_run(gd_kernel_call *k) {
    const gd_softmax_grad_options *o = k->attrs;
    return run_softmax(k, o->axis, false, true);
}

/*kernel log_softmax_grad.rows  rank 10  wide
 * All floats; a task computes rows, or columns if the axis is not the last.
 */
static gd_status log_softmax_grad_rows_run(gd_kernel_call *k) {
    const gd_log_softmax_grad_options *o = k->attrs;
    return run_softmax(k, o->axis, true, true);
}

#include "ops/softmax/cpu/softmax_kernels.gen.h"
