/* conv_winograd.h - Winograd convolution F(m x m, 3 x 3), m = 2 or 4.
 *
 * The algorithm computes an m x m tile of y from an a x a tile of x, a = m + 2, with a * a
 * multiplications per channel instead of 9 * m * m (a quarter of them for m = 4). Tiles and kernels
 * are transformed, multiplied elementwise, and the products are transformed back (the inverse, or
 * output, transform). In each "plane" i of the a * a transformed elements, the elementwise products
 * summed over channels are a matrix product:
 *
 *     products[i] (tiles, co)  =  input tiles[i] (tiles, ci)  *  kernels[i] (ci, co)
 *
 * The gradient of w uses the transposed transforms:
 *
 *     kernels[i] (co, ci)  =  gradient tiles[i]^T (co, tiles)  *  input tiles[i] (tiles, ci)
 *
 * For m = 4 the interpolation points are 0, +-5/8, +-3/2 and infinity, which have the smallest
 * rounding error (a relative error of 0.5e-6 to 2e-6 on typical layers, compared with 0.2e-6 for
 * direct sums); for m = 2 they are 0, +-1 and infinity.
 *
 * Everything is f32. Vector lanes are channels: images are transposed to (pixels, channels) when
 * they are read, and back when they are written.
 */
#ifndef GRADUS_OPS_CONV_CPU_CONV_WINOGRAD_H
#define GRADUS_OPS_CONV_CPU_CONV_WINOGRAD_H

#include "backend/cpu/isa.h"
#include "ops/conv/conv.h"

enum { GD_WINO_LANES = 16 }; /* channels are padded to this: a multiple of every vector length */

typedef struct gd_wino {
    int m, a; /* side lengths of a tile of y and of x */
    int64_t batch, ci, co;
    int64_t in_h, in_w, out_h, out_w;
    int64_t before_h, before_w; /* padding before x */
    int64_t tiles_h, tiles_w;   /* tiles of one image */
    bool flipped; /* w is (ci, co, 3, 3), and its kernels are rotated by 180 degrees */
    bool relu;    /* apply relu to y */

    /* Strides of the transformed tiles: element (plane, tile, channel) of x is at plane * x_plane +
     * tile * x_row + channel; y likewise. */
    int64_t x_row, x_plane, y_row, y_plane;
} gd_wino;

/* The number of channels in a vector. The functions below number rows of tiles over the batch
 * (image * tiles_h + row), and channels by vectors. */
GD_ISA_DECLARE(int, gd_wino_vector, (void));

/* The scratch memory, in floats, that the three transforms below need for this many rows of tiles.
 * With much padding, y is wider than x. */
static inline int64_t gd_wino_scratch(const gd_wino *w, int64_t rows) {
    const int64_t pixels_in = (rows * w->m + 2) * w->in_w, pixels_out = rows * w->m * w->out_w;
    const int64_t columns = (w->tiles_w * w->m + 2) * w->a;
    const int64_t pixels = pixels_in > pixels_out ? pixels_in : pixels_out;
    return (pixels + columns + 2 * GD_WINO_LANES) * GD_WINO_LANES;
}

/* Input transform: tiles of x in tile rows [row, row_end), channel vectors [vector, vector_end) ->
 * `tiles`, which starts with the first tile of tile row `row`. */
GD_ISA_DECLARE(void, gd_wino_input,
               (const gd_wino *w, const float *x, int64_t row, int64_t row_end, int64_t vector,
                int64_t vector_end, float *tiles, float *scratch));

/* The same for tiles of the gradient of y, for the gradient of w. */
GD_ISA_DECLARE(void, gd_wino_gradient,
               (const gd_wino *w, const float *y, int64_t row, int64_t row_end, int64_t vector,
                int64_t vector_end, float *tiles, float *scratch));

/* Output transform: products in tile rows [row, row_end) -> y; adds the bias unless it is NULL. */
GD_ISA_DECLARE(void, gd_wino_output,
               (const gd_wino *w, const float *products, int64_t row, int64_t row_end,
                int64_t vector, int64_t vector_end, const float *bias, float *y, float *scratch));

/* Kernel transform: kernels of output channels in vectors [vector, vector_end) -> the packed layout
 * that gd_wino_multiply reads, of gd_wino_kernel_floats floats. */
GD_ISA_DECLARE(void, gd_wino_kernels,
               (const gd_wino *w, const float *weight, int64_t vector, int64_t vector_end,
                float *kernels, float *scratch));
static inline int64_t gd_wino_kernel_floats(const gd_wino *w) {
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

/* Kernel transform and multiplication in one, for output channels in vectors [vector, vector_end),
 * at most GD_WINO_PANEL: for few tiles and many channels, where the kernels are larger than the
 * tiles. */
enum { GD_WINO_PANEL = 2 };
GD_ISA_DECLARE(void, gd_wino_panel,
               (const gd_wino *w, const float *weight, int64_t vector, int64_t vector_end,
                int64_t count, const float *tiles, float *products, float *scratch));
static inline int64_t gd_wino_panel_scratch(const gd_wino *w) {
    return (w->ci * (9 + w->a) + 16) * GD_WINO_PANEL * GD_WINO_LANES;
}

/* Gradients of the transformed kernels (a * a, co, ci) -> gradient of w, for output channels
 * [first, end). */
GD_ISA_DECLARE(void, gd_wino_weight,
               (const gd_wino *w, const float *kernels, int64_t first, int64_t end, float *weight));

#endif
