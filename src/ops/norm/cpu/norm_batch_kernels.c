/* norm_batch_kernels.c - batch norm on the CPU: x is (n, c, s), with one mean per channel c.
 *
 * Long spatial extents s are processed in runs of s elements with one scale each, short ones in
 * rows of c * s elements with vectors of scales.
 */
#include "ops/norm/cpu/norm.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/reduce.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"

enum {
    TASK_ELEMENTS = 32768, /* roughly */
    LONG_RUN = 16,         /* runs of at least this many elements are long */
    MIN_TASK_ROWS = 16,    /* rows whose gradients a task sums in the dtype of x */
    MAX_TASK_ROWS = 512,
};

typedef struct {
    const gd_norm_isa *isa;
    int64_t size, n, c, s;
    bool rows; /* process rows of c * s elements; else runs of s */
    const char *gy, *x;
    char *y;
    /* one value per channel or, for rows, per element of a row */
    char *a, *b, *mean, *shift;
    int64_t per_task;
    char *sums, *dots; /* partial sums; runs: f64 (n, c), rows: (tasks, c * s) */
} batch_norm_job;

static double load_float(const batch_norm_job *j, const void *p, int64_t i) {
    return j->size == 4 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static void store_float(const batch_norm_job *j, void *p, int64_t i, double value) {
    if (j->size == 4) ((float *)p)[i] = (float)value;
    else ((double *)p)[i] = value;
}

/* Stores the value of a channel, for rows once for each of its elements. */
static void store_channel(const batch_norm_job *j, char *p, int64_t c, double value) {
    if (!j->rows) store_float(j, p, c, value);
    else
        for (int64_t i = 0; i < j->s; i++) store_float(j, p, c * j->s + i, value);
}

/* The size of axis 1; 0 for a tensor of rank 1, which is empty. */
static int64_t channel_count(const gd_view *x) { return x->rank > 1 ? x->dims[1] : 0; }

static void init_batch_norm(batch_norm_job *j, const gd_view *x) {
    memset(j, 0, sizeof *j);
    /* 4 for f16 and bf16, too: workspace functions see them before they are widened. */
    j->size = x->dtype == GD_F64 ? 8 : 4;
    j->isa = x->dtype == GD_F64 ? GD_ISA_CALL(gd_norm_f64) : GD_ISA_CALL(gd_norm_f32);
    j->n = x->dims[0];
    j->c = channel_count(x);
    j->s = x->rank > 2 ? gd_numel(x->rank - 2, x->dims + 2) : 1;
    j->rows = j->s < LONG_RUN;
    int64_t unit = j->rows ? j->c * j->s : j->s;
    j->per_task = unit < TASK_ELEMENTS ? TASK_ELEMENTS / (unit > 0 ? unit : 1) : 1;
}

static int64_t unit_count(const batch_norm_job *j) { return j->rows ? j->n : j->n * j->c; }
static int64_t task_count(const batch_norm_job *j) {
    return (unit_count(j) + j->per_task - 1) / j->per_task;
}
static size_t vector_bytes(const batch_norm_job *j) {
    return (size_t)(j->c * (j->rows ? j->s : 1)) * (size_t)j->size;
}

/* --- forward ---------------------------------------------------------------------------------- */

static void forward_task(void *arg, int64_t task) {
    const batch_norm_job *j = arg;
    int64_t end = (task + 1) * j->per_task, unit = j->rows ? j->c * j->s : j->s;
    for (int64_t u = task * j->per_task; u < end && u < unit_count(j); u++) {
        const char *x = j->x + u * unit * j->size;
        char *y = j->y + u * unit * j->size;
        if (j->rows) j->isa->scale_each(unit, x, j->a, j->b, y);
        else
            j->isa->scale(unit, x, load_float(j, j->a, u % j->c), load_float(j, j->b, u % j->c), y);
    }
}

/* The reduction over all axes except the channels that computes the statistics, and views of them
 * in `memory`. */
static gd_reduction moments_reduction(const gd_view *x, gd_view *mean, gd_view *squares,
                                      char *memory) {
    gd_dtype type = x->dtype == GD_F64 ? GD_F64 : GD_F32;
    *mean = (gd_view){
        .data = memory, .dtype = type, .rank = 1, .dims = {channel_count(x)}, .strides = {1}};
    *squares = *mean;
    if (memory) squares->data = memory + channel_count(x) * (int64_t)gd_dtype_size(type);
    return (gd_reduction){.fold = GD_FOLD_MOMENTS,
                          .type = type,
                          .mask = ((1u << x->rank) - 1u) & ~2u,
                          .two_values = true,
                          .y = mean,
                          .y1 = squares};
}

/*kernel batch_norm.channels  rank 10  wide
 * All floats; a task computes channels.
 */
static size_t batch_norm_channels_workspace(const gd_kernel_call *k) {
    batch_norm_job j;
    gd_view x = k->in[0], mean, squares;
    init_batch_norm(&j, &x);
    if (x.dtype != GD_F64) x.dtype = GD_F32; /* `wide` widens it before the kernel runs */
    gd_row_major(x.rank, x.dims, x.strides);
    gd_reduction r = moments_reduction(&x, &mean, &squares, NULL);
    return gd_reduce_bytes(&x, &r) + 2 * vector_bytes(&j) + 2 * (size_t)(j.c * j.size) + 256;
}
static gd_status batch_norm_channels_run(gd_kernel_call *k) {
    const gd_batch_norm_options *o = k->attrs;
    const void *weight = k->in[1].data, *bias = k->in[2].data;
    void *running_mean = k->out[3].data, *running_var = k->out[4].data;
    batch_norm_job j;
    gd_view mean, squares;
    init_batch_norm(&j, &k->in[0]);
    double count = (double)(j.n * j.s);
    char *memory = k->workspace;
    j.a = memory;
    j.b = j.a + vector_bytes(&j);
    char *statistics = j.b + vector_bytes(&j);
    gd_reduction r = moments_reduction(&k->in[0], &mean, &squares, statistics);
    size_t used = (size_t)(statistics + 2 * j.c * j.size - memory);
    if (o->training) gd_reduce(&k->in[0], &r, memory + (used + 63) / 64 * 64);
    for (int64_t c = 0; c < j.c; c++) {
        double m, variance;
        if (o->training) {
            m = load_float(&j, mean.data, c);
            variance = load_float(&j, squares.data, c) / count;
            if (running_mean && count > 0) {
                double from = load_float(&j, running_mean, c), var = load_float(&j, running_var, c);
                store_float(&j, running_mean, c, from * (1 - o->momentum) + o->momentum * m);
                store_float(&j, running_var, c,
                            var * (1 - o->momentum) + o->momentum * variance * count / (count - 1));
            }
        } else {
            m = load_float(&j, running_mean, c);
            variance = load_float(&j, running_var, c);
        }
        double rstd = 1 / sqrt(variance + o->eps),
               a = rstd * (weight ? load_float(&j, weight, c) : 1);
        store_channel(&j, j.a, c, a);
        store_channel(&j, j.b, c, (bias ? load_float(&j, bias, c) : 0) - m * a);
        if (k->out[1].data) store_float(&j, k->out[1].data, c, m);
        if (k->out[2].data) store_float(&j, k->out[2].data, c, rstd);
    }
    j.x = k->in[0].data;
    j.y = k->out[0].data;
    gd_parallel_for(task_count(&j), forward_task, &j);
    return GD_OK;
}

/* --- backward -----------------------------------------------------------------------------------
 *
 * With h = (x - mean) * rstd, in training: gx = rstd * w * (gy - mean(gy) - h * mean(gy * h)). */

static void dots_task(void *arg, int64_t task) {
    const batch_norm_job *j = arg;
    int64_t first = task * j->per_task, end = first + j->per_task,
            unit = j->rows ? j->c * j->s : j->s;
    if (end > unit_count(j)) end = unit_count(j);
    char *sums = j->sums + task * unit * j->size, *dots = j->dots + task * unit * j->size;
    if (j->rows && unit > 0) {
        memset(sums, 0, (size_t)(unit * j->size));
        memset(dots, 0, (size_t)(unit * j->size));
    }
    for (int64_t u = first; u < end; u++) {
        const char *gy = j->gy + u * unit * j->size, *x = j->x + u * unit * j->size;
        if (j->rows) j->isa->dots_each(unit, gy, x, j->mean, sums, dots);
        else
            j->isa->dots(unit, gy, x, load_float(j, j->mean, u % j->c),
                         (double *)(void *)j->sums + u, (double *)(void *)j->dots + u);
    }
}

/* Adds `count` arrays of n partial sums pairwise into the first one. */
static void add_pairwise(char *partials, int64_t count, int64_t n, const gd_norm_isa *isa,
                         int64_t size) {
    for (int64_t step = 1; step < count; step *= 2)
        for (int64_t p = 0; p + step < count; p += 2 * step)
            isa->add(n, partials + (p + step) * n * size, partials + p * n * size);
}

static void sum_channels(batch_norm_job *j) {
    if (j->rows) {
        add_pairwise(j->sums, task_count(j), j->c * j->s, j->isa, j->size);
        add_pairwise(j->dots, task_count(j), j->c * j->s, j->isa, j->size);
    } else {
        add_pairwise(j->sums, j->n, j->c, GD_ISA_CALL(gd_norm_f64), 8);
        add_pairwise(j->dots, j->n, j->c, GD_ISA_CALL(gd_norm_f64), 8);
    }
}

static double channel_sum(const batch_norm_job *j, const char *sums, int64_t c) {
    if (!j->rows) return ((const double *)(const void *)sums)[c];
    double sum = 0;
    for (int64_t i = 0; i < j->s; i++) sum += load_float(j, sums, c * j->s + i);
    return sum;
}

static void input_grad_task(void *arg, int64_t task) {
    const batch_norm_job *j = arg;
    int64_t end = (task + 1) * j->per_task, unit = j->rows ? j->c * j->s : j->s;
    for (int64_t u = task * j->per_task; u < end && u < unit_count(j); u++) {
        int64_t at = u * unit * j->size, c = u % j->c;
        if (j->rows)
            j->isa->input_grad_each(unit, j->gy + at, j->x + at, j->mean, j->a, j->b, j->shift,
                                    j->y + at);
        else
            j->isa->input_grad(unit, j->gy + at, j->x + at, load_float(j, j->mean, c),
                               load_float(j, j->a, c), load_float(j, j->b, c),
                               load_float(j, j->shift, c), j->y + at);
    }
}

static void init_batch_norm_grad(batch_norm_job *j, const gd_view *x) {
    init_batch_norm(j, x);
    if (!j->rows) return;
    if (j->per_task < MIN_TASK_ROWS) j->per_task = MIN_TASK_ROWS;
    if (j->per_task > MAX_TASK_ROWS) j->per_task = MAX_TASK_ROWS;
}

/* Bytes of `sums`, and of `dots`. */
static size_t sums_bytes(const batch_norm_job *j) {
    return j->rows ? (size_t)(task_count(j) * j->c * j->s * j->size) : (size_t)(j->n * j->c) * 8;
}

/*kernel batch_norm_grad.channels  rank 10  wide
 * All floats; a task computes channels.
 */
static size_t batch_norm_grad_channels_workspace(const gd_kernel_call *k) {
    batch_norm_job j;
    init_batch_norm_grad(&j, &k->in[1]);
    return 2 * sums_bytes(&j) + 4 * vector_bytes(&j);
}
static gd_status batch_norm_grad_channels_run(gd_kernel_call *k) {
    const gd_batch_norm_grad_options *o = k->attrs;
    const void *weight = k->in[2].data, *mean = k->in[3].data, *rstd = k->in[4].data;
    batch_norm_job j;
    init_batch_norm_grad(&j, &k->in[1]);
    j.gy = k->in[0].data;
    j.x = k->in[1].data;
    j.y = k->out[0].data;
    j.sums = k->workspace;
    j.dots = j.sums + sums_bytes(&j);
    j.a = j.dots + sums_bytes(&j);
    j.b = j.a + vector_bytes(&j);
    j.mean = j.b + vector_bytes(&j);
    j.shift = j.mean + vector_bytes(&j);
    for (int64_t c = 0; c < j.c; c++) store_channel(&j, j.mean, c, load_float(&j, mean, c));
    if (unit_count(&j) > 0) {
        gd_parallel_for(task_count(&j), dots_task, &j);
        sum_channels(&j);
    }
    double count = (double)(j.n * j.s);
    for (int64_t c = 0; c < j.c; c++) {
        double sum = unit_count(&j) > 0 ? channel_sum(&j, j.sums, c) : 0,
               dot = unit_count(&j) > 0 ? channel_sum(&j, j.dots, c) : 0;
        double r = load_float(&j, rstd, c), a = r * (weight ? load_float(&j, weight, c) : 1);
        /* Without elements r is NaN. */
        store_float(&j, k->out[1].data, c, count > 0 ? dot * r : 0);
        store_float(&j, k->out[2].data, c, sum);
        store_channel(&j, j.a, c, a);
        store_channel(&j, j.b, c, o->training ? -a * r * r * dot / count : 0);
        store_channel(&j, j.shift, c, o->training ? -a * sum / count : 0);
    }
    if (!o->training) j.x = j.gy; /* multiplied by 0, which would be NaN for an infinite x */
    gd_parallel_for(task_count(&j), input_grad_task, &j);
    return GD_OK;
}

#include "ops/norm/cpu/norm_batch_kernels.gen.h"
