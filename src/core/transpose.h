/* transpose.h - transposes blocks of elements.
 *
 * Element (r, c) at s + r*ss + c*size is copied to d + c*ds + r*size. Small squares are transposed
 * in vector registers; blocks of squares stay in L1 on both sides.
 */
#ifndef GRADUS_CORE_TRANSPOSE_H
#define GRADUS_CORE_TRANSPOSE_H

#include <stdint.h>
#include <string.h>

typedef uint16_t gd_8x16 __attribute__((vector_size(16)));
typedef uint32_t gd_4x32 __attribute__((vector_size(16)));
typedef uint64_t gd_2x64 __attribute__((vector_size(16)));

#define GD_SQUARE static inline __attribute__((always_inline)) void

GD_SQUARE gd_square_1(char *d, int64_t ds, const char *s, int64_t ss) { /* 1 x 1 */
    (void)ds;
    (void)ss;
    *d = *s;
}

GD_SQUARE gd_square_2(char *d, int64_t ds, const char *s, int64_t ss) { /* 8 x 8 */
    gd_8x16 a[8], b[8];
    for (int i = 0; i < 8; i++) memcpy(&a[i], s + i * ss, 16);
    for (int i = 0; i < 4; i++) { /* interleave rows 4 apart, three times */
        b[2 * i] = __builtin_shufflevector(a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
        b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < 4; i++) {
        a[2 * i] = __builtin_shufflevector(b[i], b[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
        a[2 * i + 1] = __builtin_shufflevector(b[i], b[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < 4; i++) {
        b[2 * i] = __builtin_shufflevector(a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
        b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i++) memcpy(d + i * ds, &b[i], 16);
}

GD_SQUARE gd_square_4(char *d, int64_t ds, const char *s, int64_t ss) { /* 4 x 4 */
    gd_4x32 a[4], b[4];
    for (int i = 0; i < 4; i++) memcpy(&a[i], s + i * ss, 16);
    for (int i = 0; i < 2; i++) {
        b[2 * i] = __builtin_shufflevector(a[i], a[i + 2], 0, 4, 1, 5);
        b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 2], 2, 6, 3, 7);
    }
    for (int i = 0; i < 2; i++) {
        a[2 * i] = __builtin_shufflevector(b[i], b[i + 2], 0, 4, 1, 5);
        a[2 * i + 1] = __builtin_shufflevector(b[i], b[i + 2], 2, 6, 3, 7);
    }
    for (int i = 0; i < 4; i++) memcpy(d + i * ds, &a[i], 16);
}

GD_SQUARE gd_square_8(char *d, int64_t ds, const char *s, int64_t ss) { /* 2 x 2 */
    gd_2x64 a[2], b[2];
    for (int i = 0; i < 2; i++) memcpy(&a[i], s + i * ss, 16);
    b[0] = __builtin_shufflevector(a[0], a[1], 0, 2);
    b[1] = __builtin_shufflevector(a[0], a[1], 1, 3);
    for (int i = 0; i < 2; i++) memcpy(d + i * ds, &b[i], 16);
}

/* Loops over squares of N x N elements of SIZE bytes; the inner loop writes along rows of the
 * target. The remaining edges are copied element by element. */
#define GD_DEFINE_BLOCK(SIZE, N)                                                              \
    static void gd_block_##SIZE(char *d, int64_t ds, const char *s, int64_t ss, int64_t rows, \
                                int64_t cols) {                                               \
        int64_t full_rows = rows / N * N, full_cols = cols / N * N;                           \
        for (int64_t c = 0; c < full_cols; c += N)                                            \
            for (int64_t r = 0; r < full_rows; r += N)                                        \
                gd_square_##SIZE(d + c * ds + r * SIZE, ds, s + r * ss + c * SIZE, ss);       \
        for (int64_t c = 0; c < cols; c++)                                                    \
            for (int64_t r = c < full_cols ? full_rows : 0; r < rows; r++)                    \
                memcpy(d + c * ds + r * SIZE, s + r * ss + c * SIZE, SIZE);                   \
    }
GD_DEFINE_BLOCK(1, 1)
GD_DEFINE_BLOCK(2, 8)
GD_DEFINE_BLOCK(4, 4)
GD_DEFINE_BLOCK(8, 2)

/* rows x cols elements of `size` bytes (1, 2, 4 or 8). */
static void gd_transpose_block(size_t size, char *d, int64_t ds, const char *s, int64_t ss,
                               int64_t rows, int64_t cols) {
    int64_t step = (int64_t)size, block = size < 4 ? 64 : 32;
    for (int64_t c = 0; c < cols; c += block)
        for (int64_t r = 0; r < rows; r += block) {
            int64_t n = rows - r < block ? rows - r : block,
                    m = cols - c < block ? cols - c : block;
            char *to = d + c * ds + r * step;
            const char *from = s + r * ss + c * step;
            switch (size) {
            case 1: gd_block_1(to, ds, from, ss, n, m); break;
            case 2: gd_block_2(to, ds, from, ss, n, m); break;
            case 4: gd_block_4(to, ds, from, ss, n, m); break;
            default: gd_block_8(to, ds, from, ss, n, m); break;
            }
        }
}

#undef GD_SQUARE
#undef GD_DEFINE_BLOCK

#endif
