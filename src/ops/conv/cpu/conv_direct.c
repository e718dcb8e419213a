/* conv_direct.c - direct convolution (conv_direct.h): when it is used, and how it is partitioned
 * into tasks. */
#include "ops/conv/cpu/conv_direct.h"

#include <string.h>

#include "ops/conv/cpu/conv_algorithms.h"

/* --- the form of a convolution ---------------------------------------------------------------- */

static gd_direct direct_form(const gd_conv *c, bool flipped) {
    gd_direct d = {.in_h = c->in[1],
                   .in_w = c->in[2],
                   .out_h = c->out[1],
                   .out_w = c->out[2],
                   .kernel_h = c->kernel[1],
                   .kernel_w = c->kernel[2],
                   .stride_h = c->stride[1],
                   .stride_w = c->stride[2],
                   .dilation_h = c->dilation[1],
                   .before_h = c->before[1],
                   .before_w = c->before[2],
                   .spread_h = 1,
                   .spread_w = 1};
    if (flipped) {
        const gd_conv t = gd_conv_flipped(c);
        d.in_h = t.in[1], d.in_w = t.in[2], d.out_h = t.out[1], d.out_w = t.out[2];
        d.before_h = t.before[1], d.before_w = t.before[2];
        d.spread_h = c->stride[1], d.spread_w = c->stride[2];
        d.stride_h = d.stride_w = 1;
    }
    const int64_t padded_w = gd_divide_up(d.out_w, GD_DIRECT_LANES) * GD_DIRECT_LANES;
    d.length = (d.kernel_w - 1) * c->dilation[2] / d.stride_w + padded_w;
    d.line = d.length * d.stride_w;
    for (int64_t w = 0; w < d.kernel_w; w++) {
        const int64_t column = w * c->dilation[2];
        d.tap[w] = column % d.stride_w * d.length + column / d.stride_w;
    }
    return d;
}

/* --- the plan for y and for x ----------------------------------------------------------------- */

/* Tasks: (image, group, band of rows). */
typedef struct {
    const gd_conv_call *call;
    gd_direct d;
    bool flipped;
    int64_t in_channels, out_channels; /* of a group */
    int64_t band_count, band_rows;     /* bands of an image, and output rows of the largest one */
    int64_t band_floats, weight_floats;
} direct_plan;

enum { BAND_FLOATS = 24 << 10 }; /* about the size of a packed band: it stays in L1 or L2 */

static direct_plan plan_direct(const gd_conv *c, bool flipped) {
    direct_plan p = {.d = direct_form(c, flipped),
                     .flipped = flipped,
                     .in_channels = flipped ? c->co : c->ci,
                     .out_channels = flipped ? c->ci : c->co};
    const int64_t lines = BAND_FLOATS / (p.d.line * p.in_channels),
                  halo = gd_direct_rows_read(&p.d, 1) - p.d.stride_h;
    int64_t rows = (lines - halo) / p.d.stride_h;
    if (rows < 4) rows = 4;
    p.band_count = gd_divide_up(p.d.out_h, rows);
    p.band_rows = gd_divide_up(p.d.out_h, p.band_count);
    p.band_floats = gd_direct_rows_read(&p.d, p.band_rows) * p.d.line;
    p.weight_floats = p.in_channels * p.out_channels * p.d.kernel_h * p.d.kernel_w;
    return p;
}

/* --- when to use it --------------------------------------------------------------------------- */

enum {
    MAX_GROUP_CHANNELS = 8, /* input and output channels of a group */
    MAX_SPREAD = 4,         /* of the input gradient, which multiplies the inserted zeros too */
    MAX_STRIDE = 16,
    MAX_SPAN = 1024,      /* extent of a dilated kernel along an axis */
    MAX_PACKED = 1 << 21, /* elements in the packed bands of a task */
};

bool gd_conv_direct_matches(const gd_conv *c, gd_conv_direction direction) {
    if (c->groups < 2 || c->in[0] != 1 || c->out[0] != 1 || c->kernel[0] != 1 || c->before[0] != 0)
        return false;
    if (c->kernel[2] > GD_DIRECT_WIDTH || gd_conv_positions(c->kernel) == 1) return false;
    if (gd_conv_positions(c->in) == 0 || gd_conv_positions(c->out) == 0 || c->batch == 0)
        return false;
    if (c->ci < 1 || c->ci > MAX_GROUP_CHANNELS || c->co < 1 || c->co > MAX_GROUP_CHANNELS)
        return false;
    if (direction == GD_CONV_TO_WEIGHT && c->ci > 1) return false;
    for (int a = 1; a < GD_CONV_AXES; a++)
        if (c->stride[a] > (direction == GD_CONV_TO_INPUT ? MAX_SPREAD : MAX_STRIDE) ||
            c->dilation[a] > MAX_SPAN || (c->kernel[a] - 1) * c->dilation[a] > MAX_SPAN)
            return false;
    const direct_plan p = plan_direct(c, direction == GD_CONV_TO_INPUT);
    return p.in_channels * p.band_floats <= MAX_PACKED;
}

static int64_t task_count(const direct_plan *p, const gd_conv *c) {
    return c->batch * c->groups * p->band_count;
}

static size_t slot_bytes(const direct_plan *p) {
    return (size_t)(p->in_channels * p->band_floats + p->weight_floats) * sizeof(float);
}

/* Reorders the kernels of a group to (out_channels, in_channels, taps), flipped if required. */
static void reorder_weights(const direct_plan *p, int64_t group, float *weights) {
    const gd_conv *c = &p->call->c;
    const int64_t taps = gd_conv_positions(c->kernel);
    const float *w = (const float *)p->call->w + group * c->co * c->ci * taps;
    for (int64_t o = 0; o < p->out_channels; o++)
        for (int64_t i = 0; i < p->in_channels; i++)
            for (int64_t t = 0; t < taps; t++, weights++)
                *weights = p->flipped ? w[(i * c->ci + o) * taps + taps - 1 - t]
                                      : w[(o * c->ci + i) * taps + t];
}

static gd_status convolve_task(void *arg, int64_t i, char *memory) {
    const direct_plan *p = arg;
    const gd_conv_call *call = p->call;
    const gd_direct *d = &p->d;
    const int64_t band = i % p->band_count, group = i / p->band_count % call->c.groups,
                  image = i / (p->band_count * call->c.groups);
    const int64_t row = gd_split_point(d->out_h, band, p->band_count),
                  row_end = gd_split_point(d->out_h, band + 1, p->band_count);
    const int64_t in = d->in_h * d->in_w, out = d->out_h * d->out_w,
                  taps = d->kernel_h * d->kernel_w;
    const float *x = (const float *)(p->flipped ? call->y : call->x) +
                     (image * call->c.groups + group) * p->in_channels * in;
    float *y = (float *)(p->flipped ? call->x : call->y) +
               (image * call->c.groups + group) * p->out_channels * out;
    float *packed = (float *)(void *)memory, *weights = packed + p->in_channels * p->band_floats;
    for (int64_t c = 0; c < p->in_channels; c++)
        GD_ISA_CALL(gd_direct_pack)(d, x + c * in, row, row_end, packed + c * p->band_floats);
    reorder_weights(p, group, weights);
    for (int64_t o = 0; o < p->out_channels; o += GD_DIRECT_PLANES) {
        const int64_t count = gd_min64(GD_DIRECT_PLANES, p->out_channels - o);
        float bias[GD_DIRECT_PLANES] = {0};
        for (int64_t b = 0; call->bias && b < count; b++)
            bias[b] = ((const float *)call->bias)[group * p->out_channels + o + b];
        GD_ISA_CALL(gd_direct_convolve)
        (d, packed, p->band_floats, p->in_channels, weights + o * p->in_channels * taps, bias,
         count, row, row_end, y + o * out, out);
    }
    return GD_OK;
}

/* --- the gradient of w ------------------------------------------------------------------------ */

/* A task is one channel: one thread computes its sums, in a fixed order. */
static int64_t weight_sums_bytes(const gd_conv *c) {
    return (int64_t)gd_round_to_cache_line(
        (size_t)(c->co * gd_conv_positions(c->kernel) * GD_DIRECT_LANES) * sizeof(double));
}

static gd_status weight_task(void *arg, int64_t group, char *memory) {
    const direct_plan *p = arg;
    const gd_conv_call *call = p->call;
    const gd_conv *c = &call->c;
    const gd_direct *d = &p->d;
    const int64_t in = d->in_h * d->in_w, out = d->out_h * d->out_w,
                  taps = d->kernel_h * d->kernel_w;
    double *sums = (double *)(void *)memory;
    float *packed = (float *)(void *)(memory + weight_sums_bytes(c)),
          *w = (float *)call->w + group * c->co * taps;
    memset(sums, 0, (size_t)(c->co * taps * GD_DIRECT_LANES) * sizeof *sums);
    for (int64_t image = 0; image < c->batch; image++)
        for (int64_t band = 0; band < p->band_count; band++) {
            const int64_t row = gd_split_point(d->out_h, band, p->band_count),
                          row_end = gd_split_point(d->out_h, band + 1, p->band_count);
            GD_ISA_CALL(gd_direct_pack)
            (d, (const float *)call->x + (image * c->groups + group) * in, row, row_end, packed);
            for (int64_t o = 0; o < c->co; o++) GD_ISA_CALL(gd_direct_correlate)
            (d, packed, (const float *)call->y + ((image * c->groups + group) * c->co + o) * out,
             row, row_end, sums + o * taps * GD_DIRECT_LANES);
        }
    for (int64_t t = 0; t < c->co * taps; t++) {
        double sum = 0;
        for (int64_t lane = 0; lane < GD_DIRECT_LANES; lane++)
            sum += sums[t * GD_DIRECT_LANES + lane];
        w[t] = (float)sum;
    }
    return GD_OK;
}

/* --- entry points ----------------------------------------------------------------------------- */

size_t gd_conv_direct_bytes(const gd_conv *c, gd_conv_direction direction) {
    const direct_plan p = plan_direct(c, direction == GD_CONV_TO_INPUT);
    if (direction == GD_CONV_TO_WEIGHT)
        return gd_conv_slots_bytes(0, slot_bytes(&p) + (size_t)weight_sums_bytes(c), c->groups);
    return gd_conv_slots_bytes(0, slot_bytes(&p), task_count(&p, c));
}

gd_status gd_conv_direct(const gd_conv_call *call, gd_conv_direction direction) {
    direct_plan p = plan_direct(&call->c, direction == GD_CONV_TO_INPUT);
    p.call = call;
    p.d.relu = call->relu;
    if (direction == GD_CONV_TO_WEIGHT)
        return gd_conv_run_tasks(call, 0, slot_bytes(&p) + (size_t)weight_sums_bytes(&call->c),
                                 call->c.groups, weight_task, &p);
    return gd_conv_run_tasks(call, 0, slot_bytes(&p), task_count(&p, &call->c), convolve_task, &p);
}
