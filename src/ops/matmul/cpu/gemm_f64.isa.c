/* gemm_f64.isa.c - blocks of matrix products with f64 accumulators. */
#define FOR_F64
#include "ops/matmul/cpu/gemm_template.h"
