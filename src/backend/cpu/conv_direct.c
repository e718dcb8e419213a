/* conv_direct.c - direct convolution (conv_direct.h): when, and in which pieces. */
#include "backend/cpu/conv_direct.h"

#include <string.h>

#include "backend/cpu/conv.h"

/* --- forms ------------------------------------------------------------------------------------ */

static gd_direct form_of(const gd_conv *c, bool turned) {
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
    if (turned) {
        const gd_conv t = gd_conv_turned(c);
        d.in_h = t.in[1], d.in_w = t.in[2], d.out_h = t.out[1], d.out_w = t.out[2];
        d.before_h = t.before[1], d.before_w = t.before[2];
        d.spread_h = c->stride[1], d.spread_w = c->stride[2];
        d.stride_h = d.stride_w = 1;
    }
    const int64_t whole = gd_divide_up(d.out_w, GD_DIRECT_LANES) * GD_DIRECT_LANES;
    d.length = (d.kernel_w - 1) * c->dilation[2] / d.stride_w + whole;
    d.line = d.length * d.stride_w;
    for (int64_t w = 0; w < d.kernel_w; w++) {
        const int64_t column = w * c->dilation[2];
        d.tap[w] = column % d.stride_w * d.length + column / d.stride_w;
    }
    return d;
}

/* --- y, and x --------------------------------------------------------------------------------- */

/* Pieces: (image, group, band of rows). */
typedef struct {
    const gd_conv_call *call;
    gd_direct d;
    bool turned;
    int64_t from, to;    /* channels of a group: those read, those made */
    int64_t bands, rows; /* of an image, and rows of the largest */
    int64_t band_numbers, weight_numbers;
} plan;

enum {
    BAND_NUMBERS = 24 << 10
}; /* of packed rows, about: they stay in the first or second cache */

static plan plan_of(const gd_conv *c, bool turned) {
    plan p = {.d = form_of(c, turned),
              .turned = turned,
              .from = turned ? c->co : c->ci,
              .to = turned ? c->ci : c->co};
    const int64_t lines = BAND_NUMBERS / (p.d.line * p.from),
                  over = gd_direct_rows_read(&p.d, 1) - p.d.stride_h;
    int64_t rows = (lines - over) / p.d.stride_h;
    if (rows < 4) rows = 4;
    p.bands = gd_divide_up(p.d.out_h, rows);
    p.rows = gd_divide_up(p.d.out_h, p.bands);
    p.band_numbers = gd_direct_rows_read(&p.d, p.rows) * p.d.line;
    p.weight_numbers = p.from * p.to * p.d.kernel_h * p.d.kernel_w;
    return p;
}

/* --- whether ---------------------------------------------------------------------------------- */

enum {
    FEW_CHANNELS = 8, /* of a group, on either side */
    MOST_SPREAD = 4,  /* zeros are multiplied, too */
    MOST_STRIDE = 16,
    MOST_SPAN = 1024,       /* of a window, along an axis */
    MOST_NUMBERS = 1 << 21, /* packed at once */
};

bool gd_conv_direct_pays(const gd_conv *c, gd_conv_direction to) {
    if (c->groups < 2 || c->in[0] != 1 || c->out[0] != 1 || c->kernel[0] != 1 || c->before[0] != 0)
        return false;
    if (c->kernel[2] > GD_DIRECT_WIDTH || gd_conv_places(c->kernel) == 1) return false;
    if (gd_conv_places(c->in) == 0 || gd_conv_places(c->out) == 0 || c->batch == 0) return false;
    if (c->ci < 1 || c->ci > FEW_CHANNELS || c->co < 1 || c->co > FEW_CHANNELS) return false;
    if (to == GD_CONV_TO_WEIGHT && c->ci > 1) return false;
    for (int a = 1; a < GD_CONV_AXES; a++)
        if (c->stride[a] > (to == GD_CONV_TO_INPUT ? MOST_SPREAD : MOST_STRIDE) ||
            c->dilation[a] > MOST_SPAN || (c->kernel[a] - 1) * c->dilation[a] > MOST_SPAN)
            return false;
    const plan p = plan_of(c, to == GD_CONV_TO_INPUT);
    return p.from * p.band_numbers <= MOST_NUMBERS;
}

static int64_t pieces_of(const plan *p, const gd_conv *c) {
    return c->batch * c->groups * p->bands;
}

static size_t slot_bytes(const plan *p) {
    return (size_t)(p->from * p->band_numbers + p->weight_numbers) * sizeof(float);
}

/* The kernels of a group in the order (made, read, taps), turned if need be. */
static void order_weights(const plan *p, int64_t group, float *weights) {
    const gd_conv *c = &p->call->c;
    const int64_t taps = gd_conv_places(c->kernel);
    const float *w = (const float *)p->call->w + group * c->co * c->ci * taps;
    for (int64_t o = 0; o < p->to; o++)
        for (int64_t i = 0; i < p->from; i++)
            for (int64_t t = 0; t < taps; t++, weights++)
                *weights = p->turned ? w[(i * c->ci + o) * taps + taps - 1 - t]
                                     : w[(o * c->ci + i) * taps + t];
}

static gd_status image_piece(void *arg, int64_t i, char *memory) {
    const plan *p = arg;
    const gd_conv_call *call = p->call;
    const gd_direct *d = &p->d;
    const int64_t band = i % p->bands, group = i / p->bands % call->c.groups,
                  image = i / (p->bands * call->c.groups);
    const int64_t row = gd_cut(d->out_h, band, p->bands),
                  row_end = gd_cut(d->out_h, band + 1, p->bands);
    const int64_t in = d->in_h * d->in_w, out = d->out_h * d->out_w,
                  taps = d->kernel_h * d->kernel_w;
    const float *x = (const float *)(p->turned ? call->y : call->x) +
                     (image * call->c.groups + group) * p->from * in;
    float *y =
        (float *)(p->turned ? call->x : call->y) + (image * call->c.groups + group) * p->to * out;
    float *packed = (float *)(void *)memory, *weights = packed + p->from * p->band_numbers;
    for (int64_t c = 0; c < p->from; c++)
        GD_ISA_CALL(gd_direct_pack)(d, x + c * in, row, row_end, packed + c * p->band_numbers);
    order_weights(p, group, weights);
    for (int64_t o = 0; o < p->to; o += GD_DIRECT_PLANES) {
        const int64_t count = gd_least(GD_DIRECT_PLANES, p->to - o);
        float bias[GD_DIRECT_PLANES] = {0};
        for (int64_t b = 0; call->bias && b < count; b++)
            bias[b] = ((const float *)call->bias)[group * p->to + o + b];
        GD_ISA_CALL(gd_direct_convolve)
        (d, packed, p->band_numbers, p->from, weights + o * p->from * taps, bias, count, row,
         row_end, y + o * out, out);
    }
    return GD_OK;
}

/* --- w ---------------------------------------------------------------------------------------- */

/* A piece is one channel: its sums are made by one thread, in order. */
static int64_t sums_bytes(const gd_conv *c) {
    return (int64_t)gd_whole_lines((size_t)(c->co * gd_conv_places(c->kernel) * GD_DIRECT_LANES) *
                                   sizeof(double));
}

static gd_status channel_piece(void *arg, int64_t group, char *memory) {
    const plan *p = arg;
    const gd_conv_call *call = p->call;
    const gd_conv *c = &call->c;
    const gd_direct *d = &p->d;
    const int64_t in = d->in_h * d->in_w, out = d->out_h * d->out_w,
                  taps = d->kernel_h * d->kernel_w;
    double *sums = (double *)(void *)memory;
    float *packed = (float *)(void *)(memory + sums_bytes(c)),
          *w = (float *)call->w + group * c->co * taps;
    memset(sums, 0, (size_t)(c->co * taps * GD_DIRECT_LANES) * sizeof *sums);
    for (int64_t image = 0; image < c->batch; image++)
        for (int64_t band = 0; band < p->bands; band++) {
            const int64_t row = gd_cut(d->out_h, band, p->bands),
                          row_end = gd_cut(d->out_h, band + 1, p->bands);
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

/* --- the calls -------------------------------------------------------------------------------- */

size_t gd_conv_direct_bytes(const gd_conv *c, gd_conv_direction to) {
    const plan p = plan_of(c, to == GD_CONV_TO_INPUT);
    if (to == GD_CONV_TO_WEIGHT)
        return gd_conv_slots_bytes(0, slot_bytes(&p) + (size_t)sums_bytes(c), c->groups);
    return gd_conv_slots_bytes(0, slot_bytes(&p), pieces_of(&p, c));
}

gd_status gd_conv_direct(const gd_conv_call *call, gd_conv_direction to) {
    plan p = plan_of(&call->c, to == GD_CONV_TO_INPUT);
    p.call = call;
    p.d.relu = call->relu;
    if (to == GD_CONV_TO_WEIGHT)
        return gd_conv_run_pieces(call, 0, slot_bytes(&p) + (size_t)sums_bytes(&call->c),
                                  call->c.groups, channel_piece, &p);
    return gd_conv_run_pieces(call, 0, slot_bytes(&p), pieces_of(&p, &call->c), image_piece, &p);
}
