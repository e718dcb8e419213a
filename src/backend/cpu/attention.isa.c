/* attention.isa.c - the exponentials of a row of scores. */
#include "backend/cpu/attention.h"
#include "backend/cpu/vmath.h"

/* row[j] = exp(row[j] - most); returns their sum, added in one order whatever the length. */
float GD_ISA_FN(gd_attention_exp)(float *row, int64_t n, float most) {
    vf32 total = v_splat_f32(0), shift = v_splat_f32(most);
    int64_t j = 0;
    for (; j + VF32_LANES <= n; j += VF32_LANES) {
        vf32 e = v_exp_f32(v_sub_f32(v_load_f32(row + j), shift));
        v_store_f32(row + j, e);
        total = v_add_f32(total, e);
    }
    float lanes[VF32_LANES], sum = 0;
    v_store_f32(lanes, total);
    for (int i = 0; i < VF32_LANES; i++) sum += lanes[i];
    if (j < n) {
        vf32 e = v_exp_f32(v_sub_f32(v_load_part_f32(row + j, (int)(n - j)), shift));
        v_store_part_f32(row + j, e, (int)(n - j));
        for (; j < n; j++) sum += row[j];
    }
    return sum;
}
