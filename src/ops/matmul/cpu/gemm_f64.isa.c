/* gemm_f64.isa.c - blocks of matrix products with f64 accumulators. */
#define GEMM_F64
#include "core/tile.h"
#include "ops/matmul/cpu/gemm_template.h"

gd_status GD_ISA_FN(gd_gemm_block_f64)(const gd_gemm *g) {
    return is_thin(g) ? compute_thin_block(g) : compute_block(g);
}

void GD_ISA_FN(gd_gemm_sum_f64)(const gd_gemm *g, double *partials, int64_t count, int64_t step) {
    reduce_partials(g, partials, count, step);
}
