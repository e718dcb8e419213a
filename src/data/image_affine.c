/* image_affine.c - rotations and other affine maps of images. */
#include <math.h>

#include "data/image.h"

void gd_affine_matrix(double angle, double tx, double ty, double scale, double shear_x,
                      double shear_y, double m[6]) {
    const double degree = 3.14159265358979323846 / 180, rotation = angle * degree;
    const double sx = shear_x * degree, sy = shear_y * degree;
    /* a rotation after the shears, with determinant 1. m is its inverse, which maps pixels of the
     * result to the source. */
    const double a = cos(rotation - sy) / cos(sy), b = -a * tan(sx) - sin(rotation);
    const double c = sin(rotation - sy) / cos(sy), d = -c * tan(sx) + cos(rotation);
    m[0] = d / scale;
    m[1] = -b / scale;
    m[3] = -c / scale;
    m[4] = a / scale;
    m[2] = -m[0] * tx - m[1] * ty;
    m[5] = -m[3] * tx - m[4] * ty;
}

/* The number of pixels that the interval from middle - half to middle + half touches. Where its
 * length is an integer, as after a rotation by 90 degrees, it is that integer. */
static int64_t pixel_extent(double middle, double half) {
    if (fabs(2 * half - nearbyint(2 * half)) < 1e-4) return (int64_t)nearbyint(2 * half);
    const double low = trunc((middle - half) * 1e4) * 1e-4,
                 high = trunc((middle + half) * 1e4) * 1e-4;
    return (int64_t)(ceil(high) - floor(low));
}

void gd_affine_sizes(const gd_image *x, const double m[6], int64_t *height, int64_t *width) {
    const double w = (double)x->width / 2, h = (double)x->height / 2;
    const double across = fabs(m[0]) * w + fabs(m[1]) * h, down = fabs(m[3]) * w + fabs(m[4]) * h;
    *width = pixel_extent(w + m[2], across);
    *height = pixel_extent(h + m[5], down);
}

enum { TILE = 64 };

/* The source pixels of a tile of a row: for each output pixel four neighbors and their weights. A
 * neighbor outside of the image has weight 0 and the index of a pixel inside; `rest` is the sum of
 * the weights outside, which `fill` gets. */
typedef struct sample_taps {
    int32_t at[4][TILE];
    float weight[4][TILE], rest[TILE];
} sample_taps;

static void find_linear_taps(const gd_image *x, double px, double py, double dx, double dy, int n,
                             sample_taps *p) {
    const int32_t w = (int32_t)x->width, h = (int32_t)x->height;
    for (int j = 0; j < n; j++) {
        double u = px + dx * j, v = py + dy * j;
        /* clamping far coordinates to just outside changes nothing, and they fit an integer */
        u = u < -2 ? -2 : u > w + 1 ? w + 1 : u;
        v = v < -2 ? -2 : v > h + 1 ? h + 1 : v;
        const int32_t left = (int32_t)(u + 2) - 2, top = (int32_t)(v + 2) - 2;
        const float fx = (float)(u - left), fy = (float)(v - top);
        const bool in_left = left >= 0 && left < w, in_right = left >= -1 && left + 1 < w;
        const bool in_top = top >= 0 && top < h, in_bottom = top >= -1 && top + 1 < h;
        const int32_t l = in_left ? left : 0, r = in_right ? left + 1 : 0;
        const int32_t t = in_top ? top * w : 0, b = in_bottom ? (top + 1) * w : 0;
        const float wl = in_left ? 1 - fx : 0, wr = in_right ? fx : 0;
        const float wt = in_top ? 1 - fy : 0, wb = in_bottom ? fy : 0;
        p->at[0][j] = t + l, p->weight[0][j] = wt * wl;
        p->at[1][j] = t + r, p->weight[1][j] = wt * wr;
        p->at[2][j] = b + l, p->weight[2][j] = wb * wl;
        p->at[3][j] = b + r, p->weight[3][j] = wb * wr;
        p->rest[j] = 1 - (wl + wr) * (wt + wb);
    }
}

/* One neighbor; halves round to even. */
static void find_nearest_taps(const gd_image *x, double px, double py, double dx, double dy, int n,
                              sample_taps *p) {
    for (int j = 0; j < n; j++) {
        const double u = nearbyint(px + dx * j), v = nearbyint(py + dy * j);
        const bool inside = u >= 0 && v >= 0 && u < (double)x->width && v < (double)x->height;
        p->at[0][j] = inside ? (int32_t)v * (int32_t)x->width + (int32_t)u : 0;
        p->weight[0][j] = inside;
        p->rest[j] = !inside;
    }
}

#define SAMPLE(name, type)                                                                  \
    static void sample_##name(const type *from, const sample_taps *p, int n, int neighbors, \
                              float fill, float *to) {                                      \
        if (neighbors == 1) {                                                               \
            for (int j = 0; j < n; j++)                                                     \
                to[j] = p->weight[0][j] * (float)from[p->at[0][j]] + p->rest[j] * fill;     \
            return;                                                                         \
        }                                                                                   \
        for (int j = 0; j < n; j++)                                                         \
            to[j] = p->weight[0][j] * (float)from[p->at[0][j]] +                            \
                    p->weight[1][j] * (float)from[p->at[1][j]] +                            \
                    p->weight[2][j] * (float)from[p->at[2][j]] +                            \
                    p->weight[3][j] * (float)from[p->at[3][j]] + p->rest[j] * fill;         \
    }
SAMPLE(u8, uint8_t)
SAMPLE(f32, float)

gd_status gd_image_affine(const gd_image *x, const double m[6], int64_t height, int64_t width,
                          gd_filter filter, const float *fill, gd_image *y) {
    const double cx = (double)(x->width - 1) / 2, cy = (double)(x->height - 1) / 2;
    const int64_t colors = gd_image_colors(x), plane = x->height * x->width;
    const int neighbors = filter == GD_FILTER_NEAREST ? 1 : 4;
    if (plane > INT32_MAX) return gd_fail(GD_E_SHAPE, "images are too large");
    GD_TRY(gd_image_new(x, height, width, x->dtype, y));
    sample_taps p;
    float row[TILE];
    for (int64_t i = 0; i < height; i++) {
        const double v = (double)i - (double)(height - 1) / 2;
        for (int64_t first = 0; first < width; first += TILE) {
            const int n = width - first < TILE ? (int)(width - first) : TILE;
            const double u = (double)first - (double)(width - 1) / 2;
            const double px = m[0] * u + m[1] * v + m[2] + cx, py = m[3] * u + m[4] * v + m[5] + cy;
            (neighbors == 1 ? find_nearest_taps : find_linear_taps)(x, px, py, m[0], m[3], n, &p);
            for (int64_t c = 0; c < x->channels; c++) {
                const float outside = gd_fill_at(fill, c, colors);
                const int64_t to = (c * height + i) * width + first;
                if (x->dtype == GD_F32) {
                    sample_f32((float *)x->data + c * plane, &p, n, neighbors, outside,
                               (float *)y->data + to);
                    continue;
                }
                sample_u8((uint8_t *)x->data + c * plane, &p, n, neighbors, outside, row);
                uint8_t *bytes = (uint8_t *)y->data + to;
                for (int j = 0; j < n; j++) {
                    const float z = row[j] + 0.5f;
                    bytes[j] = (uint8_t)(int)(z < 0 ? 0 : z > 255 ? 255 : z);
                }
            }
        }
    }
    return GD_OK;
}
