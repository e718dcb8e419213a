/* conv_im2col.isa.c - vectorized im2col panels for f32 and f64 (conv_im2col_template.h). */
#include "core/tile.h"
#include "ops/conv/cpu/conv_im2col.h"

#include "ops/matmul/cpu/gemm_block.h"
#include "backend/cpu/loop.h"
#include "backend/cpu/simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* Lane masks, masked loads (which do not touch the memory of masked-off lanes), and shuffles of two
 * vectors. */
#if V_BYTES == 64

#define BITS(low, high) (((1u << (high)) - 1) & ~((1u << (low)) - 1))
#define LOAD_F32(p, m)  ((vf32)_mm512_maskz_loadu_ps(m, p))
#define LOAD_F64(p, m)  ((vf64)_mm512_maskz_loadu_pd(m, p))
#define EVEN_F32(a, b) \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define EVEN_F64(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define LOW_F32(a, b) \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_F32(a, b) \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW_F64(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_F64(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
typedef __mmask16 mask_f32;
typedef __mmask8 mask_f64;
#define MASK_F32(low, high) ((mask_f32)BITS(low, high))
#define MASK_F64(low, high) ((mask_f64)BITS(low, high))

#elif V_BYTES == 32

#define LOAD_F32(p, m) ((vf32)_mm256_maskload_ps(p, (__m256i)(m)))
#define LOAD_F64(p, m) ((vf64)_mm256_maskload_pd(p, (__m256i)(m)))
#define EVEN_F32(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define EVEN_F64(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define LOW_F32(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_F32(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_F64(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_F64(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
typedef vi32 mask_f32;
typedef vi64 mask_f64;
V_FN vi32 MASK_F32(int64_t low, int64_t high) {
    const vi32 lane = {0, 1, 2, 3, 4, 5, 6, 7};
    return (lane >= (int32_t)low) & (lane < (int32_t)high);
}
V_FN vi64 MASK_F64(int64_t low, int64_t high) {
    const vi64 lane = {0, 1, 2, 3};
    return (lane >= low) & (lane < high);
}

#else

#define EVEN_F32(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define EVEN_F64(a, b) __builtin_shufflevector(a, b, 0, 2)
#define LOW_F32(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_F32(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW_F64(a, b)  __builtin_shufflevector(a, b, 0, 2)
#define HIGH_F64(a, b) __builtin_shufflevector(a, b, 1, 3)
typedef struct {
    int64_t low, high;
} mask_f32;
typedef mask_f32 mask_f64;
V_FN mask_f32 MASK_F32(int64_t low, int64_t high) { return (mask_f32){low, high}; }
V_FN mask_f64 MASK_F64(int64_t low, int64_t high) { return (mask_f64){low, high}; }
V_FN vf32 LOAD_F32(const float *p, mask_f32 m) {
    vf32 v = {0};
    for (int64_t i = m.low; i < m.high; i++) v[i] = p[i];
    return v;
}
V_FN vf64 LOAD_F64(const double *p, mask_f64 m) {
    vf64 v = {0};
    for (int64_t i = m.low; i < m.high; i++) v[i] = p[i];
    return v;
}

#endif

#define real        float
#define vec         vf32
#define LANES       VF32_LANES
#define lane_bits   vi32
#define lane_mask   mask_f32
#define NAME(x)     x##_f32
#define FN(x)       GD_ISA_FN(x##_f32)
#define MASK        MASK_F32
#define LOAD_LANES  LOAD_F32
#define LOAD(p)     v_load_f32(p)
#define STORE(p, v) v_store_f32(p, v)
#define EVEN        EVEN_F32
#define ZIP_LOW     LOW_F32
#define ZIP_HIGH    HIGH_F32
#include "ops/conv/cpu/conv_im2col_template.h"

#define real        double
#define vec         vf64
#define LANES       VF64_LANES
#define lane_bits   vi64
#define lane_mask   mask_f64
#define NAME(x)     x##_f64
#define FN(x)       GD_ISA_FN(x##_f64)
#define MASK        MASK_F64
#define LOAD_LANES  LOAD_F64
#define LOAD(p)     v_load_f64(p)
#define STORE(p, v) v_store_f64(p, v)
#define EVEN        EVEN_F64
#define ZIP_LOW     LOW_F64
#define ZIP_HIGH    HIGH_F64
#include "ops/conv/cpu/conv_im2col_template.h"
