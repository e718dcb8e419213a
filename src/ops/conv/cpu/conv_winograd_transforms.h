/* conv_winograd_transforms.h - the one-dimensional Winograd transforms and the transposition
 * between pixels and channels, for conv_winograd*.isa.c. Vector lanes are channels.
 */
#ifndef GRADUS_OPS_CONV_CPU_CONV_WINOGRAD_TRANSFORMS_H
#define GRADUS_OPS_CONV_CPU_CONV_WINOGRAD_TRANSFORMS_H

#include "ops/conv/cpu/conv_winograd.h"
#include "backend/cpu/loop.h"
#include "backend/cpu/simd.h"

enum { VL = VF32_LANES, A_MAX = 6, M_MAX = 4 };

#define SPLAT(x) v_splat_f32((float)(x))

/* --- transposing between (channels, pixels) and (pixels, channels) ---------------------------- */

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

/* Transposes up to VL rows of `count` elements, `step` apart, to `count` vectors; missing lanes are
 * 0. */
static __attribute__((unused)) void gather_lanes(const float *from, int64_t step, int64_t lanes,
                                                 int64_t count, float *to) {
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
static __attribute__((unused)) void scatter_lanes(const float *from, float *to, int64_t step,
                                                  int64_t lanes, int64_t count) {
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

#endif
