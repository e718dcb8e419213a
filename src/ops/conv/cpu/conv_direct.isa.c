/* conv_direct.isa.c - the vectorized loops of conv_direct.h: packing, convolution, correlation. */
#include "ops/conv/cpu/conv_direct.h"

#include <string.h>

#include "backend/cpu/loop.h"
#include "backend/cpu/simd.h"

enum { VL = VF32_LANES, VECTORS = 4, TAPS = 12 };

/* --- packing ---------------------------------------------------------------------------------- */

/* The least n >= 0 with from + n * step >= 0. */
static int64_t steps_to_zero(int64_t from, int64_t step) {
    return from < 0 ? (-from + step - 1) / step : 0;
}

/* Copies a row; rows are so short that a call of memcpy would cost more. */
V_FN void copy_row(float *to, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + VL <= count; i += VL) v_store_f32(to + i, v_load_f32(from + i));
    if (i < count)
        v_store_part_f32(to + i, v_load_part_f32(from + i, (int)(count - i)), (int)(count - i));
}

/* Packs one row of the image into its line, which has been zeroed. */
static void pack_row(const gd_direct *d, const float *row, float *line) {
    const int64_t stride = d->stride_w, spread = d->spread_w;
    if (spread > 1) { /* element i is at column before + i * spread; the stride is 1 */
        const int64_t first = steps_to_zero(d->before_w, spread);
        for (int64_t i = first; i < d->in_w && d->before_w + i * spread < d->length; i++)
            line[d->before_w + i * spread] = row[i];
        return;
    }
    /* Element i of a phase is row[i * stride + from]. */
    for (int64_t phase = 0; phase < stride; phase++) {
        const int64_t from = phase - d->before_w, first = steps_to_zero(from, stride);
        const int64_t end =
            from < d->in_w ? min64((d->in_w - 1 - from) / stride + 1, d->length) : 0;
        float *to = line + phase * d->length;
        if (first >= end) continue;
        if (stride == 1) copy_row(to + first, row + first + from, end - first);
        else
            for (int64_t i = first; i < end; i++) to[i] = row[i * stride + from];
    }
}

void GD_ISA_FN(gd_direct_pack)(const gd_direct *d, const float *plane, int64_t row, int64_t row_end,
                               float *band) {
    const int64_t rows = gd_direct_rows_read(d, row_end - row),
                  top = row * d->stride_h - d->before_h;
    memset(band, 0, (size_t)(rows * d->line) * sizeof *band);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = top + r;
        if (at < 0 || at % d->spread_h != 0 || at / d->spread_h >= d->in_h) continue;
        pack_row(d, plane + at / d->spread_h * d->in_w, band + r * d->line);
    }
}

/* --- convolution ------------------------------------------------------------------------------ */

typedef struct {
    const gd_direct *d;
    const float *bands;
    int64_t band_step, channels;
    const float *weights, *bias;
    int64_t plane;
} convolve_job;

/* Computes a register block: `count` output planes, `rows` rows and `width` vectors per row, from
 * column `column` on. The last vector of a row has `last` columns. `top` is the first band row that
 * they read.
 */
V_FN void convolve_block(const int count, const int rows, const int width, const convolve_job *j,
                         int64_t top, int64_t column, int last, float *y) {
    const gd_direct *d = j->d;
    const int64_t taps = d->kernel_h * d->kernel_w, row_step = d->stride_h * d->line;
    vf32 sums[GD_DIRECT_PLANES][VECTORS];
    UNROLL for (int o = 0; o < count; o++) UNROLL for (int v = 0; v < rows * width; v++)
        sums[o][v] = v_splat_f32(j->bias[o]);
    for (int64_t c = 0; c < j->channels; c++)
        for (int64_t h = 0; h < d->kernel_h; h++) {
            const float *line =
                j->bands + c * j->band_step + (top + h * d->dilation_h) * d->line + column;
            const float *weight = j->weights + c * taps + h * d->kernel_w;
            for (int64_t w = 0; w < d->kernel_w; w++) {
                const float *from = line + d->tap[w];
                vf32 x[VECTORS];
                UNROLL for (int v = 0; v < rows * width; v++) x[v] =
                    v_load_f32(from + v / width * row_step + v % width * VL);
                UNROLL for (int o = 0; o < count; o++) {
                    const vf32 factor = v_splat_f32(weight[o * j->channels * taps + w]);
                    UNROLL for (int v = 0; v < rows * width; v++) sums[o][v] =
                        v_fma_f32(factor, x[v], sums[o][v]);
                }
            }
        }
    UNROLL for (int o = 0; o < count; o++) UNROLL for (int v = 0; v < rows * width; v++) {
        float *to = y + o * j->plane + v / width * d->out_w + column + v % width * VL;
        if (d->relu) sums[o][v] = v_select_f32(sums[o][v] < (vf32){0}, (vf32){0}, sums[o][v]);
        if (v % width < width - 1) v_store_f32(to, sums[o][v]);
        else v_store_part_f32(to, sums[o][v], last);
    }
}

/* Computes all rows of a band. Where rows are short, a register block takes several of them. */
V_FN void convolve_rows(const int count, const convolve_job *j, int64_t rows, float *y) {
    const gd_direct *d = j->d;
    for (int64_t column = 0; column < d->out_w; column += VECTORS * VL) {
        const int64_t left = min64(d->out_w - column, VECTORS * VL), width = (left + VL - 1) / VL;
        const int last = (int)(left - (width - 1) * VL);
        for (int64_t r = 0; r < rows;) {
            const int64_t top = r * d->stride_h;
            float *to = y + r * d->out_w;
            if (width == 1 && rows - r >= 4)
                convolve_block(count, 4, 1, j, top, column, last, to), r += 4;
            else if (width == 2 && rows - r >= 2)
                convolve_block(count, 2, 2, j, top, column, last, to), r += 2;
            else {
                if (width == 1) convolve_block(count, 1, 1, j, top, column, last, to);
                else if (width == 2) convolve_block(count, 1, 2, j, top, column, last, to);
                else if (width == 3) convolve_block(count, 1, 3, j, top, column, last, to);
                else convolve_block(count, 1, 4, j, top, column, last, to);
                r++;
            }
        }
    }
}

void GD_ISA_FN(gd_direct_convolve)(const gd_direct *d, const float *bands, int64_t band_step,
                                   int64_t channels, const float *weights, const float *bias,
                                   int64_t count, int64_t row, int64_t row_end, float *y,
                                   int64_t plane) {
    const convolve_job j = {d, bands, band_step, channels, weights, bias, plane};
    y += row * d->out_w;
    switch (count) {
    case 1: convolve_rows(1, &j, row_end - row, y); break;
    case 2: convolve_rows(2, &j, row_end - row, y); break;
    case 3: convolve_rows(3, &j, row_end - row, y); break;
    default: convolve_rows(4, &j, row_end - row, y); break;
    }
}

/* --- correlation, for the gradient of w ------------------------------------------------------- */

typedef double wide __attribute__((vector_size(VL * sizeof(double)), aligned(8), may_alias));

V_FN void add_lanes(double *sums, vf32 v) {
    *(wide *)(void *)sums += __builtin_convertvector(v, wide);
}

/* Correlates `taps` taps, each at its offset in the band. Lanes beyond the end of a row of y are
 * masked rather than multiplied by 0, because the band may be infinite there. */
V_FN void correlate_taps(const int taps, const gd_direct *d, const float *band, const float *y,
                         int64_t rows, const int64_t *tap, double *sums) {
    const int64_t full = d->out_w / VL * VL;
    const int tail = (int)(d->out_w - full);
    vf32 total[TAPS];
    UNROLL for (int t = 0; t < taps; t++) total[t] = (vf32){0};
    for (int64_t r = 0; r < rows; r++) {
        const float *line = band + r * d->stride_h * d->line, *from = y + r * d->out_w;
        for (int64_t column = 0; column < full; column += VL) {
            const vf32 g = v_load_f32(from + column);
            UNROLL for (int t = 0; t < taps; t++) total[t] =
                v_fma_f32(g, v_load_f32(line + tap[t] + column), total[t]);
        }
        if (tail > 0) {
            const vf32 g = v_load_part_f32(from + full, tail);
            UNROLL for (int t = 0; t < taps; t++) total[t] =
                v_fma_f32(g, v_load_part_f32(line + tap[t] + full, tail), total[t]);
        }
    }
    UNROLL for (int t = 0; t < taps; t++) add_lanes(sums + t * GD_DIRECT_LANES, total[t]);
}

#define EACH_COUNT(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)

void GD_ISA_FN(gd_direct_correlate)(const gd_direct *d, const float *band, const float *y,
                                    int64_t row, int64_t row_end, double *sums) {
    const int64_t taps = d->kernel_h * d->kernel_w, chunks = (taps + TAPS - 1) / TAPS;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const int64_t first = taps * chunk / chunks, count = taps * (chunk + 1) / chunks - first;
        int64_t tap[TAPS];
        for (int64_t t = 0; t < count; t++)
            tap[t] = (first + t) / d->kernel_w * d->dilation_h * d->line +
                     d->tap[(first + t) % d->kernel_w];
        switch (count) {
#define CASE(n)                                                            \
    case n:                                                                \
        correlate_taps(n, d, band, y + row * d->out_w, row_end - row, tap, \
                       sums + first * GD_DIRECT_LANES);                    \
        break;
            EACH_COUNT(CASE)
        }
    }
}
