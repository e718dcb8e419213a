/* image_resize.c - resizes images; see image.h.
 *
 * Each output pixel is a weighted mean of the input pixels under a triangle, first along rows and
 * then along columns. Weights have 22 bits of fraction, and the result of the first pass is rounded
 * to bytes, as in Pillow's Image.resize(size, BILINEAR). (Pillow 13 sometimes starts with columns,
 * which changes last bits.)
 */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "format/image.h"

enum { FRACTION = 22 };

/* The input positions of an output position: the first, and their count. */
typedef struct window {
    int first, count;
} window;

typedef struct filter {
    int taps;         /* weights stored for each output position; window.count of them are used */
    window *windows;  /* (out) */
    int32_t *weights; /* (out, taps) */
} filter;

static void filter_free(filter *f) {
    gd_free(f->windows);
    gd_free(f->weights);
}

static void fill_position(filter *f, int i, int in, double scale) {
    const double support = scale > 1 ? scale : 1, narrow = 1 / support, center = (i + 0.5) * scale;
    int first = (int)(center - support + 0.5), end = (int)(center + support + 0.5);
    if (first < 0) first = 0;
    if (end > in) end = in;
    double sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < end - first; k++) {
            const double weight = 1 - fabs((k + first - center + 0.5) * narrow);
            if (pass == 0) sum += weight > 0 ? weight : 0;
            else
                f->weights[(size_t)i * (size_t)f->taps + (size_t)k] =
                    (int32_t)(0.5 + (weight > 0 ? weight : 0) / sum * (1 << FRACTION));
        }
    f->windows[i] = (window){first, end - first};
}

static bool build_filter(filter *f, int in, int out) {
    const double scale = (double)in / out;
    f->taps = (int)ceil(scale > 1 ? scale : 1) * 2 + 1;
    f->windows = gd_malloc((size_t)out * sizeof *f->windows);
    f->weights = gd_malloc((size_t)out * (size_t)f->taps * sizeof *f->weights);
    if (!f->windows || !f->weights) return false;
    for (int i = 0; i < out; i++) fill_position(f, i, in, scale);
    return true;
}

static inline uint8_t round_sum(int32_t sum) {
    const int32_t v = sum >> FRACTION;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Defines a function that resizes one row (in, channels) to (out, channels). */
#define DEFINE_RESIZE_ROW(channels)                                                           \
    static void resize_row_##channels(uint8_t *to, const uint8_t *from, const filter *f,      \
                                      int out) {                                              \
        for (int x = 0; x < out; x++) {                                                       \
            const window w = f->windows[x];                                                   \
            const int32_t *weight = f->weights + (size_t)x * (size_t)f->taps;                 \
            const uint8_t *p = from + (size_t)w.first * channels;                             \
            int32_t sum[channels];                                                            \
            for (int c = 0; c < channels; c++) sum[c] = 1 << (FRACTION - 1);                  \
            for (int k = 0; k < w.count; k++)                                                 \
                for (int c = 0; c < channels; c++) sum[c] += p[k * channels + c] * weight[k]; \
            for (int c = 0; c < channels; c++)                                                \
                to[(size_t)x * channels + (size_t)c] = round_sum(sum[c]);                     \
        }                                                                                     \
    }
DEFINE_RESIZE_ROW(1)
DEFINE_RESIZE_ROW(2)
DEFINE_RESIZE_ROW(3)
DEFINE_RESIZE_ROW(4)

static void resize_rows(const gd_bitmap *from, gd_bitmap *to, const filter *f) {
    static void (*const row[])(uint8_t *, const uint8_t *, const filter *, int) = {
        NULL, resize_row_1, resize_row_2, resize_row_3, resize_row_4};
    const size_t channels = (size_t)from->channels;
    for (int y = 0; y < from->height; y++)
        row[channels](to->pixels + (size_t)y * (size_t)to->width * channels,
                      from->pixels + (size_t)y * (size_t)from->width * channels, f, to->width);
}

/* Resizes along columns, one strip of columns at a time, so that its sums stay in registers and
 * cache. A row has `n` bytes. */
static void resize_columns(const gd_bitmap *from, gd_bitmap *to, const filter *f) {
    enum { STRIP = 256 };
    const size_t n = (size_t)from->width * (size_t)from->channels;
    for (int y = 0; y < to->height; y++) {
        const window w = f->windows[y];
        const int32_t *weight = f->weights + (size_t)y * (size_t)f->taps;
        for (size_t x = 0; x < n; x += STRIP) {
            const size_t count = n - x < STRIP ? n - x : STRIP;
            int32_t sum[STRIP];
            for (size_t i = 0; i < count; i++) sum[i] = 1 << (FRACTION - 1);
            for (int k = 0; k < w.count; k++) {
                const uint8_t *p = from->pixels + (size_t)(w.first + k) * n + x;
                const int32_t by = weight[k];
                for (size_t i = 0; i < count; i++) sum[i] += p[i] * by;
            }
            uint8_t *q = to->pixels + (size_t)y * n + x;
            for (size_t i = 0; i < count; i++) q[i] = round_sum(sum[i]);
        }
    }
}

typedef void (*resize_pass)(const gd_bitmap *from, gd_bitmap *to, const filter *f);

static gd_status resize_axis(gd_bitmap *image, const char *name, int width, int height,
                             resize_pass pass) {
    filter f = {.taps = 0};
    gd_bitmap to = {.width = 0};
    gd_status status =
        gd_bitmap_new(&to, name, "resized", (uint64_t)width, (uint64_t)height, image->channels);
    const bool wide = width != image->width;
    if (status == GD_OK &&
        !build_filter(&f, wide ? image->width : image->height, wide ? width : height))
        status = gd_fail(GD_E_MEMORY, "%s: no memory to resize it", name);
    if (status == GD_OK) {
        pass(image, &to, &f);
        gd_bitmap_free(image);
        *image = to;
    } else {
        gd_bitmap_free(&to);
    }
    filter_free(&f);
    return status;
}

gd_status gd_bitmap_resize(gd_bitmap *image, const char *name, int width, int height) {
    if (width < 1 || height < 1)
        return gd_fail(GD_E_ARGUMENT, "%s: cannot be resized to %d x %d pixels", name, width,
                       height);
    if (width != image->width) GD_TRY(resize_axis(image, name, width, image->height, resize_rows));
    if (height != image->height) GD_TRY(resize_axis(image, name, width, height, resize_columns));
    return GD_OK;
}
