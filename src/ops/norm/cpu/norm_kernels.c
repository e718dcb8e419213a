/* norm_kernels.c - layer, RMS, group and instance norm on the CPU: statistics over contiguous
 * elements. Also window_sum, for local response norm.
 *
 * x is (samples, groups, channels of a group, s); each group of a sample has its own mean. Layer
 * and RMS norm have one group, and s = 1.
 */
#include "ops/norm/cpu/norm.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/reduce.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"

enum {
    TASK_ELEMENTS = 32768,  /* roughly */
    MIN_TASK_SAMPLES = 16,  /* backward, if a sample is hardly larger than a task's partial sums */
    MAX_TASK_SAMPLES = 512, /* backward; longer partial sums would lose precision */
    MERGE_CHANNELS = 1024,  /* channels whose partial sums a task merges */
};

typedef struct {
    const gd_norm_isa *isa;
    int64_t size, samples, groups, channels, s; /* channels of a group */
    bool centered;
    double eps;
    const char *gy, *x, *weight, *bias;
    char *y;
    const char *mean, *rstd;   /* backward */
    char *mean_out, *rstd_out; /* forward; NULL: not stored */
    int64_t per_task, tasks;   /* samples per task, and tasks */
    char *partial; /* backward: (tasks, 2, all channels), gradients of weight and bias */
    char *gweight, *gbias;
} norm_job;

static double load_float(const norm_job *j, const char *p, int64_t i) {
    if (!p) return 0;
    return j->size == 4 ? (double)((const float *)(const void *)p)[i]
                        : ((const double *)(const void *)p)[i];
}

static void store_float(const norm_job *j, char *p, int64_t i, double value) {
    if (j->size == 4) ((float *)(void *)p)[i] = (float)value;
    else ((double *)(void *)p)[i] = value;
}

static const char *offset_or_null(const char *p, int64_t bytes) { return p ? p + bytes : NULL; }

static void init_norm(norm_job *j, const gd_view *x, int64_t samples, int64_t groups, int64_t s) {
    int64_t total = gd_numel(x->rank, x->dims);
    *j = (norm_job){.size = (int64_t)gd_dtype_size(x->dtype),
                    .samples = samples,
                    .groups = groups,
                    .s = s,
                    .centered = true};
    j->isa = x->dtype == GD_F32 ? GD_ISA_CALL(gd_norm_f32) : GD_ISA_CALL(gd_norm_f64);
    j->channels = samples * groups * s > 0 ? total / (samples * groups * s) : 0;
}

static void partition_samples(norm_job *j) {
    int64_t sample = j->groups * j->channels * j->s;
    j->per_task = sample < TASK_ELEMENTS ? TASK_ELEMENTS / (sample > 0 ? sample : 1) : 1;
    j->tasks = (j->samples + j->per_task - 1) / j->per_task;
}

/* --- forward ---------------------------------------------------------------------------------- */

static void forward_task(void *arg, int64_t task) {
    const norm_job *j = arg;
    int64_t n = j->channels * j->s, first = task * j->per_task * j->groups,
            end = first + j->per_task * j->groups;
    if (end > j->samples * j->groups) end = j->samples * j->groups;
    for (int64_t row = first; row < end; row++) {
        const char *x = j->x + row * n * j->size;
        char *y = j->y + row * n * j->size;
        double mean = 0, squares;
        if (j->centered) j->isa->moments(n, x, &mean, &squares);
        else j->isa->squares(n, x, &squares);
        double rstd = 1 / sqrt(squares / (double)n + j->eps);
        if (j->mean_out) store_float(j, j->mean_out, row, mean);
        if (j->rstd_out) store_float(j, j->rstd_out, row, rstd);
        int64_t channel = row % j->groups * j->channels;
        if (j->s == 1) {
            j->isa->scale_row(n, x, mean, rstd, offset_or_null(j->weight, channel * j->size),
                              offset_or_null(j->bias, channel * j->size), y);
            continue;
        }
        for (int64_t c = 0; c < j->channels; c++) {
            double a = rstd * (j->weight ? load_float(j, j->weight, channel + c) : 1);
            j->isa->scale(j->s, x + c * j->s * j->size, a,
                          load_float(j, j->bias, channel + c) - mean * a, y + c * j->s * j->size);
        }
    }
}

static gd_status run_forward(norm_job *j, const gd_kernel_call *k, const void *weight,
                             const void *bias) {
    j->x = k->in[0].data;
    j->weight = weight;
    j->bias = bias;
    j->y = k->out[0].data;
    partition_samples(j);
    gd_parallel_for(j->tasks, forward_task, j);
    return GD_OK;
}

/*kernel layer_norm.rows  rank 10  wide
 * All floats; a task computes rows.
 */
static gd_status layer_norm_rows_run(gd_kernel_call *k) {
    const gd_layer_norm_options *o = k->attrs;
    norm_job j;
    init_norm(&j, &k->in[0], k->out[1].dims[0], 1, 1);
    j.eps = o->eps;
    j.mean_out = k->out[1].data;
    j.rstd_out = k->out[2].data;
    return run_forward(&j, k, k->in[1].data, k->in[2].data);
}

/*kernel rms_norm.rows  rank 10  wide
 * All floats; a task computes rows.
 */
static gd_status rms_norm_rows_run(gd_kernel_call *k) {
    const gd_rms_norm_options *o = k->attrs;
    norm_job j;
    init_norm(&j, &k->in[0], k->out[1].dims[0], 1, 1);
    j.eps = !isnan(o->eps) ? o->eps : j.size == 8 ? 0x1p-52 : 0x1p-23;
    j.centered = false;
    j.rstd_out = k->out[1].data;
    return run_forward(&j, k, k->in[1].data, NULL);
}

/*kernel group_norm.rows  rank 10  wide
 * All floats; a task computes rows.
 */
static gd_status group_norm_rows_run(gd_kernel_call *k) {
    const gd_group_norm_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    norm_job j;
    init_norm(&j, x, x->dims[0], o->groups, gd_numel(x->rank - 2, x->dims + 2));
    j.eps = o->eps;
    j.mean_out = k->out[1].data;
    j.rstd_out = k->out[2].data;
    return run_forward(&j, k, k->in[1].data, k->in[2].data);
}

/*kernel instance_norm_train.rows  rank 10  wide
 * All floats; the running variance is recomputed from 1 / sqrt(variance + eps), up to rounding.
 */
static size_t instance_norm_train_rows_workspace(const gd_kernel_call *k) {
    return 2 * sizeof(double) * (size_t)(k->in[0].dims[0] * k->in[0].dims[1]);
}
static gd_status instance_norm_train_rows_run(gd_kernel_call *k) {
    const gd_instance_norm_train_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    int64_t n = x->dims[0], channels = x->dims[1], s = gd_numel(x->rank - 2, x->dims + 2),
            count = n * channels;
    norm_job j;
    init_norm(&j, x, n, channels, s);
    j.eps = o->eps;
    j.mean_out = k->out[1].data ? k->out[1].data : k->workspace;
    j.rstd_out = k->out[2].data ? k->out[2].data : (char *)k->workspace + count * j.size;
    GD_TRY(run_forward(&j, k, k->in[1].data, k->in[2].data));
    for (int64_t c = 0; c < channels && n > 0; c++) {
        double mean = 0, variance = 0, unbiased = (double)s / (double)(s - 1);
        for (int64_t i = 0; i < n; i++) {
            double rstd = load_float(&j, j.rstd_out, i * channels + c),
                   biased = 1 / (rstd * rstd) - o->eps;
            mean += load_float(&j, j.mean_out, i * channels + c);
            variance += biased > 0 ? biased : 0;
        }
        mean /= (double)n;
        variance *= unbiased / (double)n;
        char *to[2] = {k->out[3].data, k->out[4].data};
        for (int i = 0; i < 2; i++) {
            double before = load_float(&j, to[i], c);
            store_float(&j, to[i], c, before + o->momentum * ((i ? variance : mean) - before));
        }
    }
    return GD_OK;
}

/* --- backward -----------------------------------------------------------------------------------
 *
 * With g = gy * w and h = (x - mean) * rstd: gx = rstd * (g - mean(g) - h * mean(g * h)). */

static void backward_row(const norm_job *j, int64_t row, char *gw, char *gb) {
    int64_t n = j->channels * j->s, at = row * n * j->size, channel = row % j->groups * j->channels;
    const char *gy = j->gy + at, *x = j->x + at,
               *weight = offset_or_null(j->weight, channel * j->size);
    double mean = load_float(j, j->mean, row), rstd = load_float(j, j->rstd, row), sum = 0, dot = 0;
    gw += channel * j->size;
    gb += channel * j->size;
    if (j->s == 1) j->isa->dots_row(n, gy, x, mean, rstd, weight, gw, gb, &sum, &dot);
    else
        for (int64_t c = 0; c < j->channels; c++) {
            double s, d, w = weight ? load_float(j, weight, c) : 1;
            j->isa->dots(j->s, gy + c * j->s * j->size, x + c * j->s * j->size, mean, &s, &d);
            store_float(j, gw, c, load_float(j, gw, c) + d * rstd);
            store_float(j, gb, c, load_float(j, gb, c) + s);
            sum += w * s;
            dot += w * d;
        }
    double b = -rstd * rstd * rstd * dot / (double)n,
           c0 = j->centered ? -rstd * sum / (double)n : 0;
    char *gx = j->y + at;
    if (j->s == 1) j->isa->input_grad_row(n, gy, x, mean, rstd, b, c0, weight, gx);
    else
        for (int64_t c = 0; c < j->channels; c++) {
            int64_t to = c * j->s * j->size;
            j->isa->input_grad(j->s, gy + to, x + to, mean,
                               rstd * (weight ? load_float(j, weight, c) : 1), b, c0, gx + to);
        }
}

static void backward_task(void *arg, int64_t task) {
    const norm_job *j = arg;
    int64_t channels = j->groups * j->channels, first = task * j->per_task,
            end = first + j->per_task;
    char *gw = j->partial + task * 2 * channels * j->size, *gb = gw + channels * j->size;
    if (end > j->samples) end = j->samples;
    memset(gw, 0, (size_t)(2 * channels * j->size));
    for (int64_t row = first * j->groups; row < end * j->groups; row++)
        backward_row(j, row, gw, gb);
}

/* Merges the partial sums of some channels over all tasks pairwise. */
static void merge_task(void *arg, int64_t task) {
    const norm_job *j = arg;
    int64_t channels = j->groups * j->channels, first = task * MERGE_CHANNELS;
    int64_t n = channels - first < MERGE_CHANNELS ? channels - first : MERGE_CHANNELS;
    for (int which = 0; which < 2; which++) {
        char *at = j->partial + (which * channels + first) * j->size;
        int64_t task_stride = 2 * channels * j->size;
        for (int64_t step = 1; step < j->tasks; step *= 2)
            for (int64_t p = 0; p + step < j->tasks; p += 2 * step)
                j->isa->add(n, at + (p + step) * task_stride, at + p * task_stride);
        memcpy((which ? j->gbias : j->gweight) + first * j->size, at, (size_t)(n * j->size));
    }
}

/* As partition_samples, but tasks must be larger than their partial sums. */
static void partition_backward(norm_job *j) {
    partition_samples(j);
    if (j->s < MIN_TASK_SAMPLES && j->per_task < MIN_TASK_SAMPLES) j->per_task = MIN_TASK_SAMPLES;
    if (j->per_task > MAX_TASK_SAMPLES) j->per_task = MAX_TASK_SAMPLES;
    j->tasks = (j->samples + j->per_task - 1) / j->per_task;
}

static void init_norm_grad(norm_job *j, const gd_kernel_call *k) {
    const gd_row_norm_grad_options *o = k->attrs;
    const gd_view *x = &k->in[1];
    init_norm(j, x, x->dims[0], o->groups, x->dims[2]);
    j->channels = x->dims[1] / o->groups;
    partition_backward(j);
}

/*kernel row_norm_grad.rows  rank 10  wide
 * All floats; a task computes rows.
 */
static size_t row_norm_grad_rows_workspace(const gd_kernel_call *k) {
    norm_job j;
    init_norm_grad(&j, k);
    return (size_t)(j.tasks * 2 * k->in[1].dims[1]) * (k->in[1].dtype == GD_F64 ? 8 : 4);
}
static gd_status row_norm_grad_rows_run(gd_kernel_call *k) {
    norm_job j;
    init_norm_grad(&j, k);
    j.centered = k->in[3].data != NULL;
    j.gy = k->in[0].data;
    j.x = k->in[1].data;
    j.weight = k->in[2].data;
    j.mean = k->in[3].data;
    j.rstd = k->in[4].data;
    j.y = k->out[0].data;
    j.gweight = k->out[1].data;
    j.gbias = k->out[2].data;
    j.partial = k->workspace;
    int64_t channels = k->in[1].dims[1];
    if (j.samples == 0) {
        memset(j.gweight, 0, (size_t)(channels * j.size));
        memset(j.gbias, 0, (size_t)(channels * j.size));
        return GD_OK;
    }
    gd_parallel_for(j.tasks, backward_task, &j);
    gd_parallel_for((channels + MERGE_CHANNELS - 1) / MERGE_CHANNELS, merge_task, &j);
    return GD_OK;
}

/* --- window_sum ------------------------------------------------------------------------------- */

typedef struct {
    const gd_reducer *isa;
    const gd_window_sum_options *options;
    const char *x;
    char *y;
    int64_t size, n, inner, per_task, rows;
} window_job;

enum { WINDOW_ROWS = 64 };

/* Each row of the result is the sum of the rows in a window around it. */
static void window_task(void *arg, int64_t task) {
    const window_job *j = arg;
    int64_t end = (task + 1) * j->per_task, bytes = j->inner * j->size;
    for (int64_t row = task * j->per_task; row < end && row < j->rows; row++) {
        int64_t at = row % j->n, first = at - j->options->before, stop = first + j->options->size;
        const void *rows[WINDOW_ROWS];
        int count = 0;
        for (int64_t t = first < 0 ? 0 : first; t < stop && t < j->n; t++)
            rows[count++] = j->x + (row + t - at) * bytes;
        if (count)
            j->isa->columns(GD_FOLD_SUM, 0, rows, count, j->inner, 0, j->y + row * bytes, NULL);
        else memset(j->y + row * bytes, 0, (size_t)bytes);
    }
}

/*kernel window_sum.rows  rank 10  wide  dtypes f16 bf16 f32 f64
 * Windows of at most 64 along an axis, as sums of rows.
 */
static bool window_sum_rows_match(const gd_kernel_call *k) {
    const gd_window_sum_options *o = k->attrs;
    return o->size >= 1 && o->size <= WINDOW_ROWS;
}
static gd_status window_sum_rows_run(gd_kernel_call *k) {
    const gd_window_sum_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    window_job j = {.options = o,
                    .x = x->data,
                    .y = k->out[0].data,
                    .size = (int64_t)gd_dtype_size(x->dtype),
                    .n = 1,
                    .inner = 1};
    j.isa = x->dtype == GD_F32 ? GD_ISA_CALL(gd_reducer_f32) : GD_ISA_CALL(gd_reducer_f64);
    int axis = (int)(o->axis < 0 ? o->axis + x->rank : o->axis);
    if (x->rank > 0) {
        j.n = x->dims[axis];
        j.inner = gd_numel(x->rank - axis - 1, x->dims + axis + 1);
    }
    j.rows = gd_numel(x->rank, x->dims) / j.inner;
    j.per_task = j.inner < TASK_ELEMENTS ? TASK_ELEMENTS / j.inner : 1;
    gd_parallel_for((j.rows + j.per_task - 1) / j.per_task, window_task, &j);
    return GD_OK;
}

#include "ops/norm/cpu/norm_kernels.gen.h"
