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

/* The cubic convolution filter by Keys. a is -0.5 with antialias, as in PIL, and -0.75 without, as
 * in OpenCV. */
static double cubic_filter(double x, double a) {
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double triangle_filter(double x) {
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* The pixels that output i covers: `low` to before `high`. */
static void covered_pixels(const axis *a, int64_t i, double support, int64_t *low, int64_t *high) {
    const double center = (double)a->in / (double)a->out * ((double)i + 0.5);
    *low = (int64_t)(center - support + 0.5);
    *high = (int64_t)(center + support + 0.5);
    if (*low < 0) *low = 0;
    if (*high > a->in) *high = a->in;
}

/* With antialias: the filter is as wide as an output pixel. At the edges it is cut off and
 * normalized to a sum of 1. */
static void set_area_weights(axis *a, gd_filter filter, double wide) {
    const double scale = (double)a->in / (double)a->out, stretch = scale > 1 ? scale : 1;
    for (int64_t i = 0; i < a->out; i++) {
        const double center = scale * ((double)i + 0.5);
        int64_t low, high;
        covered_pixels(a, i, wide * stretch, &low, &high);
        /* all taps must lie inside of the image */
        const int64_t first = low > a->in - a->taps ? a->in - a->taps : low;
        float *w = a->weight + i * a->taps;
        double sum = 0;
        a->first[i] = (int32_t)first;
        for (int64_t k = 0; k < a->taps; k++) {
            const double d = ((double)(first + k) + 0.5 - center) / stretch;
            double v = filter == GD_FILTER_BICUBIC ? cubic_filter(d, -0.5) : triangle_filter(d);
            if (first + k < low || first + k >= high) v = 0;
            w[k] = (float)v;
            sum += v;
        }
        for (int64_t k = 0; k < a->taps; k++) w[k] = (float)(w[k] / sum);
    }
}

/* The largest number of pixels that an output pixel covers. */
static int64_t count_area_taps(const axis *a, double wide) {
    const double scale = (double)a->in / (double)a->out;
    int64_t taps = 1;
    for (int64_t i = 0; i < a->out; i++) {
        int64_t low, high;
        covered_pixels(a, i, wide * (scale > 1 ? scale : 1), &low, &high);
        if (high - low > taps) taps = high - low;
    }
    return taps;
}

/* Without antialias: two or four neighbors; those outside have the value of the edge. */
static void set_point_weights(axis *a, gd_filter filter) {
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
            w[from - first] +=
                (float)(filter == GD_FILTER_BICUBIC ? cubic_filter(d, -0.75) : triangle_filter(d));
        }
    }
}

static gd_status init_axis(axis *a, int64_t in, int64_t out, gd_filter filter, bool antialias) {
    const double wide = filter == GD_FILTER_BICUBIC ? 2 : 1;
    *a = (axis){.in = in, .out = out};
    a->taps = antialias ? count_area_taps(a, wide) : 2 * (int64_t)wide;
    if (a->taps > in) a->taps = in;
    gd_tensor *first = gd_empty(gd_dims(out), GD_I32),
              *weight = gd_empty(gd_dims(out, a->taps), GD_F32);
    a->first = gd_data(first);
    a->weight = gd_data(weight);
    if (!a->first || !a->weight) return gd_failure();
    if (antialias) set_area_weights(a, filter, wide);
    else set_point_weights(a, filter);
    return GD_OK;
}

/* Loads one row as f32. */
static const float *load_row(const gd_image *x, int64_t at, int64_t width, float *to) {
    if (x->dtype == GD_F32) return (const float *)x->data + at;
    const uint8_t *from = (const uint8_t *)x->data + at;
    for (int64_t j = 0; j < width; j++) to[j] = from[j];
    return to;
}

/* Computes a row of the result. `taps` is a constant where the compiler can unroll the loop. */
static inline __attribute__((always_inline)) void
filter_row_taps(const axis *a, int64_t taps, const float *restrict from, float *restrict to) {
    for (int64_t j = 0; j < a->out; j++) {
        const float *x = from + a->first[j], *w = a->weight + j * taps;
        float s = x[0] * w[0];
        for (int64_t k = 1; k < taps; k++) s += x[k] * w[k];
        to[j] = s;
    }
}

static void filter_row(const axis *a, const float *from, float *to) {
    switch (a->taps) {
    case 1: filter_row_taps(a, 1, from, to); break;
    case 2: filter_row_taps(a, 2, from, to); break;
    case 3: filter_row_taps(a, 3, from, to); break;
    case 4: filter_row_taps(a, 4, from, to); break;
    case 5: filter_row_taps(a, 5, from, to); break;
    case 6: filter_row_taps(a, 6, from, to); break;
    default: filter_row_taps(a, a->taps, from, to);
    }
}

/* Computes row i of the result from rows of `wide`, a ring buffer: row r is at
 * wide + (r % keep) * width. */
static void sum_rows(const axis *a, int64_t i, const float *wide, int64_t keep, int64_t width,
                     float *restrict to) {
    memset(to, 0, (size_t)width * sizeof *to);
    for (int64_t k = 0; k < a->taps; k++) {
        const float w = a->weight[i * a->taps + k];
        const float *restrict from = wide + (a->first[i] + k) % keep * width;
        if (w == 0) continue;
        for (int64_t j = 0; j < width; j++) to[j] += w * from[j];
    }
}

static void store_row(gd_image *y, int64_t at, const float *row, int64_t width) {
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

static gd_status resize_nearest(const gd_image *x, gd_box part, gd_image *y) {
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
    if (filter == GD_FILTER_NEAREST) return resize_nearest(x, part, y);
    GD_TRY(init_axis(&rows, part.height, height, filter, antialias));
    GD_TRY(init_axis(&columns, part.width, width, filter, antialias));
    /* The ring buffer holds only the rows that one output row needs. */
    const int64_t keep = rows.taps;
    gd_tensor *buffer = gd_empty(gd_dims(keep * width + width + part.width), GD_F32);
    float *wide = gd_data(buffer);
    if (!wide) return gd_failure();
    float *sum = wide + keep * width, *line = sum + width;
    for (int64_t c = 0; c < x->channels; c++) {
        int64_t done = 0; /* rows before this one were written to `wide` */
        for (int64_t i = 0; i < height; i++) {
            if (done < rows.first[i]) done = rows.first[i];
            for (; done < rows.first[i] + keep; done++) {
                const int64_t at = (c * x->height + part.top + done) * x->width + part.left;
                float *to = wide + done % keep * width;
                filter_row(&columns, load_row(x, at, part.width, line), to);
                if (x->dtype == GD_U8) round_row(to, width);
            }
            sum_rows(&rows, i, wide, keep, width, sum);
            store_row(y, (c * height + i) * width, sum, width);
        }
    }
    return GD_OK;
}
