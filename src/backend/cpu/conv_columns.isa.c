/* conv_columns.isa.c - columns of a convolution in and out, with vectors. */
#include "backend/cpu/conv_columns.h"
#include "backend/cpu/simd.h"

/* The even lanes of two vectors. */
#if V_BYTES == 64
#define EVEN_F32(a, b) \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define EVEN_F64(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#elif V_BYTES == 32
#define EVEN_F32(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define EVEN_F64(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#else
#define EVEN_F32(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define EVEN_F64(a, b) __builtin_shufflevector(a, b, 0, 2)
#endif

#define real    float
#define vec     vf32
#define LANES   VF32_LANES
#define NAME(x) x##_f32
#define FN(x)   GD_ISA_FN(x##_f32)
#define V(x)    v_##x##_f32
#define EVEN    EVEN_F32
#include "backend/cpu/conv_columns_template.h"

#define real    double
#define vec     vf64
#define LANES   VF64_LANES
#define NAME(x) x##_f64
#define FN(x)   GD_ISA_FN(x##_f64)
#define V(x)    v_##x##_f64
#define EVEN    EVEN_F64
#include "backend/cpu/conv_columns_template.h"
