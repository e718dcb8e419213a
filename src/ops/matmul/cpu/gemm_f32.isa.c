/* gemm_f32.isa.c - blocks of matrix products with f32 accumulators. */
#include "core/tile.h"
#include "ops/matmul/cpu/gemm_template.h"

gd_status GD_ISA_FN(gd_gemm_block_f32)(const gd_gemm *g) {
    return is_thin(g) ? compute_thin_block(g) : compute_block(g);
}

void GD_ISA_FN(gd_gemm_sum_f32)(const gd_gemm *g, float *partials, int64_t count, int64_t step) {
    reduce_partials(g, partials, count, step);
}
