/* image_resize.c - resizing by separable filters: each output row is a weighted sum of a few input
 * rows, and each output column of a few columns. */
#include <math.h>
#include <string.h>

#include "data/image.h"
#include "gradus/ops.h"

gd_filter gd_filter_of(gd_word interpolation) {
    return interpolation == GD_NEAREST   ? GD_FILTER_NEAREST
           : interpolation == GD_BICUBIC ? GD_FILTER_BICUBIC
                                         : GD_FILTER_BILINEAR;
}

/* The weights of one axis: output i is the sum over k < taps of weight[i * taps + k] times input
 * first[i] + k. */
typedef struct axis {
    int64_t in, out, taps;
    int32_t *first;
    float *weight;
} axis;

/* Keys' cubic: a is -0.5 with antialias, as PIL has it, and -0.75 without, as OpenCV. */
static double cubic(double x, double a) {
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double triangle(double x) {
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* The pixels that output i covers: `low` to before `high`. */
static void cover(const axis *a, int64_t i, double support, int64_t *low, int64_t *high) {
    const double center = (double)a->in / (double)a->out * ((double)i + 0.5);
    *low = (int64_t)(center - support + 0.5);
    *high = (int64_t)(center + support + 0.5);
    if (*low < 0) *low = 0;
    if (*high > a->in) *high = a->in;
}

/* Antialias: the filter is as wide as an output pixel, cut off at the edges and brought to a sum of
 * 1 again. */
static void weigh_area(axis *a, gd_filter filter, double wide) {
    const double scale = (double)a->in / (double)a->out, stretch = scale > 1 ? scale : 1;
    for (int64_t i = 0; i < a->out; i++) {
        const double center = scale * ((double)i + 0.5);
        int64_t low, high;
        cover(a, i, wide * stretch, &low, &high);
        /* all of the weights must lie inside */
        const int64_t first = low > a->in - a->taps ? a->in - a->taps : low;
        float *w = a->weight + i * a->taps;
        double sum = 0;
        a->first[i] = (int32_t)first;
        for (int64_t k = 0; k < a->taps; k++) {
            const double d = ((double)(first + k) + 0.5 - center) / stretch;
            double v = filter == GD_FILTER_BICUBIC ? cubic(d, -0.5) : triangle(d);
            if (first + k < low || first + k >= high) v = 0;
            w[k] = (float)v;
            sum += v;
        }
        for (int64_t k = 0; k < a->taps; k++) w[k] = (float)(w[k] / sum);
    }
}

/* As many as the output with most pixels covers. */
static int64_t taps_of_area(const axis *a, double wide) {
    const double scale = (double)a->in / (double)a->out;
    int64_t taps = 1;
    for (int64_t i = 0; i < a->out; i++) {
        int64_t low, high;
        cover(a, i, wide * (scale > 1 ? scale : 1), &low, &high);
        if (high - low > taps) taps = high - low;
    }
    return taps;
}

/* Without: two or four neighbors, and those beyond the edge count as the edge. */
static void weigh_points(axis *a, gd_filter filter) {
    const double scale = (double)a->in / (double)a->out;
    const int64_t n = filter == GD_FILTER_BICUBIC ? 4 : 2;
    for (int64_t i = 0; i < a->out; i++) {
        double at = scale * ((double)i + 0.5) - 0.5;
        if (filter == GD_FILTER_BILINEAR && at < 0) at = 0;
        const int64_t base = (int64_t)floor(at) - (n / 2 - 1);
        int64_t first = base;
        if (first > a->in - a->taps) first = a->in - a->taps;
        if (first < 0) first = 0;
        a->first[i] = (int32_t)first;
        float *w = a->weight + i * a->taps;
        memset(w, 0, (size_t)a->taps * sizeof *w);
        for (int64_t k = 0; k < n; k++) {
            int64_t from = base + k;
            const double d = at - (double)from;
            from = from < 0 ? 0 : from >= a->in ? a->in - 1 : from;
            w[from - first] += (float)(filter == GD_FILTER_BICUBIC ? cubic(d, -0.75) : triangle(d));
        }
    }
}

static gd_status weigh(axis *a, int64_t in, int64_t out, gd_filter filter, bool antialias) {
    const double wide = filter == GD_FILTER_BICUBIC ? 2 : 1;
    *a = (axis){.in = in, .out = out};
    a->taps = antialias ? taps_of_area(a, wide) : 2 * (int64_t)wide;
    if (a->taps > in) a->taps = in;
    gd_tensor *first = gd_empty(gd_dims(out), GD_I32),
              *weight = gd_empty(gd_dims(out, a->taps), GD_F32);
    a->first = gd_data(first);
    a->weight = gd_data(weight);
    if (!a->first || !a->weight) return gd_failure();
    if (antialias) weigh_area(a, filter, wide);
    else weigh_points(a, filter);
    return GD_OK;
}

/* One row as f32. */
static const float *row_f32(const gd_image *x, int64_t at, int64_t width, float *to) {
    if (x->dtype == GD_F32) return (const float *)x->data + at;
    const uint8_t *from = (const uint8_t *)x->data + at;
    for (int64_t j = 0; j < width; j++) to[j] = from[j];
    return to;
}

/* With a number of taps that the compiler knows. */
static inline __attribute__((always_inline)) void
across_of(const axis *a, int64_t taps, const float *restrict from, float *restrict to) {
    for (int64_t j = 0; j < a->out; j++) {
        const float *x = from + a->first[j], *w = a->weight + j * taps;
        float s = x[0] * w[0];
        for (int64_t k = 1; k < taps; k++) s += x[k] * w[k];
        to[j] = s;
    }
}

static void across(const axis *a, const float *from, float *to) {
    switch (a->taps) {
    case 1: across_of(a, 1, from, to); break;
    case 2: across_of(a, 2, from, to); break;
    case 3: across_of(a, 3, from, to); break;
    case 4: across_of(a, 4, from, to); break;
    case 5: across_of(a, 5, from, to); break;
    case 6: across_of(a, 6, from, to); break;
    default: across_of(a, a->taps, from, to);
    }
}

/* Row i of the result from the rows of `wide`, of which number r is at wide + (r % keep) *
 * width. */
static void down(const axis *a, int64_t i, const float *wide, int64_t keep, int64_t width,
                 float *restrict to) {
    memset(to, 0, (size_t)width * sizeof *to);
    for (int64_t k = 0; k < a->taps; k++) {
        const float w = a->weight[i * a->taps + k];
        const float *restrict from = wide + (a->first[i] + k) % keep * width;
        if (w == 0) continue;
        for (int64_t j = 0; j < width; j++) to[j] += w * from[j];
    }
}

static void put_row(gd_image *y, int64_t at, const float *row, int64_t width) {
    if (y->dtype == GD_F32) {
        memcpy((float *)y->data + at, row, (size_t)width * sizeof *row);
        return;
    }
    uint8_t *to = (uint8_t *)y->data + at;
    for (int64_t j = 0; j < width; j++) {
        const float v = row[j] + 0.5f;
        to[j] = (uint8_t)(int)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
}

static gd_status nearest(const gd_image *x, gd_box part, gd_image *y) {
    const float down_scale = (float)part.height / (float)y->height,
                across_scale = (float)part.width / (float)y->width;
    for (int64_t c = 0; c < x->channels; c++)
        for (int64_t i = 0; i < y->height; i++) {
            int64_t r = (int64_t)((float)i * down_scale);
            if (r >= part.height) r = part.height - 1;
            const int64_t from = (c * x->height + part.top + r) * x->width + part.left,
                          to = (c * y->height + i) * y->width;
            for (int64_t j = 0; j < y->width; j++) {
                int64_t s = (int64_t)((float)j * across_scale);
                if (s >= part.width) s = part.width - 1;
                if (x->dtype == GD_F32) ((float *)y->data)[to + j] = ((float *)x->data)[from + s];
                else ((uint8_t *)y->data)[to + j] = ((uint8_t *)x->data)[from + s];
            }
        }
    return GD_OK;
}

/* Bytes are rounded between the two passes, too, as PIL and torchvision do. */
static void round_row(float *row, int64_t width) {
    for (int64_t j = 0; j < width; j++) {
        const float v = row[j] + 0.5f;
        row[j] = (float)(int)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
}

gd_status gd_image_resize(const gd_image *x, gd_box part, int64_t height, int64_t width,
                          gd_filter filter, bool antialias, gd_image *y) {
    axis rows, columns;
    GD_TRY(gd_image_new(x, height, width, x->dtype, y));
    if (filter == GD_FILTER_NEAREST) return nearest(x, part, y);
    GD_TRY(weigh(&rows, part.height, height, filter, antialias));
    GD_TRY(weigh(&columns, part.width, width, filter, antialias));
    /* Only as many rows of full height are kept as one output row needs. */
    const int64_t keep = rows.taps;
    gd_tensor *buffer = gd_empty(gd_dims(keep * width + width + part.width), GD_F32);
    float *wide = gd_data(buffer);
    if (!wide) return gd_failure();
    float *sum = wide + keep * width, *line = sum + width;
    for (int64_t c = 0; c < x->channels; c++) {
        int64_t done = 0; /* rows before this one are in `wide`, but for those that are too old */
        for (int64_t i = 0; i < height; i++) {
            if (done < rows.first[i]) done = rows.first[i];
            for (; done < rows.first[i] + keep; done++) {
                const int64_t at = (c * x->height + part.top + done) * x->width + part.left;
                float *to = wide + done % keep * width;
                across(&columns, row_f32(x, at, part.width, line), to);
                if (x->dtype == GD_U8) round_row(to, width);
            }
            down(&rows, i, wide, keep, width, sum);
            put_row(y, (c * height + i) * width, sum, width);
        }
    }
    return GD_OK;
}
