/* norm_kernels.c - layer, RMS and group norm on the CPU: statistics of neighbouring elements.
 *
 * x is [samples][groups][channels of a group][s]; each group of a sample has its own mean. Layer
 * and RMS norm have one group, and s = 1.
 */
#include "backend/cpu/norm.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/reduce.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"

enum {
    PIECE = 32768, /* elements of a piece of work for one thread, roughly */
    FEWEST = 16, /* samples that share sums of gradients, where a sample is hardly more than them */
    MOST = 512,  /* samples that share them: longer sums would lose digits */
    COLUMNS = 1024, /* sums of gradients that are merged together */
};

typedef struct {
    const gd_norm_isa *isa;
    int64_t size, samples, groups, channels, s; /* channels of a group */
    bool centered;
    double eps;
    const char *gy, *x, *weight, *bias;
    char *y;
    const char *mean, *rstd;   /* backward */
    char *mean_out, *rstd_out; /* forward; NULL: not wanted */
    int64_t per_piece, pieces; /* samples of a piece */
    char *partial; /* backward: [pieces][2][all channels], gradients of weight and bias */
    char *gweight, *gbias;
} job;

static double number(const job *j, const char *p, int64_t i) {
    if (!p) return 0;
    return j->size == 4 ? (double)((const float *)(const void *)p)[i]
                        : ((const double *)(const void *)p)[i];
}

static void set_number(const job *j, char *p, int64_t i, double value) {
    if (j->size == 4) ((float *)(void *)p)[i] = (float)value;
    else ((double *)(void *)p)[i] = value;
}

static const char *advance(const char *p, int64_t bytes) { return p ? p + bytes : NULL; }

static void shape(job *j, const gd_view *x, int64_t samples, int64_t groups, int64_t s) {
    int64_t total = gd_numel(x->rank, x->dims);
    *j = (job){.size = (int64_t)gd_dtype_size(x->dtype),
               .samples = samples,
               .groups = groups,
               .s = s,
               .centered = true};
    j->isa = x->dtype == GD_F32 ? GD_ISA_CALL(gd_norm_f32) : GD_ISA_CALL(gd_norm_f64);
    j->channels = samples * groups * s > 0 ? total / (samples * groups * s) : 0;
}

static void cut(job *j) {
    int64_t sample = j->groups * j->channels * j->s;
    j->per_piece = sample < PIECE ? PIECE / (sample > 0 ? sample : 1) : 1;
    j->pieces = (j->samples + j->per_piece - 1) / j->per_piece;
}

/* --- forward ---------------------------------------------------------------------------------- */

static void forward_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int64_t n = j->channels * j->s, first = piece * j->per_piece * j->groups,
            end = first + j->per_piece * j->groups;
    if (end > j->samples * j->groups) end = j->samples * j->groups;
    for (int64_t row = first; row < end; row++) {
        const char *x = j->x + row * n * j->size;
        char *y = j->y + row * n * j->size;
        double mean = 0, squares;
        if (j->centered) j->isa->moments(n, x, &mean, &squares);
        else j->isa->squares(n, x, &squares);
        double rstd = 1 / sqrt(squares / (double)n + j->eps);
        if (j->mean_out) set_number(j, j->mean_out, row, mean);
        if (j->rstd_out) set_number(j, j->rstd_out, row, rstd);
        int64_t channel = row % j->groups * j->channels;
        if (j->s == 1) {
            j->isa->scale_row(n, x, mean, rstd, advance(j->weight, channel * j->size),
                              advance(j->bias, channel * j->size), y);
            continue;
        }
        for (int64_t c = 0; c < j->channels; c++) {
            double a = rstd * (j->weight ? number(j, j->weight, channel + c) : 1);
            j->isa->scale(j->s, x + c * j->s * j->size, a,
                          number(j, j->bias, channel + c) - mean * a, y + c * j->s * j->size);
        }
    }
}

static gd_status forward(job *j, const gd_kernel_call *k, const void *weight, const void *bias) {
    j->x = k->in[0].data;
    j->weight = weight;
    j->bias = bias;
    j->y = k->out[0].data;
    cut(j);
    gd_parallel_for(j->pieces, forward_piece, j);
    return GD_OK;
}

/*kernel layer_norm.rows  rank 10  wide
 * All floats.
 */
static gd_status layer_norm_rows_run(gd_kernel_call *k) {
    const gd_layer_norm_options *o = k->attrs;
    job j;
    shape(&j, &k->in[0], k->out[1].dims[0], 1, 1);
    j.eps = o->eps;
    j.mean_out = k->out[1].data;
    j.rstd_out = k->out[2].data;
    return forward(&j, k, k->in[1].data, k->in[2].data);
}

/*kernel rms_norm.rows  rank 10  wide
 * All floats.
 */
static gd_status rms_norm_rows_run(gd_kernel_call *k) {
    const gd_rms_norm_options *o = k->attrs;
    job j;
    shape(&j, &k->in[0], k->out[1].dims[0], 1, 1);
    j.eps = !isnan(o->eps) ? o->eps : j.size == 8 ? 0x1p-52 : 0x1p-23;
    j.centered = false;
    j.rstd_out = k->out[1].data;
    return forward(&j, k, k->in[1].data, NULL);
}

/*kernel group_norm.rows  rank 10  wide
 * All floats.
 */
static gd_status group_norm_rows_run(gd_kernel_call *k) {
    const gd_group_norm_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    job j;
    shape(&j, x, x->dims[0], o->groups, gd_numel(x->rank - 2, x->dims + 2));
    j.eps = o->eps;
    j.mean_out = k->out[1].data;
    j.rstd_out = k->out[2].data;
    return forward(&j, k, k->in[1].data, k->in[2].data);
}

/*kernel instance_norm_train.rows  rank 10  wide
 * All floats. The variance comes back from 1 / sqrt(variance + eps), to an error of its rounding.
 */
static size_t instance_norm_train_rows_workspace(const gd_kernel_call *k) {
    return 2 * sizeof(double) * (size_t)(k->in[0].dims[0] * k->in[0].dims[1]);
}
static gd_status instance_norm_train_rows_run(gd_kernel_call *k) {
    const gd_instance_norm_train_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    int64_t n = x->dims[0], channels = x->dims[1], s = gd_numel(x->rank - 2, x->dims + 2),
            count = n * channels;
    job j;
    shape(&j, x, n, channels, s);
    j.eps = o->eps;
    j.mean_out = k->out[1].data ? k->out[1].data : k->workspace;
    j.rstd_out = k->out[2].data ? k->out[2].data : (char *)k->workspace + count * j.size;
    GD_TRY(forward(&j, k, k->in[1].data, k->in[2].data));
    for (int64_t c = 0; c < channels && n > 0; c++) {
        double mean = 0, variance = 0, unbiased = (double)s / (double)(s - 1);
        for (int64_t i = 0; i < n; i++) {
            double rstd = number(&j, j.rstd_out, i * channels + c),
                   biased = 1 / (rstd * rstd) - o->eps;
            mean += number(&j, j.mean_out, i * channels + c);
            variance += biased > 0 ? biased : 0;
        }
        mean /= (double)n;
        variance *= unbiased / (double)n;
        char *to[2] = {k->out[3].data, k->out[4].data};
        for (int i = 0; i < 2; i++) {
            double before = number(&j, to[i], c);
            set_number(&j, to[i], c, before + o->momentum * ((i ? variance : mean) - before));
        }
    }
    return GD_OK;
}

/* --- backward -----------------------------------------------------------------------------------
 *
 * With g = gy w and h = (x - mean) rstd: gx = rstd (g - mean of g - h mean of g h). */

static void backward_row(const job *j, int64_t row, char *gw, char *gb) {
    int64_t n = j->channels * j->s, at = row * n * j->size, channel = row % j->groups * j->channels;
    const char *gy = j->gy + at, *x = j->x + at, *weight = advance(j->weight, channel * j->size);
    double mean = number(j, j->mean, row), rstd = number(j, j->rstd, row), sum = 0, dot = 0;
    gw += channel * j->size;
    gb += channel * j->size;
    if (j->s == 1) j->isa->dots_row(n, gy, x, mean, rstd, weight, gw, gb, &sum, &dot);
    else
        for (int64_t c = 0; c < j->channels; c++) {
            double s, d, w = weight ? number(j, weight, c) : 1;
            j->isa->dots(j->s, gy + c * j->s * j->size, x + c * j->s * j->size, mean, &s, &d);
            set_number(j, gw, c, number(j, gw, c) + d * rstd);
            set_number(j, gb, c, number(j, gb, c) + s);
            sum += w * s;
            dot += w * d;
        }
    double b = -rstd * rstd * rstd * dot / (double)n,
           c0 = j->centered ? -rstd * sum / (double)n : 0;
    char *gx = j->y + at;
    if (j->s == 1) j->isa->pull_row(n, gy, x, mean, rstd, b, c0, weight, gx);
    else
        for (int64_t c = 0; c < j->channels; c++) {
            int64_t to = c * j->s * j->size;
            j->isa->pull(j->s, gy + to, x + to, mean, rstd * (weight ? number(j, weight, c) : 1), b,
                         c0, gx + to);
        }
}

static void backward_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int64_t channels = j->groups * j->channels, first = piece * j->per_piece,
            end = first + j->per_piece;
    char *gw = j->partial + piece * 2 * channels * j->size, *gb = gw + channels * j->size;
    if (end > j->samples) end = j->samples;
    memset(gw, 0, (size_t)(2 * channels * j->size));
    for (int64_t row = first * j->groups; row < end * j->groups; row++)
        backward_row(j, row, gw, gb);
}

/* Sums of gradients of some channels, of all pieces, merged in pairs. */
static void merge_piece(void *arg, int64_t task) {
    const job *j = arg;
    int64_t channels = j->groups * j->channels, first = task * COLUMNS;
    int64_t n = channels - first < COLUMNS ? channels - first : COLUMNS;
    for (int which = 0; which < 2; which++) {
        char *at = j->partial + (which * channels + first) * j->size;
        int64_t apart = 2 * channels * j->size;
        for (int64_t step = 1; step < j->pieces; step *= 2)
            for (int64_t p = 0; p + step < j->pieces; p += 2 * step)
                j->isa->add(n, at + (p + step) * apart, at + p * apart);
        memcpy((which ? j->gbias : j->gweight) + first * j->size, at, (size_t)(n * j->size));
    }
}

/* Pieces that have sums of their own must not be so small that the sums outweigh them. */
static void cut_backward(job *j) {
    cut(j);
    if (j->s < FEWEST && j->per_piece < FEWEST) j->per_piece = FEWEST;
    if (j->per_piece > MOST) j->per_piece = MOST;
    j->pieces = (j->samples + j->per_piece - 1) / j->per_piece;
}

static void shape_backward(job *j, const gd_kernel_call *k) {
    const gd_row_norm_grad_options *o = k->attrs;
    const gd_view *x = &k->in[1];
    shape(j, x, x->dims[0], o->groups, x->dims[2]);
    j->channels = x->dims[1] / o->groups;
    cut_backward(j);
}

/*kernel row_norm_grad.rows  rank 10  wide
 * All floats.
 */
static size_t row_norm_grad_rows_workspace(const gd_kernel_call *k) {
    job j;
    shape_backward(&j, k);
    return (size_t)(j.pieces * 2 * k->in[1].dims[1]) * (k->in[1].dtype == GD_F64 ? 8 : 4);
}
static gd_status row_norm_grad_rows_run(gd_kernel_call *k) {
    job j;
    shape_backward(&j, k);
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
    gd_parallel_for(j.pieces, backward_piece, &j);
    gd_parallel_for((channels + COLUMNS - 1) / COLUMNS, merge_piece, &j);
    return GD_OK;
}

/* --- windows ---------------------------------------------------------------------------------- */

typedef struct {
    const gd_reducer *isa;
    const gd_window_sum_options *options;
    const char *x;
    char *y;
    int64_t size, n, inner, per_piece, rows;
} windows;

enum { WINDOW_ROWS = 64 };

/* Each row of the result is the sum of the rows of a window. */
static void window_piece(void *arg, int64_t piece) {
    const windows *j = arg;
    int64_t end = (piece + 1) * j->per_piece, bytes = j->inner * j->size;
    for (int64_t row = piece * j->per_piece; row < end && row < j->rows; row++) {
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

/*kernel window_sum.rows  rank 10  wide
 * Floats, windows of at most 64.
 */
static bool window_sum_rows_match(const gd_kernel_call *k) {
    const gd_window_sum_options *o = k->attrs;
    return o->size >= 1 && o->size <= WINDOW_ROWS && gd_dtype_is_float(k->in[0].dtype);
}
static gd_status window_sum_rows_run(gd_kernel_call *k) {
    const gd_window_sum_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    windows j = {.options = o,
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
    j.per_piece = j.inner < PIECE ? PIECE / j.inner : 1;
    gd_parallel_for((j.rows + j.per_piece - 1) / j.per_piece, window_piece, &j);
    return GD_OK;
}

#include "norm_kernels.gen.h"
