/* random.isa.c - Philox 4x32-10 and the distributions, many blocks at a time.
 *
 * Words are computed in vectors whose lanes are blocks. The distributions are loops over the scalar
 * functions of random_dist.h, which the compiler vectorizes; no multiply-adds are fused in them, so
 * the bits do not depend on the instruction set.
 */
#include "ops/random/cpu/random.h"

#include "backend/cpu/simd.h"

typedef uint32_t vu32_half __attribute__((vector_size(V_BYTES / 2)));
#if V_BYTES == 64
/* The type that the built-ins take for vi64. */
typedef long long v_longs __attribute__((vector_size(V_BYTES)));
#endif

enum { BLOCKS = 64 }; /* blocks of a batch, whose words stay in L1 */

/* The words of a batch of blocks as a structure of arrays. */
typedef struct {
    uint32_t w[4][BLOCKS];
} batch;

/* Multiplies the low 32 bits of 64-bit lanes to 64-bit products. Built-ins, because gcc 12 compiles
 * the generic expression to 64-bit multiplications. */
#if defined(__clang__) || !defined(__SSE2__)
V_FN vu64 multiply_low32(vu64 a, vu64 b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
#elif V_BYTES == 64
V_FN vu64 multiply_low32(vu64 a, vu64 b) {
    return (vu64)__builtin_ia32_pmuludq512_mask((vi32)a, (vi32)b, (v_longs){0}, V_ALL8);
}
#elif V_BYTES == 32
V_FN vu64 multiply_low32(vu64 a, vu64 b) {
    return (vu64)__builtin_ia32_pmuludq256((vi32)a, (vi32)b);
}
#else
V_FN vu64 multiply_low32(vu64 a, vu64 b) {
    return (vu64)__builtin_ia32_pmuludq128((vi32)a, (vi32)b);
}
#endif

/* Computes VI64_LANES blocks, one per lane; the low half of c[i] is word i. */
V_FN void philox_blocks(gd_rng rng, uint64_t block, vu64 c[4]) {
    uint64_t lanes[VI64_LANES];
    for (int i = 0; i < VI64_LANES; i++) lanes[i] = block + (uint64_t)i;
    vu64 c0, c1, c2 = rng.call - (vu64){0}, c3 = c2 >> 32;
    memcpy(&c0, lanes, sizeof c0);
    c1 = c0 >> 32;
    uint32_t k0 = (uint32_t)rng.seed, k1 = (uint32_t)(rng.seed >> 32);
    const vu64 m0 = 0xD2511F53u - (vu64){0}, m1 = 0xCD9E8D57u - (vu64){0};
    for (int round = 0; round < 10; round++) {
        vu64 p0 = multiply_low32(m0, c0), p1 = multiply_low32(m1, c2);
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    c[0] = c0, c[1] = c1, c[2] = c2, c[3] = c3;
}

/* Computes two independent vectors of blocks at a time to hide the latency of multiplications. */
static void fill_batch(gd_rng rng, uint64_t block, batch *b) {
    for (int j = 0; j < BLOCKS; j += 2 * VI64_LANES) {
        vu64 lo[4], hi[4];
        philox_blocks(rng, block + (uint64_t)j, lo);
        philox_blocks(rng, block + (uint64_t)j + VI64_LANES, hi);
        for (int k = 0; k < 4; k++) {
            vu32_half a = __builtin_convertvector(lo[k], vu32_half),
                      c = __builtin_convertvector(hi[k], vu32_half);
            memcpy(&b->w[k][j], &a, sizeof a);
            memcpy(&b->w[k][j + VI64_LANES], &c, sizeof c);
        }
    }
}

/* Runs the body for each batch. `to` has room for BLOCKS * EACH elements: the output itself, or a
 * local array for the last, partial batch. */
#define EACH_BATCH(TYPE, EACH, ...)                                                    \
    do {                                                                               \
        for (; n > 0; n -= BLOCKS * (EACH), block += BLOCKS, out += BLOCKS * (EACH)) { \
            batch b;                                                                   \
            TYPE tail[BLOCKS * (EACH)], *to = n < BLOCKS * (EACH) ? tail : out;        \
            fill_batch(rng, block, &b);                                                \
            __VA_ARGS__                                                                \
            if (to == tail) memcpy(out, tail, (size_t)n * sizeof *out);                \
        }                                                                              \
    } while (0)

void GD_ISA_FN(gd_random_words)(gd_rng rng, uint64_t block, int64_t n, uint32_t *out) {
    EACH_BATCH(uint32_t, 4, {
        for (int j = 0; j < BLOCKS; j++)
            for (int k = 0; k < 4; k++) to[4 * j + k] = b.w[k][j];
    });
}

void GD_ISA_FN(gd_random_uniform_f32)(gd_rng rng, uint64_t block, int64_t n,
                                      const gd_uniform_params *p, float *out) {
    const gd_uniform_params params = *p;
    EACH_BATCH(float, 4, {
        for (int j = 0; j < BLOCKS; j++) {
            to[4 * j] = gd_uniform_f32(&params, b.w[0][j]);
            to[4 * j + 1] = gd_uniform_f32(&params, b.w[1][j]);
            to[4 * j + 2] = gd_uniform_f32(&params, b.w[2][j]);
            to[4 * j + 3] = gd_uniform_f32(&params, b.w[3][j]);
        }
    });
}

void GD_ISA_FN(gd_random_uniform_f64)(gd_rng rng, uint64_t block, int64_t n,
                                      const gd_uniform_params *p, double *out) {
    const gd_uniform_params params = *p;
    EACH_BATCH(double, 2, {
        for (int j = 0; j < BLOCKS; j++) {
            to[2 * j] = gd_uniform_f64(&params, b.w[0][j], b.w[1][j]);
            to[2 * j + 1] = gd_uniform_f64(&params, b.w[2][j], b.w[3][j]);
        }
    });
}

void GD_ISA_FN(gd_random_normal_f32)(gd_rng rng, uint64_t block, int64_t n, double mean, double std,
                                     float *out) {
    const float m = (float)mean, s = (float)std;
    EACH_BATCH(float, 4, {
        float z[4][BLOCKS];
        for (int half = 0; half < 4; half += 2)
            for (int j = 0; j < BLOCKS; j++)
                gd_normals_f32(b.w[half][j], b.w[half + 1][j], &z[half][j], &z[half + 1][j]);
        for (int j = 0; j < BLOCKS; j++) {
            to[4 * j] = m + s * z[0][j];
            to[4 * j + 1] = m + s * z[1][j];
            to[4 * j + 2] = m + s * z[2][j];
            to[4 * j + 3] = m + s * z[3][j];
        }
    });
}

void GD_ISA_FN(gd_random_normal_f64)(gd_rng rng, uint64_t block, int64_t n, double mean, double std,
                                     double *out) {
    EACH_BATCH(double, 2, {
        for (int j = 0; j < BLOCKS; j++) {
            const uint32_t w[4] = {b.w[0][j], b.w[1][j], b.w[2][j], b.w[3][j]};
            double x;
            double y;
            gd_normals_f64(w, &x, &y);
            to[2 * j] = mean + std * x;
            to[2 * j + 1] = mean + std * y;
        }
    });
}

void GD_ISA_FN(gd_random_mask)(gd_rng rng, uint64_t block, int64_t n, uint64_t limit,
                               uint8_t *mask) {
    uint8_t *out = mask;
    if (limit == 0 || limit >> 32) { /* no word is below 0, every one below 2^32 */
        memset(mask, limit != 0, (size_t)n);
        return;
    }
    const uint32_t last = (uint32_t)(limit - 1);
    EACH_BATCH(uint8_t, 4, {
        for (int j = 0; j < BLOCKS; j++) {
            to[4 * j] = b.w[0][j] <= last;
            to[4 * j + 1] = b.w[1][j] <= last;
            to[4 * j + 2] = b.w[2][j] <= last;
            to[4 * j + 3] = b.w[3][j] <= last;
        }
    });
}

void GD_ISA_FN(gd_dropout_f32)(int64_t n, const float *restrict x, const uint8_t *restrict mask,
                               float scale, float *restrict y) {
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * (mask[i] ? scale : 0.0f);
}

void GD_ISA_FN(gd_dropout_f64)(int64_t n, const double *restrict x, const uint8_t *restrict mask,
                               double scale, double *restrict y) {
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * (mask[i] ? scale : 0.0);
}
