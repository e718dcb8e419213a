/* gemm_f32.isa.c - blocks of matrix products with f32 accumulators. */
#define FOR_F32
#include "ops/matmul/cpu/gemm_template.h"
