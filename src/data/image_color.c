/* image_color.c - brightness, contrast, saturation, hue: formulas and rounding are torchvision's.
 * Bytes are truncated, not rounded; floats are clamped to [0, 1]. */
#include <math.h>
#include <string.h>

#include "data/image.h"

enum { TILE = 256 };

static float clamp(float v, float most) { return v < 0 ? 0 : v > most ? most : v; }

/* y = x * factor + offset for all elements. */
static void scale_values(gd_image *x, int64_t first, int64_t n, float factor, float offset) {
    if (x->dtype == GD_F32) {
        float *at = (float *)x->data + first;
        for (int64_t i = 0; i < n; i++) at[i] = clamp(at[i] * factor + offset, 1);
        return;
    }
    uint8_t table[256], *at = (uint8_t *)x->data + first;
    for (int v = 0; v < 256; v++) table[v] = (uint8_t)clamp((float)v * factor + offset, 255);
    for (int64_t i = 0; i < n; i++) at[i] = table[at[i]];
}

void gd_image_brightness(gd_image *x, double factor) {
    scale_values(x, 0, x->channels * x->height * x->width, (float)factor, 0);
}

/* Loads up to TILE elements as f32, bytes as 0 to 255. */
static const float *load_pixels(const gd_image *x, int64_t at, int n, float *buffer) {
    if (x->dtype == GD_F32) return (const float *)x->data + at;
    const uint8_t *from = (const uint8_t *)x->data + at;
    for (int i = 0; i < n; i++) buffer[i] = from[i];
    return buffer;
}

/* Computes the gray of n pixels at `at` of planes of `plane` elements; truncated to integers for
 * bytes. */
static void compute_gray(const gd_image *x, int64_t at, int64_t plane, int n, float *gray) {
    float buffer[3][TILE];
    const float *r = load_pixels(x, at, n, buffer[0]),
                *g = load_pixels(x, at + plane, n, buffer[1]),
                *b = load_pixels(x, at + 2 * plane, n, buffer[2]);
    for (int i = 0; i < n; i++) gray[i] = r[i] * 0.2989f + g[i] * 0.587f + b[i] * 0.114f;
    if (x->dtype == GD_U8)
        for (int i = 0; i < n; i++) gray[i] = (float)(int)gray[i];
}

/* Mixes the image with the mean of its gray. */
void gd_image_contrast(gd_image *x, double factor) {
    const int64_t colors = gd_image_colors(x), plane = x->height * x->width;
    const float ratio = (float)factor;
    float gray[TILE];
    for (int64_t c = 0; c < x->channels; c += colors) {
        double sum = 0;
        for (int64_t first = 0; first < plane; first += TILE) {
            const int n = plane - first < TILE ? (int)(plane - first) : TILE;
            const float *v = gray;
            if (colors == 3) compute_gray(x, c * plane + first, plane, n, gray);
            else v = load_pixels(x, c * plane + first, n, gray);
            float part = 0; /* of at most 256 numbers */
            for (int i = 0; i < n; i++) part += v[i];
            sum += part;
        }
        const float mean = (float)(sum / (double)plane);
        scale_values(x, c * plane, colors * plane, ratio, mean * (float)(1 - factor));
    }
}

static void store_pixels(gd_image *x, int64_t at, int n, const float *v) {
    if (x->dtype == GD_F32) {
        float *to = (float *)x->data + at;
        for (int i = 0; i < n; i++) to[i] = clamp(v[i], 1);
        return;
    }
    uint8_t *to = (uint8_t *)x->data + at;
    for (int i = 0; i < n; i++) to[i] = (uint8_t)(int)clamp(v[i], 255);
}

void gd_image_saturation(gd_image *x, double factor) {
    const int64_t plane = x->height * x->width;
    const float ratio = (float)factor, other = (float)(1 - factor);
    float gray[TILE], buffer[TILE], mixed[TILE];
    if (gd_image_colors(x) != 3) return; /* gray already */
    for (int64_t c = 0; c < x->channels; c += 3)
        for (int64_t first = 0; first < plane; first += TILE) {
            const int n = plane - first < TILE ? (int)(plane - first) : TILE;
            compute_gray(x, c * plane + first, plane, n, gray);
            for (int k = 0; k < 3; k++) {
                const float *v = load_pixels(x, (c + k) * plane + first, n, buffer);
                for (int i = 0; i < n; i++) mixed[i] = v[i] * ratio + gray[i] * other;
                store_pixels(x, (c + k) * plane + first, n, mixed);
            }
        }
}

static float max_f32(float a, float b) { return a > b ? a : b; }
static float min_f32(float a, float b) { return a < b ? a : b; }

/* How far a channel is below the greatest one, as a share of the range. h is the hue in sixths of a
 * rotation, and h + from its distance from the hue of the channel. */
static float channel_deficit(float h, float from) {
    float d = h + from;
    d = d >= 6 ? d - 6 : d;
    return clamp(min_f32(d, 4 - d), 1);
}

/* Rotates the hue of n pixels in [0, 1] by `shift`, in sixths of a rotation. A channel of the
 * result is the greatest channel minus the deficit by its distance from the hue. There are no
 * branches, so that compilers vectorize the loop. */
static void rotate_hue(int n, float shift, float *restrict r, float *restrict g,
                       float *restrict b) {
    for (int i = 0; i < n; i++) {
        const float red = r[i], green = g[i], blue = b[i];
        const float high = max_f32(red, max_f32(green, blue)),
                    low = min_f32(red, min_f32(green, blue));
        const float range = high - low, divisor = range > 0 ? range : 1;
        /* of the greatest channel: its hue, and the difference of the other two, which shifts it */
        float over = red - green, hue = 4;
        over = high == green ? blue - red : over;
        hue = high == green ? 2 : hue;
        over = high == red ? green - blue : over;
        hue = high == red ? 0 : hue;
        float h = hue + over / divisor + shift; /* in [-1, 11) */
        h = h < 0 ? h + 6 : h;
        h = h >= 6 ? h - 6 : h;
        r[i] = high - range * channel_deficit(h, 5);
        g[i] = high - range * channel_deficit(h, 3);
        b[i] = high - range * channel_deficit(h, 1);
    }
}

void gd_image_hue(gd_image *x, double shift) {
    const int64_t plane = x->height * x->width;
    const bool u8 = x->dtype == GD_U8;
    const float sixths = (float)((shift < 0 ? shift + 1 : shift) * 6);
    float rgb[3][TILE];
    if (gd_image_colors(x) != 3) return;
    for (int64_t c = 0; c < x->channels; c += 3)
        for (int64_t first = 0; first < plane; first += TILE) {
            const int n = plane - first < TILE ? (int)(plane - first) : TILE;
            for (int k = 0; k < 3; k++) {
                const float *v = load_pixels(x, (c + k) * plane + first, n, rgb[k]);
                const float unit = u8 ? 1 / 255.0f : 1;
                for (int i = 0; i < n; i++) rgb[k][i] = v[i] * unit;
            }
            rotate_hue(n, sixths, rgb[0], rgb[1], rgb[2]);
            for (int k = 0; k < 3; k++) {
                for (int i = 0; u8 && i < n; i++) rgb[k][i] *= 255.999f;
                store_pixels(x, (c + k) * plane + first, n, rgb[k]);
            }
        }
}

gd_status gd_image_grayscale(const gd_image *x, int64_t channels, gd_image *y) {
    const int64_t plane = x->height * x->width, colors = gd_image_colors(x);
    const size_t bytes = gd_dtype_bytes(x->dtype);
    gd_shape shape = gd_shape_of(x->tensor->rank, x->tensor->dims);
    if (shape.rank < 3) shape = gd_dims(1, x->height, x->width);
    shape.at[shape.rank - 3] = channels;
    gd_tensor *t = gd_tensor_new(x->tensor->device, x->dtype, shape.rank, shape.at);
    if (!t) return gd_failure();
    *y = (gd_image){t, x->dtype, x->channels / colors * channels, x->height, x->width, gd_data(t)};
    float gray[TILE];
    for (int64_t c = 0; c < x->channels / colors; c++) {
        const int64_t to = c * channels * plane;
        for (int64_t first = 0; colors == 3 && first < plane; first += TILE) {
            const int n = plane - first < TILE ? (int)(plane - first) : TILE;
            compute_gray(x, c * 3 * plane + first, plane, n, gray);
            if (x->dtype == GD_F32)
                memcpy((float *)y->data + to + first, gray, (size_t)n * sizeof *gray);
            else store_pixels(y, to + first, n, gray);
        }
        if (colors == 1)
            memcpy((char *)y->data + (size_t)to * bytes,
                   (char *)x->data + (size_t)(c * plane) * bytes, (size_t)plane * bytes);
        for (int64_t k = 1; k < channels; k++)
            memcpy((char *)y->data + (size_t)(to + k * plane) * bytes,
                   (char *)y->data + (size_t)to * bytes, (size_t)plane * bytes);
    }
    return GD_OK;
}
