/* conv_winograd_multiply.isa.c - Winograd convolution (conv_winograd.h): transforms of kernels, and
 * the matrix product of each plane.
 */
#include "ops/conv/cpu/conv_winograd_transforms.h"

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

void GD_ISA_FN(gd_wino_kernels)(const gd_wino *g, const float *weight, int64_t vector,
                                int64_t vector_end, float *kernels, float *scratch) {
    const panel_split p = channel_panels(g);
    const int64_t plane = g->ci * p.vectors * VL;
    for (int64_t v = vector; v < vector_end; v++) {
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
