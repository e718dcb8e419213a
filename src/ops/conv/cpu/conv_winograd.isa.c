/* conv_winograd.isa.c - Winograd convolution (conv_winograd.h): transforms of images, forward and
 * back.
 */
#include "ops/conv/cpu/conv_winograd_transforms.h"

int GD_ISA_FN(gd_wino_vector)(void) { return VL; }

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
                                 int64_t row_end, int64_t vector, int64_t vector_end, float *tiles,
                                 float *scratch,
                                 void (*one_row)(const gd_wino *, const image_grid *, int64_t,
                                                 const float *, int64_t, float *, vf32 *)) {
    vf32 *columns = (vf32 *)(void *)scratch;
    float *pixels = scratch + (g->tiles_w * g->m + 2) * g->a * VL;
    for (int64_t c = vector; c < vector_end; c++) {
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
                              int64_t vector, int64_t vector_end, float *tiles, float *scratch) {
    const image_grid im = {x,           g->ci, g->in_h,  g->in_w,   g->before_h,
                           g->before_w, g->a,  g->x_row, g->x_plane};
    transform_image_rows(g, &im, row, row_end, vector, vector_end, tiles, scratch,
                         g->m == 4 ? input_tile_row_4 : input_tile_row_2);
}

void GD_ISA_FN(gd_wino_gradient)(const gd_wino *g, const float *y, int64_t row, int64_t row_end,
                                 int64_t vector, int64_t vector_end, float *tiles, float *scratch) {
    const image_grid im = {y, g->co, g->out_h, g->out_w, 0, 0, g->m, g->y_row, g->y_plane};
    transform_image_rows(g, &im, row, row_end, vector, vector_end, tiles, scratch,
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
                               int64_t row_end, int64_t vector, int64_t vector_end,
                               const float *bias, float *y, float *scratch) {
    for (int64_t c = vector; c < vector_end; c++) {
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
