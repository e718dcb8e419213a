/* conv_winograd.isa.c - the vectorized transforms and products of conv_winograd.h. */
#include "backend/cpu/conv_winograd.h"

#include <string.h>

#include "backend/cpu/simd.h"

enum { VL = VF32_LANES, A_MAX = 6, M_MAX = 4 };

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define SPLAT(x) v_splat_f32((float)(x))

int GD_ISA_FN(gd_wino_vector)(void) { return VL; }

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* --- transposing between (channels, pixels) and (pixels, channels)
 * ----------------------------- */

#if V_BYTES == 64
#define ZIP_LOW(a, b) \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(a, b) \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif V_BYTES == 32
#define ZIP_LOW(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define ZIP_LOW(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* Transposes a VL x VL block in registers: log2(VL) rounds of interleaving the first half of the
 * vectors with the second half. */
V_FN void transpose_square(vf32 v[VL]) {
    UNROLL for (int step = 1; step < VL; step *= 2) {
        vf32 z[VL];
        UNROLL for (int i = 0; i < VL / 2; i++) {
            z[2 * i] = ZIP_LOW(v[i], v[i + VL / 2]);
            z[2 * i + 1] = ZIP_HIGH(v[i], v[i + VL / 2]);
        }
        UNROLL for (int i = 0; i < VL; i++) v[i] = z[i];
    }
}

/* Transposes up to VL rows of `count` numbers, `step` apart, to `count` vectors; missing lanes are
 * 0. */
static void gather_lanes(const float *from, int64_t step, int64_t lanes, int64_t count, float *to) {
    for (int64_t p = 0; p < count; p += VL) {
        const int block = (int)min64(VL, count - p);
        vf32 v[VL];
        if (lanes == VL && block == VL) {
            UNROLL for (int i = 0; i < VL; i++) v[i] = v_load_f32(from + i * step + p);
        } else {
            for (int i = 0; i < VL; i++)
                v[i] = i < lanes ? v_load_part_f32(from + i * step + p, block) : (vf32){0};
        }
        transpose_square(v);
        if (block == VL) {
            UNROLL for (int i = 0; i < VL; i++) v_store_f32(to + (p + i) * VL, v[i]);
        } else {
            for (int i = 0; i < block; i++) v_store_f32(to + (p + i) * VL, v[i]);
        }
    }
}

/* The inverse of gather_lanes. */
static void scatter_lanes(const float *from, float *to, int64_t step, int64_t lanes,
                          int64_t count) {
    for (int64_t p = 0; p < count; p += VL) {
        const int block = (int)min64(VL, count - p);
        vf32 v[VL];
        if (block == VL) {
            UNROLL for (int i = 0; i < VL; i++) v[i] = v_load_f32(from + (p + i) * VL);
        } else {
            for (int i = 0; i < VL; i++)
                v[i] = i < block ? v_load_f32(from + (p + i) * VL) : (vf32){0};
        }
        transpose_square(v);
        if (lanes == VL && block == VL) {
            UNROLL for (int i = 0; i < VL; i++) v_store_f32(to + i * step + p, v[i]);
        } else {
            for (int i = 0; i < lanes; i++) v_store_part_f32(to + i * step + p, v[i], block);
        }
    }
}

/* --- transforms of one axis ------------------------------------------------------------------- */

#define POINT_1  0.625
#define POINT_2  1.5
#define SQUARE_1 (POINT_1 * POINT_1)
#define SQUARE_2 (POINT_2 * POINT_2)
/* 1 / the product of a point's distances to the other points. */
#define NORM_0 (1 / (SQUARE_1 * SQUARE_2))
#define NORM_1 (1 / (2 * SQUARE_1 * (SQUARE_1 - SQUARE_2)))
#define NORM_2 (1 / (2 * SQUARE_2 * (SQUARE_2 - SQUARE_1)))

/* Input transform (B^T): a values -> a values. */
V_FN void input_transform(const int m, const vf32 *d, vf32 *o) {
    if (m == 2) {
        o[0] = d[0] - d[2];
        o[1] = d[1] + d[2];
        o[2] = d[2] - d[1];
        o[3] = d[1] - d[3];
        return;
    }
    const vf32 low = SPLAT(-SQUARE_1), high = SPLAT(-SQUARE_2);
    const vf32 sum = SPLAT(-(SQUARE_1 + SQUARE_2)), product = SPLAT(SQUARE_1 * SQUARE_2);
    const vf32 even_1 = v_fma_f32(high, d[2], d[4]),
               odd_1 = SPLAT(POINT_1) * v_fma_f32(high, d[1], d[3]);
    const vf32 even_2 = v_fma_f32(low, d[2], d[4]),
               odd_2 = SPLAT(POINT_2) * v_fma_f32(low, d[1], d[3]);
    o[0] = v_fma_f32(product, d[0], v_fma_f32(sum, d[2], d[4]));
    o[1] = even_1 + odd_1;
    o[2] = even_1 - odd_1;
    o[3] = even_2 + odd_2;
    o[4] = even_2 - odd_2;
    o[5] = v_fma_f32(product, d[1], v_fma_f32(sum, d[3], d[5]));
}

/* Output transform (A^T): a products -> m values of y. */
V_FN void output_transform(const int m, const vf32 *d, vf32 *o) {
    if (m == 2) {
        o[0] = d[0] + d[1] + d[2];
        o[1] = d[1] - d[2] - d[3];
        return;
    }
    const vf32 sum_1 = d[1] + d[2], odd_1 = d[1] - d[2], sum_2 = d[3] + d[4], odd_2 = d[3] - d[4];
    o[0] = d[0] + sum_1 + sum_2;
    o[1] = v_fma_f32(SPLAT(POINT_2), odd_2, SPLAT(POINT_1) * odd_1);
    o[2] = v_fma_f32(SPLAT(SQUARE_2), sum_2, SPLAT(SQUARE_1) * sum_1);
    o[3] = v_fma_f32(SPLAT(POINT_2 * SQUARE_2), odd_2,
                     v_fma_f32(SPLAT(POINT_1 * SQUARE_1), odd_1, d[5]));
}

/* The transpose of the output transform (A): m gradients of y -> a values. */
V_FN void output_transform_transposed(const int m, const vf32 *d, vf32 *o) {
    if (m == 2) {
        o[0] = d[0];
        o[1] = d[0] + d[1];
        o[2] = d[0] - d[1];
        o[3] = -d[1];
        return;
    }
    const vf32 even_1 = v_fma_f32(SPLAT(SQUARE_1), d[2], d[0]);
    const vf32 odd_1 = v_fma_f32(SPLAT(POINT_1 * SQUARE_1), d[3], SPLAT(POINT_1) * d[1]);
    const vf32 even_2 = v_fma_f32(SPLAT(SQUARE_2), d[2], d[0]);
    const vf32 odd_2 = v_fma_f32(SPLAT(POINT_2 * SQUARE_2), d[3], SPLAT(POINT_2) * d[1]);
    o[0] = d[0];
    o[1] = even_1 + odd_1;
    o[2] = even_1 - odd_1;
    o[3] = even_2 + odd_2;
    o[4] = even_2 - odd_2;
    o[5] = d[3];
}

/* Kernel transform (G): 3 taps -> a values. */
V_FN void kernel_transform(const int m, const vf32 *d, vf32 *o) {
    if (m == 2) {
        const vf32 even = (d[0] + d[2]) * 0.5f, odd = d[1] * 0.5f;
        o[0] = d[0];
        o[1] = even + odd;
        o[2] = even - odd;
        o[3] = d[2];
        return;
    }
    const vf32 even_1 = v_fma_f32(SPLAT(NORM_1 * SQUARE_1), d[2], SPLAT(NORM_1) * d[0]);
    const vf32 even_2 = v_fma_f32(SPLAT(NORM_2 * SQUARE_2), d[2], SPLAT(NORM_2) * d[0]);
    const vf32 odd_1 = SPLAT(NORM_1 * POINT_1) * d[1], odd_2 = SPLAT(NORM_2 * POINT_2) * d[1];
    o[0] = SPLAT(NORM_0) * d[0];
    o[1] = even_1 + odd_1;
    o[2] = even_1 - odd_1;
    o[3] = even_2 + odd_2;
    o[4] = even_2 - odd_2;
    o[5] = d[2];
}

/* The transpose of the kernel transform (G^T): a values -> 3 gradients of taps. */
V_FN void kernel_transform_transposed(const int m, const vf32 *d, vf32 *o) {
    if (m == 2) {
        o[0] = d[0] + (d[1] + d[2]) * 0.5f;
        o[1] = (d[1] - d[2]) * 0.5f;
        o[2] = (d[1] + d[2]) * 0.5f + d[3];
        return;
    }
    const vf32 sum_1 = d[1] + d[2], sum_2 = d[3] + d[4];
    const vf32 odd_1 = d[1] - d[2], odd_2 = d[3] - d[4];
    o[0] = v_fma_f32(SPLAT(NORM_0), d[0], v_fma_f32(SPLAT(NORM_1), sum_1, SPLAT(NORM_2) * sum_2));
    o[1] = v_fma_f32(SPLAT(NORM_1 * POINT_1), odd_1, SPLAT(NORM_2 * POINT_2) * odd_2);
    o[2] = v_fma_f32(SPLAT(NORM_1 * SQUARE_1), sum_1,
                     v_fma_f32(SPLAT(NORM_2 * SQUARE_2), sum_2, d[5]));
}

/* --- image -> transformed tiles --------------------------------------------------------------- */

/* An image divided into tiles of `side` pixels at a distance of m pixels; neighbours overlap. */
typedef struct {
    const float *data; /* planes of h * w */
    int64_t channels, h, w;
    int64_t before_h, before_w;
    int side;
    int64_t row_step, plane_step; /* strides of the transformed tiles */
} image_grid;

/* Transforms one row of tiles: first along the columns of pixels, then along the rows. `pixels` has
 * the image rows that are not padding, from row `first` on, as vectors of channels. */
V_FN void transform_tile_row(const int m, const bool gradient, const gd_wino *g,
                             const image_grid *im, int64_t tile_row, const float *pixels,
                             int64_t first, float *tiles, vf32 *columns) {
    const int a = m + 2, side = gradient ? m : a;
    const int64_t width = g->tiles_w * m + side - m;
    const float *row[A_MAX];
    UNROLL for (int j = 0; j < side; j++) {
        const int64_t y = tile_row * m - im->before_h + j;
        row[j] = y < 0 || y >= im->h ? NULL : pixels + (y - first) * im->w * VL;
    }
    for (int64_t i = 0; i < width; i++) {
        const int64_t x = i - im->before_w;
        vf32 d[A_MAX], o[A_MAX];
        UNROLL for (int j = 0; j < side; j++) d[j] =
            x < 0 || x >= im->w || !row[j] ? (vf32){0} : v_load_f32(row[j] + x * VL);
        if (gradient) output_transform_transposed(m, d, o);
        else input_transform(m, d, o);
        UNROLL for (int j = 0; j < a; j++) columns[i * a + j] = o[j];
    }
    for (int64_t t = 0; t < g->tiles_w; t++) {
        const vf32 *c = columns + t * m * a;
        float *to = tiles + t * im->row_step;
        UNROLL for (int j = 0; j < a; j++) {
            vf32 d[A_MAX], o[A_MAX];
            UNROLL for (int i = 0; i < side; i++) d[i] = c[i * a + j];
            if (gradient) output_transform_transposed(m, d, o);
            else input_transform(m, d, o);
            UNROLL for (int i = 0; i < a; i++) v_store_f32(to + (j * a + i) * im->plane_step, o[i]);
        }
    }
}

static void input_tile_row_4(const gd_wino *g, const image_grid *im, int64_t r, const float *p,
                             int64_t f, float *t, vf32 *c) {
    transform_tile_row(4, false, g, im, r, p, f, t, c);
}
static void input_tile_row_2(const gd_wino *g, const image_grid *im, int64_t r, const float *p,
                             int64_t f, float *t, vf32 *c) {
    transform_tile_row(2, false, g, im, r, p, f, t, c);
}
static void gradient_tile_row_4(const gd_wino *g, const image_grid *im, int64_t r, const float *p,
                                int64_t f, float *t, vf32 *c) {
    transform_tile_row(4, true, g, im, r, p, f, t, c);
}
static void gradient_tile_row_2(const gd_wino *g, const image_grid *im, int64_t r, const float *p,
                                int64_t f, float *t, vf32 *c) {
    transform_tile_row(2, true, g, im, r, p, f, t, c);
}

/* Transforms rows of tiles, one channel vector and one image at a time. */
static void transform_image_rows(const gd_wino *g, const image_grid *im, int64_t row,
                                 int64_t row_end, int64_t group, int64_t group_end, float *tiles,
                                 float *scratch,
                                 void (*one_row)(const gd_wino *, const image_grid *, int64_t,
                                                 const float *, int64_t, float *, vf32 *)) {
    vf32 *columns = (vf32 *)(void *)scratch;
    float *pixels = scratch + (g->tiles_w * g->m + 2) * g->a * VL;
    for (int64_t c = group; c < group_end; c++) {
        const int64_t lanes = min64(im->channels - c * VL, VL);
        for (int64_t r = row; r < row_end;) {
            const int64_t image = r / g->tiles_h, first_row = r % g->tiles_h;
            const int64_t end = min64((image + 1) * g->tiles_h, row_end), rows = end - r;
            int64_t y = first_row * g->m - im->before_h,
                    y_end = (first_row + rows - 1) * g->m - im->before_h + im->side;
            if (y < 0) y = 0;
            if (y_end > im->h) y_end = im->h;
            if (y < y_end)
                gather_lanes(im->data + ((image * im->channels + c * VL) * im->h + y) * im->w,
                             im->h * im->w, lanes, (y_end - y) * im->w, pixels);
            for (; r < end; r++)
                one_row(g, im, r % g->tiles_h, pixels, y,
                        tiles + (r - row) * g->tiles_w * im->row_step + c * VL, columns);
        }
    }
}

void GD_ISA_FN(gd_wino_input)(const gd_wino *g, const float *x, int64_t row, int64_t row_end,
                              int64_t group, int64_t group_end, float *tiles, float *scratch) {
    const image_grid im = {x,           g->ci, g->in_h,  g->in_w,   g->before_h,
                           g->before_w, g->a,  g->x_row, g->x_plane};
    transform_image_rows(g, &im, row, row_end, group, group_end, tiles, scratch,
                         g->m == 4 ? input_tile_row_4 : input_tile_row_2);
}

void GD_ISA_FN(gd_wino_gradient)(const gd_wino *g, const float *y, int64_t row, int64_t row_end,
                                 int64_t group, int64_t group_end, float *tiles, float *scratch) {
    const image_grid im = {y, g->co, g->out_h, g->out_w, 0, 0, g->m, g->y_row, g->y_plane};
    transform_image_rows(g, &im, row, row_end, group, group_end, tiles, scratch,
                         g->m == 4 ? gradient_tile_row_4 : gradient_tile_row_2);
}

/* --- products -> image ------------------------------------------------------------------------ */

/* Output transform of one row of tiles of a channel vector -> `rows` rows of pixels. */
V_FN void inverse_tile_row(const int m, const bool relu, const gd_wino *g, const float *products,
                           vf32 bias, int64_t rows, float *pixels) {
    const int a = m + 2;
    const vf32 zero = {0};
    for (int64_t t = 0; t < g->tiles_w; t++) {
        const float *from = products + t * g->y_row;
        vf32 half[A_MAX][M_MAX];
        UNROLL for (int j = 0; j < a; j++) {
            vf32 d[A_MAX];
            UNROLL for (int i = 0; i < a; i++) d[i] = v_load_f32(from + (j * a + i) * g->y_plane);
            output_transform(m, d, half[j]);
        }
        const int64_t columns = min64(m, g->out_w - t * m);
        float *to = pixels + t * m * VL;
        UNROLL for (int i = 0; i < m; i++) {
            vf32 d[A_MAX], o[M_MAX];
            UNROLL for (int j = 0; j < a; j++) d[j] = half[j][i];
            output_transform(m, d, o);
            if (i < columns) {
                UNROLL for (int j = 0; j < m; j++) {
                    const vf32 v = o[j] + bias;
                    if (j < rows)
                        v_store_f32(to + (j * g->out_w + i) * VL,
                                    relu ? v_select_f32(v < zero, zero, v) : v);
                }
            }
        }
    }
}

static void inverse_tile_row_4(const gd_wino *g, const float *products, vf32 bias, int64_t rows,
                               float *pixels) {
    if (g->relu) inverse_tile_row(4, true, g, products, bias, rows, pixels);
    else inverse_tile_row(4, false, g, products, bias, rows, pixels);
}
static void inverse_tile_row_2(const gd_wino *g, const float *products, vf32 bias, int64_t rows,
                               float *pixels) {
    if (g->relu) inverse_tile_row(2, true, g, products, bias, rows, pixels);
    else inverse_tile_row(2, false, g, products, bias, rows, pixels);
}

void GD_ISA_FN(gd_wino_output)(const gd_wino *g, const float *products, int64_t row,
                               int64_t row_end, int64_t group, int64_t group_end, const float *bias,
                               float *y, float *scratch) {
    for (int64_t c = group; c < group_end; c++) {
        const int64_t lanes = min64(g->co - c * VL, VL);
        const vf32 add = bias ? v_load_part_f32(bias + c * VL, (int)lanes) : (vf32){0};
        for (int64_t r = row; r < row_end; r++) {
            const int64_t image = r / g->tiles_h, at = r % g->tiles_h * g->m,
                          rows = min64(g->m, g->out_h - at);
            const float *from = products + (r - row) * g->tiles_w * g->y_row + c * VL;
            if (g->m == 4) inverse_tile_row_4(g, from, add, rows, scratch);
            else inverse_tile_row_2(g, from, add, rows, scratch);
            scatter_lanes(scratch, y + ((image * g->co + c * VL) * g->out_h + at) * g->out_w,
                          g->out_h * g->out_w, lanes, rows * g->out_w);
        }
    }
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* The largest micro-kernel, H tiles by W vectors of channels, for each W; see
 * gemm_microkernel.h. */
#if V_BYTES == 64
enum { W_MAX = 3, H_MAX = 14 };
static const int max_rows[W_MAX + 1] = {0, 14, 14, 8};
#else
enum { W_MAX = 2, H_MAX = 6 };
static const int max_rows[W_MAX + 1] = {0, 6, 6};
#endif

/* Output channels are divided into panels of at most W_MAX vectors. Packed kernels are (ci, width
 * of the panel) for each plane and panel. */
typedef struct {
    int64_t vectors, panels;
} panel_split;

static panel_split channel_panels(const gd_wino *g) {
    const int64_t vectors = (g->co + VL - 1) / VL;
    return (panel_split){vectors, (vectors + W_MAX - 1) / W_MAX};
}

static int64_t panel_begin(panel_split p, int64_t i) { return p.vectors * i / p.panels; }

/* The kernel transform of one input channel: 9 vectors of taps -> a * a planes. */
V_FN void transform_kernel_taps(const int m, const float *taps, bool flipped, float *to,
                                int64_t plane_step) {
    const int a = m + 2;
    vf32 down[3][A_MAX];
    UNROLL for (int x = 0; x < 3; x++) {
        vf32 d[3];
        UNROLL for (int y = 0; y < 3; y++) d[y] =
            v_load_f32(taps + (flipped ? 8 - 3 * y - x : 3 * y + x) * VL);
        kernel_transform(m, d, down[x]);
    }
    UNROLL for (int j = 0; j < a; j++) {
        vf32 d[3], o[A_MAX];
        UNROLL for (int x = 0; x < 3; x++) d[x] = down[x][j];
        kernel_transform(m, d, o);
        UNROLL for (int i = 0; i < a; i++) v_store_f32(to + (j * a + i) * plane_step, o[i]);
    }
}

/* Transposes the taps of a vector of output channels to vectors (ci, 9). */
static void gather_taps(const gd_wino *g, const float *weight, int64_t vector, float *taps) {
    const int64_t lanes = min64(g->co - vector * VL, VL);
    if (!g->flipped) {
        gather_lanes(weight + vector * VL * g->ci * 9, g->ci * 9, lanes, g->ci * 9, taps);
        return;
    }
    for (int64_t c = 0; c < g->ci; c++)
        gather_lanes(weight + (c * g->co + vector * VL) * 9, 9, lanes, 9, taps + c * 9 * VL);
}

void GD_ISA_FN(gd_wino_kernels)(const gd_wino *g, const float *weight, int64_t group,
                                int64_t group_end, float *kernels, float *scratch) {
    const panel_split p = channel_panels(g);
    const int64_t plane = g->ci * p.vectors * VL;
    for (int64_t v = group; v < group_end; v++) {
        int64_t panel = v * p.panels / p.vectors;
        while (panel + 1 < p.panels && panel_begin(p, panel + 1) <= v) panel++;
        const int64_t begin = panel_begin(p, panel), width = panel_begin(p, panel + 1) - begin;
        gather_taps(g, weight, v, scratch);
        for (int64_t c = 0; c < g->ci; c++) {
            float *to = kernels + (begin * g->ci + c * width + v - begin) * VL;
            if (g->m == 4) transform_kernel_taps(4, scratch + c * 9 * VL, g->flipped, to, plane);
            else transform_kernel_taps(2, scratch + c * 9 * VL, g->flipped, to, plane);
        }
    }
}

V_FN void inverse_kernel_gradient(const int m, const float *from, int64_t plane_step, int lanes,
                                  float *to) {
    const int a = m + 2;
    vf32 half[3][A_MAX];
    UNROLL for (int i = 0; i < a; i++) {
        vf32 d[A_MAX], o[3];
        UNROLL for (int j = 0; j < a; j++) d[j] =
            v_load_part_f32(from + (j * a + i) * plane_step, lanes);
        kernel_transform_transposed(m, d, o);
        UNROLL for (int y = 0; y < 3; y++) half[y][i] = o[y];
    }
    float taps[9][VL];
    UNROLL for (int y = 0; y < 3; y++) {
        vf32 o[3];
        kernel_transform_transposed(m, half[y], o);
        UNROLL for (int x = 0; x < 3; x++) v_store_f32(taps[3 * y + x], o[x]);
    }
    for (int i = 0; i < lanes; i++)
        for (int k = 0; k < 9; k++) to[i * 9 + k] = taps[k][i];
}

void GD_ISA_FN(gd_wino_weight)(const gd_wino *g, const float *kernels, int64_t first, int64_t end,
                               float *weight) {
    const int64_t plane = g->co * g->ci;
    for (int64_t o = first; o < end; o++)
        for (int64_t c = 0; c < g->ci; c += VL) {
            const int lanes = (int)min64(VL, g->ci - c);
            const float *from = kernels + o * g->ci + c;
            float *to = weight + (o * g->ci + c) * 9;
            if (g->m == 4) inverse_kernel_gradient(4, from, plane, lanes, to);
            else inverse_kernel_gradient(2, from, plane, lanes, to);
        }
}

/* --- products --------------------------------------------------------------------------------- */

/* The micro-kernel: H tiles by W vectors of output channels, accumulated in registers over the
 * input channels. One pointer serves three rows of tiles: x86 addressing reaches 0, 1 and 2 times
 * a_row, and pointers for all rows would not fit into the registers. */
V_FN void micro_kernel(const int H, const int W, int64_t depth, const float *tiles, int64_t a_row,
                       const float *panel, float *products, int64_t c_row) {
    vf32 sum[H_MAX][W_MAX];
    const float *a[(H_MAX + 2) / 3];
    UNROLL for (int i = 0; i < H; i++) { UNROLL for (int v = 0; v < W; v++) sum[i][v] = (vf32){0}; }
    UNROLL for (int i = 0; i < (H + 2) / 3; i++) a[i] = tiles + 3 * i * a_row;
    for (int64_t k = 0; k < depth; k++) {
        vf32 b[W_MAX];
        UNROLL for (int v = 0; v < W; v++) b[v] = v_load_f32(panel + v * VL);
        UNROLL for (int i = 0; i < H; i++) {
            const vf32 x = v_splat_f32(a[i / 3][i % 3 * a_row]);
            UNROLL for (int v = 0; v < W; v++) sum[i][v] = v_fma_f32(x, b[v], sum[i][v]);
        }
        UNROLL for (int i = 0; i < (H + 2) / 3; i++) a[i]++;
        panel += W * VL;
    }
    UNROLL for (int i = 0; i < H; i++) {
        UNROLL for (int v = 0; v < W; v++) v_store_f32(products + i * c_row + v * VL, sum[i][v]);
    }
}

#define ROWS_1_TO_6(X, w) X(1, w) X(2, w) X(3, w) X(4, w) X(5, w) X(6, w)
#if V_BYTES == 64
#define ROWS_1_TO_8(X, w)  ROWS_1_TO_6(X, w) X(7, w) X(8, w)
#define ROWS_1_TO_14(X, w) ROWS_1_TO_8(X, w) X(9, w) X(10, w) X(11, w) X(12, w) X(13, w) X(14, w)
#define MICRO_KERNELS(X)   ROWS_1_TO_14(X, 1) ROWS_1_TO_14(X, 2) ROWS_1_TO_8(X, 3)
#else
#define MICRO_KERNELS(X) ROWS_1_TO_6(X, 1) ROWS_1_TO_6(X, 2)
#endif

#define DEFINE_MICRO_KERNEL(h, w)                                                    \
    static void micro_kernel_##h##x##w(int64_t depth, const float *a, int64_t a_row, \
                                       const float *b, float *c, int64_t c_row) {    \
        micro_kernel(h, w, depth, a, a_row, b, c, c_row);                            \
    }
MICRO_KERNELS(DEFINE_MICRO_KERNEL)
typedef void (*micro_kernel_fn)(int64_t, const float *, int64_t, const float *, float *, int64_t);
#define MICRO_KERNEL_ENTRY(h, w) [w][h] = micro_kernel_##h##x##w,
static const micro_kernel_fn micro_kernels[W_MAX + 1][H_MAX + 1] = {
    MICRO_KERNELS(MICRO_KERNEL_ENTRY)};

/* Multiplies all tiles of one plane by one panel of kernels. */
static void multiply_panel(const gd_wino *g, int64_t plane, int64_t width, int64_t count,
                           const float *tiles, const float *panel, float *products) {
    const int64_t strips = (count + max_rows[width] - 1) / max_rows[width];
    for (int64_t s = 0; s < strips; s++) {
        const int64_t first = count * s / strips, height = count * (s + 1) / strips - first;
        micro_kernels[width][height](g->ci, tiles + plane * g->x_plane + first * g->x_row, g->x_row,
                                     panel, products + plane * g->y_plane + first * g->y_row,
                                     g->y_row);
    }
}

void GD_ISA_FN(gd_wino_multiply)(const gd_wino *g, int64_t count, const float *tiles,
                                 const float *kernels, float *products) {
    const panel_split p = channel_panels(g);
    for (int64_t plane = 0; plane < g->a * g->a; plane++)
        for (int64_t i = 0; i < p.panels; i++) {
            const int64_t begin = panel_begin(p, i), width = panel_begin(p, i + 1) - begin;
            multiply_panel(g, plane, width, count, tiles,
                           kernels + (plane * p.vectors + begin) * g->ci * VL,
                           products + begin * VL);
        }
}

/* The kernel transform of row j of the planes: planes (j, 0), (j, 1), ... */
V_FN void transform_kernel_row(const int m, const int j, const float *taps, bool flipped, float *to,
                               int64_t plane_step) {
    vf32 d[3], o[A_MAX], across[3];
    UNROLL for (int x = 0; x < 3; x++) {
        UNROLL for (int y = 0; y < 3; y++) d[y] =
            v_load_f32(taps + (flipped ? 8 - 3 * y - x : 3 * y + x) * VL);
        kernel_transform(m, d, o);
        across[x] = o[j];
    }
    kernel_transform(m, across, o);
    UNROLL for (int i = 0; i < m + 2; i++) v_store_f32(to + i * plane_step, o[i]);
}

/* Transforms and multiplies one row of planes at a time, so that its kernels stay in cache. */
V_FN void multiply_panel_by_plane_rows(const int m, const gd_wino *g, int64_t width, int64_t count,
                                       const float *taps, const float *tiles, float *kernels,
                                       float *products) {
    const int64_t plane = g->ci * width * VL;
    UNROLL for (int j = 0; j < m + 2; j++) {
        for (int64_t v = 0; v < width; v++)
            for (int64_t c = 0; c < g->ci; c++)
                transform_kernel_row(m, j, taps + (v * g->ci + c) * 9 * VL, g->flipped,
                                     kernels + (c * width + v) * VL, plane);
        for (int i = 0; i < m + 2; i++)
            multiply_panel(g, j * (m + 2) + i, width, count, tiles, kernels + i * plane, products);
    }
}

void GD_ISA_FN(gd_wino_panel)(const gd_wino *g, const float *weight, int64_t vector,
                              int64_t vector_end, int64_t count, const float *tiles,
                              float *products, float *scratch) {
    const int64_t width = vector_end - vector;
    float *kernels = scratch + width * g->ci * 9 * VL;
    for (int64_t v = 0; v < width; v++)
        gather_taps(g, weight, vector + v, scratch + v * g->ci * 9 * VL);
    products += vector * VL;
    if (g->m == 4)
        multiply_panel_by_plane_rows(4, g, width, count, scratch, tiles, kernels, products);
    else multiply_panel_by_plane_rows(2, g, width, count, scratch, tiles, kernels, products);
}
