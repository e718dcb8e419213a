/* softmax_kernels.c - softmax and log_softmax on the CPU, seen as [outer][n][inner] around the axis. */
#include "backend/cpu/softmax.h"

#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"

enum {
    PIECE = 32768, /* elements of a piece of work for one thread, roughly */
    COLUMNS = 512, /* columns of a piece, at least (or all there are) */
};

typedef struct {
    const gd_softmax_isa *isa;
    bool logs;
    const char *x, *y; /* gradient: gy and y */
    char *result;
    int64_t size, outer, n, inner;
    int64_t per_piece; /* rows, or columns */
    bool grad;
} job;

static void rows_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int64_t first = piece * j->per_piece,
            rows = j->outer - first < j->per_piece ? j->outer - first : j->per_piece;
    int64_t at = first * j->n * j->size;
    if (j->grad) j->isa->grad_rows(j->logs, rows, j->n, j->x + at, j->y + at, j->result + at);
    else j->isa->rows(j->logs, rows, j->n, j->x + at, j->result + at);
}

static void columns_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int64_t chunks = (j->inner + j->per_piece - 1) / j->per_piece,
            col = piece % chunks * j->per_piece;
    int64_t cols = j->inner - col < j->per_piece ? j->inner - col : j->per_piece;
    int64_t at = (piece / chunks * j->n * j->inner + col) * j->size;
    if (j->grad)
        j->isa->grad_columns(j->logs, cols, j->n, j->inner, j->x + at, j->y + at, j->result + at);
    else j->isa->columns(j->logs, cols, j->n, j->inner, j->x + at, j->result + at);
}

static gd_status run(const gd_kernel_call *k, int64_t axis, bool logs, bool grad) {
    const gd_view *x = &k->in[0];
    job j = {.logs = logs,
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
        j.per_piece = j.n < PIECE ? PIECE / j.n : 1;
        gd_parallel_for((j.outer + j.per_piece - 1) / j.per_piece, rows_piece, &j);
    } else {
        j.per_piece = PIECE / j.n > COLUMNS ? PIECE / j.n / COLUMNS * COLUMNS : COLUMNS;
        gd_parallel_for(j.outer * ((j.inner + j.per_piece - 1) / j.per_piece), columns_piece, &j);
    }
    return GD_OK;
}

/*kernel softmax.rows  rank 10  wide
 * All floats.
 */
static gd_status softmax_rows_run(gd_kernel_call *k) {
    const gd_softmax_options *o = k->attrs;
    return run(k, o->axis, false, false);
}

/*kernel log_softmax.rows  rank 10  wide
 * All floats.
 */
static gd_status log_softmax_rows_run(gd_kernel_call *k) {
    const gd_log_softmax_options *o = k->attrs;
    return run(k, o->axis, true, false);
}

/*kernel softmax_grad.rows  rank 10  wide
 * All floats.
 */
static gd_status softmax_grad_rows_run(gd_kernel_call *k) {
    const gd_softmax_grad_options *o = k->attrs;
    return run(k, o->axis, false, true);
}

/*kernel log_softmax_grad.rows  rank 10  wide
 * All floats.
 */
static gd_status log_softmax_grad_rows_run(gd_kernel_call *k) {
    const gd_log_softmax_grad_options *o = k->attrs;
    return run(k, o->axis, true, true);
}

#include "softmax_kernels.gen.h"
