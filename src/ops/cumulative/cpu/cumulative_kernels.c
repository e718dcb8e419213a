/* cumulative_kernels.c - cumsum, cumprod and linear recurrences on the CPU.
 *
 * A tensor is seen as (outer, n, inner) around the axis. If inner is 1, four lines are computed at
 * a time. A long line is divided into blocks, so that threads can share it: the totals of the
 * blocks are computed first, then their exclusive cumulative sums, then the blocks from these start
 * values. If inner is larger, neighbouring lines are computed together as columns.
 */
#include "ops/cumulative/cpu/cumulative.h"

#include "core/copy.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"

enum {
    BLOCK = 4096,          /* elements of a block of a long line */
    TASK_ELEMENTS = 32768, /* roughly */
};

typedef struct {
    gd_cumulative spec;
    const gd_cumulative_isa *isa;
    bool reverse;
    const char *a, *x;
    char *y;
    int64_t size, outer, inner;
    int64_t blocks;   /* of a line; 1: not divided */
    int64_t block;    /* elements of a block */
    int64_t per_task; /* blocks, or columns, per task */
    char *starts;     /* blocks > 1: (outer, blocks), totals and then start values */
} cumulative_job;

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static void init_cumulative(cumulative_job *j, const gd_kernel_call *k, int64_t axis) {
    const gd_view *y = &k->out[0];
    int at = (int)(axis < 0 ? axis + y->rank : axis);
    *j = (cumulative_job){
        .size = (int64_t)gd_dtype_size(y->dtype), .outer = 1, .inner = 1, .y = y->data};
    j->spec.n = 1;
    for (int d = 0; d < y->rank; d++) {
        if (d < at) j->outer *= y->dims[d];
        else if (d == at) j->spec.n = y->dims[d];
        else j->inner *= y->dims[d];
    }
    j->blocks = 1;
    j->block = j->spec.n;
}

/* Divides long contiguous lines into blocks. */
static void split_long_lines(cumulative_job *j) {
    if (j->inner != 1 || j->spec.n < 4 * BLOCK || j->spec.kind == GD_CUMULATIVE_LINEAR) return;
    j->block = BLOCK;
    j->blocks = divide_up(j->spec.n, BLOCK);
}

static void total_task(void *arg, int64_t task) {
    const cumulative_job *j = arg;
    int64_t end = (task + 1) * j->per_task;
    for (int64_t b = task * j->per_task; b < end && b < j->outer * j->blocks; b++) {
        int64_t first = b % j->blocks * j->block,
                n = j->spec.n - first < j->block ? j->spec.n - first : j->block;
        const char *x = j->x + (b / j->blocks * j->spec.n + first) * j->size;
        j->isa->total(j->spec.kind, x, n, j->starts + 8 * b);
    }
}

/* Computes blocks, four of equal length at a time. The last block of a line may be shorter. */
static void lines_task(void *arg, int64_t task) {
    const cumulative_job *j = arg;
    int64_t end = (task + 1) * j->per_task, b = task * j->per_task;
    if (end > j->outer * j->blocks) end = j->outer * j->blocks;
    while (b < end) {
        const void *a[GD_CUMULATIVE_LINES], *x[GD_CUMULATIVE_LINES];
        void *y[GD_CUMULATIVE_LINES];
        uint64_t start[GD_CUMULATIVE_LINES];
        gd_cumulative s = j->spec;
        int count = 0;
        for (; b < end && count < GD_CUMULATIVE_LINES; b++, count++) {
            int64_t first = b % j->blocks * j->block,
                    n = j->spec.n - first < j->block ? j->spec.n - first : j->block;
            if (count > 0 && n != s.n) break;
            s.n = n;
            int64_t at = (b / j->blocks * j->spec.n + first + (j->reverse ? n - 1 : 0)) * j->size;
            a[count] = j->a ? j->a + at : NULL;
            x[count] = j->x + at;
            y[count] = j->y + at;
            double identity = j->spec.kind == GD_CUMULATIVE_PROD; /* 0 for sums */
            if (j->blocks > 1) start[count] = ((const uint64_t *)(const void *)j->starts)[b];
            else if (j->isa == GD_ISA_CALL(gd_cumulative_i64)) start[count] = (uint64_t)identity;
            else __builtin_memcpy(&start[count], &identity, 8);
        }
        if (s.n > 0) j->isa->lines(&s, count, j->reverse ? -1 : 1, a, x, y, start);
    }
}

static void columns_task(void *arg, int64_t task) {
    const cumulative_job *j = arg;
    int64_t chunks = divide_up(j->inner, j->per_task), col = task % chunks * j->per_task;
    int64_t cols = j->inner - col < j->per_task ? j->inner - col : j->per_task;
    int64_t step = j->reverse ? -j->inner : j->inner;
    int64_t at = (task / chunks * j->spec.n * j->inner + col +
                  (j->reverse ? (j->spec.n - 1) * j->inner : 0)) *
                 j->size;
    j->isa->columns(&j->spec, cols, step, j->a ? j->a + at : NULL, j->x + at, j->y + at);
}

static void run_cumulative(cumulative_job *j, gd_dtype dtype) {
    j->isa = dtype == GD_F32   ? GD_ISA_CALL(gd_cumulative_f32)
             : dtype == GD_F64 ? GD_ISA_CALL(gd_cumulative_f64)
                               : GD_ISA_CALL(gd_cumulative_i64);
    if (j->spec.n == 0) return;
    if (j->inner > 1) {
        j->per_task = GD_CUMULATIVE_COLUMNS;
        gd_parallel_for(j->outer * divide_up(j->inner, j->per_task), columns_task, j);
        return;
    }
    j->per_task = divide_up(TASK_ELEMENTS, GD_CUMULATIVE_LINES * j->block) * GD_CUMULATIVE_LINES;
    int64_t tasks = divide_up(j->outer * j->blocks, j->per_task);
    if (j->blocks > 1) {
        gd_parallel_for(tasks, total_task, j);
        for (int64_t o = 0; o < j->outer; o++)
            j->isa->starts(j->spec.kind, j->blocks, j->reverse, j->starts + 8 * o * j->blocks);
    }
    gd_parallel_for(tasks, lines_task, j);
}

/* Computes cumsum or cumprod. An input of another dtype is first converted into y. */
static gd_status cumulate(gd_kernel_call *k, int64_t axis, gd_cumulative_kind kind, bool exclusive,
                          bool reverse) {
    cumulative_job j;
    init_cumulative(&j, k, axis);
    j.spec.kind = kind;
    j.spec.exclusive = exclusive;
    j.reverse = reverse;
    split_long_lines(&j);
    j.starts = k->workspace;
    j.x = k->in[0].data;
    if (k->in[0].dtype != k->out[0].dtype) {
        gd_copy_elements(&k->out[0], &k->in[0]);
        j.x = k->out[0].data;
    }
    run_cumulative(&j, k->out[0].dtype);
    return GD_OK;
}

static size_t cumulative_bytes(const gd_kernel_call *k, int64_t axis) {
    cumulative_job j;
    init_cumulative(&j, k, axis);
    split_long_lines(&j);
    return j.blocks > 1 ? (size_t)(j.outer * j.blocks) * 8 : 0;
}

/*kernel cumsum.lines  rank 10  wide  dtypes i64 f16 bf16 f32 f64
 * A task sums lines of the axis, or blocks of one long line.
 */
static size_t cumsum_lines_workspace(const gd_kernel_call *k) {
    const gd_cumsum_options *o = k->attrs;
    return cumulative_bytes(k, o->axis);
}
static gd_status cumsum_lines_run(gd_kernel_call *k) {
    const gd_cumsum_options *o = k->attrs;
    return cumulate(k, o->axis, GD_CUMULATIVE_SUM, o->exclusive, o->reverse);
}

/*kernel cumprod.lines  rank 10  wide  dtypes i64 f16 bf16 f32 f64
 * A task multiplies lines of the axis, or blocks of one long line.
 */
static size_t cumprod_lines_workspace(const gd_kernel_call *k) {
    const gd_cumprod_options *o = k->attrs;
    return cumulative_bytes(k, o->axis);
}
static gd_status cumprod_lines_run(gd_kernel_call *k) {
    const gd_cumprod_options *o = k->attrs;
    return cumulate(k, o->axis, GD_CUMULATIVE_PROD, o->exclusive, o->reverse);
}

/*kernel linear_recurrence.lines  rank 10  wide
 * All floats; a task computes lines of the axis.
 */
static gd_status linear_recurrence_lines_run(gd_kernel_call *k) {
    const gd_linear_recurrence_options *o = k->attrs;
    cumulative_job j;
    init_cumulative(&j, k, o->axis);
    j.spec.kind = GD_CUMULATIVE_LINEAR;
    j.spec.shifted = o->neighbour;
    j.reverse = o->reverse;
    j.a = k->in[0].data;
    j.x = k->in[1].data;
    run_cumulative(&j, k->out[0].dtype);
    return GD_OK;
}

#include "ops/cumulative/cpu/cumulative_kernels.gen.h"
