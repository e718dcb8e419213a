/* conv_winograd.h - 3x3 convolution with fewer multiplications.
 *
 * Winograd's algorithm F(m x m, 3 x 3) makes an m x m tile of y from an a x a tile of x, a = m + 2,
 * with a * a multiplications a channel instead of 9 * m * m (a quarter for m = 4): tiles and kernels
 * are transformed, multiplied place by place, and the products are transformed back. In place
 * ("plane") number i, of a * a, that is a matrix product over channels:
 *
 *     products[i] (tiles, co)  =  tiles of x [i] (tiles, ci)  *  kernels[i] (ci, co)
 *
 * The gradient of w is made in the same way, with other transforms:
 *
 *     kernels[i] (co, ci)  =  tiles of y [i]^T (co, tiles)  *  tiles of x [i] (tiles, ci)
 *
 * For m = 4 the points are 0, +-5/8, +-3/2 and infinity, which lose the fewest digits (a relative
 * error of 0.5e-6 to 2e-6 on typical layers, where direct sums have 0.2e-6); for m = 2 they are 0,
 * +-1 and infinity.
 *
 * Everything here is f32. Vectors hold channels: planes of x are turned (pixels, channels) on the
 * way in, and back on the way out.
 */
#ifndef GRADUS_CPU_CONV_WINOGRAD_H
#define GRADUS_CPU_CONV_WINOGRAD_H

#include "backend/cpu/isa.h"
#include "ops/convolution.h"

enum { GD_WINO_LANES = 16 }; /* channels are rounded up to this; a multiple of every vector */

typedef struct gd_wino {
    int m, a; /* sides of a tile of y and of x */
    int64_t batch, ci, co;
    int64_t in_h, in_w, out_h, out_w;
    int64_t before_h, before_w; /* zeros before x */
    int64_t tiles_h, tiles_w;   /* tiles of one image */
    bool turned;                /* w is (ci, co, 3, 3), and its taps count backwards */
    bool relu;                  /* what is below 0 in y is 0 */

    /* Matrices of transformed tiles: element (plane, tile, channel) is at
     * plane * x_plane + tile * x_row + channel; y_... likewise. */
    int64_t x_row, x_plane, y_row, y_plane;
} gd_wino;

/* Rows of tiles are numbered through the batch: image * tiles_h + row. Channels are counted in
 * vectors: groups of so many. */
GD_ISA_DECLARE(int, gd_wino_vector, (void));

/* Numbers of scratch that the three transforms below need for so many rows of tiles. With much
 * padding, y is wider than x. */
static inline int64_t gd_wino_scratch(const gd_wino *w, int64_t rows) {
    const int64_t pixels_in = (rows * w->m + 2) * w->in_w, pixels_out = rows * w->m * w->out_w;
    const int64_t columns = (w->tiles_w * w->m + 2) * w->a;
    const int64_t pixels = pixels_in > pixels_out ? pixels_in : pixels_out;
    return (pixels + columns + 2 * GD_WINO_LANES) * GD_WINO_LANES;
}

/* Tiles of x in tile rows [row, row_end), channel vectors [group, group_end) -> `tiles`, where the
 * first tile of the first row is tile 0. */
GD_ISA_DECLARE(void, gd_wino_input,
               (const gd_wino *w, const float *x, int64_t row, int64_t row_end, int64_t group,
                int64_t group_end, float *tiles, float *scratch));

/* The same for tiles of y, on the way to the gradient of w. */
GD_ISA_DECLARE(void, gd_wino_gradient,
               (const gd_wino *w, const float *y, int64_t row, int64_t row_end, int64_t group,
                int64_t group_end, float *tiles, float *scratch));

/* Products in tile rows [row, row_end) -> y; adds the bias (or NULL). */
GD_ISA_DECLARE(void, gd_wino_output,
               (const gd_wino *w, const float *products, int64_t row, int64_t row_end,
                int64_t group, int64_t group_end, const float *bias, float *y, float *scratch));

/* Kernels of output channels in vectors [group, group_end) -> the packed form that gd_wino_multiply
 * reads; gd_wino_kernel_numbers are its size. */
GD_ISA_DECLARE(void, gd_wino_kernels,
               (const gd_wino *w, const float *weight, int64_t group, int64_t group_end,
                float *kernels, float *scratch));
static inline int64_t gd_wino_kernel_numbers(const gd_wino *w) {
    const int64_t lanes = (w->co + GD_WINO_LANES - 1) / GD_WINO_LANES * GD_WINO_LANES;
    return (int64_t)w->a * w->a * w->ci * lanes;
}
static inline int64_t gd_wino_kernel_scratch(const gd_wino *w) {
    return (w->ci * 9 + 16) * GD_WINO_LANES;
}

/* products = tiles * kernels in all planes, for `count` tiles. */
GD_ISA_DECLARE(void, gd_wino_multiply,
               (const gd_wino *w, int64_t count, const float *tiles, const float *kernels,
                float *products));

/* Both in one, for output channels in vectors [vector, vector_end), GD_WINO_PANEL at most: for few
 * tiles and many channels, where kernels outweigh tiles. */
enum { GD_WINO_PANEL = 2 };
GD_ISA_DECLARE(void, gd_wino_panel,
               (const gd_wino *w, const float *weight, int64_t vector, int64_t vector_end,
                int64_t count, const float *tiles, float *products, float *scratch));
static inline int64_t gd_wino_panel_scratch(const gd_wino *w) {
    return (w->ci * (9 + w->a) + 16) * GD_WINO_PANEL * GD_WINO_LANES;
}

/* Gradients of the transformed kernels (a * a, co, ci) -> that of w, for output channels
 * [first, end). */
GD_ISA_DECLARE(void, gd_wino_weight,
               (const gd_wino *w, const float *kernels, int64_t first, int64_t end, float *weight));

#endif
