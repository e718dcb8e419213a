/* norm_batch_kernels.c - batch norm on the CPU: x is [n][c][s], a mean for each channel.
 *
 * Where s is large, work is done in runs of s elements with one scale each; where it is small, in
 * rows of c s elements with vectors of scales.
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
    LONG_RUN = 16, /* runs of so many elements are long */
    FEWEST = 16,   /* rows that share sums of gradients */
    MOST = 512,
};

typedef struct {
    const gd_norm_isa *isa;
    int64_t size, n, c, s;
    bool rows; /* of c s elements; else runs of s */
    const char *gy, *x;
    char *y;
    /* one number for each channel or, for rows, for each element of a row */
    char *a, *b, *mean, *shift;
    int64_t per_piece;
    char *sums, *dots; /* runs: f64 [n][c]; rows: [pieces][c s] */
} job;

static double number(const job *j, const void *p, int64_t i) {
    return j->size == 4 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static void set_number(const job *j, void *p, int64_t i, double value) {
    if (j->size == 4) ((float *)p)[i] = (float)value;
    else ((double *)p)[i] = value;
}

/* The number of a channel, at its place or at all its places in a row. */
static void set_channel(const job *j, char *p, int64_t c, double value) {
    if (!j->rows) set_number(j, p, c, value);
    else
        for (int64_t i = 0; i < j->s; i++) set_number(j, p, c * j->s + i, value);
}

/* Axis 1; a list of no elements has none. */
static int64_t channels(const gd_view *x) { return x->rank > 1 ? x->dims[1] : 0; }

static void shape(job *j, const gd_view *x) {
    memset(j, 0, sizeof *j);
    j->size = x->dtype == GD_F64 ? 8 : 4; /* also asked before halves have come as f32 */
    j->isa = x->dtype == GD_F64 ? GD_ISA_CALL(gd_norm_f64) : GD_ISA_CALL(gd_norm_f32);
    j->n = x->dims[0];
    j->c = channels(x);
    j->s = x->rank > 2 ? gd_numel(x->rank - 2, x->dims + 2) : 1;
    j->rows = j->s < LONG_RUN;
    int64_t unit = j->rows ? j->c * j->s : j->s;
    j->per_piece = unit < PIECE ? PIECE / (unit > 0 ? unit : 1) : 1;
}

static int64_t units(const job *j) { return j->rows ? j->n : j->n * j->c; }
static int64_t pieces(const job *j) { return (units(j) + j->per_piece - 1) / j->per_piece; }
static size_t vector_bytes(const job *j) {
    return (size_t)(j->c * (j->rows ? j->s : 1)) * (size_t)j->size;
}

/* --- forward ---------------------------------------------------------------------------------- */

static void forward_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int64_t end = (piece + 1) * j->per_piece, unit = j->rows ? j->c * j->s : j->s;
    for (int64_t u = piece * j->per_piece; u < end && u < units(j); u++) {
        const char *x = j->x + u * unit * j->size;
        char *y = j->y + u * unit * j->size;
        if (j->rows) j->isa->scale_each(unit, x, j->a, j->b, y);
        else j->isa->scale(unit, x, number(j, j->a, u % j->c), number(j, j->b, u % j->c), y);
    }
}

/* Views of the statistics, and what gives them; mask: all axes but the channels. */
static gd_reduction moments_of(const gd_view *x, gd_view *mean, gd_view *squares, char *memory) {
    gd_dtype type = x->dtype == GD_F64 ? GD_F64 : GD_F32;
    *mean =
        (gd_view){.data = memory, .dtype = type, .rank = 1, .dims = {channels(x)}, .strides = {1}};
    *squares = *mean;
    if (memory) squares->data = memory + channels(x) * (int64_t)gd_dtype_size(type);
    return (gd_reduction){.fold = GD_FOLD_MOMENTS,
                          .type = type,
                          .mask = ((1u << x->rank) - 1u) & ~2u,
                          .two_numbers = true,
                          .y = mean,
                          .y1 = squares};
}

/*kernel batch_norm.channels  rank 10  wide
 * All floats.
 */
static size_t batch_norm_channels_workspace(const gd_kernel_call *k) {
    job j;
    gd_view x = k->in[0], mean, squares;
    shape(&j, &x);
    if (x.dtype != GD_F64) x.dtype = GD_F32; /* as it will come */
    gd_row_major(x.rank, x.dims, x.strides);
    gd_reduction r = moments_of(&x, &mean, &squares, NULL);
    return gd_reduce_bytes(&x, &r) + 2 * vector_bytes(&j) + 2 * (size_t)(j.c * j.size) + 256;
}
static gd_status batch_norm_channels_run(gd_kernel_call *k) {
    const gd_batch_norm_options *o = k->attrs;
    const void *weight = k->in[1].data, *bias = k->in[2].data;
    void *running_mean = k->out[3].data, *running_var = k->out[4].data;
    job j;
    gd_view mean, squares;
    shape(&j, &k->in[0]);
    double count = (double)(j.n * j.s);
    char *memory = k->workspace;
    j.a = memory;
    j.b = j.a + vector_bytes(&j);
    char *statistics = j.b + vector_bytes(&j);
    gd_reduction r = moments_of(&k->in[0], &mean, &squares, statistics);
    size_t used = (size_t)(statistics + 2 * j.c * j.size - memory);
    if (o->training) gd_reduce(&k->in[0], &r, memory + (used + 63) / 64 * 64);
    for (int64_t c = 0; c < j.c; c++) {
        double m, variance;
        if (o->training) {
            m = number(&j, mean.data, c);
            variance = number(&j, squares.data, c) / count;
            if (running_mean && count > 0) {
                double from = number(&j, running_mean, c), var = number(&j, running_var, c);
                set_number(&j, running_mean, c, from * (1 - o->momentum) + o->momentum * m);
                set_number(&j, running_var, c,
                           var * (1 - o->momentum) + o->momentum * variance * count / (count - 1));
            }
        } else {
            m = number(&j, running_mean, c);
            variance = number(&j, running_var, c);
        }
        double rstd = 1 / sqrt(variance + o->eps), a = rstd * (weight ? number(&j, weight, c) : 1);
        set_channel(&j, j.a, c, a);
        set_channel(&j, j.b, c, (bias ? number(&j, bias, c) : 0) - m * a);
        if (k->out[1].data) set_number(&j, k->out[1].data, c, m);
        if (k->out[2].data) set_number(&j, k->out[2].data, c, rstd);
    }
    j.x = k->in[0].data;
    j.y = k->out[0].data;
    gd_parallel_for(pieces(&j), forward_piece, &j);
    return GD_OK;
}

/* --- backward -----------------------------------------------------------------------------------
 *
 * With h = (x - mean) rstd: gx = rstd w (gy - mean of gy - h mean of gy h) in training. */

static void dots_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int64_t first = piece * j->per_piece, end = first + j->per_piece,
            unit = j->rows ? j->c * j->s : j->s;
    if (end > units(j)) end = units(j);
    char *sums = j->sums + piece * unit * j->size, *dots = j->dots + piece * unit * j->size;
    if (j->rows && unit > 0) {
        memset(sums, 0, (size_t)(unit * j->size));
        memset(dots, 0, (size_t)(unit * j->size));
    }
    for (int64_t u = first; u < end; u++) {
        const char *gy = j->gy + u * unit * j->size, *x = j->x + u * unit * j->size;
        if (j->rows) j->isa->dots_each(unit, gy, x, j->mean, sums, dots);
        else
            j->isa->dots(unit, gy, x, number(j, j->mean, u % j->c), (double *)(void *)j->sums + u,
                         (double *)(void *)j->dots + u);
    }
}

/* Pieces, or samples, added in pairs; the result stands in the first. */
static void add_pairs(char *parts, int64_t count, int64_t n, const gd_norm_isa *isa, int64_t size) {
    for (int64_t step = 1; step < count; step *= 2)
        for (int64_t p = 0; p + step < count; p += 2 * step)
            isa->add(n, parts + (p + step) * n * size, parts + p * n * size);
}

static void sum_channels(job *j) {
    if (j->rows) {
        add_pairs(j->sums, pieces(j), j->c * j->s, j->isa, j->size);
        add_pairs(j->dots, pieces(j), j->c * j->s, j->isa, j->size);
    } else {
        add_pairs(j->sums, j->n, j->c, GD_ISA_CALL(gd_norm_f64), 8);
        add_pairs(j->dots, j->n, j->c, GD_ISA_CALL(gd_norm_f64), 8);
    }
}

static double channel_sum(const job *j, const char *sums, int64_t c) {
    if (!j->rows) return ((const double *)(const void *)sums)[c];
    double sum = 0;
    for (int64_t i = 0; i < j->s; i++) sum += number(j, sums, c * j->s + i);
    return sum;
}

static void pull_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int64_t end = (piece + 1) * j->per_piece, unit = j->rows ? j->c * j->s : j->s;
    for (int64_t u = piece * j->per_piece; u < end && u < units(j); u++) {
        int64_t at = u * unit * j->size, c = u % j->c;
        if (j->rows)
            j->isa->pull_each(unit, j->gy + at, j->x + at, j->mean, j->a, j->b, j->shift,
                              j->y + at);
        else
            j->isa->pull(unit, j->gy + at, j->x + at, number(j, j->mean, c), number(j, j->a, c),
                         number(j, j->b, c), number(j, j->shift, c), j->y + at);
    }
}

static void shape_backward(job *j, const gd_view *x) {
    shape(j, x);
    if (!j->rows) return;
    if (j->per_piece < FEWEST) j->per_piece = FEWEST;
    if (j->per_piece > MOST) j->per_piece = MOST;
}

/* Bytes of one of the two arrays of sums. */
static size_t sums_bytes(const job *j) {
    return j->rows ? (size_t)(pieces(j) * j->c * j->s * j->size) : (size_t)(j->n * j->c) * 8;
}

/*kernel batch_norm_grad.channels  rank 10  wide
 * All floats.
 */
static size_t batch_norm_grad_channels_workspace(const gd_kernel_call *k) {
    job j;
    shape_backward(&j, &k->in[1]);
    return 2 * sums_bytes(&j) + 4 * vector_bytes(&j);
}
static gd_status batch_norm_grad_channels_run(gd_kernel_call *k) {
    const gd_batch_norm_grad_options *o = k->attrs;
    const void *weight = k->in[2].data, *mean = k->in[3].data, *rstd = k->in[4].data;
    job j;
    shape_backward(&j, &k->in[1]);
    j.gy = k->in[0].data;
    j.x = k->in[1].data;
    j.y = k->out[0].data;
    j.sums = k->workspace;
    j.dots = j.sums + sums_bytes(&j);
    j.a = j.dots + sums_bytes(&j);
    j.b = j.a + vector_bytes(&j);
    j.mean = j.b + vector_bytes(&j);
    j.shift = j.mean + vector_bytes(&j);
    for (int64_t c = 0; c < j.c; c++) set_channel(&j, j.mean, c, number(&j, mean, c));
    if (units(&j) > 0) {
        gd_parallel_for(pieces(&j), dots_piece, &j);
        sum_channels(&j);
    }
    double count = (double)(j.n * j.s);
    for (int64_t c = 0; c < j.c; c++) {
        double sum = units(&j) > 0 ? channel_sum(&j, j.sums, c) : 0,
               dot = units(&j) > 0 ? channel_sum(&j, j.dots, c) : 0;
        double r = number(&j, rstd, c), a = r * (weight ? number(&j, weight, c) : 1);
        set_number(&j, k->out[1].data, c, count > 0 ? dot * r : 0); /* of nothing, r is no number */
        set_number(&j, k->out[2].data, c, sum);
        set_channel(&j, j.a, c, a);
        set_channel(&j, j.b, c, o->training ? -a * r * r * dot / count : 0);
        set_channel(&j, j.shift, c, o->training ? -a * sum / count : 0);
    }
    if (!o->training) j.x = j.gy; /* times 0, which an infinite x would not survive */
    gd_parallel_for(pieces(&j), pull_piece, &j);
    return GD_OK;
}

#include "norm_batch_kernels.gen.h"
